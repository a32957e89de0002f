"""The conversation of a Messages request, decoded and held to the rules of its own format.

Every error names the path of the field. What a hosted tool left in the history has no word in the vocabulary: the
trace of a search is left out and named, anything else is refused. Source: wire formats page `anthropic-messages.md`,
"Content blocks in requests" and "Message rules".
"""

import re
from typing import Any

import msgspec

from sluicegate.messages import (
    CacheMark,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sluicegate.wire.envelope import open_envelope
from sluicegate.wire.inline_media import standard_base64
from sluicegate.wire.json_text import compact
from sluicegate.wire.translation import Notes, bad_field

Object = dict[str, msgspec.Raw]
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_BY_ROLE: dict[str, frozenset[str]] = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result"}),
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "tool_use"}),
    "system": frozenset({"text"}),
}
_IN_RESULTS = frozenset({"text", "image", "document", "search_result"})
_SEARCH_TRACES = frozenset({"server_tool_use", "web_search_tool_result", "web_fetch_tool_result"})
_VENDOR_BLOCKS = frozenset(
    {
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "tool_reference",
        "container_upload",
        "mcp_tool_use",
        "mcp_tool_result",
        "compaction",
    }
)
NO_RESULT = "[no result]"
_PLACE = re.compile(r"`\$(\[\d+\])`")
_decode_objects = msgspec.json.Decoder(list[Object]).decode
_decode_object = msgspec.json.Decoder(Object).decode


def value_of(raw: msgspec.Raw, path: str) -> Any:
    """Decode a value whose JSON was read before.

    Raises:
        BadRequest: a number beyond all bounds, or nested too deeply.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise bad_field(path, "Input is not a valid value") from None


def text_of(fields: Object, key: str, path: str, *, required: bool = True) -> str | None:
    """Return a member that has to be a string; None where an optional one is absent or null."""
    raw = fields.get(key)
    value = None if raw is None else value_of(raw, f"{path}.{key}")
    if value is None and not required:
        return None
    if value is None:
        raise bad_field(f"{path}.{key}", "Field required")
    if not isinstance(value, str):
        raise bad_field(f"{path}.{key}", "Input should be a string")
    return value


def needed_text(fields: Object, key: str, path: str) -> str:
    """Return a string that has to be there and must not be empty."""
    text = text_of(fields, key, path)
    if not text:
        raise bad_field(f"{path}.{key}", "must not be empty")
    return text


def object_of(raw: msgspec.Raw | None, path: str) -> Object:
    """Return a member that has to be an object, its values left as they stand."""
    if raw is None:
        raise bad_field(path, "Field required")
    try:
        return _decode_object(raw)
    except (msgspec.DecodeError, RecursionError):
        raise bad_field(path, "Input should be an object") from None


def objects_of(raw: msgspec.Raw, path: str) -> list[Object]:
    """Return a member that has to be an array of objects."""
    try:
        return _decode_objects(raw)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        if place is not None:
            raise bad_field(path + place[1], "Input should be an object") from None
    except (msgspec.DecodeError, RecursionError):
        pass
    raise bad_field(path, "Input should be an array of objects")


def cache_mark(fields: Object, path: str) -> CacheMark | None:
    """Return the `cache_control` of a block or tool."""
    raw = fields.get("cache_control")
    if raw is None or is_null(raw):
        return None
    path = f"{path}.cache_control"
    control = object_of(raw, path)
    if text_of(control, "type", path) != "ephemeral":
        raise bad_field(f"{path}.type", "Input should be 'ephemeral'")
    return CacheMark(ttl=text_of(control, "ttl", path, required=False))


class ContentReader:
    """Reads one request's system prompt and messages."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._told: set[str] = set()
        self._result_paths: dict[int, str] = {}
        """Where each result stood, by its identity."""

    # ---- turns ----------------------------------------------------------------------------------------------------

    def system(self, raw: msgspec.Raw) -> list[Message]:
        """Return the system prompt as a leading message, or none where it is empty."""
        parts = self._parts(raw, "system", "system")
        return [Message(role="system", parts=parts, path="system")] if parts else []

    def messages(self, raw: msgspec.Raw | None) -> list[Message]:
        """Return the conversation, every call answered and every answer asked for, results first in their turn."""
        if raw is None:
            raise bad_field("messages", "Field required")
        items = objects_of(raw, "messages")
        if not items:
            raise bad_field("messages", "at least one message is required")
        messages: list[Message] = []
        for place, item in enumerate(items):
            path = f"messages[{place}]"
            role = self._role(item, path, messages[-1].role if messages else None)
            if "content" not in item:
                raise bad_field(f"{path}.content", "Field required")
            parts = self._parts(item["content"], f"{path}.content", role)
            if not parts and role != "assistant":
                raise bad_field(f"{path}.content", "must not be empty")
            if role == "assistant":
                _hang_on_calls(parts)
            messages.append(Message(role=role, parts=parts, path=path))
        self._pair(messages)
        return [message for message in messages if message.parts]

    def _role(self, item: Object, path: str, before: Role | None) -> Role:
        role = text_of(item, "role", path)
        if role == "user":
            return "user"
        if role not in ("assistant", "system"):
            raise bad_field(f"{path}.role", "Input should be 'user' or 'assistant'")
        if before is None:
            raise bad_field(f"{path}.role", "the first message must be from the user")
        if role == "system" and before != "user":
            raise bad_field(f"{path}.role", "a system message must follow a user turn")
        return "assistant" if role == "assistant" else "system"

    def _pair(self, messages: list[Message]) -> None:
        """Check that results answer the calls of the turn before, all of them, and put them first in their turn."""
        calls: dict[str, ToolCall] = {}
        asked_at = ""
        turn: Message | None = None
        """The first message of the user's turn."""
        for message in list(messages):
            if message.role == "assistant":
                if turn is not None:
                    self._need_results(calls, asked_at, turn, messages)
                    calls, turn = {}, None
                for part in message.parts:
                    if isinstance(part, ToolCall):
                        if part.id in calls:
                            raise bad_field(message.path, f"tool_use id {part.id!r} comes twice")
                        calls[part.id] = part
                        asked_at = message.path
            elif message.role == "user":
                turn = turn or message
                self._take_results(message, turn, calls)
        self._need_results(calls, asked_at, turn, messages)

    def _take_results(self, message: Message, turn: Message, calls: dict[str, ToolCall]) -> None:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if not results:
            return
        for result in results:
            call = calls.pop(result.call_id, None)
            if call is None:
                raise bad_field(
                    f"{self._result_paths[id(result)]}.tool_use_id",
                    f"unexpected tool result: the turn before has no tool_use with id {result.call_id!r}",
                )
            result.name = call.name
        message.parts = [part for part in message.parts if not isinstance(part, ToolResult)]
        first = sum(isinstance(part, ToolResult) for part in turn.parts)
        turn.parts[first:first] = results

    def _need_results(
        self, calls: dict[str, ToolCall], asked_at: str, turn: Message | None, messages: list[Message]
    ) -> None:
        """See to it that no call is left without a result; only a lenient translation invents one."""
        if not calls:
            return
        names = ", ".join(calls)
        if self._notes.policy != "lenient":
            raise bad_field(
                asked_at, f"tool_use without a tool_result in the next message; ids without one: {names}"
            )
        self._notes.warn(asked_at, f"no result came for {names}")
        missing: list[Part] = [
            ToolResult(call_id=call.id, name=call.name, parts=[Text(text=NO_RESULT)], is_error=True)
            for call in calls.values()
        ]
        if turn is None:
            messages.append(Message(role="user", parts=missing, path=asked_at))
        else:
            first = sum(isinstance(part, ToolResult) for part in turn.parts)
            turn.parts[first:first] = missing

    # ---- blocks ---------------------------------------------------------------------------------------------------

    def _parts(self, raw: msgspec.Raw, path: str, role: str) -> list[Part]:
        if raw_is_text(raw):
            text = value_of(raw, path)
            return [Text(text=text)] if text else []
        parts: list[Part] = []
        for place, block in enumerate(objects_of(raw, path)):
            part = self._part(block, f"{path}[{place}]", _BY_ROLE[role])
            if part is not None:
                parts.append(part)
        return parts

    def _part(self, block: Object, path: str, allowed: frozenset[str]) -> Part | None:
        kind = text_of(block, "type", path) or ""
        if kind in _SEARCH_TRACES and "tool_use" in allowed:
            self._notes.warn(path, f"{kind} has no place in another format")
            return None
        if kind in _VENDOR_BLOCKS:
            self._notes.reject(f"{path}.type", f"{kind} has no place in another format")
        if kind not in allowed:
            known = ", ".join(f"'{name}'" for name in sorted(allowed))
            raise bad_field(f"{path}.type", f"Input should be one of {known}; not {kind!r}")
        match kind:
            case "text":
                return self._text(block, path)
            case "image":
                return self._image(block, path)
            case "document":
                return self._document(block, path)
            case "search_result":
                return self._search_result(block, path)
            case "tool_result":
                return self._tool_result(block, path)
            case "tool_use":
                return self._tool_use(block, path)
            case "thinking":
                text = text_of(block, "thinking", path) or ""
                return _reasoning(text, "signature", text_of(block, "signature", path, required=False))
            case _:
                return _reasoning("", "redacted", needed_text(block, "data", path))

    def _text(self, block: Object, path: str) -> Text | None:
        text = text_of(block, "text", path)
        if bytes(block.get("citations", b"null")) not in (b"null", b"[]"):
            self._drop_once("messages.content.citations", "sources of earlier answers cannot be replayed")
        mark = cache_mark(block, path)
        return Text(text=text, cache=mark) if text else None

    def _drop_once(self, field: str, reason: str) -> None:
        if field not in self._told:
            self._told.add(field)
            self._notes.drop(field, reason)

    def _image(self, block: Object, path: str) -> Image:
        mark = cache_mark(block, path)
        path = f"{path}.source"
        source = object_of(block.get("source"), path)
        match text_of(source, "type", path):
            case "base64":
                media_type = text_of(source, "media_type", path)
                if media_type not in IMAGE_TYPES:
                    known = ", ".join(f"'{kind}'" for kind in IMAGE_TYPES)
                    raise bad_field(f"{path}.media_type", f"Input should be one of {known}")
                return Image(data=_base64(source, path), media_type=media_type, cache=mark)
            case "url":
                return Image(url=needed_text(source, "url", path), cache=mark)
            case "file":
                return Image(file_id=needed_text(source, "file_id", path), cache=mark)
        raise bad_field(f"{path}.type", "Input should be one of 'base64', 'url', 'file'")

    def _document(self, block: Object, path: str) -> File:
        mark = cache_mark(block, path)
        title = text_of(block, "title", path, required=False)
        for key in ("context", "citations"):
            if bytes(block.get(key, b"null")) not in (b"null", b'{"enabled":false}'):
                self._notes.warn(f"{path}.{key}", "documents of other formats have none")
        path = f"{path}.source"
        source = object_of(block.get("source"), path)
        match text_of(source, "type", path):
            case "base64":
                media_type = needed_text(source, "media_type", path)
                data = _base64(source, path)
                return File(data=data, media_type=media_type, filename=title, cache=mark)
            case "text":
                text = needed_text(source, "data", path)
                return File(text=text, media_type="text/plain", filename=title, cache=mark)
            case "content":
                text = self._source_text(source, path)
                return File(text=text, media_type="text/plain", filename=title, cache=mark)
            case "url":
                return File(url=needed_text(source, "url", path), filename=title, cache=mark)
            case "file":
                return File(file_id=needed_text(source, "file_id", path), filename=title, cache=mark)
        raise bad_field(f"{path}.type", "Input should be one of 'base64', 'text', 'content', 'url', 'file'")

    def _source_text(self, source: Object, path: str) -> str:
        """Return a document that is given as blocks, as one text."""
        path = f"{path}.content"
        if "content" not in source:
            raise bad_field(path, "Field required")
        parts: list[str] = []
        for part in self._parts(source["content"], path, "user"):
            if not isinstance(part, Text):
                self._notes.reject(path, "documents made of images are known to one vendor only")
            elif part.text:
                parts.append(part.text)
        return "\n".join(parts)

    def _search_result(self, block: Object, path: str) -> Text:
        title, source = text_of(block, "title", path), text_of(block, "source", path)
        if "content" not in block:
            raise bad_field(f"{path}.content", "Field required")
        parts = self._parts(block["content"], f"{path}.content", "system")
        self._notes.warn(path, "a search result is sent as text")
        said = [part.text for part in parts if isinstance(part, Text)]
        return Text(text="\n".join(filter(None, [title, source, *said])), cache=cache_mark(block, path))

    def _tool_use(self, block: Object, path: str) -> ToolCall:
        given = block.get("input")
        if given is None:
            raise bad_field(f"{path}.input", "Field required")
        if not bytes(given).startswith(b"{"):
            raise bad_field(f"{path}.input", "Input should be an object")
        return ToolCall(
            id=needed_text(block, "id", path),
            name=needed_text(block, "name", path),
            arguments=compact(bytes(given)),
            cache=cache_mark(block, path),
        )

    def _tool_result(self, block: Object, path: str) -> ToolResult:
        call_id = needed_text(block, "tool_use_id", path)
        raw = block.get("content")
        parts: list[Text | Image | File] = []
        if raw is not None and not is_null(raw):
            where = f"{path}.content"
            if raw_is_text(raw):
                parts = [Text(text=text)] if (text := value_of(raw, where)) else []
            else:
                for place, inner in enumerate(objects_of(raw, where)):
                    part = self._part(inner, f"{where}[{place}]", _IN_RESULTS)
                    if isinstance(part, Text | Image | File):
                        parts.append(part)
        is_error = value_of(block["is_error"], f"{path}.is_error") if "is_error" in block else False
        if is_error not in (True, False, None):
            raise bad_field(f"{path}.is_error", "Input should be a boolean")
        result = ToolResult(
            call_id=call_id, parts=parts, is_error=bool(is_error), cache=cache_mark(block, path)
        )
        self._result_paths[id(result)] = path
        return result


