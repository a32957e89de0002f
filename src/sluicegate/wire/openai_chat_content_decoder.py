"""The conversation of a chat request, decoded and held to the rules of its own format.

Calls are answered at once, by their ids, and nothing else is answered; the results of one turn become one message.
Reasoning that an assistant turn brings back stands before its text. Every error names the path of the field. Source:
wire formats page `chat-completions.md`, "Messages"; translation matrix, sections 1 to 12.
"""

import re
from collections.abc import Sequence

from sluicegate.messages import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
    Part,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sluicegate.wire.inline_media import media_type, standard_base64
from sluicegate.wire.openai_chat_body import (
    AnyMessage,
    AssistantMessage,
    AudioPart,
    Call,
    CustomTool,
    DeveloperMessage,
    FilePart,
    FunctionMessage,
    FunctionTool,
    ImagePart,
    InputAudio,
    InputFile,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolMessage,
)
from sluicegate.wire.openai_reasoning_state import read_history
from sluicegate.wire.translation import Notes, bad_field

NO_RESULT = "[no result]"
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^;,]*)*?;base64,", re.IGNORECASE)
_Part = TextPart | ImagePart | AudioPart | FilePart


def cache_mark(
    part: TextPart | ImagePart | AudioPart | FilePart | FunctionTool | CustomTool | RefusalPart,
) -> CacheMark | None:
    """Return the mark of the prompt cache that a part or tool carries."""
    mark = part.cache_control or part.prompt_cache_breakpoint
    return None if mark is None else CacheMark(ttl=mark.ttl)


