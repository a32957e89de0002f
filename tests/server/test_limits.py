"""Limits of keys, accounts, models and routes, in one worker: who is refused, what is told, what is given back, and the
line in which requests may wait. Contract E5; cases B030, B094, B138."""

import asyncio
import time
from typing import Any

import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Script, Stall, Wait
from tests.conftest import KEY, PRICE, Connect, MakeSimulator, StartInProcess, make_config
from tests.fakes import Response, ask, chat, request_bytes
from tests.inprocess import InProcessGate

PATH = "/v1/chat/completions"
OTHER_KEY = "sg-other-key-0123456789abcdef"
SHORT = Answer(text=(" a", " b"), input_tokens=20)


def with_key(**limits: int) -> list[dict[str, Any]]:
    return [{"name": "test", "key": KEY, "balance_usd": 5, **limits}]


def two_keys(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "one", "key": KEY, **fields}, {"name": "two", "key": OTHER_KEY, **fields}]


async def plain(gate: InProcessGate, model: str = "m", key: str = KEY, **fields: Any) -> Response:
    return await ask(gate.url, PATH, chat(model, stream=False, **fields), key=key)


def limit_headers(response: Response) -> dict[str, str]:
    return {name: value for name, value in response.headers if "ratelimit" in name}


def used(gate: InProcessGate, name: str, kind: Any) -> int:
    return gate.limits.book.used(name, kind, time.monotonic())


async def until(true: Any, within_s: float = 3.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.01)


