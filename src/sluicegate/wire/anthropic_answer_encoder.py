"""Answers to a Messages client, streamed or not, out of the events of the common vocabulary.

Blocks stand one after another here, so what a provider lets overlap is put in order: while a call's arguments are not
whole, all else waits. No block is opened before there is something to put into it. Opaque state of other vendors is
sealed into signatures and redacted thoughts, which clients give back as they are. Source: wire formats page
`anthropic-messages.md`; translation matrix, sections 9, 12, 22, 23 and 25.
"""

import msgspec

from sluicegate.errors import SluicegateError
from sluicegate.messages import (
    Citation,
    OpaqueState,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    WebSearch,
)
from sluicegate.wire import Bill, anthropic_errors, json_edit
from sluicegate.wire.anthropic_folding import fold
from sluicegate.wire.anthropic_searches import search_blocks
from sluicegate.wire.anthropic_stop import write_stop_reason
from sluicegate.wire.anthropic_usage import write_usage
from sluicegate.wire.envelope import seal
from sluicegate.wire.json_text import quote
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.sse import frame_named
from sluicegate.wire.told_text import Told
from sluicegate.wire.translation import Asked
from sluicegate.wire.whole_answer import write_stream

PING = b'event: ping\ndata: {"type": "ping"}\n\n'
_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_DELTA_TAIL = b"}}\n\n"
_encode = msgspec.json.Encoder().encode


class _Call:
    """One tool call on its way out."""

    __slots__ = ("custom", "ended", "id", "index", "name", "parts", "streams")

    def __init__(self, start: ToolCallStart) -> None:
        self.index = start.index
        self.id = start.id
        self.name = start.name
        self.custom = start.custom
        self.parts: list[str] = []
        self.ended = False
        self.streams = False
        """Its arguments are an object and leave as they come; others are gathered and wrapped into one."""

    def is_whole(self) -> bool:
        """Whether nothing can follow its arguments."""
        if self.ended or not self.streams:
            return self.ended
        return self.parts[-1].rstrip().endswith("}") and json_edit.is_json("".join(self.parts).encode())

    def wrapped(self) -> str:
        """Return gathered arguments as the object that this format wants."""
        text = "".join(self.parts)
        if self.custom:
            return json_edit.dumps({"input": text}).decode()
        if not text.strip():
            return ""
        if json_edit.is_json(text.encode()):
            return '{"value":' + text.strip() + "}"
        return json_edit.dumps({"_raw": text}).decode()


