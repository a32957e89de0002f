"""Usage and cost of an answer that still runs: floors that never fall, for clients that want them on every event.

What the provider reported is taken as it is; what came since, or was never reported, is the gate's own count, less a
margin, so that the bill is hardly ever lower. Source of the rules: the streaming contract, C8.
"""

from collections.abc import Callable

import msgspec

from sluicegate.billing.meter import Meter
from sluicegate.messages import Usage

FLOOR = 0.8
"""Share of our own count that is told: it may be too high by that much for another vendor's tokens."""


class RunningUsage:
    """What one attempt's answer has used so far."""

    __slots__ = ("_cost", "_cost_of", "_counted_before", "_input", "_meter", "_output", "_reported")

    def __init__(self, meter: Meter, cost_of: Callable[[Usage], int]) -> None:
        """Start an answer.

        Args:
            cost_of: what a usage would be charged, in nano-USD.
        """
        self._meter = meter
        self._cost_of = cost_of
        self._reported: Usage | None = None
        self._counted_before = 0
        """Our count when the provider last reported."""
        self._input = 0
        self._output = 0
        self._cost = 0

    def so_far(self, reported: Usage | None) -> tuple[Usage, int]:
        """Return usage and cost in nano-USD, no less than ever before.

        Args:
            reported: the provider's last totals; the same object says nothing new.
        """
        counted = self._meter.counted_running()
        if reported is not self._reported:
            self._reported = reported
            self._counted_before = counted
        usage = Usage() if reported is None else self._meter.whole(reported)
        if usage.output_tokens is None:
            usage.output_tokens = int(counted * FLOOR)
        else:
            usage.output_tokens += int(max(0, counted - self._counted_before) * FLOOR)
        cached = None
        if usage.input_tokens is None:
            estimate, cached = self._meter.estimated_input()
            usage.input_tokens = int(estimate * FLOOR)
            longest = self._meter.estimated_longest()
            usage.longest_input_tokens = None if longest is None else int(longest * FLOOR)
        usage.input_tokens = self._input = max(self._input, usage.input_tokens)
        usage.output_tokens = self._output = max(self._output, usage.output_tokens)
        priced = usage
        if cached is not None:  # a guess that only makes the floor lower: it is not told
            priced = msgspec.structs.replace(usage, cache_read_tokens=min(cached, usage.input_tokens))
        self._cost = max(self._cost, self._cost_of(priced))
        return usage, self._cost
