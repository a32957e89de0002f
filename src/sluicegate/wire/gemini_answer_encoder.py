"""Answers to a Gemini client, streamed or not, out of the events of the common vocabulary.

Calls leave whole, in their order, so arguments are gathered; text that comes behind a whole call sends it off. The
last event alone tells the finish, and always has a part: SDKs forget the turn otherwise. Opaque state of other vendors
is sealed into thought signatures, which clients give back as they are. Source: wire formats page `gemini.md`;
translation matrix, sections 9, 12, 18, 22, 23 and 25.
"""

from typing import Any, NamedTuple

import msgspec

from sluicegate.errors import SluicegateError
from sluicegate.messages import (
    Citation,
    Finish,
    Logprobs,
    Opaque,
    OpaqueState,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    WebSearch,
)
from sluicegate.wire import Bill, gemini_errors, json_edit
from sluicegate.wire.gemini_finish import write_finish_reason
from sluicegate.wire.gemini_grounding import TextSoFar, write_grounding
from sluicegate.wire.gemini_signature import write_signature
from sluicegate.wire.gemini_usage import write_usage
from sluicegate.wire.json_text import quote
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.told_text import Told
from sluicegate.wire.translation import Asked

_EMPTY = b'{"text":""}'
_encode = msgspec.json.Encoder().encode


class ArrayFrames:
    """How a client's objects are told apart: as events, or as the elements of an array."""

    __slots__ = ("_array", "prefix", "suffix")

    def __init__(self, *, array: bool) -> None:
        self._array = array
        self.prefix = b"[" if array else b"data: "
        """What stands before the next object."""
        self.suffix = b"" if array else b"\n\n"

    def frame(self, payload: bytes) -> bytes:
        """Return the next object, framed."""
        framed = self.prefix + payload + self.suffix
        if self._array:
            self.prefix = b",\n"
        return framed

    @property
    def end(self) -> bytes:
        """What ends an answer that is complete."""
        return b"]" if self._array else b""


class _Call:
    """One function call on its way out."""

    __slots__ = ("custom", "ended", "id", "name", "parts", "signature")

    def __init__(self, start: ToolCallStart, call_id: str, name: str, signature: Opaque | None) -> None:
        self.id = call_id
        self.name = name
        self.custom = start.custom
        self.parts: list[str] = []
        self.ended = False
        self.signature = signature

    def is_whole(self) -> bool:
        """Whether nothing can follow its arguments."""
        if self.ended:
            return True
        text = "".join(self.parts)
        return not self.custom and text.lstrip().startswith("{") and json_edit.is_json(text.encode())

    def encode(self) -> bytes:
        """Return the part that holds it."""
        call = b'{"id":%b,"name":%b,"args":%b}' % (quote(self.id), quote(self.name), self._arguments())
        return b'{"functionCall":%b%b}' % (call, _signed(self.signature))

    def _arguments(self) -> bytes:
        """Return the arguments as the object that this format wants."""
        text = "".join(self.parts).strip()
        if self.custom:
            return _encode({"input": "".join(self.parts)})
        if not text:
            return b"{}"
        raw = text.encode()
        if not json_edit.is_json(raw):
            return _encode({"_raw": text})
        return raw if raw.startswith(b"{") else b'{"value":%b}' % raw


class _Choice:
    """What one candidate has come to."""

    __slots__ = ("calls", "citations", "index", "last", "searches", "signatures", "text")

    def __init__(self, index: int) -> None:
        self.index = index
        self.calls: dict[int, _Call] = {}
        """Those that have not left yet, by index."""
        self.signatures: dict[int, Opaque] = {}
        """Of calls that have not begun yet."""
        self.last = ""
        """The kind of the last part: thought or text."""
        self.citations: list[Citation] = []
        self.searches: list[WebSearch] = []
        self.text = TextSoFar()


