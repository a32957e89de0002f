"""A tool turn as programs write it with the official SDKs, whose own objects go back as they came. See `test_turns`."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio
from google import genai
from google.genai import types as genai_types

from tests.conftest import KEY
from tests.grid.asked import was_asked
from tests.grid.conftest import Grid, model_of
from tests.grid.scenes import SCENES
from tests.grid.speaking import LIMIT, said
from tests.grid.test_turns import RESULTS, SCENE, WITH_TOOLS, check_second_turn

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.parametrize("stream", [False, True], ids=["plain", "helper"]),
    pytest.mark.parametrize("provider", WITH_TOOLS),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def openai_client(grid: Grid) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{grid.gate.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def body_of(format: str, provider: str, stream: bool) -> dict[str, Any]:
    body = said(format, model_of(provider, SCENE, stream), SCENES[SCENE].prompt, False)
    body.pop("stream", None)
    return body


async def test_chat(grid: Grid, openai_client: openai.AsyncOpenAI, provider: str, stream: bool) -> None:
    chats, body = openai_client.chat.completions, body_of("chat", provider, stream)
    message: Any
    if stream:
        async with chats.stream(**body) as running:
            message = (await running.get_final_completion()).choices[0].message
    else:
        message = (await chats.create(**body)).choices[0].message
    body["messages"].append(message)
    for call, text in zip(message.tool_calls, RESULTS, strict=True):
        body["messages"].append({"role": "tool", "tool_call_id": call.id, "content": text})
    await chats.create(**body)
    check_second_turn(was_asked(grid.asked), provider)


async def test_responses(grid: Grid, openai_client: openai.AsyncOpenAI, provider: str, stream: bool) -> None:
    responses, body = openai_client.responses, body_of("responses", provider, stream)
    answer: Any
    if stream:
        async with responses.stream(**body) as running:
            answer = await running.get_final_response()
    else:
        answer = await responses.create(**body)
    body["input"] += answer.output
    calls = [item for item in answer.output if item.type == "function_call"]
    for call, text in zip(calls, RESULTS, strict=True):
        body["input"].append({"type": "function_call_output", "call_id": call.call_id, "output": text})
    await responses.create(**body)
    check_second_turn(was_asked(grid.asked), provider)


async def test_messages(grid: Grid, provider: str, stream: bool) -> None:
    body = body_of("messages", provider, stream)
    assert body["max_tokens"] == LIMIT
    async with anthropic.AsyncAnthropic(base_url=grid.gate.url, api_key=KEY, max_retries=0) as client:
        answer: Any
        if stream:
            async with client.messages.stream(**body) as running:
                answer = await running.get_final_message()
        else:
            answer = await client.messages.create(**body)
        calls = [block for block in answer.content if block.type == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": text}
            for call, text in zip(calls, RESULTS, strict=True)
        ]
        body["messages"] += [
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": results},
        ]
        await client.messages.create(**body)
    check_second_turn(was_asked(grid.asked), provider)


async def test_gemini(grid: Grid, provider: str, stream: bool) -> None:
    body = body_of("gemini", provider, stream)
    config = genai_types.GenerateContentConfig.model_validate(
        {"systemInstruction": body["systemInstruction"], "tools": body["tools"]}
        | body["generationConfig"]
        | {"automaticFunctionCalling": {"disable": True}}
    )
    options = genai_types.HttpOptions(base_url=grid.gate.url)
    with genai.Client(api_key=KEY, http_options=options) as sync:
        client = sync.aio
        chat = client.chats.create(model=model_of(provider, SCENE, stream), config=config)
        question = genai_types.Part.model_validate(body["contents"][0]["parts"][0])
        calls: list[Any] = []
        if stream:
            async for chunk in await chat.send_message_stream(question):
                calls += chunk.function_calls or ()
        else:
            calls += (await chat.send_message(question)).function_calls or ()
        parts = [
            genai_types.Part(
                function_response=genai_types.FunctionResponse(id=call.id, name=call.name, response=response)
            )
            for call, response in zip(calls, ({"output": RESULTS[0]}, json.loads(RESULTS[1])), strict=True)
        ]
        await chat.send_message(parts)  # type: ignore[arg-type]  # a list of parts is one
        await client.aclose()
    check_second_turn(was_asked(grid.asked), provider)
