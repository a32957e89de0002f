"""The input of a Responses request, decoded into turns and held to the rules of its own format.

Messages, thoughts, calls and their outputs are siblings here; what the model said in one go becomes one turn, and
outputs stand right behind the turn that asked for them, wherever the list has them. Every error names the path of the
field. Source: wire formats page `responses.md`, "Input items"; translation matrix, sections 1 to 12 and 28.
"""

from collections.abc import Sequence

import msgspec

from sluicegate.messages import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from sluicegate.wire import json_edit
from sluicegate.wire import openai_responses_body as body
from sluicegate.wire.envelope import open_envelope
from sluicegate.wire.inline_media import media_type, read_inline, type_by_name
from sluicegate.wire.openai_responses_tools import SEARCH_TOOL, found_text, joined_name
from sluicegate.wire.openai_responses_tools_decoder import ToolReader
from sluicegate.wire.translation import Notes, bad_field
from sluicegate.wire.typed_body import decode_typed

NO_RESULT = "[no result]"
_TRACES = frozenset({"web_search_call"})
"""What a hosted tool left behind and the turn can do without."""
_STATE = frozenset({"item_reference", "compaction", "compaction_trigger"})
"""What only the provider that keeps the rest of it can read."""
_SUMMARY_BREAK = "\n\n"
_typed = msgspec.json.Decoder(body.Typed)
_role = msgspec.json.Decoder(body.Role)
_given = msgspec.json.Decoder(body.GivenMessage)
_said = msgspec.json.Decoder(body.AssistantMessage)
_reasoning = msgspec.json.Decoder(body.Reasoning)
_function_call = msgspec.json.Decoder(body.FunctionCall)
_custom_call = msgspec.json.Decoder(body.CustomCall)
_output = msgspec.json.Decoder(body.CallOutput)
_reference = msgspec.json.Decoder(body.ItemReference)
_search_call = msgspec.json.Decoder(body.ToolSearchCall)
_search_output = msgspec.json.Decoder(body.ToolSearchOutput)


