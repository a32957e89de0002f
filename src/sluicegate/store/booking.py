"""Money moved by hand inside one writing transaction, and the accounts it moves between.

What an entry is stands in `billing.ledger`; what journals bring is booked by `store.settlements`; beginning and
ending the transaction is left to `store.sql`; adding everything up again is `store.verification`. Balances are reckoned
with here, as exact integers, and never by the database, which might make a float of what passes 64 bits.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Row, bindparam, case, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.billing.chain import UsageDigest
from sluicegate.billing.ledger import CUSTOMER, FUNDING, Entry, EntryKind, customer
from sluicegate.errors import BadRequest
from sluicegate.money import MAX_NANO, format_usd
from sluicegate.store import Account, Conflict
from sluicegate.store.chain import add_link
from sluicegate.store.schema import ACCOUNTS, BALANCES, ENTRIES, USAGE
from sluicegate.store.sums import joined, sum_parts

T = TypeVar("T")

MAX_NAMED = 500
"""How many values one IN list holds."""

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
        BadRequest: no such account, not enough credit, a balance beyond 64 bits, or more given back of a request than
            it was charged.
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
        was, now = ((each.debit, each.credit, each.amount_nano, each.request_id) for each in (before, entry))
        if was != now:
            raise Conflict(f"reference {entry.reference!r} was used before, for another account or amount")
        return False
    if entry.request_id is not None:
        await _check_about(connection, entry, account_id)
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
    await connection.run_sync(add_link, [entry], UsageDigest(), entry.at)
    return True


# Requests


async def find_charge(connection: AsyncConnection, request_id: str) -> tuple[str, int]:
    """Return who paid for a request, and what is left of its charge after what was given back of it.

    Raises:
        BadRequest: there is no such request.
    """
    row = (await connection.execute(select(USAGE).where(USAGE.c.request_id == request_id))).first()
    if row is None:
        raise BadRequest(
            f"there is no request {request_id!r} in the books; a running one is there when it has ended"
        )
    payer = customer(row.account_id)
    given_back = case((ENTRIES.c.credit == payer, ENTRIES.c.amount_nano), else_=-ENTRIES.c.amount_nano)
    about = select(*sum_parts(given_back)).where(ENTRIES.c.request_id == request_id)
    return row.account_id, row.cost_nano_usd - joined((await connection.execute(about)).one())


async def find_posted(connection: AsyncConnection, reference: str, kind: EntryKind) -> Entry | None:
    """Return the movement by hand that has this reference, or None."""
    of_it = ENTRIES.c.reference == reference, ENTRIES.c.kind == kind, ENTRIES.c.attempt == 0
    row = (await connection.execute(select(ENTRIES).where(*of_it))).first()
    if row is None:
        return None
    return Entry(**{name: getattr(row, name) for name in Entry.__struct_fields__})


async def _check_about(connection: AsyncConnection, entry: Entry, account_id: str) -> None:
    assert entry.request_id is not None
    payer, left_nano = await find_charge(connection, entry.request_id)
    if payer != account_id:
        raise BadRequest(f"request {entry.request_id!r} was paid by account {payer!r}")
    if entry.credit == customer(account_id) and entry.amount_nano > left_nano:
        raise BadRequest(
            f"at most {format_usd(max(0, left_nano))} USD of request {entry.request_id!r} can be given back"
        )


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
