"""The worker processes, one to a slot: started, watched, replaced, drained.

A slot's sockets outlive its workers. While a slot has no worker that accepts, another worker accepts for it
too. What workers say beyond "I serve" and "I live" goes to the supervisor, and so does a worker's death: what
it leaves behind is not our business here.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from sluicegate.errors import ConfigError, DecodeError, MessageUnsent
from sluicegate.server.control import BEAT_S, SILENCE_S, Channel, encode_frame, open_supervisor_end
from sluicegate.server.control_messages import (
    Adopt,
    Boot,
    Counters,
    CountersAsked,
    Drain,
    FromWorker,
    Leaving,
    Release,
    Serving,
    SupervisorBeat,
    ToQuestion,
    Unanswered,
    WorkerBeat,
)
from sluicegate.server.listeners import Listeners
from sluicegate.server.tally import Snapshot, Tally, merge, without_gauges
from sluicegate.server.telemetry import (
    WORKER_CONFUSED,
    WORKER_DEATHS,
    WORKER_DIED,
    WORKER_FAILED,
    WORKER_LEAVING,
    WORKER_SERVING,
    WORKER_SILENT,
    WORKER_STARTS,
    log,
)
from sluicegate.server.worker_exit import BOOT_FAILED, DRAINED

BOOT_S = 30.0
"""How long a worker may take until it serves."""
EXIT_S = 3.0
"""How long a worker that ends its streams may take, a second more than it allows itself."""
COUNTERS_S = 1.0
LAST_WORDS_S = 1.0
BACKOFF_S = (0.0, 0.1, 0.3, 1.0, 2.0, 5.0)
"""Waits before a slot's next worker, by the number that died young one after the other."""
YOUNG_S = 2.0
HOPELESS_DEATHS = 3
"""So many deaths of a slot's workers before one served end a start; but for those that were killed from outside."""


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
        self, number: int, slot: int, process: asyncio.subprocess.Process, channel: Channel[FromWorker]
    ) -> None:
        self.number = number
        self.slot = slot
        self.process = process
        self.channel = channel
        self.started_at = self.heard_at = asyncio.get_running_loop().time()
        """Seconds of the loop's clock."""
        self.serving = False
        self.journal_failed = False
        """The disk of its journal has failed, as it said last."""
        self.killed = False
        """By us; whoever else does it says nothing of whether it can run."""
        self.leaving = False
        """It drains by itself, and has its successor."""
        self.silenced = asyncio.Event()
        """Its last message was read."""
        self.counters: Snapshot = {}

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def kill(self) -> None:
        """End it at once; its death is noticed as any other."""
        self.killed = True
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class WorkerOwner(Protocol):
    """What the slots need to know, and whom they tell: the supervisor."""

    def boot(self, number: int) -> Boot:
        """Return the first frame for the worker process of this number."""
        ...

    @property
    def store_answers(self) -> bool:
        """Whether the store does; workers tell clients."""
        ...

    def heard(self, worker: WorkerProcess, message: FromWorker) -> None:
        """Act on what a worker says, but for what is of use to the slots alone.

        Raises:
            AssertionError: the worker is confused.
        """
        ...

    def died(self, worker: WorkerProcess) -> None:
        """Clear up behind a worker process that ended, after its last message; called once for each."""
        ...

    def failed(self, error: BaseException) -> None:
        """End all: what keeps the workers running does not run any more."""
        ...


