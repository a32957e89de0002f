"""The chat codec: cases users reported, each at every cut; what passes untouched; and what it does with garbage."""

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import DecodeError, StreamCut
from sluicegate.messages import Usage
from sluicegate.wire import Bill
from sluicegate.wire.openai_chat import ChatStream
from sluicegate.wire.openai_chat_answer import ChatAnswer
from tests.grammar.narrow_sse import ParsedCall, ParsedStream
from tests.wire.passing import (
    COST,
    HIDDEN,
    IDENTITY,
    MODEL,
    Passed,
    by_event,
    every_way,
    one_byte,
    random_cuts,
    run,
)

DONE = b"data: [DONE]\n\n"


def ch(
    delta: dict[str, Any] | None = None, finish: str | None = None, *, index: int = 0, **top: Any
) -> bytes:
    """One chunk of a provider."""
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    chunk = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 100,
        "model": "up",
        "choices": [choice],
    }
    return sse({**chunk, **top})


def sse(chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def usage_tail(prompt: int = 9, completion: int = 2, **top: Any) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return sse({"id": "c1", "object": "chat.completion.chunk", "created": 100, "model": "up", "choices": [],
                "usage": usage, **top})  # fmt: skip


def tool(index: int | None = 0, id_: str | None = None, name: str | None = None, arguments: str | None = None,
         **more: Any) -> dict[str, Any]:  # fmt: skip
    """One fragment of a tool call."""
    fragment: dict[str, Any] = {} if index is None else {"index": index}
    if id_ is not None:
        fragment |= {"id": id_, "type": "function"}
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**fragment, "function": function, **more}


ROLE = ch({"role": "assistant", "content": ""})
HELLO = ROLE + ch({"content": "Hel"}) + ch({"content": "lo"})
STOP = ch(finish="stop")


def all_same(data: bytes, **options: Any) -> tuple[Passed, ParsedStream]:
    """Pass at every cut; all must end alike and say the same, in good grammar."""
    ways = every_way(data, **options)
    checks = {"usage": options.get("usage", False)} if ways[0].complete else {}
    parsed = [way.parsed(**checks) for way in ways]
    for way, said in zip(ways, parsed, strict=True):
        assert way.complete == ways[0].complete
        assert way.failure == ways[0].failure
        assert way.counted == ways[0].counted
        assert (said.text, said.reasoning, said.refusal) == (
            parsed[0].text,
            parsed[0].reasoning,
            parsed[0].refusal,
        )
        assert (said.tool_calls, said.finish, said.texts) == (
            parsed[0].tool_calls, parsed[0].finish, parsed[0].texts
        )  # fmt: skip
        assert said.usage == parsed[0].usage
    return ways[0], parsed[0]


def fails(data: bytes, reason: str, **options: Any) -> Passed:
    way, _ = all_same(data, **options)
    assert not way.complete
    assert re.search(reason, way.failure or ""), way.failure
    return way


def call(id_: str, name: str, arguments: str) -> ParsedCall:
    return ParsedCall(id_, name, arguments)


# ---- end of stream ------------------------------------------------------------------------------------------------


def test_marker_without_a_finish_reason_is_an_end_B107() -> None:
    way, said = all_same(HELLO + DONE)
    assert (said.text, said.finish, way.codec.repaired) == ("Hello", "stop", True)
    way, said = all_same(ROLE + ch({"tool_calls": [tool(0, "k", "f", '{"a":1}')]}) + DONE)
    assert said.finish == "tool_calls"


def test_marker_inside_a_tool_call_is_a_cut_B107() -> None:
    fails(ROLE + ch({"tool_calls": [tool(0, "k", "f", '{"a":')]}) + DONE, "inside a tool call")


@pytest.mark.parametrize("data", [DONE, ROLE + DONE, ROLE + usage_tail() + DONE])
def test_marker_without_output_is_a_failure_B107_B034(data: bytes) -> None:
    fails(data, "without any output")


def test_close_after_the_finish_is_an_end_E3() -> None:
    way, said = all_same(HELLO + STOP)
    assert (said.finish, way.codec.repaired) == ("stop", False)
    _, said = all_same(HELLO + STOP + usage_tail()[:-30], usage=True)
    assert said.usage is not None


@pytest.mark.parametrize("data", [b"", ROLE, HELLO, HELLO[:-1], HELLO[:-2], HELLO[:-20], b": ping\n\n"])
def test_close_without_finish_or_marker_is_a_cut_E3_B010_B131(data: bytes) -> None:
    way = fails(data, "ended")
    assert b"[DONE]" not in way.raw


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\n\n", b"\r\n\r\n"])
def test_last_event_without_its_blank_line_B027(end: bytes) -> None:
    _, said = all_same(HELLO + STOP.rstrip() + end)
    assert (said.text, said.finish) == ("Hello", "stop")
    _, said = all_same(HELLO + STOP + DONE.rstrip() + end)
    assert said.text == "Hello"


def test_nothing_is_read_after_the_marker_B130() -> None:
    for data in (
        HELLO + STOP + DONE + HELLO,
        HELLO + STOP + DONE + b"garbage\n\n",
        HELLO + STOP + DONE + DONE,
    ):
        way, said = all_same(data)
        assert (said.text, way.counted) == ("Hello", "Hello")
    codec = ChatStream(IDENTITY, count_text=lambda text: None)
    codec.feed(HELLO + STOP + DONE)
    codec.out.clear()
    codec.feed(ch({"content": "lo"}))
    assert codec.out == []


@pytest.mark.parametrize("marker", [b"data:[DONE]\n\n", b"data: [DONE] \r\n\r\n", b"data:   [DONE]\t\n\n"])
def test_marker_in_other_spellings_B110(marker: bytes) -> None:
    assert all_same(HELLO + STOP + marker)[1].text == "Hello"


# ---- errors inside a 200 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (sse({"id": "c1", "choices": [], "error": {"code": 502, "message": "worker full"}}), 502),
        (
            sse(
                {"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}], "error": {"message": "x"}}
            ),
            500,
        ),
        (sse({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}), 500),
        (sse({"error": {"message": "slow", "type": "rate_limit_error", "code": None}}), 429),
        (sse({"error": "text"}), 500),
        (sse({"error": ["odd"]}), 500),
        (sse({"type": "error", "message": "flat", "code": 400}), 400),
        (sse({"object": "error", "message": "flat", "type": "BadRequestError", "code": "404"}), 404),
        (sse({"error": {"message": 5, "code": "9" * 6000}}), 500),
        (sse({"error": {"message": None, "code": "²²²"}}), 500),
    ],
)
@pytest.mark.parametrize("before", [b"", ROLE, HELLO, HELLO + STOP])
def test_error_event_B011(before: bytes, event: bytes, status: int) -> None:
    for way in every_way(before + event + HELLO + DONE):
        assert way.codec.error is not None
        assert way.codec.error.status == status
        assert b"[DONE]" not in way.raw
        way.parsed(end="error")


@pytest.mark.parametrize("nothing", ["null", "false", "{}", "[]", '""', "0", "{ }"])
def test_an_error_that_is_none_passes_without_its_key_B011(nothing: str) -> None:
    event = HELLO.replace(b'"id":"c1"', b'"error":%b, "id":"c1"' % nothing.encode())
    way, said = all_same(event + STOP + DONE)
    assert said.text == "Hello"
    assert b"error" not in way.raw


