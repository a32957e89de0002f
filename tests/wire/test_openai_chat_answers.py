"""Answers of chat providers and to chat clients, across formats: cases users reported, every cut, every shape."""

import json
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import (
    Citation,
    End,
    Finish,
    Format,
    Logprobs,
    Opaque,
    OpaqueState,
    Reasoning,
    ReasoningDelta,
    StreamError,
    StreamEvent,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageReport,
)
from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.wire import Bill
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.translation import Asked
from tests.grammar.narrow_sse import ParsedCall
from tests.profiles import examples
from tests.strategies import answers
from tests.wire.anthropic_world import by_event, random_cuts, ways
from tests.wire.openai_world import (
    ASKED,
    CAN,
    DONE,
    MODEL,
    ch,
    cp,
    decoded,
    fixture,
    plain,
    read,
    run,
    sse,
    streams,
    tail,
    told,
    write,
)

OTHERS = sorted(FORMATS.keys() - {"chat"})
CHATTY = sorted(FORMATS.keys() - {"chat", "completions"})
"""Formats that say all that chat says."""


def tool(
    index: int | None, id_: str | None = None, name: str | None = None, arguments: str | None = None
) -> Any:
    """Return one fragment of a call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fragment: dict[str, Any] = {"function": function}
    if index is not None:
        fragment["index"] = index
    if id_ is not None:
        fragment |= {"id": id_, "type": "function"}
    return {"tool_calls": [fragment]}


def calls_of(events: list[StreamEvent]) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of each call."""
    calls: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ToolCallStart):
            assert event.index not in calls
            calls[event.index] = [event.id, event.name, ""]
        elif isinstance(event, ToolCallDelta):
            calls[event.index][2] += event.arguments
    return [(call[0], call[1], call[2]) for call in calls.values()]


# ---- fixtures and cuts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", streams("chat") + streams("completions"))
def test_fixture_says_the_same_at_every_cut(name: str) -> None:
    source = name.partition("-")[0]
    data = fixture(name)
    whole = decoded([data], source)
    assert isinstance(whole[-1], End)
    for pieces in ways(data):
        assert decoded(pieces, source) == whole


@pytest.mark.parametrize("name", streams("chat") + streams("completions"))
def test_e3_fixture_cut_after_each_event_is_no_answer(name: str) -> None:
    source = name.partition("-")[0]
    events = by_event(fixture(name))
    for cut in range(len(events)):
        data = b"".join(events[:cut])
        if b'"finish_reason":"' in data:
            decoded([data], source)  # the end is then the finish reason
        else:
            with pytest.raises(DecodeError):
                decoded([data], source)
            ran = run([data], source, "messages")
            assert ran.failure is not None
            ran.parsed(end="error")


@pytest.mark.parametrize("name", ["chat-error-midstream", "completions-error-midstream"])
def test_e2_error_in_the_stream_is_told_as_one(name: str) -> None:
    for target in ("chat", "completions", "messages"):
        parsed = run([fixture(name)], name.partition("-")[0], target).parsed(end="error")
        assert parsed.error is not None


def test_b011_error_comes_before_choices() -> None:
    data = sse({"id": "c1", "choices": [], "error": {"code": 502, "message": "worker full"}})
    (error,) = [event for event in decoded([data], "chat") if not isinstance(event, End)]
    assert isinstance(error, StreamError)
    assert error.status == 502
    data = ch({}, "error")
    assert isinstance(decoded([data], "chat")[-1], StreamError)
    good = ch({"content": "x"}).replace(b'{"id"', b'{"error":null,"id"') + ch({}, "stop") + DONE
    assert run([good], "chat", "messages").parsed().text == "x"


# ---- what a chat provider may send ----------------------------------------------------------------------------------


def test_b041_reasoning_is_read_under_every_name_once() -> None:
    data = (
        ch({"content": None, "reasoning": "a"})
        + ch({"content": "", "reasoning_content": "b"})
        + ch({"reasoning": "c", "reasoning_content": "c"})
        + ch({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "d"}]}]})
        + ch({"reasoning_details": [{"type": "reasoning.text", "text": "e", "index": 0}]})
        + ch({"content": "X"})
        + ch({}, "stop")
        + DONE
    )
    for pieces in ways(data):
        parsed = run(pieces, "chat", "messages").parsed()
        assert (parsed.reasoning, parsed.text) == ("abcde", "X")


