"""The store in one SQLite file: how to connect, and what SQLite calls things.

What writes does so under `synchronous=FULL`, so that what is committed is on the disk; others read beside it
(write-ahead log). SQLAlchemy drives aiosqlite, which gives each connection a thread of its own and passes every
statement to it. Settlements, which are many, have a connection and a thread to themselves, where a batch is one
errand. Writers take turns (`store.sql`). Source:
https://sqlite.org/wal.html, https://sqlite.org/pragma.html#pragma_synchronous
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sluicegate.errors import StoreUnavailable
from sluicegate.store.sql import SqlStore

T = TypeVar("T")

BUSY_MS = 5000
READERS = 4
PAGE_BYTES = 8192
"""Of a new store. Its rows are long for SQLite's 4096: fewer pages are written, each twice (log, then file)."""

WORDS = {
    "identity": "INTEGER PRIMARY KEY",
    "double": "REAL",
    "bytes": "BLOB",
    "no_update_of_entries": """CREATE TRIGGER no_update_of_entries BEFORE UPDATE ON entries
        BEGIN SELECT RAISE(ABORT, 'the ledger is append only'); END""",
    "no_delete_from_entries": """CREATE TRIGGER no_delete_from_entries BEFORE DELETE ON entries
        BEGIN SELECT RAISE(ABORT, 'the ledger is append only'); END""",
}


class SqliteStore(SqlStore):
    """A store in one file."""

    words = WORDS

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)
        self._settling: Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def open(self, *, read_only: bool = False) -> None:
        try:
            await super().open(read_only=read_only)
        except StoreUnavailable as error:
            named = str(self.path) in error.message
            raise error if named else StoreUnavailable(f"{error.message} ({self.path})") from error

    def _connect(self, *, read_only: bool) -> tuple[AsyncEngine | None, AsyncEngine]:
        if read_only:
            if not self.path.exists():
                raise StoreUnavailable(f"there is no store at {self.path} yet; `sluicegate serve` makes it")
            return None, self._engine("BEGIN", READERS, query_only=True)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise StoreUnavailable(f"the store cannot be opened: {self.path}: {error.strerror}") from error
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="settlements")
        return self._engine("BEGIN IMMEDIATE", 1), self._engine("BEGIN", READERS, query_only=True)

    def _engine(self, begin: str, connections: int, *, query_only: bool = False) -> AsyncEngine:
        engine = create_async_engine(self._url("aiosqlite"), pool_size=connections, max_overflow=0)
        _set_up(engine.sync_engine, begin, query_only=query_only)
        return engine

    def _url(self, driver: str) -> URL:
        """Name the file so that a connection never makes it: one that is made in the place of a lost store would take
        what the journals hold.
        """
        file = f"file:{quote(str(self.path.absolute()))}"
        return URL.create(f"sqlite+{driver}", database=file, query={"mode": "rw", "uri": "true"})

    async def close(self) -> None:
        await super().close()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        if self._settling is not None:
            self._settling.close()
            self._settling.engine.dispose()
            self._settling = None

    async def _transact(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact_here, work)

    def _transact_here(self, work: Callable[[Connection], T]) -> T:
        if self._settling is None:
            engine = create_engine(self._url("pysqlite"), pool_size=1)
            _set_up(engine, "BEGIN IMMEDIATE")
            self._settling = engine.connect()
        with self._settling.begin():
            return work(self._settling)


def _set_up(engine: Engine, begin: str, *, query_only: bool = False) -> None:
    """Say how an engine's connections are opened, and how their transactions begin."""

    @event.listens_for(engine, "connect")
    def connected(dbapi_connection: Any, record: object) -> None:
        # Transactions are begun below, not guessed at by the driver.
        dbapi_connection.isolation_level = None
        cursor = dbapi_connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        cursor.execute("PRAGMA foreign_keys = ON")
        # So that REPLACE meets the trigger of DELETE too.
        cursor.execute("PRAGMA recursive_triggers = ON")
        if query_only:
            cursor.execute("PRAGMA query_only = ON")
        else:
            cursor.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)
