"""Messages requests: read by their edges, decoded with every error's path, and written for a provider by the matrix."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, DecodeError, UnsupportedFeature
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
from sluicegate.wire import anthropic_counting
from sluicegate.wire.anthropic import CODEC
from sluicegate.wire.anthropic_passed_request import AnthropicRequest
from sluicegate.wire.anthropic_request_decoder import decode_request
from sluicegate.wire.anthropic_request_encoder import tool_names
from sluicegate.wire.envelope import seal
from sluicegate.wire.translation import Notes, Policy
from tests.profiles import examples

PNG = "iVBORw0KGgo="
PDF = "JVBERi0="
HI = {"role": "user", "content": "hi"}
WEATHER = {"name": "w", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def body(*messages: Any, **fields: Any) -> bytes:
    """Return a request's body."""
    value = {"model": "m", "max_tokens": 4000, "messages": list(messages) or [HI], **fields}
    return json.dumps(
        {key: item for key, item in value.items() if item is not ...}, ensure_ascii=False
    ).encode()


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def call(id_: str = "k", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "w", "input": {"city": "Oslo"}, **more}


def result(id_: str = "k", content: Any = "sunny", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **more}


def image(kind: str = "base64", **source: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": kind, **source}}


def document(kind: str, **source: Any) -> dict[str, Any]:
    return {"type": "document", "source": {"type": kind, **source}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def read(raw: bytes, policy: Policy = "default", **options: Any) -> tuple[Request, list[str]]:
    """Return what a body asks for, and what was left out."""
    notes = Notes(policy)
    return decode_request(raw, notes, **options), notes.dropped


TURN = (assistant(call()), user(result()))
"""A call and its answer."""


# ---- edges ----------------------------------------------------------------------------------------------------------


def test_edges_and_the_body_for_a_provider() -> None:
    raw = b'{ "model" : "pub" , "max_tokens":9,"stream":true,"x_new":{"a":1.0},"messages":%b}'
    raw %= b'[{"role":"user","content":"hi"}]'
    request = CODEC.read_request(raw, None, False)
    assert (request.model, request.stream, request.max_output_tokens, request.choices) == ("pub", True, 9, 1)
    assert (request.include_usage, request.max_output_key) == (True, "max_tokens")
    assert request.input_estimate > 16
    assert request.upstream_body("up", ask_usage=True) == raw.replace(b'"pub"', b'"up"')
    edited = request.upstream_body("up", ask_usage=False, drop=("x_new",), max_output_tokens=5)
    assert json.loads(edited) == {"model": "up", "max_tokens": 5, "stream": True, "messages": [HI]}


def test_requests_of_one_conversation_share_their_hash() -> None:
    first = AnthropicRequest(body(HI, system="S"))
    later = AnthropicRequest(body(HI, assistant(said("yes")), HI, system="S", temperature=1))
    other = AnthropicRequest(body({"role": "user", "content": "ho"}, system="S"))
    assert first.messages_hash == later.messages_hash
    assert first.messages_hash != other.messages_hash


def test_fields_that_name_other_models_are_told() -> None:
    assert AnthropicRequest(body(fallbacks=["x"])).names_other_models == "fallbacks"
    assert AnthropicRequest(body(fallbacks=None)).names_other_models is None


def test_counting_tokens_needs_no_limit() -> None:
    raw = body(max_tokens=...)
    assert AnthropicRequest(raw, counting=True).max_output_tokens is None
    assert read(raw, counting=True)[0].max_output_tokens is None


def test_tokens_are_counted_by_a_request_of_its_own() -> None:
    raw = body(max_tokens=..., system="S", temperature=0.5)
    assert anthropic_counting.read_count_request(raw).model == "m"
    request = anthropic_counting.decode_count_request(raw, Notes())
    told = anthropic_counting.encode_count_request(request, "up", Capabilities(), Notes())
    assert json.loads(told) == {"model": "up", "system": "S", "messages": [HI]}
    assert anthropic_counting.decode_count_answer(anthropic_counting.encode_count_answer(7)) == 7
    for answer in (b"", b"{}", b"[]", b'{"input_tokens":-1}', b'{"input_tokens":"7"}'):
        with pytest.raises(DecodeError):
            anthropic_counting.decode_count_answer(answer)


EDGES: list[tuple[bytes, str | None]] = [
    (body(model=...), "model"),
    (body(model=3), "model"),
    (body(model=""), "model"),
    (body(max_tokens=...), "max_tokens"),
    (body(max_tokens="9"), "max_tokens"),
    (body(max_tokens=True), "max_tokens"),
    (body(max_tokens=-1), "max_tokens"),
    (body(stream="yes"), "stream"),
    (b'{"model":"m","max_tokens":9}', "messages"),
    (b'{"model":"m","max_tokens":9,"messages":[]}', "messages"),
    (b'{"model":"m","max_tokens":9,"messages":{}}', "messages"),
    (body({"content": "x"}), "messages[0].role"),
    (body(HI, {"role": "user"}), "messages[1].content"),
    (body({"role": "tool", "content": "x"}), "messages[0].role"),
    (body({"role": 3, "content": "x"}), "messages[0].role"),
    (body("x"), "messages[0]"),
    (b"not json", None),
    (b"[]", None),
    (b'{"model":"m\xff"}', None),
]
"""What both ways of reading refuse, and the path."""


@pytest.mark.parametrize(("raw", "path"), [*EDGES, (b'{"model":"a","model":"b"}', "model")])
def test_edges_refuse_what_is_wrong(raw: bytes, path: str | None) -> None:
    with pytest.raises(BadRequest) as told:
        AnthropicRequest(raw)
    assert told.value.param == path
    assert path is None or path in told.value.message


# ---- decoding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        *EDGES,
        (body({"role": "assistant", "content": "x"}), "messages[0].role"),
        (body({"role": "system", "content": "x"}), "messages[0].role"),
        (body(HI, assistant(said("x")), {"role": "system", "content": "x"}), "messages[2].role"),
        (body({"role": "user", "content": ""}), "messages[0].content"),
        (body(user()), "messages[0].content"),
        (body(user(said(""))), "messages[0].content"),
        (body(user({"type": "hologram"})), "messages[0].content[0].type"),
        (body(user(said("x"), {"text": "x"})), "messages[0].content[1].type"),
        (body(user({"type": "text"})), "messages[0].content[0].text"),
        (body(user({"type": "text", "text": 3})), "messages[0].content[0].text"),
        (body(user(call())), "messages[0].content[0].type"),
        (body(HI, assistant({"type": "image"})), "messages[1].content[0].type"),
        (body(user({"type": "image"})), "messages[0].content[0].source"),
        (body(user({"type": "image", "source": {"type": "cid"}})), "messages[0].content[0].source.type"),
        (
            body(user({"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": PNG}})),
            "messages[0].content[0].source.media_type",
        ),
        (
            body(user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "!!"}})),
            "messages[0].content[0].source.data",
        ),
        (
            body(user(document("base64", media_type="application/pdf", data="A"))),
            "messages[0].content[0].source.data",
        ),
        (body(HI, assistant(call())), "messages[1]"),
        (body(HI, assistant(call()), HI), "messages[1]"),
        (body(HI, assistant(call("a"), call("b")), user(result("a"))), "messages[1]"),
        (body(HI, assistant(call("a"), call("a")), user(result("a"))), "messages[1]"),
        (body(user(result())), "messages[0].content[0].tool_use_id"),
        (body(HI, assistant(call()), user(said("x"), result("z"))), "messages[2].content[1].tool_use_id"),
        (body(HI, *TURN, assistant(said("y")), user(result())), "messages[4].content[0].tool_use_id"),
        (body(HI, assistant(call(input="{}"))), "messages[1].content[0].input"),
        (body(HI, assistant({"type": "tool_use", "id": "k", "name": "w"})), "messages[1].content[0].input"),
        (body(HI, assistant(call()), user(result(is_error="no"))), "messages[2].content[0].is_error"),
        (body(HI, assistant(call()), user(result(content=[call()]))), "messages[2].content[0].content[0].type"),
        (body(user({**said("x"), "cache_control": {"type": "forever"}})), "messages[0].content[0].cache_control.type"),
        (body(HI, assistant({"type": "thinking", "signature": "S"})), "messages[1].content[0].thinking"),
        (body(system=[{"type": "image"}]), "system[0].type"),
        (body(system=3), "system"),
        (body(temperature=1.5), "temperature"),
        (body(temperature="hot"), "temperature"),
        (body(top_p=-1), "top_p"),
        (body(stop_sequences="END"), "stop_sequences"),
        (body(stop_sequences=["END", ""]), "stop_sequences[1]"),
        (body(tools={}), "tools"),
        (body(tools=[{"name": "f"}]), "tools[0].input_schema"),
        (body(tools=[{"name": "f", "input_schema": {"type": "string"}}]), "tools[0].input_schema.type"),
        (body(tools=[{"input_schema": {"type": "object"}}]), "tools[0].name"),
        (body(tools=[WEATHER, WEATHER]), "tools[1].name"),
        (body(tools=[WEATHER], tool_choice={"type": "tool", "name": "x"}), "tool_choice.name"),
        (body(tools=[WEATHER], tool_choice={"type": "some"}), "tool_choice.type"),
        (body(tools=[WEATHER], tool_choice="auto"), "tool_choice"),
        (body(thinking={"type": "enabled"}), "thinking.budget_tokens"),
        (body(thinking={"type": "enabled", "budget_tokens": 5}), "thinking.budget_tokens"),
        (body(thinking={"type": "enabled", "budget_tokens": 4000}), "thinking.budget_tokens"),
        (body(thinking={"type": "often"}), "thinking.type"),
        (body(thinking={"type": "adaptive", "display": "loud"}), "thinking.display"),
        (body(output_config={"effort": "huge"}), "output_config.effort"),
        (body(output_config={"format": {"type": "xml"}}), "output_config.format.type"),
        (body(output_config={"format": {"type": "json_schema"}}), "output_config.format.schema"),
        (body(metadata={"user_id": 3}), "metadata.user_id"),
        (body(service_tier="fast"), "service_tier"),
    ],
)  # fmt: skip
def test_every_error_names_the_path_of_its_field(raw: bytes, path: str | None) -> None:
    with pytest.raises(BadRequest) as told:
        read(raw)
    assert told.value.param == path
    assert path is None or path in told.value.message


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (body(max_tokens=0), "max_tokens"),
        (body(container="c_1"), "container"),
        (body(mcp_servers=[]), "mcp_servers"),
        (body(fallbacks=["x"]), "fallbacks"),
        (body(inference_geo="eu"), "inference_geo"),
        (body(tools=[{"type": "bash_20250124", "name": "bash"}]), "tools[0].type"),
        (body(user({"type": "container_upload", "file_id": "f"})), "messages[0].content[0].type"),
    ],
)
def test_what_only_one_vendor_has_is_refused(raw: bytes, path: str) -> None:
    with pytest.raises(UnsupportedFeature) as told:
        read(raw)
    assert told.value.param == path