def test_b062_name_after_arguments() -> None:
    data = (
        ch({"tool_calls": [{"index": 0, "id": "k", "function": {"arguments": '{"a"'}}]})
        + ch({"tool_calls": [{"index": 0, "function": {"name": "f"}}]})
        + ch(
            {"tool_calls": [{"index": 0, "function": {"name": None, "arguments": ":1}"}, "type": "function"}]}
        )
        + ch({}, "tool_calls")
        + DONE
    )
    for pieces in ways(data):
        events = decoded(pieces, "chat")
        assert calls_of(events) == [("k", "f", '{"a":1}')]
        assert events[-2] == Finish("tool_calls", raw_reason="tool_calls")


def test_b098_b120_calls_without_id_or_with_one_index() -> None:
    data = ch(tool(0, "A", "f", "{}")) + ch(tool(0, "B", "g", '{"b":2}')) + ch({}, "stop") + DONE
    events = decoded([data], "chat")
    assert calls_of(events) == [("A", "f", "{}"), ("B", "g", '{"b":2}')]
    assert Finish("tool_calls", raw_reason="stop") in events
    data = ch(tool(None, None, "f", "{}")) + ch(tool(None, None, "f", "{}")) + ch({}, "tool_calls") + DONE
    parsed = run([data], "chat", "messages").parsed()
    assert len({call.id for call in parsed.tool_calls}) == 2


def test_b121_b122_whole_message_and_calls_on_the_finish() -> None:
    data = ch({"role": "assistant", "content": "x", **tool(0, "k", "f", "{}")}, "tool_calls") + DONE
    for pieces in ways(data):
        parsed = run(pieces, "chat", "messages").parsed()
        assert parsed.text == "x"
        assert parsed.tool_calls == [ParsedCall("k", "f", "{}")]
        assert parsed.finish == "tool_use"


def test_b009_b127_stop_after_a_call_and_odd_roles() -> None:
    data = ch({"role": "", **tool(0, "k", "f", "{}")}) + ch({"role": None, "content": ""}, "stop") + DONE
    assert run([data], "chat", "messages").parsed().finish == "tool_use"


def test_b080_finish_on_every_chunk_is_none() -> None:
    data = ch({"content": "a"}, "stop") + ch({"content": "b"}, "stop") + ch({"content": "c"}, "stop") + DONE
    for pieces in ways(data):
        ran = run(pieces, "chat", "messages")
        assert ran.parsed().text == "abc"
    data = ch(tool(0, "k", "f", ""), "tool_calls") + ch(tool(0, arguments='{"a":1}'), "tool_calls") + DONE
    for pieces in ways(data):
        assert run(pieces, "chat", "messages").parsed().tool_calls == [ParsedCall("k", "f", '{"a":1}')]


def test_b107_end_marker_without_a_reason() -> None:
    assert run([ch({"content": "Hel"}) + DONE], "chat", "messages").parsed().finish == "end_turn"
    whole = ch(tool(0, "k", "f", "{}")) + DONE
    assert run([whole], "chat", "messages").parsed().finish == "tool_use"
    half = ch(tool(0, "k", "f", '{"a":')) + DONE
    assert run([half], "chat", "messages").failure is not None
    assert run([DONE], "chat", "messages").failure is not None


def test_b008_events_without_choices_say_nothing() -> None:
    data = (
        sse({"id": "c1", "choices": [], "prompt_filter_results": []})
        + sse({"id": "c1"})
        + ch({"content": "x"})
        + ch({}, "stop")
        + tail(3, 2)
        + DONE
    )
    parsed = run([data], "chat", "messages").parsed()
    assert parsed.text == "x"
    assert parsed.usage is not None
    assert (parsed.usage["input_tokens"], parsed.usage["output_tokens"]) == (3, 2)


def test_b129_matched_stop_string_is_told_where_it_is_known() -> None:
    data = ch({"content": "x"}) + ch({}, "stop", stop_reason="END") + DONE
    events = run([data], "chat", "messages").parsed().events
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    events = run([data.replace(b'"END"', b"null")], "chat", "messages").parsed().events
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}


