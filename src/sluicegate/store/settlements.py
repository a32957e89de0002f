"""What a batch of a journal resolved, booked in the transaction that is open: rows, entries, balances, offset.

Whatever was booked before is left alone. That is rare, so a batch is first booked as if all of it were new; if
the tables' unique columns object, the transaction is rolled back and done again, and then what they have is
looked up and left out. A balance moves by the entries that the same transaction inserts, and by nothing else.

This runs some thousand times a second. So records are taken a few at a time, which stay in the processor's cache from
the journal's bytes to the table's row; charges, which are all in the rows, are posted by one statement for the whole
batch; and statements go to the driver as they are (`store.driver`). Beginning and ending the transaction is left to
`store.sql`, what a settlement posts to `billing.ledger`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    BindParameter,
    Connection,
    Double,
    Text,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy.sql import ClauseElement
from sqlalchemy.types import BigInteger

from sluicegate.billing.chain import UsageDigest
from sluicegate.billing.ledger import (
    CUSTOMER,
    FUNDING,
    PROVIDER_COST,
    REVENUE,
    SHORTFALL,
    Entry,
    HandedOver,
    ProviderCost,
    Record,
    Settled,
    charge,
    provider_cost,
    settlement,
    shortfall,
)
from sluicegate.billing.spending_limits import DAY_S
from sluicegate.money import MAX_NANO
from sluicegate.store import CommitResult, object_rows
from sluicegate.store.booking import parts
from sluicegate.store.chain import add_link
from sluicegate.store.driver import Driver
from sluicegate.store.schema import ACCOUNTS, BALANCES, ENTRIES, PROVIDER_COSTS, USAGE

SYSTEM_ACCOUNTS = (FUNDING, REVENUE, SHORTFALL, PROVIDER_COST)
PIECE = 32
"""Records that are taken at a time."""

_encode_row = msgspec.json.Encoder().encode
_astuple = msgspec.structs.astuple


class Batch(NamedTuple):
    """Records of one journal segment, and up to where they bring it."""

    records: Iterable[Record]
    """May be read while they are gone through; they are twice where something was booked before."""
    file: str
    """Empty where no journal told it."""
    offset: int | Callable[[], int]
    """A function is asked when all else is booked."""
    at: float


def book(connection: Connection, batch: Batch, *, look_up: bool) -> CommitResult:
    """Book a batch.

    Args:
        look_up: leave out what the store has already; without it that raises an IntegrityError.
    """
    result = CommitResult()
    records: Iterable[Record] = batch.records
    if look_up:
        records = _leave_out_booked(connection, batch.records, result)
    driver = Driver(connection)
    booking = _Booking(driver, batch.at, result)
    booking.take(records)
    booking.post()
    if booking.entries:
        add_link(connection, booking.entries, booking.usage, batch.at)
    for record in booking.handed_over:
        if object_rows.hand_over(connection, record, due_at=batch.at):
            result.handed_over.append(record)
    if batch.file:
        offset = batch.offset if isinstance(batch.offset, int) else batch.offset()
        driver.run(_NOTE_OFFSET, (batch.file, offset))
    return result


class _Payer:
    """A customer's account."""

    __slots__ = ("balance_nano", "charged_nano", "prepaid")

    def __init__(self, balance_nano: int, *, prepaid: bool) -> None:
        self.balance_nano = balance_nano
        self.prepaid = prepaid
        self.charged_nano = 0


