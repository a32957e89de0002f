"""One streamed answer from a provider's format to another one: a decoder, an encoder, and the rules all formats share.

A finish is held until the decoder says that nothing follows; content after it cancels it. A tool call decides the
reason, whatever the provider's word was. An answer without any content is no answer. Where one choice was asked for,
the first that comes is that one, whatever its index; others are not told. See `wire.StreamCodec`.
"""

from collections.abc import Callable

import msgspec

from sluicegate.errors import DecodeError, SluicegateError
from sluicegate.messages import (
    End,
    Finish,
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
    Start,
    StreamError,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Untold,
    Usage,
    UsageReport,
    WebSearch,
)
from sluicegate.wire import Bill
from sluicegate.wire.translation import StreamDecoder, StreamEncoder

KEEPS_REASON = frozenset({"length", "context_full", "content_filter", "tool_calls", "function_call"})
"""Reasons that stand although tools were called."""


def texts_of(event: StreamEvent) -> tuple[str, ...]:
    """Return the texts of an event that the model produced, for counting."""
    match event:
        case TextDelta() | ReasoningDelta() | RefusalDelta():
            return (event.text,)
        case ToolCallStart():
            return (event.name,)
        case ToolCallDelta():
            return (event.arguments,)
    return ()


def reason_of(finish: Finish, *, called: bool) -> FinishReason:
    """Return why an answer ended, which tool calls decide: where there are some, and where there are none.

    Args:
        called: it asks for tools.
    """
    if called:
        return finish.reason if finish.reason in KEEPS_REASON else "tool_calls"
    return "stop" if finish.reason in ("tool_calls", "function_call") else finish.reason


def of_one_choice(events: list[StreamEvent]) -> list[StreamEvent]:
    """Return the events of an answer that was asked for one choice: those of the first, as that one's."""
    index: int | None = None
    told: list[StreamEvent] = []
    for event in events:
        choice = getattr(event, "choice", None)
        if choice is not None:
            index = choice if index is None else index
            if choice != index:
                continue
            if choice:
                event = msgspec.structs.replace(event, choice=0)
        told.append(event)
    return told


