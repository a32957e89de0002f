"""What was thought before a tool call, kept for clients whose format has no place for it, or who drop it.

Providers want their own opaque state back on the next turn: signatures of thoughts and of calls, encrypted reasoning.
A chat client sends calls and results back and nothing else, Gemini CLI leaves out what was thought, and the Vercel AI
SDK sends ids of items that it takes for kept. So a worker remembers the state by the call's id, for an hour and within
bounds. It is bound to the account: another's call id finds nothing. A miss is no error: the request is said without the
state, as the codecs do.
"""

import sys
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from sluicegate.messages import (
    Message,
    Opaque,
    OpaqueState,
    Part,
    Reasoning,
    ReasoningDelta,
    StreamEvent,
    ToolCall,
    ToolCallStart,
)

LIFE_S = 3600.0
MAX_BYTES = 33_554_432
"""Of all that is remembered; the oldest goes first."""
_ENTRY_BYTES = 500


class Thought(NamedTuple):
    """What belongs to one tool call."""

    before: tuple[Reasoning, ...]
    """Thoughts that led to it."""
    call: Opaque | None
    """The signature of the call itself."""


class ThoughtMemory:
    """One worker's memory."""

    def __init__(self) -> None:
        self._thoughts: OrderedDict[tuple[str, str], tuple[float, int, Thought]] = OrderedDict()
        self._bytes = 0

    def remember(self, account_id: str, call_id: str, thought: Thought, now: float) -> None:
        """Keep a call's state."""
        self._forget((account_id, call_id))
        size = _ENTRY_BYTES + sum(len(part.text) + _size(part.opaque) for part in thought.before)
        size += _size(thought.call)
        self._thoughts[(account_id, call_id)] = (now + LIFE_S, size, thought)
        self._bytes += size
        while self._bytes > MAX_BYTES:
            self._forget(next(iter(self._thoughts)))

    def recall(self, account_id: str, call_id: str, now: float) -> Thought | None:
        """Return a call's state, or None where it is not known any more."""
        known = self._thoughts.get((account_id, call_id))
        if known is None:
            return None
        due_at, _, thought = known
        if due_at <= now:
            self._forget((account_id, call_id))
            return None
        return thought

    def _forget(self, key: tuple[str, str]) -> None:
        known = self._thoughts.pop(key, None)
        if known is not None:
            self._bytes -= known[1]


class Turn:
    """Follows one answer, and knows in the end which state belongs to which call."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thoughts: list[Reasoning] = []
        self._before: dict[str, tuple[Reasoning, ...]] = {}
        self._ids: dict[int, str] = {}
        self._signatures: dict[int, Opaque] = {}

    def take(self, event: StreamEvent) -> None:
        """Follow the answer by one event; those that tell nothing of thoughts or calls are passed over."""
        match event:
            case ReasoningDelta():
                self._text.append(event.text)
            case OpaqueState(call_index=None):
                self._thoughts.append(Reasoning(text="".join(self._text), opaque=event.opaque))
                self._text = []
            case OpaqueState(call_index=int() as index):
                self._signatures[index] = event.opaque
            case ToolCallStart():
                self._ids[event.index] = sys.intern(event.id)
                if self._thoughts:
                    self._before[event.id] = tuple(self._thoughts)
                    self._thoughts = []

    def keep(self, memory: ThoughtMemory, account_id: str, now: float) -> None:
        """Remember what belongs to the calls."""
        for index, call_id in self._ids.items():
            thought = Thought(self._before.get(call_id, ()), self._signatures.get(index))
            if thought.before or thought.call is not None:
                memory.remember(account_id, call_id, thought, now)


def restore(messages: list[Message], memory: ThoughtMemory, account_id: str, now: float) -> list[Message]:
    """Return a conversation in which calls stand with the state that belongs to them, where it is known."""
    return [
        _with_thoughts(message, memory, account_id, now) if message.role == "assistant" else message
        for message in messages
    ]


def _with_thoughts(message: Message, memory: ThoughtMemory, account_id: str, now: float) -> Message:
    carried = any(isinstance(part, Reasoning) and part.opaque is not None for part in message.parts)
    parts: list[Part] = []
    found = False
    for part in message.parts:
        thought = memory.recall(account_id, part.id, now) if isinstance(part, ToolCall) else None
        if thought is not None and isinstance(part, ToolCall):
            found = True
            if not carried:
                parts += thought.before
            if part.opaque is None and thought.call is not None:
                part = msgspec.structs.replace(part, opaque=thought.call)
        parts.append(part)
    if not found:
        return message
    if not carried and any(isinstance(part, Reasoning) and part.opaque is not None for part in parts):
        # The remembered thoughts have their text with them.
        parts = [part for part in parts if not isinstance(part, Reasoning) or part.opaque is not None]
    return msgspec.structs.replace(message, parts=parts)


def _size(opaque: Opaque | None) -> int:
    return 0 if opaque is None else len(opaque.value)
