"""The writer: whole records or none, room for settlements on a full disk, and who waits for the disk."""

import asyncio
import contextlib
import errno
import os
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import StoreUnavailable
from sluicegate.server import journal
from sluicegate.server.journal import TAIL_BYTES, JournalWriter
from sluicegate.server.journal_reader import Segment, segments
from sluicegate.server.journal_segment import SegmentName, checksum_before
from tests.records import checkpoint, extended, lost_attempt, reserved, settled
from tests.server.journal_world import append_synced, begin_journal, ids, kill, read_all, read_folder, until

ALL_KINDS = [reserved("r1"), extended("r1", 5), checkpoint("r1", 7), lost_attempt("r1"), settled("r1", 9)]


async def test_what_is_appended_can_be_read_at_once(tmp_path: Path) -> None:
    writer = begin_journal(tmp_path)
    segment = Segment(writer.path)
    for record in ALL_KINDS:
        writer.append(record)
        assert read_all(segment) == [record]
    assert writer.pending == 0
    segment.close()
    writer.close()


async def test_a_journal_names_its_process_and_is_locked_while_that_lives(tmp_path: Path) -> None:
    writer = begin_journal(tmp_path / "new", worker=12345)
    (name,) = segments(tmp_path / "new")
    assert (name.worker, name.pid, name.number) == (12345, os.getpid(), 0)
    segment = Segment(writer.path)
    assert segment.header is not None
    assert (segment.header.worker, segment.header.pid) == (12345, os.getpid())
    assert segment.header.started is not None
    assert not segment.try_lock()
    writer.close()
    assert segment.try_lock()
    segment.close()


async def test_journals_are_their_owners_alone(tmp_path: Path) -> None:
    writer = begin_journal(tmp_path / "new")
    assert stat.S_IMODE(os.stat(tmp_path / "new").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(writer.path).st_mode) == 0o600
    writer.close()


async def test_closing_gives_back_the_space_that_was_kept(tmp_path: Path) -> None:
    writer = begin_journal(tmp_path)
    writer.append(settled("r1", 1))
    assert os.stat(writer.path).st_size > TAIL_BYTES
    writer.close()
    assert os.stat(writer.path).st_size == writer.end
    writer.close()


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable):
        begin_journal(tmp_path / "file" / "journal")


async def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    writer = begin_journal(tmp_path)
    writer.close()
    with pytest.raises(StoreUnavailable):
        writer.append(settled("r1", 1))


def test_names_of_segments_are_read_back() -> None:
    name = SegmentName(3, 77, "00ff00ff00ff00ff", 12)
    assert SegmentName.parse(str(name)) == name
    assert name.marker[0] == 0xFF
    for other in (
        "lock",
        "control.sock",
        "1-2-3-4.journal",
        "x-1-00ff00ff00ff00ff-1.journal",
        str(name) + "x",
    ):
        assert SegmentName.parse(other) is None


@given(st.binary(min_size=12, max_size=12), st.binary(max_size=300))
def test_a_checksum_can_leave_out_the_bytes_before_it(head: bytes, rest: bytes) -> None:
    assert zlib.crc32(head + rest, checksum_before(head)) == zlib.crc32(rest)


# Rotation


async def test_open_reservations_are_copied_to_the_head_of_the_next_segment(tmp_path: Path) -> None:
    writer = begin_journal(tmp_path, segment_bytes=4000)
    open_records = [reserved("open", 100), extended("open", 50), checkpoint("open", 70)]
    writer.append(open_records[0])
    writer.append(open_records[1])
    writer.append(checkpoint("open", 60))
    writer.append(open_records[2])
    number = 0
    while len(segments(tmp_path)) == 1:
        writer.append(reserved(f"r{number}"))
        writer.append(settled(f"r{number}", 1))
        number += 1
    old, new = (Segment(tmp_path / str(name)) for name in segments(tmp_path))
    assert [*ids(read_all(old))[4:]] == [f"r{n}" for n in range(number) for _ in (0, 1)]
    head = read_all(new)
    assert head[:3] == open_records
    assert writer.pending <= 2
    await asyncio.sleep(0.1)
    assert old.try_lock()
    assert not new.try_lock()
    for segment in (old, new):
        segment.close()
    writer.close()


async def test_many_open_reservations_do_not_make_every_record_rotate(tmp_path: Path) -> None:
    writer = begin_journal(tmp_path, segment_bytes=4000)
    for number in range(200):
        writer.append(reserved(f"open{number}"))
    assert len(segments(tmp_path)) < 12
    assert set(ids(read_folder(tmp_path))) == {f"open{number}" for number in range(200)}
    writer.close()


