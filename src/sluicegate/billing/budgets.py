"""Spending limits of keys as leases: what `leases` is for balances, for what a key may still spend.

A lease is of one key and one day, since a request counts for the day on which it was admitted. What is free of a day
is the least that any window leaves: its limit, less what was charged and what is leased in its period. So charges
never pass a limit, whichever worker makes them; what the truth costs more is the operator's shortfall.
"""

from collections.abc import Mapping

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.leases import JOBS, Grant, lease_size
from sluicegate.billing.spending_limits import (
    WINDOWS,
    budget_name,
    limits_of,
    period_of,
    read_budget_name,
)
from sluicegate.money import MAX_NANO

KEPT_PERIODS = 3
"""Of each window: requests that are still running may belong to the one before the last."""

Spent = Mapping[str, int]
"""Nano-USD that a key was charged in the period that runs, by window."""


class _Key:
    """What one key has spent and what of it is leased."""

    __slots__ = ("leased", "limits", "spent")

    def __init__(self) -> None:
        self.limits: dict[str, int] = {}
        self.spent: dict[str, dict[int, int]] = {}
        """Nano-USD by window and period."""
        self.leased: dict[int, dict[int, int]] = {}
        """Nano-USD by day and worker process."""

    def free(self, day: int) -> tuple[int, str]:
        """Return what may still be leased of a day, and the window that leaves the least."""
        least, bound_by = MAX_NANO, ""
        for window, limit in self.limits.items():
            period = period_of(window, day)
            left = limit - self.spent.get(window, {}).get(period, 0)
            for other, leased_by in self.leased.items():
                if period_of(window, other) == period:
                    left -= sum(leased_by.values())
            if left < least:
                least, bound_by = left, window
        return least, bound_by

    def spend(self, day: int, nano: int) -> None:
        for window in self.limits:
            periods = self.spent.setdefault(window, {})
            period = period_of(window, day)
            periods[period] = periods.get(period, 0) + nano
            if len(periods) > KEPT_PERIODS:
                del periods[min(periods)]

    def lease(self, day: int, worker: int, nano: int) -> None:
        leased_by = self.leased.setdefault(day, {})
        left = leased_by.get(worker, 0) + nano
        if left:
            leased_by[worker] = left
            return
        leased_by.pop(worker, None)
        if not leased_by:
            del self.leased[day]


class Budgets:
    """The budgets of all keys that have spending limits; names are of `spending_limits.budget_name`."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def unknown(self, key: KeyRecord) -> list[str]:
        """Return the windows of a key's limits of which nobody has told what was spent, for `put`."""
        known = self._keys.get(key.id)
        return [window for window in limits_of(key) if known is None or window not in known.spent]

    def put(self, key: KeyRecord, spent: Spent, day: int) -> bool:
        """Take over a key's limits.

        Args:
            spent: for every window that `unknown` names, as of `day`; every charge that the store has must be in it.
        Returns:
            Whether idle leases must be called back, since there is less to spend than there was.
        """
        limits = limits_of(key)
        known = self._keys.get(key.id)
        if known is None:
            if not limits:
                return False
            known = self._keys[key.id] = _Key()
        for window in WINDOWS:
            if window not in limits:
                known.spent.pop(window, None)  # told anew should there be a limit again
            elif window not in known.spent:
                known.spent[window] = {period_of(window, day): spent.get(window, 0)}
        tighter = any(limit < known.limits.get(window, MAX_NANO) for window, limit in limits.items())
        known.limits = limits
        if not limits and not known.leased:
            del self._keys[key.id]
        return tighter

    def names(self, key_id: str) -> list[str]:
        """Return the budgets of a key of which something is leased."""
        known = self._keys.get(key_id)
        return [] if known is None else [budget_name(key_id, day) for day in known.leased]

    def book(self, key_id: str, day: int, charged_nano: int, worker: int | None, *, held: bool) -> None:
        """Take note of a charge that the store has committed.

        Args:
            day: when its request was admitted.
            worker: the process whose journal held it; None where none lives that leased it.
            held: the request was held against the limits, so that the charge comes out of a lease.
        """
        known = self._keys.get(key_id)
        if known is None:
            return
        known.spend(day, charged_nano)
        leased = known.leased.get(day, {}).get(worker, 0) if held and worker is not None else 0
        if leased and worker is not None:
            known.lease(day, worker, -min(charged_nano, leased))

    # What `server.bank` asks

    def free(self, name: str) -> int:
        """Return what may still be leased."""
        known, day = self._find(name)
        return known.free(day)[0]

    def leased_to(self, name: str, worker: int) -> int:
        """Return what one worker process holds."""
        known, day = self._find(name)
        return known.leased.get(day, {}).get(worker, 0)

    def holders(self, name: str) -> set[int]:
        """Return the worker processes that hold a lease of the key, of any day: all of them may count together."""
        known, _ = self._find(name)
        return {worker for leased_by in known.leased.values() for worker in leased_by} - {JOBS}

    def beside(self, name: str) -> list[str]:
        """Return the budgets of the same key for other days, of which something is leased."""
        key_id, _ = read_budget_name(name)
        return [other for other in self.names(key_id) if other != name]

    def lease(self, name: str, worker: int, need_nano: int, workers: int) -> Grant:
        """Lease at least `need_nano`, or nothing; a refusal names the window."""
        known, day = self._find(name)
        free, bound_by = known.free(day)
        free = max(0, free)
        if need_nano > free or need_nano <= 0:
            return Grant(0, free, True, bound_by)
        amount = lease_size(free, need_nano, workers)
        known.lease(day, worker, amount)
        return Grant(amount, free, amount == need_nano)

    def lease_part(self, name: str, worker: int, wanted_nano: int) -> Grant:
        """Lease up to `wanted_nano`: as much as there is."""
        known, day = self._find(name)
        free, bound_by = known.free(day)
        free = max(0, free)
        amount = min(free, max(0, wanted_nano))
        if amount:
            known.lease(day, worker, amount)
        return Grant(amount, free, amount == free, bound_by)

    def give_back(self, name: str, worker: int, amount_nano: int) -> None:
        """Free the part of a lease that its worker does not need.

        Raises:
            AssertionError: it gives back more than it holds, so its books are wrong.
        """
        if amount_nano < 0 or amount_nano > self.leased_to(name, worker):
            raise AssertionError(f"worker {worker} gives back more than it holds")
        if amount_nano:
            known, day = self._find(name)
            known.lease(day, worker, -amount_nano)

    def hand_over(self, name: str, worker: int | None, amount_nano: int) -> None:
        """Keep what a job holds leased until it has ended; see `LeaseBook.hand_over`."""
        known, day = self._find(name)
        if worker is not None:
            known.lease(day, worker, -min(amount_nano, self.leased_to(name, worker)))
        known.lease(day, JOBS, amount_nano)

    def release_worker(self, worker: int) -> None:
        """Free all that a dead worker held, once the last record of its journal is committed."""
        for known in self._keys.values():
            for day in [day for day, leased_by in known.leased.items() if worker in leased_by]:
                known.lease(day, worker, -known.leased[day][worker])

    def _find(self, name: str) -> tuple[_Key, int]:
        """Return a key and a day; a key whose limits were just lifted has none, and so no bound."""
        key_id, day = read_budget_name(name)
        known = self._keys.get(key_id)
        if known is None:
            known = self._keys[key_id] = _Key()
        return known, day
