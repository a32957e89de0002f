"""Responses beside every other format: any answer comes through both ways, streamed and plain, and so do turns."""

import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Format, UsageReport
from sluicegate.simulator.answer import ID, Answer, ToolCall
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.wire import Bill
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.openai_responses import CODEC
from sluicegate.wire.translation import Notes
from tests.profiles import examples
from tests.strategies import answers
from tests.wire.openai_responses_world import ASKED, COST, HI, Script, call, every_cut, message, run
from tests.wire.openai_world import DONE, ch, tail

OTHERS = sorted(FORMATS.keys() - {"responses", "completions"})
COUNTS = ("input_tokens", "output_tokens", "total_tokens")


def stream_of(format: str, answer: Answer) -> bytes:
    """Return a provider's stream."""
    pieces = DIALECTS[cast(Format, format)].stream(answer, Ask("m", usage=True))
    return b"".join(piece.data for piece in pieces).replace(ID.encode(), b"1")


def plain_of(format: str, answer: Answer) -> bytes:
    """Return a provider's plain answer."""
    return DIALECTS[cast(Format, format)].plain(answer, Ask("m")).replace(ID.encode(), b"1")


def plain_answer(format: str, answer: Answer) -> dict[str, Any]:
    """Return what a Responses client gets of a plain answer."""
    events = FORMATS[format].decode_answer(plain_of(format, answer), Capabilities())
    usage = next(event.usage for event in events if isinstance(event, UsageReport))
    body: dict[str, Any] = json.loads(CODEC.encode_answer(events, ASKED, Bill(usage, in_usage=COST)))
    return body


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(0, 4))
def test_x1_any_answer_reaches_a_responses_client(name: str, answer: Answer, cut: int) -> None:
    single = msgspec.structs.replace(answer, choices=1)
    pieces = list(every_cut(stream_of(name, single)))[cut]
    parsed = run(pieces, name, "responses").parsed(cost_nano_usd=2000)
    assert parsed.text + parsed.refusal == "".join(single.text + single.refusal)
    assert parsed.reasoning == "".join(single.reasoning)
    assert [one.name for one in parsed.tool_calls] == [one.name for one in single.tool_calls]
    told = [json.loads(one.arguments) for one in parsed.tool_calls]
    assert told == [json.loads(one.joined()) for one in single.tool_calls]
    body = plain_answer(name, single)
    assert body["status"] == parsed.events[-1]["response"]["status"]
    assert [item["type"] for item in body["output"]] == [
        item["type"] for item in parsed.events[-1]["response"]["output"]
    ]
    assert parsed.usage is not None
    assert [body["usage"][count] for count in COUNTS] == [parsed.usage[count] for count in COUNTS]


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(0, 4))
def test_x1_any_responses_answer_reaches_a_client_of_another_format(
    name: str, answer: Answer, cut: int
) -> None:
    pieces = list(every_cut(stream_of("responses", answer)))[cut]
    parsed = run(pieces, "responses", name).parsed()
    assert parsed.text + parsed.refusal == "".join(answer.text + answer.refusal)
    assert [one.name for one in parsed.tool_calls] == [one.name for one in answer.tool_calls]
    assert parsed.reasoning == "".join(answer.reasoning)


def test_b034_one_terminal_event_whatever_the_end_was() -> None:
    said = ch({"role": "assistant"}) + ch({"content": "Hi"})
    for raw in (said + DONE, said + ch(finish="stop") + DONE, said + ch(finish="stop") + tail() + DONE):
        parsed = run([raw], "chat", "responses").parsed()
        assert (parsed.text, parsed.finish) == ("Hi", "completed")
    thought = ch({"reasoning_content": "hm"})
    ran = run([thought], "chat", "responses")  # and then it was reset
    assert ran.failure is not None
    assert [event["type"] for event in ran.parsed().events[-2:]] == ["error", "response.failed"]
    nothing = run([DONE], "chat", "responses")
    assert nothing.failure is not None
    nothing.parsed()


def test_b032_the_limit_is_told_to_a_responses_client() -> None:
    raw = ch({"content": "Once"}) + ch(finish="length") + tail() + DONE
    parsed = run([raw], "chat", "responses").parsed()
    assert parsed.finish == "max_output_tokens"
    assert parsed.events[-1]["type"] == "response.incomplete"


def test_cached_input_is_not_told_twice_to_a_messages_client() -> None:
    usage = {
        "input_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 800},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 1005,
    }
    raw = Script().end(message("x"), usage=usage)
    parsed = run([raw], "responses", "messages").parsed()
    assert parsed.usage is not None
    assert parsed.usage["input_tokens"] == 200
    assert parsed.usage["cache_read_input_tokens"] == 800


def tool_turn(output: list[dict[str, Any]]) -> bytes:
    """Return the request that a client sends after its tool has run: all that came, and the tool's output."""
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "sunny"}
        for item in output
        if item["type"] == "function_call"
    ]
    return json.dumps({"model": "m", "input": [HI, *output, *results], "stream": True}).encode()


@pytest.mark.parametrize("name", ["gemini", "messages", "chat"])
def test_b004_b141_state_comes_back_to_its_maker_over_a_tool_turn_and_to_nobody_else(name: str) -> None:
    answer = Answer(
        reasoning=("hm",),
        signature="U0lH",
        tool_calls=(ToolCall(name="f", arguments=("{}",)),),
        finish="tool_calls",
    )
    output = run([stream_of(name, answer)], name, "responses").parsed().events[-1]["response"]["output"]
    sealed = [item["encrypted_content"] for item in output if item.get("encrypted_content")]
    assert all(value.startswith("gw1.") for value in sealed)
    request = CODEC.decode_request(tool_turn(output), Notes())
    told = FORMATS[name].encode_request(request, "m", Capabilities(), Notes())
    assert b"gw1." not in told
    if name != "chat":
        assert sealed
        assert b"U0lH" in told
    for other in FORMATS.keys() - {name, "completions"}:
        written = FORMATS[other].encode_request(request, "m", Capabilities(), Notes())
        assert b"U0lH" not in written
        assert b"gw1." not in written
        assert b"sunny" in written


def test_hidden_thoughts_of_a_responses_provider_come_back_through_every_format() -> None:
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAA=="}
    raw = Script().end(thought, call(1, "f", "{}"))
    events = CODEC.stream_decoder(Capabilities(), len).feed(raw)
    bill = Bill(next(event.usage for event in events if isinstance(event, UsageReport)))
    message_ = json.loads(FORMATS["messages"].encode_answer(events, ASKED, bill))
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"}
    turns = [
        HI,
        {"role": "assistant", "content": message_["content"]},
        {"role": "user", "content": [result]},
    ]
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": turns}).encode()
    request = FORMATS["messages"].decode_request(body, Notes())
    items = json.loads(CODEC.encode_request(request, "m", Capabilities(), Notes()))["input"]
    assert [item.get("type") for item in items] == [
        None,
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert (items[1]["id"], items[1]["encrypted_content"]) == ("rs_1", "gAAAAA==")
