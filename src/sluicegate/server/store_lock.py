"""One supervisor a store: locks in the journal folder and beside an SQLite store.

A lock is a flock on a file that names its holder; the kernel frees it with the process, however that ends.
The file stays. Source: flock(2).
"""

import asyncio
import fcntl
import os
import time
from pathlib import Path
from typing import Self

from sluicegate.errors import ConfigError
from sluicegate.server.journal_reader import segments
from sluicegate.store import store_file

WAIT_S = 5.0


class StoreLocked(ConfigError):
    """Another process keeps the store."""


class StoreLock:
    """Held for as long as the process may write the store."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds

    @classmethod
    async def take(cls, paths: list[Path], wait_s: float = WAIT_S) -> Self:
        """Take all locks, in order.

        Raises:
            StoreLocked: another process keeps one of them.
            ConfigError: one cannot be made.
        """
        deadline = time.monotonic() + wait_s
        lock = cls([])
        try:
            for path in paths:
                lock._fds.append(await _lock(path, deadline))
        except BaseException:
            lock.release()
            raise
        return lock

    def release(self) -> None:
        """Let another supervisor take over."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


async def _lock(path: Path, deadline: float) -> int:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot make {path}: {error.strerror}") from error
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
                    raise StoreLocked(
                        f"another sluicegate (process {holder or 'unknown'}) already serves this store: "
                        f"{path} is locked"
                    ) from None
            await asyncio.sleep(0.05)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def refuse_lost_store(journal_dir: Path, store_url: str) -> None:
    """Refuse to begin a new store while there are journals of another one: they would be booked where no credit is.

    Raises:
        ConfigError: the store's file is not there, and the journal folder is not empty.
    """
    file = store_file(store_url)
    if file is None or file.exists() or not journal_dir.is_dir() or not segments(journal_dir):
        return
    raise ConfigError(
        f"there is no store at {file}, but {journal_dir} holds journals that are not in it yet: "
        "put the store back, or take the journals away"
    )
