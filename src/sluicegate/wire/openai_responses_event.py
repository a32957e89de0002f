"""One event of a Responses stream, or one whole response, read: the fields that metering and translation need.

Items, parts and the response itself are left as they stand until somebody wants them, since they may be large. What
does not fit the known types is still an event, of which only its type is known. Source: wire formats page
`responses.md`.
"""

import contextlib
from typing import Literal, NamedTuple

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import StreamError
from sluicegate.wire.openai_responses_shapes import Item, Part, Piece, Response, Typed
from sluicegate.wire.upstream_errors import is_nothing, read_stream_error

FORMAT = "responses"


Place = Literal["content_index", "summary_index"]
"""How an event names the part it is about: parts of content and of a summary are counted apart."""


class TextFamily(NamedTuple):
    """Events that tell the text of one kind of part: `….delta`, then `….done`."""

    part: str
    item: str
    field: str
    """Holds the whole text, in the part and in the event that ends it."""
    place: Place
    added: str
    done: str


_CONTENT: tuple[Place, str, str] = (
    "content_index",
    "response.content_part.added",
    "response.content_part.done",
)
_SUMMARY: tuple[Place, str, str] = (
    "summary_index",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
)
TEXTS: dict[str, TextFamily] = {
    "response.output_text": TextFamily("output_text", "message", "text", *_CONTENT),
    "response.refusal": TextFamily("refusal", "message", "refusal", *_CONTENT),
    "response.reasoning_text": TextFamily("reasoning_text", "reasoning", "text", *_CONTENT),
    "response.reasoning_summary_text": TextFamily("summary_text", "reasoning", "text", *_SUMMARY),
}
ARGUMENTS = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
}
"""Events that tell what a call is given: the item's type, and the field that holds all of it."""
PART_EVENTS: dict[str, Place] = {
    "response.content_part": "content_index",
    "response.reasoning_summary_part": "summary_index",
}
STARTS = frozenset({"response.created", "response.in_progress", "response.queued"})
ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_ITEMS = frozenset({"response.output_item.added", "response.output_item.done"})
KNOWN_EVENTS = (
    STARTS
    | ENDS
    | _ITEMS
    | {f"{family}.{end}" for family in (*TEXTS, *ARGUMENTS) for end in ("delta", "done")}
    | {f"{family}.{end}" for family in PART_EVENTS for end in ("added", "done")}
    | {"response.output_text.annotation.added", "error"}
)
"""Events that are understood; of any other one only its type is."""


_decode_piece = msgspec.json.Decoder(Piece).decode
_decode_typed = msgspec.json.Decoder(Typed).decode
_decode_item = msgspec.json.Decoder(Item).decode
_decode_part = msgspec.json.Decoder(Part).decode
_decode_response = msgspec.json.Decoder(Response).decode
_decode_output = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BROKEN = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_KNOWN_ITEMS = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
_BAD_REQUEST_CODES = frozenset(
    {
        "invalid_prompt",
        "bio_policy",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    }
)
"""Codes of a failed response that the client's own input is to blame for."""


def decode_piece(payload: bytes) -> Piece:
    """Decode an event whose JSON is whole; of one that is not of a known shape only its type is told.

    Raises:
        DecodeError: not a JSON object, or of a known type but not of its shape.
    """
    try:
        return _decode_piece(payload)
    except _BROKEN:
        pass
    try:
        kind = _decode_typed(payload).type
    except _BROKEN:
        raise DecodeError(FORMAT, None, "an event is not a JSON object") from None
    if isinstance(kind, str) and kind in KNOWN_EVENTS:
        raise DecodeError(FORMAT, None, "an event is not of its type's shape")
    return Piece(type=kind if isinstance(kind, str) else "")


def decode_item(raw: msgspec.Raw) -> Item:
    """Decode an item; one of a kind that nobody here knows is told by type and id.

    Raises:
        DecodeError: it has no type, or not the shape of it.
    """
    try:
        typed = _decode_typed(raw)
        if not isinstance(typed.type, str):
            raise DecodeError(FORMAT, None, "an output item has no type")
        if typed.type in _KNOWN_ITEMS:
            return _decode_item(raw)
        if typed.type == "web_search_call":
            with contextlib.suppress(*_BROKEN):
                return _decode_item(raw)
        return Item(type=typed.type, id=typed.id if isinstance(typed.id, str) else None)
    except _BROKEN:
        raise DecodeError(FORMAT, None, "an output item is not of its type's shape") from None


def decode_part(raw: msgspec.Raw) -> Part:
    """Decode a part; one that is not of a known shape is told by its type.

    Raises:
        DecodeError: it is no object.
    """
    try:
        return _decode_part(raw)
    except _BROKEN:
        pass
    try:
        kind = _decode_typed(raw).type
    except _BROKEN:
        raise DecodeError(FORMAT, None, "a content part is not an object") from None
    return Part(type=kind if isinstance(kind, str) else "")


def decode_response(raw: bytes | msgspec.Raw) -> Response:
    """Decode a response, without its output.

    Raises:
        DecodeError: it is none.
    """
    try:
        return _decode_response(raw)
    except _BROKEN:
        raise DecodeError(FORMAT, None, "the response is not of its shape") from None


def output_of(response: Response) -> list[msgspec.Raw]:
    """Return the items of a response.

    Raises:
        DecodeError: its output is no list.
    """
    try:
        return _decode_output(response.output) if bytes(response.output) != b"null" else []
    except _BROKEN:
        raise DecodeError(FORMAT, None, "the response's output is not a list") from None


def status_of(kind: str, response: Response) -> str:
    """Return how a response ended, by its terminal event; one that says completed may hold one that is not."""
    if kind == "response.completed" and response.status == "incomplete":
        return "incomplete"
    return kind.removeprefix("response.")


def failure(payload: bytes, piece: Piece) -> StreamError | None:
    """Return the error that an event tells, in either known shape, or None."""
    nested = bytes(piece.error)
    if not is_nothing(nested):
        return _read_error(nested)
    if piece.type == "error":
        return _read_error(payload)
    if piece.type in ENDS:
        return failed_response(decode_response(piece.response), piece.type.removeprefix("response."))
    return None


def failed_response(response: Response, status: str | None = None) -> StreamError | None:
    """Return why a response failed; None for one that did not.

    Args:
        status: what the event's type says of it.
    """
    error = bytes(response.error)
    if not is_nothing(error):
        return _read_error(error)
    if status in ("failed", "cancelled") or response.status in ("failed", "cancelled"):
        return StreamError(status=500, message="the provider's response failed", code="server_error")
    return None


def _read_error(raw: bytes) -> StreamError:
    error = read_stream_error(raw)
    if error.code in _BAD_REQUEST_CODES:
        error.status = 400
    return error


def text_of(part: Part) -> str:
    """Return a part's text, whatever its kind."""
    return part.text or part.refusal or ""
