"""The money side of one request: reserve, extend, settle, each journalled before anything that depends on it.

Pure rules are `billing`'s; allowances are `credit`'s. A tab is opened once and settled once.
"""

import asyncio
import contextlib
import time

import msgspec
from mypy_extensions import mypyc_attr

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.ledger import (
    Checkpoint,
    Extended,
    HandedOver,
    Job,
    KeptObject,
    ProviderCost,
    Reservation,
    Reserved,
    Settled,
    UsageRow,
    settle_after_crash,
)
from sluicegate.billing.price import PLAIN, Prompt, charge, reservation
from sluicegate.billing.spending_limits import day_of, describe
from sluicegate.errors import InsufficientBalance, StoreUnavailable
from sluicegate.messages import Usage, UsageSource
from sluicegate.money import format_usd
from sluicegate.routing.catalog import Price
from sluicegate.server.credit import Credit
from sluicegate.server.journal import JournalWriter, RecordOwner
from sluicegate.server.supervisor_link import SupervisorLink
from sluicegate.server.telemetry import SETTLEMENTS_OWED, log

MIN_CUT_TOKENS = 256
"""A token limit that credit does not cover is never cut below this."""
OWED_RETRY_S = 0.25
"""How often a settlement that the journal would not take is offered again."""


class Till:
    """Where a worker's tabs are settled: its credit, its journal, its wire to the supervisor."""

    def __init__(self, credit: Credit, journal: JournalWriter, link: SupervisorLink, *, synced: bool) -> None:
        """Args: synced: settlements wait until they are on the disk."""
        self.credit = credit
        self.journal = journal
        self.link = link
        self.synced = synced
        self.on_crash = "none"
        self._owed: list[Tab] = []
        journal.on_renewed = self._resolve_owed
        self._loop = asyncio.get_running_loop()

    def owe(self, tab: "Tab") -> None:
        """Keep a request whose settlement the journal would not take, and offer it until it does.

        Should the worker die before, recovery comes to the same: the reservation is still open in the journal.
        """
        if not self._owed:
            log(SETTLEMENTS_OWED, request=tab.row.request_id)
            self._loop.call_later(OWED_RETRY_S, self._pay)
        self._owed.append(tab)

    def _pay(self) -> None:
        if not self._resolve_owed():
            self._loop.call_later(OWED_RETRY_S, self._pay)

    def _resolve_owed(self) -> bool:
        """Settle what is owed as far as the journal takes it; return whether that is all."""
        while self._owed:
            tab = self._owed[-1]
            try:
                tab.resolve()
            except StoreUnavailable:
                return False
            # It may not be the last any more: what was gathered is written before it, and owed where that fails.
            self._owed.remove(tab)
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class Tab:
    """What one request may cost, and in the end does."""

    __slots__ = (
        "_budget",
        "_checkpoint",
        "_covered",
        "_input_tokens",
        "_key",
        "_longest_input",
        "_others",
        "_past_limit",
        "_price",
        "_prompt",
        "_tier",
        "_till",
        "_units",
        "held",
        "on_crash",
        "open",
        "owed",
        "prepaid",
        "reserved_nano",
        "row",
        "settled",
    )

    def __init__(
        self,
        till: Till,
        key: KeyRecord,
        price: Price | None,
        row: UsageRow,
        others: tuple[Price | None, ...] = (),
        tier: str | None = None,
        units: Usage | None = None,
        budget: str | None = None,
        prompt: Prompt = PLAIN,
    ) -> None:
        """Open a tab.

        Args:
            price: None where the model is free.
            others: prices of the models that may serve the request in its stead; the dearest is held.
            tier: the service tier that the request asks for, where a price knows tiers.
            units: what is charged beside tokens, where it is known.
            budget: under which the key's spending limits are held, where it has any.
            prompt: what of the input may be charged at other rates than fresh text.
        """
        self._till = till
        self._key = key
        self._price = price
        self._others = others
        self._tier = tier
        self._units = units
        self._prompt = prompt
        self._input_tokens = 0
        self._longest_input = 0
        """Of several calls, what the longest reads; 0 where there is one."""
        self._covered = 0
        self.row = row
        self.on_crash = till.on_crash
        self._checkpoint: Checkpoint | None = None
        priced = price is not None or any(others)
        self.prepaid = priced and not key.unlimited
        """Whether the request is held against credit."""
        self._budget = budget if priced else None
        self.held = self.prepaid or self._budget is not None
        """Whether it is held against credit or a spending limit."""
        if self._budget is not None:
            row.limited = True
        self._past_limit = False
        self.reserved_nano = 0
        """What is held, of credit and of the spending limits alike."""
        self.open = False
        self.owed = False
        """The journal has not taken the settlement yet."""
        self.settled = False

    def hold_for(self, input_tokens: int, output_tokens: int) -> int:
        """Return what is held for so many tokens: the most that they can cost, in nano-USD."""
        nano, tier, units, prompt, longest = 0, self._tier, self._units, self._prompt, self._longest_input
        price = self._price
        if price is not None:
            nano = reservation(price, input_tokens, output_tokens, tier, units, prompt, longest)
        for price in self._others:
            if price is not None:
                nano = max(
                    nano, reservation(price, input_tokens, output_tokens, tier, units, prompt, longest)
                )
        return nano

    def served_at(self, price: Price | None) -> None:
        """Charge for another of the models that may serve the request; what is held stays."""
        self._others += (self._price,)
        self._price = price

    def cost_so_far(self, usage: Usage) -> int:
        """Return what a running stream would be charged now, in nano-USD: no more than is held for it."""
        cost = charge(self._price, usage, self._tier)[0]
        return min(cost, self.reserved_nano) if self.held else cost

    def reserve_now(
        self,
        input_tokens: int,
        output_tokens: int,
        longest_input: int = 0,
        owner: RecordOwner | None = None,
    ) -> bool:
        """Hold the money for a request and journal it, where nobody has to be asked for credit.

        Args:
            longest_input: of several calls, what the longest reads.
            owner: the record is gathered with others; who is told when it is written, and calls `give_back` where it
                is not. None: it is written now.
        Returns:
            Whether that is done; else nothing is held yet, and `reserve_slowly` comes next.
        Raises:
            StoreUnavailable: the journal takes nothing.
        """
        amount = 0
        self._longest_input = longest_input
        if self.held:
            amount = self.hold_for(input_tokens, output_tokens)
            if self._budget is not None or not self._till.credit.try_reserve(self._key.account_id, amount):
                return False
        self._put_down(amount, input_tokens, output_tokens, owner)
        return True

    async def reserve_slowly(self, input_tokens: int, output_tokens: int, *, may_cut: bool) -> int:
        """Do what `reserve_now` could not: ask for credit, and under spending limits.

        Args:
            may_cut: output tokens may be lowered to what credit covers, where the client gave no limit itself.
        Returns:
            The output tokens that are covered.
        Raises:
            InsufficientBalance: credit, or a spending limit, covers less; the message says how many tokens it does.
            StoreUnavailable: credit could not be asked for in time, or the journal takes nothing.
        """
        amount, output_tokens = await self._hold(input_tokens, output_tokens, may_cut)
        self._put_down(amount, input_tokens, output_tokens)
        return output_tokens

    def _put_down(
        self, amount: int, input_tokens: int, output_tokens: int, owner: RecordOwner | None = None
    ) -> None:
        """Journal what is held; where that cannot be, it is free again."""
        self.reserved_nano = amount
        self._input_tokens, self._covered = input_tokens, output_tokens
        record = Reserved(
            request_id=self.row.request_id,
            account_id=self._key.account_id,
            amount_nano=amount,
            row=self.row,
            on_crash=self.on_crash,
        )
        try:
            if owner is None:
                self._till.journal.append(record)
            else:
                self._till.journal.gather(record, owner)
        except StoreUnavailable:
            self._free(amount)
            raise
        self.open = True

    def give_back(self) -> None:
        """Free what is held by a reservation that could not be written: the request was never admitted."""
        self.open = False
        self._free(self.reserved_nano)
        self.reserved_nano = 0

    async def _hold(self, input_tokens: int, output_tokens: int, may_cut: bool) -> tuple[int, int]:
        """Hold the money for a request, or for as much of it as may be; return the amount and the output tokens."""
        amount = self.hold_for(input_tokens, output_tokens)
        try:
            await self._take(amount)
        except InsufficientBalance as refusal:
            covered = self._affordable(refusal.available_nano or 0, input_tokens, output_tokens)
            if not may_cut or covered < MIN_CUT_TOKENS:
                if covered > 0:
                    refusal.message += (
                        f" {'That' if refusal.limit else 'Credit'} covers {covered} output tokens."
                    )
                raise
            amount = self.hold_for(input_tokens, covered)
            await self._take(amount)
            return amount, covered
        return amount, output_tokens

    async def _take(self, amount: int) -> None:
        """Hold an amount of credit and of the spending limits, or of neither.

        Raises:
            InsufficientBalance: there is less; the message names the limit where it is one.
            StoreUnavailable: nobody answered.
        """
        credit, account_id = self._till.credit, self._key.account_id
        if self.prepaid:
            await credit.reserve(account_id, amount)
        if self._budget is None:
            return
        try:
            await credit.reserve(self._budget, amount)
        except BaseException as error:
            if self.prepaid:
                credit.settle(account_id, amount, 0)
            if isinstance(error, InsufficientBalance):
                self._name_limit(error, amount)
            raise

    def _name_limit(self, refusal: InsufficientBalance, amount: int) -> None:
        """Say which limit it was and when it resets."""
        limit_nano = self._key.spending.get(refusal.limit)
        if limit_nano is None:
            refusal.message = "This API key's spending limits have just changed; try again."
            return
        limit = describe(refusal.limit, limit_nano, day_of(self.row.started_at))
        refusal.message = (
            f"Spending limit reached: this API key may spend {limit}. This request reserves "
            f"{format_usd(amount)} USD, {format_usd(refusal.available_nano or 0)} USD are left."
        )

    def _affordable(self, available_nano: int, input_tokens: int, output_tokens: int) -> int:
        """Return the most output tokens, up to what was asked, that the available credit covers."""
        low, high = 0, output_tokens
        while low < high:
            middle = (low + high + 1) // 2
            if self.hold_for(input_tokens, middle) <= available_nano:
                low = middle
            else:
                high = middle - 1
        return low

    async def extend_by(self, output_tokens: int) -> None:
        """Hold money for more output of a running stream.

        Where a spending limit is reached and the key says so, the stream finishes: what it costs beyond is the
        operator's.

        Raises:
            InsufficientBalance: there is no more.
            StoreUnavailable: nobody answered; the stream runs on.
        """
        if not self.held or self.settled or self._past_limit:
            return
        held_for = self._covered + output_tokens
        amount = self.hold_for(self._input_tokens, held_for)
        amount -= self.hold_for(self._input_tokens, self._covered)
        if await self._hold_more(amount):
            self._covered = held_for

    async def extend_for_call(self, input_tokens: int) -> None:
        """Hold money for the input of a further call. Raises as `extend_by`."""
        if not self.held or self.settled or self._past_limit:
            return
        before = self.hold_for(self._input_tokens, self._covered)
        known = self._input_tokens, self._longest_input
        self._longest_input = max(self._longest_input or self._input_tokens, input_tokens)
        self._input_tokens += input_tokens
        try:
            await self._hold_more(max(0, self.hold_for(self._input_tokens, self._covered) - before))
        except StoreUnavailable:
            self._input_tokens, self._longest_input = known
            raise

    async def extend_input(self, input_tokens: int, units: Usage | None) -> None:
        """Hold money for more input than was expected. Raises as `extend_by`."""
        if not self.held or self.settled or self._past_limit:
            return
        before, held_for = self.hold_for(self._input_tokens, self._covered), (self._input_tokens, self._units)
        self._input_tokens, self._units = input_tokens, units
        try:
            await self._hold_more(max(0, self.hold_for(input_tokens, self._covered) - before))
        except StoreUnavailable:
            self._input_tokens, self._units = held_for
            raise

    async def _hold_more(self, amount: int) -> bool:
        """Hold more money and journal it; return whether it is held. Raises as `extend_by`."""
        account_id = self._key.account_id
        if self._budget is not None or not self._till.credit.try_reserve(account_id, amount):
            try:
                await self._take(amount)
            except InsufficientBalance as refusal:
                if refusal.limit and self._key.on_limit == "finish":
                    self._past_limit = True
                    return False
                raise
        if self.settled:  # the stream ended meanwhile
            self._free(amount)
            return False
        self.reserved_nano += amount
        try:
            self._till.journal.append(
                Extended(request_id=self.row.request_id, account_id=account_id, amount_nano=amount)
            )
        except StoreUnavailable:
            self.reserved_nano -= amount
            self._free(amount)
            raise
        return True

    def checkpoint(self, usage: Usage, source: UsageSource, *, finished: bool = False) -> None:
        """Journal where a running stream stands, for a crash to charge by.

        Args:
            finished: the finish leaves before usage has come: a crash from here on settles this as complete.
        Raises:
            StoreUnavailable: the journal takes nothing, so a finish must not leave.
        """
        list_cost, odd = charge(self._price, usage, self._tier)
        row = msgspec.structs.replace(
            self.row,
            usage=usage,
            usage_source=source,
            usage_odd=odd,
            list_cost_nano_usd=list_cost,
            cost_nano_usd=min(list_cost, self.reserved_nano) if self.held else list_cost,
        )
        checkpoint = Checkpoint(request_id=self.row.request_id, row=row, finished=finished)
        self._till.journal.append(checkpoint)
        self._checkpoint = checkpoint

    def lost_attempt(self, attempt: int, provider: str, provider_model: str, at: float, reason: str) -> None:
        """Note for the operator that an attempt may have cost something that nobody pays for."""
        try:
            self._till.journal.append(
                ProviderCost(
                    request_id=self.row.request_id,
                    attempt=attempt,
                    provider=provider,
                    provider_model=provider_model,
                    at=at,
                    reason=reason,
                )
            )
        except StoreUnavailable:
            return  # it carries no charge: the settlement, which has a place of its own, matters more

    def settle_now(self, usage: Usage, source: UsageSource, owner: RecordOwner | None = None) -> bool:
        """Charge for what was used and journal it, once; the row says what was charged.

        Args:
            owner: the record is gathered with others; who is told when it is written, and calls `close` then, or `owe`
                where it is not. None: it is written now.
        Returns:
            Whether that is done; else the charge is more than is held, or the disk is waited for: the row says what it
            is, and `settle_slowly` comes next.
        Raises:
            StoreUnavailable: the journal takes nothing; what would complete the answer must not leave.
        """
        if self.settled:
            raise AssertionError("a request is settled once")
        row = self.row
        list_cost, row.usage_odd = charge(self._price, usage, self._tier)
        row.usage, row.usage_source = usage, source
        row.list_cost_nano_usd = row.cost_nano_usd = list_cost
        if self._till.synced or (self.held and list_cost > self.reserved_nano):
            return False
        self._journal_settlement(owner)
        if owner is None:
            self._close(list_cost)
        return True

    def close(self) -> None:
        """Free what was held beyond the charge of a settlement that was gathered, and is written now."""
        self._close(self.row.cost_nano_usd)

    async def settle_slowly(self) -> None:
        """Do the rest of what `settle_now` began; the row says what credit did not reach, too.

        Raises:
            StoreUnavailable: the journal takes nothing, or the disk did not confirm it; what would complete the answer
                must not leave.
        """
        self.settled = True  # whatever is awaited
        row = self.row
        list_cost = row.list_cost_nano_usd
        if self.held:
            missing = list_cost - self.reserved_nano
            if missing > 0:
                self.reserved_nano += await self._cover(missing)
                row.cost_nano_usd = min(list_cost, self.reserved_nano)
                row.shortfall_nano_usd = list_cost - row.cost_nano_usd
        self._journal_settlement()
        try:
            if self._till.synced:
                await self._till.journal.synced()
        finally:  # what the journal has stands, whatever the disk says
            self._close(row.cost_nano_usd)

    def _journal_settlement(self, owner: RecordOwner | None = None) -> None:
        self.settled = True
        row = self.row
        record = Settled(request_id=row.request_id, account_id=self._key.account_id, row=row)
        try:
            if owner is None:
                self._till.journal.append(record)
            else:
                self._till.journal.gather(record, owner)
        except StoreUnavailable:
            self.owe()
            raise

    def owe(self) -> None:
        """Settle later, as a crash now would: the journal has not taken the settlement."""
        self._note_broken_off()
        self.owed = True
        self._till.owe(self)

    def _note_broken_off(self) -> None:
        """Remember what was produced as a last checkpoint would, for `resolve`."""
        last = self._checkpoint
        if self.on_crash == "produced" and not (last is not None and last.finished):
            row = msgspec.structs.replace(self.row)
            self._checkpoint = Checkpoint(request_id=row.request_id, row=row)

    async def hand_over(self, kept: KeptObject) -> None:
        """Leave the request pending, with all that is held for it, to the supervisor: its work goes on at a provider.

        Args:
            kept: what went on; its job is put in here.
        Raises:
            StoreUnavailable: the journal takes nothing, or the disk did not confirm it; nobody may learn of the work.
        """
        if self.settled:
            raise AssertionError("a request is settled once")
        kept.open = True
        kept.job = Job(
            row=self.row,
            amount_nano=self.reserved_nano,
            prepaid=self.prepaid,
            budget=self._budget,
            price=None if self._price is None else self._price.row,
            units=self._units or Usage(),
        )
        journal = self._till.journal
        record = HandedOver(request_id=self.row.request_id, account_id=self._key.account_id, object=kept)
        self.settled = True
        try:
            journal.append(record)
        except StoreUnavailable:
            self.owed = True
            self._till.owe(self)
            raise
        self._till.link.wake()
        if self._till.synced:
            await journal.synced()

    async def _cover(self, missing: int) -> int:
        """Take what a charge needs beyond its reservation, as far as credit and spending limits allow."""
        credit, account_id = self._till.credit, self._key.account_id
        got = await credit.cover(account_id, missing) if self.prepaid else missing
        if self._budget is None:
            return got
        allowed = 0
        try:
            allowed = await credit.cover(self._budget, got) if got else 0
        finally:
            if self.prepaid and allowed < got:
                credit.settle(account_id, got - allowed, 0)
        return allowed

    def resolve(self) -> None:
        """Settle a request whose answer was broken off because the journal took nothing: as a crash then would have.

        Raises:
            StoreUnavailable: it still takes nothing.
        """
        row = msgspec.structs.replace(
            self.row,
            usage=Usage(),
            usage_source="none",
            usage_odd=False,
            list_cost_nano_usd=0,
            error=self.row.error or "unavailable",
        )
        reservation = Reservation(
            request_id=row.request_id,
            account_id=self._key.account_id,
            amount_nano=self.reserved_nano,
            row=row,
            on_crash=self.on_crash,
            checkpoint=self._checkpoint,
        )
        *lost, last = settle_after_crash(reservation, time.time())
        assert isinstance(last, Settled)
        if last.row.status == "interrupted":
            last.row.error = row.error
        self._till.journal.append(last)
        for record in lost:
            with contextlib.suppress(StoreUnavailable):  # it carries no charge
                self._till.journal.append(record)
        self._close(last.row.cost_nano_usd)

    def _close(self, charged_nano: int) -> None:
        """Free what was held beyond the charge, and have the supervisor read on."""
        if self.prepaid:
            self._till.credit.settle(self._key.account_id, self.reserved_nano, charged_nano)
        if self._budget is not None:
            self._till.credit.settle(self._budget, self.reserved_nano, charged_nano)
        self._till.link.wake()

    def _free(self, amount: int) -> None:
        if amount and self.prepaid:
            self._till.credit.settle(self._key.account_id, amount, 0)
        if amount and self._budget is not None:
            self._till.credit.settle(self._budget, amount, 0)
