"""What the official Python SDKs need of a stream: given it whatever the provider does. See `needs.toml`.

Each case is played by a provider, and read through the gate by the SDK of the client's format, raw and with the helper
that puts an answer together. What the helpers enforce is what they raise on, so nothing is checked here but that the
answer is right.
"""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sluicegate.simulator import Simulator
from tests.cases.case import Case
from tests.cases.world import World, configuration
from tests.grid.sdks import HELPERS_RAISE, SdkError, Sdks, Way, told_by
from tests.grid.speaking import wording
from tests.grid.test_grid import counts
from tests.inprocess import in_process_gate
from tests.sdk.needs_cases import cells

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Simulator() as simulator:
        gate = in_process_gate(tmp_path_factory.mktemp("needs"), configuration(simulator))
        async with gate.running():
            yield World(gate, simulator)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sdks(world: World) -> AsyncIterator[Sdks]:
    async with Sdks.at(world.gate.url) as opened:
        yield opened


@pytest.mark.parametrize(
    ("case", "client"), [pytest.param(*cell, id=f"{cell[0].name}-to-{cell[1]}") for cell in cells()]
)
async def test_needs(world: World, sdks: Sdks, case: Case, client: str) -> None:
    upstream = f"{case.name}-{client}"
    end = case.body.rindex(b"\n\n") + 2 if case.fails and case.text and not case.then else len(case.body)
    body, then = case.body[:end], case.body[end:] + case.then
    world.plays(upstream, body, "whole", case.how, then=then, pause=bool(case.fails and case.text))
    ways: tuple[Way, ...] = ("raw", "helper") if client != "completions" else ("raw",)
    for way in ways:
        await check(sdks, case, client, f"{case.provider}/{upstream}", way)


async def check(sdks: Sdks, case: Case, client: str, model: str, way: Way) -> None:
    """Ask in one way, and compare."""
    if case.fails is not None:
        with pytest.raises(SdkError) as failure:
            await sdks.ask(client, model, case.prompt, way)
        assert told_by(failure.value).word == wording(client, case.fails)[1]
        return
    if way == "helper" and client in HELPERS_RAISE and case.finish in ("length", "content_filter"):
        with pytest.raises(HELPERS_RAISE[client]):
            await sdks.ask(client, model, case.prompt, way)
        return
    heard = await sdks.ask(client, model, case.prompt, way)
    same = {client, case.provider} <= {"chat", "responses"}
    text, refusal = (case.text, case.refusal) if same else (case.text + case.refusal, "")
    assert (heard.text, heard.reasoning, heard.refusal) == (text, case.reasoning, refusal)
    assert [(call.name, json.loads(call.arguments)) for call in heard.calls] == [
        (name, json.loads(arguments)) for name, arguments in case.calls
    ]
    assert heard.finish == case.finish
    if case.usage is not None:
        assert heard.usage is not None
        expected = counts(case.usage)
        if client == "gemini":  # it has no word for cache writes
            expected["cache_write_tokens"] = None
        assert counts(heard.usage) == expected
