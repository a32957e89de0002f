"""What a wire format offers the simulator, and the small types that its functions speak."""

from typing import NamedTuple, Protocol

from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Kind


class Ask(NamedTuple):
    """What of a request shapes the answer's bytes."""

    model: str
    usage: bool = True
    """Whether usage was asked for, where the format leaves the choice."""
    array: bool = False
    """A Gemini stream without `alt=sse`: a JSON array that grows."""
    stream: bool = True
    previous: str | None = None
    """Of the answer that a Responses request goes on from."""
    conversation: str | None = None
    """That a Responses request belongs to."""


class Piece(NamedTuple):
    """One event of a stream, ready to be sent."""

    kind: Kind
    data: bytes
    weight: int = 0
    """Pieces of the answer's content in it."""


class Fault(NamedTuple):
    """An error to be told in a format's own shape."""

    status: int
    message: str
    type: str | None = None
    code: str | None = None


class Dialect(Protocol):
    """What a format's module offers."""

    def stream(self, answer: Answer, ask: Ask) -> list[Piece]:
        """Return all events of the streamed answer."""
        ...

    def plain(self, answer: Answer, ask: Ask) -> bytes:
        """Return the body of the answer that is not streamed."""
        ...

    def error_body(self, fault: Fault) -> bytes:
        """Return the JSON body of an error status."""
        ...

    def error_event(self, fault: Fault) -> bytes:
        """Return the bytes that tell an error inside a stream."""
        ...