class _Booking:
    """What one batch writes, in the order of its records."""

    def __init__(self, driver: Driver, at: float, result: CommitResult) -> None:
        self._driver = driver
        self._at = at
        self._result = result
        self._payers: dict[str, _Payer] = {}
        self._system: dict[str, int] = {}
        self._before: dict[str, int] = {}
        """Balances of the system's accounts: now, and before the batch."""
        self._lost: list[ProviderCost] = []
        self._short: list[Entry] = []
        self._last_row = 0
        """The number of the newest usage row before this batch's."""
        self.handed_over: list[HandedOver] = []
        self.entries: list[Entry] = []
        """In the order in which they are inserted."""
        self.usage = UsageDigest()

    def take(self, records: Iterable[Record]) -> None:
        """Insert the rows of what was settled; keep the rest for `post`."""
        ((last_row,),) = self._driver.rows(_LAST_ROW)
        self._last_row = last_row or 0
        self._load_system()
        left = iter(records)
        while piece := [*islice(left, PIECE)]:
            settled: list[Settled] = []
            for record in piece:
                if type(record) is Settled:
                    settled.append(record)
                elif type(record) is ProviderCost:
                    self._lost.append(record)
                elif type(record) is HandedOver:
                    self.handed_over.append(record)
            if settled:
                self._settle(settled)

    def _settle(self, settled: Sequence[Settled]) -> None:
        at, payers, entries, result = self._at, self._payers, self.entries, self._result
        spent = result.spent
        new = {record.account_id for record in settled}.difference(payers)
        if new:
            self._load_payers(sorted(new))
        revenue_nano = self._system[REVENUE]
        rows: list[tuple[Any, ...]] = []
        texts: list[bytes] = []
        row = settled[0].row
        for record in settled:
            payer = payers[record.account_id]
            balance_nano = payer.balance_nano if payer.prepaid else None
            row = settlement(record, balance_nano, MAX_NANO - revenue_nano)
            cost_nano = row.cost_nano_usd
            payer.balance_nano -= cost_nano
            payer.charged_nano += cost_nano
            revenue_nano += cost_nano
            entries.append(charge(row, at))
            if row is not record.row and cost_nano != record.row.cost_nano_usd:
                result.clamped += 1
            if row.shortfall_nano_usd and (short := shortfall(row, at)) is not None:
                self._short.append(short)
                revenue_nano += short.amount_nano
                of_payer = result.shortfall.get(record.account_id, 0)
                result.shortfall[record.account_id] = of_payer + short.amount_nano
            spent_of = row.key_id, int(row.started_at // DAY_S), row.limited
            spent[spent_of] = spent.get(spent_of, 0) + cost_nano
            line = _encode_row(row)
            texts.append(line)
            rows.append(
                (
                    row.request_id,
                    row.key_id,
                    row.account_id,
                    row.key,
                    row.model,
                    row.provider,
                    row.status,
                    cost_nano,
                    row.shortfall_nano_usd,
                    row.started_at,
                    line.decode(),
                )
            )
        self._system[REVENUE] = revenue_nano
        if len(rows) == PIECE:
            self._driver.run(_INSERT_PIECE, [*chain.from_iterable(rows)])
        else:
            self._driver.run_for_each(_INSERT_ROW, rows)
        self.usage.add(texts)
        result.settled += len(rows)
        result.last = row

    def post(self) -> None:
        """Insert the entries and what they moved."""
        driver, system, result = self._driver, self._system, self._result
        if self.entries:
            driver.run(_POST_CHARGES, (self._at, self._last_row))
        others: list[Entry] = self._short
        costs: list[tuple[Any, ...]] = []
        for short in self._short:
            system[SHORTFALL] -= short.amount_nano
        for cost in self._lost:
            posted = provider_cost(cost, MAX_NANO + min(0, system[PROVIDER_COST]))
            if posted is not None:
                system[PROVIDER_COST] -= posted.amount_nano
                system[FUNDING] += posted.amount_nano
                others.append(posted)
                cost = msgspec.structs.replace(cost, amount_nano=posted.amount_nano)
            costs.append(_astuple(cost))
        driver.run_for_each(_INSERT_COST, costs)
        driver.run_for_each(_INSERT_ENTRY, [_astuple(entry)[: len(_ENTRY)] for entry in others])
        self.entries += others
        moved = [(nano, account) for account, nano in system.items() if nano != self._before[account]]
        for account_id, payer in self._payers.items():
            result.charged[account_id] = payer.charged_nano
            if payer.charged_nano:
                moved.append((payer.balance_nano, CUSTOMER + account_id))
        driver.run_for_each(_SET_BALANCE, moved)

    # Accounts

    def _load_system(self) -> None:
        for account, balance_nano, _ in self._balances(SYSTEM_ACCOUNTS):
            self._system[account] = balance_nano
        self._before = dict(self._system)

    def _load_payers(self, account_ids: Sequence[str]) -> None:
        """Take customers' balances. An account that is not known at all is made, prepaid with nothing, so that its rows
        still count.
        """
        known: dict[str, _Payer] = {}
        for account, balance_nano, is_unlimited in self._balances([CUSTOMER + each for each in account_ids]):
            if is_unlimited is not None:
                known[account.removeprefix(CUSTOMER)] = _Payer(balance_nano, prepaid=not is_unlimited)
        for account_id in account_ids:
            payer = known.get(account_id)
            if payer is None:
                payer = _Payer(0, prepaid=True)
                self._driver.run(_MAKE_ACCOUNT, (account_id, False, self._at))
                self._driver.run(_MAKE_BALANCE, (CUSTOMER + account_id, 0))
            self._payers[account_id] = payer

    def _balances(self, accounts: Sequence[str]) -> Iterator[Sequence[Any]]:
        for some in parts(accounts):
            places = 1 << (len(some) - 1).bit_length()  # few sizes, so few statements
            yield from self._driver.rows(_select_balances(places), (*some, *[some[0]] * (places - len(some))))


# Statements


def _insert(table: str, columns: Iterable[str], rows: int = 1) -> ClauseElement:
    columns = tuple(columns)
    places = (", ".join(f":{column}_{number}" for column in columns) for number in range(rows))
    return text(
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join(f'({row})' for row in places)}"
    )