def is_null(raw: msgspec.Raw) -> bool:
    """Whether a value is null: the same as absent, where a field is optional."""
    return bytes(memoryview(raw)[:5]) == b"null"


def raw_is_text(raw: msgspec.Raw) -> bool:
    """Whether a value is a string."""
    return memoryview(raw)[0] == 0x22


def _base64(source: Object, path: str) -> str:
    data = standard_base64(needed_text(source, "data", path))
    if not data:
        raise bad_field(f"{path}.data", "Input is not valid base64")
    return data


def _reasoning(text: str, kind: str, value: str | None) -> Reasoning | None:
    """Return a thought; its state is what its own vendor made, or what another one's was sealed in."""
    if not value:
        return Reasoning(text=text) if text else None
    opaque = open_envelope(value) or Opaque(
        vendor="anthropic", kind="redacted" if kind == "redacted" else "signature", value=value
    )
    return Reasoning(text=text, opaque=opaque)


def _hang_on_calls(parts: list[Part]) -> None:
    """Give calls back the state that was sealed apart from them, under their ids."""
    calls = {part.id: part for part in parts if isinstance(part, ToolCall)}
    for part in list(parts):
        if isinstance(part, Reasoning) and part.opaque is not None and not part.text:
            call = calls.get(part.opaque.id or "")
            if call is not None and part.opaque.vendor != "anthropic":
                call.opaque = msgspec.structs.replace(part.opaque, id=None)
                parts.remove(part)
