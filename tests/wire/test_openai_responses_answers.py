"""Answers of and for Responses across formats: decoded at any cut, encoded grammatically, usage exact both ways."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, DecodeError, InternalError, StreamCut, UpstreamTimeout
from sluicegate.messages import (
    Citation,
    End,
    Finish,
    Logprobs,
    Opaque,
    OpaqueState,
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
from sluicegate.wire.envelope import open_envelope, seal
from sluicegate.wire.openai_responses import CODEC
from sluicegate.wire.openai_responses_event import decode_response
from sluicegate.wire.openai_responses_usage import read_usage, write_usage
from sluicegate.wire.translation import Asked
from sluicegate.wire.upstream_errors import from_stream_error
from tests.grammar.narrow_sse import ParsedStream
from tests.grammar.responses import check_responses_stream
from tests.profiles import examples
from tests.strategies import answers
from tests.wire.openai_responses_world import (
    ASKED,
    COST,
    MODEL,
    STREAMS,
    Script,
    by_event,
    call,
    decoded,
    every_cut,
    fixture,
    joined,
    message,
    plain,
    response,
    rs,
    run,
)
from tests.wire.openai_world import told as written

CAN = Capabilities()
SIGNATURE = Opaque(vendor="google", kind="signature", value="Q0hB", model="g")
REDACTED = Opaque(vendor="anthropic", kind="redacted", value="RU5D", model="c")
ENCRYPTED = Opaque(vendor="openai", kind="encrypted", value="gAAA", model="m", id="rs_1")
VECTOR = Usage(
    input_tokens=5600,
    cache_read_tokens=4000,
    cache_write_tokens=600,
    output_tokens=300,
    reasoning_tokens=180,
)
VECTOR_JSON = {
    "input_tokens": 5600,
    "input_tokens_details": {"cached_tokens": 4000, "cache_write_tokens": 600},
    "output_tokens": 300,
    "output_tokens_details": {"reasoning_tokens": 180},
    "total_tokens": 5900,
}


def encoded(*events: StreamEvent, asked: Asked = ASKED) -> ParsedStream:
    """Return what the client's stream of these events says, checked."""
    raw = written([*events, End()], "responses", asked).raw
    usage = b'"usage":%b' % write_usage(Usage(input_tokens=9, output_tokens=5))
    head, _, tail = raw.rpartition(b'"usage":null')
    return check_responses_stream(head + usage + tail, model=asked.model)


def items(parsed: ParsedStream) -> list[dict[str, Any]]:
    """Return the output of the whole answer."""
    output: list[dict[str, Any]] = parsed.events[-1]["response"]["output"]
    return output


def whole(*events: StreamEvent, asked: Asked = ASKED) -> dict[str, Any]:
    """Return the plain answer of these events."""
    return plain([*events, End()], "responses", asked)


def say(*pieces: str, index: int = 0, script: Script | None = None) -> Script:
    """Return a stream that says a message, without its end."""
    script = script or Script()
    where = {"item_id": f"msg_{index}", "output_index": index}
    script.add(
        "output_item.added", output_index=index, item=message(id_=f"msg_{index}", status="in_progress")
    )
    part = {"type": "output_text", "text": "", "annotations": []}
    script.add("content_part.added", **where, content_index=0, part=part)
    for piece in pieces:
        script.add("output_text.delta", **where, content_index=0, delta=piece)
    return script


# ---- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
def test_fixtures_mean_the_same_at_any_cut(name: str) -> None:
    raw = fixture(name)
    expected = decoded([raw], "responses")
    assert isinstance(expected[0], Start)
    assert isinstance(expected[-1], End)
    for pieces in every_cut(raw):
        assert decoded(pieces, "responses") == expected


@pytest.mark.parametrize("name", STREAMS)
def test_e3_b034_a_stream_cut_after_any_event_is_no_answer(name: str) -> None:
    events = by_event(fixture(name))
    for kept in range(len(events)):
        with pytest.raises(DecodeError):
            decoded(events[:kept], "responses")


