"""Legacy completions: passed on the same format, translated both ways, streamed and plain."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, DecodeError, UnsupportedFeature
from sluicegate.messages import (
    End,
    Finish,
    Image,
    Logprobs,
    Message,
    Opaque,
    OpaqueState,
    ReasoningControl,
    ReasoningDelta,
    RefusalDelta,
    Request,
    ResponseFormat,
    StreamError,
    StreamEvent,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    Usage,
    UsageReport,
)
from sluicegate.simulator.answer import Answer
from sluicegate.wire import Bill
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.openai_completions import CODEC
from sluicegate.wire.translation import Asked, PassOptions
from tests.profiles import examples
from tests.strategies import answers
from tests.wire.anthropic_world import by_event, random_cuts, ways
from tests.wire.openai_world import (
    ASKED,
    CAN,
    COST,
    DONE,
    MODEL,
    cp,
    decoded,
    fixture,
    plain,
    read,
    run,
    sse,
    tail,
    told,
    write,
)
from tests.wire.test_openai_chat_answers import alone, fixture_plain, fixture_stream

OTHERS = sorted(FORMATS.keys() - {"completions"})
HELLO = cp("Hel") + cp("lo")


# ---- the same format ------------------------------------------------------------------------------------------------


def test_c10_fixture_passes_at_every_cut() -> None:
    for pieces in ways(fixture("completions-stream")):
        ran = run(pieces, "completions", "completions")
        parsed = ran.parsed(usage=True, cost_nano_usd=2000)
        assert (parsed.text, parsed.finish) == ("Hello", "length")
        assert ran.counted == "Hello"
    run([fixture("completions-stream")], "completions", "completions", usage_shown=False).parsed(usage=False)


def test_c3_b031_what_every_chunk_says_is_the_same() -> None:
    data = (
        sse({"choices": [{"text": "a", "index": 0, "logprobs": None, "finish_reason": None}], "model": None})
        + sse({"id": "c9", "created": 7, "choices": [{"text": "b", "index": 0}], "x": {"y": 1.0}})
        + sse({"id": "c9", "choices": [{"text": None, "finish_reason": ""}]})
        + sse({"id": "c9", "choices": [{"text": "", "index": 0, "finish_reason": "eos"}]})
        + DONE
    )
    ran = run([data], "completions", "completions")
    assert ran.parsed().text == "ab"
    assert b'"x":{"y":1.0}' in ran.raw
    assert ran.chunks()[0]["id"] == "cmpl-" + ASKED.id


def test_unknown_fields_survive_byte_for_byte() -> None:
    chunk = b'{"id": "c1", "object":"text_completion","created":100,"model":"up","q":[1e2,"\\u00e9"],"choices":[%b]}'
    choice = b'{"text":"%b","index":0,"logprobs":null,"finish_reason":%b,"z":{"k":1.50}}'
    data = b"".join(
        b"data: " + chunk % (choice % piece) + b"\n\n"
        for piece in [(b"a", b"null"), (b"b", b"null"), (b"c", b"null"), (b"", b'"stop"')]
    )
    raw = run([data + DONE], "completions", "completions", usage_shown=False).raw
    assert raw == data.replace(b'"up"', b'"%b"' % MODEL.encode()) + DONE


def test_finish_is_held_and_cancelled_by_text() -> None:
    data = cp("a", "stop") + cp("b", "stop") + cp("c", "stop") + DONE
    for pieces in ways(data):
        ran = run(pieces, "completions", "completions")
        assert ran.parsed().text == "abc"
        assert ran.codec.repaired  # type: ignore[attr-defined]
    ran = run(by_event(HELLO + cp("", "stop") + tail() + DONE), "completions", "completions", release_after=2)
    assert ran.parsed(usage=True).finish == "stop"


def test_several_prompts_are_choices_of_their_own() -> None:
    both = sse({"id": "c1", "choices": [
        {"text": "a", "index": 0, "logprobs": None, "finish_reason": None},
        {"text": "b", "index": 1, "logprobs": None, "finish_reason": "stop"},
    ]})  # fmt: skip
    data = both + cp("c", index=0) + cp("", "length", index=0) + tail() + DONE
    for pieces in ways(data):
        assert run(pieces, "completions", "completions", choices=2).parsed().texts == ("ac", "b")
    assert run([cp("x", index=5)], "completions", "completions", choices=2).failure is not None


@pytest.mark.parametrize("cut", range(3))
def test_e3_a_cut_is_no_end(cut: int) -> None:
    data = b"".join(by_event(fixture("completions-stream"))[:cut])
    assert run([data], "completions", "completions").failure is not None
    assert run([data + DONE], "completions", "completions").failure == (
        None if cut else "the stream ended without any output"
    )


def test_e2_errors_in_the_stream() -> None:
    assert (
        run([fixture("completions-error-midstream")], "completions", "completions").parsed(end="error").error
    )
    assert run([HELLO + cp("", "error")], "completions", "completions").failure is not None
    assert run([HELLO + b"data: {\n\n"], "completions", "completions").failure is not None


def test_a_whole_answer_where_a_stream_was_asked_for() -> None:
    stream = CODEC.pass_stream(ASKED, PassOptions(count_text=lambda text: None))
    stream.feed_whole(fixture("completions-nonstream"))
    assert stream.ended
    assert b'"text":"Hello"' in b"".join(stream.out)


def test_c9_plain_answer_passes() -> None:
    body = fixture("completions-nonstream").replace(b'"id":"cmpl-1"', b'"id":null,"extra":[1.0]')
    answer = CODEC.pass_answer(ASKED, body)
    assert answer.usage == Usage(input_tokens=3, output_tokens=1)
    assert answer.texts() == ["Hello"]
    encoded = answer.encode(Bill(answer.usage, in_usage=COST))
    whole = json.loads(encoded)
    assert (whole["model"], whole["id"]) == (MODEL, "cmpl-" + ASKED.id)
    assert whole["usage"]["cost_nano_usd"] == 2000
    assert b'"extra":[1.0]' in encoded
    assert isinstance(CODEC.pass_answer(ASKED, b'{"error":{"message":"x"}}').error, StreamError)
    for garbage in (b"", b"[]", b'{"choices":null}', b"<html>"):
        with pytest.raises(DecodeError):
            CODEC.pass_answer(ASKED, garbage)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.binary(max_size=30) | st.sampled_from(by_event(fixture("completions-stream"))), max_size=6)
)
def test_any_bytes_pass_or_are_told(pieces: list[bytes]) -> None:
    ran = run(pieces, "completions", "completions")
    ran.parsed()
    with suppress(DecodeError):
        CODEC.pass_answer(ASKED, b"".join(pieces))


# ---- requests of the same format ------------------------------------------------------------------------------------


def body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "prompt": "Once", **more}


def raw(**more: Any) -> bytes:
    return json.dumps(body(**more)).encode()


def test_edges_of_a_request() -> None:
    request = CODEC.read_request(raw(prompt=["a", "b"], n=2, max_tokens=7, stream=True), None, False)
    assert (request.model, request.stream, request.choices) == ("m", True, 4)
    assert (request.max_output_key, request.max_output_tokens) == ("max_tokens", 7)
    assert not request.include_usage
    upstream = json.loads(request.upstream_body("up", ask_usage=True, max_output_tokens=5))
    assert upstream == body(prompt=["a", "b"], n=2, max_tokens=5, stream=True, model="up") | {
        "stream_options": {"include_usage": True}
    }
    assert CODEC.read_request(raw(prompt=[1, 2]), None, False).choices == 1
    assert CODEC.read_request(raw(prompt=[[1], [2]]), None, False).choices == 2
    assert CODEC.read_request(raw(fallbacks=["x"]), None, False).names_other_models == "fallbacks"  # type: ignore[attr-defined]
    assert request.messages_hash != CODEC.read_request(raw(), None, False).messages_hash


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"prompt": 5}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"n": 0}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"max_tokens": "x"}, "max_tokens"),
        ({"model": 5}, "model"),
        ({"stream_options": {}}, "stream_options"),
    ],
)
def test_edges_that_are_wrong(wrong: dict[str, Any], path: str) -> None:
    with pytest.raises(BadRequest) as caught:
        CODEC.read_request(raw(**wrong), None, False)
    assert caught.value.param == path


def test_a_duplicate_of_the_prompt_is_refused() -> None:
    with pytest.raises(BadRequest):
        CODEC.read_request(b'{"model":"m","prompt":"a","prompt":"b"}', None, False)


# ---- clients of completions, other providers ------------------------------------------------------------------------


def test_a_prompt_becomes_a_user_message() -> None:
    given, notes = read("completions", body(logprobs=2, stop=["a"], n=2, echo=False, user="u"))
    assert given.messages == [Message(role="user", parts=[Text(text="Once")], path="prompt")]
    assert (given.max_output_tokens, given.limit_is_visible) == (16, True)
    assert (given.logprobs, given.top_logprobs, given.choices) == (True, 2, 2)
    assert notes.dropped == ["prompt;asked as a user message"]
    assert read("completions", body(prompt=["Once"]))[0].messages == given.messages
    assert write("chat", given)[0]["messages"] == [{"role": "user", "content": "Once"}]
    with pytest.raises(UnsupportedFeature):
        read("completions", body(), "strict")


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("prompt", {"prompt": ["a"] * 33}),
        ("prompt", {"prompt": [1, 2]}),
        ("prompt", {"prompt": [[1], [2]]}),
        ("suffix", {"suffix": "x"}),
        ("best_of", {"best_of": 2}),
        ("logprobs", {"echo": True, "logprobs": 1}),
        ("max_tokens", {"max_tokens": 0}),
    ],
)
def test_what_only_a_completions_server_can_do_is_refused(field: str, more: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        read("completions", body(**more))
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("prompt", {"prompt": None}),
        ("prompt", {"prompt": ""}),
        ("prompt", {"prompt": 5}),
        ("prompt[1]", {"prompt": ["a", None]}),
        ("logprobs", {"logprobs": True}),
        ("logprobs", {"logprobs": 9}),
        ("temperature", {"temperature": 9}),
    ],
)
def test_requests_that_are_wrong_in_their_own_format(path: str, more: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        read("completions", body(**more))
    assert caught.value.param == path


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(0, 1000))
def test_x1_any_answer_reaches_a_completions_client(name: str, answer: Answer, seed: int) -> None:
    answer = alone(answer)
    pieces = random_cuts(fixture_stream(name, answer), seed)
    parsed = run(pieces, name, "completions").parsed(cost_nano_usd=2000)
    assert parsed.text == "".join(answer.text + answer.refusal)
    if answer.refusal:
        assert parsed.finish in ("content_filter", "stop", "length")
    events = FORMATS[name].decode_answer(fixture_plain(name, answer), CAN)
    usage = next(event.usage for event in events if isinstance(event, UsageReport))
    (choice,) = plain(events, "completions", usage=usage)["choices"]
    assert (choice["text"], choice["finish_reason"]) == (parsed.text, parsed.finish)


def test_echo_thoughts_and_refusals() -> None:
    asked = Asked(model=MODEL, id=ASKED.id, created=1, echo=("Once ",))
    events: list[StreamEvent] = [
        ReasoningDelta("hm"),
        OpaqueState(Opaque(vendor="anthropic", kind="signature", value="x")),
        TextDelta("upon"),
        TextDelta(" a time"),
        RefusalDelta(" no"),
        Finish("stop"),
        End(),
    ]
    parsed = told(events, "completions", asked).parsed()
    assert (parsed.text, parsed.finish) == ("Once upon a time no", "content_filter")
    (choice,) = plain(events, "completions", asked)["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Once upon a time no", "content_filter")
    silent: list[StreamEvent] = [Finish("length"), End()]
    assert told(silent, "completions", asked).parsed().text == "Once "


def test_b058_probabilities_keep_their_own_shape() -> None:
    shape = {
        "tokens": ["Hel", "lo"],
        "token_logprobs": [-0.5, -1.0],
        "top_logprobs": [{"Hel": -0.5, "He": -2.0}, {"lo": -1.0}],
        "text_offset": [0, 3],
    }
    data = cp("Hello", logprobs=shape) + cp("", "stop") + DONE
    events = decoded([data], "completions")
    entries = next(event.content for event in events if isinstance(event, Logprobs))
    assert entries[0]["top_logprobs"][1] == {"token": "He", "logprob": -2.0, "bytes": [72, 101]}
    assert plain(events, "completions")["choices"][0]["logprobs"] == shape
    assert plain(events, "chat")["choices"][0]["logprobs"]["content"] == entries
    told(events, "completions").parsed()


# ---- other clients, completions providers ---------------------------------------------------------------------------

TALK = [
    Message(role="system", parts=[Text(text="Be brief.")], path="messages[0]"),
    Message(role="user", parts=[Text(text="a"), Text(text="b")], path="messages[1]"),
    Message(role="assistant", parts=[Text(text="c"), Text(text="d")], path="messages[2]"),
    Message(role="user", parts=[Text(text="e")], path="messages[3]"),
]
PICTURE = Message(role="user", parts=[Image(url="https://h")], path="messages[0]")
CALLED = Message(role="assistant", parts=[ToolCall(id="a", name="w", arguments="{}")], path="messages[1]")


def test_a_conversation_is_flattened_and_that_is_told() -> None:
    request = Request(
        model="m", messages=TALK, stream=True, max_output_tokens=9, temperature=0.5, stop=["END"]
    )
    sent, dropped = write("completions", request)
    assert sent == {
        "model": "up",
        "prompt": "Be brief.\n\nUser: a\nb\n\nAssistant: cd\n\nUser: e\n\nAssistant:",
        "max_tokens": 9,
        "temperature": 0.5,
        "stop": ["END", "\nUser:"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert dropped == ["messages;flattened"]
    with pytest.raises(UnsupportedFeature):
        write("completions", request, policy="strict")
    with pytest.raises(UnsupportedFeature):
        write("completions", request, Capabilities(prompt_template="none"))


def test_a_last_turn_of_the_assistant_goes_on() -> None:
    assert write("completions", Request(model="m", messages=TALK[:3]))[0]["prompt"].endswith(
        "\n\nAssistant: cd"
    )


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("tools", {"tools": [Tool(name="w")]}),
        ("response_format", {"response_format": ResponseFormat(kind="json_object")}),
        ("web_search", {"web_search": {}}),
        ("messages[0].content[0]", {"messages": [PICTURE]}),
        ("messages[1].content[0]", {"messages": [TALK[0], CALLED]}),
    ],
)
def test_what_has_no_place_in_a_text_is_refused(field: str, more: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        write("completions", Request(**{"model": "m", "messages": TALK, **more}))
    assert caught.value.param == field


def test_what_only_some_models_know_is_named() -> None:
    request = Request(
        model="m", messages=TALK, reasoning=ReasoningControl(effort="high"), verbosity="low", metadata={"a": "b"},
        logprobs=True, top_logprobs=9, service_tier="flex", prompt_cache_key="k", user="u", suffix="s", choices=2,
    )  # fmt: skip
    sent, dropped = write("completions", request)
    assert (sent["logprobs"], sent["suffix"], sent["user"], sent["n"]) == (5, "s", "u", 2)
    assert sorted(entry.partition(";")[0] for entry in dropped) == [
        "messages", "metadata", "prompt_cache_key", "reasoning", "service_tier", "top_logprobs", "verbosity"
    ]  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_x1_a_completions_answer_reaches_clients_of_every_format(name: str) -> None:
    data = fixture("completions-stream")
    for pieces in ways(data):
        ran = run(pieces, "completions", name)
        assert ran.parsed(cost_nano_usd=2000).text == "Hello"
        assert ran.counted == "Hello"
    events = FORMATS["completions"].decode_answer(fixture("completions-nonstream"), CAN)
    assert "Hello" in json.dumps(plain(events, name))
    for garbage in (b"{}", b"nonsense", b'{"choices":[]}'):
        with pytest.raises(DecodeError):
            FORMATS["completions"].decode_answer(garbage, CAN)
