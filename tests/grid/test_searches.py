"""What the vendor's own search of the web leaves in an answer, in every format that has a place for it: what was looked
for, what was found, what the text cites; what has no place is named; every search is charged once.

Translation matrix, sections 24 and 25; docs/billing.md, `per_web_search`.
"""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.answer import Answer, Search
from tests.conftest import KEY, PRICE, make_config
from tests.fakes import Response, ask
from tests.grid.conftest import Grid
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import Body, heard_stream, path_of, said
from tests.inprocess import in_process_gate

pytestmark = pytest.mark.asyncio(loop_scope="module")

RIVERS = ("https://rivers.test/é", "Rivers")
LAKES = ("https://lakes.test/", 'Lakes & "more"')
ANSWER = Answer(
    searches=(Search(query="rivers rising"), Search(query="läkes", found=(RIVERS, LAKES))),
    text=("Zwölf ", "rivers ", "rise."),
    input_tokens=40,
)
TEXT = "".join(ANSWER.text)
SEARCHING = ["responses", "messages", "gemini"]
"""Formats that tell of searches."""
PER_SEARCH = 10_000_000
COST = 40 * 1000 + 3 * 2000
TOOLS: dict[str, Body] = {
    "chat": {"web_search_options": {}},
    "responses": {"tools": [{"type": "web_search"}], "include": ["web_search_call.action.sources"]},
    "messages": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    "gemini": {"tools": [{"googleSearch": {}}]},
}
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
NAMES = {
    "responses": ["web_search_call"],
    "messages": ["server_tool_use", "web_search_tool_result"],
    "gemini": ["webSearchQueries"],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grid(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grid]:
    async with Simulator() as simulator:
        simulator.push(Script(answer=ANSWER), times=None)
        providers = {
            format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"} for format in FORMATS
        }
        models = {
            format: {
                "routes": [{"provider": format, "model": "up"}],
                "price": PRICE | {"per_web_search": 0.01},
                "capabilities": {"web_search": True},
            }
            for format in FORMATS
        }
        config = make_config(simulator) | {"providers": providers, "models": models}
        async with in_process_gate(tmp_path_factory.mktemp("searches"), config).running() as gate:
            yield Grid(gate, simulator)


class Told(NamedTuple):
    """What an answer tells of searches."""

    queries: list[str]
    found: list[tuple[str, str]]
    """Address and title; without a title where the format tells none."""
    cited: list[tuple[str, str, str]]
    """Address, title and the text that it stands behind."""


async def answered(grid: Grid, client: str, provider: str, stream: bool) -> Response:
    body = said(client, provider, Prompt(), stream) | TOOLS.get(client, {})
    response = await ask(grid.gate.url, path_of(client, provider, stream), body, key=KEY)
    assert response.status == 200, response.body
    if stream:
        heard = heard_stream(client, response, provider)
        assert (heard.text, heard.finish) == (TEXT, "stop")
    return response


def told(client: str, response: Response, stream: bool) -> Told:
    match client:
        case "chat":
            return _told_by_chat(response, stream)
        case "responses":
            answer = _last_of(response)["response"] if stream else response.json()
            return _told_by_responses(answer)
        case "messages":
            return _told_by_messages(_blocks(response) if stream else response.json()["content"])
    return _told_by_gemini(_last_of(response) if stream else response.json())


def _events(response: Response) -> list[Body]:
    return [json.loads(line[6:]) for line in response.body.splitlines() if line.startswith(b"data: {")]


def _last_of(response: Response) -> Body:
    return _events(response)[-1]


def _told_by_chat(response: Response, stream: bool) -> Told:
    if stream:
        deltas = [choice["delta"] for event in _events(response) for choice in event["choices"]]
        (annotations,) = [delta["annotations"] for delta in deltas if "annotations" in delta]
    else:
        annotations = response.json()["choices"][0]["message"]["annotations"]
    return Told([], [], [_span(annotation["url_citation"]) for annotation in annotations])


def _span(citation: Body) -> tuple[str, str, str]:
    return citation["url"], citation["title"], TEXT[citation["start_index"] : citation["end_index"]]


def _told_by_responses(answer: Body) -> Told:
    queries, found, cited = [], [], []
    for item in answer["output"]:
        if item["type"] == "web_search_call":
            assert item["status"] == "completed"
            assert item["action"]["query"] == item["action"]["queries"][0]
            queries += item["action"]["queries"]
            found += [(source["url"], "") for source in item["action"].get("sources", ())]
        for part in item.get("content") or ():
            cited += [_span(annotation) for annotation in part["annotations"]]
    return Told(queries, found, cited)


def _blocks(response: Response) -> list[Body]:
    """Return a stream's blocks, whole."""
    blocks: list[Body] = []
    for event in _events(response):
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"] | {"given": ""})
            blocks[-1].setdefault("citations", [])
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[-1]
            block["given"] += delta.get("partial_json", "")
            block["citations"] += [delta["citation"]] if "citation" in delta else []
            if "text" in delta:
                block["text"] += delta["text"]
    for block in blocks:
        if block["given"]:
            block["input"] = json.loads(block["given"])
    return blocks


def _told_by_messages(blocks: list[Body]) -> Told:
    queries, found, cited, ids = [], [], [], []
    for block in blocks:
        match block["type"]:
            case "server_tool_use":
                assert block["name"] == "web_search"
                queries.append(block["input"]["query"])
                ids.append(block["id"])
            case "web_search_tool_result":
                assert block["tool_use_id"] == ids[-1]
                found += [(result["url"], result["title"]) for result in block["content"]]
                assert all(isinstance(result["encrypted_content"], str) for result in block["content"])
            case "text":
                assert all(
                    one["type"] == "web_search_result_location" for one in block.get("citations") or ()
                )
                cited += [(one["url"], one["title"], block["text"]) for one in block.get("citations") or ()]
    assert len(set(ids)) == len(ids)
    return Told(queries, found, cited)


def _told_by_gemini(answer: Body) -> Told:
    (candidate,) = answer["candidates"]
    grounding = candidate["groundingMetadata"]
    found = [(chunk["web"]["uri"], chunk["web"]["title"]) for chunk in grounding["groundingChunks"]]
    cited = []
    for support in grounding["groundingSupports"]:
        segment = support["segment"]
        text = TEXT.encode()[segment.get("startIndex", 0) : segment["endIndex"]].decode()
        cited += [(*found[index], text) for index in support["groundingChunkIndices"]]
    return Told(grounding.get("webSearchQueries", []), found, cited)


@STREAMED
@pytest.mark.parametrize("provider", SEARCHING)
@pytest.mark.parametrize("client", ["chat", *SEARCHING])
async def test_s24_s25_searches_and_sources_are_told(
    grid: Grid, client: str, provider: str, stream: bool
) -> None:
    response = await answered(grid, client, provider, stream)
    got = told(client, response, stream)
    assert got.cited == [(*RIVERS, TEXT), (*LAKES, TEXT)]
    if client == "chat":
        return
    assert got.queries == ["rivers rising", "läkes"]
    assert [url for url, _ in got.found] == [RIVERS[0], LAKES[0]]
    if client == "messages" and provider != "responses":  # which tells addresses alone
        assert got.found == [RIVERS, LAKES]


@STREAMED
@pytest.mark.parametrize("provider", SEARCHING)
@pytest.mark.parametrize("client", ["chat", "completions"])
async def test_s24_what_has_no_place_is_named(
    grid: Grid, caplog: pytest.LogCaptureFixture, client: str, provider: str, stream: bool
) -> None:
    with caplog.at_level(logging.INFO, "sluicegate"):
        response = await answered(grid, client, provider, stream)
    dropped = response.header("x-sluicegate-dropped") or ""
    id = str(response.header("x-request-id"))
    lines = [line for line in caplog.messages if "answer_untold" in line and id in line]
    for name in NAMES[provider]:
        assert any(name in line for line in lines)
        assert (f"{name};of the answer" in dropped) is not stream


@STREAMED
@pytest.mark.parametrize("provider", SEARCHING)
@pytest.mark.parametrize("client", SEARCHING)
async def test_s24_what_has_a_place_is_not_named(
    grid: Grid, caplog: pytest.LogCaptureFixture, client: str, provider: str, stream: bool
) -> None:
    with caplog.at_level(logging.INFO, "sluicegate"):
        response = await answered(grid, client, provider, stream)
    assert "of the answer" not in (response.header("x-sluicegate-dropped") or "")
    assert not [line for line in caplog.messages if "answer_untold" in line]


@STREAMED
@pytest.mark.parametrize("provider", SEARCHING)
@pytest.mark.parametrize("client", FORMATS)
async def test_b1_every_search_is_charged_in_every_pair(
    grid: Grid, client: str, provider: str, stream: bool
) -> None:
    response = await answered(grid, client, provider, stream)
    row = grid.row(response.header("x-request-id"))
    assert (row.usage.web_searches, row.usage_source) == (2, "reported")
    assert row.cost_nano_usd == COST + 2 * PER_SEARCH
    usage: Any = None
    for event in _events(response) if stream else [response.json()]:
        inner = event.get("response") or event
        usage = inner.get("usage") or inner.get("usageMetadata") or usage
    assert usage["cost_nano_usd"] == row.cost_nano_usd
    if client == "messages":
        assert usage["server_tool_use"]["web_search_requests"] == 2
    if client == "responses" != provider:
        answer = _last_of(response)["response"] if stream else response.json()
        assert answer["tool_usage"] == {"web_search": {"num_requests": 2}}


async def test_s25_another_vendors_search_does_not_go_to_messages(grid: Grid) -> None:
    """What a client of Messages gives back of another vendor's search is taken out for one of its own format."""
    response = await answered(grid, "messages", "gemini", stream=False)
    content = response.json()["content"]
    assert {block["type"] for block in content} == {"text", "server_tool_use", "web_search_tool_result"}
    body = said("messages", "messages", Prompt(), False) | TOOLS["messages"]
    question = body["messages"][0]
    body["messages"] = [question, {"role": "assistant", "content": content}, question]
    response = await ask(grid.gate.url, path_of("messages", "messages", False), body, key=KEY)
    assert response.status == 200
    assert grid.asked.json["messages"][1]["content"] == [{"type": "text", "text": TEXT, "citations": None}]
    vendors = await answered(grid, "messages", "messages", stream=False)
    body["messages"][1]["content"] = vendors.json()["content"]
    await ask(grid.gate.url, path_of("messages", "messages", False), body, key=KEY)
    assert grid.asked.json["messages"][1]["content"] == vendors.json()["content"], "the vendor's own stays"


@pytest.mark.parametrize("provider", SEARCHING)
async def test_b6_a_trace_in_the_history_is_left_out_and_named(grid: Grid, provider: str) -> None:
    response = await answered(grid, "responses", provider, stream=False)
    target = "gemini" if provider != "gemini" else "messages"
    items = response.json()["output"]
    body = said("responses", target, Prompt(), False)
    body["input"] = [{"role": "user", "content": "Hi"}, *items, {"role": "user", "content": "And?"}]
    response = await ask(grid.gate.url, path_of("responses", target, False), body, key=KEY)
    assert response.status == 200, response.body
    assert "web_search_call has no place" in (response.header("x-sluicegate-dropped") or "")
