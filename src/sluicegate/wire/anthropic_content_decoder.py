"""The conversation of a Messages request, decoded and held to the rules of its own format.

Every error names the path of the field. What a hosted tool left in the history has no word in the vocabulary: the
trace of a search is left out and named, anything else is refused. Source: wire formats page `anthropic-messages.md`,
"Content blocks in requests" and "Message rules".
"""

import re
from typing import Any

import msgspec

from sluicegate.errors import BadRequest
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
from sluicegate.wire.anthropic_fields import Object
from sluicegate.wire.anthropic_tool_changes import CHANGES, changed, loaded
from sluicegate.wire.envelope import open_envelope
from sluicegate.wire.inline_media import standard_base64
from sluicegate.wire.json_text import compact
from sluicegate.wire.translation import Notes, bad_field

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_BY_ROLE: dict[str, frozenset[str]] = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result"}),
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "tool_use"}),
    "system": frozenset({"text"}) | CHANGES,
}
_IN_RESULTS = frozenset({"text", "image", "document", "search_result", "tool_reference"})
_SEARCH_TRACES = frozenset(
    {"server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result"}
)
_VENDOR_BLOCKS = frozenset(
    {
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "container_upload",
        "mcp_tool_use",
        "mcp_tool_result",
        "compaction",
    }
)
NO_RESULT = "[no result]"
_PATH = re.compile(r"`\$((?:\[\d+\]|\.\w+)*)`")
_NULL = msgspec.Raw(b"null")
_HARMLESS: tuple[Any, ...] = (None, [], {"enabled": False})
"""What `citations` and `context` may say without anything being lost."""


class _Block(msgspec.Struct, gc=False):
    """A content block of any type; its values are judged one by one."""

    type: Any = None
    text: Any = None
    source: Any = None
    title: Any = None
    context: Any = None
    citations: Any = None
    content: "str | list[_Block] | _Block | None" = None
    thinking: Any = None
    signature: Any = None
    data: Any = None
    id: Any = None
    name: Any = None
    input: msgspec.Raw = _NULL
    tool_use_id: Any = None
    tool_name: Any = None
    tool: msgspec.Raw = _NULL
    is_error: Any = None
    cache_control: Any = None


class _Message(msgspec.Struct, gc=False):
    role: Any = None
    content: str | list[_Block] | None = None


_Content = str | list[_Block]
_decode_messages = msgspec.json.Decoder(list[_Message]).decode
_decode_system = msgspec.json.Decoder(_Content).decode


def _text(value: Any, path: str) -> str:
    """Return a value that has to be a string."""
    if isinstance(value, str):
        return value
    raise bad_field(path, "Field required" if value is None else "Input should be a string")


def _optional_text(value: Any, path: str) -> str | None:
    return None if value is None else _text(value, path)


def _needed_text(value: Any, path: str) -> str:
    """Return a string that must not be empty."""
    text = _text(value, path)
    if not text:
        raise bad_field(path, "must not be empty")
    return text


def cache_mark(control: Any, path: str) -> CacheMark | None:
    """Return what a `cache_control` asks for.

    Args:
        path: of what it marks.
    """
    if control is None:
        return None
    path = f"{path}.cache_control".lstrip(".")
    if not isinstance(control, dict):
        raise bad_field(path, "Input should be an object")
    if _text(control.get("type"), f"{path}.type") != "ephemeral":
        raise bad_field(f"{path}.type", "Input should be 'ephemeral'")
    return CacheMark(ttl=_optional_text(control.get("ttl"), f"{path}.ttl"))


def _wrong_shape(error: msgspec.ValidationError, path: str) -> BadRequest:
    """Return the error for content that is neither text nor blocks, or blocks that are no objects."""
    found = _PATH.search(str(error))
    return bad_field(path + (found[1] if found else ""), "Input is of the wrong type")


