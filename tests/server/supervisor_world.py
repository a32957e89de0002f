"""A supervisor in a process of its own, with stand-in workers, and what tests ask of it."""

import asyncio
import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.ledger import UsageRow
from sluicegate.routing.catalog_shapes import Catalogue, StreamClocks, StreamSwitches
from sluicegate.server.control_socket import SupervisorNotRunning, call_supervisor
from sluicegate.server.listeners import Address
from sluicegate.server.settings_shapes import (
    BillingSettings,
    JournalSettings,
    RetrySettings,
    ServerSettings,
    WorkerSettings,
)
from sluicegate.server.supervisor import SupervisorSettings
from sluicegate.store import ConfiguredAccount, ConfiguredKey, Store, UsageQuery, open_store

Read = TypeVar("Read")

RUN = str(Path(__file__).with_name("run_supervisor.py"))


def settings(folder: Path, *, workers: int = 1, port: int = 0, **balances: int) -> SupervisorSettings:
    """Return settings for a world in a folder; a keyword is an account and its balance."""
    return SupervisorSettings(
        worker=WorkerSettings(
            server=ServerSettings(port=port, workers=workers, drain_timeout_s=20.0),
            switches=StreamSwitches(),
            clocks=StreamClocks(),
            billing=BillingSettings(),
            retry=RetrySettings(),
            journal=JournalSettings(dir=str(folder / "journal")),
            translation="default",
            catalogue=Catalogue(providers={}, models={}),
            key_secret=bytes(32),
        ),
        store_url=f"sqlite:///{folder / 'gate.db'}",
        accounts=tuple(ConfiguredAccount(id=name, balance_nano=nano) for name, nano in balances.items()),
        keys=(configured_key("first"),),
        admin=Address("127.0.0.1", 0),
    )


def configured_key(name: str) -> ConfiguredKey:
    """Return a key whose hash is its name, padded."""
    record = KeyRecord(
        id=f"key_{name}", name=name, prefix="sg-", hash=name.encode().ljust(32, b"\0"), account_id="acme"
    )
    return ConfiguredKey(record=record)


class Running:
    """One supervisor process."""

    def __init__(
        self,
        folder: Path,
        wanted: SupervisorSettings,
        command: tuple[str, ...] = (sys.executable, RUN),
        fd: int = -1,
    ) -> None:
        self.folder = folder
        self.settings = wanted
        self.file = folder / "settings.msgpack"
        self.log = folder / "log.txt"
        self.configure(wanted)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(self.file)],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                start_new_session=True,
                pass_fds=[] if fd < 0 else [fd],
            )
        self.clients = Address("", 0)
        self.admin = Address("", 0)

    def configure(self, wanted: SupervisorSettings) -> None:
        """Write what a reload will read."""
        self.file.write_bytes(msgspec.msgpack.encode(wanted))

    def wait_serving(self) -> "Running":
        """Return once clients are served."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 60)[0], self.log.read_text()
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        told = json.loads(line)
        self.clients, self.admin = Address(*told["clients"]), Address(*told["admin"])
        return self

    def get(self, target: str, timeout: float = 30.0) -> tuple[int, dict[str, Any]]:
        """Ask the stand-in app."""
        status, body = http_get(self.clients, target, timeout)
        return status, json.loads(body)

    def wait_held(self) -> None:
        """Return once a request holds its reservation."""
        eventually((self.folder / "journal" / "held").exists)

    def let_go(self) -> None:
        """Let it end."""
        (self.folder / "journal" / "go").touch()

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Ask the supervisor by its control socket."""
        return call_supervisor(self.folder / "journal", operation, arguments)

    def workers(self) -> list[dict[str, Any]]:
        """Return the worker processes that serve."""
        return [worker for worker in self.ask("status")["workers"] if worker["serving"]]

    def balance(self, account: str) -> int:
        """Return an account's balance in the store."""
        return asyncio.run(self._read(lambda store: store.get_account(account))).balance_nano

    def rows(self) -> list[UsageRow]:
        """Return every usage row."""

        async def rows(store: Store) -> list[UsageRow]:
            return [row async for row in store.usage(UsageQuery())]

        return asyncio.run(self._read(rows))

    async def _read(self, read: Callable[[Store], Awaitable[Read]]) -> Read:
        store = open_store(self.settings.store_url)
        await store.open(read_only=True)
        try:
            return await read(store)
        finally:
            await store.close()

    def stop(self, within_s: float = 30.0) -> int:
        """Drain, and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)

    def kill(self) -> None:
        """End whatever of it still runs, workers and admin process too."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@contextlib.contextmanager
def running(
    folder: Path, wanted: SupervisorSettings, command: tuple[str, ...] = (sys.executable, RUN), fd: int = -1
) -> Iterator[Running]:
    """Run a supervisor until the block ends.

    Args:
        command: what starts it; the file with its settings follows.
        fd: a descriptor that it inherits.
    """
    world = Running(folder, wanted, command, fd)
    try:
        yield world
    finally:
        world.kill()


def http_get(address: Address, target: str, timeout: float = 30.0) -> tuple[int, bytes]:
    """GET a page; one connection a request."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def eventually(check: Callable[[], Any], within_s: float = 15.0) -> Any:
    """Return what a check gives as soon as it gives something true; errors of connections count as not yet."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            found = check()
            if found:
                return found
        except (OSError, http.client.HTTPException, SupervisorNotRunning):
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
