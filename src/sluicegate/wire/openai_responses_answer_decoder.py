"""Answers of a Responses provider, streamed or not, as events of the common vocabulary.

`data.type` alone drives it. Items are told apart by their output index, else by their id; what a server leaves out of
its deltas is taken from the event that ends the text, then from the one that ends the item, then from the terminal
response, and nothing is told twice. What hosted tools did, but for searches of the web, has no word in the vocabulary
and is left out, but counted. Source: wire formats page `responses.md`, "Reading an upstream of this format".
"""

from collections.abc import Callable
from typing import Any

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import (
    Citation,
    End,
    Finish,
    Logprobs,
    Opaque,
    OpaqueState,
    ReasoningDelta,
    RefusalDelta,
    Start,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Untold,
    UsageReport,
)
from sluicegate.wire.envelope import open_envelope
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.openai_events import DONE
from sluicegate.wire.openai_responses_delta import UsualDelta, learn
from sluicegate.wire.openai_responses_event import (
    ARGUMENTS,
    ENDS,
    FORMAT,
    STARTS,
    TEXTS,
    TextFamily,
    decode_item,
    decode_part,
    decode_piece,
    decode_response,
    failure,
    output_of,
    status_of,
    text_of,
)
from sluicegate.wire.openai_responses_passed_answer import INCOMPLETE, read_answer
from sluicegate.wire.openai_responses_searches import KIND as SEARCH
from sluicegate.wire.openai_responses_searches import read_search
from sluicegate.wire.openai_responses_shapes import Item, Part, Piece, Response
from sluicegate.wire.openai_responses_usage import read_usage
from sluicegate.wire.openai_stream_decoder import OpenAIStreamDecoder
from sluicegate.wire.sse import MAX_EVENT_BYTES

_SUMMARY_BREAK = "\n\n"
"""Between the parts of a thought: each is a paragraph."""
_FAMILY_OF_PART = {family.part: (name, family) for name, family in TEXTS.items()}
_Place = tuple[str, int]
"""Which index, and its value: parts of content and of a summary are counted apart."""


class _OpenPart:
    """One part of an item, as far as it has come."""

    __slots__ = ("chars", "cited", "text_at")

    def __init__(self, text_at: int) -> None:
        self.text_at = text_at
        """Where its text begins in the answer's text, in characters."""
        self.chars = 0
        self.cited = 0
        """How many of its sources have been told."""


class _OpenItem:
    """One item of the output, as far as it has come."""

    __slots__ = ("arguments", "call_id", "call_index", "done", "id", "kind", "parts", "waiting")

    def __init__(self, kind: str, id_: str | None) -> None:
        self.kind = kind
        self.id = id_
        self.parts: dict[_Place, _OpenPart] = {}
        self.call_index: int | None = None
        """Set once its call has been told."""
        self.call_id: str | None = None
        self.arguments = 0
        """Characters of arguments that have come."""
        self.waiting: list[str] = []
        """Arguments that came before the call's name."""
        self.done = False


