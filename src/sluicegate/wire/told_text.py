"""What a client has been told of an answer, as far as another provider could go on with it: text, and nothing else.

It reads the events that leave for the client, in the client's format, so that it knows what the client knows, whichever
codec wrote them. From the first event on that is more than a piece of text, the answer cannot be gone on with: a call
that has begun, a thought, a signature, a refusal, probabilities, sources, a second choice, a finish, or an event that
nobody here knows. Source: wire formats pages of the five formats.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import Format
from sluicegate.wire.json_elements import ElementReader
from sluicegate.wire.sse import MAX_EVENT_BYTES, EventReader

Json = dict[str, Any]
_NAMES: tuple[tuple[str, type], ...] = (
    ("id", str),
    ("created", int),
    ("responseId", str),
    ("item_id", str),
    ("index", int),
    ("sequence_number", int),
)
"""What events tell of their place."""
_NEEDED: dict[Format, frozenset[str]] = {
    "responses": frozenset({"item_id", "sequence_number"}),
    "messages": frozenset({"index"}),
}
"""What of it a piece of text has to have."""
_decode = msgspec.json.Decoder(Json).decode


class Told:
    """The answer so far, as one client has it."""

    __slots__ = ("_elements", "_events", "_needed", "_read", "_texts", "first", "last", "open")

    def __init__(self, client: Format, *, array: bool = False) -> None:
        """Start an answer.

        Args:
            array: Gemini without `alt=sse`: its events are the elements of an array.
        """
        self._read = _READERS[client]
        self._needed = _NEEDED.get(client, frozenset())
        self._texts: list[str] = []
        self._events = EventReader()
        self._elements = ElementReader(MAX_EVENT_BYTES) if array else None
        self.first: Json = {}
        """The first event."""
        self.last: Json = {}
        """The last one with text."""
        self.open = True
        """It was text and nothing else until now."""

    @property
    def text(self) -> str:
        """All of the text."""
        return "".join(self._texts)

    @property
    def has_text(self) -> bool:
        """Whether there is text and nothing else, in events that tell their place as those that follow have to."""
        if not self.open or not self.text.strip():
            return False
        places = [
            (event[name], of) for event in (self.first, self.last) for name, of in _NAMES if name in event
        ]
        return all(isinstance(told, of) for told, of in places) and self.last.keys() >= self._needed

    def take(self, framed: bytes) -> None:
        """Read events that leave for the client; only as long as it is open."""
        try:
            if self._elements is not None:
                payloads = self._elements.feed(framed)
            else:
                payloads = [event.data for event in self._events.feed(framed)]
            self.open = all(self._take(_decode(payload)) for payload in payloads)
        except (DecodeError, msgspec.DecodeError, AttributeError, LookupError, TypeError, ValueError):
            self.open = False  # not what these events look like: then it is not known what the client has

    def _take(self, event: Json) -> bool:
        """Read an event; return whether it says text and nothing else, or what begins it."""
        text = self._read(event)
        if not isinstance(text, str):
            return False
        self.first = self.first or event
        if text:
            self._texts.append(text)
            self.last = event
        return True


# ---- one event of each format: its text, maybe empty, or None where it says more than text --------------------------


def _sole_choice(event: Json) -> Json | None:
    """Return the first choice of an OpenAI chunk; None where there are others, or it says more than text."""
    choices = event.get("choices") or [{}]
    choice: Json = choices[0]
    says_more = choice.get("index") or choice.get("finish_reason") or choice.get("logprobs")
    return None if event.get("error") is not None or len(choices) > 1 or says_more else choice


def _chat(event: Json) -> str | None:
    choice = _sole_choice(event)
    if choice is None:
        return None
    delta = dict(choice.get("delta") or {})
    text: str = delta.pop("content", None) or ""
    delta.pop("role", None)
    return None if any(delta.values()) else text


def _completions(event: Json) -> str | None:
    choice = _sole_choice(event)
    return None if choice is None else choice.get("text") or ""


def _responses(event: Json) -> str | None:
    match event.get("type"):
        case "response.created" | "response.in_progress" | "response.queued":
            return ""
        case "response.output_item.added":
            item = event["item"]
            return "" if item.get("type") == "message" and not item.get("content") else None
        case "response.content_part.added":
            part = event["part"]
            more = part.get("text") or part.get("annotations") or part.get("logprobs")
            return "" if part.get("type") == "output_text" and not more else None
        case "response.output_text.delta":
            return None if event.get("logprobs") else event["delta"]
    return None


def _messages(event: Json) -> str | None:
    match event.get("type"):
        case "ping":
            return ""
        case "message_start":
            return None if event["message"].get("content") else ""
        case "content_block_start":
            block = event["content_block"]
            is_text = block.get("type") == "text" and not block.get("citations")
            return block.get("text") or "" if is_text else None
        case "content_block_delta" if event["delta"].get("type") == "text_delta":
            text: str = event["delta"]["text"]
            return text
    return None


_CANDIDATE = frozenset({"content", "index", "safetyRatings", "tokenCount"})
"""Members of a candidate that say no more than its text does."""


def _gemini(event: Json) -> str | None:
    if event.get("error") is not None or event.get("promptFeedback") is not None:
        return None
    candidates = event.get("candidates") or [{}]
    candidate = candidates[0]
    if (
        len(candidates) > 1
        or candidate.get("index")
        or any(candidate[key] for key in candidate.keys() - _CANDIDATE)
    ):
        return None
    texts: list[str] = []
    for part in (candidate.get("content") or {}).get("parts") or ():
        if any(part[key] for key in part.keys() - {"text"}):
            return None
        texts.append(part.get("text") or "")
    return "".join(texts)


_READERS: dict[Format, Callable[[Json], str | None]] = {
    "chat": _chat,
    "completions": _completions,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}
