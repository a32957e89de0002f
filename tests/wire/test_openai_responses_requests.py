"""Requests of and for Responses: read by their edges, decoded with paths in every error, encoded as the matrix says."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, UnsupportedFeature
from sluicegate.messages import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
    Opaque,
    Reasoning,
    ReasoningControl,
    Refusal,
    Request,
    ResponseFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from sluicegate.wire.envelope import seal
from sluicegate.wire.openai_responses import CODEC
from sluicegate.wire.openai_responses_counting import (
    decode_count_answer,
    decode_count_request,
    encode_count_answer,
    encode_count_request,
    read_count_request,
)
from sluicegate.wire.openai_responses_request import ResponsesRequest
from sluicegate.wire.translation import Notes, Policy
from tests.profiles import examples
from tests.wire.openai_responses_world import HI

PNG = "iVBORw0KGgo="
PDF = "JVBERi0="
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1.0}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "r"}
OPEN = {"type": "object", "properties": {"a": {"type": "number"}}}
CLOSED = {**OPEN, "required": ["a"], "additionalProperties": False}


def body(*items: Any, **fields: Any) -> dict[str, Any]:
    """Return a request's body."""
    return {"model": "m", "input": list(items) or [HI], **fields}


def read(value: dict[str, Any], policy: Policy = "default") -> tuple[Request, list[str]]:
    """Decode a client's request; return it and what is named as left out."""
    notes = Notes(policy)
    return CODEC.decode_request(json.dumps(value, ensure_ascii=False).encode(), notes), notes.dropped


def edges(value: Any) -> ResponsesRequest:
    """Read a request's edges."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    request = CODEC.read_request(raw, None, False)
    assert isinstance(request, ResponsesRequest)
    return request


def request(*messages: Message, **fields: Any) -> Request:
    """Return a request in no format."""
    given = list(messages) or [Message(role="user", parts=[Text(text="hi")])]
    return Request(model="m", messages=given, **fields)


def write(
    given: Request, can: Capabilities | None = None, policy: Policy = "default"
) -> tuple[dict[str, Any], list[str]]:
    """Encode a provider's request; return it and what is named as left out."""
    notes = Notes(policy)
    return json.loads(CODEC.encode_request(given, "up", can or Capabilities(), notes)), notes.dropped


def user(*parts: Any) -> Message:
    """Return a user's message."""
    return Message(role="user", parts=list(parts))


def said(*parts: Any) -> Message:
    """Return an assistant's message."""
    return Message(role="assistant", parts=list(parts))


# ---- edges ----------------------------------------------------------------------------------------------------------


def test_edges_tell_what_admission_needs() -> None:
    read_ = edges(body(HI, stream=True, max_output_tokens=50, previous_response_id="resp_9", background=True))
    assert (read_.model, read_.stream, read_.choices) == ("m", True, 1)
    assert (read_.max_output_tokens, read_.max_output_key) == (50, "max_output_tokens")
    assert (read_.previous_response_id, read_.background, read_.store) == ("resp_9", True, True)
    assert read_.include_usage
    assert read_.names_other_models is None
    assert read_.input_estimate > 16
    other = edges(body(HI, store=False, conversation={"id": "conv_1"}))
    assert (other.store, other.conversation_id, other.previous_response_id) == (False, "conv_1", None)
    assert edges({"model": "m", "prompt": {"id": "p"}}).names_other_models == "prompt"
    assert edges({"model": "m", "input": "hi", "prompt": None}).names_other_models is None
    assert (
        edges(body(HI)).messages_hash == edges(body(HI, {"role": "assistant", "content": "x"})).messages_hash
    )
    assert edges(body(HI)).messages_hash != edges(body(HI, instructions="x")).messages_hash


def test_media_cost_what_they_cost_and_not_their_bytes() -> None:
    url = {"type": "input_image", "image_url": "https://a.b/c.png"}
    inline = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 60_000}
    plain = edges(body({"role": "user", "content": []})).input_estimate
    for part in (url, inline):
        estimate = edges(body({"role": "user", "content": [part]})).input_estimate
        assert 1600 < estimate - plain < 1750