def test_unreadable_events_B086() -> None:
    torn = b'data: {"id":"x","choices":[{"index":0,"delta":{"role":"a'
    way = fails(HELLO + torn + ch({"content": "x"}) + DONE, "not a chat completion chunk")
    assert way.parsed(end="error").text == "Hello"
    joined = ROLE + ch({"content": "a"})[:-1] + ch({"content": "b"})[:-1] + STOP
    way, said = all_same(joined + DONE)
    assert (said.text, way.codec.repaired) == ("ab", True)


@pytest.mark.parametrize(
    "bad",
    [
        b"[]", b"1", b'"x"', b"<html>", b"{", b"{}{}", b'{"choices":{}}', b'{"choices":"x"}', b'{"choices":[1]}',
        b'{"choices":[null]}', b'{"choices":[{"index":0,"delta":"x"}]}', b'{"choices":[{"index":0,"delta":[]}]}',
        b'{"choices":[{"delta":{"tool_calls":{}}}]}', b'{"choices":[{"delta":{"tool_calls":[1]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"function":"f"}]}}]}', b'{"a":NaN}', b'{"created":1e999}',
        b'{"choices":[{"delta":' * 3000 + b"1" + b"}]}" * 3000, b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"choices":[{"delta":{}},{"delta":{}}]}', b"{'a':1}", b'{"a":1,}', b"\x00", b'{"a":"\x01"}',
    ],
)  # fmt: skip
def test_garbage_ends_with_an_error_event_never_with_broken_json(bad: bytes) -> None:
    for pieces in ([HELLO + b"data: " + bad + b"\n\n" + DONE], by_event(HELLO + b"data: " + bad + b"\n\n")):
        way = run(pieces)
        assert not way.complete
        assert way.parsed(end="error").text == "Hello"


# ---- framing --------------------------------------------------------------------------------------------------------


def test_keep_alives_are_not_relayed_B026_B085() -> None:
    noise = b": PROCESSING\n\n: ping - 2\n\n:\n\ndata: : keepalive\n\nevent: ping\n\nid: 4\n\nretry: 9\n\n"
    data = noise + noise.join(by_event(HELLO + STOP)) + noise + DONE
    way, said = all_same(data)
    assert said.text == "Hello"
    assert b"ping" not in way.raw


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_line_ends_B074(end: bytes) -> None:
    assert all_same((HELLO + STOP + DONE).replace(b"\n", end))[1].text == "Hello"


def test_byte_order_mark_B053() -> None:
    _, said = all_same(b"\xef\xbb\xbf" + HELLO + ch({"content": "\ufeff!"}) + STOP + DONE)
    assert said.text == "Hello\ufeff!"


def test_pretty_printed_events_leave_on_one_line_B033() -> None:
    chunks = [json.loads(event[6:]) for event in by_event(HELLO + STOP)]
    data = b"".join(
        b"".join(b"data: %b\n" % line.encode() for line in json.dumps(chunk, indent=2).split("\n")) + b"\n"
        for chunk in chunks
    )
    assert all_same(data + DONE)[1].text == "Hello"


@pytest.mark.parametrize("space", [b"  ", b"\t", b" \t ", b"\ndata:  "])
def test_white_space_before_a_value_B033(space: bytes) -> None:
    events = ROLE + ch({"content": "a"}) + ch({"content": "b"}, "stop")
    data = events.replace(b'":', b'":' + space)
    parsed = all_same(data + DONE)[1]
    assert (parsed.text, parsed.finish) == ("ab", "stop")


def test_a_key_in_another_spelling_is_the_same_key() -> None:
    data = ROLE + ch({"content": "a"}, usage=None).replace(b'"usage"', b'"usag\\u0065"') + STOP + DONE
    assert b"usag" not in run([data]).raw


def test_huge_events_B014() -> None:
    huge = "x" * (4 << 20)
    data = HELLO + ch({"content": huge}) + STOP + DONE
    pieces = [data[at : at + 16_384] for at in range(0, len(data), 16_384)]
    assert run(pieces).parsed().text == "Hello" + huge
    way = run(pieces, max_event_bytes=1 << 20)
    assert not way.complete
    assert "longer than" in (way.failure or "")


def test_the_limit_holds_on_the_usual_path_too() -> None:
    events = [ROLE, *(ch({"content": "x" * size}) for size in (10, 20, 2000))]
    assert (
        run(events, max_event_bytes=1000).failure
        == run([b"".join(events)], max_event_bytes=1000).failure
        == "an event is longer than 1000 bytes"
    )


# ---- broken characters ----------------------------------------------------------------------------------------------


def halves(*texts: str, key: str = "content") -> bytes:
    """Chunks whose text is spelled as given, escapes and all."""
    return b"".join(ch({key: "@"}).replace(b"@", text.encode()) for text in texts)


@pytest.mark.parametrize("key", ["content", "reasoning_content", "refusal"])
def test_pairs_over_two_deltas_are_joined_B109(key: str) -> None:
    data = ROLE + halves("a", "b\\ud83d", "\\ude00c", "d", key=key) + STOP + DONE
    way, said = all_same(data)
    assert said.text + said.reasoning + said.refusal == way.counted == "ab😀cd"
    assert way.codec.repaired


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (["a\\ud83d"], "a\ufffd"),
        (["\\ude00b"], "\ufffdb"),
        (["a\\ud83db"], "a\ufffdb"),
        (["a\\ud83d", "b"], "a\ufffdb"),
        (["\\ud83d\\ud83d", "\\ude00"], "\ufffd😀"),
        (["\\ud83d", "\\ud83d", "\\ude00"], "\ufffd😀"),
        (["\\ud83d\\ude00"], "😀"),
        (["\\\\ud83d"], "\\ud83d"),
        (["\\ude00\\ud83d", "\\ude00"], "\ufffd😀"),
    ],
)
def test_halves_that_stay_alone_B109(texts: list[str], read: str) -> None:
    for end in (STOP + DONE, DONE, STOP):
        way, said = all_same(ROLE + halves("x") + halves(*texts) + end)
        assert said.text == way.counted == "x" + read


def test_halves_in_fields_nobody_reads_B109() -> None:
    event = ch({"content": "a"}).replace(
        b'"model":"up"', b'"x":"\\ud83d","model":"up","y":{"\\udc00":["\\ud83d"]}'
    )
    _, said = all_same(ROLE + event + ch({"content": "b"}) + STOP + DONE)
    assert said.text == "ab"


@pytest.mark.parametrize(
    "place", [b'"id":"c1', b'"content":"', b'"model":"up', b'"finish_reason":"stop', b'"role":"']
)
def test_halves_anywhere_never_break_a_stream_B109(place: bytes) -> None:
    for half in (b"\\ud83d", b"\\ude00", b"\\ud83dx\\ud83d"):
        for way in every_way((HELLO + STOP + DONE).replace(place, place + half)):
            assert way.complete, way.failure
            way.parsed()


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    event = ch({"content": "@"}).replace(b"@", b"a\xffb\xe2\x82")
    other = ch({"content": "c"}).replace(b'"up"', b'"up\xff"').replace(b'"index"', b'"n\xff":1,"index"')
    way, said = all_same(ROLE + ch({"content": "x"}) + event + other + STOP + DONE)
    assert said.text == "xa\ufffdb\ufffdc"
    assert way.codec.repaired