class TranslatedStream:
    """A stream across formats."""

    def __init__(
        self,
        decoder: StreamDecoder,
        encoder: StreamEncoder,
        decode_whole: Callable[[bytes], list[StreamEvent]],
        count_text: Callable[[str], None],
        *,
        joins_usage: bool,
        choices: int = 1,
        follow: Callable[[StreamEvent], None] | None = None,
    ) -> None:
        """Start an answer.

        Args:
            decode_whole: reads an answer that came as one object although a stream was asked for.
            count_text: given every piece of text of such an answer; the decoder counts those of a stream.
            joins_usage: the client's format says finish and usage in one event.
            choices: how many the client asked for.
            follow: shown every event but text, before it is written.
        """
        self._follow = follow
        self._decoder = decoder
        self._encoder = encoder
        self._decode_whole = decode_whole
        self._count_text = count_text
        self._choices = choices
        self.joins_usage = joins_usage
        self.out: list[bytes] = []
        self.content = False
        self.finishing = False
        self.ended = False
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.untold: list[str] = []
        """What came and has no word in the client's format, each once."""
        self.tells_searches = True
        """The client's format has a place for searches of the web."""
        self._put_right = False
        self._sole = 0
        """The provider's index of the choice that alone was asked for."""
        self._started = False
        self._reasons: dict[int, tuple[str, str | None]] = {}
        self._called: set[int] = set()
        self._finish_left = False

    def show(self, follow: Callable[[StreamEvent], None]) -> None:
        """Show another one too every event but text."""
        first = self._follow

        def both(event: StreamEvent) -> None:
            if first is not None:
                first(event)
            follow(event)

        self._follow = both

    @property
    def upstream_id(self) -> str | None:
        """The provider's id of the answer."""
        return self._decoder.upstream_id

    @property
    def repaired(self) -> bool:
        """Whether the provider's answer broke its format and was put right."""
        return self._put_right or self._decoder.repaired

    @property
    def held(self) -> bool:
        """Whether the finish of the whole answer is held back."""
        return not self._finish_left and not self.ended and len(self._reasons) >= self._choices

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Raises DecodeError."""
        for event in self._decoder.feed(data):
            if self.ended or self.error is not None:
                return
            self._take(event)

    def finish(self) -> None:
        """Take the end of the body. Raises DecodeError where the answer was cut."""
        self._take_last()
        if not self.ended and self.error is None:
            if len(self._reasons) < self._choices:
                raise DecodeError("stream", None, "the stream ended without its terminal event")
            self._end()

    def _take_last(self) -> None:
        """Take what the end of the body brings, also where it is a cut. Raises DecodeError."""
        try:
            events = self._decoder.finish()
        except DecodeError:  # kept in no variable: its traceback would hold that, and it the stream
            self._take_all(self._decoder.left())
            if self.error is None:
                raise
        else:
            self._take_all(events)

    def _take_all(self, events: list[StreamEvent]) -> None:
        for event in events:
            if not self.ended and self.error is None:
                self._take(event)

    def feed_whole(self, body: bytes) -> None:
        """Take an answer that came as one object. Raises DecodeError."""
        for event in self._decode_whole(body):
            if not self.ended and self.error is None:
                for text in texts_of(event):
                    self._count_text(text)
                self._take(event)
        if not self.ended and self.error is None:
            self._end()

    def _take(self, event: StreamEvent) -> None:
        kind = type(event)
        is_text = kind is TextDelta or kind is ReasoningDelta
        choice: int = event.choice if is_text else getattr(event, "choice", 0)  # type: ignore[union-attr]
        if (choice or self._sole) and self._choices == 1:
            own = self._of_the_one(event)
            if own is None:
                return
            event, choice = own, 0
        if self._follow is not None and kind is not TextDelta:
            self._follow(event)
        if is_text:
            if event.text:  # type: ignore[union-attr]  # both have one
                self._content(event, choice)
        elif kind is Finish:
            assert isinstance(event, Finish)
            self._finished(event)
        elif isinstance(event, UsageReport):
            self.usage = event.usage
        elif isinstance(event, StreamError):
            self.error = event
        elif isinstance(event, End):
            self._end()
        elif isinstance(event, Start):
            self.usage = event.usage or self.usage
            self._begin()
        elif isinstance(event, Untold):
            self._name(event.what)
        elif kind is WebSearch and not self.tells_searches:
            assert isinstance(event, WebSearch)
            for name in event.names:
                self._name(name)
        elif isinstance(event, ToolCallEnd):
            self.out.append(self._encoder.event(event))
        else:
            if isinstance(event, ToolCallStart):
                self._called.add(event.choice)
            self._content(event, choice)

    def _of_the_one(self, event: StreamEvent) -> StreamEvent | None:
        """Return an event as one of the choice that was asked for; None where it belongs to another."""
        choice: int | None = getattr(event, "choice", None)
        if choice is None:
            return event
        if choice != self._sole:
            self._put_right = True
            if self.content or self._reasons:
                return None
            self._sole = choice
        return msgspec.structs.replace(event, choice=0) if choice else event

    def _name(self, what: str) -> None:
        if what not in self.untold:
            self.untold.append(what)

    def _begin(self) -> None:
        if not self._started:
            self._started = True
            start = self._encoder.start(self.usage)
            if start:
                self.out.append(start)

    def _content(self, event: StreamEvent, choice: int) -> None:
        if not self._started:
            self._begin()
        if choice in self._reasons and not self._finish_left:
            del self._reasons[choice]  # content follows: it was no finish
            self.finish_reason = None
            self._put_right = True
        self.content = True
        data = self._encoder.event(event)
        if data:
            self.out.append(data)

    def _finished(self, event: Finish) -> None:
        reason = reason_of(event, called=event.choice in self._called)
        if event.pause is not None and event.raw_reason is not None:
            self._name(event.raw_reason)
        self._reasons[event.choice] = (reason, event.stop_sequence)
        self.finish_reason = reason

    def _end(self) -> None:
        if not self.content and not self._reasons:
            raise DecodeError("stream", None, "the stream ended without any output")
        self._begin()
        for choice in range(self._choices):
            if choice not in self._reasons:
                reason = "tool_calls" if choice in self._called else "stop"
                self._reasons[choice] = (reason, None)
                self.finish_reason = reason
                self._put_right = True
        self.ended = True

    def flush(self) -> None:
        """Nothing waits here but the finish."""

    def release(self) -> None:
        """Put out a held finish now, where the format can say it without usage."""
        if self.held and not self.joins_usage:
            self._finish_left = True
            data = self._encoder.finish(self._reasons)
            if data:
                self.out.append(data)
                self.finishing = True

    def farewell(self, bill: Bill | None) -> bytes:
        """Return all that completes the answer."""
        return self._encoder.farewell(self._reasons, bill)

    def failure(self, error: SluicegateError) -> bytes:
        """Return the format's terminal error event, and no end marker."""
        return self._encoder.failure(error)
