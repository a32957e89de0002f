"""Answers of and for Messages across formats: decoded at any cut, encoded grammatically, usage exact both ways."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import (
    Citation,
    End,
    Finish,
    Opaque,
    OpaqueState,
    Pause,
    ReasoningDelta,
    RefusalDelta,
    Start,
    StreamError,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageReport,
)
from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.wire import Bill
from sluicegate.wire.anthropic import CODEC
from sluicegate.wire.anthropic_usage import RunningUsage, write_usage
from sluicegate.wire.envelope import open_envelope, seal
from sluicegate.wire.translated import TranslatedStream
from tests.grammar.messages import check_messages_stream
from tests.grammar.narrow_sse import ParsedStream
from tests.profiles import examples
from tests.strategies import answers
from tests.wire.anthropic_world import (
    ASKED,
    COST,
    MODEL,
    STOP,
    STREAMS,
    an,
    block,
    by_event,
    decoded,
    fixture,
    joined,
    last,
    run,
    start,
    text,
    tool,
    ways,
)

SIGNATURE = Opaque(vendor="google", kind="signature", value="Q0hB", model="g")
ENCRYPTED = Opaque(vendor="openai", kind="encrypted", value="gAAA", id="rs_1")


class _Known:
    """A decoder's stand-in whose events are known."""

    upstream_id: str | None = None
    repaired = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        return []

    def finish(self) -> list[StreamEvent]:
        return []


def encoded(*events: StreamEvent, usage: Usage | None = None) -> tuple[bytes, ParsedStream]:
    """Return the client's stream of these events, checked, and what it says."""
    bill = Bill(usage or Usage(input_tokens=9, output_tokens=5), in_usage=COST)
    stream = TranslatedStream(
        _Known(),
        CODEC.stream_encoder(ASKED),
        lambda body: [*events, End()],
        lambda text: None,
        joins_usage=True,
    )
    stream.feed_whole(b"")
    raw = b"".join(stream.out) + stream.farewell(bill)
    return raw, check_messages_stream(raw, model=MODEL, cost_nano_usd=2000)


def blocks_of(parsed: ParsedStream) -> list[str]:
    """Return the types of the blocks, in order."""
    return [
        event["content_block"]["type"] for event in parsed.events if event["type"] == "content_block_start"
    ]


def whole(*events: StreamEvent) -> dict[str, Any]:
    """Return the plain answer of these events."""
    bill = Bill(Usage(input_tokens=9, output_tokens=5), in_usage=COST)
    value = json.loads(CODEC.encode_answer([*events, End()], ASKED, bill))
    assert isinstance(value, dict)
    return value


def test_c7_an_extension_stands_beside_the_usage_of_a_plain_answer() -> None:
    bill = Bill(Usage(input_tokens=9, output_tokens=5), beside_usage=b'"openrelay":{"cost_nano_usd":5}')
    value = json.loads(CODEC.encode_answer([TextDelta("x"), Finish("stop"), End()], ASKED, bill))
    assert value["openrelay"] == {"cost_nano_usd": 5}
    assert value["usage"]["output_tokens"] == 5


# ---- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
def test_fixtures_mean_the_same_at_any_cut(name: str) -> None:
    raw = fixture(name)
    expected = decoded([raw])
    assert isinstance(expected[0], Start)
    assert isinstance(expected[-1], End)
    for pieces in ways(raw):
        assert decoded(pieces) == expected


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_after_any_event_is_no_answer(name: str) -> None:
    events = by_event(fixture(name))
    for kept in range(len(events)):
        with pytest.raises(DecodeError):
            decoded(events[:kept])


