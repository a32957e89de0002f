"""Runs in the background: told at once, polled, and settled once by what the provider reports, asked for or not."""

import asyncio
from typing import Any

import openai
import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Script
from tests.conftest import KEY, PRICE, Connect, StartInProcess, make_config
from tests.fakes import ask
from tests.inprocess import InProcessGate

SAID = Answer(text=("Four", "."), input_tokens=12)
COST_NANO = 12 * 1000 + 2 * 2000


async def start(
    start_inprocess: StartInProcess, simulator: Simulator, speaks: str, **changes: Any
) -> InProcessGate:
    return await start_inprocess(
        make_config(
            simulator,
            providers={"sim": {"base_url": simulator.base_url, "speaks": [speaks], "auth": "none"}},
            models={"org/m:1": {"routes": [{"provider": "sim", "model": "m"}], "price": PRICE}},
            **changes,
        )
    )


@pytest.fixture
async def gate(start_inprocess: StartInProcess, simulator: Simulator) -> InProcessGate:
    simulator.push(Script(answer=SAID))
    return await start(start_inprocess, simulator, "responses")


def client_of(gate: InProcessGate) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=KEY, base_url=f"{gate.url}/v1", max_retries=0)


async def test_a_run_is_told_at_once_polled_and_settled_once(
    gate: InProcessGate, simulator: Simulator
) -> None:
    simulator.kept.polls = 3
    async with client_of(gate) as client:
        made = await client.responses.create(model="org/m:1", input="Hello", background=True)
        assert made.status == "queued"
        assert made.id.startswith("resp_sg0")
        assert gate.rows() == []
        async with asyncio.timeout(20):
            while (got := await client.responses.retrieve(made.id)).status in ("queued", "in_progress"):
                assert got.output == []
                await asyncio.sleep(0.05)
        assert (got.status, got.output_text, got.model) == ("completed", "Four.", "org/m:1")
        (row,) = gate.rows()
        assert (row.status, row.cost_nano_usd, row.usage_source) == ("ok", COST_NANO, "reported")
        again = await client.responses.create(model="org/m:1", input="On", previous_response_id=made.id)
        assert again.output_text
    assert len(await gate.wait_for_rows(2)) == 2


async def test_an_end_is_not_told_before_it_is_settled(gate: InProcessGate, simulator: Simulator) -> None:
    """The provider has ended, our poll has not come yet."""
    simulator.kept.polls = 0
    async with client_of(gate) as client:
        made = await client.responses.create(model="org/m:1", input="Hello", background=True)
        got = await client.responses.retrieve(made.id)
        assert (got.status == "completed") == bool(gate.rows())
        await gate.wait_for_rows(1)
        assert (await client.responses.retrieve(made.id)).status == "completed"


async def test_a_client_that_leaves_pays_for_its_run(
    gate: InProcessGate, simulator: Simulator, client: Connect
) -> None:
    body = {"model": "org/m:1", "input": "Hello", "background": True}
    response = await ask(gate.url, "/v1/responses", body, key=KEY)  # its connection closes with the answer
    assert response.json()["status"] == "queued"
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("ok", COST_NANO)
    await asyncio.sleep(0.3)
    assert len(gate.rows()) == 1


async def test_a_run_can_be_cancelled(gate: InProcessGate, simulator: Simulator) -> None:
    simulator.kept.polls = 1000
    async with client_of(gate) as client:
        made = await client.responses.create(model="org/m:1", input="Hello", background=True)
        cancelled = await client.responses.cancel(made.id)
        assert cancelled.id == made.id
        (row,) = await gate.wait_for_rows(1)
        assert (row.status, row.cost_nano_usd) == ("client_closed", 0)
        assert (await client.responses.retrieve(made.id)).status == "cancelled"


async def test_a_run_that_takes_too_long_is_cancelled_at_the_provider(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    simulator.kept.polls = 1000
    gate = await start(start_inprocess, simulator, "responses", stream={"total_timeout": "1s"})
    body = {"model": "org/m:1", "input": "Hello", "background": True}
    await ask(gate.url, "/v1/responses", body, key=KEY)
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == 0
    assert any(request.path.endswith("/cancel") for request in simulator.requests)


async def test_a_gate_that_stops_cancels_what_it_cannot_wait_for(
    gate: InProcessGate, simulator: Simulator
) -> None:
    simulator.kept.polls = 1000
    await ask(gate.url, "/v1/responses", {"model": "org/m:1", "input": "Hello", "background": True}, key=KEY)
    await gate.gateway.drain(0.0)
    (row,) = gate.rows()
    assert (row.status, row.cost_nano_usd) == ("interrupted", 0)
    assert any(request.path.endswith("/cancel") for request in simulator.requests)


async def test_a_provider_that_lost_the_run_is_told_to_the_operator(
    gate: InProcessGate, simulator: Simulator
) -> None:
    simulator.kept.polls = 1000
    async with client_of(gate) as client:
        made = await client.responses.create(model="org/m:1", input="Hello", background=True)
        await client.responses.delete(made.id)
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("upstream_error", 0)
    assert len(gate.provider_costs()) == 1


@pytest.mark.parametrize(
    ("speaks", "added", "field"),
    [
        ("chat", {}, "background"),
        ("responses", {"stream": True}, "background"),
        ("responses", {"store": False}, "store"),
    ],
)
async def test_a_run_that_nobody_could_follow_is_refused(
    start_inprocess: StartInProcess, simulator: Simulator, speaks: str, added: dict[str, Any], field: str
) -> None:
    gate = await start(start_inprocess, simulator, speaks)
    body = {"model": "org/m:1", "input": "Hello", "background": True} | added
    response = await ask(gate.url, "/v1/responses", body, key=KEY)
    assert (response.status, response.json()["error"]["param"]) == (400, field)
    assert not simulator.requests
