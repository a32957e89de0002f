"""What is read of a chat provider's chunk to translate it. Source: wire formats page `chat-completions.md`."""

from typing import Any

import msgspec

from sluicegate.wire.openai_chat_chunk import Delta


class FullDelta(Delta, gc=False):
    """A delta, with what only translation looks at."""

    reasoning_details: Any = None
    annotations: Any = None


class FullChoice(msgspec.Struct, gc=False):
    """One of the answers, or a piece of it."""

    index: Any = None
    delta: FullDelta | None = None
    finish_reason: Any = None
    stop_reason: Any = None
    logprobs: Any = None


class FullChunk(msgspec.Struct, gc=False):
    """A chunk, or an error in its place."""

    id: Any = None
    object: Any = None
    created: Any = None
    type: Any = None
    choices: list[FullChoice] | None = None
    usage: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    service_tier: Any = None