class ContentReader:
    """Reads one request's system prompt and messages."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._result_paths: dict[int, str] = {}
        """Where each result stood, by its identity."""
        self.declared: list[tuple[Object, str]] = []
        """Tools that came in the conversation, and their paths."""

    # ---- turns ----------------------------------------------------------------------------------------------------

    def system(self, raw: msgspec.Raw) -> list[Message]:
        """Return the system prompt as a leading message, or none where it is empty."""
        try:
            content = _decode_system(raw)
        except msgspec.ValidationError as error:
            raise _wrong_shape(error, "system") from None
        except (msgspec.DecodeError, RecursionError):
            raise bad_field("system", "Input is not a valid value") from None
        parts = self._parts(content, "system", "system")
        return [Message(role="system", parts=parts, path="system")] if parts else []

    def messages(self, raw: msgspec.Raw | None) -> list[Message]:
        """Return the conversation, every call answered and every answer asked for, results first in their turn."""
        if raw is None:
            raise bad_field("messages", "Field required")
        try:
            items = _decode_messages(raw)
        except msgspec.ValidationError as error:
            raise _wrong_shape(error, "messages") from None
        except (msgspec.DecodeError, RecursionError):
            raise bad_field("messages", "Input is not a valid value") from None
        if not items:
            raise bad_field("messages", "at least one message is required")
        messages: list[Message] = []
        for place, item in enumerate(items):
            path = f"messages[{place}]"
            role = _role(item.role, path, messages[-1].role if messages else None)
            if item.content is None:
                raise bad_field(f"{path}.content", "Field required")
            parts = self._parts(item.content, f"{path}.content", role)
            if not parts and role != "assistant":
                raise bad_field(f"{path}.content", "must not be empty")
            if role == "assistant":
                _hang_on_calls(parts)
            messages.append(Message(role=role, parts=parts, path=path))
        self._pair(messages)
        return [message for message in messages if message.parts]

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

    def _parts(self, content: _Content, path: str, role: str) -> list[Part]:
        if isinstance(content, str):
            return [Text(text=content)] if content else []
        allowed = _BY_ROLE[role]
        found = [self._part(block, f"{path}[{place}]", allowed) for place, block in enumerate(content)]
        return [part for part in found if part is not None]

    def _part(self, block: _Block, path: str, allowed: frozenset[str]) -> Part | None:
        kind = block.type
        if kind == "text":
            return self._text(block, path)
        if _text(kind, f"{path}.type") in _SEARCH_TRACES and "tool_use" in allowed:
            self._notes.warn(path, f"{kind} has no place in another format")
            return None
        if kind in _VENDOR_BLOCKS:
            self._notes.reject(f"{path}.type", f"{kind} has no place in another format")
        if kind not in allowed:
            known = ", ".join(f"'{name}'" for name in sorted(allowed))
            raise bad_field(f"{path}.type", f"Input should be one of {known}; not {kind!r}")
        match kind:
            case "tool_use":
                return _tool_use(block, path)
            case "tool_result":
                return self._tool_result(block, path)
            case "thinking":
                text = _text(block.thinking, f"{path}.thinking")
                return _reasoning(text, "signature", _optional_text(block.signature, f"{path}.signature"))
            case "redacted_thinking":
                return _reasoning("", "redacted", _needed_text(block.data, f"{path}.data"))
            case "image":
                return _image(block, path)
            case "document":
                return self._document(block, path)
            case "tool_reference":
                return self._tool_reference(block, path)
            case "tool_addition" | "tool_removal":
                return self._tool_change(block, path)
            case _:
                return self._search_result(block, path)

    def _text(self, block: _Block, path: str) -> Text | None:
        text = _text(block.text, f"{path}.text")
        if block.citations not in _HARMLESS:
            self._notes.drop_once(
                "messages.content.citations", "sources of earlier answers cannot be replayed"
            )
        return Text(text=text, cache=cache_mark(block.cache_control, path)) if text else None

    def _document(self, block: _Block, path: str) -> File:
        for key in ("context", "citations"):
            if getattr(block, key) not in _HARMLESS:
                self._notes.warn(f"{path}.{key}", "documents of other formats have none")
        file = self._file(_source(block, path), f"{path}.source")
        file.filename = _optional_text(block.title, f"{path}.title")
        file.cache = cache_mark(block.cache_control, path)
        return file

    def _file(self, source: dict[str, Any], path: str) -> File:
        match source.get("type"):
            case "base64":
                media_type = _needed_text(source.get("media_type"), f"{path}.media_type")
                return File(data=_base64(source, path), media_type=media_type)
            case "text":
                return File(text=_needed_text(source.get("data"), f"{path}.data"), media_type="text/plain")
            case "content":
                return File(text=self._source_text(source, path), media_type="text/plain")
            case "url":
                return File(url=_needed_text(source.get("url"), f"{path}.url"))
            case "file":
                return File(file_id=_needed_text(source.get("file_id"), f"{path}.file_id"))
        raise bad_field(f"{path}.type", "Input should be one of 'base64', 'text', 'content', 'url', 'file'")

    def _source_text(self, source: dict[str, Any], path: str) -> str:
        """Return a document that is given as blocks, as one text."""
        path = f"{path}.content"
        try:
            content = msgspec.convert(source.get("content"), _Content)
        except msgspec.ValidationError as error:
            raise _wrong_shape(error, path) from None
        parts = self._parts(content, path, "user")
        if not all(isinstance(part, Text) for part in parts):
            self._notes.reject(path, "documents made of images are known to one vendor only")
        return "\n".join(part.text for part in parts if isinstance(part, Text))

    def _tool_reference(self, block: _Block, path: str) -> Text:
        name = _needed_text(block.tool_name, f"{path}.tool_name")
        self._notes.drop_once("tool_reference", "a tool that was found is named in words")
        return Text(text=loaded(name), cache=cache_mark(block.cache_control, path))

    def _tool_change(self, block: _Block, path: str) -> Text:
        said, declared = changed(block.type, block.tool, f"{path}.tool")
        if declared is not None:
            self.declared.append((declared, f"{path}.tool.definition"))
        self._notes.drop_once(block.type, "a change of tools is told in words")
        return Text(text=said, cache=cache_mark(block.cache_control, path))

    def _search_result(self, block: _Block, path: str) -> Text:
        title, source = _text(block.title, f"{path}.title"), _text(block.source, f"{path}.source")
        parts = self._parts(_inner(block, path), f"{path}.content", "system")
        self._notes.warn(path, "a search result is sent as text")
        said = [part.text for part in parts if isinstance(part, Text)]
        text = "\n".join(filter(None, [title, source, *said]))
        return Text(text=text, cache=cache_mark(block.cache_control, path))

    def _tool_result(self, block: _Block, path: str) -> ToolResult:
        if block.is_error not in (None, True, False):
            raise bad_field(f"{path}.is_error", "Input should be a boolean")
        result = ToolResult(
            call_id=_needed_text(block.tool_use_id, f"{path}.tool_use_id"),
            parts=self._result_parts(block, path),
            is_error=bool(block.is_error),
            cache=cache_mark(block.cache_control, path),
        )
        self._result_paths[id(result)] = path
        return result

    def _result_parts(self, block: _Block, path: str) -> list[Text | Image | File]:
        content = block.content
        if content is None or isinstance(content, str):
            return [Text(text=content)] if content else []
        found = [
            self._part(inner, f"{path}.content[{place}]", _IN_RESULTS)
            for place, inner in enumerate(_inner(block, path))
            if isinstance(inner, _Block)
        ]
        return [part for part in found if isinstance(part, Text | Image | File)]


def _role(role: Any, path: str, before: Role | None) -> Role:
    if role == "user":
        return "user"
    if _text(role, f"{path}.role") not in ("assistant", "system"):
        raise bad_field(f"{path}.role", "Input should be 'user' or 'assistant'")
    if before is None:
        raise bad_field(f"{path}.role", "the first message must be from the user")
    if role == "system" and before != "user":
        raise bad_field(f"{path}.role", "a system message must follow a user turn")
    return "assistant" if role == "assistant" else "system"


def _inner(block: _Block, path: str) -> _Content:
    """Return the content of a block that holds some."""
    if isinstance(block.content, str | list):
        return block.content
    missing = block.content is None
    raise bad_field(f"{path}.content", "Field required" if missing else "Input should be an array of blocks")


def _source(block: _Block, path: str) -> dict[str, Any]:
    if isinstance(block.source, dict):
        return block.source
    missing = block.source is None
    raise bad_field(f"{path}.source", "Field required" if missing else "Input should be an object")


def _image(block: _Block, path: str) -> Image:
    mark = cache_mark(block.cache_control, path)
    source = _source(block, path)
    path = f"{path}.source"
    match source.get("type"):
        case "base64":
            media_type = source.get("media_type")
            if media_type not in IMAGE_TYPES:
                known = ", ".join(f"'{kind}'" for kind in IMAGE_TYPES)
                raise bad_field(f"{path}.media_type", f"Input should be one of {known}")
            return Image(data=_base64(source, path), media_type=media_type, cache=mark)
        case "url":
            return Image(url=_needed_text(source.get("url"), f"{path}.url"), cache=mark)
        case "file":
            return Image(file_id=_needed_text(source.get("file_id"), f"{path}.file_id"), cache=mark)
    raise bad_field(f"{path}.type", "Input should be one of 'base64', 'url', 'file'")


def _tool_use(block: _Block, path: str) -> ToolCall:
    given = bytes(block.input)
    if not given.startswith(b"{"):
        missing = given == b"null"
        raise bad_field(f"{path}.input", "Field required" if missing else "Input should be an object")
    return ToolCall(
        id=_needed_text(block.id, f"{path}.id"),
        name=_needed_text(block.name, f"{path}.name"),
        arguments=compact(given),
        cache=cache_mark(block.cache_control, path),
    )


def _base64(source: dict[str, Any], path: str) -> str:
    data = standard_base64(_needed_text(source.get("data"), f"{path}.data"))
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
