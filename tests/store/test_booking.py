"""What a journal's batch books: everything once, in whatever batches it comes."""

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError

from sluicegate.billing.ledger import Entry, Record, charge, shortfall
from sluicegate.errors import BadRequest, StoreUnavailable
from sluicegate.money import MAX_NANO
from sluicegate.store import Conflict, UsageQuery
from sluicegate.store.driver import Driver
from sluicegate.store.settlements import PIECE
from sluicegate.store.sqlite import SqliteStore
from tests.profiles import examples
from tests.records import STARTED_AT, lost_attempt, reserved, settled
from tests.store.world import NOW, add_account, balance


async def rows_of(store: SqliteStore, query: UsageQuery | None = None) -> list[str]:
    return [row.request_id async for row in store.usage(query or UsageQuery())]


async def test_a_batch_moves_balances_and_notes_its_offset(store: SqliteStore) -> None:
    batch: list[Record] = [reserved("r1"), settled("r1", 300), settled("r2", 200, shortfall=50)]
    result = await store.commit_journal(batch, "a.journal", 120, NOW)
    assert result.charged == {"dev": 500}
    assert result.shortfall == {"dev": 50}
    assert result.settled == 2
    assert result.last is not None
    assert result.last.request_id == "r2"
    assert (result.repeated, result.clamped) == (0, 0)
    assert await balance(store) == 1_000_000 - 500
    assert await store.journal_offsets() == {"a.journal": 120}
    report = await store.verify()
    assert report.clean
    assert report.balances == {
        "customer:dev": 999_500,
        "funding": -1_000_000,
        "revenue": 550,
        "shortfall": -50,
        "provider_cost": 0,
    }


async def test_x6_a_replay_charges_nothing_twice(store: SqliteStore) -> None:
    batch: list[Record] = [settled("r1", 300), lost_attempt("r1", 1, 40), settled("r1", 300)]
    first = await store.commit_journal(batch, "a.journal", 10, NOW)
    assert (first.charged, first.settled, first.repeated) == ({"dev": 300}, 1, 1)
    again = await store.commit_journal(batch, "b.journal", 10, NOW + 1)
    assert (again.charged, again.settled, again.repeated) == ({}, 0, 2)
    assert await balance(store) == 999_700
    assert (await store.verify()).clean


async def test_a_second_resolution_of_a_request_changes_nothing(store: SqliteStore) -> None:
    await store.commit_journal([settled("r1", 300)], "a.journal", 10, NOW)
    await store.commit_journal([settled("r1", 999)], "b.journal", 10, NOW)
    assert await balance(store) == 999_700
    (row,) = [row async for row in store.usage(UsageQuery())]
    assert row.cost_nano_usd == 300


async def test_an_offset_never_goes_back(store: SqliteStore) -> None:
    await store.commit_journal([], "a.journal", 100, NOW)
    await store.commit_journal([], "a.journal", 50, NOW)
    assert await store.journal_offsets() == {"a.journal": 100}
    await store.forget_journals(["a.journal", "unknown"])
    assert await store.journal_offsets() == {}


async def test_b038_a_balance_never_falls_below_zero(store: SqliteStore) -> None:
    batch: list[Record] = [settled("r1", 900_000), settled("r2", 900_000), settled("r3", 5)]
    result = await store.commit_journal(batch, "a.journal", 10, NOW)
    assert (result.clamped, result.charged, result.shortfall) == (2, {"dev": 1_000_000}, {"dev": 800_005})
    assert await balance(store) == 0
    assert [row.shortfall_nano_usd async for row in store.usage(UsageQuery())] == [0, 800_000, 5]
    assert (await store.verify()).clean


async def test_an_unlimited_account_may_owe(store: SqliteStore) -> None:
    await add_account(store, "big", unlimited=True)
    await store.commit_journal([settled("r1", 300, account="big")], "a.journal", 10, NOW)
    assert await balance(store, "big") == -300
    assert (await store.verify()).clean


async def test_what_an_unlimited_account_owed_is_written_off_when_it_becomes_prepaid(
    store: SqliteStore,
) -> None:
    await add_account(store, "big", unlimited=True)
    await store.commit_journal([settled("r1", 300, account="big")], "a.journal", 10, NOW)
    await add_account(store, "big", 50)
    assert await balance(store, "big") == 50
    assert (await store.verify()).clean


async def test_a_settlement_for_an_account_nobody_knows_still_counts(store: SqliteStore) -> None:
    result = await store.commit_journal([settled("r1", 300, account="lost")], "a.journal", 10, NOW)
    assert (result.clamped, result.shortfall) == (1, {"lost": 300})
    assert await rows_of(store) == ["r1"]
    assert (await store.verify()).clean


