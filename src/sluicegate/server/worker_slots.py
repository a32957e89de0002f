"""The worker processes, one to a slot: started, watched, replaced, drained.

A slot's sockets outlive its workers. While a slot has no worker that accepts, another worker accepts for it
too. What workers say beyond "I serve" and "I live" goes to the supervisor, and so does a worker's death: what
it leaves behind is not our business here.
"""

import asyncio
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sluicegate.errors import ConfigError, DecodeError
from sluicegate.server.control import (
    BEAT_S,
    SILENCE_S,
    Adopt,
    Boot,
    Channel,
    Counters,
    CountersAsked,
    Drain,
    FromWorker,
    Release,
    Serving,
    SupervisorBeat,
    open_supervisor_end,
)
from sluicegate.server.listeners import Listeners
from sluicegate.server.telemetry import (
    WORKER_CONFUSED,
    WORKER_DEATHS,
    WORKER_DIED,
    WORKER_SERVING,
    WORKER_SILENT,
    WORKER_STARTS,
    Snapshot,
    Tally,
    log,
    merge,
    without_gauges,
)
from sluicegate.server.worker_exit import BOOT_FAILED, DRAINED

BOOT_S = 30.0
"""How long a worker may take until it serves."""
EXIT_S = 3.0
"""How long a worker that ends its streams may take, a second more than it allows itself."""
COUNTERS_S = 1.0
BACKOFF_S = (0.0, 0.1, 0.3, 1.0, 2.0, 5.0)
"""Waits before a slot's next worker, by the number that died young one after the other."""
YOUNG_S = 2.0


WORKER_COMMAND = (sys.executable, "-m", "sluicegate.server.worker")


