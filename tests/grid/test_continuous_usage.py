"""Usage and cost so far on every event, every client format at every provider format: floors that never fall, and the
last of them is the bill. Contract C8; the grammar checkers read every stream.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sluicegate.billing.ledger import UsageRow
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer, ToolCall
from sluicegate.simulator.script import Script
from tests.conftest import KEY, PRICE, make_config
from tests.fakes import Response, ask
from tests.grammar.chat import check_chat_stream
from tests.grammar.completions import check_completions_stream
from tests.grammar.gemini import check_gemini_stream
from tests.grammar.messages import check_messages_stream
from tests.grammar.narrow_sse import ParsedStream
from tests.grammar.responses import check_responses_stream
from tests.grid.conftest import Grid
from tests.grid.scenes import FORMATS, LEVEL, Prompt
from tests.grid.sdks import Sdks, Way, heard
from tests.grid.speaking import Body, Heard, path_of, said, usage_of
from tests.grid.turns import joined
from tests.inprocess import in_process_gate
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEADER = "x-sluicegate-continuous-usage"
WORDS = tuple(f" {word}" for word in ("water", "finds", "its", "own", "level", "in", "the", "end") * 4)
ANSWERS = {
    "text": Answer(text=WORDS, input_tokens=40, cache_read_tokens=12),
    "thoughts and calls": Answer(
        reasoning=WORDS[:20],
        text=WORDS[:20],
        tool_calls=(ToolCall(name="get_level", arguments=('{"river":', ' "Elbe and', ' all others"', "}")),),
        finish="tool_calls",
        input_tokens=40,
    ),
    "hidden": Answer(text=WORDS[:30], input_tokens=40, output_tokens=300, usage="running"),
    "unreported": Answer(text=WORDS, input_tokens=40, usage="never"),
}
"""The third tells running totals, most of it thoughts that are not shown; of the last nobody tells anything."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grid(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grid]:
    async with Simulator() as simulator:
        for name, answer in ANSWERS.items():
            model = name.replace(" ", "-")
            simulator.push(Script(answer=answer, interval_s=0.0005), model=model, times=None)
        providers: dict[str, Any] = {
            format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"} for format in FORMATS
        }
        providers["knows"] = providers["chat"] | {"capabilities": {"continuous_usage": True}}
        models = {
            f"{provider}-*": {"routes": [{"provider": provider, "model": "*"}], "price": PRICE}
            for provider in providers
        }
        models["free-*"] = {"routes": [{"provider": "chat", "model": "*"}], "price": "free"}
        config = make_config(simulator, retry={"max_attempts": 1}) | {
            "providers": providers,
            "models": models,
        }
        gate = in_process_gate(tmp_path_factory.mktemp("continuous"), config)
        async with gate.running():
            yield Grid(gate, simulator)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sdks(grid: Grid) -> AsyncIterator[Sdks]:
    async with Sdks.at(grid.gate.url, {HEADER: "1"}) as opened:
        yield opened


async def ask_continuously(grid: Grid, client: str, model: str, *, by_option: bool = False) -> Response:
    prompt = Prompt(tools=(LEVEL,)) if "calls" in model and client != "completions" else Prompt()
    body = said(client, model, prompt, True)
    headers = {HEADER: "1"}
    if by_option:
        body["stream_options"], headers = {"continuous_usage_stats": True}, {}
    return await ask(
        grid.gate.url, path_of(client, model, True), body, key=KEY, headers=headers, timeout_s=30.0
    )


def parsed(client: str, response: Response, model: str) -> ParsedStream:
    """Read a stream by its grammar."""
    assert response.status == 200, response.body
    raw = response.body
    match client:
        case "chat":
            return check_chat_stream(raw, model=model, usage=True, continuous=True)
        case "completions":
            return check_completions_stream(raw, model=model, usage=True, continuous=True)
        case "responses":
            return check_responses_stream(raw, model=model)
        case "messages":
            return check_messages_stream(raw, model=model)
    return check_gemini_stream(raw, model=model)


def told_on_events(client: str, stream: ParsedStream) -> list[Body]:
    """Return what usage every event tells that must tell it, the last one included."""
    told: list[Body] = []
    for event in stream.events:
        kind = event.get("type", "")
        if client == "gemini":
            told.append(event["usageMetadata"])
        elif client in ("chat", "completions"):
            told.append(event["usage"])
        elif client == "responses":
            if kind.endswith(".delta"):
                told.append(event["usage"])
            elif kind == "response.completed":
                told.append(event["response"]["usage"])
            else:
                assert "usage" not in event, event
        elif kind in ("content_block_delta", "message_delta"):
            told.append(event["usage"])
        else:
            assert "usage" not in event, event
            assert "cost" not in json.dumps(event, default=str), event
    return told


