"""A request in no format, written for a Gemini provider.

What the format or the model cannot say is left out, weakened or refused, and always named: the translation matrix says
which. The conversation is written in `gemini_content_encoder`. Source: translation matrix; wire formats page
`gemini.md`.
"""

from typing import Any

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.messages import ReasoningControl, Request, Tool
from sluicegate.wire.gemini_content_encoder import ContentWriter, provider_name
from sluicegate.wire.gemini_schema import from_json_schema
from sluicegate.wire.stop_cutting import told_to_provider
from sluicegate.wire.translation import Notes

_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
_LEVELS = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH"}
_EFFORTS = ((1024, "minimal"), (4096, "low"), (16384, "medium"), (32768, "high"))
"""Budgets below these are the effort beside them."""
_STRONG = ("high", "xhigh", "max")
_TIERS = {
    "default": "standard",
    "standard": "standard",
    "standard_only": "standard",
    "flex": "flex",
    "priority": "priority",
    "fast": "priority",
}
_CUSTOM_SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""A free-form tool's input, as the one argument of a function."""


def encode_request(request: Request, model: str, can: Capabilities, notes: Notes) -> bytes:
    """Encode a body for the provider's model, whose name and method the path says. See `RequestEncoder`."""
    return msgspec.json.encode(_RequestWriter(request, model, can, notes).write())