class PartWriter:
    """Turns content events into parts, in the order in which they may leave."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._choices: dict[int, _Choice] = {}
        self.gathers = b"earch" in bytes(asked.raw.get("tools", b""))
        """The text is kept, to tell where the sources of a search belong."""

    def choice(self, index: int) -> _Choice:
        """Return the state of a choice."""
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(index)
        return choice

    def parts(self, event: StreamEvent) -> list[bytes]:
        """Return the parts that leave now that this event has come."""
        match event:
            case TextDelta() | RefusalDelta():
                return self._text(self.choice(event.choice), event.text)
            case ReasoningDelta():
                choice = self.choice(event.choice)
                choice.last = "thought"
                return [*self._whole_calls(choice), b'{"text":%b,"thought":true}' % quote(event.text)]
            case ToolCallStart():
                return self._start_call(self.choice(event.choice), event)
            case ToolCallDelta():
                call = self.choice(event.choice).calls.get(event.index)
                if call is not None:
                    call.parts.append(event.arguments)
            case ToolCallEnd():
                choice = self.choice(event.choice)
                if event.index in choice.calls:
                    choice.calls[event.index].ended = True
                return self._whole_calls(choice)
            case OpaqueState():
                return self._opaque(self.choice(event.choice), event)
            case Citation():
                self.choice(event.choice).citations.append(event)
            case WebSearch():
                self.choice(event.choice).searches.append(event)
            case _:
                pass
        return []

    def _text(self, choice: _Choice, text: str) -> list[bytes]:
        choice.last = "text"
        if self.gathers:
            choice.text.add(text)
        return [*self._whole_calls(choice), b'{"text":%b}' % quote(text)]

    def _start_call(self, choice: _Choice, start: ToolCallStart) -> list[bytes]:
        ready = self._whole_calls(choice)
        choice.last = ""
        call_id = start.id or f"call_{self._asked.id}_{choice.index}_{start.index}"
        name = self._asked.tool_names.get(start.name, start.name)
        choice.calls[start.index] = _Call(start, call_id, name, choice.signatures.pop(start.index, None))
        return ready

    def _whole_calls(self, choice: _Choice) -> list[bytes]:
        """Take the calls that are whole, as far as no earlier one is in the way."""
        ready: list[bytes] = []
        while choice.calls:
            index = min(choice.calls)
            if not choice.calls[index].is_whole():
                break
            ready.append(choice.calls.pop(index).encode())
        return ready

    def _opaque(self, choice: _Choice, event: OpaqueState) -> list[bytes]:
        if event.call_index is not None:
            call = choice.calls.get(event.call_index)
            if call is not None and call.signature is None:
                call.signature = event.opaque
                return []
            if call is None and not choice.calls and event.opaque.vendor == "google":
                choice.signatures[event.call_index] = event.opaque
                return []
        thought = event.opaque.vendor != "google" or choice.last == "thought"
        mark = b',"thought":true' if thought else b""
        return [*self._whole_calls(choice), b'{"text":""%b%b}' % (mark, _signed(event.opaque))]

    def rest(self, index: int) -> list[bytes]:
        """Return what still waits at a choice's end: calls nobody ended, signatures of calls that never came."""
        choice = self.choice(index)
        for call in choice.calls.values():
            call.ended = True
        left = [b'{"text":""%b}' % _signed(opaque) for opaque in choice.signatures.values()]
        choice.signatures.clear()
        return self._whole_calls(choice) + left

    def grounding(self, index: int) -> bytes:
        """Return a candidate's sources as a member with its comma, or nothing."""
        choice = self.choice(index)
        if not choice.citations and not choice.searches:
            return b""
        text = choice.text.text() if self.gathers else None
        return b',"groundingMetadata":' + write_grounding(choice.citations, text, choice.searches)


def _signed(opaque: Opaque | None) -> bytes:
    return b"" if opaque is None else b',"thoughtSignature":%b' % quote(write_signature(opaque))


def _candidate(index: int, parts: list[bytes], rest: bytes = b"") -> bytes:
    return b'{"content":{"parts":[%b],"role":"model"},"index":%d%b}' % (b",".join(parts), index, rest)


def _named(asked: Asked) -> bytes:
    """Return the members by which every object names its answer, with a comma before them."""
    return b',"modelVersion":%b,"responseId":%b' % (quote(asked.model), quote(asked.id))


def _response(candidates: bytes, asked: Asked, bill: Bill | None) -> bytes:
    """Write a response object; without a bill it tells no usage."""
    usage = b""
    if bill is not None:
        usage = b',"usageMetadata":' + with_members(write_usage(bill.usage), bill.in_usage)
    payload = b"{%b%b%b}" % (candidates, usage, _named(asked))
    return payload if bill is None else with_members(payload, bill.beside_usage)


