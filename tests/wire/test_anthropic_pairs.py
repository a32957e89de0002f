"""Messages beside every other format that is built: any answer comes through both ways, streamed and plain alike."""

import json
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Finish, Format, UsageReport
from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.wire import Bill
from sluicegate.wire.anthropic import CODEC
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.translation import Codec, Notes
from tests.grammar.test_grammar import CHECKERS
from tests.profiles import examples
from tests.strategies import answers
from tests.wire.anthropic_world import ASKED, COST, MODEL, run, ways
from tests.wire.test_anthropic_requests import HI, body, call, read, result, said, user

OTHERS = sorted(FORMATS.keys() - {"messages", "completions"})


def stream_of(format: str, answer: Answer) -> bytes:
    """Return a provider's stream."""
    pieces = DIALECTS[cast(Format, format)].stream(answer, Ask("m", usage=True))
    return b"".join(piece.data for piece in pieces).replace(ID.encode(), b"1")


def plain_of(format: str, answer: Answer) -> bytes:
    """Return a provider's plain answer."""
    return DIALECTS[cast(Format, format)].plain(answer, Ask("m")).replace(ID.encode(), b"1")


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(0, 1000))
def test_x1_any_answer_reaches_a_messages_client(name: str, answer: Answer, seed: int) -> None:
    single = Answer(**{field: getattr(answer, field) for field in answer.__struct_fields__} | {"choices": 1})
    source: Codec = FORMATS[name]
    parsed = run(ways(stream_of(name, single))[seed % 7], source=source).parsed(cost_nano_usd=2000)
    assert parsed.text == "".join(single.text + single.refusal)
    assert parsed.reasoning == "".join(single.reasoning)
    assert [call.name for call in parsed.tool_calls] == [call.name for call in single.tool_calls]
    told = [json.loads(call.arguments) for call in parsed.tool_calls]
    assert told == [json.loads(call.joined()) for call in single.tool_calls]
    events = source.decode_answer(plain_of(name, single), Capabilities())
    usage = next(event.usage for event in events if isinstance(event, UsageReport))
    whole = json.loads(CODEC.encode_answer(events, ASKED, Bill(usage, in_usage=COST)))
    assert whole["stop_reason"] == parsed.finish
    assert "".join(part["text"] for part in whole["content"] if part["type"] == "text") == parsed.text
    assert [part["input"] for part in whole["content"] if part["type"] == "tool_use"] == told
    assert parsed.usage is not None
    counts = ("input_tokens", "output_tokens", "cache_read_input_tokens")
    assert [whole["usage"][name] for name in counts] == [parsed.usage[name] for name in counts]


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(0, 1000))
def test_x1_any_messages_answer_reaches_a_client_of_another_format(
    name: str, answer: Answer, seed: int
) -> None:
    passed = run(ways(stream_of("messages", answer))[seed % 7], source=CODEC, target=FORMATS[name])
    parsed = CHECKERS[cast(Format, name)](passed.raw, model=MODEL)
    assert parsed.text + parsed.refusal == "".join(answer.text + answer.refusal)
    assert [call.name for call in parsed.tool_calls] == [call.name for call in answer.tool_calls]
    assert len(parsed.reasoning) >= len("".join(answer.reasoning))


@pytest.mark.parametrize("name", OTHERS)
def test_a_tool_turn_with_its_thought_goes_there_and_back(name: str) -> None:
    """What a provider of another format sealed for a Messages client comes back to it, and to nobody else."""
    answer = Answer(reasoning=("hm",), signature="U0lH", text=("so",), finish="stop")
    events = FORMATS[name].decode_answer(plain_of(name, answer), Capabilities())
    finished = next(event for event in events if isinstance(event, Finish))
    assert finished.reason == "stop"
    bill = Bill(next(event.usage for event in events if isinstance(event, UsageReport)))
    content = json.loads(CODEC.encode_answer(events, ASKED, bill))["content"]
    request, _ = read(body(HI, {"role": "assistant", "content": content}, HI))
    notes = Notes()
    assert b'"gw1.' not in FORMATS[name].encode_request(request, "m", Capabilities(), notes)
    assert b'"gw1.' not in CODEC.encode_request(request, "m", Capabilities(), notes)
    signed = any(part["type"] != "text" and "gw1." in json.dumps(part) for part in content)
    if signed and name == "gemini":
        assert b"U0lH" in FORMATS[name].encode_request(request, "m", Capabilities(), notes)


@pytest.mark.parametrize("name", OTHERS)
def test_a_conversation_is_told_to_a_provider_of_another_format(name: str) -> None:
    raw = body(
        user(said("weather?")),
        {"role": "assistant", "content": [said("Let me see."), call("toolu_1"), call("toolu_2")]},
        user(result("toolu_1", "sunny"), result("toolu_2", "rain", is_error=True), said("and?")),
        system="Be brief.",
        tools=[{"name": "w", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
    )
    notes = Notes()
    told = FORMATS[name].encode_request(read(raw)[0], "up", Capabilities(), notes).decode()
    for piece in ("weather?", "Let me see.", "Oslo", "sunny", "rain", "and?", "Be brief.", '"w"'):
        assert piece in told
