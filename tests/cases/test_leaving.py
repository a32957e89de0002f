"""Clients of every format that leave providers of every format: cases B016, B048, B137, B138.

The phases, the policies and the ways of leaving are tried in chat by `tests.server.test_disconnect`; here, that no pair
of formats forgets one.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import product

import pytest
import pytest_asyncio

from sluicegate.billing.tokens import count_tokens
from sluicegate.simulator import Head, Script, Send, Simulator, Stall
from tests.cases.broken import HALF
from tests.cases.world import World, configuration
from tests.conftest import KEY
from tests.fakes import Client, request_bytes
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import path_of, said
from tests.inprocess import in_process_gate

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAIRS = list(product(FORMATS, FORMATS))
PROMPT = Prompt(question="Where does water go? " * 200)
"""About 4,000 characters."""
TOKENS = count_tokens(PROMPT.question)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def still(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A gate that sends no keep-alives, so that what it sends is the answer."""
    async with Simulator() as simulator:
        gate = in_process_gate(tmp_path_factory.mktemp("leaving"), configuration(simulator))
        async with gate.running():
            yield World(gate, simulator)


async def leave(world: World, client: str, provider: str, phase: str, *, stream: bool = True) -> None:
    """Ask, wait until the answer stands in a phase, leave, and see what became of it."""
    upstream = f"leave-{client}-{provider}-{phase}-{stream}"
    model = f"{provider}/{upstream}"
    start = () if phase == "silent" else (Head(),) if phase == "headed" else (Send(data=HALF[provider]),)
    world.simulator.push(Script(steps=(*start, Stall())), model=upstream)
    body = said(client, model, PROMPT, stream)
    async with await Client.connect(world.gate.url) as connection:
        connection.send(request_bytes(path_of(client, model, stream), body, key=KEY))
        await world.simulator.wait_for(
            lambda: any(asked.model == upstream and asked.body_at for asked in world.simulator.requests)
        )
        if phase == "begun":
            await world.simulator.wait_for(lambda: b"wor" in connection.raw)
        else:
            await asyncio.sleep(0.1)
        left_at = time.monotonic()
        connection.reset()
    (asked,) = [asked for asked in world.simulator.requests if asked.model == upstream]
    await world.simulator.wait_for(lambda: asked.ended == "peer_left", timeout_s=3.0)
    assert asked.ended_at is not None
    assert asked.ended_at - left_at < 1.0, "the provider went on working"
    await world.simulator.wait_for(lambda: any(row.model == model for row in world.gate.rows()))
    (row,) = [row for row in world.gate.rows() if row.model == model]
    assert row.status == "client_closed"
    if phase == "begun":
        assert row.usage.output_tokens == count_tokens("Hello wor")
        assert row.usage.input_tokens is not None
        if provider == "messages":  # it has told
            assert row.usage.input_tokens == 3
        else:
            assert row.usage.input_tokens > TOKENS / 2, "the prompt is not billed"
        assert row.cost_nano_usd > 0
    elif phase == "silent":
        assert row.cost_nano_usd == 0


@pytest.mark.parametrize("phase", ["begun", "silent", "headed"])
async def test_b016_b048_b137_b138_the_provider_is_let_go_in_every_pair(still: World, phase: str) -> None:
    await asyncio.gather(*(leave(still, client, provider, phase) for client, provider in PAIRS))


async def test_b048_plain_answers_too(still: World) -> None:
    await asyncio.gather(*(leave(still, *pair, "silent", stream=False) for pair in PAIRS))
