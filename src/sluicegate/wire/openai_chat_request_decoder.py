"""A chat client's request, decoded into the common vocabulary and held to the rules of its own format.

Every error names the path of the field; what another vendor cannot be told is dropped, named or refused as the
translation matrix says. The conversation is read in `openai_chat_content_decoder`, the shape in `openai_chat_body`.
Source: wire formats page `chat-completions.md`, "Request fields" and "Tools".
"""

from typing import Any

import msgspec

from sluicegate.messages import CacheMark, ReasoningControl, Request, ResponseFormat, Tool, ToolChoice
from sluicegate.wire import json_edit
from sluicegate.wire.openai_chat_body import (
    AllowedChoice,
    Body,
    Custom,
    CustomChoice,
    CustomTool,
    Function,
    FunctionChoice,
    ObjectFormat,
    SchemaFormat,
    WebSearch,
)
from sluicegate.wire.openai_chat_content_decoder import ContentReader, cache_mark
from sluicegate.wire.translation import Notes, bad_field
from sluicegate.wire.typed_body import decode_typed

_DROPPED = frozenset(
    {"store", "prediction", "prompt_cache_options", "prompt_cache_retention", "stream_options"}
)
"""What only affects cost, speed or bookkeeping of one vendor."""
_SAID_NOTHING = (b"null", b"false", b"{}", b"[]")
_decoder = msgspec.json.Decoder(Body)


def decode_request(body: bytes, notes: Notes, path_model: str | None = None) -> Request:
    """Decode a body; that it names the model itself makes `path_model` of no matter. See `RequestDecoder`."""
    return _RequestReader(decode_typed(_decoder, body), notes).read(body)


