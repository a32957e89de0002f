"""Answers of a legacy Completions provider, streamed or not, as events of the common vocabulary: text and nothing else.

Source: wire formats page `completions.md`.
"""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import (
    End,
    Finish,
    FinishReason,
    Logprobs,
    Start,
    StreamError,
    StreamEvent,
    TextDelta,
    UsageReport,
)
from sluicegate.wire import usual_event
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.openai_completions_chunk import (
    FORMAT,
    Choice,
    decode_chunk,
    error_of,
    index_of,
    known_reason,
)
from sluicegate.wire.openai_events import DONE
from sluicegate.wire.openai_stream_decoder import OpenAIStreamDecoder
from sluicegate.wire.openai_usage import read_normal_usage
from sluicegate.wire.sse import MAX_EVENT_BYTES
from sluicegate.wire.translation import checked_choice
from sluicegate.wire.usual_event import UsualEvent

_RELEARN = 8
_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
}


class CompletionStreamDecoder(OpenAIStreamDecoder):
    """Reads one provider's stream. See `StreamDecoder`."""

    def __init__(
        self,
        can: Capabilities,
        count_text: Callable[[str], None],
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        """Start an answer."""
        super().__init__(FORMAT, can, count_text, max_event_bytes)
        self._finished: dict[int, bool] = {}
        """Choices that have begun, and whether they have ended."""
        self._usual: UsualEvent | None = None
        self._usual_choice = 0
        self._learned = 0

    def _take_usual(self, data: bytes) -> StreamEvent | None:
        usual = self._usual
        if usual is None or usual.rewrite_read(data) is None:
            return None
        self._count_text(usual.text)
        return TextDelta(usual.text, self._usual_choice)

    def _has_finished(self) -> bool:
        return bool(self._finished) and all(self._finished.values())

    def _take(self, payload: bytes) -> None:
        events = self._events
        if payload == DONE:
            self._put_right |= not self._has_finished()
            events.append(End())
            self._end()
            return
        chunk = decode_chunk(payload)
        error = error_of(payload, chunk)
        if error is not None:
            events.append(error)
            self._end()
            return
        if isinstance(chunk.id, str) and chunk.id and self.upstream_id is None:
            self.upstream_id = chunk.id
        if not self._started:
            self._started = True
            created = chunk.created
            events.append(Start(self.upstream_id, created if type(created) is int else None))
        before = len(events)
        for place, choice in enumerate(chunk.choices or ()):
            self._take_choice(choice, checked_choice(index_of(choice, place), "completions"))
        if chunk.usage is not UNSET:
            usage = read_normal_usage(bytes(chunk.usage), self._can)
            if usage is not None:
                events.append(UsageReport(usage))
        if (
            len(events) == before + 1
            and self._learned < _RELEARN
            and isinstance(last := events[-1], TextDelta)
        ):
            self._learned += 1
            learned = usual_event.learn(payload, payload, "text", last.text, None)
            if learned is not None:
                self._usual, self._usual_choice = learned, last.choice

    def _take_choice(self, choice: Choice, index: int) -> None:
        events = self._events
        self._finished.setdefault(index, False)
        if isinstance(choice.text, str) and choice.text:
            self._count_text(choice.text)
            events.append(TextDelta(choice.text, index))
        entries = _token_entries(choice.logprobs)
        if entries:
            events.append(Logprobs(entries, index))
        reason = known_reason(choice.finish_reason)
        if reason is None:
            return
        self._finished[index] = True
        meant = _REASONS[reason]
        matched = choice.stop_reason
        if meant == "stop" and isinstance(matched, str) and matched:
            events.append(Finish("stop_sequence", index, matched, choice.finish_reason))
        else:
            events.append(Finish(meant, index, None, choice.finish_reason))

    def _end(self) -> None:
        self._ended = True
        self._usual = None

    def take_whole(self, payload: bytes) -> list[StreamEvent]:
        """Return a whole completion as the events that its stream would have brought. Raises DecodeError."""
        events: list[StreamEvent] = []
        self._events = events
        self._take(payload)
        if self._ended:
            return events
        if not self._finished:
            raise DecodeError(FORMAT, None, "the answer is not a text completion")
        usage = [event for event in events if isinstance(event, UsageReport)]
        rest = [event for event in events if not isinstance(event, UsageReport)]
        owed = [Finish("stop", index) for index, finished in self._finished.items() if not finished]
        return [*rest, *owed, *usage, End()]


def decode_answer(body: bytes, can: Capabilities) -> list[StreamEvent]:
    """Read a plain answer; one that came as an event stream all the same is read as that. See `AnswerDecoder`.

    Raises:
        DecodeError: it is no completion, or a stream that was cut.
    """
    decoder = CompletionStreamDecoder(can, _uncounted)
    body = body.removeprefix(b"\xef\xbb\xbf").strip()
    if not body.startswith(b"{"):
        events = decoder.feed(body + b"\n\n") + decoder.finish()
        return events if events and isinstance(events[-1], End | StreamError) else [*events, End()]
    return decoder.take_whole(whole_characters(body))


def _uncounted(text: str) -> None:
    """Plain answers are counted by whoever reads the events."""


def _token_entries(logprobs: Any) -> list[dict[str, Any]]:
    """Return token probabilities as chat spells them."""
    if not isinstance(logprobs, dict):
        return []
    tokens, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if not isinstance(tokens, list) or not isinstance(values, list):
        return []
    others = logprobs.get("top_logprobs")
    others = others if isinstance(others, list) else []
    entries: list[dict[str, Any]] = []
    for place, (token, value) in enumerate(zip(tokens, values, strict=False)):
        if not isinstance(token, str):
            continue
        top = others[place] if place < len(others) else None
        entries.append(
            {
                **_entry(token, value),
                "top_logprobs": [_entry(other, chance) for other, chance in top.items()]
                if isinstance(top, dict)
                else [],
            }
        )
    return entries


def _entry(token: str, value: Any) -> dict[str, Any]:
    """Return one token; the first of a prompt has no probability, which is told as certain."""
    return {
        "token": token,
        "logprob": value if isinstance(value, int | float) else 0.0,
        "bytes": list(token.encode(errors="replace")),
    }
