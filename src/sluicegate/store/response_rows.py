"""Answers that the gate keeps for Responses clients: rows that live for a while, within a bound of bytes.

Each holds what one request added to a conversation and what was answered; the rows before it hold the rest. Going on
from a row renews all of its conversation, so that no conversation loses its beginning while it is alive.
"""

from collections.abc import Sequence

from sqlalchemy import CTE, delete, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.store import KeptResponse
from sluicegate.store.schema import RESPONSES

_COLUMNS = (
    RESPONSES.c.id,
    RESPONSES.c.account_id,
    RESPONSES.c.previous,
    RESPONSES.c.input,
    RESPONSES.c.response,
)


def _conversation(account_id: str, id: str, now: float) -> CTE:
    """Return the ids of a row and of all before it, with their distance."""
    mine = (RESPONSES.c.account_id == account_id) & (RESPONSES.c.expires_at > now)
    chain = (
        select(RESPONSES.c.id, RESPONSES.c.previous, literal(0).label("distance"))
        .where(RESPONSES.c.id == id, mine)
        .cte("chain", recursive=True)
    )
    earlier = select(RESPONSES.c.id, RESPONSES.c.previous, chain.c.distance + 1).where(
        RESPONSES.c.id == chain.c.previous, mine
    )
    return chain.union_all(earlier)


async def find(
    connection: AsyncConnection, account_id: str, id: str, now: float, *, whole: bool
) -> list[KeptResponse]:
    """Return a row, those before it first where the whole conversation is wanted; empty where any is not there."""
    chain = _conversation(account_id, id, now)
    statement = select(*_COLUMNS).join(chain, chain.c.id == RESPONSES.c.id)
    if not whole:
        statement = statement.where(chain.c.distance == 0)
    rows = (await connection.execute(statement.order_by(chain.c.distance.desc()))).all()
    if not rows or (whole and rows[0].previous is not None):
        return []
    return [
        KeptResponse(
            id=row.id,
            account_id=row.account_id,
            previous=row.previous,
            input=row.input,
            response=row.response,
        )
        for row in rows
    ]


async def keep(
    connection: AsyncConnection, kept: KeptResponse, now: float, expires_at: float, max_bytes: int
) -> bool:
    """Add a row and renew those before it; the rows that expire first make room. False: it is too large."""
    size = kept.size
    if size > max_bytes:
        return False
    values = {
        "id": kept.id,
        "account_id": kept.account_id,
        "previous": kept.previous,
        "input": kept.input,
        "response": kept.response,
        "size": size,
        "created_at": now,
        "expires_at": expires_at,
    }
    await connection.execute(insert(RESPONSES).values(values))
    if kept.previous is not None:
        chain = _conversation(kept.account_id, kept.previous, now)
        renewed = update(RESPONSES).where(RESPONSES.c.id.in_(select(chain.c.id)))
        await connection.execute(renewed.values(expires_at=expires_at))
    await _make_room(connection, max_bytes)
    return True


async def _make_room(connection: AsyncConnection, max_bytes: int) -> None:
    total = (await connection.execute(select(func.coalesce(func.sum(RESPONSES.c.size), 0)))).scalar_one()
    over = int(total) - max_bytes
    if over <= 0:
        return
    oldest = select(RESPONSES.c.id, RESPONSES.c.size).order_by(RESPONSES.c.expires_at, RESPONSES.c.created_at)
    gone: list[str] = []
    for row in await connection.execute(oldest):
        if over <= 0:
            break
        gone.append(row.id)
        over -= row.size
    await _delete(connection, gone)


async def _delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    for at in range(0, len(ids), 500):
        await connection.execute(delete(RESPONSES).where(RESPONSES.c.id.in_(ids[at : at + 500])))


async def drop(connection: AsyncConnection, account_id: str, id: str) -> bool:
    """Delete a row; False where there is none."""
    mine = (RESPONSES.c.id == id) & (RESPONSES.c.account_id == account_id)
    return (await connection.execute(delete(RESPONSES).where(mine))).rowcount > 0


async def expire(connection: AsyncConnection, now: float) -> None:
    """Delete what has lived long enough."""
    await connection.execute(delete(RESPONSES).where(RESPONSES.c.expires_at <= now))
