"""Money moved by hand inside one writing transaction, the accounts it moves between, and the proof of the ledger.

What an entry is stands in `billing.ledger`; what journals bring is booked by `store.settlements`; beginning and
ending the transaction is left to `store.sql`. Balances are reckoned with here, as exact integers, and never by the
database, which might make a float of what passes 64 bits.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Row, bindparam, func, insert, select, text, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.billing.ledger import (
    CUSTOMER,
    FUNDING,
    Entry,
    customer,
)
from sluicegate.errors import BadRequest
from sluicegate.money import MAX_NANO, format_usd
from sluicegate.store import Account, Conflict, LedgerReport
from sluicegate.store.schema import ACCOUNTS, BALANCES, ENTRIES, USAGE

T = TypeVar("T")

MAX_NAMED = 500
"""How many values one IN list holds."""
SHOWN_PROBLEMS = 20
"""Of each kind; the rest are only counted."""

SELECT_ACCOUNTS = select(ACCOUNTS.c.id, ACCOUNTS.c.unlimited, BALANCES.c.balance_nano).join_from(
    ACCOUNTS, BALANCES, BALANCES.c.account == CUSTOMER + ACCOUNTS.c.id
)
_SET_BALANCE = (
    update(BALANCES).where(BALANCES.c.account == bindparam("which")).values(balance_nano=bindparam("nano"))
)


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut a list into pieces that one IN list holds."""
    for start in range(0, len(values), MAX_NAMED):
        yield values[start : start + MAX_NAMED]


# Accounts


def account_of(row: Row[*tuple[Any, ...]]) -> Account:
    """Make an Account of a row of SELECT_ACCOUNTS."""
    return Account(id=row.id, unlimited=bool(row.unlimited), balance_nano=row.balance_nano)


async def find_account(connection: AsyncConnection, account_id: str) -> Account | None:
    """Return an account, or None where there is none."""
    row = (await connection.execute(SELECT_ACCOUNTS.where(ACCOUNTS.c.id == account_id))).first()
    return None if row is None else account_of(row)


async def put_account(connection: AsyncConnection, account_id: str, unlimited: bool, at: float) -> None:
    """Make an account, or change whether it is prepaid. What one without a bound ran up is written off when
    it becomes prepaid, so that its credit begins at 0.
    """
    known = await find_account(connection, account_id)
    if known is None:
        await connection.execute(
            insert(ACCOUNTS), {"id": account_id, "unlimited": unlimited, "created_at": at}
        )
        await connection.execute(insert(BALANCES), {"account": customer(account_id), "balance_nano": 0})
        return
    if known.unlimited == unlimited:
        return
    await connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.id == account_id).values(unlimited=unlimited))
    if not unlimited and known.balance_nano < 0:
        entry = Entry(
            reference=f"prepaid:{account_id}:{at!r}",
            kind="write_off",
            debit=FUNDING,
            credit=customer(account_id),
            amount_nano=-known.balance_nano,
            at=at,
        )
        await post_by_hand(connection, entry, account_id)


async def post_by_hand(
    connection: AsyncConnection, entry: Entry, account_id: str, leased_nano: int = 0
) -> bool:
    """Post one entry between the world and a customer; False where its reference was posted before.

    Args:
        leased_nano: what a debit must leave in a prepaid account.
    Raises:
        BadRequest: no such account, not enough credit, or a balance beyond 64 bits.
        Conflict: the reference was used for something else.
    """
    account = await find_account(connection, account_id)
    if account is None:
        raise BadRequest(f"there is no account {account_id!r}")
    same_key = select(ENTRIES).where(
        ENTRIES.c.reference == entry.reference,
        ENTRIES.c.kind == entry.kind,
        ENTRIES.c.attempt == entry.attempt,
    )
    before = (await connection.execute(same_key)).first()
    if before is not None:
        if (before.debit, before.credit, before.amount_nano) != (
            entry.debit,
            entry.credit,
            entry.amount_nano,
        ):
            raise Conflict(f"reference {entry.reference!r} was used before, for another account or amount")
        return False
    if entry.debit == customer(account_id) and not account.unlimited:
        free_nano = account.balance_nano - leased_nano
        if entry.amount_nano > free_nano:
            raise BadRequest(
                f"account {account_id!r} has {format_usd(max(0, free_nano))} USD free, not as much as that"
            )
    balances = await _load_balances(connection, [entry.debit, entry.credit])
    _move(balances, entry)
    if max(map(abs, balances.values())) > MAX_NANO:
        raise BadRequest("the amount would take a balance beyond 64 bits")
    await connection.execute(insert(ENTRIES), msgspec.structs.asdict(entry))
    await _save_balances(connection, balances)
    return True


