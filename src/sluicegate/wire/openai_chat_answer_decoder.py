"""Answers of a chat provider, streamed or not, as events of the common vocabulary.

Servers of this dialect differ: what a call lacks is filled in, calls are put one after another, reasoning is read under
every name it goes by, a matched stop string where it is told. A finish is told when it comes, and again where the
server repeats it: whether it is the last is the reader's to judge. Source: wire formats page `chat-completions.md`,
"Reading other servers' chat dialect".
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import (
    Citation,
    End,
    Finish,
    FinishReason,
    Logprobs,
    OpaqueState,
    ReasoningDelta,
    RefusalDelta,
    Start,
    StreamError,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageReport,
)
from sluicegate.wire import usual_event
from sluicegate.wire.openai_chat_answer import ChatAnswer
from sluicegate.wire.openai_chat_chunk import Function, ToolDelta
from sluicegate.wire.openai_chat_identity import Identity
from sluicegate.wire.openai_chat_stream_shapes import FullChoice, FullChunk, FullDelta
from sluicegate.wire.openai_events import DONE
from sluicegate.wire.openai_reasoning_state import read_entries
from sluicegate.wire.openai_stream_decoder import OpenAIStreamDecoder
from sluicegate.wire.openai_tool_calls import Call, Piece, ToolCalls
from sluicegate.wire.openai_usage import read_normal_usage
from sluicegate.wire.sse import MAX_EVENT_BYTES
from sluicegate.wire.translation import checked_choice
from sluicegate.wire.upstream_errors import is_nothing, read_stream_error
from sluicegate.wire.usual_event import UsualEvent

FORMAT = "chat"
_RELEARN = 8
"""How often the usual event may change its shape before we stop looking for it."""
_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "stop_sequence": "stop_sequence",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "MAX_TOKENS": "length",
    "model_context_window_exceeded": "context_full",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "SAFETY": "content_filter",
    "refusal": "content_filter",
}


_decode_chunk = msgspec.json.Decoder(FullChunk).decode


class _State:
    """What one choice has come to."""

    __slots__ = ("calls", "finished", "open_call")

    def __init__(self, calls: ToolCalls) -> None:
        self.calls = calls
        self.finished = False
        self.open_call: Call | None = None
        """The call whose end has not been told."""


class ChatStreamDecoder(OpenAIStreamDecoder):
    """Reads one provider's stream. See `StreamDecoder`."""

    def __init__(
        self,
        can: Capabilities,
        count_text: Callable[[str], None],
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        """Start an answer."""
        super().__init__(FORMAT, can, count_text, max_event_bytes)
        self._states: dict[int, _State] = {}
        self._usual: UsualEvent | None = None
        self._usual_like: TextDelta | ReasoningDelta | ToolCallDelta | None = None
        """The event that the usual one became."""
        self._learned = 0

    def _has_finished(self) -> bool:
        return bool(self._states) and all(state.finished for state in self._states.values())

    def _take_usual(self, data: bytes) -> StreamEvent | None:
        usual = self._usual
        if usual is None or usual.rewrite_read(data) is None:
            return None
        text = usual.text
        like = self._usual_like
        self._count_text(text)
        if usual.parts is not None:
            usual.parts.append(text)
        if type(like) is TextDelta:
            return TextDelta(text, like.choice)
        if type(like) is ReasoningDelta:
            return ReasoningDelta(text, like.choice)
        assert isinstance(like, ToolCallDelta), "it is set with the usual event"
        return ToolCallDelta(like.index, text, like.choice)

    # ---- one event ------------------------------------------------------------------------------------------------

    def _take(self, payload: bytes) -> None:
        if payload == DONE:
            self._end()
            return
        try:
            chunk = _decode_chunk(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise DecodeError(FORMAT, None, "an event is not a chat completion chunk") from None
        if chunk.error is not UNSET and not is_nothing(bytes(chunk.error)):
            self._fail(read_stream_error(bytes(chunk.error)))
        elif not chunk.choices and (chunk.type == "error" or chunk.object == "error"):
            self._fail(read_stream_error(payload))
        else:
            self._take_chunk(payload, chunk)

    def _fail(self, error: StreamError) -> None:
        self._events.append(error)
        self._ended = True
        self._usual = None

    def _take_chunk(self, payload: bytes, chunk: FullChunk) -> None:
        events = self._events
        if isinstance(chunk.id, str) and chunk.id and self.upstream_id is None:
            self.upstream_id = chunk.id
        if not self._started:
            self._started = True
            created = chunk.created
            events.append(Start(self.upstream_id, created if type(created) is int else None))
        before = len(events)
        for place, choice in enumerate(chunk.choices or ()):
            if choice.finish_reason == "error":
                self._fail(StreamError(status=500, message="the provider reported an error"))
                return
            self._take_choice(choice, place)
        if chunk.usage is not UNSET:
            usage = read_normal_usage(bytes(chunk.usage), self._can)
            if usage is not None:
                if isinstance(chunk.service_tier, str):
                    usage.service_tier = chunk.service_tier
                events.append(UsageReport(usage))
        if len(events) == before + 1 and self._learned < _RELEARN:
            self._learn(payload, chunk.choices, events[-1])

    def _take_choice(self, choice: FullChoice, place: int) -> None:
        index = choice.index if type(choice.index) is int and choice.index >= 0 else place
        state = self._states.get(index)
        if state is None:
            checked_choice(index, "chat")
            prefix = f"call_{self.upstream_id or 'x'}_{index}"
            state = self._states[index] = _State(ToolCalls(prefix, repair=True))
        delta = choice.delta
        if delta is not None:
            self._take_delta(delta, choice.logprobs, state, index)
        reason = choice.finish_reason
        if isinstance(reason, str) and reason:
            self._take_finish(reason, choice.stop_reason, state, index)

    def _take_delta(self, delta: FullDelta, logprobs: Any, state: _State, index: int) -> None:
        events, count = self._events, self._count_text
        text, thought = _said(delta.content)
        reasoning = delta.reasoning_content
        if not isinstance(reasoning, str) or not reasoning:
            reasoning = delta.reasoning
        if not isinstance(reasoning, str) or not reasoning:
            reasoning = thought
        if delta.reasoning_details:
            detailed, states = read_entries(delta.reasoning_details)
            reasoning = reasoning or detailed
        else:
            states = []
        if reasoning:
            count(reasoning)
            events.append(ReasoningDelta(reasoning, index))
        events += [OpaqueState(opaque, index) for opaque in states]
        if text:
            count(text)
            events.append(TextDelta(text, index))
        if logprobs:
            entries = _token_entries(logprobs)
            if entries:
                events.append(Logprobs(entries, index))
        if isinstance(delta.refusal, str) and delta.refusal:
            count(delta.refusal)
            events.append(RefusalDelta(delta.refusal, index))
        fragments = [_as_function(fragment) for fragment in delta.tool_calls or ()]
        if delta.function_call is not None:
            fragments.append(ToolDelta(index=0, function=delta.function_call))
        if fragments:
            for fragment in fragments:
                self._count_fragment(fragment)
            self._tell_calls(state.calls.follow(fragments), state, index)
        if delta.annotations:
            events += _citations(delta.annotations, index)

    def _count_fragment(self, fragment: ToolDelta) -> None:
        if isinstance(fragment.function, Function):
            for text in (fragment.function.name, fragment.function.arguments):
                if isinstance(text, str) and text:
                    self._count_text(text)

    def _tell_calls(self, pieces: list[Piece], state: _State, index: int) -> None:
        events = self._events
        for piece in pieces:
            call = piece.call
            if piece.opening:
                self._tell_call_end(state, index)
                state.open_call = call
                events.append(ToolCallStart(call.index, call.id or "", call.name or "", call.custom, index))
            if piece.arguments:
                events.append(ToolCallDelta(call.index, piece.arguments, index))

    def _tell_call_end(self, state: _State, index: int) -> None:
        if state.open_call is not None:
            self._events.append(ToolCallEnd(state.open_call.index, index))
            state.open_call = None

    def _learn(self, payload: bytes, choices: list[FullChoice] | None, event: StreamEvent) -> None:
        """Remember an event that is one piece of text or arguments: the next of its kind needs no decoding."""
        delta = choices[0].delta if choices is not None and len(choices) == 1 else None
        if delta is None:
            return
        parts: list[str] | None = None
        if type(event) is TextDelta:
            key, text = "content", event.text
        elif type(event) is ReasoningDelta:
            text = event.text
            key = "reasoning_content" if delta.reasoning_content == text else "reasoning"
        elif type(event) is ToolCallDelta:
            key, text = "arguments", event.arguments
            current = self._states[event.choice].calls.current
            if current is None or current.index != event.index:
                return
            parts = current.parts
        else:
            return
        self._learned += 1
        learned = usual_event.learn(payload, payload, key, text, parts)
        if learned is not None:
            self._usual, self._usual_like = learned, event

    # ---- the end --------------------------------------------------------------------------------------------------

    def _take_finish(self, reason: str, matched: Any, state: _State, index: int) -> None:
        calls = state.calls
        if calls.nameless:
            raise DecodeError(FORMAT, None, "a tool call has no name")
        self._tell_calls(calls.close(fill=False), state, index)
        if state.open_call is not None and state.open_call.whole:
            self._tell_call_end(state, index)
        meant = _REASONS.get(reason, "stop")
        stop_sequence = None
        if calls and meant == "stop":
            meant = "tool_calls"
        elif meant == "stop" and isinstance(matched, str) and matched:
            meant, stop_sequence = "stop_sequence", matched
        self._put_right |= meant != reason and stop_sequence is None
        state.finished = True
        self._events.append(Finish(meant, index, stop_sequence, reason))

    def _end(self) -> None:
        """Take the end marker: an answer without a finish reason is whole if its calls are."""
        for index, state in self._states.items():
            if state.finished:
                continue
            self._put_right = True
            if state.calls.nameless or (state.calls and not state.calls.whole):
                raise DecodeError(FORMAT, None, "the stream ended inside a tool call")
            self._tell_call_end(state, index)
        self._events.append(End())
        self._ended = True
        self._usual = None

    # ---- an answer that is not streamed ---------------------------------------------------------------------------

    def take_whole(self, payload: bytes) -> list[StreamEvent]:
        """Return a whole completion, spelled as one chunk, as the events that its stream would have brought.

        Raises:
            DecodeError: it is none.
        """
        events: list[StreamEvent] = []
        self._events = events
        self._take(payload)
        if self._ended:
            return events
        for index, state in self._states.items():
            if not state.finished:
                self._take_finish("stop", None, state, index)
        usage = [event for event in events if isinstance(event, UsageReport)]
        return [event for event in events if not isinstance(event, UsageReport)] + usage + [End()]


def decode_answer(body: bytes, can: Capabilities) -> list[StreamEvent]:
    """Read a plain answer; one that came as an event stream all the same is read as that. See `AnswerDecoder`.

    Raises:
        DecodeError: it is no chat completion, or a stream that was cut.
    """
    decoder = ChatStreamDecoder(can, _uncounted)
    body = body.removeprefix(b"\xef\xbb\xbf").strip()
    if not body.startswith(b"{"):
        events = decoder.feed(body + b"\n\n") + decoder.finish()
        return events if events and isinstance(events[-1], End | StreamError) else [*events, End()]
    answer = ChatAnswer(Identity(model="", fallback_id="", created=0), body)
    if answer.error is not None:
        return [answer.error]
    return decoder.take_whole(answer.as_chunk())


def _uncounted(text: str) -> None:
    """Plain answers are counted by whoever reads the events."""


def _said(content: Any) -> tuple[str, str]:
    """Return the text and the thoughts of a `content`, which some servers send as a list of parts."""
    if isinstance(content, str):
        return content, ""
    if not isinstance(content, list):
        return "", ""
    text, thought = "", ""
    for part in content:
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict):
            said = part.get("text")
            text += said if isinstance(said, str) else ""
            thought += _said(part.get("thinking"))[0]
    return text, thought


def _as_function(delta: ToolDelta) -> ToolDelta:
    """Return a fragment of a free-form call as one of a function, still marked as what it is."""
    custom = delta.custom
    if not isinstance(custom, dict):
        return delta
    function = Function(name=custom.get("name", UNSET), arguments=custom.get("input", UNSET))
    return ToolDelta(index=delta.index, id=delta.id, type=delta.type, function=function, custom=custom)


def _token_entries(logprobs: Any) -> list[dict[str, Any]]:
    entries = logprobs.get("content") or logprobs.get("refusal") if isinstance(logprobs, dict) else None
    if not isinstance(entries, list):
        return []
    return [_sound_entry(entry) for entry in entries if isinstance(entry, dict)]


def _sound_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry whose alternatives, where it has any, are objects."""
    given = entry.get("top_logprobs")
    if given is None or (isinstance(given, list) and all(isinstance(other, dict) for other in given)):
        return entry
    others = [other for other in given if isinstance(other, dict)] if isinstance(given, list) else []
    return {**entry, "top_logprobs": others}


def _citations(annotations: Any, index: int) -> list[Citation]:
    found: list[Citation] = []
    for annotation in annotations if isinstance(annotations, list) else ():
        source = annotation.get("url_citation") if isinstance(annotation, dict) else None
        if not isinstance(source, dict) or not isinstance(source.get("url"), str):
            continue
        title, start, end = source.get("title"), source.get("start_index"), source.get("end_index")
        found.append(
            Citation(
                source["url"],
                title if isinstance(title, str) else "",
                start if type(start) is int else 0,
                end if type(end) is int else 0,
                index,
            )
        )
    return found
