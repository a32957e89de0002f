"""A request in no format, written for a Messages provider.

What the format or the model cannot say is left out, weakened or refused, and always named: the translation matrix says
which. The conversation is written in `anthropic_content_encoder`. Source: translation matrix; wire formats page
`anthropic-messages.md`.
"""

from hashlib import sha256
from typing import Any

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.messages import ReasoningControl, Request, ResponseFormat, Tool, ToolChoice
from sluicegate.wire.anthropic_content_encoder import ContentWriter, cache_control, provider_name
from sluicegate.wire.anthropic_request_decoder import MIN_BUDGET_TOKENS
from sluicegate.wire.anthropic_schema import closed_schema, has_open_objects, tool_schema
from sluicegate.wire.stop_cutting import cut_here
from sluicegate.wire.translation import Notes

DEFAULT_MAX_TOKENS = 8192
MAX_CACHE_MARKS = 4
_MAX_TEMPERATURE = 1.0
_SEARCH_TOOL = "web_search_20250305"
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 24576, "xhigh": 32768}
_EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_STRONG = ("high", "xhigh", "max")
_CUSTOM_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""A free-form tool's input, as the one argument of a function."""


def encode_request(request: Request, model: str, can: Capabilities, notes: Notes) -> bytes:
    """Encode a body for the provider's model. See `RequestEncoder`."""
    return msgspec.json.encode(_RequestWriter(request, model, can, notes).write())


