"""One event of a Messages stream, or one whole message, read: the fields that metering and translation need.

Fields that nobody here reads are not looked at. What does not fit the known types is still an event, of which only
its type is known. Source: wire formats page `anthropic-messages.md`.
"""

from collections.abc import Iterator

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import StreamError
from sluicegate.wire import json_edit
from sluicegate.wire.anthropic_shapes import AnyEvent, Block, Delta, Message, StreamPiece
from sluicegate.wire.half_characters import HalfCharacters
from sluicegate.wire.sse import MAX_EVENT_BYTES, EventReader
from sluicegate.wire.upstream_errors import is_nothing, read_stream_error

FORMAT = "messages"
_NULL = msgspec.Raw(b"null")


KNOWN_EVENTS = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    }
)
KNOWN_DELTAS = frozenset(
    {"text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta"}
)
KNOWN_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
"""Blocks that every client knows; all others are a vendor's own tools and their results."""

_decode_piece = msgspec.json.Decoder(StreamPiece).decode
_decode_shape = msgspec.json.Decoder(AnyEvent).decode
_decode_message = msgspec.json.Decoder(Message).decode
_decode_blocks = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_block = msgspec.json.Decoder(Block).decode
_BROKEN = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def decode_piece(payload: bytes) -> StreamPiece:
    """Decode an event whose JSON is whole; of one that is not of a known shape only its type is told.

    Raises:
        DecodeError: not a JSON object, or of a known type but not of its shape.
    """
    try:
        return _decode_piece(payload)
    except _BROKEN:
        pass
    try:
        shape = _decode_shape(payload)
    except _BROKEN:
        raise DecodeError(FORMAT, None, "an event is not a JSON object") from None
    index = shape.index if type(shape.index) is int else None
    delta, block = _type_of(shape.delta), _type_of(shape.content_block)
    if shape.type == "content_block_delta" and index is not None and delta and delta not in KNOWN_DELTAS:
        return StreamPiece(type="content_block_delta", index=index, delta=Delta(type=delta))
    if shape.type == "content_block_start" and index is not None and block and block not in KNOWN_BLOCKS:
        return StreamPiece(type="content_block_start", index=index, content_block=Block(type=block))
    if not isinstance(shape.type, str) or shape.type in KNOWN_EVENTS:
        raise DecodeError(FORMAT, None, "an event is not of its type's shape")
    return StreamPiece(type=shape.type)


def _type_of(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def decode_message(body: bytes) -> tuple[Message, list[Block]]:
    """Decode a whole message and its blocks; a block of unknown shape is told by its type.

    Args:
        body: one JSON object, its characters whole (`whole_characters`).

    Raises:
        DecodeError: no message, and no error either.
    """
    try:
        message = _decode_message(body)
        if failure(message.error) is not None or message.type == "error":
            return message, []
        raws = _decode_blocks(message.content)
    except _BROKEN:
        raise DecodeError(FORMAT, None, "the answer is not a message") from None
    return message, [_block(raw) for raw in raws]


def _block(raw: msgspec.Raw) -> Block:
    try:
        return _decode_block(raw)
    except _BROKEN:
        kind = _type_of(json_edit.loads(bytes(raw), FORMAT))
        if not kind or kind in KNOWN_BLOCKS:
            raise DecodeError(FORMAT, None, "a content block is not of its type's shape") from None
        return Block(type=kind)


def failure(raw: msgspec.Raw | msgspec.UnsetType) -> StreamError | None:
    """Return the error that an `error` member tells, or None."""
    if raw is msgspec.UNSET or is_nothing(bytes(raw)):
        return None
    error = read_stream_error(bytes(raw))
    try:
        value = msgspec.json.decode(raw)
    except _BROKEN:  # a number beyond all bounds
        return error
    details = value.get("details") if isinstance(value, dict) else None
    if error.code is None and isinstance(details, dict) and isinstance(details.get("error_code"), str):
        error.code = details["error_code"]
    return error


class PieceReader:
    """Cuts a stream's bytes into events whose characters are whole, each with its type in its payload."""

    __slots__ = ("_halves", "_reader", "repaired")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._reader = EventReader(max_event_bytes)
        self._halves = HalfCharacters()
        self.repaired = False
        """Something in the framing or in the characters was put right."""

    @property
    def clean(self) -> bool:
        """Whether the bytes so far ended exactly at an event's end, and no event waits for the next."""
        return self._reader.clean and not self._halves.waits

    def feed(self, data: bytes) -> Iterator[tuple[bytes, StreamPiece]]:
        """Take the next bytes and yield each event's payload, on one line, and what it says.

        Raises:
            DecodeError: an event is no event of this format, or too long.
        """
        for name, payload in self._reader.feed(data):
            if (
                payload.startswith(b'{"type":')
                and payload.endswith(b"}")
                and not self._halves.waits
                and payload.isascii()
                and payload.find(b"\\u") < 0
                and payload.find(b"\n") < 0
            ):
                piece = decode_piece(payload)  # nearly every event: whole, and its type is in it
                if piece.type:
                    yield payload, piece
                    continue
            yield from self._take(name, payload)

    def finish(self) -> Iterator[tuple[bytes, StreamPiece]]:
        """Take the end of the body.

        Raises:
            DecodeError: the body ended inside an event.
        """
        for name, payload in self._reader.finish():
            yield from self._take(name, payload)
        for payload in self._halves.cut_off():
            yield payload, decode_piece(payload)

    def _take(self, name: bytes, payload: bytes) -> Iterator[tuple[bytes, StreamPiece]]:
        payload = payload.strip()
        if not payload.startswith(b"{"):
            if name == b"error":
                text = payload.decode(errors="replace")
                yield payload, StreamPiece(type="error", error=msgspec.Raw(msgspec.json.encode(text)))
            elif payload != b"[DONE]" and name.decode(errors="replace") in KNOWN_EVENTS - {"ping"}:
                raise DecodeError(FORMAT, None, "an event is not a JSON object")
            return
        if 0x0A in payload:
            yield from self._take_lines(name, payload)
        elif not self._halves.waits and not json_edit.may_escape(payload) and payload.isascii():
            yield from self._named(name, payload)
        else:
            for whole in self._halves.mend(payload):
                yield from self._named(name, whole)
            self.repaired |= self._halves.repaired

    def _take_lines(self, name: bytes, payload: bytes) -> Iterator[tuple[bytes, StreamPiece]]:
        """Read data of several lines: one object, or several that lost the blank lines between them."""
        lines = payload.split(b"\n")
        joined = b" ".join(lines)
        if json_edit.is_json(joined) or not all(json_edit.is_json(line) for line in lines):
            yield from self._take(name, joined)
            return
        self.repaired = True
        for line in lines:
            yield from self._take(b"", line)

    def _named(self, name: bytes, payload: bytes) -> Iterator[tuple[bytes, StreamPiece]]:
        piece = decode_piece(payload)
        if not piece.type:
            piece.type = name.decode(errors="replace") or ("error" if failure(piece.error) else "")
            if not piece.type:
                return  # no client would see it
            self.repaired = True
            payload = json_edit.changed(payload, {"type": msgspec.json.encode(piece.type)})
        yield payload, piece