def test_what_the_fixtures_say() -> None:
    assert decoded([fixture("tools")], "responses")[1:7] == [
        ToolCallStart(0, "call_1", "f"),
        ToolCallDelta(0, '{"a":1}'),
        ToolCallEnd(0),
        ToolCallStart(1, "call_2", "g"),
        ToolCallDelta(1, "{}"),
        ToolCallEnd(1),
    ]
    thought = decoded([fixture("reasoning")], "responses")
    state = Opaque(vendor="openai", kind="encrypted", value="gAAAAA==", model="m", id="rs_1")
    assert thought[1:4] == [ReasoningDelta("Adding."), OpaqueState(state), TextDelta("42")]
    assert decoded([fixture("reasoning-text")], "responses")[1:3] == [
        ReasoningDelta("Let me see"),
        TextDelta("42"),
    ]
    assert RefusalDelta("I can't help with that.") in decoded([fixture("refusal")], "responses")
    assert decoded([fixture("max-tokens")], "responses")[-2] == Finish(
        "length", raw_reason="max_output_tokens"
    )


def test_a_plain_answer_tells_the_same_as_its_stream() -> None:
    assert CODEC.decode_answer(fixture("nonstream"), CAN) == decoded([fixture("text")], "responses")


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers())
def test_streamed_and_plain_answers_are_equal(answer: Answer) -> None:
    dialect = DIALECTS["responses"]
    stream = b"".join(piece.data for piece in dialect.stream(answer, Ask("m"))).replace(ID.encode(), b"1")
    body = dialect.plain(answer, Ask("m")).replace(ID.encode(), b"1")
    told = joined(CODEC.decode_answer(body, CAN))
    assert decoded([stream], "responses") == told
    assert joined(CODEC.decode_answer(stream, CAN)) == told  # B105: a stream came where none was asked for


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=300), st.integers(0, 8))
def test_any_bytes_are_events_or_an_error(noise: bytes, kept: int) -> None:
    events = by_event(fixture("text"))
    for raw in (noise, b"".join(events[:kept]) + noise, b"data: {" + noise + b"}\n\n"):
        with suppress(DecodeError):
            decoded([raw], "responses")
        with suppress(DecodeError):
            CODEC.decode_answer(raw, CAN)


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "response.output_text.delta", "delta": 5},
        {"type": "response.output_text.delta", "output_index": "x", "delta": "a"},
        {"type": "response.output_item.added", "output_index": 0},
        {"type": "response.output_item.added", "output_index": 0, "item": []},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "function_call", "name": 5},
        },
        {"type": "response.completed", "response": None},
        {"type": "response.completed", "response": {"output": {}}},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "function_call"}},
    ],
)
def test_known_events_of_a_wrong_shape_are_errors(wrong: dict[str, Any]) -> None:
    raw = b"data: " + json.dumps(wrong).encode() + b"\n\n"
    with pytest.raises(DecodeError):
        decoded([raw])
    assert run([raw], "responses", "responses").failure is not None


def test_unknown_events_and_items_are_left_out_of_a_translation() -> None:
    script = Script()
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"input": {}}}
    script.add("output_item.added", output_index=0, item=search)
    script.add("web_search_call.searching", output_index=0, item_id="ws_1", delta={"odd": 1})
    script.add("output_item.done", output_index=0, item=search)
    script.raw(rs("keepalive"))
    say("x", index=1, script=script)
    events = decoded([script.end(search, message("x"))], "responses")
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("x")]


# ---- what servers leave out -----------------------------------------------------------------------------------------


def test_texts_are_taken_from_wherever_they_come_first_and_never_twice() -> None:
    where = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    done = {"type": "output_text", "text": "Hi", "annotations": []}
    ways_to_say = [
        say("H", "i"),
        say().add("output_text.done", **where, text="Hi"),
        say().add("content_part.done", **where, part=done),
        say().add("output_item.done", output_index=0, item=message("Hi", id_="msg_0")),
        say(),
        Script(),
        say("H", "i")
        .add("output_text.done", **where, text="Hi")
        .add("content_part.done", **where, part=done)
        .add("output_item.done", output_index=0, item=message("Hi", id_="msg_0")),
        Script().add("output_text.delta", delta="Hi"),
        Script(begin=False).add("output_text.delta", **where, delta="Hi"),
    ]
    for script in ways_to_say:
        raw = script.end(message("Hi", id_="msg_0"))
        texts = [event.text for event in decoded([raw], "responses") if isinstance(event, TextDelta)]
        assert "".join(texts) == "Hi"


