"""Requests of Gemini clients read and decoded, requests to Gemini providers encoded, and both there and back."""

import base64
import json
from typing import Any

import pytest

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
from sluicegate.wire.gemini import CODEC
from sluicegate.wire.gemini_counting import (
    decode_count_answer,
    decode_count_request,
    encode_count_answer,
    encode_count_request,
)
from sluicegate.wire.gemini_schema import from_json_schema, to_json_schema
from sluicegate.wire.translation import Notes, Policy
from tests.wire.gemini_world import dumps

HI = {"role": "user", "parts": [{"text": "hi"}]}
PNG = "iVBORw0KGgo="
CAN = Capabilities(reasoning="level")
STAND_IN = "skip_thought_signature_validator"


def decode(body: Any, policy: Policy = "default") -> tuple[Request, list[str]]:
    notes = Notes(policy)
    request = CODEC.decode_request(dumps(body), notes, "m")
    return request, notes.dropped


def contents(*turns: Any, **more: Any) -> list[Message]:
    return decode({"contents": list(turns), **more})[0].messages


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def config(**fields: Any) -> Request:
    return decode({"contents": [HI], "generationConfig": fields})[0]


def encode(
    request: Request, can: Capabilities = CAN, policy: Policy = "default"
) -> tuple[dict[str, Any], list[str]]:
    notes = Notes(policy)
    return json.loads(CODEC.encode_request(request, "gemini-x", can, notes)), notes.dropped


def asking(*messages: Message, **fields: Any) -> Request:
    return Request(model="p", messages=list(messages), **fields)


def said(role: Any, *parts: Any) -> Message:
    return Message(role=role, parts=[Text(text=part) if isinstance(part, str) else part for part in parts])


# ---- spelling --------------------------------------------------------------------------------------------------------


