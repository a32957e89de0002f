"""The ledger as a state machine: workers reserve, run, settle and die; the supervisor drains, fails and restarts.

A plain model knows what each request must have cost in the end. Whatever happens in between: the ledger sums to zero,
each request resolves once, a replay never charges twice, and no balance falls below zero.
"""

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, precondition, rule

from sluicegate.billing.ledger import Record
from sluicegate.errors import StoreUnavailable
from sluicegate.server.drain import JournalDrain
from sluicegate.server.journal import JournalWriter
from sluicegate.store import UsageQuery
from sluicegate.store.sqlite import SqliteStore
from tests.profiles import examples
from tests.records import checkpoint, extended, lost_attempt, reserved, settled
from tests.server.journal_world import FaultyStore, begin_journal, kill
from tests.store.world import add_account

CREDIT = 10_000
ACCOUNTS = ("dev", "other")


class Request:
    """What the model knows of one request."""

    def __init__(self, request_id: str, account: str, worker: int, held: int, on_crash: str) -> None:
        self.id = request_id
        self.account = account
        self.worker = worker
        self.held = held
        self.on_crash = on_crash
        self.checkpointed = 0
        self.finished = False
        self.charge: int | None = None
        """What it must cost, once that is decided."""
        self.shortfall = 0

    def crash(self) -> None:
        """Decide as the crash rules say."""
        if self.charge is None:
            produced = self.finished or self.on_crash == "produced"
            self.charge = self.checkpointed if produced else 0


