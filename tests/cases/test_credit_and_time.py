"""Credit, slots, attempts and clocks at a running gate: cases B038, B065, B068, B134, B135, B136.

The rules themselves are tested in `tests.billing`, `tests.store` and `tests.routing`; here, that all formats keep them.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sluicegate.simulator import Close, Reset, Script, Send, Simulator, Stall, Wait
from tests.cases.broken import HALF
from tests.cases.framed import STREAMS
from tests.cases.world import CLOCKS, World, configuration
from tests.conftest import KEY
from tests.fakes import Client, Response, ask, request_bytes
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import path_of, said, told_error, wording
from tests.inprocess import in_process_gate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.parametrize("client", FORMATS)]

ASK = Prompt(system=None)
LIMIT = {
    "chat": "max_tokens",
    "completions": "max_tokens",
    "responses": "max_output_tokens",
    "messages": "max_tokens",
}
OUTPUT = 300
CREDIT_NANO = 900_000
"""Enough for one call: its output alone is reserved at 600,000 nano-USD."""


def poor_key(client: str) -> str:
    return f"sg-poor-{client}-0123456789abcdef"


def single_key(client: str) -> str:
    return f"sg-single-{client}-0123456789abcdef"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tight(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A gate with keys that can pay one call, keys for one stream at a time, and short clocks."""
    async with Simulator() as simulator:
        clocks = CLOCKS | {"first_token_timeout": "600ms", "response_timeout": "600ms", "total_timeout": "1s"}
        config = configuration(simulator, retry={"max_attempts": 3}, stream=clocks)
        for client in FORMATS:
            config["keys"] += [
                {"name": f"poor-{client}", "key": poor_key(client), "balance_usd": str(CREDIT_NANO / 10**9)},
                {"name": f"single-{client}", "key": single_key(client), "balance_usd": 50, "max_streams": 1},
            ]
        gate = in_process_gate(tmp_path_factory.mktemp("tight"), config)
        async with gate.running():
            yield World(gate, simulator)


async def call(world: World, client: str, model: str, key: str, *, stream: bool = True) -> Response:
    """Ask for few tokens."""
    body = said(client, model, ASK, stream)
    if client == "gemini":
        body["generationConfig"] = {"maxOutputTokens": OUTPUT}
    else:
        body[LIMIT[client]] = OUTPUT
    return await ask(world.gate.url, path_of(client, model, stream), body, key=key)


async def test_b038_b136_credit_for_one_call_pays_one(tight: World, client: str) -> None:
    upstream = f"slow-{client}"
    slow = Script(steps=(Wait(s=0.3), Send(data=STREAMS["chat"])))
    tight.simulator.push(slow, model=upstream, times=None)
    made = tight.simulator.requests_made
    answers = await asyncio.gather(
        *(call(tight, client, f"chat/{upstream}", poor_key(client)) for _ in range(20))
    )
    refused = [answer for answer in answers if answer.status != 200]
    assert len(refused) == 19
    assert {answer.status for answer in refused} == {402 if client != "gemini" else refused[0].status}
    assert tight.simulator.requests_made == made + 1
    tight.simulator.push(Script(steps=(Wait(s=0.05), Reset())), model=f"dies-{client}", times=None)
    failed = await call(tight, client, f"chat/dies-{client}", poor_key(client))
    assert told_error(client, failed)[:2] == wording(client, "upstream_error")
    again = await call(tight, client, f"chat/{upstream}", poor_key(client))  # what was held is free again
    assert again.status == 200
    rows = [row for row in tight.gate.rows() if row.account_id == f"poor-{client}"]
    assert 0 < sum(row.cost_nano_usd for row in rows) <= CREDIT_NANO


async def test_b065_the_only_slot_comes_back(tight: World, client: str) -> None:
    """Whether the stream is left before its first byte or in the middle, on the same format or another."""
    for provider in (client, "messages" if client == "chat" else "chat"):
        for phase in ("silent", "begun"):
            upstream = f"slot-{client}-{provider}-{phase}"
            start = (Send(data=HALF[provider]),) if phase == "begun" else ()
            tight.simulator.push(Script(steps=(*start, Stall())), model=upstream, times=None)
            model = f"{provider}/{upstream}"
            for _ in range(3):
                body = said(client, model, ASK, True)
                async with await Client.connect(tight.gate.url) as connection:
                    connection.send(request_bytes(path_of(client, model, True), body, key=single_key(client)))
                    if phase == "begun":
                        await connection.until_bytes(b"wor")
                    else:
                        await asyncio.sleep(0.05)
                    connection.reset()
                await asyncio.sleep(0.05)
    tight.simulator.push(Script(steps=(Send(data=STREAMS["chat"]),)), model=f"free-{client}")
    async with asyncio.timeout(3):
        response = await call(tight, client, f"chat/free-{client}", single_key(client))
    assert response.status == 200


async def test_b068_b135_one_more_try_of_what_may_have_been_done_under_one_deadline(
    tight: World, client: str
) -> None:
    for name, script in (
        ("closes", Script(steps=(Wait(s=0.05), Close()))),
        ("hangs", Script(steps=(Stall(),))),
    ):
        upstream = f"{name}-{client}"
        tight.simulator.push(script, model=upstream, times=None)
        made, began = tight.simulator.requests_made, time.monotonic()
        response = await call(tight, client, f"chat/{upstream}", KEY)
        assert response.status in (502, 503, 504, 529)
        assert time.monotonic() - began < 3.0, "each attempt had a clock of its own"
        # a connection out of the pool that ends without a byte may have been stale: it costs no attempt
        assert tight.simulator.requests_made - made <= (3 if name == "closes" else 2)
        row = tight.gate.rows()[-1]
        assert row.model == f"chat/{upstream}"
        assert (row.cost_nano_usd, row.status) == (0, "upstream_error")


async def test_b134_a_refused_connection_is_tried_again_after_a_while(
    client: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with Simulator() as simulator:
        config = configuration(simulator, retry={"max_attempts": 3})
        gate = in_process_gate(tmp_path_factory.mktemp("refused"), config)
        async with gate.running():
            await simulator.refuse()
            began = time.monotonic()
            responses = [await call(World(gate, simulator), client, "chat/any", KEY) for _ in range(4)]
            took = time.monotonic() - began
            rows = await gate.wait_for_rows(4)
    assert {told_error(client, response)[0] for response in responses} <= {502, 503}
    assert took > 0.1, "the attempts followed at once"  # each wait is drawn, and may be short
    assert [row.attempts for row in rows] == [3] * 4
