"""Calls beyond an attempt's first, which resume a paused answer or ask for a further one: they count where the provider
is limited, and not where the client is. Translation matrix, sections 17 and 24; case B094.
"""

import asyncio
import time
from typing import Any

import pytest

from sluicegate.billing.limits import Kind
from sluicegate.messages import Format
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.answer import Answer
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import Response, ask
from tests.grid.scenes import Prompt
from tests.grid.speaking import Body, path_of, said
from tests.inprocess import InProcessGate

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
WORDS = tuple(f" w{place}" for place in range(10))
PAUSED = Answer(text=WORDS, pause_after=4, input_tokens=40)
"""Takes three calls."""


async def start(
    start_inprocess: StartInProcess, simulator: Simulator, format: Format, route: Body, **key: Any
) -> InProcessGate:
    """Return a gate whose model `m` has a limited route, and `model` limits that are never reached."""
    provider = {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
    routes = [{"provider": "sim", "model": "up", **route}]
    return await start_inprocess(
        make_config(
            simulator,
            providers={"sim": provider},
            models={
                "m": {"routes": routes, "price": PRICE, "max_calls": 3, "rpm": 50, "max_output_tokens": 900}
            },
            keys=[{"name": "test", "key": KEY, "balance_usd": 5, **key}],
            retry={"max_attempts": 1, "after_send": 0},
        )
    )


async def request(gate: InProcessGate, *, stream: bool, **fields: Any) -> Response:
    body = said("chat", "m", Prompt(), stream) | {"web_search_options": {}} | fields
    return await ask(gate.url, path_of("chat", "m", stream), body, key=KEY)


async def booked(gate: InProcessGate, name: str, kind: Kind, count: int) -> None:
    """See that a limit comes to hold so much: what idles in a slice goes back when its second is over."""
    used = -1
    for _ in range(250):
        used = gate.limits.book.used(name, kind, time.monotonic())
        if used == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{used} {kind}, not {count}")


@STREAMED
@pytest.mark.parametrize("provider", ["messages", "gemini"])
async def test_s24_each_call_counts_at_the_route_and_the_request_once_at_the_key(
    start_inprocess: StartInProcess, simulator: Simulator, provider: Format, stream: bool
) -> None:
    route = {"rpm": 5, "tpm": 100_000, "max_streams": 1}
    gate = await start(start_inprocess, simulator, provider, route, rpm=10, tpm=100_000)
    simulator.push(Script(answer=PAUSED), times=None)
    response = await request(gate, stream=stream)
    assert response.status == 200, response.body
    assert response.header("x-ratelimit-remaining-requests") == "9"
    assert len(simulator.requests) == 3
    (row,) = await gate.wait_for_rows(1)
    used = (row.usage.input_tokens or 0) + (row.usage.output_tokens or 0)
    assert used > 3 * 40
    await booked(gate, "route:sim/up", "requests", 3)
    await booked(gate, "route:sim/up", "tokens", used)
    await booked(gate, "route:sim/up", "streams", 0)
    await booked(gate, "model:m", "requests", 1)
    await booked(gate, f"key:{row.key_id}", "requests", 1)
    await booked(gate, f"key:{row.key_id}", "tokens", used)
    # An answer that has begun is not broken off for a limit; whoever comes after it finds less.
    assert (await request(gate, stream=stream)).status == 200
    assert len(simulator.requests) == 6
    await booked(gate, "route:sim/up", "requests", 6)
    assert (await request(gate, stream=stream)).status == 429


@STREAMED
async def test_s17_each_answer_counts_at_the_route(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, "messages", {"rpm": 3, "tpm": 100_000})
    simulator.push(Script(answer=Answer(text=WORDS[:3], input_tokens=40)), times=None)
    assert (await request(gate, stream=stream, n=3)).status == 200
    await booked(gate, "route:sim/up", "requests", 3)
    await booked(gate, "route:sim/up", "tokens", 3 * 43)
    await booked(gate, "model:m", "requests", 1)
    assert (await request(gate, stream=stream)).status == 429


async def test_a_call_that_fails_leaves_no_place_behind(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "gemini", {"rpm": 9, "tpm": 100_000, "max_streams": 1})
    simulator.push(Script(answer=PAUSED))
    simulator.push(Script(status=500))
    assert (await request(gate, stream=False)).status == 502
    await booked(gate, "route:sim/up", "requests", 2)
    await booked(gate, "route:sim/up", "streams", 0)
