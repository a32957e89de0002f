"""Messages on the same format: bytes pass but for the contract's edits, and what SDKs stumble over is put right."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.errors import DecodeError, StreamCut
from sluicegate.messages import Usage
from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.wire import Bill
from sluicegate.wire.anthropic import CODEC
from sluicegate.wire.translation import Asked, PassOptions
from tests.profiles import examples
from tests.strategies import answers
from tests.wire.anthropic_world import (
    ASKED,
    COST,
    MODEL,
    STOP,
    STREAMS,
    Passed,
    an,
    block,
    by_event,
    fixture,
    last,
    run,
    start,
    text,
    tool,
    ways,
)

HIDDEN = Asked(model=MODEL, id="f" * 24, created=1, input_estimate=3, hide_provider=True)


def expected(raw: bytes) -> bytes:
    """Return a well-formed stream as the client must get it: the model, and the cost behind the last usage."""
    raw = raw.replace(b'"model":"m"', b'"model":"%b"' % MODEL.encode(), 1)
    head, delta, tail = raw.rpartition(b"event: message_delta\n")
    end = tail.index(b"}\n\n")
    return head + delta + tail[: end - 1] + b"," + COST + tail[end - 1 :]


def told(passed: Passed, type_: str) -> list[dict[str, Any]]:
    """Return the client's events of a type."""
    return [event for event in passed.parsed(end=None).events if event["type"] == type_]


@pytest.mark.parametrize("name", [name for name in STREAMS if name != "max-tokens"])
def test_c3_c7_streams_pass_byte_for_byte_but_for_model_and_cost(name: str) -> None:
    raw = fixture(name)
    for pieces in ways(raw):
        passed = run(pieces)
        assert passed.raw == expected(raw)
        assert not passed.codec.repaired
        passed.parsed(cost_nano_usd=2000)


def test_m2_input_that_is_told_late_is_estimated_at_the_start_and_repeated_at_the_end() -> None:
    passed = run([fixture("max-tokens")])
    assert told(passed, "message_start")[0]["message"]["usage"] == {"input_tokens": 17, "output_tokens": 0}
    usage = told(passed, "message_delta")[0]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (9, 4, 2)
    assert passed.codec.usage == Usage(
        input_tokens=13, cache_read_tokens=4, cache_write_tokens=0, output_tokens=2
    )
    silent = run([start(service_tier="standard") + text(0, "x") + last("end_turn", output_tokens=3) + STOP])
    assert told(silent, "message_start")[0]["message"]["usage"]["input_tokens"] == 17
    bill = Bill(Usage(input_tokens=40, output_tokens=3))
    counted = run([start(service_tier="standard") + text(0, "x") + last() + STOP], bill=bill)
    assert told(counted, "message_delta")[0]["usage"]["input_tokens"] == 40


def test_unknown_fields_and_events_survive_byte_for_byte() -> None:
    odd = b'"x_new":{"a":[1.0,1e2,"\xc3\xa9 \\u00e9"]},'
    news = b'event: brand.new\ndata: {"type":"brand.new","deep":{"index":7,"model":"m"}}\n\n'
    events = by_event(fixture("thinking").replace(b'"model":"m"', b'"model":"m" , "x_odd" : 1.0'))
    raw = b"".join(
        event.replace(b"{", b"{" + odd).replace(b"{%b}" % odd, b"{%b}" % odd[:-1]) for event in events
    )
    raw = raw.replace(b"event: content_block_stop", news + b"event: content_block_stop", 1)
    for pieces in ways(raw):
        assert run(pieces).raw == expected(raw)


def test_unknown_blocks_deltas_and_stop_reasons_pass() -> None:
    strange = block(0, {"type": "hologram", "text": {"x": 1}}, {"type": "hologram_delta", "text": [1]})
    raw = start() + strange + text(1, "x") + last("brand_new_reason") + STOP
    passed = run([raw])
    assert passed.raw == expected(raw)
    assert passed.codec.content
    assert passed.codec.finish_reason == "stop"


@pytest.mark.parametrize("name", STREAMS)
def test_e3_a_cut_after_any_event_is_an_error_and_never_an_end(name: str) -> None:
    events = by_event(fixture(name))
    for kept in range(len(events)):
        passed = run(events[:kept])
        assert passed.failure is not None
        assert passed.parsed(end="error").error is not None
        assert STOP not in passed.raw
        assert b'stop_reason":"' not in passed.raw


