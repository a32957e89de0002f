"""Migrations make what the tables say, once, and a store of another version is left alone."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from sluicegate.errors import StoreUnavailable
from sluicegate.store import open_store
from sluicegate.store.schema import METADATA, MIGRATIONS
from sluicegate.store.sqlite import PAGE_BYTES, SqliteStore


async def test_migrations_make_the_tables_that_queries_use(empty_store: SqliteStore) -> None:
    with closing(sqlite3.connect(empty_store.path)) as outside:
        for table in METADATA.sorted_tables:
            columns = [row[1] for row in outside.execute(f'PRAGMA table_info("{table.name}")')]
            assert columns == [column.name for column in table.columns], table.name


async def test_opening_again_migrates_nothing_twice(empty_store: SqliteStore) -> None:
    again = SqliteStore(empty_store.path)
    await again.open()
    await again.close()
    with closing(sqlite3.connect(empty_store.path)) as outside:
        assert outside.execute("SELECT COUNT(*) FROM migrations").fetchone() == (len(MIGRATIONS),)


async def test_a_store_is_its_owners_alone(empty_store: SqliteStore) -> None:
    assert stat.S_IMODE(os.stat(empty_store.path).st_mode) == 0o600


async def test_a_store_from_before_keeps_its_pages_and_a_new_one_has_larger_ones(tmp_path: Path) -> None:
    paths = (tmp_path / "before.db", tmp_path / "new.db")
    with closing(sqlite3.connect(paths[0])) as before:
        before.execute("PRAGMA page_size = 4096")
        before.execute("CREATE TABLE theirs (a)")
    for path, size in zip(paths, (4096, PAGE_BYTES), strict=True):
        store = SqliteStore(path)
        await store.open()
        await store.close()
        with closing(sqlite3.connect(path)) as outside:
            assert outside.execute("PRAGMA page_size").fetchone() == (size,)
            assert outside.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_newer_store_is_refused(empty_store: SqliteStore) -> None:
    with closing(sqlite3.connect(empty_store.path)) as outside:
        outside.execute("INSERT INTO migrations VALUES (999)")
        outside.commit()
    for read_only in (False, True):
        with pytest.raises(StoreUnavailable, match="version"):
            await SqliteStore(empty_store.path).open(read_only=read_only)


async def test_reading_makes_no_store(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(StoreUnavailable, match="no store"):
        await store.open(read_only=True)
    assert os.listdir(tmp_path) == []


async def test_who_only_reads_cannot_write(empty_store: SqliteStore) -> None:
    reader = SqliteStore(empty_store.path)
    await reader.open(read_only=True)
    assert await reader.all_keys() == []
    with pytest.raises(StoreUnavailable):
        await reader.forget_journals(["x"])
    await reader.close()


@pytest.mark.parametrize("content", [b"this is no database, though it is long enough to be one" * 40, b""])
async def test_a_file_that_is_no_store_is_told_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable) as refused:
        await store.open(read_only=True)
    assert "\n" not in refused.value.message


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await SqliteStore(tmp_path / "file" / "store.db").open()


def test_other_engines_are_refused() -> None:
    with pytest.raises(StoreUnavailable, match="oracle"):
        open_store("oracle://x/y")