def test_a_whole_conversation() -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    request, dropped = read(
        body(
            user({**said("look"), **mark}, image(media_type="image/png", data="iVBORw0KGgo")),
            assistant(
                {"type": "thinking", "thinking": "hm", "signature": "SG"},
                {"type": "redacted_thinking", "data": "RD"},
                {**said("ok"), "citations": [{"type": "page_location"}]},
                call(input={"a": 1.0, "é": "é"}),
            ),
            user(
                said("and?"),
                result(content=[said("r"), image("url", url="https://x.example/a.png")], is_error=True),
                {**document("base64", media_type="application/pdf", data=PDF), "title": "T"},
                document("text", media_type="text/plain", data="plain"),
            ),
            system=[said("S1"), {**said("S2"), **mark}],
            tools=[{**WEATHER, "description": "D", "strict": True, **mark, "defer_loading": True}],
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            stop_sequences=["END"],
            temperature=0.5,
            top_k=3,
            stream=True,
            metadata={"user_id": "u"},
            service_tier="standard_only",
            output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
            thinking={"type": "adaptive", "display": "summarized"},
            brand_new=1,
        )
    )  # fmt: skip
    signed = Opaque(vendor="anthropic", kind="signature", value="SG")
    hidden = Opaque(vendor="anthropic", kind="redacted", value="RD")
    hour = CacheMark(ttl="1h")
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "user"]
    assert request.messages[0].parts == [Text(text="S1"), Text(text="S2", cache=hour)]
    assert request.messages[1].parts == [
        Text(text="look", cache=hour),
        Image(data=PNG, media_type="image/png"),
    ]
    assert request.messages[2].parts == [
        Reasoning(text="hm", opaque=signed),
        Reasoning(opaque=hidden),
        Text(text="ok"),
        ToolCall(id="k", name="w", arguments='{"a":1.0,"é":"é"}'),
    ]
    assert request.messages[3].parts == [  # B102: results first
        ToolResult(
            call_id="k", name="w", parts=[Text(text="r"), Image(url="https://x.example/a.png")], is_error=True
        ),
        Text(text="and?"),
        File(data=PDF, media_type="application/pdf", filename="T"),
        File(text="plain", media_type="text/plain"),
    ]
    assert request.messages[3].path == "messages[2]"
    schema = WEATHER["input_schema"]
    assert request.tools == [Tool(name="w", description="D", parameters=schema, strict=True, cache=hour)]  # type: ignore[arg-type]
    assert request.tool_choice == ToolChoice(mode="required")
    assert request.parallel_tool_calls is False
    assert (request.stop, request.temperature, request.top_k, request.stream) == (["END"], 0.5, 3, True)
    assert (request.user, request.service_tier, request.max_output_tokens) == ("u", "default", 4000)
    assert request.reasoning == ReasoningControl(effort="high", show=True)
    assert request.response_format == ResponseFormat(
        kind="json_schema", schema={"type": "object"}, strict=True
    )
    assert not request.limit_is_visible
    assert {entry.partition(";")[0] for entry in dropped} == {
        "messages.content.citations",
        "tools[0].defer_loading",
        "brand_new",
    }


