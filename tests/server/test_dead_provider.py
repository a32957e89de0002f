"""A dead provider among two: once its breaker is open, fewer than one request in a thousand sees an error.

Its half-open trials are requests too: those of a provider that fails before any content go on elsewhere, unseen; one
that dies in the middle of its answers costs a trial each, which come ever more rarely.
"""

import asyncio
import os
from typing import Any, NamedTuple

import pytest

from sluicegate.simulator import Simulator
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import Client, chat

SOAK = bool(os.environ.get("SLUICEGATE_SOAK"))
REQUESTS = 20_000 if SOAK else 1_200
AT_ONCE = 20
CLOCKS = {"first_token_timeout": "200ms", "response_timeout": "200ms", "connect_timeout": "200ms"}
"""Of the dead one."""
OFTEN = {"open_for": "300ms", "max_open_for": "500ms"}
"""So that many requests are trials."""


class Death(NamedTuple):
    """How a provider is dead."""

    model: str
    health: dict[str, str] = OFTEN
    listens: bool = True


DEATHS = {
    "refuses connections": Death("sim-text", listens=False),
    "answers 500": Death("sim-500"),
    "resets": Death("sim-reset-first"),
    "is silent": Death("sim-silent"),
    "dies in the middle": Death("sim-cut", health={}),
}


def config_of(simulator: Simulator, death: Death, dead_port: int) -> dict[str, Any]:
    url = simulator.base_url if death.listens else f"http://127.0.0.1:{dead_port}/v1"
    providers = {
        "dead": {"base_url": url, "speaks": ["chat"], "auth": "none", "stream": CLOCKS},
        "well": {"base_url": simulator.base_url, "speaks": ["chat"], "auth": "none"},
    }
    routes = [{"provider": "dead", "model": death.model}, {"provider": "well", "model": "sim-text,tokens=2"}]
    models = {"two": {"routes": routes, "price": PRICE}}
    keys = [{"name": "test", "key": KEY, "balance_usd": 500}]
    return make_config(simulator, providers=providers, models=models, keys=keys, health=death.health)


@pytest.mark.soak
@pytest.mark.parametrize("name", DEATHS)
async def test_fewer_than_one_in_a_thousand_sees_an_error(
    start_inprocess: StartInProcess, simulator: Simulator, dead_port: int, name: str
) -> None:
    death = DEATHS[name]
    gate = await start_inprocess(config_of(simulator, death, dead_port))
    standing = gate.gateway._bench.deployments.get("dead", death.model)
    numbers = iter(range(10_000_000))
    asked = errors = 0

    async def ask_on() -> None:
        nonlocal asked, errors
        while asked < REQUESTS:
            async with await Client.connect(gate.url) as client:
                goes_on = True
                while goes_on and asked < REQUESTS:
                    counts = bool(standing.breaker.opens)  # it is open, or is being tried out
                    body = chat("two", f"{next(numbers)}", stream=True)
                    response = await client.ask("/v1/chat/completions", body, key=KEY, timeout_s=20)
                    whole = response.status == 200 and response.body.endswith(b"data: [DONE]\n\n")
                    asked += counts
                    errors += counts and not whole
                    goes_on = whole and response.header("connection") != "close"

    await asyncio.gather(*(ask_on() for _ in range(AT_ONCE)))
    assert errors < REQUESTS / 1_000, f"{errors} of {asked}"
    assert standing.breaker.opens, "it never became well"
    if death.health is OFTEN:
        assert standing.breaker.opens > 1, "it was tried out again"
        assert errors == 0
