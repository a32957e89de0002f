"""The official `openai` Python SDK, unmodified, against a running gate (T3, C1–C7, C9, E1–E4)."""

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam, ChatCompletionToolParam

from tests.gate import RunningGate
from tests.sdk.world import COST_NANO, KEY, POOR_KEY, SLOW_KEYS, TEXT

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Where does water go?"}]
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_level",
        "parameters": {"type": "object", "properties": {"river": {"type": "string"}}},
    },
}


def client(gate: RunningGate, key: str = KEY) -> OpenAI:
    return OpenAI(base_url=f"{gate.url}/v1", api_key=key, max_retries=0, timeout=10.0)


def async_client(gate: RunningGate, key: str = KEY) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gate.url}/v1", api_key=key, max_retries=0, timeout=10.0)


def check_chunks(chunks: list[ChatCompletionChunk]) -> None:
    """Check a streamed PLAIN answer, usage asked for."""
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == "".join(
        TEXT
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert chunks[0].model == "plain"
    *_, last_with_choice, last = chunks
    assert last_with_choice.choices[0].finish_reason == "stop"
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (12, 5, 17)
    assert last.usage.model_extra is not None
    assert last.usage.model_extra["cost_nano_usd"] == COST_NANO
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_streamed(gate: RunningGate) -> None:
    with client(gate) as sdk:
        stream = sdk.chat.completions.create(
            model="plain", messages=ASK, stream=True, stream_options={"include_usage": True}
        )
        check_chunks(list(stream))


def test_streamed_without_usage(gate: RunningGate) -> None:
    with client(gate) as sdk:
        chunks = list(sdk.chat.completions.create(model="plain", messages=ASK, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_streamed_async(gate: RunningGate) -> None:
    async with async_client(gate) as sdk:
        stream = await sdk.chat.completions.create(
            model="plain", messages=ASK, stream=True, stream_options={"include_usage": True}
        )
        check_chunks([chunk async for chunk in stream])


def test_stream_helper(gate: RunningGate) -> None:
    with (
        client(gate) as sdk,
        sdk.chat.completions.stream(
            model="plain", messages=ASK, stream_options={"include_usage": True}
        ) as stream,
    ):
        deltas = [event.delta for event in stream if event.type == "content.delta" and event.delta]
        final = stream.get_final_completion()
    assert deltas == list(TEXT)
    assert final.choices[0].message.content == "".join(TEXT)
    assert final.usage is not None
    assert final.usage.completion_tokens == 5


async def test_stream_helper_async(gate: RunningGate) -> None:
    async with (
        async_client(gate) as sdk,
        sdk.chat.completions.stream(model="plain", messages=ASK) as stream,
    ):
        deltas = [event.delta async for event in stream if event.type == "content.delta" and event.delta]
        final = await stream.get_final_completion()
    assert deltas == list(TEXT)
    assert final.choices[0].finish_reason == "stop"


def test_not_streamed(gate: RunningGate) -> None:
    with client(gate) as sdk:
        raw = sdk.chat.completions.with_raw_response.create(model="plain", messages=ASK)
        answer = raw.parse()
    assert answer.model == "plain"
    assert answer.choices[0].message.content == "".join(TEXT)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.model_extra is not None
    assert answer.usage.model_extra["cost_nano_usd"] == COST_NANO
    assert raw.headers["x-sluicegate-cost-nano-usd"] == str(COST_NANO)
    assert answer._request_id == raw.headers["x-request-id"]


async def test_not_streamed_async(gate: RunningGate) -> None:
    async with async_client(gate) as sdk:
        answer = await sdk.chat.completions.create(model="plain", messages=ASK)
    assert answer.choices[0].message.content == "".join(TEXT)


def test_reasoning_comes_before_the_text(gate: RunningGate) -> None:
    with client(gate) as sdk:
        chunks = list(sdk.chat.completions.create(model="thought", messages=ASK, stream=True))
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    thought = [(delta.model_extra or {}).get("reasoning_content") for delta in deltas]
    assert "".join(piece or "" for piece in thought) == "Rivers run down."
    first_text = next(place for place, delta in enumerate(deltas) if delta.content)
    assert not any(thought[first_text:])


def test_tool_calls_streamed(gate: RunningGate) -> None:
    with (
        client(gate) as sdk,
        sdk.chat.completions.stream(model="calls", messages=ASK, tools=[TOOL]) as stream,
    ):
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert [call.function.arguments for call in calls] == ['{"river": "Elbe"}', '{"river": "Oder"}']
    assert all(call.id and call.function.name == "get_level" for call in calls)
    assert len({call.id for call in calls}) == 2
    assert final.choices[0].finish_reason == "tool_calls"


def test_tool_calls_not_streamed(gate: RunningGate) -> None:
    with client(gate) as sdk:
        answer = sdk.chat.completions.create(model="calls", messages=ASK, tools=[TOOL])
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.tool_calls is not None
    assert len(answer.choices[0].message.tool_calls) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("key", "model", "status", "kind"),
    [
        ("sg-not-a-key-of-this-gate-at-all", "plain", 401, openai.AuthenticationError),
        (POOR_KEY, "plain", 402, openai.APIStatusError),
        (KEY, "no-such-model", 404, openai.NotFoundError),
    ],
)
def test_refused(
    gate: RunningGate, key: str, model: str, status: int, kind: type[openai.APIStatusError], stream: bool
) -> None:
    with client(gate, key) as sdk, pytest.raises(kind) as refused:
        sdk.chat.completions.create(model=model, messages=ASK, stream=stream)
    assert refused.value.status_code == status
    assert refused.value.request_id
    assert isinstance(refused.value.body, dict)
    assert refused.value.body.keys() >= {"message", "type", "code", "param"}


async def test_refused_async(gate: RunningGate) -> None:
    async with async_client(gate, POOR_KEY) as sdk:
        with pytest.raises(openai.APIStatusError) as refused:
            await sdk.chat.completions.create(model="plain", messages=ASK, stream=True)
    assert refused.value.status_code == 402


def test_rate_limited(gate: RunningGate) -> None:
    with client(gate, SLOW_KEYS["python"]) as sdk:
        sdk.chat.completions.create(model="plain", messages=ASK)
        with pytest.raises(openai.RateLimitError) as refused:
            sdk.chat.completions.create(model="plain", messages=ASK)
    assert refused.value.status_code == 429
    assert 1 <= int(refused.value.response.headers["retry-after"]) <= 59


@pytest.mark.parametrize("model", ["fails", "cut"])
def test_failure_in_mid_stream_raises(gate: RunningGate, model: str) -> None:
    seen = []
    with client(gate) as sdk:
        stream = sdk.chat.completions.create(model=model, messages=ASK, stream=True)
        with pytest.raises(openai.APIError):
            seen += [choice.delta.content for chunk in stream for choice in chunk.choices]
    assert "stop" not in seen


async def test_failure_in_mid_stream_raises_async(gate: RunningGate) -> None:
    async with async_client(gate) as sdk:
        stream = await sdk.chat.completions.create(model="fails", messages=ASK, stream=True)
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass
