"""The reader: every whole record, nothing of a torn one, and the way past damage."""

import logging
import os
import random
from pathlib import Path

import msgspec
import pytest

from sluicegate.billing.ledger import Record
from sluicegate.server.journal_reader import READ_BYTES, Segment, remove_unfinished, segments
from sluicegate.server.journal_segment import MAGIC, SegmentName, frame
from tests.records import checkpoint, reserved, settled
from tests.server.journal_world import begin_journal, ids, kill, read_all

RECORDS: list[Record] = [
    reserved("r1"),
    checkpoint("r1", 5),
    settled("r1", 7),
    reserved("r2"),
    settled("r2", 9),
]


async def dead_segment(folder: Path, records: list[Record] = RECORDS) -> tuple[Path, list[int]]:
    """Return a segment whose writer is dead, without the space it kept, and where its records end."""
    writer = begin_journal(folder)
    ends = [writer.end]
    for record in records:
        writer.append(record)
        ends.append(writer.end)
    path = kill(writer)
    os.truncate(path, ends[-1])
    return path, ends


def bad_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.bad"))


async def test_a_torn_tail_at_every_offset_loses_no_whole_record(tmp_path: Path) -> None:
    records = [settled("r1", 7), reserved("r2")]
    path, ends = await dead_segment(tmp_path, records)
    whole = path.read_bytes()
    for cut in range(ends[0], len(whole) + 1):
        for tail in (b"", bytes(64)):
            path.write_bytes(whole[:cut] + tail)
            # A record that ends in zeros is whole before its last byte is written, where zeros stand there already.
            count = sum(1 for end in ends[1:] if (whole[:cut] + tail).startswith(whole[:end]))
            for dead in (False, True):
                segment = Segment(path)
                if dead:
                    assert segment.try_lock()
                assert read_all(segment) == records[:count], f"cut at {cut}"
                assert segment.damaged_bytes == 0
                segment.close()
            for bad in tmp_path.glob("*.bad"):
                bad.unlink()


async def test_a_record_is_read_when_it_becomes_whole(tmp_path: Path) -> None:
    path, ends = await dead_segment(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: ends[1] + 20])
    segment = Segment(path)
    assert read_all(segment) == RECORDS[:1]
    assert segment.offset == ends[1]
    with open(path, "r+b") as file:
        file.seek(ends[1] + 20)
        file.write(whole[ends[1] + 20 :])
    assert read_all(segment) == RECORDS[1:]
    segment.close()


async def test_a_record_that_is_taken_back_leaves_no_trace(tmp_path: Path) -> None:
    path, ends = await dead_segment(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: ends[1] + 20] + bytes(3000))
    segment = Segment(path)
    assert read_all(segment) == RECORDS[:1]
    path.write_bytes(whole[: ends[1]] + whole[ends[2] :])
    assert read_all(segment) == RECORDS[2:]
    assert segment.damaged_bytes == 0
    segment.close()


