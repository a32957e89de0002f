"""Needs of the official Python SDKs that are about one thing each, at a running gate. See `needs.toml`."""

import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pydantic
import pytest
import pytest_asyncio
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from sluicegate.simulator import Script, Send, Simulator, Stall, Wait
from tests.cases.framed import STREAMS
from tests.cases.frames import CALLED as END_CALLED
from tests.cases.frames import (
    DONE,
    WEATHER,
    block,
    call,
    calls,
    chunk,
    completion,
    data,
    dumps,
    generated,
    message_end,
    message_start,
    metadata,
    text,
    usage,
)
from tests.cases.world import CLOCKS, World, configuration
from tests.conftest import KEY, PRICE
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.sdks import SdkError, Sdks, told_by
from tests.grid.speaking import wording
from tests.inprocess import in_process_gate

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK: Any = [{"role": "user", "content": "Where does water go?"}]
POOR = "sg-poor-key-0123456789abcdef"
SLOW = "sg-slow-key-0123456789abcdef"
CLIENTS = ("chat", "completions", "responses", "messages", "gemini")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A gate with quick keep-alives, a key without money and one with a limit."""
    async with Simulator() as simulator:
        config = configuration(simulator, stream=CLOCKS)
        config["server"] |= {"keepalive_after": "100ms", "keepalive_every": "100ms"}
        config["models"]["named"] = {"routes": [{"provider": "chat", "model": "sim-text"}], "price": PRICE}
        config["keys"] += [
            {"name": "poor", "key": POOR, "balance_usd": 0},
            {"name": "slow", "key": SLOW, "balance_usd": 5, "rpm": 1},
        ]
        gate = in_process_gate(tmp_path_factory.mktemp("needs"), config)
        async with gate.running():
            yield World(gate, simulator)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sdks(world: World) -> AsyncIterator[Sdks]:
    async with Sdks.at(world.gate.url) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def chatting(world: World) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{world.gate.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


# ---- strict tools of the chat helper --------------------------------------------------------------------------------


class F(pydantic.BaseModel):
    city: str


class G(pydantic.BaseModel):
    n: int


class Nothing(pydantic.BaseModel):
    pass


STRICT = [openai.pydantic_function_tool(F, name="f"), openai.pydantic_function_tool(G, name="g")]
INTERLEAVED = (
    calls(call(0, "A", "f", ""))
    + calls(call(1, "B", "g", ""))
    + calls(call(0, None, None, '{"city":'))
    + calls(call(1, None, None, '{"n":'))
    + calls(call(0, None, None, '"Oslo"}'))
    + calls(call(1, None, None, "1}"))
    + END_CALLED
)


async def test_strict_tools_of_interleaved_calls(world: World, chatting: openai.AsyncOpenAI) -> None:
    world.plays("interleaved", INTERLEAVED)
    fired: list[str] = []
    async with chatting.chat.completions.stream(
        model="chat/interleaved", messages=ASK, tools=STRICT
    ) as stream:
        async for event in stream:
            if event.type == "tool_calls.function.arguments.done":
                fired.append(event.name)
        final = await stream.get_final_completion()
    called = final.choices[0].message.tool_calls
    assert called is not None
    assert [each.function.parsed_arguments for each in called] == [F(city="Oslo"), G(n=1)]
    assert fired == ["f", "g"]


@pytest.mark.parametrize("provider", ["chat", "responses", "messages", "gemini"])
async def test_strict_tools_without_arguments(
    world: World, chatting: openai.AsyncOpenAI, provider: str
) -> None:
    from tests.cases.frames import CREATED, call_item, called_item, completed, function_call, tool_block

    bodies = {
        "chat": calls(call(0, "A", "f", "")) + END_CALLED,
        "responses": CREATED
        + called_item(0, "fc_1", "A", "f")
        + completed([call_item("fc_1", "A", "f", "")]),
        "messages": message_start() + tool_block(0, "A", "f") + message_end("tool_use"),
        "gemini": data(generated(function_call("f", {}), finish="STOP", usageMetadata=metadata())),
    }
    never = {
        "chat": calls({"index": 0, "id": "A", "type": "function", "function": {"name": "f"}}) + END_CALLED
    }
    tools = [openai.pydantic_function_tool(Nothing, name="f")]
    for name, body in {"empty": bodies[provider], "never": never.get(provider, bodies[provider])}.items():
        world.plays(f"{name}-arguments-{provider}", body)
        model = f"{provider}/{name}-arguments-{provider}"
        async with chatting.chat.completions.stream(model=model, messages=ASK, tools=tools) as stream:
            final = await stream.get_final_completion()
        (called,) = final.choices[0].message.tool_calls or ()
        assert (called.function.arguments, called.function.parsed_arguments) == ("{}", Nothing())


async def test_the_helpers_message_says_all_once(world: World, chatting: openai.AsyncOpenAI) -> None:
    """Roles, ids and names that come again would be glued together."""
    body = (
        chunk({"role": "assistant", "content": ""})
        + calls(call(0, "k", "f", '{"city":'), role="assistant")
        + calls(call(0, "k", "f", '"Oslo"}'), role="assistant")
        + END_CALLED
    )
    world.plays("repeated", body)
    async with chatting.chat.completions.stream(model="chat/repeated", messages=ASK, tools=STRICT) as stream:
        final = await stream.get_final_completion()
    message = final.choices[0].message
    (called,) = message.tool_calls or ()
    assert (message.role, called.id, called.function.name) == ("assistant", "k", "f")
    assert called.function.parsed_arguments == F(city="Oslo")


async def test_choices_come_in_order(world: World, chatting: openai.AsyncOpenAI) -> None:
    second = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": None}]}
    ends = [{"index": place, "delta": {}, "finish_reason": "stop"} for place in (1, 0)]
    body = (
        chunk(None, **second) + text("a") + chunk(None, choices=ends) + chunk(None, usage=usage(3, 2)) + DONE
    )
    world.plays("second-first", body)
    async with chatting.chat.completions.stream(
        model="chat/second-first", messages=ASK, n=2, stream_options={"include_usage": True}
    ) as stream:
        final = await stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == ["a", "b"]
    assert final.usage is not None
    assert final.usage.completion_tokens == 2


def thought_block(index: int, words: str, signature: str) -> bytes:
    """Return a block of thought in a Messages stream."""
    start = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = (
        {"type": "thinking_delta", "thinking": words},
        {"type": "signature_delta", "signature": signature},
    )
    return block(index, start, *deltas)


async def test_states_of_reasoning_in_lists_with_an_index(world: World, chatting: openai.AsyncOpenAI) -> None:
    """The helper refuses a second delta of a list whose entries have none."""
    thought = {"type": "thinking", "thinking": "", "signature": ""}
    body = (
        message_start()
        + block(
            0,
            thought,
            {"type": "thinking_delta", "thinking": "a"},
            {"type": "signature_delta", "signature": "U0c="},
        )
        + block(
            1,
            thought,
            {"type": "thinking_delta", "thinking": "b"},
            {"type": "signature_delta", "signature": "Uzg="},
        )
        + block(2, {"type": "redacted_thinking", "data": "RU5D"})
        + block(3, {"type": "text", "text": ""}, {"type": "text_delta", "text": "X"})
        + message_end()
    )
    world.plays("two-thoughts", body)
    async with chatting.chat.completions.stream(
        model="messages/two-thoughts", messages=ASK, reasoning_effort="low"
    ) as stream:
        final = await stream.get_final_completion()
    extra = final.choices[0].message.model_extra or {}
    assert extra["reasoning_content"] == "ab"
    assert [entry["index"] for entry in extra["reasoning_details"]] == [0, 1, 2]


async def test_custom_calls_only_for_who_asked(world: World, chatting: openai.AsyncOpenAI) -> None:
    """The helper knows no deltas of custom calls: functions stay functions."""
    world.plays("plain-function", calls(call(0, "k", "f", WEATHER)) + END_CALLED)
    stream = await chatting.chat.completions.create(
        model="chat/plain-function", messages=ASK, stream=True, tools=STRICT
    )
    kinds = [
        entry.type
        async for each in stream
        for choice in each.choices
        for entry in choice.delta.tool_calls or ()
    ]
    assert kinds[0] == "function"
    assert set(kinds) <= {"function", None}


# ---- silence, keep-alives, and failures behind them -----------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", FORMATS)
async def test_keep_alives_are_survived(world: World, sdks: Sdks, client: str, provider: str) -> None:
    start = STREAMS[provider].partition(b"Hello")[0].rpartition(b"\n\n")
    first = start[0] + start[1]
    upstream = f"slow-{client}-{provider}"
    steps = (Send(data=first), Wait(s=0.4), Send(data=STREAMS[provider][len(first) :]))
    world.simulator.push(Script(steps=steps), model=upstream, times=None)
    for way in ("raw", "helper") if client != "completions" else ("raw",):
        heard = await sdks.ask(client, f"{provider}/{upstream}", Prompt(), way)  # type: ignore[arg-type]
        assert heard.text == "Hello world"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", FORMATS)
async def test_an_error_may_be_the_first_event(world: World, sdks: Sdks, client: str, provider: str) -> None:
    upstream = f"slow-fail-{client}-{provider}"
    start = STREAMS[provider].partition(b"Hello")[0].rpartition(b"\n\n")
    steps = (Send(data=start[0] + start[1]), Wait(s=0.4))
    world.simulator.push(Script(steps=steps), model=upstream, times=None)
    for way in ("raw", "helper") if client != "completions" else ("raw",):
        with pytest.raises(SdkError) as failure:
            await sdks.ask(client, f"{provider}/{upstream}", Prompt(), way)  # type: ignore[arg-type]
        assert told_by(failure.value).word == wording(client, "upstream_error")[1]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", FORMATS)
async def test_the_body_ends_with_its_last_event(
    world: World, sdks: Sdks, client: str, provider: str
) -> None:
    """Readers wait for the end of the body, and the gate does not wait for the provider's."""
    upstream = f"open-{client}-{provider}"
    world.simulator.push(Script(steps=(Send(data=STREAMS[provider]), Stall())), model=upstream, times=None)
    began = time.monotonic()
    heard = await sdks.ask(client, f"{provider}/{upstream}", Prompt(), "raw")
    assert heard.text == "Hello world"
    assert time.monotonic() - began < 3.0


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", ["chat", "gemini"])
async def test_one_object_instead_of_a_stream(world: World, sdks: Sdks, client: str, provider: str) -> None:
    """SDKs see no event in it, and no error: so it is told as the stream that was asked for."""
    whole = {
        "chat": completion({"content": "Hello"}),
        "gemini": generated({"text": "Hello"}, finish="STOP", usageMetadata=metadata()),
    }[provider]
    upstream = f"whole-{client}-{provider}"
    json_type = (("content-type", "application/json"),)
    world.simulator.push(Script(headers=json_type, body=dumps(whole)), model=upstream, times=None)
    heard = await sdks.ask(client, f"{provider}/{upstream}", Prompt(), "raw")
    assert heard.text == "Hello"


