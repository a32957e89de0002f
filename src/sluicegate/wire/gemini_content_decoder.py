"""The conversation of a Gemini request, decoded and held to the rules of its own format.

SDKs send a streamed answer back as it came, a content for each event: neighbouring contents of the model are one turn,
pieces of a thought one thought, and its signature belongs to it. Calls and results find each other by id, or by name
and order where a client knows no ids. Every error names the path of the field. Source: wire formats page `gemini.md`,
"Parts" and "Thoughts and signatures".
"""

from typing import Any

import msgspec

from sluicegate.messages import (
    Audio,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from sluicegate.wire import json_edit
from sluicegate.wire.gemini_fields import Fields, is_service_address
from sluicegate.wire.gemini_signature import read_signature
from sluicegate.wire.inline_media import standard_base64
from sluicegate.wire.json_text import compact
from sluicegate.wire.translation import Notes, bad_field

_KINDS = ("text", "inlineData", "fileData", "functionCall", "functionResponse")
_HOSTED = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_MODIFIERS = frozenset({"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"})
_RESOLUTIONS = {"LOW": "low", "MEDIUM": "auto", "HIGH": "high", "ULTRA_HIGH": "original"}
_RESULT_MEMBERS = frozenset({"id", "name", "response", "parts", "scheduling", "willContinue"})
_AUDIO_FORMATS = {
    "mpeg": "mp3",
    "x-wav": "wav",
    "wave": "wav",
    "vnd.wave": "wav",
    "x-m4a": "m4a",
    "mp4": "m4a",
}
_CALL_ID = "call_%d"


class ContentReader:
    """Reads one request's conversation."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._calls: list[ToolCall] = []
        """Calls that no result has answered yet, in order."""
        self._made = 0
        """Ids given to calls that came without one: the same ones whenever the conversation is sent again."""

    def system(self, fields: Fields) -> list[Message]:
        """Return the system prompt: a content, or a bare string."""
        raw = fields.raw("systemInstruction")
        if raw is None:
            return []
        path = fields.at("systemInstruction")
        if raw.startswith(b'"'):
            return [
                Message(role="system", parts=[Text(text=fields.text("systemInstruction") or "")], path=path)
            ]
        parts: list[Part] = []
        for part in Fields(raw, path).objects("parts"):
            text = part.text("text")
            if text is None:
                raise bad_field(part.path, "a system instruction holds text only")
            parts.append(Text(text=text))
        return [Message(role="system", parts=parts, path=path)] if parts else []

    def messages(self, fields: Fields) -> list[Message]:
        """Return the conversation.

        Raises:
            BadRequest: there is none, or something in it is wrong.
        """
        found: list[Message] = []
        for content in fields.objects("contents"):
            message = self._content(content)
            before = found[-1] if found else None
            if before is not None and before.role == message.role and _is_one_turn(before, message):
                for part in message.parts:
                    _add(before.parts, part)
            else:
                found.append(message)
        if not found:
            raise bad_field(fields.at("contents"), "must not be empty")
        return found

    def _content(self, content: Fields) -> Message:
        role = content.text("role") or "user"
        if role not in ("user", "model", "function"):
            raise bad_field(content.at("role"), "must be 'user' or 'model'")
        for key in content.beyond({"role", "parts"}):
            self._notes.warn(content.at(key), "unknown field")
        is_model = role == "model"
        parts: list[Part] = []
        empty = True
        for part in content.objects("parts"):
            empty = False
            for read in self._part(part, is_model=is_model):
                _add(parts, read)
        if empty:
            raise bad_field(content.at("parts"), "must not be empty")
        if not is_model:  # results stand before anything else of a turn
            parts.sort(key=lambda part: not isinstance(part, ToolResult))
        return Message(role="assistant" if is_model else "user", parts=parts, path=content.path)

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _part(self, part: Fields, *, is_model: bool) -> list[Part]:
        """Read a part, which may hold several kinds at once."""
        for key in part.beyond({*_KINDS, *_HOSTED, *_MODIFIERS}):
            self._notes.reject(part.at(key), "unknown kind of part")
        if not any(key in part for key in (*_KINDS, *_HOSTED, "thoughtSignature")):
            raise bad_field(part.path, f"must hold one of {', '.join(_KINDS)}")
        for key in _HOSTED:
            if key in part:
                self._notes.reject(part.at(key), "the trace of a hosted tool is known to one vendor only")
        for key in ("videoMetadata", "partMetadata"):
            if key in part:
                self._notes.drop(part.at(key), "known to one vendor only")
        opaque = _signature(part)
        found: list[Part] = []
        if "text" in part or (opaque is not None and not any(key in part for key in _KINDS)):
            found.append(_text(part, opaque))
            opaque = None
        if "functionCall" in part:
            if not is_model:
                raise bad_field(part.at("functionCall"), "a function call stands in a model turn")
            found.append(self._call(part, opaque))
            opaque = None
        if "functionResponse" in part:
            if is_model:
                raise bad_field(part.at("functionResponse"), "a function response stands in a user turn")
            found.append(self._result(part))
        for key in ("inlineData", "fileData"):
            media = part.object(key)
            if media is not None:
                found.append(self._media(media, _detail(part)))
        if opaque is not None:
            self._notes.drop(part.at("thoughtSignature"), "it hangs on media")
        return found

    def _call(self, part: Fields, opaque: Opaque | None) -> Part:
        call = part.object("functionCall")
        assert call is not None, "it is there"
        name = call.needed_text("name")
        if "partialArgs" in call:
            self._notes.reject(call.at("partialArgs"), "a call in history has all its arguments")
        raw = call.raw("args")
        if raw is not None and not raw.startswith(b"{"):
            raise bad_field(call.at("args"), "expected an object")
        call_id = call.text("id")
        if not call_id:
            call_id = _CALL_ID % self._made
            self._made += 1
        found = ToolCall(
            id=call_id, name=name, arguments="{}" if raw is None else compact(raw), opaque=opaque
        )
        self._calls.append(found)
        return found

    def _result(self, part: Fields) -> Part:
        result = part.object("functionResponse")
        assert result is not None, "it is there"
        for key in result.beyond(_RESULT_MEMBERS):
            self._notes.warn(result.at(key), "unknown field")
        for key in ("scheduling", "willContinue"):
            if key in result:
                self._notes.warn(result.at(key), "results that come in pieces are known to one vendor only")
        name = result.needed_text("name")
        call = self._answered(result.text("id"), name)
        if call is None:
            raise bad_field(result.path, f"no function call of the turns before asked for {name!r}")
        self._calls.remove(call)
        text, is_error = _response(result)
        parts: list[Text | Image | File] = [Text(text=text)]
        for inner in result.objects("parts"):
            for key in ("inlineData", "fileData"):
                media = inner.object(key)
                if media is not None:
                    read = self._media(media, None)
                    if not isinstance(read, Image | File):
                        self._notes.reject(inner.path, "sounds in results are known to one vendor only")
                    else:
                        parts.append(read)
        return ToolResult(call_id=call.id, name=name, parts=parts, is_error=is_error)

    def _answered(self, call_id: str | None, name: str) -> ToolCall | None:
        """Return the open call that a result belongs to: by id, else by name, the oldest first."""
        if call_id:
            for call in self._calls:
                if call.id == call_id:
                    return call
        made = tuple(_CALL_ID % number for number in range(self._made))
        for call in self._calls:
            if call.name == name and (not call_id or call.id in made):
                return call
        return None

    def _media(self, media: Fields, detail: str | None) -> Image | Audio | File:
        kind = (media.text("mimeType") or "").lower()
        name = media.text("displayName")
        data = media.base64("data")
        url: str | None = media.text("fileUri")
        if data is None and not url:
            raise bad_field(media.path, "must hold data or fileUri")
        if data is not None and not kind:
            raise bad_field(media.at("mimeType"), "missing required field")
        kept: str | None = None
        if url is not None and is_service_address(url):
            kept = url  # for any other vendor a name, not a place
            url = None
        if kind.startswith("image/"):
            return Image(data=data, media_type=kind, url=url, file_id=kept, detail=detail)
        if kind.startswith("audio/") and data is not None:
            sound = kind.partition("/")[2].partition(";")[0]
            return Audio(data=data, format=_AUDIO_FORMATS.get(sound, sound))
        if kind.startswith("video/") or kind.startswith("audio/"):
            self._notes.reject(media.path, f"{kind} is known to one vendor only")
        return File(data=data, media_type=kind or None, url=url, file_id=kept, filename=name)


def _is_one_turn(before: Message, message: Message) -> bool:
    """Whether two contents of one role are one turn: pieces of an answer, or results of the same calls."""
    if before.role == "assistant":
        return True
    return all(isinstance(part, ToolResult) for part in before.parts) and all(
        isinstance(part, ToolResult) for part in message.parts
    )


def _add(parts: list[Part], part: Part) -> None:
    """Append a part, unless it goes on with the thought or the text before it."""
    before = parts[-1] if parts else None
    if isinstance(part, Reasoning) and isinstance(before, Reasoning) and before.opaque is None:
        hidden = part.opaque is not None and part.opaque.kind == "redacted"
        if not hidden and before.text:
            before.text += part.text
            before.opaque = part.opaque
            return
    if isinstance(part, Text) and not part.text:
        if part.opaque is None:
            return
        if isinstance(before, Text) and before.opaque is None:
            before.opaque = part.opaque
            return
    parts.append(part)


def _signature(part: Fields) -> Opaque | None:
    text = part.text("thoughtSignature")
    if not text:
        return None
    if standard_base64(text) is None:
        raise bad_field(part.at("thoughtSignature"), "invalid base64")
    return read_signature(text)


def _text(part: Fields, opaque: Opaque | None) -> Part:
    text = part.text("text") or ""
    if part.flag("thought") or (opaque is not None and opaque.vendor != "google"):
        return Reasoning(text=text, opaque=opaque, summary=True)
    return Text(text=text, opaque=opaque)


def _detail(part: Fields) -> str | None:
    raw = part.raw("mediaResolution")
    if raw is None:
        return None
    fields = Fields(raw, part.at("mediaResolution")) if raw.startswith(b"{") else part
    word = fields.enum(
        "level" if fields is not part else "mediaResolution", _RESOLUTIONS, "MEDIA_RESOLUTION_"
    )
    return None if word is None else _RESOLUTIONS[word]


def _response(result: Fields) -> tuple[str, bool]:
    """Return what a function answered as text, and whether it failed."""
    raw = result.raw("response")
    if raw is None:
        return "", False
    if not raw.startswith(b"{"):
        raise bad_field(result.at("response"), "expected an object")
    members = json_edit.inner_members(raw, 0)
    if len(members) == 1 and members[0].key in ("output", "error"):
        inner = raw[members[0].start : members[0].end]
        is_error = members[0].key == "error"
        value: Any = msgspec.json.decode(inner) if inner.startswith(b'"') else None
        if isinstance(value, str):
            return value, is_error
        if is_error:
            return compact(inner), True
    return compact(raw), False
