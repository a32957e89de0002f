"""Two attempts at once at routes that have limits: each has a place in its own route's, the loser gives its place back
at once, and no route is asked for more than it may be. Case B094.
"""

import asyncio
import time
from typing import Any

import pytest

from sluicegate.billing.limits import Kind
from sluicegate.routing.hedge import MIN_MEASURED
from sluicegate.simulator import Answer
from sluicegate.simulator.script import Error, Script, Stall, Wait
from tests.conftest import KEY, PRICE, Connect, MakeSimulator, StartInProcess
from tests.fakes import ask, chat, request_bytes
from tests.server.test_hedging import CHAT, FIRST, LATE_S, MODEL, SECOND, World, make_world, whole

LATE = Script(first_token_s=2 * LATE_S)
SILENT = Script(steps=(Stall(),))
SLOW = Script(answer=Answer(text=(" the", " of", " and", " to")), interval_s=0.2, first_token_s=0.3)


async def limited(
    start_inprocess: StartInProcess,
    make_simulator: MakeSimulator,
    first: dict[str, Any] | None = None,
    second: dict[str, Any] | None = None,
    **model: Any,
) -> World:
    """Return a world whose routes have limits; `n` leads to the second alone."""
    routes = [FIRST | (first or {}), SECOND | (second or {})]
    models = {
        "m": {"routes": routes, "price": PRICE, "hedge_percentile": 95, **model},
        "n": {"routes": [routes[1]], "price": PRICE},
    }
    return await make_world(start_inprocess, make_simulator, models)


def used(world: World, provider: str, kind: Kind) -> int:
    return world.gate.limits.book.used(f"route:{provider}/{MODEL}", kind, time.monotonic())


async def eventually(check: Any) -> None:
    for _ in range(200):
        if check():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen in time")


async def test_the_loser_gives_its_place_back_while_the_winner_still_speaks(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator
) -> None:
    limits = {"max_streams": 1, "rpm": 100, "tpm": 10_000_000}
    world = await limited(start_inprocess, make_simulator, limits, limits)
    world.first.push(SILENT)
    world.second.push(SLOW)
    asking = asyncio.create_task(world.ask(max_tokens=50))
    await world.second.wait_for_requests(1)
    assert (used(world, "first", "streams"), used(world, "second", "streams")) == (1, 1)
    await world.first.wait_for(lambda: world.first.requests[-1].ended == "peer_left")
    assert not asking.done()
    other = asyncio.create_task(
        world.ask(max_tokens=50)
    )  # has the first's place, though that was the only one
    whole(await other)
    response = await asking
    whole(response)
    assert response.header("x-sluicegate-provider") == "second"
    row = next(row for row in world.gate.rows() if row.provider == "second")
    await eventually(lambda: not used(world, "first", "streams") + used(world, "second", "streams"))
    told = (row.usage.input_tokens or 0) + (row.usage.output_tokens or 0)
    await eventually(lambda: used(world, "second", "tokens") == told)
    await eventually(lambda: used(world, "second", "requests") == 1)
    await eventually(lambda: used(world, "first", "requests") == MIN_MEASURED + 2)


async def test_a_second_that_loses_counts_as_asked_and_keeps_no_place(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator
) -> None:
    world = await limited(
        start_inprocess, make_simulator, second={"max_streams": 1, "rpm": 2, "tpm": 100_000}
    )
    world.first.push(LATE)
    world.second.push(SILENT)
    response = await world.ask(max_tokens=50)
    whole(response)
    assert response.header("x-sluicegate-provider") == "first"
    await eventually(lambda: used(world, "second", "requests") == 1)
    await eventually(lambda: not used(world, "second", "streams"))
    await eventually(lambda: 0 < used(world, "second", "tokens") < 100)  # its input, and none of the output
    assert (await ask(world.gate.url, CHAT, chat("n"), key=KEY)).status == 200
    assert (await ask(world.gate.url, CHAT, chat("n"), key=KEY)).status == 429


@pytest.mark.parametrize("limit", [{"max_streams": 1}, {"rpm": 1}, {"tpm": 5_000}], ids=str)
async def test_a_route_that_is_full_gets_no_second_attempt(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator, limit: dict[str, Any]
) -> None:
    world = await limited(start_inprocess, make_simulator, second=limit)
    world.second.push(SLOW)
    full = asyncio.create_task(ask(world.gate.url, CHAT, chat("n", max_tokens=4_900), key=KEY, timeout_s=8.0))
    await world.second.wait_for_requests(1)
    world.first.push(LATE)
    response = await world.ask(max_tokens=500)
    whole(response)
    assert response.header("x-sluicegate-provider") == "first"
    assert response.header("x-sluicegate-attempts") == "1"
    assert len(world.second.requests) == 1
    whole(await full)
    assert world.costs() == []


async def test_many_late_ones_at_once_never_take_a_route_over_its_limit(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator
) -> None:
    world = await limited(start_inprocess, make_simulator, second={"rpm": 3})
    world.first.push(LATE, times=9)
    answers = await asyncio.gather(*(world.ask() for _ in range(9)))
    assert {answer.status for answer in answers} == {200}
    assert len(world.second.requests) == 3


@pytest.mark.parametrize("leaves", [True, False], ids=["the client leaves", "both fail"])
async def test_no_place_is_left_behind(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator, client: Connect, leaves: bool
) -> None:
    limits = {"max_streams": 5}
    world = await limited(start_inprocess, make_simulator, limits, limits)
    world.first.push(SILENT if leaves else Script(steps=(Wait(s=2 * LATE_S), Error(status=500))))
    world.second.push(SILENT if leaves else Script(status=502))
    connection = await client(world.gate.url)
    connection.send(request_bytes(CHAT, chat("m"), key=KEY))
    await world.second.wait_for_requests(1)
    if leaves:
        await asyncio.sleep(0.05)
        assert used(world, "second", "streams") >= 1
        connection.reset()
    for _ in range(2):
        await eventually(lambda: not used(world, "first", "streams") + used(world, "second", "streams"))


async def test_a_dead_second_gives_its_place_back_and_the_first_goes_on(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator
) -> None:
    world = await limited(start_inprocess, make_simulator, second={"max_streams": 1})
    await world.second.stop()
    world.first.push(LATE)
    whole(await world.ask())
    await eventually(lambda: not used(world, "second", "streams"))


async def test_another_models_limit_holds_for_a_second_attempt_too(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator
) -> None:
    models = {
        "m": {"routes": [FIRST], "price": PRICE, "hedge_percentile": 95},
        "n": {"routes": [SECOND], "price": PRICE, "rpm": 1},
    }
    keys = [{"name": "t", "key": KEY, "balance_usd": 5, "may_override": True}]
    world = await make_world(start_inprocess, make_simulator, models, keys=keys)
    for provider in ("second", "first"):
        world.first.push(LATE)
        response = await world.ask(models=["n"])
        whole(response)
        assert response.header("x-sluicegate-provider") == provider
