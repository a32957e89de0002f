"""What coding agents put into their requests, said to providers of another format.

Each case was seen in a request of a current agent (tests/clients runs them whole).
"""

import json
from typing import Any

import pytest

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, UnsupportedFeature
from sluicegate.messages import Format, Request
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.openai_responses_tools import namespaces
from sluicegate.wire.translation import Notes, Policy

TOOL = {"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
CALLS: dict[Format, Any] = {
    "chat": lambda body: [tool["function"]["name"] for tool in body["tools"]],
    "responses": lambda body: [tool["name"] for tool in body["tools"] if "name" in tool],
    "gemini": lambda body: [
        call["name"] for tool in body["tools"] for call in tool.get("functionDeclarations", ())
    ],
}


def read(source: Format, body: dict[str, Any], policy: Policy = "default") -> tuple[Request, Notes]:
    notes = Notes(policy)
    return FORMATS[source].decode_request(json.dumps(body).encode(), notes, "m"), notes


def crossed(
    source: Format, target: Format, body: dict[str, Any], policy: Policy = "default", **can: Any
) -> tuple[dict[str, Any], list[str]]:
    """Return what a provider is sent, and what is named as left out."""
    request, notes = read(source, body, policy)
    sent = json.loads(FORMATS[target].encode_request(request, "up", Capabilities(**can), notes))
    return sent, notes.dropped


def messages(*turns: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "messages": list(turns), **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks) or "hi"}


# ---- who asks -------------------------------------------------------------------------------------------------------

LONG = json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": "s" * 36})


@pytest.mark.parametrize(
    ("target", "field"), [("chat", "user"), ("responses", "safety_identifier"), ("completions", "user")]
)
def test_a_long_user_id_is_sent_as_its_hash(target: Format, field: str) -> None:
    """Claude Code's is about 150 characters; OpenAI refuses more than 64."""
    sent, dropped = crossed("messages", target, messages(user(), metadata={"user_id": LONG}))
    again, _ = crossed("messages", target, messages(user(), metadata={"user_id": LONG}))
    other, _ = crossed("messages", target, messages(user(), metadata={"user_id": LONG + " "}))
    assert len(sent[field]) == 64
    assert sent[field] == again[field] != other[field]
    assert "user;sent as a hash: too long for this format" in dropped
    sent, dropped = crossed("messages", target, messages(user(), metadata={"user_id": "u" * 64}))
    assert sent[field] == "u" * 64
    assert not any(entry.startswith("user;") for entry in dropped)


# ---- web search beside functions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["chat", "gemini"])
def test_a_search_among_functions_is_left_out_where_it_would_be_refused(target: Format) -> None:
    """Codex offers it in every turn; chat models without search, and Gemini beside functions, answer 400."""
    asked = messages(user(), tools=[TOOL, SEARCH])
    sent, dropped = crossed("messages", target, asked)
    assert "web_search_options" not in sent
    assert "googleSearch" not in json.dumps(sent)
    assert CALLS[target](sent) == ["Read"]
    assert [entry.partition(";")[0] for entry in dropped] == ["web_search"]
    with pytest.raises(UnsupportedFeature):
        crossed("messages", target, asked, "strict")


def test_a_search_among_functions_is_kept_where_it_can_be() -> None:
    asked = messages(user(), tools=[TOOL, SEARCH])
    assert crossed("messages", "chat", asked, web_search=True)[0]["web_search_options"] == {}
    assert {"googleSearch": {}} in crossed("messages", "gemini", asked, search_with_tools=True)[0]["tools"]
    assert {"type": "web_search"} in crossed("messages", "responses", asked)[0]["tools"]


def test_a_search_alone_is_not_answered_from_memory() -> None:
    """Claude Code searches in a request of its own: what it would be told had nobody looked up."""
    with pytest.raises(UnsupportedFeature) as refused:
        crossed("messages", "chat", messages(user(), tools=[SEARCH]))
    assert refused.value.param == "web_search"
    assert (
        "web_search_options"
        not in crossed("messages", "chat", messages(user(), tools=[SEARCH]), "lenient")[0]
    )
    assert crossed("messages", "gemini", messages(user(), tools=[SEARCH]))[0]["tools"] == [
        {"googleSearch": {}}
    ]


# ---- tools that are found, added and removed ------------------------------------------------------------------------

FOUND = {"type": "tool_reference", "tool_name": "WebFetch"}
SEARCHED = (
    user(),
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {}}]},
    user({"type": "tool_result", "tool_use_id": "t1", "content": [FOUND]}),
)


@pytest.mark.parametrize("target", ["chat", "responses", "gemini"])
def test_a_tool_that_was_found_is_named_in_words(target: Format) -> None:
    """The result of Claude Code's ToolSearch; a 400 makes it give up searching."""
    tools = [{**TOOL, "name": "ToolSearch"}, {**TOOL, "name": "WebFetch", "defer_loading": True}]
    sent, dropped = crossed("messages", target, messages(*SEARCHED, tools=tools))
    assert "The tool WebFetch can be called now." in json.dumps(sent)
    assert CALLS[target](sent) == ["ToolSearch", "WebFetch"]
    assert "tool_reference;a tool that was found is named in words" in dropped


