"""A Messages client's request, decoded into the common vocabulary and held to the rules of its own format.

Every error names the path of the field; what another vendor cannot be told is dropped, named or refused as the
translation matrix says. The conversation itself is read in `anthropic_content_decoder`. Source: wire formats page
`anthropic-messages.md`, "Request fields" and "Tools".
"""

from typing import Any

import msgspec

from sluicegate.messages import (
    CacheMark,
    Message,
    ReasoningControl,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
)
from sluicegate.wire.anthropic_content_decoder import ContentReader, cache_mark
from sluicegate.wire.anthropic_fields import (
    Object,
    is_null,
    needed_text,
    object_of,
    objects_of,
    text_of,
    value_of,
)
from sluicegate.wire.request_edges import read_members
from sluicegate.wire.translation import Notes, bad_field

EFFORTS = ("low", "medium", "high", "xhigh", "max")
MIN_BUDGET_TOKENS = 1024
_TOOL_HINTS = ("input_examples", "defer_loading", "allowed_callers", "eager_input_streaming")
_SEARCH_OPTIONS = ("max_uses", "allowed_domains", "blocked_domains", "user_location")
_READ = frozenset(
    {
        "model",
        "max_tokens",
        "messages",
        "system",
        "stop_sequences",
        "temperature",
        "top_p",
        "top_k",
        "stream",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "metadata",
        "service_tier",
        "speed",
        "cache_control",
    }
)
_DROPPED = frozenset({"diagnostics", "fallback_credit_token", "billing_policy"})
"""Bookkeeping between the client and one vendor."""
_REFUSED = frozenset({"container", "mcp_servers", "compaction", "thread", "fallbacks"})
"""What only one vendor has, and the answer depends on."""


def decode_request(
    body: bytes, notes: Notes, path_model: str | None = None, *, counting: bool = False
) -> Request:
    """Decode a body. See `RequestDecoder`.

    Args:
        path_model: of no matter here: the body names the model.
        counting: it only asks for its tokens, and so needs no limit.
    """
    top = {member.key: msgspec.Raw(body[member.start : member.end]) for member in read_members(body)}
    return _RequestReader(top, notes, counting=counting).read()