# The disk


async def test_synced_records_wait_for_one_fsync_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    real = os.fdatasync

    def slow(fd: int) -> None:
        calls.append(fd)
        time.sleep(0.02)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    writer = begin_journal(tmp_path, sync="disk")
    await asyncio.gather(*(append_synced(writer, settled(f"r{n}", 1)) for n in range(200)))
    assert 1 <= len(calls) <= 3
    writer.close()
    assert len(read_folder(tmp_path)) == 200


async def test_records_reach_the_disk_soon_though_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fdatasync", calls.append)
    writer = begin_journal(tmp_path)
    await append_synced(writer, settled("r0", 1))
    assert calls == []
    for number in range(100):
        writer.append(settled(f"r{number}", 1))
    await asyncio.sleep(0.1)
    assert 1 <= len(calls) <= 3
    before = len(calls)
    await asyncio.sleep(0.05)
    assert len(calls) == before
    writer.close()


async def test_a_disk_that_fails_to_sync_is_trusted_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    writer = begin_journal(tmp_path, sync="disk")
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StoreUnavailable, match="disk failed"):
        await append_synced(writer, settled("r1", 1))
    with pytest.raises(StoreUnavailable, match="disk failed"):
        writer.append(reserved("r2"))
    writer.close()


async def test_a_disk_that_works_again_gets_a_new_segment_with_all_that_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = os.fdatasync
    tried: list[int] = []

    def fail(fd: int) -> None:
        tried.append(fd)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(journal, "RENEW_S", (0.01, 0.02))
    writer = begin_journal(tmp_path)
    for record in (reserved("open"), extended("open", 5), checkpoint("open", 60), reserved("done")):
        writer.append(record)
    writer.append(settled("done", 1))
    monkeypatch.setattr(os, "fdatasync", fail)
    await until(lambda: writer.failed)
    with pytest.raises(StoreUnavailable, match="disk failed"):
        await writer.synced()
    await until(lambda: len(tried) >= 3)
    assert writer.failed
    assert len(segments(tmp_path)) == 1
    monkeypatch.setattr(os, "fdatasync", works)
    await until(lambda: not writer.failed)
    assert writer.failures == 1
    assert writer.pending == 1
    writer.append(settled("open", 2))
    old, new = (Segment(tmp_path / str(name)) for name in segments(tmp_path))
    assert old.try_lock()
    assert ids(read_all(old)) == ["open", "open", "open", "done", "done"]
    assert [type(record).__name__ for record in read_all(new)] == [
        "Reserved",
        "Extended",
        "Checkpoint",
        "Settled",
    ]
    for segment in (old, new):
        segment.close()
    writer.close()


async def test_a_segment_that_was_begun_on_a_failed_disk_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm, unlink = os.fdatasync, Path.unlink

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(journal, "RENEW_S", (0.01,))
    writer = begin_journal(tmp_path)
    writer.append(reserved("open"))
    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(Path, "unlink", fail)  # what was begun cannot be taken away either
    await until(lambda: writer.failed)
    await until(lambda: bool(list(tmp_path.glob("*.tmp"))))
    monkeypatch.setattr(Path, "unlink", unlink)
    monkeypatch.setattr(os, "fdatasync", confirm)
    await until(lambda: not writer.failed)
    writer.append(settled("open", 2))
    new = Segment(writer.path)
    assert [type(record).__name__ for record in read_all(new)] == ["Reserved", "Settled"]
    assert not list(tmp_path.glob("*.tmp"))
    new.close()
    writer.close()


