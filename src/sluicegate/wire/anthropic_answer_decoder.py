"""Answers of a Messages provider, streamed or not, as events of the common vocabulary.

Blocks are told apart by the provider's index, which may have gaps or come twice; calls are numbered anew in their
order. A signature is told when its block ends, since a later one replaces it; a citation too, since it stands for the
whole block. A web search is told with what it found; what other hosted tools did has no word in the vocabulary and is
left out, but counted. Source: wire formats page `anthropic-messages.md`, "Reading an upstream of this format".
"""

from collections.abc import Callable

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import (
    Citation,
    End,
    Finish,
    Opaque,
    OpaqueState,
    Pause,
    ReasoningDelta,
    RefusalDelta,
    Start,
    StreamError,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Untold,
    UsageReport,
)
from sluicegate.wire import usual_event
from sluicegate.wire.anthropic_event import FORMAT, PieceReader, decode_message, failure
from sluicegate.wire.anthropic_searches import RESULT, TOOL, USE, SearchesRead
from sluicegate.wire.anthropic_shapes import Block, Delta, Message, StreamPiece
from sluicegate.wire.anthropic_stop import read_stop_reason
from sluicegate.wire.anthropic_usage import RunningUsage
from sluicegate.wire.envelope import open_envelope
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.sse import MAX_EVENT_BYTES
from sluicegate.wire.upstream_errors import read_stream_error
from sluicegate.wire.usual_event import UsualEvent

DELTA_PREFIX = b"event: content_block_delta\ndata: "
_EMPTY_INPUTS = (b"null", b"{}")


class _OpenBlock:
    """One content block, as far as it has come."""

    __slots__ = ("call_index", "deltas", "input", "kind", "search", "signature", "sources", "text_at")

    def __init__(self, kind: str, text_at: int) -> None:
        self.kind = kind
        self.text_at = text_at
        """Where its text begins in the answer's text, in characters."""
        self.call_index: int | None = None
        self.input = b""
        """What a call's start said already."""
        self.deltas = 0
        """How many pieces of arguments, or of text, have come."""
        self.signature: str | None = None
        self.search: tuple[str, list[str]] | None = None
        """Id and pieces of input of a web search."""
        self.sources: list[tuple[str, str]] = []
        """URL and title of what its text cites."""


