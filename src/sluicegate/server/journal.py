"""The append-only file into which a worker writes reservations and settlements before they count.

Where several requests are at work in one turn of the loop, their records are gathered and written at once, and what
depends on them is held back until then.

What its files look like is in `server.journal_segment`. A segment whose fsync failed is trusted no more, since nobody
knows what the disk has of it and a later success would not tell: nothing is written until the disk takes a new segment,
which repeats at its head what is open.
"""

import asyncio
import errno
import fcntl
import logging
import os
import secrets
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from sluicegate.billing.ledger import Checkpoint, Extended, HandedOver, Record, Reserved, Settled
from sluicegate.errors import StoreUnavailable
from sluicegate.server.journal_segment import (
    CHECKSUM,
    CHECKSUM_AT,
    FRAME,
    MAGIC,
    Header,
    SegmentName,
    boot_id,
    checksum_before,
    frame,
    is_whole,
    process_started,
)
from sluicegate.server.settings_shapes import JournalSettings
from sluicegate.server.telemetry import JOURNAL_FAILED, JOURNAL_RENEWED, log

SEGMENT_BYTES = 64 * 1024 * 1024
TAIL_BYTES: Final = 4 * 1024 * 1024
"""Allocated ahead of the end, for settlements and checkpoints on a full disk."""
STEP_BYTES = 1024 * 1024
"""How much is allocated at a time."""
RENEW_S: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 5.0)
"""Waits before a disk that has failed is tried with a new segment, by how often it was; then the last one."""

faults = logging.getLogger(__name__)


class _Place:
    """Where a frame stands in the segment at hand; a new segment's head repeats it from there."""

    __slots__ = ("size", "start")

    def __init__(self, start: int, size: int) -> None:
        self.start = start
        self.size = size


class _Begun(NamedTuple):
    """A segment that has just been made."""

    name: SegmentName
    fd: int
    end: int
    allocated: int
    keeps_space: bool


class RecordOwner(Protocol):
    """Who waits for a record that was gathered. Neither call may raise, and only one of them comes, once."""

    def written(self) -> None:
        """Take note that the record outlives this process: what depends on it may leave."""
        ...

    def unwritten(self, error: StoreUnavailable) -> None:
        """Take note that it is not in the file and never will be."""
        ...


class _Gathered:
    """A record that is to be written with others."""

    __slots__ = ("owner", "record", "size")

    def __init__(self, record: Reserved | Settled, size: int, owner: RecordOwner) -> None:
        self.record = record
        self.size = size
        self.owner = owner