def test_what_the_fixtures_say() -> None:
    assert decoded([fixture("tools")])[1:7] == [
        ToolCallStart(0, "toolu_1", "f"),
        ToolCallDelta(0, '{"a":1}'),
        ToolCallEnd(0),
        ToolCallStart(1, "toolu_2", "g"),
        ToolCallDelta(1, "{}"),
        ToolCallEnd(1),
    ]
    thinking = decoded([fixture("thinking")])
    signature = Opaque(vendor="anthropic", kind="signature", value="U0lH", model="m")
    redacted = Opaque(vendor="anthropic", kind="redacted", value="RU5D", model="m")
    assert thinking[1:5] == [
        ReasoningDelta("Let me see"),
        OpaqueState(signature),
        OpaqueState(redacted),
        TextDelta("42"),
    ]
    refusal = decoded([fixture("refusal")])
    assert RefusalDelta("Declined.") in refusal
    assert Finish("content_filter", raw_reason="refusal") in refusal
    assert Finish("length", raw_reason="max_tokens") in decoded([fixture("max-tokens")])


def test_an_error_inside_a_stream_comes_before_all_else() -> None:
    decoder = CODEC.stream_decoder(Capabilities(), lambda text: None)
    events = decoder.feed(fixture("error-midstream"))
    assert events[1:] == [StreamError(status=529, message="Overloaded", type="overloaded_error")]
    spent = an(
        "error",
        error={
            "type": "rate_limit_error",
            "message": "m",
            "details": {"error_code": "x_spend_limit_reached"},
        },
    )
    decoder = CODEC.stream_decoder(Capabilities(), lambda text: None)
    assert decoder.feed(spent) == [
        StreamError(status=429, message="m", type="rate_limit_error", code="x_spend_limit_reached")
    ]
    decoder = CODEC.stream_decoder(Capabilities(), lambda text: None)
    assert decoder.feed(b"event: error\ndata: upstream fell over\n\n") == [
        StreamError(status=500, message="upstream fell over")
    ]


def test_plain_answers_are_the_events_of_their_stream() -> None:
    plain = joined(CODEC.decode_answer(fixture("nonstream"), Capabilities()))
    counts = Usage(input_tokens=9, cache_read_tokens=0, cache_write_tokens=0, output_tokens=2)
    counts.service_tier = "standard"
    streamed = decoded([fixture("text")])
    assert plain[1:] == [*streamed[1:-3], UsageReport(counts), *streamed[-2:]]


def test_plain_answers_that_are_none() -> None:
    can = Capabilities()
    error = b'{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}'
    assert CODEC.decode_answer(error, can) == [
        StreamError(status=529, message="Busy", type="overloaded_error")
    ]
    for body in (
        b"",
        b"{}",
        b"[]",
        b"<html>",
        b'{"content":7}',
        b'{"content":[{"type":7}]}',
        fixture("text")[:-40],
    ):
        with pytest.raises(DecodeError):
            CODEC.decode_answer(body, can)


def test_b105_events_that_come_instead_of_a_plain_answer_are_read() -> None:
    assert joined(CODEC.decode_answer(fixture("tools"), Capabilities())) == decoded([fixture("tools")])


def test_b114_counts_that_are_left_out_or_null_stay_as_they_were() -> None:
    begin = start(input_tokens=11, cache_read_input_tokens=4, output_tokens=1)
    for usage in (
        {"output_tokens": 14},
        {"output_tokens": 14, "input_tokens": None, "cache_read_input_tokens": None},
    ):
        events = decoded([begin + text(0, "x") + last("end_turn", **usage) + STOP])
        assert UsageReport(Usage(input_tokens=15, cache_read_tokens=4, output_tokens=14)) in events


def test_the_output_count_of_the_start_is_no_count() -> None:
    first = decoded([fixture("text")])[0]
    assert isinstance(first, Start)
    assert first.usage == Usage(input_tokens=9, cache_read_tokens=0, cache_write_tokens=0)
    empty = decoded([fixture("max-tokens")])[0]
    assert isinstance(empty, Start)
    assert empty.usage is None


