"""Conversations that the gate itself keeps for Responses clients, whatever their provider speaks; with the SDK."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from sluicegate.simulator import SimulatorProcess
from sluicegate.simulator.answer import Answer, ToolCall
from sluicegate.simulator.script import Script
from tests.conftest import PRICE, StartGate, make_config
from tests.fakes import ask
from tests.gate import RunningGate, run_gate

KEY = "sg-test-key-0123456789abcdef"
OTHER_KEY = "sg-other-key-0123456789abc"
FORMATS = ("chat", "messages", "gemini", "completions", "responses")
SIGNATURE = "U0lHTkFUVVJF"
CALL = Answer(
    reasoning=("Let me", " see"),
    signature=SIGNATURE,
    tool_calls=(ToolCall(name="f", arguments=('{"a":', "1}"), id="call_1"),),
    finish="tool_calls",
)
SAID = Answer(text=("Four", "."))
TOOLS: Any = [
    {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}
]


def config_of(simulator: SimulatorProcess, **store: Any) -> dict[str, Any]:
    models: dict[str, Any] = {
        format: {"routes": [{"provider": format, "model": format}], "price": PRICE} for format in FORMATS
    }
    models["messages"]["capabilities"] = {"reasoning": "budget"}
    return make_config(
        simulator,
        server={"workers": 2},
        responses_store={"enabled": True} | store,
        providers={
            format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"} for format in FORMATS
        },
        models=models,
        keys=[
            {"name": "one", "key": KEY, "balance_usd": 5},
            {"name": "two", "key": OTHER_KEY, "balance_usd": 5},
        ],
    )


@pytest.fixture(scope="module")
def provider() -> Iterator[SimulatorProcess]:
    with SimulatorProcess() as simulator:
        yield simulator


@pytest.fixture(scope="module")
def gate(provider: SimulatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGate]:
    with run_gate(tmp_path_factory.mktemp("own"), json.dumps(config_of(provider))) as running:
        yield running


def client_of(gate: RunningGate, key: str = KEY) -> openai.OpenAI:
    return openai.OpenAI(api_key=key, base_url=f"{gate.url}/v1", max_retries=0)


def answer(client: openai.OpenAI, *, stream: bool, **asked: Any) -> Any:
    if not stream:
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as events:
        return events.get_final_response()


def sent(provider: SimulatorProcess) -> Any:
    return provider.requests()[-1]["json"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("format", ["chat", "messages", "gemini"])
def test_a_tool_turn_and_one_more_go_on_by_id(
    gate: RunningGate, provider: SimulatorProcess, format: str, stream: bool
) -> None:
    """Calls, results and the state of thoughts reach the provider; a fresh connection each may be another worker's."""
    provider.push(Script(answer=CALL), Script(answer=SAID), Script(answer=SAID), model=None)
    reasoning = {"effort": "medium"} if format == "messages" else openai.omit
    asked: Any = {"model": format, "tools": TOOLS, "reasoning": reasoning, "stream": stream}
    with client_of(gate) as client:
        first = answer(client, input="Two and two?", instructions="Be brief.", **asked)
    assert first.store is True  # type: ignore[attr-defined]
    result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "4"}
    with client_of(gate) as client:
        second = answer(client, input=[result], previous_response_id=first.id, **asked)
    assert second.previous_response_id == first.id
    assert second.output_text == "Four."
    with client_of(gate) as client:
        third = answer(client, input="Thanks", previous_response_id=second.id, **asked)
        assert third.output_text == "Four."
        body = json.dumps(sent(provider))
        told = [body.find(word) for word in ("Two and two?", '"f"', "Four.", "Thanks")]
        assert -1 not in told
        assert told[0] < told[2] < told[3]
        assert "Be brief." not in body
        if format == "messages":
            assert SIGNATURE in body
        got = client.responses.retrieve(second.id)
        assert (got.id, got.output_text, got.model) == (second.id, "Four.", format)
        items = client.responses.input_items.list(second.id, order="asc")
        kinds = [item.type for item in items]
        assert kinds[0] == "message"
        assert kinds[-2:] == ["function_call", "function_call_output"]
        newest = client.responses.input_items.list(second.id, limit=1)
        assert newest.data[0].type == "function_call_output"
        assert len(list(newest)) == len(kinds)


def test_a_legacy_provider_goes_on_too(gate: RunningGate, provider: SimulatorProcess) -> None:
    with client_of(gate) as client:
        first = client.responses.create(model="completions", input="Hello")
        client.responses.create(model="completions", input="Again", previous_response_id=first.id)
    assert sent(provider)["prompt"].startswith("User: Hello")
    assert "User: Again" in sent(provider)["prompt"]


