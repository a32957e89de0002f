"""State that a provider keeps is its account's alone, has our ids, and is asked of its provider."""

import json
from typing import Any

import openai
import pytest

from sluicegate.server.routes import match
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer, ToolCall
from sluicegate.simulator.script import Event, Script
from tests.conftest import KEY, PRICE, MakeSimulator, StartInProcess, make_config
from tests.fakes import ask
from tests.inprocess import InProcessGate

OTHER_KEY = "sg-other-key-0123456789abc"
KEYS = [
    {"name": "one", "key": KEY, "balance_usd": 5},
    {"name": "two", "key": OTHER_KEY, "balance_usd": 5},
]
CALL = Answer(tool_calls=(ToolCall(name="f", arguments=('{"a":', "1}"), id="call_1"),), finish="tool_calls")
TOOLS: Any = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]


def config_of(simulator: Simulator, speaks: str, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "providers": {"sim": {"base_url": simulator.base_url, "speaks": [speaks], "auth": "none"}},
        "models": {"org/m:1": {"routes": [{"provider": "sim", "model": "m"}], "price": PRICE}},
        "keys": KEYS,
    }
    return make_config(simulator, **(base | changes))


@pytest.fixture
async def gate(start_inprocess: StartInProcess, simulator: Simulator) -> InProcessGate:
    return await start_inprocess(config_of(simulator, "responses"))


def client_of(gate: InProcessGate, key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=key, base_url=f"{gate.url}/v1", max_retries=0)


def sent(simulator: Simulator) -> Any:
    return simulator.requests[-1].json


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_a_conversation_that_the_provider_keeps(
    gate: InProcessGate, simulator: Simulator, stream: bool
) -> None:
    simulator.push(Script(answer=CALL))
    async with client_of(gate) as client:
        first = await _answer(client, stream=stream, input="Hello", tools=TOOLS)
        raw = simulator.kept.ids()[0]
        assert first.id != raw
        assert first.id.startswith("resp_sg0")
        output = {"type": "function_call_output", "call_id": "call_1", "output": "2"}
        second = await _answer(
            client, stream=stream, input=[output], previous_response_id=first.id, tools=TOOLS
        )
        assert sent(simulator)["previous_response_id"] == raw
        assert sent(simulator)["model"] == "m"
        assert second.previous_response_id == first.id
        assert second.output_text
        counted = await client.responses.input_tokens.count(
            model="org/m:1", input="On", previous_response_id=second.id
        )
        assert counted.input_tokens == 9
        assert sent(simulator)["previous_response_id"] == simulator.kept.ids()[1]
    rows = await gate.wait_for_rows(2)
    assert [row.usage.input_tokens for row in rows] == [9, 9]
    assert rows[1].cost_nano_usd == 9 * 1000 + 32 * 2000


async def _answer(client: openai.AsyncOpenAI, *, stream: bool, **asked: Any) -> Any:
    if not stream:
        return await client.responses.create(model="org/m:1", **asked)
    async with client.responses.stream(model="org/m:1", **asked) as events:
        async for _ in events:
            pass
        return await events.get_final_response()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_items_that_the_provider_keeps_are_named_by_one_id_everywhere(
    gate: InProcessGate, simulator: Simulator, stream: bool
) -> None:
    body = {"model": "org/m:1", "input": "Hello", "stream": stream}
    response = await ask(gate.url, "/v1/responses", body, key=KEY)
    raw = f"msg_{simulator.kept.ids()[0].removeprefix('resp_')}"
    assert raw.encode() not in response.body
    if stream:
        events = [json.loads(line[6:]) for line in response.body.splitlines() if line.startswith(b"data: ")]
        ids = {event["item_id"] for event in events if "item_id" in event}
        ids |= {event["item"]["id"] for event in events if "item" in event}
        assert len(ids) == 1
        item = events[-1]["response"]["output"][0]
        assert {item["id"]} == ids
    else:
        item = response.json()["output"][0]
    for named in ({"type": "item_reference", "id": item["id"]}, item):
        again = {"model": "org/m:1", "input": [named, {"role": "user", "content": "Again"}]}
        assert (await ask(gate.url, "/v1/responses", again, key=KEY)).status == 200
        assert sent(simulator)["input"][0]["id"] == raw
        told = await ask(gate.url, "/v1/responses", again, key=OTHER_KEY)
        assert (told.status, told.json()["error"]["param"]) == (404, "input[0].id")


async def test_what_is_not_kept_has_the_providers_own_ids(gate: InProcessGate, simulator: Simulator) -> None:
    body = {"model": "org/m:1", "input": "Hello", "store": False}
    answer = (await ask(gate.url, "/v1/responses", body, key=KEY)).json()
    assert "sg0" not in answer["id"] + answer["output"][0]["id"]
    assert (await ask(gate.url, f"/v1/responses/{answer['id']}", key=KEY)).status == 404