class ItemReader:
    """Reads one request's input."""

    def __init__(self, notes: Notes, tools: ToolReader) -> None:
        self._notes = notes
        self._tools = tools
        self._messages: list[Message] = []
        self._turn: Message | None = None
        """The assistant's turn that goes on."""
        self._said = False
        """It holds a message already."""
        self._calls: dict[str, tuple[ToolCall, Message]] = {}
        """All calls and the turns they stand in, by id."""
        self._results: dict[str, ToolResult] = {}

    def messages(self, instructions: str | None, given: str | Sequence[msgspec.Raw]) -> list[Message]:
        """Return the conversation, every call answered and every answer asked for."""
        if instructions:
            self._add("system", [Text(text=instructions)], "instructions")
        if isinstance(given, str):
            self._add("user", [Text(text=given)] if given else [], "input")
        else:
            for place, raw in enumerate(given):
                self._take(raw, f"input[{place}]")
        self._need_results()
        return self._with_results()

    def _take(self, raw: msgspec.Raw, path: str) -> None:
        kind = decode_typed(_typed, raw, path).type or "message"
        match kind:
            case "message":
                self._message(raw, path)
            case "reasoning":
                self._thought(decode_typed(_reasoning, raw, path), path)
            case "function_call":
                call = decode_typed(_function_call, raw, path)
                self._call(call, call.arguments, path)
            case "custom_tool_call":
                custom = decode_typed(_custom_call, raw, path)
                self._call(custom, custom.input, path)
            case "function_call_output" | "custom_tool_call_output":
                output = decode_typed(_output, raw, path)
                parts = self._parts(output.output, f"{path}.output")
                self._result(output.call_id, parts, path)
            case "tool_search_call":
                self._search(decode_typed(_search_call, raw, path), path)
            case "tool_search_output":
                self._found(decode_typed(_search_output, raw, path), path)
            case _ if kind in _TRACES:
                self._notes.warn(path, f"{kind} has no place in another format")
            case "item_reference" if _is_thought(decode_typed(_reference, raw, path)):
                self._notes.drop_once("input.item_reference", "thoughts are found by their calls")
            case _ if kind in _STATE:
                self._notes.reject(path, f"{kind} stands for what another provider keeps")
            case _:
                self._notes.reject(f"{path}.type", f"{kind!r} is known to one vendor only")

    # ---- turns ----------------------------------------------------------------------------------------------------

    def _add(self, role: body.Role | str, parts: list[Part], path: str) -> None:
        """Add a message of the client's."""
        self._turn = None
        named = role if isinstance(role, str) else role.role
        self._messages.append(Message(role=named, parts=parts, path=path))  # type: ignore[arg-type]  # a Role

    def _of_turn(self, path: str) -> Message:
        """Return the assistant's turn that goes on; one begins here where there is none."""
        if self._turn is None:
            self._turn = Message(role="assistant", parts=[], path=path)
            self._said = False
            self._messages.append(self._turn)
        return self._turn

    def _message(self, raw: msgspec.Raw, path: str) -> None:
        role = decode_typed(_role, raw, path)
        if role.role != "assistant":
            self._add(role, self._parts(decode_typed(_given, raw, path).content, f"{path}.content"), path)
            return
        message = decode_typed(_said, raw, path)
        if message.phase is not None:
            self._notes.drop_once("input.phase", "known to one vendor only")
        parts = self._parts(message.content, f"{path}.content")
        if self._said and not self._open():
            self._turn = None  # two messages in a row are two turns
        self._of_turn(path).parts += parts
        self._said = True

    def _thought(self, item: body.Reasoning, path: str) -> None:
        summary = [part.text for part in item.summary or ()]
        text = _SUMMARY_BREAK.join(summary) or "".join(part.text for part in item.content or ())
        opaque = None
        if item.encrypted_content:
            opaque = open_envelope(item.encrypted_content) or Opaque(
                vendor="openai", kind="encrypted", value=item.encrypted_content, id=item.id
            )
        if not text and opaque is None:
            return
        parts = self._of_turn(path).parts
        if opaque is not None and not text and self._hang(parts, opaque):
            return
        parts.append(Reasoning(text=text, opaque=opaque, summary=bool(summary)))

    def _hang(self, parts: list[Part], opaque: Opaque) -> bool:
        """Give a call, or a text, the state that was sealed apart from it."""
        if opaque.vendor == "openai":
            return False
        if opaque.id in self._calls:
            self._calls[opaque.id][0].opaque = msgspec.structs.replace(opaque, id=None)
            return True
        last = parts[-1] if parts else None
        # One vendor signs texts too; all others sign thoughts, which may have been left out.
        if opaque.vendor == "google" and opaque.kind == "signature" and isinstance(last, Text):
            last.opaque = opaque
            return True
        return False

    # ---- calls and results ----------------------------------------------------------------------------------------

    def _open(self) -> list[str]:
        return [call_id for call_id in self._calls if call_id not in self._results]

    def _call(self, item: body.FunctionCall | body.CustomCall, given: str, path: str) -> None:
        if item.call_id in self._calls:
            raise bad_field(f"{path}.call_id", f"the id {item.call_id!r} comes twice")
        self._add_call(
            ToolCall(
                id=item.call_id,
                name=joined_name(item.namespace, item.name),
                arguments=given,
                custom=isinstance(item, body.CustomCall),
            ),
            path,
        )

    def _add_call(self, call: ToolCall, path: str) -> None:
        turn = self._of_turn(path)
        turn.parts.append(call)
        self._calls[call.id] = call, turn

    def _search(self, item: body.ToolSearchCall, path: str) -> None:
        """Take a search for tools as a call; one that the provider did itself left no more than its tools."""
        if item.call_id is None:
            self._notes.drop_once("input.tool_search_call", "all tools are told at once")
        elif item.call_id in self._calls:
            raise bad_field(f"{path}.call_id", f"the id {item.call_id!r} comes twice")
        else:
            arguments = json_edit.dumps(item.arguments).decode()
            self._add_call(ToolCall(id=item.call_id, name=SEARCH_TOOL, arguments=arguments), path)

    def _found(self, item: body.ToolSearchOutput, path: str) -> None:
        tools = self._tools.found(item.tools, f"{path}.tools")
        if item.call_id is not None:
            self._result(item.call_id, [Text(text=found_text(tools))], path)

    def _result(self, call_id: str | None, parts: list[Part], path: str) -> None:
        open_ = self._open()
        if call_id is None and len(open_) == 1:
            call_id = open_[0]  # there is but one call that it can answer
        if call_id is None:
            raise bad_field(f"{path}.call_id", "missing required parameter")
        if call_id not in self._calls:
            raise bad_field(f"{path}.call_id", f"no tool call found for call_id {call_id!r}")
        if call_id in self._results:
            raise bad_field(f"{path}.call_id", f"the call {call_id!r} has an output already")
        call = self._calls[call_id][0]
        told = [part for part in parts if isinstance(part, Text | Image | File)]
        self._results[call_id] = ToolResult(call_id=call_id, name=call.name, custom=call.custom, parts=told)
        self._turn = None

    def _need_results(self) -> None:
        """See to it that no call is left without an output; only a lenient translation invents one."""
        for call_id in self._open():
            call, turn = self._calls[call_id]
            if self._notes.policy != "lenient":
                raise bad_field(turn.path, f"no tool output found for the call {call_id!r}")
            self._notes.warn(turn.path, f"no tool output came for {call_id}")
            self._results[call_id] = ToolResult(
                call_id=call_id,
                name=call.name,
                custom=call.custom,
                parts=[Text(text=NO_RESULT)],
                is_error=True,
            )

    def _with_results(self) -> list[Message]:
        """Return the messages, each turn that asked for something followed by what it got."""
        messages: list[Message] = []
        for message in self._messages:
            if not message.parts:
                continue
            messages.append(message)
            asked = [part.id for part in message.parts if isinstance(part, ToolCall)]
            if asked:
                results: list[Part] = [
                    result for call_id, result in self._results.items() if call_id in asked
                ]
                messages.append(Message(role="user", parts=results, path=message.path))
        return messages

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _parts(
        self, content: str | Sequence[body.Given | body.Said | body.Returned], path: str
    ) -> list[Part]:
        if isinstance(content, str):
            return [Text(text=content)] if content else []
        parts: list[Part] = []
        for place, part in enumerate(content):
            where = f"{path}[{place}]"
            match part:
                case body.InputText() | body.OutputText():
                    if isinstance(part, body.OutputText) and part.annotations:
                        self._notes.drop_once(
                            "input.content.annotations", "earlier sources cannot be replayed"
                        )
                    if part.text:
                        parts.append(Text(text=part.text, cache=_mark(part)))
                case body.Refusal():
                    parts.append(Refusal(text=part.refusal))
                case body.InputImage():
                    parts.append(_image(part, where))
                case body.InputFile():
                    parts.append(_file(part, where))
                case body.InputAudio():
                    data = _inline(part.input_audio.data, f"{where}.input_audio.data")[1]
                    parts.append(Audio(data=data, format=part.input_audio.format))
        return parts


