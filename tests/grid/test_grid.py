"""Every client format at every provider format, streamed and not: one truth. Contract C, R, M, G, E; raw HTTP.

A cell's text, thoughts, calls, finish reason, usage and cost are compared with what the simulator really said, its
row in the journal with the same, and what the provider was asked with what the client said. The same with the official
SDKs: `test_python_sdks`.
"""

import json

import msgspec
import pytest

from sluicegate.billing.ledger import UsageRow
from sluicegate.billing.tokens import count_tokens
from sluicegate.messages import Usage
from tests.conftest import KEY
from tests.fakes import Response, ask
from tests.grammar.gemini import check_gemini_stream
from tests.grid.asked import was_asked
from tests.grid.conftest import Grid, model_of
from tests.grid.scenes import (
    FORMATS,
    PNG,
    PROVIDERS_WORDS,
    QUESTION,
    SCENES,
    SYSTEM,
    Scene,
    Truth,
    refused,
    sayable,
    truth,
)
from tests.grid.speaking import (
    Heard,
    heard_plain,
    heard_stream,
    path_of,
    said,
    told_error,
    told_inside,
    wording,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

CELLS = [
    pytest.param(client, provider, name, stream, id=f"{client}-{provider}-{name}-{'s' if stream else 'p'}")
    for client in FORMATS
    for provider in FORMATS
    for name, scene in SCENES.items()
    for stream in (False, True)
    if sayable(client, scene.prompt)
]
FAILING = [cell for cell in CELLS if SCENES[str(cell.values[2])].failure]
ANSWERED = [cell for cell in CELLS if not SCENES[str(cell.values[2])].failure]


def cost_of(usage: Usage) -> int:
    """Return the price of a usage in nano-USD, by `tests.conftest.PRICE`."""
    cached = usage.cache_read_tokens or 0
    return ((usage.input_tokens or 0) - cached) * 1000 + cached * 100 + (usage.output_tokens or 0) * 2000


async def say(grid: Grid, client: str, provider: str, name: str, stream: bool) -> Response:
    model = model_of(provider, name, stream)
    body = said(client, model, SCENES[name].prompt, stream)
    return await ask(grid.gate.url, path_of(client, model, stream), body, key=KEY)


@pytest.mark.parametrize(("client", "provider", "name", "stream"), ANSWERED)
async def test_answered(grid: Grid, client: str, provider: str, name: str, stream: bool) -> None:
    scene = SCENES[name]
    response = await say(grid, client, provider, name, stream)
    field = refused(client, provider, scene.prompt)
    if field is not None:
        told = told_error(client, response)
        assert told[:2] == wording(client, "unsupported_feature")
        assert field in told.message
        return
    model = model_of(provider, name, stream)
    heard = (heard_stream if stream else heard_plain)(client, response, model)
    row = grid.row(response.header("x-request-id"))
    expected = expected_of(client, provider, scene, row)
    check_answer(heard, expected)
    check_row(row, client, provider, model, stream)
    assert row.finish_reason == truth("chat", provider, scene.answer).finish
    check_usage(client, heard, expected.usage, row)
    check_asked(grid, scene, client, provider, stream)


def expected_of(client: str, provider: str, scene: Scene, row: UsageRow) -> Truth:
    """Return the truth of a cell; where the provider did not tell usage, it is what the gate must have counted."""
    expected = truth(client, provider, scene.answer)
    usage = expected.usage
    if provider == "gemini":  # it does not tell cache writes
        usage = msgspec.structs.replace(usage, cache_write_tokens=None)
    if scene.answer.usage == "never":
        counted = count_tokens("".join(scene.answer.text))
        assert (row.usage.output_tokens, row.usage_source) == (counted, "counted")
        usage = row.usage
    return expected._replace(usage=usage)


def check_answer(heard: Heard, expected: Truth) -> None:
    """Compare what was said."""
    calls = [(call.name, json.loads(call.arguments)) for call in heard.calls]
    assert calls == [(name, json.loads(arguments)) for name, arguments in expected.calls]
    assert len({call.id for call in heard.calls}) == len(heard.calls)
    assert heard[:3] == expected[:3]
    assert heard.finish == expected.finish


def check_row(row: UsageRow, client: str, provider: str, model: str, stream: bool) -> None:
    """Check what the journal says about the request."""
    assert (row.client_format, row.provider_format, row.model, row.stream) == (
        client,
        provider,
        model,
        stream,
    )
    assert (row.status, row.attempts) == ("ok", 1)
    assert row.cost_nano_usd == cost_of(row.usage)


def check_usage(client: str, heard: Heard, expected: Usage, row: UsageRow) -> None:
    """Compare counts and cost, as told and as booked."""
    assert heard.usage is not None
    assert counts(row.usage) == counts(expected)
    if client == "gemini":  # it has no word for cache writes
        expected = msgspec.structs.replace(expected, cache_write_tokens=None)
    assert counts(heard.usage) == counts(expected)
    assert heard.cost_nano_usd == row.cost_nano_usd == cost_of(expected)


def counts(usage: Usage) -> dict[str, int | None]:
    """Return the counts that every format has; none is as good as zero."""
    names = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
    return {name: getattr(usage, name) or None for name in names}


def check_asked(grid: Grid, scene: Scene, client: str, provider: str, stream: bool) -> None:
    """Compare what the client said with what the provider was asked."""
    record = grid.asked
    asked = was_asked(record)
    assert record.stream is stream
    prompt = scene.prompt
    said_system = SYSTEM if client != "completions" else ""
    if provider == "completions" and client != "completions":
        assert asked.turns[0].value == f"{SYSTEM}\n\nUser: {QUESTION}\n\nAssistant:"
        return
    assert asked.system == said_system
    assert [turn.value for turn in asked.of("text")] == [QUESTION]
    assert [turn.value for turn in asked.of("image")] == ([PNG] if prompt.image else [])
    assert {name: schema["properties"] for name, schema in asked.tools.items()} == {
        tool.name: tool.parameters["properties"] for tool in prompt.tools
    }
    assert asked.thinks == prompt.reasoning


@pytest.mark.parametrize(("client", "provider", "name", "stream"), FAILING)
async def test_failing(grid: Grid, client: str, provider: str, name: str, stream: bool) -> None:
    scene = SCENES[name]
    assert scene.failure is not None
    response = await say(grid, client, provider, name, stream)
    row = grid.row(response.header("x-request-id"))
    status, word = wording(client, scene.failure)
    if stream and scene.status == 200:
        heard = heard_stream(client, response, row.model, fails=True)
        told = told_inside(client, heard.error)
        assert told.word == word
        assert heard.text
        assert "".join(scene.answer.text).startswith(heard.text)
        check_produced(heard, row, scene)
    else:
        told = told_error(client, response)
        assert told[:2] == (status, word)
        assert row.cost_nano_usd == 0
    assert (told.message == PROVIDERS_WORDS) == (name in ("error-400", "error-429"))
    assert told.message
    assert row.status == ("rejected" if name == "error-400" else "upstream_error")


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        (provider, name)
        for provider in FORMATS
        for name in ("text", "tools", "reasoning", "odd-cuts", "error-inside")
        if refused("gemini", provider, SCENES[name].prompt) is None
    ],
)
async def test_gemini_array(grid: Grid, provider: str, name: str) -> None:
    """A Gemini stream without `alt=sse` is a JSON array that grows."""
    scene = SCENES[name]
    model = model_of(provider, name, True)
    path = path_of("gemini", model, True).removesuffix("?alt=sse")
    response = await ask(grid.gate.url, path, said("gemini", model, scene.prompt, True), key=KEY)
    assert response.header("content-type") == "application/json"
    end = "error" if scene.failure else "done"
    parsed = check_gemini_stream(response.body, model=model, array=True, end=end)
    row = grid.row(response.header("x-request-id"))
    if scene.failure:
        assert parsed.error is not None
        assert parsed.error["code"] == wording("gemini", scene.failure)[0]
        return
    expected = truth("gemini", provider, scene.answer)
    assert (parsed.text, parsed.reasoning) == (expected.text, expected.reasoning)
    assert [call.name for call in parsed.tool_calls] == [name for name, _ in expected.calls]
    assert parsed.usage is not None
    assert parsed.usage["cost_nano_usd"] == row.cost_nano_usd == cost_of(expected.usage)


def check_produced(heard: Heard, row: UsageRow, scene: Scene) -> None:
    """Check that a stream that failed is billed for what came (`on_error: produced`)."""
    assert row.usage.output_tokens == count_tokens(heard.text)
    assert row.cost_nano_usd == cost_of(row.usage)