# ---- identity -------------------------------------------------------------------------------------------------------


def test_identity_is_pinned_B031_C2_C3() -> None:
    events = by_event(HELLO + STOP + usage_tail())
    spellings: list[dict[str, Any]] = [
        {"id": "a", "created": 100}, {"id": "b", "created": 101.0}, {"id": None, "model": None}, {"model": "x"},
        {"object": "", "created": None},
    ]  # fmt: skip
    data = b""
    for event, changes in zip(events, spellings, strict=True):
        data += sse({**json.loads(event[6:]), **changes})
    way, said = all_same(data + DONE, usage=True)
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in said.events} == {("a", 100, MODEL)}
    assert way.codec.upstream_id == "a"


def test_identity_is_minted_where_the_provider_gives_none_B031() -> None:
    bare = [sse({"choices": json.loads(event[6:])["choices"]}) for event in by_event(HELLO + STOP)]
    _, said = all_same(b"".join(bare) + DONE)
    assert {(chunk["id"], chunk["created"]) for chunk in said.events} == {
        (IDENTITY.fallback_id, IDENTITY.created)
    }


def test_first_chunk_with_filter_results_alone_B008() -> None:
    azure = sse(
        {
            "id": "",
            "object": "",
            "created": 0,
            "model": "",
            "choices": [],
            "prompt_filter_results": [{"p": 0}],
        }
    )
    absent = sse({"id": "c1", "note": 1})
    way, said = all_same(azure + HELLO + absent + STOP + absent + usage_tail() + DONE, usage=True)
    assert said.text == "Hello"
    assert way.codec.upstream_id == "c1"
    assert said.events[0]["prompt_filter_results"] == [{"p": 0}]
    assert said.usage is not None
    assert said.usage["total_tokens"] == 11


def test_hidden_provider() -> None:
    data = (HELLO + STOP + usage_tail() + DONE).replace(b'"model"', b'"system_fingerprint":"fp_1","model"')
    way, said = all_same(data, identity=HIDDEN, usage=True)
    assert {chunk["id"] for chunk in said.events} == {HIDDEN.fallback_id}
    assert b"fp_1" not in way.raw
    assert b"c1" not in way.raw


@pytest.mark.parametrize(
    "spoof",
    [
        b'"\\u006dodel":"up"', b'"model":"up","model":"up2"', b'"model" : "up"',
        b'"x":{"model":"public/m-1"}', b'"x":{"model":"public/m-1"},"\\u006dodel":"up"',
    ],
)  # fmt: skip
def test_the_providers_model_id_never_shows_C3(spoof: bytes) -> None:
    way, _ = all_same((HELLO + STOP + DONE).replace(b'"model":"up"', spoof))
    assert b"up" not in way.raw


def test_members_after_the_choices_are_edited_on_every_event() -> None:
    """The edges of the usual event must not hide what stands behind the text."""
    data = b"".join(
        sse(
            {
                "choices": [{"delta": delta, "index": 0, "finish_reason": finish}],
                "id": f"c{number}",
                "model": "up",
                "created": 5 + number,
                "object": "chat.completion.chunk",
            }
        )
        for number, (delta, finish) in enumerate(
            [({"role": "assistant"}, None)]
            + [({"content": text}, None) for text in "abcdef"]
            + [({"content": ""}, "stop")]
        )
    )
    way, said = all_same(data + DONE)
    assert said.text == "abcdef"
    assert b"up" not in way.raw


# ---- roles, choices, finish reasons ----------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["absent", "null", '""', '"user"', '"assistant"', "7"])
@pytest.mark.parametrize("from_first", [True, False])
def test_role_on_the_first_chunk_only_B127(role: str, from_first: bool) -> None:
    events = by_event(ch({"content": "a"}) + ch({"content": "b"}) + ch({"content": "c"}) + STOP)
    if role != "absent":
        for at in range(0 if from_first else 1, 4):
            given = b'"delta":{"role":' + role.encode()
            events[at] = events[at].replace(b'"delta":{"', given + b',"').replace(b'"delta":{}', given + b"}")
    _, said = all_same(b"".join(events) + DONE)
    assert said.text == "abc"


def test_finish_on_every_chunk_B080() -> None:
    data = ROLE + ch({"content": "a"}, "stop") + ch({"content": "b"}, "stop") + ch({"content": "c"}, "stop")
    for end in (DONE, b"", STOP + DONE, usage_tail() + DONE):
        _way, said = all_same(data + end)
        assert (said.text, said.finish) == ("abc", "stop")


@pytest.mark.parametrize("empty", ['""', "null", "false", "0"])
def test_an_empty_reason_is_none_B080(empty: str) -> None:
    data = HELLO.replace(b'"finish_reason":null', b'"finish_reason":' + empty.encode())
    _way, said = all_same(data + STOP + DONE)
    assert (said.text, said.finish) == ("Hello", "stop")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"), ("MAX_TOKENS", "length"), ("safety", "content_filter"),
        ("refusal", "content_filter"), ("pause_turn", "stop"), ("weird", "stop"), ("tool_use", "tool_calls"),
        ("function_call", "function_call"), ("STOP", "stop"),
    ],
)  # fmt: skip
def test_finish_reasons_B021_B032(reason: str, told: str) -> None:
    way, said = all_same(HELLO + ch(finish=reason) + DONE)
    assert said.finish == way.codec.finish_reason == told
    assert way.codec.repaired == (reason != told)


def test_a_tool_call_that_ends_with_stop_B009() -> None:
    data = ROLE + ch({"tool_calls": [tool(0, "k", "f", "{}")]})
    assert all_same(data + ch({"content": ""}, "stop") + DONE)[1].finish == "tool_calls"
    assert all_same(data + ch(finish="length") + DONE)[1].finish == "length"
    assert all_same(data + ch(finish="content_filter") + DONE)[1].finish == "content_filter"


def test_content_and_finish_in_one_event_B121_B122() -> None:
    data = ch(
        {"role": "assistant", "content": "x", "tool_calls": [tool(0, "k", "f", '{"a":1}')]}, "tool_calls"
    )
    _, said = all_same(data + DONE)
    assert (said.text, said.tool_calls, said.finish) == ("x", [call("k", "f", '{"a":1}')], "tool_calls")
    _, said = all_same(HELLO + ch({"tool_calls": [tool(0, "k", "f", "{}")]}, "tool_calls") + DONE)
    assert said.tool_calls == [call("k", "f", "{}")]


def test_content_of_a_finish_event_does_not_wait_for_the_next_read() -> None:
    way = run([HELLO, ch({"content": "!"}, "stop"), usage_tail() + DONE])
    assert b'"!"' in way.writes[1]
    assert b'"stop"' not in way.writes[1]
    assert way.parsed().text == "Hello!"
    whole = run([HELLO + ch({"content": "!"}, "stop") + usage_tail() + DONE])
    assert whole.raw.count(b'"!"') == 1
    assert len(whole.parsed().events) == len(way.parsed().events) - 1