@pytest.mark.parametrize(
    ("reason", "meant"),
    [("content_filter", "content_filter"), ("length", "length"), ("max_tokens", "length"), ("weird", "stop"),
     ("refusal", "content_filter"), ("model_context_window_exceeded", "context_full")],
)  # fmt: skip
def test_b021_b032_finish_reasons(reason: str, meant: str) -> None:
    events = decoded([ch({"content": "x"}, reason) + DONE], "chat")
    assert next(event.reason for event in events if isinstance(event, Finish)) == meant


def test_free_form_calls_of_a_provider() -> None:
    begin = {"index": 0, "id": "k", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    more = {"index": 0, "custom": {"input": " -l"}}
    data = ch({"tool_calls": [begin]}) + ch({"tool_calls": [more]}) + ch({}, "tool_calls") + DONE
    events = decoded([data], "chat")
    assert calls_of(events) == [("k", "sh", "ls -l")]
    assert any(isinstance(event, ToolCallStart) and event.custom for event in events)
    body = {
        "choices": [
            {"index": 0, "message": {"tool_calls": [{**begin, "custom": {"name": "sh", "input": "x"}}]}}
        ]
    }
    assert calls_of(FORMATS["chat"].decode_answer(json.dumps(body).encode(), CAN)) == [("k", "sh", "x")]


def test_broken_bytes_behind_good_events_lose_nothing() -> None:
    ran = run([ch({"content": "good"}) + b"data: nonsense\n\n"], "chat", "messages")
    assert ran.failure is not None
    assert ran.parsed(end="error").text == "good"


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.binary(max_size=40) | st.sampled_from(by_event(fixture("chat-tools"))), max_size=8))
def test_any_bytes_give_events_or_decode_errors(pieces: list[bytes]) -> None:
    for source in ("chat", "completions"):
        with suppress(DecodeError):
            decoded(pieces, source)
        with suppress(DecodeError):
            FORMATS[source].decode_answer(b"".join(pieces), CAN)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from(["index", "id", "name", "arguments", "function", "custom", "input", "text",
                                       "content", "role", "tool_calls", "finish_reason", "delta", "reasoning_details",
                                       "annotations", "logprobs", "signature", "message"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(VALUES, max_size=3), VALUES)
def test_any_json_gives_events_or_decode_errors(choices: list[Any], usage: Any) -> None:
    body = {"id": "c", "choices": choices, "usage": usage}
    for source in ("chat", "completions"):
        with suppress(DecodeError):
            decoded([sse(body) + DONE], source)
        with suppress(DecodeError):
            FORMATS[source].decode_answer(json.dumps(body).encode(), CAN)


# ---- usage ----------------------------------------------------------------------------------------------------------

VECTOR_A = {
    "prompt_tokens": 5600, "completion_tokens": 300, "total_tokens": 5900,
    "prompt_tokens_details": {"cached_tokens": 4000, "cache_write_tokens": 600},
    "completion_tokens_details": {"reasoning_tokens": 180},
}  # fmt: skip
USAGE_A = Usage(
    input_tokens=5600, cache_read_tokens=4000, cache_write_tokens=600, output_tokens=300, reasoning_tokens=180
)


def test_usage_vector_both_ways() -> None:
    data = (
        ch({"content": "x"})
        + ch({}, "stop")
        + tail(5600, 300, **{k: VECTOR_A[k] for k in list(VECTOR_A)[3:]})
    )
    (report,) = [event for event in decoded([data + DONE], "chat") if isinstance(event, UsageReport)]
    assert report.usage == USAGE_A
    events: list[StreamEvent] = [TextDelta("x"), Finish("stop"), End()]
    usage = plain(events, "chat", usage=USAGE_A)["usage"]
    assert {key: usage[key] for key in VECTOR_A} == VECTOR_A
    assert (usage["cost"], usage["cost_nano_usd"]) == (0.000002, 2000)


@pytest.mark.parametrize(
    ("can", "prompt", "completion", "total", "into", "out"),
    [
        (Capabilities(prompt_excludes_cache=True), 1000, 300, None, 5600, 300),
        (Capabilities(prompt_excludes_cache=True), 5600, 300, 5900, 5600, 300),
        (Capabilities(output_excludes_reasoning=True), 5600, 120, 5900, 5600, 300),
        (Capabilities(output_excludes_reasoning=True), 5600, 300, 5900, 5600, 300),
    ],
)
def test_servers_that_count_otherwise(
    can: Capabilities, prompt: int, completion: int, total: int | None, into: int, out: int
) -> None:
    usage = VECTOR_A | {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    data = ch({"content": "x"}, "stop") + sse({"choices": [], "usage": usage}) + DONE
    (report,) = [event for event in decoded([data], "chat", can) if isinstance(event, UsageReport)]
    assert (report.usage.input_tokens, report.usage.output_tokens) == (into, out)


def test_c6_usage_is_shown_to_those_who_asked() -> None:
    data = fixture_stream("messages", Answer(text=("Hi",)))
    assert run([data], "messages", "chat").parsed(usage=True, cost_nano_usd=2000).text == "Hi"
    run([data], "messages", "chat", usage_shown=False).parsed(usage=False)
    quiet = Asked(model=MODEL, id=ASKED.id, created=1, usage_shown=False)
    run([data], "messages", "chat", asked=quiet).parsed(usage=False)
    beside = Bill(Usage(input_tokens=1, output_tokens=1), beside_usage=b'"openrelay":{"cost_nano_usd":5}')
    assert run([data], "messages", "chat", bill=beside).chunks()[-1]["openrelay"] == {"cost_nano_usd": 5}


# ---- every pair -----------------------------------------------------------------------------------------------------


def fixture_stream(format: str, answer: Answer) -> bytes:
    """Return a provider's stream of an answer."""
    pieces = DIALECTS[cast(Format, format)].stream(answer, Ask("m", usage=True))
    return b"".join(piece.data for piece in pieces).replace(ID.encode(), b"1")


def fixture_plain(format: str, answer: Answer) -> bytes:
    """Return a provider's plain answer."""
    return DIALECTS[cast(Format, format)].plain(answer, Ask("m")).replace(ID.encode(), b"1")


def alone(answer: Answer) -> Answer:
    """Return an answer with one choice."""
    return Answer(**{name: getattr(answer, name) for name in answer.__struct_fields__} | {"choices": 1})


@pytest.mark.parametrize("name", CHATTY)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(0, 1000))
def test_x1_any_answer_reaches_a_chat_client_streamed_and_plain_alike(
    name: str, answer: Answer, seed: int
) -> None:
    answer = alone(answer)
    parsed = run(random_cuts(fixture_stream(name, answer), seed), name, "chat").parsed(cost_nano_usd=2000)
    assert parsed.text + parsed.refusal == "".join(answer.text + answer.refusal)
    assert parsed.reasoning == "".join(answer.reasoning)
    assert [call.name for call in parsed.tool_calls] == [call.name for call in answer.tool_calls]
    arguments = [json.loads(call.arguments) for call in parsed.tool_calls]
    assert arguments == [json.loads(call.joined()) for call in answer.tool_calls]
    events = FORMATS[name].decode_answer(fixture_plain(name, answer), CAN)
    usage = next(event.usage for event in events if isinstance(event, UsageReport))
    whole = plain(events, "chat", usage=usage)
    (choice,) = whole["choices"]
    message = choice["message"]
    assert (message["content"] or "") == parsed.text
    assert (message["refusal"] or "") == parsed.refusal
    assert message.get("reasoning_content", "") == parsed.reasoning
    assert [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls", ())] == arguments
    assert choice["finish_reason"] == parsed.finish
    assert parsed.usage is not None
    for count in ("prompt_tokens", "completion_tokens", "total_tokens", "cost_nano_usd"):
        assert whole["usage"][count] == parsed.usage[count]


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(0, 1000))
def test_x1_any_chat_answer_reaches_a_client_of_another_format(name: str, answer: Answer, seed: int) -> None:
    answer = alone(answer)
    ran = run(random_cuts(fixture_stream("chat", answer), seed), "chat", name)
    parsed = ran.parsed()
    assert parsed.text + parsed.refusal == "".join(answer.text + answer.refusal)
    if name != "completions":
        assert [call.name for call in parsed.tool_calls] == [call.name for call in answer.tool_calls]
        assert parsed.reasoning == "".join(answer.reasoning)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(0, 1000))
