"""From journals into the store: once, in order, past failures, deaths and restarts of everything."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from sluicegate.errors import StoreUnavailable
from sluicegate.server.drain import Committed, JournalDrain
from sluicegate.server.journal_reader import COMMIT_BYTES, PIECE_BYTES, segments
from sluicegate.server.journal_segment import frame
from sluicegate.store import UsageQuery
from sluicegate.store.sqlite import SqliteStore
from tests.records import checkpoint, lost_attempt, reserved, settled
from tests.server.journal_world import FaultyStore, begin_journal, kill
from tests.store.world import add_account, balance

CREDIT = 1_000_000_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A store whose account `dev` has credit."""
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    await add_account(store, "dev", CREDIT)
    yield store
    await store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal folder."""
    path = tmp_path / "journal"
    path.mkdir()
    return path


@contextlib.contextmanager
def draining(folder: Path, store: SqliteStore | FaultyStore, log: list[Committed] | None = None):  # type: ignore[no-untyped-def]
    drain = JournalDrain(folder, store, [].append if log is None else log.append)  # type: ignore[arg-type]
    try:
        yield drain
    finally:
        drain.close()


async def statuses(store: SqliteStore) -> dict[str, str]:
    return {row.request_id: row.status async for row in store.usage(UsageQuery())}


async def test_settlements_are_committed_while_the_worker_lives(folder: Path, store: SqliteStore) -> None:
    writer = begin_journal(folder, worker=7)
    log: list[Committed] = []
    with draining(folder, store, log) as drain:
        writer.append(reserved("r1"))
        assert await drain.drain() == 1
        assert log == []
        writer.append(settled("r1", 30))
        writer.append(lost_attempt("r2", 1, 5))
        assert await drain.drain() == 2
        assert await drain.drain() == 0
        (committed,) = log
        assert (committed.worker, committed.pid, committed.ended) == (7, os.getpid(), False)
        assert (committed.result.charged, committed.result.settled) == ({"dev": 30}, 1)
        assert await balance(store) == CREDIT - 30
        assert writer.path.exists()
        writer.close()


async def test_what_is_read_a_piece_at_a_time_is_one_commit(folder: Path, store: SqliteStore) -> None:
    writer = begin_journal(folder)
    long = settled("long", 30)
    long.row.error = "x" * (3 * PIECE_BYTES)
    records = [settled(f"r{number}", 30) for number in range(300)]
    for record in (*records[:150], long, *records[150:]):
        writer.append(reserved(record.request_id))
        writer.append(record)
    log: list[Committed] = []
    with draining(folder, store, log) as drain:
        assert await drain.drain() == 602
        assert [committed.result.settled for committed in log] == [301]
        assert await store.journal_offsets() == {writer.path.name: writer.end}
        writer.close()
    assert await balance(store) == CREDIT - 301 * 30
    assert (await store.verify()).clean


async def test_no_commit_takes_more_than_its_share(folder: Path, store: SqliteStore) -> None:
    writer = begin_journal(folder)
    for number in range(250):
        long = settled(f"r{number}", 1)
        long.row.error = "x" * (COMMIT_BYTES // 100)
        writer.append(long)
    log: list[Committed] = []
    with draining(folder, store, log) as drain:
        assert await drain.drain() == 250
        writer.close()
    assert len(log) == 3
    assert sum(committed.result.settled for committed in log) == 250
    assert await balance(store) == CREDIT - 250


async def test_what_grows_between_two_tries_of_a_commit_is_booked_once(
    folder: Path, store: SqliteStore
) -> None:
    """Records are read anew where some were booked before; by then there may be more of them."""
    writer = begin_journal(folder)
    faulty = FaultyStore(store)
    faulty.answers_lost = 1
    with draining(folder, faulty) as drain:
        writer.append(settled("r1", 30))
        with pytest.raises(StoreUnavailable):
            await drain.drain()
        for number in range(2, 100):
            writer.append(settled(f"r{number}", 30))
        assert await drain.drain() == 99
        assert await store.journal_offsets() == {writer.path.name: writer.end}
        writer.close()
    assert await balance(store) == CREDIT - 99 * 30
    assert (await store.verify()).clean


async def test_a_journal_that_ended_is_removed_and_its_worker_told(folder: Path, store: SqliteStore) -> None:
    writer = begin_journal(folder, worker=7)
    writer.append(reserved("r1"))
    writer.append(settled("r1", 30))
    writer.close()
    log: list[Committed] = []
    with draining(folder, store, log) as drain:
        await drain.drain()
        assert [committed.ended for committed in log] == [False, True]
        assert os.listdir(folder) == []
        await drain.drain()
        assert await store.journal_offsets() == {}
        assert drain.recovered == 0


async def test_what_a_dead_worker_left_is_resolved_by_the_crash_rules(
    folder: Path, store: SqliteStore
) -> None:
    writer = begin_journal(folder)
    for record in (
        reserved("plain", 100),
        reserved("produced", 100, on_crash="produced"),
        checkpoint("produced", 40),
        checkpoint("produced", 60),
        reserved("finished", 100),
        checkpoint("finished", 80, finished=True),
        reserved("done", 100),
        settled("done", 90),
    ):
        writer.append(record)
    log: list[Committed] = []
    with draining(folder, store, log) as drain:
        await drain.drain()
        kill(writer)
        await drain.drain()
        assert drain.recovered == 3
        assert log[-1].ended
    assert await statuses(store) == {
        "plain": "interrupted",
        "produced": "interrupted",
        "finished": "ok",
        "done": "ok",
    }
    assert await balance(store) == CREDIT - 60 - 80 - 90
    assert (await store.verify()).clean
    assert os.listdir(folder) == []


async def test_finished_segments_go_while_their_worker_lives(folder: Path, store: SqliteStore) -> None:
    writer = begin_journal(folder, segment_bytes=5000)
    writer.append(reserved("open", 100, on_crash="produced"))
    writer.append(checkpoint("open", 77))
    with draining(folder, store) as drain:
        for number in range(40):
            writer.append(reserved(f"r{number}"))
            writer.append(settled(f"r{number}", 1))
            if number % 7 == 0:
                await asyncio.sleep(0.02)
                await drain.drain()
        await asyncio.sleep(0.05)
        await drain.drain()
        await drain.drain()
        assert [name.number for name in segments(folder)] == [writer_number(writer.path)]
        assert set(await store.journal_offsets()) <= {writer.path.name}
        kill(writer)
        await drain.drain()
        assert drain.recovered == 1
    assert await balance(store) == CREDIT - 40 - 77
    assert os.listdir(folder) == []


def writer_number(path: Path) -> int:
    return int(path.stem.split("-")[-1])


async def test_a_rotation_while_the_drain_looks_is_no_death(folder: Path, store: SqliteStore) -> None:
    faulty = FaultyStore(store)
    writer = begin_journal(folder, segment_bytes=3000)
    writer.append(reserved("open", 100))
    begin_journal(folder, worker=2).close()

    async def rotate() -> None:
        while writer_number(writer.path) == 0:
            writer.append(lost_attempt("open", writer.end))
        await asyncio.sleep(0.05)  # until the old segment is on the disk, and its lock free

    with draining(folder, faulty) as drain:
        await drain.drain()
        faulty.on_forget = rotate
        await drain.drain()
        assert writer_number(writer.path) == 1
        assert drain.recovered == 0
        await drain.drain()
        writer.append(settled("open", 50))
        writer.close()
        await drain.drain()
        assert drain.recovered == 0
    assert await statuses(store) == {"open": "ok"}
    assert os.listdir(folder) == []


async def test_x6_a_store_that_fails_loses_and_repeats_nothing(folder: Path, store: SqliteStore) -> None:
    faulty = FaultyStore(store)
    writer = begin_journal(folder)
    with draining(folder, faulty) as drain:
        for number in range(30):
            writer.append(settled(f"r{number}", 10))
            faulty.down = number % 3 == 0
            faulty.answers_lost = number % 2
            with contextlib.suppress(StoreUnavailable):
                await drain.drain()
        faulty.down, faulty.answers_lost = False, 0
        writer.append(reserved("open"))
        kill(writer)
        faulty.answers_lost = 2
        for _ in range(3):
            with contextlib.suppress(StoreUnavailable):
                await drain.drain()
        await drain.drain()
    assert await balance(store) == CREDIT - 300
    assert len(await statuses(store)) == 31
    assert (await store.verify()).clean
    assert os.listdir(folder) == []


async def test_the_running_drain_comes_when_woken_and_waits_for_the_store(
    folder: Path, store: SqliteStore
) -> None:
    faulty = FaultyStore(store)
    writer = begin_journal(folder)
    drain = JournalDrain(folder, faulty, drain_every_s=30)  # type: ignore[arg-type]
    running = asyncio.create_task(drain.run())
    await asyncio.sleep(0.1)
    writer.append(settled("r1", 10))
    drain.wake()
    await until(store, {"r1"})
    faulty.down = True
    writer.append(settled("r2", 10))
    drain.wake()
    await asyncio.sleep(0.1)
    assert await statuses(store) == {"r1": "ok"}
    faulty.down = False
    drain.wake()
    await until(store, {"r1", "r2"})
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    drain.close()
    writer.close()


async def until(store: SqliteStore, wanted: set[str]) -> None:
    async with asyncio.timeout(5):
        while set(await statuses(store)) != wanted:
            await asyncio.sleep(0.01)


async def test_nothing_is_committed_while_paused(folder: Path, store: SqliteStore) -> None:
    writer = begin_journal(folder)
    with draining(folder, store) as drain:
        async with drain.paused():
            writer.append(settled("r1", 10))
            running = asyncio.create_task(drain.drain())
            await asyncio.sleep(0.05)
            assert await balance(store) == CREDIT
        await running
        assert await balance(store) == CREDIT - 10
    writer.close()


async def test_a_restart_goes_on_where_the_last_commit_was(folder: Path, store: SqliteStore) -> None:
    writer = begin_journal(folder)
    writer.append(reserved("r1"))
    writer.append(settled("r1", 10))
    writer.append(reserved("r2"))
    with draining(folder, store) as drain:
        await drain.drain()
    writer.append(settled("r2", 20))
    writer.append(reserved("r3"))
    kill(writer)
    log: list[Committed] = []
    with draining(folder, store, log) as drain:
        await drain.recover()
        assert drain.recovered == 1
    assert sum(committed.result.repeated for committed in log) == 0
    assert await balance(store) == CREDIT - 30
    assert os.listdir(folder) == []


async def test_damage_is_counted_and_kept_for_the_operator(folder: Path, store: SqliteStore) -> None:
    writer = begin_journal(folder)
    writer.append(settled("r1", 10))
    start = writer.end
    writer.append(settled("r2", 10))
    writer.append(settled("r3", 10))
    path = kill(writer)
    with open(path, "r+b") as file:
        file.seek(start + 40)
        file.write(b"\xff\xff")
    with draining(folder, store) as drain:
        await drain.recover()
        assert drain.damaged_bytes > 100
    assert set(await statuses(store)) == {"r1", "r3"}
    assert [name.endswith(".bad") for name in os.listdir(folder)] == [True]


async def test_x6_what_another_version_wrote_is_kept_and_everything_around_it_booked(
    folder: Path, store: SqliteStore
) -> None:
    writer = begin_journal(folder)
    writer.append(settled("r1", 30))
    strange = frame(
        writer._name.marker, msgspec.msgpack.encode({"type": "from_tomorrow", "request_id": "r2"})
    )
    writer._write(bytearray(strange), len(strange))
    for number in range(3, 80):
        writer.append(reserved(f"r{number}"))
        writer.append(settled(f"r{number}", 30))
    with draining(folder, store) as drain:
        await drain.drain()
        assert drain.damaged_bytes == len(strange)
        writer.append(settled("later", 5))
        await drain.drain()
        assert drain.damaged_bytes == len(strange)
    writer.close()
    assert sorted(await statuses(store)) == sorted(["r1", *(f"r{n}" for n in range(3, 80)), "later"])
    assert await balance(store) == CREDIT - 78 * 30 - 5
    (kept,) = folder.glob("*.bad")
    assert kept.read_bytes() == strange
    assert (await store.verify()).clean


async def test_offsets_of_segments_that_are_gone_are_forgotten(folder: Path, store: SqliteStore) -> None:
    await store.commit_journal([], "gone.journal", 5, 1.0)
    with draining(folder, store) as drain:
        await drain.recover()
    assert await store.journal_offsets() == {}


# Processes

WORKER = """
import asyncio, os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from tests.records import checkpoint, reserved, settled
from tests.server.journal_world import begin_journal

