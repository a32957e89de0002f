"""What an account is told of a stretch of time: what it held, what came and went, what it was charged for.

A charge belongs to the moment at which its request was admitted, and everything else to when it was posted: so the
close of one statement is the opening of the next. A request that is still running, or not settled after a crash, joins
the statement of its own time later.
"""

from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select

from sluicegate.billing.ledger import UsageRow, customer
from sluicegate.errors import BadRequest
from sluicegate.store import Movement, SoldModel, Statement
from sluicegate.store.schema import ACCOUNTS, ENTRIES, USAGE
from sluicegate.store.sums import joined, sum_parts

_SETTLED = and_(USAGE.c.request_id == ENTRIES.c.reference, ENTRIES.c.kind == "charge")
_DATED: ColumnElement[float] = func.coalesce(USAGE.c.started_at, ENTRIES.c.at)


def movements_of(connection: Connection, account_id: str, since: float, until: float) -> Statement:
    """Return a statement without what was sold, which `add_sale` adds row by row.

    Raises:
        BadRequest: there is no such account.
    """
    if connection.execute(select(ACCOUNTS.c.id).where(ACCOUNTS.c.id == account_id)).first() is None:
        raise BadRequest(f"there is no account {account_id!r}")
    payer = customer(account_id)
    of_account = or_(ENTRIES.c.credit == payer, ENTRIES.c.debit == payer)
    signed = case((ENTRIES.c.credit == payer, ENTRIES.c.amount_nano), else_=-ENTRIES.c.amount_nano)
    entries = ENTRIES.outerjoin(USAGE, _SETTLED)

    def sum_of(*conditions: ColumnElement[bool]) -> int:
        total = select(*sum_parts(signed)).select_from(entries).where(of_account, *conditions)
        return joined(connection.execute(total).one())

    within = and_(since <= _DATED, until > _DATED)
    opening = sum_of(since > _DATED)
    charged = -sum_of(within, ENTRIES.c.kind == "charge")
    by_hand = (
        select(ENTRIES, signed.label("signed"))
        .where(of_account, ENTRIES.c.kind != "charge", since <= ENTRIES.c.at, until > ENTRIES.c.at)
        .order_by(ENTRIES.c.id)
    )
    movements = [_movement(row) for row in connection.execute(by_hand)]
    return Statement(
        account_id=account_id,
        since=since,
        until=until,
        opening_nano=opening,
        movements=movements,
        charged_nano=charged,
        closing_nano=opening + sum(each.amount_nano for each in movements) - charged,
        models={},
    )


def _movement(row: Any) -> Movement:
    return Movement(
        entry=row.id,
        at=row.at,
        kind=row.kind,
        reference=row.reference,
        amount_nano=row.signed,
        request_id=row.request_id,
        note=row.note,
    )


def add_sale(models: dict[str, SoldModel], name: str, row: UsageRow) -> None:
    """Add one request to what was sold under a name."""
    sold = models.get(name)
    if sold is None:
        sold = models[name] = SoldModel()
    usage = row.usage
    sold.requests += 1
    sold.input_tokens += usage.input_tokens or 0
    sold.cache_read_tokens += usage.cache_read_tokens or 0
    sold.cache_write_tokens += usage.cache_write_tokens or 0
    sold.output_tokens += usage.output_tokens or 0
    sold.charged_nano += row.cost_nano_usd
    sold.shortfall_nano += row.shortfall_nano_usd