def counts(client: str, told: list[Body]) -> list[tuple[int, int, int]]:
    """Return input and output tokens, and cost in nano-USD, in order."""
    rows = []
    for usage in told:
        spelled = usage_of(client, usage)
        rows.append((spelled.input_tokens or 0, spelled.output_tokens or 0, usage["cost_nano_usd"]))
    return rows


def check_never_falls(running: list[tuple[int, int, int]]) -> None:
    """Only the last may: it is the bill."""
    for values in zip(*running[:-1], strict=True):
        assert list(values) == sorted(values), "it fell"


CELLS = [
    pytest.param(client, provider, name, id=f"{client}-{provider}-{name}".replace(" ", "-"))
    for client in FORMATS
    for provider in FORMATS
    for name in ANSWERS
    if "calls" not in name or "completions" not in (client, provider)
]


@pytest.mark.parametrize(("client", "provider", "name"), CELLS)
async def test_c8_x2_usage_so_far_on_every_event(grid: Grid, client: str, provider: str, name: str) -> None:
    model = f"{provider}-{name.replace(' ', '-')}"
    response = await ask_continuously(grid, client, model)
    stream = parsed(client, response, model)
    told = told_on_events(client, stream)
    running = counts(client, told)
    assert len(running) > 8
    check_never_falls(running)
    row = grid.row(response.header("x-request-id"))
    bill = (row.usage.input_tokens, row.usage.output_tokens, row.cost_nano_usd)
    assert running[-1] == bill
    assert all(row[1] <= bill[1] for row in running), "a floor passes the bill"
    assert running[0][2] > 0
    assert len({row[1] for row in running[:-1]}) > 3, "it moves"
    truth = ANSWERS[name].truth()
    if name != "unreported":
        assert bill[:2] == (truth.input_tokens, truth.output_tokens)
    assert row.usage_source == ("counted" if name == "unreported" else "reported")


@pytest.mark.parametrize("client", ["chat", "completions"])
@pytest.mark.parametrize("provider", FORMATS)
async def test_c8_the_option_does_the_same_and_implies_usage(grid: Grid, client: str, provider: str) -> None:
    response = await ask_continuously(grid, client, f"{provider}-text", by_option=True)
    running = counts(client, told_on_events(client, parsed(client, response, f"{provider}-text")))
    check_never_falls(running)
    row = grid.row(response.header("x-request-id"))
    assert running[-1] == (row.usage.input_tokens, row.usage.output_tokens, row.cost_nano_usd)
    assert b"continuous" not in grid.asked.body


async def test_c8_gemini_as_a_growing_array(grid: Grid) -> None:
    for provider in FORMATS:
        body = said("gemini", "", Prompt(), True)
        path = f"/v1beta/models/{provider}-text:streamGenerateContent"
        response = await ask(grid.gate.url, path, body, key=KEY, headers={HEADER: "1"}, timeout_s=30.0)
        stream = check_gemini_stream(response.body, model=f"{provider}-text", array=True)
        running = counts("gemini", told_on_events("gemini", stream))
        check_never_falls(running)
        assert running[-1][2] == grid.row(response.header("x-request-id")).cost_nano_usd


