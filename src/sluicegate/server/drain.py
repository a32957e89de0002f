"""From the workers' journals into the store: the ordinary drain, and the recovery of what dead workers left.

Every journal is read from the offset that the store has; what follows is committed in order, and the new
offset with it. A journal whose lock we get has no writer any more: it is read to its end, then once more from
its head to find the requests that are pending, which are resolved as the crash rules say (`billing.ledger`),
and it is removed. Reading is `server.journal_reader`; what a commit books is the store's.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from sluicegate.billing.ledger import Record, Reservations, settle_after_crash
from sluicegate.errors import StoreUnavailable
from sluicegate.server.journal import sync_file
from sluicegate.server.journal_reader import Booked, Segment, Unreadable, remove_unfinished, segments
from sluicegate.server.journal_segment import SegmentName, boot_id, process_started
from sluicegate.server.telemetry import (
    CHARGES_CLAMPED,
    JOURNAL_ENDED,
    JOURNAL_UNDRAINED,
    WORKER_OUTLIVED,
    log,
)
from sluicegate.store import CommitResult, Store

LOCK_WAIT_S = 5.0
"""How long the writer of a journal may still live when a supervisor starts; then it is killed."""
GATHER_S = 0.15
"""Least time between two commits: one alone costs as much as hundreds of rows in it."""
RETRY_S = 1.0
"""Between tries while the store is away."""


class Committed(NamedTuple):
    """What a commit changed, and whose journal it came from."""

    worker: int
    pid: int
    result: CommitResult
    ended: bool
    """The last record of this worker's journal is committed: its leases are free."""


class _Journal:
    """One process's journal: its segments in order."""

    def __init__(self, name: SegmentName) -> None:
        self.worker = name.worker
        self.pid = name.pid
        self.segments: list[Segment] = []

    @property
    def newest(self) -> int:
        return self.segments[-1].name.number if self.segments else -1

    def close(self) -> None:
        for segment in self.segments:
            segment.close()
        self.segments.clear()