def test_both_spellings_at_every_level_and_enums_in_any_case() -> None:
    """The SDK itself mixes them in one body."""
    snake = {
        "contents": [{"parts": [{"inline_data": {"mime_type": "IMAGE/PNG", "data": PNG}}, {"text": "?"}]}],
        "system_instruction": {"parts": [{"text": "S"}]},
        "tools": [
            {
                "function_declarations": [
                    {"name": "f", "parameters_json_schema": {"type": "object", "a_b": 1}}
                ]
            },
            {"google_search": {}},
        ],
        "tool_config": {"function_calling_config": {"mode": "any", "allowed_function_names": ["f"]}},
        "safety_settings": [{"category": "c", "threshold": "block_none"}],
        "generation_config": {
            "max_output_tokens": "17",
            "topK": 3.0,
            "top_p": "0.5",
            "candidate_count": 2.0,
            "thinkingConfig": {"include_thoughts": True, "thinking_level": "low"},
            "stop_sequences": ["X"],
            "response_mime_type": "application/json",
        },
    }
    request, dropped = decode(snake)
    assert request.messages[0].role == "system"
    assert request.messages[1].parts == [Image(data=PNG, media_type="image/png"), Text(text="?")]
    assert request.tools == [Tool(name="f", parameters={"type": "object", "a_b": 1})]
    assert request.tool_choice == ToolChoice(mode="tool", names=["f"])
    assert (request.max_output_tokens, request.top_k, request.top_p, request.choices) == (17, 3.0, 0.5, 2)
    assert request.reasoning == ReasoningControl(effort="low", show=True)
    assert request.response_format == ResponseFormat(kind="json_object")
    assert request.web_search == {}
    assert dropped == ["safetySettings[0].threshold;not supported"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"contents":[],"generationConfig":{},"generation_config":{}}', "generationConfig"),
        (b'{"contents":[],"contents":[]}', "contents"),
        (b'{"contents":[{}],"generationConfig":{"topP":1,"top_p":1}}', "generationConfig.topP"),
        (
            b'{"contents":[{}],"generationConfig":{"maxOutputTokens":1,"max_output_tokens":1}}',
            "generationConfig.maxOutputTokens",
        ),
        (
            b'{"contents":[{}],"generationConfig":{"maxOutputTokens":1,"maxOutputTokens":1}}',
            "generationConfig.maxOutputTokens",
        ),
        (b'{"contents":[{}],"cachedContent":"a","cached\\u005fcontent":"b"}', "cachedContent"),
    ],
)
def test_both_spellings_are_one_key(body: bytes, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        CODEC.read_request(body, "m", True)
    assert caught.value.param == param


def test_two_spellings_deeper_inside_are_refused_too() -> None:
    body = {"contents": [user({"inlineData": {"mimeType": "image/png", "mime_type": "x", "data": PNG}})]}
    with pytest.raises(BadRequest) as caught:
        decode(body)
    assert caught.value.param == "contents[0].parts[0].inlineData.mimeType"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "contents"),
        ({"contents": []}, "contents"),
        ({"contents": "hi"}, "contents"),
        ({"contents": [1]}, "contents[0]"),
        ({"contents": [{"role": "system", "parts": [{"text": "x"}]}]}, "contents[0].role"),
        ({"contents": [user()]}, "contents[0].parts"),
        ({"contents": [user({})]}, "contents[0].parts[0]"),
        ({"contents": [user({"text": 1})]}, "contents[0].parts[0].text"),
        (
            {"contents": [user({"inlineData": {"mimeType": "image/png", "data": "!"}})]},
            "contents[0].parts[0].inlineData.data",
        ),
        ({"contents": [user({"inlineData": {"data": PNG}})]}, "contents[0].parts[0].inlineData.mimeType"),
        ({"contents": [user({"fileData": {}})]}, "contents[0].parts[0].fileData"),
        ({"contents": [user({"functionCall": {"name": "f"}})]}, "contents[0].parts[0].functionCall"),
        (
            {"contents": [model({"functionCall": {"name": "f", "args": "{}"}})]},
            "contents[0].parts[0].functionCall.args",
        ),
        ({"contents": [model({"functionCall": {}})]}, "contents[0].parts[0].functionCall.name"),
        ({"contents": [model({"functionResponse": {"name": "f"}})]}, "contents[0].parts[0].functionResponse"),
        (
            {"contents": [user({"functionResponse": {"name": "f", "response": {}}})]},
            "contents[0].parts[0].functionResponse",
        ),
        (
            {"contents": [model({"text": "a", "thoughtSignature": "gw1.!"})]},
            "contents[0].parts[0].thoughtSignature",
        ),
        (
            {"contents": [HI], "systemInstruction": {"parts": [{"inlineData": {}}]}},
            "systemInstruction.parts[0]",
        ),
        (
            {"contents": [HI], "tools": [{"functionDeclarations": [{}]}]},
            "tools[0].functionDeclarations[0].name",
        ),
        (
            {"contents": [HI], "toolConfig": {"functionCallingConfig": {"mode": "x"}}},
            "toolConfig.functionCallingConfig.mode",
        ),
        (
            {"contents": [HI], "toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["f"]}}},
            "toolConfig.functionCallingConfig.allowedFunctionNames[0]",
        ),
        ({"contents": [HI], "generationConfig": {"temperature": 3}}, "generationConfig.temperature"),
        ({"contents": [HI], "generationConfig": {"topP": "nan"}}, "generationConfig.topP"),
        ({"contents": [HI], "generationConfig": {"seed": 1.5}}, "generationConfig.seed"),
        ({"contents": [HI], "generationConfig": {"maxOutputTokens": 0}}, "generationConfig.maxOutputTokens"),
        (
            {"contents": [HI], "generationConfig": {"stopSequences": list("abcdef")}},
            "generationConfig.stopSequences",
        ),
        ({"contents": [HI], "generationConfig": {"responseSchema": {}}}, "generationConfig.responseMimeType"),
        (
            {
                "contents": [HI],
                "generationConfig": {"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}},
            },
            "generationConfig.thinkingConfig.thinkingBudget",
        ),
    ],
)
def test_errors_name_the_path_of_the_field(body: Any, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode(body)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"contents": [user({"hologram": {}})]}, "contents[0].parts[0].hologram"),
        ({"contents": [model({"executableCode": {"code": "x"}})]}, "contents[0].parts[0].executableCode"),
        (
            {"contents": [user({"fileData": {"fileUri": "x", "mimeType": "video/mp4"}})]},
            "contents[0].parts[0].fileData",
        ),
        ({"contents": [HI], "cachedContent": "cachedContents/1"}, "cachedContent"),
        ({"contents": [HI], "tools": [{"codeExecution": {}}]}, "tools[0].codeExecution"),
        (
            {"contents": [HI], "generationConfig": {"responseModalities": ["IMAGE"]}},
            "generationConfig.responseModalities",
        ),
        ({"contents": [HI], "generationConfig": {"speechConfig": {}}}, "generationConfig.speechConfig"),
    ],
)
def test_what_only_this_vendor_has_is_refused_by_name(body: Any, param: str) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        decode(body)
    assert caught.value.param == param


def test_what_may_be_left_out_is_named_and_strict_refuses_it() -> None:
    body = {
        "contents": [HI],
        "labels": {"a_b": "c"},
        "novelty": 1,
        "safetySettings": [{"category": "c", "threshold": "BLOCK_LOW_AND_ABOVE"}],
    }
    _, dropped = decode(body)
    assert [entry.partition(";")[0] for entry in dropped] == [
        "safetySettings[0].threshold",
        "labels",
        "novelty",
    ]
    with pytest.raises(UnsupportedFeature):
        decode(body, "strict")
    decode({"contents": [HI], "labels": {}}, "strict")


