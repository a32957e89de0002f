"""A request in no format, written for a Responses provider.

What the format or the model cannot say is left out, weakened or refused, and always named: the translation matrix says
which. Nothing is left for the provider to keep. The conversation is written in `openai_responses_items_encoder`.
Source: translation matrix; wire formats page `responses.md`.
"""

from typing import Any

from sluicegate.capabilities import Capabilities
from sluicegate.messages import ReasoningControl, Request, ResponseFormat, Tool, ToolChoice
from sluicegate.wire import json_edit
from sluicegate.wire.openai_responses_items_encoder import ItemWriter
from sluicegate.wire.openai_responses_tools import provider_name
from sluicegate.wire.openai_user import provider_user
from sluicegate.wire.stop_cutting import told_to_provider
from sluicegate.wire.translation import Notes

MIN_OUTPUT_TOKENS = 16
"""Smaller limits are refused by the vendor."""
MAX_TOP_LOGPROBS = 20
_BUDGETS = ((1, "none"), (1024, "minimal"), (4096, "low"), (16384, "medium"), (32768, "high"))
"""Thinking budgets below these are these efforts."""
_STRONG = ("high", "xhigh", "max")
_CUSTOM_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""A free-form tool's input, as the one argument of a function."""
_TIERS = {
    "standard": "default",
    "standard_only": "default",
    "auto": "auto",
    "default": "default",
    "flex": "flex",
    "scale": "scale",
    "priority": "priority",
    "fast": "fast",
    "ultrafast": "ultrafast",
}
_MAX_DEPTH = 64


def encode_request(request: Request, model: str, can: Capabilities, notes: Notes) -> bytes:
    """Encode a body for the provider's model. See `RequestEncoder`."""
    return json_edit.dumps(_RequestWriter(request, model, can, notes).write())