class JournalDrain:
    """Follows all journals of a folder into the store. `on_committed` is called after each commit."""

    def __init__(
        self,
        folder: str | Path,
        store: Store,
        on_committed: Callable[[Committed], None] = lambda committed: None,
        *,
        drain_every_s: float = 0.2,
    ) -> None:
        self._folder = Path(folder)
        self._store = store
        self._on_committed = on_committed
        self._drain_every_s = drain_every_s
        self._journals: dict[str, _Journal] = {}
        self._offsets: dict[str, int] | None = None
        self._gone: list[str] = []
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()
        self.damaged_bytes = 0
        """Bytes of journals that no frame explained, all kept in `.bad` files."""
        self.torn_bytes = 0
        """Bytes of writes that a death cut, and nobody relied on."""
        self.recovered = 0
        """Requests resolved because their worker died."""
        self.failures = 0
        """Passes of the running drain that did not end well."""

    def wake(self) -> None:
        """Say that some journal has news; the running drain comes at once."""
        self._news.set()

    async def run(self) -> None:
        """Drain whenever woken, at least every `drain_every_s`, until cancelled; a store that is away is
        waited for.
        """
        told = False
        gather_s = min(GATHER_S, 0.75 * self._drain_every_s)
        while True:
            self._news.clear()
            try:
                await self.drain()
                told = False
                pause_s = self._drain_every_s - gather_s
            except (StoreUnavailable, OSError) as error:
                self.failures += 1
                if not told:
                    log(JOURNAL_UNDRAINED, error=error)
                told = True
                pause_s = RETRY_S
            await asyncio.sleep(gather_s)  # what comes meanwhile shares one commit
            try:
                async with asyncio.timeout(pause_s):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def drain(self) -> int:
        """Commit all that the journals hold now, and recover those whose writers are gone; return the records
        seen.

        Raises:
            StoreUnavailable: some of it is not committed; what was stays so.
        """
        async with self._lock:
            await self._look()
            if self._gone:
                await self._store.forget_journals(self._gone)
                self._gone.clear()
            seen = 0
            for stem, journal in list(self._journals.items()):
                ended = self._has_ended(journal)
                for segment in journal.segments:
                    seen += await self._drain_segment(journal, segment)
                if ended:
                    await self._recover(journal)
                    del self._journals[stem]
                else:
                    await self._remove_finished(journal)
            return seen

    async def recover(self, lock_wait_s: float = LOCK_WAIT_S) -> None:
        """Commit and resolve every journal in the folder, before the first lease is granted.

        Writers that still live (their supervisor died) have a while to end; then they are killed.

        Raises:
            StoreUnavailable: the store is away, or a journal is held by a process that is not its writer.
        """
        remove_unfinished(self._folder)
        give_up_at = time.monotonic() + lock_wait_s
        async with self._lock:
            await self._look()
            while held := [journal for journal in self._journals.values() if not self._has_ended(journal)]:
                if time.monotonic() >= give_up_at:
                    for journal in held:
                        await self._kill_writer(journal.segments[-1])
                await asyncio.sleep(0.05)
                await self._look()
            await self._forget_lost()
        await self.drain()

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Keep commits away, so that a balance that is read meanwhile is still true when it is acted on."""
        async with self._lock:
            yield

    def close(self) -> None:
        """Let go of all files."""
        for journal in self._journals.values():
            journal.close()
        self._journals.clear()
        self._offsets = None

    async def _forget_lost(self) -> None:
        """Drop offsets of segments that were removed just before a crash."""
        offsets = await self._store.journal_offsets()
        await self._store.forget_journals([file for file in offsets if not (self._folder / file).exists()])

    # Following

    async def _look(self) -> None:
        """Open segments that are new to us."""
        if self._offsets is None:
            self._offsets = await self._store.journal_offsets()
        for name in segments(self._folder):
            stem = f"{name.worker}-{name.pid}-{name.token}"
            journal = self._journals.get(stem)
            if journal is None:
                journal = self._journals[stem] = _Journal(name)
            if name.number > journal.newest:
                segment = Segment(self._folder / str(name))
                segment.offset = max(segment.offset, self._offsets.get(segment.path.name, 0))
                journal.segments.append(segment)

    def _has_ended(self, journal: _Journal) -> bool:
        """Take the lock of a journal that nobody writes any more."""
        last = journal.segments[-1]
        if not last.try_lock():
            return False
        # A writer that went on to a next segment let go of this one; it made the next one before.
        following = last.name._replace(number=last.name.number + 1)
        return not (self._folder / str(following)).exists()

    async def _drain_segment(self, journal: _Journal, segment: Segment) -> int:
        if segment.name.number < journal.newest:
            segment.try_lock()
        damaged, torn = segment.damaged_bytes, segment.torn_bytes
        seen = 0
        decoded = at_end = False
        while not at_end:
            booked = Booked(segment)
            try:
                if not decoded and booked.found():
                    await self._commit(journal, segment, booked, booked.up_to)
            except Unreadable:  # nothing of it is committed
                decoded = True
                continue
            if booked.seen or booked.at_end:
                segment.offset, at_end = booked.up_to(), booked.at_end
                seen += booked.seen
                continue
            start = segment.offset
            batch = segment.read()
            try:
                if batch.records:
                    await self._commit(journal, segment, batch.records, segment.offset)
            except BaseException:
                segment.offset = start
                raise
            at_end = batch.at_end
            seen += len(batch.records)
        self.damaged_bytes += segment.damaged_bytes - damaged
        self.torn_bytes += segment.torn_bytes - torn
        return seen

    async def _commit(
        self,
        journal: _Journal,
        segment: Segment,
        records: Iterable[Record],
        offset: int | Callable[[], int],
        ended: bool = False,
    ) -> None:
        result = await self._store.commit_journal(records, segment.path.name, offset, time.time())
        if result.clamped:
            log(CHARGES_CLAMPED, worker=journal.worker, charges=result.clamped)
        self._on_committed(Committed(journal.worker, journal.pid, result, ended))

    # Ending

    async def _recover(self, journal: _Journal) -> None:
        """Resolve what a dead worker left pending, and remove its journal."""
        pending = Reservations()
        for segment in journal.segments:
            segment.rewind()
            at_end = False
            while not at_end:
                batch = segment.read()
                for record in batch.records:
                    pending.apply(record)
                at_end = batch.at_end
                await asyncio.sleep(0)
        if len(pending):
            log(JOURNAL_ENDED, worker=journal.worker, pid=journal.pid, interrupted=len(pending))
        now = time.time()
        records = [record for reservation in pending for record in settle_after_crash(reservation, now)]
        await self._commit(journal, journal.segments[-1], records, journal.segments[-1].offset, ended=True)
        self.recovered += len(pending)
        await self._remove(journal, list(journal.segments))

    async def _remove_finished(self, journal: _Journal) -> None:
        """Remove segments before the newest: they are committed, and what is open stands in the newest's
        head.
        """
        finished = [segment for segment in journal.segments[:-1] if segment.locked]
        if finished:
            # The copies must be on the disk before the originals go.
            await asyncio.to_thread(sync_file, journal.segments[-1].path)
            await self._remove(journal, finished)

    async def _remove(self, journal: _Journal, finished: list[Segment]) -> None:
        for segment in finished:
            segment.path.unlink(missing_ok=True)
            segment.close()
            journal.segments.remove(segment)
            self._gone.append(segment.path.name)

    async def _kill_writer(self, segment: Segment) -> None:
        """End a worker that outlived its supervisor and does not stop by itself."""
        header = segment.header
        if (
            header is None
            or header.pid == os.getpid()
            or header.boot != boot_id()
            or header.started is None
            or header.started != process_started(header.pid)
        ):
            raise StoreUnavailable(
                f"{segment.path} is locked by a process that is not known to be our worker"
            )
        log(WORKER_OUTLIVED, worker=header.worker, pid=header.pid)
        os.kill(header.pid, signal.SIGKILL)
        for _ in range(40):
            if segment.try_lock():
                return
            await asyncio.sleep(0.05)
        raise StoreUnavailable(
            f"{segment.path} stays locked, though its writer (pid {header.pid}) was killed"
        )