class _RequestReader:
    """Reads one request."""

    def __init__(self, body: Body, notes: Notes) -> None:
        self._body = body
        self._notes = notes

    def read(self, raw: bytes) -> Request:
        """Return the request.

        Args:
            raw: the body, for what is in it beyond the fields that are known.
        """
        body = self._body
        tools, choice, parallel = self._tools()
        limits = [limit for limit in (body.max_completion_tokens, body.max_tokens) if limit is not None]
        request = Request(
            model=body.model,
            messages=ContentReader(self._notes).messages(body.messages),
            stream=body.stream or False,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=parallel,
            max_output_tokens=min(limits, default=None),
            limit_is_visible=body.max_completion_tokens is None and body.max_tokens is not None,
            temperature=body.temperature,
            top_p=body.top_p,
            stop=self._stop(),
            seed=body.seed,
            choices=body.n or 1,
            frequency_penalty=body.frequency_penalty or None,
            presence_penalty=body.presence_penalty or None,
            logit_bias=body.logit_bias or None,
            logprobs=body.logprobs or False,
            top_logprobs=self._top_logprobs(),
            response_format=self._response_format(),
            reasoning=None
            if body.reasoning_effort is None
            else ReasoningControl(effort=body.reasoning_effort),
            verbosity=body.verbosity,
            user=body.safety_identifier or body.user or None,
            metadata=body.metadata or None,
            service_tier=body.service_tier,
            prompt_cache_key=body.prompt_cache_key,
            web_search=_web_search(body.web_search_options),
            legacy_functions=bool(body.functions),
        )
        self._refuse_sound()
        self._take_rest(raw)
        return request

    def _stop(self) -> list[str]:
        stop = self._body.stop
        if stop is None:
            return []
        if isinstance(stop, str):
            return [stop] if stop else []
        return stop

    def _top_logprobs(self) -> int | None:
        top = self._body.top_logprobs
        if top is not None and not self._body.logprobs:
            raise bad_field("top_logprobs", "only allowed when 'logprobs' is enabled")
        return top

    def _response_format(self) -> ResponseFormat | None:
        wanted = self._body.response_format
        if isinstance(wanted, ObjectFormat):
            return ResponseFormat(kind="json_object")
        if isinstance(wanted, SchemaFormat):
            shape = wanted.json_schema
            if shape.schema is None:
                raise bad_field("response_format.json_schema.schema", "missing required parameter")
            return ResponseFormat(
                kind="json_schema",
                schema=shape.schema,
                name=shape.name,
                description=shape.description,
                strict=shape.strict,
            )
        return None

    def _refuse_sound(self) -> None:
        if any(kind != "text" for kind in self._body.modalities or ()):
            self._notes.reject("modalities", "only text comes across formats")
        if self._body.audio is not None:
            self._notes.drop("audio", "no sound was asked for")

    def _take_rest(self, raw: bytes) -> None:
        for key, value in json_edit.decode_top(raw, "chat").items():
            if key in Body.__struct_fields__ and key not in _DROPPED:
                continue
            said = bytes(value)
            if said == b"null" or key == "stream_options":
                continue
            if key not in _DROPPED:
                self._notes.warn(key, "unknown field")  # also where it is false: some switch off what is on
            elif said not in _SAID_NOTHING:
                self._notes.drop(key)

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self) -> tuple[list[Tool], ToolChoice | None, bool | None]:
        """Return tools, choice and the switch for parallel calls; the old dialect calls one function at most."""
        body = self._body
        if body.functions:
            if body.tools:
                raise bad_field("functions", "'tools' and 'functions' cannot be used together")
            tools = [_function(function) for function in body.functions]
            self._refuse_same_names(tools, "functions[{}].name")
            return tools, self._old_choice(tools), False
        if not body.tools:
            choice = body.tool_choice
            if choice not in (None, "none", "auto"):
                raise bad_field("tool_choice", "only allowed when 'tools' are specified")
            return [], None, None
        tools = [
            _custom(tool.custom, cache_mark(tool))
            if isinstance(tool, CustomTool)
            else _function(tool.function, cache_mark(tool))
            for tool in body.tools
        ]
        self._refuse_same_names(tools, "tools[{}]")
        return tools, self._choice(tools), body.parallel_tool_calls

    def _refuse_same_names(self, tools: list[Tool], path: str) -> None:
        names: set[str] = set()
        for place, tool in enumerate(tools):
            if tool.name in names:
                raise bad_field(path.format(place), f"the name {tool.name!r} comes twice")
            names.add(tool.name)

    def _choice(self, tools: list[Tool]) -> ToolChoice | None:
        choice = self._body.tool_choice
        match choice:
            case None:
                return None
            case str():
                return ToolChoice(mode=choice)
            case AllowedChoice():
                allowed = choice.allowed_tools
                names = [_chosen(tool) for tool in allowed.tools]
                self._refuse_unknown(names, tools, "tool_choice.allowed_tools")
                return ToolChoice(mode=allowed.mode, names=names)
            case _:
                name = _chosen(choice)
                self._refuse_unknown([name], tools, "tool_choice")
                return ToolChoice(mode="tool", names=[name])

    def _old_choice(self, tools: list[Tool]) -> ToolChoice | None:
        choice = self._body.function_call
        if choice is None:
            return None
        if isinstance(choice, str):
            return ToolChoice(mode=choice)
        self._refuse_unknown([choice.name], tools, "function_call")
        return ToolChoice(mode="tool", names=[choice.name])

    def _refuse_unknown(self, names: list[str], tools: list[Tool], path: str) -> None:
        known = {tool.name for tool in tools}
        for name in names:
            if name not in known:
                raise bad_field(path, f"tool {name!r} is not among the tools")


def _chosen(choice: FunctionChoice | CustomChoice) -> str:
    return choice.function.name if isinstance(choice, FunctionChoice) else choice.custom.name


def _function(function: Function, mark: CacheMark | None = None) -> Tool:
    return Tool(
        name=function.name,
        description=function.description,
        parameters=function.parameters,
        strict=function.strict,
        cache=mark,
    )


def _custom(custom: Custom, mark: CacheMark | None) -> Tool:
    format_: dict[str, Any] | None = None
    if custom.format is not None:
        format_ = {"type": custom.format.type}
        if custom.format.grammar is not None:
            grammar = custom.format.grammar
            format_ |= {"syntax": grammar.syntax, "definition": grammar.definition}
    return Tool(name=custom.name, description=custom.description, custom=True, format=format_, cache=mark)


def _web_search(options: WebSearch | None) -> dict[str, Any] | None:
    """Return the options of a search, the place of the user flat as other formats have it."""
    if options is None:
        return None
    neutral: dict[str, Any] = {}
    if options.search_context_size is not None:
        neutral["search_context_size"] = options.search_context_size
    place = options.user_location
    if place is not None:
        near = place.get("approximate")
        neutral["user_location"] = {"type": "approximate", **(near if isinstance(near, dict) else {})}
    return neutral