def test_what_completes_an_answer_waits_for_settlement() -> None:
    events = by_event(fixture("text"))
    passed = run(events)
    assert b"message_delta" not in b"".join(passed.writes[:-1])
    assert passed.codec.joins_usage
    waiting = run(events[:-1], closed=False)  # the marker never comes: usage_wait runs out
    assert waiting.codec.held
    assert not waiting.codec.ended
    assert waiting.raw == expected(fixture("text"))


def test_b080_content_after_a_finish_means_it_was_none() -> None:
    raw = (
        start()
        + text(0, "a")
        + last("end_turn", output_tokens=1)
        + text(1, "b")
        + last("max_tokens", output_tokens=2)
        + STOP
    )
    passed = run([raw])
    parsed = passed.parsed()
    assert (parsed.text, parsed.finish) == ("ab", "max_tokens")
    assert passed.codec.repaired


def test_several_message_deltas_become_one() -> None:
    first = an(
        "message_delta",
        delta={"stop_reason": "tool_use", "stop_sequence": None},
        usage={"output_tokens": 3, "x": 1},
    )
    second = an("message_delta", delta={}, usage={"output_tokens": 4, "x": None}, context_management={"a": 1})
    passed = run([start() + tool(0, "k", "f") + first + second + STOP])
    event = told(passed, "message_delta")[0]
    assert event["delta"]["stop_reason"] == "tool_use"
    assert event["usage"]["output_tokens"] == 4
    assert event["usage"]["x"] == 1
    assert event["context_management"] == {"a": 1}


def test_identity_is_pinned_and_can_be_hidden() -> None:
    hidden = run([fixture("text")], asked=HIDDEN)
    assert told(hidden, "message_start")[0]["message"]["id"] == "msg_" + "f" * 24
    assert hidden.codec.upstream_id == "msg_1"
    nameless = run([fixture("text").replace(b'"id":"msg_1",', b"")])
    assert told(nameless, "message_start")[0]["message"]["id"] == "msg_" + ASKED.id
    twice = run([start() + start() + text(0, "x") + last() + STOP])
    assert len(told(twice, "message_start")) == 1


def test_a_cost_of_the_provider_does_not_stand_in_the_start() -> None:
    raw = (
        start(input_tokens=3, output_tokens=1, cost=0.5)
        + text(0, "x")
        + last("end_turn", output_tokens=1, cost=0.7)
        + STOP
    )
    passed = run([raw])
    assert "cost" not in told(passed, "message_start")[0]["message"]["usage"]
    passed.parsed(cost_nano_usd=2000)


def test_c7_an_extension_stands_beside_the_usage() -> None:
    bill = Bill(Usage(input_tokens=9, output_tokens=2), beside_usage=b'"openrelay":{"cost_nano_usd":5}')
    passed = run([fixture("text")], bill=bill)
    event = told(passed, "message_delta")[0]
    assert event["openrelay"] == {"cost_nano_usd": 5}
    assert "cost" not in event["usage"]
    body = json.loads(CODEC.pass_answer(ASKED, fixture("nonstream")).encode(bill))
    assert body["openrelay"] == {"cost_nano_usd": 5}


# ---- repairs --------------------------------------------------------------------------------------------------------


def test_b106_indexes_are_given_anew() -> None:
    raw = start() + text(0, "a") + text(2, "b") + tool(2, "k", "f", "{}") + last("tool_use") + STOP
    for pieces in ways(raw):
        passed = run(pieces)
        assert passed.parsed().text == "ab"
        assert passed.codec.repaired
    assert run([raw], repair=False).raw == expected(raw)


def test_b083_starts_and_stops_are_supplied() -> None:
    delta = an("content_block_delta", index=4, delta={"type": "text_delta", "text": "hi"})
    thought = an("content_block_delta", index=5, delta={"type": "thinking_delta", "thinking": "hm"})
    raw = start() + delta + thought + text(6, "x", stop=False) + last() + STOP
    passed = run([raw])
    assert (passed.parsed().text, passed.parsed().reasoning) == ("hix", "hm")
    assert passed.codec.repaired


def test_a_message_that_never_starts_gets_a_start() -> None:
    passed = run([text(0, "x") + last("end_turn", input_tokens=3, output_tokens=1) + STOP])
    assert passed.parsed().text == "x"


def test_a_stop_without_any_stop_reason_is_an_end_b107() -> None:
    assert run([start() + text(0, "x") + STOP]).parsed().finish == "end_turn"
    assert run([start() + tool(0, "k", "f") + STOP]).parsed().finish == "tool_use"
    assert run([start() + STOP]).failure is not None


def test_b009_calls_decide_the_reason() -> None:
    assert run([start() + tool(0, "k", "f") + last("end_turn") + STOP]).parsed().finish == "tool_use"
    assert run([start() + tool(0, "k", "f") + last("max_tokens") + STOP]).parsed().finish == "max_tokens"


