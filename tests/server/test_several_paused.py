"""Several answers, or prompts, of one request, each a call of its own that the provider pauses: each is resumed by
itself, and all are one answer, one row and one charge. Translation matrix, sections 17, 22 and 24.
"""

import json
import logging
from typing import Any

import pytest

from sluicegate.messages import Format
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Reset
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import Response, ask
from tests.grammar.chat import check_chat_stream
from tests.grid.scenes import Prompt
from tests.grid.speaking import Body, path_of, said
from tests.grid.test_several_answers import CHECK, texts_of
from tests.inprocess import InProcessGate

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
ANSWERS = [
    Answer(text=tuple(f" a{n}" for n in range(7)), pause_after=3, input_tokens=40, cache_read_tokens=30),
    Answer(text=(" b0", " b1"), input_tokens=40),
    Answer(text=tuple(f" c{n}" for n in range(5)), pause_after=3, input_tokens=40),
]
CALLS = (3, 1, 2)
"""That each takes."""
TEXTS = ["".join(answer.text) for answer in ANSWERS]
READ = {"messages": 40 + 43 + 46 + 40 + 40 + 43, "gemini": 6 * 40}
"""Input of all calls: a Messages provider reads its own words again."""
WRITTEN = 7 + 2 + 5
SEARCH: dict[str, Body] = {
    "chat": {"web_search_options": {}, "n": 3},
    "gemini": {"tools": [{"googleSearch": {}}], "generationConfig": {"candidateCount": 3}},
}