def test_b117_input_of_a_start_counts_only_where_no_delta_follows() -> None:
    begin, end = start(), last("tool_use") + STOP
    glued = decoded([begin + tool(0, "k", "f", '{"city":', '"Oslo"}') + end])
    assert [e for e in glued if isinstance(e, ToolCallDelta)] == [ToolCallDelta(0, '{"city":"Oslo"}')]
    given_ = decoded([begin + tool(0, "k", "f", input={"city": "Oslo"}) + end])
    assert [e for e in given_ if isinstance(e, ToolCallDelta)] == [ToolCallDelta(0, '{"city":"Oslo"}')]


def test_b106_an_index_that_comes_twice_is_another_block() -> None:
    raw = start() + tool(1, "a", "f", '{"x":1}') + tool(1, "b", "g") + last("tool_use") + STOP
    assert [(e.index, e.id) for e in decoded([raw]) if isinstance(e, ToolCallStart)] == [(0, "a"), (1, "b")]


def test_b083_starts_and_stops_that_are_left_out() -> None:
    delta = an("content_block_delta", index=0, delta={"type": "text_delta", "text": "hi"})
    parsed = run([start() + delta + last() + STOP], source=CODEC).parsed()
    assert parsed.text == "hi"


def test_b026_b033_b086_b116_odd_framing() -> None:
    pretty = (
        b'event: message_delta\ndata: {"type":"message_delta",\ndata: "delta":{"stop_reason":"end_turn"}}\n\n'
    )
    torn = b'data: {"type":"content_block_stop","index":0}\ndata: {"type":"ping"}\n\n'
    raw = start() + b": busy\n\nevent: ping\ndata:\n\nevent: ping\n\nevent: new\ndata: what\n\n"
    raw += text(0, "hi", stop=False) + torn + pretty + b"data: [DONE]\n\n" + STOP
    for pieces in ways(raw.replace(b"\n", b"\r\n")):
        assert [type(event) for event in decoded(pieces)] == [Start, TextDelta, UsageReport, Finish, End]


def test_b109_half_characters_are_joined_or_replaced() -> None:
    def half(piece: str) -> bytes:
        delta = b'{"type":"text_delta","text":"%b"}' % piece.encode()
        return (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":%b}\n\n'
            % delta
        )

    begin, end = start() + text(0, "ab", "cd", stop=False), last() + STOP
    for pieces in ways(begin + half("\\ud83d") + half("\\ude00!") + half("\\ud83d") + end):
        assert run(pieces, source=CODEC).parsed().text == "abcd\U0001f600!\ufffd"


def test_sources_of_the_text_span_their_block() -> None:
    cited = {
        "type": "web_search_result_location",
        "url": "https://a.example",
        "title": "A",
        "cited_text": "x",
    }
    page = {"type": "page_location", "document_index": 0, "cited_text": "x"}
    pieces = [
        {"type": "citations_delta", "citation": cited},
        {"type": "citations_delta", "citation": page},
        {"type": "text_delta", "text": "späť"},
    ]
    raw = start() + text(0, "één ") + block(1, {"type": "text", "text": ""}, *pieces) + last() + STOP
    assert Citation("https://a.example", "A", 4, 8) in decoded([raw])


def test_what_a_hosted_tool_did_is_left_out_but_counted() -> None:
    search = block(
        0,
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"q":1}'},
    )
    found = block(
        1,
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"text": {"odd": 1}}], "text": {}},
    )
    passed = run([start() + search + found + text(2, "hi") + last() + STOP], source=CODEC)
    assert passed.parsed().text == "hi"
    assert passed.counted == 'web_search{"q":1}hi'


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from([b"event: ", b"data: ", b"\n", b"{", *by_event(fixture("tools"))]),
        max_size=12,
    )
)
def test_any_bytes_are_events_or_a_decode_error(pieces: list[bytes]) -> None:
    for source in (None, CODEC):
        run(pieces, source=source)
    try:
        CODEC.decode_answer(b"".join(pieces), Capabilities())
        CODEC.pass_answer(ASKED, b"".join(pieces))
    except DecodeError:
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "index",
                    "delta",
                    "content_block",
                    "message",
                    "usage",
                    "error",
                    "text",
                    "input",
                    "content",
                ]
            ),
            inner
            | st.sampled_from(
                ["text", "tool_use", "text_delta", "message_start", "message_delta", "content_block_start"]
            ),
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(JSON, max_size=5))
def test_any_json_is_an_event_or_a_decode_error(values: list[object]) -> None:
    raw = b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)
    for repair in (True, False):
        run([start() + raw], repair=repair)
    run([start() + raw], source=CODEC)
    for value in values:
        try:
            CODEC.decode_answer(json.dumps(value).encode(), Capabilities())
            passed = CODEC.pass_answer(ASKED, json.dumps(value).encode())
            if passed.error is None:
                passed.encode(Bill(Usage()))
        except DecodeError:
            pass


