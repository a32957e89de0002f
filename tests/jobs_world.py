"""A worker's gateway in the test's loop, with the supervisor's side of jobs beside it: real store, drain and job desk.

What `inprocess` reads from the journal by itself goes into a store here, as it does behind a supervisor.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from sluicegate.billing.leases import JOBS
from sluicegate.billing.ledger import KeptObject, UsageRow
from sluicegate.config import load
from sluicegate.server.bank import Bank
from sluicegate.server.control_messages import FromWorker, JournalGrew
from sluicegate.server.drain import Committed, JournalDrain
from sluicegate.server.job_desk import JobDesk
from sluicegate.server.job_messages import JobTold, ObjectDropped, ObjectPut, ObjectsAsked
from sluicegate.store import ObjectQuery, UsageQuery
from sluicegate.store.keys import configured
from sluicegate.store.sqlite import SqliteStore
from tests.inprocess import KEY_SECRET, WORKER, InProcessGate, in_process_gate


class JobsGate:
    """A running gateway whose jobs are followed."""

    def __init__(self, gate: InProcessGate, folder: Path) -> None:
        self.gate = gate
        self.store = SqliteStore(folder / "store.db")
        self.drain = JournalDrain(gate.settings.journal.dir, self.store, self._committed, drain_every_s=0.02)
        self._bank: Bank = gate._bank
        self._tasks: set[asyncio.Task[None]] = set()
        self.desk = JobDesk(
            self.store, self.drain, self._bank, gate.send, lambda: gate.live, self._begin, lambda result: None
        )
        self.desk.settings = gate.settings.jobs

    @property
    def url(self) -> str:
        return self.gate.url

    def free(self, account_id: str = "test") -> int:
        """Return what of an account's credit nobody holds, in nano-USD."""
        return self.gate.book.free(account_id)

    def held(self, account_id: str = "test") -> int:
        """Return what of an account's credit is held for jobs, in nano-USD."""
        return self.gate.book.leased_to(account_id, JOBS)

    async def rows(self) -> list[UsageRow]:
        """Return a row for every request that was settled."""
        await self.drain.drain()
        return [row async for row in self.store.usage(UsageQuery())]

    async def wait_for_rows(self, count: int, timeout_s: float = 20.0) -> list[UsageRow]:
        """Wait until so many requests are settled."""
        async with asyncio.timeout(timeout_s):
            while len(rows := await self.rows()) < count:
                await asyncio.sleep(0.02)
        return rows

    async def jobs(self) -> list[KeptObject]:
        """Return the jobs that are not settled."""
        await self.drain.drain()
        return await self.store.open_jobs()

    async def files(self, account_id: str = "test") -> list[KeptObject]:
        """Return an account's files."""
        return await self.store.find_objects(ObjectQuery(account_id=account_id, kind="file", limit=100))

    @contextlib.asynccontextmanager
    async def running(self, config: Path) -> AsyncIterator["JobsGate"]:
        """Serve until the block is left."""
        await self.store.open()
        accounts, keys = configured(load(config, {}).bootstrap(), KEY_SECRET)
        await self.store.bootstrap(accounts, keys, time.time())
        self.gate.on_heard = self._heard
        try:
            async with self.gate.running():
                await self._read_books()
                self._begin(self.drain.run())
                self._begin(self.desk.run())
                try:
                    yield self
                finally:
                    for task in self._tasks:
                        task.cancel()
                    await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            self.drain.close()
            await self.store.close()

    async def _read_books(self) -> None:
        for account in await self.store.all_accounts():
            if not account.unlimited:
                self.gate.book.set_balance(account.id, account.balance_nano)
        for kept in await self.store.open_jobs():
            assert kept.job is not None
            self.desk.hold(kept.job, None)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _heard(self, message: FromWorker) -> bool:
        match message:
            case ObjectsAsked() | ObjectPut() | ObjectDropped() | JobTold():
                self.desk.heard(WORKER, message)
            case JournalGrew():
                self.drain.wake()
            case _:
                return False
        return True

    def _committed(self, committed: Committed) -> None:
        """Follow a commit as `Supervisor._committed` does."""
        result, gate = committed.result, self.gate
        for account_id, charged_nano in result.charged.items():
            gate.book.book(account_id, committed.worker, charged_nano)
        for (key_id, day, held), charged_nano in result.spent.items():
            gate.budgets.book(key_id, day, charged_nano, committed.worker, held=held)
        for record in result.handed_over:
            assert record.object.job is not None
            self.desk.hold(record.object.job, committed.worker)


@contextlib.asynccontextmanager
async def jobs_gate(folder: Path, config: dict[str, Any]) -> AsyncIterator[JobsGate]:
    """Run a gate from a configuration as `tests.conftest.make_config` returns it.

    Run again in the same folder it is what a gate is after a restart: only the store is left.
    """
    gate = in_process_gate(folder, config)
    async with JobsGate(gate, folder).running(folder / "sluicegate.yaml") as running:
        yield running
