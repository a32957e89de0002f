"""A spoken chat answer is kept by its provider for the account that asked for it, and named by an id of ours."""

import json
from typing import Any

import openai
import pytest

from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.script import Done, Event
from tests.conftest import KEY, StartInProcess
from tests.fakes import ask
from tests.grammar.chat import check_chat_stream
from tests.inprocess import InProcessGate
from tests.server.test_kept_state import OTHER_KEY, config_of, sent

CHAT = "/v1/chat/completions"
RAW = "audio_68ab12"
SPOKEN = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
QUESTION = {"role": "user", "content": "Say hello"}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


def _plain() -> Script:
    sound = {"id": RAW, "data": "UklGRg==", "expires_at": 1, "transcript": "Hello"}
    message = {"role": "assistant", "content": None, "audio": sound}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return Script(body=json.dumps(answer | {"usage": USAGE}))


def _streamed() -> Script:
    sounds: list[dict[str, Any]] = [
        {"id": RAW, "transcript": "Hel"},
        {"data": "UklGRg=="},
        {"transcript": "lo"},
    ]
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": None},
        *({"audio": one} for one in sounds),
    ]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {"audio": {"id": RAW, "expires_at": 1}}, "finish_reason": "stop"})
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = [head | {"choices": [choice]} for choice in choices]
    events.append(head | {"choices": [], "usage": USAGE})
    return Script(steps=(*(Event(data=json.dumps(event)) for event in events), Done()))


@pytest.fixture
async def gate(start_inprocess: StartInProcess, simulator: Simulator) -> InProcessGate:
    return await start_inprocess(config_of(simulator, "chat"))


async def speak(gate: InProcessGate, simulator: Simulator, *, stream: bool) -> str:
    """Ask for a spoken answer; return the id that the client is told."""
    simulator.push(_streamed() if stream else _plain())
    body = {"model": "org/m:1", "messages": [QUESTION], "stream": stream, **SPOKEN}
    response = await ask(gate.url, CHAT, body, key=KEY)
    assert response.status == 200
    assert RAW.encode() not in response.body
    if not stream:
        return str(response.json()["choices"][0]["message"]["audio"]["id"])
    check_chat_stream(response.body)
    told = [json.loads(line[6:]) for line in response.body.splitlines() if line.startswith(b"data: {")]
    sounds = [choice["delta"].get("audio", {}) for event in told for choice in event["choices"]]
    assert "".join(sound.get("transcript", "") for sound in sounds) == "Hello"
    (id,) = {sound["id"] for sound in sounds if "id" in sound}
    return str(id)


def history(id: str, **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "audio": {"id": id}, **message}
    return {"model": "org/m:1", "messages": [QUESTION, said, {"role": "user", "content": "Again"}]}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_a_sound_comes_back_to_its_account_alone(
    gate: InProcessGate, simulator: Simulator, stream: bool
) -> None:
    ours = await speak(gate, simulator, stream=stream)
    assert ours.startswith("audio_sg0")
    assert (await ask(gate.url, CHAT, history(ours), key=KEY)).status == 200
    assert sent(simulator)["messages"][1]["audio"]["id"] == RAW
    asked = len(simulator.requests)
    for id, key in ((ours, OTHER_KEY), (RAW, KEY), (ours[:-1] + "!", KEY)):
        told = await ask(gate.url, CHAT, history(id), key=key)
        assert (told.status, told.json()["error"]["param"]) == (404, "messages[1].audio.id")
    assert len(simulator.requests) == asked
    assert [row.usage.input_tokens for row in await gate.wait_for_rows(2)] == [9, 9]


async def test_an_sdk_speaks_on(gate: InProcessGate, simulator: Simulator) -> None:
    simulator.push(_plain())
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{gate.url}/v1", max_retries=0) as client:
        asked: Any = {"model": "org/m:1", **SPOKEN}
        first = await client.chat.completions.create(messages=[QUESTION], **asked)  # type: ignore[list-item]
        sound = first.choices[0].message.audio
        assert sound is not None
        said: Any = {"role": "assistant", "audio": {"id": sound.id}}
        await client.chat.completions.create(messages=[QUESTION, said, QUESTION], **asked)  # type: ignore[list-item]
    assert sent(simulator)["messages"][1]["audio"]["id"] == RAW


async def test_elsewhere_its_transcript_does(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    """Translation matrix, section 5: bound to its vendor; the transcript stands for it where the client sent text."""
    gate = await start_inprocess(config_of(simulator, "messages"))
    response = await ask(gate.url, CHAT, history("audio_sg0AAAA", content="Hello"), key=KEY)
    assert response.status == 200
    assert "messages[1].audio;its transcript is sent" in (response.header("x-sluicegate-dropped") or "")
    refused = await ask(gate.url, CHAT, history("audio_sg0AAAA"), key=KEY)
    assert (refused.status, refused.json()["error"]["param"]) == (400, "messages[1].audio")