@pytest.mark.parametrize("after", [usage_tail() + DONE, DONE, b""])
@pytest.mark.parametrize("finish", [STOP, ch({"content": "!"}, "stop")])
def test_a_released_finish_leaves_once(finish: bytes, after: bytes) -> None:
    way = run([HELLO, finish, *([after] if after else [])], release_after=1, usage=True)
    assert b'"stop"' in way.writes[1]
    assert way.parsed(usage=True).text.startswith("Hello")
    again = run([HELLO, finish, finish if finish is STOP else STOP, DONE], release_after=1)
    assert again.parsed().finish == "stop"


def test_finishing_is_said_when_the_last_finish_is_out() -> None:
    codec = ChatStream(IDENTITY, count_text=lambda text: None, choices=2)
    codec.feed(HELLO + ch({"content": "b"}, index=1) + STOP)
    assert codec.held
    codec.release()
    assert not codec.finishing
    codec.feed(ch({}, "length", index=1))
    codec.release()
    assert codec.finishing
    assert not codec.held


def test_several_choices_B104() -> None:
    data = (
        ch({"content": "a"}) + ch({"content": "b"}, index=1) + STOP + ch({"content": "c"}, index=1)
        + ch({}, "length", index=1) + usage_tail()
    )  # fmt: skip
    for end in (DONE, b""):
        way, said = all_same(data + end, choices=2, usage=True)
        assert said.texts == ("a", "bc")
        assert way.codec.finish_reason == "length"
    fails(data[: data.index(b'"length"')], "ended", choices=2)


def test_choices_out_of_order_begin_in_order() -> None:
    data = ch({"content": "b"}, index=2) + ch({"content": "a"}, index=0) + ch({"content": "m"}, index=1)
    data += b"".join(ch({}, "stop", index=index) for index in (2, 0, 1))
    assert all_same(data + DONE, choices=3)[1].texts == ("a", "m", "b")


def test_choices_in_one_event() -> None:
    def both(first: Any, second: Any, finish: str | None = None) -> bytes:
        choices = [
            {"index": index, "delta": delta, "finish_reason": finish}
            for index, delta in enumerate((first, second))
        ]
        return sse({"id": "c1", "created": 5, "model": "up", "choices": choices})

    data = both({"content": "a"}, {"content": "b"}) + both({"content": "c"}, {"content": "d"}, "stop")
    assert all_same(data + DONE, choices=2)[1].texts == ("ac", "bd")


@pytest.mark.parametrize("index", ["absent", "null", '"0"', "0.0", "5", "true"])
def test_odd_indexes_of_the_only_choice(index: str) -> None:
    data = HELLO + STOP
    given = b"" if index == "absent" else b'"index":%b,' % index.encode()
    assert all_same(data.replace(b'"index":0,', given) + DONE)[1].text == "Hello"


def test_an_index_beyond_those_asked_for_is_refused() -> None:
    fails(HELLO + ch({"content": "x"}, index=10**9) + DONE, "beyond", choices=2)


@pytest.mark.parametrize("delta", [b"", b'"delta":null,'])
def test_a_choice_without_delta(delta: bytes) -> None:
    assert all_same(HELLO + STOP.replace(b'"delta":{},', delta) + DONE)[1].text == "Hello"
    assert all_same(STOP.replace(b'"delta":{},', delta) + DONE)[1].finish == "stop"


def test_unknown_content_cancels_a_finish() -> None:
    audio = ch({"audio": {"data": "AA=="}})
    way, said = all_same(HELLO + STOP + audio + STOP + DONE)
    assert said.events[-1]["choices"][0]["finish_reason"] == "stop"
    assert way.raw.count(b'"stop"') == 1


def test_an_empty_delta_after_the_finish_leaves_before_it() -> None:
    _, said = all_same(HELLO + STOP + ch({}) + usage_tail() + DONE)
    assert said.finish == "stop"


# ---- content --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delta", "is_content"),
    [
        ({"content": "x"}, True), ({"refusal": "x"}, True), ({"reasoning": "x"}, True),
        ({"reasoning_content": "x"}, True), ({"tool_calls": [tool(0, "k", "f")]}, True),
        ({"audio": {"id": "a"}}, True), ({"reasoning_details": [{"index": 0, "signature": "U0lH"}]}, True),
        ({"function_call": {"name": "f"}}, True), ({"content": ["part"]}, True),
        ({"content": ""}, False), ({"content": None}, False), ({"role": "assistant"}, False), ({}, False),
        ({"tool_calls": []}, False), ({"audio": None}, False), ({"annotations": [{}]}, False),
        ({"tool_calls": [{"index": 0}]}, False),
    ],
)  # fmt: skip
def test_what_counts_as_content(delta: dict[str, Any], is_content: bool) -> None:
    codec = ChatStream(IDENTITY, count_text=lambda text: None)
    codec.feed(ROLE)
    assert not codec.content
    codec.feed(ch(delta))
    assert codec.content == is_content
    codec.feed(usage_tail())
    codec.feed(STOP)
    assert codec.content == is_content


def test_reasoning_under_all_its_names_B041_C4() -> None:
    data = ROLE + ch({"content": None, "reasoning": "a"}) + ch({"content": None, "reasoning": "b"})
    data += ch({"content": "", "reasoning_content": "c"}) + ch({"reasoning": "d", "reasoning_content": "d"})
    data += ch({"reasoning": "e", "reasoning_content": None}) + ch({"content": "X"}) + STOP + DONE
    way, said = all_same(data)
    assert (said.reasoning, said.text, way.counted) == ("abcde", "X", "abcdeX")


# ---- tool calls -----------------------------------------------------------------------------------------------------


def calls(*events: list[dict[str, Any]], end: bytes = ch(finish="tool_calls") + DONE) -> list[ParsedCall]:
    data = ROLE + b"".join(ch({"tool_calls": event}) for event in events) + end
    way, said = all_same(data)
    assert way.complete, way.failure
    assert said.finish == "tool_calls"
    return said.tool_calls


def test_fragments_that_are_right_keep_their_bytes_C5() -> None:
    events = (
        ROLE
        + ch({"tool_calls": [tool(0, "k", "f", "")]})
        + ch({"tool_calls": [tool(0, None, None, '{"a":')]})
    )
    events += ch({"tool_calls": [tool(0, None, None, "1}")]}) + ch({"tool_calls": [tool(1, "l", "g", "{}")]})
    events += ch(finish="tool_calls")
    assert run([events + DONE]).raw == events.replace(b'"up"', b'"public/m-1"') + DONE


def test_id_is_minted_and_not_repeated_B098() -> None:
    for id_ in (None, ""):
        first = {"index": 0, "id": id_, "function": {"name": "f", "arguments": "{}"}}
        if id_ is None:
            del first["id"]
        found = calls([first], [tool(0, None, None, " ")])
        assert found[0].id.startswith("call_")
        assert found[0][1:] == ("f", "{} ")
    same = [tool(0, "k", "f", '{"a"'), tool(0, "k", "f", ":"), tool(0, "k", None, "1}")]
    assert calls(*[[fragment] for fragment in same]) == [call("k", "f", '{"a":1}')]