def test_ids_that_change_before_the_end_do_not_double_the_answer() -> None:
    events = decoded([say("Hi").end(message("Hi", id_="msg_other"))], "responses")
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("Hi")]


@pytest.mark.parametrize("with_ids", [True, False])
def test_b064_calls_are_known_by_call_id_and_found_by_item_id_or_index(with_ids: bool) -> None:
    script = Script()
    for place in range(2):
        item = call(place, "f", "", "in_progress")
        if not with_ids:
            del item["id"]
        script.add("output_item.added", output_index=place, item=item)
    for place in (1, 0):
        where = {"item_id": f"fc_{place}"} if with_ids else {"output_index": place}
        script.add("function_call_arguments.delta", **where, delta=f'{{"n":{place}}}')
    done = [call(place, "f", f'{{"n":{place}}}') for place in range(2)]
    events = decoded([script.end(*done)], "responses")
    assert [event for event in events if isinstance(event, ToolCallStart)] == [
        ToolCallStart(0, "call_0", "f"),
        ToolCallStart(1, "call_1", "f"),
    ]
    assert {event.index: event.arguments for event in events if isinstance(event, ToolCallDelta)} == {
        0: '{"n":0}',
        1: '{"n":1}',
    }


def test_arguments_in_many_pieces_are_read_alike_at_any_cut() -> None:
    script = say("x")
    script.add("output_item.added", output_index=1, item=call(1, "f", "", "in_progress"))
    pieces = ['{"a', '":"', "é", '\\"', " 1", '"', ",", '"b":2', "}"]
    for piece in pieces:
        script.add("function_call_arguments.delta", item_id="fc_1", output_index=1, delta=piece)
    raw = script.end(message("x"), call(1, "f", "".join(pieces)))
    for cut in every_cut(raw):
        events = decoded(cut)
        assert events[3] == ToolCallDelta(0, "".join(pieces))
        assert events[4] == ToolCallEnd(0)


def test_b119_calls_are_numbered_in_their_own_order() -> None:
    script = say("x")
    for place in (1, 2, 3):
        script.add("output_item.added", output_index=place, item=call(place, "f", "", "in_progress"))
        script.add("output_item.done", output_index=place, item=call(place, "f", "{}"))
    raw = script.end(message("x"), *(call(place, "f", "{}") for place in (1, 2, 3)))
    parsed = run(by_event(raw), "responses", "chat").parsed(usage=True)
    assert [(one.id, one.arguments) for one in parsed.tool_calls] == [
        ("call_1", "{}"),
        ("call_2", "{}"),
        ("call_3", "{}"),
    ]


def test_a_name_that_comes_late_is_waited_for() -> None:
    script = Script()
    item = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "arguments": ""}
    script.add("output_item.added", output_index=0, item=item)
    script.add("function_call_arguments.delta", output_index=0, delta='{"a"')
    script.add("function_call_arguments.done", output_index=0, name="f", arguments='{"a":1}')
    events = decoded([script.end(call(1, "f", '{"a":1}'))], "responses")
    assert events[1:3] == [ToolCallStart(0, "call_1", "f"), ToolCallDelta(0, '{"a"')]


def test_a_call_whose_arguments_were_cut_is_not_told_as_whole() -> None:
    script = Script()
    script.add("output_item.added", output_index=0, item=call(1, "f", "", "in_progress"))
    script.add("function_call_arguments.delta", output_index=0, item_id="fc_1", delta='{"a"')
    cut = call(1, "f", '{"a"', "incomplete")
    script.add("output_item.done", output_index=0, item=cut)
    raw = script.end(cut, type_="incomplete", incomplete_details={"reason": "max_output_tokens"})
    events = decoded([raw], "responses")
    assert not any(isinstance(event, ToolCallEnd) for event in events)
    assert run([raw], "responses", "chat").parsed(usage=True).finish == "length"


