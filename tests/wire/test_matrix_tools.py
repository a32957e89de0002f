"""Rows of the translation matrix about tools: schemas, choices, names, tools that vendors host."""

from typing import Any

import pytest

from sluicegate.messages import Format
from tests.wire.matrix import (
    ABSENT,
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEAKERS,
    TOOL,
    TOOLS,
    Row,
    check,
    with_tools,
)

# ---- 7, 8: tools ----------------------------------------------------------------------------------------------------

CHOICES: dict[str, tuple[Any, Any, Any, Any]] = {
    # chat, responses, messages, gemini
    "auto": ("auto", "auto", {"type": "auto"}, {"mode": "AUTO"}),
    "required": ("required", "required", {"type": "any"}, {"mode": "ANY"}),
    "none": ("none", "none", {"type": "none"}, {"mode": "NONE"}),
    "f": (
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "name": "f"},
        {"type": "tool", "name": "f"},
        {"mode": "ANY", "allowedFunctionNames": ["f"]},
    ),
}


def choice_said(client: Format, name: str) -> dict[str, Any]:
    value = CHOICES[name][SPEAKERS.index(client)]
    return {"toolConfig": {"functionCallingConfig": value}} if client == GEMINI else {"tool_choice": value}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("provider", SPEAKERS)
@pytest.mark.parametrize("client", SPEAKERS)
def test_s08_tool_choice(client: Format, provider: Format, name: str) -> None:
    if client == provider:
        return
    value = CHOICES[name][SPEAKERS.index(provider)]
    place = "toolConfig.functionCallingConfig" if provider == GEMINI else "tool_choice"
    check(Row(client, with_tools(client) | choice_said(client, name), provider, {place: value}))