def test_b057_a_body_passes_with_the_model_and_the_limit_edited_at_their_place() -> None:
    raw = (
        b'{ "input":"hi","model" : "m", "x_new":{"a":1e2}, "max_output_tokens":9 ,"store":true,"stream":true}'
    )
    read_ = edges(raw)
    assert read_.upstream_body("up", ask_usage=False) == raw.replace(b'"m"', b'"up"')
    limited = read_.upstream_body("up", ask_usage=True, max_output_tokens=7)
    assert limited == raw.replace(b'"m"', b'"up"').replace(b":9", b":7")
    assert b"store" not in read_.upstream_body("up", ask_usage=True, drop=("store",))


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (b"", None),
        (b"[]", None),
        (b'{"model":"m","input":"\xff"}', None),
        (b'{"model":"m","input":"\\ud800"}', None),
        (b'{"model":"m","input":"a","input":"b"}', "input"),
        (b'{"model":"m","input":"a","\\u006dodel":"n"}', "model"),
        (b'{"model":"m","input":"a","store":true,"store":false}', "store"),
        ({"input": "a"}, "model"),
        ({"model": 5, "input": "a"}, "model"),
        ({"model": "", "input": "a"}, "model"),
        ({"model": "m"}, "input"),
        ({"model": "m", "input": None}, "input"),
        ({"model": "m", "input": []}, "input"),
        ({"model": "m", "input": {}}, "input"),
        ({"model": "m", "input": 5}, "input"),
        ({"model": "m", "input": [HI, "x"]}, "input[1]"),
        ({"model": "m", "input": "a", "stream": 1}, "stream"),
        ({"model": "m", "input": "a", "background": "yes"}, "background"),
        ({"model": "m", "input": "a", "max_output_tokens": 0}, "max_output_tokens"),
        ({"model": "m", "input": "a", "max_output_tokens": 1.5}, "max_output_tokens"),
        ({"model": "m", "input": "a", "previous_response_id": 5}, "previous_response_id"),
        (
            {"model": "m", "input": "a", "previous_response_id": "r", "conversation": "c"},
            "conversation",
        ),
        (b'{"model":"m","input":' + b"[" * 20_000, None),
    ],
)
def test_edges_that_are_wrong_are_told_by_their_field(value: Any, param: str | None) -> None:
    with pytest.raises(BadRequest) as refused:
        edges(value)
    assert refused.value.param == param


# ---- decoding -------------------------------------------------------------------------------------------------------


def test_every_kind_of_item_is_read() -> None:
    given, dropped = read(
        body(
            {"role": "developer", "content": "D"},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "hi", "prompt_cache_breakpoint": {"mode": "explicit"}},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"},
                    {"type": "input_image", "image_url": "https://a.b/c"},
                    {
                        "type": "input_file",
                        "file_data": f"data:application/pdf;base64,{PDF}",
                        "filename": "a.pdf",
                    },
                    {"type": "input_file", "file_url": "https://a.b/d"},
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
                "encrypted_content": "gAAA",
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "commentary",
                "content": [
                    {"type": "output_text", "text": "so", "annotations": []},
                    {"type": "refusal", "refusal": "no"},
                ],
            },
            CALL,
            {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "raw"},
            OUTPUT,
            {
                "type": "custom_tool_call_output",
                "call_id": "c2",
                "output": [
                    {"type": "input_text", "text": "x"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                ],
            },
            HI,
            instructions="Be brief.",
        )
    )
    assert dropped == ["input.phase;known to one vendor only"]
    assert given.messages == [
        Message(role="system", parts=[Text(text="Be brief.")], path="instructions"),
        Message(role="developer", parts=[Text(text="D")], path="input[0]"),
        Message(
            role="user",
            parts=[
                Text(text="hi", cache=CacheMark()),
                Image(data=PNG, media_type="image/png", detail="low"),
                Image(url="https://a.b/c"),
                File(data=PDF, media_type="application/pdf", filename="a.pdf"),
                File(url="https://a.b/d"),
                Audio(data="UklGRg==", format="wav"),
            ],
            path="input[1]",
        ),
        Message(
            role="assistant",
            parts=[
                Reasoning(
                    text="a\n\nb",
                    summary=True,
                    opaque=Opaque(vendor="openai", kind="encrypted", value="gAAA", id="rs_1"),
                ),
                Text(text="so"),
                Refusal(text="no"),
                ToolCall(id="c1", name="f", arguments='{"a":1.0}'),
                ToolCall(id="c2", name="p", arguments="raw", custom=True),
            ],
            path="input[2]",
        ),
        Message(
            role="user",
            parts=[
                ToolResult(call_id="c1", name="f", parts=[Text(text="r")]),
                ToolResult(
                    call_id="c2",
                    name="p",
                    custom=True,
                    parts=[Text(text="x"), Image(data=PNG, media_type="image/png")],
                ),
            ],
            path="input[2]",
        ),
        Message(role="user", parts=[Text(text="hi")], path="input[8]"),
    ]