class AnthropicStreamDecoder:
    """Reads one provider's stream. See `StreamDecoder`."""

    def __init__(
        self,
        can: Capabilities,
        count_text: Callable[[str], None],
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        """Start an answer.

        Args:
            can: nothing of it matters here: the format has no quirks that a provider may choose.
        """
        self.upstream_id: str | None = None
        self.repaired = False
        """Something had to be put right."""
        self._count_text = count_text
        self._max_event_bytes = max_event_bytes
        self._reader = PieceReader(max_event_bytes)
        self._model: str | None = None
        self._usage = RunningUsage()
        self._blocks: dict[int, _OpenBlock] = {}
        self._ids: list[str] = []
        """Of the calls so far."""
        self._searches = SearchesRead()
        self._text_chars = 0
        self._explained = False
        self._ended = False
        self._broken: DecodeError | None = None
        """Found behind events that were good; told once they have been taken."""
        self._events: list[StreamEvent] = []
        self._left: list[StreamEvent] = []
        self._usual: UsualEvent | None = None
        self._usual_block: _OpenBlock | None = None
        self._usual_kind = ""

    # ---- bytes in -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes.

        Raises:
            DecodeError: they broke the format, now or behind the events that the last call returned.
        """
        if self._broken is not None:
            raise self._broken
        usual = self._usual
        # The usual read: events that differ from the one before only inside their text.
        if (
            usual is not None
            and self._reader.clean
            and len(data) <= self._max_event_bytes
            and usual.takes(data)
        ):
            return [self._usual_delta(usual.text)]
        events: list[StreamEvent] = []
        self._events = events
        try:
            for payload, piece in self._reader.feed(data):
                if self._ended:
                    break
                self._take(payload, piece)
        except DecodeError as error:
            if not events:
                raise
            self._broken = error
        self.repaired |= self._reader.repaired
        return events

    def _has_ended(self) -> bool:
        """Whether `message_stop` has come; asked anew after each event."""
        return self._ended

    def finish(self) -> list[StreamEvent]:
        """Take the end of the body.

        Raises:
            DecodeError: `message_stop` never came.
        """
        if self._ended:
            return []
        if self._broken is not None:
            raise self._broken
        events: list[StreamEvent] = []
        self._events = self._left = events
        for payload, piece in self._reader.finish():
            if not self._has_ended():
                self._take(payload, piece)
        if not self._has_ended():
            raise DecodeError(FORMAT, None, "the stream ended without message_stop")
        return events

    def left(self) -> list[StreamEvent]:
        """Return what the end of a body that was cut still brought, once: `finish` has raised behind it."""
        left, self._left = self._left, []
        return left

    def _usual_delta(self, text: str) -> StreamEvent:
        self._count_text(text)
        block = self._usual_block
        assert block is not None, "it is set with the usual event"
        block.deltas += 1
        if self._usual_kind == "text_delta":
            self._text_chars += len(text)
            return TextDelta(text)
        if self._usual_kind == "thinking_delta":
            return ReasoningDelta(text)
        assert block.call_index is not None, "only a call's arguments are learned"
        return ToolCallDelta(block.call_index, text)

    # ---- one event ------------------------------------------------------------------------------------------------

    def _take(self, payload: bytes, piece: StreamPiece) -> None:
        error = None if piece.error is msgspec.UNSET else failure(piece.error)
        if error is None and piece.type == "error":
            error = read_stream_error(payload)
        if error is not None:
            self._events.append(error)
            self._ended = True
            return
        match piece.type:
            case "content_block_delta" if piece.delta is not None:
                self._take_delta(payload, piece.index or 0, piece.delta)
            case "content_block_start" if piece.content_block is not None:
                self._start_block(piece.index or 0, piece.content_block)
            case "content_block_stop":
                self._close_block(piece.index or 0)
            case "message_start" if piece.message is not None:
                self._start(piece.message)
            case "message_delta":
                self._end_message(piece.delta or Delta(), piece.usage)
            case "message_stop":
                self._close_blocks()
                self._events.append(End())
                self._ended = True

    def _start(self, message: Message) -> None:
        if isinstance(message.id, str) and message.id:
            self.upstream_id = message.id
        if isinstance(message.model, str):
            self._model = message.model
        self._usage.take_start(message.usage)
        self._events.append(Start(id=self.upstream_id, usage=self._usage.normalised()))

    def _start_block(self, index: int, start: Block) -> None:
        self._close_block(index)  # an index that comes twice is another block
        block = self._blocks[index] = _OpenBlock(start.type, self._text_chars)
        match start.type:
            case "text":
                self._add_text(block, start.text or "")
                for citation in start.citations or ():
                    self._cite(block, citation)
            case "thinking":
                self._add_reasoning(block, start.thinking or "")
                block.signature = start.signature or None
            case "redacted_thinking":
                self._events.append(OpaqueState(self._opaque("redacted", start.data or "")))
            case "tool_use":
                self._start_call(block, start)
            case _ if start.type == USE and start.name == TOOL:
                self._count_text(TOOL)
                given = bytes(start.input)
                block.search = start.id or "", [] if given in _EMPTY_INPUTS else [given.decode()]
            case _ if start.type == RESULT:
                self._events.append(self._searches.end(start.tool_use_id or "", bytes(start.content)))
            case _:
                self._count_text(start.name or "")
                if start.type:
                    self._events.append(Untold(start.type))

    def _start_call(self, block: _OpenBlock, start: Block) -> None:
        block.call_index = len(self._ids)
        if not start.name:
            raise DecodeError(FORMAT, None, "a tool call has no name")
        call_id = start.id
        if not call_id:
            self.repaired = True
            call_id = f"toolu_{self.upstream_id or ''}_{block.call_index}"
        given = bytes(start.input)
        block.input = b"" if given in _EMPTY_INPUTS else given
        self._count_text(start.name)
        self._ids.append(call_id)
        self._events.append(ToolCallStart(block.call_index, call_id, start.name))

    def _take_delta(self, payload: bytes, index: int, delta: Delta) -> None:
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = _OpenBlock("", self._text_chars)
            self.repaired = True
        match delta.type:
            case "text_delta":
                self._add_text(block, delta.text or "")
                self._learn(payload, block, delta.type, "text", delta.text)
            case "thinking_delta":
                self._add_reasoning(block, delta.thinking or "")
                self._learn(payload, block, delta.type, "thinking", delta.thinking)
            case "input_json_delta":
                self._add_arguments(block, delta.partial_json or "")
                if block.call_index is not None:
                    self._learn(payload, block, delta.type, "partial_json", delta.partial_json)
            case "signature_delta":
                block.signature = delta.signature or block.signature
            case "citations_delta":
                self._cite(block, delta.citation or {})

    def _learn(self, payload: bytes, block: _OpenBlock, kind: str, key: str, text: str | None) -> None:
        """Remember an event of a block that has had one already: the next of its kind needs no decoding."""
        if text and block.deltas > 1 and (self._usual_block is not block or self._usual_kind != kind):
            self._usual = usual_event.learn(payload, payload, key, text, None, DELTA_PREFIX)
            self._usual_block, self._usual_kind = block, kind

    def _add_text(self, block: _OpenBlock, text: str) -> None:
        if text:
            block.deltas += 1
            self._text_chars += len(text)
            self._count_text(text)
            self._events.append(TextDelta(text))

    def _add_reasoning(self, block: _OpenBlock, text: str) -> None:
        if text:
            block.deltas += 1
            self._count_text(text)
            self._events.append(ReasoningDelta(text))

    def _add_arguments(self, block: _OpenBlock, text: str) -> None:
        if text:
            block.deltas += 1
            self._count_text(text)
            if block.call_index is not None:
                self._events.append(ToolCallDelta(block.call_index, text))
            elif block.search is not None:
                block.search[1].append(text)

    def _cite(self, block: _OpenBlock, citation: dict[str, object]) -> None:
        """Keep a source that has an address; pages and offsets of documents mean nothing in another format."""
        url = citation.get("url")
        if url is None and citation.get("type") == "search_result_location":
            url = citation.get("source")
        title = citation.get("title")
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            block.sources.append((url, title if isinstance(title, str) else ""))
        elif citation:
            self._events.append(Untold("citations"))

    def _close_block(self, index: int) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        if block is self._usual_block:
            self._usual = self._usual_block = None
        for url, title in block.sources:
            self._events.append(Citation(url, title, block.text_at, self._text_chars))
        if block.search is not None:
            self._searches.begin(block.search[0], "".join(block.search[1]))
        if block.signature is not None:
            self._events.append(OpaqueState(self._opaque("signature", block.signature)))
        if block.call_index is not None:
            if not block.deltas:
                arguments = block.input.decode() or "{}"
                self._count_text(arguments)
                self._events.append(ToolCallDelta(block.call_index, arguments))
            self._events.append(ToolCallEnd(block.call_index))

    def _close_blocks(self) -> None:
        for index in list(self._blocks):
            self.repaired = True
            self._close_block(index)

    def _opaque(self, kind: str, value: str) -> Opaque:
        """Return the provider's state; where another gate stands behind it, whoever's state that one sealed."""
        return open_envelope(value) or Opaque(
            vendor="anthropic",
            kind="redacted" if kind == "redacted" else "signature",
            value=value,
            model=self._model,
        )

    # ---- the end --------------------------------------------------------------------------------------------------

    def _end_message(self, delta: Delta, usage: msgspec.Raw) -> None:
        self._usage.take(usage)
        totals = self._usage.normalised()
        if totals is not None:
            self._events.append(UsageReport(totals))
        if not delta.stop_reason:
            return
        self._close_blocks()
        self._events += self._searches.rest()
        self._explain(delta)
        reason = read_stop_reason(delta.stop_reason)
        finish = Finish(reason, stop_sequence=delta.stop_sequence or None, raw_reason=delta.stop_reason)
        if delta.stop_reason == "pause_turn":
            finish.pause = Pause(chars=self._text_chars, ids=tuple(self._ids))
        elif reason == "paused":
            self._events.append(Untold(delta.stop_reason))
        self._events.append(finish)

    def _explain(self, delta: Delta) -> None:
        """Say in words why nothing was said, where the provider does."""
        details = delta.stop_details
        if self._explained or self._text_chars or delta.stop_reason != "refusal":
            return
        explanation = details.get("explanation") if isinstance(details, dict) else None
        if isinstance(explanation, str) and explanation:
            self._explained = True
            self._events.append(RefusalDelta(explanation))

    # ---- an answer that is not streamed ---------------------------------------------------------------------------

    def take_whole(self, message: Message, blocks: list[Block]) -> list[StreamEvent]:
        """Return a whole message as the events that its stream would have brought."""
        events: list[StreamEvent] = []
        self._events = events
        self._start(message)
        for block in blocks:
            self._start_block(0, block)
            self._close_block(0)
        self._end_message(
            Delta(
                stop_reason=message.stop_reason,
                stop_sequence=message.stop_sequence,
                stop_details=message.stop_details,
            ),
            message.usage,
        )
        events.append(End())
        return events


def decode_answer(body: bytes, can: Capabilities) -> list[StreamEvent]:
    """Read a plain answer; one that came as an event stream all the same is read as that.

    Raises:
        DecodeError: it is no message, or a stream that was cut.
    """

    decoder = AnthropicStreamDecoder(can, _uncounted)
    body = body.removeprefix(b"\xef\xbb\xbf").strip()
    if not body.startswith(b"{"):
        return decoder.feed(body + b"\n\n") + decoder.finish()
    message, blocks = decode_message(whole_characters(body))
    error = failure(message.error)
    if error is None and message.type == "error":
        error = StreamError(status=500, message="the provider reported an error")
    return [error] if error is not None else decoder.take_whole(message, blocks)


def _uncounted(text: str) -> None:
    """Plain answers are counted by whoever reads the events."""