class WorkerSlots:
    """All worker processes. `live` and `send` are how the bank reaches them."""

    def __init__(
        self,
        owner: WorkerOwner,
        listeners: Listeners,
        numbers: WorkerNumbers,
        tally: Tally,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        self._owner = owner
        self._listeners = listeners
        self._numbers = numbers
        self._tally = tally
        self._command = command
        self._loop = asyncio.get_running_loop()
        self._workers: dict[int, WorkerProcess] = {}
        self._adopters: dict[int, WorkerProcess] = {}
        self._young_deaths = [0] * len(listeners.slots)
        self._unserved_deaths = [0] * len(listeners.slots)
        self._tasks: set[asyncio.Task[None]] = set()
        self._drain: Drain | None = None
        """The order under which all end; None while we serve."""
        self._changed = asyncio.Event()
        self._questions: dict[tuple[int, int], asyncio.Future[None]] = {}
        self._question = 0
        self._retired: Snapshot = {}
        self._hopeless = False
        """A worker could not start where a successor could not either."""

    # What others ask

    def __iter__(self) -> Iterator[WorkerProcess]:
        return iter(list(self._workers.values()))

    @property
    def live(self) -> dict[int, WorkerProcess]:
        """The worker processes that have not ended, by number."""
        return self._workers

    @property
    def serving(self) -> int:
        """How many accept connections."""
        return sum(worker.serving for worker in self._workers.values())

    def send(self, worker: int, message: Any) -> None:
        """Tell a worker process something; nothing where it is gone.

        What cannot be said is logged; a worker that asked for it is told so.
        """
        found = self._workers.get(worker)
        if found is None:
            return
        try:
            found.channel.send(message)
        except MessageUnsent as error:
            if isinstance(message, ToQuestion):
                found.channel.send(Unanswered(message.question, error.message))

    def send_all(self, message: Any) -> None:
        """Tell all of them."""
        for worker in self._workers:
            self.send(worker, message)

    async def counters(self) -> Snapshot:
        """Return the counts of all workers there ever were, the dead ones' as last told."""
        self._question += 1
        number = self._question
        answers: list[asyncio.Future[None]] = []
        for worker in self._workers.values():
            if worker.serving or worker.leaving:
                answers.append(self._loop.create_future())
                self._questions[number, worker.number] = answers[-1]
                worker.channel.send(CountersAsked(number))
        if answers:
            await asyncio.wait(answers, timeout=COUNTERS_S)
        for asked in [asked for asked in self._questions if asked[0] == number]:
            del self._questions[asked]
        return merge([self._retired, *(worker.counters for worker in self._workers.values())])

    # Life

    async def start(self) -> None:
        """Start a worker in every slot, and return when all of them accept.

        Raises:
            ConfigError: they cannot start here; they have told why.
        """
        self._keep(self._beat())
        for slot in range(len(self._listeners.slots)):
            self._keep(self._fill(slot, 0.0))
        while self.serving < len(self._listeners.slots) and self._drain is None:
            if self._hopeless:
                raise ConfigError("the workers cannot start; what they said stands above")
            self._changed.clear()
            await self._changed.wait()

    async def drain(self, timeout_s: float) -> None:
        """Let every worker finish its requests within the time and end; called again, it shortens the time."""
        self._drain = Drain(timeout_s)
        self.send_all(self._drain)
        self._changed.set()
        deadline = self._loop.time() + timeout_s + EXIT_S
        while self._workers:
            if self._loop.time() >= deadline:
                deadline = self._loop.time() + EXIT_S
                for worker in self:
                    worker.kill()
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()

    async def close(self) -> None:
        """Kill what still runs."""
        self._drain = Drain(0)
        while self._workers:
            for worker in self:
                worker.kill()
            self._changed.clear()
            await self._changed.wait()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # One worker

    async def _fill(self, slot: int, wait_s: float) -> None:
        """Start a worker in a slot, as soon as there is room for one."""
        await asyncio.sleep(wait_s)
        while self._drain is None:
            try:
                await self._spawn(slot)
                return
            except OSError as error:  # no processes, descriptors or memory left: they may come back
                log(WORKER_FAILED, slot=slot, error=error)
            except MessageUnsent as error:  # no worker can be told what it needs, until that is another
                log(WORKER_FAILED, slot=slot, error=error)
                self._hopeless = True
                self._changed.set()
            await asyncio.sleep(BACKOFF_S[-1])

    async def _spawn(self, slot: int) -> None:
        number = self._numbers.next()
        boot = encode_frame(self._owner.boot(number))
        ours, theirs = socket.socketpair()
        listening = [[sock.fileno() for sock in socks] for socks in self._listeners.slots]
        with theirs:
            channel = await open_supervisor_end(
                ours,
                lambda message: self._heard(number, message),
                lambda error: self._channel_lost(number, error),
            )
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
                channel.close()
                raise
        self._workers[number] = worker = WorkerProcess(number, slot, process, channel)
        self._keep(self._watch(worker))
        self._tally.add(WORKER_STARTS)
        channel.send_frame(boot)
        if self._drain is not None:
            channel.send(self._drain)

    def _heard(self, number: int, message: FromWorker) -> None:
        worker = self._workers.get(number)
        if worker is None:
            return
        worker.heard_at = self._loop.time()
        try:
            match message:
                case WorkerBeat():
                    worker.journal_failed = message.journal_failed
                case Serving():
                    self._served(worker)
                case Leaving():
                    self._left(worker)
                case Counters():
                    worker.counters = message.values
                    self._answered(message.question, number)
                case _:
                    self._owner.heard(worker, message)
        except AssertionError as error:
            log(WORKER_CONFUSED, number=number, error=error)
            worker.kill()

    def _answered(self, question: int, number: int) -> None:
        answer = self._questions.get((question, number))
        if answer is not None and not answer.done():
            answer.set_result(None)

    def _channel_lost(self, number: int, error: DecodeError | None) -> None:
        worker = self._workers.get(number)
        if worker is None:
            return
        worker.silenced.set()
        if error is not None:
            log(WORKER_CONFUSED, number=number, error=error.reason)
            worker.kill()
        else:
            # It has ended, which its watcher sees too, or is about to; it must not linger beside its
            # successor.
            self._loop.call_later(EXIT_S, worker.kill)

    def _served(self, worker: WorkerProcess) -> None:
        if worker.serving or worker.leaving:
            return
        worker.serving = True
        log(WORKER_SERVING, number=worker.number, slot=worker.slot, pid=worker.pid)
        adopter = self._adopters.pop(worker.slot, None)
        if adopter is not None:
            adopter.channel.send(Release(worker.slot))
        self._find_adopters()
        self._changed.set()

    def _left(self, worker: WorkerProcess) -> None:
        if worker.leaving or self._drain is not None:
            return
        worker.leaving = True
        worker.serving = False
        log(WORKER_LEAVING, number=worker.number, slot=worker.slot, pid=worker.pid)
        self._keep(self._fill(worker.slot, 0.0))
        self._lose_adopter(worker)

    async def _watch(self, worker: WorkerProcess) -> None:
        status = await worker.process.wait()
        # What it said before it died comes first.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await worker.silenced.wait()
        worker.channel.close()
        del self._workers[worker.number]
        self._retired = merge([self._retired, without_gauges(worker.counters)])
        for question, number in list(self._questions):
            if number == worker.number:
                self._answered(question, number)
        if status != DRAINED:
            self._tally.add(WORKER_DEATHS)
            log(WORKER_DIED, number=worker.number, slot=worker.slot, pid=worker.pid, status=status)
        self._owner.died(worker)
        self._lose_adopter(worker)
        if self._drain is None and not worker.leaving:
            young = self._loop.time() - worker.started_at < YOUNG_S or not worker.serving
            deaths = self._young_deaths[worker.slot] + 1 if young else 0
            self._young_deaths[worker.slot] = deaths
            if worker.serving:
                self._unserved_deaths[worker.slot] = 0
            elif worker.killed or status != -signal.SIGKILL:
                self._unserved_deaths[worker.slot] += 1
            if status == BOOT_FAILED or self._unserved_deaths[worker.slot] >= HOPELESS_DEATHS:
                self._hopeless = True
            self._keep(self._fill(worker.slot, BACKOFF_S[min(deaths, len(BACKOFF_S) - 1)]))
        self._changed.set()

    def _lose_adopter(self, worker: WorkerProcess) -> None:
        """Find others to accept where this worker did."""
        for slot in [slot for slot, adopter in self._adopters.items() if adopter is worker]:
            del self._adopters[slot]
        self._find_adopters()

    def _find_adopters(self) -> None:
        """See that every slot without a worker that accepts has another one that accepts for it.

        Also while all drain: those that still run refuse what comes to those that have ended.
        """
        if self._listeners.inherited:
            return
        serving = [worker for worker in self._workers.values() if worker.serving]
        manned = {worker.slot for worker in serving}
        for slot in range(len(self._listeners.slots)):
            if serving and slot not in manned and slot not in self._adopters:
                adopter = random.choice(serving)
                self._adopters[slot] = adopter
                adopter.channel.send(Adopt(slot))

    async def _beat(self) -> None:
        """Tell the workers that we live, and kill those that no longer say so."""
        while True:
            slept_at = self._loop.time()
            await asyncio.sleep(BEAT_S)
            now = self._loop.time()
            self.send_all(SupervisorBeat(self._owner.store_answers))
            if now - slept_at > BEAT_S + 1:
                # It was we who were stopped: what the workers said meanwhile is still unread.
                for worker in self._workers.values():
                    worker.heard_at = now
                continue
            for worker in self:
                silent_s = now - worker.heard_at
                if silent_s > (SILENCE_S if worker.serving or worker.leaving else BOOT_S):
                    log(WORKER_SILENT, number=worker.number, pid=worker.pid, silent_s=round(silent_s, 1))
                    worker.heard_at = now
                    worker.kill()

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Tell where a task failed unforeseen: a slot that nobody fills or watches would be waited for for ever."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._owner.failed(error)
