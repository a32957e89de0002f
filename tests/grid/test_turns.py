"""A tool turn there and back, every client format at every provider format that has tools: what the model said comes
back to it whole, its opaque state byte for byte. Contract X1; wire formats page `translation-matrix.md`, 9, 10 and 12.
"""

import json

import pytest

from sluicegate.simulator import ToolCall
from tests.conftest import KEY
from tests.fakes import ask
from tests.grid.asked import WasAsked, was_asked
from tests.grid.conftest import Grid, model_of
from tests.grid.scenes import CALLS, PNG, QUESTION, SCENES, SIGNATURE
from tests.grid.speaking import Body, heard_plain, heard_stream, path_of, said, stream_events
from tests.grid.turns import Result, said_back

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCENE = "thought-calls"
RESULTS = ('high "tide"', '{"time": "12:00", "steps": [1, 2.50, 12345678901234567890123]}')
WITH_TOOLS = ("chat", "responses", "messages", "gemini")
SIGNED = ("responses", "messages", "gemini")
"""Formats in which the provider signs its thoughts."""


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("provider", WITH_TOOLS)
@pytest.mark.parametrize("client", WITH_TOOLS)
async def test_tool_turn(grid: Grid, client: str, provider: str, stream: bool) -> None:
    model = model_of(provider, SCENE, stream)
    path = path_of(client, model, stream)
    body = said(client, model, SCENES[SCENE].prompt, stream)
    first = await ask(grid.gate.url, path, body, key=KEY)
    heard = (heard_stream if stream else heard_plain)(client, first, model)
    results = [Result(call, text) for call, text in zip(heard.calls, RESULTS, strict=True)]
    answer = stream_events(client, first) if stream else first.json()
    second = await ask(grid.gate.url, path, said_back(client, body, answer, results), key=KEY)
    assert second.status == 200, second.body
    check_second_turn(was_asked(grid.asked), provider)


HISTORIES: dict[str, Body] = {
    "responses": {
        "input": [
            {"role": "user", "content": QUESTION},
            *(
                {"type": "function_call", "call_id": f"call_{place}", "name": name, "arguments": "{}"}
                for place, name in enumerate(("get_level", "get_time"))
            ),
            {"type": "function_call_output", "call_id": "call_0", "output": "[tool error] no such river"},
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [
                    {"type": "input_text", "text": "12:00"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                ],
            },
        ]
    },
    "messages": {
        "messages": [
            {"role": "user", "content": QUESTION},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": f"call_{place}", "name": name, "input": {}}
                    for place, name in enumerate(("get_level", "get_time"))
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_0",
                        "content": "no such river",
                        "is_error": True,
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "content": [
                            {"type": "text", "text": "12:00"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                            },
                        ],
                    },
                ],
            },
        ]
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": QUESTION}]},
            {
                "role": "model",
                "parts": [
                    {"functionCall": {"id": f"call_{place}", "name": name, "args": {}}}
                    for place, name in enumerate(("get_level", "get_time"))
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "call_0",
                            "name": "get_level",
                            "response": {"error": "no such river"},
                        }
                    },
                    {
                        "functionResponse": {
                            "id": "call_1",
                            "name": "get_time",
                            "response": {"output": "12:00"},
                            "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}],
                        }
                    },
                ],
            },
        ]
    },
}
"""Formats whose results may be errors or hold pictures: one of each."""


@pytest.mark.parametrize("provider", WITH_TOOLS)
@pytest.mark.parametrize("client", HISTORIES)
async def test_an_error_and_a_picture_as_results(grid: Grid, client: str, provider: str) -> None:
    model = model_of(provider, "tools", False)
    body = said(client, model, SCENES["tools"].prompt, False) | HISTORIES[client]
    response = await ask(grid.gate.url, path_of(client, model, False), body, key=KEY)
    assert response.status == 200, response.body
    asked = was_asked(grid.asked)
    failed, fine = asked.of("result")
    assert (failed.id, failed.value) == ("call_0", "[tool error] no such river")
    assert (fine.id, fine.value.split("\n")[0]) == ("call_1", "12:00")
    assert [turn.value for turn in asked.of("image")] == [PNG]
    places = [turn.kind for turn in asked.turns]
    assert places.index("image") > places.index("result", places.index("result") + 1)


@pytest.mark.parametrize("provider", WITH_TOOLS)
async def test_a_client_that_drops_what_it_does_not_know(grid: Grid, provider: str) -> None:
    """Chat clients usually do: the gate remembers the state by the calls it belongs to."""
    model = model_of(provider, SCENE, False)
    path = path_of("chat", model, False)
    body = said("chat", model, SCENES[SCENE].prompt, False)
    first = await ask(grid.gate.url, path, body, key=KEY)
    answer = first.json()
    message = answer["choices"][0]["message"]
    answer["choices"][0]["message"] = {name: message[name] for name in ("role", "content", "tool_calls")}
    calls = heard_plain("chat", first, model).calls
    results = [Result(call, text) for call, text in zip(calls, RESULTS, strict=True)]
    second = await ask(grid.gate.url, path, said_back("chat", body, answer, results), key=KEY)
    assert second.status == 200, second.body
    check_second_turn(was_asked(grid.asked), provider)


def check_second_turn(asked: WasAsked, provider: str) -> None:
    """Check what the provider was asked with the results."""
    assert [turn.value for turn in asked.of("text")] == [QUESTION]
    calls, results = asked.of("call"), asked.of("result")
    assert [turn.value for turn in calls] == [spelled(call) for call in CALLS]
    assert [turn.id for turn in calls] == ["call_first", "call_second"]
    assert [turn.id for turn in results] == ["call_first", "call_second"]
    assert results[0].value == RESULTS[0]
    assert json.loads(results[1].value) == json.loads(RESULTS[1])
    kinds = [turn.kind for turn in asked.turns if turn.kind not in ("thought", "opaque")]
    assert kinds == ["text", "call", "call", "result", "result"]
    if provider in SIGNED:
        assert [turn.value for turn in asked.of("opaque")] == [SIGNATURE]
    if provider == "messages":
        assert "".join(turn.value for turn in asked.of("thought")) == "Two calls."


def spelled(call: ToolCall) -> str:
    """Return a call as `was_asked` spells it."""
    return f"{call.name} {json.dumps(json.loads(call.joined()), sort_keys=True)}"
