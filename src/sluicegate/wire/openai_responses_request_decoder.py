"""A Responses client's request, decoded into the common vocabulary and held to the rules of its own format.

Every error names the path of the field; what another vendor cannot be told is dropped, named or refused as the
translation matrix says. State that a provider keeps is refused. The input is read in `openai_responses_items_decoder`,
tools in `openai_responses_tools_decoder`, the shape in `openai_responses_body`. Source: wire formats page
`responses.md`, "Request fields" and "State".
"""

from typing import Any

import msgspec

from sluicegate.messages import ReasoningControl, Request, ResponseFormat, Tool, ToolChoice
from sluicegate.wire import json_edit
from sluicegate.wire import openai_responses_body as body
from sluicegate.wire.openai_responses_items_decoder import ItemReader
from sluicegate.wire.openai_responses_tools_decoder import CALLABLE, SAID_NOTHING, ToolReader
from sluicegate.wire.translation import Notes, bad_field
from sluicegate.wire.typed_body import decode_typed

_STATE = frozenset({"previous_response_id", "conversation", "prompt"})
"""What a provider keeps, and the answer depends on."""
_NOT_KEPT = {
    "previous_response_id": "its provider keeps no answers, and neither does this gateway, whose responses_store is off"
}
_DROPPED = frozenset({"prompt_cache_options", "prompt_cache_retention", "background_options"})
"""What only affects cost, speed or bookkeeping of one vendor."""
_LOGPROBS = "message.output_text.logprobs"
_STATE_IN_ANSWERS = "reasoning.encrypted_content"
"""Told in every answer."""
_DEFAULTS = (None, "auto", "standard")
_body = msgspec.json.Decoder(body.Body)


def decode_request(body: bytes, notes: Notes, path_model: str | None = None) -> Request:
    """Decode a body; that it names the model itself makes `path_model` of no matter. See `RequestDecoder`."""
    return _RequestReader(decode_typed(_body, body), notes).read(body)


class _RequestReader:
    """Reads one request."""

    def __init__(self, top: body.Body, notes: Notes) -> None:
        self._top = top
        self._notes = notes
        self._tools: list[Tool] = []
        self._web_search: dict[str, Any] | None = None

    def read(self, raw: bytes) -> Request:
        """Return the request.

        Args:
            raw: the body, for what is in it beyond the fields that are known.
        """
        top = self._top
        self._refuse_state(raw)
        if top.input is None:
            raise bad_field("input", "missing required parameter")
        if not top.input:
            raise bad_field("input", "must not be empty")
        reader = ToolReader(self._notes)
        reader.declare(top.tools or ())
        messages = ItemReader(self._notes, reader).messages(top.instructions, top.input)
        self._tools, self._web_search = reader.tools, reader.web_search
        choice = self._choice()
        logprobs = _LOGPROBS in (top.include or ())
        request = Request(
            model=top.model,
            messages=messages,
            stream=top.stream or False,
            tools=self._tools,
            tool_choice=choice,
            parallel_tool_calls=top.parallel_tool_calls if self._tools else None,
            web_search=self._web_search,
            max_output_tokens=top.max_output_tokens,
            temperature=top.temperature,
            top_p=top.top_p,
            logprobs=logprobs,
            top_logprobs=top.top_logprobs if logprobs else None,
            response_format=self._response_format(),
            reasoning=self._reasoning(),
            verbosity=None if top.text is None else top.text.verbosity,
            user=top.safety_identifier or top.user or None,
            metadata=top.metadata or None,
            service_tier=top.service_tier,
            prompt_cache_key=top.prompt_cache_key,
        )
        self._take_rest(raw)
        return request

    def _refuse_state(self, raw: bytes) -> None:
        top = json_edit.decode_top(raw, "responses")
        for key in _STATE.intersection(top):
            if bytes(top[key]) not in SAID_NOTHING:
                self._notes.reject(key, _NOT_KEPT.get(key, "it stands for what another provider keeps"))
        if self._top.background:
            self._notes.reject("background", "answers are not made while nobody waits for them")

    def _take_rest(self, raw: bytes) -> None:
        top, notes = self._top, self._notes
        if top.store:
            notes.drop("store", "answers are not kept")
        if top.truncation == "auto":
            notes.warn("truncation", "a conversation that is too long is refused")
        if top.max_tool_calls is not None and self._web_search is not None:
            notes.warn("max_tool_calls", "known to one vendor only")
        elif top.max_tool_calls is not None:
            notes.drop("max_tool_calls")
        if top.top_logprobs and _LOGPROBS not in (top.include or ()):
            notes.drop("top_logprobs", f"only told where 'include' has {_LOGPROBS}")
        for wanted in top.include or ():
            if wanted not in (_LOGPROBS, _STATE_IN_ANSWERS):
                notes.drop(f"include.{wanted}")
        for key, value in json_edit.decode_top(raw, "responses").items():
            said = bytes(value)
            if key in body.Body.__struct_fields__ or key in _STATE or said == b"null":
                continue
            if key not in _DROPPED:
                notes.warn(key, "unknown field")  # also where it is false: some switch off what is on
            elif said not in SAID_NOTHING:
                notes.drop(key)

    # ---- reasoning and the answer's shape -------------------------------------------------------------------------

    def _reasoning(self) -> ReasoningControl | None:
        options = self._top.reasoning
        if options is None:
            return None
        for field, value in (("context", options.context), ("mode", options.mode)):
            if value not in _DEFAULTS:
                self._notes.warn(f"reasoning.{field}", "known to one vendor only")
        summary = options.summary or options.generate_summary
        if options.effort is None and summary is None:
            return None
        return ReasoningControl(effort=options.effort, summary=summary, show=True if summary else None)

    def _response_format(self) -> ResponseFormat | None:
        wanted = None if self._top.text is None else self._top.text.format
        if isinstance(wanted, body.ObjectFormat):
            return ResponseFormat(kind="json_object")
        if isinstance(wanted, body.SchemaFormat):
            return ResponseFormat(
                kind="json_schema",
                schema=wanted.schema,
                name=wanted.name,
                description=wanted.description,
                strict=wanted.strict,
            )
        return None

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _choice(self) -> ToolChoice | None:
        choice = self._top.tool_choice
        if choice is None:
            return None
        if isinstance(choice, str):
            if not self._tools and self._web_search is None:
                if choice == "required":
                    raise bad_field("tool_choice", "only allowed when 'tools' are specified")
                return None
            return ToolChoice(mode=choice)
        if choice.type == "allowed_tools":
            path = "tool_choice.tools"
            chosen = [
                self._chosen(tool.type, tool.name, f"{path}[{place}]")
                for place, tool in enumerate(choice.tools or ())
            ]
            return ToolChoice(mode=choice.mode or "auto", names=chosen)
        return ToolChoice(mode="tool", names=[self._chosen(choice.type, choice.name, "tool_choice")])

    def _chosen(self, kind: str, name: str | None, path: str) -> str:
        if kind not in CALLABLE:
            self._notes.reject(f"{path}.type", f"{kind!r} cannot be chosen")
        if not name:
            raise bad_field(f"{path}.name", "missing required parameter")
        if all(tool.name != name for tool in self._tools):
            raise bad_field(f"{path}.name", f"tool {name!r} is not among the tools")
        return name