def test_every_field_is_read() -> None:
    given, dropped = read(
        body(
            HI,
            stream=True,
            max_output_tokens=50,
            temperature=0.5,
            top_p=0.9,
            top_logprobs=3,
            include=["message.output_text.logprobs", "reasoning.encrypted_content"],
            reasoning={"effort": "high", "summary": "detailed"},
            text={
                "format": {"type": "json_schema", "name": "r", "schema": OPEN, "strict": True},
                "verbosity": "low",
            },
            tools=[
                {"type": "function", "name": "f", "parameters": OPEN, "strict": True, "description": "d"},
                {
                    "type": "custom",
                    "name": "p",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
                },
                {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]},
                {
                    "type": "web_search",
                    "filters": {"allowed_domains": ["a.b"]},
                    "search_context_size": "low",
                },
            ],
            tool_choice={
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "f"}],
            },
            parallel_tool_calls=False,
            metadata={"k": "v"},
            user="u",
            safety_identifier="s",
            prompt_cache_key="key",
            service_tier="flex",
            stream_options={"include_obfuscation": True},
        )
    )
    assert dropped == []
    assert given == Request(
        model="m",
        messages=[Message(role="user", parts=[Text(text="hi")], path="input[0]")],
        stream=True,
        max_output_tokens=50,
        temperature=0.5,
        top_p=0.9,
        logprobs=True,
        top_logprobs=3,
        reasoning=ReasoningControl(effort="high", summary="detailed", show=True),
        response_format=ResponseFormat(kind="json_schema", schema=OPEN, name="r", strict=True),
        verbosity="low",
        tools=[
            Tool(name="f", parameters=OPEN, strict=True, description="d"),
            Tool(name="p", custom=True, format={"type": "grammar", "syntax": "lark", "definition": "x"}),
            Tool(name="n__g", namespace="n"),
        ],
        web_search={"allowed_domains": ["a.b"], "search_context_size": "low"},
        tool_choice=ToolChoice(mode="required", names=["f"]),
        parallel_tool_calls=False,
        metadata={"k": "v"},
        user="s",
        prompt_cache_key="key",
        service_tier="flex",
    )


def test_null_is_absent() -> None:
    nothing = dict.fromkeys(
        (
            "instructions",
            "tools",
            "tool_choice",
            "reasoning",
            "text",
            "include",
            "previous_response_id",
            "conversation",
            "prompt",
            "background",
            "temperature",
            "metadata",
            "truncation",
            "context_management",
            "stream_options",
            "user",
        )
    )
    given, dropped = read({"model": "m", "input": "hi", **nothing})
    assert given == Request(model="m", messages=[Message(role="user", parts=[Text(text="hi")], path="input")])
    assert dropped == []


def test_b002_developer_and_system_items_keep_their_place() -> None:
    given, _ = read(
        body(
            {"role": "developer", "content": "D"},
            {"role": "system", "content": "S"},
            {"role": "user", "content": "U"},
        )
    )
    assert [message.role for message in given.messages] == ["developer", "system", "user"]


def test_outputs_stand_behind_the_turn_that_asked_for_them() -> None:
    late, _ = read(body(HI, CALL, {"role": "user", "content": "wait"}, OUTPUT))
    assert [message.role for message in late.messages] == ["user", "assistant", "user", "user"]
    assert isinstance(late.messages[2].parts[0], ToolResult)
    assert late.messages[3].parts == [Text(text="wait")]
    one_by_one, _ = read(body(HI, CALL, OUTPUT, CALL | {"call_id": "c2"}, OUTPUT | {"call_id": "c2"}))
    assert [message.role for message in one_by_one.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    twice, _ = read(
        body(HI, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}, HI)
    )
    assert [message.role for message in twice.messages] == ["user", "assistant", "assistant", "user"]


def test_b124_an_output_without_an_id_finds_the_only_open_call() -> None:
    given, _ = read(body(HI, CALL, {"type": "function_call_output", "output": "r"}))
    result = given.messages[2].parts[0]
    assert isinstance(result, ToolResult)
    assert result.call_id == "c1"
    with pytest.raises(BadRequest) as refused:
        read(body(HI, CALL, CALL | {"call_id": "c2"}, {"type": "function_call_output", "output": "r"}))
    assert refused.value.param == "input[3].call_id"