SUBSET = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
}
ONLY_THERE = {
    "tools": [{"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["a.example"]}]
}
NOT_THERE = {
    "tools": [{"type": "web_search_20250305", "name": "web_search", "blocked_domains": ["a.example"]}]
}
TWO = [*TOOLS[CHAT], {"type": "function", "function": {"name": "g"}}]
TOOL_ROWS = (
    Row(
        CHAT,
        {"tools": TWO, "tool_choice": SUBSET},
        RESPONSES,
        {
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}],
            }
        },
    ),
    Row(
        CHAT,
        {"tools": TWO, "tool_choice": SUBSET},
        MESSAGES,
        {"tools.0.name": "f", "tools.1": ABSENT, "tool_choice": {"type": "auto"}},
    ),
    Row(
        CHAT,
        {"tools": TWO, "tool_choice": SUBSET},
        GEMINI,
        {"toolConfig.functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}},
    ),
    Row(CHAT, with_tools(CHAT, parallel_tool_calls=False), RESPONSES, {"parallel_tool_calls": False}),
    Row(
        CHAT,
        with_tools(CHAT, parallel_tool_calls=False),
        MESSAGES,
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ),
    Row(CHAT, with_tools(CHAT, parallel_tool_calls=False), GEMINI, {}, ("parallel_tool_calls",)),
    Row(
        MESSAGES,
        with_tools(MESSAGES, tool_choice={"type": "any", "disable_parallel_tool_use": True}),
        CHAT,
        {"tool_choice": "required", "parallel_tool_calls": False},
    ),
    Row(CHAT, with_tools(CHAT, tool_choice="required"), MESSAGES, "tool_choice", can={"forced_tools": False}),
    Row(
        CHAT,
        with_tools(CHAT, tool_choice="required"),
        MESSAGES,
        {"tool_choice": {"type": "auto"}},
        ("tool_choice",),
        {"forced_tools": False},
        "lenient",
    ),
    Row(
        CHAT,
        {"functions": [TOOL], "function_call": {"name": "f"}},
        MESSAGES,
        {"tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}},
    ),
    Row(
        CHAT,
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        MESSAGES,
        {"tools.0.input_schema": {"type": "object", "properties": {}}},
    ),
    Row(
        CHAT,
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        GEMINI,
        {"tools.0.functionDeclarations.0": {"name": "f"}},
    ),
    Row(
        CHAT,
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]},
        MESSAGES,
        "tools[0].parameters",
    ),
    Row(CHAT, with_tools(CHAT), RESPONSES, {"tools.0.strict": False}),
    Row(
        CHAT,
        {"tools": [{"type": "function", "function": TOOL | {"strict": True}}]},
        MESSAGES,
        {"tools.0.strict": True},
        can={"strict_tools": True},
    ),
    Row(
        CHAT,
        {"tools": [{"type": "function", "function": TOOL | {"strict": True}}]},
        MESSAGES,
        {"tools.0.strict": ABSENT},
        ("tools[0].strict",),
    ),
    Row(
        CHAT,
        {"tools": [{"type": "function", "function": TOOL | {"strict": True}}]},
        GEMINI,
        {"toolConfig.functionCallingConfig.mode": "VALIDATED"},
    ),
    Row(
        MESSAGES,
        {"tools": [TOOLS[MESSAGES][0] | {"input_examples": [{}], "defer_loading": True}]},
        CHAT,
        {},
        ("tools[0].input_examples", "tools[0].defer_loading"),
        policy="strict",
    ),
    Row(
        CHAT,
        {"tools": [{"type": "custom", "custom": {"name": "c"}}]},
        MESSAGES,
        {"tools.0.input_schema.properties": {"input": {"type": "string"}}},
    ),
    Row(
        CHAT,
        {
            "tools": [
                {
                    "type": "custom",
                    "custom": {
                        "name": "c",
                        "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a"}},
                    },
                }
            ]
        },
        GEMINI,
        "tools[0].format",
        policy="strict",
    ),
    Row(
        RESPONSES,
        {"tools": [{"type": "namespace", "name": "n", "tools": TOOLS[RESPONSES]}]},
        CHAT,
        {"tools.0.function.name": "n__f"},
    ),
    # Gemini's own dialect of schemas.
    Row(
        GEMINI,
        {
            "tools": [
                {
                    "functionDeclarations": [
                        {
                            "name": "f",
                            "parameters": {
                                "type": "OBJECT",
                                "properties": {
                                    "a": {"type": "STRING", "nullable": True},
                                    "b": {"type": "ARRAY", "items": {"type": "INTEGER"}},
                                },
                            },
                        }
                    ]
                }
            ]
        },
        CHAT,
        {
            "tools.0.function.parameters.type": "object",
            "tools.0.function.parameters.properties.b": {"type": "array", "items": {"type": "integer"}},
        },
    ),
    # A property may be called like a keyword.
    Row(
        CHAT,
        {
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "f",
                        "parameters": {
                            "type": "object",
                            "properties": {
                                "format": {"type": "string"},
                                "const": {"type": "string"},
                                "$id": {"type": "string"},
                            },
                        },
                    },
                }
            ]
        },
        GEMINI,
        {
            "tools.0.functionDeclarations.0.parameters.properties.format": {"type": "STRING"},
            "tools.0.functionDeclarations.0.parameters.properties.const": {"type": "STRING"},
        },
        can={"clean_schemas": True},
    ),
    # 24: hosted tools.
    Row(
        CHAT,
        {"web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "X"}}}},
        MESSAGES,
        {"tools.0.name": "web_search", "tools.0.user_location": {"type": "approximate", "city": "X"}},
    ),
    Row(
        MESSAGES,
        ONLY_THERE,
        RESPONSES,
        {"tools.0": {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}}},
    ),
    Row(MESSAGES, NOT_THERE, RESPONSES, "tools.web_search.blocked_domains"),
    Row(MESSAGES, ONLY_THERE, GEMINI, "tools.web_search.allowed_domains"),
    Row(
        MESSAGES,
        ONLY_THERE,
        GEMINI,
        {"tools": [{"googleSearch": {}}]},
        ("tools.web_search.allowed_domains",),
        policy="lenient",
    ),
    Row(
        GEMINI, {"tools": [{"googleSearch": {}}]}, CHAT, {"web_search_options": {}}, can={"web_search": True}
    ),
    Row(RESPONSES, {"tools": [{"type": "web_search"}]}, GEMINI, {"tools": [{"googleSearch": {}}]}),
    *(
        Row(RESPONSES, {"tools": [{"type": kind}]}, provider, "tools[0].type")
        for provider in (CHAT, MESSAGES, GEMINI)
        for kind in (
            "code_interpreter",
            "file_search",
            "computer_use_preview",
            "shell",
            "mcp",
            "image_generation",
        )
    ),
    *(
        Row(MESSAGES, {"tools": [{"type": kind, "name": "x"}]}, provider, "tools[0].type")
        for provider in (CHAT, RESPONSES, GEMINI)
        for kind in ("code_execution_20250825", "computer_20250124", "bash_20250124", "web_fetch_20250910")
    ),
    *(
        Row(GEMINI, {"tools": [{kind: {}}]}, provider, f"tools[0].{kind}")
        for provider in (CHAT, RESPONSES, MESSAGES)
        for kind in ("codeExecution", "urlContext", "googleMaps", "fileSearch", "computerUse")
    ),
)


@pytest.mark.parametrize("row", TOOL_ROWS, ids=lambda row: row.id)
def test_s07_s08_s24_tools(row: Row) -> None:
    check(row)