# ---- the conversation ------------------------------------------------------------------------------------------------


def test_an_answer_sent_back_event_by_event_is_one_turn() -> None:
    messages = contents(
        HI,
        model({"text": "Let ", "thought": True}),
        model({"text": "me", "thought": True}),
        model({"text": "a"}),
        model({"text": "b"}),
        model({"text": "", "thoughtSignature": "U0l-"}),
        HI,
    )
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert messages[1].parts == [
        Reasoning(text="Let me", summary=True),
        Text(text="a"),
        Text(text="b", opaque=Opaque(vendor="google", kind="signature", value="U0l+")),
    ]


def test_calls_and_results_pair_by_id_or_by_name_and_order() -> None:
    """B078, B125."""
    with_ids = contents(
        HI,
        model(
            {"functionCall": {"id": "a", "name": "w", "args": {"n": 1.0}}},
            {"functionCall": {"id": "b", "name": "w"}},
        ),
        user({"functionResponse": {"id": "b", "name": "w", "response": {"output": "two"}}}),
        user({"functionResponse": {"id": "a", "name": "w", "response": {"error": "bad"}}}, {"text": "go on"}),
    )
    results = [part for message in with_ids for part in message.parts if isinstance(part, ToolResult)]
    assert [(one.call_id, one.is_error) for one in results] == [("b", False), ("a", True)]
    assert with_ids[1].parts[0] == ToolCall(id="a", name="w", arguments='{"n":1.0}')
    without = contents(
        HI,
        model(
            {"functionCall": {"name": "w"}}, {"functionCall": {"name": "v"}}, {"functionCall": {"name": "w"}}
        ),
        {
            "role": "function",
            "parts": [{"functionResponse": {"name": name, "response": {"output": name}}} for name in "wwv"],
        },
    )
    assert [part.call_id for part in without[2].parts if isinstance(part, ToolResult)] == [
        "call_0",
        "call_2",
        "call_1",
    ]
    with pytest.raises(BadRequest):
        contents(
            HI,
            model({"functionCall": {"id": "a", "name": "w"}}),
            user({"functionResponse": {"id": "z", "name": "w"}}),
        )


def test_results_keep_their_objects_and_their_pictures() -> None:
    result = {
        "name": "w",
        "response": {"n": 1.0, "s": "é"},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}],
    }
    messages = contents(
        HI, model({"functionCall": {"name": "w"}}), user({"text": "t"}, {"functionResponse": result})
    )
    assert messages[2].parts == [
        ToolResult(
            call_id="call_0",
            name="w",
            parts=[Text(text='{"n":1.0,"s":"é"}'), Image(data=PNG, media_type="image/png")],
        ),
        Text(text="t"),
    ]


def test_state_of_other_vendors_is_opened_and_the_stand_in_means_nothing() -> None:
    state = Opaque(vendor="anthropic", kind="signature", value="s", model="c")
    sealed = base64.b64encode(seal(state).encode()).decode()
    messages = contents(
        HI,
        model({"text": "th", "thought": True}),
        model({"text": "", "thought": True, "thoughtSignature": sealed.replace("+", "-").replace("/", "_")}),
        model({"functionCall": {"name": "f"}, "thoughtSignature": STAND_IN}),
        model(
            {"functionCall": {"name": "g"}, "thoughtSignature": base64.b64encode(STAND_IN.encode()).decode()}
        ),
    )
    assert messages[1].parts[0] == Reasoning(text="th", opaque=state, summary=True)
    assert all(part.opaque is None for part in messages[1].parts[1:] if isinstance(part, ToolCall))


def test_media_by_kind() -> None:
    """B019."""
    parts = contents(
        user(
            {"inlineData": {"mimeType": "audio/mpeg", "data": "UklGRg"}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0=", "displayName": "a.pdf"}},
            {
                "fileData": {"fileUri": "gs://b/c.png", "mimeType": "image/png"},
                "mediaResolution": {"level": "media_resolution_low"},
            },
        )
    )[0].parts
    assert parts == [
        Audio(data="UklGRg==", format="mp3"),
        File(data="JVBERi0=", media_type="application/pdf", filename="a.pdf"),
        Image(file_id="gs://b/c.png", media_type="image/png", detail="low"),
    ]


def test_a_bare_string_and_single_objects_are_taken() -> None:
    request, _ = decode({"contents": {"parts": {"text": "x"}}, "systemInstruction": "S"})
    assert [message.role for message in request.messages] == ["system", "user"]


def test_schemas_of_the_own_dialect_become_json_schema() -> None:
    own = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True, "enum": ["a"]},
            "items": {
                "type": "array",
                "min_items": "2",
                "items": {"any_of": [{"type": "NUMBER"}], "nullable": True},
            },
        },
        "propertyOrdering": ["type"],
        "required": ["type"],
    }
    assert to_json_schema(own) == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["a", None]},
            "items": {
                "type": "array",
                "minItems": 2,
                "items": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            },
        },
        "required": ["type"],
    }