class WorkerNumbers:
    """Numbers for worker processes, never given twice; the last one is kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._last = int(path.read_text())
        except FileNotFoundError:
            self._last = 0
        except ValueError:
            raise ConfigError(
                f"{path} does not hold a number; the last worker's number belongs there"
            ) from None

    def next(self) -> int:
        """Return a number that no worker of this journal folder has had."""
        self._last += 1
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            file.write(str(self._last))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        return self._last


class WorkerProcess:
    """One worker process as the supervisor sees it."""

    def __init__(
        self, number: int, slot: int, process: asyncio.subprocess.Process, started_at: float
    ) -> None:
        self.number = number
        self.slot = slot
        self.process = process
        self.started_at = started_at
        """Seconds of the loop's clock, like `heard_at`."""
        self.heard_at = started_at
        self.serving = False
        self.channel: Channel[FromWorker] | None = None
        self.counters: Snapshot = {}

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def kill(self) -> None:
        """End it at once; its death is noticed as any other."""
        # Not Process.kill: that checks first whether the process has ended, by collecting it.
        try:
            os.kill(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


class WorkerSlots:
    """All worker processes. `live` and `send` are how the bank reaches them."""

    def __init__(
        self,
        listeners: Listeners,
        numbers: WorkerNumbers,
        boot: Callable[[int], Boot],
        on_message: Callable[[WorkerProcess, FromWorker], None],
        on_death: Callable[[WorkerProcess], None],
        store_answers: Callable[[], bool],
        tally: Tally,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        """Prepare the slots.

        Args:
            boot: the first frame for the worker process of a number.
            on_message: all that a worker says but for what is of use here alone; an AssertionError out of it
                means that the worker is confused.
            on_death: called once for each worker process that ended, after its last message.
        """
        self._listeners = listeners
        self._numbers = numbers
        self._boot = boot
        self._on_message = on_message
        self._on_death = on_death
        self._store_answers = store_answers
        self._tally = tally
        self._command = command
        self._loop = asyncio.get_running_loop()
        self._workers: dict[int, WorkerProcess] = {}
        self._adopters: dict[int, WorkerProcess] = {}
        self._young_deaths = [0] * len(listeners.slots)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False
        self._changed = asyncio.Event()
        self._questions: dict[int, asyncio.Future[None]] = {}
        self._question = 0
        self._retired: Snapshot = {}
        self._boot_failed = False

    # What others ask

    def __iter__(self) -> Iterator[WorkerProcess]:
        return iter(list(self._workers.values()))

    @property
    def live(self) -> "dict[int, WorkerProcess]":
        """The worker processes that have not ended, by number."""
        return self._workers

    @property
    def serving(self) -> int:
        """How many accept connections."""
        return sum(worker.serving for worker in self._workers.values())

    def send(self, worker: int, message: Any) -> None:
        """Tell a worker process something; nothing where it is gone."""
        found = self._workers.get(worker)
        if found is not None and found.channel is not None:
            found.channel.send(message)

    def send_all(self, message: Any) -> None:
        """Tell all of them."""
        for worker in self._workers.values():
            if worker.channel is not None:
                worker.channel.send(message)

    async def counters(self) -> Snapshot:
        """Return the counts of all workers there ever were, the dead ones' as last told."""
        self._question += 1
        number = self._question
        waiting = [worker for worker in self._workers.values() if worker.serving]
        if waiting:
            answers = {worker.number: self._loop.create_future() for worker in waiting}
            self._questions.update(answers)
            for worker in waiting:
                self.send(worker.number, CountersAsked(number))
            await asyncio.wait(answers.values(), timeout=COUNTERS_S)
            for worker_number, answer in answers.items():
                if self._questions.get(worker_number) is answer:
                    del self._questions[worker_number]
        return merge([self._retired, *(worker.counters for worker in self._workers.values())])

    # Life

    async def start(self) -> None:
        """Start a worker in every slot, and return when all of them accept.

        Raises:
            ConfigError: they cannot start here; they have told why.
        """
        self._keep(self._beat())
        for slot in range(len(self._listeners.slots)):
            await self._spawn(slot)
        while self.serving < len(self._listeners.slots):
            if self._boot_failed:
                raise ConfigError("the workers cannot start; what they said stands above")
            self._changed.clear()
            await self._changed.wait()

    async def drain(self, timeout_s: float) -> None:
        """Let every worker finish its requests within the time and end; called again, it shortens the time."""
        self._ending = True
        self.send_all(Drain(timeout_s))
        deadline = self._loop.time() + timeout_s + EXIT_S
        while self._workers:
            left = deadline - self._loop.time()
            if left <= 0:
                for worker in self:
                    worker.kill()
                left = EXIT_S
                deadline = self._loop.time() + left
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Kill what still runs."""
        self._ending = True
        for worker in self:
            worker.kill()
        while self._workers:
            self._changed.clear()
            await self._changed.wait()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # One worker

    async def _spawn(self, slot: int) -> None:
        number = self._numbers.next()
        ours, theirs = socket.socketpair()
        listening = [[sock.fileno() for sock in socks] for socks in self._listeners.slots]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--number",
                str(number),
                "--slot",
                str(slot),
                "--control-fd",
                str(theirs.fileno()),
                "--listen-fds",
                ";".join(",".join(map(str, fds)) for fds in listening),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=sorted({theirs.fileno(), *(fd for fds in listening for fd in fds)}),
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        worker = WorkerProcess(number, slot, process, self._loop.time())
        self._workers[number] = worker
        self._tally.add(WORKER_STARTS)
        worker.channel = await open_supervisor_end(
            ours,
            lambda message: self._heard(worker, message),
            lambda error: self._channel_lost(worker, error),
        )
        worker.channel.send(self._boot(number))
        self._keep(self._watch(worker))

    def _heard(self, worker: WorkerProcess, message: FromWorker) -> None:
        worker.heard_at = self._loop.time()
        try:
            match message:
                case Serving():
                    self._served(worker)
                case Counters():
                    worker.counters = message.values
                    answer = self._questions.pop(worker.number, None)
                    if answer is not None and not answer.done():
                        answer.set_result(None)
                case _:
                    self._on_message(worker, message)
        except AssertionError as error:
            log(WORKER_CONFUSED, number=worker.number, error=error)
            worker.kill()

    def _channel_lost(self, worker: WorkerProcess, error: DecodeError | None) -> None:
        if error is not None:
            log(WORKER_CONFUSED, number=worker.number, error=error.reason)
            worker.kill()
        elif not self._ending:
            # It has ended, which its watcher sees too, or is about to; it must not linger beside its
            # successor.
            self._loop.call_later(EXIT_S, self._kill_if_alive, worker)

    def _kill_if_alive(self, worker: WorkerProcess) -> None:
        if self._workers.get(worker.number) is worker:
            worker.kill()

    def _served(self, worker: WorkerProcess) -> None:
        if worker.serving:
            return
        worker.serving = True
        log(WORKER_SERVING, number=worker.number, slot=worker.slot, pid=worker.pid)
        adopter = self._adopters.pop(worker.slot, None)
        if adopter is not None:
            self.send(adopter.number, Release(worker.slot))
        self._find_adopters()
        self._changed.set()

    async def _watch(self, worker: WorkerProcess) -> None:
        status = await worker.process.wait()
        if worker.channel is not None:
            # What it wrote before it died is still to be read; the end of the stream comes after that.
            while worker.channel.is_open:
                await asyncio.sleep(0)
        del self._workers[worker.number]
        worker.serving = False
        self._retired = merge([self._retired, without_gauges(worker.counters)])
        answer = self._questions.pop(worker.number, None)
        if answer is not None and not answer.done():
            answer.set_result(None)
        self._boot_failed = self._boot_failed or status == BOOT_FAILED
        if not self._ending or status != DRAINED:
            self._tally.add(WORKER_DEATHS)
            log(WORKER_DIED, number=worker.number, slot=worker.slot, pid=worker.pid, status=status)
        self._on_death(worker)
        for slot in [slot for slot, adopter in self._adopters.items() if adopter is worker]:
            del self._adopters[slot]
        self._find_adopters()
        self._changed.set()
        if not self._ending:
            await self._replace(worker)

    async def _replace(self, worker: WorkerProcess) -> None:
        young = self._loop.time() - worker.started_at < YOUNG_S
        deaths = self._young_deaths[worker.slot] = self._young_deaths[worker.slot] + 1 if young else 0
        wait_s = BACKOFF_S[min(deaths, len(BACKOFF_S) - 1)]
        while not self._ending:
            await asyncio.sleep(wait_s)
            try:
                if not self._ending:
                    await self._spawn(worker.slot)
                return
            except OSError as error:  # no more processes, descriptors or memory: they may come back
                log(WORKER_DIED, slot=worker.slot, error=error)
                wait_s = BACKOFF_S[-1]

    def _find_adopters(self) -> None:
        """See that every slot without a worker that accepts has another one that accepts for it."""
        if self._listeners.inherited or self._ending:
            return
        serving = [worker for worker in self._workers.values() if worker.serving]
        manned = {worker.slot for worker in serving}
        for slot in range(len(self._listeners.slots)):
            if serving and slot not in manned and slot not in self._adopters:
                adopter = random.choice(serving)
                self._adopters[slot] = adopter
                self.send(adopter.number, Adopt(slot))

    async def _beat(self) -> None:
        """Tell the workers that we live, and kill those that no longer say so."""
        while True:
            slept_at = self._loop.time()
            await asyncio.sleep(BEAT_S)
            now = self._loop.time()
            self.send_all(SupervisorBeat(self._store_answers()))
            if now - slept_at > BEAT_S + 1:
                # It was we who were stopped: what the workers said meanwhile is still unread.
                for worker in self._workers.values():
                    worker.heard_at = now
                continue
            for worker in self:
                silent_s = now - worker.heard_at
                if silent_s > (SILENCE_S if worker.serving else BOOT_S):
                    log(WORKER_SILENT, number=worker.number, pid=worker.pid, silent_s=round(silent_s, 1))
                    worker.heard_at = now
                    worker.kill()

    def _keep(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
