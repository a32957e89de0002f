"""A stream of several answers to one request, each a call of its own, made one after the other: they come in order.

Each may be paused, and is then resumed by itself before the next one is asked for. What several calls have in common
with plain answers is in `joined`.
"""

from collections.abc import Callable

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import Finish, Start, StreamEvent, Usage, UsageReport
from sluicegate.wire.joined import behind, summed
from sluicegate.wire.resumed_stream import ResumedStream
from sluicegate.wire.translation import StreamDecoder, StreamEncoder


class JoinedStream(ResumedStream):
    """A stream across formats that takes several calls. `ended` is true at the end of each.

    Where it is paused then, it is gone on with as any `ResumedStream`; else `next_answer` goes on.
    """

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
            calls: how many there are, but for those that resume one.
            encoder, decode_whole, count_text, joins_usage, follow: as of any stream across formats.
        """
        super().__init__(
            make_decoder,
            encoder,
            decode_whole,
            count_text,
            joins_usage=joins_usage,
            choices=choices,
            follow=follow,
        )
        self._calls = calls
        self._per_call = choices // calls
        self._call = 0
        self._before: Usage | None = Usage(input_tokens=0, output_tokens=0)
        """What the calls before used together; None: not all of them told."""
        self._told: Usage | None = None
        """What this call has told until now."""

    def next_answer(self) -> None:
        """Go on with the stream of the call after this one."""
        if self._before is not None:
            self._before = None if self._told is None else summed(self._before, self._told)
        self._told = None
        self._call += 1
        self._begin_answer()

    @property
    def usage_of_answer(self) -> Usage | None:
        """What the answer at hand has used, as far as it was told."""
        return self._told

    def _resume_at(self, known: Usage) -> None:
        self._told = known
        if self._before is not None:
            self.usage = summed(self._before, known)

    def give_up(self) -> None:
        """Tell what there is as the whole of the answer at hand."""
        super().give_up()
        if self._call == self._calls - 1:
            self._judge_usage()

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
            choice: int | None = getattr(event, "choice", None)
            if choice and self._per_call == 1:
                event = msgspec.structs.replace(event, choice=0)
            super()._take(behind(event, self._call * self._per_call))

    def _end(self) -> None:
        if self._paused is not None:
            super()._end()
        elif self._call < self._calls - 1:
            for choice in range(self._call * self._per_call, (self._call + 1) * self._per_call):
                if choice not in self._reasons:
                    super()._take(Finish("tool_calls" if choice in self._called else "stop", choice))
                    self._put_right = True
            self.ended = True
        else:
            self._judge_usage()
            super()._end()

    def _judge_usage(self) -> None:
        """Report nothing where not all of it was told: a part of the sum is no report."""
        if self._before is None or self._told is None:
            self.usage = Usage()
