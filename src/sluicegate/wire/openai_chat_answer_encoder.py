"""Answers to a chat client, streamed or not, out of the events of the common vocabulary.

Choices begin in order, calls stand one after another, reasoning text is `reasoning_content`, opaque state travels in
`reasoning_details`, sources come in one delta before the finish. A plain answer is its stream put together. Source:
contract C1–C7; wire formats page `chat-completions.md`; translation matrix, sections 9, 12, 22, 23 and 25.
"""

from typing import Any, Final

import msgspec

from sluicegate.errors import SluicegateError
from sluicegate.messages import (
    Citation,
    Logprobs,
    OpaqueState,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from sluicegate.wire import Bill, json_edit, openai_errors
from sluicegate.wire.json_text import quote
from sluicegate.wire.openai_chat_call_writer import CallWriter
from sluicegate.wire.openai_reasoning_state import write_entry
from sluicegate.wire.openai_usage import served_tier, with_members, write_usage
from sluicegate.wire.told_text import Told
from sluicegate.wire.translation import Asked
from sluicegate.wire.whole_answer import write_stream

DONE = b"data: [DONE]\n\n"
_TAIL: Final = b'},"finish_reason":null}]}\n\n'
_ROLE = b'"role":"assistant"'
_REASONS = {"stop_sequence": "stop", "context_full": "length", "paused": "stop"}


class _Choice:
    """One choice, as far as it has been written."""

    __slots__ = ("calls", "entries", "finished", "head", "reasoned", "signed_at", "sources", "text_head",
                 "text_last", "thought_head")  # fmt: skip

    def __init__(self, head: bytes, calls: CallWriter) -> None:
        self.head = head
        """All of a chunk that stands before the members of its delta."""
        self.text_head = head + b'"content":'
        self.thought_head = head + b'"reasoning_content":'
        self.calls = calls
        self.finished = False
        self.entries = 0
        """Of `reasoning_details`."""
        self.reasoned = 0
        """Characters of reasoning."""
        self.signed_at = 0
        """Where the reasoning begins that nothing has signed yet."""
        self.text_last = False
        """Text came after the last reasoning."""
        self.sources: list[Citation] = []


class ChatStreamEncoder:
    """Writes one client's stream. See `StreamEncoder`."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._same = _same("chatcmpl-" + asked.id, asked.created, asked)
        self._choices: dict[int, _Choice] = {}
        self._finish_left = False

    def start(self, usage: Usage | None = None) -> bytes:
        """Return the role of the first choice."""
        return self._begin(0)

    def _begin(self, index: int) -> bytes:
        """Return the roles of a choice and of those before it, where they have not begun."""
        out = b""
        for number in range(index + 1):
            if number not in self._choices:
                head = b'data: {%b,"choices":[{"index":%d,"delta":{' % (self._same, number)
                self._choices[number] = _Choice(head, CallWriter(self._asked, number))
                out += head + _ROLE + _TAIL
        return out

    def take_over(self, told: Told) -> None:
        """Take over an answer that another has begun to write."""
        asked, first = self._asked, told.first
        id = first.get("id", "chatcmpl-" + asked.id)
        self._same = _same(id, first.get("created", asked.created), asked)
        self.event(TextDelta(told.text))

    # ---- content --------------------------------------------------------------------------------------------------

    def event(self, event: StreamEvent) -> bytes:
        """Return the framed chunks for one content event; may be empty."""
        kind = type(event)
        if kind is TextDelta:
            choice = self._choices.get(event.choice)  # type: ignore[union-attr]
            if choice is not None and choice.text_last:
                return b"%b%b%b" % (choice.text_head, quote(event.text), _TAIL)  # type: ignore[union-attr]
        index: int = getattr(event, "choice", 0)
        begun = b"" if index in self._choices else self._begin(index)
        return begun + self._write(event, self._choices[index])

    def _write(self, event: StreamEvent, choice: _Choice) -> bytes:
        match event:
            case TextDelta():
                choice.text_last = True
                return choice.text_head + quote(event.text) + _TAIL
            case ReasoningDelta():
                choice.text_last = False
                choice.reasoned += len(event.text)
                return choice.thought_head + quote(event.text) + _TAIL
            case RefusalDelta():
                return choice.head + b'"refusal":' + quote(event.text) + _TAIL
            case ToolCallStart() | ToolCallDelta() | ToolCallEnd():
                return b"".join(choice.head + delta + _TAIL for delta in choice.calls.take(event))
            case OpaqueState():
                return choice.head + b'"reasoning_details":[' + self._entry(event, choice) + b"]" + _TAIL
            case Citation():
                choice.sources.append(event)
                return b""
            case Logprobs():
                told = json_edit.dumps([_token_entry(entry) for entry in event.content])
                tail = b'},"logprobs":{"content":%b,"refusal":null},"finish_reason":null}]}\n\n' % told
                return choice.head + tail
            case _:
                return b""

    def _entry(self, event: OpaqueState, choice: _Choice) -> bytes:
        opaque = event.opaque
        call_id = None if event.call_index is None else choice.calls.ids.get(event.call_index)
        is_signature = opaque.kind == "signature" and call_id is None
        # One vendor signs the visible text; all others sign thoughts, which may have been left out.
        on_text = is_signature and choice.text_last and opaque.vendor == "google"
        span = None
        if is_signature and not on_text:
            span = (choice.signed_at, choice.reasoned)
            choice.signed_at = choice.reasoned
        number = choice.entries
        choice.entries += 1
        return write_entry(opaque, number, span=span, call_id=call_id, on_text=on_text)

    # ---- the end --------------------------------------------------------------------------------------------------

    def finish(self, reasons: dict[int, tuple[str, str | None]]) -> bytes:
        """Return what the choices still owe, and their finish reasons."""
        if self._finish_left:
            return b""
        self._finish_left = True
        out: list[bytes] = []
        for index in sorted(reasons):
            out.append(self._begin(index))
            choice = self._choices[index]
            out += [choice.head + delta + _TAIL for delta in choice.calls.close()]
            if choice.sources:
                out.append(choice.head + b'"annotations":' + _annotations(choice.sources) + _TAIL)
            reason = reasons[index][0]
            if reason == "tool_calls" and self._asked.legacy_functions:
                reason = "function_call"
            told = quote(_REASONS.get(reason, reason))
            out.append(choice.head + b'},"finish_reason":' + told + b"}]}\n\n")
        return b"".join(out)

    def farewell(self, reasons: dict[int, tuple[str, str | None]], bill: Bill | None) -> bytes:
        """Return what `finish` has not, the usage chunk where the client gets one, and `[DONE]`."""
        out = self.finish(reasons)
        if bill is not None and self._asked.usage_shown:
            usage = with_members(write_usage(bill.usage), bill.in_usage)
            chunk = b'{%b,"choices":[],"usage":%b%b}' % (self._same, usage, _tier(bill.usage))
            out += b"data: " + with_members(chunk, bill.beside_usage) + b"\n\n"
        return out + DONE

    def failure(self, error: SluicegateError) -> bytes:
        """Return the nested error event; nothing follows it."""
        return openai_errors.error_event(error)


def _same(id: str, created: int, asked: Asked) -> bytes:
    """Return the members that all chunks of an answer share."""
    return b'"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b' % (
        quote(id),
        created,
        quote(asked.model),
    )


def _tier(usage: Usage) -> bytes:
    """Return the tier that served as a member with its comma, or nothing."""
    tier = served_tier(usage)
    return b"" if tier is None else b',"service_tier":%b' % quote(tier)


def _token_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a token's probabilities with no list null."""
    token = entry.get("token")
    spelled = list(token.encode(errors="replace")) if isinstance(token, str) else []
    others = entry.get("top_logprobs") or []
    return {
        **entry,
        "bytes": entry.get("bytes") if entry.get("bytes") is not None else spelled,
        "top_logprobs": [_other_token(other) for other in others if isinstance(other, dict)],
    }


def _other_token(entry: dict[str, Any]) -> dict[str, Any]:
    whole = _token_entry(entry)
    del whole["top_logprobs"]
    return whole


def _annotations(sources: list[Citation]) -> bytes:
    return json_edit.dumps(
        [
            {
                "index": place,
                "type": "url_citation",
                "url_citation": {
                    "start_index": source.start_index,
                    "end_index": source.end_index,
                    "title": source.title,
                    "url": source.url,
                },
            }
            for place, source in enumerate(sources)
        ]
    )


# ---- an answer that is not streamed ---------------------------------------------------------------------------------


def encode_answer(events: list[StreamEvent], asked: Asked, bill: Bill) -> bytes:
    """Write a whole completion: what the stream of the same events would have told. See `AnswerEncoder`."""
    choices: dict[int, dict[str, Any]] = {}
    for line in write_stream(events, ChatStreamEncoder(asked)).split(b"\n\n"):
        if line and not line.endswith(b"[DONE]"):
            for choice in msgspec.json.decode(line.removeprefix(b"data: "))["choices"]:
                _fold(choices, choice)
    top = {
        "id": "chatcmpl-" + asked.id,
        "object": "chat.completion",
        "created": asked.created,
        "model": asked.model,
        "choices": [_completed(choices[index]) for index in sorted(choices)],
    }
    usage = with_members(write_usage(bill.usage), bill.in_usage)
    body = json_edit.dumps(top)[:-1] + b',"usage":' + usage + _tier(bill.usage) + b"}"
    return with_members(body, bill.beside_usage)


def _fold(choices: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
    index = piece["index"]
    choice = choices.setdefault(
        index, {"index": index, "message": {}, "logprobs": None, "finish_reason": None}
    )
    _join(choice["message"], piece["delta"])
    if piece.get("logprobs"):
        told = choice["logprobs"] or {"content": [], "refusal": None}
        told["content"] += piece["logprobs"]["content"]
        choice["logprobs"] = told
    choice["finish_reason"] = piece["finish_reason"] or choice["finish_reason"]


def _join(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if isinstance(value, str) and key in message and key not in ("type", "id", "role"):
            message[key] = message[key] + value
        elif isinstance(value, dict):
            _join(message.setdefault(key, {}), value)
        elif isinstance(value, list):
            known = message.setdefault(key, [])
            for entry in value:
                if entry["index"] < len(known):
                    _join(known[entry["index"]], entry)
                else:
                    known.append(entry)
        else:
            message[key] = value


def _completed(choice: dict[str, Any]) -> dict[str, Any]:
    """Return a choice as a plain answer spells it."""
    said = choice["message"]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": said.pop("content", "") or None,
        "refusal": said.pop("refusal", None),
        **{key: value for key, value in said.items() if key != "role"},
    }
    is_only_text = message["refusal"] is None and not said.keys() & {"tool_calls", "function_call"}
    if message["content"] is None and is_only_text:
        message["content"] = ""
    for key in ("tool_calls", "annotations"):
        for entry in message.get(key, ()):
            del entry["index"]
    return {**choice, "message": message}