@pytest.mark.parametrize(
    ("choice", "mode", "parallel"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any", "disable_parallel_tool_use": False}, "required", True),
        ({"type": "tool", "name": "w"}, "tool", None),
        ({"type": "none"}, "none", None),
    ],
)
def test_b070_tool_choice_is_read(choice: Any, mode: str, parallel: bool | None) -> None:
    request, _ = read(body(tools=[WEATHER], tool_choice=choice))
    assert request.tool_choice is not None
    assert (request.tool_choice.mode, request.parallel_tool_calls) == (mode, parallel)


@pytest.mark.parametrize(
    ("fields", "control"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, ReasoningControl(budget_tokens=0)),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, ReasoningControl(budget_tokens=2000)),
        ({"thinking": {"type": "adaptive"}}, ReasoningControl(budget_tokens=-1)),
        ({"output_config": {"effort": "max"}}, ReasoningControl(effort="max")),
        (
            {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "low"}},
            ReasoningControl(effort="low", show=False),
        ),
    ],
)
def test_thinking_is_read(fields: Any, control: ReasoningControl | None) -> None:
    assert read(body(**fields))[0].reasoning == control


def test_null_is_absent_and_a_mark_of_the_whole_is_one_on_its_last_block() -> None:
    request, dropped = read(
        body(
            temperature=None,
            tools=None,
            system=None,
            cache_control={"type": "ephemeral"},
            stop_sequences=None,
        )
    )
    assert request.messages == [
        Message(role="user", parts=[Text(text="hi", cache=CacheMark())], path="messages[0]")
    ]
    assert dropped == []


def test_results_of_one_turn_in_several_messages() -> None:
    request, _ = read(
        body(
            HI, assistant(call("a"), call("b")), user(said("x"), result("b")), user(result("a")), assistant()
        )
    )
    parts = request.messages[2].parts
    assert [part.call_id for part in parts if isinstance(part, ToolResult)] == ["b", "a"]
    assert isinstance(parts[-1], Text)
    assert len(request.messages) == 3


def test_b102_only_a_lenient_translation_invents_a_result() -> None:
    request, dropped = read(body(HI, assistant(call("a"), call("b")), user(result("a"))), "lenient")
    missing = request.messages[2].parts[1]
    assert missing == ToolResult(call_id="b", name="w", parts=[Text(text="[no result]")], is_error=True)
    assert dropped[0].startswith("messages[1];")
    request, _ = read(body(HI, assistant(call("a"))), "lenient")
    assert request.messages[-1].role == "user"


