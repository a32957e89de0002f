"""A conversation in no format, written as the turns of a Messages request.

Turns alternate, results come first in theirs and calls last, no block is empty, and every call is answered. Opaque
state goes back only to the vendor that made it, byte for byte. Source: translation matrix, sections 1 to 12 and 34.
"""

import re
from hashlib import sha256
from typing import Any

import msgspec

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
from sluicegate.wire.anthropic_content_decoder import IMAGE_TYPES, NO_RESULT
from sluicegate.wire.inline_media import media_type
from sluicegate.wire.translation import Notes
from sluicegate.wire.turns import arguments_object, leading_instructions

Block = dict[str, Any]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_TTLS = {"5m": "5m", "1h": "1h", "30m": "1h", "12h": "1h", "24h": "1h"}
_PDF = "application/pdf"
_THOUGHTS = ("thinking", "redacted_thinking")


def provider_name(name: str) -> str:
    """Return a tool's name as this format takes it; the same one each time."""
    return name if _NAME.fullmatch(name) else _fitted(name)


def _call_id(call_id: str) -> str:
    return call_id if _CALL_ID.fullmatch(call_id) else _fitted(call_id)


def _fitted(name: str) -> str:
    return f"{_UNFIT.sub('_', name)[:48]}_{sha256(name.encode()).hexdigest()[:12]}"


