"""An attempt's answer that its provider may pause, across formats: what has come of it, and the call that goes on.

Which answers these are, and what a provider wants to be given, says its format (`wire.resumption`); that the calls
are one answer to the client, `wire.resumed_stream`. Who makes the calls is `server.serving.resumed`.
"""

from collections.abc import Callable

from sluicegate.messages import Start, StreamEvent, UsageReport
from sluicegate.wire.resumed_stream import ResumedStream, paused_finish, resumed_events
from sluicegate.wire.translation import Resumption, StreamDecoder
from sluicegate.wire.wrapped import WrappedDecoder

_MARKS = (b"pause_turn", b"CONTINUATION")
"""A plain answer that holds none of them was not paused."""


class PausableAnswer:
    """The calls of one attempt."""

    __slots__ = ("_left", "_resumption", "_said", "first_bytes", "stream")

    def __init__(self, body: bytes, resumption: Resumption, limit: int) -> None:
        """Begin with the first call.

        Args:
            limit: how often the answer is resumed.
        """
        self.first_bytes = len(body)
        """Of the first call's body, which is kept as long as the answer may be resumed."""
        self.stream: ResumedStream | None = None
        """The answer, where it is streamed."""
        self._resumption = resumption
        self._left = limit
        self._said: list[list[StreamEvent]] = []
        """What the calls brought that were paused, of an answer that is not streamed."""

    @property
    def shares_limit(self) -> bool:
        """Whether all calls together stay within the request's limit of output."""
        return self._resumption.shares_limit

    def watched(self, decoder: StreamDecoder) -> StreamDecoder:
        """Return a call's decoder that shows the provider's bytes to who has to know them."""
        return _Watched(decoder, self._resumption) if self._resumption.records else decoder

    def read_whole(self, read: Callable[[bytes], list[StreamEvent]], body: bytes) -> list[StreamEvent]:
        """Read a call's answer that came as one object although a stream was asked for. Raises DecodeError."""
        self._resumption.take_whole(body)
        return read(body)

    def is_paused(self, answer: bytes | None) -> bool:
        """Whether the last call may have been paused.

        Args:
            answer: what it brought; None of a stream.
        """
        if answer is None:
            return self.stream is not None and self.stream.pause is not None
        return any(mark in answer for mark in _MARKS)

    def next_body(self, answer: bytes | None, read: Callable[[bytes], list[StreamEvent]]) -> bytes | None:
        """Return the body of the call that goes on; None where this is all there will be.

        Args:
            answer: what the last call brought; None of a stream, which is paused.
            read: reads that. Raises DecodeError.
        Raises:
            DecodeError: it is no answer.
        """
        if answer is None:
            return self._next_of_stream()
        events = read(answer)
        finish = paused_finish(events)
        if finish is None or finish.pause is None or not self._left:
            return None
        self._resumption.take_whole(answer)
        said = [*self._said, events]
        body = self._resumption.next_body(finish.pause, _output_of(resumed_events(said)))
        if body is not None:
            self._said = said
        return body

    def _next_of_stream(self) -> bytes | None:
        stream = self.stream
        assert stream is not None, "it is streamed"
        assert stream.pause is not None, "and paused"
        usage = stream.usage_of_answer
        output_tokens = 0 if usage is None else usage.output_tokens or 0
        body = self._resumption.next_body(stream.pause, output_tokens) if self._left else None
        if body is None:
            stream.give_up()
        return body

    def next_call(self) -> None:
        """Go on with what the call brings that is made now."""
        self._left -= 1
        if self.stream is not None:
            self.stream.next_call()

    def stop_here(self) -> None:
        """Make of what the last call brought the answer's end; the call that was to go on is not made."""
        if self.stream is not None:
            self.stream.give_up()
        else:
            self._said.pop()

    def let_go(self) -> None:
        """Part from the stream, which holds who made it: the request is over."""
        self.stream = None

    def joined(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Return the events of a plain answer, of which these are the last call's."""
        return resumed_events([*self._said, events]) if self._said else events


class _Watched(WrappedDecoder):
    """Shows what a decoder reads."""

    def __init__(self, decoder: StreamDecoder, resumption: Resumption) -> None:
        super().__init__(decoder)
        self._resumption = resumption

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes. Raises DecodeError."""
        self._resumption.take(data)
        return self._decoder.feed(data)

    def take(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Return the events as they are."""
        return events


def _output_of(events: list[StreamEvent]) -> int:
    reports = [event.usage for event in events if isinstance(event, Start | UsageReport) and event.usage]
    return reports[-1].output_tokens or 0 if reports else 0
