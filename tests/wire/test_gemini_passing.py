"""Gemini on the same format: what passes byte for byte, what is put right, and how a stream ends."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.errors import DecodeError
from sluicegate.messages import Usage
from sluicegate.wire import Bill
from sluicegate.wire.gemini import CODEC
from sluicegate.wire.translation import Asked, PassOptions
from tests.profiles import examples
from tests.wire.gemini_world import (
    ASKED,
    COST,
    DONE,
    MODEL,
    STREAMS,
    USAGE,
    Passed,
    as_array,
    by_event,
    call,
    candidate,
    dumps,
    event,
    fixture,
    ge,
    response,
    run,
    text,
    ways,
)

HIDDEN = Asked(model=MODEL, id=ASKED.id, created=1, hide_provider=True)


def every_way(data: bytes, **options: Any) -> list[Passed]:
    return [run(way, **options) for way in ways(data)]


# ---- fixtures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("name", STREAMS)
def test_fixtures_pass_at_every_cut_in_both_forms(name: str, array: bool) -> None:
    data = fixture(name)
    whole = run([data], array=array)
    expected = whole.parsed(cost_nano_usd=2000)
    for body in (data, data.replace(b"\n", b"\r\n"), as_array(data)):
        for passed in every_way(body, array=array):
            parsed = passed.parsed(cost_nano_usd=2000)
            assert parsed.text == expected.text
            assert (parsed.reasoning, parsed.tool_calls) == (expected.reasoning, expected.tool_calls)
            assert (parsed.finish, parsed.usage) == (expected.finish, expected.usage)
            assert passed.counted == whole.counted


@pytest.mark.parametrize("name", STREAMS)
def test_a_cut_stream_ends_with_an_error(name: str) -> None:
    events = by_event(fixture(name))
    for kept in range(len(events)):
        passed = run(events[:kept])
        assert passed.failure is not None
        passed.parsed()


def test_an_error_inside_the_stream_is_told_in_both_forms() -> None:
    """E2, G1."""
    for array in (False, True):
        passed = run([fixture("error-midstream")], array=array)
        assert passed.failure == "upstream closed the stream"
        parsed = passed.parsed()
        assert parsed.text == "Par"
        assert parsed.error is not None
        assert parsed.error["status"] == "UNAVAILABLE"


# ---- byte for byte ---------------------------------------------------------------------------------------------------


def test_all_but_the_edits_stays_as_it_is() -> None:
    """C3, C7."""
    odd = (
        b'{"zero" : [1.0, 1e2], "candidates":[{"index": 0,"content":{"role":"model","parts":[{"text":"\\u00e9",'
        b'"later":{"a":null}}],"mood":7},"safetyRatings":[{"category":"X"}],"avgLogprobs":-0.10},'
        b'{"index":1,"content":{"parts":[{"text":"b"}],"role":"model"}}],"createTime":"2026-01-01T00:00:00Z",'
        b'"usageMetadata":{"promptTokenCount": 9,"totalTokenCount":9,"trafficType":"ON_DEMAND"},"modelVersion":"m-001",'
        b'"responseId":"r1","last":{}}'
    )
    passed = run([b"data: " + odd + b"\n\n"], choices=2, repair=False, closed=False)
    wanted = odd.replace(b'"m-001"', dumps(MODEL))
    assert passed.writes[0] == b"data: " + wanted + b"\n\n"


def test_unknown_parts_are_content_and_survive() -> None:
    part = {"hologram": {"x": 1}}
    passed = run([ge(part), DONE])
    assert passed.codec.content
    assert b'{"hologram":{"x":1}}' in passed.raw
    assert not run([ge(text("")), DONE]).codec.content


def test_the_finish_leaves_with_usage_and_cost_in_one_event() -> None:
    bill = Bill(
        Usage(input_tokens=9, output_tokens=2), in_usage=COST, beside_usage=b'"x":{"cost_nano_usd":2000}'
    )
    passed = run([ge(text("a"), usage=USAGE), ge(text("b"), finish="STOP", usage=USAGE, new=1)], bill=bill)
    last = passed.parsed(cost_nano_usd=2000).events[-1]
    assert last["candidates"][0]["new"] == 1
    assert last["x"] == {"cost_nano_usd": 2000}
    assert list(last) == ["candidates", "usageMetadata", "modelVersion", "responseId", "x"]


def test_usage_that_nobody_reported_is_ours() -> None:
    passed = run(
        [ge(text("a")), ge(text(""), finish="STOP")], bill=Bill(Usage(input_tokens=4, output_tokens=3))
    )
    usage = passed.parsed().usage
    assert usage == {"promptTokenCount": 4, "candidatesTokenCount": 3, "totalTokenCount": 7}


def test_ids_are_the_same_on_every_event_and_hidden_on_demand() -> None:
    events = [
        ge(text(piece)).replace(b'"r1"', name)
        for piece, name in (("a", b'"r1"'), ("b", b'"r2"'), ("c", b"null"))
    ]
    passed = run([*events, DONE])
    assert {event["responseId"] for event in passed.parsed().events} == {"r1"}
    assert passed.codec.upstream_id == "r1"
    hidden = run([*events, DONE], asked=HIDDEN)
    assert {event["responseId"] for event in hidden.parsed().events} == {ASKED.id}
    assert hidden.codec.upstream_id == "r1"


def test_running_usage_passes_with_usual_events() -> None:
    pieces = [
        ge(
            text(piece),
            usage={"promptTokenCount": 9, "candidatesTokenCount": number, "totalTokenCount": 9 + number},
        )
        for number, piece in enumerate(["a", "é", '"q"', "\n", "z"])
    ]
    expected = b"".join(pieces).replace(b'"m"', dumps(MODEL))
    for way in (pieces, [b"".join(pieces)], [pieces[0], b"".join(pieces[1:])]):
        for line_end in (b"\n", b"\r\n"):
            passed = run([*(piece.replace(b"\n\n", line_end * 2) for piece in way), DONE])
            assert passed.raw.startswith(expected)
            assert passed.counted == 'aé"q"\nz'
            assert passed.parsed().usage is not None
    cut = run(pieces)
    assert cut.codec.usage == Usage(input_tokens=9, output_tokens=4)


# ---- the finish ------------------------------------------------------------------------------------------------------


def test_content_of_a_finish_event_leaves_at_once_and_the_finish_waits() -> None:
    finish = ge(text("z", thoughtSignature="U0lH"), finish="STOP", usage=USAGE, groundingMetadata={"a": 1})
    passed = run([ge(text("a")), finish], closed=False)
    assert b'"z"' in passed.writes[1]
    assert b"finishReason" not in passed.writes[1]
    assert b"usageMetadata" not in passed.writes[1]
    assert b'"groundingMetadata":{"a":1}' in passed.writes[2]
    assert passed.parsed().text == "az"


def test_a_finish_is_taken_back_by_content() -> None:
    """B080, B128."""
    for cut in (True, False):
        events = [ge(text(piece), finish="STOP", usage=USAGE) for piece in "abc"]
        passed = run(events if cut else [b"".join(events)])
        assert passed.parsed().text == "abc"
        assert passed.raw.count(b"finishReason") == 1
        assert passed.codec.repaired
    passed = run([ge(call("f"), finish="STOP"), ge(call("g"), finish="STOP", usage=USAGE)])
    assert [one.name for one in passed.parsed().tool_calls] == ["f", "g"]
    assert passed.codec.finish_reason == "tool_calls"


def test_usage_behind_the_finish_joins_it() -> None:
    late = event({"usageMetadata": USAGE, "modelVersion": "m", "responseId": "r1"})
    for repair in (True, False):
        passed = run([ge(text("a")), ge(text(""), finish="STOP"), late], repair=repair)
        parsed = passed.parsed()
        assert parsed.usage is not None
        assert parsed.usage["candidatesTokenCount"] == 2
        assert len(parsed.events) == 2


def test_an_unknown_event_behind_the_finish_leaves_before_it() -> None:
    passed = run([ge(text("a")), ge(text(""), finish="STOP"), event({"news": 1, "usageMetadata": USAGE})])
    assert passed.parsed().events[1]["news"] == 1


def test_candidates_finish_one_by_one() -> None:
    """B104."""
    events = [
        event(response(candidate(text("a")), candidate(text("b"), index=1))),
        event(response(candidate(text(""), finish="STOP"))),
        event(response(candidate(text("c"), index=1))),
        event(response(candidate(text(""), finish="MAX_TOKENS", index=1), usage=USAGE)),
    ]
    for passed in every_way(b"".join(events), choices=2):
        parsed = passed.parsed()
        assert parsed.texts == ("a", "bc")
        assert parsed.finish == "STOP"
    assert run(events[:3], choices=2).failure is not None
    assert run(events[:2], choices=2, closed=False).codec.held is False


def test_all_calls_of_an_answer_are_counted() -> None:
    assert run([ge(call("f", {"x": [1, 2]})), DONE]).counted == 'f{"x":[1,2]}'


def test_the_continuation_of_the_vendor_is_left_alone() -> None:
    last = event(response(candidate(text("a"), finish="CONTINUATION"), usage=USAGE, continuationToken="dG9r"))
    passed = run([last])
    assert passed.parsed().events[-1]["continuationToken"] == "dG9r"
    assert passed.codec.finish_reason == "length"


# ---- repairs ---------------------------------------------------------------------------------------------------------


def test_what_sdks_forget_a_turn_for_is_repaired() -> None:
    bare = event(
        {"candidates": [{"content": {"parts": [{"text": "a"}]}}], "modelVersion": "m", "responseId": "r1"}
    )
    empty = event({"candidates": [{"finishReason": "STOP", "index": 0}], "usageMetadata": USAGE})
    passed = run([bare, event({"usageMetadata": {"promptTokenCount": 9}}), empty])
    parsed = passed.parsed()
    assert len(parsed.events) == 2
    assert parsed.events[-1]["candidates"][0]["content"] == {"parts": [{"text": ""}], "role": "model"}
    assert passed.codec.repaired
    as_is = run([bare, empty], repair=False)
    assert b'"content":{"parts":[{"text":"a"}]}' in as_is.raw
    assert not as_is.codec.repaired


def test_half_characters_are_joined_and_broken_ones_replaced() -> None:
    one = ge(text("X")).replace(b"X", b"\\ud83d")
    two = ge(text("X")).replace(b"X", b"\\ude00!")
    assert run([one, two, DONE]).parsed().text == "\U0001f600!"
    assert run([ge(text("X")).replace(b"X", b"\xff"), DONE]).parsed().text == "�"


def test_too_long_an_event_is_a_clean_error() -> None:
    for body in ([ge(text("x" * 500))], [b"[" + dumps(response(candidate(text("x" * 500))))]):
        assert "longer than" in (run(body, max_event_bytes=200).failure or "")


# ---- answers that are not streamed -----------------------------------------------------------------------------------


def test_a_plain_answer_passes_but_for_model_usage_and_cost() -> None:
    """C3, C7, C9."""
    body = fixture("nonstream").strip()
    answer = CODEC.pass_answer(ASKED, body)
    assert answer.texts() == ["Hi"]
    assert (answer.finish_reason, answer.upstream_id) == ("stop", "r1")
    usage = answer.usage
    assert usage == Usage(input_tokens=9, output_tokens=2)
    details = b'"promptTokensDetails":[{"modality":"TEXT","tokenCount":9}]'
    wanted = body.replace(b'"modelVersion":"m"', b'"modelVersion":' + dumps(MODEL)).replace(
        details, details + b"," + COST
    )
    assert answer.encode(Bill(usage, in_usage=COST)) == wanted
    assert json.loads(CODEC.pass_answer(HIDDEN, body).encode(Bill(usage)))["responseId"] == ASKED.id


def test_a_plain_answer_may_be_a_block_an_error_or_nothing() -> None:
    blocked = CODEC.pass_answer(ASKED, fixture("prompt-blocked")[6:])
    assert blocked.finish_reason == "content_filter"
    called = CODEC.pass_answer(ASKED, dumps(response(candidate(call("f", {"a": 1}), finish="STOP"))))
    assert called.finish_reason == "tool_calls"
    assert called.texts() == ["f", '{"a":1}']
    error = b'[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]'
    failed = CODEC.pass_answer(ASKED, error)
    assert failed.error is not None
    assert failed.error.status == 503
    for body in (b"{}", b"[]", b"", b"<html>", b'{"candidates":1}'):
        with pytest.raises(DecodeError):
            CODEC.pass_answer(ASKED, body)


def test_an_answer_that_came_whole_although_a_stream_was_asked_for() -> None:
    stream = [ge(text("a")), ge(text("b"), finish="STOP", usage=USAGE)]
    for body in (fixture("nonstream"), as_array(b"".join(stream))):
        codec = CODEC.pass_stream(ASKED, PassOptions(count_text=lambda text: None))
        codec.feed_whole(body)
        assert codec.ended
        raw = b"".join(codec.out) + codec.farewell(Bill(codec.usage or Usage(), in_usage=COST))
        assert Passed(raw, codec, "", None, False).parsed(cost_nano_usd=2000).text in ("Hi", "ab")
    codec = CODEC.pass_stream(ASKED, PassOptions(count_text=lambda text: None))
    codec.feed_whole(b'[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]')
    assert codec.error is not None
    assert codec.error.status == 429
    with pytest.raises(DecodeError):
        codec.feed_whole(b"[]")


PARTS = st.one_of(
    st.builds(text, st.text(max_size=8)),
    st.builds(text, st.text(max_size=8), thought=st.just(True)),
    st.builds(call, st.just("f"), st.just({"x": 1})),
    st.builds(text, st.text(max_size=3), thoughtSignature=st.just("QUJD")),
)
EVENTS = st.lists(
    st.builds(
        ge,
        PARTS,
        finish=st.sampled_from([None, None, None, "STOP", "MAX_TOKENS"]),
        usage=st.sampled_from([None, USAGE]),
    ),
    max_size=8,
)


@settings(max_examples=examples(150), deadline=None)
@given(EVENTS, st.booleans(), st.booleans(), st.integers(0, 9))
def test_any_stream_passes_grammatically_and_alike_at_any_cut(
    events: list[bytes], array: bool, ends: bool, seed: int
) -> None:
    data = b"".join([*events, DONE] if ends else events)
    whole = run([data], array=array)
    parsed = whole.parsed()
    empty = (b'{"text":""}', b'{"text":"","thought":true}')
    telling = [one for one in events if b"finishReason" in one or not any(part in one for part in empty)]
    assert (whole.failure is None) == (ends or (bool(telling) and b"finishReason" in telling[-1]))
    for passed in (run(by_event(data), array=array), run(ways(data)[3 + seed % 4], array=array)):
        again = passed.parsed()
        assert (again.text, again.reasoning) == (parsed.text, parsed.reasoning)
        assert (again.tool_calls, again.finish, again.usage) == (
            parsed.tool_calls,
            parsed.finish,
            parsed.usage,
        )
