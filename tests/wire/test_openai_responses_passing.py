"""Responses on the same format: bytes pass but for the contract's edits, and what SDKs stumble over is put right."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.errors import DecodeError
from sluicegate.messages import Usage
from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.wire import Bill
from sluicegate.wire.openai_responses import CODEC
from sluicegate.wire.translation import Asked, PassOptions
from tests.grammar.responses import check_responses_stream
from tests.profiles import examples
from tests.strategies import answers
from tests.wire.openai_responses_world import (
    ASKED,
    COST,
    MODEL,
    STREAMS,
    Ran,
    Script,
    by_event,
    call,
    every_cut,
    fixture,
    message,
    response,
    rs,
    run,
)

HIDDEN = Asked(model=MODEL, id="f" * 24, created=1, hide_provider=True)


def passed(pieces: Any, *, repair: bool = True, asked: Asked = ASKED, bill: Bill | None = None) -> Ran:
    """Pass an answer, read by read."""
    counted: list[str] = []
    stream = CODEC.pass_stream(asked, PassOptions(count_text=counted.append, repair=repair))
    out: list[bytes] = []
    for piece in pieces:
        stream.feed(piece)
        out += stream.out
        stream.out.clear()
        if stream.ended or stream.error is not None:
            break
    if not stream.ended and stream.error is None:
        stream.finish()
    out += stream.out
    stream.out.clear()
    usage = stream.usage or Usage(input_tokens=3, output_tokens=5)
    out.append(stream.farewell(bill or Bill(usage, in_usage=COST)))
    return Ran(b"".join(out), stream, "".join(counted), None, "responses")


def expected(raw: bytes) -> bytes:
    """Return a well-formed stream as the client must get it: the model, and the cost in the last usage."""
    raw = raw.replace(b'"model":"m"', b'"model":"%b"' % MODEL.encode())
    head, usage, tail = raw.rpartition(b'"total_tokens":')
    end = tail.index(b"}")
    return head + usage + tail[:end] + b"," + COST + tail[end:]


def events_of(ran: Ran, type_: str) -> list[dict[str, Any]]:
    """Return the client's events of a type, without `response.`."""
    return [event for event in ran.parsed(end=None).events if event["type"] == f"response.{type_}"]


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize("name", STREAMS)
def test_c3_c7_streams_pass_byte_for_byte_but_for_model_and_cost(name: str, repair: bool) -> None:
    raw = fixture(name)
    for pieces in every_cut(raw):
        ran = passed(pieces, repair=repair)
        assert ran.raw == expected(raw)
        assert not ran.codec.repaired
        ran.parsed(cost_nano_usd=2000)


@pytest.mark.parametrize("repair", [True, False])
def test_unknown_fields_and_events_survive_byte_for_byte(repair: bool) -> None:
    odd = b'"x_new":{"a":[1.0,1e2,"\xc3\xa9 \\u00e9"]},'
    news = (
        b'event: response.brand.new\ndata: {"type":"response.brand.new","deep":{"item_id":7,"model":"m2"},'
        b'"output_index":0,"item_id":"rs_1"}\n\n'
    )
    for name in STREAMS:
        events = by_event(fixture(name))
        raw = b"".join(
            event.replace(b"{", b"{" + odd).replace(b"{%b}" % odd, b"{%b}" % odd[:-1]) for event in events
        )
        raw = raw.replace(b"event: response.output_item.done", news + b"event: response.output_item.done", 1)
        if name == "reasoning":
            assert news in raw
        else:
            raw = raw.replace(news, b"")
        if name == "tools":
            continue  # braces stand in its texts too
        for pieces in every_cut(raw, seeds=range(1)):
            assert passed(pieces, repair=repair).raw == expected(raw)


def test_events_of_hosted_tools_pass_as_content() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "in_progress"}
    script = Script().add("output_item.added", output_index=0, item=search)
    script.add("web_search_call.searching", output_index=0, item_id="ws_1")
    raw = script.add("output_item.done", output_index=0, item=search | {"status": "completed"}).end(search)
    ran = passed(by_event(raw))
    assert ran.raw == expected(raw)
    first = CODEC.pass_stream(ASKED, PassOptions(count_text=len))
    first.feed(b"".join(by_event(raw)[:3]))
    assert first.content