class ResponsesStreamDecoder(OpenAIStreamDecoder):
    """Reads one provider's stream. See `StreamDecoder`."""

    end = "its terminal event"

    def __init__(
        self,
        can: Capabilities,
        count_text: Callable[[str], None],
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        """Start an answer."""
        super().__init__(FORMAT, can, count_text, max_event_bytes)
        self._model: str | None = None
        self._items: dict[int, _OpenItem] = {}
        """By the provider's index."""
        self._order: list[_OpenItem] = []
        """All of them."""
        self._calls = self._searches = 0
        self._text_chars = 0
        self._reasoned = False
        """The last content was a thought."""
        self._usual: UsualDelta | None = None
        self._usual_part: _OpenPart | None = None
        self._usual_call: _OpenItem | None = None
        """Where the usual event goes on with a call's arguments; else it does so with a part."""
        self._usual_tells: type[TextDelta] | type[ReasoningDelta] | type[RefusalDelta] = TextDelta

    def _has_finished(self) -> bool:
        return False  # its terminal event is the end

    def _take_usual(self, data: bytes) -> StreamEvent | None:
        text = None if self._usual is None else self._usual.text(data)
        if text is None:
            return None
        self._count_text(text)
        call, part, tells = self._usual_call, self._usual_part, self._usual_tells
        if call is not None:
            assert call.call_index is not None, "only calls that have been told are learned"
            call.arguments += len(text)
            return ToolCallDelta(call.call_index, text)
        assert part is not None, "it is set with the usual event"
        part.chars += len(text)
        if tells is TextDelta:
            self._text_chars += len(text)
        return tells(text)

    # ---- one event ------------------------------------------------------------------------------------------------

    def _take(self, payload: bytes) -> None:
        if payload == DONE:
            return
        piece = decode_piece(payload)
        error = failure(payload, piece)
        if error is not None:
            self._events.append(error)
            self._ended = True
            return
        kind = piece.type
        family, _, last = kind.rpartition(".")
        if family in TEXTS:
            self._take_text(payload, TEXTS[family], last, piece)
        elif family in ARGUMENTS:
            self._take_arguments(payload, *ARGUMENTS[family], last, piece)
        elif kind == "response.output_item.added":
            self._start_item(piece.output_index, decode_item(piece.item))
        elif kind == "response.output_item.done":
            item = decode_item(piece.item)
            self._end_item(self._item_of(piece, item.type, item.id), item)
        elif kind == "response.content_part.done":
            self._end_part(self._item_of(piece, "message"), piece, "content_index")
        elif kind == "response.output_text.annotation.added":
            self._cite(piece)
        elif kind in STARTS:
            self._start(decode_response(piece.response))
        elif kind in ENDS:
            response = decode_response(piece.response)
            self._end(response, status_of(kind, response))

    def _start(self, response: Response) -> None:
        if isinstance(response.model, str):
            self._model = response.model
        if self._started:
            return
        self._started = True
        if isinstance(response.id, str) and response.id:
            self.upstream_id = response.id
        created = response.created_at
        self._events.append(
            Start(id=self.upstream_id, created=int(created) if isinstance(created, int | float) else None)
        )

    # ---- items ----------------------------------------------------------------------------------------------------

    def _start_item(self, index: int | None, item: Item) -> _OpenItem:
        opened = _OpenItem(item.type, item.id)
        self._items[len(self._order) if index is None else index] = opened
        self._order.append(opened)
        self._usual = None
        if item.type in ("function_call", "custom_tool_call"):
            self._name_call(opened, item)
        elif item.type not in ("message", "reasoning", "", SEARCH):
            self._events.append(Untold(item.type))
        return opened

    def _item_of(self, piece: Piece, kind: str, id_: str | None = None) -> _OpenItem:
        """Return the item that an event is about; one that nobody announced begins here."""
        index, id_ = piece.output_index, piece.item_id or id_
        found = None if index is None else self._items.get(index)
        if index is None and id_ is not None:
            found = next((item for item in self._order if item.id == id_), None)
        elif index is None and self._order:
            found = self._order[-1]
        if found is None:
            self._put_right = True
            found = self._start_item(index, Item(type=kind, id=id_))
        return found

    def _end_item(self, opened: _OpenItem, item: Item) -> None:
        """Take what an item holds when it is over, less what has been told of it."""
        if opened.done:
            return
        opened.done = True
        self._usual = None
        for key, parts in (("summary_index", item.summary), ("content_index", item.content)):
            for place, part in enumerate(parts or ()):
                self._whole_part(opened, (key, place), part)
        if item.encrypted_content:
            self._events.append(OpaqueState(self._opaque(item.encrypted_content, item.id)))
            self._reasoned = False
        if item.type in ("function_call", "custom_tool_call"):
            self._end_call(opened, item)
        elif item.type == SEARCH:
            search = read_search(item)
            self._searches += search is not None
            self._events.append(search or Untold(SEARCH))

    def _opaque(self, value: str, id_: str | None) -> Opaque:
        """Return the provider's state; where another gate stands behind it, whoever's state that one sealed."""
        return open_envelope(value) or Opaque(
            vendor="openai", kind="encrypted", value=value, model=self._model, id=id_
        )

    # ---- texts ----------------------------------------------------------------------------------------------------

    def _take_text(self, payload: bytes, family: TextFamily, last: str, piece: Piece) -> None:
        item = self._item_of(piece, family.item)
        index = piece.content_index if family.place == "content_index" else piece.summary_index
        place = (family.place, index or 0)
        part = self._part_of(item, place)
        if last == "done":
            text = piece.refusal if family.field == "refusal" else piece.text
            if not part.chars:
                self._add_text(family, part, text or "", piece.logprobs)
            return
        self._add_text(family, part, piece.delta or "", piece.logprobs)
        if not piece.logprobs and part.chars > len(piece.delta or ""):
            # It goes on with a text: so, most likely, does the next.
            self._usual = learn(payload, piece.type)
            self._usual_call, self._usual_part, self._usual_tells = None, part, _TELLS[family.part]
        else:
            self._usual = None

    def _part_of(self, item: _OpenItem, place: _Place) -> _OpenPart:
        part = item.parts.get(place)
        if part is None:
            part = item.parts[place] = _OpenPart(self._text_chars)
        return part

    def _add_text(
        self, family: TextFamily, part: _OpenPart, text: str, logprobs: list[dict[str, Any]] | None
    ) -> None:
        if text:
            tell = _TELLS[family.part]
            if tell is ReasoningDelta and not part.chars and self._reasoned:
                self._events.append(ReasoningDelta(_SUMMARY_BREAK))
            self._reasoned = tell is ReasoningDelta
            self._count_text(text)
            part.chars += len(text)
            if tell is TextDelta:
                self._text_chars += len(text)
            self._events.append(tell(text))
        if logprobs:
            self._events.append(Logprobs(logprobs))

    def _end_part(self, item: _OpenItem, piece: Piece, key: str) -> None:
        self._whole_part(item, (key, piece.content_index or 0), decode_part(piece.part))

    def _whole_part(self, item: _OpenItem, place: _Place, whole: Part) -> None:
        """Take what a part holds when it is over, less what has been told of it."""
        if whole.type not in _FAMILY_OF_PART:
            return
        part = self._part_of(item, place)
        if not part.chars:
            self._add_text(_FAMILY_OF_PART[whole.type][1], part, text_of(whole), whole.logprobs)
        for annotation in (whole.annotations or [])[part.cited :]:
            self._tell_source(part, annotation)

    def _cite(self, piece: Piece) -> None:
        part = self._part_of(self._item_of(piece, "message"), ("content_index", piece.content_index or 0))
        try:
            annotation = msgspec.json.decode(piece.annotation, type=dict[str, Any] | None)
        except (msgspec.DecodeError, RecursionError):
            return
        if annotation:
            self._tell_source(part, annotation)

    def _tell_source(self, part: _OpenPart, annotation: dict[str, Any]) -> None:
        """Tell a source that has an address; files of one vendor mean nothing in another format."""
        part.cited += 1
        url, title = annotation.get("url"), annotation.get("title")
        if annotation.get("type") != "url_citation" or not isinstance(url, str):
            return
        start, end = annotation.get("start_index"), annotation.get("end_index")
        self._events.append(
            Citation(
                url,
                title if isinstance(title, str) else "",
                part.text_at + (start if type(start) is int else 0),
                part.text_at + (end if type(end) is int else part.chars),
            )
        )

    # ---- calls ----------------------------------------------------------------------------------------------------

    def _name_call(self, opened: _OpenItem, item: Item) -> None:
        """Tell a call as soon as its name is known, and the arguments that came before."""
        opened.call_id = opened.call_id or item.call_id
        if opened.call_index is not None or not item.name:
            return
        opened.call_index = self._calls
        self._calls += 1
        self._reasoned = False
        call_id = opened.call_id or opened.id
        if not call_id:
            self._put_right = True
            call_id = f"call_{self.upstream_id or ''}_{opened.call_index}"
        self._count_text(item.name)
        self._events.append(
            ToolCallStart(opened.call_index, call_id, item.name, custom=opened.kind == "custom_tool_call")
        )
        waiting, opened.waiting = opened.waiting, []
        self._events += [ToolCallDelta(opened.call_index, text) for text in waiting]

    def _take_arguments(self, payload: bytes, kind: str, field: str, last: str, piece: Piece) -> None:
        item = self._item_of(piece, kind)
        if piece.name:
            self._name_call(item, Item(type=kind, name=piece.name))
        self._usual = None
        if last == "delta":
            self._add_arguments(item, piece.delta or "")
            if item.call_index is not None and item.arguments > len(piece.delta or ""):
                self._usual = learn(payload, piece.type)
                self._usual_call = item
        elif not item.arguments:
            self._add_arguments(item, (piece.arguments if field == "arguments" else piece.input) or "")

    def _add_arguments(self, item: _OpenItem, text: str) -> None:
        if not text:
            return
        self._count_text(text)
        item.arguments += len(text)
        if item.call_index is None:
            item.waiting.append(text)
        else:
            self._events.append(ToolCallDelta(item.call_index, text))

    def _end_call(self, opened: _OpenItem, item: Item) -> None:
        self._name_call(opened, item)
        if opened.call_index is None:
            raise DecodeError(FORMAT, None, "a tool call has no name")
        if not opened.arguments:
            custom = opened.kind == "custom_tool_call"
            self._add_arguments(opened, (item.input or "") if custom else (item.arguments or ""))
        if item.status == "incomplete":
            return  # its arguments are cut
        if not opened.arguments and opened.kind == "function_call":
            self._add_arguments(opened, "{}")
        self._events.append(ToolCallEnd(opened.call_index))

    # ---- the end --------------------------------------------------------------------------------------------------

    def _end(self, response: Response, status: str) -> None:
        self._start(response)
        told = list(self._order)
        for raw in output_of(response):
            item = decode_item(raw)
            opened = next((known for known in told if known.id == item.id is not None), None)
            if opened is None:
                opened = next((known for known in told if known.kind == item.type), None)
            if opened is None:
                opened = self._start_item(None, item)
            else:
                told.remove(opened)
            self._end_item(opened, item)
        usage = read_usage(response, self._can)
        if usage is not None:
            if usage.web_searches is None:
                usage.web_searches = self._searches or None
            self._events.append(UsageReport(usage))
        self._events.append(self._finish_of(response, status))
        self._events.append(End())
        self._ended = True
        self._usual = None

    def _finish_of(self, response: Response, status: str) -> Finish:
        if status == "incomplete":
            details = response.incomplete_details
            reason = (details.reason if details is not None else None) or "max_output_tokens"
            return Finish(INCOMPLETE.get(reason, "length"), raw_reason=reason)
        return Finish("tool_calls" if self._calls else "stop", raw_reason=status)

    def take_whole(self, response: Response) -> list[StreamEvent]:
        """Return a whole response as the events that its stream would have brought."""
        events: list[StreamEvent] = []
        self._events = events
        self._end(response, response.status if isinstance(response.status, str) else "completed")
        return events


_TELLS: dict[str, type[TextDelta] | type[ReasoningDelta] | type[RefusalDelta]] = {
    "output_text": TextDelta,
    "refusal": RefusalDelta,
    "reasoning_text": ReasoningDelta,
    "summary_text": ReasoningDelta,
}
"""How the text of each kind of part is told."""


def decode_answer(body: bytes, can: Capabilities) -> list[StreamEvent]:
    """Read a plain answer; one that came as an event stream all the same is read as that.

    Raises:
        DecodeError: it is no response, or a stream that was cut.
    """
    decoder = ResponsesStreamDecoder(can, _uncounted)
    body = body.removeprefix(b"\xef\xbb\xbf").strip()
    if not body.startswith(b"{"):
        return decoder.feed(body + b"\n\n") + decoder.finish()
    response, error = read_answer(whole_characters(body))
    return [error] if error is not None else decoder.take_whole(response)


def _uncounted(text: str) -> None:
    """Plain answers are counted by whoever reads the events."""
