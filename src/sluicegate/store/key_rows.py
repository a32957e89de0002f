"""Keys inside one transaction: how a KeyRecord lies in its row, and how the configuration's keys are kept in
step.

A key that the configuration no longer has is revoked by `config`, and comes back when the configuration has
it again; one revoked by `command` stays so. A limit set by command holds until the file says something new
about that key.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.ledger import deposit
from sluicegate.errors import BadRequest, ConfigError
from sluicegate.store import ConfiguredAccount, ConfiguredKey, Conflict, Origin
from sluicegate.store.booking import find_account, post_by_hand, put_account
from sluicegate.store.schema import ACCOUNTS, KEYS

SELECT_KEYS = select(KEYS, ACCOUNTS.c.unlimited).join_from(KEYS, ACCOUNTS, KEYS.c.account_id == ACCOUNTS.c.id)

COLUMN_FIELDS = frozenset({"id", "name", "prefix", "hash", "account_id", "unlimited", "revoked"})
"""Fields of a KeyRecord that have columns; the others lie together in `limits`."""


def key_of(row: Row[*tuple[Any, ...]]) -> KeyRecord:
    """Make a KeyRecord of a row of SELECT_KEYS."""
    fields = msgspec.json.decode(row.limits)
    for name in COLUMN_FIELDS - {"unlimited", "revoked"}:
        fields[name] = getattr(row, name)
    fields |= {"unlimited": bool(row.unlimited), "revoked": row.revoked_at is not None}
    return msgspec.convert(fields, KeyRecord)


def limits_text(key: KeyRecord) -> str:
    """Write what limits a key, always in the same order."""
    fields = {name: getattr(key, name) for name in KeyRecord.__struct_fields__ if name not in COLUMN_FIELDS}
    return msgspec.json.encode(fields).decode()


async def find_key(connection: AsyncConnection, which: str) -> KeyRecord:
    """Return a key by id, name or visible prefix; of several with one name that in force, else the last
    revoked.

    Raises:
        BadRequest: there is none, or the prefix fits several.
    """
    row = (await connection.execute(SELECT_KEYS.where(KEYS.c.id == which))).first()
    if row is None:
        newest_first = (KEYS.c.revoked_at.is_not(None), KEYS.c.created_at.desc(), KEYS.c.id)
        row = (
            await connection.execute(SELECT_KEYS.where(KEYS.c.name == which).order_by(*newest_first))
        ).first()
    if row is None:
        rows = (await connection.execute(SELECT_KEYS.where(KEYS.c.prefix == which))).all()
        if len(rows) > 1:
            raise BadRequest(f"several keys begin with {which!r}: use the name or the id")
        row = rows[0] if rows else None
    if row is None:
        raise BadRequest(f"there is no key {which!r}")
    return key_of(row)


async def add_key(
    connection: AsyncConnection, key: KeyRecord, at: float, *, balance_nano: int, reference: str
) -> None:
    """Add a key made by command, and its account where there is none.

    Raises:
        Conflict: the name is in use, or the account is of the other kind.
    """
    if await _find_in_force(connection, key.name) is not None:
        raise Conflict(f"a key named {key.name!r} is in force already")
    account = await find_account(connection, key.account_id)
    if account is None:
        await put_account(connection, key.account_id, key.unlimited, at)
    elif key.unlimited and not account.unlimited:
        raise Conflict(f"account {key.account_id!r} is prepaid")
    if balance_nano:
        entry = deposit(key.account_id, balance_nano, reference=reference, kind="topup", at=at)
        await post_by_hand(connection, entry, key.account_id)
    await _insert(connection, key, at, "command", None)


async def revoke(connection: AsyncConnection, key_id: str, at: float, *, by: Origin) -> None:
    """Take a key out of force. What an operator revokes stays so, also where the configuration had done it
    before.
    """
    row = (await connection.execute(select(KEYS).where(KEYS.c.id == key_id))).one()
    if row.revoked_at is None or by == "command":
        values = {"revoked_at": row.revoked_at or at, "revoked_by": by}
        await connection.execute(update(KEYS).where(KEYS.c.id == key_id).values(values))


async def put_configured(
    connection: AsyncConnection,
    accounts: Sequence[ConfiguredAccount],
    keys: Sequence[ConfiguredKey],
    at: float,
) -> None:
    """Bring accounts and keys in step with the configuration.

    Raises:
        ConfigError: a name or a secret belongs to another key.
    """
    for account in accounts:
        await put_account(connection, account.id, account.unlimited, at)
        if account.balance_nano and not account.unlimited:
            await _credit_once(
                connection, account.id, account.balance_nano, f"bootstrap:account:{account.id}", at
            )
    # One that changes its name is out of force for a moment, so that two can change names.
    kept = {(key.record.hash, key.record.name) for key in keys}
    in_force = select(KEYS.c.id, KEYS.c.hash, KEYS.c.name).where(
        KEYS.c.origin == "config", KEYS.c.revoked_at.is_(None)
    )
    for row in (await connection.execute(in_force)).all():
        if (row.hash, row.name) not in kept:
            await revoke(connection, row.id, at, by="config")
    for place, key in enumerate(keys):
        # Each a microsecond later, so that they are listed in the order of the file.
        await _put_configured_key(connection, key, at + place / 1e6)


async def _put_configured_key(connection: AsyncConnection, key: ConfiguredKey, at: float) -> None:
    record = key.record
    if await find_account(connection, record.account_id) is None:
        await put_account(connection, record.account_id, record.unlimited, at)
    if key.balance_nano:
        await _credit_once(
            connection, record.account_id, key.balance_nano, f"bootstrap:key:{record.name}", at
        )
    known = (await connection.execute(select(KEYS).where(KEYS.c.hash == record.hash))).first()
    if known is not None and known.origin != "config":
        raise ConfigError(f"keys: {record.name}: this very key was made by command, as {known.name!r}")
    named = await _find_in_force(connection, record.name)
    if named is not None and named.hash != record.hash:
        if named.origin != "config":
            raise ConfigError(
                f"keys: {record.name}: a key of this name was made by command; revoke that one first"
            )
        raise ConfigError(f"keys: {record.name}: another key of the file has this name")
    limits = limits_text(record)
    configured = msgspec.json.encode([record.name, record.account_id, limits]).decode()
    if known is None:
        await _insert(connection, record, at, "config", configured)
        return
    changes: dict[str, Any] = {}
    if known.configured != configured:
        changes |= {
            "name": record.name,
            "account_id": record.account_id,
            "limits": limits,
            "configured": configured,
        }
    if known.revoked_by == "config":
        changes |= {"revoked_at": None, "revoked_by": None}
    if changes:
        await connection.execute(update(KEYS).where(KEYS.c.id == known.id).values(changes))


async def _credit_once(
    connection: AsyncConnection, account_id: str, amount_nano: int, reference: str, at: float
) -> None:
    entry = deposit(account_id, amount_nano, reference=reference, kind="bootstrap", at=at)
    try:
        await post_by_hand(connection, entry, account_id)
    except Conflict:
        return  # credited before, with another amount: what the file says later is not credited again


async def _find_in_force(connection: AsyncConnection, name: str) -> Row[*tuple[Any, ...]] | None:
    return (
        await connection.execute(select(KEYS).where(KEYS.c.name == name, KEYS.c.revoked_at.is_(None)))
    ).first()


async def _insert(
    connection: AsyncConnection, key: KeyRecord, at: float, origin: Origin, configured: str | None
) -> None:
    columns = {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "hash": key.hash,
        "account_id": key.account_id,
        "limits": limits_text(key),
        "origin": origin,
        "configured": configured,
        "created_at": at,
    }
    await connection.execute(insert(KEYS), columns)