_ENTRY = ("reference", "kind", "attempt", "debit", "credit", "amount_nano", "at")
"""What a settlement's entries say, in the order of an Entry; the rest are None."""
_ROW = tuple(column.name for column in USAGE.c if not column.primary_key)
"""In the order of `_settle`."""
_INSERT_ROW = _insert("usage", _ROW)
_INSERT_PIECE = _insert("usage", _ROW, PIECE)
"""Costs less than row by row; with a statement for every number of rows, preparing them would cost more."""
_INSERT_ENTRY = _insert("entries", _ENTRY)
_INSERT_COST = _insert("provider_costs", ProviderCost.__struct_fields__)
_SET_BALANCE = text("UPDATE balances SET balance_nano = :nano WHERE account = :account")
_MAKE_ACCOUNT = _insert("accounts", (column.name for column in ACCOUNTS.c))
_MAKE_BALANCE = _insert("balances", (column.name for column in BALANCES.c))
_NOTE_OFFSET = text(
    """INSERT INTO journals (file, committed) VALUES (:file, :committed)
       ON CONFLICT (file) DO UPDATE SET committed = excluded.committed
       WHERE excluded.committed > journals.committed"""
)
_LAST_ROW = select(func.max(USAGE.c.id))
_POST_CHARGES = insert(ENTRIES).from_select(
    _ENTRY,
    select(
        USAGE.c.request_id,
        literal_column("'charge'"),
        literal_column("0"),
        literal_column(f"'{CUSTOMER}'", Text) + USAGE.c.account_id,
        literal_column(f"'{REVENUE}'"),
        USAGE.c.cost_nano_usd,
        bindparam("posted_at", type_=Double),
    )
    .where(USAGE.c.id > bindparam("last_row", type_=BigInteger))
    .order_by(USAGE.c.id),
)
"""What `billing.ledger.charge` says of each row after one, in their order; the chain would show a difference."""


@cache
def _select_balances(places: int) -> ClauseElement:
    """Select so many balances, and of customers' whether the account is unlimited."""
    account_id = func.substr(BALANCES.c.account, literal_column(str(len(CUSTOMER) + 1)))
    accounts: list[BindParameter[str]] = [bindparam(f"account_{number}") for number in range(places)]
    # Postgres keeps others from them until the end; SQLite has one writer anyway and leaves the words out.
    return (
        select(BALANCES.c.account, BALANCES.c.balance_nano, ACCOUNTS.c.unlimited)
        .join_from(BALANCES, ACCOUNTS, ACCOUNTS.c.id == account_id, isouter=True)
        .where(BALANCES.c.account.in_(accounts))
        .with_for_update(of=BALANCES)
    )


# What the store has


def _leave_out_booked(
    connection: Connection, records: Iterable[Record], result: CommitResult
) -> list[Record]:
    """Keep the first of each record that the store does not have yet."""
    records = list(records)
    charged: set[str] = set()
    for some in parts([record.request_id for record in records if type(record) is Settled]):
        known = select(ENTRIES.c.reference).where(
            ENTRIES.c.reference.in_(some), ENTRIES.c.kind == "charge", ENTRIES.c.attempt == 0
        )
        charged.update(connection.execute(known).scalars())
    costed: set[tuple[str, int]] = set()
    for some in parts([record.request_id for record in records if type(record) is ProviderCost]):
        of_some = PROVIDER_COSTS.c.request_id.in_(some)
        rows = connection.execute(
            select(PROVIDER_COSTS.c.request_id, PROVIDER_COSTS.c.attempt).where(of_some)
        )
        costed.update((row.request_id, row.attempt) for row in rows)
    fresh: list[Record] = []
    for record in records:
        if type(record) is Settled:
            if record.request_id in charged:
                result.repeated += 1
                continue
            charged.add(record.request_id)
        elif type(record) is ProviderCost:
            if (record.request_id, record.attempt) in costed:
                continue
            costed.add((record.request_id, record.attempt))
        fresh.append(record)
    return fresh
