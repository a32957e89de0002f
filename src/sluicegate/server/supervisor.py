"""The supervisor: opens sockets and store, starts the workers, and is the one writer of the store.

Order of a start: lock the store, see that the ports are free, open the store, recover and commit every
journal, only then open the ports and grant leases. What the parts do stands with them: `worker_slots`
(processes), `bank` (credit), `drain` (journals), `control_socket` (commands and the admin process),
`admin_process`.

Source: design.md, sections 2 (supervisor and workers) and 3 (leases, journals).
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sluicegate import __version__
from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.leases import LeaseBook
from sluicegate.errors import BadRequest, SluicegateError, StoreUnavailable
from sluicegate.money import format_usd
from sluicegate.server.admin_process import AdminBoot, AdminProcess
from sluicegate.server.bank import Bank
from sluicegate.server.control import (
    Boot,
    Configure,
    FromWorker,
    GivenBack,
    JournalGrew,
    KeyAnswer,
    KeyAsked,
    KeysChanged,
    LeaseAsked,
    WorkerBeat,
)
from sluicegate.server.control_socket import ControlSocket
from sluicegate.server.drain import Committed, JournalDrain
from sluicegate.server.listeners import Address, Listeners, check_port, inherits_socket, open_listeners
from sluicegate.server.settings import WorkerSettings
from sluicegate.server.store_lock import StoreLock
from sluicegate.server.telemetry import (
    BALANCE,
    CLAMPED,
    CONFIG_REFUSED,
    CONFIG_RELOADED,
    DAMAGED,
    JOURNAL_RECOVERED,
    LEASED,
    OPERATION_DONE,
    SETTLED,
    STORE_UP,
    SUPERVISOR_DRAINING,
    SUPERVISOR_SERVING,
    SUPERVISOR_STOPPED,
    WORKERS,
    Snapshot,
    Tally,
    log,
    merge,
)
from sluicegate.server.worker_slots import WORKER_COMMAND, WorkerNumbers, WorkerProcess, WorkerSlots
from sluicegate.store import ConfiguredAccount, ConfiguredKey, Store, open_store
from sluicegate.store.operations import apply_operation

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
    """None: health and metrics only, on loopback only."""


class Supervisor:
    """One run of the gate, from the locks to the last commit."""

    def __init__(
        self,
        settings: SupervisorSettings,
        reload: Callable[[], SupervisorSettings],
        *,
        environment: Mapping[str, str] = os.environ,
        worker_command: Sequence[str] = WORKER_COMMAND,
        on_serving: Callable[[Address, Address], None] = lambda clients, admin: None,
    ) -> None:
        """Prepare a run; nothing is touched yet.

        Args:
            reload: reads the configuration anew; may raise ConfigError.
            on_serving: told the addresses once clients are served.
        """
        self._settings = settings
        self._reload = reload
        self._environment = environment
        self._worker_command = worker_command
        self._on_serving = on_serving
        self._folder = Path(settings.worker.journal.dir)
        self._tally = Tally()
        self._store: Store = open_store(settings.store_url)
        self._store_answers = False
        self._keys: dict[bytes, KeyRecord] = {}
        self._ended_journals: set[int] = set()
        self._stop_orders: asyncio.Queue[float] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: Listeners
        self._slots: WorkerSlots
        self._bank: Bank
        self._drain: JournalDrain
        self._admin: AdminProcess
        self._started_at = time.time()
        self._draining = False
        self._fault: BaseException | None = None
        self._reloading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until told to stop.

        Raises:
            ConfigError: it cannot start here; one line says why.
            StoreUnavailable: the store cannot be opened or the journals not be committed.
        """
        self._take_signals()
        lock = await StoreLock.take(lock_paths(self._folder, self._settings.store_url))
        try:
            await self._check_ports()
            await self._store.open()
            try:
                await self._recover()
                await self._serve()
            finally:
                self._drain.close()
                await self._store.close()
        finally:
            lock.release()
        log(SUPERVISOR_STOPPED)

    def stop(self) -> None:
        """Drain and end; called again, end at once."""
        self._stop_orders.put_nowait(0.0 if self._draining else self._settings.worker.server.drain_timeout_s)
        self._draining = True

    # Start

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    async def _check_ports(self) -> None:
        if not inherits_socket(self._environment):
            await check_port(self._clients_address())
        await check_port(self._settings.admin)

    def _clients_address(self) -> Address:
        server = self._settings.worker.server
        return Address(server.host, server.port)

    async def _recover(self) -> None:
        """Commit every journal, and only then learn keys and balances."""
        settings = self._settings
        self._drain = JournalDrain(
            self._folder,
            self._store,
            self._committed,
            drain_every_s=settings.worker.journal.drain_every_s,
        )
        await self._drain.recover()
        if self._drain.recovered:
            log(JOURNAL_RECOVERED, interrupted=self._drain.recovered)
        await self._store.bootstrap(settings.accounts, settings.keys, time.time())
        self._store_answers = True
        accounts = await self._store.all_accounts()
        book = LeaseBook({account.id: account.balance_nano for account in accounts if not account.unlimited})
        self._keys = {key.hash: key for key in await self._store.all_keys()}
        self._listeners = await open_listeners(
            self._clients_address(), settings.worker.server.workers, self._environment
        )
        self._slots = WorkerSlots(
            self._listeners,
            WorkerNumbers(self._folder / "worker-number"),
            self._boot,
            self._heard,
            self._worker_died,
            lambda: self._store_answers,
            self._tally,
            self._worker_command,
        )
        self._bank = Bank(book, self._slots)

    def _boot(self, number: int) -> Boot:
        return Boot(number, self._settings.worker, list(self._keys.values()))

    # Run

    async def _serve(self) -> None:
        settings = self._settings
        self._admin = AdminProcess(
            AdminBoot(str(self._folder), settings.store_url, settings.admin_token), settings.admin
        )
        control = ControlSocket(self._folder, self._perform)
        try:
            self._begin(self._drain.run())
            self._begin(self._probe())
            await control.open()
            await self._admin.start()
            starting = asyncio.create_task(self._slots.start())
            stopping = asyncio.create_task(self._stop_orders.get())
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                starting.result()
                self._tell_serving()
            await self._stop_when_told(starting, stopping)
        finally:
            await self._slots.close()
            await control.close()
            await self._admin.stop()
            tasks = [*self._tasks, *([self._reloading] if self._reloading else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._listeners.close()

    def _tell_serving(self) -> None:
        log(SUPERVISOR_SERVING, clients=self._listeners.address, admin=self._admin.address, pid=os.getpid())
        self._on_serving(self._listeners.address, self._admin.address)

    async def _stop_when_told(self, starting: asyncio.Task[None], stopping: asyncio.Task[float]) -> None:
        """Drain when told to, faster when told again, and commit what the workers left."""
        timeout_s = await stopping
        starting.cancel()
        log(SUPERVISOR_DRAINING, timeout_s=timeout_s)
        draining = asyncio.create_task(self._slots.drain(timeout_s))
        while not draining.done():
            again = asyncio.create_task(self._stop_orders.get())
            await asyncio.wait([draining, again], return_when=asyncio.FIRST_COMPLETED)
            if again.done() and not draining.done():
                log(SUPERVISOR_DRAINING, timeout_s=again.result())
                draining.cancel()
                draining = asyncio.create_task(self._slots.drain(again.result()))
            again.cancel()
        await draining
        await self._drain.drain()
        if self._fault is not None:
            raise self._fault

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something for as long as we serve; should it fail, so do we."""
        task = asyncio.create_task(coroutine)
        self._tasks.append(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault = self._fault or error
            self._draining = True
            self._stop_orders.put_nowait(0.0)

    async def _probe(self) -> None:
        """See whether the store answers."""
        while True:
            try:
                async with asyncio.timeout(PROBE_S):
                    await self._store.find_key(b"")
                self._store_answers = True
            except (StoreUnavailable, TimeoutError):
                self._store_answers = False
            await asyncio.sleep(PROBE_S)

    # What workers say

    def _heard(self, worker: WorkerProcess, message: FromWorker) -> None:
        match message:
            case LeaseAsked():
                self._bank.asked(worker.number, message)
            case GivenBack():
                self._bank.given_back(worker.number, message)
            case JournalGrew():
                self._drain.wake()
            case KeyAsked():
                self._slots.send(worker.number, KeyAnswer(message.question, self._keys.get(message.hash)))
            case WorkerBeat():
                pass

    def _worker_died(self, worker: WorkerProcess) -> None:
        if worker.number in self._ended_journals:
            self._ended_journals.remove(worker.number)
            self._bank.release_worker(worker.number)
        self._drain.wake()

    def _committed(self, committed: Committed) -> None:
        """Follow a commit in the lease book."""
        if not hasattr(self, "_bank"):
            return  # recovery: balances are read from the store after it
        self._tally.add(SETTLED, len(committed.result.closed))
        self._tally.add(CLAMPED, committed.result.clamped)
        for account_id, charged_nano in committed.result.charged.items():
            self._bank.book.book(account_id, committed.worker, charged_nano)
        if committed.ended:
            if committed.worker in self._slots.live:
                # Its last messages are still unread; they may bring leases back, or take some.
                self._ended_journals.add(committed.worker)
            else:
                self._bank.release_worker(committed.worker)

    # What commands and the admin process ask

    async def _perform(self, operation: str, arguments: dict[str, Any]) -> Any:
        match operation:
            case "status":
                return self._status()
            case "metrics":
                return await self._metrics()
            case "reload":
                return await self._apply_configuration()
            case "keys.list" | "accounts.list":
                return await apply_operation(self._store, operation, arguments)
            case "accounts.adjust" if (debit := _debit(arguments)) is not None:
                return await self._take_out(*debit, arguments)
        return await self._change(operation, arguments)

    async def _change(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Change keys or credit in the store, then in the lease book and the workers."""
        async with self._drain.paused():
            result = await apply_operation(self._store, operation, arguments)
            if (account := result.get("account")) is not None and not account["unlimited"]:
                self._bank.book.set_balance(account["id"], account["balance_nano_usd"])
            if (shown := result.get("key")) is not None:
                if not shown["unlimited"]:
                    self._bank.book.set_balance(shown["account"], shown["balance_nano_usd"])
                key = await self._store.get_key(shown["id"])
                self._keys[key.hash] = key
                self._slots.send_all(KeysChanged([key]))
        log(OPERATION_DONE, operation=operation, key=shown and shown["id"], account=account and account["id"])
        return result

    async def _take_out(self, account_id: str, amount_nano: int, arguments: dict[str, Any]) -> dict[str, Any]:
        """Debit an account by hand: out of credit that nothing has leased, idle leases called back for it."""
        book = self._bank.book
        if not book.knows(account_id):
            return await self._change("accounts.adjust", arguments)
        if not await self._bank.hold(account_id, amount_nano):
            free = format_usd(max(0, book.free(account_id)))
            raise BadRequest(f"account {account_id!r} has only {free} USD that are free")
        try:
            leased_nano = book.taken(account_id) - amount_nano
            return await self._change("accounts.adjust", {**arguments, "leased_nano": leased_nano})
        finally:
            book.release(account_id, amount_nano)

    def _status(self) -> dict[str, Any]:
        now = asyncio.get_running_loop().time()
        return {
            "version": __version__,
            "pid": os.getpid(),
            "started_at": self._started_at,
            "clients": str(self._listeners.address),
            "admin": str(self._admin.address),
            "draining": self._draining,
            "store_answers": self._store_answers,
            "workers": [
                {
                    "slot": worker.slot,
                    "number": worker.number,
                    "pid": worker.pid,
                    "serving": worker.serving,
                    "running_s": round(now - worker.started_at, 3),
                }
                for worker in self._slots
            ],
        }

    async def _metrics(self) -> Snapshot:
        balance, leased = self._bank.book.totals()
        self._tally.set(WORKERS, self._slots.serving)
        self._tally.set(STORE_UP, int(self._store_answers))
        self._tally.set(BALANCE, balance)
        self._tally.set(LEASED, leased)
        self._tally.set(DAMAGED, self._drain.damaged_bytes)
        return merge([self._tally.snapshot(), await self._slots.counters()])

    # Configuration

    def _hang_up(self) -> None:
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._reload_and_tell())

    async def _reload_and_tell(self) -> None:
        try:
            await self._apply_configuration()
        except SluicegateError:
            return  # told by whoever refused it

    async def _apply_configuration(self) -> dict[str, Any]:
        """Go on with the configuration as it is now; where it is wrong, with the one that was.

        What sockets, processes and files depend on stays until a restart, and is named.
        """
        try:
            new = await asyncio.to_thread(self._reload)
            kept = what_needs_restart(self._settings, new)
            worker = msgspec.structs.replace(
                new.worker,
                journal=self._settings.worker.journal,
                key_secret=self._settings.worker.key_secret,
                server=msgspec.structs.replace(
                    new.worker.server,
                    host=self._settings.worker.server.host,
                    port=self._settings.worker.server.port,
                    workers=self._settings.worker.server.workers,
                    tls=self._settings.worker.server.tls,
                ),
            )
            async with self._drain.paused():
                await self._store.bootstrap(new.accounts, new.keys, time.time())
                await self._follow_store()
        except SluicegateError as error:
            log(CONFIG_REFUSED, error=error)
            raise
        self._settings = msgspec.structs.replace(
            self._settings, worker=worker, accounts=new.accounts, keys=new.keys
        )
        self._slots.send_all(Configure(worker))
        log(CONFIG_RELOADED, needs_restart=",".join(kept) or None)
        return {"needs_restart": kept}

    async def _follow_store(self) -> None:
        """Take over balances and keys that were just written; the drain is paused, so they stand still."""
        for account in await self._store.all_accounts():
            if not account.unlimited:
                self._bank.book.set_balance(account.id, account.balance_nano)
        keys = {key.hash: key for key in await self._store.all_keys()}
        changed = [key for key_hash, key in keys.items() if self._keys.get(key_hash) != key]
        removed = [key_hash for key_hash in self._keys if key_hash not in keys]
        self._keys = keys
        if changed or removed:
            self._slots.send_all(KeysChanged(changed, removed))


def what_needs_restart(old: SupervisorSettings, new: SupervisorSettings) -> list[str]:
    """Name the settings that differ and that a running supervisor cannot change."""
    parts: dict[str, Callable[[SupervisorSettings], object]] = {
        "server.listen": lambda of: (of.worker.server.host, of.worker.server.port),
        "server.workers": lambda of: of.worker.server.workers,
        "server.tls": lambda of: of.worker.server.tls,
        "admin": lambda of: (of.admin, of.admin_token),
        "store": lambda of: of.store_url,
        "journal": lambda of: of.worker.journal,
        "secrets.key_hash": lambda of: of.worker.key_secret,
    }
    return [name for name, part in parts.items() if part(old) != part(new)]


def _debit(arguments: dict[str, Any]) -> tuple[str, int] | None:
    """Return account and amount where an adjustment takes money out; what is no adjustment is refused later."""
    account_id, amount_nano = arguments.get("account"), arguments.get("amount_nano")
    if isinstance(account_id, str) and isinstance(amount_nano, int) and amount_nano < 0:
        return account_id, -amount_nano
    return None


def lock_paths(folder: Path, store_url: str) -> list[Path]:
    """Return the files whose locks make a process the store's one writer."""
    paths = [folder / "lock"]
    scheme, _, rest = store_url.partition("://")
    if scheme == "sqlite":
        store = Path(rest.removeprefix("/"))
        paths.append(store.with_name(store.name + ".lock"))
    return paths