def test_traces_of_searches_are_left_out_and_named() -> None:
    trace = [{"type": "server_tool_use", "id": "s"}, {"type": "web_search_tool_result", "content": []}]
    request, dropped = read(body(HI, assistant(said("a"), *trace, said("b")), HI))
    assert request.messages[1].parts == [Text(text="a"), Text(text="b")]
    assert [entry.partition(";")[0] for entry in dropped] == [
        "messages[1].content[1]",
        "messages[1].content[2]",
    ]
    with pytest.raises(UnsupportedFeature):
        read(body(HI, assistant(said("a"), *trace), HI), "strict")


def test_a_web_search_is_an_option_and_not_a_function() -> None:
    tool = {
        "type": "web_search_20250305",
        "name": "web_search",
        "max_uses": 3,
        "allowed_domains": ["x.example"],
    }
    request, _ = read(body(tools=[WEATHER, tool]))
    assert request.web_search == {"max_uses": 3, "allowed_domains": ["x.example"]}
    assert [tool.name for tool in request.tools] == ["w"]


def test_documents_made_of_blocks_and_search_results_become_text() -> None:
    made = {
        "type": "document",
        "source": {"type": "content", "content": [said("a"), said("b")]},
        "context": "c",
    }
    found = {"type": "search_result", "title": "T", "source": "https://x.example", "content": [said("found")]}
    request, dropped = read(body(user(made, found)))
    assert request.messages[0].parts == [
        File(text="a\nb", media_type="text/plain"),
        Text(text="T\nhttps://x.example\nfound"),
    ]
    assert [entry.partition(";")[0] for entry in dropped] == [
        "messages[0].content[0].context",
        "messages[0].content[1]",
    ]


def test_sealed_state_is_opened_and_hung_on_its_call() -> None:
    google = Opaque(vendor="google", kind="signature", value="Q0hB", model="g")
    openai = Opaque(vendor="openai", kind="encrypted", value="gAAA", id="rs_1")
    request, _ = read(
        body(
            HI,
            assistant(
                {"type": "thinking", "thinking": "t", "signature": seal(openai)},
                call(),
                {"type": "redacted_thinking", "data": seal(msgspec.structs.replace(google, id="k"))},
            ),
            user(result()),
        )
    )
    thought, made = request.messages[1].parts
    assert thought == Reasoning(text="t", opaque=openai)
    assert isinstance(made, ToolCall)
    assert made.opaque == google


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5000) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "text", "role", "content", "source", "data", "id", "name", "input", "tool_use_id", "signature",
             "cache_control", "thinking", "input_schema", "budget_tokens", "format", "schema", "media_type"]
        ),
        inner | st.sampled_from(["text", "user", "assistant", "tool_use", "tool_result", "image", "base64"]),
        max_size=5,
    ),
    max_leaves=15,
)  # fmt: skip


@settings(max_examples=examples(80), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking", "output_config",
             "metadata", "stop_sequences", "temperature", "cache_control", "stream"]
        ),
        VALUES,
    ),
    st.lists(VALUES, min_size=1, max_size=3),
)  # fmt: skip
def test_any_request_is_decoded_or_refused(fields: dict[str, Any], blocks: list[Any]) -> None:
    for value in (fields, {"model": "m", "max_tokens": 9, "messages": [user(*blocks)]} | fields):
        try:
            request = read(json.dumps(value).encode(), "lenient")[0]
            CODEC.encode_request(request, "up", Capabilities(), Notes("lenient"))
        except (BadRequest, UnsupportedFeature):
            pass


# ---- encoding -------------------------------------------------------------------------------------------------------


def asked(*messages: Message, **fields: Any) -> Request:
    """Return a request as another format's decoder makes it."""
    turns = list(messages) or [Message(role="user", parts=[Text(text="hi")], path="messages[0]")]
    return Request(model="pub", messages=turns, **fields)


def write(request: Request, policy: Policy = "default", **can: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the provider's request, and the fields that were left out or weakened."""
    notes = Notes(policy)
    raw = CODEC.encode_request(request, "claude-x", Capabilities(**can), notes)
    assert b":null" not in raw
    value = json.loads(raw)
    assert isinstance(value, dict)
    return value, [entry.partition(";")[0] for entry in notes.dropped]


def turn(role: Any, *parts: Any, **more: Any) -> Message:
    return Message(
        role=role, parts=[Text(text=part) if isinstance(part, str) else part for part in parts], **more
    )


def test_the_least_that_a_provider_wants() -> None:
    told, dropped = write(asked())
    assert told == {"model": "claude-x", "max_tokens": 8192, "messages": [HI]}
    assert dropped == []
    assert write(asked(stream=True), max_output_tokens=99)[0]["max_tokens"] == 99
    assert b"stream_options" not in CODEC.encode_request(
        asked(stream=True), "m", Capabilities(), Notes()
    )  # B029


def test_b002_leading_instructions_become_the_system_prompt_in_order() -> None:
    told, dropped = write(asked(turn("developer", "D"), turn("system", "S"), turn("user", "U")))
    assert told["system"] == [said("D"), said("S")]
    assert told["messages"] == [{"role": "user", "content": "U"}]
    assert dropped == []
    assert write(asked(turn("system", "S"), turn("user", "U")))[0]["system"] == "S"


def test_later_instructions_stay_in_their_place() -> None:
    request = asked(
        turn("user", "a"),
        turn("system", "be brief", path="messages[1]"),
        turn("assistant", "b"),
        turn("user", "c"),
    )
    told, dropped = write(request)
    assert told["messages"][0]["content"] == [said("a"), said("<system>be brief</system>")]
    assert dropped == ["messages[1]"]
    told, dropped = write(request, mid_system=True)
    assert [message["role"] for message in told["messages"]] == ["user", "system", "assistant", "user"]
    assert dropped == []


def test_b020_turns_alternate_and_nothing_is_empty() -> None:
    calls = [ToolCall(id="a", name="f", arguments="{}"), ToolCall(id="b", name="f", arguments="")]
    told, _ = write(
        asked(
            turn("user", "a"), turn("user", "b"), turn("assistant", *calls),
            turn("user", ToolResult(call_id="a", parts=[Text(text="r1")])),
            turn("user", ToolResult(call_id="b", parts=[])), turn("assistant", ""), turn("user", "c"),
        )
    )  # fmt: skip
    assert told["messages"] == [
        {"role": "user", "content": [said("a"), said("b")]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in "ab"],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "r1"},
                {"type": "tool_result", "tool_use_id": "b"},
                said("c"),
            ],
        },
    ]


