"""A request in no format, written for a chat provider.

What the format or the model cannot say is left out, weakened or refused, and always named: the translation matrix says
which. The provider is always asked for usage of a stream; whoever sends the body takes that out again for servers that
do not know it. The conversation is written in `openai_chat_content_encoder`. Source: translation matrix; wire formats
page `chat-completions.md`.
"""

from typing import Any

from sluicegate.capabilities import Capabilities
from sluicegate.messages import ReasoningControl, Request, ResponseFormat, Tool, ToolChoice
from sluicegate.wire import json_edit
from sluicegate.wire.openai_chat_content_encoder import ContentWriter, provider_name
from sluicegate.wire.openai_user import provider_user
from sluicegate.wire.stop_cutting import told_to_provider
from sluicegate.wire.translation import Notes

_BUDGETS = ((1, "none"), (1024, "minimal"), (4096, "low"), (16384, "medium"), (32768, "high"))
"""Thinking budgets below these are these efforts."""
_STRONG = ("high", "xhigh", "max")
_CUSTOM_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""A free-form tool's input, as the one argument of a function."""
_TIERS = {"standard": "default", "standard_only": "default"}
_DOMAIN_FILTERS = ("allowed_domains", "blocked_domains")


def encode_request(request: Request, model: str, can: Capabilities, notes: Notes) -> bytes:
    """Encode a body for the provider's model. See `RequestEncoder`."""
    return json_edit.dumps(_RequestWriter(request, model, can, notes).write())


def tool_names(request: Request) -> dict[str, str]:
    """Return the tools' names that this format has to change, back to the client's."""
    return {
        changed: tool.name for tool in request.tools if (changed := provider_name(tool.name)) != tool.name
    }


