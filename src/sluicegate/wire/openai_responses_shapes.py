"""What is read of a Responses event, or of a whole response. Source: wire formats page `responses.md`."""

from typing import Any

import msgspec

NULL = msgspec.Raw(b"null")


class Part(msgspec.Struct, gc=False):
    """A content part, or a part of a summary."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[dict[str, Any]] | None = None
    logprobs: list[dict[str, Any]] | None = None


class Item(msgspec.Struct, gc=False):
    """An item of the output, of the kinds that have words in the vocabulary; of others only the type counts."""

    type: str = ""
    id: str | None = None
    status: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    encrypted_content: str | None = None
    content: list[Part] | None = None
    summary: list[Part] | None = None
    action: msgspec.Raw = NULL
    """Of a hosted tool's call."""


class IncompleteDetails(msgspec.Struct, gc=False):
    """Why a response is not whole."""

    reason: str | None = None


class Response(msgspec.Struct, gc=False):
    """The response as lifecycle events tell it, or a whole answer."""

    id: Any = None
    object: Any = None
    created_at: Any = None
    model: Any = None
    status: Any = None
    error: msgspec.Raw = NULL
    incomplete_details: IncompleteDetails | None = None
    output: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL
    tool_usage: msgspec.Raw = NULL
    service_tier: Any = None
    type: Any = None


class Piece(msgspec.Struct, gc=False):
    """An event's payload."""

    type: str = ""
    sequence_number: int | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    name: str | None = None
    item: msgspec.Raw = NULL
    part: msgspec.Raw = NULL
    response: msgspec.Raw = NULL
    annotation: msgspec.Raw = NULL
    logprobs: list[dict[str, Any]] | None = None
    error: msgspec.Raw = NULL


class Typed(msgspec.Struct, gc=False):
    """As much of an item or event as every one has."""

    type: Any = None
    id: Any = None
