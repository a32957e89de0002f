"""Several deployments behind one model, end to end: who is asked, who is spared, who may choose."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.script import Script
from tests.conftest import KEY, PRICE, MakeSimulator, StartInProcess, make_config
from tests.fakes import Response, ask, chat
from tests.inprocess import InProcessGate

CHAT = "/v1/chat/completions"
BODIES: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "chat": (CHAT, lambda text: {"messages": [{"role": "user", "content": text}]}),
    "completions": ("/v1/completions", lambda text: {"prompt": text}),
    "responses": ("/v1/responses", lambda text: {"input": text}),
    "messages": (
        "/v1/messages",
        lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 50},
    ),
    "gemini": (
        "/v1beta/models/{model}:generateContent",
        lambda text: {"contents": [{"role": "user", "parts": [{"text": text}]}]},
    ),
}
MAY = {"name": "t", "key": KEY, "balance_usd": 5, "may_override": True}


async def put(
    gate: InProcessGate, format: str, text: str = "Hello", model: str = "two", **fields: Any
) -> Response:
    """Ask one plain question in a format."""
    headers = fields.pop("headers", None)
    path, body = BODIES[format]
    told = body(text) | fields
    if format != "gemini":
        told["model"] = model
    return await ask(gate.url, path.replace("{model}", model), told, key=KEY, headers=headers)


def pair_config(a: Simulator, b: Simulator, **changes: Any) -> dict[str, Any]:
    """Return a gate with providers a and b, which speak all formats, and a model `two` that both serve."""
    speaks = ["chat", "completions", "responses", "messages", "gemini"]
    routes = changes.pop("routes", [{}, {}])
    named = [
        {"provider": name, "model": "sim-text,tokens=4"} | route
        for name, route in zip("ab", routes, strict=True)
    ]
    model = {"routes": named, "price": PRICE} | changes.pop("model", {})
    providers = {
        name: {"base_url": one.base_url, "speaks": speaks, "auth": "none"}
        for name, one in (("a", a), ("b", b))
    }
    models = {"two": model} | changes.pop("models", {})
    return make_config(a, providers=providers, models=models, **changes)


@pytest.fixture
async def pair(make_simulator: MakeSimulator) -> tuple[Simulator, Simulator]:
    return await make_simulator(), await make_simulator()


Pair = tuple[Simulator, Simulator]
HEALTH = {"failures": 3, "open_for": "300ms"}


def provider_of(response: Response) -> str:
    assert response.status == 200, response.body
    provider = response.header("x-sluicegate-provider")
    assert provider is not None
    return provider


# ---- which one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", BODIES)
async def test_conversations_spread_by_weight_and_keep_their_deployment(
    start_inprocess: StartInProcess, pair: Pair, format: str
) -> None:
    gate = await start_inprocess(pair_config(*pair, routes=[{"weight": 3}, {}]))
    first = [provider_of(await put(gate, format, f"conversation {number}")) for number in range(60)]
    again = [provider_of(await put(gate, format, f"conversation {number}")) for number in range(60)]
    assert first == again
    assert 33 <= first.count("a") <= 56


@pytest.mark.parametrize(
    ("format", "field"),
    [
        ("chat", {"prompt_cache_key": "k{}"}),
        ("responses", {"prompt_cache_key": "k{}"}),
        ("chat", {"user": "u{}"}),
        ("completions", {"user": "u{}"}),
        ("messages", {"metadata": {"user_id": "id{}"}}),
    ],
)
async def test_a_key_of_the_clients_own_holds_a_conversation_together(
    start_inprocess: StartInProcess, pair: Pair, format: str, field: dict[str, Any]
) -> None:
    gate = await start_inprocess(pair_config(*pair))
    seen: set[str] = set()
    for number in range(12):
        fields = json.loads(json.dumps(field).replace("{}", str(number)))
        turns = {provider_of(await put(gate, format, f"{turn}", **fields)) for turn in range(4)}
        assert len(turns) == 1, "its text differs, its key does not"
        seen |= turns
    assert seen == {"a", "b"}


async def test_later_turns_follow_the_first_messages(start_inprocess: StartInProcess, pair: Pair) -> None:
    gate = await start_inprocess(pair_config(*pair))
    for number in range(8):
        messages: list[dict[str, str]] = [{"role": "user", "content": f"begin {number}"}]
        turns = set()
        for turn in range(3):
            answer = await ask(gate.url, CHAT, {"model": "two", "messages": messages}, key=KEY)
            turns.add(provider_of(answer))
            messages += [
                {"role": "assistant", "content": "yes"},
                {"role": "user", "content": f"and {turn}?"},
            ]
        assert len(turns) == 1


async def test_least_busy_goes_where_nothing_runs(start_inprocess: StartInProcess, pair: Pair) -> None:
    a, b = pair
    slow = {"model": "sim-text,tokens=3,first_ms=400"}
    gate = await start_inprocess(pair_config(a, b, routes=[slow, slow], model={"strategy": "least_busy"}))
    await asyncio.gather(*(put(gate, "chat") for _ in range(6)))
    assert (len(a.requests), len(b.requests)) == (3, 3)


async def test_cheapest_is_asked_first_and_the_other_when_it_fails(
    start_inprocess: StartInProcess, pair: Pair
) -> None:
    a, b = pair
    routes: list[dict[str, Any]] = [
        {"cost": {"input": 3, "output": 9}},
        {"cost": {"input": 1, "output": 2}},
    ]
    gate = await start_inprocess(pair_config(a, b, routes=routes, model={"strategy": "cheapest"}))
    for number in range(5):
        assert provider_of(await put(gate, "chat", str(number))) == "b"
    b.push(Script(status=500))
    assert provider_of(await put(gate, "chat")) == "a"


async def test_fastest_first_token_learns_who_is_fast(start_inprocess: StartInProcess, pair: Pair) -> None:
    a, b = pair
    routes = [{"model": "sim-text,tokens=2,first_ms=150"}, {"model": "sim-text,tokens=2"}]
    gate = await start_inprocess(pair_config(a, b, routes=routes, model={"strategy": "fastest_first_token"}))
    for number in range(12):
        response = await ask(gate.url, CHAT, chat("two", f"{number}"), key=KEY)
        assert response.status == 200
    assert len(a.requests) == 1, "it was measured once"
    assert len(b.requests) == 11


# ---- health ----------------------------------------------------------------------------------------------------------


async def test_a_dead_provider_among_two_is_left_alone_and_no_request_fails(
    start_inprocess: StartInProcess, pair: Pair
) -> None:
    """After the breaker opens fewer than 0.1 % of requests may see an error; here none does."""
    a, b = pair
    gate = await start_inprocess(
        pair_config(a, b, health={"failures": 3, "open_for": "60s", "max_open_for": "60s"})
    )
    await a.stop()
    attempts: Counter[str | None] = Counter()
    for number in range(300):
        response = await put(gate, "chat", str(number))
        assert response.status == 200
        attempts[response.header("x-sluicegate-attempts")] += 1
    assert attempts == {"1": 297, "2": 3}


async def test_it_is_tried_again_by_one_request_and_then_serves_again(
    start_inprocess: StartInProcess, pair: Pair
) -> None:
    a, b = pair
    routes: list[dict[str, Any]] = [{}, {"priority": 1}]
    gate = await start_inprocess(pair_config(a, b, routes=routes, health=HEALTH))
    a.push(Script(status=500), times=4)
    for _ in range(6):
        assert provider_of(await put(gate, "chat")) == "b"
    assert len(a.requests) == 3, "open"
    await asyncio.sleep(0.4)
    served = await asyncio.gather(*(put(gate, "chat") for _ in range(5)))
    assert {provider_of(one) for one in served} == {"b"}
    assert len(a.requests) == 4, "one trial, which failed: open for longer"
    await asyncio.sleep(0.8)
    assert provider_of(await put(gate, "chat")) == "a"
    assert provider_of(await put(gate, "chat")) == "a"


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_open_it_at_once_and_the_log_says_so(
    start_inprocess: StartInProcess, pair: Pair, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = pair
    routes: list[dict[str, Any]] = [{}, {"priority": 1}]
    gate = await start_inprocess(pair_config(a, b, routes=routes))
    a.push(Script(status=status), times=None)
    for _ in range(5):
        assert provider_of(await put(gate, "chat")) == "b"
    assert len(a.requests) == 1
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("deployment_refuses provider=a ")


async def test_B094_who_asks_for_patience_is_left_alone_for_so_long(
    start_inprocess: StartInProcess, pair: Pair
) -> None:
    a, b = pair
    routes: list[dict[str, Any]] = [{}, {"priority": 1}]
    gate = await start_inprocess(pair_config(a, b, routes=routes))
    a.push(Script(status=429, headers=(("retry-after", "1"),)))
    for _ in range(10):
        assert provider_of(await put(gate, "chat")) == "b"
    assert len(a.requests) == 1
    await asyncio.sleep(1.05)
    assert provider_of(await put(gate, "chat")) == "a"


@pytest.mark.parametrize("format", BODIES)
@pytest.mark.parametrize("status", [429, 503])
async def test_B094_where_all_ask_for_patience_the_client_is_told_who_is_back_first(
    start_inprocess: StartInProcess, pair: Pair, format: str, status: int
) -> None:
    a, b = pair
    gate = await start_inprocess(pair_config(a, b))
    for one, wait in ((a, "30"), (b, "12")):
        one.push(Script(status=status, headers=(("retry-after", wait),)), times=None)
    told = [await put(gate, format, str(number)) for number in range(4)]
    wanted = 529 if (status, format) == (503, "messages") else status
    assert [one.status for one in told] == [wanted] * 4
    assert all(one.header("retry-after") in ("11", "12") for one in told), "the rest of the shorter wait"
    assert all(one.header("x-should-retry") is None for one in told)
    assert (len(a.requests), len(b.requests)) == (1, 1), "nobody was hammered"
    rows = await gate.wait_for_rows(4)
    assert [row.status for row in rows] == ["upstream_error"] * 4
    assert [row.attempts for row in rows] == [2, 0, 0, 0]


async def test_the_only_deployment_is_asked_all_the_same_when_it_failed_before(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(make_config(simulator))
    simulator.push(Script(status=500), times=20)
    for _ in range(20):
        assert (await ask(gate.url, CHAT, chat("m"), key=KEY)).status == 502
    assert (await ask(gate.url, CHAT, chat("m"), key=KEY)).status == 200


async def test_B136_the_clients_own_faults_open_nothing(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(make_config(simulator))
    simulator.push(Script(status=400), times=30)
    for _ in range(30):
        assert (await ask(gate.url, CHAT, chat("m"), key=KEY)).status == 400
    assert gate.gateway.counters().get("breaker_opened_total") is None


# ---- retries ---------------------------------------------------------------------------------------------------------


async def test_a_dead_provider_is_not_asked_many_times_as_often(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(make_config(simulator, retry={"max_attempts": 3, "budget_percent": 20}))
    simulator.push(Script(status=503), times=None)
    answers = await asyncio.gather(*(ask(gate.url, CHAT, chat("m"), key=KEY) for _ in range(60)))
    assert {answer.status for answer in answers} == {503}
    retries = len(simulator.requests) - 60
    assert 10 <= retries <= 20, "ten are free, and a fifth of what was asked"


# ---- overrides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", BODIES)
async def test_an_allowed_key_chooses_the_provider(
    start_inprocess: StartInProcess, pair: Pair, format: str
) -> None:
    gate = await start_inprocess(pair_config(*pair, keys=[MAY]))
    for wanted in ("a", "b"):
        for number in range(3):
            headers = {"x-sluicegate-provider": wanted}
            assert provider_of(await put(gate, format, str(number), headers=headers)) == wanted
    refused = await put(gate, format, headers={"x-sluicegate-provider": "c"})
    assert refused.status == 400
    assert "x-sluicegate-provider" in refused.json()["error"]["message"]


@pytest.mark.parametrize("format", BODIES)
async def test_other_keys_may_not_choose(start_inprocess: StartInProcess, pair: Pair, format: str) -> None:
    gate = await start_inprocess(pair_config(*pair))
    refused = await put(gate, format, headers={"x-sluicegate-provider": "a"})
    assert refused.status == 403
    named = await put(gate, format, models=["two"])
    assert named.status == 400
    for answer in (refused, named):
        error = answer.json()["error"]
        assert error["message"]
        assert (error.get("code") in (403, 400)) == (format == "gemini")
    assert gate.rows() == []
    assert not pair[0].requests
    assert not pair[1].requests


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("speaks", ["chat", "messages"])
@pytest.mark.parametrize("format", BODIES)
async def test_models_named_in_the_body_follow_and_are_what_is_told_and_charged(
    start_inprocess: StartInProcess, pair: Pair, format: str, speaks: str, stream: bool
) -> None:
    a, b = pair
    models = {
        "dear": {
            "routes": [{"provider": "b", "model": "sim-text,tokens=4"}],
            "price": {"input": 10, "output": 20},
        }
    }
    config = pair_config(a, b, keys=[MAY], models=models)
    for provider in config["providers"].values():
        provider["speaks"] = [speaks]
    gate = await start_inprocess(config)
    for one in pair:
        one.push(Script(status=500))
    fields: dict[str, Any] = {"models": ["dear"]}
    if stream and format != "gemini":
        fields["stream"] = True
    if format == "gemini" and stream:
        path = "/v1beta/models/two:streamGenerateContent?alt=sse"
        told = await ask(gate.url, path, BODIES["gemini"][1]("x") | fields, key=KEY)
    else:
        told = await put(gate, format, **fields)
    assert told.status == 200, told.body
    assert "models" not in (told.header("x-sluicegate-dropped") or "")
    name = {"gemini": b'"modelVersion":"dear"'}.get(format, b'"model":"dear"')
    assert name in told.body
    assert b'"two"' not in told.body
    (row,) = await gate.wait_for_rows(1)
    assert (row.model, row.attempts, row.provider) == ("dear", 3, "b")
    usage = row.usage
    assert row.cost_nano_usd == (usage.input_tokens or 0) * 10_000 + (usage.output_tokens or 0) * 20_000
    assert b"models" not in b.requests[-1].body


async def test_a_fallback_that_is_not_there_or_not_allowed_is_refused_by_its_place(
    start_inprocess: StartInProcess, pair: Pair
) -> None:
    gate = await start_inprocess(pair_config(*pair, keys=[MAY | {"models": ["two", "nope"]}]))
    unknown = await put(gate, "chat", models=["two", "nope"])
    assert (unknown.status, unknown.json()["error"]["param"]) == (404, "models[1]")
    forbidden = await put(gate, "chat", models=["m"])
    assert (forbidden.status, forbidden.json()["error"]["param"]) == (403, "models[0]")
    for wrong in ("two", [1], [["two"]], ["two"] * 11):
        refused = await put(gate, "chat", models=wrong)
        assert (refused.status, refused.json()["error"]["param"]) == (400, "models"), wrong
    assert (await put(gate, "chat", models=None)).status == 200
    assert (await put(gate, "chat", models=[])).status == 200
