"""Clocks beyond the usual ones: a minimum rate of tokens, clocks that a client tightens for one request, and line feeds
that keep the client of a late plain answer waiting. Contract E2, X4, X5."""

import asyncio
import json
import time
from typing import Any

import pytest
import pytest_asyncio

from sluicegate.errors import BadRequest
from sluicegate.routing import catalog_shapes
from sluicegate.routing.catalog import StreamClocks
from sluicegate.server.clock_wishes import read_wishes, tightened
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Reset, Script, Stall, Wait
from tests.cases.world import configuration
from tests.conftest import KEY, Connect, StartInProcess, make_config
from tests.fakes import Client, Response, ask, chat, request_bytes
from tests.grammar.chat import check_chat_stream
from tests.grammar.test_grammar import CHECKERS
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import path_of, said
from tests.inprocess import InProcessGate

PATH = "/v1/chat/completions"
HEADER = "x-sluicegate-timeouts"
WORDS = Answer(text=tuple(f" word{number}" for number in range(200)), input_tokens=20)
SHORT = Answer(text=(" a", " b"), input_tokens=20)
SLOW_CLOCKS = {"min_tokens_per_s": 40, "min_tokens_window": "400ms", "idle_timeout": "20s"}


# A minimum rate


@pytest.mark.parametrize("provider", ["chat", "messages"])
@pytest.mark.parametrize("client", FORMATS)
async def test_x5_e2_a_stream_below_the_minimum_rate_is_ended_with_an_error(
    start_inprocess: StartInProcess, simulator: Simulator, client: str, provider: str
) -> None:
    simulator.push(Script(answer=WORDS, interval_s=0.1), times=None)  # about 20 tokens a second
    gate = await start_inprocess(configuration(simulator, stream=SLOW_CLOCKS))
    model = f"{provider}/m"
    began = time.monotonic()
    body = said(client, model, Prompt(), True)
    response = await ask(gate.url, path_of(client, model, True), body, key=KEY, timeout_s=20)
    assert 0.35 < time.monotonic() - began < 15, "whole it would take 20 s"
    parsed = CHECKERS[client](response.body, end="error")
    assert parsed.error
    assert b" word0" in response.body
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.error) == ("upstream_error", "timeout")
    assert row.usage.output_tokens
    assert simulator.requests[-1].ended != "complete"


