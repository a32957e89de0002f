"""What an answer's end is told of usage and cost."""

from sluicegate.messages import Usage


class Bill:
    """What the end of an answer says about usage and cost."""

    __slots__ = ("beside_usage", "in_usage", "usage")

    def __init__(self, usage: Usage, in_usage: bytes = b"", beside_usage: bytes = b"") -> None:
        self.usage = usage
        self.in_usage = in_usage
        """JSON members that join the usage object (`"cost":…,"cost_nano_usd":…`), without a leading comma."""
        self.beside_usage = beside_usage
        """JSON members that stand beside it (the extension object of a profile)."""
