"""The chain of hashes: an edit, a removal, a reorder or an invention is found, also where all sums still hold."""

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sluicegate.store import Anchor
from sluicegate.store.schema import MIGRATIONS
from sluicegate.store.sqlite import WORDS, SqliteStore
from tests.records import lost_attempt, settled
from tests.store.world import NOW, add_account

DAY = 86_400.0


@pytest.fixture
async def kept(store: SqliteStore) -> SqliteStore:
    """A store with three commits over two days, and an adjustment."""
    await add_account(store, "other", 1000)
    await store.commit_journal([settled("r1", 10), settled("r2", 10)], "a.journal", 1, NOW)
    await store.commit_journal([settled("r3", 20, account="other", shortfall=5)], "a.journal", 2, NOW + 5)
    await store.deposit("dev", -7, reference="fix", kind="adjust", at=NOW + DAY, note="agreed by telephone")
    await store.commit_journal([lost_attempt("r3", 1, 9)], "a.journal", 3, NOW + DAY + 1)
    assert (await store.verify()).problems == []
    return store


def damage(store: SqliteStore, *statements: str) -> None:
    """Change the file behind the store's back."""
    with closing(sqlite3.connect(store.path)) as outside:
        for trigger in ("no_update_of_entries", "no_delete_from_entries"):
            outside.execute(f"DROP TRIGGER {trigger}")
        for statement in statements:
            outside.execute(statement)
        outside.commit()


OF_FIX = "WHERE reference = 'fix'"
DAMAGE = {
    "an edit of a note": f"UPDATE entries SET note = 'agreed' {OF_FIX}",
    "an edit of a time": f"UPDATE entries SET at = at + 1 {OF_FIX}",
    "an edit of a name": f"UPDATE entries SET reference = 'other' {OF_FIX}",
    "an invention": "INSERT INTO entries SELECT 99, 'x', kind, 0, debit, credit, 0, at, NULL, NULL"
    f" FROM entries {OF_FIX}",
    "an invention in between": "INSERT INTO entries SELECT -1, 'x', kind, 0, debit, credit, 0, at, NULL, NULL"
    f" FROM entries {OF_FIX}",
    "usage that says something else": "UPDATE usage SET row = replace(row, '20', '21') WHERE request_id = 'r1'",
    "usage in another order": "UPDATE usage SET id = CASE request_id WHEN 'r1' THEN 98 ELSE id END",
    "a link taken out": "DELETE FROM links WHERE number = 3",
    "the first link taken out": "DELETE FROM links WHERE number = 1",
    "the last link taken out": "DELETE FROM links WHERE number = (SELECT MAX(number) FROM links)",
    "a link moved in time": "UPDATE links SET at = at + 1 WHERE number = 2",
    "a link that claims less": "UPDATE links SET entries = entries - 1 WHERE number = 3",
}


@pytest.mark.parametrize("what", DAMAGE)
async def test_verify_finds(kept: SqliteStore, what: str) -> None:
    damage(kept, DAMAGE[what])
    report = await kept.verify()
    assert any(problem.startswith("the chain: ") for problem in report.problems), report.problems


async def test_verify_finds_a_reorder(kept: SqliteStore) -> None:
    """Two entries change places: every balance and every pair still fits."""
    with closing(sqlite3.connect(kept.path)) as outside:
        one, other = (
            id_
            for (id_,) in outside.execute(
                "SELECT id FROM entries WHERE reference IN ('r1', 'r2') ORDER BY id"
            )
        )
    damage(
        kept,
        *(
            f"UPDATE entries SET id = {to} WHERE id = {at}"
            for at, to in ((one, -1), (other, one), (-1, other))
        ),
    )
    report = await kept.verify()
    assert report.problems
    assert all(problem.startswith("the chain: ") for problem in report.problems)