class AnthropicStreamEncoder:
    """Writes one client's stream. See `StreamEncoder`."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._next_index = 0
        self._open: str | None = None
        """The kind of the open block."""
        self._delta_head = b""
        """All of a delta event of the open block that stands before its text."""
        self._cited = False
        """The open text block has its sources: what follows belongs into another one."""
        self._call: _Call | None = None
        """The call whose block is open."""
        self._call_ids: dict[int, str] = {}
        self._waiting: list[StreamEvent] = []
        """What came while a call was not whole."""

    # ---- start ----------------------------------------------------------------------------------------------------

    def start(self, usage: Usage | None = None) -> bytes:
        """Return `message_start`.

        Args:
            usage: what the provider has said of the input already; else the gate's estimate is told, never zeros.
        """
        if usage is None or not usage.input_tokens:
            usage = Usage(input_tokens=max(1, self._asked.input_estimate))
        usage = msgspec.structs.replace(usage, output_tokens=1, reasoning_tokens=None)
        message = b'"id":%b,"type":"message","role":"assistant","model":%b,"content":[]' % (
            _encode("msg_" + self._asked.id),
            _encode(self._asked.model),
        )
        return frame_named(
            b"message_start",
            b'{"type":"message_start","message":{%b,"stop_reason":null,"stop_sequence":null,"usage":%b}}'
            % (message, write_usage(usage)),
        )

    def take_over(self, told: Told) -> None:
        """Take over an answer that another has begun to write: with the text block that is open."""
        self._next_index = told.last["index"]
        self.event(TextDelta(told.text))

    # ---- content --------------------------------------------------------------------------------------------------

    def event(self, event: StreamEvent) -> bytes:
        """Return the framed events for one content event; may be empty."""
        kind = type(event)
        if kind is TextDelta and self._open == "text" and not self._cited:
            return self._delta_head + quote(event.text) + _DELTA_TAIL  # type: ignore[union-attr]
        call = self._call
        if kind is ToolCallDelta and call is not None and call.streams and not self._waiting:
            assert isinstance(event, ToolCallDelta)
            if event.index == call.index:
                call.parts.append(event.arguments)
                return self._delta_head + quote(event.arguments) + _DELTA_TAIL
        if kind is ReasoningDelta and self._open == "thinking":
            return self._delta_head + quote(event.text) + _DELTA_TAIL  # type: ignore[union-attr]
        if self._must_wait(event):
            self._waiting.append(event)
            return b""
        return self._write(event) + self._catch_up()

    def _must_wait(self, event: StreamEvent) -> bool:
        """Whether an event has to stand behind the open call, whose arguments are not whole yet."""
        call = self._call
        if call is None or call.ended:
            return False
        if isinstance(event, ToolCallDelta | ToolCallEnd):
            return event.index != call.index
        return not call.is_whole()

    def _catch_up(self) -> bytes:
        """Return what waited and need not any longer."""
        out = b""
        while self._waiting and (self._call is None or self._call.is_whole()):
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                if self._must_wait(event):
                    self._waiting.append(event)
                else:
                    out += self._write(event)
            if len(self._waiting) == len(waiting):
                break
        return out

    def _write(self, event: StreamEvent) -> bytes:
        match event:
            case TextDelta() | RefusalDelta():
                return self._text(event.text)
            case ReasoningDelta():
                return self._delta("thinking", event.text)
            case ToolCallStart():
                return self._start_call(event)
            case ToolCallDelta():
                return self._arguments(event)
            case ToolCallEnd():
                return self._end_call(event.index)
            case OpaqueState():
                return self._opaque(event)
            case Citation():
                return self._cite(event)
            case WebSearch():
                return self._search(event)
            case _:  # probabilities: no client of this format can ask for them
                return b""

    def _text(self, text: str) -> bytes:
        closing = self._close() if self._cited else b""
        return closing + self._delta("text", text)

    def _delta(self, kind: str, text: str) -> bytes:
        if not text:
            return b""
        opening = b"" if self._open == kind else self._open_block(kind, _STARTS[kind])
        return opening + self._delta_head + quote(text) + _DELTA_TAIL

    def _open_block(self, kind: str, block: bytes) -> bytes:
        """Close the open block and start another one, which gets deltas of its own kind."""
        closing = self._close()
        index = self._next_index
        self._next_index += 1
        self._open = kind
        delta = _DELTAS.get(kind)
        if delta is not None:
            self._delta_head = (
                b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":' % index
                + delta
            )
        start = b'{"type":"content_block_start","index":%d,"content_block":%b}' % (index, block)
        return closing + frame_named(b"content_block_start", start)

    def _close(self) -> bytes:
        """Return what ends the open block, its gathered arguments included."""
        if self._open is None:
            return b""
        last = b""
        if self._call is not None:
            if not self._call.streams:
                text = self._call.wrapped()
                last = self._delta_head + quote(text) + _DELTA_TAIL if text else b""
            self._call = None
        self._open = None
        self._cited = False
        stop = b'{"type":"content_block_stop","index":%d}' % (self._next_index - 1)
        return last + frame_named(b"content_block_stop", stop)

    # ---- calls ----------------------------------------------------------------------------------------------------

    def _start_call(self, start: ToolCallStart) -> bytes:
        call = _Call(start)
        call.id = call.id or f"toolu_{self._asked.id}_{start.index}"
        self._call_ids[start.index] = call.id
        name = self._asked.tool_names.get(call.name, call.name)
        block = b'{"type":"tool_use","id":%b,"name":%b,"input":{}}' % (quote(call.id), quote(name))
        opening = self._open_block("tool_use", block)
        self._call = call
        return opening

    def _arguments(self, delta: ToolCallDelta) -> bytes:
        call = self._call
        if call is None or call.index != delta.index or not delta.arguments:
            return b""  # white space behind arguments that were whole
        call.parts.append(delta.arguments)
        if call.streams:
            return self._delta_head + quote(delta.arguments) + _DELTA_TAIL
        text = "".join(call.parts)
        if call.custom or not text.lstrip().startswith("{"):
            return b""
        call.streams = True
        call.parts = [text]
        return self._delta_head + quote(text) + _DELTA_TAIL

    def _end_call(self, index: int) -> bytes:
        call = self._call
        if call is None or call.index != index:
            return b""
        call.ended = True
        return self._close()

    # ---- what hangs on other content ------------------------------------------------------------------------------

    def _opaque(self, event: OpaqueState) -> bytes:
        """Write state into the thought it belongs to, else as a thought that is hidden whole."""
        opaque = event.opaque
        if opaque.vendor == "anthropic":
            if opaque.kind == "redacted":
                return self._redacted(opaque.value)
            return self._signature(opaque.value)
        if event.call_index is None and self._open == "thinking":
            return self._signature(seal(opaque))
        if event.call_index is not None and opaque.id is None:
            opaque = msgspec.structs.replace(opaque, id=self._call_ids.get(event.call_index))
        return self._redacted(seal(opaque))

    def _signature(self, value: str) -> bytes:
        opening = b"" if self._open == "thinking" else self._open_block("thinking", _STARTS["thinking"])
        delta = (
            b'{"type":"content_block_delta","index":%d,"delta":{"type":"signature_delta","signature":%b}}'
            % (
                self._next_index - 1,
                quote(value),
            )
        )
        return opening + frame_named(b"content_block_delta", delta) + self._close()

    def _redacted(self, value: str) -> bytes:
        block = b'{"type":"redacted_thinking","data":%b}' % quote(value)
        return self._open_block("redacted_thinking", block) + self._close()

    def _cite(self, citation: Citation) -> bytes:
        if self._open != "text":
            return b""  # a source of nothing: an empty text block could not be sent back
        self._cited = True
        told = {
            "type": "web_search_result_location",
            "url": citation.url,
            "title": citation.title,
            "encrypted_index": "",
            "cited_text": "",
        }
        delta = (
            b'{"type":"content_block_delta","index":%d,"delta":{"type":"citations_delta","citation":%b}}'
            % (
                self._next_index - 1,
                json_edit.dumps(told),
            )
        )
        return frame_named(b"content_block_delta", delta)

    def _search(self, search: WebSearch) -> bytes:
        """Tell a search as the use of a server tool and its result."""
        out = b""
        for block, given in search_blocks(search, f"{self._asked.id}_{self._next_index}"):
            out += self._open_block("server_tool_use" if given else "result", block)
            if given:
                out += self._delta_head + quote(given.decode()) + _DELTA_TAIL
            out += self._close()
        return out

    # ---- the end --------------------------------------------------------------------------------------------------

    def finish(self, reasons: dict[int, tuple[str, str | None]]) -> bytes:
        """Return nothing: the finish waits for usage."""
        return b""

    def farewell(self, reasons: dict[int, tuple[str, str | None]], bill: Bill | None) -> bytes:
        """Return what is open, `message_delta` with the true counts, and `message_stop`."""
        out = [self._give_up_waiting(), self._close()]
        reason, stop_sequence = write_stop_reason(*reasons.get(0, ("stop", None)))
        usage = write_usage(bill.usage if bill else Usage())
        if bill is not None:
            usage = with_members(usage, bill.in_usage)
        delta = b'{"type":"message_delta","delta":{"stop_reason":%b,"stop_sequence":%b},"usage":%b}' % (
            _encode(reason),
            _encode(stop_sequence),
            usage,
        )
        if bill is not None:
            delta = with_members(delta, bill.beside_usage)
        out.append(frame_named(b"message_delta", delta))
        out.append(_STOP)
        return b"".join(out)

    def _give_up_waiting(self) -> bytes:
        """Return what still waits for a call that never became whole."""
        out = b""
        while self._waiting:
            if self._call is not None:
                self._call.ended = True
            out += self._close() + self._catch_up()
        return out

    def failure(self, error: SluicegateError) -> bytes:
        """Return the error event; open blocks stay open."""
        return anthropic_errors.error_event(error, "req_" + self._asked.id)


_STARTS = {
    "text": b'{"type":"text","text":""}',
    "thinking": b'{"type":"thinking","thinking":"","signature":""}',
}
_DELTAS = {
    "text": b'{"type":"text_delta","text":',
    "thinking": b'{"type":"thinking_delta","thinking":',
    "tool_use": b'{"type":"input_json_delta","partial_json":',
    "server_tool_use": b'{"type":"input_json_delta","partial_json":',
}


def encode_answer(events: list[StreamEvent], asked: Asked, bill: Bill) -> bytes:
    """Write a whole message: what the stream of the same events would have told."""
    message = fold(write_stream(events, AnthropicStreamEncoder(asked)))
    usage = with_members(write_usage(bill.usage, tier=True), bill.in_usage)
    return with_members(json_edit.changed(message, {"usage": usage}), bill.beside_usage)