def test_calls_without_arguments_have_an_empty_object() -> None:
    raw = Script().end(call(1, "f", ""))
    assert ToolCallDelta(0, "{}") in decoded([raw], "responses")


def test_free_form_calls_bring_plain_input() -> None:
    item = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "p", "input": ""}
    script = Script().add("output_item.added", output_index=0, item=item)
    script.add("custom_tool_call_input.delta", output_index=0, item_id="ctc_1", delta="*** Begin")
    script.add("output_item.done", output_index=0, item=item | {"input": "*** Begin"})
    assert decoded([script.end(item | {"input": "*** Begin"})], "responses")[1:4] == [
        ToolCallStart(0, "call_1", "p", custom=True),
        ToolCallDelta(0, "*** Begin"),
        ToolCallEnd(0),
    ]


def test_several_parts_of_a_thought_are_paragraphs() -> None:
    item = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "A."}, {"type": "summary_text", "text": "B."}],
    }
    assert joined(decoded([Script().end(item, message("x"))], "responses"))[1:3] == [
        ReasoningDelta("A.\n\nB."),
        TextDelta("x"),
    ]


def test_sources_and_probabilities_are_told() -> None:
    script = say("Hello")
    source = {"type": "url_citation", "url": "https://a.b", "title": "T", "start_index": 1, "end_index": 3}
    where = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    script.add("output_text.annotation.added", **where, annotation_index=0, annotation=source)
    chances = [{"token": "x", "logprob": -0.5, "top_logprobs": []}]
    script.add("output_text.delta", **where, delta="!", logprobs=chances)
    done = message("Hello!", id_="msg_0")
    done["content"][0]["annotations"] = [source, {"type": "file_citation", "file_id": "f"}]
    events = decoded([script.end(done)], "responses")
    assert [event for event in events if isinstance(event, Citation)] == [Citation("https://a.b", "T", 1, 3)]
    assert Logprobs(chances) in events


@pytest.mark.parametrize(
    ("raw", "status", "code", "kind"),
    [
        (rs("error", code="server_error", message="flat", param=None), 500, "server_error", "upstream_error"),
        (
            rs("error", error={"type": "x", "code": "rate_limit_exceeded", "message": "nested"}),
            429,
            "rate_limit_exceeded",
            "rate_limited",
        ),
        (
            rs("failed", response=response("failed", error={"code": "invalid_prompt", "message": "bad"})),
            400,
            "invalid_prompt",
            "bad_request",
        ),
        (rs("failed", response=response("failed")), 500, "server_error", "upstream_error"),
        (b'data: {"error":{"message":"no type"}}\n\n', 500, None, "upstream_error"),
    ],
)
@pytest.mark.parametrize("target", ["responses", "chat"])
def test_b011_errors_inside_a_stream_are_read_in_every_shape(
    raw: bytes, status: int, code: str | None, kind: str, target: str
) -> None:
    ran = run([say("x").cut() + raw], "responses", target)
    assert ran.codec.error is not None
    assert (ran.codec.error.status, ran.codec.error.code) == (status, code)
    assert from_stream_error(ran.codec.error).kind == kind
    ran.parsed()
    first = run([raw], "responses", target)
    assert first.codec.error is not None
    assert not first.codec.content


def test_a_plain_answer_that_failed_is_an_error() -> None:
    body = json.dumps(response("failed", error={"code": "server_error", "message": "no"})).encode()
    assert CODEC.decode_answer(body, CAN) == [
        StreamError(status=500, message="no", code="server_error", type=None)
    ]
    assert isinstance(CODEC.decode_answer(b'{"error":{"message":"x"}}', CAN)[0], StreamError)
    for body in (b"", b"[]", b"{}", b'{"object":"chat.completion","choices":[]}', b"\n\n"):
        with pytest.raises(DecodeError):
            CODEC.decode_answer(body, CAN)


