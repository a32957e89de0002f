"""Shows where the gate's worker spends its time in one scenario: `python bench/profile.py paced`.

Samples the running worker from outside, so that the program measured is the one that serves. Without `--perf` that is
py-spy's work (`pip install py-spy`): Python functions, with `--native` also the C functions they call, whose time is
else their callers' own. With `--perf` it is Debian's linux-perf: C and kernel functions alone, which tells how much of
the time is system calls that every relay needs. The sampler stops the process often, so that what it prints is
dearer than in `run.py`; shares are what to read.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import processes, targets  # noqa: E402
from bench.load import Load  # noqa: E402
from bench.scenarios import CPU_PLANS, FIRST_TOKEN_PLANS  # noqa: E402

_RATE_HZ = 500
_PLANS = CPU_PLANS | FIRST_TOKEN_PLANS
_FRAME = re.compile(r"(.*?) \((?:.*/)?((?:[^/]+/)?[^/]+)\)$")
"""Function and file of one frame; of the path, the last folder is enough."""
_WAITING = (
    "_worker (concurrent/futures/thread.py",
    "_connection_worker_thread (aiosqlite/",
    "_do_waitpid (",
    "_sync (sluicegate/server/journal.py",
)
"""Where threads stand that have nothing to do or wait for a disk; the sampler does not know them to be idle."""


def main() -> None:
    """Run the scenario, sample, print the functions that take most."""
    options = _parse()
    processes.pin_self(processes.LOAD_CORE, options.realtime)
    with tempfile.TemporaryDirectory(prefix="sluicegate-profile-") as name, processes.cores_awake():
        folder = Path(name)
        provider = targets.ProviderProcess(folder, options.realtime)
        try:
            target = _start(options, provider.upstream(options.provider == "tls"), folder)
            try:
                pids = target.pids()
                pid = (pids.get(options.process) or pids["all"])[-1]
                output = folder / "samples"
                profiler = _Profiler(_command(options, pid, output), pid)
                figures = Load(target.port, _PLANS[options.scenario]).run(
                    0.5, options.seconds + 0.5, profiler.mark
                )
                profiler.process.wait()
            finally:
                target.stop()
        finally:
            provider.stop()
        print(
            f"{options.scenario}, {options.provider} provider: {figures.answers} answers, {figures.events} events"
        )
        for error in figures.errors[:3]:
            print(f"wrong answer: {error!r}")
        if options.perf:
            _print_perf(output, options.top)
        else:
            us = profiler.cpu_s * 1e6 / (figures.events or figures.answers)
            _print_stacks(output.read_text().splitlines(), options.top, us)
        if options.keep:
            shutil.copy(output, options.keep)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", choices=tuple(_PLANS))
    parser.add_argument("--provider", choices=("plain", "tls"), default="plain")
    parser.add_argument("--perf", action="store_true", help="C and kernel functions, by perf")
    parser.add_argument("--native", action="store_true", help="C functions too")
    parser.add_argument("--process", choices=("worker", "supervisor", "admin"), default="worker")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--keep", help="also copy the samples (collapsed stacks, or perf.data) to this file")
    parser.add_argument("--relay-command", help="profile this relay, not the gate")
    parser.add_argument("--unlimited", action="store_true", help="the account is not prepaid: no lease")
    parser.add_argument(
        "--realtime", action="store_true", help="before all others on a busy machine; root only"
    )
    return parser.parse_args()


def _start(options: argparse.Namespace, upstream: targets.Upstream, folder: Path) -> targets.Target:
    if options.relay_command:
        return targets.Relay(folder / "relay", upstream, options.realtime, options.relay_command)
    return targets.Gate(folder / "gate", upstream, options.realtime, unlimited=options.unlimited)


def _command(options: argparse.Namespace, pid: int, output: Path) -> list[str]:
    if options.perf:
        perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "2000", "-p", str(pid), "-o", str(output)]
        return [*perf, "--", "sleep", str(options.seconds)]
    sampler = Path(sys.executable).with_name("py-spy")
    if not sampler.exists():
        raise SystemExit("py-spy is missing: pip install py-spy")
    words = [
        sampler,
        "record",
        "--pid",
        pid,
        "--duration",
        max(1, round(options.seconds)),
        "--rate",
        _RATE_HZ,
    ]
    native = ["--native"] if options.native else []
    return [*map(str, words), *native, "--function", "--format", "raw", "--output", str(output)]


class _Profiler:
    """Starts at the first mark of a load."""

    def __init__(self, command: list[str], pid: int) -> None:
        self._command = command
        self._pid = pid
        self.cpu_s = 0.0
        """What the sampled process used between the marks."""
        self._started: subprocess.Popen[bytes] | None = None

    def mark(self) -> None:
        """Begin sampling, when called first."""
        self.cpu_s = processes.cpu_s(self._pid) - self.cpu_s
        if self._started is None:
            self._started = subprocess.Popen(
                self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
            )

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The sampler."""
        if self._started is None:
            raise AssertionError("the load has not begun")
        return self._started


def _print_stacks(lines: list[str], top: int, us: float) -> None:
    """Print functions by their own time, and Python's also by the time of all they call."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        raw = stack.split(";")
        innermost = next((frame for frame in reversed(raw) if ".py:" in frame), raw[-1])
        if innermost.startswith(_WAITING):
            continue
        frames = [_short(frame) for frame in raw]
        own[frames[-1]] += int(count)
        for frame in set(frames):
            if ".py" in frame:
                whole[frame] += int(count)
    total = sum(own.values())
    print(
        f"{total} samples; {us:.2f} µs of CPU an event (an answer, where not streamed), split by their shares"
    )
    for title, counter in (("own time", own), ("with all it calls", whole)):
        print(f"\n{title}")
        for frame, taken in counter.most_common(top):
            print(f"  {taken / total:6.1%}  {us * taken / total:6.2f} µs  {frame}")


def _short(frame: str) -> str:
    matched = _FRAME.match(frame)
    return f"{matched[1]}  ({matched[2]})" if matched else frame


def _print_perf(output: Path, top: int) -> None:
    command = [
        "perf",
        "report",
        "-i",
        str(output),
        "--stdio",
        "--sort",
        "dso,symbol",
        "--percent-limit",
        "0.3",
    ]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    shown = [line for line in report.splitlines() if line.strip() and not line.startswith("#")]
    print("\n".join(shown[:top]))
    by_part = subprocess.run(
        ["perf", "report", "-i", str(output), "--stdio", "--sort", "dso"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    print("\nby library")
    print("\n".join(line for line in by_part.splitlines() if line.strip() and not line.startswith("#")))


if __name__ == "__main__":
    main()