def test_an_item_of_ours_can_be_referred_to(gate: RunningGate, provider: SimulatorProcess) -> None:
    provider.push(Script(answer=SAID))
    with client_of(gate) as client, client_of(gate, OTHER_KEY) as other:
        first = client.responses.create(model="chat", input="Hello")
        named: Any = [
            {"type": "item_reference", "id": first.output[0].id},
            {"role": "user", "content": "Go on"},
        ]
        client.responses.create(model="chat", input=named)
        assert [message["content"] for message in sent(provider)["messages"]] == ["Four.", "Go on"]
        with pytest.raises(openai.BadRequestError, match="input"):
            other.responses.create(model="chat", input=named)


def test_what_is_kept_is_its_accounts_alone_and_can_be_deleted(gate: RunningGate) -> None:
    with client_of(gate) as client, client_of(gate, OTHER_KEY) as other:
        made = client.responses.create(model="chat", input="Hello")
        unkept = client.responses.create(model="chat", input="Hello", store=False)
        assert unkept.store is False  # type: ignore[attr-defined]
        for call in (
            lambda: other.responses.retrieve(made.id),
            lambda: other.responses.delete(made.id),
            lambda: other.responses.cancel(made.id),
            lambda: other.responses.input_items.list(made.id),
            lambda: other.responses.create(model="chat", input="On", previous_response_id=made.id),
            lambda: client.responses.retrieve(unkept.id),
            lambda: client.responses.create(model="chat", input="On", previous_response_id=unkept.id),
            lambda: client.responses.retrieve("resp_nobody"),
        ):
            with pytest.raises(openai.NotFoundError, match="not found"):
                call()
        with pytest.raises(openai.BadRequestError, match="background"):
            client.responses.cancel(made.id)
        client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made.id)


def test_what_the_conversation_costs_is_what_the_provider_reports(
    gate: RunningGate, provider: SimulatorProcess
) -> None:
    provider.push(
        Script(answer=Answer(text=("A",), input_tokens=10)),
        Script(answer=Answer(text=("B",), input_tokens=25)),
    )
    with client_of(gate) as client:
        first = client.responses.create(model="chat", input="Hello")
        second = client.responses.create(model="chat", input="On", previous_response_id=first.id)
    assert second.usage is not None
    assert (second.usage.input_tokens, second.usage.output_tokens) == (25, 1)


def test_a_run_in_the_background_is_followed_whichever_worker_is_asked(
    gate: RunningGate, provider: SimulatorProcess
) -> None:
    with client_of(gate) as client:
        made = client.responses.create(model="responses", input="Hello", background=True)
    request_id = made._request_id
    deadline = time.monotonic() + 20
    while True:
        with client_of(gate) as client:
            got = client.responses.retrieve(made.id)
        if got.status == "completed":
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    while not (rows := [row for row in gate.usage() if row["request_id"] == request_id]):
        assert time.monotonic() < deadline
    assert [(row["status"], row["usage_source"]) for row in rows] == [("ok", "reported")]
    assert rows[0]["cost_nano_usd"] > 0


def test_it_survives_a_restart(provider: SimulatorProcess, tmp_path: Path) -> None:
    configuration = json.dumps(config_of(provider))
    with run_gate(tmp_path, configuration) as gate, client_of(gate) as client:
        made = client.responses.create(model="chat", input="Hello")
    with run_gate(tmp_path, configuration) as gate, client_of(gate) as client:
        assert client.responses.retrieve(made.id) == made
        client.responses.create(model="chat", input="On", previous_response_id=made.id)


async def test_off_it_says_so(start_gate: StartGate) -> None:
    with SimulatorProcess() as provider:
        gate = await start_gate(config_of(provider, enabled=False))
        made = (await ask(gate.url, "/v1/responses", {"model": "chat", "input": "Hello"}, key=KEY)).json()
        assert made["store"] is False
        body = {"model": "chat", "input": "On", "previous_response_id": made["id"]}
        refused = await ask(gate.url, "/v1/responses", body, key=KEY)
        assert refused.status == 400
        error = refused.json()["error"]
        assert error["param"] == "previous_response_id"
        assert "responses_store" in error["message"]
        for method in ("GET", "DELETE"):
            response = await ask(gate.url, f"/v1/responses/{made['id']}", key=KEY, method=method)
            assert response.status == 404
