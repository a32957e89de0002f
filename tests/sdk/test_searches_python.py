"""What the official Python SDKs make of searches that another vendor's tool made. Translation matrix, section 24."""

from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types

from sluicegate.messages import Format
from sluicegate.simulator import Script, Simulator
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.grid.test_searches import ANSWER, LAKES, RIVERS, TEXT
from tests.inprocess import InProcessGate


async def start(started: StartInProcess, simulator: Simulator, format: Format) -> InProcessGate:
    provider = {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
    model = {"routes": [{"provider": "sim", "model": "up"}], "price": PRICE}
    simulator.push(Script(answer=ANSWER), times=None)
    return await started(make_config(simulator, providers={"sim": provider}, models={"m": model}))


async def test_t3_responses(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    gate = await start(start_inprocess, simulator, "messages")
    async with (
        openai.AsyncOpenAI(api_key=KEY, base_url=f"{gate.url}/v1", max_retries=0) as client,
        client.responses.stream(
            model="m",
            input="Hello",
            tools=[{"type": "web_search"}],
            include=["web_search_call.action.sources"],
            store=False,
        ) as events,
    ):
        kinds = [event.type async for event in events]
        answer = await events.get_final_response()
    assert kinds.count("response.web_search_call.completed") == 2
    first, second, message = answer.output
    assert first.type == second.type == "web_search_call"
    action: Any = second.action
    assert (action.query, [source.url for source in action.sources]) == ("läkes", [RIVERS[0], LAKES[0]])
    assert message.type == "message"
    content: Any = message.content[0]
    assert (answer.output_text, [one.url for one in content.annotations]) == (TEXT, [RIVERS[0], LAKES[0]])


async def test_t3_messages(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    gate = await start(start_inprocess, simulator, "responses")
    tools: Any = [{"type": "web_search_20250305", "name": "web_search"}]
    async with (
        anthropic.AsyncAnthropic(api_key=KEY, base_url=gate.url, max_retries=0) as client,
        client.messages.stream(
            model="m", max_tokens=1000, messages=[{"role": "user", "content": "Hello"}], tools=tools
        ) as events,
    ):
        answer = await events.get_final_message()
    use, found, *_ = answer.content
    assert use.type == "server_tool_use"
    assert (use.input, found.type) == ({"query": "rivers rising"}, "web_search_tool_result")
    text: Any = answer.content[-1]
    assert [one.url for one in text.citations] == [RIVERS[0], LAKES[0]]
    assert answer.usage.server_tool_use is not None
    assert answer.usage.server_tool_use.web_search_requests == 2


async def test_t3_gemini(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    gate = await start(start_inprocess, simulator, "messages")
    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=gate.url))
    config = types.GenerateContentConfig(tools=[types.Tool(google_search=types.GoogleSearch())])
    answer: Any = await client.aio.models.generate_content(model="m", contents="Hello", config=config)
    await client.aio.aclose()
    grounding = answer.candidates[0].grounding_metadata
    assert grounding.web_search_queries == ["rivers rising", "läkes"]
    assert [chunk.web.uri for chunk in grounding.grounding_chunks] == [RIVERS[0], LAKES[0]]
    assert answer.text == TEXT