def test_calls_without_output_are_refused_or_answered_for() -> None:
    with pytest.raises(BadRequest) as refused:
        read(body(HI, CALL, HI))
    assert refused.value.param == "input[1]"
    given, dropped = read(body(HI, CALL, HI), "lenient")
    result = given.messages[2].parts[0]
    assert isinstance(result, ToolResult)
    assert (result.is_error, result.parts) == (True, [Text(text="[no result]")])
    assert dropped == ["input[1];no tool output came for c1"]


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (body({"role": "tool", "content": "x"}), "input[0].role"),
        (body({"role": "user"}), "input[0].content"),
        (body({"role": "user", "content": 5}), "input[0].content"),
        (
            body({"role": "user", "content": [{"type": "output_text", "text": "x"}]}),
            "input[0].content[0].type",
        ),
        (body({"role": "user", "content": [{"type": "text", "text": "x"}]}), "input[0].content[0].type"),
        (body({"role": "user", "content": [{"type": "input_text"}]}), "input[0].content[0].text"),
        (body({"role": "user", "content": [{"type": "input_image"}]}), "input[0].content[0]"),
        (
            body(
                {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,!"}]}
            ),
            "input[0].content[0].image_url",
        ),
        (
            body({"role": "user", "content": [{"type": "input_image", "image_url": "ftp://a"}]}),
            "input[0].content[0].image_url",
        ),
        (body({"role": "user", "content": [{"type": "input_file"}]}), "input[0].content[0]"),
        (
            body({"role": "user", "content": [{"type": "input_file", "file_data": "***"}]}),
            "input[0].content[0].file_data",
        ),
        (
            body({"role": "user", "content": [{"type": "input_file", "file_url": "file:///etc"}]}),
            "input[0].content[0].file_url",
        ),
        (
            body(
                {
                    "role": "user",
                    "content": [{"type": "input_audio", "input_audio": {"data": "!", "format": "wav"}}],
                }
            ),
            "input[0].content[0].input_audio.data",
        ),
        (
            body(
                {
                    "role": "user",
                    "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "x"}}],
                }
            ),
            "input[0].content[0].input_audio.format",
        ),
        (body(HI, {"type": "function_call", "call_id": "c1", "arguments": "{}"}), "input[1].name"),
        (body(HI, {"type": "function_call", "call_id": "c1", "name": "f"}), "input[1].arguments"),
        (body(HI, CALL, CALL, OUTPUT), "input[2].call_id"),
        (body(HI, OUTPUT), "input[1].call_id"),
        (body(HI, CALL, OUTPUT, OUTPUT), "input[3].call_id"),
        (body(HI, CALL, OUTPUT | {"output": {}}), "input[2].output"),
        (body(HI, {"type": "reasoning", "summary": "x"}), "input[1].summary"),
        (body(HI, {"type": 5}), "input[1].type"),
        (body(HI, temperature=3), "temperature"),
        (body(HI, top_p="1"), "top_p"),
        (body(HI, top_logprobs=21), "top_logprobs"),
        (body(HI, reasoning={"effort": "extreme"}), "reasoning.effort"),
        (body(HI, text={"format": {"type": "xml"}}), "text.format.type"),
        (body(HI, text={"format": {"type": "json_schema", "name": "r"}}), "text.format.schema"),
        (body(HI, tools=[{"name": "f"}]), "tools[0].type"),
        (body(HI, tools=[{"type": "function"}]), "tools[0].name"),
        (body(HI, tools=[{"type": "function", "name": "f", "parameters": []}]), "tools[0].parameters"),
        (
            body(HI, tools=[{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]),
            "tools[0].tools[0].name",
        ),
        (body(HI, tools=[{"type": "function", "name": "f"}] * 2), "tools"),
        (body(HI, tool_choice="any"), "tool_choice"),
        (body(HI, tool_choice="required"), "tool_choice"),
        (
            body(
                HI, tools=[{"type": "function", "name": "f"}], tool_choice={"type": "function", "name": "g"}
            ),
            "tool_choice.name",
        ),
        (
            body(HI, tools=[{"type": "function", "name": "f"}], tool_choice={"type": "function"}),
            "tool_choice.name",
        ),
        ({"model": "m", "input": ""}, "input"),
    ],
)
def test_what_is_wrong_is_told_by_its_path(value: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(value)
    assert refused.value.param == param
    assert param in refused.value.message


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (body(HI, previous_response_id="resp_1"), "previous_response_id"),
        (body(HI, conversation="conv_1"), "conversation"),
        (body(HI, prompt={"id": "p"}), "prompt"),
        (body(HI, background=True), "background"),
        (body(HI, {"type": "item_reference", "id": "msg_1"}), "input[1]"),
        (body(HI, {"type": "compaction", "encrypted_content": "x"}), "input[1]"),
        (body(HI, {"type": "code_interpreter_call", "id": "ci_1"}), "input[1].type"),
        (body(HI, tools=[{"type": "mcp", "server_label": "x"}]), "tools[0].type"),
        (body(HI, tools=[{"type": "file_search"}]), "tools[0].type"),
        (body(HI, tools=[{"type": "web_search"}], tool_choice={"type": "web_search"}), "tool_choice.type"),
    ],
)
def test_b056_state_and_hosted_tools_do_not_cross_formats(value: dict[str, Any], param: str) -> None:
    with pytest.raises(UnsupportedFeature) as refused:
        read(value)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_what_is_left_out_is_named() -> None:
    value = body(
        HI,
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        HI,
        store=True,
        truncation="auto",
        max_tool_calls=3,
        top_logprobs=2,
        include=["file_search_call.results"],
        reasoning={"context": "all_turns", "effort": "low"},
        prompt_cache_options={"mode": "explicit"},
        context_management=[{"type": "compaction"}],
        x_new=1,
    )
    _, dropped = read(value)
    assert sorted(entry.partition(";")[0] for entry in dropped) == [
        "context_management",
        "include.file_search_call.results",
        "input[1]",
        "max_tool_calls",
        "prompt_cache_options",
        "reasoning.context",
        "store",
        "top_logprobs",
        "truncation",
        "x_new",
    ]
    with pytest.raises(UnsupportedFeature):
        read(value, "strict")