def test_json_schema_becomes_the_own_dialect() -> None:
    """B006."""
    schema = {
        "$schema": "x",
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"], "exclusiveMinimum": 1},
            "b": {"type": "array", "prefixItems": [{"type": "string"}], "uniqueItems": True},
            "format": {"$ref": "#/$defs/F"},
            "c": {"const": "x"},
        },
        "$defs": {"F": {"type": "object", "properties": {"self": {"$ref": "#/$defs/F"}}}},
        "additionalProperties": False,
    }
    lost: list[str] = []
    assert from_json_schema(schema, lost.append) == {
        "type": "OBJECT",
        "properties": {
            "a": {"type": "STRING", "nullable": True, "description": "exclusiveMinimum: 1"},
            "b": {
                "type": "ARRAY",
                "items": {},
                "description": 'prefixItems: [{"type":"string"}] uniqueItems: true',
            },
            "format": {"type": "OBJECT", "properties": {"self": {"type": "OBJECT"}}},
            "c": {"type": "STRING", "enum": ["x"]},
        },
    }
    assert sorted(lost) == ["$ref", "exclusiveMinimum", "prefixItems", "uniqueItems"]


@pytest.mark.parametrize(
    ("calling", "expected"),
    [
        ({"mode": "AUTO"}, ToolChoice(mode="auto")),
        ({"mode": "NONE"}, ToolChoice(mode="none")),
        ({"mode": "ANY"}, ToolChoice(mode="required")),
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, ToolChoice(mode="tool", names=["f"])),
        ({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}, ToolChoice(mode="required", names=["f", "g"])),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["g"]}, ToolChoice(mode="auto", names=["g"])),
        ({"mode": "MODE_UNSPECIFIED"}, None),
    ],
)
def test_tool_choice_there_and_back(calling: dict[str, Any], expected: ToolChoice | None) -> None:
    tools = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]
    request, _ = decode({"contents": [HI], "tools": tools, "toolConfig": {"functionCallingConfig": calling}})
    assert request.tool_choice == expected
    body, _ = encode(request)
    if expected is not None:
        assert body["toolConfig"]["functionCallingConfig"] == calling


# ---- requests to providers -------------------------------------------------------------------------------------------


def test_a_conversation_there_and_back() -> None:
    body = {
        "systemInstruction": {"parts": [{"text": "S"}, {"text": "T"}]},
        "contents": [
            user({"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}),
            model(
                {"text": "b"},
                {"functionCall": {"id": "c1", "name": "f", "args": {"n": 1.0}}, "thoughtSignature": "U0lH"},
                {"functionCall": {"id": "c2", "name": "g", "args": {}}},
            ),
            user(
                {"functionResponse": {"id": "c1", "name": "f", "response": {"x": [1.0]}}},
                {"functionResponse": {"id": "c2", "name": "g", "response": {"output": ""}}},
                {"text": "and?"},
            ),
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "f", "description": "d", "parametersJsonSchema": {"type": "object"}},
                    {"name": "g"},
                ]
            }
        ],
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.25,
            "topK": 3,
            "seed": 7,
            "candidateCount": 2,
            "maxOutputTokens": 9,
            "stopSequences": ["X"],
            "responseLogprobs": True,
            "logprobs": 2,
            "thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True},
        },
        "serviceTier": "flex",
    }
    request, dropped = decode(body)
    assert dropped == []
    again, dropped = encode(request)
    assert again == body
    assert dropped == []


def test_turns_are_merged_and_results_grouped() -> None:
    """B020."""
    request = asking(
        said("user", "a"),
        said("user", "b"),
        said(
            "assistant", ToolCall(id="x", name="f", arguments=""), ToolCall(id="y", name="g", arguments="{")
        ),
        said("user", ToolResult(call_id="y", parts=[Text(text="r2")])),
        said("user", ToolResult(call_id="x", parts=[])),
        said("assistant", ""),
        said("user", "c"),
    )
    body, dropped = encode(request)
    assert body["contents"] == [
        user({"text": "a"}, {"text": "b"}),
        model(
            {"functionCall": {"id": "x", "name": "f", "args": {}}},
            {"functionCall": {"id": "y", "name": "g", "args": {"_raw": "{"}}},
        ),
        user(
            {"functionResponse": {"id": "x", "name": "f", "response": {"output": ""}}},
            {"functionResponse": {"id": "y", "name": "g", "response": {"output": "r2"}}},
            {"text": "c"},
        ),
    ]
    assert dropped == ["messages.content[1].arguments;not JSON: sent as text"]


