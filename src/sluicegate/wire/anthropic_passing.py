"""Messages on the same format: events pass byte for byte, but for edits at token offsets.

What is always put right: the model as the client asked for it, the id where it is missing or hidden, one start, the
stop reason, usage and the end. With `repair` also block indexes, starts and stops. The last `message_delta` is held
for settlement and leaves, with the cost in its usage, only in the farewell. Source: wire formats page
`anthropic-messages.md`; contract M1, M2, C3, C7.
"""

import msgspec

from sluicegate.errors import DecodeError, SluicegateError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, anthropic_errors, json_edit, usual_event
from sluicegate.wire.anthropic_answer_decoder import DELTA_PREFIX
from sluicegate.wire.anthropic_event import (
    FORMAT,
    KNOWN_BLOCKS,
    KNOWN_DELTAS,
    KNOWN_EVENTS,
    PieceReader,
    decode_piece,
    failure,
)
from sluicegate.wire.anthropic_folding import unfold
from sluicegate.wire.anthropic_passed_answer import AnthropicAnswer, right_stop_reason, with_our_ids
from sluicegate.wire.anthropic_shapes import Block, Delta, Message, StreamPiece
from sluicegate.wire.anthropic_stop import read_stop_reason
from sluicegate.wire.anthropic_usage import RunningUsage, settled_usage, write_usage
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.sse import frame_named
from sluicegate.wire.translation import Asked, PassOptions
from sluicegate.wire.upstream_errors import read_stream_error
from sluicegate.wire.usual_event import UsualEvent

_NULL = msgspec.Raw(b"null")
_STOP = b'{"type":"message_stop"}'
_COST = ("cost", "cost_nano_usd")
_EMPTY_BLOCKS = {
    "text_delta": ("text", b'{"type":"text","text":""}'),
    "thinking_delta": ("thinking", b'{"type":"thinking","thinking":"","signature":""}'),
}


class _OpenBlock:
    """A content block that has begun and not ended."""

    __slots__ = ("deltas", "given_input", "index", "kind")

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.index = index
        """As the client knows it."""
        self.deltas = 0
        self.given_input = b""
        """Input that the start held, which leaves as a delta if no other comes."""