# ---- errors before the stream ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["chat", "completions", "responses", "messages"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_final_errors_are_not_sent_again(world: World, client: str, stream: bool) -> None:
    """`x-should-retry` is obeyed by two vendors' SDKs: without money there is no use in asking again."""
    asked: list[httpx2.Request] = []

    async def count(request: httpx2.Request) -> None:
        asked.append(request)

    async with httpx2.AsyncClient(event_hooks={"request": [count]}) as http:
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as refused:
            await create(world, client, POOR, http, stream)
    assert refused.value.status_code == 402
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert len(asked) == 1


@pytest.mark.parametrize("client", ["chat", "messages"])
async def test_limits_are_waited_for(world: World, client: str) -> None:
    """`retry-after` of 1 to 59 seconds is what every SDK obeys."""
    async with httpx2.AsyncClient() as http:
        refused = None
        for _ in range(3):
            try:
                await create(world, client, SLOW, http, False, max_retries=0)
            except (openai.RateLimitError, anthropic.RateLimitError) as error:
                refused = error
    assert refused is not None
    headers = refused.response.headers
    assert 1 <= int(headers["retry-after"]) <= 59
    assert headers.get("x-should-retry") != "false"
    assert "retry-after-ms" not in headers or int(headers["retry-after-ms"]) > 0


