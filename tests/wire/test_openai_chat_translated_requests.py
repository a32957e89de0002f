"""Requests of chat clients decoded, and requests written for chat providers: the matrix, case by case."""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, ClientError, UnsupportedFeature
from sluicegate.messages import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
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
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.translation import Notes
from tests.profiles import examples
from tests.wire.openai_world import CAN, read, write

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAE="
PDF = "JVBERi0xLjQ="
HI: dict[str, Any] = {"role": "user", "content": "Hi"}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "w", "description": "d", "parameters": {"type": "object", "properties": {}}},
}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages) or [HI], **more}


def request(*messages: Message, **more: Any) -> Request:
    """Return a request in no format."""
    given = list(messages) or [Message(role="user", parts=[Text(text="Hi")], path="messages[0]")]
    return Request(model="m", messages=given, **more)


def user(*parts: Any, path: str = "messages[0]") -> Message:
    return Message(role="user", parts=list(parts), path=path)


def assistant(*parts: Any, path: str = "messages[1]") -> Message:
    return Message(role="assistant", parts=list(parts), path=path)


def part(given: dict[str, Any]) -> dict[str, Any]:
    """Return a request with one part."""
    return turns({"role": "user", "content": [given]})


def turns(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"messages": list(messages)}


def call(id_: str = "call_1", name: str = "w", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(id_: str = "call_1", content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


# ---- decoding -------------------------------------------------------------------------------------------------------


def test_everything_a_client_can_say() -> None:
    given, notes = read(
        "chat",
        body(
            {"role": "developer", "content": "D"},
            {
                "role": "system",
                "content": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
            },
            {
                "role": "user",
                "name": "ann",
                "content": [
                    {
                        "type": "text",
                        "text": "see",
                        "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"},
                    },
                    {
                        "type": "image_url",
                        "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"},
                    },
                    {"type": "image_url", "image_url": {"url": "https://h/i.png"}},
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                    {
                        "type": "file",
                        "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
                    },
                    {"type": "file", "file": {"file_data": PDF}},
                ],
            },
            {
                "role": "assistant",
                "content": "I",
                "reasoning_content": "hm",
                "tool_calls": [call(arguments='{"a":1.0}')],
            },
            answer(
                content=[
                    {"type": "text", "text": "r"},
                    {"type": "image_url", "image_url": {"url": "https://h/r"}},
                ]
            ),
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            HI,
            max_completion_tokens=50,
            temperature=0.5,
            top_p=0.9,
            stop="END",
            seed=7,
            n=2,
            frequency_penalty=0.1,
            presence_penalty=0,
            logit_bias={"5": 1},
            logprobs=True,
            top_logprobs=3,
            tools=[
                WEATHER,
                {
                    "type": "custom",
                    "custom": {
                        "name": "sh",
                        "format": {"type": "grammar", "grammar": {"definition": "x", "syntax": "lark"}},
                    },
                },
            ],
            tool_choice={"type": "function", "function": {"name": "w"}},
            parallel_tool_calls=False,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "r", "schema": {"type": "object"}, "strict": True},
            },
            reasoning_effort="high",
            verbosity="low",
            stream=True,
            stream_options={"include_usage": True},
            service_tier="flex",
            metadata={"a": "b"},
            user="u",
            prompt_cache_key="k",
            web_search_options={
                "search_context_size": "low",
                "user_location": {"type": "approximate", "approximate": {"city": "Oslo"}},
            },
            store=True,
        ),
    )
    assert notes.dropped == ["store;not supported"]
    assert [message.role for message in given.messages] == [
        "developer", "system", "user", "assistant", "user", "assistant", "user"
    ]  # fmt: skip
    assert given.messages[1].parts == [Text(text="S", cache=CacheMark())]
    assert given.messages[2].name == "ann"
    assert given.messages[2].parts == [
        Text(text="see", cache=CacheMark(ttl="30m")),
        Image(data=PNG, media_type="image/png", detail="low"),
        Image(url="https://h/i.png"),
        Audio(data="UklGRg==", format="wav"),
        File(data=PDF, media_type="application/pdf", filename="a.pdf"),
        File(data=PDF, media_type="application/pdf"),
    ]
    assert given.messages[3].parts == [
        Reasoning(text="hm"), Text(text="I"), ToolCall(id="call_1", name="w", arguments='{"a":1.0}')
    ]  # fmt: skip
    assert given.messages[4].parts == [
        ToolResult(call_id="call_1", name="w", parts=[Text(text="r"), Image(url="https://h/r")])
    ]
    assert given.messages[5].parts == [Refusal(text="no")]
    assert given.messages[6].path == "messages[6]"
    assert (given.max_output_tokens, given.limit_is_visible, given.choices, given.seed) == (50, False, 2, 7)
    assert (given.presence_penalty, given.frequency_penalty, given.logit_bias) == (None, 0.1, {"5": 1.0})
    assert (given.logprobs, given.top_logprobs, given.stop) == (True, 3, ["END"])
    assert given.tools[0].parameters == {"type": "object", "properties": {}}
    assert given.tools[1] == Tool(
        name="sh", custom=True, format={"type": "grammar", "syntax": "lark", "definition": "x"}
    )
    assert given.tool_choice == ToolChoice(mode="tool", names=["w"])
    assert given.parallel_tool_calls is False
    assert given.response_format == ResponseFormat(
        kind="json_schema", schema={"type": "object"}, name="r", strict=True
    )
    assert given.reasoning == ReasoningControl(effort="high")
    assert given.web_search == {
        "search_context_size": "low",
        "user_location": {"type": "approximate", "city": "Oslo"},
    }
    assert (given.user, given.service_tier, given.prompt_cache_key, given.verbosity) == (
        "u",
        "flex",
        "k",
        "low",
    )
    assert given.stream


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "x"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (turns(HI, {"role": "user", "content": [{"type": "video"}]}), "messages[1].content[0].type"),
        (turns({"role": "user", "content": []}), "messages[0].content"),
        (part({"type": "text", "text": 5}), "messages[0].content[0].text"),
        (
            part({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%"}}),
            "messages[0].content[0].image_url.url",
        ),
        (
            part({"type": "image_url", "image_url": {"url": "ftp://x"}}),
            "messages[0].content[0].image_url.url",
        ),
        (
            part({"type": "input_audio", "input_audio": {"data": "!", "format": "wav"}}),
            "messages[0].content[0].input_audio.data",
        ),
        (
            part({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "ogg"}}),
            "messages[0].content[0].input_audio.format",
        ),
        (part({"type": "file", "file": {}}), "messages[0].content[0].file"),
        (turns(HI, answer()), "messages[1].tool_call_id"),
        (turns(HI, {"role": "assistant", "tool_calls": [call()]}, HI), "messages[1]"),
        (turns(HI, {"role": "assistant", "tool_calls": [call()]}), "messages[1]"),
        (turns(HI, {"role": "assistant", "tool_calls": [call(), call()]}), "messages[1].tool_calls[1].id"),
        (
            turns(HI, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]}),
            "messages[1].tool_calls[0].function",
        ),
        (turns(HI, {"role": "function", "name": "f", "content": "x"}), "messages[1].name"),
        ({"temperature": 3}, "temperature"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1]"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "functions": [WEATHER["function"]]}, "functions"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "r"}}},
            "response_format.json_schema.schema",
        ),
        ({"model": ""}, "model"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(wrong: dict[str, Any], path: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read("chat", {**body(), **wrong})
    assert caught.value.param == path
    assert path in caught.value.message
    assert (caught.value.status, FORMATS["chat"].encode_error(caught.value, "r")[0]) == (400, 400)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"model":"m","messages":[1e999]}', b"[" * 100000, b"\xff"]
)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    for format in ("chat", "completions"):
        with pytest.raises(BadRequest):
            FORMATS[format].decode_request(raw, Notes())