async def test_get_delete_and_input_items(gate: InProcessGate, simulator: Simulator) -> None:
    async with client_of(gate) as client, client_of(gate, OTHER_KEY) as other:
        made = await client.responses.create(model="org/m:1", input="Hello")
        got = await client.responses.retrieve(made.id)
        assert (got.id, got.model, got.output_text) == (made.id, "org/m:1", made.output_text)
        assert got.output[0].id == made.output[0].id
        items = await client.responses.input_items.list(made.id, limit=5, order="asc")
        assert items.data[0].content[0].text == "Hello"  # type: ignore[union-attr]
        assert simulator.requests[-1].query == "limit=5&order=asc"
        for call in (
            other.responses.retrieve(made.id),
            other.responses.delete(made.id),
            other.responses.input_items.list(made.id),
            client.responses.retrieve("resp_nobody"),
            client.responses.retrieve(simulator.kept.ids()[0]),
        ):
            with pytest.raises(openai.NotFoundError, match="not found"):
                await call
        with pytest.raises(openai.BadRequestError):
            await client.responses.cancel(made.id)
        asked = len(simulator.requests)
        await client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(made.id)
        assert len(simulator.requests) == asked + 2
        with pytest.raises(openai.BadRequestError, match="not found"):
            await client.responses.create(model="org/m:1", input="On", previous_response_id=made.id)
    assert len(await gate.wait_for_rows(2)) == 2


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"model": "org/m:1", "messages": [{"role": "user", "content": "Hi"}]}),
    "responses": ("/v1/responses", {"model": "org/m:1", "input": "Hello"}),
    "messages": (
        "/v1/messages",
        {"model": "org/m:1", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
    ),
    "gemini": ("/v1beta/models/org/m:1:generateContent", {"contents": [{"parts": [{"text": "Hello"}]}]}),
}


def _user(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [part]}]


