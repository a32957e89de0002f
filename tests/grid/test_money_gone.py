"""A running stream whose credit is used up: it is stopped with its format's error, what was produced is billed, and the
balance never falls below zero. Contract X3, B4; every client format, and what the official SDKs make of it.
"""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Script, Stall
from tests.conftest import make_config
from tests.fakes import ask
from tests.grid.conftest import Grid
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.sdks import SdkError, Sdks
from tests.grid.speaking import Heard, heard_stream, path_of, said
from tests.inprocess import WORKER, in_process_gate

pytestmark = pytest.mark.asyncio(loop_scope="module")

PRICE = {"input": 1, "output": 1000}
"""A tenth of a cent a token, so that some hundred tokens are money."""
OUTPUT_NANO = 1_000_000
WORDS = tuple(" water" for _ in range(3_000))
"""Twice what the credit covers. The finish never comes: a stream that outran the question for credit would be whole."""
CREDIT = 1_500_000_000
RESERVED = 1_024


def key_of(client: str, provider: str) -> str:
    return f"sg-poor-{client}-{provider}-0123456789"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grid(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grid]:
    async with Simulator() as simulator:
        answer = Answer(text=WORDS, input_tokens=40)
        script = Script(answer=answer, interval_s=0.0005, steps=(Play(before="finish"), Stall()))
        simulator.push(script, model="long", times=None)
        providers: dict[str, Any] = {
            format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"} for format in FORMATS
        }
        models = {
            f"{format}-*": {
                "routes": [{"provider": format, "model": "*"}],
                "price": PRICE,
                "max_output_tokens": 8_192,
            }
            for format in FORMATS
        }
        keys = [
            {"name": f"poor-{client}-{provider}", "key": key_of(client, provider), "balance_usd": 1.5}
            for client in FORMATS
            for provider in (*FORMATS, "sdk")
        ]
        config = make_config(simulator, retry={"max_attempts": 1})
        config |= {"providers": providers, "models": models, "keys": keys}
        async with in_process_gate(tmp_path_factory.mktemp("poor"), config).running() as gate:
            yield Grid(gate, simulator)


@pytest.mark.parametrize("provider", FORMATS)
@pytest.mark.parametrize("client", FORMATS)
async def test_x3_a_stream_stops_when_its_money_is_gone(grid: Grid, client: str, provider: str) -> None:
    model, key = f"{provider}-long", key_of(client, provider)
    response = await ask(
        grid.gate.url,
        path_of(client, model, True),
        said(client, model, Prompt(), True),
        key=key,
        timeout_s=60.0,
    )
    heard: Heard = heard_stream(client, response, model, fails=True)
    got = heard.text.count(" water")
    assert RESERVED * 0.7 < got <= len(WORDS)
    assert heard.error is not None
    assert "credit" in str(heard.error)
    row = grid.row(response.header("x-request-id"))
    assert (row.status, row.error) == ("credit_spent", "balance_exhausted")
    assert row.usage.output_tokens is not None
    assert got <= row.usage.output_tokens <= len(WORDS)
    assert row.cost_nano_usd == min(row.list_cost_nano_usd, CREDIT)
    assert row.cost_nano_usd >= min(got * OUTPUT_NANO * 0.99, CREDIT)
    account = f"poor-{client}-{provider}"
    held = grid.gate.book.free(account) + grid.gate.book.leased_to(account, WORKER)
    assert held == CREDIT - row.cost_nano_usd
    assert held >= 0
    again = await ask(
        grid.gate.url, path_of(client, model, True), said(client, model, Prompt(), True), key=key
    )
    assert again.status == 402, "and the next is refused before a provider is asked"


@pytest.mark.parametrize("client", FORMATS)
async def test_x3_the_sdks_raise(grid: Grid, client: str) -> None:
    # What the SDK sends as its own key is none of this gate, so the header's counts.
    async with Sdks.at(grid.gate.url, {"x-api-key": key_of(client, "sdk")}) as sdks:
        with pytest.raises((*SdkError, openai.OpenAIError)) as raised:
            await sdks.ask(client, f"{client}-long", Prompt(), "raw")
    assert "credit" in str(raised.value)
    row = grid.gate.rows()[-1]
    assert row.status == "credit_spent"
    assert row.cost_nano_usd > RESERVED * 0.7 * OUTPUT_NANO
