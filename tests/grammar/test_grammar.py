"""The grammar checkers accept what is right in all five formats, and see each thing that is wrong."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from sluicegate.messages import Format
from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.faults import ANSWERS, CLOCK, WEATHER
from sluicegate.simulator.formats import DIALECTS, Ask, Fault
from tests.grammar.chat import check_chat_stream
from tests.grammar.completions import check_completions_stream
from tests.grammar.gemini import check_gemini_stream
from tests.grammar.messages import check_messages_stream
from tests.grammar.narrow_sse import ParsedStream
from tests.grammar.responses import check_responses_stream

CHECKERS: dict[Format, Callable[..., ParsedStream]] = {
    "chat": check_chat_stream,
    "completions": check_completions_stream,
    "responses": check_responses_stream,
    "messages": check_messages_stream,
    "gemini": check_gemini_stream,
}
RICH = Answer(
    reasoning=("Let", " me"),
    signature="U0lH",
    text=("Hel", "lo"),
    tool_calls=(WEATHER, CLOCK),
    finish="tool_calls",
)
"""Something of everything."""


def stream_of(format: Format, answer: Answer) -> bytes:
    """Return a stream in the narrow form."""
    pieces = DIALECTS[format].stream(answer, Ask("m"))
    return b"".join(piece.data for piece in pieces).replace(b"\r\n", b"\n").replace(ID.encode(), b"1")


@pytest.mark.parametrize("word", sorted(ANSWERS))
@pytest.mark.parametrize("format", sorted(CHECKERS))
def test_right_streams_are_accepted(format: Format, word: str) -> None:
    answer = ANSWERS[word][1]
    parsed = CHECKERS[format](stream_of(format, answer), model="m")
    assert parsed.text + parsed.refusal == "".join(answer.text + answer.refusal)
    assert parsed.usage is not None
    if format != "completions":
        assert parsed.reasoning == "".join(answer.reasoning)
        assert [call.name for call in parsed.tool_calls] == [call.name for call in answer.tool_calls]


@pytest.mark.parametrize("format", sorted(CHECKERS))
def test_errors_end_a_stream_and_nothing_else_does(format: Format) -> None:
    check, dialect = CHECKERS[format], DIALECTS[format]
    pieces = dialect.stream(Answer(text=("a", "b", "c")), Ask("m"))
    begun = [piece.data for piece in pieces if piece.kind in ("start", "content")][:5]
    begun = begun[: next(i for i, data in enumerate(begun) if b'"a"' in data) + 1]
    raw = b"".join(begun).replace(b"\r\n", b"\n").replace(ID.encode(), b"1")
    with pytest.raises(AssertionError):
        check(raw, end=None)
    error = dialect.error_event(Fault(503, "Overloaded.")).replace(b"\r\n", b"\n").replace(ID.encode(), b"1")
    if format == "responses":
        count = raw.count(b"event: ")
        for number in (1, 0):
            error = error.replace(
                b'"sequence_number":%d' % number, b'"sequence_number":%d' % (count + number)
            )
    parsed = check(raw + error, end="error")
    assert parsed.error is not None
    assert parsed.error["message"] == "Overloaded."
    with pytest.raises(AssertionError):
        check(raw + error, end="done")
    with pytest.raises(AssertionError):
        check(raw + error + begun[-1].replace(b"\r\n", b"\n"), end=None)


WRONG: dict[Format, list[tuple[str, bytes, bytes]]] = {
    "chat": [
        ("no role", b'"role":"assistant",', b""),
        ("empty role", b'"role":"assistant"', b'"role":""'),
        ("another object", b"chat.completion.chunk", b"chat.completion"),
        ("error key", b'"system_fingerprint"', b'"error":null,"x"'),
        ("id repeated", b'{"index":0,"function":{', b'{"index":0,"id":"call_1_0","function":{'),
        ("name repeated", b'"function":{"arguments":"}"', b'"function":{"name":"f","arguments":"}"'),
        ("tool index gap", b'{"index":1,', b'{"index":2,'),
        ("no type", b'"type":"function",', b""),
        ("wrong finish after calls", b'"finish_reason":"tool_calls"', b'"finish_reason":"stop"'),
        ("no finish", b'"finish_reason":"tool_calls"', b'"finish_reason":null'),
        ("wrong total", b'"total_tokens":', b'"total_tokens":1'),
        ("no marker", b"data: [DONE]\n\n", b""),
        ("marker twice", b"data: [DONE]\n\n", b"data: [DONE]\n\ndata: [DONE]\n\n"),
        ("empty id", b'"id":"chatcmpl-1"', b'"id":""'),
        ("created is a float", b'"created":1700000000', b'"created":1700000000.5'),
        ("delta null", b'"delta":{}', b'"delta":null'),
        ("usage beside choices", b'"choices":[],"usage"', b'"choices":[{"index":0}],"usage"'),
    ],
    "completions": [
        ("no finish", b'"finish_reason":"stop"', b'"finish_reason":null'),
        ("no marker", b"data: [DONE]\n\n", b""),
        ("another object", b"text_completion", b"completion"),
        ("text null", b'"text":"lo"', b'"text":null'),
    ],
    "responses": [
        ("number skipped", b'"sequence_number":3', b'"sequence_number":4'),
        (
            "output missing in the end",
            b'"arguments":"{\\"zone\\": \\"CET\\"}"}],"parallel',
            b'"arguments":"{}"}],"parallel',
        ),
        ("no terminal event", b"response.completed", b"response.in_progress"),
        ("another item id", b'"item_id":"msg_1"', b'"item_id":"msg_2"'),
        (
            "added with null content",
            b'"status":"in_progress","content":[]',
            b'"status":"in_progress","content":null',
        ),
        ("name differs from type", b"event: response.output_text.delta\n", b"event: response.text.delta\n"),
        ("usage null", b'"total_tokens":', b'"sum":'),
        ("unnamed", b"event: response.created\n", b""),
    ],
    "messages": [
        ("unnamed", b"event: message_start\n", b""),
        ("no stop", b'event: message_stop\ndata: {"type":"message_stop"}\n\n', b""),
        ("content null", b'"content":[]', b'"content":null'),
        ("index gap", b'"index":3', b'"index":4'),
        (
            "text at start",
            b'"content_block":{"type":"text","text":""}',
            b'"content_block":{"type":"text","text":"x"}',
        ),
        ("broken arguments", b'"partial_json":"}"', b'"partial_json":""'),
        ("stop reason null", b'"stop_reason":"tool_use"', b'"stop_reason":null'),
        ("no output count", b'"output_tokens":11', b'"output":11'),
        ("cost at start", b'"usage":{"input_tokens":9', b'"usage":{"cost":0,"input_tokens":9'),
        (
            "block left open",
            b'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\n',
            b"",
        ),
    ],
    "gemini": [
        ("no finish", b'"finishReason":"STOP",', b""),
        ("no role", b',"role":"model"}', b"}"),
        ("no parts", b'"parts":[{"text":"lo"}]', b'"parts":[]'),
        ("no usage at the end", b'"usageMetadata"', b'"usage_metadata"'),
        ("signature is no base64", b'"thoughtSignature":"U0lH"', b'"thoughtSignature":"!"'),
        ("args as string", b'"args":{"zone": "CET"}', b'"args":"{}"'),
        ("marker", b'"responseId":"resp1"}\n\n', b'"responseId":"resp1"}\n\ndata: [DONE]\n\n'),
    ],
}
WRONG_ANYWHERE = [
    ("CRLF", b"\n", b"\r\n"),
    ("no space", b"data: ", b"data:"),
    ("two spaces", b"data: ", b"data:  "),
    ("comment", b"data: ", b": x\ndata: "),
    ("id line", b"data: ", b"id: 1\ndata: "),
    ("blank lines", b"\n\n", b"\n\n\n"),
    ("not UTF-8", b"Hel", b"H\xff"),
    ("lone surrogate", b"Hel", b"\\ud800"),
    ("not JSON", b"Hel", b'"'),
]


@pytest.mark.parametrize(
    ("format", "before", "after"),
    [
        pytest.param(format, before, after, id=f"{format}-{name}".replace(" ", "-"))
        for format in CHECKERS
        for name, before, after in WRONG[format] + WRONG_ANYWHERE
    ],
)
def test_wrong_streams_are_refused(format: Format, before: bytes, after: bytes) -> None:
    answer = Answer(text=("Hel", "lo")) if format == "completions" else RICH
    right = stream_of(format, answer)
    CHECKERS[format](right)
    assert before in right
    with pytest.raises((AssertionError, ValueError, KeyError)):
        CHECKERS[format](right.replace(before, after))


def test_expectations() -> None:
    right = stream_of("chat", Answer(text=("a",)))
    check_chat_stream(right, usage=True)
    for expectation in ({"usage": False}, {"model": "n"}, {"end": "error"}, {"cost_nano_usd": 5}):
        with pytest.raises(AssertionError):
            check_chat_stream(right, **cast(dict[str, Any], expectation))
    with_cost = right.replace(
        b'"total_tokens":10', b'"total_tokens":10,"cost":0.000011,"cost_nano_usd":11000'
    )
    check_chat_stream(with_cost, cost_nano_usd=11_000)
    with pytest.raises(AssertionError):
        check_chat_stream(with_cost.replace(b"0.000011", b"0.000012"), cost_nano_usd=11_000)


def test_keepalives_only_where_allowed() -> None:
    chat = stream_of("chat", Answer(text=("a",))).replace(b"data: [", b": keep-alive\n\ndata: [")
    assert check_chat_stream(chat, keepalive=True).keepalives == 1
    gemini = stream_of("gemini", Answer(text=("a",))).replace(b"data: ", b"\ndata: ")
    assert check_gemini_stream(gemini, keepalive=True).keepalives == 2
    for check, raw in ((check_chat_stream, chat), (check_gemini_stream, gemini)):
        with pytest.raises(AssertionError):
            cast(Callable[[bytes], ParsedStream], check)(raw)


def test_gemini_array() -> None:
    pieces = DIALECTS["gemini"].stream(RICH, Ask("m", array=True))
    raw = b"".join(piece.data for piece in pieces)
    assert check_gemini_stream(raw, array=True).text == "Hello"
    broken = raw[: raw.rindex(b",\r\n")] + b',{"error":{"code":502,"message":"Cut.","status":"INTERNAL"}}'
    assert check_gemini_stream(broken, array=True, end="error").error is not None
    with pytest.raises(AssertionError):
        check_gemini_stream(broken + b"]", array=True, end="error")