def cache_control(mark: CacheMark | None) -> Block:
    """Return the member that marks a block for the cache, or none."""
    if mark is None:
        return {}
    ttl = _TTLS.get(mark.ttl or "")
    return {"cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}}


class _Turn:
    """One turn of the conversation as it is put together."""

    __slots__ = ("blocks", "calls", "path", "results", "role")

    def __init__(self, role: str, path: str) -> None:
        self.role = role
        self.path = path
        self.results: list[Block] = []
        self.blocks: list[Block] = []
        self.calls: list[Block] = []

    def content(self) -> list[Block]:
        """Return its blocks in the order that the format wants."""
        return self.results + self.blocks + self.calls


class ContentWriter:
    """Writes one request's conversation."""

    def __init__(self, model: str, can: Capabilities, notes: Notes) -> None:
        self._model = model
        self._can = can
        self._notes = notes
        self._carried: list[Block] = []
        """Pictures of an assistant turn, for the user turn that follows."""
        self.lacks_thought = False
        """The tool loop that goes on has lost the thought it began with."""
        self.ends_with_prefill = False

    # ---- the system prompt ----------------------------------------------------------------------------------------

    def system(self, messages: list[Message], instructions: list[str]) -> str | list[Block]:
        """Return what leads the conversation, and instructions of our own behind it."""
        blocks = [
            block for message in messages[: leading_instructions(messages)] for block in self._texts(message)
        ]
        blocks += [{"type": "text", "text": text} for text in instructions]
        if len(blocks) == 1 and "cache_control" not in blocks[0]:
            return str(blocks[0]["text"])
        return blocks

    def _texts(self, message: Message) -> list[Block]:
        blocks: list[Block] = []
        for part in message.parts:
            if not isinstance(part, Text):
                self._notes.reject(message.path or "messages", "a system message holds text only")
            elif part.text.strip():
                blocks.append({"type": "text", "text": part.text, **cache_control(part.cache)})
        return blocks

    # ---- turns ----------------------------------------------------------------------------------------------------

    def turns(self, messages: list[Message], *, continues: bool = False) -> list[Block]:
        """Return the `messages` of the request.

        Args:
            continues: the client knows that the model goes on with a last turn of its own.
        """
        turns: list[_Turn] = []
        for message in messages[leading_instructions(messages) :]:
            if message.role in ("system", "developer"):
                self._add_instruction(turns, message)
            else:
                self._add(turns, message)
        if self._carried:
            self._turn(turns, "user", "messages").blocks += self._carried
        if all(turn.role != "user" for turn in turns):
            self._notes.reject("messages", "the conversation needs a user turn")
        self._begin_with_user(turns)
        self._pair(turns)
        self._end(turns, continues=continues)
        return [{"role": turn.role, "content": _simplest(turn.content())} for turn in turns if turn.content()]

    def _turn(self, turns: list[_Turn], role: str, path: str) -> _Turn:
        """Return the turn that content of a role goes into: the last one, or a new one."""
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role, path))
        return turns[-1]

    def _add(self, turns: list[_Turn], message: Message) -> None:
        path = message.path or "messages"
        if message.name:
            self._notes.drop_once("messages.name", "turns have no names")
        new = _Turn(message.role, path)
        if message.role == "user" and self._carried:
            new.blocks, self._carried = self._carried, []
        for place, part in enumerate(message.parts):
            self._put(new, part, f"{path}.content[{place}]")
        if new.content():
            turn = self._turn(turns, message.role, path)
            turn.results += new.results
            turn.blocks += new.blocks
            turn.calls += new.calls

    def _add_instruction(self, turns: list[_Turn], message: Message) -> None:
        """Put an instruction where it was given, never to the top: its place in time has a meaning."""
        blocks = self._texts(message)
        if not blocks:
            return
        path = message.path or "messages"
        if self._can.mid_system and turns and turns[-1].role == "user":
            turns.append(_Turn("system", path))
            turns[-1].blocks = blocks
            return
        self._notes.warn(path, "a later system message is sent as a marked user text")
        for block in blocks:
            block["text"] = f"<system>{block['text']}</system>"
        self._turn(turns, "user", path).blocks += blocks

    def _begin_with_user(self, turns: list[_Turn]) -> None:
        if turns and turns[0].role == "assistant":
            self._notes.reject(turns[0].path, "the first turn must be the user's", lenient_ok=True)
            turns.insert(0, _Turn("user", turns[0].path))
            turns[0].blocks = [{"type": "text", "text": "(conversation start)"}]

    def _pair(self, turns: list[_Turn]) -> None:
        """See to it that each call is answered in the turn after it, and nothing else is."""
        calls: list[Block] = []
        for place in range(len(turns) + 1):
            turn = turns[place] if place < len(turns) else None
            if turn is not None and turn.role == "system":
                continue
            results = turn.results if turn is not None else []
            asked = {call["id"] for call in calls}
            for result in results:
                if result["tool_use_id"] not in asked:
                    path = turn.path if turn is not None else "messages"
                    self._notes.reject(
                        path, f"the tool result {result['tool_use_id']!r} answers no call of the turn before"
                    )
            answered = {result["tool_use_id"] for result in results}
            missing = [call for call in calls if call["id"] not in answered]
            if missing:
                self._invent_results(turns, place, missing)
            calls = turn.calls if turn is not None else []

    def _invent_results(self, turns: list[_Turn], place: int, missing: list[Block]) -> None:
        names = ", ".join(call["id"] for call in missing)
        path = turns[place - 1].path
        self._notes.reject(path, f"no tool result came for {names}", lenient_ok=True)
        if place == len(turns) or turns[place].role != "user":
            turns.insert(place, _Turn("user", path))
        turns[place].results += [
            {"type": "tool_result", "tool_use_id": call["id"], "content": NO_RESULT, "is_error": True}
            for call in missing
        ]

    def _end(self, turns: list[_Turn], *, continues: bool) -> None:
        """Look at the last turns: what the model is to go on from."""
        if not turns:
            return
        last = turns[-1]
        if last.role == "assistant":
            self._end_in_assistant(turns, continues=continues)
        elif last.results and len(turns) > 1:
            before = [turn for turn in turns[:-1] if turn.role == "assistant"]
            self.lacks_thought = bool(before) and not any(
                block["type"] in _THOUGHTS for block in before[-1].content()[:1]
            )

    def _end_in_assistant(self, turns: list[_Turn], *, continues: bool) -> None:
        """Let the model go on with its own last turn, where it can, and where the client does not mean history."""
        last = turns[-1]
        if self._notes.policy == "lenient" and not continues:
            self._notes.warn(last.path, "a user turn 'Continue.' was added")
            turns.append(_Turn("user", last.path))
            turns[-1].blocks = [{"type": "text", "text": "Continue."}]
            return
        if not self._can.prefill:
            self._notes.reject(last.path, "this model does not continue an assistant turn")
        self.ends_with_prefill = True
        block = last.content()[-1]
        if block["type"] == "text":
            block["text"] = block["text"].rstrip()

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _put(self, turn: _Turn, part: Part, path: str) -> None:
        """Write a part into its turn."""
        match part:
            case Text() | Refusal():
                if part.text.strip():
                    mark = part.cache if isinstance(part, Text) else None
                    turn.blocks.append({"type": "text", "text": part.text, **cache_control(mark)})
            case Reasoning():
                block = self._thought(part)
                if block is not None:
                    turn.blocks.append(block)
            case ToolCall():
                turn.calls.append(self._call(part, path))
            case ToolResult():
                turn.results.append(self._result(part, path))
            case Image() if turn.role == "assistant":
                self._notes.warn(path, "the picture of an assistant turn is sent with the next user turn")
                self._carried += [
                    {"type": "text", "text": "(picture of the assistant turn before)"},
                    self._image(part, path),
                ]
            case Image():
                turn.blocks.append(self._image(part, path))
            case File():
                turn.blocks.append(self._file(part, path))
            case Audio():
                self._notes.reject(path, "audio is not taken by this format")

    def _thought(self, part: Reasoning) -> Block | None:
        opaque = part.opaque
        if opaque is None or opaque.vendor != "anthropic" or not self._is_of_this_model(opaque):
            self._notes.drop_once("reasoning", "thoughts go back only to the model that made them")
            return None
        if opaque.kind == "redacted":
            return {"type": "redacted_thinking", "data": opaque.value}
        return {"type": "thinking", "thinking": part.text, "signature": opaque.value}

    def _is_of_this_model(self, opaque: Opaque) -> bool:
        """Whether the provider's model made a state; ids with and without a date are one model."""
        made_by = opaque.model
        return made_by is None or made_by.startswith(self._model) or self._model.startswith(made_by)

    def _call(self, call: ToolCall, path: str) -> Block:
        return {
            "type": "tool_use",
            "id": _call_id(call.id),
            "name": provider_name(call.name),
            "input": arguments_object(call, path, self._notes),
            **cache_control(call.cache),
        }

    def _result(self, result: ToolResult, path: str) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": _call_id(result.call_id)}
        inner: list[Block] = []
        for place, part in enumerate(result.parts):
            where = f"{path}.content[{place}]"
            if isinstance(part, Text):
                if part.text:
                    inner.append({"type": "text", "text": part.text, **cache_control(part.cache)})
            elif isinstance(part, Image) and not self._can.images:
                self._notes.warn(where, "this model takes no pictures")
                inner.append({"type": "text", "text": "[picture left out]"})
            elif isinstance(part, Image):
                inner.append(self._image(part, where))
            else:
                inner.append(self._file(part, where))
        if inner:
            block["content"] = _simplest(inner)
        if result.is_error:
            block["is_error"] = True
        return block | cache_control(result.cache)

    def _image(self, image: Image, path: str) -> Block:
        if not self._can.images:
            self._notes.reject(path, "this model takes no pictures")
        if image.detail not in (None, "auto"):
            self._notes.drop_once("detail", "the resolution of pictures cannot be chosen")
        source: Block = {}
        if image.data is not None:
            kind = media_type(image.data) or image.media_type
            if kind not in IMAGE_TYPES:
                self._notes.reject(path, f"pictures of type {kind} are not taken")
            source = {"type": "base64", "media_type": kind, "data": image.data}
        elif image.url is not None and image.url.startswith(("https://", "http://")):
            source = {"type": "url", "url": image.url}
        else:
            self._notes.reject(path, "the file is known to another vendor only")
        return {"type": "image", "source": source, **cache_control(image.cache)}

    def _file(self, file: File, path: str) -> Block:
        if not self._can.files:
            self._notes.reject(path, "this model takes no files")
        source = self._file_source(file, path)
        title = {"title": file.filename} if file.filename else {}
        return {"type": "document", "source": source, **title, **cache_control(file.cache)}

    def _file_source(self, file: File, path: str) -> Block:
        if file.text is not None:
            return {"type": "text", "media_type": "text/plain", "data": file.text}
        if file.url is not None and file.url.startswith(("https://", "http://")):
            return {"type": "url", "url": file.url}
        if file.data is None:
            self._notes.reject(path, "the file is known to another vendor only")
            return {}
        kind = media_type(file.data) or file.media_type or ""
        if kind == _PDF:
            return {"type": "base64", "media_type": _PDF, "data": file.data}
        text = _decoded_text(file.data) if kind.startswith("text/") or kind == "application/json" else None
        if text is None:
            self._notes.reject(path, f"files of type {kind or 'unknown'} are not taken")
        return {"type": "text", "media_type": "text/plain", "data": text}


def _simplest(blocks: list[Block]) -> str | list[Block]:
    """Return a single plain text as the string it is."""
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        return str(blocks[0]["text"])
    return blocks


def _decoded_text(base64: str) -> str | None:
    try:
        return msgspec.json.decode(b'"%b"' % base64.encode(), type=bytes).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
