"""Usage, export, verification: what is read out of the store."""

import sqlite3
from contextlib import closing

import pytest

from sluicegate.store import UsageQuery
from sluicegate.store.sqlite import SqliteStore
from tests.records import STARTED_AT, lost_attempt, settled
from tests.store.world import NOW, add_account


async def ids(store: SqliteStore, **query: object) -> list[str]:
    return [row.request_id async for row in store.usage(UsageQuery(**query))]  # type: ignore[arg-type]


@pytest.fixture
async def used(store: SqliteStore) -> SqliteStore:
    """A store with three requests that ended in another order than they began."""
    await add_account(store, "other", 1000)
    batch = [
        settled("third", 30, started_at=STARTED_AT + 3),
        settled("first", 10, started_at=STARTED_AT + 1),
        settled("second", 20, account="other", shortfall=5, started_at=STARTED_AT + 2),
    ]
    batch[0].row.model, batch[0].row.provider, batch[0].row.key_id = "m3", "p3", "key_3"
    await store.commit_journal(batch, "a.journal", 1, NOW)
    return store


async def test_usage_comes_oldest_first(used: SqliteStore) -> None:
    assert await ids(used) == ["first", "second", "third"]
    assert await ids(used, limit=2) == ["first", "second"]
    assert await ids(used, limit=0) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"key": "other"}, ["second"]),
        ({"key": "key_3"}, ["third"]),
        ({"account": "dev"}, ["first", "third"]),
        ({"model": "m3"}, ["third"]),
        ({"provider": "p"}, ["first", "second"]),
        ({"since": STARTED_AT + 2}, ["second", "third"]),
        ({"until": STARTED_AT + 2}, ["first"]),
        ({"request_id": "second"}, ["second"]),
        ({"model": "m3", "account": "other"}, []),
    ],
)
async def test_usage_can_be_searched(used: SqliteStore, query: dict[str, object], found: list[str]) -> None:
    assert await ids(used, **query) == found


async def test_a_row_comes_back_as_it_was(store: SqliteStore) -> None:
    record = settled("r1", 3)
    record.row.error = "zażółć \U0001f6a7 \x00 gęślą"
    record.row.usage.output_audio_tokens = 7
    await store.commit_journal([record], "a.journal", 1, NOW)
    (row,) = [row async for row in store.usage(UsageQuery())]
    assert row == record.row


async def test_pages_join_without_gap_or_overlap(store: SqliteStore) -> None:
    batch = [settled(f"r{n:04}", 0, started_at=STARTED_AT + n // 700) for n in range(2500)]
    await store.commit_journal(batch, "a.journal", 1, NOW)
    assert await ids(store) == [f"r{n:04}" for n in range(2500)]
    assert len(await ids(store, limit=1001)) == 1001


async def test_sums_since_a_time(used: SqliteStore) -> None:
    assert await used.shortfall_since(STARTED_AT) == {"other": 5}
    assert await used.spent_since(STARTED_AT + 2) == {"key_0000000000000001": 20, "key_3": 30}
    assert await used.spent_since(STARTED_AT + 9) == {}


async def test_an_export_sums_to_zero_entry_by_entry(used: SqliteStore) -> None:
    await used.commit_journal([lost_attempt("first", 1, 9)], "a.journal", 2, NOW)
    sums: dict[int, int] = {}
    totals: dict[str, int] = {}
    async for line in used.export_ledger():
        sums[line.entry] = sums.get(line.entry, 0) + line.amount_nano
        totals[line.account] = totals.get(line.account, 0) + line.amount_nano
    assert set(sums.values()) == {0}
    report = await used.verify()
    assert report.clean
    assert {name: nano for name, nano in report.balances.items() if nano} == totals


DAMAGE = {
    "its balance is": "UPDATE balances SET balance_nano = balance_nano + 1 WHERE account = 'customer:dev'",
    "together are": "UPDATE balances SET balance_nano = balance_nano + 1 WHERE account = 'revenue'",
    "with another one: first": "UPDATE usage SET cost_nano_usd = 11 WHERE request_id = 'first'",
    "without its charge, or with another one: second": "DELETE FROM entries"
    " WHERE reference = 'second' AND kind = 'charge'",
    "shortfall is not what was posted: second": "DELETE FROM entries WHERE reference = 'second' AND kind = 'shortfall'",
    "without usage, or a second one: third": "DELETE FROM usage WHERE request_id = 'third'",
    "or a second one: first": "INSERT INTO entries SELECT 99, reference, kind, 1, debit, credit, 0, at, NULL, NULL"
    " FROM entries WHERE reference = 'first' AND kind = 'charge'",
    "provider's cost that is not what was posted: first": "UPDATE provider_costs SET amount_nano = 8",
    "prepaid, but": "UPDATE balances SET balance_nano = -1 WHERE account = 'customer:other'",
}


@pytest.mark.parametrize("told", DAMAGE)
async def test_verify_finds(used: SqliteStore, told: str) -> None:
    await used.commit_journal([lost_attempt("first", 1, 9)], "a.journal", 2, NOW)
    assert (await used.verify()).clean
    with closing(sqlite3.connect(used.path)) as outside:
        outside.execute("DROP TRIGGER no_delete_from_entries")
        outside.execute(DAMAGE[told])
        outside.commit()
    report = await used.verify()
    assert not report.clean
    assert any(told in problem for problem in report.problems), report.problems


async def test_verify_shows_some_problems_and_counts_the_rest(store: SqliteStore) -> None:
    await store.commit_journal([settled(f"r{n}", 0) for n in range(50)], "a.journal", 1, NOW)
    with closing(sqlite3.connect(store.path)) as outside:
        outside.execute("DELETE FROM usage")
        outside.commit()
    problems = (await store.verify()).problems
    assert len(problems) == 22  # 20, how many more, and the chain
    assert problems[-2].endswith("30 more")
