"""The supervisor: opens sockets and store, starts the workers, and is the one writer of the store.

Order of a start: lock the store, see that the ports are free, open the store, recover and commit every
journal; only then open the ports and grant leases. What the parts do stands with them: `worker_slots`
(processes), `bank` (credit), `drain` (journals), `operations` (what commands ask), `control_socket` and
`admin_process` (who asks).

Read ARCHITECTURE.md first: who owns what, and in which order things become true.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sluicegate import __version__
from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.budgets import Budgets
from sluicegate.billing.leases import LeaseBook
from sluicegate.billing.ledger import KeptObject
from sluicegate.billing.shortfall import ShortfallWatch
from sluicegate.billing.spending_limits import begins_at, day_of, limits_of
from sluicegate.errors import BadRequest, ConfigError, SluicegateError, StoreUnavailable
from sluicegate.money import format_usd
from sluicegate.routing.price_list import Listing, listing
from sluicegate.server.admin_process import AdminBoot, AdminProcess
from sluicegate.server.bank import Bank
from sluicegate.server.claim_desk import ClaimDesk
from sluicegate.server.claim_messages import ClaimAsked, ClaimEnded
from sluicegate.server.control import encode_frame
from sluicegate.server.control_messages import (
    Boot,
    Cautious,
    Configure,
    DeploymentHealth,
    FromWorker,
    GivenBack,
    JournalGrew,
    KeyAnswer,
    KeyAsked,
    LeaseAsked,
    ResponseAsked,
    ResponseDropped,
    ResponseKept,
    RunAsked,
    RunChanged,
    SlicesAsked,
    SlicesBack,
)
from sluicegate.server.control_socket import ControlSocket
from sluicegate.server.drain import Committed, JournalDrain
from sluicegate.server.garbage import collect_less
from sluicegate.server.generation_desk import GenerationDesk
from sluicegate.server.generation_messages import GenerationAsked, RunningTold
from sluicegate.server.health_board import HealthBoard
from sluicegate.server.job_desk import JobDesk
from sluicegate.server.job_messages import JobTold, ObjectDropped, ObjectPut, ObjectsAsked
from sluicegate.server.key_ring import KeyRing
from sluicegate.server.limit_desk import LimitDesk
from sluicegate.server.listeners import Address, Listeners, check_port, inherits_socket, open_listeners
from sluicegate.server.operations import Operations
from sluicegate.server.probe_desk import ProbeDesk
from sluicegate.server.probe_messages import ProbeTold
from sluicegate.server.response_keeper import ResponseKeeper
from sluicegate.server.settings_shapes import WorkerSettings
from sluicegate.server.store_lock import StoreLock, refuse_lost_store
from sluicegate.server.tally import Snapshot, Tally, merge
from sluicegate.server.telemetry import (
    BALANCE,
    CLAMPED,
    CONFIG_REFUSED,
    CONFIG_RELOADED,
    DAMAGED,
    JOURNAL_RECOVERED,
    LEASED,
    SETTLED,
    SHORTFALL_PASSED,
    STORE_UP,
    SUPERVISOR_DRAINING,
    SUPERVISOR_SERVING,
    SUPERVISOR_STOPPED,
    WORKERS,
    log,
)
from sluicegate.server.worker_slots import WORKER_COMMAND, WorkerNumbers, WorkerProcess, WorkerSlots
from sluicegate.store import (
    Account,
    CommitResult,
    ConfiguredAccount,
    ConfiguredKey,
    Store,
    open_store,
    store_file,
)
from sluicegate.store.spending import load_budgets, refuse_limits_below_spent

PROBE_S = 1.0
"""How often the store is asked whether it answers, and how long it may take."""


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor needs to know, as plain data made from the configuration."""

    worker: WorkerSettings
    store_url: str
    accounts: tuple[ConfiguredAccount, ...] = ()
    keys: tuple[ConfiguredKey, ...] = ()
    admin: Address = Address("127.0.0.1", 4001)
    admin_token: str | None = None
    """None: health and metrics only."""

    @property
    def journal_dir(self) -> Path:
        """The folder of journals, lock and control socket."""
        return Path(self.worker.journal.dir)

    @property
    def clients(self) -> Address:
        """Where clients are served."""
        return Address(self.worker.server.host, self.worker.server.port)


