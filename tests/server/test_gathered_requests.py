"""Requests that run in one turn of the loop, whose records are written to the journal together. Contract X6.

All of it is in one loop, so that what many clients send before the loop goes on is read in one turn of it.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluicegate.billing import account_shapes as shapes
from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.ledger import Reserved, Settled
from sluicegate.errors import InternalError, StoreUnavailable
from sluicegate.messages import Usage
from sluicegate.routing import catalog_shapes
from sluicegate.routing.catalog import Price
from sluicegate.server.tab import Tab, Till
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Script
from tests.conftest import KEY, MODEL, Connect, StartInProcess, make_config
from tests.fakes import Client, Response, chat, request_bytes
from tests.grammar.chat import check_chat_stream
from tests.inprocess import WORKER, InProcessGate
from tests.records import make_row
from tests.server.credit_world import credit_world
from tests.server.journal_world import begin_journal, read_folder, until

PATH = "/v1/chat/completions"
MANY = 20
ANSWER = Answer(text=(" one", " two", " three"), input_tokens=10)
ANSWER_NANO = 10 * 1000 + 3 * 2000


def failed_disk() -> OSError:
    """Return a new error each time: one that is kept keeps all that stood on the stack, and their connections."""
    return OSError(errno.EIO, os.strerror(errno.EIO))


class Journalled:
    """What is written to the journal, by how much at once, and which of it fails."""

    def __init__(self, gate: InProcessGate, monkeypatch: pytest.MonkeyPatch) -> None:
        self._write = os.pwrite
        self._marker = gate._journal._marker
        self.together: list[int] = []
        """How many records each write had."""
        self.fails: Callable[[bytes], bool] = lambda data: False
        self.failed = 0
        """How many records were in writes that failed."""
        self.before: Callable[[bytes, int], None] = lambda data, records: None
        """Called as records are about to be written, with how many they are."""
        monkeypatch.setattr(os, "pwrite", self.write)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """Stands in place of `os.pwrite`."""
        records = bytes(data).count(self._marker)
        if records:
            self.before(bytes(data), records)
        if records and self.fails(bytes(data)):
            self.failed += records
            raise failed_disk()
        if records:
            self.together.append(records)
        return self._write(fd, data, offset)

    def fail_once(self, kind: bytes) -> None:
        """Have the next write of several records fail that has one of a kind."""

        def fails(data: bytes) -> bool:
            if data.count(self._marker) < 2 or kind not in data:
                return False
            self.fails = lambda data: False
            return True

        self.fails = fails


async def begin(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect, **changes: Any
) -> tuple[InProcessGate, list[Client]]:
    """Start a gate that has connections to its provider and credit at hand, and clients that have been served."""
    simulator.push(Script(answer=ANSWER), times=None)
    gate = await start_inprocess(make_config(simulator, **changes))
    clients = [await client(gate.url) for _ in range(MANY)]
    for answer in await ask_all(clients):
        assert answer.status == 200
    return gate, clients


def send_all(clients: list[Client], *, stream: bool = False) -> None:
    for one in clients:
        # With a limit, or what each may cost would have to be asked for, one after another.
        one.send(request_bytes(PATH, chat(MODEL, stream=stream, max_tokens=64), key=KEY))


async def ask_all(clients: list[Client], *, stream: bool = False) -> list[Response]:
    """Send a request on each connection before the loop goes on; return the answers."""
    send_all(clients, stream=stream)
    return list(await asyncio.gather(*(one.response() for one in clients)))


async def check_books(gate: InProcessGate, answered: int) -> None:
    """Every admitted request was settled once, after it was reserved, and nothing is held any more."""
    await until(lambda: gate._journal.pending == 0 and not gate._journal._gathered)
    rows = await gate.wait_for_rows(answered)
    reserved = [record.request_id for record in gate.records if isinstance(record, Reserved)]
    settled = [record.request_id for record in gate.records if isinstance(record, Settled)]
    assert len(set(reserved)) == len(reserved)
    assert sorted(reserved) == sorted(settled)
    open_now: set[str] = set()
    for record in gate.records:
        if isinstance(record, Reserved):
            open_now.add(record.request_id)
        elif isinstance(record, Settled):
            open_now.remove(record.request_id)
    assert sum(row.status == "ok" for row in rows) == answered
    assert sum(row.cost_nano_usd for row in rows) == answered * ANSWER_NANO
    (account,) = {record.account_id for record in gate.records if isinstance(record, Reserved)}
    credit = gate.gateway._bench.till.credit
    await until(lambda: credit.idle(account) == gate.book.leased_to(account, WORKER))
    assert not gate.gateway._bench.running


@pytest.mark.parametrize("stream", [False, True])
async def test_x6_requests_of_one_turn_are_written_together_and_each_is_served_and_settled_once(
    stream: bool,
    start_inprocess: StartInProcess,
    simulator: Simulator,
    client: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, clients = await begin(start_inprocess, simulator, client)
    journal = Journalled(gate, monkeypatch)
    for answer in await ask_all(clients, stream=stream):
        assert answer.status == 200
        if stream:
            assert check_chat_stream(answer.body).text == "".join(ANSWER.text)
    await check_books(gate, 2 * MANY)
    assert max(journal.together) > MANY // 2
    assert sum(journal.together) == 2 * MANY


@pytest.mark.parametrize("stream", [False, True])
async def test_x6_where_reservations_that_were_gathered_cannot_be_written_nobody_is_asked_and_nothing_is_held(
    stream: bool,
    start_inprocess: StartInProcess,
    simulator: Simulator,
    client: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, clients = await begin(start_inprocess, simulator, client)
    journal, asked = Journalled(gate, monkeypatch), simulator.requests_made
    journal.fail_once(b"reserved")
    answers = await ask_all(clients, stream=stream)
    refused = [answer for answer in answers if answer.status == 503]
    assert len(refused) == journal.failed > MANY // 2
    assert all("error" in answer.json() and answer.header("retry-after") for answer in refused)
    served = [answer for answer in answers if answer.status == 200]
    assert len(served) + len(refused) == MANY
    assert simulator.requests_made - asked == len(served)
    await check_books(gate, MANY + len(served))
    assert {answer.status for answer in await ask_all(clients)} == {200}
    await check_books(gate, 2 * MANY + len(served))


@pytest.mark.parametrize(("on_crash", "charged"), [("none", 0), ("produced", ANSWER_NANO)])
async def test_x6_where_settlements_that_were_gathered_cannot_be_written_no_answer_leaves_and_they_are_owed(
    on_crash: str,
    charged: int,
    start_inprocess: StartInProcess,
    simulator: Simulator,
    client: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, clients = await begin(start_inprocess, simulator, client, billing={"on_crash": on_crash})
    journal = Journalled(gate, monkeypatch)
    journal.fail_once(b"settled")
    answers = await ask_all(clients)
    refused = [answer for answer in answers if answer.status == 503]
    assert len(refused) == journal.failed > 1
    assert all("error" in answer.json() for answer in refused)
    assert len(refused) + sum(answer.status == 200 for answer in answers) == MANY
    rows = await gate.wait_for_rows(2 * MANY)
    broken = [row for row in rows if row.status != "ok"]
    assert [(row.status, row.error, row.cost_nano_usd) for row in broken] == len(refused) * [
        ("interrupted", "unavailable", charged)
    ]
    assert {answer.status for answer in await ask_all(clients)} == {200}
    rows = await gate.wait_for_rows(3 * MANY)
    assert len({row.request_id for row in rows}) == len(rows) == 3 * MANY
    (account,) = {record.account_id for record in gate.records if isinstance(record, Reserved)}
    credit = gate.gateway._bench.till.credit
    await until(lambda: credit.idle(account) == gate.book.leased_to(account, WORKER))
    assert gate._journal.pending == 0


class Gathering:
    """A request that has only money: it owns its records as one that is served does."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab

    def written(self) -> None:
        if self._tab.settled:
            self._tab.close()

    def unwritten(self, error: StoreUnavailable) -> None:
        self._tab.owe()