# ---- usage ----------------------------------------------------------------------------------------------------------

VECTOR_A = Usage(
    input_tokens=5600, cache_read_tokens=4000, cache_write_tokens=600, cache_write_5m_tokens=600,
    cache_write_1h_tokens=0, output_tokens=300, reasoning_tokens=180,
)  # fmt: skip
WIRE_A = {
    "input_tokens": 1000,
    "cache_read_input_tokens": 4000,
    "cache_creation_input_tokens": 600,
    "cache_creation": {"ephemeral_5m_input_tokens": 600, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 300,
    "output_tokens_details": {"thinking_tokens": 180},
}


def test_usage_vector_a_both_ways_b046_b089_b090() -> None:
    running = RunningUsage()
    running.take(json.dumps(WIRE_A).encode())
    assert running.normalised() == VECTOR_A
    assert json.loads(write_usage(VECTOR_A)) == WIRE_A


def test_usage_vector_b_of_another_vendor() -> None:
    usage = Usage(
        input_tokens=270, input_tool_tokens=70, cache_read_tokens=50, output_tokens=40, reasoning_tokens=10
    )
    assert json.loads(write_usage(usage)) == {
        "input_tokens": 220,
        "cache_read_input_tokens": 50,
        "cache_creation_input_tokens": 0,
        "output_tokens": 40,
        "output_tokens_details": {"thinking_tokens": 10},
    }


def test_b091_the_cache_is_taken_out_of_the_input() -> None:
    told = json.loads(write_usage(Usage(input_tokens=1000, cache_read_tokens=800, output_tokens=1)))
    assert (told["input_tokens"], told["cache_read_input_tokens"]) == (200, 800)
    odd = json.loads(write_usage(Usage(input_tokens=10, cache_read_tokens=800, output_tokens=1)))
    assert odd["input_tokens"] == 0


def test_m2_the_start_tells_an_estimate_and_the_end_the_truth() -> None:
    usage = Usage(input_tokens=1000, cache_read_tokens=800, output_tokens=7)
    raw, parsed = encoded(TextDelta("hi"), Finish("stop"), usage=usage)
    assert parsed.events[0]["message"]["usage"]["input_tokens"] == 17
    assert b"cost" not in by_event(raw)[0]
    assert parsed.usage is not None
    assert parsed.usage["input_tokens"] == 200
    assert parsed.usage["cache_read_input_tokens"] == 800
    assert parsed.usage["cache_creation_input_tokens"] == 0
    early = CODEC.stream_encoder(ASKED).start(Usage(input_tokens=1000, cache_read_tokens=800))  # type: ignore[call-arg]
    assert b'"input_tokens":200,' in early
    assert (
        b'"input_tokens":1,' in CODEC.stream_encoder(type(ASKED)(model="m", id="0" * 24, created=1)).start()
    )


def test_b115_usage_is_always_there() -> None:
    stream = CODEC.stream_encoder(ASKED)
    raw = stream.start() + stream.event(TextDelta("x")) + stream.farewell({0: ("stop", None)}, None)
    assert check_messages_stream(raw).usage is not None


# ---- writing --------------------------------------------------------------------------------------------------------


def test_blocks_alternate_and_close_b106_b113() -> None:
    raw, parsed = encoded(
        TextDelta(""), ReasoningDelta("r"), TextDelta("a"), ReasoningDelta("s"), TextDelta("b"),
        ToolCallStart(0, "k", "f"), ToolCallDelta(0, '{"x":'), ToolCallDelta(0, "1}"), ToolCallEnd(0),
        ToolCallStart(1, "l", "g"), ToolCallEnd(1), Finish("stop"),
    )  # fmt: skip
    assert blocks_of(parsed) == ["thinking", "text", "thinking", "text", "tool_use", "tool_use"]
    assert (parsed.text, parsed.reasoning, parsed.finish) == ("ab", "rs", "tool_use")
    assert [call.arguments for call in parsed.tool_calls] == ['{"x":1}', "{}"]
    assert raw.endswith(STOP)


def test_b113_an_answer_that_only_calls_opens_no_text_block() -> None:
    _, parsed = encoded(
        TextDelta(""), ToolCallStart(0, "k", "f"), ToolCallDelta(0, "{}"), Finish("tool_calls")
    )
    assert blocks_of(parsed) == ["tool_use"]


def test_calls_that_overlap_are_put_in_order() -> None:
    _, parsed = encoded(
        ToolCallStart(0, "k", "f"), ToolCallDelta(0, '{"a"'), ToolCallStart(1, "l", "g"), ToolCallDelta(1, '{"b"'),
        TextDelta("between"), ToolCallDelta(0, ":1}"), ToolCallDelta(1, ":2}"), ToolCallDelta(0, "\n"),
        TextDelta(" and after"), Finish("tool_calls"),
    )  # fmt: skip
    assert [call.arguments for call in parsed.tool_calls] == ['{"a":1}', '{"b":2}']
    assert parsed.text == "between and after"


def test_calls_whose_end_nobody_tells() -> None:
    _, parsed = encoded(
        ToolCallStart(0, "k", "f"), ToolCallStart(1, "l", "g"), ToolCallDelta(1, "{}"), TextDelta("t"), Finish("stop")
    )  # fmt: skip
    assert [(call.id, call.arguments) for call in parsed.tool_calls] == [("k", "{}"), ("l", "{}")]
    assert parsed.text == "t"


@pytest.mark.parametrize(
    ("given_", "custom", "told"),
    [
        ("", False, {}),
        ("  ", False, {}),
        ("[1,2]", False, {"value": [1, 2]}),
        ("12345678901234567890", False, {"value": 12345678901234567890}),
        ("not json", False, {"_raw": "not json"}),
        ("print(1)", True, {"input": "print(1)"}),
        ('{"a":1}', True, {"input": '{"a":1}'}),
        (' {"a":1}', False, {"a": 1}),
    ],
)
def test_arguments_become_an_object(given_: str, custom: bool, told: object) -> None:
    pieces = [ToolCallDelta(0, character) for character in given_]
    call = [ToolCallStart(0, "k", "f", custom=custom), *pieces, ToolCallEnd(0), Finish("tool_calls")]
    _, parsed = encoded(*call)
    assert json.loads(parsed.tool_calls[0].arguments) == told
    assert whole(*call)["content"][0]["input"] == told


def test_numbers_in_arguments_keep_their_spelling() -> None:
    events = [ToolCallStart(0, "k", "f"), ToolCallDelta(0, '{"a":1.0,"b":1e2}'), Finish("tool_calls")]
    body = CODEC.encode_answer([*events, End()], ASKED, Bill(Usage()))
    assert b'"input":{"a":1.0,"b":1e2}' in body


def test_b004_a_signature_stands_at_the_end_of_its_thought() -> None:
    own = Opaque(vendor="anthropic", kind="signature", value="SG")
    hidden = Opaque(vendor="anthropic", kind="redacted", value="RD")
    raw, parsed = encoded(
        ReasoningDelta("t"), OpaqueState(own), OpaqueState(hidden), OpaqueState(own), TextDelta("x"), Finish("stop")
    )  # fmt: skip
    assert blocks_of(parsed) == ["thinking", "redacted_thinking", "thinking", "text"]
    assert raw.count(b'{"type":"signature_delta","signature":"SG"}') == 2
    assert b'{"type":"redacted_thinking","data":"RD"}' in raw


def test_state_of_other_vendors_is_sealed() -> None:
    raw, parsed = encoded(
        ReasoningDelta("t"), OpaqueState(ENCRYPTED), TextDelta("x"), OpaqueState(SIGNATURE),
        ToolCallStart(0, "call_1", "f"), ToolCallDelta(0, "{}"), OpaqueState(SIGNATURE, call_index=0), ToolCallEnd(0),
        Finish("tool_calls"),
    )  # fmt: skip
    assert blocks_of(parsed) == ["thinking", "text", "redacted_thinking", "tool_use", "redacted_thinking"]
    assert seal(ENCRYPTED).encode() in raw
    data = [e["content_block"]["data"] for e in parsed.events if "redacted" in str(e.get("content_block"))]
    opened = [open_envelope(value) for value in data]
    assert [(state.value, state.id) for state in opened if state] == [("Q0hB", None), ("Q0hB", "call_1")]


def test_state_sealed_by_another_gate_is_opened() -> None:
    delta = {"type": "signature_delta", "signature": seal(SIGNATURE)}
    raw = start() + block(0, {"type": "thinking", "thinking": ""}, delta) + last() + STOP
    assert OpaqueState(SIGNATURE) in decoded([raw])


def test_sources_end_their_text_block() -> None:
    _, parsed = encoded(
        TextDelta("a"), Citation("https://x.example", "X", 0, 1), TextDelta("b"), Finish("stop")
    )
    assert blocks_of(parsed) == ["text", "text"]
    assert parsed.text == "ab"
    content = whole(TextDelta("a"), Citation("https://x.example", "X", 0, 1), TextDelta("b"), Finish("stop"))[
        "content"
    ]
    assert content[0]["citations"][0]["url"] == "https://x.example"
    encoded(ReasoningDelta("r"), Citation("https://x.example"), Finish("stop"))


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("stop", "end_turn"), ("length", "max_tokens"), ("context_full", "model_context_window_exceeded"),
        ("content_filter", "refusal"), ("paused", "pause_turn"), ("function_call", "tool_use"),
    ],
)  # fmt: skip
def test_b021_b032_finish_reasons(reason: Any, told: str) -> None:
    said: list[Any] = [TextDelta("x")]
    if reason == "function_call":
        said += [ToolCallStart(0, "call_1", "f"), ToolCallDelta(0, "{}"), ToolCallEnd(0)]
    assert encoded(*said, Finish(reason))[1].finish == told
    assert whole(*said, Finish(reason))["stop_reason"] == told


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("end_turn", "stop"), ("max_tokens", "length"), ("tool_use", "tool_calls"), ("refusal", "content_filter"),
        ("pause_turn", "paused"), ("model_context_window_exceeded", "context_full"), ("weird", "stop"),
        ("stop_sequence", "stop_sequence"),
    ],
)  # fmt: skip
def test_b021_stop_reasons_are_read(word: str, ours: Any) -> None:
    told = decoded([start() + text(0, "x") + last(word) + STOP])
    pause = Pause(chars=1) if word == "pause_turn" else None
    assert Finish(ours, raw_reason=word, pause=pause) in told