def test_members_of_tools_that_no_other_format_has_are_named() -> None:
    tools = [
        {"type": "function", "name": "f", "defer_loading": True, "output_schema": None},
        {"type": "web_search", "external_web_access": True, "user_location": {"type": "approximate"}},
    ]
    source = {"type": "url_citation", "url": "https://a.b", "title": "", "start_index": 0, "end_index": 1}
    quoted = {"type": "output_text", "text": "x", "annotations": [source]}
    _, dropped = read(body(HI, {"role": "assistant", "content": [quoted]}, HI, tools=tools))
    assert [entry.partition(";")[0] for entry in dropped] == [
        "tools[0].defer_loading",
        "tools[1].external_web_access",
        "input.content.annotations",
    ]


def test_sealed_state_finds_its_call_or_its_text() -> None:
    signature = Opaque(vendor="google", kind="signature", value="Q0hB", model="g")
    on_call = Opaque(vendor="google", kind="signature", value="RA==", model="g", id="c1")
    redacted = Opaque(vendor="anthropic", kind="redacted", value="RU5D")

    def sealed(opaque: Opaque) -> dict[str, Any]:
        return {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": seal(opaque)}

    given, _ = read(
        body(
            HI,
            sealed(redacted),
            {"role": "assistant", "content": "so"},
            sealed(signature),
            CALL,
            sealed(on_call),
            OUTPUT,
        )
    )
    assert given.messages[1].parts == [
        Reasoning(opaque=redacted),
        Text(text="so", opaque=signature),
        ToolCall(
            id="c1",
            name="f",
            arguments='{"a":1.0}',
            opaque=Opaque(vendor="google", kind="signature", value="RA==", model="g"),
        ),
    ]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["input", "tools", "text", "reasoning", "tool_choice", "include", "metadata"]),
)
def test_any_value_is_taken_or_refused(value: Any, key: str) -> None:
    given = {"model": "m", "input": [HI], key: value}
    if key == "input":
        given["input"] = [HI, value]
    with suppress(BadRequest, UnsupportedFeature):
        read(given)


# ---- encoding -------------------------------------------------------------------------------------------------------


def test_nothing_is_left_for_the_provider_to_keep() -> None:
    told, dropped = write(request(stream=True))
    assert told == {
        "model": "up",
        "input": [{"role": "user", "content": "hi"}],
        "store": False,
        "stream": True,
        "stream_options": {"include_obfuscation": False},
    }
    assert dropped == []


def test_one_system_prompt_is_the_instructions_and_several_are_items() -> None:
    system = Message(role="system", parts=[Text(text="S")])
    developer = Message(role="developer", parts=[Text(text="D")])
    told, _ = write(request(system, user(Text(text="hi"))))
    assert (told["instructions"], told["input"]) == ("S", [{"role": "user", "content": "hi"}])
    told, _ = write(request(system, developer, user(Text(text="hi"))))
    assert "instructions" not in told
    assert [item["role"] for item in told["input"]] == ["system", "system", "user"]
    told, _ = write(request(system, developer, user(Text(text="hi"))), Capabilities(developer_role=True))
    assert [item["role"] for item in told["input"]] == ["developer", "developer", "user"]
    told, _ = write(request(system))
    assert told["input"] == [{"role": "system", "content": "S"}]


