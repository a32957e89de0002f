"""The proof of the ledger: everything is added up again, and held against what else is known.

Four things are checked: that every balance is the sum of its entries and all together are 0; that usage, charges and
what was given back fit, one by one; that a usage row says the same in its columns and its text; and the chain of hashes
(`store.chain`). Nothing is repaired: the ledger is append only, so what is wrong is put right by a new entry.
"""

from collections.abc import Iterator, Sequence

import msgspec
from sqlalchemy import Connection, func, select, text, union_all

from sluicegate.billing.ledger import UsageRow
from sluicegate.store import Anchor, LedgerReport
from sluicegate.store.booking import SELECT_ACCOUNTS
from sluicegate.store.chain import PAGE_ROWS, check_chain, links
from sluicegate.store.schema import ACCOUNTS, BALANCES, ENTRIES, USAGE, after
from sluicegate.store.sums import joined, sum_parts

SHOWN_PROBLEMS = 20
"""Of each kind; the rest are only counted."""

_decode_row = msgspec.json.Decoder(UsageRow).decode

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
    (
        "more given back than was charged, or of a request that is not there",
        """SELECT g.request_id FROM (
               SELECT request_id, SUM(CASE WHEN credit LIKE 'customer:%' THEN amount_nano ELSE -amount_nano END) AS nano
               FROM entries WHERE request_id IS NOT NULL GROUP BY request_id) g
           LEFT JOIN usage u ON u.request_id = g.request_id
           WHERE u.id IS NULL OR g.nano > u.cost_nano_usd""",
    ),
    (
        "a refund or correction that is about no request or moves no revenue",
        """SELECT reference FROM entries
           WHERE (kind = 'correction' AND request_id IS NULL)
              OR (kind IN ('refund', 'correction') AND debit <> 'revenue' AND credit <> 'revenue')""",
    ),
)


def verify(connection: Connection, anchors: Sequence[Anchor] = ()) -> LedgerReport:
    """Do all checks.

    Args:
        anchors: links as somebody noted them elsewhere; each must still be there.
    """
    entries = connection.execute(select(func.count()).select_from(ENTRIES)).scalar_one()
    settlements = connection.execute(select(func.count()).select_from(USAGE)).scalar_one()
    kept = {row.account: row.balance_nano for row in connection.execute(select(BALANCES))}
    problems = [
        *_wrong_balances(connection, kept),
        *_wrong_pairs(connection),
        *_some("a usage row whose columns are not what its text says", _wrong_rows(connection)),
        *_some("the chain", check_chain(connection)),
    ]
    head: Anchor | None = None
    missing = {anchor.entry: anchor for anchor in anchors}
    count = 0
    for link in links(connection):
        count += 1
        head = Anchor(entry=link.last_entry, hash=link.hash.hex(), at=link.at)
        noted = missing.get(link.last_entry)
        if noted is not None and noted.hash == head.hash:
            del missing[link.last_entry]
    problems += [
        f"the anchor at entry {entry} is not in the chain: {missing[entry].hash}" for entry in sorted(missing)
    ]
    return LedgerReport(
        entries=entries, settlements=settlements, links=count, head=head, balances=kept, problems=problems
    )


def _wrong_balances(connection: Connection, kept: dict[str, int]) -> Iterator[str]:
    sides = union_all(
        select(ENTRIES.c.credit.label("account"), ENTRIES.c.amount_nano.label("nano")),
        select(ENTRIES.c.debit.label("account"), (-ENTRIES.c.amount_nano).label("nano")),
    ).subquery()
    summed = connection.execute(select(sides.c.account, *sum_parts(sides.c.nano)).group_by(sides.c.account))
    sums = {account: joined(parts) for account, *parts in summed}
    for account in sorted(sums.keys() | kept.keys()):
        if sums.get(account, 0) != kept.get(account):
            yield f"{account}: its entries sum to {sums.get(account, 0)}, its balance is {kept.get(account)} nano-USD"
    if sum(kept.values()) != 0:
        yield f"all balances together are {sum(kept.values())} nano-USD, not 0"
    for row in connection.execute(SELECT_ACCOUNTS.where(ACCOUNTS.c.unlimited.is_(False))).all():
        if row.balance_nano < 0:
            yield f"{row.id}: prepaid, but {row.balance_nano} nano-USD"


def _wrong_pairs(connection: Connection) -> Iterator[str]:
    for what, statement in _SETTLEMENT_PROBLEMS:
        yield from _some(what, iter(connection.execute(text(statement)).scalars().all()))


def _wrong_rows(connection: Connection) -> Iterator[str]:
    """Name the requests whose searchable columns say something else than the row itself."""
    names = [column.name for column in USAGE.c if column.name not in ("id", "row")]
    last: int | None = None
    while True:
        page = select(USAGE).where(after(USAGE.c.id, last)).order_by(USAGE.c.id).limit(PAGE_ROWS)
        rows = connection.execute(page).all()
        for row in rows:
            try:
                whole = _decode_row(row.row)
            except (msgspec.MsgspecError, UnicodeError):
                yield str(row.request_id)
                continue
            if any(getattr(row, name) != getattr(whole, name) for name in names):
                yield str(row.request_id)
        if len(rows) < PAGE_ROWS:
            return
        last = rows[-1].id


def _some(what: str, found: Iterator[str]) -> Iterator[str]:
    """Tell the first problems of a kind, and how many more there are."""
    more = 0
    for number, each in enumerate(found):
        if number < SHOWN_PROBLEMS:
            yield f"{what}: {each}"
        else:
            more += 1
    if more:
        yield f"{what}: {more} more"
