"""A conversation in no format, written as the messages of a chat request.

Tool messages follow their calls at once; pictures that a result holds, and the server takes in user turns only, stand
in the user turn behind all of them. Thoughts go back where the model's row says that they are wanted, opaque state only
to servers of this dialect, which made it. Source: translation matrix, sections 1 to 12.
"""

import re
from base64 import b64decode
from hashlib import sha256
from typing import Any

from sluicegate.capabilities import Capabilities
from sluicegate.messages import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from sluicegate.wire import json_edit
from sluicegate.wire.inline_media import media_type
from sluicegate.wire.openai_reasoning_state import give_back
from sluicegate.wire.translation import Notes

Block = dict[str, Any]
ERROR_PREFIX = "[tool error] "
MAX_CACHE_MARKS = 4
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_TEXT_TYPES = ("text/", "application/json", "application/xml")
_TTLS = ("30m", "12h")


def provider_name(name: str) -> str:
    """Return a tool's name as this format takes it; the same one each time."""
    if _NAME.fullmatch(name):
        return name
    return f"{_UNFIT.sub('_', name)[:48]}_{sha256(name.encode()).hexdigest()[:12]}"


class ContentWriter:
    """Writes one request's conversation."""

    def __init__(self, can: Capabilities, notes: Notes) -> None:
        self._can = can
        self._notes = notes
        self._marks_left = MAX_CACHE_MARKS if can.prompt_cache else 0

    def messages(self, messages: list[Message]) -> list[Block]:
        """Return the `messages` of the request."""
        written: list[Block] = []
        turn: list[Message] = []
        carried: list[Block] = []
        """Pictures of an assistant turn, for the user turn that follows."""
        for message in messages:
            if message.role == "user":
                turn.append(message)
                continue
            written += self._user_turn(turn, carried)
            carried, turn = ([], []) if turn else (carried, [])
            if message.role == "assistant":
                written += self._assistant(message, carried)
            else:
                written.append(self._system(message))
        return written + self._user_turn(turn, carried)

    def cache_mark(self, mark: CacheMark | None) -> Block:
        """Return the member that marks the end of what is to be cached, or none."""
        if mark is None:
            return {}
        if not self._marks_left:
            self._notes.drop_once("cache_control", "marks of the prompt cache are not taken")
            return {}
        self._marks_left -= 1
        ttl = {} if mark.ttl is None else {"ttl": mark.ttl if mark.ttl in _TTLS else "30m"}
        return {"prompt_cache_breakpoint": {"mode": "explicit", **ttl}}

    # ---- instructions and the user's turns --------------------------------------------------------------------------

    def _system(self, message: Message) -> Block:
        role = "developer" if message.role == "developer" and self._can.developer_role else "system"
        path = message.path or "messages"
        blocks = [self._visible(part, f"{path}.content[{place}]") for place, part in enumerate(message.parts)]
        return {"role": role, "content": _simplest(blocks), **_named(message)}

    def _user_turn(self, turn: list[Message], carried: list[Block]) -> list[Block]:
        """Return a run of user messages: results first, then what they carried along, then all else."""
        results: list[Block] = []
        moved: list[Block] = []
        said: list[Block] = []
        for message in turn:
            path = message.path or "messages"
            blocks: list[Block] = []
            for place, part in enumerate(message.parts):
                where = f"{path}.content[{place}]"
                if isinstance(part, ToolResult):
                    results.append(self._result(part, where, moved))
                else:
                    blocks.append(self._visible(part, where))
            if blocks or not message.parts:
                said.append({"role": "user", "content": blocks, **_named(message)})
        extra = carried + moved
        if extra and said:
            said[0]["content"] = extra + said[0]["content"]
        elif extra:
            said = [{"role": "user", "content": extra}]
        return results + [{**message, "content": _simplest(message["content"])} for message in said]

    def _result(self, result: ToolResult, path: str, moved: list[Block]) -> Block:
        texts: list[str] = []
        blocks: list[Block] = []
        for place, part in enumerate(result.parts):
            where = f"{path}.content[{place}]"
            if isinstance(part, Text):
                texts.append(part.text)
                blocks.append({"type": "text", "text": part.text})
            elif isinstance(part, Image) and not self._can.images:
                self._notes.warn(where, "this model takes no pictures")
                texts.append("[picture left out]")
                blocks.append({"type": "text", "text": texts[-1]})
            elif self._can.images_in_results:
                blocks.append(self._visible(part, where))
            else:
                block = self._visible(part, where)
                if block["type"] == "text":
                    texts.append(block["text"])
                    continue
                kind = "picture" if isinstance(part, Image) else "file"
                self._notes.warn(where, f"the {kind} is sent in a user message behind the results")
                texts.append(f"[{kind} in the next user message]")
                moved.append({"type": "text", "text": f"({kind} of the tool result {result.call_id})"})
                moved.append(block)
        if result.cache is not None:
            self._notes.drop_once("cache_control", "marks of the prompt cache are not taken")
        prefix = ERROR_PREFIX if result.is_error else ""
        if self._can.images_in_results and any(block["type"] != "text" for block in blocks):
            content: str | list[Block] = [{"type": "text", "text": prefix}, *blocks] if prefix else blocks
        else:
            text = "\n".join(texts)
            content = text if text.startswith(prefix) else prefix + text
        return {"role": "tool", "tool_call_id": result.call_id, "content": content}

    # ---- the assistant's turns ------------------------------------------------------------------------------------

    def _assistant(self, message: Message, carried: list[Block]) -> list[Block]:
        path = message.path or "messages"
        text, refusal = "", ""
        thoughts: list[Reasoning] = []
        calls: list[Block] = []
        for place, part in enumerate(message.parts):
            where = f"{path}.content[{place}]"
            match part:
                case Text():
                    if calls and part.text.strip():
                        self._notes.warn(where, "text behind a tool call is put before it")
                    text += part.text
                    if part.cache is not None:
                        self._notes.drop_once("cache_control", "marks of the prompt cache are not taken")
                case Refusal():
                    refusal += part.text
                case Reasoning():
                    thoughts.append(part)
                case ToolCall():
                    calls.append(self._call(part))
                case Image():
                    self._notes.warn(
                        where, "the picture of an assistant turn is sent with the next user turn"
                    )
                    carried.append({"type": "text", "text": "(picture of the assistant turn before)"})
                    carried.append(self._visible(part, where))
                case _:
                    self._notes.reject(where, "an assistant turn of this format holds no such part")
        written: Block = {"role": "assistant", "content": text or None}
        if refusal:
            written["refusal"] = refusal
        written |= self._thoughts(thoughts, called=bool(calls))
        if calls:
            written["tool_calls"] = calls
        elif not text and not refusal:
            return []
        return [written | _named(message)]

    def _thoughts(self, thoughts: list[Reasoning], *, called: bool) -> Block:
        """Return the thoughts of a turn for servers that want them; one that has lost its thought says it is empty."""
        if not self._can.reasoning_in_history:
            if thoughts:
                self._notes.drop_once("reasoning", "earlier thoughts are not taken")
            return {}
        text = "".join(thought.text for thought in thoughts)
        told: Block = {"reasoning_content": text} if text or called else {}
        entries = give_back(thoughts)
        if entries:
            told["reasoning_details"] = entries
        if len(entries) < sum(thought.opaque is not None for thought in thoughts):
            self._notes.drop_once("reasoning", "hidden thoughts go back only to the model that made them")
        return told

    def _call(self, call: ToolCall) -> Block:
        name = provider_name(call.name)
        if call.custom and self._can.custom_tools:
            return {"id": call.id, "type": "custom", "custom": {"name": name, "input": call.arguments}}
        arguments = call.arguments
        if call.custom:
            arguments = json_edit.dumps({"input": arguments}).decode()
        elif not arguments.strip():
            arguments = "{}"
        return {"id": call.id, "type": "function", "function": {"name": name, "arguments": arguments}}

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _visible(self, part: Part, path: str) -> Block:
        """Write a part that the user, the operator or a tool said."""
        match part:
            case Text():
                return {"type": "text", "text": part.text, **self.cache_mark(part.cache)}
            case Image():
                return self._image(part, path)
            case Audio():
                if not self._can.audio or part.format not in ("wav", "mp3"):
                    self._notes.reject(path, f"this model takes no audio of type {part.format}")
                return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
            case File():
                return self._file(part, path)
            case _:
                self._notes.reject(path, "a turn of this role holds no such part")
                raise AssertionError("it was refused")

    def _image(self, image: Image, path: str) -> Block:
        if not self._can.images:
            self._notes.reject(path, "this model takes no pictures")
        if image.data is not None:
            kind = media_type(image.data) or image.media_type
            if kind is None or not kind.startswith("image/"):
                self._notes.reject(path, f"pictures of type {kind} are not taken")
            url = f"data:{kind};base64,{image.data}"
        elif image.url is not None and image.url.startswith(("https://", "http://")):
            url = image.url
        else:
            self._notes.reject(path, "the picture is kept by another vendor")
            url = ""
        detail = {} if image.detail is None else {"detail": image.detail}
        return {"type": "image_url", "image_url": {"url": url, **detail}, **self.cache_mark(image.cache)}

    def _file(self, file: File, path: str) -> Block:
        mark = self.cache_mark(file.cache)
        text = file.text
        kind = ""
        if text is None and file.data is not None:
            kind = media_type(file.data) or file.media_type or ""
            if kind.startswith(_TEXT_TYPES):
                text = b64decode(file.data).decode(errors="replace")
        if text is not None:
            head = f"{file.filename}:\n" if file.filename else ""
            return {"type": "text", "text": head + text, **mark}
        if file.data is None and file.url is not None and self._can.files:
            self._notes.want(file, path)
            return {"type": "text", "text": ""}
        if file.data is None:
            self._notes.reject(path, "only files that come along are taken, no ids of files")
        if kind.startswith("image/"):
            return self._image(Image(data=file.data, media_type=kind, cache=None), path) | mark
        if not self._can.files or not kind:
            self._notes.reject(path, f"files of type {kind or 'unknown'} are not taken")
        return {
            "type": "file",
            "file": {"filename": file.filename or "file", "file_data": f"data:{kind};base64,{file.data}"},
            **mark,
        }


def _named(message: Message) -> Block:
    return {"name": message.name} if message.name else {}


def _simplest(blocks: list[Block]) -> str | list[Block]:
    """Return a single plain text as the string it is."""
    if not blocks:
        return ""
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        return str(blocks[0]["text"])
    return blocks
