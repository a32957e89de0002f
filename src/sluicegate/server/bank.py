"""The supervisor's side of credit: it answers workers that ask for leases, and calls idle ones back for them.

Balances and leases are kept by `billing.leases`; the store moves balances (`supervisor.py` tells us). What
cannot be met out of free credit starts a round: every worker that holds a lease on the account gives back
what is idle, and then the questions are answered in the order in which they came. A question that comes
during a round waits for the next one, so that every answer knows all that was free when it was asked.
"""

import asyncio
from collections.abc import Callable, Iterable, Set
from typing import Protocol

from sluicegate.billing.budgets import Budgets
from sluicegate.billing.leases import Grant, LeaseBook
from sluicegate.billing.spending_limits import BUDGET
from sluicegate.server.control import ANSWER_S
from sluicegate.server.control_messages import GivenBack, LeaseAsked, Leased, Recall

RECALL_S = 0.15
"""How long a round waits for workers; less than what settlements wait for a refill."""

_Silent = Set[int]
"""Workers that did not answer a round: stuck, or dead with a journal that is not committed yet."""
_Closing = Callable[[_Silent], bool]
"""Ends one wait after a round; False where it must go on."""


class Branch(Protocol):
    """The workers as the bank sees them."""

    def send(self, worker: int, message: Leased | Recall) -> None:
        """Tell a worker process something; nothing where it is gone."""
        ...

    @property
    def live(self) -> Iterable[int]:
        """The worker processes that can be asked."""
        ...


class _Round:
    """One call for the idle leases of an account, and those who wait for it and for the next one."""

    __slots__ = ("awaited", "closing", "next", "number", "timer")

    def __init__(self, number: int, awaited: set[int], closing: list[_Closing]) -> None:
        self.number = number
        self.awaited = awaited
        self.closing = closing
        self.next: list[_Closing] = []
        self.timer: asyncio.TimerHandle | None = None


class Bank:
    """Answers questions for credit out of a lease book."""

    def __init__(self, book: LeaseBook, branch: Branch, budgets: Budgets | None = None) -> None:
        """Args: budgets: the spending limits of keys, which are leased by names of their own."""
        self._book = book
        self._budgets = budgets or Budgets()
        self._branch = branch
        self._loop = asyncio.get_running_loop()
        self._rounds: dict[str, _Round] = {}
        self._round_number = 0

    @property
    def book(self) -> LeaseBook:
        """Balances and leases."""
        return self._book

    @property
    def budgets(self) -> Budgets:
        """Spending limits of keys, and their leases."""
        return self._budgets

    def _of(self, account_id: str) -> LeaseBook | Budgets:
        return self._budgets if account_id.startswith(BUDGET) else self._book

    def asked(self, worker: int, question: LeaseAsked) -> None:
        """Answer a worker's question, now or after a round."""
        if question.account_id not in self._rounds and self._met(worker, question):
            return
        asked_at = self._loop.time()
        self._after_round(
            question.account_id, lambda silent: self._answer(worker, question, asked_at, silent)
        )

    def given_back(self, worker: int, answer: GivenBack) -> None:
        """Take back credit from a worker.

        Raises:
            AssertionError: it gives back more than it holds.
        """
        self._of(answer.account_id).give_back(answer.account_id, worker, answer.amount_nano)
        if answer.question:
            running = self._rounds.get(answer.account_id)
            if running is not None and running.number == answer.question:
                running.awaited.discard(worker)
                self._close_if_complete(answer.account_id, running)

    def release_worker(self, worker: int) -> None:
        """Free what a dead worker held; its whole journal is committed."""
        self._book.release_worker(worker)
        self._budgets.release_worker(worker)
        for account_id, running in list(self._rounds.items()):
            running.awaited.discard(worker)
            self._close_if_complete(account_id, running)

    def call_back(self, account_id: str) -> None:
        """Have all that is idle of a lease given back, as there is less to lease than there was."""
        self._after_round(account_id, lambda silent: True)

    async def hold(self, account_id: str, amount_nano: int) -> bool:
        """Keep free credit for a debit by hand, idle leases called back for it; False where it is not enough.

        `book.release` ends a hold.
        """
        if account_id not in self._rounds and self._book.hold(account_id, amount_nano):
            return True
        held: asyncio.Future[bool] = self._loop.create_future()

        def closing(silent: _Silent) -> bool:
            if not held.done():
                held.set_result(self._book.hold(account_id, amount_nano))
            return True

        self._after_round(account_id, closing)
        try:
            return await held
        except asyncio.CancelledError:
            if held.done() and not held.cancelled() and held.result():
                self._book.release(account_id, amount_nano)
            raise

    def _met(self, worker: int, question: LeaseAsked) -> bool:
        """Answer out of free credit where it covers the whole question."""
        if question.part and self._of(question.account_id).free(question.account_id) < question.amount_nano:
            return False
        grant = self._grant(worker, question)
        if grant.amount_nano < question.amount_nano:
            return False
        self._tell(worker, question, grant)
        return True

    def _answer(self, worker: int, question: LeaseAsked, asked_at: float, silent: _Silent) -> bool:
        """Answer after a round, but not with a refusal while a silent worker may hold what is needed."""
        if worker not in self._branch.live:
            return True
        grant = self._grant(worker, question)
        if grant.amount_nano == 0 and silent and not question.part:
            book = self._of(question.account_id)
            hidden = sum(book.leased_to(question.account_id, holder) for holder in silent)
            if grant.available_nano + hidden >= question.amount_nano:
                return self._loop.time() - asked_at > ANSWER_S  # unanswered, it ends as unavailable
        self._tell(worker, question, grant)
        return True

    def _grant(self, worker: int, question: LeaseAsked) -> Grant:
        book = self._of(question.account_id)
        if question.part:
            return book.lease_part(question.account_id, worker, question.amount_nano)
        return book.lease(
            question.account_id, worker, question.amount_nano, max(1, sum(1 for _ in self._branch.live))
        )

    def _tell(self, worker: int, question: LeaseAsked, grant: Grant) -> None:
        self._branch.send(
            worker,
            Leased(
                question.question,
                question.account_id,
                grant.amount_nano,
                grant.available_nano,
                grant.scarce,
                grant.limit,
            ),
        )

    def _after_round(self, account_id: str, closing: _Closing) -> None:
        running = self._rounds.get(account_id)
        if running is None:
            self._start_round(account_id, [closing])
        else:
            running.next.append(closing)

    def _start_round(self, account_id: str, closing: list[_Closing]) -> None:
        self._round_number += 1
        # A dead worker cannot answer, but its lease comes free as soon as its journal is committed.
        book = self._of(account_id)
        running = _Round(self._round_number, book.holders(account_id), closing)
        self._rounds[account_id] = running
        for other in book.beside(account_id):
            for worker in running.awaited:  # answered before the round's own, as answers keep their order
                self._branch.send(worker, Recall(0, other))
        for worker in running.awaited:
            self._branch.send(worker, Recall(running.number, account_id))
        if running.awaited:
            running.timer = self._loop.call_later(RECALL_S, self._close, account_id, running)
        else:
            self._close(account_id, running)

    def _close_if_complete(self, account_id: str, running: _Round) -> None:
        if not running.awaited and self._rounds.get(account_id) is running:
            self._close(account_id, running)

    def _close(self, account_id: str, running: _Round) -> None:
        if running.timer is not None:
            running.timer.cancel()
        del self._rounds[account_id]
        waiting = [closing for closing in running.closing if not closing(running.awaited)] + running.next
        if waiting:
            self._start_round(account_id, waiting)