async def test_amounts_beyond_64_bits_do_not_stop_the_drain(store: SqliteStore) -> None:
    await add_account(store, "big", unlimited=True)
    batch: list[Record] = [settled(f"r{n}", 2**63 + n, account="big", shortfall=2**64) for n in range(3)]
    batch += [lost_attempt(f"r{n}", 1, 2**63 + 5) for n in range(3)]
    batch.append(settled("after", 7))
    result = await store.commit_journal(batch, "a.journal", 10, NOW)
    assert result.settled == 4
    report = await store.verify()
    assert report.clean
    assert max(map(abs, report.balances.values())) <= MAX_NANO


@settings(
    max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_x6_batches_in_random_splits_book_the_same(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    records: list[Record] = []
    for number in range(60):
        records += [reserved(f"r{number}"), settled(f"r{number}", rng.randrange(2000))]
        if rng.random() < 0.3:
            records.append(lost_attempt(f"r{number}", rng.randrange(1, 3), rng.choice([None, 7])))
    due = {r.request_id: r.row.cost_nano_usd for r in records if r.__class__.__name__ == "Settled"}  # type: ignore[union-attr]

    async def replay() -> None:
        store = SqliteStore(tmp_path_factory.mktemp("replay") / "store.db")
        await store.open()
        await add_account(store, "dev", 10_000_000)
        for _ in range(3):
            start = rng.randrange(len(records)) if rng.random() < 0.7 else 0
            while start < len(records):
                stop = start + rng.randrange(1, 40)
                await store.commit_journal(records[start:stop], f"{rng.randrange(3)}.journal", stop, NOW)
                start = stop
        await store.commit_journal(records, "all.journal", 1, NOW)
        assert await balance(store) == 10_000_000 - sum(due.values())
        assert sorted(await rows_of(store)) == sorted(due)
        assert (await store.verify()).clean
        await store.close()

    asyncio.run(replay())


async def test_charges_are_posted_as_the_ledger_says_in_the_order_of_their_rows(store: SqliteStore) -> None:
    await add_account(store, "big", unlimited=True)
    records: list[Record] = []
    for number in range(2 * PIECE + 3):
        account = ("dev", "big", "lost")[number % 3]
        records += [
            reserved(f"r{number}"),
            settled(f"r{number}", number, account=account, shortfall=number % 2),
        ]
        if number % 7 == 0:
            records.append(lost_attempt(f"r{number}", 1, 5))
    await store.commit_journal([settled("before", 1)], "a.journal", 1, NOW)
    result = await store.commit_journal(records, "a.journal", 2, NOW + 1)
    posted: list[Entry] = []
    with closing(sqlite3.connect(store.path)) as outside:
        names = ", ".join(Entry.__struct_fields__)
        for values in outside.execute(f"SELECT {names} FROM entries WHERE at = ? ORDER BY id", (NOW + 1,)):
            posted.append(Entry(**dict(zip(Entry.__struct_fields__, values, strict=True))))
    rows = {row.request_id: row async for row in store.usage(UsageQuery()) if row.request_id != "before"}
    charges = [entry for entry in posted if entry.kind == "charge"]
    assert charges == [charge(rows[f"r{number}"], NOW + 1) for number in range(2 * PIECE + 3)]
    shorts = {entry.reference: entry for entry in posted if entry.kind == "shortfall"}
    assert shorts == {id: short for id, row in rows.items() if (short := shortfall(row, NOW + 1)) is not None}
    assert len(posted) == len(charges) + len(shorts)  # the lost attempts have times of their own
    key_id = rows["r0"].key_id
    spent = sum(row.cost_nano_usd for row in rows.values())
    assert result.spent == {(key_id, int(STARTED_AT // 86_400), False): spent}
    assert sum(result.charged.values()) == spent
    assert sum(result.shortfall.values()) == sum(short.amount_nano for short in shorts.values())
    assert (await store.verify()).clean


async def test_records_that_turn_out_unreadable_book_nothing_of_their_batch(store: SqliteStore) -> None:
    """They are decoded while they are booked, so that earlier rows of the batch are inserted by then."""

    class Cut(list[Record]):
        def __iter__(self) -> Iterator[Record]:
            yield from super().__iter__()
            raise ValueError("no record")

    with pytest.raises(ValueError, match="no record"):
        await store.commit_journal(Cut(settled(f"r{n}", 1) for n in range(2 * PIECE)), "a.journal", 9, NOW)
    assert await rows_of(store) == []
    assert await store.journal_offsets() == {}
    await store.commit_journal([settled("r1", 1)], "a.journal", 10, NOW)
    assert (await store.verify()).clean


async def test_a_large_batch_is_one_transaction(store: SqliteStore) -> None:
    batch: list[Record] = [settled(f"r{n}", 1) for n in range(3000)]
    result = await store.commit_journal(batch, "a.journal", 10, NOW)
    assert result.settled == 3000
    assert await balance(store) == 997_000
    assert (await store.verify()).clean


async def test_money_by_hand_moves_once_for_each_reference(store: SqliteStore) -> None:
    done = await store.deposit("dev", 500, reference="pay-1", kind="topup", at=NOW)
    assert (done.posted, done.balance_nano) == (True, 1_000_500)
    again = await store.deposit("dev", 500, reference="pay-1", kind="topup", at=NOW + 5)
    assert (again.posted, again.balance_nano) == (False, 1_000_500)
    with pytest.raises(Conflict, match="pay-1"):
        await store.deposit("dev", 501, reference="pay-1", kind="topup", at=NOW)
    assert await balance(store) == 1_000_500


async def test_a_debit_by_hand_takes_free_credit_only(store: SqliteStore) -> None:
    with pytest.raises(BadRequest, match="free"):
        await store.deposit("dev", -600_001, reference="d", kind="adjust", at=NOW, leased_nano=400_000)
    done = await store.deposit("dev", -600_000, reference="d", kind="adjust", at=NOW, leased_nano=400_000)
    assert done.balance_nano == 400_000
    assert (await store.verify()).clean


@pytest.mark.parametrize("amount", [MAX_NANO, MAX_NANO - 999_999])
async def test_a_balance_beyond_64_bits_is_refused(store: SqliteStore, amount: int) -> None:
    with pytest.raises(BadRequest, match="64 bits"):
        await store.deposit("dev", amount, reference="much", kind="topup", at=NOW)
    assert await balance(store) == 1_000_000
    await store.deposit("dev", MAX_NANO - 1_000_000, reference="all", kind="topup", at=NOW)
    assert (await store.verify()).clean


async def test_sums_that_pass_64_bits_on_their_way_are_exact(store: SqliteStore) -> None:
    await add_account(store, "big", unlimited=True)
    for number in range(3):
        batch: list[Record] = [settled(f"r{number}", MAX_NANO, account="big")]
        await store.commit_journal(batch, "a.journal", number, NOW)
        await store.refund(f"r{number}", None, reference=f"back{number}", note=None, at=NOW)
    await store.commit_journal([settled("r3", 1_000_000_007, account="big")], "a.journal", 9, NOW)
    report = await store.verify()
    assert report.clean
    assert report.balances["revenue"] == 1_000_000_007
    assert set((await store.spent_since(0.0)).values()) == {3 * MAX_NANO + 1_000_000_007}
    statement = await store.statement("big", 0.0, NOW + 1)
    assert statement.charged_nano == 3 * MAX_NANO + 1_000_000_007
    assert statement.closing_nano == -1_000_000_007
    assert (await store.statement("big", NOW + 1, NOW + 2)).opening_nano == -1_000_000_007


async def test_money_for_an_unknown_account_is_refused(store: SqliteStore) -> None:
    with pytest.raises(BadRequest, match="nobody"):
        await store.deposit("nobody", 1, reference="x", kind="topup", at=NOW)


async def test_who_is_cancelled_while_committing_leaves_a_whole_transaction(store: SqliteStore) -> None:
    for number in range(10):
        commit = asyncio.ensure_future(
            store.commit_journal([settled(f"r{number}", 10)], "a.journal", number, NOW)
        )
        await asyncio.sleep(0.0005 * number)
        commit.cancel()
        await asyncio.gather(commit, return_exceptions=True)
    await store.commit_journal([settled(f"r{number}", 10) for number in range(10)], "a.journal", 100, NOW)
    assert await balance(store) == 1_000_000 - 100
    assert (await store.verify()).clean


async def test_entries_can_be_neither_changed_nor_removed(store: SqliteStore) -> None:
    await store.commit_journal([settled("r1", 300)], "a.journal", 10, NOW)
    with closing(sqlite3.connect(store.path)) as outside:
        for statement in ("UPDATE entries SET amount_nano = 1", "DELETE FROM entries"):
            with pytest.raises(sqlite3.IntegrityError, match="append only"):
                outside.execute(statement)


async def test_an_error_of_the_driver_is_the_toolkits_of_its_kind(store: SqliteStore) -> None:
    twice = text("INSERT INTO balances (account, balance_nano) VALUES (:account, :nano)")
    for work, kind in (
        (lambda driver: driver.run_for_each(twice, [("customer:dev", 1)]), IntegrityError),
        (lambda driver: driver.run(text("SELECT nothing FROM nowhere")), OperationalError),
    ):
        with pytest.raises(kind):
            await store._transact(lambda connection, work=work: work(Driver(connection)))  # type: ignore[misc]
    assert (await store.verify()).clean


async def test_commits_are_durable(store: SqliteStore) -> None:
    async with store._writer.connect() as connection:  # type: ignore[union-attr]
        durable = (await connection.exec_driver_sql("PRAGMA synchronous")).scalar_one()
        journal = (await connection.exec_driver_sql("PRAGMA journal_mode")).scalar_one()
    assert (durable, journal) == (2, "wal")
    settling = await store._transact(
        lambda connection: connection.exec_driver_sql("PRAGMA synchronous").scalar()
    )
    assert settling == 2


async def test_a_closed_store_says_so(store: SqliteStore) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.commit_journal([settled("r1", 1)], "a.journal", 1, NOW)
    with pytest.raises(StoreUnavailable):
        await store.all_keys()
