"""Records that are gathered and written at once: all of them or told, in their order, and each owner told once."""

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sluicegate.billing.ledger import Record, Reserved, Settled
from sluicegate.errors import StoreUnavailable
from sluicegate.server import journal
from sluicegate.server.journal import JournalWriter
from sluicegate.server.journal_reader import Segment, segments
from tests.records import lost_attempt, reserved, settled
from tests.server.journal_world import begin_journal, ids, kill, read_all, read_folder, until


def failed_disk() -> OSError:
    """Return a new error each time: one that is kept keeps all that stood on the stack, and their connections."""
    return OSError(errno.EIO, os.strerror(errno.EIO))


class Owner:
    """Who waits for one record, and what it was told."""

    def __init__(self, writer: JournalWriter, told: list[str], name: str) -> None:
        self._path = writer.path
        self._told = told
        self._name = name

    def written(self) -> None:
        """By now the record is in the file."""
        segment = Segment(self._path)
        assert self._name in ids(read_all(segment))
        segment.close()
        self._told.append(self._name)

    def unwritten(self, error: StoreUnavailable) -> None:
        """It is not, and never was."""
        self._told.append(f"not {self._name}")


class Faulty:
    """An owner with a fault."""

    def written(self) -> None:
        raise RuntimeError("written")

    def unwritten(self, error: StoreUnavailable) -> None:
        raise RuntimeError("unwritten")


def gather(writer: JournalWriter, told: list[str], *records: Reserved | Settled) -> None:
    """Have records written together, and what their owners are told put down."""
    for record in records:
        writer.gather(record, Owner(writer, told, record.request_id))


def fail_writes(monkeypatch: pytest.MonkeyPatch, outcomes: Iterable[int | OSError | None]) -> None:
    """Have the next writes end so: cut after so many bytes, failed, or (None) whole; all that follow are whole."""
    real, left = os.pwrite, iter(outcomes)

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        outcome = next(left, None)
        if isinstance(outcome, OSError):
            raise outcome
        return real(fd, data if outcome is None else bytes(data)[:outcome], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)


def size_of(record: Record, folder: Path) -> int:
    """Return how long a record's frame is."""
    writer = begin_journal(folder)
    before = writer.end
    writer.append(record)
    writer.close()
    return writer.end - before


async def test_gathered_records_are_written_at_once_in_the_loops_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    real = os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        writes.append(len(data))
        return real(fd, data, offset)

    writer, told = begin_journal(tmp_path), list[str]()
    monkeypatch.setattr(os, "pwrite", pwrite)
    gather(writer, told, *(reserved(f"r{number}") for number in range(20)))
    assert (told, writes, bool(writer._gathered), writer.pending) == ([], [], True, 0)
    await asyncio.sleep(0)
    assert told == [f"r{number}" for number in range(20)]
    assert (len(writes), bool(writer._gathered), writer.pending) == (1, False, 20)
    gather(writer, told, *(settled(f"r{number}", 1) for number in range(20)))
    writer.write_gathered()
    assert (len(writes), writer.pending) == (2, 0)
    await asyncio.sleep(0)
    assert len(told) == 40
    assert len(writes) == 2
    writer.close()
    assert ids(read_folder(tmp_path)) == told


async def test_what_is_appended_comes_after_what_was_gathered_before(tmp_path: Path) -> None:
    writer, told = begin_journal(tmp_path), list[str]()
    gather(writer, told, reserved("r1"), reserved("r2"))
    writer.append(lost_attempt("r2"))
    assert told == ["r1", "r2"]
    gather(writer, told, settled("r1", 1))
    writer.append(settled("r2", 1))
    assert writer.pending == 0
    writer.close()
    assert ids(read_folder(tmp_path)) == ["r1", "r2", "r2", "r1", "r2"]


async def test_a_write_that_fails_leaves_nothing_and_every_owner_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, told = begin_journal(tmp_path), list[str]()
    writer.append(reserved("old"))
    end = writer.end
    fail_writes(monkeypatch, [failed_disk()])
    gather(writer, told, reserved("r1"), settled("old", 1), reserved("r2"))
    await asyncio.sleep(0)
    assert told == ["not r1", "not old", "not r2"]
    assert (writer.end, writer.pending, bool(writer._gathered), writer.failed) == (end, 1, False, False)
    gather(writer, told, settled("old", 1), reserved("r3"))
    await asyncio.sleep(0)
    assert told[3:] == ["old", "r3"]
    assert writer.pending == 1
    writer.close()
    assert ids(read_folder(tmp_path)) == ["old", "old", "r3"]