async def test_who_waits_behind_a_failed_fsync_is_told_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells a failure once: the next fsync of the file would succeed, and say nothing of what was lost."""
    failures = iter([OSError(errno.EIO, "Input/output error")])

    def fail_once(fd: int) -> None:
        time.sleep(0.02)
        for failure in failures:
            raise failure

    writer = begin_journal(tmp_path, sync="disk")
    monkeypatch.setattr(os, "fdatasync", fail_once)
    first = asyncio.ensure_future(append_synced(writer, settled("r1", 1)))
    await asyncio.sleep(0.005)
    second = asyncio.ensure_future(append_synced(writer, settled("r2", 1)))
    told = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(error) for error in told] == [StoreUnavailable, StoreUnavailable]
    writer.close()


async def test_what_the_disk_lost_of_open_reservations_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "RENEW_S", (0.01, 0.02))
    writer = begin_journal(tmp_path)
    writer.append(reserved("lost"))
    start = writer.end
    writer.append(reserved("kept"))
    with open(writer.path, "r+b") as file:
        file.seek(start - 10)
        file.write(bytes(10))

    def fail_the_first(fd: int) -> None:
        if not writer.failures:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail_the_first)
    await until(lambda: writer.failures == 1 and not writer.failed)
    writer.append(settled("lost", 1))
    assert ids(read_folder(tmp_path)[-2:]) == ["kept", "lost"]
    writer.close()


async def test_closing_answers_those_who_wait(tmp_path: Path) -> None:
    writer = begin_journal(tmp_path, sync="disk")
    waiting = [asyncio.ensure_future(append_synced(writer, settled(f"r{n}", 1))) for n in range(3)]
    await asyncio.sleep(0)
    writer.close()
    await asyncio.wait_for(asyncio.gather(*waiting), 5)


# A full disk

FULL_DISK = """
import asyncio, resource, sys
sys.path[:0] = {path!r}
from sluicegate.errors import StoreUnavailable
from sluicegate.server.journal import TAIL_BYTES
from tests.records import checkpoint, reserved, settled
from tests.server.journal_world import begin_journal, kill
from pathlib import Path

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    writer = begin_journal(Path(sys.argv[1]))
    limit(6 * 1024 * 1024 + 100)
    taken, refused = [], 0
    number = 0
    try:
        while True:
            writer.append(reserved(f"before{{number}}"))
            taken.append(f"before{{number}}")
            number += 1
    except StoreUnavailable as error:
        assert "cannot grow" in error.message, error.message
    assert 0 < writer.end < 2 * 1024 * 1024 + 100
    for kept in range(number):          # every request that was admitted can be settled
        writer.append(settled(f"before{{kept}}", 1))
        taken.append(f"before{{kept}}")
        if kept % 1000 == 0:
            writer.append(checkpoint(f"cp{{kept}}", 1))
            taken.append(f"cp{{kept}}")
            try:
                writer.append(reserved("refused"))
            except StoreUnavailable:
                refused += 1
    assert refused > 0
    filler = 0
    try:
        while True:                     # until the tail is used up too
            writer.append(settled(f"tail{{filler}}", 1))
            taken.append(f"tail{{filler}}")
            filler += 1
    except StoreUnavailable:
        end = writer.end
    for _ in range(3):
        try:
            writer.append(settled("x" * 900, 1))
            raise AssertionError("there is no room")
        except StoreUnavailable:
            assert writer.end == end
    limit(resource.RLIM_INFINITY)       # the operator made room
    writer.append(reserved("after"))
    writer.append(settled("after", 1))
    taken += ["after", "after"]
    kill(writer)
    print("\\n".join(taken))

asyncio.run(main())
"""


def test_a_full_disk_refuses_new_requests_and_settles_old_ones(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    script = FULL_DISK.format(path=[str(root), str(root / "src")])
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert ids(read_folder(tmp_path)) == run.stdout.split()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write a file until the disk is full."""
    with open(path, "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(65536)):
            pass


def append_until_refused(writer: JournalWriter) -> None:
    """Make reservations until none is taken."""
    with contextlib.suppress(StoreUnavailable):
        for number in range(10_000):
            writer.append(reserved(f"new{number}"))
        raise AssertionError("the disk is not full")


async def test_others_can_fill_the_disk_and_settlements_still_fit(small_disk: Path) -> None:
    writer = begin_journal(small_disk)
    for number in range(100):
        writer.append(reserved(f"r{number}"))
    fill(small_disk / "filler")
    append_until_refused(writer)
    for number in range(100):
        writer.append(settled(f"r{number}", 1))
    os.unlink(small_disk / "filler")
    writer.append(reserved("again"))
    kill(writer)
    read = ids(read_folder(small_disk))
    assert read[-101:] == [*(f"r{number}" for number in range(100)), "again"]


async def test_a_disk_without_room_for_a_journal_is_told_and_left_clean(small_disk: Path) -> None:
    with open(small_disk / "filler", "wb", buffering=0) as filler:
        filler.write(bytes(4 * 1024 * 1024))
    with pytest.raises(StoreUnavailable, match="No space"):
        begin_journal(small_disk)
    assert os.listdir(small_disk) == ["filler"]


async def test_a_segment_goes_on_where_no_next_one_fits(small_disk: Path) -> None:
    writer = begin_journal(small_disk, segment_bytes=3000)
    for number in range(40):
        writer.append(reserved(f"r{number}"))
        writer.append(settled(f"r{number}", 1))
    assert len(segments(small_disk)) == 1
    assert len(read_folder(small_disk)) == 80
    writer.close()
