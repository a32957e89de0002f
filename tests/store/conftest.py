"""A store of its own for every test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sluicegate.store.sqlite import SqliteStore
from tests.store.world import add_account


@pytest.fixture
async def empty_store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A store without anything in it."""
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def store(empty_store: SqliteStore) -> SqliteStore:
    """A store with the prepaid account `dev`, holding 1,000,000 nano-USD."""
    await add_account(empty_store, "dev", 1_000_000)
    return empty_store