def test_b057_b032_unknown_fields_are_named() -> None:
    _, notes = read("chat", body(enable_thinking=False, top_a=1, prediction={"type": "content"}, x=None))
    assert notes.dropped == [
        "enable_thinking;unknown field",
        "top_a;unknown field",
        "prediction;not supported",
    ]
    with pytest.raises(UnsupportedFeature):
        read("chat", body(top_a=1), "strict")


def test_b124_result_without_id_answers_the_only_call() -> None:
    turns = (HI, {"role": "assistant", "tool_calls": [call()]}, {"role": "tool", "content": "r"})
    given, _ = read("chat", body(*turns))
    (part,) = given.messages[2].parts
    assert isinstance(part, ToolResult)
    assert part.call_id == "call_1"
    two = (
        HI,
        {"role": "assistant", "tool_calls": [call(), call("call_2")]},
        {"role": "tool", "content": "r"},
    )
    with pytest.raises(BadRequest) as caught:
        read("chat", body(*two))
    assert caught.value.param == "messages[2].tool_call_id"


def test_missing_results_are_invented_by_a_lenient_translation_only() -> None:
    turns = (HI, {"role": "assistant", "tool_calls": [call(), call("call_2")]}, answer(), HI)
    given, notes = read("chat", body(*turns), "lenient")
    results = [part for part in given.messages[2].parts if isinstance(part, ToolResult)]
    assert [(result.call_id, result.is_error) for result in results] == [("call_1", False), ("call_2", True)]
    assert notes.dropped