async def run_supervisor(
    settings: SupervisorSettings,
    reload: Callable[[], SupervisorSettings],
    *,
    environment: Mapping[str, str] = os.environ,
    worker_command: Sequence[str] = WORKER_COMMAND,
    on_serving: Callable[[Address, Address], None] = lambda clients, admin: None,
) -> None:
    """Serve until told to stop by SIGTERM or SIGINT.

    Args:
        reload: reads the configuration anew, in a thread; may raise ConfigError.
        on_serving: told the addresses of the clients' and the admin port once clients are served.
    Raises:
        ConfigError: it cannot start here; one line says why.
        StoreUnavailable: the store cannot be opened, or the journals not be committed.
    """
    signals = _Signals(asyncio.current_task())
    lock = await StoreLock.take(lock_paths(settings.journal_dir, settings.store_url))
    store = open_store(settings.store_url)
    try:
        refuse_lost_store(settings.journal_dir, settings.store_url)
        if not inherits_socket(environment):
            await check_port(settings.clients)
        await check_port(settings.admin)
        await store.open()
        await _recover(settings, store)
        listeners = await open_listeners(settings.clients, settings.worker.server.workers, environment)
        try:
            supervisor = Supervisor(
                settings,
                reload,
                store,
                listeners,
                await _read_books(store, settings),
                worker_command,
            )
            signals.guide(supervisor)
            await supervisor.run(on_serving)
        finally:
            listeners.close()
    except asyncio.CancelledError:
        if not signals.came:
            raise
    finally:
        await store.close()
        lock.release()
    log(SUPERVISOR_STOPPED)


async def _recover(settings: SupervisorSettings, store: Store) -> None:
    """Commit every journal, so that balances are what they are; then make keys and accounts as configured."""
    drain = JournalDrain(settings.journal_dir, store)
    try:
        await drain.recover()
        if drain.recovered or drain.damaged_bytes:
            log(JOURNAL_RECOVERED, interrupted=drain.recovered, damaged_bytes=drain.damaged_bytes)
    finally:
        drain.close()
    await store.bootstrap(settings.accounts, settings.keys, time.time())


class _Books(NamedTuple):
    """What the store says when we start."""

    accounts: list[Account]
    keys: list[KeyRecord]
    budgets: Budgets
    shortfall: ShortfallWatch
    jobs: list[KeptObject]


async def _read_books(store: Store, settings: SupervisorSettings) -> _Books:
    now = time.time()
    keys = await store.all_keys()
    today = begins_at("day", day_of(now))
    limit_nano = settings.worker.billing.shortfall_limit_nano
    return _Books(
        await store.all_accounts(),
        keys,
        await load_budgets(store, keys, now),
        ShortfallWatch(limit_nano, now, await store.shortfall_since(today)),
        await store.open_jobs(),
    )


class _Signals:
    """What the process's signals do: end a start that is under way; later, guide the supervisor."""

    def __init__(self, starting: "asyncio.Task[Any] | None") -> None:
        self.came = False
        """Told to stop."""
        self._loop = asyncio.get_running_loop()
        self._starting = starting
        self._supervisor: Supervisor | None = None
        self._loop.add_signal_handler(signal.SIGTERM, self._stop)
        self._loop.add_signal_handler(signal.SIGINT, self._stop)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)

    def guide(self, supervisor: "Supervisor") -> None:
        """Send what comes from now on to the supervisor."""
        self._supervisor = supervisor

    def _stop(self) -> None:
        self.came = True
        if self._supervisor is not None:
            self._supervisor.stop()
        elif self._starting is not None:
            self._starting.cancel()

    def _reload(self) -> None:
        if self._supervisor is not None:
            self._supervisor.reload()