async def test_any_damaged_byte_costs_one_record_at_most(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, ends = await dead_segment(tmp_path)
    whole = path.read_bytes()
    for at in range(ends[1], ends[3]):
        hurt = 1 if at < ends[2] else 2
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        segment = Segment(path)
        assert read_all(segment) == RECORDS[:hurt] + RECORDS[hurt + 1 :], f"damage at {at}"
        assert segment.damaged_bytes == ends[hurt + 1] - ends[hurt]
        assert bad_files(tmp_path) == [f"{path.stem}.{ends[hurt]}.bad"]
        (bad,) = tmp_path.glob("*.bad")
        assert bad.read_bytes() == path.read_bytes()[ends[hurt] : ends[hurt + 1]]
        assert caplog.records[-1].levelno == logging.ERROR
        bad.unlink()
        segment.close()


async def test_damage_is_kept_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, ends = await dead_segment(tmp_path)
    with open(path, "r+b") as file:
        file.seek(ends[1] + 30)
        file.write(b"\xff\xff\xff")
    segment = Segment(path)
    for _ in range(3):
        assert ids(read_all(segment)) == ["r1", "r1", "r2", "r2"]
        segment.rewind()
    assert len(caplog.records) == 1
    assert segment.damaged_bytes == ends[2] - ends[1]
    segment.close()


async def test_damage_of_random_stretches_never_invents_a_record(tmp_path: Path) -> None:
    records = [record for n in range(40) for record in (reserved(f"r{n}"), settled(f"r{n}", n))]
    path, ends = await dead_segment(tmp_path, records)
    whole = path.read_bytes()
    rng = random.Random(7)
    for _ in range(60):
        start = rng.randrange(ends[0], len(whole))
        stop = min(len(whole), start + rng.randrange(1, 3000))
        stretch = rng.choice([bytes(stop - start), rng.randbytes(stop - start), whole[start:stop][::-1]])
        path.write_bytes(whole[:start] + stretch + whole[stop:])
        untouched = [
            record
            for record, begin, end in zip(records, ends, ends[1:], strict=False)
            if end <= start or begin >= stop or whole[begin:end] == path.read_bytes()[begin:end]
        ]
        segment = Segment(path)
        segment.try_lock()
        assert read_all(segment) == untouched
        segment.close()
        for bad in tmp_path.glob("*.bad"):
            bad.unlink()


async def test_a_damaged_header_hides_no_record(tmp_path: Path) -> None:
    path, ends = await dead_segment(tmp_path)
    whole = path.read_bytes()
    for at in (0, len(MAGIC) + 3, len(MAGIC) + 20, ends[0] - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        segment = Segment(path)
        assert segment.header is None
        assert read_all(segment) == RECORDS
        segment.close()


async def test_a_length_beyond_the_file_allocates_nothing(tmp_path: Path) -> None:
    path, ends = await dead_segment(tmp_path)
    with open(path, "r+b") as file:
        file.seek(ends[1] + 12)
        file.write(b"\xff\xff\xff\xff")
    segment = Segment(path)
    assert ids(read_all(segment)) == ["r1", "r1", "r2", "r2"]
    segment.close()


async def test_a_client_cannot_plant_a_record_inside_a_string(tmp_path: Path) -> None:
    """Were the marker guessable, damage to the outer record would bring the inner one to light."""
    forged = frame(b"SGMARKER", msgspec.msgpack.encode(settled("forged", 10**9)))
    bearer = settled("bearer", 1)
    bearer.row.client_request_id = forged.decode("latin-1")
    path, ends = await dead_segment(tmp_path, [bearer, settled("r2", 1)])
    name = SegmentName.parse(path.name)
    assert name is not None
    assert name.marker not in path.read_bytes()[ends[0] + 8 : ends[1]]
    with open(path, "r+b") as file:
        file.seek(ends[0] + 20)
        file.write(b"\xc1")
    segment = Segment(path)
    assert ids(read_all(segment)) == ["r2"]
    segment.close()


async def test_a_frame_that_is_no_record_is_kept_and_skipped(tmp_path: Path) -> None:
    path, ends = await dead_segment(tmp_path)
    name = SegmentName.parse(path.name)
    assert name is not None
    stranger = frame(name.marker, msgspec.msgpack.encode({"type": "from the future"}))
    whole = path.read_bytes()
    path.write_bytes(whole[: ends[2]] + stranger + whole[ends[2] :])
    segment = Segment(path)
    assert read_all(segment) == RECORDS
    assert segment.damaged_bytes == len(stranger)
    segment.close()


async def test_a_record_longer_than_a_read(tmp_path: Path) -> None:
    long = settled("long", 1)
    long.row.error = "x" * (READ_BYTES * 2)
    path, _ = await dead_segment(tmp_path, [settled("a", 1), long, settled("b", 1)])
    segment = Segment(path)
    assert ids(read_all(segment)) == ["a", "long", "b"]
    segment.close()


async def test_unfinished_segments_of_the_dead_are_removed(tmp_path: Path) -> None:
    name = str(SegmentName(1, 2, "00ff00ff00ff00ff", 0))
    (tmp_path / name).with_suffix(".tmp").write_bytes(b"half")
    (tmp_path / "other.tmp").write_bytes(b"not ours")
    writer = begin_journal(tmp_path)
    remove_unfinished(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([writer.path.name, "other.tmp"])
    assert len(segments(tmp_path)) == 1
    writer.close()