def test_a_stream_that_was_written_reads_as_what_it_was_written_from(answer: Answer, seed: int) -> None:
    events = decoded([fixture_stream("chat", answer)], "chat")
    again = decoded(random_cuts(told(events, "chat").raw, seed), "chat")
    kinds = (TextDelta, ReasoningDelta, Finish)
    for choice in range(answer.choices):
        for kind in kinds:
            wanted = [event for event in events if isinstance(event, kind) and event.choice == choice]
            found = [event for event in again if isinstance(event, kind) and event.choice == choice]
            if kind is Finish:
                assert [event.reason for event in found] == [event.reason for event in wanted]  # type: ignore[union-attr]
            else:
                said = "".join(event.text for event in wanted)  # type: ignore[union-attr]
                assert "".join(event.text for event in found) == said  # type: ignore[union-attr]


# ---- what a chat client gets ----------------------------------------------------------------------------------------


def test_c2_roles_of_several_choices_begin_in_order() -> None:
    events: list[StreamEvent] = [
        TextDelta("b", 1),
        TextDelta("a", 0),
        Finish("length", 1),
        Finish("stop", 0),
        End(),
    ]
    parsed = told(events, "chat").parsed()
    assert parsed.texts == ("a", "b")
    assert [choice["finish_reason"] for choice in plain(events, "chat")["choices"]] == ["stop", "length"]