def test_a_conversation_is_written_item_by_item() -> None:
    own = Opaque(vendor="openai", kind="encrypted", value="gAAA", model="up-2026", id="rs_1")
    told, dropped = write(
        request(
            user(Text(text="a"), Image(data=PNG, media_type="image/png", detail="high")),
            said(
                Reasoning(text="t", opaque=own),
                Text(text="b"),
                Text(text="c"),
                ToolCall(id="c1", name="f", arguments=""),
                ToolCall(id="c2", name="p", arguments="raw", custom=True),
            ),
            user(
                ToolResult(call_id="c1", parts=[Text(text="r"), Text(text="s")], is_error=True),
                ToolResult(call_id="c2", parts=[Image(data=PNG, media_type="image/png")], custom=True),
                Text(text="go"),
            ),
        ),
        Capabilities(custom_tools=True),
    )
    assert dropped == []
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    assert told["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {**picture, "detail": "high"}]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "t"}],
            "encrypted_content": "gAAA",
        },
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "b"}, {"type": "output_text", "text": "c"}],
        },
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "raw"},
        {"type": "function_call_output", "call_id": "c1", "output": "[tool error] r\ns"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{**picture, "detail": "auto"}]},
        {"role": "user", "content": "go"},
    ]
    assert told["include"] == ["reasoning.encrypted_content"]


def test_b141_thoughts_go_back_only_to_the_model_that_made_them() -> None:
    for opaque in (
        None,
        Opaque(vendor="anthropic", kind="signature", value="SG"),
        Opaque(vendor="openai", kind="encrypted", value="gAAA", model="another"),
    ):
        told, dropped = write(
            request(said(Reasoning(text="t", opaque=opaque), Text(text="x")), user(Text(text="y")))
        )
        assert [item.get("type") for item in told["input"]] == [None, None]
        assert dropped == ["reasoning;thoughts go back only to the model that made them"]
    alone = Opaque(vendor="openai", kind="encrypted", value="gAAA")
    told, _ = write(request(user(Text(text="x")), said(Reasoning(opaque=alone)), user(Text(text="y"))))
    assert [item["role"] for item in told["input"]] == ["user", "user"]


def test_free_form_tools_become_functions_where_the_model_takes_none() -> None:
    tool = Tool(name="p", custom=True, format={"type": "grammar", "syntax": "lark", "definition": "x"})
    call = ToolCall(id="c", name="p", arguments="raw", custom=True)
    result = ToolResult(call_id="c", parts=[Text(text="r")], custom=True)
    told, dropped = write(
        request(said(call), user(result), tools=[tool], tool_choice=ToolChoice(mode="tool", names=["p"]))
    )
    assert told["input"] == [
        {"type": "function_call", "call_id": "c", "name": "p", "arguments": '{"input":"raw"}'},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ]
    assert told["tools"][0]["type"] == "function"
    assert told["tool_choice"] == {"type": "function", "name": "p"}
    assert dropped == ["tools[0].format;the grammar of a free-form tool is lost"]
    told, dropped = write(request(tools=[tool]), Capabilities(custom_tools=True))
    assert told["tools"] == [{"type": "custom", "name": "p", "format": tool.format}]


@pytest.mark.parametrize("odd", [[], {}, None, 1])
def test_a_schema_that_requires_no_name_is_open(odd: Any) -> None:
    closed = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    tools = [Tool(name="f", parameters=closed | {"required": ["a", odd]}, strict=True)]
    told, _ = write(request(tools=tools))
    assert told["tools"][0]["strict"] is False


def test_gotcha_27_strict_is_always_said() -> None:
    tools = [
        Tool(name="a"),
        Tool(name="b", parameters=CLOSED, strict=True),
        Tool(name="c", parameters=OPEN, strict=True),
    ]
    told, dropped = write(request(tools=tools))
    assert [tool["strict"] for tool in told["tools"]] == [False, True, False]
    assert told["tools"][0]["parameters"] == {"type": "object", "properties": {}}
    assert dropped == ["tools[2].strict;the schema leaves something open, so it is not enforced"]


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (ToolChoice(mode="auto"), "auto"),
        (ToolChoice(mode="none"), "none"),
        (ToolChoice(mode="required"), "required"),
        (ToolChoice(mode="tool", names=["f"]), {"type": "function", "name": "f"}),
        (
            ToolChoice(mode="auto", names=["f"]),
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        ),
    ],
)
@pytest.mark.parametrize("parallel", [None, True, False])
def test_b070_choice_and_parallel_calls(choice: ToolChoice, told: Any, parallel: bool | None) -> None:
    given = request(tools=[Tool(name="f")], tool_choice=choice, parallel_tool_calls=parallel)
    written, _ = write(given)
    assert written["tool_choice"] == told
    assert written.get("parallel_tool_calls") == parallel
    again, _ = read({**written, "model": "m"})
    assert (again.tool_choice, again.parallel_tool_calls) == (choice, parallel)
    without, _ = write(request(tool_choice=choice, parallel_tool_calls=parallel))
    assert not without.keys() & {"tools", "tool_choice", "parallel_tool_calls"}
    if choice.mode in ("required", "tool"):
        with pytest.raises(UnsupportedFeature):
            write(given, Capabilities(forced_tools=False))