async def create(
    world: World, client: str, key: str, http: httpx2.AsyncClient, stream: bool, max_retries: int = 2
) -> Any:
    """Ask with an SDK that may try again."""
    kind = anthropic.AsyncAnthropic if client == "messages" else openai.AsyncOpenAI
    base = world.gate.url + ("" if client == "messages" else "/v1")
    sdk: Any = kind(base_url=base, api_key=key, http_client=http, max_retries=max_retries)
    model = "chat/any"
    match client:
        case "messages":
            return await sdk.messages.create(model=model, messages=ASK, max_tokens=9, stream=stream)
        case "responses":
            return await sdk.responses.create(model=model, input="Hi", stream=stream)
        case "completions":
            return await sdk.completions.create(model=model, prompt="Hi", stream=stream)
        case _:
            return await sdk.chat.completions.create(model=model, messages=ASK, stream=stream)


# ---- Gemini's own ---------------------------------------------------------------------------------------------------


@pytest.fixture
def google(world: World) -> Iterator[genai.Client]:
    with genai.Client(api_key=KEY, http_options=genai_types.HttpOptions(base_url=world.gate.url)) as client:
        yield client


async def test_gemini_gets_types_that_it_can_read(world: World, google: genai.Client) -> None:
    """Arguments that are objects, signatures in base64 and whole counts, or the SDK dies: from another vendor too."""
    body = (
        message_start()
        + thought_block(0, "a", "not-base64!/é")
        + block(1, {"type": "tool_use", "id": "k", "name": "f", "input": {}})
        + message_end("tool_use")
    )
    world.plays("foreign", body)
    config = genai_types.GenerateContentConfig(
        thinking_config=genai_types.ThinkingConfig(include_thoughts=True, thinking_budget=2000),
        automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
    )
    stream = await google.aio.models.generate_content_stream(
        model="messages/foreign", contents="Hi", config=config
    )
    parts = [part async for each in stream for part in (each.candidates or [])[0].content.parts or ()]  # type: ignore[union-attr]
    assert any(part.thought_signature for part in parts)
    (called,) = [part.function_call for part in parts if part.function_call]
    assert called.args == {}
    assert isinstance(called.name, str)
    await google.aio.aclose()