def test_a_start_that_holds_too_much_or_too_little() -> None:
    raw = start() + block(0, {"type": "text", "text": "He"}, {"type": "text_delta", "text": "llo"})
    raw += block(1, {"type": "thinking"}, {"type": "thinking_delta", "thinking": "t"})
    raw += block(2, {"type": "tool_use", "id": "", "name": "f", "input": {"a": 1}})
    raw += block(
        3,
        {"type": "tool_use", "id": "k", "name": "g", "input": {"b": 1}},
        {"type": "input_json_delta", "partial_json": '{"b":2}'},
    )
    for pieces in ways(raw + last("tool_use") + STOP):
        parsed = run(pieces).parsed()
        assert (parsed.text, parsed.reasoning) == ("Hello", "t")
        assert [json.loads(call.arguments) for call in parsed.tool_calls] == [{"a": 1}, {"b": 2}]


def test_a_call_without_a_name_is_garbled() -> None:
    nameless = block(0, {"type": "tool_use", "id": "k", "input": {}})
    assert run([start() + nameless + last("tool_use") + STOP]).failure == "a tool call has no name"


def test_b026_b053_b074_b110_framing_is_ours() -> None:
    raw = fixture("text")
    crlf = b"\xef\xbb\xbf: hello\r\n\r\n" + raw.replace(b"\n", b"\r\n").replace(
        b"event: ping", b": x\r\nevent: ping"
    )
    for pieces in ways(crlf):
        assert run(pieces).raw == expected(raw)
    for pieces in ways(raw.replace(b"\n", b"\r")):
        assert run(pieces).raw == expected(raw)
    done = raw.replace(STOP, b"data: [DONE]\n\n" + STOP)
    assert run([done]).raw == expected(raw)
    unnamed = b"".join(event.partition(b"\n")[2] for event in by_event(raw)[:-1]) + STOP
    assert run([unnamed]).raw == expected(raw)
    untyped = raw.replace(b'{"type":"content_block_stop",', b"{")
    assert told(run([untyped]), "content_block_stop") == [{"index": 0, "type": "content_block_stop"}]


def test_b027_a_last_event_without_its_blank_line() -> None:
    raw = fixture("text")
    assert run([raw[:-1]]).raw == expected(raw)
    assert run([raw[:-2]]).raw == expected(raw)
    assert run([raw[:-5]]).failure is not None


def test_b014_b087_long_events() -> None:
    raw = start() + text(0, "x" * 4_000_000) + last() + STOP
    passed = run([raw[at : at + 16_384] for at in range(0, len(raw), 16_384)])
    assert len(passed.parsed().text) == 4_000_000
    endless = run([start(), *[b"data: " + b"x" * 1000] * 20], max_event_bytes=10_000)
    assert endless.failure is not None


def test_b109_half_characters() -> None:
    delta = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}'
    piece = b"event: content_block_delta\ndata: " + delta + b"\n\n"
    raw = (
        start()
        + text(0, "a", "b", stop=False)
        + piece % b"\\ud83d"
        + piece % b"\\ude00"
        + piece % b"c\\ud83d"
    )
    raw += an("content_block_stop", index=0) + last() + STOP
    for pieces in ways(raw):
        passed = run(pieces)
        assert passed.parsed().text == "ab\U0001f600c\ufffd"
        assert passed.codec.repaired


def test_b010_b011_errors_inside_the_stream() -> None:
    passed = run([fixture("error-midstream")])
    assert passed.failure == "Overloaded"
    error = passed.parsed(end="error").error
    assert error is not None
    assert error["type"] == "overloaded_error"
    nested = start() + text(0, "x") + b'data: {"error":{"message":"worker full","code":502}}\n\n'
    assert run([nested]).failure == "worker full"
    event = CODEC.error_event(StreamCut("gone"), "req_9")
    assert b'"request_id":"req_9"' in event


def test_what_is_content_and_what_is_not() -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    for raw, content in [
        (an("ping"), False),
        (block(0, {"type": "text", "text": ""}), False),
        (block(0, thinking), False),
        (text(0, ""), False),
        (last(), False),
        (text(0, "x"), True),
        (tool(0, "k", "f"), True),
        (block(0, {"type": "redacted_thinking", "data": "x"}), True),
        (block(0, {"type": "web_search_tool_result", "content": []}), True),
        (block(0, thinking, {"type": "signature_delta", "signature": "s"}), True),
        (an("brand_new"), True),
        (block(0, {"type": "text", "text": ""}, {"type": "new_delta"}), True),
    ]:
        assert run([start() + raw], closed=False).codec.content is content, raw


