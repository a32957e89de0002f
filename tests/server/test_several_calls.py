"""Several answers (`n`, `candidateCount`) of a provider whose format gives one: a call each, where the model allows it.

Translation matrix, section 17: one attempt, one row, usage summed; more than the configured number are refused.
"""

import json
from typing import Any

import openai
import pytest

from sluicegate.messages import Format
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.answer import Answer, ToolCall, UsageWhen
from tests.conftest import KEY, StartInProcess
from tests.fakes import ask
from tests.grid.scenes import Prompt
from tests.grid.speaking import path_of, said
from tests.grid.test_several_answers import CHECK, SEVERAL, texts_of
from tests.inprocess import InProcessGate
from tests.server.test_several_prompts import start

ONE_ANSWER: list[Format] = ["responses", "messages"]
TEXTS = [(" a", " b"), (" c",), (" d", " e", " f")]
COST = 27 * 1000 + 6 * 2000


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("client", SEVERAL)
@pytest.mark.parametrize("provider", ONE_ANSWER)
async def test_each_answer_is_a_call(
    start_inprocess: StartInProcess, simulator: Simulator, client: str, provider: Format, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, provider, max_calls=3)
    for text in TEXTS:
        simulator.push(Script(answer=Answer(text=text)))
    body = said(client, "m", Prompt(), stream)
    body |= {"generationConfig": {"candidateCount": 3}} if client == "gemini" else {"n": 3}
    response = await ask(gate.url, path_of(client, "m", stream), body, key=KEY)
    assert response.status == 200, response.body
    named = "generationConfig.candidateCount" if client == "gemini" else "n"
    assert f"{named};3 calls" in (response.header("x-sluicegate-dropped") or "")
    if stream:
        parsed = CHECK[client](response.body, model="m")
        texts, usage = parsed.texts, parsed.usage
    else:
        answer = response.json()
        texts = texts_of(client, answer)
        usage = answer["usageMetadata" if client == "gemini" else "usage"]
    assert list(texts) == ["".join(text) for text in TEXTS]
    assert usage["cost_nano_usd"] == COST
    assert len(simulator.requests) == 3
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage_source, row.attempts, row.cost_nano_usd) == ("ok", "reported", 1, COST)


async def test_tools_of_each_answer_stay_with_it(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "messages", max_calls=2)
    for name in ("one", "two"):
        call = ToolCall(name="look", arguments=(f'{{"at":"{name}"}}',), id=f"call_{name}")
        simulator.push(Script(answer=Answer(tool_calls=(call,), finish="tool_calls")))
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    async with (
        openai.AsyncOpenAI(api_key=KEY, base_url=f"{gate.url}/v1", max_retries=0) as client,
        client.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "Look"}], n=2, tools=tools
        ) as events,
    ):
        answer = await events.get_final_completion()
    told = [(choice.finish_reason, choice.message.tool_calls) for choice in answer.choices]
    assert [reason for reason, _ in told] == ["tool_calls"] * 2
    assert [calls[0].function.arguments for _, calls in told if calls] == ['{"at":"one"}', '{"at":"two"}']


@pytest.mark.parametrize("provider", ONE_ANSWER)
async def test_more_than_the_model_allows_are_refused(
    start_inprocess: StartInProcess, simulator: Simulator, provider: Format
) -> None:
    gate = await start(start_inprocess, simulator, provider, max_calls=2)
    body = said("chat", "m", Prompt(), False) | {"n": 3}
    response = await ask(gate.url, "/v1/chat/completions", body, key=KEY)
    assert (response.status, response.json()["error"]["param"]) == (400, "n")
    assert not simulator.requests


async def test_the_input_of_every_call_is_reserved(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate: InProcessGate = await start(start_inprocess, simulator, "messages", max_calls=2)
    body = said("chat", "m", Prompt(), False) | {"n": 2, "max_tokens": 10}
    body["messages"] = [{"role": "user", "content": "a" * 9_000_000}]  # 3 M tokens: $3 a call, of $5
    response = await ask(gate.url, "/v1/chat/completions", body, key=KEY)
    assert response.status == 402
    assert not simulator.requests


@pytest.mark.parametrize("usage", ["asked", "never"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_the_length_of_each_call_decides_the_tier_not_their_sum(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool, usage: UsageWhen
) -> None:
    body = said("chat", "m", Prompt(), stream) | {"n": 3}
    tokens = 9 if usage == "asked" else len(json.dumps(body)) // 4
    for above in (tokens + 1, tokens - 2):
        price = {"input": 1, "output": 2, "tiers": [{"above_input_tokens": above, "input": 10, "output": 20}]}
        gate = await start(start_inprocess, simulator, "messages", max_calls=3, price=price)
        for text in TEXTS:
            simulator.push(Script(answer=Answer(text=text, usage=usage)))
        response = await ask(gate.url, path_of("chat", "m", stream), body, key=KEY)
        assert response.status == 200, response.body
        (row,) = await gate.wait_for_rows(1)
        used, times = row.usage, 1 if above > tokens else 10
        assert used.input_tokens == pytest.approx(3 * tokens, abs=3)
        assert row.cost_nano_usd == 1000 * times * ((used.input_tokens or 0) + 2 * (used.output_tokens or 0))


async def test_a_tier_that_no_call_reaches_is_not_held(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    body = said("chat", "m", Prompt(), False) | {"n": 3, "max_tokens": 10}
    estimate = len(json.dumps(body)) // 3 + 16
    tier = {"input": 1_000_000, "output": 1_000_000}
    for above, status in ((estimate * 2, 200), (estimate // 2, 402)):
        price = {"input": 1, "output": 2, "tiers": [{"above_input_tokens": above, **tier}]}
        gate = await start(start_inprocess, simulator, "messages", max_calls=3, price=price)
        for text in TEXTS:
            simulator.push(Script(answer=Answer(text=text)))
        response = await ask(gate.url, "/v1/chat/completions", body, key=KEY)
        assert response.status == status, response.body