def test_name_or_type_after_the_arguments_B062() -> None:
    found = calls(
        [{"index": 0, "id": "k", "function": {"arguments": '{"a"'}}],
        [{"index": 0, "function": {"name": "f"}}],
        [{"index": 0, "function": {"name": None, "arguments": ":1}"}, "type": "function"}],
    )
    assert found == [call("k", "f", '{"a":1}')]


def test_a_name_that_never_comes_is_an_error() -> None:
    fails(ROLE + ch({"tool_calls": [tool(0, "k", None, "{}")]}) + ch(finish="tool_calls") + DONE, "no name")
    _, said = all_same(HELLO + ch({"tool_calls": [{"index": 0}]}) + STOP + DONE)
    assert (said.tool_calls, said.finish) == ([], "stop")


def test_a_new_id_on_a_used_index_is_a_new_call_B120_B044() -> None:
    two = [call("A", "f", '{"x":1}'), call("B", "g", "{}")]
    assert calls([tool(0, "A", "f", '{"x":1}')], [tool(0, "B", "g", "{}")]) == two
    assert calls([tool(0, "A", "f", '{"x":1}')], [tool(0, "B", "g", "")], [tool(0, None, None, "{}")]) == two
    assert calls([tool(0, "A", "f", '{"x":1}'), tool(0, "B", "g", "{}")]) == two


def test_an_id_for_each_fragment_is_not_a_call_for_each() -> None:
    assert calls([tool(0, "A", "f", '{"x"')], [tool(0, "B", None, ":")], [tool(0, "C", None, "1}")]) == [
        call("A", "f", '{"x":1}')
    ]


def test_calls_without_index_are_told_apart_by_id_and_name() -> None:
    found = calls(
        [tool(None, "A", "f", '{"x"')], [tool(None, "A", None, ":1}")], [tool(None, "B", "g", "")],
        [tool(None, None, None, "{}")],
    )  # fmt: skip
    assert found == [call("A", "f", '{"x":1}'), call("B", "g", "{}")]
    found = calls(
        [{"function": {"name": "f", "arguments": "{}"}}, {"function": {"name": "f", "arguments": "{}"}}]
    )
    assert [found[0].name, found[1].name] == ["f", "f"]
    assert found[0].id != found[1].id


def test_indexes_are_made_dense_B119() -> None:
    assert calls([tool(1, "A", "f", "{}")], [tool(4, "B", "g", "{}")], [tool(7, "C", "h", "{}")]) == [
        call("A", "f", "{}"), call("B", "g", "{}"), call("C", "h", "{}")
    ]  # fmt: skip


def test_duplicate_ids_become_unique_B078() -> None:
    found = calls([tool(0, "w", "w", '{"c":1}')], [tool(1, "w", "w", '{"c":2}')])
    assert [found[0].arguments, found[1].arguments] == ['{"c":1}', '{"c":2}']
    assert found[0].id == "w"
    assert found[1].id != "w"


def test_interleaved_calls_come_one_after_another() -> None:
    found = calls(
        [tool(0, "A", "f", "")], [tool(1, "B", "g", "")], [tool(0, None, None, '{"x":')],
        [tool(1, None, None, '{"y":'), tool(0, None, None, "1}")], [tool(1, None, None, "2}")],
    )  # fmt: skip
    assert found == [call("A", "f", '{"x":1}'), call("B", "g", '{"y":2}')]


def test_calls_without_arguments_get_an_empty_object() -> None:
    assert calls([tool(0, "A", "f", "")], [tool(1, "B", "g")], [tool(2, "C", "h", "{}")]) == [
        call("A", "f", "{}"), call("B", "g", "{}"), call("C", "h", "{}")
    ]  # fmt: skip


def test_arguments_that_are_an_object_become_text() -> None:
    first = {"index": 0, "id": "A", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    assert calls([first]) == [call("A", "f", '{"x":1}')]


def test_calls_beside_empty_text_B099() -> None:
    for text in (None, ""):
        data = ch({"role": "assistant", "content": text, "tool_calls": [tool(0, "k", "f", "{}")]})
        _, said = all_same(data + ch(finish="tool_calls") + DONE)
        assert (said.text, said.tool_calls) == ("", [call("k", "f", "{}")])


def test_unknown_members_of_repaired_fragments_stay() -> None:
    signed = {
        "index": 3,
        "id": "k",
        "function": {"name": "f", "arguments": "{}", "z": 1},
        "extra": {"signature": "U"},
    }
    way, _ = all_same(ROLE + ch({"tool_calls": [signed]}) + ch(finish="stop") + DONE)
    assert b'"extra":{"signature":"U"}' in way.raw
    assert b'"z":1' in way.raw


def test_without_repair_fragments_pass_as_they_stand() -> None:
    events = (
        ROLE
        + ch({"role": "assistant", "tool_calls": [tool(0, "k", "f", "")]})
        + ch({"tool_calls": [{"index": 3}]})
    )
    way = run([events + ch(finish="stop") + DONE], repair=False)
    assert way.raw == (events + ch(finish="tool_calls")).replace(b'"up"', b'"public/m-1"') + DONE


def test_arguments_and_names_are_counted() -> None:
    way, _ = all_same(
        ROLE + ch({"tool_calls": [tool(0, "k", "fn", '{"a":')]}) + ch({"tool_calls": [tool(0, None, None, "1}")]})
        + ch({"tool_calls": [tool(0, None, None, " ")]}) + STOP + DONE
    )  # fmt: skip
    assert way.counted == 'fn{"a":1} '


# ---- usage ----------------------------------------------------------------------------------------------------------


def test_usage_is_hidden_unless_asked_for_B007_C6() -> None:
    data = (HELLO + STOP).replace(b"}\n\n", b',"usage":null}\n\n') + usage_tail() + DONE
    way, said = all_same(data)
    assert said.usage is None
    assert b"usage" not in way.raw
    assert way.codec.usage == Usage(input_tokens=9, output_tokens=2)
    way, said = all_same(data, usage=True)
    assert said.usage == {
        "prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11,
        "cost": said.usage and said.usage["cost"], "cost_nano_usd": 2000,
    }  # fmt: skip
    assert way.raw.count(b'"usage":null') == 4


@pytest.mark.parametrize(
    "data",
    [
        HELLO + STOP + usage_tail() + DONE,
        HELLO + STOP + usage_tail(),
        HELLO + usage_tail() + STOP + DONE,
        usage_tail() + HELLO + STOP + DONE,
        HELLO + ch(finish="stop", usage={"prompt_tokens": 9, "completion_tokens": 2}) + DONE,
        HELLO + ch(finish="stop", usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 999}),
        HELLO
        + usage_tail(9, 1)
        + ch({"content": ""}, usage={"prompt_tokens": 9, "completion_tokens": 2})
        + STOP
        + DONE,
        HELLO + STOP + usage_tail(usage={}) + DONE.replace(b"data", usage_tail() + b"data"),
        HELLO
        + STOP
        + usage_tail(usage={"prompt_tokens": 9.0, "completion_tokens": 2.0, "total_tokens": 11.0})
        + DONE,
    ],
)
def test_usage_wherever_it_stands_B079_B008(data: bytes) -> None:
    way, said = all_same(data, usage=True)
    assert way.codec.usage == Usage(input_tokens=9, output_tokens=2)
    assert said.usage is not None
    assert [said.usage[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")] == [9, 2, 11]
    assert said.text == "Hello"
    assert all_same(data)[1].usage is None


def test_usage_on_every_chunk_last_wins() -> None:
    events = [
        sse({**json.loads(event[6:]), "usage": {"prompt_tokens": 9, "completion_tokens": number}})
        for number, event in enumerate(by_event(HELLO + STOP))
    ]
    way, _said = all_same(b"".join(events) + DONE, usage=True)
    assert way.codec.usage == Usage(input_tokens=9, output_tokens=3)


@pytest.mark.parametrize(
    "odd",
    [{}, [], "x", 7, True, {"prompt_tokens": -1}, {"prompt_tokens": "9"}, {"prompt_tokens": True},
     {"prompt_tokens": 1.5},
     {"prompt_tokens": 10**400}, {"prompt_tokens": None, "completion_tokens": None}],
)  # fmt: skip
def test_usage_that_says_nothing_is_no_report(odd: Any) -> None:
    way, said = all_same(HELLO + STOP + usage_tail(usage=odd) + DONE, usage=True)
    assert way.codec.usage is None
    assert said.usage is not None
    assert said.usage["total_tokens"] == 8  # what the shell counted


def test_half_a_report_is_filled_up() -> None:
    codec = ChatStream(IDENTITY, count_text=lambda text: None, keep_null_usage=True)
    codec.feed(HELLO + STOP + usage_tail(usage={"prompt_tokens": 9, "x": 1.50}) + DONE)
    assert codec.usage == Usage(input_tokens=9)
    raw = codec.farewell(Bill(Usage(input_tokens=9, output_tokens=4)))
    assert b'{"prompt_tokens":9,"x":1.5,"completion_tokens":4,"total_tokens":13}' in raw


def test_the_providers_own_cost_is_replaced_C7() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "total_tokens": 11,
        "cost": 0.5,
        "cost_details": {"x": 1},
    }
    _, said = all_same(HELLO + STOP + usage_tail(usage=usage) + DONE, usage=True)
    assert said.usage is not None
    assert (said.usage["cost_nano_usd"], said.usage["cost_details"]) == (2000, {"x": 1})
    codec = ChatStream(IDENTITY, count_text=lambda text: None)
    codec.feed(HELLO + STOP + usage_tail() + DONE)
    raw = codec.farewell(
        Bill(Usage(input_tokens=9, output_tokens=2), beside_usage=b'"openrelay":{"cost_nano_usd":5}')
    )
    assert b',"openrelay":{"cost_nano_usd":5}}' in raw


def test_other_members_of_the_usage_event_stay() -> None:
    _way, said = all_same(HELLO + STOP + usage_tail(service_tier="flex", x=[1]) + DONE, usage=True)
    assert said.events[-1]["service_tier"] == "flex"
    assert said.events[-1]["x"] == [1]


# ---- an answer that came whole --------------------------------------------------------------------------------------


def whole(message: dict[str, Any], finish: str = "stop", **top: Any) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "logprobs": None,
        "finish_reason": finish,
    }
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 100,
        "model": "up",
        "choices": [choice],
        **top,
    }
    return json.dumps(body, indent=1).encode()


