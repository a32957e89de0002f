"""The official Python SDKs on answers that a provider pauses: one answer to each, helpers included; the Gemini SDK
on its own format goes on by itself.

Translation matrix, sections 22 and 24; wire formats page `gemini.md`, "Response".
"""

from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from sluicegate.messages import Format
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.answer import Answer
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.inprocess import InProcessGate

WORDS = tuple(f" w{place}" for place in range(10))
TEXT = "".join(WORDS)
PAUSED: list[Format] = ["messages", "gemini"]


async def start(started: StartInProcess, simulator: Simulator, format: Format) -> InProcessGate:
    provider = {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
    model = {"routes": [{"provider": "sim", "model": "up"}], "price": PRICE}
    simulator.push(Script(answer=Answer(text=WORDS, pause_after=4, input_tokens=40)), times=None)
    return await started(make_config(simulator, providers={"sim": provider}, models={"m": model}))


async def check(gate: InProcessGate, provider: Format, output_tokens: int, simulator: Simulator) -> None:
    """One row, of all three calls."""
    (row,) = await gate.wait_for_rows(1)
    read = 40 + 44 + 48 if provider == "messages" else 120
    assert (row.status, row.usage.input_tokens, row.usage.output_tokens) == ("ok", read, 10)
    assert row.cost_nano_usd == read * 1000 + 10 * 2000
    assert output_tokens == 10
    assert len(simulator.requests) == 3


@pytest.mark.parametrize("provider", PAUSED)
async def test_t3_chat(start_inprocess: StartInProcess, simulator: Simulator, provider: Format) -> None:
    gate = await start(start_inprocess, simulator, provider)
    async with (
        openai.AsyncOpenAI(api_key=KEY, base_url=f"{gate.url}/v1", max_retries=0) as client,
        client.chat.completions.stream(
            model="m",
            messages=[{"role": "user", "content": "Hello"}],
            stream_options={"include_usage": True},
            web_search_options={},
        ) as events,
    ):
        answer: Any = await events.get_final_completion()
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == (TEXT, "stop")
    await check(gate, provider, answer.usage.completion_tokens, simulator)


@pytest.mark.parametrize("provider", PAUSED)
async def test_t3_responses(start_inprocess: StartInProcess, simulator: Simulator, provider: Format) -> None:
    gate = await start(start_inprocess, simulator, provider)
    async with (
        openai.AsyncOpenAI(api_key=KEY, base_url=f"{gate.url}/v1", max_retries=0) as client,
        client.responses.stream(
            model="m", input="Hello", tools=[{"type": "web_search"}], store=False
        ) as events,
    ):
        answer: Any = await events.get_final_response()
    assert (answer.output_text, answer.status) == (TEXT, "completed")
    await check(gate, provider, answer.usage.output_tokens, simulator)


async def test_t3_messages_at_gemini(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    gate = await start(start_inprocess, simulator, "gemini")
    async with (
        anthropic.AsyncAnthropic(api_key=KEY, base_url=gate.url, max_retries=0) as client,
        client.messages.stream(
            model="m", max_tokens=1000, messages=[{"role": "user", "content": "Hello"}]
        ) as events,
    ):
        answer = await events.get_final_message()
    assert "".join(block.text for block in answer.content if block.type == "text") == TEXT
    assert answer.stop_reason == "end_turn"
    await check(gate, "gemini", answer.usage.output_tokens, simulator)


async def test_t3_gemini_at_messages(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    gate = await start(start_inprocess, simulator, "messages")
    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=gate.url))
    config = types.GenerateContentConfig(tools=[types.Tool(google_search=types.GoogleSearch())])
    text, last = "", None
    async for chunk in await client.aio.models.generate_content_stream(
        model="m", contents="Hello", config=config
    ):
        text += chunk.text or ""
        last = chunk
    await client.aio.aclose()
    assert last is not None
    assert last.candidates is not None
    assert (text, last.candidates[0].finish_reason) == (TEXT, types.FinishReason.STOP)
    usage: Any = last.usage_metadata
    await check(gate, "messages", usage.candidates_token_count, simulator)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_gemini_on_its_own_format_goes_on_by_itself(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, "gemini")
    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=gate.url))
    text, usage = "", None
    if stream:
        async for chunk in await client.aio.models.generate_content_stream(model="m", contents="Hello"):
            text += chunk.text or ""
            usage = chunk.usage_metadata or usage
    else:
        answer = await client.aio.models.generate_content(model="m", contents="Hello")
        text, usage = answer.text or "", answer.usage_metadata
    await client.aio.aclose()
    assert text == TEXT
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count) == (120, 10)
    rows = await gate.wait_for_rows(3)
    assert [row.usage.output_tokens for row in rows] == [4, 4, 2]
    assert [request.json.get("continuationToken") is None for request in simulator.requests] == [
        True, False, False,
    ]  # fmt: skip
