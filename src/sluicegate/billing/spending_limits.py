"""What a key may spend in a UTC day, in a week from Monday, in a calendar month and in all; and when each begins anew.

A request belongs to the day of its admission, however long it runs: so a budget is named by key and day, and a day
belongs to one period of each window. Days are counted from 1970-01-01; times are seconds since then.
"""

from datetime import UTC, date, datetime

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.money import format_usd

DAY_S = 86_400
WINDOWS = ("day", "week", "month", "lifetime")
"""From the one that ends first to the one that does not end."""
BUDGET = "\x1f"
"""Begins the name of a budget where accounts are named too; no name of an account can hold it."""
_EPOCH = date(1970, 1, 1).toordinal()
_MONDAY = 3
"""1970-01-01 was a Thursday."""


def day_of(at: float) -> int:
    """Return the UTC day of a moment."""
    return int(at // DAY_S)


def budget_name(key_id: str, day: int) -> str:
    """Name what a key may spend on requests that are admitted on a day."""
    return f"{BUDGET}{key_id}{BUDGET}{day}"


def read_budget_name(name: str) -> tuple[str, int]:
    """Return the key and the day of a budget."""
    _, key_id, day = name.split(BUDGET)
    return key_id, int(day)


def limits_of(key: KeyRecord) -> dict[str, int]:
    """Return a key's limits in nano-USD, by window."""
    limits = {window: getattr(key, f"{window}_nano") for window in WINDOWS}
    return {window: nano for window, nano in limits.items() if nano is not None}


def period_of(window: str, day: int) -> int:
    """Return the number of the period that a day lies in."""
    if window == "day":
        return day
    if window == "week":
        return (day + _MONDAY) // 7
    if window == "month":
        then = date.fromordinal(_EPOCH + day)
        return then.year * 12 + then.month - 1
    return 0


def begins_at(window: str, day: int) -> float:
    """Return when the period of a day began."""
    period = period_of(window, day)
    if window == "day":
        return float(day * DAY_S)
    if window == "week":
        return float((period * 7 - _MONDAY) * DAY_S)
    return _first_of_month(period) if window == "month" else 0.0


def ends_at(window: str, day: int) -> float | None:
    """Return when the period of a day ends and the next begins; None for a lifetime."""
    period = period_of(window, day)
    if window == "day":
        return float((day + 1) * DAY_S)
    if window == "week":
        return float(((period + 1) * 7 - _MONDAY) * DAY_S)
    return _first_of_month(period + 1) if window == "month" else None


def describe(window: str, limit_nano: int, day: int) -> str:
    """Say what a limit is and when it resets, for the client that ran into it."""
    ends = ends_at(window, day)
    amount = f"{format_usd(limit_nano)} USD"
    if ends is None:
        return f"{amount} in all; it does not reset"
    return f"{amount} a {window} (UTC); it resets at {datetime.fromtimestamp(ends, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _first_of_month(period: int) -> float:
    return datetime(period // 12, period % 12 + 1, 1, tzinfo=UTC).timestamp()
