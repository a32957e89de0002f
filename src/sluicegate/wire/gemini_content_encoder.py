"""A conversation in no format, written as the contents of a Gemini request.

Turns alternate, results come first in theirs, no content is without parts, and every call is answered. Signatures go
back to the model that made them, on the part they came on; where a model insists on one that is lost, the first call
of a step carries the vendor's stand-in. Source: translation matrix, sections 1 to 12 and 34.
"""

import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.messages import (
    Audio,
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
from sluicegate.wire.gemini_fields import is_service_address
from sluicegate.wire.gemini_signature import STAND_IN, may_return
from sluicegate.wire.inline_media import media_type
from sluicegate.wire.translation import Notes
from sluicegate.wire.turns import arguments_object, leading_instructions

GeminiPart = dict[str, Any]
NO_RESULT = "[no result]"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_UNFIT = re.compile(r"[^A-Za-z0-9_.:-]")
_AUDIO_TYPES = {"mp3": "audio/mpeg", "m4a": "audio/mp4", "pcm16": "audio/pcm"}
_RESOLUTIONS = {"low": "LOW", "high": "HIGH", "original": "ULTRA_HIGH"}


def provider_name(name: str) -> str:
    """Return a function's name as this format takes it; the same one each time."""
    if _NAME.fullmatch(name):
        return name
    fitted = _UNFIT.sub("_", name)[:48]
    if not _NAME.match(fitted):
        fitted = "_" + fitted
    return f"{fitted}_{sha256(name.encode()).hexdigest()[:12]}"


class _Turn:
    """One turn of the conversation as it is put together."""

    __slots__ = ("calls", "path", "plain", "rest", "results", "role")

    def __init__(self, role: str, path: str) -> None:
        self.role = role
        self.path = path
        self.results: list[tuple[str, GeminiPart]] = []
        """By the id of the call they answer."""
        self.rest: list[GeminiPart] = []
        self.calls: list[tuple[str, GeminiPart]] = []
        """By their ids; the parts stand in `rest` too."""
        self.plain = False
        """A user turn with content beside results: what follows is the current turn."""

    def parts(self) -> list[GeminiPart]:
        """Return its parts in the order that the format wants."""
        return [part for _, part in self.results] + self.rest


class ContentWriter:
    """Writes one request's conversation."""

    def __init__(self, model: str, can: Capabilities, notes: Notes) -> None:
        self._model = model
        self._can = can
        self._notes = notes
        self._names: dict[str, str] = {}
        """Of all calls so far, by id."""

    # ---- the system prompt ----------------------------------------------------------------------------------------

    def system(self, messages: list[Message]) -> list[GeminiPart]:
        """Return the parts of what leads the conversation; each message keeps its borders."""
        return [
            part for message in messages[: leading_instructions(messages)] for part in self._texts(message)
        ]

    def _texts(self, message: Message) -> list[GeminiPart]:
        parts: list[GeminiPart] = []
        for part in message.parts:
            if not isinstance(part, Text):
                self._notes.reject(message.path or "messages", "a system message holds text only")
            elif part.text:
                parts.append({"text": part.text})
        return parts

    # ---- turns ----------------------------------------------------------------------------------------------------

    def contents(self, messages: list[Message], *, continues: bool) -> list[dict[str, Any]]:
        """Return the `contents` of the request.

        Args:
            continues: the client knows that the model goes on with a last turn of its own.
        """
        turns: list[_Turn] = []
        for message in messages[leading_instructions(messages) :]:
            if message.role in ("system", "developer"):
                self._add_instruction(turns, message)
            else:
                self._add(turns, message)
        if all(turn.role != "user" for turn in turns):
            self._notes.reject("messages", "the conversation needs a user turn")
        if turns[0].role == "model":
            self._notes.reject(turns[0].path, "the first turn must be the user's", lenient_ok=True)
            turns.insert(0, _Turn("user", turns[0].path))
            turns[0].rest = [{"text": "(conversation start)"}]
        self._pair(turns)
        if turns[-1].role == "model":
            self._end_in_model(turns, continues=continues)
        if self._can.signed_calls:
            self._sign(turns)
        return [{"role": turn.role, "parts": turn.parts()} for turn in turns]

    def _turn(self, turns: list[_Turn], role: str, path: str) -> _Turn:
        """Return the turn that content of a role goes into: the last one, or a new one."""
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role, path))
        return turns[-1]

    def _add(self, turns: list[_Turn], message: Message) -> None:
        path = message.path or "messages"
        if message.name:
            self._notes.drop_once("messages.name", "turns have no names")
        role = "model" if message.role == "assistant" else "user"
        new = _Turn(role, path)
        late: list[GeminiPart] = []
        for place, part in enumerate(message.parts):
            self._put(new, part, f"{path}.content[{place}]", late)
        if role == "model":
            self._place_signatures(new, message)
        new.plain = role == "user" and bool(new.rest)
        new.rest = late + new.rest
        if new.parts():
            turn = self._turn(turns, role, path)
            turn.results += new.results
            turn.rest += new.rest
            turn.calls += new.calls
            turn.plain |= new.plain

    def _add_instruction(self, turns: list[_Turn], message: Message) -> None:
        """Put an instruction where it was given, never to the top: its place in time has a meaning."""
        parts = self._texts(message)
        if not parts:
            return
        path = message.path or "messages"
        self._notes.warn(path, "a later system message is sent as a marked user text")
        turn = self._turn(turns, "user", path)
        turn.rest += [{"text": f"<system>{part['text']}</system>"} for part in parts]

    def _pair(self, turns: list[_Turn]) -> None:
        """See to it that each call is answered in the turn after it, in its order, and nothing else is."""
        for place in range(len(turns)):
            turn = turns[place]
            before = turns[place - 1] if place else None
            calls = [call_id for call_id, _ in before.calls] if before is not None else []
            for call_id, _ in turn.results:
                if call_id not in calls:
                    self._notes.reject(
                        turn.path, f"the tool result {call_id!r} answers no call of the turn before"
                    )
            answered = {call_id for call_id, _ in turn.results}
            missing = [call_id for call_id in calls if call_id not in answered]
            if missing:
                names = ", ".join(missing)
                self._notes.reject(turn.path, f"no tool result came for {names}", lenient_ok=True)
                for call_id in missing:
                    result = ToolResult(call_id=call_id, parts=[Text(text=NO_RESULT)], is_error=True)
                    self._result(turn, result, turn.path, [])
            turn.results.sort(key=lambda result: calls.index(result[0]) if result[0] in calls else 0)

    def _end_in_model(self, turns: list[_Turn], *, continues: bool) -> None:
        """Let the model go on with its own last turn, where it can, and where the client does not mean history."""
        last = turns[-1]
        if self._notes.policy == "lenient" and not continues:
            self._notes.warn(last.path, "a user turn 'Continue.' was added")
            turns.append(_Turn("user", last.path))
            turns[-1].rest = [{"text": "Continue."}]
        elif not self._can.prefill:
            self._notes.reject(last.path, "this model does not continue its own turn")

    def _sign(self, turns: list[_Turn]) -> None:
        """Give the first call of each step of the current turn the stand-in where its signature is lost."""
        start = max((place for place, turn in enumerate(turns) if turn.plain), default=0)
        for turn in turns[start:]:
            if turn.calls and "thoughtSignature" not in turn.calls[0][1]:
                self._notes.drop_once("thoughtSignature", "the state of the turn is lost: a stand-in is sent")
                turn.calls[0][1]["thoughtSignature"] = STAND_IN

    def _place_signatures(self, turn: _Turn, message: Message) -> None:
        """Put signatures that clients of other formats gave back beside their calls onto these."""
        calls = dict(turn.calls)
        for part in message.parts:
            opaque = part.opaque if isinstance(part, Reasoning | Text) else None
            call = calls.get(opaque.id or "") if opaque is not None else None
            if opaque is not None and call is not None and may_return(opaque, self._model):
                call.setdefault("thoughtSignature", opaque.value)

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _put(self, turn: _Turn, part: Part, path: str, late: list[GeminiPart]) -> None:
        """Write a part into its turn; what hangs on results but stands behind all of them goes to `late`."""
        match part:
            case Text() | Refusal():
                opaque = part.opaque if isinstance(part, Text) else None
                signature = {} if opaque is not None and opaque.id else self._signature(opaque)
                if part.text or signature:
                    turn.rest.append({"text": part.text, **signature})
            case Reasoning():
                self._think(turn, part)
            case ToolCall():
                self._names[part.id] = part.name
                call = {"functionCall": self._call(part, path), **self._signature(part.opaque)}
                turn.calls.append((part.id, call))
                turn.rest.append(call)
            case ToolResult():
                self._result(turn, part, path, late)
            case Image():
                turn.rest.append(self._image(part, path))
            case Audio():
                if not self._can.audio:
                    self._notes.reject(path, "this model takes no sounds")
                kind = _AUDIO_TYPES.get(part.format, f"audio/{part.format}")
                turn.rest.append(_inline(kind, part.data))
            case File():
                turn.rest.append(self._file(part, path))

    def _signature(self, opaque: Opaque | None) -> GeminiPart:
        if opaque is None or not may_return(opaque, self._model):
            return {}
        return {"thoughtSignature": opaque.value}

    def _think(self, turn: _Turn, part: Reasoning) -> None:
        opaque = part.opaque
        signature = self._signature(opaque)
        if not signature or opaque is None:
            self._notes.drop_once("reasoning", "thoughts go back only to the model that made them")
        elif part.text:
            signature = {} if opaque.id else signature
            turn.rest.append({"text": part.text, "thought": True, **signature})
        elif not opaque.id:
            turn.rest.append({"text": "", **signature})

    def _call(self, call: ToolCall, path: str) -> dict[str, Any]:
        ids = {"id": call.id} if self._can.call_ids else {}
        return {**ids, "name": provider_name(call.name), "args": arguments_object(call, path, self._notes)}

    def _result(self, turn: _Turn, result: ToolResult, path: str, late: list[GeminiPart]) -> None:
        name = self._names.get(result.call_id)
        if name is None:
            self._notes.reject(path, f"the tool result {result.call_id!r} answers no call")
        texts = [part.text for part in result.parts if isinstance(part, Text)]
        media = [part for part in result.parts if not isinstance(part, Text)]
        if media and not self._can.images_in_results:
            self._notes.warn(path, "media of a tool result are sent behind all results")
            texts.append("[media: see below]")
        response: dict[str, Any] = {
            "name": provider_name(name or ""),
            "response": _response(texts, result.is_error),
        }
        if self._can.call_ids:
            response = {"id": result.call_id, **response}
        parts = [
            self._image(part, path) if isinstance(part, Image) else self._file(part, path) for part in media
        ]
        if parts and self._can.images_in_results:
            response["parts"] = parts
        elif parts:
            late += [{"text": f"(media of the result of {name})"}, *parts]
        turn.results.append((result.call_id, {"functionResponse": response}))

    def _image(self, image: Image, path: str) -> GeminiPart:
        if not self._can.images:
            self._notes.reject(path, "this model takes no pictures")
        resolution: GeminiPart = {}
        if image.detail in _RESOLUTIONS and self._can.media_resolution:
            level = f"MEDIA_RESOLUTION_{_RESOLUTIONS[image.detail or '']}"
            resolution = {"mediaResolution": {"level": level}}
        elif image.detail not in (None, "auto"):
            self._notes.drop_once("detail", "the resolution of pictures cannot be chosen")
        if image.data is not None:
            kind = media_type(image.data) or image.media_type or ""
            return {**_inline(kind, image.data), **resolution}
        return {**self._by_url(image, path), **resolution}

    def _file(self, file: File, path: str) -> GeminiPart:
        if not self._can.files:
            self._notes.reject(path, "this model takes no files")
        if file.filename:
            self._notes.drop_once("filename", "files have no names")
        if file.text is not None:
            return _inline("text/plain", b64encode(file.text.encode()).decode())
        if file.data is not None:
            kind = file.media_type or media_type(file.data) or "application/pdf"
            return _inline(kind, file.data)
        return self._by_url(file, path)

    def _by_url(self, part: Image | File, path: str) -> GeminiPart:
        url, kind = part.url, part.media_type
        if url is None:
            self._notes.reject(path, "the file is known to another vendor only")
        elif not is_service_address(url):
            self._notes.want(part, path)
        data = {"fileUri": url, **({"mimeType": kind} if kind else {})}
        return {"fileData": data}


def _inline(kind: str, data: str) -> GeminiPart:
    return {"inlineData": {"mimeType": kind, "data": data}}


def _response(texts: list[str], is_error: bool) -> Any:
    """Return a result as the object that this format wants: its own where it is one."""
    text = "\n".join(texts)
    if is_error:
        return {"error": text}
    raw = text.strip().encode()
    if raw.startswith(b"{") and json_edit.is_json(raw):
        return msgspec.Raw(raw)
    return {"output": text}
