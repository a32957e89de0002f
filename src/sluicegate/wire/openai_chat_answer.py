"""Chat completions that are not streamed, on the same format: the body passes but for edits at token offsets.

Put right as in a stream: model, id where it is missing or hidden, created, object, finish reasons, usage and cost, and
what SDKs stumble over in tool calls. Source: wire formats page `chat-completions.md`; contract C3, C6, C7, C9.
"""

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.openai_chat_answer_shapes import Answer, Choice, Identity
from sluicegate.wire.openai_chat_chunk import FINISH_REASONS, ToolDelta, right_reason
from sluicegate.wire.openai_tool_calls import arguments_of
from sluicegate.wire.openai_usage import encode_usage, read_usage, with_members
from sluicegate.wire.upstream_errors import is_nothing, read_stream_error

_decode_answer = msgspec.json.Decoder(Answer).decode


class ChatAnswer:
    """One chat completion that was not streamed."""

    def __init__(self, identity: Identity, body: bytes) -> None:
        """Read the provider's body.

        Raises:
            DecodeError: not a chat completion.
        """
        self._identity = identity
        self._body = body = whole_characters(body.removeprefix(b"\xef\xbb\xbf").strip())
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id: str | None = None
        self.repaired = False
        try:
            self._answer = answer = _decode_answer(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            answer = None
        if answer is None or answer.error is not msgspec.UNSET or answer.choices is msgspec.UNSET:
            self.error = _error_in(body)
            if self.error is not None:
                return
            if answer is None or answer.choices is msgspec.UNSET:
                raise DecodeError("chat", None, "the answer is not a chat completion")
        self._choices = answer.choices
        self._usage_raw = b"null" if answer.usage is msgspec.UNSET else bytes(answer.usage)
        self.usage = read_usage(self._usage_raw)
        if self.usage is not None and isinstance(answer.service_tier, str):
            self.usage.service_tier = answer.service_tier
        self.upstream_id = answer.id if isinstance(answer.id, str) and answer.id else None
        for choice in self._choices:
            self.finish_reason = self._right_reason(choice)

    def texts(self) -> list[str]:
        """Return every text the model produced, for counting."""
        return [
            text for choice in self._choices if choice.message is not None for text in choice.message.texts()
        ]

    def as_chunk(self) -> bytes:
        """Return the answer as the one event of a stream, for a client that asked for one."""
        body = self._body
        edits: list[Edit] = []
        for start, _ in json_edit.elements(body, self._choices_at()):
            message = None
            for member in json_edit.inner_members(body, start):
                if member.key == "message":
                    message = member
                    edits.append((member.key_at, member.start, b'"delta":'))
            if message is not None and body[message.start : message.end] != b"null":
                edits += _numbered_calls(body, message.start)
        return json_edit.splice(body, edits)

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it: its own model id, a right finish reason, usage and cost."""
        body = self._body
        reported = self._usage_raw if self.usage is not None else None
        usage = with_members(encode_usage(reported, bill.usage), bill.in_usage)
        model = msgspec.json.encode(self._identity.model)
        edits = None
        for choice in self._choices:
            if not _is_regular(choice):
                edits = self._edits(model, usage)
                places = json_edit.elements(body, self._choices_at())
                for index, (choice, (start, _)) in enumerate(zip(self._choices, places, strict=True)):
                    edits += self._choice_edits(index, choice, start)
                break
        else:
            edits = self._usual_edits(model, usage) or self._edits(model, usage)
        return with_members(json_edit.splice(body, edits), bill.beside_usage)

    def _usual_edits(self, model: bytes, usage: bytes) -> list[Edit] | None:
        """Return the edits of an answer that lacks nothing, found without walking it; None where it may not be so."""
        answer = self._answer
        if (
            self._identity.hide_provider
            or self.usage is None
            or self.upstream_id is None
            or answer.error is not msgspec.UNSET
            or answer.object != "chat.completion"
            or type(answer.created) is not int
            or answer.created < 0
        ):
            return None
        theirs = msgspec.json.encode(answer.model)
        model_at = json_edit.sole_value(self._body, b"model", theirs)
        usage_at = json_edit.sole_value(self._body, b"usage", self._usage_raw)
        if model_at < 0 or usage_at < 0:
            return None
        return [
            (model_at, model_at + len(theirs), model),
            (usage_at, usage_at + len(self._usage_raw), usage),
        ]

    def _edits(self, model: bytes, usage: bytes) -> list[Edit]:
        answer = self._answer
        wanted = {"model": model, "usage": usage}
        if self.upstream_id is None or self._identity.hide_provider:
            wanted["id"] = msgspec.json.encode(self._identity.fallback_id)
        if type(answer.created) is not int or answer.created < 0:
            wanted["created"] = b"%d" % self._identity.created
        if answer.object != "chat.completion":
            wanted["object"] = b'"chat.completion"'
        dropped = {"error"}
        if self._identity.hide_provider:
            dropped.add("system_fingerprint")
        return json_edit.edits(self._body, json_edit.members(self._body), wanted, dropped)

    def _choices_at(self) -> int:
        members = json_edit.members(self._body)
        return next(member.start for member in reversed(members) if member.key == "choices")

    def _right_reason(self, choice: Choice) -> str:
        reason = choice.finish_reason if isinstance(choice.finish_reason, str) else ""
        called = choice.message is not None and bool(choice.message.tool_calls)
        right = right_reason(reason, called=called)
        self.repaired |= right != choice.finish_reason
        return right

    def _choice_edits(self, index: int, choice: Choice, start: int) -> list[Edit]:
        body = self._body
        wanted = {"finish_reason": msgspec.json.encode(self._right_reason(choice))}
        members = json_edit.inner_members(body, start)
        if all(member.key != "index" for member in members):
            wanted["index"] = b"%d" % index
        edits = json_edit.edits(body, members, wanted, start=start)
        message = choice.message
        if message is None:
            return edits
        at = next(member.start for member in reversed(members) if member.key == "message")
        inner = json_edit.inner_members(body, at)
        spans = {member.key: member for member in inner}
        in_message = {"role": b'"assistant"'}
        dropped: list[str] = []
        if isinstance(message.reasoning, str) and message.reasoning and not message.reasoning_content:
            in_message["reasoning_content"] = body[spans["reasoning"].start : spans["reasoning"].end]
            dropped.append("reasoning")
        if message.tool_calls:
            edits += self._call_edits(index, message.tool_calls, spans["tool_calls"].start)
        return edits + json_edit.edits(body, inner, in_message, dropped, start=at)

    def _call_edits(self, choice: int, calls: list[ToolDelta], start: int) -> list[Edit]:
        """Give every call an id of its own, a type, and arguments that are text."""
        body = self._body
        edits: list[Edit] = []
        ids: set[str] = set()
        for number, (call, (at, _)) in enumerate(zip(calls, json_edit.elements(body, start), strict=True)):
            wanted: dict[str, bytes] = {}
            id_ = call.id if isinstance(call.id, str) else ""
            if not id_ or id_ in ids:
                id_ = f"call_{self._identity.fallback_id[-24:]}_{choice}_{number}"
                wanted["id"] = msgspec.json.encode(id_)
            ids.add(id_)
            if call.custom is None and isinstance(call.function, msgspec.Struct):
                wanted["type"] = b'"function"'
                if not isinstance(call.function.arguments, str) or not call.function.arguments:
                    arguments = msgspec.json.encode(arguments_of(call) or "{}")
                    function_at = next(
                        member.start
                        for member in reversed(json_edit.inner_members(body, at))
                        if member.key == "function"
                    )
                    edits += json_edit.settings(body, function_at, {"arguments": arguments})
            made = json_edit.settings(body, at, wanted)
            self.repaired |= bool(made)
            edits += made
        return edits


def _is_regular(choice: Choice) -> bool:
    """Whether a choice needs no edit for sure: text with the right ends, which is what nearly every one is."""
    message = choice.message
    return (
        message is not None
        and message.role == "assistant"
        and not message.reasoning
        and message.tool_calls is None
        and isinstance(choice.finish_reason, str)
        and choice.finish_reason in FINISH_REASONS
        and type(choice.index) is int
    )


def _numbered_calls(body: bytes, message_at: int) -> list[Edit]:
    edits: list[Edit] = []
    for member in json_edit.inner_members(body, message_at):
        if member.key == "tool_calls" and body[member.start : member.end] != b"null":
            for number, (at, _) in enumerate(json_edit.elements(body, member.start)):
                edits += json_edit.settings(body, at, {"index": b"%d" % number})
    return edits


def _error_in(body: bytes) -> StreamError | None:
    """Look for what a provider says instead of an answer. Raises DecodeError where it is no JSON object."""
    top = {member.key: body[member.start : member.end] for member in json_edit.members(body, "chat")}
    error = top.get("error")
    if error is not None and not is_nothing(error):
        return read_stream_error(error)
    if top.get("object") == b'"error"' or ("choices" not in top and top.get("type") == b'"error"'):
        return read_stream_error(body)
    return None
