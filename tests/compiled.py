"""Whether the tests run against the compiled build, in which some classes have no subclasses in Python."""

from sluicegate.wire import sse

COMPILED = not str(sse.__file__).endswith(".py")
