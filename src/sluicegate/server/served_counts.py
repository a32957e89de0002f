"""What every request raises, counted in plain fields; the `Tally` pours it into its metrics when somebody asks.

A module of its own because it is compiled, which the tally cannot be: its amounts are ints or floats as they come.
"""

from collections.abc import Callable
from typing import Final

from sluicegate.billing.ledger import UsageRow
from sluicegate.server.telemetry import OVERHEAD_SECONDS, SECONDS, TOKENS_PER_SECOND

MAX_PLACES: Final = 1000
"""Pairs of a model and a provider that are counted before they are poured out."""


class Histogram:
    """Values by bucket, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Take the buckets' upper bounds, without the last one (infinity)."""
        self._bounds = list(bounds)
        self.counts: list[int] = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        bounds = self._bounds
        low, high = 0, len(bounds)
        while low < high:  # `bisect_left`, which would have to be called with an object for each number
            middle = (low + high) >> 1
            if bounds[middle] < value:
                low = middle + 1
            else:
                high = middle
        self.counts[low] += 1
        self.sum += value


class Served:
    """What was counted of one model at one provider."""

    __slots__ = (
        "answered",
        "charged_nano",
        "durations",
        "first_tokens",
        "input_tokens",
        "output_tokens",
        "shortfall_nano",
        "speeds",
        "statuses",
    )

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        self.answered = 0
        """Attempts that went well."""
        self.input_tokens = 0
        self.output_tokens = 0
        self.charged_nano = 0
        self.shortfall_nano = 0
        self.durations = Histogram(SECONDS)
        self.first_tokens = Histogram(SECONDS)
        self.speeds = Histogram(TOKENS_PER_SECOND)


class ServedCounts:
    """What one process counted since it was last poured out."""

    def __init__(self, pour: Callable[[], object]) -> None:
        """Take what pours all into the tally, and clears this."""
        self.by_place: dict[tuple[str, str | None], Served] = {}
        self.overheads = Histogram(OVERHEAD_SECONDS)
        self._last: Served | None = None
        self._last_model = ""
        self._last_provider: str | None = None
        """Whose counts were asked for last: each request asks twice."""
        self._pour = pour

    def clear(self) -> None:
        """Begin anew."""
        self.by_place = {}
        self.overheads = Histogram(OVERHEAD_SECONDS)
        self._last = None

    def answered(self, row: UsageRow) -> None:
        """Count an attempt that brought a whole answer."""
        self._of(row).answered += 1

    def settled(self, row: UsageRow) -> None:
        """Count one request that passed admission, as it was settled."""
        served = self._of(row)
        served.statuses[row.status] = served.statuses.get(row.status, 0) + 1
        usage = row.usage
        served.input_tokens += usage.input_tokens or 0
        served.output_tokens += usage.output_tokens or 0
        served.charged_nano += row.cost_nano_usd
        served.shortfall_nano += row.shortfall_nano_usd
        served.durations.add(row.duration_ms / 1000)
        if row.ttft_ms is not None:
            served.first_tokens.add(row.ttft_ms / 1000)
        if row.tokens_per_s is not None:
            served.speeds.add(row.tokens_per_s)

    def _of(self, row: UsageRow) -> Served:
        model, provider = row.model, row.provider
        if self._last is not None and model is self._last_model and provider is self._last_provider:
            return self._last
        place = model, provider
        served = self.by_place.get(place)
        if served is None:
            if len(self.by_place) >= MAX_PLACES:
                self._pour()
            served = self.by_place[place] = Served()
        self._last, self._last_model, self._last_provider = served, model, provider
        return served