def test_the_old_dialect() -> None:
    given, _ = read(
        "chat",
        body(
            HI,
            {"role": "assistant", "content": None, "function_call": {"name": "w", "arguments": "{}"}},
            {"role": "function", "name": "w", "content": "sunny"},
            functions=[WEATHER["function"]],
            function_call={"name": "w"},
        ),
    )
    assert given.legacy_functions
    assert given.parallel_tool_calls is False
    assert given.tool_choice == ToolChoice(mode="tool", names=["w"])
    asked, answered = given.messages[1].parts[0], given.messages[2].parts[0]
    assert isinstance(asked, ToolCall)
    assert isinstance(answered, ToolResult)
    assert asked.id == answered.call_id


def test_both_limits_are_the_smaller_one_and_the_old_one_means_visible_text() -> None:
    assert read("chat", body(max_tokens=5, max_completion_tokens=9))[0].max_output_tokens == 5
    assert read("chat", body(max_tokens=5))[0].limit_is_visible
    assert not read("chat", body(max_tokens=5, max_completion_tokens=9))[0].limit_is_visible


def test_sound_is_refused() -> None:
    with pytest.raises(UnsupportedFeature):
        read("chat", body(modalities=["text", "audio"], audio={"voice": "a", "format": "wav"}))
    with pytest.raises(UnsupportedFeature):
        read("chat", body(HI, {"role": "assistant", "audio": {"id": "a"}}, HI))


@pytest.mark.parametrize(
    "choice", [None, "auto", "none", "required", {"type": "function", "function": {"name": "w"}}]
)
@pytest.mark.parametrize("parallel", [None, True, False])
@pytest.mark.parametrize("tools", [True, False])
def test_b070_tool_choice_and_parallel_flag(choice: Any, parallel: Any, tools: bool) -> None:
    given = body(tool_choice=choice, parallel_tool_calls=parallel, tools=[WEATHER] if tools else [])
    if not tools and choice not in (None, "auto", "none"):
        with pytest.raises(BadRequest):
            read("chat", given)
        return
    told, dropped = write("chat", read("chat", given)[0])
    assert not dropped
    if tools:
        assert (told.get("tool_choice"), told.get("parallel_tool_calls")) == (choice, parallel)
    else:
        assert not told.keys() & {"tools", "tool_choice", "parallel_tool_calls"}


# ---- encoding -------------------------------------------------------------------------------------------------------


def test_what_a_client_says_reaches_a_chat_provider_as_it_was() -> None:
    given = body(
        {"role": "system", "content": "S"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "https://h", "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I",
            "tool_calls": [call(arguments='{"a":1.0,"é":1e2}'), call("call_2")],
        },
        answer(),
        answer("call_2", ""),
        {"role": "user", "content": "b", "name": "ann"},
        tools=[WEATHER],
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "w"}}]},
        },
        max_tokens=5,
        temperature=0.5,
        stop=["END"],
        seed=1,
        n=2,
        logprobs=True,
        top_logprobs=0,
        frequency_penalty=0.5,
        logit_bias={"5": 1.0},
        reasoning_effort="low",
        verbosity="low",
        user="u",
        metadata={"a": "b"},
        service_tier="flex",
        response_format={"type": "json_object"},
    )
    told, dropped = write("chat", read("chat", given)[0])
    assert not dropped
    assert told == given | {"model": "up"}


def test_b007_b029_usage_is_asked_of_streams_only() -> None:
    assert write("chat", request(stream=True))[0]["stream_options"] == {"include_usage": True}
    assert not write("chat", request())[0].keys() & {"stream", "stream_options"}


def test_the_limits_name_is_the_models_own() -> None:
    given = request(max_output_tokens=100)
    assert write("chat", given)[0]["max_tokens"] == 100
    told, dropped = write(
        "chat", given, Capabilities(limit_field="max_completion_tokens", max_output_tokens=50)
    )
    assert told["max_completion_tokens"] == 50
    assert "max_tokens" not in told
    assert dropped == ["max_tokens;cut to the model's 50"]


