"""Idempotency keys in the store: one claim a name, for a day, within bounds, and none left by the dead."""

import pytest

from sluicegate.billing.claims import KEPT_S, Claim, KeptAnswer
from sluicegate.store import claims
from sluicegate.store.sqlite import SqliteStore
from tests.records import settled
from tests.store.world import NOW

ANSWER = KeptAnswer(b"x: y\r\n", b"{}")


def claim(request_id: str, name: str = "n", asked: str = "a", key_id: str = "k") -> Claim:
    return Claim(key_id=key_id, name=name.encode(), asked=asked.encode(), request_id=request_id)


async def standing(store: SqliteStore, wanted: Claim, at: float = NOW, worker: int = 1) -> tuple[str, str]:
    verdict = await store.make_claim(wanted, worker, at)
    return verdict.standing, verdict.request_id


async def test_from_new_over_running_to_done(store: SqliteStore) -> None:
    assert await standing(store, claim("r1")) == ("new", "r1")
    assert await standing(store, claim("r2")) == ("running", "r1")
    assert await standing(store, claim("r2", asked="b")) == ("other", "r1")
    assert await standing(store, claim("r3", key_id="k2")) == ("new", "r3")
    await store.end_claim(claim("r1"), True, ANSWER)
    verdict = await store.make_claim(claim("r4"), 1, NOW)
    assert (verdict.standing, verdict.request_id, verdict.answer) == ("done", "r1", ANSWER)


async def test_what_was_as_if_not_made_is_free_again(store: SqliteStore) -> None:
    await standing(store, claim("r1"))
    await store.end_claim(claim("r1"), False, None)
    assert await standing(store, claim("r2")) == ("new", "r2")
    await store.end_claim(claim("r1"), False, None)  # late, and about another request
    assert await standing(store, claim("r3")) == ("running", "r2")


async def test_it_stands_for_a_day(store: SqliteStore) -> None:
    await standing(store, claim("r1"))
    await store.end_claim(claim("r1"), True, ANSWER)
    assert (await standing(store, claim("r2"), NOW + KEPT_S - 1))[0] == "done"
    assert (await standing(store, claim("r2"), NOW - 5))[0] == "done"  # the clock was set back
    assert await standing(store, claim("r2"), NOW + KEPT_S) == ("new", "r2")


@pytest.mark.parametrize(
    ("cost", "status", "expected"),
    [(5, "ok", "done"), (5, "client_closed", "done"), (0, "interrupted", "new")],
)
async def test_where_nobody_noted_the_end_the_row_tells(
    store: SqliteStore, cost: int, status: str, expected: str
) -> None:
    await standing(store, claim("r1"))
    record = settled("r1", cost)
    record.row.status = status
    await store.commit_journal([record], "a.journal", 1, NOW)
    await store.release_claims(1)
    assert (await standing(store, claim("r2"), NOW + 60))[0] == expected


async def test_an_end_that_is_being_noted_is_waited_for(store: SqliteStore) -> None:
    await standing(store, claim("r1"))
    await store.commit_journal([settled("r1", 5, started_at=NOW)], "a.journal", 1, NOW)
    assert await standing(store, claim("r2"), NOW + 0.1) == ("running", "r1")
    await store.end_claim(claim("r1"), True, ANSWER)
    verdict = await store.make_claim(claim("r2"), 1, NOW + 0.2)
    assert (verdict.standing, verdict.answer) == ("done", ANSWER)


async def test_the_dead_leave_no_claims(store: SqliteStore) -> None:
    for number in (1, 2):
        await standing(store, claim(f"r{number}", name=f"n{number}"), worker=number)
    await store.release_claims(1)
    assert (await standing(store, claim("r3", name="n1")))[0] == "new"
    assert (await standing(store, claim("r3", name="n2")))[0] == "running"
    await store.release_claims(None)
    assert (await standing(store, claim("r3", name="n2")))[0] == "new"


async def test_it_is_bounded(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "MAX_CLAIMS", 6)
    monkeypatch.setattr(claims, "MAX_ANSWERS_BYTES", 5)
    for number in range(9):
        wanted = claim(f"r{number}", name=f"n{number}")
        await standing(store, wanted, NOW + number)
        if number != 0:
            await store.end_claim(wanted, True, ANSWER)
    await store.prune_claims(NOW + 9)

    async def known(number: int) -> tuple[str, bool]:
        verdict = await store.make_claim(claim("x", name=f"n{number}"), 1, NOW + 9)
        return verdict.standing, verdict.answer is not None

    assert await known(0) == ("running", False)  # a running one stays, however old
    assert [await known(number) for number in (4, 6, 7, 8)] == [
        ("done", False),
        ("done", False),
        ("done", True),
        ("done", True),
    ]
    assert (await known(3))[0] == "new"
    await store.prune_claims(NOW + 4 + KEPT_S)
    assert (await known(4))[0] == "new"
    assert (await known(8))[0] == "done"
