"""What a process costs, by the kernel's own accounting; and where it may run.

CPU time is the scheduler's run time of every thread (nanoseconds, `/proc/PID/task/*/schedstat`), which does not grow
while others use the core. It holds the kernel's work for the process too, of which a relay does most.

A core that sleeps when it has nothing to do is woken by whoever sends it something, and the waker pays: on a virtual
machine some microseconds a send, more or less as the host likes. A fast relay keeps the load's core so busy that it
never sleeps, a slower one pays for every send. So idle cores are kept awake, for all that is measured.

Source: Documentation/scheduler/sched-stats.rst, Documentation/filesystems/proc.rst and
Documentation/power/pm_qos_interface.rst of Linux.
"""

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

SUT_CORE = 1
"""The core of the system under test; it alone is pinned there."""
LOAD_CORE = 0
"""The core of client and provider."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that all threads of a process have used."""
    total_ns = 0
    for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total_ns += int(stat.read_text().split(" ", 1)[0])
    return total_ns / 1e9


def rss_kib(pid: int) -> int:
    """Return the resident memory of a process."""
    return _status(pid, "VmRSS:")


def pss_kib(pid: int) -> int:
    """Return resident memory with shared pages split among those who share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def descendants(pid: int) -> list[int]:
    """Return a process and all that it started, directly or not, itself first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(after_name[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, []))
    return found


def command_line(pid: int) -> str:
    """Return how a process was started."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")


@contextlib.contextmanager
def cores_awake() -> Iterator[bool]:
    """Keep idle cores from sleeping; yields whether that could be done: it takes root, and a kernel that knows how."""
    try:
        fd = os.open("/dev/cpu_dma_latency", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        os.write(fd, struct.pack("i", 0))
        yield True
    finally:
        os.close(fd)  # which takes the wish back


def pinned(core: int, realtime: bool) -> list[str]:
    """Return the words to put before a command so that it runs on one core."""
    first = ["chrt", "--rr", "1"] if realtime else []
    return [*first, "taskset", "-c", str(core)]


def pin_self(core: int, realtime: bool) -> None:
    """Put this process on one core."""
    os.sched_setaffinity(0, {core})
    if realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0