def test_b002_developer_is_said_as_system_where_it_is_not_known() -> None:
    messages = [Message(role="developer", parts=[Text(text="D")]), user(Text(text="U"))]
    assert write("chat", request(*messages))[0]["messages"][0] == {"role": "system", "content": "D"}
    told, _ = write("chat", request(*messages), Capabilities(developer_role=True))
    assert told["messages"][0] == {"role": "developer", "content": "D"}


def test_b005_pictures_of_results_move_behind_all_of_them() -> None:
    turns = [
        user(Text(text="go")),
        assistant(ToolCall(id="a", name="w", arguments=""), ToolCall(id="b", name="w", arguments="{}")),
        user(ToolResult(call_id="a", parts=[Text(text="shot"), Image(data=PNG)]), path="messages[2]"),
        user(ToolResult(call_id="b", parts=[], is_error=True), Text(text="and?"), path="messages[3]"),
    ]
    told, dropped = write("chat", request(*turns))
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    assert told["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert told["messages"][2:4] == [
        {"role": "tool", "tool_call_id": "a", "content": "shot\n[picture in the next user message]"},
        {"role": "tool", "tool_call_id": "b", "content": "[tool error] "},
    ]
    (last,) = told["messages"][4:]
    assert last["role"] == "user"
    assert picture in last["content"]
    assert last["content"][-1] == {"type": "text", "text": "and?"}
    assert [entry.partition(";")[0] for entry in dropped] == ["messages[2].content[0].content[1]"]
    told, dropped = write("chat", request(*turns), Capabilities(images_in_results=True))
    assert told["messages"][2]["content"] == [{"type": "text", "text": "shot"}, picture]
    assert not dropped
    told, dropped = write("chat", request(*turns), Capabilities(images=False))
    assert told["messages"][2]["content"] == "shot\n[picture left out]"
    assert dropped


def test_an_error_is_told_once() -> None:
    turns = [assistant(ToolCall(id="a", name="w", arguments="{}")),
             user(ToolResult(call_id="a", parts=[Text(text="[tool error] x")], is_error=True))]  # fmt: skip
    assert write("chat", request(*turns))[0]["messages"][1]["content"] == "[tool error] x"


def test_b020_turns_keep_their_order() -> None:
    turns = [
        user(Text(text="a")), user(Text(text="b")), assistant(ToolCall(id="c", name="w", arguments="{}")),
        user(ToolResult(call_id="c", parts=[Text(text="r1")])), assistant(Text(text="")), user(Text(text="c")),
    ]  # fmt: skip
    told = write("chat", request(*turns))[0]["messages"]
    assert [message["role"] for message in told] == ["user", "user", "assistant", "tool", "user"]
    assert told[2]["content"] is None


def test_b077_thoughts_go_back_where_they_are_wanted() -> None:
    turns = [
        user(Text(text="a")),
        assistant(Reasoning(text="hm"), ToolCall(id="c", name="w", arguments="{}")),
        user(ToolResult(call_id="c", parts=[])),
        assistant(ToolCall(id="d", name="w", arguments="{}"), path="messages[3]"),
        user(ToolResult(call_id="d", parts=[])),
    ]
    told, dropped = write("chat", request(*turns))
    assert all("reasoning_content" not in message for message in told["messages"])
    assert dropped == ["reasoning;earlier thoughts are not taken"]
    told, dropped = write("chat", request(*turns), Capabilities(reasoning_in_history=True))
    assert [message.get("reasoning_content") for message in told["messages"] if message["role"] == "assistant"] == [
        "hm", ""
    ]  # fmt: skip
    assert not dropped


def test_refusals_files_and_pictures_of_the_assistant() -> None:
    turns = [
        user(File(data=PDF, media_type="application/pdf", filename="a.pdf"), File(text="T", filename="t.txt"),
             File(data="aGk=", media_type="text/plain")),
        assistant(Refusal(text="no"), Image(url="https://h/i")),
        user(Text(text="b")),
    ]  # fmt: skip
    told, dropped = write("chat", request(*turns))
    assert told["messages"][0]["content"] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
        {"type": "text", "text": "t.txt:\nT"},
        {"type": "text", "text": "hi"},
    ]
    assert told["messages"][1] == {"role": "assistant", "content": None, "refusal": "no"}
    assert told["messages"][2]["content"][1]["image_url"]["url"] == "https://h/i"
    assert len(dropped) == 1