@pytest.mark.parametrize("undone", [True, False], ids=["undone", "not undone"])
@pytest.mark.parametrize(
    ("whole", "beyond"),
    [(0, 0), (0, 1), (0, 20), (1, -20), (1, 0), (1, 1), (1, 20), (2, -20), (2, 0), (2, 1), (2, 20), (3, -20)],
)
async def test_of_a_write_that_was_cut_what_a_reader_may_have_seen_stays(
    beyond: int, whole: int, undone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record whose owner hears that it was not written is never seen, not for a moment: it would be charged."""
    records = [reserved("r1"), settled("r2", 2), reserved("r3")]
    sizes = [size_of(record, tmp_path / "measured") for record in records]
    cut = sum(sizes[:whole]) + beyond
    whole = max(count for count in range(4) if sum(sizes[:count]) <= cut)
    writer, told = begin_journal(tmp_path / "journal"), list[str]()
    reader = Segment(writer.path)
    seen: list[Record] = []
    real, calls = os.pwrite, 0

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            real(fd, bytes(data)[:cut], offset)
            seen.extend(read_all(reader))
            return cut
        if calls == 2 and cut > sum(sizes[:whole]) and not undone:
            raise failed_disk()
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    gather(writer, told, *records)
    await asyncio.sleep(0)
    assert told == [("" if at < whole else "not ") + f"r{at + 1}" for at in range(3)]
    assert seen == records[:whole]
    assert writer.pending == sum(isinstance(record, Reserved) for record in records[:whole])
    gather(writer, told, settled("r4", 4), settled("r5", 5))
    await asyncio.sleep(0)
    seen += read_all(reader)
    assert ids(seen) == [*(f"r{at + 1}" for at in range(whole)), "r4", "r5"]
    assert reader.damaged_bytes == 0
    reader.close()
    writer.close()


async def test_a_disk_that_fails_to_sync_while_records_are_gathered_takes_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "RENEW_S", (0.01,))
    writer, told = begin_journal(tmp_path), list[str]()
    writer.append(reserved("open"))
    gather(writer, told, reserved("r1"), settled("open", 1))
    writer._fail(failed_disk())
    await asyncio.sleep(0)
    assert told == ["not r1", "not open"]
    with pytest.raises(StoreUnavailable, match="disk failed"):
        gather(writer, told, reserved("r2"))
    assert not writer._gathered
    await until(lambda: not writer.failed)
    assert writer.pending == 1
    gather(writer, told, settled("open", 1))
    await asyncio.sleep(0)
    assert told == ["not r1", "not open", "open"]
    writer.close()
    assert ids(read_folder(tmp_path)) == [
        "open",
        "open",
        "open",
    ]  # in the old segment, and the new one's head


async def test_a_segment_that_gathered_records_fill_hands_on_what_is_open_of_them(tmp_path: Path) -> None:
    writer, told = begin_journal(tmp_path, segment_bytes=4000), list[str]()
    records = [record for n in range(12) for record in (reserved(f"open{n}"), reserved(f"r{n}"))]
    gather(writer, told, *records, *(settled(f"r{n}", 1) for n in range(12)))
    await asyncio.sleep(0)
    assert len(told) == 36
    assert writer.pending == 12
    (_, name) = segments(tmp_path)
    new = Segment(tmp_path / str(name))
    assert ids(read_all(new)) == [f"open{n}" for n in range(12)]
    gather(writer, told, *(settled(f"open{n}", 1) for n in range(12)))
    await asyncio.sleep(0)
    assert ids(read_all(new)) == [f"open{n}" for n in range(12)]
    assert writer.pending == 0
    new.close()
    writer.close()


async def test_closing_writes_what_was_gathered(tmp_path: Path) -> None:
    writer, told = begin_journal(tmp_path), list[str]()
    gather(writer, told, reserved("r1"), settled("r1", 1))
    writer.close()
    assert told == ["r1", "r1"]
    await asyncio.sleep(0)
    assert len(told) == 2
    gather(writer, told, reserved("r2"))
    await asyncio.sleep(0)
    assert told[2:] == ["not r2"]
    assert ids(read_folder(tmp_path)) == ["r1", "r1"]


async def test_what_was_only_gathered_dies_with_its_process(tmp_path: Path) -> None:
    writer, told = begin_journal(tmp_path), list[str]()
    writer.append(reserved("r1"))
    gather(writer, told, settled("r1", 1))
    kill(writer)
    await asyncio.sleep(0)
    assert told == ["not r1"]
    assert [type(record) for record in read_folder(tmp_path)] == [Reserved]


@pytest.mark.parametrize("written", [True, False])
async def test_an_owner_with_a_fault_holds_up_nobody_else(
    written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer, told = begin_journal(tmp_path), list[str]()
    if not written:
        fail_writes(monkeypatch, [failed_disk()])
    gather(writer, told, reserved("r1"))
    writer.gather(reserved("r2"), Faulty())
    gather(writer, told, reserved("r3"))
    await asyncio.sleep(0)
    assert told == (["r1", "r3"] if written else ["not r1", "not r3"])
    assert "the owner of a record" in caplog.text
    writer.close()


async def test_a_full_disk_refuses_reservations_that_are_gathered_and_takes_settlements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0

    class Counting:
        def written(self) -> None:
            nonlocal written
            written += 1

        def unwritten(self, error: StoreUnavailable) -> None:
            raise AssertionError(error)

    writer = begin_journal(tmp_path)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def allocate(fd: int, start: int, size: int) -> None:
        raise full

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    taken = 0

    def fill() -> None:
        nonlocal taken
        while True:
            writer.gather(reserved(f"r{taken}"), Counting())
            taken += 1

    with pytest.raises(StoreUnavailable, match="cannot grow"):
        fill()
    assert taken > 1000
    for number in range(taken):
        writer.gather(settled(f"r{number}", 1), Counting())
    writer.write_gathered()
    assert written == 2 * taken
    assert writer.pending == 0
    writer.close()


async def test_an_owner_may_write_as_it_is_told(tmp_path: Path) -> None:
    writer, told = begin_journal(tmp_path), list[str]()

    class Writing(Owner):
        def written(self) -> None:
            super().written()
            then()

    def chained(name: str, do: Callable[[], None]) -> None:
        nonlocal then
        then = do
        writer.gather(reserved(name), Writing(writer, told, name))

    then: Callable[[], None]
    chained("r1", lambda: writer.append(settled("r1", 1)))
    gather(writer, told, reserved("r2"))
    await asyncio.sleep(0)
    chained("r3", lambda: gather(writer, told, settled("r2", 1)))
    writer.write_gathered()
    await asyncio.sleep(0)
    assert told == ["r1", "r2", "r3", "r2"]
    assert writer.pending == 1
    writer.close()
    assert ids(read_folder(tmp_path)) == ["r1", "r2", "r1", "r3", "r2"]
