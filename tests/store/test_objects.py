"""What providers keep for accounts: jobs that are booked once, and lists of an account's own."""

from sluicegate.billing.ledger import HandedOver, Job, JobEnd, KeptObject, Record, settle_job
from sluicegate.store import ObjectQuery
from sluicegate.store.sqlite import SqliteStore
from tests.records import make_row, reserved
from tests.store.world import NOW, balance


def job(request_id: str, amount_nano: int = 500) -> HandedOver:
    made = make_row(request_id)
    kept = KeptObject(
        kind="video",
        provider="sim",
        upstream_id=f"video_{request_id}",
        account_id=made.account_id,
        created_at=NOW,
        told=b'{"status":"queued"}',
        job=Job(row=made, amount_nano=amount_nano, prepaid=True),
        open=True,
    )
    return HandedOver(request_id=request_id, account_id=made.account_id, object=kept)


async def test_x6_a_job_is_taken_over_once_and_booked_once(store: SqliteStore) -> None:
    batch: list[Record] = [reserved("r1"), job("r1")]
    first = await store.commit_journal(batch, "a.journal", 10, NOW)
    assert [record.request_id for record in first.handed_over] == ["r1"]
    again = await store.commit_journal(batch, "b.journal", 10, NOW)
    assert again.handed_over == []
    (kept,) = await store.open_jobs()
    assert kept.job is not None
    settled = settle_job(kept.job, JobEnd(status="ok", list_cost_nano_usd=700), 500, NOW)
    assert (settled.row.cost_nano_usd, settled.row.shortfall_nano_usd) == (500, 200)
    booked = await store.end_job(settled, b"{}", [], NOW)
    assert (booked.charged, booked.shortfall) == ({"dev": 500}, {"dev": 200})
    assert (await store.end_job(settled, b"{}", [], NOW)).last is None
    assert await balance(store) == 1_000_000 - 500
    assert await store.open_jobs() == []
    assert (await store.verify()).clean


async def test_jobs_are_due_when_they_were_postponed_to(store: SqliteStore) -> None:
    await store.commit_journal([job("r1"), job("r2")], "a.journal", 10, NOW)
    await store.postpone_job("r1", b'{"status":"in_progress"}', NOW + 60)
    assert [kept.upstream_id for kept in await store.open_jobs(NOW)] == ["video_r2"]
    (later, _) = sorted(await store.open_jobs(NOW + 60), key=lambda kept: kept.upstream_id)
    assert later.told == b'{"status":"in_progress"}'


async def test_an_open_job_is_neither_dropped_nor_forgotten(store: SqliteStore) -> None:
    await store.commit_journal([job("r1")], "a.journal", 10, NOW)
    (kept,) = await store.open_jobs()
    assert not await store.drop_object(kept)
    await store.expire_objects(NOW + 1e9)
    assert len(await store.open_jobs()) == 1


async def test_lists_are_an_accounts_own_and_go_on_after_a_row(store: SqliteStore) -> None:
    await store.commit_journal([job("r1"), job("r2"), job("r3")], "a.journal", 10, NOW)
    query = ObjectQuery(account_id="dev", kind="video", limit=2)
    page = await store.find_objects(query)
    assert [kept.upstream_id for kept in page] == ["video_r3", "video_r2"]
    after = ObjectQuery(account_id="dev", kind="video", limit=2, after=page[-1].number)
    assert [kept.upstream_id for kept in await store.find_objects(after)] == ["video_r1"]
    assert await store.find_objects(ObjectQuery(account_id="other", kind="video", limit=2)) == []
