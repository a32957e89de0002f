"""A streamed message folded into the whole one it tells, and a whole message unfolded into its stream.

Both keep unknown fields, and the spelling of what a tool was given. Used where a provider answers in the other way than
it was asked, and to write plain answers, which so cannot differ from streamed ones.
"""

from collections.abc import Iterable

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.wire.anthropic_event import FORMAT, PieceReader, failure
from sluicegate.wire.anthropic_shapes import StreamPiece

Object = dict[str, msgspec.Raw]
_decode = msgspec.json.Decoder(Object).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_NULL, _EMPTY = msgspec.Raw(b"null"), msgspec.Raw(b'""')


class _Folding:
    """One message as it grows."""

    def __init__(self) -> None:
        self.message: Object | None = None
        self.usage: Object = {}
        self.blocks: list[_FoldedBlock] = []
        self.open: dict[int, _FoldedBlock] = {}

    def take(self, payload: bytes, piece: StreamPiece) -> None:
        top = _decode(payload)
        match piece.type:
            case "message_start":
                self.message = _decode(top["message"])
                self._take_usage(self.message.pop("usage", _NULL))
            case "content_block_start":
                block = self.open[piece.index or 0] = _FoldedBlock(_decode(top["content_block"]))
                self.blocks.append(block)
            case "content_block_delta" if piece.index in self.open:
                self.open[piece.index].take(piece, _decode(top["delta"]))
            case "message_delta" if self.message is not None:
                self.message |= _decode(top.pop("delta", msgspec.Raw(b"{}")))
                self._take_usage(top.pop("usage", _NULL))
                del top["type"]
                self.message |= top

    def _take_usage(self, raw: msgspec.Raw) -> None:
        if bytes(raw) != b"null":
            self.usage |= {key: value for key, value in _decode(raw).items() if bytes(value) != b"null"}

    def body(self) -> bytes:
        assert self.message is not None, "message_stop came after message_start"
        content = msgspec.Raw(_encode([block.whole() for block in self.blocks]))
        return _encode(self.message | {"content": content, "usage": msgspec.Raw(_encode(self.usage))})


class _FoldedBlock:
    """One content block as it grows."""

    def __init__(self, members: Object) -> None:
        self._members = members
        self._texts: dict[str, list[str]] = {}
        self._citations: list[msgspec.Raw] = []

    def take(self, piece: StreamPiece, delta: Object) -> None:
        assert piece.delta is not None, "it has a delta"
        kind = piece.delta.type
        if kind == "text_delta":
            self._add("text", piece.delta.text)
        elif kind == "thinking_delta":
            self._add("thinking", piece.delta.thinking)
        elif kind == "input_json_delta":
            self._add("input", piece.delta.partial_json)
        elif kind == "signature_delta":
            self._members["signature"] = delta.get("signature", _EMPTY)
        elif kind == "citations_delta" and "citation" in delta:
            self._citations.append(delta["citation"])

    def _add(self, key: str, text: str | None) -> None:
        if text:
            self._texts.setdefault(key, []).append(text)

    def whole(self) -> Object:
        members = self._members
        for key, texts in self._texts.items():
            text = "".join(texts)
            if key == "input":
                members[key] = msgspec.Raw(_whole_input(text))
            else:
                members[key] = msgspec.Raw(_encode(msgspec.json.decode(members.get(key, _EMPTY)) + text))
        if self._citations:
            members["citations"] = msgspec.Raw(_encode(self._citations))
        return members


def _whole_input(text: str) -> bytes:
    """Return a tool's input; one that was cut cannot stand in an object, so its text does."""
    try:
        return bytes(msgspec.json.decode(text, type=msgspec.Raw))
    except (msgspec.DecodeError, RecursionError):
        return _encode({"_raw": text})


def fold(stream: bytes) -> bytes:
    """Return the message that a whole stream tells, or the error object that it ends with.

    Raises:
        DecodeError: it is no stream of this format, or it was cut.
    """
    folding = _Folding()
    for payload, piece in _pieces(stream):
        if failure(piece.error) is not None or piece.type == "error":
            return payload
        if piece.type == "message_stop" and folding.message is not None:
            return folding.body()
        try:
            folding.take(payload, piece)
        except (KeyError, TypeError, msgspec.DecodeError):
            raise DecodeError(FORMAT, None, "an event is not of its type's shape") from None
    raise DecodeError(FORMAT, None, "the stream ended without message_stop")


def _pieces(stream: bytes) -> Iterable[tuple[bytes, StreamPiece]]:
    reader = PieceReader()
    yield from reader.feed(stream)
    yield from reader.finish()


def unfold(body: bytes) -> list[bytes]:
    """Return the payloads of the stream that would have told a message.

    Args:
        body: a message that was decoded before.
    """
    message = _decode(body)
    blocks = [_decode(raw) for raw in _decode_list(message["content"])]
    end = {key: message[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in message}
    message |= {"content": msgspec.Raw(b"[]"), "stop_reason": _NULL, "stop_sequence": _NULL}
    usage = message.get("usage", msgspec.Raw(b"{}"))
    payloads = [_encode({"type": "message_start", "message": message})]
    for index, block in enumerate(blocks):
        deltas = _taken_out(block)
        payloads.append(_encode({"type": "content_block_start", "index": index, "content_block": block}))
        payloads += [
            _encode({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas
        ]
        payloads.append(_encode({"type": "content_block_stop", "index": index}))
    payloads.append(_encode({"type": "message_delta", "delta": end, "usage": usage}))
    payloads.append(b'{"type":"message_stop"}')
    return payloads


def _taken_out(block: Object) -> list[dict[str, object]]:
    """Take out of a block what its stream tells in deltas, and return those."""
    kind = bytes(block.get("type", _NULL))
    deltas: list[dict[str, object]] = []
    if kind == b'"text"':
        citations = block.pop("citations", _NULL)
        if bytes(citations) != b"null":
            deltas += [{"type": "citations_delta", "citation": raw} for raw in _decode_list(citations)]
        deltas.append({"type": "text_delta", "text": block.get("text", _EMPTY)})
        block["text"] = _EMPTY
    elif kind == b'"thinking"':
        for key, delta in (("thinking", "thinking_delta"), ("signature", "signature_delta")):
            text = block.get(key, _EMPTY)
            if bytes(text) not in (b'""', b"null"):
                deltas.append({"type": delta, key: text})
            block[key] = _EMPTY
    elif kind in (b'"tool_use"', b'"server_tool_use"'):
        given = bytes(block.get("input", _NULL))
        if given not in (b"null", b"{}"):
            deltas.append({"type": "input_json_delta", "partial_json": given.decode()})
        block["input"] = msgspec.Raw(b"{}")
    return deltas
