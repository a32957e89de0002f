"""Every model name of the catalogue does what it says, streamed and not."""

import asyncio

import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.faults import ANSWERS, FAULTS, script_of_model
from sluicegate.simulator.server import words
from tests.conftest import Connect
from tests.fakes import ResponseReader, ask, chat, request_bytes
from tests.grammar.chat import check_chat_stream

PATH = "/v1/chat/completions"
ENDLESS = {"endless", "flood"}


EXPECTED = {
    "silent": "silent", "gone": "fin", "reset-first": "reset", "garbage": "fin", "half-head": "silent",
    "cut-head": "fin", "head-only": "silent", "early-head": "silent", "1xx-storm": "silent", "stall": "silent",
    "stall-mid": "silent", "cut": "fin", "cut-mid": "fin", "cut-at": "fin", "reset": "reset",
    "reset-mid": "reset", "error-stall": "silent", "open": "silent", "reset-done": "reset",
    "long-length": "fin", "long-chunk": "fin", "bad-chunk": "fin", "slow": "silent",
}  # fmt: skip
"""How a stream of each faulty word is seen to end; the others come whole."""


@pytest.mark.parametrize("word", sorted(FAULTS.keys() - ENDLESS))
async def test_streams_of_the_catalogue(simulator: Simulator, client: Connect, word: str) -> None:
    connection = await client(simulator.url)
    connection.send(request_bytes(PATH, chat(f"sim-{word}")))
    reader = ResponseReader()

    def whole() -> bool:
        if word in ("bad-chunk", "long-chunk", "garbage"):
            return False  # what is no HTTP is not read as such
        response = reader.read(connection.raw, closed=connection.ended is not None)
        return response is not None and response.complete

    timeout_s = 0.3 if EXPECTED.get(word) == "silent" else 5.0
    try:
        await connection.until(lambda: whole() or connection.ended is not None, timeout_s)
    except TimeoutError:
        ended = "silent"
    else:
        ended = "whole" if whole() else str(connection.ended)
    assert ended == EXPECTED.get(word, "whole")
    if ended == "silent" and word not in ("slow", "early-head"):
        connection.reset()
        await simulator.wait_for(lambda: simulator.requests[0].ended == "peer_left")


@pytest.mark.parametrize("word", sorted(ANSWERS))
async def test_healthy_answers_are_grammatical(simulator: Simulator, word: str) -> None:
    response = await ask(simulator.url, PATH, chat(f"sim-{word}", stream_options={"include_usage": True}))
    parsed = check_chat_stream(response.body, model=f"sim-{word}", usage=True)
    plain = (await ask(simulator.url, PATH, chat(f"sim-{word}", stream=False))).json()
    choice = plain["choices"][0]
    assert (choice["message"]["content"] or "") == parsed.text
    assert choice["message"].get("reasoning_content", "") == parsed.reasoning
    assert choice["finish_reason"] == parsed.finish
    assert plain["usage"] == parsed.usage
    calls = choice["message"].get("tool_calls", [])
    assert [call["function"]["arguments"] for call in calls] == [call.arguments for call in parsed.tool_calls]


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503, 529])
async def test_error_statuses(simulator: Simulator, status: int) -> None:
    response = await ask(simulator.url, PATH, chat(f"sim-{status},retry_after=7"))
    assert response.status == status
    assert response.header("retry-after") == "7"
    assert response.json()["error"]["message"]
    assert simulator.requests[0].produced.output_tokens == 0


async def test_options(simulator: Simulator) -> None:
    name = "sim-text,tokens=5,usage=always,input=100,cached=40,choices=2"
    parsed = check_chat_stream((await ask(simulator.url, PATH, chat(name))).body, usage=True)
    assert parsed.usage is not None
    assert parsed.usage["prompt_tokens_details"] == {"cached_tokens": 40}
    assert (parsed.usage["prompt_tokens"], parsed.usage["completion_tokens"]) == (100, 10)
    assert parsed.texts == (" the of and to in",) * 2


@pytest.mark.parametrize("name", ["sim-nonsense", "sim-text,colour=red", "sim-text,usage=maybe", "sim-399"])
async def test_names_that_do_not_exist(simulator: Simulator, name: str) -> None:
    response = await ask(simulator.url, PATH, chat(name))
    assert response.status == 400


@pytest.mark.parametrize("word", sorted(ENDLESS))
async def test_endless_answers_end_with_the_reader(simulator: Simulator, client: Connect, word: str) -> None:
    connection = await client(simulator.url)
    connection.send(request_bytes(PATH, chat(f"sim-{word}")))
    await connection.until(lambda: len(connection.raw) > 1_000_000)
    connection.reset()
    await simulator.wait_for(lambda: simulator.requests[0].ended == "peer_left")


def test_every_word_is_explained() -> None:
    for name, meaning in words():
        assert meaning
        if name.removeprefix("sim-") in FAULTS:
            assert script_of_model(name) is not None
    assert script_of_model("gpt-5") is None


async def test_huge_event(simulator: Simulator) -> None:
    response = await ask(simulator.url, PATH, chat("sim-huge,bytes=3000000"))
    assert len(check_chat_stream(response.body).text) > 3_000_000


async def test_slow_heads_do_not_disturb_others(simulator: Simulator) -> None:
    slow = asyncio.create_task(ask(simulator.url, PATH, chat("sim-slow-head")))
    assert (await ask(simulator.url, PATH, chat("sim-text"))).complete
    assert (await slow).complete