class LedgerMachine(RuleBasedStateMachine):
    """Everything is real but the deaths: files, locks, SQLite; a worker dies by losing its descriptors."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="ledger-"))
        self.journals = self.folder / "journal"
        self.journals.mkdir()
        self.store = SqliteStore(self.folder / "store.db")
        self.faulty = FaultyStore(self.store)
        self.model: dict[str, Request] = {}
        self.paid_in = dict.fromkeys(ACCOUNTS, CREDIT)
        self.workers: dict[int, JournalWriter] = {}
        self.numbers = 0
        self.drain: JournalDrain

    @initialize()
    def start(self) -> None:
        async def begin() -> None:
            await self.store.open()
            for account in ACCOUNTS:
                await add_account(self.store, account, CREDIT)

        self.runner.run(begin())
        self.drain = self.new_drain()
        for slot in range(2):
            self.replace(slot)

    def new_drain(self) -> JournalDrain:
        async def make() -> JournalDrain:
            return JournalDrain(self.journals, self.faulty)  # type: ignore[arg-type]

        return self.runner.run(make())

    def replace(self, slot: int) -> None:
        self.numbers += 1
        number = self.numbers

        async def begin() -> JournalWriter:
            return begin_journal(self.journals, number, segment_bytes=4000)

        self.workers[slot] = self.runner.run(begin())

    def append(self, slot: int, record: Record) -> None:
        async def work() -> None:
            self.workers[slot].append(record)

        self.runner.run(work())

    def free(self, account: str) -> int:
        """What leases could still grant: the balance less all that is held, or charged and not committed."""
        used = sum(
            request.held if request.charge is None else request.charge
            for request in self.model.values()
            if request.account == account
        )
        return self.paid_in[account] - used

    # Requests

    @rule(
        target=requests,
        slot=st.integers(0, 1),
        account=st.sampled_from(ACCOUNTS),
        amount=st.integers(0, 4000),
        on_crash=st.sampled_from(["none", "produced"]),
    )
    def reserve(self, slot: int, account: str, amount: int, on_crash: str) -> str:
        amount = min(amount, self.free(account))
        request = Request(f"r{len(self.model)}", account, self.numbers, amount, on_crash)
        request.worker = slot
        self.model[request.id] = request
        self.append(slot, reserved(request.id, amount, account=account, on_crash=on_crash))
        return request.id

    @rule(slot=st.integers(0, 1), account=st.sampled_from(ACCOUNTS), cost=st.integers(0, 2000))
    def serve(self, slot: int, account: str, cost: int) -> None:
        self.settle(self.reserve(slot, account, 1500, "none"), cost)

    @rule(
        request_id=requests,
        what=st.sampled_from(["extends", "produces", "finishes", "loses an attempt"]),
        number=st.integers(0, 100),
    )
    def go_on(self, request_id: str, what: str, number: int) -> None:
        request = self.model[request_id]
        if request.charge is not None or request.finished:
            return
        if what == "extends":
            amount = min(20 * number, self.free(request.account))
            request.held += amount
            self.append(request.worker, extended(request.id, amount, account=request.account))
        elif what == "loses an attempt":
            self.append(request.worker, lost_attempt(request.id, number % 2, number or None))
        else:
            request.finished = what == "finishes"
            request.checkpointed = request.held * number // 100
            record = checkpoint(
                request.id, request.checkpointed, account=request.account, finished=request.finished
            )
            self.append(request.worker, record)

    @rule(request_id=consumes(requests), cost=st.integers(0, 6000))
    def settle(self, request_id: str, cost: int) -> None:
        request = self.model[request_id]
        if request.charge is None:
            request.charge = min(cost, request.held)
            request.shortfall = cost - request.charge
            record = settled(request.id, request.charge, account=request.account, shortfall=request.shortfall)
            self.append(request.worker, record)

    # Faults

    @rule(slot=st.integers(0, 1), torn=st.none() | st.binary(max_size=40))
    def end_a_worker(self, slot: int, torn: bytes | None) -> None:
        """Stop a worker, or kill it in the middle of a write that nobody was told of."""
        writer = self.workers[slot]
        if torn is None:
            self.runner.run(self.close(writer))
        else:
            end = writer.end
            with open(kill(writer), "r+b") as file:
                file.seek(end)
                file.write(writer._marker[: len(torn)] + torn)
        for request in self.model.values():
            if request.worker == slot:
                request.crash()
        self.replace(slot)

    async def close(self, writer: JournalWriter) -> None:
        writer.close()

    @rule(fault=st.sampled_from(["none", "down", "down", "an answer lost", "two answers lost"]))
    def drain_journals(self, fault: str) -> None:
        self.faulty.down = fault == "down"
        self.faulty.answers_lost = (
            ["an answer lost", "two answers lost"].index(fault) + 1 if "lost" in fault else 0
        )
        with contextlib.suppress(StoreUnavailable):
            self.runner.run(self.drain.drain())
        self.faulty.down, self.faulty.answers_lost = False, 0
        self.check()

    @rule()
    def restart_the_supervisor(self) -> None:
        self.drain.close()
        self.drain = self.new_drain()

    @precondition(lambda self: self.model)
    @rule(account=st.sampled_from(ACCOUNTS), amount=st.integers(1, 3000), number=st.integers(0, 3))
    def top_up(self, account: str, amount: int, number: int) -> None:
        reference = f"pay-{account}-{amount}-{number}"
        paid = self.store.deposit(account, amount, reference=reference, kind="topup", at=1.0)
        if self.runner.run(paid).posted:
            self.paid_in[account] += amount

    # What must hold

    def check(self) -> None:
        report = self.runner.run(self.store.verify())
        assert report.clean, report.problems

    def teardown(self) -> None:
        try:
            if self.numbers:
                self.end()
        finally:
            self.runner.close()
            shutil.rmtree(self.folder)

    def end(self) -> None:
        for slot in list(self.workers):
            kill(self.workers.pop(slot))
        for request in self.model.values():
            request.crash()

        async def finish() -> dict[str, tuple[int, int]]:
            await self.drain.drain()
            self.drain.close()
            rows = {
                row.request_id: (row.cost_nano_usd, row.shortfall_nano_usd)
                async for row in self.store.usage(UsageQuery())
            }
            report = await self.store.verify()
            assert report.clean, report.problems
            for account, paid_in in self.paid_in.items():
                charges = sum(r.charge or 0 for r in self.model.values() if r.account == account)
                assert report.balances[f"customer:{account}"] == paid_in - charges >= 0
            await self.store.close()
            return rows

        rows = self.runner.run(finish())
        assert rows == {request.id: (request.charge, request.shortfall) for request in self.model.values()}
        assert [path for path in self.journals.iterdir() if path.suffix == ".journal"] == []


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(
    max_examples=examples(20), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
