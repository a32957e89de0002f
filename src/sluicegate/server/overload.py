"""When a worker takes no more: too many requests, too much memory, or a loop that does not keep up.

Those that run keep their pace that way; new ones are told 503 and when to come back, and another gate may take them.
Looked at in the worker's sweep, so that a request pays a comparison or two.
"""

import contextlib
import os
import resource
from collections.abc import Callable
from pathlib import Path

from sluicegate.errors import Overloaded
from sluicegate.server.deadlines import SWEEP_S, Deadlines
from sluicegate.server.settings import ServerSettings

RETRY_AFTER_S = 2.0
SPARE_DESCRIPTORS = 256
"""Kept for idle connections, listeners and files where `max_streams` is chosen by the descriptors."""
MEMORY_EVERY_S = 1.0
MEMORY_SHARE = 0.9
"""Of the machine, or of the control group, that all workers together may have."""
_CONTROL_GROUP = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_PAGE_BYTES = resource.getpagesize()


class Overload:
    """Looks after one worker's load."""

    def __init__(self, settings: ServerSettings, deadlines: Deadlines, running: Callable[[], int]) -> None:
        """Begin to look.

        Args:
            running: tells how many requests run or wait.
        """
        self._running = running
        self._reason: str | None = None
        self.lag_s = 0.0
        """How late the loop is, smoothed."""
        self.memory_bytes = 0
        """Resident, where the system tells."""
        self.refused = 0
        self.due_at = self._looked_at = deadlines.now
        self._memory_at = 0.0
        self.apply(settings)
        deadlines.add(self)

    def apply(self, settings: ServerSettings) -> None:
        """Go on with other settings."""
        self.max_streams = settings.max_streams or streams_by_descriptors()
        self._max_lag_s = settings.max_lag_s
        self._max_memory_bytes = (
            memory_share(settings.workers) if settings.max_memory_bytes is None else settings.max_memory_bytes
        )

    def check(self) -> None:
        """Let a new request in.

        Raises:
            Overloaded: there is too much to do already.
        """
        if self._reason is not None:
            self.refused += 1
            raise Overloaded(f"The gateway is overloaded: {self._reason}; try again soon.", RETRY_AFTER_S)
        if self._running() >= self.max_streams:
            self.refused += 1
            raise Overloaded("The gateway is overloaded: too many requests; try again soon.", RETRY_AFTER_S)

    def expire(self, now: float) -> None:
        """Look at the load; the sweep that asks is itself late when the loop is."""
        late_s = max(0.0, now - self._looked_at - SWEEP_S)
        self._looked_at = self.due_at = now
        self.lag_s = (self.lag_s + late_s) / 2
        if now - self._memory_at >= MEMORY_EVERY_S:
            self._memory_at = now
            self.memory_bytes = resident_bytes()
        if self._max_lag_s and self.lag_s > self._max_lag_s:
            self._reason = "it does not keep up"
        elif self._max_memory_bytes and self.memory_bytes > self._max_memory_bytes:
            self._reason = "its memory is full"
        else:
            self._reason = None


def streams_by_descriptors() -> int:
    """Return how many requests this process has descriptors for, one to the client and one to the provider."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1_000_000
    return max(16, (soft - SPARE_DESCRIPTORS) // 2)


def memory_share(workers: int) -> int:
    """Return the bytes that one of so many workers may have; 0 where the system does not tell."""
    limits = [0]
    with contextlib.suppress(OSError, ValueError):  # told by no system of this kind
        limits.append(os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES)
    for file in _CONTROL_GROUP:
        try:
            limits.append(int(file.read_text()))
        except (OSError, ValueError):
            continue  # there is none, or it says `max`
    told = [limit for limit in limits if limit > 0]
    return int(min(told) * MEMORY_SHARE / workers) if told else 0


def resident_bytes() -> int:
    """Return the memory that this process has now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0
