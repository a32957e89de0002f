"""What a batch of a journal resolved, booked in the transaction that is open: rows, entries, balances, offset.

Whatever was booked before is left alone. That is rare, so a batch is first booked as if all of it were new; if
the tables' unique columns object, the transaction is rolled back and done again, and then what they have is
looked up and left out. A balance moves by the entries that the same transaction inserts, and by nothing else.

This runs some thousand times a second, so statements are written out once for each dialect and given to its
driver as they are; the toolkit's own way took longer than the database did. Beginning and ending the
transaction is left to `store.sql`, what a settlement posts to `billing.ledger`.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, NamedTuple, Self

import msgspec
from sqlalchemy import (
    BindParameter,
    Connection,
    Dialect,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy.sql import ClauseElement

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
    UsageRow,
    customer,
    provider_cost,
    settlement,
)
from sluicegate.money import MAX_NANO
from sluicegate.store import CommitResult, object_rows
from sluicegate.store.booking import parts
from sluicegate.store.chain import add_link
from sluicegate.store.schema import ACCOUNTS, BALANCES, ENTRIES, PROVIDER_COSTS, USAGE

SYSTEM_ACCOUNTS = (FUNDING, REVENUE, SHORTFALL, PROVIDER_COST)

_encode_row = msgspec.json.Encoder().encode
_astuple = msgspec.structs.astuple


class Batch(NamedTuple):
    """Records of one journal segment, and up to where they bring it."""

    settled: list[Settled]
    lost: list[ProviderCost]
    handed_over: list[HandedOver]
    file: str
    """Empty where no journal told it."""
    offset: int
    at: float

    @classmethod
    def of(cls, records: Iterable[Record], file: str, offset: int, at: float) -> Self:
        """Pick what is booked out of all records."""
        settled: list[Settled] = []
        lost: list[ProviderCost] = []
        handed_over: list[HandedOver] = []
        for record in records:
            if type(record) is Settled:
                settled.append(record)
            elif type(record) is ProviderCost:
                lost.append(record)
            elif type(record) is HandedOver:
                handed_over.append(record)
        return cls(settled, lost, handed_over, file, offset, at)


def book(connection: Connection, batch: Batch, *, look_up: bool) -> CommitResult:
    """Book a batch.

    Args:
        look_up: leave out what the store has already; without it that raises an IntegrityError.
    """
    result = CommitResult()
    if look_up:
        batch = _leave_out_booked(connection, batch, result)
    if batch.settled or batch.lost:
        _book_new(connection, batch, result)
    for record in batch.handed_over:
        if object_rows.hand_over(connection, record, due_at=batch.at):
            result.handed_over.append(record)
    if batch.file:
        connection.exec_driver_sql(_written(_NOTE_OFFSET, connection.dialect), (batch.file, batch.offset))
    return result


def _book_new(connection: Connection, batch: Batch, result: CommitResult) -> None:
    at = batch.at
    charged_to, shortfall_of, settled = result.charged, result.shortfall, result.rows
    payers = {record.account_id for record in batch.settled}
    before, prepaid = _load(connection, payers, at)
    balances = dict(before)
    rows: list[tuple[Any, ...]] = []
    texts: list[bytes] = []
    entries: list[tuple[Any, ...]] = []
    for record in batch.settled:
        payer = record.account_id
        balance_nano = balances[CUSTOMER + payer] if payer in prepaid else None
        row, posted = settlement(record, balance_nano, at, MAX_NANO - balances[REVENUE])
        for entry in posted:
            balances[entry.debit] -= entry.amount_nano
            balances[entry.credit] += entry.amount_nano
            entries.append(_astuple(entry))
        text = _encode_row(row)
        texts.append(text)
        rows.append(_usage_values(row, text))
        settled.append(row)
        charged_to[payer] = charged_to.get(payer, 0) + row.cost_nano_usd
        if row is not record.row and row.cost_nano_usd != record.row.cost_nano_usd:
            result.clamped += 1
        if row.shortfall_nano_usd:
            shortfall_of[payer] = shortfall_of.get(payer, 0) + row.shortfall_nano_usd
    costs: list[tuple[Any, ...]] = []
    for cost in batch.lost:
        posted_cost = provider_cost(cost, MAX_NANO + min(0, balances[PROVIDER_COST]))
        if posted_cost is not None:
            balances[posted_cost.debit] -= posted_cost.amount_nano
            balances[posted_cost.credit] += posted_cost.amount_nano
            entries.append(_astuple(posted_cost))
            cost = msgspec.structs.replace(cost, amount_nano=posted_cost.amount_nano)
        costs.append(_astuple(cost))
    moved = [(nano, account) for account, nano in balances.items() if nano != before[account]]
    for statement, values in (
        (_INSERT_USAGE, rows),
        (_INSERT_COST, costs),
        (_INSERT_ENTRY, entries),
        (_SET_BALANCE, moved),
    ):
        if values:
            connection.exec_driver_sql(_written(statement, connection.dialect), values)
    if entries:
        add_link(connection, entries, texts, len(texts), at)


def _usage_values(row: UsageRow, text: bytes) -> tuple[Any, ...]:
    return (
        row.request_id,
        row.key_id,
        row.account_id,
        row.key,
        row.model,
        row.provider,
        row.status,
        row.cost_nano_usd,
        row.shortfall_nano_usd,
        row.started_at,
        text.decode(),
    )


# Statements


def _insert(table: str, columns: Iterable[str]) -> ClauseElement:
    columns = tuple(columns)
    places = ", ".join(f":{column}" for column in columns)
    return text(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})")


_INSERT_USAGE = _insert("usage", (column.name for column in USAGE.c if not column.primary_key))
"""In the order of `_usage_values`."""
_INSERT_ENTRY = _insert("entries", Entry.__struct_fields__)
_INSERT_COST = _insert("provider_costs", ProviderCost.__struct_fields__)
_SET_BALANCE = text("UPDATE balances SET balance_nano = :nano WHERE account = :account")
_NOTE_OFFSET = text(
    """INSERT INTO journals (file, committed) VALUES (:file, :committed)
       ON CONFLICT (file) DO UPDATE SET committed = excluded.committed
       WHERE excluded.committed > journals.committed"""
)


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


@lru_cache(maxsize=64)
def _written(statement: ClauseElement, dialect: Dialect) -> str:
    """Write a statement as the dialect's driver takes it, its values by position."""
    return statement.compile(dialect=dialect).string


