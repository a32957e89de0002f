"""An answer that its provider paused, and goes on with when it is asked to: several calls told as one.

What comes of a later call stands behind what came before: no second start, indexes and offsets that go on, usage that
is the sum. How a provider is asked to go on is its format's (`resumption`). Source: translation matrix, sections 22
and 24; wire formats page `usage.md`, on retries.
"""

from collections.abc import Callable, Sequence

import msgspec

from sluicegate.messages import (
    Citation,
    End,
    Finish,
    OpaqueState,
    Pause,
    Start,
    StreamError,
    StreamEvent,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageReport,
)
from sluicegate.wire.joined import summed
from sluicegate.wire.translated import TranslatedStream
from sluicegate.wire.translation import StreamDecoder, StreamEncoder
from sluicegate.wire.wrapped import WrappedDecoder


class _Offsets:
    """What came before a call of an answer, and so what its events become in the whole of it."""

    __slots__ = ("_before", "_calls", "_chars", "_heard", "_ids", "_number", "_told")

    def __init__(self) -> None:
        self._number = 0
        """Calls before this one."""
        self._before: Usage | None = None
        """What they used together; None: not all of them told."""
        self._told: Usage | None = None
        self._heard = True
        """Something of this call has come."""
        self._chars = self._calls = 0
        self._ids: set[str] = set()

    def next_call(self, pause: Pause, usage: Usage | None) -> Usage:
        """Stand behind one call more.

        Args:
            usage: of all calls so far.
        Returns:
            What is known of their usage.
        """
        known = usage is not None and usage.input_tokens is not None and usage.output_tokens is not None
        self._before = usage if known else None
        self._told = None
        self._heard = False
        self._number += 1
        self._chars += pause.chars
        self._calls += len(pause.ids)
        self._ids.update(pause.ids)
        return self._before or Usage()

    def follow(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Return what events of this call say of the whole answer."""
        told: list[StreamEvent] = []
        if not self._heard:
            self._heard = True
            if self._before is not None:  # until it says otherwise, nobody knows what this call has read
                told.append(UsageReport(msgspec.structs.replace(self._before, input_tokens=None)))
        for event in events:
            match event:
                case Start():
                    if event.usage is not None:
                        told.append(self._sum(event.usage))
                    continue
                case UsageReport():
                    told.append(self._sum(event.usage))
                    continue
                case End():
                    if not self._whole():
                        told.append(UsageReport(Usage()))  # a part of the sum is no report
                case ToolCallStart():
                    event = msgspec.structs.replace(
                        event, index=event.index + self._calls, id=self._new_id(event.id)
                    )
                case ToolCallDelta() | ToolCallEnd():
                    event = msgspec.structs.replace(event, index=event.index + self._calls)
                case OpaqueState() if event.call_index is not None:
                    event = msgspec.structs.replace(event, call_index=event.call_index + self._calls)
                case Citation() if self._chars and event.end_index:
                    start, end = event.start_index + self._chars, event.end_index + self._chars
                    event = msgspec.structs.replace(event, start_index=start, end_index=end)
            told.append(event)
        return told

    def _new_id(self, id: str) -> str:
        """Return a call's id; one that came before, as a provider without ids would get it again, is made another."""
        if id in self._ids:
            return f"{id}_{self._number}"
        return id

    def _sum(self, usage: Usage) -> UsageReport:
        self._told = usage
        if self._before is None:
            return UsageReport(Usage())
        total = summed(self._before, usage)
        if usage.output_tokens is None:  # not yet: what was told stands
            total.output_tokens = self._before.output_tokens
        return UsageReport(total)

    def _whole(self) -> bool:
        told = self._told
        return (
            self._before is not None
            and told is not None
            and told.input_tokens is not None
            and told.output_tokens is not None
        )


class _FollowingDecoder(WrappedDecoder):
    """Reads a later call's stream."""

    def __init__(
        self, decoder: StreamDecoder, offsets: _Offsets, first_id: str | None, repaired: bool
    ) -> None:
        super().__init__(decoder)
        self._offsets = offsets
        self._first_id = first_id
        self._repaired = repaired

    @property
    def upstream_id(self) -> str | None:
        """The provider's id of the first call's answer."""
        return self._first_id

    @property
    def repaired(self) -> bool:
        """Whether something had to be put right, in this call or before."""
        return self._repaired or self._decoder.repaired

    def take(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Return what the events say of the whole answer."""
        return self._offsets.follow(events)


class ResumedStream(TranslatedStream):
    """A stream across formats that may be paused. `ended` is true at the end of each call.

    Where `pause` then says so, either `next_call` goes on, or `give_up` tells that this is all.
    """

    def __init__(
        self,
        make_decoder: Callable[[], StreamDecoder],
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
            make_decoder: begins to read a call's stream.
            choices: 1, unless each has calls of its own.
            encoder, decode_whole, count_text, joins_usage, follow: as of any stream across formats.
        """
        super().__init__(
            make_decoder(),
            encoder,
            decode_whole,
            count_text,
            joins_usage=joins_usage,
            choices=choices,
            follow=follow,
        )
        self._make_decoder = make_decoder
        self._read_whole = decode_whole
        self._offsets: _Offsets | None = None
        self._paused: Finish | None = None

    @property
    def pause(self) -> Pause | None:
        """What the provider has to be given to go on, where it paused."""
        return None if self._paused is None or not self.ended else self._paused.pause

    def next_call(self) -> None:
        """Go on with the stream of the next call."""
        finish = self._paused
        assert finish is not None, "it was paused"
        assert finish.pause is not None, "that is what it means"
        self._paused = None
        if self._offsets is None:
            self._offsets = _Offsets()
            self._decode_whole = lambda body: offsets.follow(self._read_whole(body))
        offsets = self._offsets
        self._resume_at(offsets.next_call(finish.pause, self.usage_of_answer))
        self._decoder = _FollowingDecoder(self._make_decoder(), offsets, self.upstream_id, self.repaired)
        self.ended = False

    @property
    def usage_of_answer(self) -> Usage | None:
        """What all calls of the answer have used, as far as they told."""
        return self.usage

    def _resume_at(self, known: Usage) -> None:
        """Take what is known of the calls so far as the usage until more is told."""
        self.usage = known

    def _begin_answer(self) -> None:
        """Read another answer, behind this one."""
        self._paused = self._offsets = None
        self._decode_whole = self._read_whole
        self._decoder = self._make_decoder()
        self.ended = False

    def give_up(self) -> None:
        """Tell what there is as the whole answer."""
        finish, self._paused = self._paused, None
        assert finish is not None, "it was paused"
        super()._finished(finish)

    def _finished(self, event: Finish) -> None:
        if event.pause is not None:
            self._paused = event
        else:
            self._paused = None
            super()._finished(event)

    def _end(self) -> None:
        if self._paused is None:
            super()._end()
        else:
            self._begin()
            self.ended = True


def paused_finish(events: Sequence[StreamEvent]) -> Finish | None:
    """Return how a plain answer was paused, where it was."""
    for event in reversed(events):
        if isinstance(event, Finish):
            return event if event.pause is not None else None
    return None


def resumed_events(answers: Sequence[list[StreamEvent]]) -> list[StreamEvent]:
    """Return the events of several calls, each but the last paused, as those of one answer."""
    told: list[StreamEvent] = []
    offsets = _Offsets()
    usage: Usage | None = None
    for number, events in enumerate(answers):
        for event in events:
            if isinstance(event, StreamError):
                return [event]
        following = offsets.follow(events) if number else events
        for event in following:
            if isinstance(event, Start | UsageReport):
                usage = event.usage or usage
        finish = paused_finish(events) if number < len(answers) - 1 else None
        if finish is not None and finish.pause is not None:
            following = [event for event in following if event is not finish and not isinstance(event, End)]
            offsets.next_call(finish.pause, usage)
        told += following
    return told
