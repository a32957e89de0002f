"""The tally that counts for the metrics.

Nothing here is done per event of a stream; a request touches a handful of dictionary entries. Workers send snapshots of
their tallies to the supervisor, which adds them up.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from sluicegate.billing.ledger import UsageRow
from sluicegate.server.telemetry import (
    CHARGED,
    DURATION,
    FIRST_TOKEN,
    METRICS,
    REQUESTS,
    SECONDS,
    SHORTFALL,
    SPEED,
    TOKENS,
    TOKENS_PER_SECOND,
    Metric,
)

Snapshot = dict[str, list[Any]]
"""By metric name, a list of [label values, value]; a histogram's value is its bucket counts, then its sum."""


MAX_LABEL_SETS = 1000
"""Of one metric; what comes beyond is counted under the labels `other` (clients choose some names
themselves).
"""


def _place(values: dict[tuple[str, ...], Any], labels: tuple[str, ...]) -> tuple[str, ...]:
    if labels in values or len(values) < MAX_LABEL_SETS:
        return labels
    return ("other",) * len(labels)


class _Served:
    """What was counted of one model at one provider since it was last poured into the tally."""

    __slots__ = (
        "charged_nano",
        "durations",
        "first_tokens",
        "input_tokens",
        "output_tokens",
        "speeds",
        "statuses",
    )

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        self.input_tokens = 0
        self.output_tokens = 0
        self.charged_nano = 0
        self.durations = _no_counts(DURATION)
        self.first_tokens = _no_counts(FIRST_TOKEN)
        self.speeds = _no_counts(SPEED)


def _no_counts(metric: Metric) -> list[float]:
    return [0] * (len(metric.buckets) + 2)


class Tally:
    """The counts of one process."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], Any]] = {}
        self._served: dict[tuple[str, str | None], _Served] = {}

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        """Raise a counter, or move a gauge (by a negative amount too)."""
        try:
            self._values[metric.name][labels] += amount
        except KeyError:
            values = self._values.setdefault(metric.name, {})
            labels = _place(values, labels)
            values[labels] = values.get(labels, 0) + amount

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._values.setdefault(metric.name, {})[labels] = value

    def forget(self, metric: Metric) -> None:
        """Drop all samples of a gauge, before those that hold now are set."""
        self._values.pop(metric.name, None)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Put a value into a histogram."""
        try:
            counts = self._values[metric.name][labels]
        except KeyError:
            counts = self._histogram(metric, labels)
        counts[bisect_left(metric.buckets, value)] += 1
        counts[-1] += value

    def settled(self, row: UsageRow) -> None:
        """Count one request that passed admission, as it was settled: all its metrics at once."""
        served = self._served.get((row.model, row.provider))
        if served is None:
            if len(self._served) >= MAX_LABEL_SETS:
                self._pour()
            served = self._served[row.model, row.provider] = _Served()
        served.statuses[row.status] = served.statuses.get(row.status, 0) + 1
        usage = row.usage
        served.input_tokens += usage.input_tokens or 0
        served.output_tokens += usage.output_tokens or 0
        served.charged_nano += row.cost_nano_usd
        if row.shortfall_nano_usd:
            self.add(SHORTFALL, row.shortfall_nano_usd)
        seconds = row.duration_ms / 1000
        served.durations[bisect_left(SECONDS, seconds)] += 1
        served.durations[-1] += seconds
        if row.ttft_ms is not None:
            seconds = row.ttft_ms / 1000
            served.first_tokens[bisect_left(SECONDS, seconds)] += 1
            served.first_tokens[-1] += seconds
        if row.tokens_per_s is not None:
            served.speeds[bisect_left(TOKENS_PER_SECOND, row.tokens_per_s)] += 1
            served.speeds[-1] += row.tokens_per_s

    def _histogram(self, metric: Metric, labels: tuple[str, ...]) -> list[float]:
        values = self._values.setdefault(metric.name, {})
        counts: list[float] = values.setdefault(_place(values, labels), _no_counts(metric))
        return counts

    def _pour(self) -> None:
        """Turn what `settled` gathered into counts of each metric."""
        for (model, provider), served in self._served.items():
            for status, requests in served.statuses.items():
                self.add(REQUESTS, requests, model, status)
            if served.input_tokens:
                self.add(TOKENS, served.input_tokens, model, "input")
            if served.output_tokens:
                self.add(TOKENS, served.output_tokens, model, "output")
            if served.charged_nano:
                self.add(CHARGED, served.charged_nano, model)
            for metric, new in (
                (DURATION, served.durations),
                (FIRST_TOKEN, served.first_tokens),
                (SPEED, served.speeds),
            ):
                if any(new):
                    counts = self._histogram(metric, (model, provider or ""))
                    counts[:] = [a + b for a, b in zip(counts, new, strict=True)]
        self._served.clear()

    def snapshot(self) -> Snapshot:
        """Return all counts as plain data, for `merge`."""
        self._pour()
        return {
            name: [
                [list(labels), list(value) if isinstance(value, list) else value]
                for labels, value in values.items()
            ]
            for name, values in self._values.items()
        }


GAUGES = frozenset(metric.name for metric in METRICS if metric.kind == "gauge")


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Add up the counts of several processes."""
    sums: dict[str, dict[tuple[str, ...], Any]] = {}
    for snapshot in snapshots:
        for name, samples in snapshot.items():
            values = sums.setdefault(name, {})
            for labels, value in samples:
                key = _place(values, tuple(labels))
                before = values.get(key)
                if before is None:
                    values[key] = value
                elif isinstance(value, list):
                    values[key] = [a + b for a, b in zip(before, value, strict=True)]
                else:
                    values[key] = before + value
    return {
        name: [[list(labels), value] for labels, value in values.items()] for name, values in sums.items()
    }


def without_gauges(snapshot: Snapshot) -> Snapshot:
    """Return what stays true after the process has ended: its counters and histograms."""
    return {name: samples for name, samples in snapshot.items() if name not in GAUGES}
