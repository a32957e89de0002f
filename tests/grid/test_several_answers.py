"""Several answers to one request, between the formats that have them: every choice whole, usage summed once."""

from typing import Any

import pytest

from sluicegate.simulator import Answer, Script
from tests.conftest import KEY
from tests.fakes import ask
from tests.grammar.chat import check_chat_stream
from tests.grammar.completions import check_completions_stream
from tests.grammar.gemini import check_gemini_stream
from tests.grid.conftest import Grid, model_of, upstream_model
from tests.grid.scenes import TEXT, Prompt
from tests.grid.speaking import Body, path_of, said, usage_of
from tests.grid.test_grid import cost_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEVERAL = ("chat", "completions", "gemini")
CHECK: dict[str, Any] = {
    "chat": check_chat_stream,
    "completions": check_completions_stream,
    "gemini": check_gemini_stream,
}
TWICE = Answer(text=TEXT, choices=2, input_tokens=40)


def texts_of(format: str, body: Body) -> tuple[str, ...]:
    """Return the text of each choice of a plain answer."""
    match format:
        case "chat":
            return tuple(choice["message"]["content"] for choice in body["choices"])
        case "completions":
            return tuple(choice["text"] for choice in body["choices"])
    parts = (candidate["content"]["parts"] for candidate in body["candidates"])
    return tuple("".join(part.get("text", "") for part in each) for each in parts)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("provider", SEVERAL)
@pytest.mark.parametrize("client", SEVERAL)
async def test_two_choices(grid: Grid, client: str, provider: str, stream: bool) -> None:
    model = model_of(provider, "several", stream)
    grid.simulator.push(Script(answer=TWICE), model=upstream_model("several", stream))
    body = said(client, model, Prompt(), stream)
    body |= {"generationConfig": {"candidateCount": 2}} if client == "gemini" else {"n": 2}
    response = await ask(grid.gate.url, path_of(client, model, stream), body, key=KEY)
    assert response.status == 200, response.body
    if stream:
        parsed = CHECK[client](response.body, model=model)
        texts, usage = parsed.texts, parsed.usage
    else:
        answer = response.json()
        texts = texts_of(client, answer)
        usage = answer["usageMetadata" if client == "gemini" else "usage"]
    assert texts == ("".join(TEXT),) * 2
    row = grid.row(response.header("x-request-id"))
    expected = TWICE.truth()
    assert usage_of(client, usage) == expected
    assert usage["cost_nano_usd"] == row.cost_nano_usd == cost_of(expected)