async def test_verify_finds_a_removal_whose_sums_hold(kept: SqliteStore) -> None:
    damage(
        kept,
        f"DELETE FROM entries {OF_FIX}",
        "UPDATE balances SET balance_nano = balance_nano + 7 WHERE account = 'customer:dev'",
        "UPDATE balances SET balance_nano = balance_nano - 7 WHERE account = 'funding'",
    )
    report = await kept.verify()
    assert report.problems
    assert all(problem.startswith("the chain: ") for problem in report.problems)


async def test_an_anchor_finds_a_chain_that_was_made_anew(kept: SqliteStore) -> None:
    noted = await kept.anchors()
    assert [int(anchor.at // DAY) for anchor in noted] == [int(NOW // DAY), int(NOW // DAY) + 1]
    assert (await kept.verify(noted)).clean
    head = (await kept.verify()).head
    assert head == noted[-1]
    # Whoever can write the store can take the end away, links and all, and every sum holds.
    damage(
        kept,
        "DELETE FROM entries WHERE kind = 'provider_cost'",
        "DELETE FROM provider_costs",
        "DELETE FROM links WHERE number = (SELECT MAX(number) FROM links)",
        "UPDATE balances SET balance_nano = 0 WHERE account = 'provider_cost'",
        "UPDATE balances SET balance_nano = balance_nano - 9 WHERE account = 'funding'",
    )
    assert (await kept.verify()).clean
    (problem,) = (await kept.verify(noted)).problems
    assert f"anchor at entry {noted[-1].entry}" in problem
    assert (await kept.verify([Anchor(entry=noted[0].entry, hash="0" * 64)])).problems


async def test_a_clock_set_back_begins_no_day_anew(kept: SqliteStore) -> None:
    await kept.commit_journal([settled("r9", 1)], "a.journal", 4, NOW - 40 * DAY)
    days = [int(anchor.at // DAY) for anchor in await kept.anchors()]
    assert len(days) == 2
    assert (await kept.verify()).clean


async def test_other_tools_can_recompute_it(kept: SqliteStore) -> None:
    """As docs/ledger.md says, with nothing of ours."""
    with closing(sqlite3.connect(kept.path)) as outside:
        previous, last = bytes(32), 0
        usage = outside.execute("SELECT row FROM usage ORDER BY id")
        for entry, rows, at, usage_hash, expected in outside.execute(
            "SELECT last_entry, usage_rows, at, usage_hash, hash FROM links ORDER BY number"
        ).fetchall():
            told = b"".join(row.encode() + b"\n" for (row,) in usage.fetchmany(rows)) if rows else b""
            assert hashlib.sha256(told).digest() == usage_hash
            entries = outside.execute(
                "SELECT reference, kind, attempt, debit, credit, amount_nano, at, request_id, note FROM entries"
                " WHERE id > ? AND id <= ? ORDER BY id",
                (last, entry),
            ).fetchall()
            text = json.dumps(
                [entry, at, usage_hash.hex(), entries], separators=(",", ":"), ensure_ascii=False
            )
            assert hashlib.sha256(previous + text.encode()).digest() == expected
            previous, last = expected, entry


async def test_a_store_from_before_the_chain_gets_one_link_over_all_it_has(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as outside:
        outside.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY)")
        for statement in MIGRATIONS[0]:
            outside.execute(statement.format_map(WORDS))
        outside.execute("INSERT INTO migrations VALUES (0)")
        outside.execute("INSERT INTO accounts VALUES ('dev', 0, 1.0)")
        outside.execute("INSERT INTO balances VALUES ('customer:dev', 5)")
        outside.execute("UPDATE balances SET balance_nano = -5 WHERE account = 'funding'")
        outside.execute(
            "INSERT INTO entries VALUES (1, 'b', 'bootstrap', 0, 'funding', 'customer:dev', 5, 1.0)"
        )
        outside.commit()
    store = SqliteStore(path)
    await store.open()
    await store.commit_journal([settled("r1", 3)], "a.journal", 1, NOW)
    report = await store.verify()
    assert (report.problems, report.links) == ([], 2)
    damage(store, "UPDATE entries SET at = 2.0 WHERE reference = 'b'")
    assert (await store.verify()).problems
    await store.close()
