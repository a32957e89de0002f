"""Who may still spend what: credit leased out of account balances, and what is free of it.

A lease lets a worker reserve without asking anyone. Leased credit never passes the balance, so the sum of all
reservations never does either. The book is the supervisor's and lives in its memory; the balance itself moves
in the store alone, and is told here after each commit.

Invariant: free = balance - leased - held, and no grant passes it. Free falls below zero only where the store
lowered a balance by other means than a booked charge, and nothing is granted until it has come back.
"""

from typing import NamedTuple

SCARCE = 20
"""Below this many reservations a worker, leases are exactly one reservation."""
JOBS = -1
"""Holds, in a worker process's stead, what is leased for work that goes on at providers."""
PLENTY = 64
"""A lease is never more than this many reservations of the size that asked for it."""


class Grant(NamedTuple):
    """The answer to one request for credit."""

    amount_nano: int
    """What was leased; 0 where the request was refused."""
    available_nano: int
    """What was free before; tells a refused client how much there is."""
    scarce: bool
    """Credit is short: what the worker does not need goes back at once."""
    limit: str = ""
    """The window of the spending limit that leaves no more; empty for balances."""


class _Account:
    __slots__ = ("balance", "held", "leased", "leased_by")

    def __init__(self, balance: int) -> None:
        self.balance = balance
        self.held = 0
        self.leased = 0
        self.leased_by: dict[int, int] = {}


def lease_size(free_nano: int, need_nano: int, workers: int) -> int:
    """Return how much to lease to a worker that needs `need_nano` now, where `free_nano` covers it.

    With plenty, a quarter of the worker's even share, so that a few askers never drain the account between
    them.
    """
    if free_nano < SCARCE * workers * need_nano:
        return need_nano
    return max(need_nano, min(free_nano // (4 * workers), PLENTY * need_nano))


class LeaseBook:
    """Balances, and the leases outstanding against them by worker process. Amounts are nano-USD."""

    def __init__(self, balances: dict[str, int]) -> None:
        self._accounts = {account_id: _Account(balance) for account_id, balance in balances.items()}

    def free(self, account_id: str) -> int:
        """Return what may still be leased; 0 for an account nobody knows."""
        account = self._accounts.get(account_id)
        return 0 if account is None else account.balance - account.leased - account.held

    def taken(self, account_id: str) -> int:
        """Return what of the balance is not free: leased, or held for debits."""
        account = self._accounts[account_id]
        return account.leased + account.held

    def knows(self, account_id: str) -> bool:
        """Whether this is a prepaid account."""
        return account_id in self._accounts

    def leased_to(self, account_id: str, worker: int) -> int:
        """Return what one worker process holds of an account."""
        account = self._accounts.get(account_id)
        return 0 if account is None else account.leased_by.get(worker, 0)

    def holders(self, account_id: str) -> set[int]:
        """Return the worker processes that hold a lease on the account."""
        account = self._accounts.get(account_id)
        return set() if account is None else set(account.leased_by) - {JOBS}

    def beside(self, account_id: str) -> list[str]:
        """Return what must be called back together with this account: nothing."""
        return []

    def lease(self, account_id: str, worker: int, need_nano: int, workers: int) -> Grant:
        """Lease at least `need_nano`, or nothing."""
        free = max(0, self.free(account_id))
        if need_nano > free or need_nano <= 0:
            return Grant(0, free, True)
        amount = lease_size(free, need_nano, workers)
        self._add(account_id, worker, amount)
        return Grant(amount, free, amount == need_nano)

    def lease_part(self, account_id: str, worker: int, wanted_nano: int) -> Grant:
        """Lease up to `wanted_nano`: as much as there is."""
        free = max(0, self.free(account_id))
        amount = min(free, max(0, wanted_nano))
        if amount:
            self._add(account_id, worker, amount)
        return Grant(amount, free, amount == free)

    def give_back(self, account_id: str, worker: int, amount_nano: int) -> None:
        """Free the part of a lease that its worker does not need.

        Raises:
            AssertionError: it gives back more than it holds, so its books are wrong.
        """
        if amount_nano < 0 or amount_nano > self.leased_to(account_id, worker):
            raise AssertionError(f"worker {worker} gives back more than it holds")
        if amount_nano:
            self._add(account_id, worker, -amount_nano)

    def book(self, account_id: str, worker: int | None, charged_nano: int) -> None:
        """Take a charge that the store has committed from the balance, and from the lease it was spent out
        of.

        Args:
            worker: the process whose journal held the charge; None where none lives that leased it.
        """
        account = self._accounts.get(account_id)
        if account is None:
            return
        account.balance -= charged_nano
        if worker is not None:
            self._add(account_id, worker, -min(charged_nano, account.leased_by.get(worker, 0)))

    def set_balance(self, account_id: str, balance_nano: int) -> None:
        """Take over a balance that was moved by hand in the store: a new account, a top-up, a debit.

        Every charge that the store has committed must be in the book, and no other.
        """
        account = self._accounts.get(account_id)
        if account is None:
            self._accounts[account_id] = _Account(balance_nano)
        else:
            account.balance = balance_nano

    def hand_over(self, account_id: str, worker: int | None, amount_nano: int) -> None:
        """Keep what a job holds leased until it has ended, whatever becomes of the worker that reserved it.

        Args:
            worker: out of whose lease; None where none lives that leased it.
        """
        if account_id not in self._accounts or not amount_nano:
            return
        if worker is not None:
            self._add(account_id, worker, -min(amount_nano, self.leased_to(account_id, worker)))
        self._add(account_id, JOBS, amount_nano)

    def hold(self, account_id: str, amount_nano: int) -> bool:
        """Keep free credit from being leased while a debit by hand is under way; False where there is not
        enough.
        """
        account = self._accounts.get(account_id)
        if account is None or amount_nano > account.balance - account.leased - account.held:
            return False
        account.held += amount_nano
        return True

    def release(self, account_id: str, amount_nano: int) -> None:
        """End a hold: the debit is in the balance now, or did not happen."""
        self._accounts[account_id].held -= amount_nano

    def release_worker(self, worker: int) -> list[str]:
        """Free all that a dead worker held, once the last record of its journal is committed; return the
        accounts.
        """
        accounts = [
            account_id for account_id, account in self._accounts.items() if worker in account.leased_by
        ]
        for account_id in accounts:
            self._add(account_id, worker, -self._accounts[account_id].leased_by[worker])
        return accounts

    def totals(self) -> tuple[int, int]:
        """Return the sums of all balances and of all leases."""
        accounts = self._accounts.values()
        return sum(account.balance for account in accounts), sum(account.leased for account in accounts)

    def _add(self, account_id: str, worker: int, amount_nano: int) -> None:
        account = self._accounts[account_id]
        left = account.leased_by.get(worker, 0) + amount_nano
        account.leased += amount_nano
        if left:
            account.leased_by[worker] = left
        else:
            account.leased_by.pop(worker, None)