def feed_whole(body: bytes, choices: int = 1) -> tuple[ChatStream, bytes]:
    codec = ChatStream(IDENTITY, count_text=lambda text: None, choices=choices)
    codec.feed_whole(body)
    out = b"".join(codec.out)
    return codec, out + (codec.farewell(None) if codec.ended else b"")


def test_json_instead_of_a_stream_is_one_event() -> None:
    body = whole({"content": "Hi", "tool_calls": [{"id": "k", "type": "function",
                 "function": {"name": "f", "arguments": "{}"}}]}, usage={"prompt_tokens": 1, "completion_tokens": 2},
                 x=1.50)  # fmt: skip
    codec, raw = feed_whole(b"\xef\xbb\xbf \n" + body.replace(b"1.5", b"1.50"))
    said = Passed(raw, codec, True, "", None).parsed(usage=False)
    assert (said.text, said.tool_calls, said.finish) == ("Hi", [call("k", "f", "{}")], "tool_calls")
    assert codec.usage == Usage(input_tokens=1, output_tokens=2)
    assert b"1.50" in raw


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{}", b"null", b'{"choices":1}', b'{"choices":[1]}', b"<html>", b'{"choices":[{"message":"x"}]}',
     b'{"choices":[]}',
     b'{"choices":[{"message":{"content":' + b"[" * 3000 + b"]" * 3000 + b"}}]}", b'{"choices":[{"message":null}]}'],
)  # fmt: skip
def test_json_that_is_no_completion(body: bytes) -> None:
    codec = ChatStream(IDENTITY, count_text=lambda text: None)
    with pytest.raises(DecodeError):
        codec.feed_whole(body)


def test_json_error_instead_of_a_stream_B043() -> None:
    codec, raw = feed_whole(b'{"error":{"message":"bad","code":429}}')
    assert (codec.error and codec.error.status, raw) == (429, b"")


# ---- what passes untouched ------------------------------------------------------------------------------------------

NUMBERS = ["0", "-0", "1.0", "1e2", "1E+2", "12345678901234567890123", "0.1000", "-1.5e-3"]
TEXTS = [
    "x",
    "\\u00e9",
    "é",
    "\\n",
    '\\"content\\":\\"',
    "\\\\",
    "\\/",
    "\u2028",
    '{\\"id\\":\\"',
    "😀",
    "\\ud83d\\ude00",
]
number = st.sampled_from(NUMBERS)
space = st.sampled_from(["", "", "", " ", "\t", "  "])
text = st.lists(st.sampled_from(TEXTS), max_size=3).map("".join)


@st.composite
def extras(draw: st.DrawFn, name: str) -> str:
    """Unknown members, in odd spellings, each with a comma behind."""
    out = ""
    for at in range(draw(st.integers(0, 2))):
        value = draw(
            st.one_of(number, text.map(lambda inner: f'"{inner}"'), st.sampled_from(
                ["null", "[ 1, 2 ]", '{"id":"x","model":"y","content":"z"}', '{"a":{"choices":[{"delta":null}]}}', "[]"]
            ))
        )  # fmt: skip
        out += f'"{name}_{at}"{draw(space)}:{draw(space)}{value}{draw(space)},{draw(space)}'
    return out