# Balances


def _move(balances: dict[str, int], entry: Entry) -> None:
    balances[entry.debit] -= entry.amount_nano
    balances[entry.credit] += entry.amount_nano


async def _load_balances(connection: AsyncConnection, accounts: Sequence[str]) -> dict[str, int]:
    balances: dict[str, int] = {}
    for some in parts(accounts):
        # Postgres keeps others from them until the end; SQLite has one writer anyway and leaves the words out.
        of_some = select(BALANCES).where(BALANCES.c.account.in_(some)).with_for_update()
        balances.update((row.account, row.balance_nano) for row in await connection.execute(of_some))
    return balances


async def _save_balances(connection: AsyncConnection, balances: dict[str, int]) -> None:
    if balances:
        changes = [{"which": account, "nano": nano} for account, nano in balances.items()]
        await connection.execute(_SET_BALANCE, changes)


# Verification

_SETTLEMENT_PROBLEMS = (
    (
        "usage without its charge, or with another one",
        """SELECT u.request_id FROM usage u LEFT JOIN entries e
           ON e.reference = u.request_id AND e.kind = 'charge' AND e.attempt = 0
           WHERE e.id IS NULL OR e.amount_nano <> u.cost_nano_usd OR e.debit <> 'customer:' || u.account_id
              OR e.credit <> 'revenue'""",
    ),
    (
        "usage whose shortfall is not what was posted",
        """SELECT u.request_id FROM usage u LEFT JOIN entries e
           ON e.reference = u.request_id AND e.kind = 'shortfall' AND e.attempt = 0
           WHERE COALESCE(e.amount_nano, 0) <> u.shortfall_nano_usd
              OR (e.id IS NOT NULL AND (e.debit <> 'shortfall' OR e.credit <> 'revenue'))""",
    ),
    (
        "a charge or shortfall without usage, or a second one",
        """SELECT e.reference FROM entries e LEFT JOIN usage u ON u.request_id = e.reference
           WHERE e.kind IN ('charge', 'shortfall') AND (u.id IS NULL OR e.attempt <> 0)""",
    ),
    (
        "a provider's cost that is not what was posted",
        """SELECT c.request_id FROM provider_costs c LEFT JOIN entries e
           ON e.reference = c.request_id AND e.kind = 'provider_cost' AND e.attempt = c.attempt
           WHERE COALESCE(e.amount_nano, 0) <> COALESCE(c.amount_nano, 0)""",
    ),
)


async def verify(connection: AsyncConnection) -> LedgerReport:
    """Recompute every balance from its entries, and hold usage and entries against each other."""
    entries = (await connection.execute(select(func.count()).select_from(ENTRIES))).scalar_one()
    settlements = (await connection.execute(select(func.count()).select_from(USAGE))).scalar_one()
    sides = union_all(
        select(ENTRIES.c.credit.label("account"), ENTRIES.c.amount_nano.label("nano")),
        select(ENTRIES.c.debit.label("account"), (-ENTRIES.c.amount_nano).label("nano")),
    ).subquery()
    summed = await connection.execute(
        select(sides.c.account, func.sum(sides.c.nano)).group_by(sides.c.account)
    )
    sums = {account: int(total) for account, total in summed}
    kept = {row.account: row.balance_nano for row in await connection.execute(select(BALANCES))}
    problems = [
        f"{account}: its entries sum to {sums.get(account, 0)}, its balance is {kept.get(account)} nano-USD"
        for account in sorted(sums.keys() | kept.keys())
        if sums.get(account, 0) != kept.get(account)
    ]
    if sum(kept.values()) != 0:
        problems.append(f"all balances together are {sum(kept.values())} nano-USD, not 0")
    prepaid = (await connection.execute(SELECT_ACCOUNTS.where(ACCOUNTS.c.unlimited.is_(False)))).all()
    problems += [
        f"{row.id}: prepaid, but {row.balance_nano} nano-USD" for row in prepaid if row.balance_nano < 0
    ]
    for what, statement in _SETTLEMENT_PROBLEMS:
        found = (await connection.execute(text(statement))).scalars().all()
        problems += [f"{what}: {reference}" for reference in found[:SHOWN_PROBLEMS]]
        if len(found) > SHOWN_PROBLEMS:
            problems.append(f"{what}: {len(found) - SHOWN_PROBLEMS} more")
    return LedgerReport(entries=entries, settlements=settlements, balances=kept, problems=problems)
