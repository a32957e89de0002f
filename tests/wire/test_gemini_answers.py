"""Answers of Gemini providers decoded, and answers to Gemini clients encoded, streamed and not."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
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
from sluicegate.wire import Bill
from sluicegate.wire.envelope import open_envelope
from sluicegate.wire.gemini import CODEC
from sluicegate.wire.gemini_usage import read_usage, settled_usage, write_usage
from sluicegate.wire.translation import Asked
from tests.grammar.gemini import check_gemini_stream
from tests.profiles import examples
from tests.wire.gemini_world import (
    ASKED,
    COST,
    DONE,
    MODEL,
    STREAMS,
    USAGE,
    as_array,
    by_event,
    call,
    candidate,
    decoded,
    dumps,
    event,
    fixture,
    ge,
    joined,
    response,
    run,
    text,
    ways,
)

CAN = Capabilities()
BILL = Bill(Usage(input_tokens=9, output_tokens=5, reasoning_tokens=2), in_usage=COST)


def texts(events: list[StreamEvent], kind: type = TextDelta) -> str:
    return "".join(event.text for event in events if type(event) is kind)  # type: ignore[union-attr]


def only(events: list[StreamEvent], kind: type) -> Any:
    found = [event for event in events if type(event) is kind]
    assert len(found) == 1, found
    return found[0]


# ---- fixtures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
def test_every_cut_gives_the_same_events(name: str) -> None:
    data = fixture(name)
    whole = decoded([data])
    assert whole[-2 if isinstance(whole[-1], UsageReport) else -1] == End()
    for way in [*ways(data), *ways(data.replace(b"\n", b"\r\n")), *ways(as_array(data))]:
        assert decoded(way) == whole


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_cut_has_no_end(name: str) -> None:
    events = by_event(fixture(name))
    for kept in range(len(events)):
        with pytest.raises(DecodeError):
            decoded(events[:kept])


def test_text_fixture() -> None:
    assert decoded([fixture("text")]) == [
        Start(id="r1"),
        TextDelta("Hello"),
        Finish("stop", raw_reason="STOP"),
        End(),
        UsageReport(Usage(input_tokens=9, output_tokens=2)),
    ]


def test_parallel_calls_fixture() -> None:
    signature = Opaque(vendor="google", kind="signature", value="U0lH", model="m", id="call_1")
    assert decoded([fixture("tools")])[1:] == [
        OpaqueState(signature, call_index=0),
        ToolCallStart(0, "call_1", "f"),
        ToolCallDelta(0, '{"a":1}'),
        ToolCallEnd(0),
        ToolCallStart(1, "call_2", "g"),
        ToolCallDelta(1, "{}"),
        ToolCallEnd(1),
        Finish("tool_calls", raw_reason="STOP"),
        End(),
        UsageReport(Usage(input_tokens=20, output_tokens=12)),
    ]


def test_thoughts_fixture_keeps_the_signature_of_an_empty_part() -> None:
    events = decoded([fixture("thoughts")])
    assert texts(events, ReasoningDelta) == "Let me see"
    assert texts(events) == "42"
    assert only(events, OpaqueState).opaque.value == "U0lH"
    assert only(events, UsageReport).usage == Usage(input_tokens=9, output_tokens=26, reasoning_tokens=24)


def test_blocked_prompt_and_blocked_output_are_content_filter() -> None:
    assert only(decoded([fixture("prompt-blocked")]), Finish).raw_reason == "PROHIBITED_CONTENT"
    for name in ("prompt-blocked", "output-blocked"):
        assert only(decoded([fixture(name)]), Finish).reason == "content_filter"
    assert only(decoded([fixture("max-tokens")]), Finish).reason == "length"


def test_error_fixture_ends_the_stream() -> None:
    events = decoded([fixture("error-midstream")])
    assert events[-1] == StreamError(
        status=503, message="upstream closed the stream", code="503", type="UNAVAILABLE"
    )


def test_plain_fixture_says_what_its_stream_would() -> None:
    events = joined(CODEC.decode_answer(fixture("nonstream"), CAN))
    assert events == [
        Start(id="r1"),
        TextDelta("Hi"),
        Finish("stop", raw_reason="STOP"),
        End(),
        UsageReport(Usage(input_tokens=9, output_tokens=2)),
    ]


# ---- the upstream's ways -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        b'{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}',
        b'[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]',
        b'[{\n  "error": {\n    "code": 429,\n    "message": "slow",\n    "status": "RESOURCE_EXHAUSTED"\n  }\n}\n]\n',
        b'data: {"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}\n\n',
        b'data: [{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]\n\n',
    ],
)
def test_errors_in_every_shape_at_the_start_and_behind_content(error: bytes) -> None:
    for before in (b"", ge(text("Par"))):
        for way in ways(before + error):
            found = only(decoded(way), StreamError)
            assert (found.status, found.message) == (429, "slow")
    if not error.startswith(b"data"):
        assert [type(one) for one in CODEC.decode_answer(error, CAN)] == [StreamError]


def test_lone_objects_on_several_lines_are_read_as_events() -> None:
    pretty = json.dumps(json.loads(DONE[6:]), indent=2).replace("\n", "\r\n").encode()
    assert texts(decoded([ge(text("a")) + pretty])) == "a"


def test_usage_in_any_event_the_last_one_counts() -> None:
    """B088."""
    first = ge(text("a"), usage={"promptTokenCount": 9, "totalTokenCount": 9})
    events = decoded([first, ge(text("b"), finish="STOP")])
    assert only(events, UsageReport).usage == Usage(input_tokens=9, output_tokens=0)
    events = decoded([first, ge(text("b"), usage=USAGE, finish="STOP")])
    assert only(events, UsageReport).usage == Usage(input_tokens=9, output_tokens=2)


def test_calls_have_a_counter_and_ids_of_their_own() -> None:
    """B044, B078, B098: the same name and arguments twice, without ids, in one event and in several."""
    same = call("w", {"city": "A"})
    events = decoded([ge(same), ge(same, same), ge(finish="STOP")])
    starts = [one for one in events if isinstance(one, ToolCallStart)]
    assert [start.index for start in starts] == [0, 1, 2]
    assert len({start.id for start in starts}) == 3
    assert all(start.id.startswith("call_r1_") for start in starts)
    assert only(events, Finish).reason == "tool_calls"


def test_text_and_call_in_one_part_and_in_order() -> None:
    """B123."""
    events = decoded([ge({"text": "hm", **call("f")}), ge(text("x"), call("g"), text("y")), DONE])
    said = [
        one.text if isinstance(one, TextDelta) else one.name
        for one in events
        if isinstance(one, TextDelta | ToolCallStart)
    ]
    assert said == ["hm", "f", "x", "g", "y"]


def test_a_finish_with_each_call_is_a_finish_again() -> None:
    """B128, B009: whoever joins the events lets the second call cancel the first finish."""
    codec = run([ge(call("f"), finish="STOP"), ge(call("g"), finish="STOP", usage=USAGE)], source=CODEC)
    parsed = codec.parsed()
    assert [one.name for one in parsed.tool_calls] == ["f", "g"]
    assert codec.codec.finish_reason == "tool_calls"


def test_arguments_keep_their_spelling() -> None:
    args = b'{ "n": 12345678901234567890, "x":1.0,"e":1e2,"s":"\\u003ca\\u003e" }'
    raw = (
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":%b}}]},"finishReason":"STOP"}]}'
        % args
    )
    events = decoded([b"data: " + raw + b"\n\n"])
    assert only(events, ToolCallDelta).arguments == '{"n":12345678901234567890,"x":1.0,"e":1e2,"s":"<a>"}'


@pytest.mark.parametrize(
    "reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"]
)
def test_a_failed_answer_is_an_error(reason: str) -> None:
    assert only(decoded([ge(text("a")), ge(finish=reason)]), StreamError).code == reason


def test_other_and_unknown_reasons_end_an_answer_only_if_there_is_one() -> None:
    for reason in ("OTHER", "BRAND_NEW"):
        assert only(decoded([ge(text("a"), finish=reason)]), Finish).reason == "stop"
        assert only(decoded([ge(finish=reason)]), StreamError).status == 502


def test_continuation_is_a_length_that_names_itself() -> None:
    finish = only(decoded([ge(text("a"), finish="CONTINUATION")]), Finish)
    assert (finish.reason, finish.raw_reason) == ("length", "CONTINUATION")


def test_content_behind_a_finish_takes_it_back() -> None:
    """B080: every event says STOP."""
    with pytest.raises(DecodeError):
        decoded([ge(text("a"), finish="STOP"), ge(text("b"))])
    assert texts(decoded([ge(text(piece), finish="STOP") for piece in "abc"])) == "abc"


def test_candidates_have_their_own_state() -> None:
    """B104."""
    events = decoded(
        [
            event(response(candidate(text("a")), candidate(text("b"), index=1))),
            event(response(candidate(text(""), finish="STOP"))),
            event(response(candidate(text("c"), index=1))),
            event(response(candidate(text(""), finish="MAX_TOKENS", index=1), usage=USAGE)),
        ]
    )
    assert [(one.choice, one.reason) for one in events if isinstance(one, Finish)] == [
        (0, "stop"),
        (1, "length"),
    ]
    assert [one.text for one in events if isinstance(one, TextDelta) and one.choice == 1] == ["b", "c"]
    with pytest.raises(DecodeError):
        decoded([event(response(candidate(text("a"), finish="STOP"), candidate(text("b"), index=1)))])


def test_grounding_counts_bytes_and_the_vocabulary_characters() -> None:
    grounding = {
        "groundingChunks": [
            {"web": {"uri": "https://a.example/1", "title": "A"}},
            {"web": {"uri": "https://b.example"}},
        ],
        "groundingSupports": [
            {"segment": {"startIndex": 5, "endIndex": 11, "text": "wörld"}, "groundingChunkIndices": [0, 1]}
        ],
    }
    events = decoded([ge(text("Héy ")), ge(text("wörld!")), ge(finish="STOP", groundingMetadata=grounding)])
    assert [one for one in events if isinstance(one, Citation)] == [
        Citation("https://a.example/1", "A", 4, 9),
        Citation("https://b.example", "", 4, 9),
    ]
    cited = {"citationSources": [{"startIndex": 0, "endIndex": 3, "uri": "https://c.example"}]}
    events = decoded([ge(text("Héy "), finish="STOP", citationMetadata=cited)])
    assert only(events, Citation) == Citation("https://c.example", "", 0, 2)


def test_parts_of_a_plain_answer_have_offsets_of_their_own() -> None:
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://a.example"}}],
        "groundingSupports": [{"segment": {"partIndex": 2, "endIndex": 2}, "groundingChunkIndices": [0]}],
    }
    body = dumps(
        response(candidate(text("ab"), call("f"), text("cd"), finish="STOP", groundingMetadata=grounding))
    )
    assert only(CODEC.decode_answer(body, CAN), Citation) == Citation("https://a.example", "", 2, 4)


def test_logprobs_are_told_as_chat_spells_them() -> None:
    result = {
        "chosenCandidates": [{"token": "é", "logProbability": -0.5}],
        "topCandidates": [
            {"candidates": [{"token": "é", "logProbability": -0.5}, {"token": "e", "logProbability": -2}]}
        ],
    }
    found = only(decoded([ge(text("é"), finish="STOP", logprobsResult=result)]), Logprobs).content
    assert found[0]["bytes"] == [195, 169]
    assert [top["token"] for top in found[0]["top_logprobs"]] == ["é", "e"]


def test_media_and_code_in_an_answer_become_text() -> None:
    png = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo-"}}
    code = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
    output = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    said = texts(decoded([ge(png, code, output, finish="STOP")]))
    assert said == "![image](data:image/png;base64,iVBORw0KGgo+)\n```python\nprint(1)\n```\n\n```\n1\n```\n"


def test_what_is_counted_is_what_the_model_wrote() -> None:
    counted: list[str] = []
    decoder = CODEC.stream_decoder(CAN, counted.append)
    for piece in [ge(text("th", thought=True)), ge(text("a")), ge(text("b")), ge(call("f", {"x": 1})), DONE]:
        decoder.feed(piece)
    decoder.finish()
    assert "".join(counted) == 'thabf{"x":1}'


def test_a_quirk_of_usage_adds_the_cache() -> None:
    usage = {
        "promptTokenCount": 5,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 1,
        "totalTokenCount": 6,
    }
    data = [ge(text("a")), ge(text("b"), usage=usage), ge(text("c"), usage=usage), ge(finish="STOP")]
    assert only(decoded(data, Capabilities(prompt_excludes_cache=True)), UsageReport).usage.input_tokens == 9


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes_give_events_or_decode_error(noise: bytes, place: int) -> None:
    pieces = [ge(text("a")), ge(text("b")), DONE]
    pieces.insert(place, noise)
    for data in (pieces, [b"data: " + noise + b"\n\n"], [noise]):
        with suppress(DecodeError):
            decoded(data)
        run(data)
    with suppress(DecodeError):
        CODEC.decode_answer(noise, CAN)


# ---- usage ---------------------------------------------------------------------------------------------------------


def test_usage_vectors() -> None:
    vector = json.loads(fixture("usage-vector-a"))
    usage = Usage(
        input_tokens=5600,
        cache_read_tokens=4000,
        cache_write_tokens=600,
        output_tokens=300,
        reasoning_tokens=180,
    )
    assert json.loads(write_usage(usage)) == vector["gemini"]
    read = read_usage(dumps(vector["gemini"]))
    assert read == Usage(input_tokens=5600, cache_read_tokens=4000, output_tokens=300, reasoning_tokens=180)
    vector = json.loads(fixture("usage-vector-b"))
    read = read_usage(dumps(vector["gemini"]))
    assert read is not None
    assert (read.input_tokens, read.output_tokens, read.input_tool_tokens) == (270, 40, 70)
    assert json.loads(write_usage(read)) == vector["gemini"]


def test_thoughts_and_tool_input_are_counted() -> None:
    """B050."""
    counts = {
        "promptTokenCount": 7,
        "toolUsePromptTokenCount": 3,
        "candidatesTokenCount": 0,
        "thoughtsTokenCount": 20,
        "cachedContentTokenCount": 2,
        "totalTokenCount": 30,
    }
    assert read_usage(dumps(counts)) == Usage(
        input_tokens=10, input_tool_tokens=3, cache_read_tokens=2, output_tokens=20, reasoning_tokens=20
    )


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"promptTokenCount": 9, "totalTokenCount": 9}, (9, 0, None)),
        ({"promptTokenCount": 9, "thoughtsTokenCount": 5, "totalTokenCount": 16}, (9, 7, 5)),
        ({"candidatesTokenCount": 2, "totalTokenCount": 11}, (9, 2, None)),
        ({"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 15}, (9, 6, 4)),
        ({"promptTokenCount": 9, "candidatesTokenCount": 2}, (9, 2, None)),
        ({"promptTokenCount": 9}, (9, None, None)),
        ({"promptTokenCount": 9, "candidatesTokenCount": 5, "totalTokenCount": 9}, (9, 5, None)),
        ({"promptTokenCount": "9", "candidatesTokenCount": 2.0}, (None, 2, None)),
    ],
)
def test_a_missing_count_is_what_the_total_leaves(raw: dict[str, Any], expected: tuple[Any, ...]) -> None:
    usage = read_usage(dumps(raw))
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == expected


def test_settled_usage_keeps_what_is_right_and_unknown() -> None:
    reported = b'{"promptTokenCount": 9,"candidatesTokenCount":2,"totalTokenCount":11,"new":[1.0]}'
    usage = read_usage(reported)
    assert usage is not None
    assert settled_usage(reported, usage, COST) == reported[:-1] + b"," + COST + b"}"
    counted = settled_usage(reported, Usage(input_tokens=9, output_tokens=7), b"")
    assert json.loads(counted) == {
        "promptTokenCount": 9,
        "candidatesTokenCount": 7,
        "totalTokenCount": 16,
        "new": [1.0],
    }


# ---- answers to clients --------------------------------------------------------------------------------------------


def encoded(
    events: list[StreamEvent], asked: Asked = ASKED, reason: str = "stop", bill: Bill = BILL
) -> bytes:
    encoder = CODEC.stream_encoder(asked)
    out = encoder.start() + b"".join(encoder.event(one) for one in events)
    return out + encoder.finish({0: (reason, None)}) + encoder.farewell({0: (reason, None)}, bill)


@pytest.mark.parametrize("array", [False, True])
def test_text_leaves_as_increments_and_the_last_event_has_an_empty_part(array: bool) -> None:
    asked = Asked(model=MODEL, id="0" * 24, created=1, array=array)
    raw = encoded([TextDelta("Hé\n"), TextDelta('"'), ReasoningDelta("th"), TextDelta("z")], asked)
    parsed = check_gemini_stream(raw, model=MODEL, cost_nano_usd=2000, array=array)
    assert (parsed.text, parsed.reasoning, parsed.finish) == ('Hé\n"z', "th", "STOP")
    last = parsed.events[-1]
    assert last["candidates"][0]["content"]["parts"] == [{"text": ""}]
    assert last["usageMetadata"]["candidatesTokenCount"] == 3
    assert last["usageMetadata"]["thoughtsTokenCount"] == 2


def test_interleaved_calls_leave_whole_and_in_order() -> None:
    raw = encoded(
        [
            TextDelta("t"),
            ToolCallStart(0, "a", "f"),
            ToolCallStart(1, "b", "g"),
            ToolCallDelta(1, '{"y":'),
            ToolCallDelta(0, '{"x"'),
            ToolCallDelta(1, "2}"),
            ToolCallEnd(1),
            ToolCallDelta(0, ":1.0}"),
            TextDelta("u"),
            ToolCallStart(2, "", "h"),
        ],
        reason="tool_calls",
    )
    parsed = check_gemini_stream(raw, model=MODEL)
    assert [(one.id, one.name) for one in parsed.tool_calls] == [
        ("a", "f"),
        ("b", "g"),
        (f"call_{ASKED.id}_0_2", "h"),
    ]
    assert b'"args":{"x":1.0}' in raw
    assert b'"args":{}' in raw
    assert raw.index(b'"u"') > raw.index(b'"g"')
    assert parsed.finish == "STOP"


@pytest.mark.parametrize(
    ("arguments", "args"),
    [("", {}), ("[1]", {"value": [1]}), ('{"a', {"_raw": '{"a'}), ("  ", {}), ('"x"', {"value": "x"})],
)
def test_arguments_are_always_an_object(arguments: str, args: Any) -> None:
    raw = encoded([ToolCallStart(0, "a", "f"), ToolCallDelta(0, arguments), ToolCallEnd(0)])
    parsed = check_gemini_stream(raw)
    assert json.loads(parsed.tool_calls[0].arguments) == args


def test_state_of_other_vendors_stands_sealed_in_a_thought() -> None:
    foreign = Opaque(vendor="anthropic", kind="signature", value="sig==", model="c")
    raw = encoded([ReasoningDelta("th"), OpaqueState(foreign), TextDelta("a")])
    parts = [event["candidates"][0]["content"]["parts"][0] for event in check_gemini_stream(raw).events]
    assert parts[1]["thought"] is True
    assert open_envelope(base64.b64decode(parts[1]["thoughtSignature"]).decode()) == foreign


def test_google_state_goes_back_to_where_it_came() -> None:
    data = fixture("tools")
    events = [one for one in decoded([data]) if not isinstance(one, Start | Finish | End | UsageReport)]
    first = check_gemini_stream(encoded(events)).events[0]
    assert first["candidates"][0]["content"]["parts"] == [
        {"functionCall": {"id": "call_1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "U0lH"}
    ]


def test_blocked_before_any_output_is_prompt_feedback() -> None:
    parsed = check_gemini_stream(encoded([], reason="content_filter"))
    assert parsed.finish == "OTHER"
    parsed = check_gemini_stream(encoded([TextDelta("a")], reason="content_filter"))
    assert parsed.finish == "SAFETY"


def test_sources_are_told_in_bytes_at_the_end() -> None:
    asked = Asked(model=MODEL, id="0" * 24, created=1, raw={"tools": b'[{"googleSearch":{}}]'})  # type: ignore[dict-item]
    raw = encoded([TextDelta("Héy "), TextDelta("wörld!"), Citation("https://a.example", "A", 4, 9)], asked)
    grounding = check_gemini_stream(raw).events[-1]["candidates"][0]["groundingMetadata"]
    assert grounding["groundingSupports"] == [
        {"segment": {"startIndex": 5, "endIndex": 11, "text": "wörld"}, "groundingChunkIndices": [0]}
    ]


def test_refusals_are_text_and_logprobs_stand_behind_their_text() -> None:
    entry = {"token": "a", "logprob": -1.5, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -2.0}]}
    raw = encoded([RefusalDelta("no"), TextDelta("a"), Logprobs([entry])])
    parsed = check_gemini_stream(raw)
    assert parsed.text == "noa"
    assert parsed.events[2]["candidates"][0]["logprobsResult"] == {
        "topCandidates": [{"candidates": [{"token": "b", "logProbability": -2.0}]}],
        "chosenCandidates": [{"token": "a", "logProbability": -1.5}],
    }


CONTENT = st.lists(
    st.one_of(
        st.builds(TextDelta, st.text(min_size=1), st.integers(0, 1)),
        st.builds(ReasoningDelta, st.text(min_size=1), st.integers(0, 1)),
        st.builds(RefusalDelta, st.text(min_size=1), st.integers(0, 1)),
        st.builds(
            ToolCallDelta, st.integers(0, 2), st.sampled_from(['{"a":1}', "", "{", "x"]), st.integers(0, 1)
        ),
        st.builds(ToolCallEnd, st.integers(0, 2), st.integers(0, 1)),
        st.builds(
            ToolCallStart,
            st.integers(0, 2),
            st.sampled_from(["i1", "i2"]),
            st.just("f"),
            st.booleans(),
            st.integers(0, 1),
        ),
        st.builds(
            OpaqueState,
            st.builds(
                Opaque,
                vendor=st.sampled_from(["google", "anthropic", "openai"]),
                kind=st.just("signature"),
                value=st.text(min_size=1),
            ),
            st.integers(0, 1),
            st.none() | st.integers(0, 2),
        ),
        st.builds(Citation, st.just("https://a.example"), st.text(), st.integers(0, 4), st.integers(0, 9)),
    ),
    max_size=12,
)


@settings(max_examples=examples(200), deadline=None)
@given(CONTENT, st.booleans())
def test_any_order_of_events_is_grammatical_and_streamed_equals_plain(
    events: list[StreamEvent], array: bool
) -> None:
    asked = Asked(model=MODEL, id="0" * 24, created=1, array=array)
    reasons = {0: ("stop", None), 1: ("length", None)}
    encoder = CODEC.stream_encoder(asked)
    raw = b"".join(encoder.event(one) for one in events) + encoder.farewell(reasons, BILL)
    streamed = check_gemini_stream(raw, model=MODEL, cost_nano_usd=2000, array=array)
    finishes: list[StreamEvent] = [Finish("stop", 0), Finish("length", 1)]
    plain = CODEC.encode_answer([*events, *finishes], asked, BILL)
    whole = check_gemini_stream(b"data: " + plain + b"\n\n", model=MODEL, cost_nano_usd=2000)
    assert (whole.text, whole.reasoning, whole.texts) == (streamed.text, streamed.reasoning, streamed.texts)
    assert (whole.finish, whole.usage, whole.tool_calls) == (
        streamed.finish,
        streamed.usage,
        streamed.tool_calls,
    )


def test_decoding_what_was_encoded_gives_it_back() -> None:
    events: list[StreamEvent] = [
        ReasoningDelta("think"),
        TextDelta("say"),
        OpaqueState(Opaque(vendor="google", kind="signature", value="QUJD", model=MODEL)),
        OpaqueState(
            Opaque(vendor="google", kind="signature", value="U0lH", model=MODEL, id="c1"), call_index=0
        ),
        ToolCallStart(0, "c1", "f"),
        ToolCallDelta(0, '{"a":[1.0,"é"]}'),
        ToolCallEnd(0),
    ]
    back = decoded([encoded(events, reason="tool_calls")])
    assert back[1:-3] == events
    plain = CODEC.encode_answer([*events, Finish("tool_calls")], ASKED, BILL)
    assert joined(CODEC.decode_answer(plain, CAN))[1:-3] == events


def test_the_first_event_of_a_translated_array_opens_it_even_when_it_fails() -> None:
    asked = Asked(model=MODEL, id="0" * 24, created=1, array=True)
    failed = run([fixture("error-midstream")], source=CODEC, asked=asked)
    assert failed.parsed().text == "Par"
    assert not failed.raw.rstrip().endswith(b"]")
    cut = run([b'data: {"candidates":[]}\n\n'], source=CODEC, asked=asked)
    assert cut.raw.startswith(b'[{"error":')