@pytest.mark.parametrize("name", STREAMS)
def test_e3_a_cut_after_any_event_is_an_error_and_never_an_end(name: str) -> None:
    events = by_event(fixture(name))
    for kept in range(len(events)):
        ran = run(events[:kept], "responses", "responses")
        assert ran.failure is not None
        assert ran.parsed(end="error").error is not None
        assert b"response.completed" not in ran.raw
        assert b"response.incomplete" not in ran.raw


def test_what_completes_an_answer_waits_for_settlement() -> None:
    stream = CODEC.pass_stream(ASKED, PassOptions(count_text=len))
    stream.feed(fixture("text"))
    assert stream.ended
    assert stream.joins_usage
    assert b"response.completed" not in b"".join(stream.out)
    stream.flush()
    stream.release()
    assert not stream.held
    assert stream.farewell(Bill(Usage(input_tokens=1, output_tokens=1))).startswith(
        b"event: response.completed"
    )


def test_counts_are_told_as_they_were_settled() -> None:
    bill = Bill(Usage(input_tokens=40, output_tokens=3), in_usage=COST)
    usage = passed([fixture("text")], bill=bill).parsed(cost_nano_usd=2000).usage
    assert usage is not None
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (40, 3, 43)
    silent = Script().end(message("x"), usage=None)
    told = passed([silent], bill=bill).parsed(cost_nano_usd=2000).usage
    assert told is not None
    assert told["input_tokens"] == 40


def test_b031_identity_is_the_same_on_every_lifecycle_event() -> None:
    script = Script(begin=False)
    script.add("created", response=response("in_progress") | {"created_at": 100.5})
    script.add("in_progress", response=response("in_progress") | {"id": "other", "created_at": 101})
    raw = script.end(message("x"), id=None, created_at=None, model=None)
    told = [event["response"] for event in passed([raw]).parsed().events if "response" in event]
    assert {(one["id"], one["created_at"], one["model"]) for one in told} == {("resp_1", 100, MODEL)}
    hidden = passed([fixture("text")], asked=HIDDEN)
    assert b"resp_1" not in hidden.raw
    assert hidden.codec.upstream_id == "resp_1"


def test_numbers_rise_by_one_whatever_the_provider_counted() -> None:
    raw = fixture("tools")
    for number in range(12):
        raw = raw.replace(b'"sequence_number":%d}' % number, b'"sequence_number":%d}' % (7 * number + 3))
    assert passed(by_event(raw)).raw == expected(fixture("tools"))
    silent = b"".join(
        event.replace(b',"sequence_number":%d}' % place, b"}")
        for place, event in enumerate(by_event(fixture("tools")))
    )
    assert passed(by_event(silent)).raw == expected(fixture("tools"))
    with_keepalive = by_event(fixture("text"))
    early = b"".join([rs("keepalive"), *with_keepalive])
    assert passed([early]).raw == expected(fixture("text"))
    with_keepalive.insert(3, rs("keepalive", sequence_number=77))
    told = passed([b"".join(with_keepalive)]).raw
    assert b'{"type":"keepalive","sequence_number":3}' in told
    assert b'"type":"response.completed"' in told
    assert b'"sequence_number":9}' in told


def test_odd_framing_does_not_pass() -> None:
    raw = b": hello\n\n" + fixture("text").replace(b"\n", b"\r\n").replace(b"data: ", b"data:", 3)
    for pieces in every_cut(raw, seeds=range(1)):
        assert passed(pieces).raw == expected(fixture("text"))
    assert passed([fixture("text") + b"data: [DONE]\n\n"]).raw == expected(fixture("text"))


def test_halves_of_characters_are_joined() -> None:
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    script = Script().add("output_item.added", output_index=0, item=message())
    script.add("content_part.added", **where, part={"type": "output_text", "text": "", "annotations": []})
    torn = b"".join(
        rs("output_text.delta", **where, delta="X", sequence_number=number).replace(b'"X"', half)
        for number, half in ((4, b'"a\\ud83d"'), (5, b'"\\ude00b"'), (6, b'"\\udc00"'))
    )
    ran = passed(by_event(script.raw(torn).end(message("a😀b\ufffd"))))
    assert "".join(event["delta"] for event in events_of(ran, "output_text.delta")) == "a😀b\ufffd"
    assert ran.counted == "a😀b\ufffd"