def test_b102_calls_come_last_in_their_turn() -> None:
    made = ToolCall(id="k", name="f", arguments="{}")
    told, _ = write(
        asked(
            turn("user", "a"),
            turn("assistant", made, "later"),
            turn("user", "x", ToolResult(call_id="k", parts=[Text(text="r")])),
        )
    )
    assert [part["type"] for part in told["messages"][1]["content"]] == ["text", "tool_use"]
    assert [part["type"] for part in told["messages"][2]["content"]] == ["tool_result", "text"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"n":12345678901234567890,"f":1.0}', '{"n":12345678901234567890,"f":1.0}'),
        ("[1]", '{"value":[1]}'),
        ("{broken", '{"_raw":"{broken"}'),
        ("", "{}"),
    ],
)
def test_arguments_are_objects_in_their_own_spelling(arguments: str, told: str) -> None:
    request = asked(
        turn("user", "a"),
        turn("assistant", ToolCall(id="k", name="f", arguments=arguments)),
        turn("user", ToolResult(call_id="k", parts=[])),
    )
    notes = Notes()
    assert b'"input":' + told.encode() in CODEC.encode_request(request, "m", Capabilities(), notes)
    assert bool(notes.dropped) == ("broken" in told)


def test_pairs_that_do_not_fit() -> None:
    made = ToolCall(id="k", name="f", arguments="{}")
    with pytest.raises(UnsupportedFeature):
        write(asked(turn("user", "a"), turn("assistant", made), turn("user", "b")))
    told, dropped = write(
        asked(turn("user", "a"), turn("assistant", made), turn("user", "b", path="messages[2]")), "lenient"
    )
    assert told["messages"][2]["content"][0]["content"] == "[no result]"
    assert dropped == ["messages"]
    with pytest.raises(UnsupportedFeature):
        write(asked(turn("user", ToolResult(call_id="z", parts=[]))), "lenient")


def test_who_begins_and_who_ends() -> None:
    with pytest.raises(UnsupportedFeature):
        write(asked(turn("system", "S")))
    with pytest.raises(UnsupportedFeature):
        write(asked(turn("assistant", "a"), turn("user", "b")))
    assert (
        write(asked(turn("assistant", "a"), turn("user", "b")), "lenient")[0]["messages"][0]["role"] == "user"
    )
    prefill = asked(turn("user", "a"), turn("assistant", "b \n"))
    assert write(prefill)[0]["messages"][1]["content"] == "b"
    with pytest.raises(UnsupportedFeature):
        write(prefill, prefill=False)
    assert write(prefill, "lenient")[0]["messages"][2]["content"] == "Continue."


def test_b141_state_goes_back_only_to_its_maker() -> None:
    def opaque(vendor: Any, kind: Any = "signature", **more: Any) -> Opaque:
        return Opaque(vendor=vendor, kind=kind, value="V", **more)

    thoughts = [
        Reasoning(text="own", opaque=opaque("anthropic", model="claude-x-20260101")),
        Reasoning(text="", opaque=opaque("anthropic")),
        Reasoning(text="", opaque=opaque("anthropic", "redacted")),
        Reasoning(text="another model's", opaque=opaque("anthropic", model="claude-y")),
        Reasoning(text="foreign", opaque=opaque("google")),
        Reasoning(text="unsigned"),
    ]
    told, dropped = write(asked(turn("user", "a"), turn("assistant", *thoughts, "b"), turn("user", "c")))
    assert told["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "own", "signature": "V"},
        {"type": "thinking", "thinking": "", "signature": "V"},
        {"type": "redacted_thinking", "data": "V"},
        said("b"),
    ]
    assert dropped == ["reasoning"]


def test_media() -> None:
    told, dropped = write(
        asked(
            turn(
                "user",
                Image(data=PNG, media_type="image/jpeg", detail="high"),
                Image(url="https://x.example/a"),
                File(data=PDF, filename="a.pdf"),
                File(data="aGk=", media_type="text/markdown", filename="a.md"),
                File(text="t", media_type="text/plain"),
                File(url="https://x.example/a.pdf"),
                Refusal(text="no"),
            )
        )
    )
    assert told["messages"][0]["content"] == [
        image(media_type="image/png", data=PNG),
        image("url", url="https://x.example/a"),
        {**document("base64", media_type="application/pdf", data=PDF), "title": "a.pdf"},
        {**document("text", media_type="text/plain", data="hi"), "title": "a.md"},
        document("text", media_type="text/plain", data="t"),
        document("url", url="https://x.example/a.pdf"),
        said("no"),
    ]  # fmt: skip
    assert dropped == ["detail"]