@pytest.mark.parametrize(
    ("part", "can"),
    [
        (Image(file_id="f"), CAN),
        (Image(url="gs://x"), CAN),
        (Image(data="AAAA", media_type="video/mp4"), CAN),
        (Image(data=PNG), Capabilities(images=False)),
        (Audio(data="AAAA", format="wav"), CAN),
        (Audio(data="AAAA", format="flac"), Capabilities(audio=True)),
        (File(file_id="f"), CAN),
        (File(url="https://h/a.pdf"), CAN),
        (File(data=PDF), Capabilities(files=False)),
        (File(data="AAAA"), CAN),
    ],
)
def test_b019_parts_that_cannot_be_carried_are_named(part: Any, can: Capabilities) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        write("chat", request(user(Text(text="a"), part)), can)
    assert caught.value.param == "messages[0].content[1]"


def test_sound_goes_where_it_is_taken() -> None:
    told, _ = write("chat", request(user(Audio(data="AAAA", format="mp3"))), Capabilities(audio=True))
    assert told["messages"][0]["content"] == [
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}
    ]


def test_free_form_tools_become_functions_where_they_are_not_known() -> None:
    tool = Tool(name="sh", custom=True, format={"type": "grammar", "syntax": "lark", "definition": "x"})
    turns = [user(Text(text="a")), assistant(ToolCall(id="c", name="sh", arguments="ls", custom=True)),
             user(ToolResult(call_id="c", parts=[Text(text="r")], custom=True))]  # fmt: skip
    given = request(*turns, tools=[tool], tool_choice=ToolChoice(mode="tool", names=["sh"]))
    told, dropped = write("chat", given)
    assert told["tools"][0]["function"]["parameters"]["required"] == ["input"]
    assert told["messages"][1]["tool_calls"][0]["function"] == {"name": "sh", "arguments": '{"input":"ls"}'}
    assert told["tool_choice"] == {"type": "function", "function": {"name": "sh"}}
    assert dropped == ["tools[0];the grammar of a free-form tool is lost"]
    told, dropped = write("chat", given, Capabilities(custom_tools=True))
    assert told["tools"][0] == {
        "type": "custom",
        "custom": {
            "name": "sh",
            "format": {"type": "grammar", "grammar": {"definition": "x", "syntax": "lark"}},
        },
    }
    assert told["messages"][1]["tool_calls"][0] == {
        "id": "c",
        "type": "custom",
        "custom": {"name": "sh", "input": "ls"},
    }
    assert not dropped


def test_names_that_do_not_fit_are_changed_alike_everywhere() -> None:
    turns = [user(Text(text="a")), assistant(ToolCall(id="c", name="ns.w", arguments="{}")),
             user(ToolResult(call_id="c", parts=[]))]  # fmt: skip
    given = request(*turns, tools=[Tool(name="ns.w")], tool_choice=ToolChoice(mode="tool", names=["ns.w"]))
    told, _ = write("chat", given)
    (name,) = FORMATS["chat"].tool_names(given)
    assert FORMATS["chat"].tool_names(given) == {name: "ns.w"}
    assert told["tools"][0]["function"]["name"] == name
    assert told["tool_choice"]["function"]["name"] == name
    assert told["messages"][1]["tool_calls"][0]["function"]["name"] == name


def test_b069_cache_marks_stay_where_they_are_taken() -> None:
    marked = user(*(Text(text=str(n), cache=CacheMark(ttl="1h")) for n in range(5)))
    told, dropped = write("chat", request(marked))
    assert "cache" not in json.dumps(told)
    assert len(dropped) == 1
    told, dropped = write("chat", request(marked), Capabilities(prompt_cache=True))
    marks = [block.get("prompt_cache_breakpoint") for block in told["messages"][0]["content"]]
    assert marks == [{"mode": "explicit", "ttl": "30m"}] * 4 + [None]
    assert len(dropped) == 1


@pytest.mark.parametrize(
    ("control", "can", "effort"),
    [
        (ReasoningControl(effort="max"), CAN, "max"),
        (ReasoningControl(budget_tokens=0), CAN, "none"),
        (ReasoningControl(budget_tokens=1000), CAN, "minimal"),
        (ReasoningControl(budget_tokens=2048), CAN, "low"),
        (ReasoningControl(budget_tokens=8192), CAN, "medium"),
        (ReasoningControl(budget_tokens=24576), CAN, "high"),
        (ReasoningControl(budget_tokens=50000), CAN, "xhigh"),
        (ReasoningControl(budget_tokens=-1), CAN, None),
        (ReasoningControl(show=True), CAN, None),
        (ReasoningControl(effort="none"), Capabilities(reasoning_off=False), "low"),
        (ReasoningControl(effort="high"), Capabilities(reasoning="none"), None),
    ],
)
def test_thinking_is_asked_for_as_effort(
    control: ReasoningControl, can: Capabilities, effort: str | None
) -> None:
    assert write("chat", request(reasoning=control), can)[0].get("reasoning_effort") == effort