async def main():
    writer = begin_journal(Path(sys.argv[1]), worker=int(sys.argv[2]), segment_bytes=100_000)
    out = sys.stdout.fileno()
    number = 0
    while True:
        request_id = f"{{sys.argv[2]}}-{{number}}"
        writer.append(reserved(request_id))
        if number % 10 == 0:
            writer.append(reserved(request_id + "-open"))
        writer.append(settled(request_id, 3))
        os.write(out, request_id.encode() + b"\\n")
        number += 1
        if number % 10 == 0:
            await asyncio.sleep(0.001)

asyncio.run(main())
"""


@pytest.fixture
def start_worker(folder: Path) -> Iterator[Callable[[int], "subprocess.Popen[bytes]"]]:
    """Start processes that write journals; those that are left at the end of the test are killed."""
    root = Path(__file__).parents[2]
    script = WORKER.format(path=[str(root), str(root / "src")])
    started: list[subprocess.Popen[bytes]] = []

    def start(number: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", script, str(folder), str(number)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for worker in started:
        with worker:
            worker.kill()


async def test_x6_kill_9_loses_no_settled_charge_and_charges_nothing_twice(
    folder: Path, store: SqliteStore, start_worker: Callable[[int], "subprocess.Popen[bytes]"]
) -> None:
    rng = random.Random(11)
    confirmed: set[str] = set()
    for round_number in range(3):
        workers = [start_worker(10 * round_number + slot) for slot in range(2)]
        for worker in workers:
            assert worker.stdout is not None
            confirmed.add(worker.stdout.readline().decode().strip())
        with draining(folder, store) as drain:
            for worker in workers:
                await asyncio.sleep(rng.random() * 0.1)
                await drain.drain()
                worker.send_signal(signal.SIGKILL)
                output, _ = worker.communicate()
                confirmed.update(output.decode().split("\n")[:-1])
                if rng.random() < 0.5:
                    await drain.drain()
        with draining(folder, store) as drain:
            await drain.recover()
        assert [name for name in os.listdir(folder) if name.endswith(".journal")] == []
    found = await statuses(store)
    charged = [request_id for request_id, status in found.items() if status == "ok"]
    assert confirmed <= set(charged)
    assert len(charged) - len(confirmed) <= 8  # those whose confirmation the kill cut off
    assert await balance(store) == CREDIT - 3 * len(charged)
    opened = [request_id + "-open" for request_id in confirmed if request_id.endswith("0")]
    assert opened
    assert {found[request_id] for request_id in opened} == {"interrupted"}
    assert (await store.verify()).clean


async def test_a_worker_that_outlives_its_supervisor_is_killed_before_recovery(
    folder: Path, store: SqliteStore, start_worker: Callable[[int], "subprocess.Popen[bytes]"]
) -> None:
    worker = start_worker(1)
    assert worker.stdout is not None
    worker.stdout.readline()
    with draining(folder, store) as drain:
        await drain.recover(lock_wait_s=0.2)
    assert worker.wait(timeout=5) == -signal.SIGKILL
    assert (await store.verify()).clean


async def test_a_writer_that_may_be_another_process_is_not_killed(folder: Path, store: SqliteStore) -> None:
    writer = begin_journal(folder)  # of this very process, which recovery must not kill
    with (
        draining(folder, store) as drain,
        pytest.raises(StoreUnavailable, match="not known to be our worker"),
    ):
        await drain.recover(lock_wait_s=0.1)
    writer.close()