# ---- the usual read -------------------------------------------------------------------------------------------------


def test_bursts_and_single_events_are_told_and_counted_alike() -> None:
    texts = ["He", 'l"\\l', "o\n", "é😀", "", "\u2028", "x"] * 5
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    script = Script().add("output_item.added", output_index=0, item=message(status="in_progress"))
    script.add("content_part.added", **where, part={"type": "output_text", "text": "", "annotations": []})
    for text in texts:
        script.add("output_text.delta", **where, delta=text, logprobs=[], obfuscation="abcd")
    whole = "".join(texts)
    script.add("output_text.done", **where, text=whole, logprobs=[])
    part = {"type": "output_text", "text": whole, "annotations": [], "logprobs": []}
    script.add("content_part.done", **where, part=part)
    script.add("output_item.done", output_index=0, item=message(whole))
    raw = script.end(message(whole))
    for repair in (True, False):
        for pieces in every_cut(raw):
            ran = passed(pieces, repair=repair)
            assert ran.raw == expected(raw)
            assert ran.counted == whole
            assert not ran.codec.repaired


VENDOR = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","sequence_number":%d,'
    b'"item_id":"msg_1","output_index":0,"content_index":0,"delta":"%b","logprobs":[],"obfuscation":"%b"}\n\n'
)
OTHER = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
    b'"item_id":"msg_1","output_index":0,"content_index":0,"delta":"%b","100%%":1,"sequence_number":%d}\n\n'
)


@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_a_read_of_deltas_means_the_same_as_its_events_one_by_one(data: st.DataObject) -> None:
    script = Script().add("output_item.added", output_index=0, item=message(status="in_progress"))
    begun = script.add(
        "content_part.added",
        item_id="msg_1",
        output_index=0,
        content_index=0,
        part={"type": "output_text", "text": "", "annotations": []},
    ).cut()
    texts = st.sampled_from([b"a", b"", b"\\n", b"\\u00e9", "é".encode(), b'\\"', b"\\\\", b"%d", b'","x":"'])
    vendor = data.draw(st.booleans())
    deltas = []
    for place, text in enumerate(data.draw(st.lists(texts, min_size=4, max_size=9))):
        number = place + 4 + data.draw(st.sampled_from([0] * 9 + [1]))
        deltas.append(VENDOR % (number, text, b"x" * place) if vendor else OTHER % (text, number))
    raw = bytearray(b"".join(deltas))
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=2)):
        raw[place : place + 1] = data.draw(
            st.sampled_from([b"", b'"', b"\n", b"\r", b"\\", b"7", b"\xff", b"}"])
        )
    whole = bytes(raw)
    head = max(1, data.draw(st.integers(0, len(deltas))))
    first = sum(len(delta) for delta in deltas[:head])

    def outcome(pieces: list[bytes]) -> tuple[bytes, str] | None:
        counted: list[str] = []
        stream = CODEC.pass_stream(ASKED, PassOptions(count_text=counted.append))
        out: list[bytes] = []
        try:
            for piece in pieces:
                stream.feed(piece)
                out += stream.out
                stream.out.clear()
        except DecodeError:
            return None
        return b"".join(out), "".join(counted)

    expected_outcome = outcome([begun, *(bytes([byte]) for byte in whole)])
    assert outcome([begun, whole[:first], whole[first:]]) == expected_outcome
    assert outcome([begun, *by_event(whole)]) == expected_outcome
    assert outcome([begun + whole]) == expected_outcome


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.booleans())
def test_any_answer_passes_at_any_cut(answer: Answer, repair: bool) -> None:
    pieces = DIALECTS["responses"].stream(answer, Ask("m"))
    raw = b"".join(piece.data for piece in pieces).replace(ID.encode(), b"1")
    once = passed([raw], repair=repair)
    assert not once.codec.repaired
    parsed = once.parsed(cost_nano_usd=2000)
    assert parsed.text + parsed.refusal == "".join(answer.text + answer.refusal)
    for cut in every_cut(raw, seeds=range(1)):
        assert passed(cut, repair=repair).raw == once.raw


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=200), st.integers(0, 8), st.booleans())
def test_any_bytes_pass_or_are_an_error(noise: bytes, kept: int, repair: bool) -> None:
    events = by_event(fixture("text"))
    for raw in (noise, b"".join(events[:kept]) + noise, b"data: {" + noise + b"}\n\n"):
        stream = CODEC.pass_stream(ASKED, PassOptions(count_text=len, repair=repair))
        with suppress(DecodeError):
            stream.feed(raw)
            stream.finish()