class GeminiStreamEncoder:
    """Writes one client's stream. See `StreamEncoder`."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._frames = ArrayFrames(array=asked.array)
        self._writer = PartWriter(asked)
        self._said = False
        self._fast: _Choice | None = None
        """The first choice, where text may leave without a look at anything else."""
        self._text_head = b'{"candidates":[{"content":{"parts":[{"text":'
        self._text_tail = b'}],"role":"model"},"index":0}]' + _named(asked) + b"}" + self._frames.suffix

    def start(self, usage: Usage | None = None) -> bytes:
        """Return nothing: the first content is the start."""
        return b""

    def take_over(self, told: Told) -> None:
        """Take over an answer that another has begun to write."""
        self._asked = self._asked.under(told.last.get("responseId", self._asked.id))
        self._text_tail = b'}],"role":"model"},"index":0}]' + _named(self._asked) + b"}" + self._frames.suffix
        self.event(TextDelta(told.text))

    def event(self, event: StreamEvent) -> bytes:
        """Return the framed object for one content event; may be empty."""
        fast = self._fast
        if type(event) is TextDelta and fast is not None and not event.choice and not fast.calls:
            return self._text_head + quote(event.text) + self._text_tail
        if isinstance(event, Logprobs):
            rest = b',"logprobsResult":' + _write_logprobs(event.content)
            return self._emit(event.choice, [_EMPTY], rest)
        parts = self._writer.parts(event)
        out = self._emit(event.choice, parts) if parts else b""  # type: ignore[union-attr]  # every content event has one
        if type(event) is TextDelta or type(event) is ReasoningDelta:
            self._learn(event)
        return out

    def _learn(self, event: TextDelta | ReasoningDelta) -> None:
        if event.choice:
            return
        self._fast = None
        if type(event) is TextDelta and not self._writer.gathers:
            self._fast = self._writer.choice(0)
            self._text_head = self._frames.prefix + b'{"candidates":[{"content":{"parts":[{"text":'

    def _emit(self, choice: int, parts: list[bytes], rest: bytes = b"") -> bytes:
        self._said = True
        return self._frames.frame(
            _response(b'"candidates":[%b]' % _candidate(choice, parts, rest), self._asked, None)
        )

    def finish(self, reasons: dict[int, tuple[str, str | None]]) -> bytes:
        """Return nothing: the finish waits for usage."""
        return b""

    def farewell(self, reasons: dict[int, tuple[str, str | None]], bill: Bill | None) -> bytes:
        """Return what waited, and the last object: finish reasons, sources and usage."""
        ends: list[_Ending] = []
        for index, (reason, _) in sorted((reasons or {0: ("stop", None)}).items()):
            parts = self._writer.rest(index)
            self._said |= bool(parts)
            ends.append(_Ending(index, parts, reason, self._writer.grounding(index)))
        last = _last(ends, self._asked, bill, said=self._said)
        return self._frames.frame(last) + self._frames.end

    def failure(self, error: SluicegateError) -> bytes:
        """Return the error object; an array is left open behind it."""
        return self._frames.frame(gemini_errors.error_object(error))


def encode_answer(events: list[StreamEvent], asked: Asked, bill: Bill) -> bytes:
    """Write an answer that is not streamed. See `AnswerEncoder`."""
    writer = PartWriter(asked)
    parts: dict[int, list[bytes]] = {}
    logprobs: dict[int, list[dict[str, Any]]] = {}
    reasons: dict[int, str] = {}
    for event in _joined(events):
        if isinstance(event, Finish):
            reasons[event.choice] = event.reason
        elif isinstance(event, Logprobs):
            logprobs.setdefault(event.choice, []).extend(event.content)
        else:
            choice: int = getattr(event, "choice", 0)
            parts.setdefault(choice, []).extend(writer.parts(event))
    ends: list[_Ending] = []
    for index in sorted({0, *parts, *reasons}):
        rest = writer.grounding(index)
        if logprobs.get(index):
            rest += b',"logprobsResult":' + _write_logprobs(logprobs[index])
        said = parts.get(index, []) + writer.rest(index)
        ends.append(_Ending(index, said, reasons.get(index, "stop"), rest))
    return _last(ends, asked, bill, said=any(end.parts for end in ends))


def _joined(events: list[StreamEvent]) -> list[StreamEvent]:
    """Return events in which neighbouring pieces of one choice's text, or thought, are one."""
    joined: list[StreamEvent] = []
    for event in sorted(events, key=lambda event: getattr(event, "choice", 0)):
        if isinstance(event, RefusalDelta):
            event = TextDelta(event.text, event.choice)
        before = joined[-1] if joined else None
        if isinstance(event, TextDelta) and isinstance(before, TextDelta) and before.choice == event.choice:
            joined[-1] = TextDelta(before.text + event.text, event.choice)
        elif (
            isinstance(event, ReasoningDelta)
            and isinstance(before, ReasoningDelta)
            and before.choice == event.choice
        ):
            joined[-1] = ReasoningDelta(before.text + event.text, event.choice)
        else:
            joined.append(event)
    return joined


class _Ending(NamedTuple):
    """What the last object says of one candidate."""

    choice: int
    parts: list[bytes]
    reason: str
    rest: bytes
    """Members of the candidate, each with its comma before it."""


def _last(ends: list[_Ending], asked: Asked, bill: Bill | None, *, said: bool) -> bytes:
    """Write the object that ends an answer, or that is all of it.

    Args:
        said: anything was; a refusal of the whole prompt is told in a place of its own.
    """
    if not said and all(end.reason == "content_filter" for end in ends):
        return _response(b'"promptFeedback":{"blockReason":"OTHER"}', asked, bill)
    candidates = [
        _candidate(
            end.choice,
            end.parts or [_EMPTY],
            b',"finishReason":"%b"%b' % (write_finish_reason(end.reason).encode(), end.rest),
        )
        for end in ends
    ]
    return _response(b'"candidates":[%b]' % b",".join(candidates), asked, bill)


def _write_logprobs(content: list[dict[str, Any]]) -> bytes:
    value = {
        "topCandidates": [
            {"candidates": [_token(entry) for entry in token.get("top_logprobs") or ()]} for token in content
        ],
        "chosenCandidates": [_token(token) for token in content],
    }
    return msgspec.json.encode(value)


def _token(entry: dict[str, Any]) -> dict[str, Any]:
    return {"token": entry.get("token", ""), "logProbability": entry.get("logprob", 0.0)}