class JournalWriter:
    """One worker's journal. A record that `append` took survives kill -9, as does one whose owner was told that it is
    `written`; `synced` waits for the disk, where the operator asked for that.

    Must be made and used in the thread of the loop.
    """

    def __init__(
        self,
        settings: JournalSettings,
        worker: int,
        loop: asyncio.AbstractEventLoop,
        *,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Begin a journal.

        Raises:
            StoreUnavailable: the folder cannot be written or the disk is full.
        """
        self._loop = loop
        self._folder = Path(settings.dir)
        self._disk = settings.sync == "disk"
        self._fsync_every_s = settings.fsync_every_s
        self._segment_bytes = segment_bytes
        # What every record needs, kept at hand: to look it up takes as long as some of it does.
        self._encode_into = msgspec.msgpack.Encoder().encode_into
        self._pack_frame = FRAME.pack_into
        self._pack_checksum = CHECKSUM.pack_into
        self._checksum_of = zlib.crc32
        self._buffer = bytearray(2048)
        self._frames = bytearray()
        """Of the records that are gathered."""
        self._gathered: list[_Gathered] = []
        self._pending: dict[str, _Place] = {}
        """The open reservations."""
        self._extended: dict[str, list[_Place]] = {}
        self._checkpoints: dict[str, _Place] = {}
        """What few of them have: extensions, and the last checkpoint."""
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="journal-fsync")
        self._dirty = False
        self._flushing = False
        self._flush_timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._retired: list[int] = []
        self._named = False
        """The folder's entry of the segment is on the disk."""
        self._failure: str | None = None
        """Why nothing is written now."""
        self._renewals = 0
        """How often a new segment was tried since the disk failed."""
        self.failures = 0
        """How often the disk has."""
        self.on_renewed: Callable[[], object] = lambda: None
        """Called when it works again, and records are taken."""
        self._name = SegmentName(worker, os.getpid(), secrets.token_hex(8), 0)
        self._marker = self._name.marker
        self._before_length = checksum_before(self._marker + bytes(4))
        """A frame's checksum begins here, so that it covers what comes after the marker and its own place."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _, self._fd, self._end, self._allocated, self._keeps_space = self._begin_segment(self._name)
        except OSError as error:
            raise StoreUnavailable(f"the journal cannot be begun: {error.strerror}") from error
        self._rotate_at = segment_bytes

    @property
    def path(self) -> Path:
        """The segment that is written now."""
        return self._folder / str(self._name)

    @property
    def pending(self) -> int:
        """How many reservations are open."""
        return len(self._pending)

    @property
    def end(self) -> int:
        """Bytes written to this segment."""
        return self._end

    @property
    def failed(self) -> bool:
        """Whether the disk has failed, and nothing is written until it takes a new segment."""
        return self._failure is not None

    def append(self, record: Record) -> None:
        """Write one record; on return it outlives this process.

        Raises:
            StoreUnavailable: it was not written, and the file is as before.
        """
        if self._gathered:  # they came before
            self.write_gathered()
        size = self._frame(record)
        self._write(self._buffer, size)
        self._note(record, self._end - size, size)
        self._note_written()

    def gather(self, record: Reserved | Settled, owner: RecordOwner) -> None:
        """Take a record to be written with others, at the latest before the loop waits again.

        Raises:
            StoreUnavailable: it was not taken, and its owner will not be told of it.
        """
        if self._failure is not None:
            raise StoreUnavailable(self._failure)
        size = self._frame(record)
        if not self._gathered:
            self._loop.call_soon(self.write_gathered)
        self._frames += self._buffer
        self._gathered.append(_Gathered(record, size, owner))

    def write_gathered(self) -> None:
        """Write all that was gathered in one piece, and tell the owners how that went.

        Of a write that was cut, the records that are whole in the file stay, and count.
        """
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        frames, self._frames = self._frames, bytearray()
        at = self._end
        failure: StoreUnavailable | None = None
        try:
            self._write(frames, len(frames), gathered)
        except StoreUnavailable as error:
            failure = error
        written = 0
        for one in gathered:
            if at + one.size > self._end:
                break
            self._note(one.record, at, one.size)
            at += one.size
            written += 1
        if written:
            self._note_written()
        for place, one in enumerate(gathered):
            try:
                if place < written:
                    one.owner.written()
                elif failure is not None:
                    one.owner.unwritten(failure)
            except Exception:  # a fault of ours: the others wait all the same
                faults.exception("the owner of a record did not take what came of it")

    def _frame(self, record: Record) -> int:
        """Make the frame of a record, in the buffer, and room for it; return its size. Raises StoreUnavailable."""
        buffer = self._buffer
        self._encode_into(record, buffer, 16)
        size = len(buffer)
        self._pack_frame(buffer, 0, self._marker, 0, size - 16)
        self._pack_checksum(buffer, CHECKSUM_AT, self._checksum_of(buffer, self._before_length))
        after = len(self._frames) + size
        if self._end + after + TAIL_BYTES > self._allocated:
            kind = type(record)
            self._make_room(after, urgent=kind is Settled or kind is Checkpoint or kind is HandedOver)
        return size

    def _note(self, record: Record, start: int, size: int) -> None:
        """Remember where the record of an open request stands, or that it is open no more."""
        kind = type(record)
        if kind is Reserved:
            self._pending[record.request_id] = _Place(start, size)
        elif kind is Settled or kind is HandedOver:
            self._pending.pop(record.request_id, None)
            if self._extended:
                self._extended.pop(record.request_id, None)
            if self._checkpoints:
                self._checkpoints.pop(record.request_id, None)
        elif record.request_id in self._pending:
            place = _Place(start, size)
            if kind is Checkpoint:
                self._checkpoints[record.request_id] = place
            elif kind is Extended:
                self._extended.setdefault(record.request_id, []).append(place)

    def _note_written(self) -> None:
        """Have the disk get what was written, and go on in the next segment where this one is full."""
        if not self._dirty:
            self._dirty = True
            self._schedule_flush()
        if self._end >= self._rotate_at:
            self._rotate()

    async def synced(self) -> None:
        """Wait, under `sync: disk`, until the disk has all that was appended: one fsync for all who wait.

        Raises:
            StoreUnavailable: it did not confirm that; what was appended stands all the same.
        """
        if self._failure is not None:
            raise StoreUnavailable(self._failure)
        if self._disk:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            if not self._flushing:
                self._flush()
            await waiter

    def close(self) -> None:
        """End the journal: give back the space kept, let the disk have it, release the lock."""
        self.write_gathered()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self._threads.shutdown(wait=True)
        if self._fd < 0:
            return
        failure: OSError | None = None
        try:
            os.ftruncate(self._fd, self._end)
            _sync([*self._retired, self._fd], self._folder)
        except OSError as error:
            log(JOURNAL_FAILED, journal=self._name, doing="closing", error=error.strerror)
            failure = error
        for fd in (*self._retired, self._fd):
            os.close(fd)
        self._retired.clear()
        self._fd = -1
        _release(self._waiters, failure)
        self._waiters.clear()

    # Space

    def _make_room(self, size: int, *, urgent: bool) -> None:
        target = self._end + size + TAIL_BYTES + STEP_BYTES
        try:
            self._keeps_space = _allocate(self._fd, self._allocated, target)
        except OSError as error:
            if not urgent:
                raise StoreUnavailable(f"the journal cannot grow: {error.strerror}") from error
        else:
            self._allocated = target

    def _write(self, data: bytearray, size: int, gathered: Sequence[_Gathered] = ()) -> None:
        """Write frames at the end.

        Args:
            gathered: whose frames they are, where there may be several. Those that are whole in a cut write stay: they
                may have been read already.
        Raises:
            StoreUnavailable: the rest was not written, and the file is as before there.
        """
        if self._failure is not None:
            raise StoreUnavailable(self._failure)
        written = 0
        try:
            written = os.pwrite(self._fd, data, self._end)
            if written != size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            for one in gathered:
                if one.size > written:
                    break
                self._end += one.size
                written -= one.size
            self._undo(written)
            raise StoreUnavailable(f"the journal cannot be written: {error.strerror}") from error
        self._end += size

    def _undo(self, written: int) -> None:
        """Take back a write that did not go through. Should this fail too, the next write covers the same
        place.
        """
        kept = max(self._end, self._allocated) if self._keeps_space else self._end
        inside = min(written, kept - self._end)
        try:
            if inside > 0:
                os.pwrite(self._fd, bytes(inside), self._end)
            if written > inside:
                os.ftruncate(self._fd, kept)
        except OSError as error:
            log(JOURNAL_FAILED, journal=self._name, doing="undoing a cut write", error=error.strerror)

    # Segments

    def _begin_segment(self, name: SegmentName, open_frames: bytes = b"", *, synced: bool = False) -> _Begun:
        """Make a segment, and give it its name only when it is whole and locked.

        Args:
            open_frames: what is open, repeated at its head.
            synced: the disk has to have it by then.
        """
        header = Header(
            pid=name.pid,
            started=process_started(name.pid),
            boot=boot_id(),
            worker=name.worker,
            created_at=time.time(),
        )
        head = MAGIC + frame(name.marker, msgspec.msgpack.encode(header))
        head += open_frames
        path = self._folder / str(name)
        making = path.with_suffix(".tmp")
        # Where the disk failed, one that was begun before may still stand there: nobody else has that name.
        fd = os.open(making, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            allocated = len(head) + TAIL_BYTES + STEP_BYTES
            keeps_space = _allocate(fd, 0, allocated)
            if os.pwrite(fd, head, 0) != len(head):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if synced:
                os.fdatasync(fd)
            os.rename(making, path)
        except OSError:
            os.close(fd)
            making.unlink(missing_ok=True)
            raise
        return _Begun(name, fd, len(head), allocated, keeps_space)

    def _rotate(self) -> None:
        try:
            frames = {place: os.pread(self._fd, place.size, place.start) for place in self._open_places()}
            begun = self._begin_segment(self._next_name(), b"".join(frames.values()))
        except OSError as error:
            log(JOURNAL_FAILED, journal=self._name, doing="rotating", error=error.strerror)
            self._rotate_at = self._end + STEP_BYTES
            return
        self._give_space_back()
        self._retired.append(self._fd)  # stays locked until it is on the disk
        self._go_on_in(begun, frames)

    def _next_name(self) -> SegmentName:
        return self._name._replace(number=self._name.number + 1)

    def _give_space_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._end)
        except OSError as error:
            log(JOURNAL_FAILED, journal=self._name, doing="giving space back", error=error.strerror)

    def _go_on_in(self, begun: _Begun, frames: Collection[_Place]) -> None:
        """Write to another segment from now on.

        Args:
            frames: where those stood in the old one that the new one's head repeats, in their order.
        """
        self._name, self._fd, self._end, self._allocated, self._keeps_space = begun
        self._named = False
        self._rotate_at = max(self._segment_bytes, 2 * begun.end)
        at = begun.end - sum(place.size for place in frames)
        moved: dict[_Place, _Place] = {}
        for place in frames:
            moved[place] = _Place(at, place.size)
            at += place.size
        self._pending = {id_: moved[place] for id_, place in self._pending.items() if place in moved}
        self._checkpoints = {id_: moved[place] for id_, place in self._checkpoints.items() if place in moved}
        for places in self._extended.values():
            places[:] = [moved[place] for place in places if place in moved]

    def _open_places(self) -> Iterator[_Place]:
        """Yield the frames of all open reservations, each request's in the order in which they are to be replayed."""
        for id_, place in self._pending.items():
            yield place
            yield from self._extended.get(id_, ())
            checkpoint = self._checkpoints.get(id_)
            if checkpoint is not None:
                yield checkpoint

    # The disk

    def _schedule_flush(self) -> None:
        if not self._flushing and self._flush_timer is None:
            self._flush_timer = self._loop.call_later(self._fsync_every_s, self._flush)

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._fd < 0:  # closed meanwhile
            return
        self._flushing = True
        self._dirty = False
        waiters, self._waiters = self._waiters, []
        retired, self._retired = self._retired, []
        folder = None if self._named else self._folder
        self._named = True
        job = self._loop.run_in_executor(self._threads, _sync, [*retired, self._fd], folder)
        job.add_done_callback(lambda done: self._flushed(done, waiters, retired))

    def _flushed(
        self, job: asyncio.Future[None], waiters: list[asyncio.Future[None]], retired: list[int]
    ) -> None:
        self._flushing = False
        for fd in retired:
            os.close(fd)
        error = None if job.cancelled() else job.exception()
        _release(waiters, error)
        if error is not None:
            self._fail(error)
        elif self._waiters:
            self._flush()
        elif self._dirty:
            self._schedule_flush()

    def _fail(self, error: BaseException) -> None:
        self._failure = f"the journal's disk failed: {error}"
        self.failures += 1
        log(JOURNAL_FAILED, journal=self._name, doing="syncing", error=error)
        waiters, self._waiters = self._waiters, []
        _release(waiters, error)
        self._renewals = 0
        self._loop.call_later(RENEW_S[0], self._renew)

    def _renew(self) -> None:
        """See whether the disk takes a new segment, in which to go on."""
        if self._fd < 0:  # closed meanwhile
            return
        places = list(self._open_places())
        job = self._loop.run_in_executor(self._threads, self._begin_anew, places)
        job.add_done_callback(self._renewed)

    def _begin_anew(self, places: list[_Place]) -> tuple[_Begun, dict[_Place, bytes]]:
        """Make the next segment, on the disk; return which of the open frames it repeats: those that can still be read.

        In a thread: while the disk has failed nothing else touches the segments.
        """
        frames: dict[_Place, bytes] = {}
        for place in places:
            data = os.pread(self._fd, place.size, place.start)
            if is_whole(data):
                frames[place] = data
        return self._begin_segment(self._next_name(), b"".join(frames.values()), synced=True), frames

    def _renewed(self, job: asyncio.Future[tuple[_Begun, dict[_Place, bytes]]]) -> None:
        if job.cancelled() or job.exception() is not None:
            self._renewals += 1
            self._loop.call_later(RENEW_S[min(self._renewals, len(RENEW_S) - 1)], self._renew)
            return
        begun, kept = job.result()
        if self._fd < 0:  # closed meanwhile
            os.close(begun.fd)
            return
        lost = len(self._pending) - sum(place in kept for place in self._pending.values())
        self._give_space_back()
        os.close(self._fd)
        self._go_on_in(begun, kept)
        self._failure = None
        log(JOURNAL_RENEWED, journal=self._name, unreadable=lost or None)
        self._dirty = True
        self._schedule_flush()
        self.on_renewed()


def _allocate(fd: int, start: int, stop: int) -> bool:
    """Make sure that a range can be written whatever happens to the disk; False where the file system cannot."""
    try:
        os.posix_fallocate(fd, start, stop - start)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            return False
        raise
    return True


def _release(waiters: list[asyncio.Future[None]], error: BaseException | None) -> None:
    for waiter in waiters:
        if waiter.done():  # cancelled while it waited
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(StoreUnavailable(f"the journal's disk failed: {error}"))


def _sync(fds: list[int], folder: Path | None) -> None:
    for fd in fds:
        os.fdatasync(fd)
    if folder is not None:
        sync_file(folder)


def sync_file(path: Path) -> None:
    """Let the disk have a file, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
