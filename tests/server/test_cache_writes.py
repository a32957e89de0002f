"""Prompts that a provider writes to its cache for more than they would cost fresh: held for before it is asked."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Script
from tests.conftest import KEY, StartInProcess, make_config
from tests.fakes import ask
from tests.inprocess import InProcessGate

TEXT = "Some of what is known about sluices. " * 200
INPUT_TOKENS = len(TEXT) // 4
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
PRICE = {"input": 1, "output": 0, "cache_write": 2, "cache_write_1h": 3}


def messages(mark: dict[str, Any] | None) -> dict[str, Any]:
    """A request in Messages, and in Chat Completions, whose long text is marked, or not."""
    block = {"type": "text", "text": TEXT, **({"cache_control": mark} if mark else {})}
    return {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": [block]}]}


PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions"}


async def started(
    start: StartInProcess, simulator: Simulator, speaks: str, nano: int, written: int
) -> InProcessGate:
    answer = Answer(
        text=(" x",), input_tokens=INPUT_TOKENS, cache_write_tokens=written, output_tokens=1, usage="always"
    )
    simulator.push(Script(answer=answer, first_token_s=0.05), times=None)
    provider = {"base_url": simulator.base_url, "speaks": [speaks], "auth": "none"}
    return await start(
        make_config(
            simulator,
            providers={"sim": provider},
            models={"m": {"routes": [{"provider": "sim", "model": "m"}], "price": PRICE}},
            keys=[{"name": "test", "key": KEY, "balance_usd": f"{nano / 10**9:.9f}"}],
        )
    )


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize("speaks", ["messages", "chat"])
@pytest.mark.parametrize("mark", [None, MARK, HOUR], ids=["unmarked", "marked", "for an hour"])
async def test_b2_no_prompt_that_is_written_to_a_cache_costs_more_than_was_held(
    client: str,
    speaks: str,
    mark: dict[str, Any] | None,
    start_inprocess: StartInProcess,
    simulator: Simulator,
) -> None:
    """Forty at once, on credit for some of them: nothing is the operator's, and nothing passes the balance."""
    marked = mark is not None or speaks == "chat"
    credit_nano = 25 * INPUT_TOKENS * 1000
    gate = await started(start_inprocess, simulator, speaks, credit_nano, INPUT_TOKENS if marked else 0)
    answers = await asyncio.gather(
        *(ask(gate.url, PATHS[client], messages(mark), key=KEY, timeout_s=20) for _ in range(40))
    )
    told = Counter(answer.status for answer in answers)
    assert set(told) == {200, 402}, [answer.body for answer in answers if answer.status not in (200, 402)]
    rows = await gate.wait_for_rows(told[200])
    assert {row.status for row in rows} == {"ok"}
    assert {row.shortfall_nano_usd for row in rows} == {0}
    each = INPUT_TOKENS * (2000 if marked else 1000)
    assert {row.cost_nano_usd for row in rows} == {each}
    assert sum(row.cost_nano_usd for row in rows) <= credit_nano


@pytest.mark.parametrize(("mark", "times"), [(None, 1), (MARK, 2), (HOUR, 3)])
async def test_b2_what_is_held_is_what_the_marks_can_cost(
    mark: dict[str, Any] | None, times: int, start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await started(start_inprocess, simulator, "messages", 10**9, 0)
    asking = asyncio.create_task(ask(gate.url, PATHS["messages"], messages(mark), key=KEY, timeout_s=20))
    async with asyncio.timeout(5):
        while not gate.gateway._bench.running:
            await asyncio.sleep(0.001)
    (request,) = gate.gateway._bench.running
    assert request.tab is not None
    held = request.tab.reserved_nano / (request._request.input_estimate * 1000)
    assert held == times
    assert (await asking).status == 200
