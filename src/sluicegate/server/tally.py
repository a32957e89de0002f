"""The tally that counts for the metrics.

Nothing here is done per event of a stream; a request touches a handful of dictionary entries. Workers send snapshots of
their tallies to the supervisor, which adds them up.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from sluicegate.server.served_counts import Histogram, ServedCounts
from sluicegate.server.telemetry import (
    ATTEMPTS,
    CHARGED,
    DURATION,
    FIRST_TOKEN,
    METRICS,
    OVERHEAD,
    REQUESTS,
    SHORTFALL,
    SPEED,
    TOKENS,
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


def _no_counts(metric: Metric) -> list[float]:
    return [0] * (len(metric.buckets) + 2)


class Tally:
    """The counts of one process."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], Any]] = {}
        self.served = ServedCounts(self._pour)
        """What every request raises."""

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

    def _histogram(self, metric: Metric, labels: tuple[str, ...]) -> list[float]:
        values = self._values.setdefault(metric.name, {})
        counts: list[float] = values.setdefault(_place(values, labels), _no_counts(metric))
        return counts

    def _pour(self) -> None:
        """Turn what `served` gathered into counts of each metric."""
        for (model, provider), served in self.served.by_place.items():
            for status, requests in served.statuses.items():
                self.add(REQUESTS, requests, model, status)
            for amount, metric, labels in (
                (served.answered, ATTEMPTS, (provider or "", "ok")),
                (served.input_tokens, TOKENS, (model, "input")),
                (served.output_tokens, TOKENS, (model, "output")),
                (served.charged_nano, CHARGED, (model,)),
                (served.shortfall_nano, SHORTFALL, ()),
            ):
                if amount:
                    self.add(metric, amount, *labels)
            for metric, new in (
                (DURATION, served.durations),
                (FIRST_TOKEN, served.first_tokens),
                (SPEED, served.speeds),
            ):
                self._add_up(metric, new, model, provider or "")
        self._add_up(OVERHEAD, self.served.overheads)
        self.served.clear()

    def _add_up(self, metric: Metric, new: Histogram, *labels: str) -> None:
        if any(new.counts):
            counts = self._histogram(metric, labels)
            counts[:] = [a + b for a, b in zip(counts, [*new.counts, new.sum], strict=True)]

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