def test_b104_two_choices_of_a_provider() -> None:
    data = (
        ch({"content": "a"})
        + ch({"content": "b"}, index=1)
        + ch({}, "stop")
        + ch({"content": "c"}, index=1)
        + ch({}, "length", index=1)
        + tail()
        + DONE
    )
    for pieces in ways(data):
        events = decoded(pieces, "chat")
        assert told(events, "chat").parsed().texts == ("a", "bc")


@pytest.mark.parametrize("index", [b"1024", b"1180591620717411303424"])
@pytest.mark.parametrize("format", ["chat", "completions", "gemini"])
def test_a_choice_beyond_all_that_can_be_asked_for_is_refused(format: str, index: bytes) -> None:
    event = {
        "chat": ch({"content": "a"}, index=77),
        "completions": cp("a", index=77),
        "gemini": sse({"candidates": [{"content": {"parts": [{"text": "a"}]}, "index": 77}]}),
    }[format]
    body = event.replace(b"77", index)
    with pytest.raises(DecodeError, match="beyond"):
        decoded([body], format)
    with pytest.raises(DecodeError, match="beyond"):
        FORMATS[format].decode_answer(body.removeprefix(b"data: ").replace(b"delta", b"message"), CAN)


@pytest.mark.parametrize("given", [[1, "x", None], "x", 3, {"token": "b"}])
def test_alternatives_of_a_token_that_are_no_objects_are_left_out(given: Any) -> None:
    entry = {"token": "a", "logprob": -0.5, "top_logprobs": given}
    events = decoded([ch({"content": "a"}, logprobs={"content": [entry]}), ch(finish="stop"), DONE], "chat")
    for client in ("chat", "gemini", "responses"):
        assert b'"a"' in told(events, client).raw
    found = [one for event in events if isinstance(event, Logprobs) for one in event.content]
    assert [one["top_logprobs"] for one in found] == [[]]