def test_ids_are_left_out_where_the_endpoint_refuses_them() -> None:
    """B125."""
    request = asking(
        said("user", "a"),
        said("assistant", ToolCall(id="x", name="f", arguments="{}")),
        said("user", ToolResult(call_id="x", parts=[Text(text="r")], is_error=True)),
    )
    body, _ = encode(request, Capabilities(call_ids=False))
    assert body["contents"][1:] == [
        model({"functionCall": {"name": "f", "args": {}}}),
        user({"functionResponse": {"name": "f", "response": {"error": "r"}}}),
    ]


def test_system_prompts_lead_or_stay_where_they_are() -> None:
    """B002."""
    request = asking(said("developer", "D"), said("system", "S"), said("user", "U"), said("system", "L"))
    body, dropped = encode(request)
    assert body["systemInstruction"] == {"parts": [{"text": "D"}, {"text": "S"}]}
    assert body["contents"] == [user({"text": "U"}, {"text": "<system>L</system>"})]
    assert len(dropped) == 1
    for policy in ("default", "lenient"):
        with pytest.raises(UnsupportedFeature):
            encode(asking(said("system", "S")), policy=policy)  # type: ignore[arg-type]


def test_first_and_last_turns_of_the_model() -> None:
    request = asking(said("assistant", "A"), said("user", "U"), said("assistant", "P"), continues=True)
    with pytest.raises(UnsupportedFeature):
        encode(request)
    body, _ = encode(request, policy="lenient")
    assert body["contents"][0] == user({"text": "(conversation start)"})
    assert body["contents"][-1] == model({"text": "P"})
    with pytest.raises(UnsupportedFeature):
        encode(asking(said("user", "U"), said("assistant", "P")), Capabilities(prefill=False))


def test_orphan_and_missing_results() -> None:
    call = said("assistant", ToolCall(id="x", name="f", arguments="{}"))
    with pytest.raises(UnsupportedFeature):
        encode(asking(said("user", "a"), said("user", ToolResult(call_id="z", parts=[]))))
    unanswered = asking(said("user", "a"), call, said("user", "b"))
    with pytest.raises(UnsupportedFeature):
        encode(unanswered)
    body, _ = encode(unanswered, policy="lenient")
    assert body["contents"][2]["parts"][0]["functionResponse"]["response"] == {"error": "[no result]"}


def test_signatures_go_back_to_the_call_they_came_on_and_nobody_elses_is_sent() -> None:
    mine = Opaque(vendor="google", kind="signature", value="U0lH", model="gemini-x-001", id="c1")
    theirs = Opaque(vendor="anthropic", kind="signature", value="s")
    turn = said(
        "assistant",
        Reasoning(text="th", opaque=mine),
        Reasoning(text="", opaque=theirs),
        ToolCall(id="c1", name="f", arguments="{}"),
    )
    result = said("user", ToolResult(call_id="c1", parts=[Text(text="r")]))
    body, _ = encode(asking(said("user", "a"), turn, result))
    assert body["contents"][1]["parts"] == [
        {"text": "th", "thought": True},
        {"functionCall": {"id": "c1", "name": "f", "args": {}}, "thoughtSignature": "U0lH"},
    ]
    other = Opaque(vendor="google", kind="signature", value="U0lH", model="gemini-y", id="c1")
    turn.parts[0] = Reasoning(text="", opaque=other)
    body, dropped = encode(asking(said("user", "a"), turn, result))
    assert "thoughtSignature" not in body["contents"][1]["parts"][0]
    assert dropped == ["reasoning;thoughts go back only to the model that made them"]


def test_a_signature_without_a_call_stays_on_its_part() -> None:
    state = Opaque(vendor="google", kind="signature", value="U0lH")
    turn = said("assistant", Text(text="a", opaque=state), Reasoning(text="", opaque=state))
    body, _ = encode(asking(said("user", "u"), turn, said("user", "v")))
    assert body["contents"][1]["parts"] == [
        {"text": "a", "thoughtSignature": "U0lH"},
        {"text": "", "thoughtSignature": "U0lH"},
    ]


def test_the_first_call_of_each_step_of_the_current_turn_gets_a_stand_in() -> None:
    def step(name: str, opaque: Opaque | None = None) -> list[Message]:
        return [
            said(
                "assistant",
                ToolCall(id=name, name="f", arguments="{}", opaque=opaque),
                ToolCall(id=name + "2", name="g", arguments="{}"),
            ),
            said("user", ToolResult(call_id=name, parts=[]), ToolResult(call_id=name + "2", parts=[])),
        ]

    state = Opaque(vendor="google", kind="signature", value="U0lH")
    messages = [said("user", "a"), *step("x"), said("user", "b"), *step("y"), *step("z", state)]
    can = Capabilities(signed_calls=True)
    body, dropped = encode(asking(*messages), can)
    signatures = [
        [part.get("thoughtSignature") for part in turn["parts"]]
        for turn in body["contents"]
        if turn["role"] == "model"
    ]
    assert signatures == [[None, None], [STAND_IN, None], ["U0lH", None]]
    assert len(dropped) == 1
    body, _ = encode(asking(*messages))
    assert STAND_IN not in json.dumps(body)