@pytest.mark.parametrize("target", ["chat", "responses", "gemini"])
def test_tools_that_come_and_go_in_the_conversation(target: Format) -> None:
    definition = {**TOOL, "name": "Late"}
    change = {
        "role": "system",
        "content": [
            {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Read"}},
            {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Other"}},
            {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}},
        ],
    }
    tools = [TOOL, {**TOOL, "name": "Other", "defer_loading": True}]
    sent, _ = crossed("messages", target, messages(user(), change, user(), tools=tools))
    assert CALLS[target](sent) == ["Read", "Other", "Late"]
    said = json.dumps(sent)
    assert (
        said.index("The tool Read can no longer") < said.index("The tool Other can") < said.index("Late can")
    )


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        (None, "messages[1].content[0].tool"),
        ([], "messages[1].content[0].tool"),
        ({"type": "tool_reference"}, "messages[1].content[0].tool.tool_name"),
        ({"type": "tool_reference", "name": 1}, "messages[1].content[0].tool.name"),
        ({"type": "tool_definition"}, "messages[1].content[0].tool.definition"),
        (
            {"type": "tool_definition", "definition": {"name": "a"}},
            "messages[1].content[0].tool.definition.input_schema",
        ),
    ],
)  # fmt: skip
def test_a_broken_change_of_tools_is_refused_by_name(tool: Any, param: str) -> None:
    change = {"role": "system", "content": [{"type": "tool_addition", "tool": tool}]}
    with pytest.raises(BadRequest) as refused:
        read("messages", messages(user(), change, tools=[TOOL]))
    assert refused.value.param == param


def test_a_search_for_tools_by_the_vendor_is_not_needed() -> None:
    tools = [{"type": "tool_search_tool_regex_20251119", "name": "find"}, {**TOOL, "defer_loading": True}]
    sent, dropped = crossed("messages", "chat", messages(user(), tools=tools))
    assert CALLS["chat"](sent) == ["Read"]
    assert "tools[0];all tools are told at once" in dropped


SPAWN = {"type": "function", "name": "spawn", "defer_loading": True, "parameters": {"type": "object"}}
CODEX_SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def responses(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": [{"role": "user", "content": "hi"}, *items], **more}


@pytest.mark.parametrize("target", ["chat", "messages", "gemini"])
def test_a_search_for_tools_that_the_client_does_is_a_function(target: Format) -> None:
    """Codex asks OpenAI's newer models so, by whatever provider they are served."""
    asked = responses(
        {
            "type": "tool_search_call",
            "call_id": "c1",
            "execution": "client",
            "arguments": {"query": "agents"},
            "status": "completed",
        },
        {
            "type": "tool_search_output",
            "call_id": "c1",
            "execution": "client",
            "tools": [{"type": "namespace", "name": "agents", "description": "d", "tools": [SPAWN]}],
        },
        tools=[CODEX_SEARCH],
    )
    request, _ = read("responses", asked)
    assert [tool.name for tool in request.tools] == ["tool_search", "agents__spawn"]
    assert namespaces(request) == {"agents__spawn": ("agents", "spawn")}
    sent, dropped = crossed("responses", target, asked)
    said = json.dumps(sent)
    assert "These tools can be called now: agents__spawn." in said
    assert not any("defer_loading" in entry for entry in dropped)
    assert said.count('"agents__spawn"') == 1


def test_a_search_for_tools_that_found_nothing_or_the_same_again() -> None:
    outcome = {"type": "tool_search_output", "execution": "client"}
    call = {"type": "tool_search_call", "execution": "client", "arguments": {}}
    asked = responses(
        {**call, "call_id": "a"},
        {**outcome, "call_id": "a", "tools": []},
        {**call, "call_id": "b"},
        {**outcome, "call_id": "b", "tools": [SPAWN]},
        {**call, "call_id": "c"},
        {**outcome, "call_id": "c", "tools": [SPAWN]},
        tools=[CODEX_SEARCH],
    )
    sent, _ = crossed("responses", "chat", asked)
    assert CALLS["chat"](sent) == ["tool_search", "spawn"]
    results = [message["content"] for message in sent["messages"] if message["role"] == "tool"]
    assert results == ["No tool was found.", *["These tools can be called now: spawn."] * 2]


def test_a_search_for_tools_by_the_provider_leaves_its_tools() -> None:
    asked = responses(
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {"paths": ["a"]}},
        {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [SPAWN]},
        tools=[{"type": "tool_search"}],
    )
    sent, dropped = crossed("responses", "chat", asked)
    assert CALLS["chat"](sent) == ["spawn"]
    assert [message["role"] for message in sent["messages"]] == ["user"]
    assert dropped == [
        "tools[0];all tools are told at once",
        "input.tool_search_call;all tools are told at once",
    ]


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([{"type": "tool_search_call", "call_id": "a", "arguments": {}}], "input[1]"),
        ([{"type": "tool_search_call", "call_id": "a"}], "input[1].arguments"),
        ([{"type": "tool_search_output", "call_id": "a", "tools": []}], "input[1].call_id"),
        ([{"type": "tool_search_output", "tools": [{"type": "function"}]}], "input[1].tools[0].name"),
        ([{"type": "tool_search_call", "call_id": "a", "arguments": {}}] * 2, "input[2].call_id"),
    ],
)
def test_a_broken_search_for_tools_is_refused_by_name(items: list[Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read("responses", responses(*items, tools=[CODEX_SEARCH]))
    assert refused.value.param == param


# ---- schemas in the other dialect -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["chat", "responses", "messages"])
def test_gemini_types_in_a_json_schema_are_read_as_meant(target: Format) -> None:
    """Gemini CLI's router asks for JSON so, and others refuse `"type": "OBJECT"`."""
    schema = {"type": "OBJECT", "properties": {"score": {"type": "INTEGER"}}, "required": ["score"]}
    asked = {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": schema}]}],
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema},
    }
    said = json.dumps(crossed("gemini", target, asked)[0])
    assert "OBJECT" not in said
    assert "INTEGER" not in said
    assert said.count('"integer"') + said.count('\\"integer\\"') == 2