class _RequestReader:
    """Reads one request, field by field."""

    def __init__(self, top: Object, notes: Notes, *, counting: bool) -> None:
        self._top = {key: raw for key, raw in top.items() if not is_null(raw)}
        self._notes = notes
        self._counting = counting

    def read(self) -> Request:
        """Return the request."""
        model = self._value("model", str, "a string")
        if not model:
            raise bad_field("model", "Field required" if model is None else "must not be empty")
        limit = self._limit()
        content = ContentReader(self._notes)
        messages = content.system(self._top["system"]) if "system" in self._top else []
        messages += content.messages(self._top.get("messages"))
        self._mark_last(messages)
        tools, web_search = self._tools(content.declared)
        choice, parallel = self._tool_choice(tools)
        request = Request(
            model=model,
            messages=messages,
            stream=self._value("stream", bool, "a boolean") or False,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=parallel,
            web_search=web_search,
            max_output_tokens=limit,
            temperature=self._number("temperature", 0.0, 1.0),
            top_p=self._number("top_p", 0.0, 1.0),
            top_k=self._number("top_k", 0.0, 2.0**31),
            stop=self._stop(),
            reasoning=self._reasoning(limit),
            response_format=self._response_format(),
            user=self._user(),
            service_tier=self._tier(),
            continues=True,
        )
        self._take_rest()
        return request

    # ---- plain fields ---------------------------------------------------------------------------------------------

    def _value(self, key: str, kind: type, called: str) -> Any:
        raw = self._top.get(key)
        if raw is None:
            return None
        value = value_of(raw, key)
        if type(value) is not kind:
            raise bad_field(key, f"Input should be {called}")
        return value

    def _limit(self) -> int | None:
        limit: int | None = self._value("max_tokens", int, "an integer")
        if limit is None:
            if not self._counting:
                raise bad_field("max_tokens", "Field required")
        elif limit < 0:
            raise bad_field("max_tokens", "Input should be greater than or equal to 0")
        elif limit == 0:
            self._notes.reject("max_tokens", "warming a cache without an answer is known to one vendor only")
        return limit

    def _number(self, key: str, low: float, high: float) -> float | None:
        raw = self._top.get(key)
        if raw is None:
            return None
        value = value_of(raw, key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_field(key, "Input should be a number")
        if not low <= value <= high:
            raise bad_field(key, f"Input should be between {low:g} and {high:g}")
        return value

    def _stop(self) -> list[str]:
        value = self._value("stop_sequences", list, "an array of strings") or []
        for place, sequence in enumerate(value):
            if not isinstance(sequence, str) or not sequence:
                raise bad_field(f"stop_sequences[{place}]", "Input should be a string that is not empty")
        return list(value)

    def _user(self) -> str | None:
        if "metadata" not in self._top:
            return None
        metadata = object_of(self._top["metadata"], "metadata")
        for key in metadata:
            if key != "user_id":
                self._notes.drop(f"metadata.{key}", "unknown field")
        return text_of(metadata, "user_id", "metadata", required=False)

    def _tier(self) -> str | None:
        speed = self._value("speed", str, "a string")
        if speed not in (None, "standard"):
            self._notes.warn("speed", "known to one vendor only")
        tier = self._value("service_tier", str, "a string")
        if tier not in (None, "auto", "standard_only"):
            raise bad_field("service_tier", "Input should be 'auto' or 'standard_only'")
        return "default" if tier == "standard_only" else tier

    def _take_rest(self) -> None:
        for key in self._top.keys() - _READ:
            if key in _DROPPED:
                self._notes.drop(key)
            elif key in _REFUSED:
                self._notes.reject(key, "known to one vendor only")
            elif key == "inference_geo":
                self._notes.reject(key, "the region cannot be chosen", lenient_ok=True)
            else:
                self._notes.warn(key, "unknown field")

    def _mark(self, fields: Object, path: str) -> CacheMark | None:
        raw = fields.get("cache_control")
        return None if raw is None else cache_mark(value_of(raw, f"{path}.cache_control"), path)

    def _mark_last(self, messages: list[Message]) -> None:
        """Turn a cache mark of the whole request into one on its last block."""
        mark = self._mark(self._top, "")
        if mark is None:
            return
        for message in reversed(messages):
            for part in reversed(message.parts):
                if hasattr(part, "cache"):
                    part.cache = part.cache or mark
                    return

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self, later: list[tuple[Object, str]]) -> tuple[list[Tool], dict[str, Any] | None]:
        """Return the function tools, and the options of a web search if there is one.

        Args:
            later: tools that came in the conversation, and their paths.
        """
        tools: list[Tool] = []
        web_search: dict[str, Any] | None = None
        names: set[str] = set()
        for place, fields in enumerate(
            objects_of(self._top["tools"], "tools") if "tools" in self._top else []
        ):
            path = f"tools[{place}]"
            kind = text_of(fields, "type", path, required=False) or "custom"
            name = needed_text(fields, "name", path)
            if name in names:
                raise bad_field(f"{path}.name", "tool names must be unique")
            names.add(name)
            if kind == "custom":
                tools.append(self._tool(fields, name, path))
            elif kind.startswith("web_search_"):
                web_search = self._web_search(fields, path)
            elif kind.startswith("tool_search_tool_"):
                self._notes.drop(path, "all tools are told at once")
            else:
                self._notes.reject(f"{path}.type", f"{kind!r} is known to one vendor only")
        for fields, path in later:
            name = needed_text(fields, "name", path)
            if name not in names:
                names.add(name)
                tools.append(self._tool(fields, name, path))
        return tools, web_search

    def _tool(self, fields: Object, name: str, path: str) -> Tool:
        where = f"{path}.input_schema"
        schema = value_of(fields["input_schema"], where) if "input_schema" in fields else None
        if schema is None:
            raise bad_field(where, "Field required")
        if not isinstance(schema, dict):
            raise bad_field(where, "Input should be an object")
        if schema.get("type") != "object":
            raise bad_field(f"{where}.type", "Input should be 'object'")
        strict = value_of(fields["strict"], f"{path}.strict") if "strict" in fields else None
        if strict not in (None, True, False):
            raise bad_field(f"{path}.strict", "Input should be a boolean")
        for key in _TOOL_HINTS:
            if key in fields:
                self._notes.drop(f"{path}.{key}", "known to one vendor only")
        return Tool(
            name=name,
            description=text_of(fields, "description", path, required=False),
            parameters=schema,
            strict=strict,
            cache=self._mark(fields, path),
        )

    def _web_search(self, fields: Object, path: str) -> dict[str, Any]:
        known = {key: value_of(fields[key], f"{path}.{key}") for key in _SEARCH_OPTIONS if key in fields}
        for key in fields.keys() - {"type", "name", "cache_control", *known}:
            self._notes.warn(f"{path}.{key}", "known to one vendor only")
        return {key: value for key, value in known.items() if value is not None}

    def _tool_choice(self, tools: list[Tool]) -> tuple[ToolChoice | None, bool | None]:
        if "tool_choice" not in self._top:
            return None, None
        fields = object_of(self._top["tool_choice"], "tool_choice")
        kind = text_of(fields, "type", "tool_choice")
        parallel = None
        if "disable_parallel_tool_use" in fields and kind != "none":
            path = "tool_choice.disable_parallel_tool_use"
            disabled = value_of(fields["disable_parallel_tool_use"], path)
            if disabled not in (True, False, None):
                raise bad_field(path, "Input should be a boolean")
            parallel = None if disabled is None else not disabled
        match kind:
            case "auto" | "none":
                return ToolChoice(mode=kind), parallel
            case "any":
                return ToolChoice(mode="required"), parallel
            case "tool":
                name = needed_text(fields, "name", "tool_choice")
                if all(tool.name != name for tool in tools):
                    raise bad_field("tool_choice.name", f"tool {name!r} is not among the tools")
                return ToolChoice(mode="tool", names=[name]), parallel
        raise bad_field("tool_choice.type", "Input should be one of 'auto', 'any', 'tool', 'none'")

    # ---- reasoning and the answer's shape -------------------------------------------------------------------------

    def _reasoning(self, limit: int | None) -> ReasoningControl | None:
        effort = self._effort()
        if "thinking" not in self._top:
            return None if effort is None else ReasoningControl(effort=effort)
        fields = object_of(self._top["thinking"], "thinking")
        show = self._shows_thoughts(fields)
        match text_of(fields, "type", "thinking"):
            case "disabled":
                return ReasoningControl(budget_tokens=0)
            case "enabled":
                return ReasoningControl(budget_tokens=self._budget(fields, limit), show=show)
            case "between_tools":
                self._notes.warn("thinking.type", "when to think cannot be chosen")
            case "adaptive":
                pass
            case _:
                raise bad_field(
                    "thinking.type",
                    "Input should be one of 'adaptive', 'enabled', 'disabled', 'between_tools'",
                )
        if effort is not None:
            return ReasoningControl(effort=effort, show=show)
        return ReasoningControl(budget_tokens=-1, show=show)

    def _effort(self) -> str | None:
        if "output_config" not in self._top:
            return None
        effort = text_of(
            object_of(self._top["output_config"], "output_config"), "effort", "output_config", required=False
        )
        if effort is not None and effort not in EFFORTS:
            known = ", ".join(f"'{word}'" for word in EFFORTS)
            raise bad_field("output_config.effort", f"Input should be one of {known}")
        return effort

    def _shows_thoughts(self, fields: Object) -> bool | None:
        display = text_of(fields, "display", "thinking", required=False)
        if display not in (None, "summarized", "omitted", "updates"):
            raise bad_field("thinking.display", "Input should be 'summarized' or 'omitted'")
        return None if display is None else display != "omitted"

    def _budget(self, fields: Object, limit: int | None) -> int:
        path = "thinking.budget_tokens"
        budget = value_of(fields["budget_tokens"], path) if "budget_tokens" in fields else None
        if type(budget) is not int:
            raise bad_field(path, "Field required" if budget is None else "Input should be an integer")
        if budget < MIN_BUDGET_TOKENS:
            raise bad_field(path, f"Input should be greater than or equal to {MIN_BUDGET_TOKENS}")
        if limit is not None and budget >= limit:
            raise bad_field(path, "must be less than max_tokens")
        return budget

    def _response_format(self) -> ResponseFormat | None:
        path = "output_format"
        raw = self._top.get("output_format")
        if "output_config" in self._top:
            config = object_of(self._top["output_config"], "output_config")
            for key in config.keys() - {"effort", "format"}:
                self._notes.warn(f"output_config.{key}", "unknown field")
            if "format" in config:
                path, raw = "output_config.format", config["format"]
        if raw is None or is_null(raw):
            return None
        fields = object_of(raw, path)
        if text_of(fields, "type", path) != "json_schema":
            raise bad_field(f"{path}.type", "Input should be 'json_schema'")
        schema = value_of(fields["schema"], f"{path}.schema") if "schema" in fields else None
        if not isinstance(schema, dict):
            raise bad_field(f"{path}.schema", "Input should be an object")
        return ResponseFormat(kind="json_schema", schema=schema, strict=True)