def test_media_go_inline_and_addresses_are_refused() -> None:
    """B019."""
    parts = [
        Audio(data="UklGRg==", format="wav"),
        Audio(data="UklGRg==", format="mp3"),
        File(data="JVBERi0=", filename="a.pdf"),
        File(text="é"),
        Image(url="https://generativelanguage.googleapis.com/v1beta/files/a", media_type="image/png"),
        Image(data=PNG, media_type="image/jpeg", detail="low"),
    ]
    body, dropped = encode(asking(said("user", *parts)), Capabilities(audio=True, media_resolution=True))
    assert body["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
        {"inlineData": {"mimeType": "audio/mpeg", "data": "UklGRg=="}},
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
        {"inlineData": {"mimeType": "text/plain", "data": "w6k="}},
        {
            "fileData": {
                "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/a",
                "mimeType": "image/png",
            }
        },
        {
            "inlineData": {"mimeType": "image/png", "data": PNG},
            "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"},
        },
    ]
    assert dropped == ["filename;files have no names"]
    for part in (Image(url="https://x.example/a.png"), File(file_id="file-1"), parts[0]):
        with pytest.raises(UnsupportedFeature):
            encode(asking(said("user", part)))


def test_pictures_in_results_stay_or_move_behind_all_results() -> None:
    """B005."""
    messages = [
        said("user", "a"),
        said(
            "assistant",
            ToolCall(id="x", name="f", arguments="{}"),
            ToolCall(id="y", name="g", arguments="{}"),
        ),
        said(
            "user",
            ToolResult(call_id="x", parts=[Text(text="shot"), Image(data=PNG)]),
            ToolResult(call_id="y", parts=[]),
        ),
    ]
    body, _ = encode(asking(*messages), Capabilities(images_in_results=True))
    response = body["contents"][2]["parts"][0]["functionResponse"]
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": PNG}}]
    body, dropped = encode(asking(*messages))
    kinds = [next(iter(part)) for part in body["contents"][2]["parts"]]
    assert kinds == ["functionResponse", "functionResponse", "text", "inlineData"]
    assert len(dropped) == 1


def test_tools_names_and_schemas() -> None:
    tools = [
        Tool(
            name="9lives", description="d", parameters={"type": "object", "properties": {"a": {"const": 1}}}
        ),
        Tool(name="custom", custom=True),
        Tool(name="empty", strict=True),
    ]
    request = asking(said("user", "a"), tools=tools, parallel_tool_calls=False)
    body, dropped = encode(request)
    declared = body["tools"][0]["functionDeclarations"]
    assert CODEC.tool_names(request) == {declared[0]["name"]: "9lives"}
    assert declared[0]["parametersJsonSchema"] == tools[0].parameters
    assert declared[1]["parametersJsonSchema"]["properties"] == {"input": {"type": "string"}}
    assert declared[2] == {"name": "empty"}
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "VALIDATED"}
    assert dropped == ["parallel_tool_calls;this format cannot forbid several calls at once"]
    body, _ = encode(request, Capabilities(clean_schemas=True))
    declared = body["tools"][0]["functionDeclarations"]
    assert declared[0]["parameters"]["properties"] == {"a": {"enum": ["1"], "type": "STRING"}}