def test_what_is_counted_is_what_was_produced() -> None:
    for name in STREAMS:
        whole_way = run([fixture(name)], "responses", "chat").counted
        assert run(by_event(fixture(name)), "responses", "chat").counted == whole_way
    assert run([fixture("tools")], "responses", "chat").counted == 'f{"a":1}g{}'


# ---- usage ----------------------------------------------------------------------------------------------------------


def test_usage_vectors() -> None:
    read = read_usage(decode_response(json.dumps({"usage": VECTOR_JSON}).encode()))
    assert read == VECTOR
    assert json.loads(write_usage(VECTOR)) == VECTOR_JSON


def test_b050_absent_counts_are_unknown_and_written_as_nothing() -> None:
    read = read_usage(decode_response(b'{"usage":{"input_tokens":7,"output_tokens":3}}'))
    assert read == Usage(input_tokens=7, output_tokens=3)
    assert json.loads(write_usage(read))["output_tokens_details"] == {"reasoning_tokens": 0}
    for odd in (b"null", b"[]", b'{"input_tokens":-1}', b'{"input_tokens":"7"}'):
        assert read_usage(decode_response(b'{"usage":%b}' % odd)) is None


def test_quirks_of_counting_are_put_right() -> None:
    can = Capabilities(prompt_excludes_cache=True, output_excludes_reasoning=True)
    given = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    events = CODEC.decode_answer(json.dumps(response("completed", [message("x")], usage=given)).encode(), can)
    usage = next(event.usage for event in events if isinstance(event, UsageReport))
    assert (usage.input_tokens, usage.output_tokens) == (14, 5)


# ---- writing --------------------------------------------------------------------------------------------------------


