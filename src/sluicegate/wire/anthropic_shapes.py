"""What is read of a Messages event, or of a whole message. Source: wire formats page `anthropic-messages.md`."""

from typing import Any

import msgspec

_NULL = msgspec.Raw(b"null")


class Block(msgspec.Struct, gc=False):
    """What a content block brings at its start, or all of it in a plain answer."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = _NULL
    citations: list[dict[str, Any]] | None = None
    tool_use_id: str | None = None
    content: msgspec.Raw = _NULL
    """Of a tool's result."""


class Delta(msgspec.Struct, gc=False):
    """The delta of a block, or of the message at its end."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: dict[str, Any] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None


class Message(msgspec.Struct, gc=False):
    """A message: at the start of a stream without content, or a whole answer."""

    type: str = ""
    id: Any = None
    model: Any = None
    content: msgspec.Raw = _NULL
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class StreamPiece(msgspec.Struct, gc=False):
    """An event's payload."""

    type: str = ""
    index: int | None = None
    delta: Delta | None = None
    content_block: Block | None = None
    message: Message | None = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class AnyEvent(msgspec.Struct, gc=False):
    """As much of an event as every event has, whatever its type."""

    type: Any = None
    index: Any = None
    delta: Any = None
    content_block: Any = None
