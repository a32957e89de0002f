"""A chat request read by its edges: every bad body gets a clear refusal, and edits keep all other bytes."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import BadRequest
from sluicegate.wire.openai_chat_request import READ_KEYS, ChatRequest

USER = '"messages":[{"role":"user","content":"Hi"}]'
GOOD = '{"model":"m",' + USER + "}"


def request(**changes: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **changes}
    return ChatRequest(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ("", None, "not valid"),
        ("hello", None, "not valid.*byte 0"),
        ("[1]", None, "must be a JSON object"),
        ('"text"', None, "must be a JSON object"),
        ("null", None, "must be a JSON object"),
        (GOOD + "x", None, "not valid"),
        (GOOD[:-1], None, "not valid"),
        ('{"model":"m","model":"n",' + USER + "}", "model", "Duplicate key 'model' .at byte 13"),
        ('{"model":"m",' + USER + ',"\\u006dodel":"n"}', "model", "Duplicate key 'model'"),
        ('{"stream":true,"stream":false,"model":"m",' + USER + "}", "stream", "Duplicate"),
        ('{"model":"m",' + USER + ',"x":' + "[" * 10_000 + "]" * 10_000 + "}", None, "nested too deeply"),
        ('{"model":"m","messages":' + "[" * 10_000 + "]" * 10_000 + "}", None, "nested too deeply"),
        ('{"model":' + '{"a":' * 10_000 + "1" + "}" * 10_000 + "}", None, "nested too deeply"),
        ('{"model":"m",' + USER + ',"x":"\x00"}', None, "byte 62"),
        ('{"model":"m",' + USER + ',"x":"\n"}', None, "byte 62"),
        ('{"model":"m",' + USER + ',"x":"\\ud83d"}', None, "half a surrogate pair .at byte 62"),
        ('{"model":"m",' + USER + ',"x":{"\\udc00":1}}', None, "half a surrogate pair"),
        ('{"model":"m",' + USER + ',"x":NaN}', None, "not valid"),
        ("{" + USER + "}", "model", "Missing required parameter: 'model'"),
        ('{"model":null,' + USER + "}", "model", "Missing required"),
        ('{"model":"",' + USER + "}", "model", "must not be empty"),
        ('{"model":1e999,' + USER + "}", "model", "Invalid value"),
        ('{"model":"m","n":1e999,' + USER + "}", "n", "Invalid value"),
        ('{"model":"m","max_tokens":-1e999,' + USER + "}", "max_tokens", "Invalid value"),
        ('{"model":"m","stream":1e999,' + USER + "}", "stream", "Invalid value"),
        ('{"model":"m"}', "messages", "Missing required parameter: 'messages'"),
    ],
)
def test_bad_bodies(body: str, param: str | None, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as refused:
        ChatRequest(body.encode())
    assert refused.value.param == param
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "body",
    [b'{"model":"m","x":"\xff",' + USER.encode() + b"}", b'{"model":"m\xff",' + USER.encode() + b"}",
     b'{"m\xffdel":"m",' + USER.encode() + b"}", b"\xfe\xff" + GOOD.encode(), GOOD.encode("utf-16"),
     GOOD.replace("Hi", "\u00e9").encode("latin-1"), b'{"model":"m","x":"\xed\xa0\x80",' + USER.encode() + b"}"],
)  # fmt: skip
def test_bytes_that_are_not_utf8_are_told_with_their_offset(body: bytes) -> None:
    with pytest.raises(BadRequest, match=r"not UTF-8 \(at byte \d+\)|not valid") as refused:
        ChatRequest(body)
    assert str(refused.value).count(f"byte {next(at for at, byte in enumerate(body) if byte > 127)})") == 1


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"model": 1}, "model"), ({"model": ["m"]}, "model"), ({"model": {}}, "model"), ({"model": True}, "model"),
        ({"messages": None}, "messages"), ({"messages": "Hi"}, "messages"), ({"messages": {}}, "messages"),
        ({"messages": []}, "messages"), ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"role": "user"}, 5]}, "messages[1]"), ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": 7}]}, "messages[0].role"), ({"messages": [None]}, "messages[0]"),
        ({"stream": "true"}, "stream"), ({"stream": 1}, "stream"), ({"stream": []}, "stream"),
        ({"n": 0}, "n"), ({"n": 129}, "n"), ({"n": 1.5}, "n"), ({"n": "2"}, "n"), ({"n": True}, "n"), ({"n": -1}, "n"),
        ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": "9"}, "max_tokens"), ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_completion_tokens": -5}, "max_completion_tokens"),
        ({"max_completion_tokens": {}}, "max_completion_tokens"),
        ({"stream": True, "stream_options": "x"}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream_options": {}}, "stream_options"), ({"stream": False, "stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": "x"}}, "stream_options.continuous_usage_stats"),
    ],
)  # fmt: skip
def test_wrong_types_name_their_place(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        request(**changes)
    assert refused.value.param == param
    assert param.split("[")[0].split(".")[0] in refused.value.message


def test_a_duplicate_inside_stream_options() -> None:
    for key in ('"include_usage"', '"include\\u005fusage"'):
        body = (
            '{"model":"m","stream":true,"stream_options":{"include_usage":true,'
            + key
            + ":false},"
            + USER
            + "}"
        )
        with pytest.raises(BadRequest) as refused:
            ChatRequest(body.encode())
        assert refused.value.param == "stream_options.include_usage"


@pytest.mark.parametrize("key", sorted(READ_KEYS))
def test_a_duplicate_of_any_key_that_is_read(key: str) -> None:
    values = {"messages": '[{"role":"user","content":"Hi"}]', "model": '"m"', "stream": "true"}
    value = values.get(key, "null")
    body = (
        '{"model":"m","stream":true,' + USER + f',"{key}":{value},"\\u{ord(key[0]):04x}{key[1:]}":{value}}}'
    )
    with pytest.raises(BadRequest, match="Duplicate key") as refused:
        ChatRequest(body.encode())
    assert refused.value.param == key


def test_what_must_pass() -> None:
    body = (
        '{"x":"\\u0000","x":2,"y":"\\ud83d\\ude00 \\\\ud83d","z":1e999,"model":"m",'
        + USER
        + ',"n":null,"stream":null}'
    )
    read = ChatRequest(body.encode())
    assert (read.model, read.stream, read.choices, read.max_output_tokens) == ("m", False, 1, None)
    assert request(stream=True, stream_options=None).include_usage is False
    assert request(n=3, max_tokens=7).max_output_key == "max_tokens"
    both = request(max_tokens=7, max_completion_tokens=9)
    assert (both.max_output_key, both.max_output_tokens) == ("max_completion_tokens", 9)


@pytest.mark.parametrize(
    ("options", "usage", "continuous"),
    [({}, False, False), ({"include_usage": True}, True, False), ({"include_usage": False}, False, False),
     ({"include_usage": None}, False, False), ({"continuous_usage_stats": True}, True, True),
     ({"include_usage": False, "continuous_usage_stats": True}, True, True)],
)  # fmt: skip
def test_stream_options_C6_C8(options: dict[str, Any], usage: bool, continuous: bool) -> None:
    read = request(stream=True, stream_options=options)
    assert (read.include_usage, read.continuous_usage) == (usage, continuous)
    sent = json.loads(read.upstream_body("up", ask_usage=True))["stream_options"]
    assert sent == {
        **{key: value for key, value in options.items() if key == "include_usage"},
        "include_usage": True,
    }
    assert "stream_options" not in json.loads(read.upstream_body("up", ask_usage=False))


# ---- edits ----------------------------------------------------------------------------------------------------------

BYTE_TRUE = (
    ' {  "temperature" : 1.0e0 , "model":\t"m","enable_thinking":false, "chat_template_kwargs":{"x":1,"model":"m"},'
    '"messages":[{"role":"user","content":"\\u00e9 \\"model\\":\\"m\\" 😀"} ],"seed":12345678901234567890,"x":-0 } \n'
)


def test_only_the_model_changes_B057() -> None:
    body = BYTE_TRUE.encode()
    assert ChatRequest(body).upstream_body("org/up", ask_usage=False) == body.replace(b'\t"m"', b'\t"org/up"')


def test_usage_is_asked_for_at_the_end_B007() -> None:
    body = BYTE_TRUE.replace('"model":', '"stream":true,"model":').encode()
    expected = body.replace(b'\t"m"', b'\t"up"').replace(
        b"-0 }", b'-0,"stream_options":{"include_usage":true} }'
    )
    assert ChatRequest(body).upstream_body("up", ask_usage=True) == expected


def test_stream_options_keep_what_is_unknown() -> None:
    body = ('{"stream":true,"stream_options":{ "include_obfuscation" : false, "continuous_usage_stats":true,"z":1.0 },'
            '"model":"m",' + USER + "}").encode()  # fmt: skip
    sent = ChatRequest(body).upstream_body("m", ask_usage=True)
    assert b'"stream_options":{ "include_obfuscation" : false, "z":1.0,"include_usage":true }' in sent
    escaped = body.replace(b"continuous", b"\\u0063ontinuous")
    assert b"ontinuous" not in ChatRequest(escaped).upstream_body("m", ask_usage=True)


def test_fields_a_provider_refuses_are_dropped() -> None:
    body = '{"a":1,"b":2,"model":"m",' + USER + ',"b":3,"c":4}'
    sent = ChatRequest(body.encode()).upstream_body("m", ask_usage=False, drop=("a", "b", "c", "none"))
    assert sent == ('{"model":"m",' + USER + "}").encode()
    streamed = '{"model":"m","stream":true,"stream_options":{},' + USER + "}"
    dropped = ChatRequest(streamed.encode()).upstream_body("m", ask_usage=True, drop=("stream_options",))
    assert b"stream_options" not in dropped


def test_a_limit_is_put_in_the_place_the_client_uses() -> None:
    assert b'"max_completion_tokens":256' in request().upstream_body(
        "m", ask_usage=False, max_output_tokens=256
    )
    read = request(max_tokens=9999)
    sent = json.loads(read.upstream_body("m", ask_usage=False, max_output_tokens=256))
    assert (sent["max_tokens"], "max_completion_tokens" in sent) == (256, False)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=5,
)
names = st.one_of(st.text(max_size=5), st.sampled_from([*sorted(READ_KEYS), "x"]))


@given(st.dictionaries(names, values, max_size=6), st.booleans(), st.booleans(), st.sets(names, max_size=2))
def test_any_object_is_a_request_or_a_refusal(
    extra: dict[str, Any], ask: bool, valid: bool, drop: set[str]
) -> None:
    body = {**extra, "model": "m", "messages": [{"role": "user"}]} if valid else extra
    data = json.dumps(body, ensure_ascii=ask).encode()
    try:
        read = ChatRequest(data)
    except BadRequest:
        return
    dropped = drop - {"model", "messages"}
    sent = json.loads(read.upstream_body("up", ask_usage=ask and read.stream, drop=tuple(dropped)))
    expected = {key: value for key, value in {**body, "model": "up"}.items() if key not in dropped}
    sent.pop("stream_options", None)
    expected.pop("stream_options", None)
    assert sent == expected


@given(
    st.one_of(
        st.binary(max_size=40), st.binary(max_size=8).map(lambda data: GOOD.encode()[:-1] + data + b"}")
    )
)
def test_any_bytes_are_a_request_or_a_refusal(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        ChatRequest(data)


# ---- the estimate ---------------------------------------------------------------------------------------------------


def test_estimate_of_text() -> None:
    read = request()
    assert read.input_estimate == -(-len(read.body) // 3) + 16
    assert request(messages=[{"role": "user"}] * 5).input_estimate >= 5 * 16


def test_estimate_of_media() -> None:
    image = "data:image/png;base64," + "A" * 400_000
    part = {"type": "image_url", "image_url": {"url": image}}
    read = request(messages=[{"role": "user", "content": [part, part]}])
    assert 2 * 1600 < read.input_estimate < 2 * 1600 + 200
    sound = {"type": "input_audio", "input_audio": {"data": "A" * 400_000, "format": "wav"}}
    read = request(messages=[{"role": "user", "content": [sound]}])
    assert 300_000 // 40 <= read.input_estimate < 300_000 // 40 + 200
    link = {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}
    assert request(messages=[{"role": "user", "content": [link]}]).input_estimate > 1600
