"""What is read of a chat completion chunk, and the words for why an answer ended.

Only what routing, metering and repair look at is decoded; everything else passes as bytes. Whether a key is there and
null, or not there, matters to SDKs, so absent is UNSET. Source: wire formats page `chat-completions.md`.
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_FINISH_ALIASES = {
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "MAX_TOKENS": "length",
    "safety": "content_filter",
    "SAFETY": "content_filter",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
}
_KNOWN_DELTA = frozenset(
    {"role", "content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call"}
)
_QUIET_DELTA = frozenset({"name", "annotations", "provider_specific_fields"})


class Function(msgspec.Struct, gc=False):
    name: Any = UNSET
    arguments: Any = UNSET


class ToolDelta(msgspec.Struct, gc=False):
    index: Any = UNSET
    id: Any = UNSET
    type: Any = UNSET
    function: Function | UnsetType | None = UNSET
    custom: Any = None


class Delta(msgspec.Struct, gc=False):
    content: Any = None
    role: Any = UNSET
    reasoning_content: Any = UNSET
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[ToolDelta] | None = None
    function_call: Function | None = None


class Choice(msgspec.Struct, gc=False):
    index: Any = None
    delta: Delta | None = None
    finish_reason: Any = None


class Chunk(msgspec.Struct, gc=False):
    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    type: Any = None
    choices: list[Choice] | None = None
    usage: msgspec.Raw | UnsetType = UNSET
    error: msgspec.Raw | UnsetType = UNSET
    service_tier: Any = None


decode_chunk = msgspec.json.Decoder(Chunk).decode


def right_reason(reason: str, *, called: bool) -> str:
    """Return the finish reason an OpenAI client knows: by the table, an unknown one as `stop`.

    Args:
        called: tools were called, which `stop` would hide.
    """
    right = reason if reason in FINISH_REASONS else _FINISH_ALIASES.get(reason, "stop")
    return "tool_calls" if called and right == "stop" else right


def has_unknown_content(payload: bytes, place: int) -> bool:
    """Whether the delta of the choice at that place brings something the codec has no word for: content too."""
    try:
        delta = msgspec.json.decode(payload)["choices"][place]["delta"]
    except (msgspec.DecodeError, RecursionError):
        return False  # numbers beyond a double, say: nothing a client could show
    return any(value for key, value in delta.items() if key not in _KNOWN_DELTA and key not in _QUIET_DELTA)
