"""Opaque state that a client does not carry is found again by its tool call, for its account alone."""

from typing import Any

import pytest

from sluicegate.messages import Message, Opaque, Reasoning, Text, ToolCall
from sluicegate.server.thoughts import LIFE_S, MAX_BYTES, Thought, ThoughtMemory, restore
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.answer import ToolCall as SimulatedCall
from sluicegate.simulator.script import Script
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import ask
from tests.inprocess import InProcessGate

SIGNATURE = "U0lHTkFUVVJF"
OTHER_KEY = "sg-other-key-0123456789abc"
THOUGHTFUL = Answer(
    reasoning=("Let me", " see"),
    signature=SIGNATURE,
    tool_calls=(SimulatedCall(name="f", arguments=('{"a":', "1}"), id="call_1"),),
    finish="tool_calls",
)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
ASK = {"role": "user", "content": "Hello"}
CALLS = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]
NEXT = [
    ASK,
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "call_1", "content": "2"},
]


def signed(value: str = "s") -> Opaque:
    return Opaque(vendor="anthropic", kind="signature", value=value)


def thought(value: str = "s") -> Thought:
    return Thought((Reasoning(text="so", opaque=signed(value)),), None)


def test_it_is_forgotten_after_an_hour_and_is_nobody_elses() -> None:
    memory = ThoughtMemory()
    memory.remember("a", "c", thought(), 0.0)
    assert memory.recall("a", "c", LIFE_S - 1) == thought()
    assert memory.recall("b", "c", 1.0) is None
    assert memory.recall("a", "c", LIFE_S) is None


def test_it_is_bounded() -> None:
    memory = ThoughtMemory()
    big = thought("x" * 1_000_000)
    for number in range(2 * MAX_BYTES // 1_000_000):
        memory.remember("a", str(number), big, 0.0)
    kept = [n for n in range(2 * MAX_BYTES // 1_000_000) if memory.recall("a", str(n), 1.0) is not None]
    assert 20 <= len(kept) <= MAX_BYTES // 1_000_000
    assert kept[-1] == 2 * MAX_BYTES // 1_000_000 - 1


def test_thoughts_that_are_carried_stay_as_they_are() -> None:
    memory = ThoughtMemory()
    memory.remember("a", "c", thought("remembered"), 0.0)
    call = ToolCall(id="c", name="f", arguments="{}")
    carried = Message(role="assistant", parts=[Reasoning(text="t", opaque=signed("carried")), call])
    assert restore([carried], memory, "a", 1.0) == [carried]
    bare = Message(role="assistant", parts=[Reasoning(text="shown"), Text(text="x"), call])
    (restored,) = restore([bare], memory, "a", 1.0)
    assert restored.parts == [Text(text="x"), Reasoning(text="so", opaque=signed("remembered")), call]


@pytest.fixture
async def gate(start_inprocess: StartInProcess, simulator: Simulator) -> InProcessGate:
    capabilities = {"reasoning": "budget"}
    return await start_inprocess(
        make_config(
            simulator,
            providers={"sim": {"base_url": simulator.base_url, "speaks": ["messages"], "auth": "none"}},
            models={
                "m": {
                    "routes": [{"provider": "sim", "model": "m"}],
                    "price": PRICE,
                    "capabilities": capabilities,
                }
            },
            keys=[
                {"name": "one", "key": KEY, "balance_usd": 5},
                {"name": "two", "key": OTHER_KEY, "balance_usd": 5},
            ],
        )
    )


def chat(messages: list[dict[str, Any]], *, stream: bool) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": messages,
        "tools": TOOLS,
        "stream": stream,
        "reasoning_effort": "medium",
        "max_completion_tokens": 20_000,
    }


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_a_chat_client_that_drops_everything_keeps_its_thoughts(
    gate: InProcessGate, simulator: Simulator, stream: bool
) -> None:
    simulator.push(Script(answer=THOUGHTFUL), times=None)
    first = await ask(gate.url, "/v1/chat/completions", chat([ASK], stream=stream), key=KEY)
    assert first.status == 200, first.body
    for key in (KEY, OTHER_KEY):
        response = await ask(gate.url, "/v1/chat/completions", chat(NEXT, stream=stream), key=key)
        assert response.status == 200, response.body
    told = [request.json["messages"] for request in simulator.requests]
    blocks = [block for message in told[1] if message["role"] == "assistant" for block in message["content"]]
    assert blocks[0] == {"type": "thinking", "thinking": "Let me see", "signature": SIGNATURE}
    assert blocks[1]["type"] == "tool_use"
    strangers = [
        block["type"] for message in told[2] if message["role"] == "assistant" for block in message["content"]
    ]
    assert strangers == ["tool_use"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_a_gemini_client_that_sends_no_thoughts_back_keeps_them(
    gate: InProcessGate, simulator: Simulator, stream: bool
) -> None:
    """Gemini CLI does so, and marks its calls as signed by nobody."""
    simulator.push(Script(answer=THOUGHTFUL), times=None)
    path = f"/v1beta/models/m:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"
    call = {"functionCall": {"id": "call_1", "name": "f", "args": {"a": 1}}}
    turns = [
        {"role": "user", "parts": [{"text": "Hello"}]},
        {"role": "model", "parts": [call | {"thoughtSignature": "skip_thought_signature_validator"}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "call_1", "name": "f", "response": {"output": "2"}}}],
        },
    ]
    asked = {
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
        "generationConfig": {"maxOutputTokens": 20_000, "thinkingConfig": {"thinkingBudget": 8192}},
    }
    for contents in (turns[:1], turns):
        response = await ask(gate.url, path, {"contents": contents, **asked}, key=KEY)
        assert response.status == 200, response.body
    told = [request.json["messages"] for request in simulator.requests][1]
    blocks = [block for message in told if message["role"] == "assistant" for block in message["content"]]
    assert blocks[0] == {"type": "thinking", "thinking": "Let me see", "signature": SIGNATURE}
    assert blocks[1]["type"] == "tool_use"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_a_responses_client_that_refers_to_thoughts_keeps_them(
    gate: InProcessGate, simulator: Simulator, stream: bool
) -> None:
    """The Vercel AI SDK does so unless it is told `store: false`."""
    simulator.push(Script(answer=THOUGHTFUL), times=None)
    items: list[dict[str, Any]] = [
        ASK,
        {"type": "item_reference", "id": "rs_1"},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "2"},
    ]
    asked = {
        "model": "m",
        "stream": stream,
        "tools": [{"type": "function", "name": "f"}],
        "reasoning": {"effort": "medium"},
        "max_output_tokens": 20_000,
    }
    for given in (items[:1], items):
        response = await ask(gate.url, "/v1/responses", {"input": given, **asked}, key=KEY)
        assert response.status == 200, response.body
    told = [request.json["messages"] for request in simulator.requests][1]
    blocks = [block for message in told if message["role"] == "assistant" for block in message["content"]]
    assert blocks[0] == {"type": "thinking", "thinking": "Let me see", "signature": SIGNATURE}
    assert blocks[1]["type"] == "tool_use"
    refused = await ask(
        gate.url,
        "/v1/responses",
        {"input": [ASK, {"type": "item_reference", "id": "msg_1"}], **asked},
        key=KEY,
    )
    assert (refused.status, refused.json()["error"]["param"]) == (400, "input[1]")
