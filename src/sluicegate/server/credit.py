"""Credit in the worker: reservations out of allowances that the supervisor leased from account balances.

Spending limits of keys are reserved in the same way, under the name of a budget in place of an account's.

Reserving is a subtraction as long as the allowance lasts; only then is the supervisor asked. While an
account's credit is scarce (the supervisor says so) nothing idle is kept here: what a settlement frees goes
back at once, so that another worker can use it.

Invariant: what a lease brought is in exactly one place: idle here, held by a request, spent (in the journal),
or on its way back.
"""

import asyncio

from sluicegate.billing.spending_limits import budget_name, day_of
from sluicegate.errors import InsufficientBalance, StoreUnavailable
from sluicegate.money import format_usd
from sluicegate.server.control import ANSWER_S
from sluicegate.server.control_messages import GivenBack, LeaseAsked, Leased, Recall
from sluicegate.server.supervisor_link import SupervisorLink

COVER_S = 0.25
"""The longest that a settlement waits for credit beyond its reservation."""


class _Question:
    """Someone waits for a lease; what comes is theirs as far as they need it, unless they have left."""

    __slots__ = ("answer", "need_nano", "part")

    def __init__(self, need_nano: int, part: bool, answer: "asyncio.Future[Leased]") -> None:
        self.need_nano = need_nano
        self.part = part
        self.answer = answer

    def take(self, lease: Leased) -> int:
        """Return how much of a lease the one who waits takes."""
        return (
            min(self.need_nano, lease.amount_nano) if self.part or lease.amount_nano >= self.need_nano else 0
        )

    def came(self) -> Leased | None:
        """Return the lease that came in the turn of the loop in which the one who waits was told to leave."""
        answer = self.answer
        return (
            answer.result()
            if answer.done() and not answer.cancelled() and answer.exception() is None
            else None
        )


class Credit:
    """The allowances of one worker process, by account or budget. Unlimited accounts never come here."""

    def __init__(self, link: SupervisorLink) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._idle: dict[str, int] = {}
        self._scarce: set[str] = set()
        self._days: dict[str, int] = {}
        self._left_days: dict[str, int] = {}
        """The day of each key's last budget, and of the one before."""
        self._questions: dict[int, _Question] = {}
        self.waits = 0
        """Requests that had to ask the supervisor, for the metrics."""
        self.refusals = 0
        link.on_leased = self._leased
        link.on_recall = self._recalled
        link.on_lease_lost = self._lost

    def try_reserve(self, account_id: str, nano: int) -> bool:
        """Reserve out of the idle allowance; False where it does not cover the amount."""
        left = self._idle.get(account_id, 0) - nano
        if left < 0:
            return False
        self._idle[account_id] = left
        return True

    async def reserve(self, account_id: str, nano: int) -> None:
        """Reserve, with a lease from the supervisor where the idle allowance does not cover the amount.

        Raises:
            InsufficientBalance: the account has less than that free anywhere; `available_nano` says how much.
            StoreUnavailable: no answer within a second.
        """
        if self.try_reserve(account_id, nano):
            return
        self.waits += 1
        lease = await self._ask(account_id, nano, False, ANSWER_S)
        if lease is None:
            raise StoreUnavailable("credit could not be reserved in time")
        if lease.amount_nano < nano:
            self.refusals += 1
            raise InsufficientBalance(
                f"Insufficient balance: this request reserves {format_usd(nano)} USD, "
                f"{format_usd(lease.available_nano)} USD are available.",
                available_nano=lease.available_nano,
                limit=lease.limit,
            )

    def settle(self, account_id: str, reserved_nano: int, charged_nano: int) -> None:
        """End a reservation: what it did not spend is free at once.

        Args:
            reserved_nano: all that the request holds, extensions and what `cover` got included.
            charged_nano: what was journalled as charged, at most `reserved_nano`.
        """
        unspent = reserved_nano - charged_nano
        if unspent < 0 or charged_nano < 0:
            raise AssertionError("a charge outside its reservation")
        if unspent:
            self._idle[account_id] = self._idle.get(account_id, 0) + unspent
            if account_id in self._scarce:
                self._give_back(account_id)

    async def cover(self, account_id: str, missing_nano: int) -> int:
        """Take what a charge needs beyond its reservation, as far as there is credit, within 250 ms.

        Returns:
            What was got. It belongs to the reservation now: settle with it included.
        """
        got = min(self._idle.get(account_id, 0), missing_nano)
        if got:
            self._idle[account_id] -= got
        if got < missing_nano:
            try:
                lease = await self._ask(account_id, missing_nano - got, True, COVER_S)
            except StoreUnavailable:
                return got
            except asyncio.CancelledError:
                self.settle(account_id, got, 0)
                raise
            if lease is not None:
                got += min(lease.amount_nano, missing_nano - got)
        return got

    def budget_of(self, key_id: str, at: float) -> str:
        """Return the name under which a key's spending limits are reserved for a request admitted at a moment.

        What is idle of another day goes back: it counts against the same week and month.
        """
        day = day_of(at)
        last = self._days.get(key_id)
        if last is not None and last != day:
            before, self._left_days[key_id] = self._left_days.get(key_id), last
            if before is not None and before != day:
                self._scarce.discard(budget_name(key_id, before))
            self._scarce.add(budget_name(key_id, last))
            self._give_back(budget_name(key_id, last))
        self._days[key_id] = day
        return budget_name(key_id, day)

    def idle(self, account_id: str) -> int:
        """Return the idle allowance."""
        return self._idle.get(account_id, 0)

    async def _ask(self, account_id: str, need_nano: int, part: bool, within_s: float) -> Leased | None:
        """Ask for a lease and take what is needed of it; None where no answer came in time."""
        if self._link.lost.is_set():
            raise StoreUnavailable("the supervisor is gone")
        number = self._link.next_question()
        self._link.send(LeaseAsked(number, account_id, need_nano, part))
        question = _Question(need_nano, part, self._loop.create_future())
        self._questions[number] = question
        try:
            async with asyncio.timeout(within_s):
                return await question.answer
        except TimeoutError:
            return question.came()
        except asyncio.CancelledError:
            lease = question.came()
            if lease is not None:
                self.settle(account_id, question.take(lease), 0)
            raise
        finally:
            self._questions.pop(number, None)

    def _leased(self, lease: Leased) -> None:
        account_id = lease.account_id
        if lease.scarce:
            self._scarce.add(account_id)
        else:
            self._scarce.discard(account_id)
        idle = self._idle.get(account_id, 0) + lease.amount_nano
        question = self._questions.pop(lease.question, None)
        if question is not None and not question.answer.done():
            idle -= question.take(lease)
            question.answer.set_result(lease)
        self._idle[account_id] = idle
        if lease.scarce:
            self._give_back(account_id)

    def _recalled(self, recall: Recall) -> None:
        self._scarce.add(recall.account_id)
        self._link.send(GivenBack(recall.account_id, self._idle.pop(recall.account_id, 0), recall.question))

    def _give_back(self, account_id: str) -> None:
        idle = self._idle.pop(account_id, 0)
        if idle:
            self._link.send(GivenBack(account_id, idle))

    def _lost(self) -> None:
        gone = StoreUnavailable("the supervisor is gone")
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_exception(gone)
                question.answer.exception()
        self._questions.clear()