class Supervisor:
    """The gate while it serves: store open, journals recovered, sockets listening."""

    def __init__(
        self,
        settings: SupervisorSettings,
        reload: Callable[[], SupervisorSettings],
        store: Store,
        listeners: Listeners,
        books: _Books,
        worker_command: Sequence[str],
    ) -> None:
        folder = settings.journal_dir
        self._settings = settings
        self._read_settings = reload
        self._store = store
        self._store_answers = True
        self._listeners = listeners
        self._tally = Tally()
        self._slots = WorkerSlots(
            self, listeners, WorkerNumbers(folder / "worker-number"), self._tally, worker_command
        )
        balances = {account.id: account.balance_nano for account in books.accounts if not account.unlimited}
        self._bank = Bank(LeaseBook(balances), self._slots, books.budgets)
        self._shortfall = books.shortfall
        self._keys = KeyRing(books.keys, self._slots.send_all)
        self._drain = JournalDrain(
            folder, store, self._committed, drain_every_s=settings.worker.journal.drain_every_s
        )
        self._ended_journals: set[int] = set()
        self._claims = ClaimDesk(store, self._slots.send)
        self._generations = GenerationDesk(
            store, self._drain.drain, self._slots.send, lambda: self._slots.live
        )
        self._health = HealthBoard()
        self._probes = ProbeDesk(
            settings.worker, self._health, self._tally, self._slots.send, lambda: self._slots.live
        )
        self._limits = LimitDesk(self._slots.send, lambda: self._slots.live)
        self._operations = Operations(store, self._drain, self._bank, self._keys)
        self._operations.add("status", self._status)
        self._operations.add("metrics", self._metrics)
        self._operations.add("reload", self._apply_configuration)
        self._operations.add("prices", self._prices)
        self._control = ControlSocket(folder, self._operations.perform)
        self._admin = AdminProcess(
            AdminBoot(str(folder), settings.store_url, settings.admin_token), settings.admin
        )
        self._started_at = time.time()
        self._stop_orders: asyncio.Queue[float] = asyncio.Queue()
        self._stopping = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._responses = ResponseKeeper(store, self._slots.send, self._begin)
        self._responses.settings = settings.worker.responses_store
        self._jobs = JobDesk(
            store,
            self._drain,
            self._bank,
            self._slots.send,
            lambda: self._slots.live,
            self._begin,
            self._job_settled,
        )
        self._jobs.settings = settings.worker.jobs
        for kept in books.jobs:
            if kept.job is not None:
                self._jobs.hold(kept.job, None)
        self._fault: BaseException | None = None

    # Life

    async def run(self, on_serving: Callable[[Address, Address], None]) -> None:
        """Start the workers, serve, and return when all have drained and their last record is committed."""
        try:
            self._begin(self._drain.run())
            self._begin(self._probe())
            self._begin(self._claims.run())
            self._begin(self._responses.run())
            self._begin(self._jobs.run())
            self._begin(self._probes.run())
            await self._control.open()
            await self._admin.start()
            starting = asyncio.create_task(self._slots.start())
            told = asyncio.create_task(self._stop_orders.get())
            await asyncio.wait([starting, told], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                log(
                    SUPERVISOR_SERVING,
                    clients=self._listeners.address,
                    admin=self._admin.address,
                    pid=os.getpid(),
                )
                on_serving(self._listeners.address, self._admin.address)
                collect_less()
            await self._stop_workers(await told)
            await asyncio.wait([starting])
            await self._drain.drain()
        finally:
            await self._slots.close()
            await self._control.close()
            await self._admin.stop()
            self._generations.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._drain.close()
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Drain and end; called again, end at once."""
        self._stop_orders.put_nowait(0.0 if self._stopping else self._settings.worker.server.drain_timeout_s)
        self._stopping = True

    def reload(self) -> None:
        """Read the configuration anew; what comes of it stands in the log."""
        self._begin(self._reload_and_tell())

    async def _stop_workers(self, timeout_s: float) -> None:
        """Drain within the time, or within the shorter one of a later order."""
        log(SUPERVISOR_DRAINING, timeout_s=timeout_s)
        draining = asyncio.create_task(self._slots.drain(timeout_s))
        while not draining.done():
            told = asyncio.create_task(self._stop_orders.get())
            await asyncio.wait([draining, told], return_when=asyncio.FIRST_COMPLETED)
            if told.done() and not draining.done():
                draining.cancel()
                log(SUPERVISOR_DRAINING, timeout_s=told.result())
                draining = asyncio.create_task(self._slots.drain(told.result()))
            told.cancel()
        await draining

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something beside; where it fails unforeseen, so do we: a supervisor in part is worse than none."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(error)

    async def _probe(self) -> None:
        """See whether the store answers."""
        while True:
            try:
                async with asyncio.timeout(PROBE_S):
                    await self._store.find_key(b"")
                self._store_answers = True
            except (StoreUnavailable, TimeoutError):
                self._store_answers = False
            if self._shortfall.turn(time.time()):
                self._slots.send_all(Cautious(self._shortfall.passed))
            await asyncio.sleep(PROBE_S)

    # What worker_slots asks and tells

    def boot(self, number: int) -> Boot:
        """Return the first frame for a new worker process."""
        return Boot(
            number, self._settings.worker, self._keys.all(), self._health.current(), self._shortfall.passed
        )

    @property
    def store_answers(self) -> bool:
        """Whether the store did when it was last asked."""
        return self._store_answers

    def heard(self, worker: WorkerProcess, message: FromWorker) -> None:
        """Act on what a worker says."""
        match message:
            case LeaseAsked():
                self._bank.asked(worker.number, message)
            case GivenBack():
                self._bank.given_back(worker.number, message)
            case SlicesAsked() | SlicesBack():
                self._limits.heard(worker.number, message)
            case JournalGrew():
                self._drain.wake()
            case ResponseAsked() | ResponseKept() | ResponseDropped():
                self._responses.asked(worker.number, message)
            case ObjectsAsked() | ObjectPut() | ObjectDropped() | JobTold():
                self._jobs.heard(worker.number, message)
            case ProbeTold():
                self._probes.heard(message)
            case RunChanged():
                self._responses.run_changed(worker.number, message)
            case RunAsked():
                self._responses.run_asked(worker.number, message)
            case DeploymentHealth():
                self._health.put(message)
                self._probes.noticed()
                for number in self._slots.live:
                    if number != worker.number:
                        self._slots.send(number, message)
            case ClaimAsked() | ClaimEnded():
                self._claims.heard(worker.number, message)
            case GenerationAsked() | RunningTold():
                self._generations.heard(worker.number, message)
            case KeyAsked():
                self._slots.send(worker.number, KeyAnswer(message.question, self._keys.find(message.hash)))

    def died(self, worker: WorkerProcess) -> None:
        """See that the journal of a worker that ended is committed, and then its leases freed."""
        self._responses.forget_runs(worker.number)
        self._jobs.forget_worker(worker.number)
        self._probes.forget_worker(worker.number)
        self._limits.release_worker(worker.number)
        if worker.number in self._ended_journals:
            self._ended_journals.remove(worker.number)
            self._release(worker.number)
        self._drain.wake()

    def _committed(self, committed: Committed) -> None:
        """Follow a commit of journal records in the lease book."""
        result = committed.result
        self._tally.add(SETTLED, result.settled)
        self._tally.add(CLAMPED, committed.result.clamped)
        for account_id, charged_nano in committed.result.charged.items():
            self._bank.book.book(account_id, committed.worker, charged_nano)
        if self._bank.budgets:
            for (key_id, day, held), charged_nano in result.spent.items():
                self._bank.budgets.book(key_id, day, charged_nano, committed.worker, held=held)
        if result.shortfall:
            self._watch_shortfall(result.shortfall)
        for record in result.handed_over:
            if record.object.job is not None:
                self._jobs.hold(record.object.job, committed.worker)
        if committed.ended:
            if committed.worker in self._slots.live:
                # What it said last is still unread; it may bring leases back, or have taken some.
                self._ended_journals.add(committed.worker)
            else:
                self._release(committed.worker)

    def failed(self, error: BaseException) -> None:
        """End, with an error that nobody foresaw."""
        self._fault = self._fault or error
        self._stopping = True
        self._stop_orders.put_nowait(0.0)

    def _release(self, worker: int) -> None:
        """Free what a dead worker held: its leases, and claims of requests that it never reserved."""
        self._bank.release_worker(worker)
        self._claims.release_worker(worker)

    def _job_settled(self, result: CommitResult) -> None:
        if result.last is not None:
            self._tally.add(SETTLED, 1)
            self._tally.served.settled(result.last)
        if result.shortfall:
            self._watch_shortfall(result.shortfall)

    def _watch_shortfall(self, shortfall: Mapping[str, int]) -> None:
        newly = self._shortfall.add(shortfall, time.time())
        for account_id in newly:
            log(SHORTFALL_PASSED, account=account_id, limit_usd=format_usd(self._shortfall.limit_nano))
        if newly:
            self._slots.send_all(Cautious(self._shortfall.passed))

    # What operations ask

    async def _status(self) -> dict[str, Any]:
        now = asyncio.get_running_loop().time()
        return {
            "version": __version__,
            "pid": os.getpid(),
            "started_at": self._started_at,
            "clients": str(self._listeners.address),
            "admin": str(self._admin.address),
            "draining": self._stopping,
            "store_answers": self._store_answers,
            "unhealthy": self._health.status(),
            "probes": self._probes.status(),
            "workers": [
                {
                    "slot": worker.slot,
                    "number": worker.number,
                    "pid": worker.pid,
                    "serving": worker.serving,
                    "journal_failed": worker.journal_failed,
                    "running_s": round(now - worker.started_at, 3),
                }
                for worker in self._slots
            ],
        }

    async def _prices(self) -> Listing:
        return listing(self._settings.worker.catalogue, time.time())

    async def _metrics(self) -> Snapshot:
        balance, leased = self._bank.book.totals()
        self._tally.set(WORKERS, self._slots.serving)
        self._tally.set(STORE_UP, int(self._store_answers))
        self._tally.set(BALANCE, balance)
        self._tally.set(LEASED, leased)
        self._health.measure(self._tally)
        self._tally.set(DAMAGED, self._drain.damaged_bytes)
        return merge([self._tally.snapshot(), await self._slots.counters()])

    async def _reload_and_tell(self) -> None:
        try:
            await self._apply_configuration()
        except SluicegateError:
            return  # told where it was refused

    async def _apply_configuration(self) -> dict[str, Any]:
        """Go on with the configuration as it is now; where it is wrong, with the one that was.

        What sockets, processes and files depend on stays until a restart, and is named.
        """
        try:
            new = await asyncio.to_thread(self._read_settings)
            encode_frame(Configure(new.worker))  # what the workers cannot be told must not be half in effect
            async with self._drain.paused():
                await self._refuse_limits_below_spent(new)
                await self._store.bootstrap(new.accounts, new.keys, time.time())
                await self._operations.follow_store()
        except SluicegateError as error:
            log(CONFIG_REFUSED, error=error)
            raise
        kept = what_needs_restart(self._settings, new)
        self._settings = with_new_worker_settings(self._settings, new)
        self._responses.settings = self._settings.worker.responses_store
        self._jobs.settings = self._settings.worker.jobs
        self._probes.apply(self._settings.worker)
        self._shortfall.limit_nano = new.worker.billing.shortfall_limit_nano
        self._slots.send_all(Configure(self._settings.worker))
        self._slots.send_all(Cautious(self._shortfall.passed))
        log(CONFIG_RELOADED, needs_restart=",".join(kept) or None)
        return {"needs_restart": kept}

    async def _refuse_limits_below_spent(self, new: SupervisorSettings) -> None:
        """Refuse a configuration that lowers a spending limit below what is spent. At a start it is taken as it is."""
        before = {key.record.hash: limits_of(key.record) for key in self._settings.keys}
        for wanted in new.keys:
            known = self._keys.find(wanted.record.hash)
            was = before.get(wanted.record.hash, {})
            changed = {
                window: limit
                for window, limit in limits_of(wanted.record).items()
                if limit != was.get(window)
            }
            if known is None or not changed:
                continue
            try:
                await refuse_limits_below_spent(self._store, known, changed, time.time())
            except BadRequest as refusal:
                raise ConfigError(f"keys: {wanted.record.name}: {refusal.message}") from None


def what_needs_restart(old: SupervisorSettings, new: SupervisorSettings) -> list[str]:
    """Name the settings that differ and that a running supervisor cannot change."""
    parts: dict[str, Callable[[SupervisorSettings], object]] = {
        "server.listen": lambda of: of.clients,
        "server.workers": lambda of: of.worker.server.workers,
        "server.tls": lambda of: of.worker.server.tls,
        "admin": lambda of: (of.admin, of.admin_token),
        "store": lambda of: of.store_url,
        "journal": lambda of: of.worker.journal,
        "secrets.key_hash": lambda of: of.worker.key_secret,
    }
    return [name for name, part in parts.items() if part(old) != part(new)]


def with_new_worker_settings(old: SupervisorSettings, new: SupervisorSettings) -> SupervisorSettings:
    """Return the old settings with all of the new ones that can change while we run."""
    was, replace = old.worker.server, msgspec.structs.replace
    server = replace(new.worker.server, host=was.host, port=was.port, workers=was.workers, tls=was.tls)
    worker = replace(new.worker, server=server, journal=old.worker.journal, key_secret=old.worker.key_secret)
    return replace(old, worker=worker, accounts=new.accounts, keys=new.keys)


def lock_paths(folder: Path, store_url: str) -> list[Path]:
    """Return the files whose locks make a process the store's one writer."""
    paths = [folder / "lock"]
    store = store_file(store_url)
    if store is not None:
        paths.append(store.with_name(store.name + ".lock"))
    return paths