async def test_gemini_in_the_other_vendors_mode(world: World) -> None:
    options = genai_types.HttpOptions(base_url=world.gate.url)
    with genai.Client(vertexai=True, api_key=KEY, http_options=options) as client:
        answer = await client.aio.models.generate_content(model="named", contents="Hi")
        await client.aio.aclose()
    assert answer.text


async def test_gemini_blocked_prompts_are_no_error(world: World, google: genai.Client) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": metadata(3, 0)}
    for provider, body in (
        ("gemini", data(blocked)),
        ("chat", chunk({"role": "assistant"}) + chunk({}, "content_filter") + DONE),
    ):
        world.plays(f"blocked-{provider}", body)
        stream = await google.aio.models.generate_content_stream(
            model=f"{provider}/blocked-{provider}", contents="Hi"
        )
        chunks = [each async for each in stream]
        assert any(each.prompt_feedback and each.prompt_feedback.block_reason for each in chunks)
    await google.aio.aclose()


# ---- models, paths and counts ---------------------------------------------------------------------------------------


async def test_model_lists_of_all_vendors(
    world: World, chatting: openai.AsyncOpenAI, google: genai.Client
) -> None:
    listed = [model.id async for model in chatting.models.list()]
    assert listed == ["named"]
    assert (await chatting.models.retrieve("named")).id == "named"
    async with anthropic.AsyncAnthropic(base_url=world.gate.url, api_key=KEY) as messages:
        assert [model.id async for model in messages.models.list()] == listed
    names = [model.name async for model in await google.aio.models.list()]
    assert [str(name).removeprefix("models/") for name in names] == listed
    await google.aio.aclose()


async def test_a_wrong_base_url_is_told_the_right_one(world: World) -> None:
    async with anthropic.AsyncAnthropic(
        base_url=f"{world.gate.url}/v1", api_key=KEY, max_retries=0
    ) as client:
        with pytest.raises(anthropic.NotFoundError) as refused:
            await client.messages.create(model="chat/any", messages=ASK, max_tokens=9)
    assert "base URL" in str(refused.value)
    options = genai_types.HttpOptions(base_url=f"{world.gate.url}/v1beta")
    with genai.Client(api_key=KEY, http_options=options) as google:
        with pytest.raises(genai_errors.ClientError) as missing:
            await google.aio.models.generate_content(model="named", contents="Hi")
        await google.aio.aclose()
    assert missing.value.code == 404
    assert "base URL" in str(missing.value.message)


async def test_counts_of_tokens(world: World, google: genai.Client) -> None:
    async with anthropic.AsyncAnthropic(base_url=world.gate.url, api_key=KEY) as client:
        for model in ("chat/any", "messages/any"):
            counted = await client.messages.count_tokens(model=model, messages=ASK)
            assert counted.input_tokens > 0
    for model in ("chat/any", "gemini/any"):
        assert ((await google.aio.models.count_tokens(model=model, contents="Hi")).total_tokens or 0) > 0
    await google.aio.aclose()


async def test_late_input_counts_replace_the_first_ones(world: World) -> None:
    """The helper takes each count that the last event has: so it has them all."""
    world.plays("late", STREAMS["chat"])
    async with (
        anthropic.AsyncAnthropic(base_url=world.gate.url, api_key=KEY) as client,
        client.messages.stream(model="chat/late", messages=ASK, max_tokens=99) as stream,
    ):
        events = [event async for event in stream]
        final = await stream.get_final_message()
    (start,) = [event for event in events if event.type == "message_start"]
    assert start.message.usage.input_tokens > 3, "an estimate stands at the start"
    assert (final.usage.input_tokens, final.usage.output_tokens) == (3, 2)
    assert final.stop_reason == "end_turn"


async def test_an_answer_is_right_though_the_last_event_alone_says_it(
    world: World, chatting: openai.AsyncOpenAI
) -> None:
    """The terminal response is the answer for the helper, so it holds all that was streamed, and ids do not change."""
    world.plays("terminal", calls(call(0, "k", "f", WEATHER), content="Hi") + END_CALLED)
    async with chatting.responses.stream(model="chat/terminal", input="Hi") as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == "Hi"
    assert [item.type for item in final.output] == ["message", "function_call"]
    added = [event.item.id for event in events if event.type == "response.output_item.added"]
    assert added == [item.id for item in final.output]
    numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert numbers == sorted(set(numbers))
    assert json.loads(final.output[1].arguments) == {"city": "Oslo"}  # type: ignore[union-attr]