def test_b044_b119_interleaved_calls_are_put_one_after_another() -> None:
    events: list[StreamEvent] = [
        ToolCallStart(0, "a", "f"),
        ToolCallStart(1, "b", "g"),
        ToolCallDelta(1, '{"y":'),
        ToolCallDelta(0, '{"x"'),
        ToolCallDelta(1, "2}"),
        TextDelta("meanwhile"),
        ToolCallDelta(0, ":1}"),
        ToolCallStart(2, "a", "h"),
        ToolCallEnd(2),
        Finish("tool_calls"),
        End(),
    ]
    parsed = told(events, "chat").parsed()
    assert [(call.name, call.arguments) for call in parsed.tool_calls] == [
        ("f", '{"x":1}'), ("g", '{"y":2}'), ("h", "{}")
    ]  # fmt: skip
    assert len({call.id for call in parsed.tool_calls}) == 3
    assert parsed.text == "meanwhile"
    calls = plain(events, "chat")["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"x":1}', '{"y":2}', "{}"]
    assert all("index" not in call for call in calls)


def test_calls_that_never_became_whole_are_told_all_the_same() -> None:
    events: list[StreamEvent] = [
        ToolCallStart(0, "a", "f"),
        ToolCallDelta(0, '{"x'),
        ToolCallStart(1, "b", "g"),
        ToolCallDelta(1, '{"y'),
        Finish("length"),
        End(),
    ]
    parsed = told(events, "chat").parsed()
    assert [call.arguments for call in parsed.tool_calls] == ['{"x', '{"y']
    assert parsed.finish == "length"


def test_names_that_were_changed_come_back() -> None:
    asked = Asked(model=MODEL, id="0" * 24, created=1, tool_names={"a_b": "a.b"})
    events: list[StreamEvent] = [ToolCallStart(0, "a", "a_b"), ToolCallDelta(0, "{}"), Finish("stop"), End()]
    assert told(events, "chat", asked).parsed().tool_calls == [ParsedCall("a", "a.b", "{}")]


def test_free_form_calls_reach_clients_that_declared_them() -> None:
    asked = Asked(model=MODEL, id="0" * 24, created=1, custom_tools=frozenset({"sh"}))
    as_function: list[StreamEvent] = [
        ToolCallStart(0, "a", "sh"),
        ToolCallDelta(0, '{"inp'),
        ToolCallDelta(0, 'ut":"ls -l"}'),
        Finish("tool_calls"),
        End(),
    ]
    as_custom: list[StreamEvent] = [
        ToolCallStart(0, "a", "sh", custom=True), ToolCallDelta(0, "ls -l"), Finish("tool_calls"), End()
    ]  # fmt: skip
    for events in (as_function, as_custom):
        (call,) = plain(events, "chat", asked)["choices"][0]["message"]["tool_calls"]
        assert call == {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}
    (call,) = plain(as_custom, "chat")["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"input": "ls -l"}


def test_the_old_dialect_is_answered_in_itself() -> None:
    asked = Asked(model=MODEL, id="0" * 24, created=1, legacy_functions=True)
    events: list[StreamEvent] = [
        ToolCallStart(0, "a", "f"), ToolCallDelta(0, '{"x":'), ToolCallDelta(0, "1}"), Finish("tool_calls"), End()
    ]  # fmt: skip
    (choice,) = plain(events, "chat", asked)["choices"]
    assert choice["message"]["function_call"] == {"name": "f", "arguments": '{"x":1}'}
    assert choice["finish_reason"] == "function_call"
    assert "tool_calls" not in choice["message"]


def test_b058_probabilities_have_no_null_lists() -> None:
    entry = {"token": "é", "logprob": -0.5, "bytes": None, "top_logprobs": None}
    events: list[StreamEvent] = [TextDelta("é"), Logprobs([entry]), Finish("stop"), End()]
    streamed = told(events, "chat").chunks()[2]["choices"][0]["logprobs"]
    whole = plain(events, "chat")["choices"][0]["logprobs"]
    assert streamed == whole
    assert whole["content"] == [{"token": "é", "logprob": -0.5, "bytes": [0xC3, 0xA9], "top_logprobs": []}]
    told(events, "chat").parsed()


def test_sources_come_in_one_delta_before_the_finish() -> None:
    events: list[StreamEvent] = [
        TextDelta("see"), Citation("https://a", "A", 0, 3), Citation("https://b", "", 0, 3), Finish("stop"), End()
    ]  # fmt: skip
    ran = told(events, "chat")
    ran.parsed()
    (chunk,) = [one for one in ran.chunks() if "annotations" in one["choices"][0]["delta"]]
    sources = chunk["choices"][0]["delta"]["annotations"]
    assert [source["url_citation"]["url"] for source in sources] == ["https://a", "https://b"]
    assert plain(events, "chat")["choices"][0]["message"]["annotations"][0]["url_citation"]["title"] == "A"
    again = [event for event in decoded([ran.raw], "chat") if isinstance(event, Citation)]
    assert again == [event for event in events if isinstance(event, Citation)]


def test_a_finish_that_was_let_go_is_not_told_again() -> None:
    events = by_event(fixture_stream("completions", Answer(text=("x",))))
    assert run(events, "completions", "chat", release_after=1).parsed(usage=True).text == "x"


# ---- opaque state there and back ------------------------------------------------------------------------------------

SIGNED = Opaque(vendor="anthropic", kind="signature", value="U0lH", model="c")
REDACTED = Opaque(vendor="anthropic", kind="redacted", value="RU5D", model="c")
ON_CALL = Opaque(vendor="google", kind="signature", value="R09P", model="g")


def back(message: dict[str, Any]) -> list[Any]:
    """Return the parts of an assistant turn that a client gives back."""
    calls = message.get("tool_calls", ())
    answered = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
    turns = [{"role": "user", "content": "?"}, {**message, "role": "assistant"}, *answered]
    return read("chat", {"model": "m", "messages": turns})[0].messages[1].parts


def test_b004_thoughts_keep_their_own_signatures() -> None:
    other = Opaque(vendor="anthropic", kind="signature", value="T1RI", model="c")
    events: list[StreamEvent] = [
        ReasoningDelta("Let me "),
        ReasoningDelta("see"),
        OpaqueState(SIGNED),
        OpaqueState(REDACTED),
        TextDelta("first"),
        ReasoningDelta("again"),
        OpaqueState(other),
        ToolCallStart(0, "call_1", "f"),
        ToolCallDelta(0, "{}"),
        OpaqueState(ON_CALL, call_index=0),
        Finish("tool_calls"),
        End(),
    ]
    ran = told(events, "chat")
    ran.parsed()
    message = plain(events, "chat")["choices"][0]["message"]
    assert [entry["index"] for entry in message["reasoning_details"]] == [0, 1, 2, 3]
    assert back(message) == [
        Reasoning(text="Let me see", opaque=SIGNED),
        Reasoning(opaque=REDACTED),
        Reasoning(text="again", opaque=other),
        Text(text="first"),
        ToolCall(id="call_1", name="f", arguments="{}", opaque=ON_CALL),
    ]


def test_thoughts_without_words_and_signed_text() -> None:
    on_text = Opaque(vendor="google", kind="signature", value="VFhU", model="g")
    events: list[StreamEvent] = [
        OpaqueState(SIGNED),
        TextDelta("x"),
        OpaqueState(on_text),
        Finish("stop"),
        End(),
    ]
    assert back(plain(events, "chat")["choices"][0]["message"]) == [
        Reasoning(opaque=SIGNED),
        Text(text="x", opaque=on_text),
    ]


def test_entries_of_other_gates_are_understood() -> None:
    message = {
        "content": "42",
        "reasoning_content": "Let me see",
        "reasoning_details": [
            {"index": 0, "type": "signature", "format": "anthropic", "signature": "U0lH"},
            {"index": 1, "type": "redacted", "format": "anthropic-claude-v1", "data": "RU5D"},
        ],
    }
    parts = back(message)
    assert parts[0] == Reasoning(
        text="Let me see", opaque=Opaque(vendor="anthropic", kind="signature", value="U0lH")
    )
    assert parts[1].opaque == Opaque(vendor="anthropic", kind="redacted", value="RU5D")


def test_state_of_a_chat_server_goes_back_to_its_dialect_alone() -> None:
    entry = {"type": "reasoning.encrypted", "data": "AAAA", "format": "other-v1", "id": "r1", "index": 0}
    data = ch({"reasoning": "hm", "reasoning_details": [entry]}) + ch({"content": "x"}, "stop") + DONE
    (state,) = [event for event in decoded([data], "chat") if isinstance(event, OpaqueState)]
    assert state.opaque.vendor == "other"
    request = read("chat", {"model": "m", "messages": [{"role": "user", "content": "?"}]})[0]
    request.messages[0].role = "assistant"
    request.messages[0].parts = [
        Reasoning(text="hm", opaque=state.opaque),
        Reasoning(opaque=SIGNED),
        Text(text="x"),
    ]
    (message,) = write("chat", request, Capabilities(reasoning_in_history=True))[0]["messages"]
    assert message["reasoning_details"] == [entry]
    assert message["reasoning_content"] == "hm"
    assert write("chat", request)[0]["messages"] == [{"role": "assistant", "content": "x"}]


def test_b105_a_stream_where_none_was_asked_for() -> None:
    events = FORMATS["chat"].decode_answer(fixture("chat-text-usage"), CAN)
    assert plain(events, "chat")["choices"][0]["message"]["content"] == "Hi"
    with pytest.raises(DecodeError):
        FORMATS["chat"].decode_answer(fixture("chat-text")[:200], CAN)


def test_plain_fixture() -> None:
    events = FORMATS["chat"].decode_answer(fixture("chat-nonstream"), CAN)
    assert [type(event).__name__ for event in events] == [
        "Start",
        "TextDelta",
        "Finish",
        "UsageReport",
        "End",
    ]
    whole = plain(events, "chat")
    assert whole["id"] == "chatcmpl-" + ASKED.id
    assert whole["model"] == MODEL


def test_an_error_inside_a_200() -> None:
    (error,) = FORMATS["chat"].decode_answer(b'{"error":{"message":"full","code":503}}', CAN)
    assert isinstance(error, StreamError)


# ---- a tool turn through a chat client ------------------------------------------------------------------------------

GEMINI_TURN: dict[str, Any] = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"functionCall": {"name": "w", "args": {"a": 1}}, "thoughtSignature": "U0lH"},
                    {"functionCall": {"name": "w", "args": {"a": 2}}},
                ],
            },
            "finishReason": "STOP",
        }
    ],
    "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11},
}
MESSAGES_TURN: dict[str, Any] = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "up", "stop_reason": "tool_use",
    "usage": {"input_tokens": 9, "output_tokens": 2},
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "U0lH"},
        {"type": "redacted_thinking", "data": "RU5D"},
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "toolu_1", "name": "w", "input": {"a": 1}},
    ],
}  # fmt: skip
RESPONSES_TURN: dict[str, Any] = {
    "id": "resp_1", "object": "response", "status": "completed", "model": "up",
    "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}],
         "encrypted_content": "RU5D"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "w", "arguments": '{"a":1}',
         "status": "completed"},
    ],
}  # fmt: skip