def test_b129_the_matched_stop_string_is_told_where_it_is_known() -> None:
    raw, parsed = encoded(TextDelta("x"), Finish("stop_sequence", stop_sequence="END"))
    assert parsed.finish == "stop_sequence"
    assert b'"stop_sequence":"END"' in raw
    assert encoded(TextDelta("x"), Finish("stop_sequence"))[1].finish == "end_turn"


def test_b009_a_call_decides_the_reason() -> None:
    call = [ToolCallStart(0, "k", "f"), ToolCallDelta(0, "{}")]
    assert encoded(*call, Finish("stop"))[1].finish == "tool_use"
    assert encoded(*call, Finish("length"))[1].finish == "max_tokens"


def test_half_characters_never_leave() -> None:
    assert encoded(TextDelta("a\ud83d"), Finish("stop"))[1].text == "a\ufffd"


def test_names_that_were_changed_come_back() -> None:
    asked = type(ASKED)(model="m", id="0" * 24, created=1, tool_names={"a_b_1": "a.b"})
    encoder = CODEC.stream_encoder(asked)
    assert b'"name":"a.b"' in encoder.event(ToolCallStart(0, "", "a_b_1"))


EVENTS = st.lists(
    st.builds(TextDelta, st.text(max_size=3))
    | st.builds(ReasoningDelta, st.text(max_size=3))
    | st.builds(RefusalDelta, st.text(max_size=3))
    | st.builds(Citation, st.just("https://x.example"))
    | st.builds(OpaqueState, st.sampled_from([SIGNATURE, ENCRYPTED]))
    | st.integers(0, 2).flatmap(
        lambda index: st.sampled_from(
            [
                ToolCallStart(index, f"k{index}", "f"),
                ToolCallDelta(index, '{"a":'),
                ToolCallDelta(index, "1}"),
                ToolCallEnd(index),
            ]
        )
    ),
    max_size=14,
)


