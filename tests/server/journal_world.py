"""What tests of the journal have in common: writers that die, segments that are read, a store that fails."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sluicegate.billing.ledger import Record
from sluicegate.errors import StoreUnavailable
from sluicegate.server.journal import JournalWriter
from sluicegate.server.journal_reader import Segment, segments
from sluicegate.server.settings_shapes import JournalSettings
from sluicegate.store import Store


def begin_journal(folder: Path, worker: int = 1, *, sync: str = "process", **rest: Any) -> JournalWriter:
    """Begin the journal of one worker of this process."""
    settings = JournalSettings(dir=str(folder), sync=sync, fsync_every_s=0.005)
    return JournalWriter(settings, worker, asyncio.get_running_loop(), **rest)


def kill(writer: JournalWriter) -> Path:
    """Leave a journal as kill -9 would: nothing is tidied, and the kernel lets go of the lock."""
    path = writer.path
    if writer._flush_timer is not None:
        writer._flush_timer.cancel()
    writer._threads.shutdown(wait=True)
    for fd in (*writer._retired, writer._fd):
        os.close(fd)
    writer._retired.clear()
    writer._fd = -1
    return path


def read_all(segment: Segment) -> list[Record]:
    """Read all that can be read now."""
    records: list[Record] = []
    at_end = False
    while not at_end:
        batch = segment.read()
        records += batch.records
        at_end = batch.at_end
    return records


def read_folder(folder: Path) -> list[Record]:
    """Read every segment of a folder, as if their writers were dead."""
    records: list[Record] = []
    for name in segments(folder):
        segment = Segment(folder / str(name))
        segment.try_lock()
        records += read_all(segment)
        segment.close()
    return records


async def until(true: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.005)


async def append_synced(writer: JournalWriter, record: Record) -> None:
    """Append a record and wait until the disk has it."""
    writer.append(record)
    await writer.synced()


def ids(records: Iterable[Record]) -> list[str]:
    return [record.request_id for record in records]


class FaultyStore:
    """A real store whose commits can fail: before anything happened, or after it did, with nobody told."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down = False
        self.answers_lost = 0
        self.on_forget: Callable[[], Awaitable[None]] | None = None
        """Done once, before offsets are forgotten: between a look at the folder and a look at the locks."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def forget_journals(self, files: Sequence[str]) -> None:
        if self.on_forget is not None:
            work, self.on_forget = self.on_forget, None
            await work()
        await self._store.forget_journals(files)

    async def commit_journal(self, *args: Any) -> Any:
        if self.down:
            raise StoreUnavailable("the store is down")
        result = await self._store.commit_journal(*args)
        if self.answers_lost:
            self.answers_lost -= 1
            raise StoreUnavailable("the answer was lost")
        return result
