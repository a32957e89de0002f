"""A second attempt beside a late first one: who is first serves, the other is closed and costs the operator alone."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluicegate.routing.hedge import MIN_MEASURED, late_after_s
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Error, Play, Script, Send, Stall, Wait
from tests.conftest import KEY, PRICE, Connect, MakeSimulator, StartInProcess, make_config
from tests.fakes import Response, ask, chat, request_bytes
from tests.grammar.chat import check_chat_stream
from tests.inprocess import InProcessGate

CHAT = "/v1/chat/completions"
LATE_S = 0.25
"""What the first provider's first tokens take, so that later ones are late."""
ANSWER = " the of and to"


def test_nothing_is_late_before_enough_was_measured() -> None:
    assert late_after_s([0.1] * (MIN_MEASURED - 1), 95) is None
    assert late_after_s([0.1] * MIN_MEASURED, 95) == 0.1


@pytest.mark.parametrize(("percentile", "late"), [(50, 50.0), (95, 95.0), (99, 99.0), (1, 1.0)])
def test_late_is_later_than_that_share_of_them(percentile: int, late: float) -> None:
    assert late_after_s([float(n) for n in range(100, 0, -1)], percentile) == late


class World:
    """A gate whose model goes to `first`, and to `second` where that is late or fails."""

    def __init__(self, gate: InProcessGate, first: Simulator, second: Simulator) -> None:
        self.gate = gate
        self.first = first
        self.second = second

    async def ask(self, **fields: Any) -> Response:
        return await ask(self.gate.url, CHAT, chat("m", **fields), key=KEY, timeout_s=8.0)

    def costs(self) -> list[tuple[int, str, str]]:
        return [(cost.attempt, cost.provider, cost.reason) for cost in self.gate.provider_costs()]


MODEL = "sim-text,tokens=4"
FIRST = {"provider": "first", "model": MODEL}
SECOND = {"provider": "second", "model": MODEL, "priority": 1}


async def make_world(
    start_inprocess: StartInProcess,
    make_simulator: MakeSimulator,
    models: dict[str, Any],
    second_speaks: str = "chat",
    **sections: Any,
) -> World:
    """Return a world that has measured that first tokens of the first provider take next to nothing."""
    first, second = await make_simulator(), await make_simulator()
    providers = {
        name: {"base_url": one.base_url, "speaks": [speaks], "auth": "none"}
        for name, one, speaks in (("first", first, "chat"), ("second", second, second_speaks))
    }
    config = make_config(
        first,
        providers=providers,
        models=models,
        stream={"first_token_timeout": "3s", "idle_timeout": "3s"},
        **sections,
    )
    world = World(await start_inprocess(config), first, second)
    for _ in range(MIN_MEASURED):
        assert (await world.ask()).status == 200
    standing = world.gate.gateway._bench.deployments.get("first", MODEL)
    assert standing.first_tokens is not None
    assert len(standing.first_tokens) == MIN_MEASURED
    standing.first_tokens.extend([LATE_S] * MIN_MEASURED)  # a busy machine is not to be late
    return world


@pytest.fixture
async def world(start_inprocess: StartInProcess, make_simulator: MakeSimulator) -> World:
    model = {"routes": [FIRST, SECOND], "price": PRICE, "hedge_percentile": 95}
    return await make_world(start_inprocess, make_simulator, {"m": model})


def whole(response: Response) -> None:
    assert response.status == 200
    assert response.complete
    assert check_chat_stream(response.body).text.startswith(ANSWER)


async def test_what_is_in_time_is_asked_once(world: World) -> None:
    whole(await world.ask())
    assert len(world.second.requests) == 0
    assert world.costs() == []


@pytest.mark.parametrize("steps", [(Stall(),), (Play(stop=1), Stall())], ids=["silent", "start alone"])
async def test_a_late_first_token_is_overtaken_and_its_connection_closed(
    world: World, steps: tuple[Any, ...]
) -> None:
    world.first.push(Script(steps=steps))
    response = await world.ask()
    ended_at = time.monotonic()
    whole(response)
    assert response.header("x-sluicegate-provider") == "second"
    assert response.header("x-sluicegate-attempts") == "2"
    slow = world.first.requests[-1]
    await world.first.wait_for(lambda: slow.ended is not None, timeout_s=1.0)
    assert slow.ended == "peer_left"
    assert time.monotonic() - ended_at < 1.0
    row = (await world.gate.wait_for_rows(MIN_MEASURED + 1))[-1]
    assert (row.status, row.provider, row.attempts) == ("ok", "second", 2)
    usage = row.usage
    assert row.cost_nano_usd == (usage.input_tokens or 0) * 1_000 + (usage.output_tokens or 0) * 2_000
    assert world.costs() == [(1, "first", "hedged")]