@pytest.mark.parametrize(
    ("part", "can"),
    [
        (Audio(data="AAAA", format="wav"), {}),
        (Image(data="Qk0=", media_type="image/bmp"), {}),
        (Image(file_id="file_1"), {}),
        (Image(data=PNG), {"images": False}),
        (File(file_id="file_1"), {}),
        (File(data="AAAA", media_type="application/zip"), {}),
        (File(data=PDF), {"files": False}),
    ],
)
def test_b019_media_that_cannot_be_carried_are_refused_by_path(part: Any, can: Any) -> None:
    with pytest.raises(UnsupportedFeature) as told:
        write(asked(turn("user", "x", part, path="messages[0]")), **can)
    assert told.value.param == "messages[0].content[1]"


def test_b005_pictures_in_results_and_of_the_assistant() -> None:
    made = ToolCall(id="k", name="f", arguments="{}")
    shot = ToolResult(call_id="k", parts=[Text(text="shot"), Image(data=PNG)], is_error=True)
    told, _ = write(asked(turn("user", "a"), turn("assistant", made), turn("user", shot)))
    inner = told["messages"][2]["content"][0]
    assert [part["type"] for part in inner["content"]] == ["text", "image"]
    assert inner["is_error"] is True
    told, dropped = write(asked(turn("user", "a"), turn("assistant", made), turn("user", shot)), images=False)
    assert told["messages"][2]["content"][0]["content"][1] == said("[picture left out]")
    assert dropped == ["messages.content[0].content[1]"]
    told, dropped = write(
        asked(turn("user", "a"), turn("assistant", "b", Image(data=PNG)), turn("user", "c"))
    )
    assert [part["type"] for part in told["messages"][2]["content"]] == ["text", "image", "text"]
    assert dropped == ["messages.content[1]"]


TOOL = Tool(name="f", parameters={"type": "object", "properties": {}})


def test_tools_are_written() -> None:
    told, dropped = write(
        asked(
            tools=[
                Tool(name="f", description="D", parameters=None, strict=False),
                Tool(
                    name="g.h", parameters={"properties": {"a": {}}}, strict=True, cache=CacheMark(ttl="30m")
                ),
                Tool(name="c", custom=True, format={"type": "grammar"}),
            ],
            web_search={"max_uses": 2, "search_context_size": "low"},
        )
    )
    free = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    fitted = next(iter(tool_names(asked(tools=[Tool(name="g.h")]))))
    assert told["tools"] == [
        {"name": "f", "description": "D", "input_schema": {"type": "object", "properties": {}}},
        {
            "name": fitted,
            "input_schema": {"type": "object", "properties": {"a": {}}},
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
        },
        {"name": "c", "input_schema": free},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
    ]  # fmt: skip
    assert dropped == ["tools[1].strict", "tools[2].format", "web_search.search_context_size"]
    assert write(asked(tools=[Tool(name="f", parameters={}, strict=True)]), strict_tools=True)[0]["tools"][0][
        "strict"
    ]
    with pytest.raises(UnsupportedFeature):
        write(asked(tools=[Tool(name="f", parameters={"type": "array"})]))
    with pytest.raises(UnsupportedFeature):
        write(asked(tools=[TOOL]), tools=False)


