"""A Gemini client's request, decoded into the common vocabulary and held to the rules of its own format.

The model and whether the answer streams stand in the path. Every error names the path of the field; what another vendor
cannot be told is dropped, named or refused as the translation matrix says. The conversation itself is read in
`gemini_content_decoder`. Source: wire formats page `gemini.md`, "Request".
"""

from typing import Any

from sluicegate.errors import BadRequest
from sluicegate.messages import ReasoningControl, Request, ResponseFormat, Tool, ToolChoice
from sluicegate.wire.gemini_content_decoder import ContentReader
from sluicegate.wire.gemini_fields import Fields
from sluicegate.wire.gemini_schema import from_either_dialect, to_json_schema
from sluicegate.wire.translation import Notes, bad_field

MAX_STOP_SEQUENCES = 5
MAX_CHOICES = 8
_READ = frozenset(
    {
        "model",
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        "generationConfig",
        "safetySettings",
        "serviceTier",
    }
)
_DROPPED = frozenset({"labels", "store"})
_REFUSED = frozenset({"cachedContent", "continuationToken"})
_CONFIG_READ = frozenset(
    {
        "temperature",
        "topP",
        "topK",
        "candidateCount",
        "maxOutputTokens",
        "stopSequences",
        "seed",
        "presencePenalty",
        "frequencyPenalty",
        "responseLogprobs",
        "logprobs",
        "responseMimeType",
        "responseSchema",
        "responseJsonSchema",
        "thinkingConfig",
        "responseModalities",
    }
)
_CONFIG_REFUSED = frozenset({"speechConfig", "imageConfig", "responseFormat"})
_THRESHOLDS_OFF = frozenset({"BLOCK_NONE", "OFF"})
_LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH")
_MODES = ("AUTO", "ANY", "NONE", "VALIDATED")
_TIERS = {"STANDARD": "default", "FLEX": "flex", "PRIORITY": "priority"}
_DECLARATION = frozenset({"name", "description", "parameters", "parametersJsonSchema"})
_MAX_BUDGET_TOKENS = 2**24


def decode_request(body: bytes, notes: Notes, path_model: str | None = None) -> Request:
    """Decode a body. See `RequestDecoder`; `stream` stays False, since only the path tells it."""
    return _RequestReader(Fields(body, ""), notes).read(path_model)


def decode_fields(fields: Fields, notes: Notes, path_model: str | None) -> Request:
    """Decode a request that stands inside another body."""
    return _RequestReader(fields, notes).read(path_model)


