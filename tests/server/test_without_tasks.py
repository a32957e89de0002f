"""Ordinary requests run without a task of their own, and those of one turn write their records at once. Whoever has to
wait for something goes on in a task.
"""

import asyncio
import errno
import os
from contextlib import AsyncExitStack
from typing import Any

import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Script, Stall
from tests.conftest import KEY, MODEL, StartInProcess, make_config
from tests.fakes import Client, Response, ask, chat, request_bytes
from tests.inprocess import InProcessGate

PATH = "/v1/chat/completions"
ANSWER = Answer(text=(" one", " two"), input_tokens=40)


def runners(gate: InProcessGate) -> list[bool]:
    """Say of each request that runs whether it does so in a task."""
    return [isinstance(runner, asyncio.Task) for runner in gate.gateway._inbound._running.values()]


async def until_asked(simulator: Simulator, count: int) -> None:
    async with asyncio.timeout(5):
        while len(simulator.requests) < count:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_an_ordinary_request_has_no_task(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool
) -> None:
    gate = await start_inprocess(make_config(simulator))
    body = chat(MODEL, stream=stream)
    first = await ask(gate.url, PATH, body, key=KEY)  # dials the provider, and has a task for that
    assert first.status == 200
    simulator.push(Script(answer=ANSWER, steps=(Stall(),)))
    async with await Client.connect(gate.url) as client:
        client.send(request_bytes(PATH, body, key=KEY))
        await until_asked(simulator, 2)
        assert runners(gate) == [False]
    (_, left) = await gate.wait_for_rows(2)
    assert (left.status, left.cost_nano_usd) == ("client_closed", 0)
    assert runners(gate) == []
    simulator.push(Script(answer=ANSWER))
    again = await ask(gate.url, PATH, body, key=KEY)
    assert again.status == 200
    row = (await gate.wait_for_rows(3))[-1]
    assert (row.status, row.cost_nano_usd) == ("ok", 40 * 1_000 + 2 * 2_000)


async def ask_together(gate: InProcessGate, bodies: list[dict[str, Any]]) -> list[Response]:
    """Ask on connections that are open, so that all requests come in one turn of the loop."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await Client.connect(gate.url)) for _ in bodies]
        for client, body in zip(clients, bodies, strict=True):
            client.send(request_bytes(PATH, body, key=KEY))
        return [await client.response() for client in clients]


class Writes:
    """What is written to the journal, and how it ends: `fail` says for how many writes it fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.fail = 0
        self._real = os.pwrite
        monkeypatch.setattr(os, "pwrite", self._write)

    def _write(self, fd: int, data: bytes, offset: int) -> int:
        if self.fail:
            self.fail -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.sizes.append(len(data))
        return self._real(fd, data, offset)


@pytest.fixture
async def warm_gate(start_inprocess: StartInProcess, simulator: Simulator) -> InProcessGate:
    """A gate with ten connections to its provider."""
    gate = await start_inprocess(make_config(simulator))
    simulator.push(*[Script(answer=ANSWER, first_token_s=0.05)] * 10)
    await ask_together(gate, [chat(MODEL, stream=False)] * 10)
    await gate.wait_for_rows(10)
    return gate


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_requests_of_one_turn_write_their_reservations_at_once(
    warm_gate: InProcessGate, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = Writes(monkeypatch)
    answers = await ask_together(warm_gate, [chat(MODEL, stream=stream)] * 10)
    assert [answer.status for answer in answers] == [200] * 10
    assert len(writes.sizes) < 20
    rows = await warm_gate.wait_for_rows(20)
    assert len({row.request_id for row in rows}) == 20
    assert {row.status for row in rows} == {"ok"}


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_where_reservations_cannot_be_written_nothing_is_sent_and_nothing_held(
    warm_gate: InProcessGate, simulator: Simulator, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, idle = len(simulator.requests), idle_nano(warm_gate)
    writes = Writes(monkeypatch)
    writes.fail = 1
    answers = await ask_together(warm_gate, [chat(MODEL, stream=stream)] * 10)
    refused = [answer for answer in answers if answer.status == 503]
    assert len(refused) >= 2
    assert {answer.status for answer in answers} <= {200, 503}
    for answer in refused:
        assert answer.json()["error"]["type"] == "service_unavailable_error"
    assert len(simulator.requests) - asked == 10 - len(refused)
    rows = await warm_gate.wait_for_rows(20 - len(refused))
    assert idle_nano(warm_gate) == idle - sum(row.cost_nano_usd for row in rows[10:])
    (again,) = await ask_together(warm_gate, [chat(MODEL, stream=stream)])
    assert again.status == 200


async def test_where_settlements_cannot_be_written_no_answer_leaves_and_each_is_settled_later(
    warm_gate: InProcessGate, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.push(*[Script(answer=ANSWER, first_token_s=0.2)] * 10)
    writes = Writes(monkeypatch)
    asking = asyncio.ensure_future(ask_together(warm_gate, [chat(MODEL, stream=False)] * 10))
    await until_asked(simulator, 20)
    writes.fail = 1
    answers = await asking
    refused = [answer for answer in answers if answer.status == 503]
    assert refused
    assert {answer.status for answer in answers} <= {200, 503}
    rows = (await warm_gate.wait_for_rows(20))[10:]
    assert len({row.request_id for row in rows}) == 10
    charged = [row for row in rows if row.status == "ok"]
    assert len(charged) == 10 - len(refused)
    assert all(row.cost_nano_usd == 0 for row in rows if row.status != "ok")


def idle_nano(gate: InProcessGate) -> int:
    """Return the credit that no request holds."""
    return sum(gate.gateway._bench.till.credit._idle.values())