def test_b055_structured_output() -> None:
    for format_, told in (
        (ResponseFormat(kind="json_object"), {"type": "json_object"}),
        (
            ResponseFormat(kind="json_schema", schema=CLOSED, name="r", strict=True, description="d"),
            {"type": "json_schema", "name": "r", "description": "d", "schema": CLOSED, "strict": True},
        ),
        (
            ResponseFormat(kind="json_schema", schema=OPEN, strict=True),
            {"type": "json_schema", "name": "response", "schema": OPEN, "strict": False},
        ),
    ):
        assert write(request(response_format=format_))[0]["text"] == {"format": told}
    asked, dropped = write(
        request(response_format=ResponseFormat(kind="json_schema", schema=OPEN)),
        Capabilities(response_schema=False, json_object=False),
    )
    assert "text" not in asked
    assert '"a"' in asked["input"][-1]["content"]
    assert dropped == ["response_format;asked for in words"]


@pytest.mark.parametrize(
    ("control", "can", "told"),
    [
        (ReasoningControl(effort="high"), {}, {"effort": "high"}),
        (ReasoningControl(budget_tokens=0), {}, {"effort": "none"}),
        (ReasoningControl(budget_tokens=2048), {}, {"effort": "low"}),
        (ReasoningControl(budget_tokens=9999), {}, {"effort": "medium"}),
        (ReasoningControl(budget_tokens=24576), {}, {"effort": "high"}),
        (ReasoningControl(budget_tokens=60000), {}, {"effort": "xhigh"}),
        (ReasoningControl(budget_tokens=-1, show=True), {}, {"summary": "auto"}),
        (ReasoningControl(effort="low", summary="concise"), {}, {"effort": "low", "summary": "concise"}),
        (ReasoningControl(effort="none"), {"reasoning_off": False}, {"effort": "minimal"}),
        (ReasoningControl(effort="max"), {"efforts": ("low", "high")}, {"effort": "high"}),
        (ReasoningControl(effort="high"), {"reasoning": "none"}, None),
    ],
)
def test_thinking(control: ReasoningControl, can: dict[str, Any], told: dict[str, str] | None) -> None:
    written, _ = write(request(reasoning=control), Capabilities(**can))
    assert written.get("reasoning") == told
    hidden = told is not None and told.get("effort") != "none"
    assert written.get("include") == (["reasoning.encrypted_content"] if hidden else None)


def test_what_the_format_cannot_say_is_refused_or_named() -> None:
    for field, value in (("choices", 2), ("suffix", "x"), ("logit_bias", {"1": 1.0})):
        with pytest.raises(UnsupportedFeature):
            write(request(**{field: value}))
    assert write(request(logit_bias={"1": 1.0}), policy="lenient")[1] == [
        "logit_bias;not taken by this format"
    ]
    with pytest.raises(UnsupportedFeature):
        write(request(said(Text(text="x")), continues=True))
    assert write(request(user(Text(text="x")), said(Text(text="y"))))[0]["input"][-1]["role"] == "assistant"
    written, dropped = write(
        request(
            stop=["END"],
            seed=1,
            frequency_penalty=0.5,
            top_k=4,
            max_output_tokens=3,
            service_tier="batch",
            prompt_cache_key="k",
            metadata={"n": 1},
            temperature=1.5,
        ),
        Capabilities(max_temperature=1.0, max_output_tokens=100),
    )
    assert sorted(entry.partition(";")[0] for entry in dropped) == [
        "frequency_penalty",
        "max_tokens",
        "metadata",
        "prompt_cache_key",
        "seed",
        "service_tier",
        "stop",
        "temperature",
        "top_k",
    ]
    assert (written["max_output_tokens"], written["temperature"]) == (16, 1.0)
    assert (
        write(request(max_output_tokens=500), Capabilities(max_output_tokens=100))[0]["max_output_tokens"]
        == 100
    )


def test_b101_stop_sequences_are_refused_where_nothing_may_be_weakened() -> None:
    with pytest.raises(UnsupportedFeature) as refused:
        write(request(stop=["END"]), policy="strict")
    assert refused.value.param == "stop"


def test_web_search_and_bookkeeping_are_said() -> None:
    told, dropped = write(
        request(
            web_search={"allowed_domains": ["a.b"], "user_location": {"type": "approximate"}, "max_uses": 3},
            user="u",
            metadata={"k": "v"},
            service_tier="standard",
            verbosity="low",
            logprobs=True,
            top_logprobs=2,
        )
    )
    assert told["tools"] == [
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["a.b"]},
            "user_location": {"type": "approximate"},
        }
    ]
    assert (told["safety_identifier"], told["metadata"], told["service_tier"]) == ("u", {"k": "v"}, "default")
    assert told["text"] == {"verbosity": "low"}
    assert (told["top_logprobs"], told["include"]) == (2, ["message.output_text.logprobs"])
    assert dropped == ["web_search.max_uses;not known to this format"]
    with pytest.raises(UnsupportedFeature):
        write(request(web_search={"blocked_domains": ["a.b"]}))


