"""The grid with the official Node SDKs and the Vercel AI SDK as clients, unmodified. See `test_grid`.

Each client's cells run in one Node process, for speed; each is a test of its own.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from sluicegate.billing.ledger import UsageRow
from tests.conftest import KEY
from tests.grid.conftest import Grid, model_of
from tests.grid.scenes import FORMATS, PROVIDERS_WORDS, SCENES, refused, sayable, truth
from tests.grid.sdks import Way, heard
from tests.grid.speaking import Body, said, wording
from tests.grid.test_grid import check_answer, check_row, check_usage, counts, expected_of
from tests.grid.turns import joined
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    needs_node_sdks,
]

SCRIPT = Path(__file__).parents[1] / "sdk" / "grid.mjs"
WAYS: tuple[Way, ...] = ("plain", "raw", "helper")
VERCEL = {
    "ai-chat": "chat",
    "ai-compatible": "chat",
    "ai-responses": "responses",
    "ai-completions": "completions",
    "ai-messages": "messages",
    "ai-gemini": "gemini",
}
"""Providers of the AI SDK, and the format that each speaks."""
VERCEL_SCENES = (
    "text",
    "tools",
    "calls-alone",
    "reasoning",
    "odd-cuts",
    "error-400",
    "error-500",
    "error-inside",
    "cut",
)
VERCEL_REASONS = {"stop": "stop", "tool-calls": "tool_calls"}


class Cell(NamedTuple):
    """One thing that a client asks."""

    client: str
    provider: str
    name: str
    way: Way

    @property
    def format(self) -> str:
        return VERCEL.get(self.client, self.client)

    @property
    def model(self) -> str:
        return model_of(self.provider, self.name, self.way != "plain")

    def job(self) -> Body:
        """Return what `grid.mjs` is told."""
        prompt = SCENES[self.name].prompt
        body = said(self.format, self.model, prompt, self.way == "raw")
        if self.way != "raw":
            body.pop("stream", None)
        job = {"client": self.client, "way": self.way, "model": self.model, "body": body}
        tools = [tool._asdict() for tool in prompt.tools]
        return job | {"question": prompt.question, "system": prompt.system, "tools": tools}


CELLS = [
    Cell(client, provider, name, way)
    for client in FORMATS
    for provider in FORMATS
    for name, scene in SCENES.items()
    for way in WAYS
    if sayable(client, scene.prompt) and (client, way) != ("completions", "helper")
]
VERCEL_CELLS = [
    Cell(client, provider, name, way)
    for client, format in VERCEL.items()
    for provider in FORMATS
    for name in VERCEL_SCENES
    for way in WAYS[:2]
    if sayable(format, SCENES[name].prompt)
]


class Seen(NamedTuple):
    """What Node printed of each cell, and the rows that came of it."""

    results: dict[Cell, Any]
    rows: dict[Cell, list[UsageRow]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(grid: Grid, request: pytest.FixtureRequest) -> AsyncIterator[Seen]:
    """Run the cells that this session's tests ask for."""
    wanted = {
        cell
        for item in request.session.items
        if item.parent is request.node and isinstance(item, pytest.Function) and hasattr(item, "callspec")
        for cell in item.callspec.params["cells"]
    }
    cells = [cell for cell in CELLS + VERCEL_CELLS if cell in wanted]
    process = await asyncio.create_subprocess_exec(
        NODE, str(SCRIPT), grid.gate.url, KEY, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate(json.dumps([cell.job() for cell in cells]).encode())
    lines = output.decode().rstrip("\n").split("\n")
    results = {cell: json.loads(line) for cell, line in zip(cells, lines, strict=True)}
    by_place: dict[tuple[str, str], list[UsageRow]] = {}
    for row in grid.gate.rows():
        by_place.setdefault((row.client_format, row.model), []).append(row)
    rows = {cell: by_place.get((cell.format, cell.model), []) for cell in cells}
    yield Seen(results, rows)


def rounded(arguments: str) -> str:
    """Return JSON as JavaScript would after reading it."""
    return json.dumps(json.loads(arguments, parse_int=float))


def groups(cells: list[Cell], *, fail: bool) -> list[Any]:
    """Return the cells as parameters, those together that differ only in the way of asking."""
    together: dict[str, list[Cell]] = {}
    for cell in cells:
        if bool(SCENES[cell.name].failure) is fail:
            together.setdefault("-".join(cell[:3]), []).append(cell)
    return [pytest.param(group, id=name) for name, group in together.items()]


@pytest.mark.parametrize("cells", groups(CELLS, fail=False))
async def test_answered(seen: Seen, cells: list[Cell]) -> None:
    for cell in cells:
        check_answered(seen, cell)


def check_answered(seen: Seen, cell: Cell) -> None:
    scene, result = SCENES[cell.name], seen.results[cell]
    field = refused(cell.client, cell.provider, scene.prompt)
    if field is not None:
        status, word = wording(cell.client, "unsupported_feature")
        assert result["error"]["status"] == status
        assert word in json.dumps(result["error"])
        assert field in result["error"]["message"]
        return
    assert "error" not in result, result["error"]
    answer = joined(cell.client, result["events"]) if "events" in result else result["answer"]
    said_back = heard(cell.client, answer)
    row = seen.rows[cell][-1]
    expected = expected_of(cell.client, cell.provider, scene, row)
    if cell.name == "odd-calls":  # numbers of JavaScript hold no more digits
        expected = expected._replace(calls=[(name, rounded(text)) for name, text in expected.calls])
        said_back = said_back._replace(
            calls=[call._replace(arguments=rounded(call.arguments)) for call in said_back.calls]
        )
    if (cell.client, cell.way) == ("chat", "helper"):  # it keeps the last piece of fields it does not know
        assert expected.reasoning.endswith(said_back.reasoning)
        expected = expected._replace(reasoning=said_back.reasoning)
    check_answer(said_back, expected)
    check_row(row, cell.client, cell.provider, cell.model, cell.way != "plain")
    if said_back.cost_nano_usd is None:
        assert (cell.client, cell.way) == ("messages", "helper"), "the cost is not seen"
        said_back = said_back._replace(cost_nano_usd=row.cost_nano_usd)
    check_usage(cell.client, said_back, expected.usage, row)
    if "deltas" in result:
        assert "".join(result["deltas"]) == expected.text


@pytest.mark.parametrize("cells", groups(CELLS, fail=True))
async def test_failing(seen: Seen, cells: list[Cell]) -> None:
    for cell in cells:
        check_failing(seen, cell)


def check_failing(seen: Seen, cell: Cell) -> None:
    scene, result = SCENES[cell.name], seen.results[cell]
    assert scene.failure is not None
    error = result["error"]
    status, word = wording(cell.client, scene.failure)
    inside = cell.way != "plain" and scene.status == 200
    if not inside:
        assert error["status"] == status
    assert word in json.dumps(error)
    assert (PROVIDERS_WORDS in error["message"]) == (cell.name in ("error-400", "error-429"))


@pytest.mark.parametrize("cells", groups(VERCEL_CELLS, fail=False))
async def test_vercel_answered(seen: Seen, cells: list[Cell]) -> None:
    for cell in cells:
        check_vercel_answered(seen, cell)


def check_vercel_answered(seen: Seen, cell: Cell) -> None:
    scene, result = SCENES[cell.name], seen.results[cell]
    field = refused(cell.format, cell.provider, scene.prompt)
    if field is not None:
        assert (result["error"]["status"], field in result["error"]["message"]) == (400, True)
        return
    assert "error" not in result, result["error"]
    expected = truth(cell.format, cell.provider, scene.answer)
    assert result["text"] == expected.text
    if cell.client != "ai-chat":  # it does not show reasoning_content
        assert result["reasoning"] == expected.reasoning
    calls = [(call["name"], json.loads(call["arguments"])) for call in result["calls"]]
    assert calls == [(name, json.loads(arguments)) for name, arguments in expected.calls]
    assert VERCEL_REASONS[result["finish"]] == expected.finish
    usage, told = counts(expected.usage), result["usage"]
    assert (told["inputTokens"], told["outputTokens"]) == (usage["input_tokens"], usage["output_tokens"])
    if cell.client != "ai-completions":  # it does not show them
        assert (told["inputTokenDetails"].get("cacheReadTokens") or None) == usage["cache_read_tokens"]


@pytest.mark.parametrize("cells", groups(VERCEL_CELLS, fail=True))
async def test_vercel_failing(seen: Seen, cells: list[Cell]) -> None:
    for cell in cells:
        check_vercel_failing(seen, cell)


def check_vercel_failing(seen: Seen, cell: Cell) -> None:
    scene, result = SCENES[cell.name], seen.results[cell]
    assert scene.failure is not None
    status, word = wording(cell.format, scene.failure)
    if cell.way == "plain" or scene.status != 200:
        assert result["error"]["status"] == status
    assert word in json.dumps(result["error"]) or cell.name in ("error-inside", "cut")
