"""What one answer used: the provider's report where it came, else our own count, and which of the two it is.

Source of the rules: a stream that is cut is billed for what was produced; a count that nobody reported is estimated
from what this key's requests of the model were last reported to need, and our own count of the output is set right by
what whole answers were reported to have.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from sluicegate.billing.output_ratios import OutputRatios
from sluicegate.billing.tokens import TokenCounter
from sluicegate.billing.two_part_usage import FirstPart, joined
from sluicegate.messages import Usage, UsageSource

DEFAULT_BYTES_PER_TOKEN = 4.0
MIN_BYTES_PER_TOKEN: Final = 1.5
"""The densest texts have about so many. An answer that was told more tokens than that read what its request only named
(a kept conversation, a file, what a search found), and tells nothing of other requests.
"""
MAX_RATIOS = 10_000


class _InputRatio:
    """Bytes of request body per input token, and the cached share."""

    __slots__ = ("body_bytes", "cached")

    def __init__(self, body_bytes: float, cached: float) -> None:
        self.body_bytes = body_bytes
        self.cached = cached


class InputRatios:
    """Bytes of request body per input token, and the cached share, as last reported.

    Bounded: what has been known longest is forgotten first, and learned again from the next answer.
    """

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], _InputRatio] = {}
        self._by_model: dict[str, _InputRatio] = {}

    def learn(self, key_id: str, model: str, body_bytes: int, usage: Usage) -> None:
        """Remember what a reported answer says, where its input can have been the request alone."""
        tokens = usage.input_tokens
        if not tokens or body_bytes < tokens * MIN_BYTES_PER_TOKEN:
            return
        read = usage.cache_read_tokens
        cached = min(1.0, read / tokens) if read else 0.0
        ratio = body_bytes / tokens
        of_key = self._by_key.get((key_id, model))
        if of_key is None:
            if len(self._by_key) >= MAX_RATIOS:
                del self._by_key[next(iter(self._by_key))]
            self._by_key[(key_id, model)] = _InputRatio(ratio, cached)
        else:
            of_key.body_bytes = ratio
            of_key.cached = cached
        of_model = self._by_model.get(model)
        if of_model is None:
            if len(self._by_model) >= MAX_RATIOS:
                del self._by_model[next(iter(self._by_model))]
            self._by_model[model] = _InputRatio(ratio, cached)
        else:
            of_model.body_bytes = ratio
            of_model.cached = cached

    def estimate(self, key_id: str, model: str, body_bytes: int) -> tuple[int, int | None]:
        """Return input tokens and cached tokens (None: not known) of a request whose provider reported neither."""
        known = self._by_key.get((key_id, model)) or self._by_model.get(model)
        if known is None:
            return max(1, round(body_bytes / DEFAULT_BYTES_PER_TOKEN)), None
        tokens = max(1, round(body_bytes / known.body_bytes))
        return tokens, round(tokens * known.cached) or None


class Meter:
    """Counts one answer as it passes."""

    __slots__ = (
        "_body_bytes",
        "_call_bytes",
        "_counter",
        "_factor",
        "_first",
        "_key_id",
        "_longest_bytes",
        "_model",
        "_more_bytes",
        "_on_counted",
        "_on_late",
        "_output_ratios",
        "_part",
        "_ratios",
        "_upstream_model",
        "add",
        "headed",
        "reported",
    )

    add: Callable[[str], None]
    """Takes every piece of text, reasoning, refusal and arguments that the provider sends."""

    def __init__(
        self,
        ratios: InputRatios,
        key_id: str,
        model: str,
        body_bytes: int,
        on_counted: Callable[[int], None] | None = None,
        on_late: Callable[[], None] | None = None,
        output_ratios: OutputRatios | None = None,
    ) -> None:
        """Start a request's count.

        Args:
            body_bytes: of the client's request, with as many for its media as their tokens have in text.
            on_counted: told the output tokens counted so far, from time to time.
            on_late: told when text begins to wait for `catch_up`; None: all is counted as it comes.
            output_ratios: sets counts right; None: they are left as they are.
        """
        self._ratios = ratios
        self._key_id = key_id
        self._model = model
        self._body_bytes = body_bytes
        self._on_counted = on_counted
        self._on_late = on_late
        self._output_ratios = output_ratios
        self._first: FirstPart | None = None
        """What another provider had produced of this answer."""
        self.headed = False
        """The provider answered: before that nothing was produced."""
        self.reported: Usage | None = None
        """The provider's last totals; `report` sets them."""

    def restart(self, upstream_model: str = "") -> None:
        """Begin an attempt, the first one too; what a failed one brought is forgotten.

        Args:
            upstream_model: the provider's id of the model that is asked.
        """
        self.headed = False
        self.reported = None
        self._upstream_model = upstream_model
        self._more_bytes = 0
        self.read_part(1.0)
        self._factor = 0.0
        self._counter = TokenCounter()
        if self._on_counted is not None:
            self._counter.on_counted = self._tell_counted
        self._counter.on_late = self._on_late
        self.add = self._counter.add

    def fall_silent(self) -> None:
        """Tell nobody anything more: who is told may hold the meter, and neither would be freed without a collector."""
        self._on_counted = self._on_late = None
        self._counter.on_counted = self._counter.on_late = None

    def read_part(self, part: float) -> None:
        """Take note of how much of the client's request the first call of an attempt reads."""
        self._part = part
        whole = self._body_bytes
        self._call_bytes = self._longest_bytes = whole if part == 1.0 else round(whole * part)

    def ask_again(self, body_bytes: int, part: float | None = None) -> None:
        """Begin a further call of the same answer: its input is read again.

        Args:
            body_bytes: that were added to the request.
            part: how much of the client's request it reads; None: as much as the call before.
        """
        if part is not None:
            self._part = part
        call_bytes = round(self._body_bytes * self._part) + body_bytes
        self._more_bytes += call_bytes
        self._longest_bytes = max(self._longest_bytes, call_bytes)

    def take_over(self, upstream_model: str) -> None:
        """Begin an attempt that goes on with the answer of the one before: what that brought counts too.

        Args:
            upstream_model: the provider's id of the model that is asked.
        """
        if self._first is None:  # else one that was asked before has failed without a word of its own
            told = self.reported
            reports_input = told is not None and told.input_tokens is not None
            self._first = FirstPart(*self.produced(), reports_input)
        self.restart(upstream_model)

    def report(self, usage: Usage | None) -> None:
        """Take the provider's totals: they account for all text taken until now.

        The same object says nothing new, and output that has not grown accounts for no text.
        """
        if usage is not None and usage is not self.reported:
            before, self.reported = self.reported, usage
            if before is None or before.output_tokens is None or before.output_tokens != usage.output_tokens:
                self._counter.mark()

    @property
    def late(self) -> bool:
        """Whether text waits to be counted: `catch_up` before asking for a count that may not hold anybody up."""
        return self._counter.late

    def catch_up(self) -> bool:
        """Count a turn's worth of the text that waits; return whether there is more."""
        return self._counter.catch_up()

    def counted_running(self) -> int:
        """Return the output tokens counted so far, what is gathered too: at most about a tenth too many."""
        return self._before() + self._right(self._counter.running())

    def _tell_counted(self, counted: int) -> None:
        assert self._on_counted is not None
        self._on_counted(self._before() + self._right(counted))

    def _before(self) -> int:
        """Return the output tokens of the part that another provider produced."""
        return 0 if self._first is None else self._first.usage.output_tokens or 0

    def _right(self, counted: int) -> int:
        """Return a count of ours as the model's provider would probably have it."""
        factor = self._factor
        if not factor:  # looked up once an attempt, so that counts never fall while it runs
            ratios = self._output_ratios
            factor = 1.0 if ratios is None else ratios.factor(self._key_id, self._upstream_model)
            self._factor = factor
        return counted if factor == 1.0 else round(counted * factor)

    def learn_output(self) -> None:
        """Remember how a whole answer's report compares with our count, where the answer is long enough to tell.

        Hidden thoughts and sounds are reported, and cannot be counted: such answers teach nothing.
        """
        told, counter = self.reported, self._counter
        if (
            self._output_ratios is None
            or self._first is not None
            or told is None
            or not counter.floor()
            or counter.late
            or not told.output_tokens
            or told.reasoning_tokens
            or told.output_audio_tokens
            or told.output_image_tokens
        ):
            return
        self._output_ratios.learn(self._key_id, self._upstream_model, told.output_tokens, counter.total())

    def estimated_input(self) -> tuple[int, int | None]:
        """Return what input and cached tokens are taken for as long as nobody reported them."""
        if self._first is not None:
            return self._first.usage.input_tokens or 0, self._first.usage.cache_read_tokens
        return self._ratios.estimate(self._key_id, self._model, self._call_bytes + self._more_bytes)

    def _estimate_input(self, usage: Usage) -> None:
        """Fill in what nobody reported of the input."""
        usage.input_tokens, usage.cache_read_tokens = self.estimated_input()
        usage.longest_input_tokens = self.estimated_longest()

    def estimated_longest(self) -> int | None:
        """Return what the longest of several calls is taken to have read; None where there was one."""
        if not self._more_bytes or self._first is not None:
            return None
        return self._ratios.estimate(self._key_id, self._model, self._longest_bytes)[0]

    def whole(self, usage: Usage) -> Usage:
        """Return what the provider reported as the usage of the whole answer, for the caller to change."""
        if self._first is None:
            return msgspec.structs.replace(usage)
        return joined(self._first, usage, "reported", reported=usage.input_tokens is not None)[0]

    def final(self) -> tuple[Usage, UsageSource]:
        """Return the usage of a whole answer; counts that were not reported are our own."""
        return self._final() if self._first is None else self._joined(self._final())

    def _joined(self, part: tuple[Usage, UsageSource]) -> tuple[Usage, UsageSource]:
        """Return the usage of both parts."""
        assert self._first is not None, "there are two"
        told = self.reported
        return joined(self._first, *part, reported=told is not None and told.input_tokens is not None)

    def _final(self) -> tuple[Usage, UsageSource]:
        """Return the usage of what this provider brought, which was all that it had to say."""
        usage = self.reported
        if usage is not None and usage.input_tokens is not None and usage.output_tokens is not None:
            if not self._more_bytes and self._first is None:  # else it read more than the client's request
                self._ratios.learn(self._key_id, self._model, self._call_bytes, usage)
            return usage, "reported"
        if not self.headed:
            return Usage(), "none"
        usage = Usage() if usage is None else msgspec.structs.replace(usage)
        if usage.output_tokens is None:
            usage.output_tokens = self._right(self._counter.total())
        if usage.input_tokens is None:
            self._estimate_input(usage)
        return usage, "counted"

    def so_far(self) -> tuple[Usage, UsageSource]:
        """Return what `produced` does, without counting what waits in line: it may be a little less."""
        if not self.late:
            return self.produced()
        usage = Usage() if self.reported is None else msgspec.structs.replace(self.reported)
        usage.output_tokens = max(usage.output_tokens or 0, self._right(self._counter.floor()))
        if usage.input_tokens is None:
            self._estimate_input(usage)
        return (usage, "counted") if self._first is None else self._joined((usage, "counted"))

    def produced(self) -> tuple[Usage, UsageSource]:
        """Return the usage of an answer that was cut, as far as it came.

        A running total stands for what had come until then; what came after it is counted.
        """
        return self._produced() if self._first is None else self._joined(self._produced())

    def _produced(self) -> tuple[Usage, UsageSource]:
        usage = self.reported
        if usage is not None and usage.output_tokens is not None and self.headed:
            more = self._right(self._counter.since_mark())
            if more:
                usage = msgspec.structs.replace(usage, output_tokens=usage.output_tokens + more)
                if usage.input_tokens is None:
                    self._estimate_input(usage)
                return usage, "counted"
        return self._final()
