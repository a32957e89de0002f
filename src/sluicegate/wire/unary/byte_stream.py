"""An answer of bytes that mean nothing to us, on its way to the client as it comes: sound, files.

Its end is the end of its body, which HTTP tells apart from a cut; there is no place in it for an error, usage or cost.
"""

from sluicegate.errors import DecodeError, SluicegateError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.upstream_errors import read_stream_error


class EndpointStream:
    """What streams of endpoints that give no text have in common: a finish that only usage comes with, no id."""

    __slots__ = ("content", "ended", "error", "out", "usage")

    finishing = False
    joins_usage = True
    finish_reason: str | None = "stop"
    upstream_id: str | None = None
    held = False
    repaired = False

    def __init__(self, usage: Usage | None = None) -> None:
        """Args: usage: what the answer is known to be charged for."""
        self.out: list[bytes] = []
        self.content = False
        self.ended = False
        self.error: StreamError | None = None
        self.usage = usage

    def flush(self) -> None:
        """Do nothing: what may leave is out."""

    def feed_whole(self, body: bytes) -> None:
        """Take JSON in the place of the stream, which can only be an error. Raises DecodeError where it is none."""
        error = json_edit.decode_top(body, "http").get("error")
        if error is None:
            raise DecodeError("http", None, "an object in the place of a stream")
        self.error = read_stream_error(bytes(error))

    def release(self) -> None:
        """Do nothing: the finish waits for usage."""


class ByteStream(EndpointStream):
    """One answer's codec. See `StreamCodec`."""

    __slots__ = ()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        self.out.append(data)
        self.content = True

    def finish(self) -> None:
        """Take the end of the body. Raises DecodeError where it was empty."""
        if not self.content:
            raise DecodeError("http", None, "the answer is empty")
        self.ended = True

    def farewell(self, bill: Bill | None) -> bytes:
        """Return nothing: the end of the body is the end."""
        return b""

    def failure(self, error: SluicegateError) -> bytes:
        """Return nothing; the shell cuts the answer off, so that it does not look complete."""
        return b""