async def start(
    start_inprocess: StartInProcess, simulator: Simulator, format: Format, **model: Any
) -> InProcessGate:
    provider = {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
    model = {"routes": [{"provider": "sim", "model": "up"}], "price": PRICE, "max_calls": 3, **model}
    return await start_inprocess(
        make_config(
            simulator,
            providers={"sim": provider},
            models={"m": model},
            retry={"max_attempts": 2, "after_send": 1},
        )
    )


def script(simulator: Simulator) -> None:
    for answer, calls in zip(ANSWERS, CALLS, strict=True):
        simulator.push(Script(answer=answer), times=calls)


async def request(gate: InProcessGate, client: str, *, stream: bool, **fields: Any) -> Response:
    body = said(client, "m", Prompt(), stream) | SEARCH[client] | fields
    return await ask(gate.url, path_of(client, "m", stream), body, key=KEY)


def told(client: str, response: Response, *, stream: bool) -> tuple[list[str], Body]:
    """Return the texts, and the usage."""
    assert response.status == 200, response.body
    if stream:
        parsed = CHECK[client](response.body, model="m")
        return list(parsed.texts), parsed.usage
    answer = response.json()
    return list(texts_of(client, answer)), answer["usageMetadata" if client == "gemini" else "usage"]


@STREAMED
@pytest.mark.parametrize("client", SEARCH)
async def test_s24_each_answer_is_gone_on_with_by_itself(
    start_inprocess: StartInProcess, simulator: Simulator, client: str, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, "messages")
    script(simulator)
    texts, usage = told(client, await request(gate, client, stream=stream), stream=stream)
    assert texts == TEXTS
    bodies = [one.json for one in simulator.requests]
    assert len(bodies) == sum(CALLS)
    first = bodies[0]
    behind = [body["messages"][len(first["messages"]) :] for body in bodies]
    assert ["".join(block["text"] for turn in turns for block in turn["content"]) for turns in behind] == [
        "",
        " a0 a1 a2",
        " a0 a1 a2 a3 a4 a5",
        "",
        "",
        " c0 c1 c2",
    ]
    assert [first["max_tokens"] - body["max_tokens"] for body in bodies] == [0, 3, 6, 0, 0, 3]
    (row,) = await gate.wait_for_rows(1)
    read = READ["messages"]
    assert (row.usage.input_tokens, row.usage.cache_read_tokens, row.usage.output_tokens) == (
        read,
        90,
        WRITTEN,
    )
    assert (row.status, row.usage_source, row.attempts, row.repaired) == ("ok", "reported", 1, False)
    cost = (read - 90) * 1000 + 90 * 100 + WRITTEN * 2000
    assert usage["cost_nano_usd"] == row.cost_nano_usd == row.list_cost_nano_usd == cost


@STREAMED
async def test_s24_each_prompt_is_gone_on_with_by_itself(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, "gemini")
    script(simulator)
    body = {"model": "m", "prompt": ["One", "Two", "Three"], "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    response = await ask(gate.url, "/v1/completions", body, key=KEY)
    texts, usage = told("completions", response, stream=stream)
    assert texts == TEXTS
    asked = [json.dumps(one.json) for one in simulator.requests]
    assert [[word in body for word in ("One", "Two", "Three")].index(True) for body in asked] == [
        0,
        0,
        0,
        1,
        2,
        2,
    ]
    assert ["continuationToken" in body for body in asked] == [False, True, True, False, False, True]
    (row,) = await gate.wait_for_rows(1)
    assert (row.usage.input_tokens, row.usage.output_tokens) == (READ["gemini"], WRITTEN)
    assert usage["cost_nano_usd"] == row.cost_nano_usd


@STREAMED
async def test_s24_the_limit_is_that_of_each_answer_and_pauses_beyond_it_are_named(
    start_inprocess: StartInProcess, simulator: Simulator, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, "messages", max_continuations=1)
    for answer, calls in ((ANSWERS[0], 2), (ANSWERS[2], 2), (ANSWERS[0], 2)):
        simulator.push(Script(answer=answer), times=calls)
    with caplog.at_level(logging.INFO, "sluicegate"):
        response = await request(gate, "chat", stream=stream)
    texts, usage = told("chat", response, stream=stream)
    assert texts == [" a0 a1 a2 a3 a4 a5", TEXTS[2], " a0 a1 a2 a3 a4 a5"]
    if stream:
        assert [line for line in caplog.messages if "answer_untold" in line and "pause_turn" in line]
    else:
        assert "pause_turn;of the answer" in (response.header("x-sluicegate-dropped") or "")
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3 * 83, 6 + 5 + 6)
    (row,) = await gate.wait_for_rows(1)
    assert (row.usage_source, row.cost_nano_usd) == ("reported", usage["cost_nano_usd"])


@STREAMED
async def test_e3_a_call_that_fails_in_a_later_answer_fails_all(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, "messages")
    simulator.push(Script(answer=ANSWERS[0]), times=3)
    simulator.push(Script(answer=ANSWERS[2]))
    simulator.push(Script(answer=ANSWERS[2], steps=(Play(stop=3), Reset())))
    script(simulator)
    response = await request(gate, "chat", stream=stream)
    if stream:
        parsed = check_chat_stream(response.body, model="m", end="error")
        assert parsed.texts[0] == TEXTS[0]
        assert parsed.texts[1].startswith(" c0 c1 c2")
        assert len(simulator.requests) == 5
    else:  # tried anew, from the first on
        assert told("chat", response, stream=False)[0] == TEXTS
        assert len(simulator.requests) == 5 + sum(CALLS)
    (row,) = await gate.wait_for_rows(1)
    assert row.status == ("upstream_error" if stream else "ok")


@STREAMED
async def test_s24_candidates_of_one_call_are_not_resumed_and_that_is_named(
    start_inprocess: StartInProcess, simulator: Simulator, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, "gemini")
    simulator.push(Script(answer=Answer(text=(" a", " b"), choices=2, finish="paused", token="dG9rZW4=")))
    with caplog.at_level(logging.INFO, "sluicegate"):
        response = await request(gate, "chat", stream=stream, n=2)
    texts, _ = told("chat", response, stream=stream)
    assert texts == [" a b"] * 2
    assert len(simulator.requests) == 1
    if stream:
        assert [line for line in caplog.messages if "answer_untold" in line and "CONTINUATION" in line]
        assert response.body.count(b'"finish_reason":"length"') == 2
    else:
        assert "CONTINUATION;of the answer" in (response.header("x-sluicegate-dropped") or "")
        assert [choice["finish_reason"] for choice in response.json()["choices"]] == ["length"] * 2