async def test_x5_a_stream_that_is_fast_enough_ends_well(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    simulator.push(Script(answer=WORDS, interval_s=0.005))
    clocks = {"min_tokens_per_s": 20, "min_tokens_window": "200ms"}
    gate = await start_inprocess(make_config(simulator, stream=clocks))
    response = await ask(gate.url, PATH, chat("m"), key=KEY, timeout_s=20)
    assert len(check_chat_stream(response.body).text.split()) == 200


async def test_x5_a_slow_client_is_not_the_providers_fault(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    many = Answer(text=(" word" * 2_000,) * 200, input_tokens=20)  # two megabytes
    simulator.push(Script(answer=many))
    clocks = {"min_tokens_per_s": 1_000, "min_tokens_window": "200ms"}
    gate = await start_inprocess(make_config(simulator, stream=clocks))
    connection = await client(gate.url, receive_buffer_bytes=16_384)
    connection.send(request_bytes(PATH, chat("m"), key=KEY))
    await connection.until_bytes(b" word")
    connection.pause()
    await asyncio.sleep(1.0)
    connection.resume()
    response = await connection.response(timeout_s=30)
    check_chat_stream(response.body)


# Wishes of the client


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_x5_a_client_may_tighten_clocks_for_one_request(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool
) -> None:
    simulator.push(Script(steps=(Stall(),)), times=None)
    gate = await start_inprocess(make_config(simulator, retry={"after_send": 0}))
    wish = {HEADER: "first_token=300ms" if stream else "response=300ms"}
    began = time.monotonic()
    response = await ask(gate.url, PATH, chat("m", stream=stream), key=KEY, headers=wish)
    assert response.status == 504
    assert time.monotonic() - began < 4.5
    assert simulator.requests[-1].body_at is not None
    assert HEADER not in dict(simulator.requests[-1].headers), "it is ours"


async def test_x5_a_silence_shorter_than_keepalives_is_noticed_in_time(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    simulator.push(Script(answer=WORDS, steps=(Play(stop=3), Stall())))
    gate = await start_inprocess(make_config(simulator))
    began = time.monotonic()
    response = await ask(gate.url, PATH, chat("m"), key=KEY, headers={HEADER: "idle=400ms"}, timeout_s=14.0)
    assert time.monotonic() - began < 10.0, "keep-alives begin after 15 s"
    assert check_chat_stream(response.body, end="error").error
    (row,) = await gate.wait_for_rows(1)
    assert row.duration_ms > 350


async def test_x5_a_total_time_bounds_all_attempts_together(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    simulator.push(Script(answer=WORDS, interval_s=0.05))
    gate = await start_inprocess(make_config(simulator))
    wish = {HEADER: "total=0.5s, idle=10s"}
    response = await ask(gate.url, PATH, chat("m"), key=KEY, headers=wish)
    assert check_chat_stream(response.body, end="error").error
    (row,) = await gate.wait_for_rows(1)
    assert 400 < row.duration_ms < 9_000


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("first=3s", "there is no clock 'first'"),
        ("", "there is no clock ''"),
        ("idle", "idle must be a time"),
        ("idle=5", "idle must be a time"),
        ("idle=-5s", "idle must be a time"),
        ("idle=50ms", "at least 100ms"),
        ("idle=1s, idle=2s", "idle stands twice"),
        ("min_tokens_per_s=1s", "must be a number"),
        ("min_tokens_per_s=nan", "must be a number"),
        ("total=9999999999s", "total must be a time"),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
async def test_a_wish_that_makes_no_sense_is_refused_before_anything_is_sent(
    world: tuple[InProcessGate, Simulator], format: str, value: str, told: str
) -> None:
    gate, simulator = world
    model = "chat/m"
    response = await ask(
        gate.url,
        path_of(format, model, False),
        said(format, model, Prompt(), False),
        key=KEY,
        headers={HEADER: value},
    )
    assert response.status == 400
    message = response.json()["error"]["message"]
    assert HEADER in message
    assert told in message
    assert not simulator.requests
    assert not gate.rows()


@pytest_asyncio.fixture
async def world(start_inprocess: StartInProcess, simulator: Simulator) -> tuple[InProcessGate, Simulator]:
    return await start_inprocess(configuration(simulator)), simulator


def test_wishes_only_tighten() -> None:
    clocks = StreamClocks(
        catalog_shapes.StreamClocks(idle_timeout_s=10.0, total_timeout_s=60.0, min_tokens_per_s=5.0)
    )
    wishes = read_wishes(b"idle=1m, total=1.5s , min_tokens_per_s=2,connect=100ms")
    changed = tightened(clocks, wishes)
    assert (changed.idle_timeout_s, changed.total_timeout_s, changed.connect_timeout_s) == (10.0, 1.5, 0.1)
    assert changed.min_tokens_per_s == 5.0
    assert tightened(clocks, read_wishes(b"min_tokens_per_s=7.5")).min_tokens_per_s == 7.5
    with pytest.raises(BadRequest):
        read_wishes(b"\xff=1s")


# Late plain answers


PLAIN_CLOCKS = {"plain_keepalive": "150ms"}
EVERY = {"keepalive_every": "100ms"}


@pytest.mark.parametrize("provider", ["chat", "messages"])
@pytest.mark.parametrize("client", FORMATS)
async def test_x4_a_late_plain_answer_begins_with_line_feeds(
    start_inprocess: StartInProcess, simulator: Simulator, client: str, provider: str
) -> None:
    simulator.push(Script(answer=SHORT, steps=(Wait(s=0.7), Play())))
    config = configuration(simulator, stream=PLAIN_CLOCKS)
    config["server"] |= EVERY
    gate = await start_inprocess(config)
    model = f"{provider}/m"
    response = await ask(
        gate.url, path_of(client, model, False), said(client, model, Prompt(), False), key=KEY
    )
    assert response.status == 200
    assert response.complete
    assert response.header("content-type") == "application/json"
    assert response.header("x-sluicegate-cost-nano-usd") is None, "not known when the head left"
    assert response.body.startswith(b"\n")
    assert "a b" in json.dumps(response.json())
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage.output_tokens) == ("ok", 2)


async def test_x4_a_plain_answer_in_time_has_no_line_feed(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(make_config(simulator, stream={"plain_keepalive": "4m"}))
    response = await ask(gate.url, PATH, chat("m", stream=False), key=KEY)
    assert response.body.startswith(b"{")
    assert response.header("x-sluicegate-cost-nano-usd")


@pytest.mark.parametrize("failing", ["timeout", "reset", "status"])
async def test_x4_a_plain_answer_that_fails_after_a_line_feed_is_aborted(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect, failing: str
) -> None:
    scripts = {
        "timeout": Script(steps=(Stall(),)),
        "reset": Script(answer=SHORT, steps=(Wait(s=0.5), Reset())),
        "status": Script(status=500, steps=(Wait(s=0.5), Play())),
    }
    simulator.push(scripts[failing])
    clocks = PLAIN_CLOCKS | {"response_timeout": "800ms"}
    gate = await start_inprocess(
        make_config(simulator, stream=clocks, server=EVERY, retry={"after_send": 0, "max_attempts": 1})
    )
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m", stream=False), key=KEY))
    assert await connection.until_closed() == "reset"
    assert b"200 OK" in connection.raw
    assert b"\r\n0\r\n\r\n" not in connection.raw, "it must not look whole"
    (row,) = await gate.wait_for_rows(1)
    assert row.status == "upstream_error"
    assert row.cost_nano_usd == 0


async def test_x4_the_next_route_may_still_answer_after_a_line_feed(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    simulator.push(Script(status=500, steps=(Wait(s=0.4), Play())))
    simulator.push(Script(answer=SHORT, steps=(Wait(s=0.3), Play())))
    routes: list[dict[str, Any]] = [
        {"provider": "sim", "model": "first"},
        {"provider": "sim", "model": "second", "priority": 1},
    ]
    models = {"m": {"routes": routes, "price": {"input": 1, "output": 2}}}
    gate = await start_inprocess(make_config(simulator, stream=PLAIN_CLOCKS, server=EVERY, models=models))
    response: Response = await ask(gate.url, PATH, chat("m", stream=False), key=KEY, timeout_s=20)
    assert response.json()["choices"][0]["message"]["content"] == " a b"
    assert response.body.startswith(b"\n")
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.attempts) == ("ok", 2)


async def test_x4_a_client_that_leaves_while_it_is_kept_waiting_is_noticed(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    simulator.push(Script(steps=(Stall(),)))
    gate = await start_inprocess(make_config(simulator, stream=PLAIN_CLOCKS, server=EVERY))
    connection: Client = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m", stream=False), key=KEY))
    await connection.until_bytes(b"\n\r\n")
    await connection.close()
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("client_closed", 0)
    await simulator.wait_for(lambda: simulator.requests[-1].ended == "peer_left", 2.0)
