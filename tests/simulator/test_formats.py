"""The official SDKs read what the simulator says in their formats, and all formats say the same."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from anthropic import Anthropic, AsyncAnthropic, BadRequestError
from google import genai
from google.genai import types
from openai import OpenAI

from sluicegate.simulator import Answer, Simulator
from sluicegate.simulator.faults import ANSWERS


class Said(NamedTuple):
    """What a caller of an SDK has in hand at the end."""

    text: str
    reasoning: str
    calls: list[tuple[str, str]]
    finish: str
    input_tokens: int
    output_tokens: int


def _openai(url: str) -> OpenAI:
    return OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)


def ask_chat(url: str, model: str) -> list[Said]:
    said = []
    with _openai(url) as client:
        messages: Any = [{"role": "user", "content": "Hello"}]
        with client.chat.completions.stream(
            model=model, messages=messages, stream_options={"include_usage": True}
        ) as stream:
            final: Any = (
                stream.get_final_completion() if "length" not in model and "filter" not in model else None
            )
        plain: Any = client.chat.completions.create(model=model, messages=messages)
        for answer in (final, plain):
            if answer is None:
                continue
            choice = answer.choices[0]
            calls = [
                (call.function.name, call.function.arguments) for call in choice.message.tool_calls or []
            ]
            said.append(
                Said(
                    (choice.message.content or "") + (choice.message.refusal or ""),
                    getattr(choice.message, "reasoning_content", ""),
                    calls,
                    choice.finish_reason,
                    answer.usage.prompt_tokens,
                    answer.usage.completion_tokens,
                )
            )
    return said


def ask_responses(url: str, model: str) -> list[Said]:
    with _openai(url) as client:
        final: Any = None
        for event in client.responses.create(model=model, input="Hello", stream=True):
            if event.type in ("response.completed", "response.incomplete"):
                final = event.response
        if final.status == "completed":
            with client.responses.stream(model=model, input="Hello") as stream:
                assert stream.get_final_response().status == "completed"
        plain = client.responses.create(model=model, input="Hello")
    return [_said_by_responses(final), _said_by_responses(plain)]


def _said_by_responses(response: Any) -> Said:
    text = reasoning = ""
    calls = []
    for item in response.output:
        if item.type == "message":
            text += "".join(
                part.text if part.type == "output_text" else part.refusal for part in item.content
            )
        elif item.type == "reasoning":
            reasoning += "".join(part.text for part in item.summary)
        else:
            calls.append((item.name, item.arguments))
    finish = "tool_calls" if calls else "stop"
    if response.incomplete_details is not None:
        finish = {"max_output_tokens": "length"}.get(response.incomplete_details.reason, "content_filter")
    return Said(text, reasoning, calls, finish, response.usage.input_tokens, response.usage.output_tokens)


def ask_messages(url: str, model: str) -> list[Said]:
    said = []
    reasons = {
        "end_turn": "stop",
        "max_tokens": "length",
        "tool_use": "tool_calls",
        "refusal": "content_filter",
    }
    with Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "Hello"}]
        with client.messages.stream(model=model, max_tokens=1000, messages=messages) as stream:
            final: Any = stream.get_final_message()
        plain: Any = client.messages.create(model=model, max_tokens=1000, messages=messages)
        for answer in (final, plain):
            usage = answer.usage
            total = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
            said.append(
                Said(
                    "".join(block.text for block in answer.content if block.type == "text"),
                    "".join(block.thinking for block in answer.content if block.type == "thinking"),
                    [
                        (block.name, _spelled(block.input))
                        for block in answer.content
                        if block.type == "tool_use"
                    ],
                    reasons[answer.stop_reason],
                    total,
                    usage.output_tokens,
                )
            )
    return said


def ask_gemini(url: str, model: str) -> list[Said]:
    reasons = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter"}
    options = types.HttpOptions(base_url=url)
    client = genai.Client(api_key="none", http_options=options)
    chunks: list[Any] = list(client.models.generate_content_stream(model=model, contents="Hello"))
    plain: list[Any] = [client.models.generate_content(model=model, contents="Hello")]
    client.close()
    said = []
    for answer in (chunks, plain):
        parts: list[Any] = [part for chunk in answer for part in chunk.candidates[0].content.parts]
        calls = [
            (part.function_call.name, _spelled(part.function_call.args))
            for part in parts
            if part.function_call
        ]
        usage: Any = answer[-1].usage_metadata
        finish = reasons[answer[-1].candidates[0].finish_reason]
        said.append(
            Said(
                "".join(part.text for part in parts if part.text and not part.thought),
                "".join(part.text for part in parts if part.text and part.thought),
                calls,
                "tool_calls" if calls else finish,
                usage.prompt_token_count,
                (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
            )
        )
    return said


def ask_completions(url: str, model: str) -> list[Said]:
    said = []
    with _openai(url) as client:
        options: Any = {"include_usage": True}
        streamed: Any = client.completions.create(
            model=model, prompt="Hello", stream=True, stream_options=options
        )
        chunks = list(streamed)
        plain: Any = client.completions.create(model=model, prompt="Hello")
    with_choice = [chunk.choices[0] for chunk in chunks if chunk.choices]
    joined = "".join(choice.text for choice in with_choice)
    for text, choice, usage in (
        (joined, with_choice[-1], chunks[-1].usage),
        (plain.choices[0].text, plain.choices[0], plain.usage),
    ):
        said.append(Said(text, "", [], choice.finish_reason, usage.prompt_tokens, usage.completion_tokens))
    return said


def _spelled(arguments: dict[str, Any]) -> str:
    return "{" + ", ".join(f'"{name}": "{value}"' for name, value in arguments.items()) + "}"


FORMATS: dict[str, Callable[[str, str], list[Said]]] = {
    "chat": ask_chat,
    "completions": ask_completions,
    "responses": ask_responses,
    "messages": ask_messages,
    "gemini": ask_gemini,
}


def truth(answer: Answer, format: str) -> Said:
    """Return what every caller should have in hand."""
    usage = answer.truth()
    assert usage.input_tokens is not None
    assert usage.output_tokens is not None
    calls = [(call.name, call.joined()) for call in answer.tool_calls]
    finish: str = answer.finish
    if format == "completions":
        calls, finish = [], "stop" if answer.finish == "tool_calls" else answer.finish
    text = "".join(answer.text + answer.refusal)
    reasoning = "" if format == "completions" else "".join(answer.reasoning)
    return Said(text, reasoning, calls, finish, usage.input_tokens, usage.output_tokens)


@pytest.mark.parametrize("word", sorted(ANSWERS.keys() - {"paused"}))
@pytest.mark.parametrize("format", sorted(FORMATS))
async def test_sdks_read_all_answers(simulator: Simulator, format: str, word: str) -> None:
    said = await asyncio.to_thread(FORMATS[format], simulator.url, f"sim-{word}")
    for one in said:
        assert one == truth(ANSWERS[word][1], format)


async def test_a_gemini_answer_that_is_broken_off_is_gone_on_with_by_the_sdk(simulator: Simulator) -> None:
    answer = ANSWERS["paused"][1]
    said = await asyncio.to_thread(ask_gemini, simulator.url, "sim-paused")
    calls = len(answer.text) // answer.pause_after
    for one in said:
        assert one == truth(answer, "gemini")._replace(input_tokens=answer.input_tokens * calls)
    assert len(simulator.requests) == 2 * calls


async def test_a_turn_of_messages_that_is_paused_goes_on_from_its_own_content(simulator: Simulator) -> None:
    messages: list[Any] = [{"role": "user", "content": "Hello"}]
    text = ""
    async with AsyncAnthropic(base_url=simulator.url, api_key="none", max_retries=0) as client:
        for _ in range(4):
            answer: Any = await client.messages.create(model="sim-paused", max_tokens=1000, messages=messages)
            text += "".join(block.text for block in answer.content)
            if answer.stop_reason != "pause_turn":
                break
            messages = [messages[0], {"role": "assistant", "content": [{"type": "text", "text": text}]}]
        assert (text, answer.stop_reason) == ("".join(ANSWERS["paused"][1].text), "end_turn")
        messages[-1]["content"][0]["text"] = "what nobody said"
        with pytest.raises(BadRequestError):
            await client.messages.create(model="sim-paused", max_tokens=1000, messages=messages)
