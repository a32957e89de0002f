"""Chat completions that are not streamed, on the same format: the body passes but for edits at token offsets.

Put right as in a stream: model, id where it is missing or hidden, created, object, finish reasons, usage and cost, and
what SDKs stumble over in tool calls. Source: wire formats page `chat-completions.md`; contract C3, C6, C7, C9.
"""

from typing import Final

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.json_text import quoted_name
from sluicegate.wire.openai_chat_answer_shapes import Answer, Choice
from sluicegate.wire.openai_chat_chunk import ToolDelta
from sluicegate.wire.openai_chat_identity import Identity
from sluicegate.wire.openai_finish import FINISH_REASONS, right_reason
from sluicegate.wire.openai_tool_calls import arguments_of
from sluicegate.wire.openai_usage import ReportedUsage, names_none_of, with_members
from sluicegate.wire.upstream_errors import is_nothing, read_stream_error

_decode_answer: Final = msgspec.json.Decoder(Answer).decode


class ChatAnswer:
    """One chat completion that was not streamed."""

    def __init__(self, identity: Identity, body: bytes) -> None:
        """Read the provider's body.

        Raises:
            DecodeError: not a chat completion.
        """
        self._identity = identity
        if not body.startswith(b"{") or body[-1] != 0x7D:
            body = body.removeprefix(b"\xef\xbb\xbf").strip()
        self._body = body = whole_characters(body)
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
        raw = answer.usage
        self._reported = reported = ReportedUsage(b"null" if raw is msgspec.UNSET else bytes(raw))
        self.usage = reported.usage
        tier = answer.service_tier
        if self.usage is not None and isinstance(tier, str):
            self.usage.service_tier = tier
        id_ = answer.id
        if isinstance(id_, str) and id_:
            self.upstream_id = id_
        self._regular = True
        for choice in self._choices:
            if _is_regular(choice):
                self.finish_reason = choice.finish_reason
            else:
                self._regular = False
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
        body, model = self._body, quoted_name(self._identity.model)
        usage = self._reported.encode(bill.usage)
        told = self._usual(model, usage, bill.in_usage)
        if told is None:
            edits = self._edits(model, with_members(usage, bill.in_usage))
            if not self._regular:
                places = json_edit.elements(body, self._choices_at())
                for index, (choice, (start, _)) in enumerate(zip(self._choices, places, strict=True)):
                    edits += self._choice_edits(index, choice, start)
            told = json_edit.splice(body, edits)
        return with_members(told, bill.beside_usage)

    def _usual(self, model: bytes, usage: bytes, members: bytes) -> bytes | None:
        """Return the body of an answer that lacks nothing, made without walking it; None where it may lack something.

        Args:
            members: that join the usage object.
        """
        answer, reported = self._answer, self._reported.raw
        theirs, created = answer.model, answer.created
        if (
            not self._regular
            or self._identity.hide_provider
            or self.usage is None
            or self.upstream_id is None
            or answer.error is not msgspec.UNSET
            or answer.object != "chat.completion"
            or type(created) is not int
            or created < 0
            or not isinstance(theirs, str)
        ):
            return None
        body, named = self._body, quoted_name(theirs)
        model_at = json_edit.sole_value(body, b'"model"', named)
        usage_at = json_edit.sole_value(body, b'"usage"', reported)
        if model_at < 0 or usage_at < 0:
            return None
        model_end, usage_end = model_at + len(named), usage_at + len(reported)
        if usage is reported and members and model_end < usage_at and names_none_of(usage, members):
            return b"%b%b%b,%b%b" % (
                body[:model_at],
                model,
                body[model_end : usage_end - 1],
                members,
                body[usage_end - 1 :],
            )
        return json_edit.splice(
            body, ((model_at, model_end, model), (usage_at, usage_end, with_members(usage, members)))
        )

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
    message, reason = choice.message, choice.finish_reason
    return (
        message is not None
        and message.role == "assistant"
        and not message.reasoning
        and message.tool_calls is None
        and isinstance(reason, str)
        and (reason == "stop" or reason in FINISH_REASONS)
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