# ---- repairs --------------------------------------------------------------------------------------------------------


def bare(*payloads: dict[str, Any]) -> bytes:
    """Return events without names and numbers."""
    return b"".join(b"data: " + json.dumps(payload).encode() + b"\n\n" for payload in payloads)


def done(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a terminal event that says little."""
    return {"type": "response.completed", "response": {"id": "r", "output": list(output), **more}}


def test_b083_items_and_parts_that_nobody_announced_are_begun_and_closed() -> None:
    raw = bare(
        {"type": "response.output_text.delta", "delta": "Hi"},
        {"type": "response.output_text.delta", "delta": " you"},
        done(),
    )
    for pieces in every_cut(raw):
        ran = passed(pieces)
        assert ran.parsed().text == "Hi you"
        assert ran.codec.repaired
        assert ran.codec.content


def test_what_comes_only_at_its_end_is_told_as_a_delta_too() -> None:
    text = {"type": "output_text", "text": "Hi", "annotations": []}
    for told in (
        {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Hi"},
        {"type": "response.content_part.done", "output_index": 0, "content_index": 0, "part": text},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "message", "content": [text]},
        },
        None,
    ):
        item = {"type": "message", "role": "assistant", "content": [text]}
        raw = bare(*([told] if told else []), done(item))
        ran = passed([raw])
        assert ran.parsed().text == "Hi"
        assert [event["delta"] for event in events_of(ran, "output_text.delta")] == ["Hi"]
    call_ = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'}
    for told in ({"type": "response.output_item.done", "output_index": 0, "item": call_}, None):
        ran = passed([bare(*([told] if told else []), done(call_))])
        assert ran.parsed().tool_calls == [("c", "f", '{"a":1}')]


@pytest.mark.parametrize("repair", [True, False])
def test_what_is_counted_is_what_was_produced_and_once(repair: bool) -> None:
    for pieces in every_cut(fixture("tools")):
        assert passed(pieces, repair=repair).counted == 'f{"a":1}g{}'
    silent = by_event(fixture("tools"))
    assert passed([silent[0], silent[-1]], repair=repair).counted == 'f{"a":1}g{}'
    unnumbered = bare(
        {"type": "response.output_text.delta", "delta": "Hi"},
        {"type": "response.output_text.delta", "delta": " you"},
        done(),
    )
    assert passed([unnumbered], repair=repair).counted == "Hi you"


def test_gotcha_18_calls_without_arguments_get_an_empty_object() -> None:
    for known in (3, 4, 5):
        script = Script()
        script.add("output_item.added", output_index=0, item=call(1, "f", "", "in_progress"))
        where = {"item_id": "fc_1", "output_index": 0}
        script.add("function_call_arguments.done", **where, name="f", arguments="")
        script.add("output_item.done", output_index=0, item=call(1, "f", ""))
        events = by_event(script.end(call(1, "f", "")))
        ran = passed([*events[:known], events[-1]])
        assert ran.parsed().tool_calls == [("call_1", "f", "{}")]
        assert ran.codec.repaired
    assert passed([Script().end(call(1, "f", ""))]).parsed().tool_calls == [("call_1", "f", "{}")]


def test_parts_and_texts_that_are_left_open_are_closed() -> None:
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    script = Script().add("output_item.added", output_index=0, item=message(status="in_progress"))
    script.add("content_part.added", **where, part={"type": "output_text", "text": "", "annotations": []})
    script.add("output_text.delta", **where, delta="Hi")
    thought = {"id": "rs_1", "type": "reasoning", "summary": []}
    script.add("output_item.added", output_index=1, item=thought)
    summary = {"item_id": "rs_1", "output_index": 1, "summary_index": 0}
    script.add("reasoning_summary_text.delta", **summary, delta="hm")
    raw = script.end(type_="incomplete", incomplete_details={"reason": "max_output_tokens"})
    parsed = passed(by_event(raw)).parsed()
    assert (parsed.text, parsed.reasoning, parsed.finish) == ("Hi", "hm", "max_output_tokens")


def test_indexes_have_no_gaps_and_ids_are_given_to_what_has_none() -> None:
    script = Script()
    for place in (2, 5):
        item = {"type": "function_call", "name": f"f{place}", "arguments": ""}
        script.add("output_item.added", output_index=place, item=item)
        script.add("function_call_arguments.delta", output_index=place, delta="{}")
        script.add("output_item.done", output_index=place, item=item | {"arguments": "{}"})
    ran = passed(by_event(script.end()))
    calls = ran.parsed().tool_calls
    assert [one.name for one in calls] == ["f2", "f5"]
    assert len({one.id for one in calls}) == 2
    added = events_of(ran, "output_item.added")
    assert [event["output_index"] for event in added] == [0, 1]
    assert all(event["item"]["id"] for event in added)


def test_late_text_of_a_closed_message_is_not_lost() -> None:
    script = Script().add("output_item.added", output_index=0, item=message(status="in_progress"))
    script.add("output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta="a")
    script.add("output_item.added", output_index=1, item=call(1, "f", "", "in_progress"))
    script.add("function_call_arguments.delta", item_id="fc_1", output_index=1, delta="{}")
    script.add("output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta="b")
    parsed = passed(by_event(script.end())).parsed()
    assert parsed.text == "ab"
    assert parsed.tool_calls == [("call_1", "f", "{}")]


def test_gotcha_24_the_terminal_event_tells_all_that_was_streamed() -> None:
    raw = fixture("text")
    head, _, tail = raw.rpartition(b'"output":[')
    end = tail.index(b'],"parallel')
    for output in (b"[]", b"null"):
        ran = passed([head + b'"output":' + output + tail[end + 1 :]])
        assert ran.parsed().text == "Hi"
        assert ran.codec.repaired


def test_without_repair_the_grammar_is_the_providers_own() -> None:
    raw = bare({"type": "response.output_text.delta", "output_index": 4, "delta": "Hi"}, done(model="m"))
    ran = passed([raw], repair=False)
    assert b'"output_index": 4' in ran.raw
    assert b"output_item.added" not in ran.raw
    assert ran.raw.startswith(b"event: response.created\n")
    assert ran.raw.count(b'"sequence_number":') == 3


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_whatever_structure_is_left_out_the_stream_is_grammatical(data: st.DataObject) -> None:
    events = by_event(fixture(data.draw(st.sampled_from([name for name in STREAMS if name != "tools"]))))
    needed = (b".delta", b"encrypted_content")
    kept = [
        event for event in events[:-1] if any(word in event for word in needed) or data.draw(st.booleans())
    ]
    parsed = passed([*kept, events[-1]]).parsed()
    assert parsed.text + parsed.refusal == passed([b"".join(events)]).parsed().text + "".join(
        event["refusal"] for event in parsed.events if event["type"] == "response.refusal.done"
    )


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_calls_survive_whatever_is_left_out_behind_their_start(data: st.DataObject) -> None:
    events = by_event(fixture("tools"))
    source = data.draw(st.sampled_from([b".delta", b"output_item.done"]))
    kept = [
        event
        for event in events[:-1]
        if b"item.added" in event or source in event or (b".delta" not in event and data.draw(st.booleans()))
    ]
    assert passed([*kept, events[-1]]).parsed().tool_calls == [
        ("call_1", "f", '{"a":1}'),
        ("call_2", "g", "{}"),
    ]


# ---- answers that are not streamed ----------------------------------------------------------------------------------


def answer_of(body: bytes, asked: Asked = ASKED) -> Any:
    """Read a plain answer."""
    return CODEC.pass_answer(asked, body)


def test_plain_answers_pass_but_for_model_usage_and_cost() -> None:
    raw = fixture("nonstream").strip()
    odd = raw.replace(b'"object"', b'"x_odd" : [1.0, 1e2], "object"')
    answer = answer_of(odd)
    assert answer.texts() == ["Hi"]
    assert (answer.usage, answer.finish_reason, answer.upstream_id) == (
        Usage(input_tokens=9, cache_read_tokens=0, cache_write_tokens=0, output_tokens=2, reasoning_tokens=0),
        "stop",
        "resp_1",
    )
    assert answer.encode(Bill(answer.usage, in_usage=COST)) == expected(odd)
    hidden = json.loads(answer_of(raw, HIDDEN).encode(Bill(answer.usage)))
    assert hidden["id"] == "resp_" + "f" * 24


def test_b105_a_stream_that_came_where_none_was_asked_for_is_folded() -> None:
    answer = answer_of(fixture("tools"))
    assert answer.finish_reason == "tool_calls"
    assert answer.texts() == ["f", '{"a":1}', "g", "{}"]
    body = json.loads(answer.encode(Bill(answer.usage, in_usage=COST)))
    assert [item["name"] for item in body["output"]] == ["f", "g"]
    assert answer_of(fixture("error-midstream")).error.message == "upstream closed the stream"
    with pytest.raises(DecodeError):
        answer_of(b"".join(by_event(fixture("tools"))[:-1]))


def test_plain_answers_that_failed_or_are_none() -> None:
    failed = json.dumps(response("failed", error={"code": "server_error", "message": "no"})).encode()
    assert answer_of(failed).error.message == "no"
    assert answer_of(b'{"error":{"message":"x","code":"rate_limit_exceeded"}}').error.status == 429
    queued = answer_of(json.dumps(response("queued")).encode())
    assert queued.error is None
    assert queued.finish_reason is None
    for body in (b"", b"\n\n", b"[]", b"{}", b'{"object":"chat.completion"}'):
        with pytest.raises(DecodeError):
            answer_of(body)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers())
def test_b043_a_plain_answer_to_a_streamed_request_is_told_as_a_stream(answer: Answer) -> None:
    body = DIALECTS["responses"].plain(answer, Ask("m")).replace(ID.encode(), b"1")
    counted: list[str] = []
    stream = CODEC.pass_stream(ASKED, PassOptions(count_text=counted.append))
    stream.feed_whole(body)
    assert stream.ended
    usage = stream.usage or Usage()
    raw = b"".join(stream.out) + stream.farewell(Bill(usage, in_usage=COST))
    parsed = check_responses_stream(raw, model=MODEL, cost_nano_usd=2000)
    assert parsed.text == "".join(answer.text)
    assert [one.name for one in parsed.tool_calls] == [one.name for one in answer.tool_calls]
    assert "".join(counted).endswith("".join(one.name + one.joined() for one in answer.tool_calls))


def test_a_huge_event_passes_or_is_refused_by_its_size() -> None:
    picture = {
        "id": "ig_1",
        "type": "image_generation_call",
        "status": "completed",
        "result": "A" * 4_000_000,
    }
    script = Script().add("output_item.added", output_index=0, item=picture | {"result": None})
    raw = script.add("output_item.done", output_index=0, item=picture).end(picture)
    pieces = [raw[at : at + 65_536] for at in range(0, len(raw), 65_536)]
    assert passed(pieces).raw == expected(raw)
    small = CODEC.pass_stream(ASKED, PassOptions(count_text=len, max_event_bytes=1_000_000))
    with pytest.raises(DecodeError):
        small.feed(raw)


def test_events_without_a_type_are_left_out() -> None:
    """SDKs read the type of every event; one that has none breaks them."""
    events = by_event(fixture("text"))
    odd = b'data: {"choices":[],"x":"\xff\xfe"}\n\n'
    ran = passed([b"".join([*events[:4], odd, *events[4:]])])
    assert ran.raw == expected(fixture("text"))
    assert ran.codec.repaired
