"""The official SDKs, unmodified, read a stream of two providers as one answer. Contract T3."""

import asyncio
import json
from typing import Any, NamedTuple

import pytest

from sluicegate.messages import Format
from tests.conftest import KEY
from tests.grid.scenes import FORMATS, QUESTION, Prompt
from tests.grid.sdks import Sdks, Way, heard
from tests.grid.speaking import Heard, said
from tests.grid.test_node_sdks import SCRIPT, VERCEL
from tests.grid.turns import joined
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks
from tests.taken_over.world import COST, INPUT, TEXT, WHOLE, World, broken, model_of, rest

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = Prompt(system=None)


class Cell(NamedTuple):
    """One way of asking."""

    client: str
    way: Way

    @property
    def format(self) -> Format:
        return VERCEL.get(self.client, self.client)  # type: ignore[return-value]

    @property
    def model(self) -> str:
        return model_of(self.format, "completions" if self.format == "completions" else "messages")

    def job(self) -> dict[str, Any]:
        """Return what `grid.mjs` is told."""
        body = said(self.format, self.model, PROMPT, self.way == "raw")
        if self.way != "raw":
            body.pop("stream", None)
        job = {"client": self.client, "way": self.way, "model": self.model, "body": body}
        return job | {"question": QUESTION, "tools": []}


OFFICIAL = [
    Cell(client, way)
    for client in FORMATS
    for way in ("raw", "helper")
    if (client, way) != ("completions", "helper")
]
AI_SDK = [Cell(client, "raw") for client in VERCEL if client != "ai-responses"]
"""That one has the provider keep its answers: half of one could not be gone on with."""


def check(answer: Heard) -> None:
    assert (answer.text, answer.finish, answer.calls) == (WHOLE, "stop", [])
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (INPUT, len(TEXT))


def check_row(world: World) -> None:
    row = world.row()
    assert (row.status, row.attempts, row.cost_nano_usd) == ("ok", 2, COST)


@pytest.mark.parametrize("cell", OFFICIAL, ids="-".join)
async def test_T3_python_sdks(world: World, cell: Cell) -> None:
    world.first.push(broken(cell.format, "cut"))
    world.second.push(rest())
    async with Sdks.at(world.gate.url) as sdks:
        check(await sdks.ask(cell.format, cell.model, PROMPT, cell.way))
    check_row(world)


@needs_node_sdks
async def test_T3_node_sdks(world: World) -> None:
    cells = OFFICIAL + AI_SDK  # asked one after another
    for cell in cells:
        world.first.push(broken(cell.format, "cut"))
        world.second.push(rest())
    process = await asyncio.create_subprocess_exec(
        NODE,
        str(SCRIPT),
        world.gate.url,
        KEY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate(json.dumps([cell.job() for cell in cells]).encode())
    lines = output.decode().rstrip("\n").split("\n")
    for cell, line in zip(cells, lines, strict=True):
        result = json.loads(line)
        assert "error" not in result, (cell, result["error"])
        if cell.client in VERCEL:
            assert (result["text"], result["finish"], result["calls"]) == (WHOLE, "stop", [])
            told = result["usage"]
            assert (told["inputTokens"], told["outputTokens"]) == (INPUT, len(TEXT)), cell
        else:
            check(
                heard(
                    cell.format,
                    joined(cell.format, result["events"]) if "events" in result else result["answer"],
                )
            )
    rows = world.gate.rows()[-len(cells) :]
    assert {(row.status, row.attempts, row.cost_nano_usd) for row in rows} == {("ok", 2, COST)}
