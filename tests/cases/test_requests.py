"""What providers are asked, at a running gate: cases B007, B029, B040, B058, B069, B072, B139, B142, B143.

How requests are translated is tested by format, in `tests.wire`; here, what the shell adds and takes away.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sluicegate.simulator import Answer, Script, Simulator
from tests.cases.frames import DONE, STOP, chunk, completion, dumps, message, usage
from tests.cases.world import World, configuration
from tests.conftest import KEY
from tests.fakes import ask
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import heard_plain, heard_stream, path_of, said, told_error, wording
from tests.inprocess import in_process_gate

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = Prompt()
HOUR = {"type": "ephemeral", "ttl": "1h"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rows(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A gate whose providers' rows say what they cannot take."""
    async with Simulator() as simulator:
        config = configuration(simulator)
        row = {"base_url": simulator.base_url, "auth": "none"}
        config["providers"] |= {
            "third-party": row
            | {"speaks": ["messages"], "capabilities": {"cache_ttl": False, "betas_deny": ["x-2099-01-01"]}},
            "no-options": row
            | {"speaks": ["chat", "completions"], "capabilities": {"stream_options": False}},
        }
        price = {"input": 1, "output": 8, "reasoning": 3}
        config["models"] |= {
            "third-party": {"routes": [{"provider": "third-party", "model": "up"}], "price": price},
            "no-options": {"routes": [{"provider": "no-options", "model": "up"}], "price": price},
            "real-name": {
                "aliases": ["nick/name:1"],
                "routes": [{"provider": "chat", "model": "up/stream"}],
                "price": price,
            },
        }
        gate = in_process_gate(tmp_path_factory.mktemp("requests"), config)
        async with gate.running():
            yield World(gate, simulator)


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_b139_one_alias_on_every_route(rows: World, client: str, stream: bool) -> None:
    outcome = await rows.hear(client, "nick/name:1", ASK, stream=stream)  # it checks that the alias is echoed
    assert outcome.heard is not None
    assert rows.asked.model == "up/stream"


PRIVATE = {
    "x-foo": "1",
    "proxy-authorization": "Basic c2VjcmV0",
    "x-api-key": KEY,
    "x-goog-api-key": KEY,
    "api-key": KEY,
    "cookie": "a=b",
    "te": "trailers",
    "x-forwarded-for": "10.0.0.1",
}


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("provider", FORMATS)
async def test_b072_what_is_the_clients_own_stays_here(world: World, client: str, provider: str) -> None:
    model = f"{provider}/headers"
    path = path_of(client, model, True)
    path += ("&" if "?" in path else "?") + f"key={KEY}"
    body = said(client, model, ASK, True)
    headers = PRIVATE | {"connection": "x-foo"}
    world.simulator.push(
        Script(headers=(("set-cookie", "s=1"), ("x-secret", "1"), ("via", "x"))), model="headers"
    )
    response = await ask(world.gate.url, path, body, key=KEY, headers=headers)
    assert response.status == 200
    sent = dict(world.asked.headers)
    assert not PRIVATE.keys() & sent.keys()
    assert "authorization" not in sent
    assert KEY not in str(sent)
    assert KEY not in world.asked.query
    assert int(sent["content-length"]) == len(world.asked.body)
    for name in ("set-cookie", "x-secret", "via"):
        assert response.header(name) is None


async def test_b040_betas_go_to_those_who_know_them(rows: World) -> None:
    betas = "x-2099-01-01,interleaved-thinking-2025-05-14"
    headers = {"anthropic-beta": betas, "anthropic-version": "2023-06-01"}
    extra = {"context_management": {"edits": []}}
    for model, passed in (
        ("messages/native", betas),
        ("third-party", "interleaved-thinking-2025-05-14"),
        ("chat/foreign", None),
    ):
        body = said("messages", model, ASK, False) | extra
        response = await ask(rows.gate.url, "/v1/messages", body, key=KEY, headers=headers)
        assert response.status == 200
        sent = dict(rows.asked.headers)
        assert sent.get("anthropic-beta") == passed
        assert sent.get("anthropic-version") == ("2023-06-01" if passed else None)
        assert ("context_management" in rows.asked.json) == (passed is not None)
        if passed is None:
            assert "context_management" in (response.header("x-sluicegate-dropped") or "")


def marked(client: str) -> dict[str, Any]:
    """Return what bears marks in a request, and words that only look like them."""
    look_alike = {"cache_control": HOUR, "ttl": "1h"}
    if client == "chat":
        return {
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "S", "cache_control": HOUR}]},
                {"role": "user", "content": [{"type": "text", "text": "U", "cache_control": HOUR}]},
            ]
        }
    result = {"type": "text", "text": "r", "cache_control": HOUR}
    return {
        "system": [{"type": "text", "text": "S", "cache_control": HOUR}],
        "tools": [
            {
                "name": "f",
                "cache_control": HOUR,
                "input_schema": {"type": "object", "properties": look_alike, "cache_control": HOUR},
            }
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "U", "cache_control": HOUR}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "f", "input": look_alike}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": [result], "cache_control": HOUR}
                ],
            },
        ],
    }


@pytest.mark.parametrize("client", ["messages", "chat"])
async def test_b069_b142_marks_stay_and_lose_their_lifetime_where_it_is_not_known(
    rows: World, client: str
) -> None:
    for model, mark in (("messages/native", HOUR), ("third-party", {"type": "ephemeral"})):
        body = said(client, model, ASK, False) | marked(client)
        response = await ask(rows.gate.url, path_of(client, model, False), body, key=KEY)
        assert response.status == 200, response.body
        asked = rows.asked.json
        assert asked["system"][0]["cache_control"] == mark
        assert asked["messages"][0]["content"][0]["cache_control"] == mark
        told = response.header("x-sluicegate-dropped") or ""
        assert ("cache_control.ttl" in told) == (mark != HOUR)
        if client == "messages":
            tool, call, result = asked["tools"][0], asked["messages"][1], asked["messages"][2]["content"][0]
            assert tool["cache_control"] == mark
            assert tool["input_schema"]["cache_control"] == HOUR
            assert tool["input_schema"]["properties"] == call["content"][0]["input"]
            assert call["content"][0]["input"] == {"cache_control": HOUR, "ttl": "1h"}
            assert result["cache_control"] == result["content"][0]["cache_control"] == mark


