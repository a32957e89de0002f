"""Sans-I/O codecs: bytes to events and back, one module a wire format.

A codec holds one answer's state and does no I/O: the shell feeds it bytes, writes what it puts out, and owes it three
things: to call `flush` after the last event of each read, to journal before it writes anything a codec calls finishing,
and to stop feeding once `error` or `ended` is set.
"""

from typing import Protocol

from sluicegate.errors import SluicegateError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire.bill import Bill as Bill


class StreamCodec(Protocol):
    """One streamed answer on its way from the provider's format to the client's."""

    out: list[bytes]
    """Framed events for the client that are ready; the shell takes and clears them."""
    content: bool
    """An event with content has come: what is in `out` may not be held back any longer."""
    finishing: bool
    """`out` holds the finish of the whole answer: a finished checkpoint must be journalled before it is written."""
    joins_usage: bool
    """Finish and usage share an event: the finish waits for usage, and `release` puts out nothing."""
    ended: bool
    """The answer is complete: `farewell` may be called."""
    error: StreamError | None
    """The provider reported an error inside its stream."""
    usage: Usage | None
    """The provider's last report."""
    finish_reason: str | None

    @property
    def upstream_id(self) -> str | None:
        """The provider's id of the answer."""
        ...

    @property
    def held(self) -> bool:
        """Whether the finish is held back until the next event, the end or `release`."""
        ...

    @property
    def repaired(self) -> bool:
        """Whether anything beyond the contract's own edits had to be put right."""
        ...

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Raises DecodeError."""
        ...

    def flush(self) -> None:
        """Put out what must not wait for the next read."""
        ...

    def finish(self) -> None:
        """Take the end of the body: sets `ended`, or raises DecodeError where the answer was cut."""
        ...

    def feed_whole(self, body: bytes) -> None:
        """Take an answer that came as one JSON object although a stream was asked for. Raises DecodeError."""
        ...

    def release(self) -> None:
        """Put out a held finish now; `finishing` is set."""
        ...

    def farewell(self, bill: Bill | None) -> bytes:
        """Return all that completes the answer: a held finish, usage as the client gets it, the end marker.

        Args:
            bill: None where the client gets no usage.
        """
        ...

    def failure(self, error: SluicegateError) -> bytes:
        """Return the format's terminal error event, and no end marker."""
        ...