class _RequestWriter:
    """Writes one request."""

    def __init__(self, request: Request, model: str, can: Capabilities, notes: Notes) -> None:
        self._request = request
        self._model = model
        self._can = can
        self._notes = notes
        self._items = ItemWriter(model, can, notes)

    def write(self) -> dict[str, Any]:
        """Return the body; nothing in it is null."""
        request = self._request
        self._refuse_what_is_unknown()
        messages = request.messages
        body: dict[str, Any] = {"model": self._model}
        instructions = self._items.instructions(messages)
        if instructions is not None:
            body["instructions"] = instructions
            messages = messages[1:]
        items = self._items.items(messages)
        self._end()
        body["input"] = items
        body |= self._limit()
        body |= self._sampling()
        body |= self._tools()
        reasoning = self._reasoning()
        if reasoning:
            body["reasoning"] = reasoning
        text = self._text(items)
        if text:
            body["text"] = text
        include = self._include(reasoning)
        if include:
            body["include"] = include
        body |= self._bookkeeping()
        body["store"] = False
        if request.stream:
            body |= {"stream": True, "stream_options": {"include_obfuscation": False}}
        return body

    def _end(self) -> None:
        """Look at the last turn: the model answers it, whoever spoke."""
        last = self._request.messages[-1] if self._request.messages else None
        if last is not None and last.role == "assistant" and self._request.continues:
            path = last.path or "messages"
            self._notes.reject(path, "an assistant turn is not continued in this format", lenient_ok=True)

    def _refuse_what_is_unknown(self) -> None:
        """Drop, name or refuse what this format has no word for."""
        request, notes = self._request, self._notes
        if request.choices > 1:
            notes.reject("n", "one answer a request")
        if request.suffix:
            notes.reject("suffix", "text cannot be filled in")
        if request.logit_bias:
            notes.reject("logit_bias", "not taken by this format", lenient_ok=True)
        told_to_provider(request, 0, notes)
        if request.seed is not None:
            notes.warn("seed", "not taken by this format")
        for field in ("frequency_penalty", "presence_penalty"):
            if getattr(request, field):
                notes.warn(field, "not taken by this format")

    # ---- limits and sampling --------------------------------------------------------------------------------------

    def _limit(self) -> dict[str, int]:
        limit, most = self._request.max_output_tokens, self._can.max_output_tokens
        if limit is None:
            return {}
        if limit < 1:
            self._notes.reject("max_tokens", "an answer needs at least one token")
        if most is not None and limit > most:
            self._notes.warn("max_tokens", f"cut to the model's {most}")
            limit = most
        if limit < MIN_OUTPUT_TOKENS:
            self._notes.warn("max_tokens", f"raised to the least that is taken, {MIN_OUTPUT_TOKENS}")
            limit = MIN_OUTPUT_TOKENS
        return {"max_output_tokens": limit}

    def _sampling(self) -> dict[str, Any]:
        request, can, notes = self._request, self._can, self._notes
        told: dict[str, Any] = {}
        value: Any  # not a float: a whole number stays one
        for field, value in (("temperature", request.temperature), ("top_p", request.top_p)):
            if value is not None and can.temperature:
                told[field] = value
            elif value is not None and value != 1:
                notes.warn(field, "not taken by this model")
        if "temperature" in told and told["temperature"] > can.max_temperature:
            notes.warn("temperature", f"cut to {can.max_temperature:g}")
            told["temperature"] = can.max_temperature
        if request.top_k is not None:
            notes.warn("top_k", "not taken by this format")
        if request.logprobs and request.top_logprobs is not None:
            told["top_logprobs"] = min(request.top_logprobs, MAX_TOP_LOGPROBS)
        return told

    def _bookkeeping(self) -> dict[str, Any]:
        request, notes = self._request, self._notes
        told: dict[str, Any] = {}
        if request.user:
            told["safety_identifier"] = provider_user(request.user, notes)
        if request.metadata and all(isinstance(value, str) for value in request.metadata.values()):
            told["metadata"] = request.metadata
        elif request.metadata:
            notes.drop("metadata", "only text is taken")
        tier = None if request.service_tier is None else _TIERS.get(request.service_tier)
        if tier is not None:
            told["service_tier"] = tier
        elif request.service_tier is not None:
            notes.drop("service_tier")
        if request.prompt_cache_key and self._can.prompt_cache:
            told["prompt_cache_key"] = request.prompt_cache_key
        elif request.prompt_cache_key:
            notes.drop("prompt_cache_key")
        return told

    # ---- reasoning ------------------------------------------------------------------------------------------------

    def _reasoning(self) -> dict[str, Any]:
        control = self._request.reasoning
        if control is None:
            return {}
        effort = _as_effort(control)
        if self._can.reasoning == "none":
            if effort in _STRONG:
                self._notes.warn("reasoning", "this model does not think")
            elif effort != "none":
                self._notes.drop("reasoning", "this model does not think")
            return {}
        told: dict[str, Any] = {}
        if effort == "none" and not self._can.reasoning_off:
            self._notes.warn("reasoning", "this model always thinks: it is asked for little")
            effort = "minimal"
        if effort is not None:
            told["effort"] = self._can.nearest_effort(effort)
        summary = control.summary or ("auto" if control.show else None)
        if summary is not None and effort != "none":
            told["summary"] = summary
        return told

    def _include(self, reasoning: dict[str, Any]) -> list[str]:
        include: list[str] = []
        if self._items.has_state or (reasoning and reasoning.get("effort") != "none"):
            include.append("reasoning.encrypted_content")
        if self._request.logprobs:
            include.append("message.output_text.logprobs")
        return include

    # ---- the answer's shape ---------------------------------------------------------------------------------------

    def _text(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        text: dict[str, Any] = {}
        wanted = self._request.response_format
        if wanted is not None:
            format_ = self._format(wanted, items)
            if format_ is not None:
                text["format"] = format_
        if self._request.verbosity is not None:
            text["verbosity"] = self._request.verbosity
        return text

    def _format(self, wanted: ResponseFormat, items: list[dict[str, Any]]) -> dict[str, Any] | None:
        if wanted.kind == "json_schema" and wanted.schema is not None and self._can.response_schema:
            told: dict[str, Any] = {"type": "json_schema", "name": wanted.name or "response"}
            if wanted.description is not None:
                told["description"] = wanted.description
            told["schema"] = wanted.schema
            if wanted.strict is not None:
                told["strict"] = self._strict(wanted.strict, wanted.schema, "response_format")
            return told
        is_exact = wanted.kind == "json_object" and self._can.json_object
        if not is_exact:
            self._notes.warn("response_format", "asked for in words")
            said = "Answer with one JSON object and nothing else: no text around it, no code fence."
            if wanted.schema is not None:
                said += f" It must fit this JSON Schema:\n{json_edit.dumps(wanted.schema).decode()}"
            items.append({"role": "developer" if self._can.developer_role else "system", "content": said})
        return {"type": "json_object"} if self._can.json_object else None

    def _strict(self, wanted: bool, schema: dict[str, Any] | None, path: str) -> bool:
        """Return whether the vendor can be held to a schema: it refuses to be where objects are open."""
        if wanted and not _is_strict(schema or {}):
            self._notes.warn(path, "the schema leaves something open, so it is not enforced")
            return False
        return wanted

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self) -> dict[str, Any]:
        request, notes = self._request, self._notes
        if not request.tools and request.web_search is None:
            return {}
        if not self._can.tools:
            notes.reject("tools", "this model calls no tools")
        tools = [self._tool(tool, f"tools[{place}]") for place, tool in enumerate(request.tools)]
        if len({provider_name(tool.name) for tool in request.tools}) < len(request.tools):
            notes.reject("tools", "two names become the same one")
        if request.web_search is not None:
            tools.append(self._search(request.web_search))
        told: dict[str, Any] = {"tools": tools}
        if request.tool_choice is not None:
            told["tool_choice"] = self._choice(request.tool_choice)
        if request.parallel_tool_calls is not None and self._can.parallel_tools:
            told["parallel_tool_calls"] = request.parallel_tool_calls
        elif request.parallel_tool_calls is False:
            notes.warn("parallel_tool_calls", "several calls may come at once")
        return told

    def _tool(self, tool: Tool, path: str) -> dict[str, Any]:
        named: dict[str, Any] = {"name": provider_name(tool.name)}
        if tool.description is not None:
            named["description"] = tool.description
        if tool.cache is not None:
            self._notes.drop(f"{path}.cache_control", "tools carry no marks of the prompt cache")
        if tool.custom and self._can.custom_tools:
            format_ = {} if tool.format is None else {"format": tool.format}
            return {"type": "custom", **named, **format_}
        schema = tool.parameters or {"type": "object", "properties": {}}
        if tool.custom:
            if tool.format is not None and tool.format.get("type") != "text":
                self._notes.warn(f"{path}.format", "the grammar of a free-form tool is lost")
            schema = _CUSTOM_SCHEMA
        # Said always: where nothing is said, the vendor tries to be strict.
        strict = self._strict(bool(tool.strict), schema, f"{path}.strict")
        return {"type": "function", **named, "parameters": schema, "strict": strict}

    def _search(self, options: dict[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {"type": "web_search"}
        for key, value in options.items():
            if not value:
                continue
            if key == "allowed_domains":
                told["filters"] = {"allowed_domains": value}
            elif key == "blocked_domains":
                self._notes.reject(f"web_search.{key}", "domains cannot be ruled out", lenient_ok=True)
            elif key in ("user_location", "search_context_size"):
                told[key] = value
            else:
                self._notes.drop(f"web_search.{key}", "not known to this format")
        return told

    def _choice(self, choice: ToolChoice) -> str | dict[str, Any]:
        forced = choice.mode in ("required", "tool")
        if forced and not self._can.forced_tools:
            self._notes.reject("tool_choice", "this model cannot be made to call a tool", lenient_ok=True)
            return "auto"
        if not choice.names:
            return "auto" if choice.mode == "tool" else choice.mode
        named = [self._named(name) for name in choice.names]
        if choice.mode == "tool":
            return named[0]
        return {"type": "allowed_tools", "mode": choice.mode, "tools": named}

    def _named(self, name: str) -> dict[str, Any]:
        is_custom = any(tool.custom and tool.name == name for tool in self._request.tools)
        kind = "custom" if is_custom and self._can.custom_tools else "function"
        return {"type": kind, "name": provider_name(name)}


def _as_effort(control: ReasoningControl) -> str | None:
    """Return the effort that a budget stands for; None: the model decides."""
    budget = control.budget_tokens
    if control.effort is not None or budget is None or budget < 0:
        return control.effort
    return next((effort for bound, effort in _BUDGETS if budget < bound), "xhigh")


def _is_strict(schema: Any, depth: int = 0) -> bool:
    """Whether every object of a schema is closed, and all that it may hold is required."""
    if isinstance(schema, list):
        return all(_is_strict(inner, depth + 1) for inner in schema)
    if not isinstance(schema, dict):
        return True
    if depth > _MAX_DEPTH:
        return False
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, dict):
        properties = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        needed = {name if isinstance(name, str) else None for name in names}  # none else is a property's
        if schema.get("additionalProperties") is not False or needed != set(properties):
            return False
    named = [schema.get(key) for key in ("properties", "$defs", "definitions")]
    inner = [value for group in named if isinstance(group, dict) for value in group.values()]
    inner += [schema.get(key) for key in ("items", "anyOf", "allOf", "oneOf", "prefixItems")]
    return all(_is_strict(value, depth + 1) for value in inner)