def next_turn(format: str, turn: dict[str, Any]) -> Any:
    """Bring a provider's turn to a chat client, give it back with results, and return what the provider gets."""
    events = FORMATS[format].decode_answer(json.dumps(turn).encode(), CAN)
    message = plain(events, "chat")["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in message["tool_calls"]
    ]
    tools = [
        {"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {}}}}
    ]
    turns = [{"role": "user", "content": "?"}, message, *results]
    request, _ = read("chat", {"model": "m", "messages": turns, "tools": tools})
    return write(format, request)[0]


def test_signatures_of_messages_go_through_a_chat_client() -> None:
    assert next_turn("messages", MESSAGES_TURN)["messages"][1]["content"] == MESSAGES_TURN["content"]


def test_signatures_of_gemini_go_through_a_chat_client() -> None:
    parts = next_turn("gemini", GEMINI_TURN)["contents"][1]["parts"]
    signed = [
        part["thoughtSignature"] for part in parts if "functionCall" in part and "thoughtSignature" in part
    ]
    assert signed == ["U0lH"]
    assert [part["functionCall"]["args"] for part in parts if "functionCall" in part] == [{"a": 1}, {"a": 2}]


def test_hidden_thoughts_of_responses_go_through_a_chat_client() -> None:
    thought = next(
        item for item in next_turn("responses", RESPONSES_TURN)["input"] if item.get("type") == "reasoning"
    )
    assert thought["encrypted_content"] == "RU5D"
    assert thought.get("id", "rs_1") == "rs_1"


@pytest.mark.parametrize("other", CHATTY)
def test_b141_state_goes_to_nobody_else(other: str) -> None:
    for format, turn in (("messages", MESSAGES_TURN), ("gemini", GEMINI_TURN), ("responses", RESPONSES_TURN)):
        if format == other:
            continue
        events = FORMATS[format].decode_answer(json.dumps(turn).encode(), CAN)
        message = plain(events, "chat")["choices"][0]["message"]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in message["tool_calls"]
        ]
        turns = [{"role": "user", "content": "?"}, message, *results]
        sent = json.dumps(write(other, read("chat", {"model": "m", "messages": turns})[0])[0])
        assert not any(state in sent for state in ("gw1.", "U0lH", "RU5D"))