class _RequestReader:
    """Reads one request, field by field."""

    def __init__(self, top: Fields, notes: Notes) -> None:
        self._top = top
        self._notes = notes

    def read(self, path_model: str | None) -> Request:
        """Return the request."""
        model = path_model or (self._top.text("model") or "").removeprefix("models/")
        if not model:
            raise BadRequest("The path names no model.", param="model")
        content = ContentReader(self._notes)
        messages = content.system(self._top) + content.messages(self._top)
        tools, web_search = self._tools()
        request = Request(
            model=model,
            messages=messages,
            tools=tools,
            web_search=web_search,
            tool_choice=self._tool_choice(tools),
            service_tier=self._tier(),
            continues=True,
        )
        config = self._top.object("generationConfig")
        if config is not None:
            self._configure(request, config)
        self._take_rest()
        return request

    def _tier(self) -> str | None:
        word = self._top.enum("serviceTier", _TIERS, "SERVICE_TIER_")
        return None if word is None else _TIERS[word]

    def _take_rest(self) -> None:
        for setting in self._top.objects("safetySettings"):
            threshold = (setting.text("threshold") or "").upper()
            if threshold in _THRESHOLDS_OFF or threshold.endswith("UNSPECIFIED"):
                self._notes.drop(setting.at("threshold"))
            else:
                self._notes.warn(setting.at("threshold"), "other vendors choose themselves what they block")
        for key in self._top.beyond(_READ):
            if key in _DROPPED:
                self._notes.drop(key)
            elif key in _REFUSED:
                self._notes.reject(key, "known to one vendor only")
            else:
                self._notes.warn(key, "unknown field")

    # ---- generationConfig -----------------------------------------------------------------------------------------

    def _configure(self, request: Request, config: Fields) -> None:
        request.temperature = config.number("temperature", 0.0, 2.0)
        request.top_p = config.number("topP", 0.0, 1.0)
        request.top_k = config.number("topK", 0.0, 2.0**31)
        request.choices = config.integer("candidateCount", 1, MAX_CHOICES) or 1
        request.max_output_tokens = config.integer("maxOutputTokens", 1)
        request.seed = config.integer("seed")
        request.presence_penalty = config.number("presencePenalty", -2.0, 2.0)
        request.frequency_penalty = config.number("frequencyPenalty", -2.0, 2.0)
        request.logprobs = config.flag("responseLogprobs") or False
        request.top_logprobs = config.integer("logprobs", 0, 20)
        request.stop = config.texts("stopSequences")
        if len(request.stop) > MAX_STOP_SEQUENCES:
            raise bad_field(config.at("stopSequences"), f"at most {MAX_STOP_SEQUENCES} are taken")
        request.response_format = self._response_format(config)
        request.reasoning = self._reasoning(config)
        for modality in config.texts("responseModalities"):
            if modality.upper() != "TEXT":
                self._notes.reject(config.at("responseModalities"), f"{modality} is known to one vendor only")
        for key in config.beyond(_CONFIG_READ):
            if key in _CONFIG_REFUSED:
                self._notes.reject(config.at(key), "known to one vendor only")
            elif key == "mediaResolution":
                self._notes.drop(config.at(key))
            else:
                self._notes.warn(config.at(key), "known to one vendor only")

    def _response_format(self, config: Fields) -> ResponseFormat | None:
        if "responseSchema" in config and "responseJsonSchema" in config:
            raise bad_field(config.at("responseJsonSchema"), "only one of both schemas may be given")
        schema = from_either_dialect(config.free("responseJsonSchema"))
        if schema is None:
            own = config.free("responseSchema")
            schema = None if own is None else to_json_schema(own)
        mime = (config.text("responseMimeType") or "text/plain").lower()
        if mime == "text/plain":
            if schema is not None:
                raise bad_field(config.at("responseMimeType"), "a schema needs 'application/json'")
            return None
        if mime == "text/x.enum":
            self._notes.reject(config.at("responseMimeType"), "a bare enum value is known to one vendor only")
        elif mime != "application/json":
            raise bad_field(
                config.at("responseMimeType"),
                "must be 'text/plain', 'application/json' or 'text/x.enum'",
            )
        if schema is None:
            return ResponseFormat(kind="json_object")
        return ResponseFormat(kind="json_schema", schema=schema, name="response")

    def _reasoning(self, config: Fields) -> ReasoningControl | None:
        thinking = config.object("thinkingConfig")
        if thinking is None:
            return None
        for key in thinking.beyond({"includeThoughts", "thinkingBudget", "thinkingLevel"}):
            self._notes.warn(thinking.at(key), "unknown field")
        budget = thinking.integer("thinkingBudget", -1, _MAX_BUDGET_TOKENS)
        level = thinking.enum("thinkingLevel", _LEVELS, "THINKING_LEVEL_")
        if budget is not None and level is not None:
            raise bad_field(thinking.at("thinkingBudget"), "only one of budget and level may be given")
        return ReasoningControl(
            effort=None if level is None else level.lower(),
            budget_tokens=budget,
            show=thinking.flag("includeThoughts"),
        )

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self) -> tuple[list[Tool], dict[str, Any] | None]:
        """Return the functions, and the options of a web search if there is one."""
        tools: list[Tool] = []
        names: set[str] = set()
        web_search: dict[str, Any] | None = None
        for entry in self._top.objects("tools"):
            for key in entry.names():
                if key == "functionDeclarations":
                    for declaration in entry.objects(key):
                        tool = self._tool(declaration)
                        if tool.name in names:
                            raise bad_field(declaration.at("name"), "function names must be unique")
                        names.add(tool.name)
                        tools.append(tool)
                elif key in ("googleSearch", "googleSearchRetrieval"):
                    web_search = {}
                    for option in (entry.object(key) or entry).names():
                        self._notes.warn(f"{entry.at(key)}.{option}", "known to one vendor only")
                else:
                    self._notes.reject(entry.at(key), "this tool is known to one vendor only")
        return tools, web_search

    def _tool(self, declaration: Fields) -> Tool:
        if "parameters" in declaration and "parametersJsonSchema" in declaration:
            raise bad_field(declaration.at("parametersJsonSchema"), "only one of both schemas may be given")
        schema = from_either_dialect(declaration.free("parametersJsonSchema"))
        if schema is None:
            own = declaration.free("parameters")
            schema = None if own is None else to_json_schema(own)
        for key in declaration.beyond(_DECLARATION):
            self._notes.drop(declaration.at(key), "known to one vendor only")
        return Tool(
            name=declaration.needed_text("name"),
            description=declaration.text("description"),
            parameters=schema,
        )

    def _tool_choice(self, tools: list[Tool]) -> ToolChoice | None:
        config = self._top.object("toolConfig")
        if config is None:
            return None
        for key in config.beyond({"functionCallingConfig"}):
            self._notes.drop(config.at(key), "known to one vendor only")
        calling = config.object("functionCallingConfig")
        if calling is None:
            return None
        mode = calling.enum("mode", _MODES)
        names = calling.texts("allowedFunctionNames")
        known = {tool.name for tool in tools}
        for place, name in enumerate(names):
            if name not in known:
                raise bad_field(
                    f"{calling.at('allowedFunctionNames')}[{place}]", f"no function is called {name!r}"
                )
        if mode == "NONE":
            return ToolChoice(mode="none")
        if mode == "ANY":
            if len(names) == 1:
                return ToolChoice(mode="tool", names=names)
            return ToolChoice(mode="required", names=names or None)
        if mode == "VALIDATED":
            self._notes.drop(calling.at("mode"), "calls are not held to their schemas")
        return ToolChoice(mode="auto", names=names or None) if mode is not None or names else None
