"""Answers that their provider breaks off (`pause_turn`, `CONTINUATION`), for clients of other formats: gone on with,
and told as one: one id, one end, one row, one charge.

Translation matrix, sections 22 and 24; wire formats pages `gemini.md` and `usage.md`; contract E2, E3, X3, B3.
"""

from typing import Any

import pytest

from sluicegate.messages import Format
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.answer import Answer
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import ask
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import Body, Heard, heard_plain, heard_stream, path_of, said
from tests.inprocess import InProcessGate

WORDS = tuple(f" w{place}" for place in range(10))
PAUSED: list[Format] = ["messages", "gemini"]
"""Formats whose providers break answers off."""
SEARCH: dict[str, Body] = {
    "chat": {"web_search_options": {}},
    "responses": {"tools": [{"type": "web_search"}]},
    "messages": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    "gemini": {"tools": [{"googleSearch": {}}]},
}
PAIRS = [
    (client, provider)
    for client in FORMATS
    for provider in PAUSED
    if client != provider
    and (client, provider) != ("completions", "messages")  # which cannot ask for a search
]
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])


async def start(
    start: StartInProcess, simulator: Simulator, format: Format, *, config: Any = (), **model: Any
) -> InProcessGate:
    provider = {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
    routes = [{"provider": "sim", "model": "up"}]
    return await start(
        make_config(
            simulator,
            providers={"sim": provider},
            models={"m": {"routes": routes, "price": PRICE, **model}},
            retry={"max_attempts": 2, "after_send": 1},
            **dict(config),
        )
    )


def asking(client: str, *, stream: bool, **fields: Any) -> Body:
    return said(client, "m", Prompt(), stream) | SEARCH.get(client, {}) | fields


async def hear(gate: InProcessGate, client: str, *, stream: bool, **fields: Any) -> Heard:
    response = await ask(
        gate.url, path_of(client, "m", stream), asking(client, stream=stream, **fields), key=KEY
    )
    assert response.status == 200, response.body
    assert "of the answer" not in (response.header("x-sluicegate-dropped") or "")
    return (heard_stream if stream else heard_plain)(client, response, "m")


@STREAMED
@pytest.mark.parametrize(("client", "provider"), PAIRS)
async def test_s24_it_is_gone_on_with_and_told_as_one(
    start_inprocess: StartInProcess, simulator: Simulator, client: str, provider: Format, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, provider)
    answer = Answer(
        reasoning=("Hm", " hm"),
        signature="U0lH",
        text=WORDS,
        pause_after=4,
        input_tokens=40,
        cache_read_tokens=30,
    )
    simulator.push(Script(answer=answer), times=None)
    heard = await hear(gate, client, stream=stream)
    assert (heard.text, heard.finish) == ("".join(WORDS), "stop")
    if client != "completions":
        assert heard.reasoning == "Hm hm"
    assert len(simulator.requests) == 3
    bodies = [request.json for request in simulator.requests]
    if provider == "messages":
        _check_turns(bodies)
        read = 40 + 44 + 48
    else:
        tokens = [body.pop("continuationToken", None) for body in bodies]
        assert tokens[0] is None
        assert None not in tokens[1:]
        assert bodies == [bodies[0]] * 3
        read = 120
    (row,) = await gate.wait_for_rows(1)
    assert heard.usage is not None
    assert (row.usage.input_tokens, row.usage.cache_read_tokens, row.usage.output_tokens) == (read, 90, 12)
    assert (heard.usage.input_tokens, heard.usage.output_tokens) == (read, 12)
    assert (row.status, row.usage_source, row.attempts, row.repaired) == ("ok", "reported", 1, False)
    cost = (read - 90) * 1000 + 90 * 100 + 12 * 2000
    assert heard.cost_nano_usd == row.cost_nano_usd == row.list_cost_nano_usd == cost


def _check_turns(bodies: list[Body]) -> None:
    """What a Messages provider said comes back as it said it, behind the same request."""
    first = bodies[0]
    for body, told in zip(bodies[1:], (WORDS[:4], WORDS[:8]), strict=True):
        *before, turn = body["messages"]
        assert before == first["messages"]
        assert turn["role"] == "assistant"
        thinking, *texts = turn["content"]
        assert thinking == {"type": "thinking", "thinking": "Hm hm", "signature": "U0lH"}
        assert "".join(block["text"] for block in texts) == "".join(told)
        changed = {"messages", "max_tokens"}
        assert {key: body[key] for key in body.keys() - changed} == {
            key: first[key] for key in first.keys() - changed
        }
    assert [body["max_tokens"] for body in bodies] == [bodies[0]["max_tokens"] - used for used in (0, 6, 10)]
