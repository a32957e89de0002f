"""The grid with the official Python SDKs as clients, unmodified, their helpers included. See `test_grid`."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.grid.conftest import Grid, model_of
from tests.grid.scenes import FORMATS, PROVIDERS_WORDS, SCENES, refused, sayable
from tests.grid.sdks import HELPERS_RAISE, SdkError, Sdks, Way, told_by
from tests.grid.speaking import wording
from tests.grid.test_grid import check_answer, check_asked, check_row, check_usage, expected_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAYS: tuple[Way, ...] = ("plain", "raw", "helper")
CELLS = [
    (client, provider, name)
    for client in FORMATS
    for provider in FORMATS
    for name, scene in SCENES.items()
    if sayable(client, scene.prompt)
]
FAILING = [cell for cell in CELLS if SCENES[cell[2]].failure]
ANSWERED = [cell for cell in CELLS if not SCENES[cell[2]].failure]


def ways_of(client: str) -> tuple[Way, ...]:
    """Return how the SDK of a format can ask; one has no helper."""
    return WAYS[:2] if client == "completions" else WAYS


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sdks(grid: Grid) -> AsyncIterator[Sdks]:
    async with Sdks.at(grid.gate.url) as opened:
        yield opened


@pytest.mark.parametrize(("client", "provider", "name"), ANSWERED)
async def test_answered(grid: Grid, sdks: Sdks, client: str, provider: str, name: str) -> None:
    for way in ways_of(client):
        await check_answered(grid, sdks, client, provider, name, way)


async def check_answered(grid: Grid, sdks: Sdks, client: str, provider: str, name: str, way: Way) -> None:
    """Ask in one way, and compare."""
    scene = SCENES[name]
    stream = way != "plain"
    model = model_of(provider, name, stream)
    field = refused(client, provider, scene.prompt)
    if field is not None:
        with pytest.raises(SdkError) as refusal:
            await sdks.ask(client, model, scene.prompt, way)
        told = told_by(refusal.value)
        assert told[:2] == wording(client, "unsupported_feature")
        assert field in told.message
        return
    if way == "helper" and client in HELPERS_RAISE and scene.answer.finish in ("length", "content_filter"):
        with pytest.raises(HELPERS_RAISE[client]):
            await sdks.ask(client, model, scene.prompt, way)
        return
    heard = await sdks.ask(client, model, scene.prompt, way)
    row = grid.gate.rows()[-1]
    expected = expected_of(client, provider, scene, row)
    check_answer(heard, expected)
    check_row(row, client, provider, model, stream)
    if heard.cost_nano_usd is None:
        assert client == "gemini" or (client == "messages" and way == "helper"), "the cost is not seen"
        heard = heard._replace(cost_nano_usd=row.cost_nano_usd)
    check_usage(client, heard, expected.usage, row)
    check_asked(grid, scene, client, provider, stream)


@pytest.mark.parametrize(("client", "provider", "name"), FAILING)
async def test_failing(grid: Grid, sdks: Sdks, client: str, provider: str, name: str) -> None:
    for way in ways_of(client):
        await check_failing(sdks, client, provider, name, way)


async def check_failing(sdks: Sdks, client: str, provider: str, name: str, way: Way) -> None:
    """Ask in one way, and see what the SDK raises."""
    scene = SCENES[name]
    assert scene.failure is not None
    with pytest.raises(SdkError) as failure:
        await sdks.ask(client, model_of(provider, name, way != "plain"), scene.prompt, way)
    told = told_by(failure.value)
    status, word = wording(client, scene.failure)
    inside = (
        way != "plain" and scene.status == 200 and client != "gemini"
    )  # which tells its status inside too
    assert told[:2] == (200 if inside else status, word)
    assert told.message
    assert (told.message == PROVIDERS_WORDS) == (name in ("error-400", "error-429"))