@pytest.mark.parametrize("client", ["chat", "completions", "responses", "messages", "gemini"])
async def test_b007_b029_usage_is_asked_of_who_takes_the_option(rows: World, client: str) -> None:
    for stream in (True, False):
        for provider in ("chat", "completions"):
            body = said(client, f"{provider}/asks", ASK, stream)
            body.pop("stream_options", None)
            response = await ask(rows.gate.url, path_of(client, f"{provider}/asks", stream), body, key=KEY)
            assert response.status == 200
            assert rows.asked.json.get("stream_options") == ({"include_usage": True} if stream else None)
            row = rows.gate.rows()[-1]
            assert row.usage_source == "reported"
            if client in ("chat", "completions") and stream:
                assert b'"usage":{' not in response.body
        model = "no-options"
        rows.simulator.push(Script(answer=Answer(text=("Hi", " there"), usage="never")), model="up")
        outcome = await rows.hear(client, model, ASK, stream=stream)
        assert "stream_options" not in rows.asked.json
        assert outcome.heard is not None
        assert outcome.heard.text == "Hi there"
        assert outcome.row is not None
        assert outcome.row.usage_source == "counted"
        assert outcome.row.usage.output_tokens == 2


async def test_b143_reasoning_has_a_price_of_its_own(rows: World) -> None:
    counts = usage(0, 100, completion_tokens_details={"reasoning_tokens": 40})
    answer = completion({"content": "Hi"}, usage=counts)
    rows.simulator.push(Script(body=dumps(answer)), model="up/stream")
    outcome = await rows.hear("chat", "real-name", ASK, stream=False)
    assert outcome.row is not None
    assert outcome.row.cost_nano_usd == 60 * 8000 + 40 * 3000


TOKEN = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
TOP = TOKEN | {"top_logprobs": [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}]}


@pytest.mark.parametrize("entry", [TOKEN, TOP], ids=["alone", "top"])
@pytest.mark.parametrize("client", ["chat", "responses"])
async def test_b058_logprobs_streamed_and_not(world: World, client: str, entry: dict[str, Any]) -> None:
    wanted = 2 if entry["top_logprobs"] else 0
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": wanted} if client == "chat" else {}
    if client == "responses":
        fields = {"include": ["message.output_text.logprobs"], "top_logprobs": wanted}
    said_it = {"content": [entry], "refusal": None}
    name = f"logprobs-{client}-{wanted}"
    event = {
        "choices": [{"index": 0, "delta": {"content": "Hi"}, "logprobs": said_it, "finish_reason": None}]
    }
    body = chunk(None, **event) + STOP + chunk(None, usage=usage(3, 2)) + DONE
    world.simulator.push(Script(body=body.decode()), model=f"{name}-s")
    answer = completion({"content": "Hi"})
    answer["choices"][0]["logprobs"] = said_it
    world.simulator.push(Script(body=dumps(answer)), model=f"{name}-p")
    model = f"chat/{name}-s"
    response = await world.post(client, model, ASK, stream=True, **fields)
    streamed = heard_stream(client, response, model)
    plain = await world.post(client, f"chat/{name}-p", ASK, stream=False, **fields)
    assert heard_plain(client, plain, f"chat/{name}-p").text == streamed.text == "Hi"
    asked = world.asked.json
    assert (asked["logprobs"], asked.get("top_logprobs") or 0) == (True, wanted)
    events = [
        json.loads(line[6:]) for line in response.body.decode().split("\n") if line.startswith("data: {")
    ]
    if client == "chat":
        (told,) = [
            e["choices"][0]["logprobs"] for e in events if e["choices"] and e["choices"][0].get("logprobs")
        ]
        assert told["content"] == plain.json()["choices"][0]["logprobs"]["content"] == [entry]
    else:
        part = events[-1]["response"]["output"][0]["content"][0]
        assert part["logprobs"] == plain.json()["output"][0]["content"][0]["logprobs"] == [entry]


async def test_b058_where_there_are_none_they_are_refused(world: World) -> None:
    for stream in (True, False):
        response = await world.post("chat", "messages/x", ASK, stream=stream, logprobs=True)
        told = told_error("chat", response)
        assert told[:2] == wording("chat", "unsupported_feature")
        assert "logprobs" in told.message


async def test_b057_what_is_not_known_passes_or_is_named(world: World) -> None:
    fields = {"enable_thinking": False, "chat_template_kwargs": {"x": 1}}
    world.simulator.push(Script(body=dumps(completion({"content": "Hi"}))), model="unknown")
    await world.post("chat", "chat/unknown", ASK, stream=False, **fields)
    assert fields.items() <= world.asked.json.items()
    world.simulator.push(Script(body=dumps(message([{"type": "text", "text": "Hi"}]))), model="unknown")
    response = await world.post("chat", "messages/unknown", ASK, stream=False, **fields)
    dropped = response.header("x-sluicegate-dropped") or ""
    assert not fields.keys() & world.asked.json.keys()
    assert all(name in dropped for name in fields), dropped
    await world.post("messages", "messages/known", ASK, stream=False, **fields)
    assert fields.items() <= world.asked.json.items()