def test_b055_structured_output() -> None:
    shape = ResponseFormat(kind="json_schema", schema={"type": "object"}, strict=True)
    told, _ = write("chat", request(response_format=shape))
    assert told["response_format"] == {
        "type": "json_schema", "json_schema": {"name": "response", "schema": {"type": "object"}, "strict": True}
    }  # fmt: skip
    told, dropped = write("chat", request(response_format=shape), Capabilities(response_schema=False))
    assert told["response_format"] == {"type": "json_object"}
    assert '{"type":"object"}' in told["messages"][0]["content"]
    assert dropped
    with pytest.raises(UnsupportedFeature):
        write("chat", request(response_format=shape), Capabilities(response_schema=False), "strict")


def test_sampling_that_the_model_does_not_take() -> None:
    given = request(temperature=1.0, top_p=0.5, top_k=5, frequency_penalty=0.5)
    told, dropped = write("chat", given, Capabilities(temperature=False))
    assert not told.keys() & {"temperature", "top_p", "top_k", "frequency_penalty"}
    assert sorted(entry.partition(";")[0] for entry in dropped) == ["frequency_penalty", "top_k", "top_p"]
    told, dropped = write("chat", request(temperature=1.8), Capabilities(max_temperature=1.0))
    assert told["temperature"] == 1.0
    assert dropped


def test_what_is_refused() -> None:
    for given, can in (
        (request(suffix="x"), CAN),
        (request(stop=["a"] * 5, choices=2), CAN),
        (request(tools=[Tool(name="w")]), Capabilities(tools=False)),
        (request(user(Text(text="a")), assistant(Text(text="b")), continues=True), CAN),
        (
            request(tools=[Tool(name="w")], tool_choice=ToolChoice(mode="required")),
            Capabilities(forced_tools=False),
        ),
        (request(web_search={"allowed_domains": ["a"]}), Capabilities(web_search=True)),
        (request(web_search={}), CAN),
    ):
        with pytest.raises(UnsupportedFeature):
            write("chat", given, can)


def test_search_options_are_nested_again() -> None:
    given = request(web_search={"user_location": {"type": "approximate", "city": "Oslo"}, "max_uses": 3})
    told, dropped = write("chat", given, Capabilities(web_search=True))
    assert told["web_search_options"] == {
        "user_location": {"type": "approximate", "approximate": {"city": "Oslo"}}
    }
    assert dropped == ["web_search.max_uses;not known to this format"]


# ---- any request ----------------------------------------------------------------------------------------------------

ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
FULL: dict[str, Any] = body(
    {"role": "system", "content": "S"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://h"}}]},
    {"role": "assistant", "reasoning_content": "r", "reasoning_details": [{"index": 0, "type": "t", "data": "d"}],
     "tool_calls": [call()]},
    answer(),
    tools=[WEATHER], tool_choice="auto", stop=["a"], logit_bias={"1": 1}, metadata={"a": "b"},
    response_format={"type": "json_schema", "json_schema": {"name": "r", "schema": {}}},
    web_search_options={"user_location": {"type": "approximate", "approximate": {}}},
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Name every place in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield (*path, key)
        yield from places(child, (*path, key))


@settings(max_examples=examples(200), deadline=None)
@drawn(st.sampled_from(sorted(places(FULL), key=str)), ODD)
def test_any_value_anywhere_is_served_or_refused(path: tuple[Any, ...], value: Any) -> None:
    given = copy.deepcopy(FULL)
    inner: Any = given
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with suppress(ClientError):
        request, _ = read("chat", given)
        for format in FORMATS:
            with suppress(ClientError):
                FORMATS[format].encode_request(request, "up", CAN, Notes("lenient"))


@pytest.mark.parametrize("depth", [200, 900, 5000])
def test_deep_schemas_are_served_or_refused(depth: int) -> None:
    schema = '{"a":' * depth + "1" + "}" * depth
    raw = json.dumps(body(tools=[WEATHER])).replace('"properties": {}', f'"properties": {schema}').encode()
    with suppress(ClientError):
        request = FORMATS["chat"].decode_request(raw, Notes())
        FORMATS["chat"].encode_request(request, "up", CAN, Notes())