def test_media_that_cannot_be_carried_is_refused_by_its_path() -> None:
    for part in (
        Image(file_id="file-1"),
        File(file_id="file-1"),
        Image(data="AAAA", media_type="text/html"),
        File(data="AAAA"),
        Audio(data="AAAA", format="wav"),
    ):
        with pytest.raises(UnsupportedFeature) as refused:
            write(request(Message(role="user", parts=[part], path="messages[0]")))
        assert refused.value.param == "messages[0].content[0]"
    told, dropped = write(
        request(
            said(Image(data=PNG, media_type="image/png"), Text(text="x")),
            user(
                File(text="T", filename="a.txt"),
                File(data=PDF, media_type="application/pdf"),
                File(url="https://a.b/c"),
            ),
        )
    )
    assert [part["type"] for part in told["input"][1]["content"]] == [
        "input_text",
        "input_image",
        "input_text",
        "input_file",
        "input_file",
    ]
    assert dropped == ["messages.content[0];the picture of an assistant turn is sent with the next user turn"]
    told, dropped = write(
        request(
            said(ToolCall(id="c", name="f", arguments="{}")),
            user(ToolResult(call_id="c", parts=[Image(data=PNG)])),
        ),
        Capabilities(images=False),
    )
    assert told["input"][1]["output"] == "[picture left out]"
    assert len(dropped) == 1


def test_b069_cache_marks_where_the_model_takes_them() -> None:
    marked = [Text(text=str(place), cache=CacheMark(ttl="1h")) for place in range(5)]
    told, dropped = write(request(user(*marked)), Capabilities(prompt_cache=True))
    found = [part.get("prompt_cache_breakpoint") for part in told["input"][0]["content"]]
    assert found == [None] + [{"mode": "explicit", "ttl": "30m"}] * 4
    assert dropped == ["cache_control;at most 4 marks"]
    told, dropped = write(request(user(*marked)))
    assert b"breakpoint" not in json.dumps(told).encode()
    assert dropped == ["cache_control;marks of the prompt cache are not taken here"]


def test_names_and_ids_that_do_not_fit_are_changed_the_same_way_everywhere() -> None:
    long = "n" * 80
    given = request(
        said(ToolCall(id="id with spaces", name=long, arguments="{}")),
        user(ToolResult(call_id="id with spaces", parts=[])),
        tools=[Tool(name=long)],
        tool_choice=ToolChoice(mode="tool", names=[long]),
    )
    told, _ = write(given)
    name = told["tools"][0]["name"]
    assert len(name) <= 64
    assert CODEC.tool_names(given) == {name: long}
    assert told["tool_choice"]["name"] == told["input"][0]["name"] == name
    assert told["input"][0]["call_id"] == told["input"][1]["call_id"] != "id with spaces"


def test_what_was_written_reads_as_what_it_was_written_from() -> None:
    given = Request(
        model="m",
        messages=[
            Message(role="user", parts=[Text(text="é \u2028"), Image(url="https://a.b/c", detail="auto")]),
            said(
                Reasoning(
                    text="t",
                    summary=True,
                    opaque=Opaque(vendor="openai", kind="encrypted", value="gAAA", id="rs_1"),
                ),
                Text(text="so"),
                ToolCall(id="c1", name="f", arguments='{"a": 1.0}'),
            ),
            user(ToolResult(call_id="c1", name="f", parts=[Text(text="r")])),
            user(Text(text="go")),
        ],
        tools=[Tool(name="f", parameters=OPEN, strict=False)],
        max_output_tokens=50,
        temperature=0.5,
        stream=True,
    )
    told, _ = write(given)
    again, dropped = read({**told, "model": "m"})
    for message in again.messages:
        message.path = ""
    assert dropped == []
    assert again == given


# ---- counting -------------------------------------------------------------------------------------------------------


def test_questions_for_a_count() -> None:
    raw = json.dumps(body(HI, instructions="S", tools=[{"type": "function", "name": "f"}])).encode()
    assert read_count_request(raw).model == "m"
    given = decode_count_request(raw, Notes())
    told = json.loads(encode_count_request(given, "up", Capabilities(), Notes()))
    assert told.keys() == {"model", "instructions", "input", "tools"}
    assert json.loads(encode_count_answer(7)) == {"object": "response.input_tokens", "input_tokens": 7}
    assert decode_count_answer(encode_count_answer(7)) == 7
