"""Ordinary requests run without a task of their own; whoever has to wait for something goes on in one."""

import asyncio

import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Script, Stall
from tests.conftest import KEY, MODEL, StartInProcess, make_config
from tests.fakes import Client, ask, chat, request_bytes
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
