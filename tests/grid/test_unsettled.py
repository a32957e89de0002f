"""An answer whose settlement the journal does not take: broken off in its own format, charged nothing, settled later.

Contract E2, X6: nothing that completes an answer leaves before its settlement is written, whatever formats meet.
"""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from sluicegate.simulator.script import Play, Script, Wait
from tests.conftest import KEY
from tests.fakes import Response, ask
from tests.grammar.gemini import check_gemini_stream
from tests.grid.conftest import Grid, model_of, upstream_model
from tests.grid.scenes import FORMATS, SCENES
from tests.grid.speaking import heard_stream, path_of, said, told_error, told_inside

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCENE = SCENES["text"]
WORDS = {"messages": "api_error", "gemini": "UNAVAILABLE"}
OPENAI_WORD = "service_unavailable_error"
PAUSE_S = 0.1
"""Between the content and the end: long enough to fill a disk."""
STEPS = {
    True: (Play(before="finish"), Wait(s=PAUSE_S), Play(skip=("start", "content"))),
    False: (Wait(s=PAUSE_S), Play()),
}


class Disk:
    """The disk under the journal, which is full from the moment somebody says so."""

    def __init__(self) -> None:
        self.full = False
        self._write = os.pwrite

    def pwrite(self, fd: int, data: Any, offset: int, /) -> int:
        """Write; on a full disk nothing, as the system does."""
        return 0 if self.full else self._write(fd, data, offset)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(os, "pwrite", disk.pwrite)
    yield disk
    disk.full = False


async def ask_while_it_fills(grid: Grid, disk: Disk, path: str, body: Any, *, stream: bool) -> Response:
    """Ask, and fill the disk once the provider is at work: when the request is reserved and not settled."""
    script = Script(answer=SCENE.answer, steps=STEPS[stream])
    grid.simulator.push(script, model=upstream_model("unsettled", stream))
    asked_before = len(grid.simulator.requests)
    asking = asyncio.create_task(ask(grid.gate.url, path, body, key=KEY))
    async with asyncio.timeout(5.0):
        while len(grid.simulator.requests) == asked_before:
            await asyncio.sleep(0.001)
    disk.full = True
    return await asking


async def check_settled_later(grid: Grid, disk: Disk, request_id: str | None) -> None:
    """Give the disk room again: the request is settled once, for nothing."""
    assert grid.rows(request_id) == []
    disk.full = False
    async with asyncio.timeout(5.0):
        while not grid.rows(request_id):
            await asyncio.sleep(0.01)
    row = grid.row(request_id)
    assert (row.status, row.cost_nano_usd, row.shortfall_nano_usd) == ("interrupted", 0, 0)


@pytest.mark.parametrize("provider", FORMATS)
@pytest.mark.parametrize("client", FORMATS)
async def test_x6_an_unsettled_stream_ends_in_the_error_of_its_own_format(
    grid: Grid, disk: Disk, client: str, provider: str
) -> None:
    model = model_of(provider, "unsettled", True)
    body = said(client, model, SCENE.prompt, True)
    path = path_of(client, model, True)
    response = await ask_while_it_fills(grid, disk, path, body, stream=True)
    heard = heard_stream(client, response, model, fails=True)
    assert told_inside(client, heard.error).word == WORDS.get(client, OPENAI_WORD)
    assert heard.text
    assert "".join(SCENE.answer.text).startswith(heard.text)
    await check_settled_later(grid, disk, response.header("x-request-id"))


@pytest.mark.parametrize("provider", FORMATS)
async def test_x6_an_unsettled_array_of_gemini_stays_open_behind_its_error(
    grid: Grid, disk: Disk, provider: str
) -> None:
    model = model_of(provider, "unsettled", True)
    body = said("gemini", model, SCENE.prompt, True)
    path = path_of("gemini", model, True).removesuffix("?alt=sse")
    response = await ask_while_it_fills(grid, disk, path, body, stream=True)
    parsed = check_gemini_stream(response.body, model=model, array=True, end="error")
    assert parsed.error is not None
    assert parsed.error["status"] == "UNAVAILABLE"
    await check_settled_later(grid, disk, response.header("x-request-id"))


@pytest.mark.parametrize("client", FORMATS)
async def test_x6_an_unsettled_plain_answer_is_a_503(grid: Grid, disk: Disk, client: str) -> None:
    model = model_of("chat", "unsettled", False)
    body = said(client, model, SCENE.prompt, False)
    path = path_of(client, model, False)
    response = await ask_while_it_fills(grid, disk, path, body, stream=False)
    told = told_error(client, response)
    assert (told.status, told.word) == (503, WORDS.get(client, OPENAI_WORD))
    assert SCENE.answer.text[0].encode() not in response.body
    await check_settled_later(grid, disk, response.header("x-request-id"))
