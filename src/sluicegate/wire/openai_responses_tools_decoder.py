"""The tools of a Responses request, those that it declares and those that a search has found in its conversation.

Every error names the path of the field. Hosted tools are known to one vendor only, but for the web search, and for the
search of tools: where the provider does it, all tools are told at once instead; where the client does, it is a function
like any other. Source: wire formats page `responses.md`, "Tools"; translation matrix, sections 7 and 24.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from sluicegate.messages import Tool
from sluicegate.wire import json_edit
from sluicegate.wire import openai_responses_body as body
from sluicegate.wire.openai_responses_tools import SEARCH_TOOL, joined_name
from sluicegate.wire.translation import Notes, bad_field
from sluicegate.wire.typed_body import decode_typed

CALLABLE = frozenset({"function", "custom"})
SAID_NOTHING = (b"null", b"false", b"{}", b"[]")
_typed = msgspec.json.Decoder(body.Typed)
_function = msgspec.json.Decoder(body.FunctionTool)
_custom = msgspec.json.Decoder(body.CustomTool)
_search = msgspec.json.Decoder(body.WebSearchTool)
_tool_search = msgspec.json.Decoder(body.ToolSearchTool)
_namespace = msgspec.json.Decoder(body.Namespace)


class ToolReader:
    """Reads one request's tools."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.tools: list[Tool] = []
        self.web_search: dict[str, Any] | None = None

    def declare(self, given: Sequence[msgspec.Raw]) -> None:
        """Take the tools that the request lists."""
        for place, raw in enumerate(given):
            self.tools += self._read(raw, f"tools[{place}]", None)
        names: set[str] = set()
        for tool in self.tools:
            if tool.name in names:
                raise bad_field("tools", f"the name {tool.name!r} comes twice")
            names.add(tool.name)

    def found(self, given: Sequence[msgspec.Raw], path: str) -> list[Tool]:
        """Take the tools that a search has found, and return them; what is declared already stays as it is.

        Args:
            path: of the list.
        """
        tools = [
            tool for place, raw in enumerate(given) for tool in self._read(raw, f"{path}[{place}]", None)
        ]
        known = {tool.name for tool in self.tools}
        for tool in tools:
            if tool.name not in known:
                known.add(tool.name)
                self.tools.append(tool)
        return tools

    def _read(self, raw: msgspec.Raw, path: str, namespace: str | None) -> list[Tool]:
        kind = decode_typed(_typed, raw, path).type
        if kind is None:
            raise bad_field(f"{path}.type", "missing required parameter")
        if kind in CALLABLE:
            self._drop_rest(raw, path, body.CustomTool if kind == "custom" else body.FunctionTool)
            return [_tool(raw, kind, path, namespace)]
        if kind == "namespace" and namespace is None:
            space = decode_typed(_namespace, raw, path)
            return [
                tool
                for place, inner in enumerate(space.tools)
                for tool in self._read(inner, f"{path}.tools[{place}]", space.name)
            ]
        if kind == "tool_search":
            return self._tool_search(decode_typed(_tool_search, raw, path), path)
        if kind.startswith("web_search"):
            self.web_search = _search_options(decode_typed(_search, raw, path))
            self._drop_rest(raw, path, body.WebSearchTool)
        else:
            self._notes.reject(f"{path}.type", f"{kind!r} is known to one vendor only")
        return []

    def _tool_search(self, tool: body.ToolSearchTool, path: str) -> list[Tool]:
        if tool.execution != "client":
            self._notes.drop(path, "all tools are told at once")
            return []
        return [
            Tool(name=SEARCH_TOOL, description=tool.description, parameters=tool.parameters, searches=True)
        ]

    def _drop_rest(self, raw: msgspec.Raw, path: str, known: type[msgspec.Struct]) -> None:
        """Name the members of a tool that no other format has."""
        for key, value in json_edit.decode_top(bytes(raw), "responses").items():
            if key == "defer_loading" and path.startswith("input"):
                continue  # it has been found: nothing is deferred any more
            if key not in known.__struct_fields__ and key != "type" and bytes(value) not in SAID_NOTHING:
                self._notes.drop(f"{path}.{key}", "known to one vendor only")


def _tool(raw: msgspec.Raw, kind: str, path: str, namespace: str | None) -> Tool:
    if kind == "custom":
        custom = decode_typed(_custom, raw, path)
        format_ = None if custom.format is None else msgspec.to_builtins(custom.format)
        return Tool(
            name=joined_name(namespace, custom.name),
            description=custom.description,
            custom=True,
            format=format_,
            namespace=namespace,
        )
    function = decode_typed(_function, raw, path)
    return Tool(
        name=joined_name(namespace, function.name),
        description=function.description,
        parameters=function.parameters,
        strict=function.strict,
        namespace=namespace,
    )


def _search_options(tool: body.WebSearchTool) -> dict[str, Any]:
    filters = tool.filters or body.SearchFilters()
    options = {
        "allowed_domains": filters.allowed_domains,
        "blocked_domains": filters.blocked_domains,
        "user_location": tool.user_location,
        "search_context_size": tool.search_context_size,
    }
    return {key: value for key, value in options.items() if value}
