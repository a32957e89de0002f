"""The store in SQL that SQLite and Postgres share: one class, whose engines a dialect provides.

Writes run one at a time, each in one transaction that is never left half done, also where the caller is
cancelled. Balances are read, reckoned with exactly, and written back inside the transaction that inserts the
entries which move them. What an entry is stands in `billing.ledger`.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, delete, or_, select, text, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.claims import Claim, KeptAnswer, Verdict
from sluicegate.billing.ledger import Entry, EntryKind, KeptObject, Record, Settled, UsageRow, deposit
from sluicegate.errors import BadRequest, StoreUnavailable
from sluicegate.store import (
    Account,
    Anchor,
    CommitResult,
    ConfiguredAccount,
    ConfiguredKey,
    Deposit,
    KeptResponse,
    LedgerLine,
    LedgerReport,
    ObjectQuery,
    Statement,
    UsageQuery,
    claims,
    key_rows,
    object_rows,
    response_rows,
)
from sluicegate.store.booking import (
    SELECT_ACCOUNTS,
    account_of,
    find_account,
    find_charge,
    find_posted,
    parts,
    post_by_hand,
)
from sluicegate.store.chain import begin_chain, daily_anchors
from sluicegate.store.schema import ACCOUNTS, CHAINED_BY, ENTRIES, JOURNALS, KEYS, MIGRATIONS, USAGE, after
from sluicegate.store.settlements import Batch, book
from sluicegate.store.statements import add_sale, movements_of
from sluicegate.store.sums import joined, sum_parts
from sluicegate.store.verification import verify

T = TypeVar("T")

PAGE_ROWS = 1000

_decode_row = msgspec.json.Decoder(UsageRow).decode


class SqlStore(ABC):
    """A `Store` over SQLAlchemy. A dialect says how to connect, and its words for what SQL has no common ones
    for.
    """

    words: Mapping[str, str]
    """What the braces in `schema.MIGRATIONS` stand for."""

    def __init__(self) -> None:
        self._writer: AsyncEngine | None = None
        self._reader: AsyncEngine | None = None
        self._turn = asyncio.Lock()

    @abstractmethod
    def _connect(self, *, read_only: bool) -> tuple[AsyncEngine | None, AsyncEngine]:
        """Make the engines for writing and reading.

        Raises:
            StoreUnavailable: there is nothing to read, or no way to write.
        """

    async def open(self, *, read_only: bool = False) -> None:
        self._writer, self._reader = self._connect(read_only=read_only)
        try:
            if read_only:
                await self._check_version()
            else:
                await self._write(self._migrate)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        async with self._turn:
            for engine in (self._writer, self._reader):
                if engine is not None:
                    await engine.dispose()
            self._writer = self._reader = None

    # Transactions

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        if self._reader is None:
            raise StoreUnavailable("the store is not open")
        try:
            async with self._reader.begin() as connection:
                yield connection
        except (SQLAlchemyError, OSError) as error:
            raise _unavailable(error) from error

    async def _write(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run one writing transaction."""

        async def write() -> T:
            assert self._writer is not None
            async with self._writer.begin() as connection:
                return await work(connection)

        return await self._take_turn(write)

    async def _take_turn(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write when all before have; who is cancelled while it runs leaves it to end by itself."""
        writing = asyncio.ensure_future(self._write_now(write))
        writing.add_done_callback(_retrieve)
        return await asyncio.shield(writing)

    async def _write_now(self, write: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            if self._writer is None:
                raise StoreUnavailable("the store is not open for writing")
            try:
                return await write()
            except (SQLAlchemyError, OSError) as error:
                raise _unavailable(error) from error

    async def _transact(self, work: Callable[[Connection], T]) -> T:
        """Run one writing transaction that waits for nothing but the database.

        A dialect whose driver lives in a thread does the whole of it there.
        """
        assert self._writer is not None
        async with self._writer.begin() as connection:
            return await connection.run_sync(work)

    async def _migrate(self, connection: AsyncConnection) -> None:
        await connection.execute(text("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)"))
        done = (await connection.execute(text("SELECT COUNT(*) FROM migrations"))).scalar_one()
        if done > len(MIGRATIONS):
            raise StoreUnavailable("the store was written by a newer version of Sluicegate")
        for number in range(done, len(MIGRATIONS)):
            for statement in MIGRATIONS[number]:
                await connection.exec_driver_sql(statement.format_map(self.words))
            if number == CHAINED_BY:
                await connection.run_sync(begin_chain, time.time())
            await connection.execute(text("INSERT INTO migrations VALUES (:number)"), {"number": number})

    async def _check_version(self) -> None:
        async with self._reading() as connection:
            done = (await connection.execute(text("SELECT COUNT(*) FROM migrations"))).scalar_one()
        if done != len(MIGRATIONS):
            raise StoreUnavailable("the store is of another version; `sluicegate serve` brings it up to date")

    # Keys

    async def bootstrap(
        self, accounts: Sequence[ConfiguredAccount], keys: Sequence[ConfiguredKey], at: float
    ) -> None:
        await self._write(lambda connection: key_rows.put_configured(connection, accounts, keys, at))

    async def create_key(
        self, key: KeyRecord, *, balance_nano: int = 0, reference: str, at: float
    ) -> KeyRecord:
        async def work(connection: AsyncConnection) -> KeyRecord:
            await key_rows.add_key(connection, key, at, balance_nano=balance_nano, reference=reference)
            return await key_rows.find_key(connection, key.id)

        return await self._write(work)

    async def find_key(self, key_hash: bytes) -> KeyRecord | None:
        async with self._reading() as connection:
            row = (await connection.execute(key_rows.SELECT_KEYS.where(KEYS.c.hash == key_hash))).first()
        return None if row is None else key_rows.key_of(row)

    async def get_key(self, which: str) -> KeyRecord:
        async with self._reading() as connection:
            return await key_rows.find_key(connection, which)

    async def all_keys(self) -> list[KeyRecord]:
        async with self._reading() as connection:
            oldest_first = key_rows.SELECT_KEYS.order_by(KEYS.c.created_at, KEYS.c.id)
            return [key_rows.key_of(row) for row in await connection.execute(oldest_first)]

    async def revoke_key(self, which: str, at: float) -> KeyRecord:
        async def work(connection: AsyncConnection) -> KeyRecord:
            key = await key_rows.find_key(connection, which)
            await key_rows.revoke(connection, key.id, at, by="command")
            return await key_rows.find_key(connection, key.id)

        return await self._write(work)

    async def limit_key(self, which: str, changes: Mapping[str, Any]) -> KeyRecord:
        if key_rows.COLUMN_FIELDS.intersection(changes):
            raise AssertionError("only limits can be changed")

        async def work(connection: AsyncConnection) -> KeyRecord:
            key = msgspec.structs.replace(await key_rows.find_key(connection, which), **changes)
            limits = key_rows.limits_text(key)
            await connection.execute(update(KEYS).where(KEYS.c.id == key.id).values(limits=limits))
            return key

        return await self._write(work)

    # Accounts

    async def get_account(self, account_id: str) -> Account:
        async with self._reading() as connection:
            account = await find_account(connection, account_id)
        if account is None:
            raise BadRequest(f"there is no account {account_id!r}")
        return account

    async def all_accounts(self) -> list[Account]:
        async with self._reading() as connection:
            return [
                account_of(row) for row in await connection.execute(SELECT_ACCOUNTS.order_by(ACCOUNTS.c.id))
            ]

    async def deposit(
        self,
        account_id: str,
        amount_nano: int,
        *,
        reference: str,
        kind: EntryKind,
        at: float,
        leased_nano: int = 0,
        request_id: str | None = None,
        note: str | None = None,
    ) -> Deposit:
        entry = deposit(
            account_id, amount_nano, reference=reference, kind=kind, at=at, request_id=request_id, note=note
        )
        return await self._write(lambda connection: _post(connection, entry, account_id, leased_nano))

    async def refund(
        self, request_id: str, amount_nano: int | None, *, reference: str, note: str | None, at: float
    ) -> Deposit:
        async def work(connection: AsyncConnection) -> Deposit:
            account_id, left_nano = await find_charge(connection, request_id)
            amount = amount_nano
            if amount is None:
                before = await find_posted(connection, reference, "refund")
                amount = left_nano if before is None else before.amount_nano
                if amount <= 0:
                    raise BadRequest(f"nothing is left of the charge of request {request_id!r}")
            entry = deposit(
                account_id,
                amount,
                reference=reference,
                kind="refund",
                at=at,
                request_id=request_id,
                note=note,
            )
            return await _post(connection, entry, account_id)

        return await self._write(work)

    # Journals

    async def journal_offsets(self) -> dict[str, int]:
        async with self._reading() as connection:
            rows = (await connection.execute(select(JOURNALS.c.file, JOURNALS.c.committed))).all()
        return {row.file: row.committed for row in rows}

    async def commit_journal(
        self, records: Iterable[Record], file: str, offset: int | Callable[[], int], at: float
    ) -> CommitResult:
        batch = Batch(records, file, offset, at)

        async def commit() -> CommitResult:
            try:
                return await self._transact(lambda connection: book(connection, batch, look_up=False))
            except IntegrityError:
                return await self._transact(lambda connection: book(connection, batch, look_up=True))

        return await self._take_turn(commit)

    async def forget_journals(self, files: Sequence[str]) -> None:
        async def work(connection: AsyncConnection) -> None:
            for some in parts(files):
                await connection.execute(delete(JOURNALS).where(JOURNALS.c.file.in_(some)))

        if files:
            await self._write(work)

    # Idempotency keys

    async def make_claim(self, claim: Claim, worker: int, at: float) -> Verdict:
        return await self._write(lambda connection: connection.run_sync(claims.make_claim, claim, worker, at))

    async def end_claim(self, claim: Claim, done: bool, answer: KeptAnswer | None) -> None:
        await self._write(lambda connection: connection.run_sync(claims.end_claim, claim, done, answer))

    async def release_claims(self, worker: int | None) -> None:
        await self._write(lambda connection: connection.run_sync(claims.release_claims, worker))

    async def prune_claims(self, at: float) -> None:
        await self._write(lambda connection: connection.run_sync(claims.prune_claims, at))

    # Kept answers

    async def keep_response(self, kept: KeptResponse, now: float, expires_at: float, max_bytes: int) -> bool:
        return await self._write(
            lambda connection: response_rows.keep(connection, kept, now, expires_at, max_bytes)
        )

    async def find_responses(
        self, account_id: str, id: str, now: float, *, whole: bool
    ) -> list[KeptResponse]:
        async with self._reading() as connection:
            return await response_rows.find(connection, account_id, id, now, whole=whole)

    async def drop_response(self, account_id: str, id: str) -> bool:
        return await self._write(lambda connection: response_rows.drop(connection, account_id, id))

    async def expire_responses(self, now: float) -> None:
        await self._write(lambda connection: response_rows.expire(connection, now))

    # What providers keep

    async def put_object(self, kept: KeptObject) -> None:
        await self._write(lambda connection: connection.run_sync(object_rows.put, kept))

    async def find_objects(self, query: ObjectQuery) -> list[KeptObject]:
        async with self._reading() as connection:
            return [object_rows.object_of(row) for row in await connection.execute(object_rows.find(query))]

    async def open_jobs(self, due_at: float | None = None, limit: int = 1_000_000) -> list[KeptObject]:
        async with self._reading() as connection:
            rows = await connection.execute(object_rows.find_open(due_at, limit))
            return [object_rows.object_of(row) for row in rows]

    async def postpone_job(self, request_id: str, told: bytes | None, due_at: float) -> None:
        await self._write(
            lambda connection: connection.run_sync(object_rows.postpone, request_id, told, due_at)
        )

    async def end_job(
        self, settled: Settled, told: bytes, files: Sequence[KeptObject], at: float
    ) -> CommitResult:
        def work(connection: Connection) -> CommitResult:
            if not object_rows.close(connection, settled.request_id, told):
                return CommitResult()
            for kept in files:
                object_rows.put(connection, kept)
            return book(connection, Batch([settled], "", 0, at), look_up=True)

        return await self._take_turn(lambda: self._transact(work))

    async def drop_object(self, kept: KeptObject) -> bool:
        return await self._write(lambda connection: connection.run_sync(object_rows.drop, kept))

    async def expire_objects(self, before: float) -> None:
        await self._write(lambda connection: connection.run_sync(object_rows.expire, before))

    # Looking

    async def usage(self, query: UsageQuery) -> AsyncIterator[UsageRow]:
        wanted = _conditions(query)
        left = query.limit
        after: ColumnElement[bool] | None = None
        while left is None or left > 0:
            page = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
            statement = select(USAGE.c.id, USAGE.c.started_at, USAGE.c.row).where(*wanted)
            if after is not None:
                statement = statement.where(after)
            async with self._reading() as connection:
                ordered = statement.order_by(USAGE.c.started_at, USAGE.c.id).limit(page)
                rows = (await connection.execute(ordered)).all()
            for row in rows:
                yield _decode_row(row.row)
            if len(rows) < page:
                return
            last = rows[-1]
            same_time = and_(USAGE.c.started_at == last.started_at, USAGE.c.id > last.id)
            after = or_(USAGE.c.started_at > last.started_at, same_time)
            left = None if left is None else left - len(rows)

    async def shortfall_since(self, since: float) -> dict[str, int]:
        return await self._sums(USAGE.c.account_id, USAGE.c.shortfall_nano_usd, since)

    async def spent_since(self, since: float, key_id: str | None = None) -> dict[str, int]:
        return await self._sums(USAGE.c.key_id, USAGE.c.cost_nano_usd, since, key_id)

    async def _sums(
        self, by: ColumnElement[str], what: ColumnElement[int], since: float, only: str | None = None
    ) -> dict[str, int]:
        statement = select(by, *sum_parts(what)).where(USAGE.c.started_at >= since, what != 0).group_by(by)
        if only is not None:
            statement = statement.where(by == only)
        async with self._reading() as connection:
            rows = (await connection.execute(statement)).all()
        return {name: joined(parts) for name, *parts in rows}

    async def export_ledger(self) -> AsyncIterator[LedgerLine]:
        last: int | None = None
        while True:
            async with self._reading() as connection:
                page = (
                    select(ENTRIES).where(after(ENTRIES.c.id, last)).order_by(ENTRIES.c.id).limit(PAGE_ROWS)
                )
                rows = (await connection.execute(page)).all()
            for row in rows:
                for account, amount_nano in ((row.debit, -row.amount_nano), (row.credit, row.amount_nano)):
                    yield LedgerLine(
                        entry=row.id,
                        at=row.at,
                        reference=row.reference,
                        kind=row.kind,
                        attempt=row.attempt,
                        account=account,
                        amount_nano=amount_nano,
                        request_id=row.request_id,
                        note=row.note,
                    )
            if len(rows) < PAGE_ROWS:
                return
            last = rows[-1].id

    async def verify(self, anchors: Sequence[Anchor] = ()) -> LedgerReport:
        async with self._reading() as connection:
            return await connection.run_sync(verify, anchors)

    async def statement(self, account_id: str, since: float, until: float) -> Statement:
        async with self._reading() as connection:
            statement = await connection.run_sync(movements_of, account_id, since, until)
        async for row in self.usage(UsageQuery(account=account_id, since=since, until=until)):
            add_sale(statement.models, row.model, row)
        return statement

    async def anchors(self) -> list[Anchor]:
        async with self._reading() as connection:
            return await connection.run_sync(daily_anchors)


async def _post(connection: AsyncConnection, entry: Entry, account_id: str, leased_nano: int = 0) -> Deposit:
    posted = await post_by_hand(connection, entry, account_id, leased_nano)
    account = await find_account(connection, account_id)
    assert account is not None
    return Deposit(
        account_id=account_id, balance_nano=account.balance_nano, posted=posted, amount_nano=entry.amount_nano
    )


def _retrieve(writing: asyncio.Future[Any]) -> None:
    """Look at the outcome of a write whose caller may have left."""
    if not writing.cancelled():
        writing.exception()


def _unavailable(error: Exception) -> StoreUnavailable:
    """Turn an engine's error into ours, in one line and without the statement's values."""
    cause = getattr(error, "orig", None) or error
    return StoreUnavailable(f"the store failed: {cause}")


def _conditions(query: UsageQuery) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = []
    if query.key is not None:
        wanted.append(or_(USAGE.c.key == query.key, USAGE.c.key_id == query.key))
    if query.account is not None:
        wanted.append(USAGE.c.account_id == query.account)
    if query.model is not None:
        wanted.append(USAGE.c.model == query.model)
    if query.provider is not None:
        wanted.append(USAGE.c.provider == query.provider)
    if query.since is not None:
        wanted.append(USAGE.c.started_at >= query.since)
    if query.until is not None:
        wanted.append(USAGE.c.started_at < query.until)
    if query.request_id is not None:
        wanted.append(USAGE.c.request_id == query.request_id)
    return wanted
