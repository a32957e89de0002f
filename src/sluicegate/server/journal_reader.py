"""Reading journals: whole records from an offset on, past damage, and never what is not there yet.

A segment is read while its process writes it, so its end may hold half a frame: that is left for the next
read. Bytes that no frame explains are *damage* only once a good frame follows them (or their writer is dead);
they are copied to a `.bad` file beside the segment, told to the operator, and skipped. What the records mean
is left to `server.drain`.
"""

import fcntl
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from sluicegate.billing.ledger import Checkpoint, Extended, Record, Reserved
from sluicegate.server.journal_segment import FRAME, LENGTH_AT, MAGIC, SUFFIX, Header, SegmentName
from sluicegate.server.telemetry import JOURNAL_DAMAGED, JOURNAL_TORN, log

READ_BYTES = 512 * 1024
"""Read at a time where records are taken for themselves."""
PIECE_BYTES = 32 * 1024
"""Read at a time for a commit: about thirty requests, which stay in the processor's cache until they are booked."""
COMMIT_BYTES = 2 * 1024 * 1024
"""The most that one commit takes: about 2,000 requests, and some tens of milliseconds."""
_SPACE = bytes(8)
_UNBOOKED = tuple(
    msgspec.msgpack.encode({"type": kind.__struct_config__.tag})[1:]
    for kind in (Reserved, Extended, Checkpoint)
)
"""How the payload of a record that no commit books goes on after its first byte: msgspec writes the tag first."""

_decode_record = msgspec.msgpack.Decoder(Record).decode
_decode_header = msgspec.msgpack.Decoder(Header).decode


class Unreadable(Exception):
    """A whole frame holds no record: another version wrote it. To read it decoded finds which, and passes over it."""


class Batch(NamedTuple):
    """What one read brought."""

    records: list[Record]
    at_end: bool
    """Nothing more can be read now."""


class Booked:
    """What a commit books of a segment from its offset on: read, checked and decoded while it is gone through.

    Reservations and the like, which none books, are only counted. What is said beside the records is true once they
    have been gone through, and anew each time; the segment's offset stays.
    """

    def __init__(self, segment: "Segment") -> None:
        self._segment = segment
        self._start = self._end = segment.offset
        self.seen = 0
        """How many records there were, with those that were passed over."""
        self.at_end = False
        """Nothing more can be read now."""

    def __iter__(self) -> Iterator[Record]:
        """Go through them.

        Raises:
            Unreadable: one is no record, though its checksum is good.
        """
        decode, segment = _decode_record, self._segment
        at = self._start
        seen = 0
        try:
            while at - self._start < COMMIT_BYTES:
                payloads, found, used, at_end = segment.look(at)
                seen += found
                at += used
                self._end, self.seen, self.at_end = at, seen, at_end
                for covered in payloads:
                    yield decode(covered[4:])
                if at_end or not used:
                    break
        except msgspec.MsgspecError as error:
            raise Unreadable(str(error)) from error

    def found(self) -> bool:
        """Whether there are any; raises as going through them does."""
        return any(True for _ in self)

    def up_to(self) -> int:
        """Return the offset behind the last one."""
        return self._end


