"""What providers keep for accounts, as rows: files, and jobs that are open until they have been settled.

A job's row is made by the commit of the journal that handed it over, and closed by the one transaction that books its
charge; so whatever is told twice is booked once.
"""

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, delete, insert, select, update

from sluicegate.billing.ledger import HandedOver, KeptObject
from sluicegate.store import ObjectQuery
from sluicegate.store.schema import OBJECTS

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(KeptObject).decode
_LOADED = (OBJECTS.c.id, OBJECTS.c.open, OBJECTS.c.told, OBJECTS.c.object)


def put(connection: Connection, kept: KeptObject, due_at: float = 0.0) -> None:
    """Add an object; one that the account has under this name already is replaced."""
    connection.execute(delete(OBJECTS).where(*_named(kept), OBJECTS.c.open.is_(False)))
    _insert(connection, kept, due_at)


def hand_over(connection: Connection, record: HandedOver, due_at: float) -> bool:
    """Add a job that is open; False where it was added before."""
    known = select(OBJECTS.c.id).where(OBJECTS.c.request_id == record.request_id)
    if connection.execute(known).first() is not None:
        return False
    _insert(connection, record.object, due_at)
    return True


def _insert(connection: Connection, kept: KeptObject, due_at: float) -> None:
    rest = msgspec.structs.replace(kept, told=b"", open=False, number=0)
    values = {
        "kind": kept.kind,
        "provider": kept.provider,
        "upstream_id": kept.upstream_id,
        "account_id": kept.account_id,
        "purpose": kept.purpose,
        "request_id": None if kept.job is None else kept.job.row.request_id,
        "open": kept.open,
        "due_at": due_at,
        "created_at": kept.created_at,
        "told": kept.told,
        "object": _encode(rest).decode(),
    }
    connection.execute(insert(OBJECTS).values(values))


def close(connection: Connection, request_id: str, told: bytes) -> bool:
    """Note that a job has ended; False where it was noted before."""
    mine = OBJECTS.c.request_id == request_id, OBJECTS.c.open.is_(True)
    return connection.execute(update(OBJECTS).where(*mine).values(open=False, told=told)).rowcount > 0


def postpone(connection: Connection, request_id: str, told: bytes | None, due_at: float) -> None:
    """Note what an open job said of itself, and when to ask it again."""
    values: dict[str, Any] = {"due_at": due_at} | ({} if told is None else {"told": told})
    mine = OBJECTS.c.request_id == request_id, OBJECTS.c.open.is_(True)
    connection.execute(update(OBJECTS).where(*mine).values(values))


def drop(connection: Connection, kept: KeptObject) -> bool:
    """Delete an object that is not open; False where there is none."""
    return connection.execute(delete(OBJECTS).where(*_named(kept), OBJECTS.c.open.is_(False))).rowcount > 0


def expire(connection: Connection, before: float) -> None:
    """Delete what was made before a moment and is not open."""
    connection.execute(delete(OBJECTS).where(OBJECTS.c.created_at < before, OBJECTS.c.open.is_(False)))


def find(query: ObjectQuery) -> Select[Any]:
    """Return the statement that finds objects, in the order in which the query wants them."""
    wanted: list[ColumnElement[bool]] = [
        OBJECTS.c.account_id == query.account_id,
        OBJECTS.c.kind == query.kind,
    ]
    if query.upstream_id is not None:
        wanted += [OBJECTS.c.upstream_id == query.upstream_id, OBJECTS.c.provider == query.provider]
    if query.purpose is not None:
        wanted.append(OBJECTS.c.purpose == query.purpose)
    if query.after is not None:
        wanted.append(OBJECTS.c.id > query.after if query.ascending else OBJECTS.c.id < query.after)
    order = OBJECTS.c.id if query.ascending else OBJECTS.c.id.desc()
    return select(*_LOADED).where(*wanted).order_by(order).limit(query.limit)


def find_open(due_at: float | None, limit: int) -> Select[Any]:
    """Return the statement that finds open jobs, all of them or those that are due by a moment."""
    wanted: list[ColumnElement[bool]] = [OBJECTS.c.open.is_(True)]
    if due_at is not None:
        wanted.append(OBJECTS.c.due_at <= due_at)
    return select(*_LOADED).where(*wanted).order_by(OBJECTS.c.due_at).limit(limit)


def object_of(row: Row[Any]) -> KeptObject:
    """Make an object of a row that was found."""
    return msgspec.structs.replace(_decode(row.object), told=row.told, open=bool(row.open), number=row.id)


def _named(kept: KeptObject) -> tuple[Any, ...]:
    return (
        OBJECTS.c.account_id == kept.account_id,
        OBJECTS.c.kind == kept.kind,
        OBJECTS.c.upstream_id == kept.upstream_id,
        OBJECTS.c.provider == kept.provider,
    )