@pytest.mark.parametrize(
    ("reasoning", "control", "expected"),
    [
        ("level", {"effort": "none"}, {"thinkingLevel": "MINIMAL"}),
        ("level", {"effort": "medium", "show": True}, {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("level", {"effort": "max"}, {"thinkingLevel": "HIGH"}),
        ("level", {"budget_tokens": 5000}, {"thinkingLevel": "MEDIUM"}),
        ("level", {"budget_tokens": -1, "show": False}, {"includeThoughts": False}),
        ("budget", {"effort": "none"}, {"thinkingBudget": 0}),
        ("budget", {"effort": "minimal"}, {"thinkingBudget": 1024}),
        ("budget", {"effort": "high", "summary": "auto"}, {"thinkingBudget": 24576, "includeThoughts": True}),
        ("budget", {"effort": "xhigh"}, {"thinkingBudget": 32768}),
        ("budget", {"budget_tokens": -1}, {"thinkingBudget": -1}),
        ("budget", {"budget_tokens": 99999}, {"thinkingBudget": 32768}),
        ("effort", {"budget_tokens": 2048}, {"thinkingBudget": 2048}),
        ("effort", {"effort": "low"}, {"thinkingLevel": "LOW"}),
        ("none", {"effort": "high"}, None),
    ],
)
def test_reasoning_by_capability(reasoning: Any, control: dict[str, Any], expected: Any) -> None:
    request = asking(said("user", "a"), reasoning=ReasoningControl(**control))
    body, _ = encode(request, Capabilities(reasoning=reasoning))
    assert body.get("generationConfig", {}).get("thinkingConfig") == expected


def test_the_answers_shape() -> None:
    """B055."""
    schema = {"type": "object", "properties": {"a": {"type": ["number", "null"]}}}
    request = asking(
        said("user", "a"), response_format=ResponseFormat(kind="json_schema", schema=schema, strict=True)
    )
    mime = {"responseMimeType": "application/json"}
    assert encode(request)[0]["generationConfig"] == {**mime, "responseJsonSchema": schema}
    cleaned = encode(request, Capabilities(clean_schemas=True))[0]["generationConfig"]["responseSchema"]
    assert cleaned["properties"]["a"] == {"type": "NUMBER", "nullable": True}
    request.tools = [Tool(name="f")]
    with pytest.raises(UnsupportedFeature):
        encode(request, Capabilities(json_with_tools=False))
    assert (
        encode(asking(said("user", "a"), response_format=ResponseFormat(kind="json_object")))[0][
            "generationConfig"
        ]
        == mime
    )


def test_limits_sampling_and_the_rest() -> None:
    request = asking(
        said("user", Text(text="a", cache=CacheMark())),
        max_output_tokens=100,
        temperature=2.0,
        top_p=1.0,
        frequency_penalty=0.0,
        presence_penalty=0.5,
        user="u",
        service_tier="priority",
        logit_bias={"1": 1.0},
    )
    can = Capabilities(max_output_tokens=50, max_temperature=1.0)
    with pytest.raises(UnsupportedFeature) as caught:
        encode(request, can)
    assert caught.value.param == "logit_bias"
    body, dropped = encode(request, can, "lenient")
    assert body["generationConfig"] == {
        "temperature": 1.0,
        "topP": 1.0,
        "presencePenalty": 0.5,
        "maxOutputTokens": 50,
    }
    assert body["serviceTier"] == "priority"
    assert [entry.partition(";")[0] for entry in dropped] == [
        "logit_bias",
        "user",
        "cache_control",
        "temperature",
        "max_tokens",
    ]
    body, dropped = encode(
        asking(said("user", "a"), temperature=1.0, top_k=3.0), Capabilities(temperature=False)
    )
    assert "generationConfig" not in body
    assert [entry.partition(";")[0] for entry in dropped] == ["temperature", "top_k"]
    body, dropped = encode(asking(said("user", "a"), stop=list("abcdef")))
    assert body["generationConfig"]["stopSequences"] == list("abcd")
    assert [entry.partition(";")[0] for entry in dropped] == ["stop"], "the others are cut here"


def test_web_search_there_and_refused_limits() -> None:
    body, dropped = encode(asking(said("user", "a"), web_search={"user_location": {"city": "X"}}))
    assert body["tools"] == [{"googleSearch": {}}]
    assert dropped == ["web_search.user_location;not supported"]
    with pytest.raises(UnsupportedFeature):
        encode(asking(said("user", "a"), web_search={"allowed_domains": ["x"]}))


def test_refusals_in_history_are_text() -> None:
    body, _ = encode(asking(said("user", "a"), said("assistant", Refusal(text="no")), said("user", "b")))
    assert body["contents"][1] == model({"text": "no"})


# ---- edges -----------------------------------------------------------------------------------------------------------


def test_edges_of_a_request() -> None:
    body = dumps(
        {
            "contents": [HI, user({"fileData": {"file_uri": "gs://a"}})],
            "generation_config": {"candidateCount": "2", "max_output_tokens": 5.0},
            "cachedContent": "cachedContents/1",
        }
    )
    read = CODEC.read_request(body, "m", True)
    assert (read.model, read.stream, read.choices, read.max_output_tokens) == ("m", True, 2, 5)
    assert (read.include_usage, read.continuous_usage) == (True, False)
    assert read.input_estimate == -(-len(body) // 3) + 2 * 16 + 1600
    assert read.cached_content == "cachedContents/1"  # type: ignore[attr-defined]  # more than the protocol has
    same = CODEC.read_request(dumps({"contents": [HI]}), "m", False)
    assert same.messages_hash == read.messages_hash


def test_a_picture_costs_its_kind_wherever_that_is_said() -> None:
    data = "A" * 40_000
    for blob in ({"data": data, "mime_type": "image/png"}, {"mimeType": "image/png", "data": data}):
        body = dumps({"contents": [user({"inlineData": blob})]})
        assert CODEC.read_request(body, "m", True).input_estimate == -(-(len(body) - 40_000) // 3) + 16 + 1600
    sound = dumps({"contents": [user({"inlineData": {"data": data, "mimeType": "audio/wav"}})]})
    assert CODEC.read_request(sound, "m", True).input_estimate < 900


def test_the_upstreams_body_is_edited_in_its_own_spelling() -> None:
    body = (
        b'{ "model":"models/other", "contents":[{"parts":[{"text":"\\u00e9"}]}],"labels":{}, '
        b'"generation_config" : {"topK":3.0,"max_output_tokens":"9"} }'
    )
    read = CODEC.read_request(body, "m", True)
    assert read.upstream_body("x", ask_usage=True) == body.replace(b'"model":"models/other", ', b"")
    cut = read.upstream_body("x", ask_usage=True, max_output_tokens=4, drop=("labels",))
    assert (
        cut
        == b'{ "contents":[{"parts":[{"text":"\\u00e9"}]}],"generation_config" : {"topK":3.0,"max_output_tokens":4} }'
    )
    bare = CODEC.read_request(b'{"contents":[{}]}', "m", True)
    added = b'{"contents":[{}],"generationConfig":{"maxOutputTokens":7}}'
    assert bare.upstream_body("x", ask_usage=False, max_output_tokens=7) == added


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"contents":null}',
        b'{"contents":{}, "generationConfig":[]}',
        b'{"contents":[[]]}',
        b'{"contents":[{}],"generationConfig":{"candidateCount":99}}',
        b'{"contents":[{}],"x":"\xff"}',
        b'{"contents":[{}],"x":"\\ud800"}',
        b'{"contents":' + b"[" * 10_000,
        b'{"contents":[{"a":1e999}],"cachedContent":3}',
    ],
)
def test_bad_bodies_are_bad_requests(body: bytes) -> None:
    with pytest.raises(BadRequest):
        CODEC.read_request(body, "m", True)


# ---- counting --------------------------------------------------------------------------------------------------------


def test_counting_both_ways() -> None:
    whole = {"generateContentRequest": {"model": "models/m", "contents": [HI], "system_instruction": "S"}}
    for body in (whole, {"contents": [HI]}):
        request = decode_count_request(dumps(body), Notes(), "m")
        assert request.messages[-1].parts == [Text(text="hi")]
    written = json.loads(encode_count_request(request, "gemini-x", CAN, Notes()))
    assert written == {"generateContentRequest": {"model": "models/gemini-x", "contents": [HI]}}
    assert decode_count_answer(encode_count_answer(12)) == 12


# ---- state of other vendors ------------------------------------------------------------------------------------------


def test_foreign_state_never_goes_upstream() -> None:
    """B141."""
    foreign = base64.b64encode(
        seal(Opaque(vendor="anthropic", kind="signature", value="s")).encode()
    ).decode()
    own = base64.b64encode(seal(Opaque(vendor="google", kind="signature", value="U0lH")).encode()).decode()
    body = {
        "contents": [
            HI,
            model({"text": "", "thought": True, "thoughtSignature": foreign}),
            {
                "role": "model",
                "parts": [
                    {"text": "a", "thought_signature": foreign},
                    {"text": "b", "thoughtSignature": own},
                ],
            },
            model({"functionCall": {"name": "f", "args": {"x": 1.0}}, "thoughtSignature": "QUJD"}),
        ]
    }
    sent = CODEC.read_request(dumps(body), "m", True).upstream_body("x", ask_usage=True)
    assert json.loads(sent)["contents"] == [
        HI,
        model({"text": "a"}, {"text": "b", "thoughtSignature": "U0lH"}),
        model({"functionCall": {"name": "f", "args": {"x": 1.0}}, "thoughtSignature": "QUJD"}),
    ]
    untouched = dumps({"contents": [HI, model({"text": "a", "thoughtSignature": "QUJD"})]})
    assert CODEC.read_request(untouched, "m", True).upstream_body("x", ask_usage=True) == untouched


def test_a_last_turn_of_the_model_is_gone_on_with_only_where_the_client_means_it() -> None:
    history = asking(said("user", "U"), said("assistant", "P"))
    assert encode(history, policy="lenient")[0]["contents"][-1] == user({"text": "Continue."})
    history.continues = True
    assert encode(history, policy="lenient")[0]["contents"][-1] == model({"text": "P"})
    assert decode({"contents": [HI]})[0].continues


def test_a_signature_on_text_that_names_a_call_goes_to_the_call() -> None:
    state = Opaque(vendor="google", kind="signature", value="U0lH", id="c1")
    turn = said("assistant", Text(text="a", opaque=state), ToolCall(id="c1", name="f", arguments="{}"))
    body, _ = encode(asking(said("user", "u"), turn, said("user", ToolResult(call_id="c1", parts=[]))))
    assert body["contents"][1]["parts"] == [
        {"text": "a"},
        {"functionCall": {"id": "c1", "name": "f", "args": {}}, "thoughtSignature": "U0lH"},
    ]