@st.composite
def well_formed(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A provider's stream with unknown members everywhere, and what the client must get, byte for byte."""
    head = [draw(extras("x1")), draw(space), draw(space), draw(extras("x2"))]
    tail = [draw(extras("x3")), draw(extras("x4"))]
    given: list[str] = []
    due: list[str] = []

    def event(delta: str, finish: str = "null", vary: bool = False) -> None:
        before = [draw(extras("x5")), draw(space), draw(space), draw(extras("x6"))] if vary else head
        after = [draw(extras("x7")), draw(extras("x8"))] if vary else tail

        def write(model: str) -> str:
            return (
                f'data: {{{before[0]}"id":{before[1]}"c1","object":"chat.completion.chunk","created":100,'
                f'"model"{before[2]}:"{model}",{before[3]}"choices":[{{{after[0]}"index":0,"delta":{{{delta}}}'
                f',"finish_reason":{finish}}}],{after[1]}"z":1}}\n\n'
            )

        given.append(write("up"))
        due.append(write(MODEL))

    event('"role":"assistant","content":""')
    for _ in range(draw(st.integers(1, 8))):
        key = draw(st.sampled_from(["content", "content", "content", "reasoning_content", "refusal"]))
        inner = draw(extras("x9")) if draw(st.booleans()) else ""
        event(f'{inner}"{key}":{draw(space)}"a{draw(text)}"', vary=draw(st.integers(0, 3)) == 0)
    if draw(st.booleans()):
        event(
            f'"tool_calls":[{{{draw(extras("x10"))}"index":0,"id":"k","type":"function",'
            f'"function":{{{draw(extras("x11"))}"name":"f","arguments":"{{"}}}}]'
        )
        for _ in range(draw(st.integers(0, 3))):
            event(
                f'"tool_calls":[{{"index":0,{draw(extras("x12"))}"function":{{{draw(extras("x13"))}"arguments":" "}}}}]'
            )
        event('"tool_calls":[{"index":0,"function":{"arguments":"}"}}]')
        event("", '"tool_calls"')
    else:
        event("", '"stop"')
    done = "data: [DONE]\n\n"
    return "".join([*given, done]).encode(), "".join([*due, done]).encode()


@given(well_formed(), st.integers(0, 1000))
def test_well_formed_events_pass_byte_for_byte(stream: tuple[bytes, bytes], seed: int) -> None:
    given_bytes, due = stream
    events = by_event(given_bytes)
    ways: list[Iterable[bytes]] = [
        [given_bytes], events, one_byte(given_bytes), random_cuts(given_bytes, seed),
        [b": slow\n" + event for event in events],  # a comment keeps an event off the usual path
        [b": slow\n\n".join(events)],
    ]  # fmt: skip
    for way in ways:
        passed = run(way)
        assert passed.raw == due
        passed.parsed()
        assert not passed.codec.repaired


def test_without_repair_nothing_else_changes() -> None:
    data = HELLO + ch({"role": "assistant", "reasoning": "x", "content": None}) + STOP
    assert run([data + DONE], repair=False).raw == data.replace(b'"up"', b'"public/m-1"') + DONE


# ---- anything at all ------------------------------------------------------------------------------------------------

json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 2), st.just(10**30), st.just(0.5),
        st.sampled_from(["", "a", "stop", "é\\"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["index", "id", "function", "name", "arguments", "role", "content", "x", "error", "delta"]),
            inner, max_size=3,
        ),
    ),
    max_leaves=5,
)  # fmt: skip


