"""Answers to a Responses client, streamed or not, out of the events of the common vocabulary.

Items stand one after another: each is added, filled and done before the next, so that indexes have no gaps; no item is
opened before there is something to put into it. Thoughts are told as summaries, which every client shows; state of
other vendors is sealed into `encrypted_content`, which clients give back as it is. The terminal event repeats all of
the output, since clients take it for the answer. Source: contract R1, R2; wire formats page `responses.md`; translation
matrix, sections 9, 12, 22, 23 and 25.
"""

from typing import Any

import msgspec

from sluicegate.errors import SluicegateError
from sluicegate.messages import (
    Citation,
    Logprobs,
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
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.envelope import seal
from sluicegate.wire.json_text import compact, quote
from sluicegate.wire.openai_chat_call_writer import plain_input
from sluicegate.wire.openai_responses_envelope import Envelope
from sluicegate.wire.openai_responses_errors import error_events
from sluicegate.wire.openai_responses_event import TEXTS
from sluicegate.wire.openai_responses_searches import write_search
from sluicegate.wire.openai_responses_tools import MAX_ID_CHARS, provider_name
from sluicegate.wire.openai_responses_usage import write_tool_usage, write_usage
from sluicegate.wire.openai_usage import served_tier, with_members
from sluicegate.wire.serial_calls import SerialCalls
from sluicegate.wire.told_text import Told
from sluicegate.wire.translation import Asked
from sluicegate.wire.whole_answer import write_stream

KEEPALIVE = b": keepalive\n\n"
_INCOMPLETE = {
    "length": "max_output_tokens",
    "context_full": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Finish reasons that leave an answer incomplete."""
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "tool_search_call": "tsc",
    "web_search_call": "ws",
}


class _Part:
    """The open part of an item."""

    __slots__ = ("annotations", "family", "index", "logprobs", "text_at", "texts")

    def __init__(self, family: str, index: int, text_at: int) -> None:
        self.family = family
        self.index = index
        self.text_at = text_at
        """Where its text begins in the answer's text, in characters."""
        self.texts: list[str] = []
        self.annotations: list[bytes] = []
        self.logprobs: list[dict[str, Any]] = []

    def write(self, text: bytes, *, whole: bool = True) -> bytes:
        """Return the part as it stands in an item.

        Args:
            text: JSON text of its string.
            whole: with what hangs on it.
        """
        kind = TEXTS[self.family].part
        if kind != "output_text":
            return b'{"type":"%b","%b":%b}' % (kind.encode(), TEXTS[self.family].field.encode(), text)
        annotations = b",".join(self.annotations) if whole else b""
        logprobs = json_edit.dumps(self.logprobs) if whole else b"[]"
        return b'{"type":"output_text","text":%b,"annotations":[%b],"logprobs":%b}' % (
            text,
            annotations,
            logprobs,
        )


class _Call:
    """What an open call is given."""

    __slots__ = ("custom", "gathers", "head", "name", "parts")

    def __init__(self, head: bytes, name: bytes, *, custom: bool, gathers: bool) -> None:
        self.head = head
        """Members of its item that do not change."""
        self.name = name
        self.custom = custom
        self.gathers = gathers
        """Arguments are turned into plain input once they are whole."""
        self.parts: list[str] = []


class ResponsesStreamEncoder:
    """Writes one client's stream. See `StreamEncoder`."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._envelope = Envelope.of(asked)
        self._serial = SerialCalls()
        self._number = 0
        self._told = False
        """Content has been written: start-up events before it do not leave alone."""
        self._text_chars = 0
        self._output: list[bytes] = []
        """Items that are done."""
        self._kind: str | None = None
        """Of the open item."""
        self._item_id = b""
        self._parts: list[bytes] = []
        """Of the open item, those that are done."""
        self._part: _Part | None = None
        self._call: _Call | None = None
        self._delta: bytes | None = None
        """A delta event of what is open; its text and its number are left out."""
        self._tells: type[TextDelta] | type[ReasoningDelta] | type[RefusalDelta] | None = None
        self._call_ids: dict[int, str] = {}
        self.response = b""
        """The whole response, once it has been told."""

    # ---- start ----------------------------------------------------------------------------------------------------

    def start(self, usage: Usage | None = None) -> bytes:
        """Return `response.created` and `response.in_progress`."""
        response = self._envelope.write("in_progress")
        return b"".join(
            self._event(kind, b'"response":%b' % response)
            for kind in (b"response.created", b"response.in_progress")
        )

    def take_over(self, told: Told) -> None:
        """Take over an answer that another has begun to write: with the text of its one item."""
        response: Any = told.first.get("response")
        if not isinstance(response, dict):
            response = {}
        id, created = response.get("id"), response.get("created_at")
        self._envelope = Envelope.of(
            self._asked, id if isinstance(id, str) else None, created if isinstance(created, int) else None
        )
        self._told = True
        self._kind, self._item_id = "message", quote(told.last["item_id"])
        self._open("response.output_text")
        assert self._part is not None, "it has just been opened"
        self._part.texts.append(told.text)
        self._tells = TextDelta
        self._number = told.last["sequence_number"] + 1

    def _event(self, kind: bytes, members: bytes) -> bytes:
        number = self._number
        self._number = number + 1
        return b'event: %b\ndata: {"type":"%b",%b,"sequence_number":%d}\n\n' % (kind, kind, members, number)

    def _where(self) -> bytes:
        return b'"item_id":%b,"output_index":%d' % (self._item_id, len(self._output))

    def _item_event(self, kind: bytes, item: bytes) -> bytes:
        return self._event(kind, b'"output_index":%d,"item":%b' % (len(self._output), item))

    # ---- content --------------------------------------------------------------------------------------------------

    def event(self, event: StreamEvent) -> bytes:
        """Return the framed events for one content event; may be empty."""
        if type(event) is self._tells and not event.choice:
            number = self._number
            self._number = number + 1
            text = event.text
            self._part.texts.append(text)  # type: ignore[union-attr]  # it is open
            return self._delta % (quote(text), number)  # type: ignore[operator]  # set with it
        if getattr(event, "choice", 0):
            return b""  # clients of this format cannot ask for several
        return b"".join([self._write(told) for told in self._serial.take(event)])

    def _write(self, event: StreamEvent) -> bytes:
        self._told = True
        match event:
            case TextDelta():
                return self._text("response.output_text", TextDelta, event.text)
            case RefusalDelta():
                return self._text("response.refusal", RefusalDelta, event.text)
            case ReasoningDelta():
                return self._text("response.reasoning_summary_text", ReasoningDelta, event.text)
            case ToolCallStart():
                return self._start_call(event)
            case ToolCallDelta():
                return self._arguments(event)
            case ToolCallEnd():
                return self._close("completed")
            case OpaqueState():
                return self._opaque(event)
            case Citation():
                return self._cite(event)
            case WebSearch():
                return self._search_web(event)
            case Logprobs():
                return self._probabilities(event)
            case _:
                return b""

    # ---- items with parts -----------------------------------------------------------------------------------------

    def _text(
        self, family: str, tells: type[TextDelta] | type[ReasoningDelta] | type[RefusalDelta], text: str
    ) -> bytes:
        if not text:
            return b""
        opening = b"" if self._part is not None and self._part.family == family else self._open(family)
        assert self._part is not None, "it has just been opened"
        assert self._delta is not None, "likewise"
        self._part.texts.append(text)
        # From here on texts of this kind need no more than their delta.
        self._tells = tells
        number = self._number
        self._number = number + 1
        return opening + self._delta % (quote(text), number)

    def _open(self, family: str) -> bytes:
        """Open a part, and its item where another one is open."""
        item = TEXTS[family].item
        out = self._close_part() if self._kind == item else self._close("completed") + self._open_item(item)
        part = self._part = _Part(family, len(self._parts), self._text_chars)
        place = TEXTS[family].place.encode()
        where = b'%b,"%b":%d' % (self._where(), place, part.index)
        extra = b',"logprobs":[]' if family == "response.output_text" else b""
        kind = family.encode() + b".delta"
        pattern = b'event: %b\ndata: {"type":"%b",%b,"delta":' % (kind, kind, where)
        self._delta = pattern.replace(b"%", b"%%") + b"%b" + extra + b',"sequence_number":%d}\n\n'
        added = b'%b,"part":%b' % (where, part.write(b'""', whole=False))
        return out + self._event(TEXTS[family].added.encode(), added)

    def _open_item(self, kind: str) -> bytes:
        self._item_id = self._new_id(kind)
        self._kind = kind
        self._parts = []
        return self._item_event(b"response.output_item.added", self._item("in_progress"))

    def _new_id(self, kind: str) -> bytes:
        return b'"%b_%b%04x"' % (_PREFIXES[kind].encode(), self._asked.id.encode(), len(self._output))

    def _item(self, status: str, encrypted: str | None = None) -> bytes:
        """Return the open item, a message or a thought."""
        parts = b",".join(self._parts)
        if self._kind == "message":
            return b'{"id":%b,"type":"message","role":"assistant","status":"%b","content":[%b]}' % (
                self._item_id,
                status.encode(),
                parts,
            )
        state = b"" if encrypted is None else b',"encrypted_content":%b' % quote(encrypted)
        return b'{"id":%b,"type":"reasoning","summary":[%b]%b}' % (self._item_id, parts, state)

    def _close_part(self) -> bytes:
        part = self._part
        if part is None:
            return b""
        self._part = self._delta = self._tells = None
        family = TEXTS[part.family]
        text = "".join(part.texts)
        if family.part == "output_text":
            self._text_chars += len(text)
        told = quote(text)
        whole = part.write(told)
        self._parts.append(whole)
        where = b'%b,"%b":%d' % (self._where(), family.place.encode(), part.index)
        extra = b""
        if family.part == "output_text":
            extra = b',"logprobs":%b' % json_edit.dumps(part.logprobs)
        done = b'%b,"%b":%b%b' % (where, family.field.encode(), told, extra)
        return self._event(part.family.encode() + b".done", done) + self._event(
            family.done.encode(), b'%b,"part":%b' % (where, whole)
        )

    def _close(self, status: str, encrypted: str | None = None) -> bytes:
        """Return what ends the open item."""
        if self._kind is None:
            return b""
        if self._call is not None:
            return self._close_call(status)
        out = self._close_part()
        return out + self._done(self._item(status, encrypted))

    def _done(self, item: bytes) -> bytes:
        out = self._item_event(b"response.output_item.done", item)
        self._output.append(item)
        self._kind = None
        return out

    # ---- what hangs on texts --------------------------------------------------------------------------------------

    def _opaque(self, event: OpaqueState) -> bytes:
        """Write state into the thought it belongs to, else into one that is hidden whole."""
        opaque = event.opaque
        if event.call_index is not None and opaque.id is None:
            opaque = msgspec.structs.replace(opaque, id=self._call_ids.get(event.call_index))
        value = opaque.value if opaque.vendor == "openai" else seal(opaque)
        is_of_thought = self._kind == "reasoning" and opaque.kind != "redacted" and event.call_index is None
        opening = b"" if is_of_thought else self._close("completed") + self._open_item("reasoning")
        return opening + self._close("completed", value)

    def _cite(self, citation: Citation) -> bytes:
        part = self._part
        if part is None or part.family != "response.output_text":
            return b""  # the text it belongs to is over
        annotation = json_edit.dumps(
            {
                "type": "url_citation",
                "start_index": max(0, citation.start_index - part.text_at),
                "end_index": max(0, citation.end_index - part.text_at),
                "title": citation.title,
                "url": citation.url,
            }
        )
        place = len(part.annotations)
        part.annotations.append(annotation)
        return self._event(
            b"response.output_text.annotation.added",
            b'%b,"content_index":%d,"annotation_index":%d,"annotation":%b'
            % (self._where(), part.index, place, annotation),
        )

    def _probabilities(self, event: Logprobs) -> bytes:
        """Tell probabilities in a delta without text: that of their text has left already."""
        part = self._part
        if part is None or part.family != "response.output_text":
            return b""
        part.logprobs += event.content
        return self._event(
            b"response.output_text.delta",
            b'%b,"content_index":%d,"delta":"","logprobs":%b'
            % (self._where(), part.index, json_edit.dumps(event.content)),
        )

    # ---- searches -------------------------------------------------------------------------------------------------

    def _search_web(self, search: WebSearch) -> bytes:
        """Tell a search as an item that begins and ends here; what belongs to one that has been told is left out."""
        if not search.queries:
            return b""
        out = self._close("completed")
        self._kind = "web_search_call"
        self._item_id = self._new_id(self._kind)
        status = b"failed" if search.failed else b"completed"
        begun = write_search(WebSearch(search.queries), self._item_id, b"in_progress", sources=False)
        out += self._item_event(b"response.output_item.added", begun)
        for state in (b"in_progress", b"searching", b"completed"):
            out += self._event(b"response.web_search_call." + state, self._where())
        item = write_search(search, self._item_id, status, sources=self._asked.search_sources)
        return out + self._done(item)

    # ---- calls ----------------------------------------------------------------------------------------------------

    def _start_call(self, start: ToolCallStart) -> bytes:
        out = self._close("completed")
        asked = self._asked
        call_id = start.id or f"call_{asked.id}{start.index:04x}"
        if len(call_id) > MAX_ID_CHARS:
            call_id = provider_name(call_id)
        if call_id in self._call_ids.values():
            call_id = f"call_{asked.id}{start.index:04x}"
        self._call_ids[start.index] = call_id
        name = asked.tool_names.get(start.name, start.name)
        if name == asked.search_tool:
            return out + self._start_search(call_id)
        custom = start.custom or name in asked.custom_tools
        self._kind = "custom_tool_call" if custom else "function_call"
        self._item_id = self._new_id(self._kind)
        head = b'"call_id":%b,%b' % (quote(call_id), self._name(name))
        self._call = _Call(head, quote(name), custom=custom, gathers=custom and not start.custom)
        family = "response.custom_tool_call_input" if custom else "response.function_call_arguments"
        kind = family.encode() + b".delta"
        pattern = b'event: %b\ndata: {"type":"%b",%b,"delta":' % (kind, kind, self._where())
        self._delta = pattern.replace(b"%", b"%%") + b'%b,"sequence_number":%d}\n\n'
        return out + self._item_event(b"response.output_item.added", self._call_item("in_progress", b'""'))

    def _start_search(self, call_id: str) -> bytes:
        """Open a call of the client's own search for tools: its arguments are an object, and come with its end."""
        self._kind = "tool_search_call"
        self._item_id = self._new_id(self._kind)
        head = b'"execution":"client","call_id":%b' % quote(call_id)
        self._call = _Call(head, b"", custom=False, gathers=True)
        return self._item_event(b"response.output_item.added", self._call_item("in_progress", b"{}"))

    def _name(self, name: str) -> bytes:
        if name in self._asked.namespaces:
            namespace, name = self._asked.namespaces[name]
            return b'"name":%b,"namespace":%b' % (quote(name), quote(namespace))
        return b'"name":%b' % quote(name)

    def _call_item(self, status: str, given: bytes) -> bytes:
        call = self._call
        assert call is not None, "a call is open"
        assert self._kind is not None, "likewise"
        key = b"input" if call.custom else b"arguments"
        return b'{"id":%b,"type":"%b","status":"%b",%b,"%b":%b}' % (
            self._item_id,
            self._kind.encode(),
            status.encode(),
            call.head,
            key,
            given,
        )

    def _arguments(self, delta: ToolCallDelta) -> bytes:
        call = self._call
        if call is None or not delta.arguments:
            return b""
        call.parts.append(delta.arguments)
        return b"" if call.gathers else self._arguments_delta(delta.arguments)

    def _arguments_delta(self, text: str) -> bytes:
        assert self._delta is not None, "a call is open"
        number = self._number
        self._number = number + 1
        return self._delta % (quote(text), number)

    def _close_call(self, status: str) -> bytes:
        call = self._call
        assert call is not None, "a call is open"
        text = "".join(call.parts)
        out = b""
        if self._kind == "tool_search_call":
            return self._close_search(status, text)
        if call.gathers:
            text = plain_input(text)
            out = self._arguments_delta(text) if text else b""
        elif not call.custom and not text.strip() and status == "completed":
            out = self._arguments_delta("{}")
            text += "{}"
        if not call.custom and not json_edit.is_json(text.encode(errors="replace")):
            status = "incomplete"
        told = quote(text)
        where = self._where()
        if call.custom:
            out += self._event(b"response.custom_tool_call_input.done", b'%b,"input":%b' % (where, told))
        else:
            done = b'%b,"name":%b,"arguments":%b' % (where, call.name, told)
            out += self._event(b"response.function_call_arguments.done", done)
        item = self._call_item(status, told)
        self._call = self._delta = None
        return out + self._done(item)

    def _close_search(self, status: str, text: str) -> bytes:
        given = text.strip().encode(errors="replace") or b"{}"
        if not given.startswith(b"{") or not json_edit.is_json(given):
            status, given = "incomplete", b"{}"
        item = self._call_item(status, compact(given).encode())
        self._call = None
        return self._done(item)

    # ---- the end --------------------------------------------------------------------------------------------------

    def finish(self, reasons: dict[int, tuple[str, str | None]]) -> bytes:
        """Return nothing: the finish waits for usage."""
        return b""

    def farewell(self, reasons: dict[int, tuple[str, str | None]], bill: Bill | None) -> bytes:
        """Return what is open, and the terminal event with the whole response."""
        out = [self._write(event) for event in self._serial.close()]
        incomplete = _INCOMPLETE.get(reasons.get(0, ("stop", None))[0])
        status = "completed" if incomplete is None else "incomplete"
        out.append(self._close(status))
        usage = tools = beside = b""
        if bill is not None:
            usage, beside = with_members(write_usage(bill.usage), bill.in_usage), bill.beside_usage
            tools = write_tool_usage(bill.usage)
        response = self._envelope.write(
            status,
            output=b"[%b]" % b",".join(self._output),
            usage=usage or b"null",
            incomplete=incomplete,
            service_tier=None if bill is None else served_tier(bill.usage),
        )
        self.response = with_members(with_members(response, tools), beside)
        out.append(self._event(b"response." + status.encode(), b'"response":%b' % self.response))
        return b"".join(out)

    def failure(self, error: SluicegateError) -> bytes:
        """Return the error in both known shapes, and `response.failed`; what is open stays so."""
        return error_events(error, self._number if self._told else 0, self._envelope)


def encode_answer(events: list[StreamEvent], asked: Asked, bill: Bill) -> bytes:
    """Write a whole response: what the stream of the same events would have told. See `AnswerEncoder`."""
    encoder = ResponsesStreamEncoder(asked)
    write_stream(events, encoder)
    wanted = {"usage": with_members(write_usage(bill.usage), bill.in_usage)}
    tier = served_tier(bill.usage)
    if tier is not None:
        wanted["service_tier"] = quote(tier)
    response = with_members(json_edit.changed(encoder.response, wanted), write_tool_usage(bill.usage))
    return with_members(response, bill.beside_usage)