# What the store has


def _load(connection: Connection, payers: Iterable[str], at: float) -> tuple[dict[str, int], set[str]]:
    """Return the balances of the system's accounts and the payers', and which payers are prepaid. A payer that
    is not known at all is made, prepaid with nothing, so that its rows still count.
    """
    balances: dict[str, int] = {}
    unlimited: dict[str, bool] = {}
    wanted = [*SYSTEM_ACCOUNTS, *map(customer, sorted(payers))]
    for some in parts(wanted):
        places = 1 << (len(some) - 1).bit_length()  # few sizes, so few statements
        select_balances = _written(_select_balances(places), connection.dialect)
        padded = (*some, *[some[0]] * (places - len(some)))
        for account, balance_nano, is_unlimited in connection.exec_driver_sql(select_balances, padded):
            balances[account] = balance_nano
            if is_unlimited is not None:
                unlimited[account] = bool(is_unlimited)
    prepaid = set()
    for payer in payers:
        account = customer(payer)
        if account not in unlimited:
            connection.execute(insert(ACCOUNTS), {"id": payer, "unlimited": False, "created_at": at})
            connection.execute(insert(BALANCES), {"account": account, "balance_nano": 0})
            balances[account] = 0
        if not unlimited.get(account):
            prepaid.add(payer)
    return balances, prepaid


def _leave_out_booked(connection: Connection, batch: Batch, result: CommitResult) -> Batch:
    """Keep the first of each record that the store does not have yet."""
    charged: set[str] = set()
    for some in parts([record.request_id for record in batch.settled]):
        known = select(ENTRIES.c.reference).where(
            ENTRIES.c.reference.in_(some), ENTRIES.c.kind == "charge", ENTRIES.c.attempt == 0
        )
        charged.update(connection.execute(known).scalars())
    fresh: list[Settled] = []
    for record in batch.settled:
        if record.request_id in charged:
            result.repeated += 1
        else:
            charged.add(record.request_id)
            fresh.append(record)
    costed: set[tuple[str, int]] = set()
    for some in parts([cost.request_id for cost in batch.lost]):
        of_some = PROVIDER_COSTS.c.request_id.in_(some)
        rows = connection.execute(
            select(PROVIDER_COSTS.c.request_id, PROVIDER_COSTS.c.attempt).where(of_some)
        )
        costed.update((row.request_id, row.attempt) for row in rows)
    fresh_lost: list[ProviderCost] = []
    for cost in batch.lost:
        if (cost.request_id, cost.attempt) not in costed:
            costed.add((cost.request_id, cost.attempt))
            fresh_lost.append(cost)
    return batch._replace(settled=fresh, lost=fresh_lost)
