"""Several calls of one attempt joined to one answer: each call's choices stand behind those of the calls before it.

Calls are made one after the other, so a stream brings its choices in order. Usage is the sum; a call that reported none
leaves it unknown. Source: wire formats pages `completions.md`, "Translating it", and `usage.md`, on retries.
"""

from collections.abc import Callable, Sequence

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import End, Finish, Start, StreamError, StreamEvent, Usage, UsageReport
from sluicegate.wire.translated import TranslatedStream
from sluicegate.wire.translation import StreamDecoder, StreamEncoder

_WHOLE = ("input_tokens", "output_tokens")
"""Counts whose sum is unknown where one of them is; of all others None adds nothing."""


def summed(first: Usage, second: Usage) -> Usage:
    """Return what two calls used together."""
    total = msgspec.structs.replace(second)
    for field in Usage.__struct_fields__:
        one, other = getattr(first, field), getattr(second, field)
        if isinstance(one, int) and isinstance(other, int):
            setattr(total, field, one + other)
        elif other is None and field not in _WHOLE:
            setattr(total, field, one)
        elif one is None and field in _WHOLE:
            setattr(total, field, None)
    return total


def joined_events(answers: Sequence[list[StreamEvent]], choices: int) -> list[StreamEvent]:
    """Return the events of several plain answers as those of one.

    Args:
        choices: how many each was asked for.
    """
    joined: list[StreamEvent] = []
    usage: Usage | None = Usage(input_tokens=0, output_tokens=0)
    for call, events in enumerate(answers):
        told: Usage | None = None
        for event in events:
            if isinstance(event, StreamError):
                return [event]
            if isinstance(event, UsageReport):
                told = event.usage
            elif isinstance(event, Start):
                told = event.usage or told
                if not call:
                    joined.append(event)
            elif not isinstance(event, End):
                joined.append(_behind(event, call * choices))
        usage = None if usage is None or told is None else summed(usage, told)
    if usage is not None:
        joined.append(UsageReport(usage))
    return [*joined, End()]


def _behind(event: StreamEvent, choices: int) -> StreamEvent:
    """Return an event of a call before which so many choices were answered."""
    choice = getattr(event, "choice", None)
    if choice is None or not choices:
        return event
    return msgspec.structs.replace(event, choice=choice + choices)


class JoinedStream(TranslatedStream):
    """A stream across formats that takes several calls. `ended` is true at the end of each: `next_call` goes on."""

    def __init__(
        self,
        make_decoder: Callable[[], StreamDecoder],
        encoder: StreamEncoder,
        decode_whole: Callable[[bytes], list[StreamEvent]],
        count_text: Callable[[str], None],
        *,
        joins_usage: bool,
        choices: int,
        calls: int,
        follow: Callable[[StreamEvent], None] | None = None,
    ) -> None:
        """Start an answer.

        Args:
            make_decoder: begins to read a call's stream.
            choices: of all calls together.
            calls: how many there are.
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
        self._calls = calls
        self._per_call = choices // calls
        self._call = 0
        self._before: Usage | None = Usage(input_tokens=0, output_tokens=0)
        """What the calls before used together; None: not all of them told."""
        self._told: Usage | None = None
        """What this call has told until now."""

    def next_call(self) -> None:
        """Go on with the stream of the next call."""
        if self._before is not None:
            self._before = None if self._told is None else summed(self._before, self._told)
        self._told = None
        self._call += 1
        self._decoder = self._make_decoder()
        self.ended = False

    def finish(self) -> None:
        """Take the end of a call's body. Raises DecodeError where its answer was cut."""
        self._take_last()
        if not self.ended and self.error is None:
            if len(self._reasons) < (self._call + 1) * self._per_call:
                raise DecodeError("stream", None, "the stream ended without its terminal event")
            self._end()

    def _take(self, event: StreamEvent) -> None:
        if isinstance(event, Start | UsageReport):
            self._told = event.usage or self._told
            if isinstance(event, Start):
                if not self._call:
                    super()._take(event)
            elif self._before is not None:
                self.usage = summed(self._before, event.usage)
        else:
            super()._take(_behind(event, self._call * self._per_call))

    def _end(self) -> None:
        if self._call < self._calls - 1:
            for choice in range(self._call * self._per_call, (self._call + 1) * self._per_call):
                if choice not in self._reasons:
                    super()._take(Finish("tool_calls" if choice in self._called else "stop", choice))
                    self._put_right = True
            self.ended = True
            return
        if self._before is None or self._told is None:
            self.usage = Usage()  # a part of the sum is no report
        super()._end()
