"""What cannot cross is refused before a provider is asked, with a 400 that names the field in the client's own words;
docs/translation.md lists all of it. Wire formats page `translation-matrix.md`.
"""

from pathlib import Path

import pytest

from tests.conftest import KEY
from tests.fakes import ask
from tests.grid.cannot import ROWS, Cannot
from tests.grid.conftest import Grid, model_of
from tests.grid.scenes import Prompt
from tests.grid.speaking import path_of, said, told_error, wording

pytestmark = pytest.mark.asyncio(loop_scope="module")

CELLS = [
    pytest.param(client, provider, row, id=f"{client}-{provider}-{row.thing.replace(' ', '-')}")
    for row in ROWS
    for client in row.said
    for provider in row.providers
    if client != provider
]
PAGE = Path(__file__).parents[2] / "docs" / "translation.md"


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(("client", "provider", "row"), CELLS)
async def test_refused(grid: Grid, client: str, provider: str, row: Cannot, stream: bool) -> None:
    model = model_of(provider, "text", stream)
    added, field = row.said[client]
    body = said(client, model, Prompt(), stream) | added
    if client != "gemini":
        body |= {"model": model, "stream": stream}
    asked_before = grid.simulator.requests_made
    response = await ask(grid.gate.url, path_of(client, model, stream), body, key=KEY)
    told = told_error(client, response)
    assert told[:2] == wording(client, "unsupported_feature")
    assert field in told.message
    assert grid.simulator.requests_made == asked_before
    assert not any(row.cost_nano_usd for row in grid.rows(response.header("x-request-id")))


async def test_the_page_lists_them() -> None:
    page = PAGE.read_text()
    for row in ROWS:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {row.thing} |")]
        _, _, clients, providers, names, *_ = (cell.strip() for cell in line.split("|"))
        assert set(clients.split(", ")) == set(row.said)
        assert set(providers.split(", ")) == set(row.providers)
        for _, field in row.said.values():
            assert f"`{field.split('[')[0]}" in names
