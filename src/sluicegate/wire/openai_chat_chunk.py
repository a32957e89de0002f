"""What is read of a chat completion chunk.

Only what routing, metering and repair look at is decoded; everything else passes as bytes. Whether a key is there and
null, or not there, matters to SDKs, so absent is UNSET. Source: wire formats page `chat-completions.md`.
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

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


def has_unknown_content(payload: bytes, place: int) -> bool:
    """Whether the delta of the choice at that place brings something the codec has no word for: content too."""
    try:
        delta = msgspec.json.decode(payload)["choices"][place]["delta"]
    except (msgspec.DecodeError, RecursionError):
        return False  # numbers beyond a double, say: nothing a client could show
    return any(value for key, value in delta.items() if key not in _KNOWN_DELTA and key not in _QUIET_DELTA)