class ContentReader:
    """Reads one request's messages."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._messages: list[Message] = []
        self._open: dict[str, ToolCall] = {}
        """Calls of the last assistant turn that have no result yet, by id."""
        self._asked_at = ""

    def messages(self, given: Sequence[AnyMessage]) -> list[Message]:
        """Return the conversation."""
        for place, message in enumerate(given):
            path = f"messages[{place}]"
            if isinstance(message, ToolMessage):
                self._add_result(self._result(message, path), path)
                continue
            if isinstance(message, FunctionMessage):
                self._add_result(self._old_result(message, path), path)
                continue
            self._need_results()
            if isinstance(message, AssistantMessage):
                self._add_assistant(message, place, path)
            elif isinstance(message, SystemMessage | DeveloperMessage):
                role: Role = "system" if isinstance(message, SystemMessage) else "developer"
                parts = self._parts(message.content, path)
                self._messages.append(Message(role=role, parts=parts, name=message.name, path=path))
            else:
                parts = self._parts(message.content, path)
                self._messages.append(Message(role="user", parts=parts, name=message.name, path=path))
        self._need_results()
        return self._messages

    # ---- calls and results ----------------------------------------------------------------------------------------

    def _result(self, message: ToolMessage, path: str) -> ToolResult:
        call_id = message.tool_call_id
        if call_id is None and len(self._open) == 1:
            call_id = next(iter(self._open))  # there is but one call that it can answer
        if call_id is None:
            raise bad_field(f"{path}.tool_call_id", "missing required parameter")
        call = self._open.pop(call_id, None)
        if call is None:
            raise bad_field(
                f"{path}.tool_call_id",
                f"no call {call_id!r} that waits for a result is in the assistant message before",
            )
        parts = [part for part in self._parts(message.content, path) if isinstance(part, Text | Image | File)]
        return ToolResult(call_id=call_id, name=call.name, custom=call.custom, parts=parts)

    def _old_result(self, message: FunctionMessage, path: str) -> ToolResult:
        call = next((call for call in self._open.values() if call.name == message.name), None)
        if call is None:
            raise bad_field(f"{path}.name", f"no call of {message.name!r} is in the assistant message before")
        del self._open[call.id]
        return ToolResult(
            call_id=call.id, name=call.name, parts=[Text(text=message.content)] if message.content else []
        )

    def _add_result(self, result: ToolResult, path: str) -> None:
        last = self._messages[-1]
        if last.role == "assistant":
            last = Message(role="user", parts=[], path=path)
            self._messages.append(last)
        last.parts.append(result)

    def _need_results(self) -> None:
        """See to it that no call is left without a result; only a lenient translation invents one."""
        if not self._open:
            return
        names = ", ".join(self._open)
        if self._notes.policy != "lenient":
            raise bad_field(
                self._asked_at,
                "an assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'; without response: {names}",
            )
        self._notes.warn(self._asked_at, f"no result came for {names}")
        for call in self._open.values():
            missing = ToolResult(call_id=call.id, name=call.name, parts=[Text(text=NO_RESULT)], is_error=True)
            self._add_result(missing, self._asked_at)
        self._open = {}

    # ---- the assistant's turns ------------------------------------------------------------------------------------

    def _add_assistant(self, message: AssistantMessage, place: int, path: str) -> None:
        history = read_history(
            message.reasoning_content or message.reasoning or "", message.reasoning_details or []
        )
        parts: list[Part] = [*history.thoughts]
        said = self._said(message, path)
        if history.on_text is not None:
            texts = [part for part in said if isinstance(part, Text)]
            if not texts:
                texts = [Text(text="")]
                said += texts
            texts[-1].opaque = history.on_text
        parts += said
        for number, given in enumerate(message.tool_calls or ()):
            call = self._call(given, f"{path}.tool_calls[{number}]")
            call.opaque = history.on_calls.get(call.id)
            parts.append(call)
        if message.function_call is not None:
            called = message.function_call
            call = ToolCall(id=f"call_{place}", name=called.name, arguments=called.arguments)
            self._open[call.id] = call
            parts.append(call)
        self._asked_at = path
        if parts:
            self._messages.append(Message(role="assistant", parts=parts, name=message.name, path=path))

    def _said(self, message: AssistantMessage, path: str) -> list[Part]:
        said: list[Part] = []
        if isinstance(message.content, str):
            said = [Text(text=message.content)] if message.content else []
        for part in message.content if isinstance(message.content, list) else ():
            if isinstance(part, RefusalPart):
                said.append(Refusal(text=part.refusal))
            elif part.text:
                said.append(Text(text=part.text, cache=cache_mark(part)))
        if message.refusal:
            said.append(Refusal(text=message.refusal))
        if message.audio is not None and said:
            self._notes.drop(f"{path}.audio", "its transcript is sent")
        elif message.audio is not None:
            self._notes.reject(f"{path}.audio", "the sound is kept by another vendor")
        return said

    def _call(self, given: Call, path: str) -> ToolCall:
        if given.id in self._open:
            raise bad_field(f"{path}.id", f"the id {given.id!r} comes twice")
        if given.custom is not None and (given.type == "custom" or given.function is None):
            custom = given.custom
            call = ToolCall(id=given.id, name=custom.name, arguments=custom.input, custom=True)
        elif given.function is not None:
            call = ToolCall(id=given.id, name=given.function.name, arguments=given.function.arguments)
        else:
            raise bad_field(f"{path}.{given.type}", "missing required parameter")
        self._open[call.id] = call
        return call

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _parts(self, content: str | Sequence[_Part], path: str) -> list[Part]:
        if isinstance(content, str):
            return [Text(text=content)] if content else []
        if not content:
            raise bad_field(f"{path}.content", "must not be an empty array")
        parts: list[Part] = []
        for place, part in enumerate(content):
            where = f"{path}.content[{place}]"
            match part:
                case TextPart():
                    if part.text:
                        parts.append(Text(text=part.text, cache=cache_mark(part)))
                case ImagePart():
                    parts.append(self._image(part, f"{where}.image_url"))
                case AudioPart():
                    parts.append(self._audio(part.input_audio, f"{where}.input_audio"))
                case FilePart():
                    parts.append(self._file(part.file, f"{where}.file", cache_mark(part)))
        return parts

    def _image(self, part: ImagePart, path: str) -> Image:
        given = part.image_url
        url, detail = (given, None) if isinstance(given, str) else (given.url, given.detail)
        if not isinstance(given, str):
            path += ".url"
        mark = cache_mark(part)
        if url.startswith(("https://", "http://")):
            return Image(url=url, detail=detail, cache=mark)
        kind, data = _inline(url, path)
        if kind is None:
            raise bad_field(path, "must be an https URL or a base64 data URL")
        return Image(data=data, media_type=kind or media_type(data), detail=detail, cache=mark)

    def _audio(self, audio: InputAudio, path: str) -> Audio:
        data = standard_base64(audio.data)
        if not data:
            raise bad_field(f"{path}.data", "is not valid base64")
        if audio.format not in ("wav", "mp3"):
            raise bad_field(f"{path}.format", "must be one of 'wav', 'mp3'")
        return Audio(data=data, format=audio.format)

    def _file(self, file: InputFile, path: str, mark: CacheMark | None) -> File:
        if file.file_data is not None:
            kind, data = _inline(file.file_data, f"{path}.file_data")
            kind = kind or media_type(data) or _type_by_name(file.filename)
            return File(data=data, media_type=kind, filename=file.filename, cache=mark)
        if file.file_id:
            return File(file_id=file.file_id, filename=file.filename, cache=mark)
        raise bad_field(path, "one of 'file_data' and 'file_id' is required")


def _inline(text: str, path: str) -> tuple[str | None, str]:
    """Return type and data of a data URL, or None and the data of what is bare base64."""
    head = _DATA_URL.match(text)
    data = standard_base64(text[head.end() :] if head else text)
    if not data:
        if head is None and text.startswith("data:"):
            raise bad_field(path, "a data URL must hold base64")
        raise bad_field(path, "is not valid base64")
    return (head[1].lower() if head else None), data


def _type_by_name(filename: str | None) -> str | None:
    if filename is None:
        return None
    endings = {
        ".pdf": "application/pdf",
        ".txt": "text/plain",
        ".md": "text/markdown",
        ".json": "application/json",
    }
    return next((kind for ending, kind in endings.items() if filename.lower().endswith(ending)), None)