async def test_b030_every_answer_tells_the_limits_in_the_words_of_openai(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    simulator.push(Script(answer=SHORT), times=None)
    gate = await start_inprocess(make_config(simulator, keys=with_key(rpm=2, tpm=100_000)))
    first = await plain(gate, max_tokens=100)
    told = limit_headers(first)
    assert told["x-ratelimit-limit-requests"] == "2"
    assert told["x-ratelimit-remaining-requests"] == "1"
    assert told["x-ratelimit-reset-requests"] == "1m0s"
    assert told["x-ratelimit-limit-tokens"] == "100000"
    assert 99_000 < int(told["x-ratelimit-remaining-tokens"]) < 99_900
    streamed = await ask(gate.url, PATH, chat("m", max_tokens=100), key=KEY)
    assert streamed.header("x-ratelimit-remaining-requests") == "0"
    refused = await plain(gate, max_tokens=100)
    assert refused.status == 429
    told = limit_headers(refused)
    assert told["x-ratelimit-remaining-requests"] == "0"
    assert told["x-ratelimit-reset-requests"] in ("59s", "1m0s", "1m1s")
    assert refused.header("retry-after") == "59"
    assert refused.json()["error"]["message"] == "Rate limit reached: 2 requests a minute for this API key."
    assert len(gate.rows()) == 2


async def test_b030_messages_has_anthropics_names(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(make_config(simulator, keys=with_key(rpm=1, tpm=100_000)))
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}
    for status, left in ((200, "0"), (429, "0")):
        response = await ask(gate.url, "/v1/messages", body, key=KEY)
        assert response.status == status
        told = limit_headers(response)
        assert told["anthropic-ratelimit-requests-limit"] == "1"
        assert told["anthropic-ratelimit-requests-remaining"] == left
        assert told["anthropic-ratelimit-requests-reset"].endswith("Z")
        assert told["anthropic-ratelimit-tokens-limit"] == "100000"
        assert not any(name.startswith("x-ratelimit") for name in told)
    assert response.json()["error"]["type"] == "rate_limit_error"


async def test_who_has_no_limits_is_told_none_and_asks_nobody(
    gate_inprocess: InProcessGate,
) -> None:
    response = await plain(gate_inprocess)
    assert not limit_headers(response)
    assert len(gate_inprocess.limits.book) == 0


async def test_tokens_are_charged_as_estimated_and_corrected_by_what_was_used(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    simulator.push(Script(answer=SHORT, steps=(Play(before="finish"), Wait(s=0.2), Play(start=3))))
    gate = await start_inprocess(make_config(simulator, keys=with_key(tpm=10_000)))
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m", max_tokens=9_000), key=KEY))
    await connection.until_bytes(b" b")
    name = f"key:{gate.key_id('test')}"
    assert 9_000 < used(gate, name, "tokens") <= 10_000
    refused = await plain(gate, max_tokens=2_000)
    assert refused.status == 429
    assert "tokens a minute" in refused.json()["error"]["message"]
    await connection.response()
    (row,) = await gate.wait_for_rows(1)
    await until(lambda: used(gate, name, "tokens") == row.usage.input_tokens + row.usage.output_tokens)
    assert (await plain(gate, max_tokens=2_000)).status == 200


@pytest.mark.parametrize("ending", ["close", "reset", "complete", "provider fails"])
async def test_b138_a_place_is_free_again_however_the_request_ends(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect, ending: str
) -> None:
    gate = await start_inprocess(
        make_config(simulator, keys=with_key(max_streams=1), retry={"after_send": 0})
    )
    name = f"key:{gate.key_id('test')}"
    for _ in range(8):
        if ending == "provider fails":
            simulator.push(Script(status=500))
            assert (await plain(gate)).status == 502
        elif ending == "complete":
            assert (await plain(gate)).status == 200
        else:
            simulator.push(Script(answer=SHORT, steps=(Play(before="finish"), Stall())))
            connection = await client(gate.url)
            connection.send(request_bytes(PATH, chat("m"), key=KEY))
            await connection.until_bytes(b" b")
            busy = await plain(gate)
            assert busy.status == 429
            assert "this API key may run 1" in busy.json()["error"]["message"]
            assert busy.header("retry-after") == "1"
            if ending == "reset":
                connection.reset()
            else:
                await connection.close()
        await until(lambda: not used(gate, name, "streams"))


async def test_an_accounts_limit_holds_for_all_of_its_keys(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    accounts = {"team": {"unlimited": True, "rpm": 3}}
    gate = await start_inprocess(make_config(simulator, accounts=accounts, keys=two_keys(account="team")))
    statuses = [(await plain(gate, key=key)).status for key in (KEY, OTHER_KEY, KEY, OTHER_KEY, KEY)]
    assert statuses == [200, 200, 200, 429, 429]
    refused = await plain(gate)
    assert "for this account" in refused.json()["error"]["message"]
    assert refused.header("x-ratelimit-limit-requests") == "3"


async def test_a_models_limit_holds_for_all_keys_and_its_aliases(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    models = {"m": {"rpm": 2, "aliases": ["also-m"]}, "sim-*": {"rpm": 1}}
    gate = await start_inprocess(make_config(simulator, models=models, keys=two_keys(balance_usd=1)))
    assert (await plain(gate)).status == 200
    assert (await plain(gate, "also-m", OTHER_KEY)).status == 200
    refused = await plain(gate, "m", OTHER_KEY)
    assert refused.status == 429
    assert "for this model" in refused.json()["error"]["message"]
    assert (await plain(gate, "sim-text")).status == 200
    assert (await plain(gate, "sim-reasoning")).status == 429, "the ids of a wildcard share its limit"


async def test_b094_a_route_above_its_limit_is_passed_over_and_the_last_one_refuses(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator
) -> None:
    first, second = await make_simulator(), await make_simulator()
    providers = {
        name: {"base_url": one.base_url, "speaks": ["chat"], "auth": "none"}
        for name, one in (("sim", first), ("other", second))
    }
    routes = [
        {"provider": "sim", "model": "sim-text", "rpm": 1},
        {"provider": "other", "model": "sim-text", "rpm": 2, "priority": 1},
    ]
    config = make_config(first, providers=providers, models={"two": {"routes": routes, "price": PRICE}})
    gate = await start_inprocess(config)
    answers = [await plain(gate, "two") for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert [len(first.requests), len(second.requests)] == [1, 2]
    assert answers[1].header("x-sluicegate-provider") == "other"
    assert answers[1].header("x-sluicegate-attempts") == "1"
    assert answers[3].header("retry-after") == "59"
    assert not limit_headers(answers[3]), "what a provider allows us is not the client's to know"
    rows = gate.rows()
    assert [row.status for row in rows] == ["ok", "ok", "ok", "rejected", "rejected"]
    assert [row.cost_nano_usd for row in rows[3:]] == [0, 0]


async def test_a_failed_attempt_frees_its_routes_place(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    simulator.push(Script(status=500))
    routes = [{"provider": "sim", "model": "sim-text", "max_streams": 1}]
    gate = await start_inprocess(make_config(simulator, models={"two": {"routes": routes, "price": PRICE}}))
    assert (await plain(gate, "two")).status == 502
    assert (await plain(gate, "two")).status == 200


def slow(for_s: float) -> Script:
    return Script(answer=SHORT, steps=(Wait(s=for_s), Play()))


async def test_a_request_above_a_limit_waits_in_line_for_a_place(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    simulator.push(slow(0.15), times=None)
    gate = await start_inprocess(
        make_config(simulator, server={"queue_for": "3s"}, keys=with_key(max_streams=1))
    )
    answers = await asyncio.gather(*(plain(gate) for _ in range(4)))
    assert [answer.status for answer in answers] == [200] * 4
    assert used(gate, f"key:{gate.key_id('test')}", "streams") == 0
    assert not gate.gateway._bench.queue._lines


async def test_who_waited_long_enough_is_told_429_and_who_cannot_be_helped_at_once(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_inprocess(
        make_config(simulator, server={"queue_for": "300ms"}, keys=with_key(max_streams=1, rpm=4))
    )
    simulator.push(Script(answer=SHORT, steps=(Play(before="finish"), Stall())))
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m"), key=KEY))
    await connection.until_bytes(b" b")
    began = time.monotonic()
    refused = await plain(gate)
    assert refused.status == 429
    assert 0.25 < time.monotonic() - began < 2
    await connection.close()
    await until(lambda: not used(gate, f"key:{gate.key_id('test')}", "streams"))
    for _ in range(3):
        assert (await plain(gate)).status == 200
    began = time.monotonic()
    assert (await plain(gate)).status == 429, "the minute is used up for much longer"
    assert time.monotonic() - began < 0.25


async def test_a_client_that_leaves_the_line_takes_no_place(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    simulator.push(slow(0.3), times=1)
    gate = await start_inprocess(
        make_config(simulator, server={"queue_for": "5s"}, keys=with_key(max_streams=1))
    )
    running = asyncio.create_task(plain(gate))
    await simulator.wait_for(lambda: len(simulator.requests) == 1)
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m"), key=KEY))
    await until(lambda: gate.gateway._bench.queue.waiting == 1)
    await connection.close()
    await until(lambda: gate.gateway._bench.queue.waiting == 0)
    assert (await running).status == 200
    assert (await plain(gate)).status == 200
    assert len(simulator.requests) == 2
    assert len(gate.rows()) == 2


async def test_keys_in_one_line_take_turns(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    simulator.push(slow(0.05), times=None)
    gate = await start_inprocess(
        make_config(
            simulator,
            server={"queue_for": "5s"},
            models={"m": {"max_streams": 1}},
            keys=two_keys(balance_usd=1),
        )
    )
    ended: list[str] = []

    async def one(key: str) -> None:
        assert (await plain(gate, key=key)).status == 200
        ended.append("busy" if key == KEY else "calm")

    busy = [asyncio.create_task(one(KEY)) for _ in range(8)]
    await until(lambda: gate.gateway._bench.queue.waiting >= 6)
    await asyncio.gather(one(OTHER_KEY), *busy)
    assert ended.index("calm") <= 4


async def test_a_burst_far_below_a_limit_is_never_refused(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    """Questions that are asked at once must not book the whole limit between them."""
    keys = with_key(rpm=1000, tpm=10_000_000, max_streams=1000)
    gate = await start_inprocess(make_config(simulator, keys=keys))
    clients = [await client(gate.url) for _ in range(60)]
    for one in clients:
        one.send(request_bytes(PATH, chat("m", stream=False, max_tokens=1), key=KEY))
    answers = await asyncio.gather(*(one.response(method="POST") for one in clients))
    assert {answer.status for answer in answers} == {200}
