"""The few statistics the bench needs, over values that are sorted already."""

from collections.abc import Sequence


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the value that the given share of sorted values does not pass; 0 where there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
