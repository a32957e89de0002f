"""A stream or a decoder around another one: whoever looks at, adds to, or changes what a finished codec tells.

See `wire.StreamCodec` and `translation.StreamDecoder`.
"""

from abc import ABC, abstractmethod

from sluicegate.errors import SluicegateError
from sluicegate.messages import StreamError, StreamEvent, Usage
from sluicegate.wire import Bill, StreamCodec
from sluicegate.wire.translation import StreamDecoder


class WrappedDecoder(ABC):
    """Reads one provider's stream through another decoder; `take` says what becomes of its events."""

    def __init__(self, decoder: StreamDecoder) -> None:
        self._decoder = decoder

    @property
    def upstream_id(self) -> str | None:
        """The provider's id of the answer."""
        return self._decoder.upstream_id

    @property
    def repaired(self) -> bool:
        """Whether something had to be put right."""
        return self._decoder.repaired

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes. Raises DecodeError."""
        return self.take(self._decoder.feed(data))

    def finish(self) -> list[StreamEvent]:
        """Take the end of the body. Raises DecodeError where the answer was cut."""
        return self.take(self._decoder.finish())

    def left(self) -> list[StreamEvent]:
        """Return what the end of a body that was cut still brought, once."""
        return self.take(self._decoder.left())

    @abstractmethod
    def take(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Return what is told in place of these events."""


class WrappedStream(ABC):
    """What a codec says and does, told on; `_put` sees the events that it has put out."""

    def __init__(self, codec: StreamCodec) -> None:
        self._codec = codec
        self.out = codec.out
        """The codec's own list: what it holds back it may still count."""
        self.joins_usage = codec.joins_usage
        self.content = False
        self.finishing = False
        self.ended = False
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None

    @property
    def upstream_id(self) -> str | None:
        """The provider's id of the answer."""
        return self._codec.upstream_id

    @property
    def held(self) -> bool:
        """Whether the finish is held back."""
        return self._codec.held

    @property
    def repaired(self) -> bool:
        """Whether anything beyond the contract's own edits had to be put right."""
        return self._codec.repaired

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Raises DecodeError."""
        ready = len(self.out)
        try:
            self._codec.feed(data)
        finally:
            self._follow(ready)

    def flush(self) -> None:
        """Put out what must not wait for the next read."""
        ready = len(self.out)
        self._codec.flush()
        self._follow(ready)

    def finish(self) -> None:
        """Take the end of the body. Raises DecodeError where the answer was cut."""
        ready = len(self.out)
        try:
            self._codec.finish()
        finally:
            self._follow(ready)

    def feed_whole(self, body: bytes) -> None:
        """Take an answer that came as one JSON object although a stream was asked for. Raises DecodeError."""
        ready = len(self.out)
        try:
            self._codec.feed_whole(body)
        finally:
            self._follow(ready)

    def release(self) -> None:
        """Put out a held finish now."""
        ready = len(self.out)
        self._codec.release()
        self._follow(ready)

    def farewell(self, bill: Bill | None) -> bytes:
        """Return all that completes the answer."""
        return self._codec.farewell(bill)

    def failure(self, error: SluicegateError) -> bytes:
        """Return the format's terminal error event, and no end marker."""
        return self._codec.failure(error)

    def _follow(self, ready: int) -> None:
        """Take over where the codec stands, and look at what it has put out since so many events were ready."""
        codec = self._codec
        self.content, self.ended, self.error = codec.content, codec.ended, codec.error
        self.usage, self.finish_reason = codec.usage, codec.finish_reason
        if codec.finishing:
            codec.finishing = False
            self.finishing = True
        if len(self.out) > ready:
            self._put(ready)

    @abstractmethod
    def _put(self, ready: int) -> None:
        """See the events behind so many that were ready before."""