class _RequestWriter:
    """Writes one request."""

    def __init__(self, request: Request, model: str, can: Capabilities, notes: Notes) -> None:
        self._request = request
        self._model = model
        self._can = can
        self._notes = notes
        self._limit = self._read_limit()
        self._thinking: dict[str, Any] | None = None
        self._effort: str | None = None
        self._instructions: list[str] = []
        """What has to be asked for in words."""

    def write(self) -> dict[str, Any]:
        """Return the body; nothing in it is null."""
        request = self._request
        self._refuse_what_is_unknown()
        content = ContentWriter(self._model, self._can, self._notes)
        turns = content.turns(request.messages, continues=request.continues)
        self._choose_thinking(content)
        body: dict[str, Any] = {"model": self._model, "max_tokens": self._limit}
        output = self._output_config()
        system = content.system(request.messages, self._instructions)
        if system:
            body["system"] = system
        body["messages"] = turns
        body |= self._tools()
        if self._thinking is not None:
            body["thinking"] = self._thinking
        if output:
            body["output_config"] = output
        body |= self._sampling()
        stop = self._stop()
        if stop:
            body["stop_sequences"] = stop
        if request.user:
            body["metadata"] = {"user_id": _user_id(request.user)}
        tier = self._tier()
        if tier is not None:
            body["service_tier"] = tier
        if request.stream:
            body["stream"] = True
        self._keep_few_marks(body)
        return body

    # ---- limits and sampling --------------------------------------------------------------------------------------

    def _read_limit(self) -> int:
        most = self._can.max_output_tokens
        limit = self._request.max_output_tokens
        if limit is None:
            return most or DEFAULT_MAX_TOKENS
        if limit < 1:
            self._notes.reject("max_tokens", "an answer needs at least one token")
        return self._clamped(limit)

    def _clamped(self, limit: int) -> int:
        most = self._can.max_output_tokens
        if most is not None and limit > most:
            self._notes.warn("max_tokens", f"cut to the model's {most}")
            return most
        return limit

    def _sampling(self) -> dict[str, Any]:
        request, notes = self._request, self._notes
        sampling: dict[str, Any] = {}
        temperature: Any = request.temperature  # not as a float: a whole number stays one
        top_p: Any = request.top_p
        if temperature is not None and not self._can.temperature:
            self._leave_out("temperature", is_default=temperature == 1)
        elif temperature is not None:
            if self._is_manual() and temperature != 1:
                notes.reject("temperature", "it cannot be changed while this model thinks")
            most = min(_MAX_TEMPERATURE, self._can.max_temperature)
            if temperature > most:
                notes.warn("temperature", f"cut to {most:g}")
            sampling["temperature"] = min(temperature, most)
        if top_p is not None and (sampling or not self._can.temperature):
            self._leave_out("top_p", is_default=top_p == 1)
        elif top_p is not None:
            sampling["top_p"] = top_p
        if request.top_k is not None and (self._is_manual() or not self._can.temperature):
            self._leave_out("top_k", is_default=False)
        elif request.top_k is not None:
            sampling["top_k"] = round(request.top_k)
        return sampling

    def _leave_out(self, field: str, *, is_default: bool) -> None:
        if is_default:
            self._notes.drop(field, "the default")
        else:
            self._notes.warn(field, "not taken by this model")

    def _stop(self) -> list[str]:
        stop = [sequence for sequence in self._request.stop if sequence]
        blank = [sequence for sequence in stop if not sequence.strip()]
        if blank:
            cut_here(self._request, blank, self._notes)
        return [sequence for sequence in stop if sequence.strip()]

    def _tier(self) -> str | None:
        tier = self._request.service_tier
        if tier is None or tier == "auto":
            return tier
        if tier in ("default", "standard", "standard_only"):
            return "standard_only"
        if tier in ("priority", "fast", "ultrafast"):
            self._notes.warn("service_tier", f"{tier} is not sold here")
        else:
            self._notes.drop("service_tier")
        return None

    def _refuse_what_is_unknown(self) -> None:
        """Drop, name or refuse what this format has no word for."""
        request, notes = self._request, self._notes
        if request.choices > 1:
            notes.reject("n", "one answer a request")
        if request.suffix:
            notes.reject("suffix", "text cannot be filled in")
        if request.logit_bias:
            notes.reject("logit_bias", "not taken by this format", lenient_ok=True)
        if request.logprobs or request.top_logprobs:
            notes.reject("logprobs", "not told by this format", lenient_ok=True)
        if request.seed is not None:
            notes.warn("seed", "not taken by this format")
        for field in ("frequency_penalty", "presence_penalty"):
            if getattr(request, field):
                notes.warn(field, "not taken by this format")
        for field in ("verbosity", "metadata", "prompt_cache_key"):
            if getattr(request, field):
                notes.drop(field)

    # ---- thinking -------------------------------------------------------------------------------------------------

    def _is_manual(self) -> bool:
        """Whether thinking is switched on with a budget, which rules other things out."""
        return self._thinking is not None and self._thinking["type"] == "enabled"

    def _choose_thinking(self, content: ContentWriter) -> None:
        control = self._request.reasoning
        if control is None:
            return
        is_off = control.effort == "none" or control.budget_tokens == 0
        if self._can.reasoning == "none":
            if is_off:
                return
            if control.effort in _STRONG:
                self._notes.warn("reasoning", "this model does not think")
            else:
                self._notes.drop("reasoning", "this model does not think")
        elif self._can.reasoning == "budget":
            self._choose_budget(control, content, is_off=is_off)
        elif not is_off:
            self._thinking = {"type": "adaptive", **_display(control)}
            effort = _effort(control)
            self._effort = None if effort is None else self._can.nearest_effort(effort)
        elif self._can.reasoning_off:
            self._thinking = {"type": "disabled"}
        else:
            self._notes.warn("reasoning", "this model always thinks: it is asked for little")
            self._effort = "low"

    def _choose_budget(self, control: ReasoningControl, content: ContentWriter, *, is_off: bool) -> None:
        budget = control.budget_tokens if control.effort is None else _BUDGETS.get(control.effort)
        if control.effort == "max":
            budget = self._can.max_budget_tokens if self._request.limit_is_visible else self._limit - 1024
        if is_off or budget is None or budget < 0:
            return
        if content.lacks_thought:
            self._notes.warn("reasoning", "the thought before the tool call is not known any more")
            return
        if content.ends_with_prefill:
            self._notes.reject("reasoning", "this model cannot think while it continues an assistant turn")
        least = max(self._can.min_budget_tokens, MIN_BUDGET_TOKENS)
        budget = min(max(budget, least), self._can.max_budget_tokens)
        if self._request.limit_is_visible:
            self._limit = min(self._limit + budget, self._can.max_output_tokens or self._limit + budget)
        if budget >= self._limit:
            budget = self._limit - 1
            if budget < least:
                self._notes.warn("reasoning", "the limit of tokens leaves no room for thoughts")
                return
            self._notes.drop("reasoning", "less of it: the limit of tokens contains it")
        self._thinking = {"type": "enabled", "budget_tokens": budget, **_display(control)}

    # ---- the answer's shape ---------------------------------------------------------------------------------------

    def _output_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {}
        if self._effort is not None:
            config["effort"] = self._effort
        wanted = self._request.response_format
        if wanted is not None:
            self._shape(wanted, config)
        return config

    def _shape(self, wanted: ResponseFormat, config: dict[str, Any]) -> None:
        if wanted.kind == "json_schema" and wanted.schema is not None and self._can.response_schema:
            if has_open_objects(wanted.schema):
                self._notes.warn("response_format", "objects of the schema are closed")
            try:
                config["format"] = {"type": "json_schema", "schema": closed_schema(wanted.schema)}
            except RecursionError:
                self._notes.reject("response_format", "the schema is nested too deeply")
            return
        self._notes.warn("response_format", "asked for in words")
        text = "Answer with one JSON object and nothing else: no text around it, no code fence."
        if wanted.schema is not None:
            schema = msgspec.json.encode(wanted.schema).decode()
            text = f"{text} It must be valid against this JSON Schema: {schema}"
        self._instructions.append(text)

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self) -> dict[str, Any]:
        request = self._request
        if not request.tools and request.web_search is None:
            return {}
        if not self._can.tools:
            self._notes.reject("tools", "this model takes no tools")
        choice = request.tool_choice
        allowed = None
        if choice is not None and choice.mode in ("auto", "required") and choice.names is not None:
            allowed = set(choice.names)
        tools = [
            self._tool(tool, f"tools[{place}]")
            for place, tool in enumerate(request.tools)
            if allowed is None or tool.name in allowed
        ]
        if request.web_search is not None:
            tools.append({"type": _SEARCH_TOOL, "name": "web_search", **self._search(request.web_search)})
        if not tools:
            return {}
        told = self._tool_choice(choice)
        return {"tools": tools, "tool_choice": told} if told else {"tools": tools}

    def _tool(self, tool: Tool, path: str) -> dict[str, Any]:
        schema = _CUSTOM_SCHEMA if tool.custom else tool_schema(tool.parameters)
        if schema is None:
            self._notes.reject(f"{path}.parameters", "the root of a tool's schema must be an object")
        if tool.custom and tool.format is not None:
            self._notes.warn(f"{path}.format", "the grammar of a free-form tool is lost")
        written: dict[str, Any] = {"name": provider_name(tool.name)}
        if tool.description:
            written["description"] = tool.description
        written["input_schema"] = schema
        if tool.strict and self._can.strict_tools:
            written["strict"] = True
        elif tool.strict:
            self._notes.warn(f"{path}.strict", "arguments are not held to the schema")
        return written | cache_control(tool.cache)

    def _search(self, options: dict[str, Any]) -> dict[str, Any]:
        known = ("max_uses", "allowed_domains", "blocked_domains", "user_location")
        for key in options.keys() - set(known):
            self._notes.drop(f"web_search.{key}")
        return {key: options[key] for key in known if options.get(key) is not None}

    def _tool_choice(self, choice: ToolChoice | None) -> dict[str, Any] | None:
        mode = "auto" if choice is None else choice.mode
        if mode == "none":
            return {"type": "none"}
        if mode in ("required", "tool") and (self._is_manual() or not self._can.forced_tools):
            self._notes.reject("tool_choice", "this model cannot be made to call a tool", lenient_ok=True)
            mode = "auto"
        single = self._request.parallel_tool_calls is False
        if single and not self._can.parallel_tools:
            self._notes.warn("parallel_tool_calls", "not taken by this model")
            single = False
        if choice is None and not single:
            return None
        told: dict[str, Any] = {"type": "any" if mode == "required" else mode}
        if mode == "tool" and choice is not None:
            told["name"] = provider_name((choice.names or [""])[0])
        if single:
            told["disable_parallel_tool_use"] = True
        return told

    def _keep_few_marks(self, body: dict[str, Any]) -> None:
        """Take out cache marks above what the format allows, the earliest first."""
        marked = [block for block in _blocks(body) if "cache_control" in block]
        if len(marked) > MAX_CACHE_MARKS:
            self._notes.drop("cache_control", f"at most {MAX_CACHE_MARKS} marks")
            for block in marked[:-MAX_CACHE_MARKS]:
                del block["cache_control"]


