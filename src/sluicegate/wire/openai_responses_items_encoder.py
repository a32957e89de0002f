"""A conversation in no format, written as the input items of a Responses request.

Messages, thoughts, calls and outputs become siblings in the order in which they were said. Thoughts go back only with
the state that this vendor made, byte for byte, and only before what they led to: items of one thought live or die
together. Source: wire formats page `responses.md`, "Input items"; translation matrix, sections 1 to 12, 21 and 34.
"""

from base64 import b64decode
from typing import Any

from sluicegate.capabilities import Capabilities
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
from sluicegate.wire.inline_media import media_type
from sluicegate.wire.openai_responses_tools import provider_name
from sluicegate.wire.translation import Notes
from sluicegate.wire.turns import leading_instructions

Block = dict[str, Any]
ERROR_PREFIX = "[tool error] "
MAX_CACHE_MARKS = 4
_TEXT_TYPES = ("text/", "application/json", "application/xml")
_TTLS = ("30m", "12h")


class ItemWriter:
    """Writes one request's conversation."""

    def __init__(self, model: str, can: Capabilities, notes: Notes) -> None:
        self._model = model
        self._can = can
        self._notes = notes
        self._carried: list[Block] = []
        """Pictures of an assistant turn, for the user turn that follows."""
        self._marked: list[Block] = []
        """Parts with a mark of the prompt cache, in order."""
        self.has_state = False
        """Hidden thoughts go back to the model."""

    def instructions(self, messages: list[Message]) -> str | None:
        """Return the one leading message of the system that says no more than a text; None where there is no such."""
        leading = leading_instructions(messages)
        if leading != 1 or len(messages) == 1 or len(messages[0].parts) != 1:
            return None
        part = messages[0].parts[0]
        return part.text if isinstance(part, Text) and part.cache is None and part.text else None

    def items(self, messages: list[Message]) -> list[Block]:
        """Return the `input` of the request."""
        items: list[Block] = []
        for message in messages:
            path = message.path or "messages"
            if message.name:
                self._notes.drop_once("messages.name", "turns have no names")
            if message.role == "assistant":
                items += self._assistant(message, path)
            else:
                items += self._given(message, path)
        if self._carried:
            items.append({"role": "user", "content": self._carried})
        self._keep_few_marks()
        return items

    # ---- what was given -------------------------------------------------------------------------------------------

    def _given(self, message: Message, path: str) -> list[Block]:
        role: str = message.role
        if role in ("system", "developer"):
            role = "developer" if self._can.developer_role else "system"
        outputs: list[Block] = []
        blocks: list[Block] = []
        for place, part in enumerate(message.parts):
            where = f"{path}.content[{place}]"
            if isinstance(part, ToolResult):
                outputs.append(self._result(part, where))
            elif not isinstance(part, Text) or part.text:
                blocks.append(self._visible(part, where))
        if role == "user" and self._carried and blocks:
            blocks, self._carried = [*self._carried, *blocks], []
        if not blocks:
            return outputs
        return [*outputs, {"role": role, "content": _simplest(blocks, "input_text")}]

    def _result(self, result: ToolResult, path: str) -> Block:
        blocks: list[Block] = []
        for place, part in enumerate(result.parts):
            where = f"{path}.content[{place}]"
            if isinstance(part, Image) and not self._can.images:
                self._notes.warn(where, "this model takes no pictures")
                blocks.append({"type": "input_text", "text": "[picture left out]"})
            else:
                blocks.append(self._visible(part, where))
        if result.cache is not None and blocks:
            self._mark(blocks[-1], result.cache)
        if result.is_error:
            blocks = _with_prefix(blocks)
        if all(block.keys() == {"type", "text"} for block in blocks):
            output: str | list[Block] = "\n".join(block["text"] for block in blocks)
        else:
            output = blocks
        kind = "custom_tool_call" if result.custom and self._can.custom_tools else "function_call"
        return {"type": f"{kind}_output", "call_id": provider_name(result.call_id), "output": output}

    # ---- what was said --------------------------------------------------------------------------------------------

    def _assistant(self, message: Message, path: str) -> list[Block]:
        items: list[Block] = []
        said: list[Block] = []

        def end_message() -> None:
            if said:
                items.append({"role": "assistant", "content": _simplest(list(said), "output_text")})
                said.clear()

        for place, part in enumerate(message.parts):
            where = f"{path}.content[{place}]"
            match part:
                case Text():
                    if part.text:
                        said.append({"type": "output_text", "text": part.text})
                        self._refuse_mark(part.cache)
                case Refusal():
                    said.append({"type": "refusal", "refusal": part.text})
                case Reasoning():
                    thought = self._thought(part, is_last=place == len(message.parts) - 1)
                    if thought is not None:
                        end_message()
                        items.append(thought)
                case ToolCall():
                    end_message()
                    items.append(self._call(part))
                case Image():
                    self._carry(part, where)
                case _:
                    self._notes.reject(where, "an assistant turn of this format holds no such part")
        end_message()
        return items

    def _thought(self, part: Reasoning, *, is_last: bool) -> Block | None:
        opaque = part.opaque
        if opaque is None or opaque.vendor != "openai" or not self._is_of_this_model(opaque) or is_last:
            self._notes.drop_once("reasoning", "thoughts go back only to the model that made them")
            return None
        self.has_state = True
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        named = {} if opaque.id is None else {"id": opaque.id}
        return {"type": "reasoning", **named, "summary": summary, "encrypted_content": opaque.value}

    def _is_of_this_model(self, opaque: Opaque) -> bool:
        """Whether the provider's model made a state; ids with and without a date are one model."""
        made_by = opaque.model
        return made_by is None or made_by.startswith(self._model) or self._model.startswith(made_by)

    def _call(self, call: ToolCall) -> Block:
        self._refuse_mark(call.cache)
        named = {"call_id": provider_name(call.id), "name": provider_name(call.name)}
        if call.custom and self._can.custom_tools:
            return {"type": "custom_tool_call", **named, "input": call.arguments}
        arguments = call.arguments
        if call.custom:
            arguments = json_edit.dumps({"input": arguments}).decode()
        elif not arguments.strip():
            arguments = "{}"
        return {"type": "function_call", **named, "arguments": arguments}

    def _carry(self, image: Image, path: str) -> None:
        self._notes.warn(path, "the picture of an assistant turn is sent with the next user turn")
        self._carried.append({"type": "input_text", "text": "(picture of the assistant turn before)"})
        self._carried.append(self._visible(image, path))

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _visible(self, part: Part, path: str) -> Block:
        """Write a part that the user, the operator or a tool said."""
        match part:
            case Text():
                return self._mark({"type": "input_text", "text": part.text}, part.cache)
            case Image():
                return self._mark(self._image(part, path), part.cache)
            case File():
                return self._mark(self._file(part, path), part.cache)
            case Audio():
                if not self._can.audio or part.format not in ("wav", "mp3"):
                    self._notes.reject(path, f"this model takes no audio of type {part.format}")
                return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
            case _:
                self._notes.reject(path, "a turn of this role holds no such part")
                raise AssertionError("it was refused")

    def _image(self, image: Image, path: str) -> Block:
        if not self._can.images:
            self._notes.reject(path, "this model takes no pictures")
        url = image.url or ""
        if image.data is not None:
            kind = media_type(image.data) or image.media_type
            if kind is None or not kind.startswith("image/"):
                self._notes.reject(path, f"pictures of type {kind} are not taken")
            url = f"data:{kind};base64,{image.data}"
        elif not url.startswith(("https://", "http://")):
            self._notes.reject(path, "the picture is kept by another provider")
        return {"type": "input_image", "image_url": url, "detail": image.detail or "auto"}

    def _file(self, file: File, path: str) -> Block:
        text, kind = file.text, ""
        if text is None and file.data is not None:
            kind = media_type(file.data) or file.media_type or ""
            if kind.startswith(_TEXT_TYPES):
                text = b64decode(file.data).decode(errors="replace")
        if text is not None:
            head = f"{file.filename}:\n" if file.filename else ""
            return {"type": "input_text", "text": head + text}
        if kind.startswith("image/"):
            return self._image(Image(data=file.data, media_type=kind), path)
        if not self._can.files or (file.data is not None and not kind):
            self._notes.reject(path, f"files of type {kind or 'unknown'} are not taken")
        if file.data is not None:
            name = file.filename or "file"
            return {"type": "input_file", "filename": name, "file_data": f"data:{kind};base64,{file.data}"}
        if file.url is not None and file.url.startswith(("https://", "http://")):
            return {"type": "input_file", "file_url": file.url}
        self._notes.reject(path, "the file is kept by another provider")
        raise AssertionError("it was refused")

    # ---- marks of the prompt cache --------------------------------------------------------------------------------

    def _mark(self, block: Block, mark: CacheMark | None) -> Block:
        """Mark a part as the end of what is to be cached, where the model takes such marks."""
        if mark is not None and self._can.prompt_cache:
            ttl = {} if mark.ttl is None else {"ttl": mark.ttl if mark.ttl in _TTLS else "30m"}
            block["prompt_cache_breakpoint"] = {"mode": "explicit", **ttl}
            self._marked.append(block)
        else:
            self._refuse_mark(mark)
        return block

    def _refuse_mark(self, mark: CacheMark | None) -> None:
        if mark is not None:
            self._notes.drop_once("cache_control", "marks of the prompt cache are not taken here")

    def _keep_few_marks(self) -> None:
        """Take out marks above what the format allows, the earliest first."""
        if len(self._marked) > MAX_CACHE_MARKS:
            self._notes.drop_once("cache_control", f"at most {MAX_CACHE_MARKS} marks")
            for block in self._marked[:-MAX_CACHE_MARKS]:
                del block["prompt_cache_breakpoint"]


def _simplest(blocks: list[Block], kind: str) -> str | list[Block]:
    """Return a single plain text as the string it is."""
    if len(blocks) == 1 and blocks[0]["type"] == kind and blocks[0].keys() == {"type", "text"}:
        return str(blocks[0]["text"])
    return blocks


def _with_prefix(blocks: list[Block]) -> list[Block]:
    """Return a result that says, once, that it is an error."""
    first = blocks[0] if blocks else None
    if first is not None and first["type"] == "input_text":
        text = first["text"]
        said = text if text.startswith(ERROR_PREFIX) else ERROR_PREFIX + text
        return [{**first, "text": said}, *blocks[1:]]
    return [{"type": "input_text", "text": ERROR_PREFIX}, *blocks]