async def test_another_model_that_overtakes_costs_what_it_did_at_admission(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator
) -> None:
    begins_at = datetime.now(UTC) + timedelta(seconds=0.3)
    dated = {"from": begins_at.isoformat(), "input": 5, "output": 7}
    models = {
        "m": {"routes": [FIRST], "price": PRICE, "hedge_percentile": 95},
        "n": {"routes": [SECOND], "price": {"input": 1, "output": 2, "changes": [dated]}},
    }
    keys = [{"name": "t", "key": KEY, "balance_usd": 5, "may_override": True}]
    world = await make_world(start_inprocess, make_simulator, models, keys=keys)
    await asyncio.sleep(begins_at.timestamp() - time.time())
    world.first.push(Script(steps=(Stall(),)))
    whole(await world.ask(models=["n"]))
    row = (await world.gate.wait_for_rows(MIN_MEASURED + 1))[-1]
    usage = row.usage
    assert (row.model, row.attempts) == ("n", 2)
    assert row.cost_nano_usd == (usage.input_tokens or 0) * 5_000 + (usage.output_tokens or 0) * 7_000


@pytest.mark.parametrize("second", ["chat", "messages"])
async def test_who_needs_a_call_for_each_answer_is_not_asked_beside_the_first(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator, second: str
) -> None:
    """Its further calls would be made for the first, which gave all answers in one."""
    model = {"routes": [FIRST, SECOND], "price": PRICE, "hedge_percentile": 95, "max_calls": 2}
    world = await make_world(start_inprocess, make_simulator, {"m": model}, second)
    world.first.push(Script(answer=Answer(text=(" a", " b"), choices=2), first_token_s=2 * LATE_S))
    world.second.push(Script(first_token_s=2.0))
    response = await world.ask(n=2, stream_options={"include_usage": True})
    assert response.status == 200
    stream = check_chat_stream(response.body)
    assert [stream.texts[choice] for choice in range(2)] == [" a b"] * 2
    row = (await world.gate.wait_for_rows(MIN_MEASURED + 1))[-1]
    assert (row.status, row.provider, row.usage.output_tokens) == ("ok", "first", 4)
    assert row.cost_nano_usd == 9 * 1_000 + 4 * 2_000
    assert len(world.first.requests) == MIN_MEASURED + 1
    assert world.costs() == ([(2, "second", "hedged")] if second == "chat" else [])


async def test_the_first_may_still_win_and_then_the_second_is_closed(world: World) -> None:
    world.first.push(Script(first_token_s=2 * LATE_S))
    world.second.push(Script(steps=(Stall(),)))
    response = await world.ask()
    whole(response)
    assert response.header("x-sluicegate-provider") == "first"
    await world.second.wait_for(lambda: world.second.requests[-1].ended == "peer_left", timeout_s=1.0)
    row = (await world.gate.wait_for_rows(MIN_MEASURED + 1))[-1]
    assert (row.status, row.provider, row.attempts) == ("ok", "first", 2)
    assert world.costs() == [(2, "second", "hedged")]


async def test_the_first_goes_on_when_the_second_fails_and_the_other_way_round(world: World) -> None:
    world.first.push(Script(first_token_s=2 * LATE_S))
    world.second.push(Script(status=500))
    response = await world.ask()
    whole(response)
    assert response.header("x-sluicegate-provider") == "first"
    world.first.push(Script(steps=(Wait(s=2 * LATE_S), Error(status=500))))
    world.second.push(Script(first_token_s=3 * LATE_S))
    response = await world.ask()
    whole(response)
    assert response.header("x-sluicegate-provider") == "second"
    rows = await world.gate.wait_for_rows(MIN_MEASURED + 2)
    assert [(row.status, row.provider, row.attempts) for row in rows[-2:]] == [
        ("ok", "first", 2),
        ("ok", "second", 2),
    ]
    assert [cost[:2] for cost in world.costs()] == [(2, "second"), (1, "first")]


async def test_when_both_fail_the_client_has_one_error(world: World) -> None:
    world.first.push(Script(steps=(Wait(s=2 * LATE_S), Error(status=500))))
    world.second.push(Script(status=502))
    response = await world.ask()
    assert response.status == 502
    assert response.json()["error"]["message"]
    row = (await world.gate.wait_for_rows(MIN_MEASURED + 1))[-1]
    assert (row.status, row.attempts) == ("upstream_error", 2)


@pytest.mark.parametrize("second", [Script(steps=(Stall(),)), Script(first_token_s=30.0)])
async def test_a_client_that_leaves_ends_both(world: World, client: Connect, second: Script) -> None:
    world.first.push(Script(steps=(Stall(),)))
    world.second.push(second)
    connection = await client(world.gate.url)
    connection.send(request_bytes(CHAT, chat("m"), key=KEY))
    await world.second.wait_for_requests(1)
    await asyncio.sleep(0.05)
    connection.reset()
    for one in (world.first, world.second):
        await one.wait_for(lambda one=one: one.requests[-1].ended == "peer_left", timeout_s=1.0)  # type: ignore[misc]
    row = (await world.gate.wait_for_rows(MIN_MEASURED + 1))[-1]
    assert (row.status, row.cost_nano_usd) == ("client_closed", 0)