@pytest.mark.parametrize(
    ("choice", "parallel", "told"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice(mode="auto"), None, {"type": "auto"}),
        (ToolChoice(mode="auto"), True, {"type": "auto"}),
        (ToolChoice(mode="auto"), False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice(mode="none"), None, {"type": "none"}),
        (ToolChoice(mode="none"), True, {"type": "none"}),
        (ToolChoice(mode="none"), False, {"type": "none"}),
        (ToolChoice(mode="required"), None, {"type": "any"}),
        (ToolChoice(mode="required"), True, {"type": "any"}),
        (ToolChoice(mode="required"), False, {"type": "any", "disable_parallel_tool_use": True}),
        (ToolChoice(mode="tool", names=["f"]), None, {"type": "tool", "name": "f"}),
        (ToolChoice(mode="tool", names=["f"]), True, {"type": "tool", "name": "f"}),
        (
            ToolChoice(mode="tool", names=["f"]),
            False,
            {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_b070_tool_choice_and_the_parallel_flag(
    choice: ToolChoice | None, parallel: bool | None, told: Any
) -> None:
    written, _ = write(asked(tools=[TOOL], tool_choice=choice, parallel_tool_calls=parallel))
    assert written.get("tool_choice") == told
    without, _ = write(asked(tool_choice=choice, parallel_tool_calls=parallel))
    assert not without.keys() & {"tools", "tool_choice"}


def test_a_subset_of_the_tools_and_tools_that_cannot_be_forced() -> None:
    other = Tool(name="g")
    subset = ToolChoice(mode="required", names=["g"])
    told, _ = write(asked(tools=[TOOL, other], tool_choice=subset))
    assert [tool["name"] for tool in told["tools"]] == ["g"]
    assert told["tool_choice"] == {"type": "any"}
    with pytest.raises(UnsupportedFeature):
        write(asked(tools=[TOOL], tool_choice=ToolChoice(mode="required")), forced_tools=False)
    told, dropped = write(
        asked(tools=[TOOL], tool_choice=ToolChoice(mode="required")), "lenient", forced_tools=False
    )
    assert told["tool_choice"] == {"type": "auto"}
    assert dropped == ["tool_choice"]


@pytest.mark.parametrize(
    ("control", "adaptive", "effort", "budget"),
    [
        (ReasoningControl(effort="none"), {"type": "disabled"}, None, None),
        (ReasoningControl(effort="minimal"), {"type": "adaptive"}, "low", 1024),
        (ReasoningControl(effort="low"), {"type": "adaptive"}, "low", 2048),
        (ReasoningControl(effort="medium"), {"type": "adaptive"}, "medium", 8192),
        (ReasoningControl(effort="high"), {"type": "adaptive"}, "high", 24576),
        (ReasoningControl(effort="xhigh"), {"type": "adaptive"}, "xhigh", 32768),
        (ReasoningControl(effort="max"), {"type": "adaptive"}, "max", 32768),
        (ReasoningControl(budget_tokens=0), {"type": "disabled"}, None, None),
        (ReasoningControl(budget_tokens=-1), {"type": "adaptive"}, None, None),
        (ReasoningControl(budget_tokens=2000), {"type": "adaptive"}, "low", 2000),
        (ReasoningControl(budget_tokens=9000), {"type": "adaptive"}, "medium", 9000),
        (ReasoningControl(budget_tokens=20000), {"type": "adaptive"}, "high", 20000),
        (ReasoningControl(budget_tokens=32768), {"type": "adaptive"}, "xhigh", 32768),
    ],
)
def test_thinking_is_asked_for(
    control: ReasoningControl, adaptive: Any, effort: str | None, budget: int | None
) -> None:
    told, dropped = write(asked(reasoning=control, max_output_tokens=64000), reasoning="adaptive")
    assert told["thinking"] == adaptive
    assert told.get("output_config") == (None if effort is None else {"effort": effort})
    assert dropped == []
    told, _ = write(asked(reasoning=control, max_output_tokens=64000), reasoning="budget")
    thinking = None if budget is None else {"type": "enabled", "budget_tokens": budget}
    assert told.get("thinking") == thinking
    assert told["max_tokens"] == 64000


def test_budgets_and_limits() -> None:
    high = ReasoningControl(effort="medium", summary="auto")
    told, _ = write(asked(reasoning=high, max_output_tokens=100, limit_is_visible=True), reasoning="budget")
    assert told["max_tokens"] == 8292
    assert told["thinking"] == {"type": "enabled", "budget_tokens": 8192, "display": "summarized"}
    told, dropped = write(asked(reasoning=high, max_output_tokens=4000), reasoning="budget")
    assert told["thinking"]["budget_tokens"] == 3999
    assert dropped == ["reasoning"]
    told, dropped = write(asked(reasoning=high, max_output_tokens=500), reasoning="budget")
    assert "thinking" not in told
    assert dropped == ["reasoning"]
    told, dropped = write(
        asked(reasoning=high, max_output_tokens=99_999), max_output_tokens=9000, reasoning="none"
    )
    assert told["max_tokens"] == 9000
    assert dropped == ["max_tokens", "reasoning"]
    told, dropped = write(
        asked(reasoning=ReasoningControl(effort="none")), reasoning="adaptive", reasoning_off=False
    )
    assert told["output_config"] == {"effort": "low"}
    assert dropped == ["reasoning"]


def test_a_tool_loop_that_lost_its_thought_goes_on_without_thinking() -> None:
    made = ToolCall(id="k", name="f", arguments="{}")
    done = turn("user", ToolResult(call_id="k", parts=[]))
    effort = ReasoningControl(effort="low")
    told, dropped = write(
        asked(turn("user", "a"), turn("assistant", made), done, reasoning=effort), reasoning="budget"
    )
    assert "thinking" not in told
    assert dropped == ["reasoning"]
    thought = Reasoning(text="t", opaque=Opaque(vendor="anthropic", kind="signature", value="V"))
    request = asked(turn("user", "a"), turn("assistant", thought, made), done, reasoning=effort)
    assert write(request, reasoning="budget")[0]["thinking"]["budget_tokens"] == 2048


@pytest.mark.parametrize(
    "field", [{"temperature": 0.3}, {"tools": [TOOL], "tool_choice": ToolChoice(mode="required")}]
)
def test_what_cannot_stand_beside_a_thinking_budget(field: Any) -> None:
    with pytest.raises(UnsupportedFeature):
        write(asked(reasoning=ReasoningControl(effort="low"), **field), reasoning="budget")


def test_sampling() -> None:
    told, dropped = write(asked(temperature=1.7, top_k=40.0))
    assert (told["temperature"], told["top_k"]) == (1.0, 40)
    assert dropped == ["temperature"]
    told, dropped = write(asked(temperature=0.2, top_p=0.9))
    assert "top_p" not in told
    assert dropped == ["top_p"]
    told, dropped = write(asked(temperature=0.2, top_p=0.9, top_k=1), temperature=False)
    assert not told.keys() & {"temperature", "top_p", "top_k"}
    assert dropped == ["temperature", "top_p", "top_k"]
    assert write(asked(temperature=1), "strict", temperature=False)[1] == ["temperature"]
    with pytest.raises(UnsupportedFeature):
        write(asked(temperature=0.3), "strict", temperature=False)


@pytest.mark.parametrize("key", ["items", "anyOf", "properties"])
def test_a_schema_that_is_nested_too_deeply_is_refused(key: str) -> None:
    schema: Any = {"type": "string"}
    for _ in range(700):
        schema = {key: [schema] if key == "anyOf" else {"a": schema} if key == "properties" else schema}
    with pytest.raises(UnsupportedFeature, match="nested too deeply"):
        write(asked(response_format=ResponseFormat(kind="json_schema", schema=schema)))


def test_b055_structured_output() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}}
    schema = {
        "type": "object",
        "properties": {
            "minimum": {"type": "integer", "minimum": 3, "description": "D"},
            "list": {"type": "array", "items": inner},
        },
        "$defs": {"x": {"type": "object"}},
    }  # fmt: skip
    shape = ResponseFormat(kind="json_schema", name="r", schema=schema, strict=True)
    told, dropped = write(asked(response_format=shape))
    closed = told["output_config"]["format"]["schema"]
    assert closed["additionalProperties"] is False
    assert closed["properties"]["minimum"] == {"type": "integer", "description": "D (minimum: 3)"}
    assert closed["properties"]["list"]["items"]["properties"]["a"]["description"] == "maxLength: 5"
    assert closed["properties"]["list"]["items"]["additionalProperties"] is False
    assert closed["$defs"]["x"]["additionalProperties"] is False
    assert "minimum" in schema["properties"]["minimum"]  # type: ignore[index]  # the client's own is left alone
    assert dropped == []
    told, dropped = write(asked(response_format=shape), response_schema=False)
    assert "JSON Schema" in told["system"]
    assert dropped == ["response_format"]
    told, dropped = write(
        asked(turn("system", "S"), turn("user", "u"), response_format=ResponseFormat(kind="json_object"))
    )
    assert [block["text"][:6] for block in told["system"]] == ["S", "Answer"]
    assert dropped == ["response_format"]
    maps = ResponseFormat(
        kind="json_schema", schema={"type": "object", "additionalProperties": {"type": "string"}}
    )
    assert write(asked(response_format=maps))[1] == ["response_format"]


def test_what_this_format_cannot_say() -> None:
    told, dropped = write(
        asked(seed=1, frequency_penalty=0.5, presence_penalty=0.0, verbosity="low", metadata={"a": "b"},
              prompt_cache_key="k", service_tier="priority", logit_bias={}, user="a@b.example", stop=["END", ""])
    )  # fmt: skip
    assert dropped == [
        "seed",
        "frequency_penalty",
        "verbosity",
        "metadata",
        "prompt_cache_key",
        "service_tier",
    ]
    assert told["stop_sequences"] == ["END"]
    assert "@" not in told["metadata"]["user_id"]
    assert "service_tier" not in told
    assert write(asked(service_tier="default"))[0]["service_tier"] == "standard_only"
    for field in (
        {"choices": 2},
        {"suffix": "x"},
        {"logit_bias": {"1": 5.0}},
        {"logprobs": True},
        {"stop": [" "], "choices": 2},
    ):
        with pytest.raises(UnsupportedFeature):
            write(asked(**field))  # type: ignore[arg-type]
    for field in ({"logit_bias": {"1": 5.0}}, {"logprobs": True}, {"stop": [" "]}):  # B058
        assert write(asked(**field), "lenient")[1] == [next(iter(field))]  # type: ignore[arg-type]


def test_b069_cache_marks_stay_in_place_and_are_few() -> None:
    marked = [Text(text=str(number), cache=CacheMark()) for number in range(6)]
    told, dropped = write(asked(turn("user", *marked)))
    assert ["cache_control" in part for part in told["messages"][0]["content"]] == [False, False] + [True] * 4
    assert dropped == ["cache_control"]


def test_ids_and_names_that_do_not_fit_are_mapped_alike() -> None:
    made = ToolCall(id="call/1 é", name="a.b:c", arguments="{}")
    told, _ = write(
        asked(turn("user", "a"), turn("assistant", made), turn("user", ToolResult(call_id="call/1 é", parts=[])),
              tools=[Tool(name="a.b:c")], tool_choice=ToolChoice(mode="tool", names=["a.b:c"]))
    )  # fmt: skip
    use = told["messages"][1]["content"][0]
    assert use["id"] == told["messages"][2]["content"][0]["tool_use_id"]
    assert use["name"] == told["tools"][0]["name"] == told["tool_choice"]["name"]
    assert use["id"].replace("_", "").replace("-", "").isalnum()
    assert tool_names(asked(tools=[Tool(name="a.b:c"), Tool(name="ok")])) == {use["name"]: "a.b:c"}


def test_what_the_format_can_say_goes_round() -> None:
    raw = body(
        user(
            said("a"), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
        ),
        assistant({"type": "thinking", "thinking": "t", "signature": "SG"}, said("b"), call()),
        user(result(is_error=True), said("c")),
        system=[{**said("S"), "cache_control": {"type": "ephemeral"}}],
        stop_sequences=["END"],
        tools=[WEATHER],
        tool_choice={"type": "tool", "name": "w"},
        stream=True,
    )
    told = json.loads(CODEC.encode_request(read(raw)[0], "m", Capabilities(), Notes("strict")))
    assert told == json.loads(raw)


def test_b141_a_conversation_that_another_vendor_began_goes_on_without_its_state() -> None:
    google = seal(Opaque(vendor="google", kind="signature", value="Q0hB"))
    own = seal(Opaque(vendor="anthropic", kind="signature", value="SG"))
    raw = body(
        HI,
        assistant(
            {"type": "thinking", "thinking": "unsigned", "signature": ""},
            {"type": "thinking", "thinking": "own", "signature": "SG"},
            {"type": "redacted_thinking", "data": google},
            call(input={"data": google, "signature": ""}),
            {"type": "redacted_thinking", "data": google},
        ),
        user(result()),
        assistant({"type": "redacted_thinking", "data": google}),
        user(said(google)),
        assistant({"type": "thinking", "thinking": "sealed own", "signature": own}, said("x")),
        HI,
    )
    told = json.loads(AnthropicRequest(raw).upstream_body("up", ask_usage=False))
    assert told["messages"] == [
        HI,
        assistant(
            {"type": "thinking", "thinking": "own", "signature": "SG"},
            call(input={"data": google, "signature": ""}),
        ),
        user(result()),
        user(said(google)),
        assistant({"type": "thinking", "thinking": "sealed own", "signature": "SG"}, said("x")),
        HI,
    ]
    untouched = body(HI, assistant(said('"gw1.')), HI, model="up")
    assert AnthropicRequest(untouched).upstream_body("up", ask_usage=False) == untouched
