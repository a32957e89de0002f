"""A worker's gateway in the test's own loop, with the supervisor's side of it played by the real bank.

Everything between the sockets is the product: inbound, proxy, relay, upstream pool, credit over a control socket, the
journal on disk. What is left out is what needs other processes (store, drain, restarts): the rows are read straight
from the journal. Start-up takes milliseconds, and a test can look inside (`gateway`, `book`).
"""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from sluicegate.billing.budgets import Budgets
from sluicegate.billing.leases import LeaseBook
from sluicegate.billing.ledger import ProviderCost, Record, Settled, UsageRow
from sluicegate.billing.spending_limits import day_of
from sluicegate.config import load
from sluicegate.server.app import Gateway
from sluicegate.server.bank import Bank
from sluicegate.server.control import Channel, open_supervisor_end
from sluicegate.server.control_messages import (
    Boot,
    FromWorker,
    GivenBack,
    JournalGrew,
    KeyAnswer,
    KeyAsked,
    LeaseAsked,
    ResponseAnswer,
    RunAsked,
    RunChanged,
    SlicesAsked,
    SlicesBack,
    SupervisorBeat,
)
from sluicegate.server.credit import Credit
from sluicegate.server.generation_messages import GenerationAsked, GenerationTold
from sluicegate.server.journal import JournalWriter
from sluicegate.server.journal_reader import Segment
from sluicegate.server.limit_desk import LimitDesk
from sluicegate.server.settings_shapes import WorkerSettings
from sluicegate.server.supervisor_link import SupervisorLink
from sluicegate.server.worker import server_ssl_context
from sluicegate.store.keys import configured

KEY_SECRET = b"in-process-tests" * 2
BEAT_S = 1.0
WORKER = 1


class InProcessGate:
    """A running gateway, and what its supervisor would know."""

    def __init__(self, settings: WorkerSettings, boot: Boot, book: LeaseBook, budgets: Budgets) -> None:
        self.settings = settings
        self.book = book
        """Balances and leases; a charge is booked when it is read from the journal."""
        self.records: list[Record] = []
        """What the journal holds, as far as it was read."""
        self.gateway: Gateway
        self.port = 0
        self._boot = boot
        self.budgets = budgets
        """Spending limits of keys, and their leases."""
        self._bank = Bank(book, self, budgets)
        self.limits = LimitDesk(self.send, lambda: self.live)
        self._channel: Channel[FromWorker]
        self._runs: set[str] = set()
        """Runs in the background that are not settled."""
        self._journal: JournalWriter
        self._segment: Segment
        self.on_heard: Callable[[FromWorker], bool] | None = None
        """Takes what the worker says first; True: it has seen to it, and books what the journal holds."""

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        scheme = "http" if self.settings.server.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}"

    @property
    def live(self) -> tuple[int, ...]:
        """The worker processes that the bank can ask."""
        return (WORKER,)

    def key_id(self, name: str) -> str:
        """Return the id of a key that the configuration names."""
        return next(key.id for key in self._boot.keys if key.name == name)

    def send(self, worker: int, message: Any) -> None:
        """Tell the worker something, as its supervisor."""
        self._channel.send(message)

    def rows(self) -> list[UsageRow]:
        """Return a row for every request that was settled."""
        self._read_journal()
        return [record.row for record in self.records if isinstance(record, Settled)]

    def provider_costs(self) -> list[ProviderCost]:
        """Return what lost attempts cost the operator."""
        self._read_journal()
        return [record for record in self.records if isinstance(record, ProviderCost)]

    async def wait_for_rows(self, count: int, timeout_s: float = 5.0) -> list[UsageRow]:
        """Wait until so many requests are settled; return their rows."""
        async with asyncio.timeout(timeout_s):
            while len(rows := self.rows()) < count:
                await asyncio.sleep(0.005)
        return rows

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["InProcessGate"]:
        """Serve until the block is left."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        self._channel = await open_supervisor_end(ours, self._heard, lambda error: None)
        link = await SupervisorLink.open(theirs)
        self._channel.send(self._boot)
        self._channel.send(SupervisorBeat(store_answers=True))
        await link.booted()
        self._journal = journal = JournalWriter(self.settings.journal, WORKER, loop)
        self._segment = Segment(journal.path)
        self.gateway = Gateway(self.settings, link, Credit(link), journal, loop, WORKER)
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        self.port = listening.getsockname()[1]
        await self.gateway.start([(listening, server_ssl_context(self.settings.server.tls))])
        beating = asyncio.create_task(self._beat())
        try:
            yield self
        finally:
            beating.cancel()
            await self.gateway.drain(0.0)
            self.gateway.close()
            listening.close()
            self._read_journal()
            self._segment.close()
            journal.close()
            link.close()
            self._channel.close()
            await asyncio.sleep(0.002)  # the control socket closes

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self._channel.send(SupervisorBeat(store_answers=True))

    def _heard(self, message: FromWorker) -> None:
        if self.on_heard is not None and self.on_heard(message):
            return
        match message:
            case LeaseAsked():
                self._bank.asked(WORKER, message)
            case GivenBack():
                self._bank.given_back(WORKER, message)
            case SlicesAsked() | SlicesBack():
                self.limits.heard(WORKER, message)
            case KeyAsked():
                self._channel.send(KeyAnswer(message.question, None))
            case GenerationAsked():
                rows = [row for row in self.rows() if row.request_id == message.request_id]
                mine = next((row for row in rows if row.key_id == message.key_id), None)
                self._channel.send(GenerationTold(message.question, mine))
            case RunChanged():
                if message.open:
                    self._runs.add(message.name)
                else:
                    self._runs.discard(message.name)
            case RunAsked():
                self._channel.send(ResponseAnswer(message.question, message.name in self._runs))
            case JournalGrew():
                self._read_journal()

    def _read_journal(self) -> None:
        while True:
            batch = self._segment.read()
            self.records += batch.records
            for record in batch.records:
                if isinstance(record, Settled) and self.on_heard is None:
                    row = record.row
                    self.book.book(record.account_id, WORKER, row.cost_nano_usd)
                    self.budgets.book(
                        row.key_id, day_of(row.started_at), row.cost_nano_usd, WORKER, held=row.limited
                    )
            if batch.at_end:
                if self._segment.path == self._journal.path:
                    return
                self._segment.close()
                self._segment = Segment(self._journal.path)


def in_process_gate(folder: Path, config: dict[str, Any]) -> InProcessGate:
    """Make a gate from a configuration as `tests.conftest.make_config` returns it.

    Its loop is the test's too, so it is late whenever the test, or the machine, is busy: that refuses nobody here.
    """
    config = config | {"server": {"max_lag": 0} | config.get("server", {})}
    text = (
        json.dumps(config).replace("{listen}", "127.0.0.1:4000").replace("{admin_listen}", "127.0.0.1:4001")
    )
    path = folder / "sluicegate.yaml"
    path.write_text(text)
    loaded = load(path, {})
    settings = loaded.worker_settings(KEY_SECRET, {})
    accounts, keys = configured(loaded.bootstrap(), KEY_SECRET)
    balances = {account.id: account.balance_nano for account in accounts if not account.unlimited}
    for key in keys:
        if not key.record.unlimited:
            balances[key.record.account_id] = balances.get(key.record.account_id, 0) + key.balance_nano
    budgets = Budgets()
    for key in keys:
        budgets.put(key.record, {}, day_of(time.time()))
    boot = Boot(WORKER, settings, [key.record for key in keys])
    return InProcessGate(settings, boot, LeaseBook(balances), budgets)