@settings(max_examples=examples(80), deadline=None)
@given(EVENTS)
def test_any_order_of_events_is_a_grammatical_stream(events: list[StreamEvent]) -> None:
    """Calls are completed in order, whatever stands between; arguments come in the order a, rest."""
    seen: dict[int, int] = {}
    sane: list[StreamEvent] = []
    for event in events:
        if isinstance(event, ToolCallStart | ToolCallDelta | ToolCallEnd):
            step = seen.get(event.index, 0)
            wanted = (ToolCallStart, ToolCallDelta, ToolCallDelta, ToolCallEnd)
            if step < 4 and type(event) is wanted[step]:
                if isinstance(event, ToolCallDelta):
                    event = ToolCallDelta(event.index, '{"a":' if step == 1 else "1}")
                seen[event.index] = step + 1
                sane.append(event)
        else:
            sane.append(event)
    for index, step in seen.items():
        sane += [ToolCallDelta(index, '{"a":')] if step == 1 else []
        sane += [ToolCallDelta(index, "1}")] if step in (1, 2) else []
    sane.append(Finish("stop"))
    _, parsed = encoded(*sane)
    texts = [event.text for event in sane if isinstance(event, TextDelta | RefusalDelta)]
    assert sorted(parsed.text) == sorted("".join(texts))
    assert parsed.reasoning == "".join(event.text for event in sane if isinstance(event, ReasoningDelta))
    assert [call.arguments for call in parsed.tool_calls] == ['{"a":1}'] * len(seen)
    body = whole(*sane)
    told = "".join(part["text"] for part in body["content"] if part["type"] == "text")
    assert told == parsed.text
    assert body["stop_reason"] == parsed.finish


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(0, 1000))
def test_a_streamed_and_a_plain_answer_are_equal(answer: Answer, seed: int) -> None:
    dialect = DIALECTS["messages"]
    raw = b"".join(piece.data for piece in dialect.stream(answer, Ask("m"))).replace(ID.encode(), b"1")
    body = dialect.plain(answer, Ask("m")).replace(ID.encode(), b"1")
    streamed = decoded(ways(raw)[seed % 7])
    plain = joined(CODEC.decode_answer(body, Capabilities()))
    assert streamed[1:-3] == plain[1:-3]
    assert streamed[-2:] == plain[-2:]
    truth = answer.truth()
    for events in (streamed, plain):
        report = next(event.usage for event in events if isinstance(event, UsageReport))
        assert report.input_tokens == truth.input_tokens
        assert report.output_tokens == truth.output_tokens
        assert report.reasoning_tokens == truth.reasoning_tokens
    passed = run([raw], source=CODEC)
    parsed = passed.parsed(cost_nano_usd=2000)
    assert parsed.text == "".join(answer.text + answer.refusal)
    assert [call.name for call in parsed.tool_calls] == [call.name for call in answer.tool_calls]