def often(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly the given, sometimes anything."""
    return st.integers(0, 11).flatmap(lambda roll: strategy if roll else json_values)


def record(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={key: often(value) for key, value in members.items()})


words = st.sampled_from(["a", "b ", "\n", '"', "\\", "é", "😀", "", "{", "}", '{"a":1}', "\ud83d", "\ude00"])
fragments = record(
    index=st.integers(0, 2), id=st.sampled_from(["k", "l", ""]), type=st.just("function"),
    function=record(name=st.sampled_from(["f", "g"]), arguments=words), x=json_values,
)  # fmt: skip
deltas = record(
    role=st.just("assistant"), content=words, reasoning=words, reasoning_content=words, refusal=words,
    tool_calls=st.lists(fragments, max_size=2), x=json_values,
)  # fmt: skip
chunks = record(
    id=st.sampled_from(["c1", "c2"]), object=st.just("chat.completion.chunk"), created=st.integers(1, 3),
    model=st.sampled_from(["up", MODEL]),
    choices=st.lists(
        record(
            index=st.integers(0, 1), delta=deltas, finish_reason=st.sampled_from([None, None, "stop", "length", ""])
        ),
        max_size=2,
    ),
    usage=st.sampled_from([None, {"prompt_tokens": 1, "completion_tokens": 2}]), x=json_values,
)  # fmt: skip
anything = st.one_of(
    chunks.map(lambda chunk: sse(chunk)),
    chunks.map(
        lambda chunk: b"data: " + json.dumps(chunk, ensure_ascii=False).encode(errors="replace") + b"\n\n"
    ),
    st.sampled_from([DONE, ROLE, HELLO, STOP, b": c\n\n", b"\r\n", usage_tail()]),
)


@given(st.lists(anything, max_size=8), st.integers(0, 1000), st.integers(1, 2), st.booleans(), st.booleans())
def test_any_stream_is_the_same_at_any_cut_and_never_looks_complete_when_it_is_not(
    events: list[bytes], seed: int, choices: int, repair: bool, hidden: bool
) -> None:
    data = b"".join(events)
    options: dict[str, Any] = {
        "choices": choices,
        "repair": repair,
        "identity": HIDDEN if hidden else IDENTITY,
    }
    ways = [run(way, **options) for way in ([data], events, one_byte(data), random_cuts(data, seed))]
    for way in ways:
        assert (way.complete, way.failure, way.counted) == (
            ways[0].complete,
            ways[0].failure,
            ways[0].counted,
        )
        assert way.raw.endswith(DONE) == way.complete
        assert way.raw.count(DONE) == way.complete
        for event in by_event(way.raw):
            payload = event.removeprefix(b"data: ")
            assert payload != event
            assert payload == b"[DONE]\n\n" or isinstance(json.loads(payload), dict)
            event.decode()


@given(
    st.lists(
        st.one_of(st.binary(max_size=30).map(lambda data: b"data: " + data + b"\n\n"), anything), max_size=6
    )
)
def test_any_bytes_give_a_stream_or_a_decode_error(events: list[bytes]) -> None:
    run([b"".join(events)])
    run(events, choices=3, repair=False, usage=True)


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 40))
def test_a_usual_event_with_any_bytes_put_in_gives_json(garbage: bytes, at: int, cut: int) -> None:
    """The usual path must refuse all that the decoder would."""
    event = ch({"content": "usual"})
    at %= len(event)
    spoilt = event[:at] + garbage + event[at + cut :]
    ways = [
        run([ROLE, event, spoilt]),
        run([ROLE, event + spoilt]),
        run([ROLE, b": c\n", event, b": c\n", spoilt]),
    ]
    for way in ways:
        assert (way.counted, way.failure) == (ways[2].counted, ways[2].failure)
        for sent in by_event(way.raw):
            if sent != DONE:
                json.loads(sent.removeprefix(b"data: "))
    assert ways[0].parsed(end=None).text == ways[2].parsed(end=None).text


@pytest.mark.parametrize(
    "text", ['"', "\\", '\\"', '","', 'a","b', '\\\\"', "\n", "\x00", "\t", "\x7f", "\\x", "\\ud83d", "\\u12"]
)
def test_texts_that_break_out_of_their_string_are_no_usual_events(text: str) -> None:
    spoilt = ch({"content": "@"}).replace(b"@", text.encode())
    for burst in (spoilt, ch({"content": "a"}) + spoilt, spoilt + ch({"content": ',"y'}), spoilt * 2):
        way = run([ROLE, ch({"content": "a"}), burst, STOP, DONE])
        other = run(
            [ROLE, ch({"content": "a"}), *by_event(burst.replace(b"data: ", b": c\ndata: ")), STOP, DONE]
        )
        assert (way.counted, way.complete) == (other.counted, other.complete)
        way.parsed(end=None)


@pytest.mark.parametrize("pad", ["obfuscation", "nothing"])
@pytest.mark.parametrize("usage", [True, False])
def test_padded_events_are_usual_too(pad: str, usage: bool) -> None:
    def event(text: str, padding: str) -> bytes:
        return ch({"content": text}, usage=None, **{pad: padding})

    events = [
        ROLE,
        *(event(text, padding) for text, padding in [("a", "x1"), ("b", ""), ("cc", "xyzXYZ9"), ('"', "q")]),
    ]
    events += [event("d", 'x"y'), event('"', "\\"), event("e", "é"), STOP, usage_tail(), DONE]
    way = run(events, usage=usage)
    assert way.parsed(usage=usage).text == 'abcc"d"e'
    slow = run([b": c\n" + event for event in events], usage=usage)
    assert way.raw == slow.raw


def test_cutting_after_each_event_never_looks_complete() -> None:
    data = HELLO + STOP + usage_tail() + DONE
    for at in range(len(data)):
        way = run([data[:at]])
        way.parsed()
        assert way.complete == (at >= len(HELLO + STOP) - 2), data[:at]


def test_failure_is_a_nested_error_event_E2() -> None:
    codec = ChatStream(IDENTITY, count_text=lambda text: None)
    assert codec.failure(StreamCut("cut")) == (
        b'data: {"error":{"message":"cut","type":"server_error","param":null,"code":"upstream_error"}}\n\n'
    )


# ---- plain answers --------------------------------------------------------------------------------------------------


def plain(body: bytes, identity: Any = IDENTITY, **bill: Any) -> Any:
    return json.loads(
        ChatAnswer(identity, body).encode(Bill(Usage(input_tokens=1, output_tokens=2), in_usage=COST, **bill))
    )


def test_a_plain_answer_passes_byte_for_byte_C3() -> None:
    body = (
        b' {"x" : 1.50, "id":"c1","object":"chat.completion","created":100,"model": "up" ,"choices":[ {"index":0,'
        b'"message":{"role":"assistant","content":"\\u00e9","y":1e2},"finish_reason":"stop"} ],"usage":'
        b'{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"w":[ ]},"z":-0 } \n'
    )
    answer = ChatAnswer(IDENTITY, body)
    assert answer.usage == Usage(input_tokens=9, output_tokens=2)
    assert answer.encode(Bill(answer.usage, in_usage=COST)) == body.strip().replace(
        b'"up"', b'"public/m-1"'
    ).replace(b'"w":[ ]', b'"w":[ ],' + COST)
    assert not answer.repaired


@pytest.mark.parametrize("model", [b"1.00", b"1", b"null", b"true", rb'"a\/b"', rb'"m\u00e9"', b'"1.00"'])
@pytest.mark.parametrize("space", [b"", b" "])
def test_a_plain_answer_names_our_model_whatever_it_names(model: bytes, space: bytes) -> None:
    body = whole({"content": "Hi"}).replace(b'"model":', b'"was":')
    told = plain(body[:-1] + b',"model":' + space + model + b"}")
    assert told["model"] == "public/m-1"


def test_a_plain_answer_is_put_right() -> None:
    message = {
        "content": None, "reasoning": "r",
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}, {"id": "k", "function": {"name": "g"}},
                       {"id": "k", "type": "function", "function": {"name": "h", "arguments": "{}"}}],
    }  # fmt: skip
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "model": "up", "error": None}
    answer = ChatAnswer(IDENTITY, json.dumps(body).encode())
    assert answer.texts() == ["r", "f", '{"x":1}', "g", "h", "{}"]
    assert (answer.finish_reason, answer.repaired) == ("tool_calls", True)
    told = plain(json.dumps(body).encode())
    assert (told["id"], told["object"], told["created"]) == (
        IDENTITY.fallback_id,
        "chat.completion",
        IDENTITY.created,
    )
    assert "error" not in told
    choice = told["choices"][0]
    assert (choice["finish_reason"], choice["index"]) == ("tool_calls", 0)
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["reasoning_content"] == "r"
    made = choice["message"]["tool_calls"]
    assert [(one["type"], one["function"]["arguments"]) for one in made] == [
        ("function", '{"x":1}'), ("function", "{}"), ("function", "{}")
    ]  # fmt: skip
    assert len({one["id"] for one in made}) == 3
    assert told["usage"]["prompt_tokens"] == 1
    assert told["usage"]["cost_nano_usd"] == 2000


def test_a_plain_answer_hides_its_provider() -> None:
    told = plain(
        whole({"content": "Hi"}, system_fingerprint="fp_1"), HIDDEN, beside_usage=b'"openrelay":{"a":1}'
    )
    assert told["id"] == HIDDEN.fallback_id
    assert "system_fingerprint" not in told
    assert told["openrelay"] == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"[]", b"null", b"{}", b'{"choices":1}', b'{"choices":[1]}', b'{"choices":[{"message":[]}]}', b"<html>",
     b'{"choices":' + b"[" * 9000 + b"]" * 9000 + b"}", b'{"choices":[{"message":{"tool_calls":{}}}]}', b"{" * 9000],
)  # fmt: skip
def test_a_body_that_is_no_answer_B054_B075(body: bytes) -> None:
    with pytest.raises(DecodeError):
        ChatAnswer(IDENTITY, body)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b'{"error":{"message":"m","code":429}}', 429), (b'{"error":"m"}', 500),
     (b'{"object":"error","message":"m","code":400}', 400),
     (b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}', 529)],
)  # fmt: skip
def test_an_error_inside_a_200_B011(body: bytes, status: int) -> None:
    error = ChatAnswer(IDENTITY, b"\n\n" + body).error
    assert error is not None
    assert (error.status, error.message) == (status, "m")


def test_broken_characters_of_a_plain_answer_B109_B053() -> None:
    body = whole({"content": "@"}).replace(b"@", b"a\\ud83d\xff")
    assert plain(b"\xef\xbb\xbf" + body)["choices"][0]["message"]["content"] == "a\ufffd\ufffd"


@given(record(
    id=st.just("c1"), created=st.integers(0, 5), error=st.none(), usage=st.just({"prompt_tokens": 1}),
    choices=st.lists(record(index=st.just(0), message=record(
        role=st.just("assistant"), content=words, reasoning=words, tool_calls=st.lists(fragments, max_size=3)
    ), finish_reason=st.just("stop")), max_size=2),
))  # fmt: skip
def test_any_object_is_an_answer_or_a_decode_error(body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    try:
        answer = ChatAnswer(IDENTITY, data)
    except DecodeError:
        return
    if answer.error is None:
        answer.texts()
        json.loads(answer.encode(Bill(Usage(), in_usage=COST)))
        json.loads(answer.as_chunk())