@pytest.mark.parametrize(
    ("format", "field", "id", "path"),
    [
        ("responses", "previous_response_id", "resp_1", "previous_response_id"),
        ("responses", "conversation", "conv_1", "conversation"),
        ("responses", "conversation", {"id": "conv_1"}, "conversation.id"),
        (
            "responses",
            "input",
            _user({"type": "input_file", "file_id": "file-1"}),
            "input[0].content[0].file_id",
        ),
        ("responses", "input", [{"type": "item_reference", "id": "msg_1"}], "input[0].id"),
        (
            "responses",
            "tools",
            [{"type": "file_search", "vector_store_ids": ["vs_1"]}],
            "tools[0].vector_store_ids[0]",
        ),
        ("responses", "tools", [{"type": "code_interpreter", "container": "cntr_1"}], "tools[0].container"),
        ("messages", "container", "container_1", "container"),
        (
            "messages",
            "messages",
            _user({"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
            "messages[0].content[0].source.file_id",
        ),
        ("gemini", "cachedContent", "cachedContents/1", "cachedContent"),
        ("gemini", "cached_content", "cachedContents/1", "cachedContent"),
        (
            "gemini",
            "contents",
            [{"parts": [{"file_data": {"file_uri": "files/1"}}]}],
            "contents[0].parts[0].fileData.fileUri",
        ),
        (
            "chat",
            "messages",
            _user({"type": "file", "file": {"file_id": "f-1"}}),
            "messages[0].content[0].file.file_id",
        ),
    ],
)
@pytest.mark.parametrize("suffix", ["", "count"])
async def test_an_id_that_is_not_the_accounts_is_unknown(
    start_inprocess: StartInProcess,
    simulator: Simulator,
    format: str,
    field: str,
    id: Any,
    path: str,
    suffix: str,
) -> None:
    """Nothing is asked of the provider, and nothing charged; also where only tokens are to be counted."""
    gate = await start_inprocess(config_of(simulator, format))
    where, body = BODIES[format]
    if suffix:
        where = {
            "responses": "/v1/responses/input_tokens",
            "messages": "/v1/messages/count_tokens",
            "gemini": "/v1beta/models/org/m:1:countTokens",
        }.get(format, where)
    response = await ask(gate.url, where, body | {field: id}, key=KEY)
    assert response.status == 404, response.body
    assert path in response.json()["error"]["message"]
    assert not simulator.requests
    assert gate.rows() == []


@pytest.mark.parametrize("format", ["chat", "responses", "messages", "gemini"])
async def test_an_id_of_the_account_reaches_its_provider(
    start_inprocess: StartInProcess, simulator: Simulator, make_simulator: MakeSimulator, format: str
) -> None:
    """And no other one, wherever the model has routes."""
    elsewhere = await make_simulator()
    providers = {
        name: {"base_url": of.base_url, "speaks": [format], "auth": "none"}
        for name, of in (("first", elsewhere), ("sim", simulator))
    }
    routes = [{"provider": name, "model": "m"} for name in providers]
    gate = await start_inprocess(
        config_of(
            simulator, format, providers=providers, models={"org/m:1": {"routes": routes, "price": PRICE}}
        )
    )
    raw = {
        "chat": "file-abc",
        "responses": "file-abc",
        "messages": "file_abc",
        "gemini": "cachedContents/abc",
    }[format]
    ours = gate.gateway._bench.plan.seal.close("one", "sim", raw)
    where, body = BODIES[format]
    fields: dict[str, dict[str, Any]] = {
        "chat": {"messages": _user({"type": "file", "file": {"file_id": ours}})},
        "responses": {"input": _user({"type": "input_file", "file_id": ours})},
        "messages": {"messages": _user({"type": "document", "source": {"type": "file", "file_id": ours}})},
        "gemini": {"cachedContent": ours},
    }
    for _ in range(4):
        assert (await ask(gate.url, where, body | fields[format], key=KEY)).status == 200
        assert raw.encode() in simulator.requests[-1].body
        assert ours.encode() not in simulator.requests[-1].body
    assert not elsewhere.requests
    assert (await ask(gate.url, where, body | fields[format], key=OTHER_KEY)).status == 404


async def test_a_container_of_an_answer_leaves_under_our_id(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(config_of(simulator, "messages"))
    where, body = BODIES["messages"]
    told = (
        '{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hi"},'
        '{"type":"code_execution_tool_result","content":{"content":[{"file_id":"file_1"}]}}],"stop_reason":"end_turn",'
        '"container":{"id":"container_1","expires_at":"x"},"usage":{"input_tokens":1,"output_tokens":1}}'
    )
    simulator.push(Script(body=told))
    answer = (await ask(gate.url, where, body, key=KEY)).json()
    container, file = answer["container"]["id"], answer["content"][1]["content"]["content"][0]["file_id"]
    assert container.startswith("container_sg0")
    assert file.startswith("file_sg0")
    again = body | {"container": container}
    assert (await ask(gate.url, where, again, key=KEY)).status == 200
    assert sent(simulator)["container"] == "container_1"
    assert (await ask(gate.url, where, again, key=OTHER_KEY)).status == 404


def test_paths_of_kept_responses() -> None:
    route = match("GET", "/v1/responses/resp_1", "")
    assert (route.kind, route.format, route.id, route.part) == ("response", "responses", "resp_1", "")
    assert match("POST", "/v1/responses/resp_1/cancel", "").part == "cancel"
    assert match("POST", "/v1/responses/input_tokens", "").kind == "count_tokens"


@pytest.mark.parametrize("length", [800, 5_000])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_ids_of_any_length_come_back(
    gate: InProcessGate, simulator: Simulator, stream: bool, length: int
) -> None:
    """Some providers put state into their ids."""
    id, item_id = "resp_" + "r" * length, "msg_" + "m" * length
    part = {"type": "output_text", "text": "Hi", "annotations": []}
    item = {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}
    whole = {"id": id, "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    whole |= {"output": [item], "usage": usage, "store": True}
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    place: dict[str, Any] = {"output_index": 0, "item_id": item_id, "content_index": 0}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.output_item.added", {"output_index": 0, "item": item | {"content": []}}),
        ("response.content_part.added", place | {"part": part | {"text": ""}}),
        ("response.output_text.delta", place | {"delta": "Hi"}),
        ("response.output_text.done", place | {"text": "Hi"}),
        ("response.content_part.done", place | {"part": part}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": whole}),
    ]
    steps = (
        Event(event=kind, data=json.dumps({"type": kind, "sequence_number": number, **event}))
        for number, (kind, event) in enumerate(events)
    )
    script = Script(steps=tuple(steps)) if stream else Script(body=json.dumps(whole))
    simulator.push(script, times=2)
    simulator.kept.hold(whole, [])
    async with client_of(gate) as client, client_of(gate, OTHER_KEY) as other:
        first = await _answer(client, stream=stream, input="Hello")
        assert first.output_text == "Hi"
        again: Any = [{"type": "item_reference", "id": first.output[0].id}]
        second = await _answer(client, stream=stream, input=again, previous_response_id=first.id)
        assert sent(simulator)["previous_response_id"] == id
        assert sent(simulator)["input"][0]["id"] == item_id
        assert (second.id, second.previous_response_id) == (first.id, first.id)
        with pytest.raises(openai.NotFoundError):
            await _answer(other, stream=stream, input="Hello", previous_response_id=first.id)
        assert (await client.responses.retrieve(first.id)).id == first.id
    assert [row.status for row in await gate.wait_for_rows(2)] == ["ok", "ok"]