def test_b018_text_then_a_call_is_told_in_order() -> None:
    parsed = encoded(
        TextDelta("H"),
        TextDelta("i"),
        ToolCallStart(0, "call_9", "f"),
        ToolCallDelta(0, "{}"),
        Finish("stop"),
    )
    assert [event["type"].removeprefix("response.") for event in parsed.events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert parsed.text == "Hi"
    assert parsed.tool_calls == [("call_9", "f", "{}")]


def test_thoughts_texts_and_calls_may_alternate() -> None:
    parsed = encoded(
        ReasoningDelta("a"),
        TextDelta("b"),
        ReasoningDelta("c"),
        RefusalDelta("d"),
        TextDelta("e"),
        ToolCallStart(0, "1", "f"),
        ToolCallEnd(0),
        TextDelta("g"),
        Finish("stop"),
    )
    assert [item["type"] for item in items(parsed)] == [
        "reasoning",
        "message",
        "reasoning",
        "message",
        "function_call",
        "message",
    ]
    assert [part["type"] for part in items(parsed)[3]["content"]] == ["refusal", "output_text"]
    ids = [item["id"] for item in items(parsed)]
    assert len(set(ids)) == len(ids)


def test_calls_that_overlap_are_told_one_after_another() -> None:
    parsed = encoded(
        ToolCallStart(0, "a", "f"),
        ToolCallDelta(0, '{"x"'),
        ToolCallStart(1, "b", "g"),
        ToolCallDelta(1, "{"),
        TextDelta("between"),
        ToolCallDelta(0, ":1}"),
        ToolCallDelta(1, "}"),
        TextDelta(" after"),
        Finish("tool_calls"),
    )
    assert parsed.tool_calls == [("a", "f", '{"x":1}'), ("b", "g", "{}")]
    assert parsed.text == "between after"


def test_empty_arguments_are_an_empty_object_and_ids_are_minted() -> None:
    parsed = encoded(
        ToolCallStart(0, "", "f"), ToolCallEnd(0), ToolCallStart(1, "", "f"), ToolCallEnd(1), Finish("stop")
    )
    assert [one.arguments for one in parsed.tool_calls] == ["{}", "{}"]
    ids = [one.id for one in parsed.tool_calls]
    assert len(set(ids)) == 2
    assert all(id_.startswith("call_") and len(id_) <= 64 for id_ in ids)
    long = encoded(ToolCallStart(0, "x" * 80, "f"), ToolCallDelta(0, "{}"), Finish("stop"))
    assert len(long.tool_calls[0].id) <= 64


@pytest.mark.parametrize(
    ("reason", "type_", "details"),
    [
        ("stop", "completed", None),
        ("stop_sequence", "completed", None),
        ("tool_calls", "completed", None),
        ("paused", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("context_full", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_b032_b021_finish_reasons(reason: Any, type_: str, details: dict[str, str] | None) -> None:
    parsed = encoded(TextDelta("x"), Finish(reason))
    last = parsed.events[-1]
    assert last["type"] == f"response.{type_}"
    assert last["response"]["incomplete_details"] == details
    assert items(parsed)[0]["status"] == type_
    told = whole(TextDelta("x"), Finish(reason))
    assert (told["status"], told["incomplete_details"]) == (type_, details)


def test_b032_an_answer_of_thoughts_alone_is_incomplete_and_no_error() -> None:
    raw = Script().end(
        {"id": "rs_1", "type": "reasoning", "summary": []},
        type_="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    )
    parsed = run([raw], "responses", "chat").parsed(usage=True)
    assert (parsed.text, parsed.finish) == ("", "length")
    back = encoded(Finish("length"))
    assert (items(back), back.finish) == ([], "max_output_tokens")


def test_state_of_this_vendor_stays_as_it_is_and_others_are_sealed() -> None:
    parsed = encoded(
        ReasoningDelta("t"),
        OpaqueState(Opaque(vendor="anthropic", kind="signature", value="SG")),
        OpaqueState(REDACTED),
        ReasoningDelta("u"),
        OpaqueState(ENCRYPTED),
        TextDelta("x"),
        OpaqueState(SIGNATURE),
        ToolCallStart(0, "call_1", "f"),
        ToolCallDelta(0, "{}"),
        OpaqueState(SIGNATURE, call_index=0),
        Finish("tool_calls"),
    )
    states = [item.get("encrypted_content") for item in items(parsed)]
    assert [item["type"] for item in items(parsed)] == [
        "reasoning",
        "reasoning",
        "reasoning",
        "message",
        "reasoning",
        "function_call",
        "reasoning",
    ]
    assert open_envelope(states[0] or "") == Opaque(vendor="anthropic", kind="signature", value="SG")
    assert open_envelope(states[1] or "") == REDACTED
    assert states[2] == "gAAA"
    assert states[4] == seal(SIGNATURE)
    opened = open_envelope(states[6] or "")
    assert opened is not None
    assert (opened.value, opened.id) == ("Q0hB", "call_1")


def test_sources_and_probabilities_stand_at_their_part() -> None:
    chances = [{"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}]
    parsed = encoded(
        TextDelta("Hello"),
        ReasoningDelta("r"),
        TextDelta("xy"),
        Logprobs(chances),
        Citation("https://a.b", "T", 5, 7),
        Finish("stop"),
    )
    part = items(parsed)[2]["content"][0]
    assert part["annotations"] == [
        {"type": "url_citation", "start_index": 0, "end_index": 2, "title": "T", "url": "https://a.b"}
    ]
    assert [entry["token"] for entry in part["logprobs"]] == ["x"]
    assert [event["type"] for event in parsed.events].count("response.output_text.annotation.added") == 1


def test_free_form_tools_get_plain_input_whatever_the_provider_made_of_them() -> None:
    asked = Asked(model=MODEL, id="a" * 24, created=1, custom_tools=frozenset({"p"}))
    for events in (
        (ToolCallStart(0, "1", "p"), ToolCallDelta(0, '{"inp'), ToolCallDelta(0, 'ut":"*** é"}')),
        (ToolCallStart(0, "1", "p", custom=True), ToolCallDelta(0, "*** "), ToolCallDelta(0, "é")),
    ):
        parsed = encoded(*events, ToolCallEnd(0), Finish("tool_calls"), asked=asked)
        (item,) = items(parsed)
        assert (item["type"], item["input"], item["name"]) == ("custom_tool_call", "*** é", "p")
        deltas = [event["delta"] for event in parsed.events if "delta" in event]
        assert "".join(deltas) == "*** é"


def test_names_and_namespaces_come_back_as_the_client_gave_them() -> None:
    asked = Asked(
        model=MODEL,
        id="a" * 24,
        created=1,
        tool_names={"short": "a name of my own"},
        namespaces={"n__g": ("n", "g")},
    )
    parsed = encoded(
        ToolCallStart(0, "1", "n__g"), ToolCallStart(1, "2", "short"), Finish("tool_calls"), asked=asked
    )
    assert [(item["name"], item.get("namespace")) for item in items(parsed)] == [
        ("g", "n"),
        ("a name of my own", None),
    ]


def test_a_search_for_tools_that_the_client_does_is_an_item_of_its_own() -> None:
    asked = Asked(model=MODEL, id="a" * 24, created=1, search_tool="tool_search")
    for pieces, arguments, status in (
        (['{"query": ', '"x", "limit": 2}'], {"query": "x", "limit": 2}, "completed"),
        ([], {}, "completed"),
        (['{"query": '], {}, "incomplete"),
        (['"x"'], {}, "incomplete"),
    ):
        deltas = [ToolCallDelta(0, piece) for piece in pieces]
        parsed = encoded(
            ToolCallStart(0, "c1", "tool_search"), *deltas, ToolCallEnd(0), Finish("tool_calls"), asked=asked
        )
        (item,) = items(parsed)
        assert (item["type"], item["execution"], item["call_id"]) == ("tool_search_call", "client", "c1")
        assert (item["arguments"], item["status"]) == (arguments, status)
        assert not any("delta" in event for event in parsed.events)


def json_raw(value: object) -> Any:
    """Return a value as it stands in a request."""
    return msgspec.Raw(json.dumps(value, indent=1).encode())


def test_the_response_repeats_the_request() -> None:
    asked = Asked(
        model=MODEL,
        id="a" * 24,
        created=7,
        raw={
            "instructions": json_raw("Be\nbrief."),
            "metadata": json_raw({"k": "v"}),
            "temperature": json_raw(None),
            "tools": json_raw([{"type": "function", "name": "f"}]),
            "input": json_raw("secret"),
        },
    )
    parsed = encoded(TextDelta("x"), Finish("stop"), asked=asked)
    for event in (parsed.events[0], parsed.events[-1]):
        told = event["response"]
        assert told["instructions"] == "Be\nbrief."
        assert told["metadata"] == {"k": "v"}
        assert told["tools"] == [{"type": "function", "name": "f"}]
        assert told["temperature"] == 1
        assert (told["id"], told["created_at"], told["store"]) == ("resp_" + "a" * 24, 7, False)
        assert "input" not in told


def test_r2_c7_the_terminal_event_tells_usage_and_cost() -> None:
    bill = Bill(VECTOR, in_usage=COST)
    ran = run([fixture("text")], "responses", "responses", bill=bill)
    assert ran.parsed(cost_nano_usd=2000).usage is not None
    told = plain([TextDelta("x"), Finish("stop"), End()], "responses", usage=VECTOR)
    assert {key: value for key, value in told["usage"].items() if "cost" not in key} == VECTOR_JSON
    assert told["usage"]["cost_nano_usd"] == 2000
    beside = Bill(VECTOR, beside_usage=b'"openrelay":{"cost_nano_usd":5}')
    body = json.loads(CODEC.encode_answer([TextDelta("x"), Finish("stop"), End()], ASKED, beside))
    assert body["openrelay"] == {"cost_nano_usd": 5}
    raw = run([fixture("text")], "responses", "responses", bill=beside).raw
    assert json.loads(raw.rstrip().rsplit(b"data: ", 1)[1])["response"]["openrelay"] == {"cost_nano_usd": 5}


def test_b010_an_error_follows_what_was_told_and_nothing_is_closed_before_it() -> None:
    encoder = CODEC.stream_encoder(ASKED)
    raw = encoder.start() + encoder.event(TextDelta("Par"))
    error = encoder.failure(StreamCut("upstream closed the stream"))
    parsed = check_responses_stream(raw + error, model=MODEL, end="error")
    assert parsed.events[-2]["sequence_number"] == 5
    assert parsed.events[-2]["code"] == parsed.error["code"] == "upstream_error"  # type: ignore[index]
    assert parsed.events[-1]["response"]["error"] == {
        "code": "upstream_error",
        "message": "upstream closed the stream",
    }


@pytest.mark.parametrize(
    "error", [StreamCut("x"), BadRequest("x", param="input"), InternalError(""), UpstreamTimeout("x", "idle")]
)
def test_an_error_may_be_the_very_first_event(error: Any) -> None:
    parsed = check_responses_stream(CODEC.error_event(error, "a" * 24), end="error")
    assert isinstance(parsed.error, dict)
    assert parsed.error["param"] == error.param
    encoder = CODEC.stream_encoder(ASKED)
    encoder.start()  # it was held and never left
    check_responses_stream(encoder.failure(error), model=MODEL, end="error")


def test_errors_before_the_first_byte_are_told_by_status() -> None:
    status, body = CODEC.encode_error(BadRequest("input[0]: no", param="input[0]"), "r")
    assert status == 400
    assert json.loads(body)["error"] == {
        "message": "input[0]: no",
        "type": "invalid_request_error",
        "param": "input[0]",
        "code": None,
    }


pieces = st.text(st.characters(codec="utf-8"), max_size=6)
content = st.lists(
    st.one_of(
        pieces.map(TextDelta),
        pieces.map(ReasoningDelta),
        pieces.map(RefusalDelta),
        st.integers(0, 3).flatmap(
            lambda index: st.sampled_from(
                [
                    ToolCallStart(index, f"call_{index}", "f"),
                    ToolCallDelta(index, '{"a":'),
                    ToolCallDelta(index, "1}"),
                    ToolCallEnd(index),
                ]
            )
        ),
        st.sampled_from([SIGNATURE, REDACTED, ENCRYPTED]).map(OpaqueState),
        st.just(Citation("https://a.b", "T", 0, 1)),
        st.just(Logprobs([{"token": "x", "logprob": -1.0, "bytes": [120], "top_logprobs": []}])),
    ),
    max_size=14,
)


@settings(max_examples=examples(300), deadline=None)
@given(content, st.sampled_from(["stop", "length", "content_filter", "tool_calls"]))
def test_whatever_comes_is_told_grammatically(events: list[StreamEvent], reason: Any) -> None:
    starts: set[int] = set()
    orderly: list[StreamEvent] = []
    for event in events:
        if isinstance(event, ToolCallStart):
            if event.index in starts:
                continue
            starts.add(event.index)
        orderly.append(event)
    parsed = encoded(*orderly, Finish(reason))
    assert parsed.text == "".join(event.text for event in orderly if isinstance(event, TextDelta))
    assert parsed.refusal == "".join(event.text for event in orderly if isinstance(event, RefusalDelta))
    assert parsed.reasoning == "".join(event.text for event in orderly if isinstance(event, ReasoningDelta))
    told = whole(*orderly, Finish(reason))
    assert told["output"] == json.loads(json.dumps(items(parsed), default=float))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers())
def test_decoding_what_was_encoded_gives_it_back(answer: Answer) -> None:
    stream = b"".join(piece.data for piece in DIALECTS["responses"].stream(answer, Ask("m")))
    events = decoded([stream.replace(ID.encode(), b"1")], "responses")
    again = decoded([written(events, "responses").raw], "responses")
    dull = (Start, UsageReport)
    assert [plainly(event) for event in again if not isinstance(event, dull)] == [
        plainly(event) for event in events if not isinstance(event, dull)
    ]


def plainly(event: StreamEvent) -> StreamEvent:
    """Return an event without what names its provider."""
    if isinstance(event, OpaqueState):
        return OpaqueState(Opaque(vendor="openai", kind="encrypted", value=event.opaque.value))
    return event