@pytest.mark.parametrize("client", FORMATS)
async def test_c8_a_provider_that_knows_it_is_asked_and_its_totals_are_taken(grid: Grid, client: str) -> None:
    response = await ask_continuously(grid, client, "knows-hidden")
    assert grid.asked.json["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    running = counts(client, told_on_events(client, parsed(client, response, "knows-hidden")))
    middle = running[len(running) // 2]
    assert middle[0] == 40, "the input is as reported"
    assert middle[1] > 100, "ten tokens a word, as reported"


async def test_c8_nothing_is_forwarded_to_a_provider_that_does_not_know_it(grid: Grid) -> None:
    await ask_continuously(grid, "chat", "chat-text")
    assert grid.asked.json["stream_options"] == {"include_usage": True}
    assert grid.asked.header(HEADER) is None


@pytest.mark.parametrize("client", FORMATS)
async def test_c8_who_does_not_ask_gets_none_of_it(grid: Grid, client: str) -> None:
    for headers in ({}, {HEADER: "0"}):
        body = said(client, "chat-text", Prompt(), True)
        response = await ask(
            grid.gate.url, path_of(client, "chat-text", True), body, key=KEY, headers=headers, timeout_s=30.0
        )
        assert response.body.count(b'"cost_nano_usd"') == 1


@pytest.mark.parametrize("client", FORMATS)
async def test_c8_a_header_that_is_neither_yes_nor_no_is_refused(grid: Grid, client: str) -> None:
    body = said(client, "chat-text", Prompt(), True)
    before = len(grid.simulator.requests)
    response = await ask(
        grid.gate.url, path_of(client, "chat-text", True), body, key=KEY, headers={HEADER: "often"}
    )
    assert response.status == 400
    assert HEADER.encode() in response.body
    assert len(grid.simulator.requests) == before


async def test_c8_a_free_model_tells_usage_at_no_cost(grid: Grid) -> None:
    response = await ask_continuously(grid, "chat", "free-text")
    running = counts("chat", told_on_events("chat", parsed("chat", response, "free-text")))
    assert {row[2] for row in running} == {0}


SDK_CELLS = [
    (client, provider, name)
    for client in FORMATS
    for provider in FORMATS
    for name in ("text", "thoughts and calls")
    if "calls" not in name or "completions" not in (client, provider)
]
WAYS: tuple[Way, ...] = ("raw", "helper")


def prompt_of(name: str) -> Prompt:
    return Prompt(tools=(LEVEL,)) if "calls" in name else Prompt()


def check_heard(client: str, name: str, heard_: Heard, row: UsageRow) -> None:
    """Whether an SDK heard all that was said, and the bill."""
    answer = ANSWERS[name]
    assert heard_.text == "".join(answer.text)
    assert [json.loads(call.arguments) for call in heard_.calls] == [
        json.loads(call.joined()) for call in answer.tool_calls
    ]
    assert heard_.usage is not None
    assert (heard_.usage.input_tokens, heard_.usage.output_tokens) == (
        row.usage.input_tokens,
        row.usage.output_tokens,
    )
    assert heard_.cost_nano_usd in (None, row.cost_nano_usd)
    assert heard_.cost_nano_usd is not None or client in ("messages", "gemini")


@pytest.mark.parametrize(("client", "provider", "name"), SDK_CELLS)
async def test_c8_the_python_sdks_read_it(
    grid: Grid, sdks: Sdks, client: str, provider: str, name: str
) -> None:
    model = f"{provider}-{name.replace(' ', '-')}"
    for way in WAYS:
        if (client, way) != ("completions", "helper"):
            heard_ = await sdks.ask(client, model, prompt_of(name), way)
            check_heard(client, name, heard_, grid.gate.rows()[-1])


@needs_node_sdks
async def test_c8_the_node_sdks_read_it(grid: Grid) -> None:
    asked = [
        (client, provider, name, way)
        for client, provider, name in SDK_CELLS
        for way in (*WAYS, "vercel")
        if (client, way) != ("completions", "helper")
    ]
    jobs = []
    for client, provider, name, way in asked:
        prompt, model = prompt_of(name), f"{provider}-{name.replace(' ', '-')}"
        body = said(client, model, prompt, way == "raw")
        if way != "raw":
            body.pop("stream", None)
        tools = [tool._asdict() for tool in prompt.tools]
        job = {"client": client, "way": way, "model": model, "body": body, "tools": tools}
        if way == "vercel":
            job |= {"client": f"ai-{client}", "way": "raw"}
        jobs.append(job | {"question": prompt.question, "system": prompt.system})
    script = Path(__file__).parents[1] / "sdk" / "grid.mjs"
    process = await asyncio.create_subprocess_exec(
        *(NODE, str(script), grid.gate.url, KEY, json.dumps({HEADER: "1"})),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    before = len(grid.gate.rows())
    output, _ = await process.communicate(json.dumps(jobs).encode())
    rows = grid.gate.rows()[before:]
    assert len(rows) == len(asked)
    for (client, _, name, way), line, row in zip(asked, output.decode().splitlines(), rows, strict=True):
        result = json.loads(line)
        assert "error" not in result, result
        if way == "vercel":
            assert result["text"] == "".join(ANSWERS[name].text)
            continue
        answer = joined(client, result["events"]) if "events" in result else result["answer"]
        check_heard(client, name, heard(client, answer), row)