async def test_both_late_ends_with_the_clock(world: World) -> None:
    world.first.push(Script(steps=(Stall(),)))
    world.second.push(Script(steps=(Stall(),)))
    response = await world.ask()
    assert response.status == 504
    row = (await world.gate.wait_for_rows(MIN_MEASURED + 1))[-1]
    assert (row.status, row.attempts) == ("upstream_error", 2)


async def test_a_restart_ends_both(world: World) -> None:
    world.first.push(Script(steps=(Stall(),)))
    world.second.push(Script(steps=(Stall(),)))
    asking = asyncio.create_task(world.ask())
    await world.second.wait_for_requests(1)
    await world.gate.gateway.drain(0.0)
    response = await asking
    assert response.status == 503
    for one in (world.first, world.second):
        await one.wait_for(lambda one=one: one.requests[-1].ended == "peer_left", timeout_s=1.0)  # type: ignore[misc]


async def test_a_dead_second_is_found_and_the_first_goes_on(world: World) -> None:
    await world.second.stop()
    world.first.push(Script(first_token_s=2 * LATE_S))
    whole(await world.ask())
    row = (await world.gate.wait_for_rows(MIN_MEASURED + 1))[-1]
    assert (row.status, row.provider, row.attempts) == ("ok", "first", 2)
    assert world.costs() == [], "nothing was sent to it"


async def test_hedges_are_bounded_by_the_seconds_budget(world: World) -> None:
    world.first.push(Script(first_token_s=2 * LATE_S), times=40)
    answers = await asyncio.gather(*(world.ask() for _ in range(40)))
    assert {answer.status for answer in answers} == {200}
    assert len(world.second.requests) <= 10


async def test_plain_answers_have_no_second_attempt(world: World) -> None:
    world.first.push(Script(first_token_s=2 * LATE_S))
    response = await world.ask(stream=False)
    assert response.status == 200
    assert len(world.second.requests) == 0


async def test_b6_the_model_that_wins_is_charged_at_its_price_of_today(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator
) -> None:
    first, second = await make_simulator(), await make_simulator()
    providers = {
        name: {"base_url": one.base_url, "speaks": ["chat"], "auth": "none"}
        for name, one in (("first", first), ("second", second))
    }
    model = "sim-text,tokens=4"
    price = {"input": 1, "output": 2, "changes": [{"from": "2020-01-01T00:00:00Z", "input": 5, "output": 7}]}
    models = {
        name: {"routes": [{"provider": name, "model": model}], "price": price, "hedge_percentile": 95}
        for name in ("first", "second")
    }
    keys = [{"name": "t", "key": KEY, "balance_usd": 5, "may_override": True}]
    gate = await start_inprocess(make_config(first, providers=providers, models=models) | {"keys": keys})

    async def once() -> Response:
        body = chat("first", models=["first", "second"])
        return await ask(gate.url, CHAT, body, key=KEY, timeout_s=8.0)

    for _ in range(MIN_MEASURED):
        assert (await once()).status == 200
    standing = gate.gateway._bench.deployments.get("first", model)
    assert standing.first_tokens is not None
    standing.first_tokens.extend([LATE_S] * MIN_MEASURED)
    first.push(Script(steps=(Stall(),)))
    whole(await once())
    first.push(Script(first_token_s=2 * LATE_S))
    second.push(Script(steps=(Stall(),)))
    whole(await once())
    rows = (await gate.wait_for_rows(MIN_MEASURED + 2))[-2:]
    assert [row.provider for row in rows] == ["second", "first"]
    for row in rows:
        usage = row.usage
        assert row.cost_nano_usd == (usage.input_tokens or 0) * 5_000 + (usage.output_tokens or 0) * 7_000


@pytest.mark.parametrize("winner", ["first", "second"])
async def test_e2_a_winner_that_fails_in_the_read_that_made_it_win_is_an_error(
    world: World, winner: str
) -> None:
    delta = '{"choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}]}'
    failing = Send(text=f'data: {delta}\n\ndata: {{"error":{{"message":"no","type":"server_error"}}}}\n\n')
    for name, one in (("first", world.first), ("second", world.second)):
        one.push(Script(steps=(Wait(s=2 * LATE_S), failing) if name == winner else (Stall(),)))
    response = await world.ask()
    assert response.status == 200
    assert b"word" in response.body
    assert b'"error"' in response.body
    assert b"[DONE]" not in response.body
    row = (await world.gate.wait_for_rows(MIN_MEASURED + 1))[-1]
    assert (row.status, row.provider) == ("upstream_error", winner)
    assert all(
        world.gate.gateway._bench.deployments.get(name, "sim-text,tokens=4").running == 0
        for name in ("first", "second")
    )


async def test_t2_sound_of_a_model_that_hedges_is_asked_once(world: World) -> None:
    body = {"model": "m", "input": "Hello", "voice": "v"}
    world.first.push(Script(first_token_s=2 * LATE_S))
    response = await ask(world.gate.url, "/v1/audio/speech", body, key=KEY, timeout_s=8.0)
    assert (response.status, response.header("x-sluicegate-attempts")) == (200, "1")
    assert len(world.second.requests) == 0
