"""A gate that is killed and started again, on the same ports and files."""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from sluicegate.children import Child, ChildFailed
from tests.fakes import ask
from tests.gate import READY_TIMEOUT_S

Whom = Literal["worker", "supervisor", "both"]
EXIT_S = 20.0


class Victim:
    """One gate, dead or alive."""

    def __init__(
        self,
        folder: Path,
        configuration: dict[str, Any],
        port: int,
        admin_port: int,
        *,
        first_on_path: Path | None = None,
    ) -> None:
        """Prepare a gate.

        Args:
            configuration: as `tests.conftest.make_config` returns it.
            port: where it listens, held for as long as it is used: an outgoing connection could else take a dead
                gate's port. So with `admin_port`.
            first_on_path: a folder that its processes import from before any other.
        """
        self.folder = folder
        self._first_on_path = first_on_path
        self.config = folder / "sluicegate.yaml"
        self.starts = 0
        self.outlived: list[str] = []
        """Workers that still lived when a later supervisor served."""
        self.url = f"http://127.0.0.1:{port}"
        text = json.dumps(configuration, indent=1)
        text = text.replace("{listen}", f"127.0.0.1:{port}").replace(
            "{admin_listen}", f"127.0.0.1:{admin_port}"
        )
        self.config.write_text(text)
        self._child: Child | None = None
        self._orphans: list[int] = []

    @property
    def logs(self) -> list[Path]:
        """What its processes said, one file a start."""
        return sorted(self.folder.glob("gate-*.log"))

    @property
    def _running(self) -> Child:
        assert self._child is not None, "the gate was not started"
        return self._child

    def start(self) -> None:
        """Start the supervisor, which starts the rest."""
        command = [sys.executable, "-m", "sluicegate", "serve", "--config", str(self.config)]
        if self._first_on_path is not None:
            path = os.pathsep.join(filter(None, (str(self._first_on_path), os.environ.get("PYTHONPATH"))))
            command = ["env", f"PYTHONPATH={path}", *command]
        log = self.folder / f"gate-{self.starts:04d}.log"
        self.starts += 1
        self._child = Child("the gate", command, log, stop_within_s=EXIT_S)

    async def ready(self) -> None:
        """Wait until it serves; by then no worker of an earlier supervisor may be left."""
        give_up_at = time.monotonic() + READY_TIMEOUT_S
        while not await self._is_ready():
            self._running.check()
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"the gate did not serve within {READY_TIMEOUT_S:.0f} s")
            await asyncio.sleep(0.02)
        self.outlived += [f"worker {pid}" for pid in self._orphans if _is_worker(pid)]
        self._orphans.clear()

    def workers(self) -> list[int]:
        """Return the pids of the workers that run now."""
        pid = self._running.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return []
        return [int(child) for child in children if _is_worker(int(child))]

    async def kill(self, whom: Whom, rng: random.Random) -> None:
        """Kill a worker, the supervisor, or all of both, and start again what does not come back by itself."""
        workers = self.workers()
        if whom == "worker":
            while not workers:
                self._running.check()
                await asyncio.sleep(0.01)
                workers = self.workers()
            _kill([rng.choice(workers)])
            return
        victims = [self._running.pid, *(workers if whom == "both" else ())]
        rng.shuffle(victims)
        self._orphans += workers
        _kill(victims)
        self._running.stop()  # collects it
        self.start()

    def stop_supervisor(self) -> None:
        """Stop the supervisor as SIGSTOP does, so that journals are written and nobody reads them."""
        os.kill(self._running.pid, signal.SIGSTOP)

    async def kill_all(self) -> None:
        """Kill the supervisor and all workers, and start nothing."""
        workers = self.workers()
        self._orphans += workers
        _kill([self._running.pid, *workers])
        self.stop()
        give_up_at = time.monotonic() + EXIT_S
        while any(map(_is_worker, workers)) and time.monotonic() < give_up_at:
            await asyncio.sleep(0.01)

    async def ended(self) -> tuple[int | None, str]:
        """Wait until the gate ends by itself; return its status (None: it goes on) and what it said."""
        give_up_at = time.monotonic() + EXIT_S
        child = self._running
        while True:
            try:
                child.check()
            except ChildFailed:
                break
            if time.monotonic() > give_up_at:
                return None, child.log_path.read_text(errors="replace")
            await asyncio.sleep(0.02)
        return self.stop(), child.log_path.read_text(errors="replace")

    def stop(self) -> int | None:
        """Ask the gate to end and collect it; return its exit status, None where it was not running."""
        child, self._child = self._child, None
        if child is None:
            return None
        return child.stop()

    async def _is_ready(self) -> bool:
        try:
            return (await ask(self.url, "/readyz", timeout_s=2.0)).status == 200
        except OSError:  # a TimeoutError too
            return False


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended by itself, as a worker without a supervisor does


def _is_worker(pid: int) -> bool:
    try:
        return b"sluicegate.server.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
