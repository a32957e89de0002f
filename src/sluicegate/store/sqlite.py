"""The store in one SQLite file: how to connect, and what SQLite calls things.

One connection writes, under `synchronous=FULL`, so that what is committed is on the disk; others read beside
it (write-ahead log). SQLAlchemy drives aiosqlite, which gives each connection a thread of its own. Source:
https://sqlite.org/wal.html, https://sqlite.org/pragma.html#pragma_synchronous
"""

import os
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sluicegate.errors import StoreUnavailable
from sluicegate.store.sql import SqlStore

BUSY_MS = 5000
READERS = 4

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
        return self._engine("BEGIN IMMEDIATE", 1), self._engine("BEGIN", READERS, query_only=True)

    def _engine(self, begin: str, connections: int, *, query_only: bool = False) -> AsyncEngine:
        url = URL.create("sqlite+aiosqlite", database=str(self.path))
        engine = create_async_engine(url, pool_size=connections, max_overflow=0)

        @event.listens_for(engine.sync_engine, "connect")
        def connected(dbapi_connection: Any, record: object) -> None:
            dbapi_connection.isolation_level = (
                None  # transactions are begun below, not guessed at by the driver
            )
            cursor = dbapi_connection.cursor()
            cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute(
                "PRAGMA recursive_triggers = ON"
            )  # so that REPLACE meets the trigger of DELETE too
            if query_only:
                cursor.execute("PRAGMA query_only = ON")
            else:
                cursor.execute("PRAGMA journal_mode = WAL")
                cursor.execute("PRAGMA synchronous = FULL")
            cursor.close()

        @event.listens_for(engine.sync_engine, "begin")
        def begun(connection: Connection) -> None:
            connection.exec_driver_sql(begin)

        return engine
