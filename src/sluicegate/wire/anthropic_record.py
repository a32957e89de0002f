"""What a Messages provider has said, block by block as it said it: to be sent back when it is to go on.

The bytes of a block are the provider's own; of a streamed one the deltas are put in their places. Blocks are only ever
sent back to who made them. Source: wire formats page `anthropic-messages.md`.
"""

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.wire import json_edit
from sluicegate.wire.anthropic_event import FORMAT, PieceReader
from sluicegate.wire.anthropic_shapes import StreamPiece
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.sse import BOM

MAX_BYTES = 16_777_216
"""Of an answer that is kept for this; a longer one is not gone on with."""
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking"}
_STREAM_MARKS = (b"data:", b"event:", b":", b"id:", b"retry:")
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _RecordedBlock:
    """A streamed block: its start, and what came to it."""

    __slots__ = ("citations", "pieces", "signature", "start")

    def __init__(self, start: bytes) -> None:
        self.start = start
        self.pieces: dict[str, list[str]] = {}
        """By the member that they belong to."""
        self.citations: list[bytes] = []
        self.signature: str | None = None

    def whole(self) -> bytes:
        """Return the block. Raises DecodeError where its pieces make no block."""
        top = json_edit.decode_top(self.start, FORMAT)
        wanted: dict[str, bytes] = {}
        for key, pieces in self.pieces.items():
            joined = "".join(pieces)
            if key == "input":
                if joined and not json_edit.is_json(joined.encode()):
                    raise DecodeError(FORMAT, None, "a tool's input is not JSON")
                if joined:
                    wanted[key] = joined.encode()
            else:
                wanted[key] = json_edit.dumps(_text(top.get(key)) + joined)
        if self.citations:
            before = top.get("citations", msgspec.Raw(b"null"))
            given = _decode_items(before) if bytes(before).startswith(b"[") else []
            wanted["citations"] = b"[%b]" % b",".join([*map(bytes, given), *self.citations])
        if self.signature is not None:
            wanted["signature"] = json_edit.dumps(self.signature)
        return json_edit.changed(self.start, wanted) if wanted else self.start


class AnswerRecord:
    """The content of an answer so far, over all its calls."""

    def __init__(self) -> None:
        self.container: str | None = None
        """The provider's id of the container in which its tools worked."""
        self._blocks: list[bytes | _RecordedBlock] = []
        self._open: dict[int, _RecordedBlock] = {}
        self._reader = PieceReader()
        self._bytes = 0
        self._lost = False
        """Something came that has no place in a block."""

    def next_call(self) -> None:
        """Take what follows as another call's answer."""
        self._open = {}
        self._reader = PieceReader()

    def take(self, data: bytes) -> None:
        """Take the next bytes of a stream."""
        self._bytes += len(data)
        if self._lost or self._bytes > MAX_BYTES:
            self._lost = True
            return
        try:
            for payload, piece in self._reader.feed(data):
                self._take(payload, piece)
        except (DecodeError, KeyError, msgspec.DecodeError):
            self._lost = True

    def take_whole(self, body: bytes) -> None:
        """Take an answer that is not streamed, or one that came as a stream all the same."""
        body = body.removeprefix(BOM).strip()
        if body.startswith(_STREAM_MARKS):
            self.take(body + b"\n\n")
            return
        self._bytes += len(body)
        try:
            top = json_edit.decode_top(whole_characters(body), FORMAT)
            self._blocks += map(bytes, _decode_items(top["content"]))
            self._note_container(top.get("container"))
        except (DecodeError, KeyError, msgspec.DecodeError):
            self._lost = True

    def content(self) -> list[bytes] | None:
        """Return the blocks so far, as a request takes them; None where they are not known as they came."""
        if self._lost or self._bytes > MAX_BYTES:
            return None
        try:
            whole = [block if isinstance(block, bytes) else block.whole() for block in self._blocks]
            said = [block for block in whole if not _is_empty_text(block)]
        except (DecodeError, msgspec.DecodeError):
            return None
        self._blocks = list(whole)
        return said

    def _take(self, payload: bytes, piece: StreamPiece) -> None:
        match piece.type:
            case "content_block_start":
                start = bytes(json_edit.decode_top(payload, FORMAT)["content_block"])
                block = self._open[piece.index or 0] = _RecordedBlock(start)
                self._blocks.append(block)
            case "content_block_delta":
                self._take_delta(payload, piece)
            case "message_start" | "message_delta":
                top = json_edit.decode_top(payload, FORMAT)
                inner = top.get("message" if piece.type == "message_start" else "delta")
                if inner is not None:
                    self._note_container(json_edit.decode_top(bytes(inner), FORMAT).get("container"))

    def _take_delta(self, payload: bytes, piece: StreamPiece) -> None:
        block, delta = self._open.get(piece.index or 0), piece.delta
        if block is None or delta is None:
            self._lost = True
            return
        match delta.type:
            case "text_delta" | "thinking_delta":
                text = delta.text if delta.type == "text_delta" else delta.thinking
                block.pieces.setdefault(_TEXTS[delta.type], []).append(text or "")
            case "input_json_delta":
                block.pieces.setdefault("input", []).append(delta.partial_json or "")
            case "signature_delta":
                block.signature = delta.signature or block.signature
            case "citations_delta":
                told = json_edit.decode_top(payload, FORMAT)["delta"]
                block.citations.append(bytes(json_edit.decode_top(bytes(told), FORMAT)["citation"]))
            case _:
                self._lost = True

    def _note_container(self, raw: msgspec.Raw | None) -> None:
        value = None if raw is None else json_edit.loads(bytes(raw))
        id = value.get("id") if isinstance(value, dict) else None
        self.container = id if isinstance(id, str) and id else self.container


def _text(raw: msgspec.Raw | None) -> str:
    value = None if raw is None else json_edit.loads(bytes(raw))
    return value if isinstance(value, str) else ""


def _is_empty_text(block: bytes) -> bool:
    """Whether a block is one that a request may not hold."""
    top = json_edit.decode_top(block, FORMAT)
    return _text(top.get("type")) == "text" and not _text(top.get("text"))