def test_everything_the_model_wrote_is_counted() -> None:
    raw = start() + block(
        0, {"type": "thinking", "thinking": ""}, *[{"type": "thinking_delta", "thinking": "t"}] * 4
    )
    raw += (
        text(1, "a", "b", "c", "d") + tool(2, "k", "name", '{"x":', "1", "2", "3}") + last("tool_use") + STOP
    )
    for pieces in ways(raw):
        assert run(pieces).counted == 'ttttabcdname{"x":123}'
    for pieces in ways(raw):
        assert run(pieces, source=CODEC).counted == 'ttttabcdname{"x":123}'


def test_an_answer_that_came_whole_is_streamed() -> None:
    codec = CODEC.pass_stream(ASKED, PassOptions(count_text=lambda text: None))
    message = json.loads(fixture("nonstream"))
    message["content"] = [
        {"type": "thinking", "thinking": "t", "signature": "SG"},
        {"type": "text", "text": "Hi", "citations": [{"type": "page_location"}], "x": 1},
        {"type": "tool_use", "id": "k", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "l", "name": "g", "input": {}},
        {"type": "redacted_thinking", "data": "RD"},
    ]
    codec.feed_whole(json.dumps(message).encode())
    raw = b"".join(codec.out) + codec.farewell(Bill(Usage(input_tokens=9, output_tokens=2)))
    parsed = Passed(raw, codec, "", None).parsed()
    assert (parsed.text, parsed.reasoning, parsed.finish) == ("Hi", "t", "tool_use")
    assert [call.arguments for call in parsed.tool_calls] == ['{"a": 1}', "{}"]
    refused = CODEC.pass_stream(ASKED, PassOptions(count_text=lambda text: None))
    refused.feed_whole(b'{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}')
    assert refused.error is not None


# ---- plain answers --------------------------------------------------------------------------------------------------


def test_plain_answers_pass_but_for_model_and_cost() -> None:
    raw = fixture("nonstream").strip().replace(b'"type":"text"', b'"type":"text","x_new":1.0', 1)
    answer = CODEC.pass_answer(ASKED, raw)
    assert answer.usage is not None
    body = answer.encode(Bill(answer.usage, in_usage=COST))
    assert body == raw.replace(b'"model":"m"', b'"model":"%b"' % MODEL.encode()).replace(
        b'"service_tier":"standard"', b'"service_tier":"standard",' + COST
    )
    assert answer.texts() == ["Hi"]
    assert not answer.repaired
    hidden = json.loads(CODEC.pass_answer(HIDDEN, raw).encode(Bill(Usage())))
    assert hidden["id"] == "msg_" + "f" * 24


def test_b105_events_instead_of_a_plain_answer_are_folded() -> None:
    answer = CODEC.pass_answer(ASKED, fixture("thinking"))
    assert answer.usage is not None
    body = json.loads(answer.encode(Bill(answer.usage)))
    assert body["content"] == [
        {"type": "thinking", "thinking": "Let me see", "signature": "U0lH"},
        {"type": "redacted_thinking", "data": "RU5D"},
        {"type": "text", "text": "42"},
    ]
    assert body["stop_reason"] == "end_turn"
    assert body["usage"]["output_tokens_details"] == {"thinking_tokens": 24}
    with pytest.raises(DecodeError):
        CODEC.pass_answer(ASKED, fixture("thinking")[:-60])
    failed = CODEC.pass_answer(ASKED, fixture("error-midstream"))
    assert failed.error is not None
    assert failed.error.status == 529


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(0, 1000))
def test_any_healthy_stream_passes_unchanged_b1(answer: Answer, seed: int) -> None:
    dialect = DIALECTS["messages"]
    raw = b"".join(piece.data for piece in dialect.stream(answer, Ask("m"))).replace(ID.encode(), b"1")
    passed = run(ways(raw)[seed % 7])
    parsed = passed.parsed(cost_nano_usd=2000)
    assert parsed.text == "".join(answer.text + answer.refusal)
    assert parsed.reasoning == "".join(answer.reasoning)
    if answer.input_tokens:
        assert passed.raw == expected(raw)
    plain = CODEC.pass_answer(ASKED, dialect.plain(answer, Ask("m")).replace(ID.encode(), b"1"))
    assert plain.usage is not None
    assert passed.codec.usage is not None
    assert plain.usage.input_tokens == passed.codec.usage.input_tokens
    assert plain.usage.output_tokens == passed.codec.usage.output_tokens
    assert plain.finish_reason == passed.codec.finish_reason