async def test_x6_what_is_owed_while_another_debt_is_paid_is_settled_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To pay writes first what was gathered; should that fail, more is owed, and neither is paid twice or forgotten."""
    key = KeyRecord(shapes.KeyRecord(id="key_1", name="k", prefix="sg", hash=b"", account_id="acme"))
    price = Price(catalog_shapes.Price(input=10**9, output=10**9))
    failing, write = True, os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if failing_next():
            raise failed_disk()
        return write(fd, data, offset)

    def failing_next() -> bool:
        nonlocal failing
        failed, failing = failing, False
        return failed

    async with credit_world(1, acme=1_000_000) as world:
        writer = begin_journal(tmp_path)
        till = Till(world.credits[1], writer, world.links[1], synced=False)
        tabs = [Tab(till, key, price, make_row(f"r{number}", account="acme")) for number in range(2)]
        for tab in tabs:
            await tab.reserve_slowly(1, 1, may_cut=False)
        monkeypatch.setattr(os, "pwrite", pwrite)
        assert tabs[0].settle_now(Usage(input_tokens=1), "reported", Gathering(tabs[0]))
        writer.write_gathered()
        assert tabs[0].owed
        assert tabs[1].settle_now(Usage(input_tokens=1), "reported", Gathering(tabs[1]))
        failing = True
        writer.on_renewed()  # as a timer can, before what was gathered is written
        assert tabs[1].owed
        await asyncio.sleep(0.3)  # who is owed is offered again by then
        assert writer.pending == 0
        assert world.credits[1].idle("acme") == world.book.leased_to("acme", 1)
        writer.close()
    settled = [record.request_id for record in read_folder(tmp_path) if isinstance(record, Settled)]
    assert sorted(settled) == ["r0", "r1"]


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("fails", [b"", b"reserved", b"settled"])
async def test_x6_clients_that_leave_while_their_requests_are_held_hold_nothing(
    fails: bytes,
    how: str,
    start_inprocess: StartInProcess,
    simulator: Simulator,
    client: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, clients = await begin(start_inprocess, simulator, client)
    journal = Journalled(gate, monkeypatch)
    if fails:
        journal.fail_once(fails)
    leaving, staying = clients[::2], clients[1::2]
    send_all(clients)
    for one in leaving:
        if how == "reset":
            one.reset()
        else:
            await one.close()
    answers = await asyncio.gather(*(one.response() for one in staying))
    assert {answer.status for answer in answers} <= {200, 503}
    await until(lambda: gate._journal.pending == 0 and not gate.gateway._bench.running)
    assert {answer.status for answer in await ask_all(staying)} == {200}
    await until(lambda: gate._journal.pending == 0 and not gate.gateway._bench.running)
    rows = gate.rows()
    assert len({row.request_id for row in rows}) == len(rows)
    (account,) = {record.account_id for record in gate.records if isinstance(record, Reserved)}
    credit = gate.gateway._bench.till.credit
    await until(lambda: credit.idle(account) == gate.book.leased_to(account, WORKER))


@pytest.mark.parametrize("at", ["reserved", "settled"])
@pytest.mark.parametrize("how", ["client gone", "stopped"])
async def test_x6_what_happens_between_gathering_and_writing_leaves_nothing_held(
    how: str,
    at: str,
    start_inprocess: StartInProcess,
    simulator: Simulator,
    client: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client leaves, or all are stopped, when the records are gathered and just before they are written."""
    gate, clients = await begin(start_inprocess, simulator, client)
    journal, hit, asked = Journalled(gate, monkeypatch), list[int](), simulator.requests_made

    def before(data: bytes, records: int) -> None:
        if at.encode() not in data or records < 2 or hit:
            return
        hit.append(records)
        if how == "stopped":
            for request in list(gate.gateway._bench.running):
                request.stop(InternalError("Stopped."))
        else:
            for connection in list(gate.gateway._inbound.connections):
                connection.eof_received()
                connection.reset()

    journal.before = before
    send_all(clients)
    told = await asyncio.gather(*(one.response() for one in clients), return_exceptions=True)
    assert hit
    await until(lambda: gate._journal.pending == 0 and not gate.gateway._bench.running)
    for answer in told:
        assert isinstance(answer, Response | ConnectionError)
        if isinstance(answer, Response):
            assert answer.status in (200, 500)
    rows = gate.rows()
    assert len({row.request_id for row in rows}) == len(rows) == 2 * MANY
    if at == "reserved":
        assert simulator.requests_made - asked <= MANY - hit[0] + 1
        assert sum(row.status == "ok" for row in rows) <= 2 * MANY - hit[0] + 1
    (account,) = {record.account_id for record in gate.records if isinstance(record, Reserved)}
    credit = gate.gateway._bench.till.credit
    await until(lambda: credit.idle(account) == gate.book.leased_to(account, WORKER))
    fresh = await client(gate.url)
    assert (await fresh.ask(PATH, chat(MODEL, stream=False), key=KEY)).status == 200


async def test_x6_a_provider_that_hangs_up_while_requests_are_held_is_dialled_again(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, clients = await begin(start_inprocess, simulator, client)
    journal, hit = Journalled(gate, monkeypatch), list[int]()

    def before(data: bytes, records: int) -> None:
        running = gate.gateway._bench.running
        held = [one._relay for one in running if one._unwritten and one._relay is not None]
        for relay in held:
            if relay._connection is not None:
                relay._connection.eof_received()
        hit.append(len(held))

    journal.before = before
    assert {answer.status for answer in await ask_all(clients)} == {200}
    assert max(hit) > 1
    await check_books(gate, 2 * MANY)