class _RequestWriter:
    """Writes one request."""

    def __init__(self, request: Request, model: str, can: Capabilities, notes: Notes) -> None:
        self._request = request
        self._model = model
        self._can = can
        self._notes = notes
        self._content = ContentWriter(can, notes)

    def write(self) -> dict[str, Any]:
        """Return the body; nothing in it is null that may be left out."""
        request, notes = self._request, self._notes
        if request.suffix:
            notes.reject("suffix", "text cannot be filled in")
        messages = self._content.messages(request.messages)
        self._end(messages)
        body: dict[str, Any] = {"model": self._model, "messages": messages}
        body |= self._limit()
        body |= sampling(request, self._can, notes)
        body |= self._probabilities()
        body |= self._tools()
        body |= self._response_format(messages)
        effort = self._effort()
        if effort is not None:
            body["reasoning_effort"] = self._can.nearest_effort(effort)
        body |= self._bookkeeping()
        if request.stream:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        return body

    def _end(self, messages: list[dict[str, Any]]) -> None:
        """Look at the last turn: the model answers it, whoever spoke."""
        last = messages[-1] if messages else None
        if last is not None and last["role"] == "assistant" and self._request.continues:
            path = self._request.messages[-1].path or "messages"
            self._notes.reject(path, "an assistant turn is not continued in this format", lenient_ok=True)

    def _limit(self) -> dict[str, int]:
        limit, most = self._request.max_output_tokens, self._can.max_output_tokens
        if limit is None:
            return {}
        if limit < 1:
            self._notes.reject("max_tokens", "an answer needs at least one token")
        if most is not None and limit > most:
            self._notes.warn("max_tokens", f"cut to the model's {most}")
            limit = most
        return {self._can.limit_field: limit}

    def _probabilities(self) -> dict[str, Any]:
        request = self._request
        if not request.logprobs:
            return {}
        top = request.top_logprobs
        return {"logprobs": True} if top is None else {"logprobs": True, "top_logprobs": min(top, 20)}

    def _bookkeeping(self) -> dict[str, Any]:
        request, notes = self._request, self._notes
        told: dict[str, Any] = {}
        if request.verbosity is not None:
            told["verbosity"] = request.verbosity
        if request.user:
            told["user"] = provider_user(request.user, notes)
        if request.metadata:
            told["metadata"] = request.metadata
        if request.service_tier is not None:
            told["service_tier"] = _TIERS.get(request.service_tier, request.service_tier)
        if request.prompt_cache_key and self._can.prompt_cache:
            told["prompt_cache_key"] = request.prompt_cache_key
        elif request.prompt_cache_key:
            notes.drop("prompt_cache_key")
        return told

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self) -> dict[str, Any]:
        request, notes = self._request, self._notes
        told = self._web_search()
        if not request.tools:
            return told
        if not self._can.tools:
            notes.reject("tools", "this model calls no tools")
        told["tools"] = [self._tool(tool, f"tools[{place}]") for place, tool in enumerate(request.tools)]
        if len({provider_name(tool.name) for tool in request.tools}) < len(request.tools):
            notes.reject("tools", "two names become the same one")
        choice = None if request.tool_choice is None else self._choice(request.tool_choice)
        if choice is not None:
            told["tool_choice"] = choice
        if request.parallel_tool_calls is not None and self._can.parallel_tools:
            told["parallel_tool_calls"] = request.parallel_tool_calls
        elif request.parallel_tool_calls is False:
            notes.warn("parallel_tool_calls", "several calls may come at once")
        return told

    def _tool(self, tool: Tool, path: str) -> dict[str, Any]:
        told: dict[str, Any] = {"name": provider_name(tool.name)}
        if tool.description is not None:
            told["description"] = tool.description
        mark = self._content.cache_mark(tool.cache)
        if tool.custom and self._can.custom_tools:
            if tool.format is not None:
                told["format"] = _grammar(tool.format)
            return {"type": "custom", "custom": told, **mark}
        if tool.custom:
            if tool.format is not None and tool.format.get("type") != "text":
                self._notes.warn(path, "the grammar of a free-form tool is lost")
            told["parameters"] = _CUSTOM_SCHEMA
        elif tool.parameters is not None:
            told["parameters"] = tool.parameters
        if tool.strict is not None:
            told["strict"] = tool.strict
        return {"type": "function", "function": told, **mark}

    def _choice(self, choice: ToolChoice) -> str | dict[str, Any] | None:
        forced = choice.mode in ("required", "tool")
        if forced and not self._can.forced_tools:
            self._notes.reject("tool_choice", "this model cannot be made to call a tool", lenient_ok=True)
            return "auto"
        if not choice.names:
            return choice.mode
        names = [self._named(name) for name in choice.names]
        if choice.mode == "tool":
            return names[0]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": names}}

    def _named(self, name: str) -> dict[str, Any]:
        is_custom = any(tool.custom and tool.name == name for tool in self._request.tools)
        kind = "custom" if is_custom and self._can.custom_tools else "function"
        return {"type": kind, kind: {"name": provider_name(name)}}

    def _web_search(self) -> dict[str, Any]:
        search = self._request.web_search
        if search is None:
            return {}
        if not self._can.web_search:
            if self._request.tools:  # one offer among others: the turn goes on without
                self._notes.warn("web_search", "this model does not search")
            else:
                self._notes.reject("web_search", "this model does not search", lenient_ok=True)
            return {}
        options: dict[str, Any] = {}
        for key, value in search.items():
            if key == "search_context_size":
                options[key] = value
            elif key == "user_location" and isinstance(value, dict):
                near = {name: text for name, text in value.items() if name != "type"}
                options[key] = {"type": "approximate", "approximate": near}
            elif key in _DOMAIN_FILTERS and value:
                self._notes.reject(f"web_search.{key}", "domains cannot be chosen", lenient_ok=True)
            elif value:
                self._notes.warn(f"web_search.{key}", "not known to this format")
        return {"web_search_options": options}

    # ---- reasoning and the answer's shape -------------------------------------------------------------------------

    def _effort(self) -> str | None:
        control = self._request.reasoning
        if control is None:
            return None
        effort = _as_effort(control)
        if effort is None:
            return None
        if self._can.reasoning == "none":
            if effort in _STRONG:
                self._notes.warn("reasoning", "this model does not think")
            elif effort != "none":
                self._notes.drop("reasoning", "this model does not think")
            return None
        if effort == "none" and not self._can.reasoning_off:
            self._notes.warn("reasoning", "this model always thinks: it is asked for little")
            return "low"
        return effort

    def _response_format(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        wanted = self._request.response_format
        if wanted is None:
            return {}
        if wanted.kind == "json_schema" and self._can.response_schema:
            return {"response_format": _schema(wanted)}
        if wanted.kind == "json_object" and self._can.json_object:
            return {"response_format": {"type": "json_object"}}
        self._notes.warn("response_format", "asked for in words")
        text = "Answer with one JSON object and nothing else: no text around it, no code fence."
        if wanted.schema is not None:
            text += f" It must fit this JSON Schema:\n{json_edit.dumps(wanted.schema).decode()}"
        place = next(
            (
                place
                for place, message in enumerate(messages)
                if message["role"] not in ("system", "developer")
            ),
            len(messages),
        )
        messages.insert(place, {"role": "system", "content": text})
        return {"response_format": {"type": "json_object"}} if self._can.json_object else {}


def sampling(request: Request, can: Capabilities, notes: Notes) -> dict[str, Any]:
    """Return how tokens are chosen and where the answer stops, as chat and completions say it."""
    told: dict[str, Any] = {}
    temperature: Any = request.temperature  # not as a float: a whole number stays one
    top_p: Any = request.top_p
    for field, value in (("temperature", temperature), ("top_p", top_p)):
        if value is not None and can.temperature:
            told[field] = value
        elif value is not None and value != 1:
            notes.warn(field, "not taken by this model")
    if temperature is not None and can.temperature and temperature > can.max_temperature:
        notes.warn("temperature", f"cut to {can.max_temperature:g}")
        told["temperature"] = can.max_temperature
    if request.top_k is not None:
        notes.warn("top_k", "not taken by this format")
    if request.choices > 1:
        told["n"] = request.choices
    stop = told_to_provider(request, can.max_stop_sequences, notes)
    if stop:
        told["stop"] = stop
    if request.seed is not None:
        told["seed"] = request.seed
    penalty: Any
    for field, penalty in (
        ("frequency_penalty", request.frequency_penalty),
        ("presence_penalty", request.presence_penalty),
    ):
        if penalty and can.temperature:
            told[field] = penalty
        elif penalty:
            notes.warn(field, "not taken by this model")
    if request.logit_bias:
        told["logit_bias"] = request.logit_bias
    return told


def _as_effort(control: ReasoningControl) -> str | None:
    """Return the effort that a budget stands for; None: the model decides."""
    budget = control.budget_tokens
    if control.effort is not None or budget is None or budget < 0:
        return control.effort
    return next((effort for bound, effort in _BUDGETS if budget < bound), "xhigh")


def _schema(wanted: ResponseFormat) -> dict[str, Any]:
    shape: dict[str, Any] = {"name": wanted.name or "response"}
    if wanted.description is not None:
        shape["description"] = wanted.description
    shape["schema"] = wanted.schema or {}
    if wanted.strict is not None:
        shape["strict"] = wanted.strict
    return {"type": "json_schema", "json_schema": shape}


def _grammar(format_: dict[str, Any]) -> dict[str, Any]:
    """Return a free-form tool's format as chat nests it."""
    if format_.get("type") != "grammar":
        return {"type": "text"}
    grammar = {key: format_[key] for key in ("definition", "syntax") if key in format_}
    return {"type": "grammar", "grammar": grammar}