class Segment:
    """One segment, open for reading. `offset` moves with what `read` returned."""

    def __init__(self, path: Path) -> None:
        """Open a segment.

        Raises:
            OSError: it is gone or cannot be read.
        """
        name = SegmentName.parse(path.name)
        if name is None:
            raise AssertionError(f"{path} is not a journal")
        self.path = path
        self.name = name
        self.offset = 0
        self.damaged_bytes = 0
        """Bytes of damage found so far; a torn tail is none."""
        self.torn_bytes = 0
        self.header: Header | None = None
        self._marker = name.marker
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._locked = False
        self._read_header()
        self._first = self.offset

    @property
    def locked(self) -> bool:
        """We hold the writer's lock: what is here is all there will be."""
        return self._locked

    def rewind(self) -> None:
        """Go back to the first record."""
        self.offset = self._first

    def close(self) -> None:
        """Let the file go, and the lock with it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._locked = False

    def try_lock(self) -> bool:
        """Take the writer's lock; true once nobody writes here any more. Kept until `close`."""
        if not self._locked:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self._locked = True
        return True

    def read(self) -> Batch:
        """Read the next whole records."""
        data = self._read_at(self.offset, READ_BYTES)
        records, used = self._parse(data)
        at_end = self._ends(data, used)
        self.offset += used
        if used or at_end:
            return Batch(records, at_end)
        return Batch([], at_end=not self._skip_damage())

    def look(self, at: int) -> tuple[list[bytes], int, int, bool]:
        """Look at the next whole frames, for a commit.

        Returns:
            The payloads that a commit books, each after its four bytes of length, as the checksum covers them; how many
            frames there were, and their bytes; whether nothing more can be read now.
        """
        data = self._read_at(at, PIECE_BYTES)
        # What `_parse` and `_frame_at` do, without their calls: this is all that the supervisor does twice a request.
        payloads: list[bytes] = []
        seen = used = 0
        marker, unpack, checksum_of, size_of_frame = self._marker, FRAME.unpack_from, zlib.crc32, FRAME.size
        end_of_data = len(data)
        last = end_of_data - size_of_frame
        while used <= last:
            found, checksum, length = unpack(data, used)
            end = used + size_of_frame + length
            covered = data[used + LENGTH_AT : end]
            if found != marker or end > end_of_data or checksum_of(covered) != checksum:
                break
            if not covered.startswith(_UNBOOKED, 5):
                payloads.append(covered)
            seen += 1
            used = end
        return payloads, seen, used, self._ends(data, used)

    def _read_at(self, at: int, size: int) -> bytes:
        """Read at least the frame that stands there, where one does."""
        data = os.pread(self._fd, size, at)
        if len(data) == size:
            marker, _, length = FRAME.unpack_from(data)
            if marker == self._marker and FRAME.size + length > size:
                rest = os.fstat(self._fd).st_size - at
                return os.pread(self._fd, min(FRAME.size + length, rest), at)
        return data

    def _ends(self, data: bytes, used: int) -> bool:
        """Whether nothing can be read now after so many bytes of what was read: the space that the writer keeps is the
        usual end.
        """
        return not data or (not self._locked and data.startswith(_SPACE, used))

    def _read_header(self) -> None:
        """Read the magic and the header; where they are damaged, the records behind them still count."""
        data = os.pread(self._fd, 4096, 0)
        if data.startswith(MAGIC):
            payload, size = self._frame_at(data, len(MAGIC))
            if payload is not None:
                try:
                    self.header = _decode_header(payload)
                except msgspec.MsgspecError:
                    return
                self.offset = len(MAGIC) + size

    def _frame_at(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        """Return the payload of a frame and the frame's whole size; no payload where the frame is not whole
        or not good, no size where no frame begins here.
        """
        if len(data) - at < FRAME.size:
            return None, (FRAME.size if self._marker.startswith(data[at : at + 8]) else 0)
        marker, checksum, length = FRAME.unpack_from(data, at)
        if marker != self._marker:
            return None, 0
        size = FRAME.size + length
        covered = data[at + LENGTH_AT : at + size]
        if len(covered) != size - LENGTH_AT or zlib.crc32(covered) != checksum:
            return None, size
        return covered[4:], size

    def _parse(self, data: bytes) -> tuple[list[Record], int]:
        """Return the records of the good frames at the start, and their bytes."""
        records: list[Record] = []
        at = 0
        while at < len(data):
            payload, size = self._frame_at(data, at)
            if payload is None:
                break
            try:
                records.append(_decode_record(payload))
            except msgspec.MsgspecError as error:
                # A good checksum over something that is no record: written by another version. Kept, not guessed at.
                if not records:
                    self._quarantine(self.offset, data[:size], error=error)
                    at = size
                break
            at += size
        return records, at

    def _skip_damage(self) -> bool:
        """Step over bytes that no frame explains. True if something was skipped, so that reading may go on."""
        rest = self._read_rest()
        if not rest.strip(b"\0"):
            return False
        at = self._next_good(rest, 1)
        if at is None:
            if not self._locked:
                return False
            # Nobody will finish this: a write that the writer's death cut. Nobody was told that it had happened.
            self._quarantine(self.offset, rest.rstrip(b"\0"), torn=True)
            self.offset += len(rest)
            return False
        # The frame we stand at may have become whole while we looked on; it was written before the one behind it.
        payload, _ = self._frame_at(self._read_rest(), 0)
        if payload is not None:
            return True
        self._quarantine(self.offset, rest[:at])
        self.offset += at
        return True

    def _read_rest(self) -> bytes:
        size = os.fstat(self._fd).st_size
        return os.pread(self._fd, max(0, size - self.offset), self.offset)

    def _next_good(self, data: bytes, start: int) -> int | None:
        at = data.find(self._marker, start)
        while at >= 0:
            if self._frame_at(data, at)[0] is not None:
                return at
            at = data.find(self._marker, at + 1)
        return None

    def _quarantine(
        self, offset: int, data: bytes, *, torn: bool = False, error: Exception | None = None
    ) -> None:
        """Keep bytes that count for nothing in a file beside the segment, and tell the operator once."""
        bad = self.path.with_name(f"{self.path.name.removesuffix(SUFFIX)}.{offset}.bad")
        try:
            with open(bad, "xb") as file:
                file.write(data)
        except FileExistsError:  # found before, by a reader that did not come to the end
            return
        except OSError as failure:
            error = failure
        if torn:
            self.torn_bytes += len(data)
        else:
            self.damaged_bytes += len(data)
        event = JOURNAL_TORN if torn else JOURNAL_DAMAGED
        log(event, journal=self.path.name, offset=offset, bytes=len(data), kept_in=bad.name, error=error)


def segments(folder: Path) -> list[SegmentName]:
    """List the segments of a folder, each process's in the order they were written."""
    names = (SegmentName.parse(entry) for entry in os.listdir(folder))
    return sorted(name for name in names if name is not None)


def remove_unfinished(folder: Path) -> None:
    """Remove segments that a process died in the middle of making; none of them holds anything of its own."""
    for path in folder.glob("*.tmp"):
        if SegmentName.parse(path.with_suffix(SUFFIX).name) is None:
            continue
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            pass
        finally:
            os.close(fd)