class AnthropicStream:
    """One streamed message between a provider and a client of the same format. See `StreamCodec`."""

    joins_usage = True

    def __init__(self, asked: Asked, options: PassOptions) -> None:
        self._asked = asked
        self._count_text = options.count_text
        self._repair = options.repair
        self._max_event_bytes = options.max_event_bytes
        self._reader = PieceReader(options.max_event_bytes)

        self.out: list[bytes] = []
        self.content = False
        self.finishing = False
        self.ended = False
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id: str | None = None

        self._put_right = False
        self._started = False
        self._totals = RunningUsage()
        self._input_is_told = False
        """The client knows the true input from the start event."""
        self._blocks: dict[int, _OpenBlock] = {}
        """Open ones, by the provider's index."""
        self._next_index = 0
        self._called = False
        self._reason: str | None = None
        """The provider's stop reason, or the right one; None while the answer runs."""
        self._last: bytes | None = None
        """All `message_delta` events so far, as one."""
        self._stop = _STOP
        self._usual: UsualEvent | None = None
        """None also whenever an event may not pass without being looked at."""
        self._usual_block: _OpenBlock | None = None

    @property
    def held(self) -> bool:
        """Whether the finish is held back."""
        return self._reason is not None and not self.ended

    @property
    def repaired(self) -> bool:
        """Whether anything beyond the contract's own edits had to be put right."""
        return self._put_right or self._reader.repaired

    # ---- bytes in -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body; what comes after the end or an error is not looked at.

        Raises:
            DecodeError: an event breaks the format, or is too long.
        """
        usual = self._usual
        if usual is not None and self._reader.clean and len(data) <= self._max_event_bytes:
            # The usual read: events that differ from the one before only inside their text.
            events = usual.rewrite_read(data)
            if events is not None:
                self._count_text(usual.text)
                self.out.append(events)
                return
        if self._is_over():
            return
        for payload, piece in self._reader.feed(data):
            self._take(payload, piece)
            if self._is_over():
                return

    def _is_over(self) -> bool:
        """Whether nothing that comes is looked at any more; asked anew after each event, as each may end it."""
        return self.ended or self.error is not None

    def finish(self) -> None:
        """Take the end of the body.

        Raises:
            DecodeError: the answer was cut: `message_stop` never came.
        """
        if self._is_over():
            return
        for payload, piece in self._reader.finish():
            self._take(payload, piece)
            if self._is_over():
                return
        raise DecodeError(FORMAT, None, "the stream ended without message_stop")

    def feed_whole(self, body: bytes) -> None:
        """Take an answer that came as one message instead of a stream.

        Raises:
            DecodeError: it is no message.
        """
        answer = AnthropicAnswer(self._asked, body)
        if answer.error is not None:
            self.error = answer.error
            return
        for payload in unfold(answer.body):
            self._take(payload, decode_piece(payload))

    def _take(self, payload: bytes, piece: StreamPiece) -> None:
        error = failure(piece.error)
        if error is None and piece.type == "error":
            error = read_stream_error(payload)
        if error is not None:
            self.error = error
            self._usual = None
            return
        match piece.type:
            case "content_block_delta" if piece.delta is not None:
                self._take_delta(payload, piece.index or 0, piece.delta)
            case "content_block_start" if piece.content_block is not None:
                self._take_block(payload, piece.index or 0, piece.content_block)
            case "content_block_stop":
                self._take_block_stop(payload, piece.index or 0)
            case "message_start":
                self._take_start(payload, piece.message or Message())
            case "message_delta":
                self._take_last(payload, piece)
            case "message_stop":
                self._take_stop(payload)
            case "ping":
                if self._reason is None:
                    self._put("ping", payload)
            case _ if piece.type not in KNOWN_EVENTS:
                self._before_content()
                self.content = True
                self._put(piece.type, payload)

    def _put(self, name: str, payload: bytes) -> None:
        self.out.append(frame_named(name.encode(), with_our_ids(payload, self._asked)))

    # ---- the start ------------------------------------------------------------------------------------------------

    def _take_start(self, payload: bytes, message: Message) -> None:
        if self._started:
            self._put_right = True
            return
        self._started = True
        if isinstance(message.id, str) and message.id:
            self.upstream_id = message.id
        self._totals.take_start(message.usage)
        self.usage = self._totals.normalised()
        self._input_is_told = self._totals.knows_input()
        self._put("message_start", self._edit_start(payload, message))

    def _edit_start(self, payload: bytes, message: Message) -> bytes:
        members = {member.key: member for member in json_edit.inner_members(payload, 0)}
        at = members["message"].start if "message" in members else None
        if at is None or payload[at : at + 1] != b"{":
            raise DecodeError(FORMAT, None, "message_start has no message")
        inner = json_edit.inner_members(payload, at)
        present = {member.key: member for member in inner}
        wanted = {"model": msgspec.json.encode(self._asked.model)}
        if self.upstream_id is None or self._asked.hide_provider:
            wanted["id"] = msgspec.json.encode("msg_" + self._asked.id)
        if self._repair:
            repairs = {"type": b'"message"', "role": b'"assistant"', "content": b"[]", "stop_reason": b"null"}
            for key, right in repairs.items():
                member = present.get(key)
                if member is None or payload[member.start : member.end] != right:
                    wanted[key] = right
                    self._put_right |= key not in ("stop_reason", "type")
        edits = []
        usage_at = present["usage"].start if "usage" in present else None
        if usage_at is None or payload[usage_at : usage_at + 1] != b"{":
            wanted["usage"] = write_usage(Usage(input_tokens=self._estimate(), output_tokens=1))
        else:
            counts = {} if self._input_is_told else {"input_tokens": b"%d" % self._estimate()}
            usage = json_edit.inner_members(payload, usage_at)
            if not any(member.key == "output_tokens" for member in usage):
                counts["output_tokens"] = b"1"
            edits = json_edit.edits(payload, usage, counts, _COST, start=usage_at)
        edits += json_edit.edits(payload, inner, wanted, start=at)
        return json_edit.splice(payload, edits)

    def _estimate(self) -> int:
        """Return what the client is told of its input before the provider has counted it; never zero."""
        return max(1, self._asked.input_estimate)

    def _before_content(self) -> None:
        """See to it that the message has begun and is not over."""
        if not self._started:
            self._put_right = True
            start = b'{"type":"message_start","message":{"content":[]}}'
            self._take_start(start, decode_piece(start).message or Message())
        if self._reason is not None:  # it was no finish
            self._reason = self.finish_reason = None
            self._put_right = True

    # ---- blocks ---------------------------------------------------------------------------------------------------

    def _take_block(self, payload: bytes, index: int, start: Block) -> None:
        self._before_content()
        self._usual = None
        if self._repair:
            self._close_blocks()
        block = self._blocks[index] = _OpenBlock(start.type, self._next_index if self._repair else index)
        self._next_index += 1
        if start.type == "tool_use":
            self._called = True
        for text in (start.text, start.thinking, start.name):
            if text:
                self._count_text(text)
        if start.text or start.thinking or start.type not in ("text", "thinking"):
            self.content = True
        edits = self._index_edits(payload, index, block)
        owed: list[bytes] = []
        if self._repair and start.type in KNOWN_BLOCKS:
            edits += self._edit_block(payload, block, start, owed)
        self._put("content_block_start", json_edit.splice(payload, edits))
        self.out += owed

    def _edit_block(self, payload: bytes, block: _OpenBlock, start: Block, owed: list[bytes]) -> list[Edit]:
        """Put right what a block's start must hold; what it holds too early is owed as a delta."""
        wanted: dict[str, bytes] = {}
        if block.kind == "tool_use":
            if not start.name:
                raise DecodeError(FORMAT, None, "a tool call has no name")
            if not start.id:
                wanted["id"] = msgspec.json.encode(f"toolu_{self._asked.id}_{block.index}")
            given = bytes(start.input)
            if given != b"{}":
                wanted["input"] = b"{}"
                block.given_input = given if given.startswith(b"{") else b""
        elif block.kind in ("text", "thinking"):
            text = start.text if block.kind == "text" else start.thinking
            if text != "":
                wanted[block.kind] = b'""'
            if text:
                block.deltas += 1
                owed.append(self._delta(block, f"{block.kind}_delta", block.kind, text))
        if not wanted:
            return []
        self._put_right = True
        at = next(
            member.start
            for member in reversed(json_edit.inner_members(payload, 0))
            if member.key == "content_block"
        )
        return json_edit.settings(payload, at, wanted)

    def _delta(self, block: _OpenBlock, kind: str, key: str, text: str) -> bytes:
        payload = b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}' % (
            block.index,
            kind.encode(),
            key.encode(),
            msgspec.json.encode(text),
        )
        return frame_named(b"content_block_delta", payload)

    def _index_edits(self, payload: bytes, index: int, block: _OpenBlock) -> list[Edit]:
        """Give an event the index that the client knows the block by."""
        if not self._repair or index == block.index:
            return []
        self._put_right = True
        return json_edit.settings(payload, 0, {"index": b"%d" % block.index})

    def _take_delta(self, payload: bytes, index: int, delta: Delta) -> None:
        texts = (delta.text, delta.thinking, delta.partial_json)
        text = next((text for text in texts if text), None)
        brings = bool(text or delta.signature or delta.citation) or delta.type not in KNOWN_DELTAS
        if brings or not self._started:
            self._before_content()
            self.content |= brings
        if text:
            self._count_text(text)
        block = self._blocks.get(index)
        if block is None:
            if not self._repair:
                self._put("content_block_delta", payload)
                return
            block = self._open_missing(index, delta.type)
        if text:
            block.given_input = b""  # it is told anew; an empty piece tells nothing
        edits = self._index_edits(payload, index, block)
        edited = json_edit.splice(payload, edits)
        self._put("content_block_delta", edited)
        if text:
            block.deltas += 1
            self._learn(payload, edited, block, delta, text)

    def _learn(self, payload: bytes, edited: bytes, block: _OpenBlock, delta: Delta, text: str) -> None:
        """Remember an event of a block that has had one already: the next of its kind needs no decoding."""
        if block.deltas < 2 or self._usual_block is block:
            return
        self._usual_block = block
        keys = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
        key = keys.get(delta.type)
        if key is not None:
            self._usual = usual_event.learn(payload, edited, key, text, None, DELTA_PREFIX)

    def _open_missing(self, index: int, delta_type: str) -> _OpenBlock:
        """Begin a block whose start never came, or that was over."""
        if delta_type not in _EMPTY_BLOCKS:
            raise DecodeError(FORMAT, None, "a delta belongs to no block")
        self._put_right = True
        kind, start = _EMPTY_BLOCKS[delta_type]
        self._close_blocks()
        block = self._blocks[index] = _OpenBlock(kind, self._next_index)
        self._next_index += 1
        event = b'{"type":"content_block_start","index":%d,"content_block":%b}' % (block.index, start)
        self._put("content_block_start", event)
        return block

    def _take_block_stop(self, payload: bytes, index: int) -> None:
        block = self._blocks.pop(index, None)
        self._usual = None
        if block is None:
            if self._repair:
                self._put_right = True
            else:
                self._put("content_block_stop", payload)
            return
        self._put_given_input(block)
        edits = self._index_edits(payload, index, block)
        self._put("content_block_stop", json_edit.splice(payload, edits))

    def _put_given_input(self, block: _OpenBlock) -> None:
        if block.given_input:
            text = block.given_input.decode()
            self._count_text(text)
            self.out.append(self._delta(block, "input_json_delta", "partial_json", text))

    def _close_blocks(self) -> None:
        """End the blocks that are still open."""
        for block in self._blocks.values():
            self._put_right = True
            self._put_given_input(block)
            self._put("content_block_stop", b'{"type":"content_block_stop","index":%d}' % block.index)
        self._blocks.clear()
        self._usual = None

    # ---- the end --------------------------------------------------------------------------------------------------

    def _take_last(self, payload: bytes, piece: StreamPiece) -> None:
        self._usual = None
        self._totals.take(piece.usage)
        self.usage = self._totals.normalised()
        self._last = payload if self._last is None else _merged(self._last, payload)
        reason = piece.delta.stop_reason if piece.delta is not None else None
        if reason:
            self._hold(reason)

    def _hold(self, reason: str) -> None:
        if self._repair:
            self._close_blocks()
        self._reason = right_stop_reason(reason, called=self._called)
        self._put_right |= self._reason != reason
        self.finish_reason = read_stop_reason(self._reason)

    def _take_stop(self, payload: bytes) -> None:
        if self._reason is None:
            if not self.content and self._last is None:
                raise DecodeError(FORMAT, None, "the stream ended without any output")
            self._put_right = True
            self._hold("end_turn")
        self._stop = payload
        self.ended = True
        self._usual = None

    def flush(self) -> None:
        """Nothing waits here but the finish."""

    def release(self) -> None:
        """Put out nothing: the finish waits for usage."""

    def farewell(self, bill: Bill | None) -> bytes:
        """Return `message_delta`, with usage as it was settled, and `message_stop`."""
        event = self._last or b'{"type":"message_delta","delta":{}}'
        members = {member.key: member for member in json_edit.inner_members(event, 0)}
        wanted: dict[str, bytes] = {}
        reason = msgspec.json.encode(self._reason or right_stop_reason("end_turn", called=self._called))
        delta = members.get("delta")
        if delta is None or event[delta.start : delta.start + 1] != b"{":
            wanted["delta"] = b'{"stop_reason":%b,"stop_sequence":null}' % reason
        else:
            wanted["delta"] = json_edit.changed(event[delta.start : delta.end], {"stop_reason": reason})
        if bill is not None:
            usage = members.get("usage")
            raw = event[usage.start : usage.end] if usage is not None else b""
            wanted["usage"] = settled_usage(
                raw if raw.startswith(b"{") else None,
                bill.usage,
                bill.in_usage,
                repeat_input=not self._input_is_told,
            )
        event = json_edit.changed(event, wanted)
        if bill is not None:
            event = with_members(event, bill.beside_usage)
        event = with_our_ids(event, self._asked)
        return frame_named(b"message_delta", event) + frame_named(b"message_stop", self._stop)

    def failure(self, error: SluicegateError) -> bytes:
        """Return the error event; nothing follows it."""
        return anthropic_errors.error_event(error, "req_" + self._asked.id)


def _merged(first: bytes, second: bytes) -> bytes:
    """Return two `message_delta` events as one: what the later one says stands, what it leaves out stays."""
    old, new = (msgspec.json.decode(event, type=dict[str, msgspec.Raw]) for event in (first, second))
    for key in ("delta", "usage"):
        before, after = (bytes(event.get(key, _NULL)) for event in (old, new))
        if before.startswith(b"{"):
            said = msgspec.json.decode(after, type=dict[str, msgspec.Raw] | None) or {}
            kept = {name: bytes(value) for name, value in said.items() if bytes(value) != b"null"}
            new[key] = msgspec.Raw(json_edit.changed(before, kept))
    return msgspec.json.encode(old | new)