def _is_thought(item: body.ItemReference) -> bool:
    """Return whether an item that is meant, and not sent, is a thought; a turn can do without."""
    return item.id.startswith("rs_")


def _mark(part: body.Given | body.Said) -> CacheMark | None:
    mark = part.prompt_cache_breakpoint
    return None if mark is None else CacheMark(ttl=mark.ttl)


def _image(part: body.InputImage, path: str) -> Image:
    mark, url = _mark(part), part.image_url
    if url is None:
        if not part.file_id:
            raise bad_field(path, "one of 'image_url' and 'file_id' is required")
        return Image(file_id=part.file_id, detail=part.detail, cache=mark)
    if url.startswith(("https://", "http://")):
        return Image(url=url, detail=part.detail, cache=mark)
    if not url.lower().startswith("data:"):
        raise bad_field(f"{path}.image_url", "must be an https URL or a base64 data URL")
    kind, data = _inline(url, f"{path}.image_url")
    return Image(data=data, media_type=kind or media_type(data), detail=part.detail, cache=mark)


def _file(part: body.InputFile, path: str) -> File:
    mark, name = _mark(part), part.filename
    if part.file_data is not None:
        kind, data = _inline(part.file_data, f"{path}.file_data")
        kind = kind or media_type(data) or type_by_name(name)
        return File(data=data, media_type=kind, filename=name, cache=mark)
    if part.file_url is not None:
        if not part.file_url.startswith(("https://", "http://")):
            raise bad_field(f"{path}.file_url", "must be an https URL")
        return File(url=part.file_url, filename=name, cache=mark)
    if not part.file_id:
        raise bad_field(path, "one of 'file_data', 'file_url' and 'file_id' is required")
    return File(file_id=part.file_id, filename=name, cache=mark)


def _inline(text: str, path: str) -> tuple[str | None, str]:
    found = read_inline(text)
    if found is None:
        raise bad_field(path, "is not valid base64")
    return found
