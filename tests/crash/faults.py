"""What else can befall a gate under load: its disk fills or fails to confirm what it was given, its store is locked,
lost or read-only, the clock jumps, a journal is torn or corrupted.

Each fault is made from outside, as the world makes it, and undone again. What it may cost is known before: nothing; but
for the one record that `damage` corrupts, which it names, so that the audit can ask that this and nothing else is lost.
"""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Literal, get_args

from sluicegate.billing.ledger import Settled
from sluicegate.server.journal_reader import Segment, segments
from tests.crash.victim import Victim

Fault = Literal["disk full", "disk failing", "store busy", "store read-only", "store gone", "clock", "damage"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
DISK_MB = 48
"""Room for what a dozen kills leave, and for what journals keep free."""
FULL_S = 1.5
FAILING_S = 1.0
RENEWED_WITHIN_S = 6.0
"""How long after it works again a disk may still be waited with."""
BUSY_S = 6.0
"""Longer than SQLite waits for a lock."""
GONE_S = 1.5
UNREAD_S = 0.8
"""How long journals are written before they are damaged, and nobody reads them."""
DAY_S = 86_400
JUMPS_S = (-40 * DAY_S, -3600, -2, 2, 3600, 40 * DAY_S)
_STATE = struct.Struct("<q?")
_SITE = '''"""Moves the clock, and fails the disk, of every process started with this folder first on its path."""

import errno
import mmap
import os
import struct
import time

with open(__file__.removesuffix("sitecustomize.py") + "state", "rb") as _file:
    _state = mmap.mmap(_file.fileno(), 9, access=mmap.ACCESS_READ)
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + struct.unpack_from("<q", _state)[0]
time.time_ns = lambda: _time_ns() + struct.unpack_from("<q", _state)[0] * 10**9


def _failing(sync):
    def synced(fd):
        if _state[8]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    return synced


os.fsync, os.fdatasync = _failing(os.fsync), _failing(os.fdatasync)
'''


class Machine:
    """What a gate's processes know of their machine: a wall clock that anybody can set, a disk that confirms or not."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._state = folder / "state"
        self._state.write_bytes(_STATE.pack(0, False))
        self._shift_s = 0
        (folder / "sitecustomize.py").write_text(_SITE)

    def move_clock(self, seconds: int) -> None:
        """Set the clock to so many seconds off the true time."""
        self._shift_s = seconds
        self._set(failing=False)

    def fail_disk(self, failing: bool) -> None:
        """Let every fsync fail, or none."""
        self._set(failing=failing)

    def _set(self, *, failing: bool) -> None:
        with open(self._state, "r+b") as file:
            file.write(_STATE.pack(self._shift_s, failing))


@contextlib.contextmanager
def small_disk(folder: Path, mb: int) -> Iterator[bool]:
    """Make a folder a small file system of its own; False where we may not."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mb}m", "none", str(folder)]
    mounted = shutil.which("mount") is not None and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Faults:
    """Makes faults, and remembers what they may have cost."""

    def __init__(self, victim: Victim, data: Path, machine: Machine, rng: Random, *, may_fill: bool) -> None:
        """Args: may_fill: the data lie on a disk of their own."""
        self._victim = victim
        self._data = data
        self._machine = machine
        self._rng = rng
        self._may_fill = may_fill
        self.spoilt: set[str] = set()
        """Requests whose settlement was corrupted."""
        self.damaged = 0
        """How often a record was."""
        self.torn = 0
        self.failed_disks: list[tuple[float, float]] = []
        """From when to when journals took nothing, checkpoints among it."""
        self.skipped: list[str] = []
        """Faults that this machine does not let us make."""
        self.problems: list[str] = []

    async def make(self, fault: Fault) -> None:
        """Make one, and wait until it is over; the gate serves again some time after."""
        match fault:
            case "disk full":
                await self._fill_disk()
            case "disk failing":
                failing_at = time.monotonic()
                self._machine.fail_disk(True)
                await asyncio.sleep(FAILING_S)
                self._machine.fail_disk(False)
                self.failed_disks.append((failing_at, time.monotonic() + RENEWED_WITHIN_S))
            case "store busy":
                await self._lock_store()
            case "store read-only":
                await self._forbid_writing()
            case "store gone":
                await self._take_store_away()
            case "clock":
                self._machine.move_clock(self._rng.choice(JUMPS_S))
                await asyncio.sleep(0.3)
            case "damage":
                await self._damage_journal()

    @property
    def _store(self) -> Path:
        return self._data / "sluicegate.db"

    async def _fill_disk(self) -> None:
        if not self._may_fill:
            self.skipped.append("disk full")
            return
        filler = self._data / "filler"
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(65_536)):
                pass
        await asyncio.sleep(FULL_S)
        filler.unlink()

    async def _lock_store(self) -> None:
        with closing(sqlite3.connect(self._store, isolation_level=None)) as other:
            other.execute("PRAGMA busy_timeout = 20000")
            other.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(BUSY_S)
            other.execute("ROLLBACK")

    async def _take_store_away(self) -> None:
        """While the gate runs, and while it starts: it must not begin a new store in the old one's place."""
        away = self._data / "away"
        away.mkdir()
        files = [self._data / f"sluicegate.db{suffix}" for suffix in ("", "-wal", "-shm")]

        def move(to: Path) -> None:
            for path in files:
                source = (away if to is self._data else self._data) / path.name
                with contextlib.suppress(FileNotFoundError):
                    source.rename(to / path.name)

        move(away)
        await asyncio.sleep(GONE_S)
        move(self._data)
        await self._victim.kill_all()
        move(away)
        await self._refuses_to_start("the store is gone")
        if self._store.exists():
            self.problems.append("a new store was begun in place of the one that was gone")
        move(self._data)
        away.rmdir()
        self._victim.start()

    async def _forbid_writing(self) -> None:
        await self._victim.kill_all()
        with _read_only(self._store):
            await self._refuses_to_start("the store is read-only")
        self._victim.start()

    async def _refuses_to_start(self, why: str) -> None:
        if not any(self._data.rglob("*.journal")):
            self.problems.append(f"{why}: there was no journal to lose")
        before = {path.name: path.stat().st_size for path in self._data.rglob("*.journal")}
        self._victim.start()
        status, said = await self._victim.ended()
        if status in (None, 0):
            self.problems.append(f"{why}, and the gate ended with status {status}")
        if len(said.strip().splitlines()) != 1 or "Traceback" in said:
            self.problems.append(f"{why}, and the gate said {said!r}")
        if before != {path.name: path.stat().st_size for path in self._data.rglob("*.journal")}:
            self.problems.append(f"{why}, and the journals were touched")

    async def _damage_journal(self) -> None:
        """Corrupt a record in the middle of a journal that is not in the store yet, and tear the ends of all."""
        self._victim.stop_supervisor()
        await asyncio.sleep(UNREAD_S)
        await self._victim.kill_all()
        folder = self._data / "journal"
        committed = _committed(self._store)
        done = False
        for name in segments(folder):
            path = folder / str(name)
            frames = list(_frames(path))
            if len(frames) < 2:
                continue
            spoilt = [
                (start, record)
                for start, record in frames[:-1]
                if isinstance(record, Settled) and start >= committed.get(path.name, 0)
            ]
            if spoilt and not done:
                done = True
                start, record = self._rng.choice(spoilt)
                _flip(path, start + 40)
                self.spoilt.add(record.request_id)
                self.damaged += 1
            _tear(path, frames[-1][0])
            self.torn += 1
        self._victim.start()


def _committed(store: Path) -> dict[str, int]:
    with closing(sqlite3.connect(store)) as outside:
        return dict(outside.execute("SELECT file, committed FROM journals").fetchall())


def _frames(path: Path) -> Iterator[tuple[int, object]]:
    """Give every record of a segment, and where its frame begins."""
    segment = Segment(path)
    try:
        marker = segment.name.marker
        data = path.read_bytes()
        start = segment.offset
        batch = segment.read()
        while batch.records:
            for record in batch.records:
                start = data.index(marker, start)
                yield start, record
                start += 1
            batch = segment.read()
    finally:
        segment.close()


def _flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0xFF]))


def _tear(path: Path, last: int) -> None:
    """Write the first half of a frame behind the last one, as a write does that a death cuts."""
    data = path.read_bytes()
    size = 16 + int.from_bytes(data[last + 12 : last + 16], "little")
    with open(path, "r+b") as file:
        file.seek(last + size)
        file.write(data[last : last + size // 2])


@contextlib.contextmanager
def _read_only(path: Path) -> Iterator[None]:
    """Forbid to write a file; root needs a mount for that."""
    if os.geteuid():
        mode = path.stat().st_mode
        path.chmod(0o400)
        yield
        path.chmod(mode)
        return
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)