def tool_names(request: Request) -> dict[str, str]:
    """Return the tools' names that had to be changed for a provider of this format, back to the client's."""
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

    def write(self) -> dict[str, Any]:
        """Return the body; nothing in it is null."""
        request = self._request
        self._refuse_what_is_unknown()
        content = ContentWriter(self._model, self._can, self._notes)
        body: dict[str, Any] = {}
        system = content.system(request.messages)
        if system:
            body["systemInstruction"] = {"parts": system}
        body["contents"] = content.contents(request.messages, continues=request.continues)
        body |= self._tools()
        config = self._config()
        if config:
            body["generationConfig"] = config
        tier = self._tier()
        if tier is not None:
            body["serviceTier"] = tier
        return body

    def _refuse_what_is_unknown(self) -> None:
        """Drop, name or refuse what this format has no word for."""
        request, notes = self._request, self._notes
        if request.suffix:
            notes.reject("suffix", "text cannot be filled in")
        if request.logit_bias:
            notes.reject("logit_bias", "not taken by this format", lenient_ok=True)
        for field in ("verbosity", "metadata", "user", "prompt_cache_key"):
            if getattr(request, field):
                notes.drop(field)
        if any(getattr(part, "cache", None) for message in request.messages for part in message.parts) or any(
            tool.cache for tool in request.tools
        ):
            notes.drop("cache_control", "this format caches by itself")

    def _tier(self) -> str | None:
        tier = self._request.service_tier
        if tier is None or tier == "auto":
            return None
        if tier not in _TIERS:
            self._notes.drop("service_tier")
        return _TIERS.get(tier)

    # ---- generationConfig -----------------------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        request = self._request
        config: dict[str, Any] = {}
        config |= self._sampling()
        if request.choices > 1:
            config["candidateCount"] = request.choices
        limit = self._limit()
        if limit is not None:
            config["maxOutputTokens"] = limit
        stop = told_to_provider(request, self._can.max_stop_sequences, self._notes)
        if stop:
            config["stopSequences"] = stop
        if request.logprobs or request.top_logprobs is not None:
            config["responseLogprobs"] = True
            if request.top_logprobs is not None:
                config["logprobs"] = request.top_logprobs
        config |= self._shape()
        thinking = self._thinking()
        if thinking:
            config["thinkingConfig"] = thinking
        return config

    def _limit(self) -> int | None:
        most, limit = self._can.max_output_tokens, self._request.max_output_tokens
        if limit is not None and limit < 1:
            self._notes.reject("max_tokens", "an answer needs at least one token")
        if limit is not None and most is not None and limit > most:
            self._notes.warn("max_tokens", f"cut to the model's {most}")
            return most
        return limit

    def _sampling(self) -> dict[str, Any]:
        request = self._request
        sampling: dict[str, Any] = {}
        values: tuple[tuple[str, str, Any, int | None], ...] = (  # not as floats: a whole number stays one
            ("temperature", "temperature", request.temperature, 1),
            ("topP", "top_p", request.top_p, 1),
            ("topK", "top_k", request.top_k, None),
        )
        for key, field, value, default in values:
            if value is None:
                continue
            if self._can.temperature:
                sampling[key] = value
            elif value == default:
                self._notes.drop(field, "the default")
            else:
                self._notes.warn(field, "not taken by this model")
        if sampling.get("temperature", 0) > self._can.max_temperature:
            self._notes.warn("temperature", f"cut to {self._can.max_temperature:g}")
            sampling["temperature"] = self._can.max_temperature
        if request.seed is not None:
            sampling["seed"] = request.seed
        penalties: tuple[tuple[str, Any], ...] = (
            ("presencePenalty", request.presence_penalty),
            ("frequencyPenalty", request.frequency_penalty),
        )
        for key, penalty in penalties:
            if penalty:
                sampling[key] = penalty
        return sampling

    def _shape(self) -> dict[str, Any]:
        wanted = self._request.response_format
        if wanted is None:
            return {}
        if self._request.tools and not self._can.json_with_tools:
            self._notes.reject("response_format", "this model gives JSON or calls tools, not both")
        shape: dict[str, Any] = {"responseMimeType": "application/json"}
        if wanted.kind == "json_object" or wanted.schema is None:
            return shape
        if not self._can.response_schema:
            self._notes.warn("response_format", "the answer is JSON, but held to no schema")
        elif self._can.clean_schemas:
            shape["responseSchema"] = self._cleaned(wanted.schema, "response_format")
        else:
            shape["responseJsonSchema"] = wanted.schema
        return shape

    def _cleaned(self, schema: dict[str, Any], field: str) -> dict[str, Any]:
        lost: list[str] = []
        cleaned = from_json_schema(schema, lost.append)
        if lost:
            self._notes.warn(field, f"only described: {' '.join(sorted(set(lost)))}")
        return cleaned

    # ---- thinking -------------------------------------------------------------------------------------------------

    def _thinking(self) -> dict[str, Any]:
        control = self._request.reasoning
        if control is None:
            return {}
        if self._can.reasoning == "none":
            if control.effort in _STRONG:
                self._notes.warn("reasoning", "this model does not think")
            elif control.effort != "none" and control.budget_tokens != 0:
                self._notes.drop("reasoning", "this model does not think")
            return {}
        takes_budget = self._can.reasoning == "budget" or (
            self._can.reasoning != "level" and control.effort is None
        )
        thinking = self._budget(control) if takes_budget else self._level(control)
        show = control.show if control.show is not None else (True if control.summary else None)
        if show is not None:
            thinking["includeThoughts"] = show
        return thinking

    def _budget(self, control: ReasoningControl) -> dict[str, Any]:
        most = self._can.max_budget_tokens
        budget = control.budget_tokens
        if control.effort is not None:
            budget = 0 if control.effort == "none" else _BUDGETS.get(control.effort, most)
        if budget is None:
            return {}
        if budget == 0 and not self._can.reasoning_off:
            self._notes.warn("reasoning", "this model always thinks: it is asked for little")
            budget = self._can.min_budget_tokens
        elif budget > most:
            self._notes.drop("reasoning", f"cut to the model's {most}")
            budget = most
        return {"thinkingBudget": budget}

    def _level(self, control: ReasoningControl) -> dict[str, Any]:
        effort = control.effort
        if effort is None:
            effort = _effort_of(control.budget_tokens)
        if effort is None:
            return {}
        if effort == "none":
            self._notes.warn("reasoning", "this model always thinks: it is asked for little")
            effort = "minimal"
        level = _LEVELS.get(self._can.nearest_effort(effort))
        if level is None:
            level = "XHIGH" if self._can.xhigh_effort else "HIGH"
        return {"thinkingLevel": level}

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self) -> dict[str, Any]:
        request = self._request
        if not request.tools and request.web_search is None:
            return {}
        if not self._can.tools:
            self._notes.reject("tools", "this model takes no tools")
        entries: list[dict[str, Any]] = []
        if request.tools:
            if len({provider_name(tool.name) for tool in request.tools}) < len(request.tools):
                self._notes.reject("tools", "two tools have the same name")
            declared = [self._tool(tool, f"tools[{place}]") for place, tool in enumerate(request.tools)]
            entries.append({"functionDeclarations": declared})
        if request.web_search is not None and request.tools and not self._can.search_with_tools:
            self._notes.warn("web_search", "not beside functions")
        elif request.web_search is not None:
            self._search(request.web_search)
            entries.append({"googleSearch": {}})
        calling = self._calling() if request.tools else None
        if request.tools and request.parallel_tool_calls is False:
            self._notes.warn("parallel_tool_calls", "this format cannot forbid several calls at once")
        if calling is None:
            return {"tools": entries}
        return {"tools": entries, "toolConfig": {"functionCallingConfig": calling}}

    def _tool(self, tool: Tool, path: str) -> dict[str, Any]:
        declared: dict[str, Any] = {"name": provider_name(tool.name)}
        if tool.description:
            declared["description"] = tool.description
        schema = _CUSTOM_SCHEMA if tool.custom else tool.parameters
        if tool.custom and tool.format is not None:
            self._notes.warn(f"{path}.format", "the grammar of a free-form tool is lost")
        if schema and not self._can.clean_schemas:
            declared["parametersJsonSchema"] = schema
        elif schema and schema.get("properties"):
            declared["parameters"] = self._cleaned(schema, f"{path}.parameters")
        return declared

    def _search(self, options: dict[str, Any]) -> None:
        for key in ("allowed_domains", "blocked_domains"):
            if options.get(key):
                self._notes.reject(
                    f"web_search.{key}", "a search cannot be limited to sites", lenient_ok=True
                )
        for key, value in options.items():
            if value and key not in ("allowed_domains", "blocked_domains"):
                self._notes.drop(f"web_search.{key}")

    def _calling(self) -> dict[str, Any] | None:
        choice = self._request.tool_choice
        strict = any(tool.strict for tool in self._request.tools)
        if choice is None:
            return {"mode": "VALIDATED"} if strict else None
        mode = choice.mode
        if mode in ("required", "tool") and not self._can.forced_tools:
            self._notes.reject("tool_choice", "this model cannot be made to call a tool", lenient_ok=True)
            mode = "auto"
        names = [provider_name(name) for name in choice.names or ()]
        if mode == "none":
            return {"mode": "NONE"}
        if mode == "auto":
            calling: dict[str, Any] = {"mode": "VALIDATED" if strict or names else "AUTO"}
        else:
            calling = {"mode": "ANY"}
        if names:
            calling["allowedFunctionNames"] = names
        return calling


def _effort_of(budget: int | None) -> str | None:
    """Return the effort that a budget stands for; None where the model decides."""
    if budget is None or budget < 0:
        return None
    if budget == 0:
        return "none"
    return next((effort for bound, effort in _EFFORTS if budget < bound), "xhigh")