def tool_names(request: Request) -> dict[str, str]:
    """Return the tools' names that had to be changed for a provider of this format, back to the client's."""
    return {
        changed: tool.name for tool in request.tools if (changed := provider_name(tool.name)) != tool.name
    }


def _blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return everything in a request that may carry a cache mark, in order."""
    found: list[dict[str, Any]] = list(body.get("tools", ()))
    contents = [body.get("system"), *(turn["content"] for turn in body["messages"])]
    for content in contents:
        for block in content if isinstance(content, list) else ():
            inner = block.get("content")
            found += [*(inner if isinstance(inner, list) else ()), block]
    return found


def _display(control: ReasoningControl) -> dict[str, str]:
    if control.show is None and control.summary is None:
        return {}
    return {"display": "omitted" if control.show is False else "summarized"}


def _effort(control: ReasoningControl) -> str | None:
    """Return the effort that a control asks for; None where the model decides."""
    if control.effort is not None:
        return _EFFORTS.get(control.effort)
    budget = control.budget_tokens
    if budget is None or budget < 0:
        return None
    for bound, effort in ((4096, "low"), (16384, "medium"), (32768, "high")):
        if budget < bound:
            return effort
    return "xhigh"


def _user_id(user: str) -> str:
    """Return the client's id of its user; an address is not told."""
    return sha256(user.encode()).hexdigest() if "@" in user else user
