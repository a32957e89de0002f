"""Responses on the same format: events pass byte for byte, but for edits at token offsets.

What is always put right: the model as the client asked for it, id and time of creation (the same on every lifecycle
event), one start, numbers that rise by one, usage and the end. With `repair` also the grammar of items and parts. The
terminal event is held for settlement and leaves, with the cost in its usage, only in the farewell. Source: wire
formats page `responses.md`; contract R1, R2, C3, C7.
"""

import msgspec

from sluicegate.errors import DecodeError, SluicegateError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.kept_ids import sealed
from sluicegate.wire.openai_events import DONE, PayloadReader
from sluicegate.wire.openai_responses_delta import UsualDelta, learn
from sluicegate.wire.openai_responses_envelope import Envelope
from sluicegate.wire.openai_responses_errors import error_events
from sluicegate.wire.openai_responses_event import (
    ARGUMENTS,
    ENDS,
    FORMAT,
    KNOWN_EVENTS,
    STARTS,
    TEXTS,
    decode_item,
    decode_part,
    decode_piece,
    decode_response,
    failure,
    output_of,
    status_of,
    text_of,
)
from sluicegate.wire.openai_responses_passed_answer import ResponsesAnswer, finish_reason_of
from sluicegate.wire.openai_responses_repair import ItemRepair
from sluicegate.wire.openai_responses_shapes import Piece, Response
from sluicegate.wire.openai_responses_unfolding import Event, event, unfold
from sluicegate.wire.openai_responses_usage import read_usage, settled_usage
from sluicegate.wire.sse import frame_named
from sluicegate.wire.translation import Asked, PassOptions

_DELTAS = frozenset(f"{name}.delta" for name in (*TEXTS, *ARGUMENTS))
_HOLDERS = frozenset({"message", "reasoning"})
"""Items that hold nothing yet when they are announced."""


class ResponsesStream:
    """One streamed response between a provider and a client of the same format. See `StreamCodec`."""

    joins_usage = True

    def __init__(self, asked: Asked, options: PassOptions) -> None:
        self._asked = asked
        self._count_text = options.count_text
        self._max_event_bytes = options.max_event_bytes
        self._reader = PayloadReader(FORMAT, options.max_event_bytes)
        self._items = ItemRepair(asked.id) if options.repair else None

        self.out: list[bytes] = []
        self.content = False
        self.finishing = False
        self.ended = False
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id: str | None = None

        self._number = 0
        """Of the next event for the client."""
        self._put_right = False
        self._started = False
        self._same: dict[str, bytes] = {"model": msgspec.json.encode(asked.model)}
        """Members that are the same in every lifecycle event."""
        if asked.previous_id is not None:
            self._same["previous_response_id"] = msgspec.json.encode(asked.previous_id)
        self._counted = False
        self._last: Event | None = None
        """The terminal event."""
        self._last_response = Response()
        self._usual: UsualDelta | None = None
        self._usual_texts: list[str] | None = None
        """Gathers the part's text where somebody needs it."""
        self._usual_id: tuple[bytes, bytes] | None = None
        """The member of a usual event that names its item, as it comes and as it leaves, where the two differ."""

    @property
    def held(self) -> bool:
        """Whether the finish waits for something: never, since it comes with usage and ends the answer."""
        return False

    @property
    def repaired(self) -> bool:
        """Whether anything beyond the contract's own edits had to be put right."""
        return self._put_right or self._reader.repaired or (self._items is not None and self._items.put_right)

    # ---- bytes in -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body; what comes after the end or an error is not looked at.

        Raises:
            DecodeError: an event breaks the format, or is too long.
        """
        usual = self._usual
        if usual is not None and self._reader.clean and len(data) <= self._max_event_bytes:
            # The usual read: more of the same text.
            text = usual.text(data)
            if text is not None:
                self._count_text(text)
                if self._usual_texts is not None:
                    self._usual_texts.append(text)
                assert usual.number is not None, "others are not learned"
                self._number = usual.number
                self.out.append(data if self._usual_id is None else data.replace(*self._usual_id))
                return
        if self._is_over():
            return
        for payload in self._reader.feed(data):
            self._take(payload)
            if self._is_over():
                return

    def _is_over(self) -> bool:
        """Whether nothing that comes is looked at any more; asked anew after each event, as each may end it."""
        return self.ended or self.error is not None

    def finish(self) -> None:
        """Take the end of the body.

        Raises:
            DecodeError: the answer was cut: no terminal event came.
        """
        if self._is_over():
            return
        for payload in self._reader.finish():
            self._take(payload)
            if self._is_over():
                return
        raise DecodeError(FORMAT, None, "the stream ended without its terminal event")

    def feed_whole(self, body: bytes) -> None:
        """Take an answer that came as one response instead of a stream.

        Raises:
            DecodeError: it is no response.
        """
        answer = ResponsesAnswer(self._asked, body)
        if answer.error is not None:
            self.error = answer.error
            return
        for told in unfold(answer.body):
            self._take(told.payload)

    # ---- one event ------------------------------------------------------------------------------------------------

    def _take(self, payload: bytes) -> None:
        if payload == DONE:
            return
        if 0x0A in payload:
            payload = payload.replace(b"\n", b" ")  # white space of JSON that came on several lines
        piece = decode_piece(payload)
        error = failure(payload, piece)
        if error is not None:
            self._fail(piece, error)
        elif piece.type in STARTS:
            self._take_start(payload, piece)
        elif piece.type in ENDS:
            self._take_end(payload, piece)
        elif not piece.type:
            self._put_right = True  # no client could tell what it is
        elif piece.type != "keepalive" or self._started:
            self._take_content(payload, piece)

    def _fail(self, piece: Piece, error: StreamError) -> None:
        if piece.type in ENDS:
            self.usage = read_usage(decode_response(piece.response)) or self.usage
        self.error = error
        self._usual = None

    def _put(self, told: Event) -> None:
        """Put out an event under the next number; one of an unknown kind that has none gets none."""
        payload = told.payload
        mine = self._number
        if told.number != mine:
            if told.number is None and told.kind not in KNOWN_EVENTS and b'"sequence_number"' not in payload:
                if self._asked.close_id is not None:
                    payload = sealed(payload, "responses", self._asked.close_id)
                self.out.append(frame_named(told.kind.encode(), payload))
                return
            edits = json_edit.settings(payload, 0, {"sequence_number": b"%d" % mine})
            payload = json_edit.splice(payload, edits)
        if self._asked.close_id is not None:
            payload = sealed(payload, "responses", self._asked.close_id)
        self._number = mine + 1
        self.out.append(frame_named(told.kind.encode(), payload))

    def _put_all(self, events: list[Event]) -> None:
        """Put out events, and count what those say that the provider has not sent itself."""
        for told in events:
            self._put(told)
            if told.owed:
                self._count(decode_piece(told.payload))

    # ---- lifecycle ------------------------------------------------------------------------------------------------

    def _take_start(self, payload: bytes, piece: Piece) -> None:
        response = decode_response(piece.response)
        is_first = piece.type == "response.created"
        if self._started and is_first:
            self._put_right = True
            return
        if is_first:
            self._pin(response)
        elif not self._started:
            self._begin(response)
        wanted: dict[str, bytes] = {}
        if self._items is not None and bytes(response.output) == b"null":
            self._put_right = True
            wanted["output"] = b"[]"
        self._put(Event(piece.type, self._with_identity(payload, wanted), piece.sequence_number))

    def _pin(self, response: Response) -> None:
        """Fix what names the answer from its first event on."""
        self._started = True
        if isinstance(response.id, str) and response.id:
            self.upstream_id = response.id
        id_ = "resp_" + self._asked.id
        if self.upstream_id is not None and self._asked.close_id is not None:
            id_ = self._asked.close_id(self.upstream_id)
        elif self.upstream_id is not None and not self._asked.hide_provider:
            id_ = self.upstream_id
        created = response.created_at
        if not isinstance(created, int) or isinstance(created, bool):
            created = int(created) if isinstance(created, float) else self._asked.created
        self._same["id"] = msgspec.json.encode(id_)
        self._same["created_at"] = b"%d" % created

    def _begin(self, response: Response) -> None:
        """Tell the start that the provider left out."""
        self._put_right = True
        self._pin(response)
        begun = self._envelope().write("in_progress")
        self._put(event("response.created", response=msgspec.Raw(begun)))

    def _envelope(self) -> Envelope:
        """Return the response as it is told where the provider has not."""
        if not self._started:
            return Envelope.of(self._asked)
        id_ = msgspec.json.decode(self._same["id"])
        return Envelope(id_, int(self._same["created_at"]), self._asked.model, self._asked.raw)

    def _with_identity(self, payload: bytes, wanted: dict[str, bytes]) -> bytes:
        """Return a lifecycle event whose response names itself rightly, and has these members."""
        return json_edit.splice(payload, self._response_edits(payload, self._same | wanted))

    def _response_edits(self, payload: bytes, wanted: dict[str, bytes]) -> list[Edit]:
        at = next(
            (
                member.start
                for member in reversed(json_edit.inner_members(payload, 0))
                if member.key == "response"
            ),
            None,
        )
        if at is None or payload[at : at + 1] != b"{":
            raise DecodeError(FORMAT, None, "a lifecycle event has no response")
        return json_edit.settings(payload, at, wanted)

    def _before_content(self) -> None:
        """See to it that the response has begun."""
        if not self._started:
            self._begin(Response())

    # ---- content --------------------------------------------------------------------------------------------------

    def _take_content(self, payload: bytes, piece: Piece) -> None:
        kind = piece.type
        self._before_content()
        self._count(piece)
        if kind != "keepalive":
            self.content |= bool(piece.delta) if kind in _DELTAS else _brings_content(piece)
        if bytes(piece.response).startswith(b"{"):
            payload = self._with_identity(payload, {})
        events = (
            [Event(kind, payload, piece.sequence_number)]
            if self._items is None
            else self._items.take(payload, piece)
        )
        self._put_all(events)
        if kind in _DELTAS and len(events) == 1 and events[0].payload is payload:
            self._learn(payload, piece)
        else:
            self._usual = None

    def _learn(self, payload: bytes, piece: Piece) -> None:
        """Remember what has just passed as it was: more of it needs no more than a look."""
        self._usual = None
        if self._items is not None:
            self._usual_texts = self._items.texts_of(piece)
            if self._usual_texts is None:
                return
        if piece.sequence_number is not None and piece.sequence_number + 1 == self._number:
            self._usual = learn(payload, piece.type)
            self._usual_id = None if self._asked.close_id is None else self._item_ids(payload)

    def _item_ids(self, payload: bytes) -> tuple[bytes, bytes] | None:
        """Return the member that names an event's item, as it stands and as the client gets it.

        Between quotes that are not escaped, it stands nowhere else: inside a text they would be.
        """
        assert self._asked.close_id is not None, "looked at before"
        for member in json_edit.inner_members(payload, 0):
            if member.key == "item_id":
                told = payload[member.key_at : member.end]
                return told, sealed(b"{%b}" % told, "responses", self._asked.close_id)[1:-1]
        return None

    def _count(self, piece: Piece) -> None:
        """Count what an event says that no event before it has said."""
        text = None
        if piece.type in _DELTAS:
            text = piece.delta
        elif piece.type == "response.output_item.added":
            text = decode_item(piece.item).name
        if text:
            self._counted = True
            self._count_text(text)

    # ---- the end --------------------------------------------------------------------------------------------------

    def _take_end(self, payload: bytes, piece: Piece) -> None:
        response = decode_response(piece.response)
        if not self._started:
            self._begin(response)
        status = status_of(piece.type, response)
        output = output_of(response)
        if self._items is not None:
            self._put_all(self._items.close(status, output))
        if output and not self._counted:
            for text in ResponsesAnswer(self._asked, bytes(piece.response)).texts():
                self._count_text(text)
        self.content |= bool(output)
        self.usage = read_usage(response) or self.usage
        called = any(decode_item(raw).type in ("function_call", "custom_tool_call") for raw in output)
        self.finish_reason = finish_reason_of(response, status, called=called)
        self._last = Event(piece.type, payload, piece.sequence_number)
        self._last_response = response
        self.ended = True
        self._usual = None

    def flush(self) -> None:
        """Nothing waits here but the end."""

    def release(self) -> None:
        """Put out nothing: the finish waits for usage."""

    def farewell(self, bill: Bill | None) -> bytes:
        """Return the terminal event, with usage as it was settled."""
        last, response = self._last, self._last_response
        if last is None:
            return b""
        wanted: dict[str, bytes] = {}
        if self._items is not None:
            output = self._items.output(output_of(response))
            if output is not None or bytes(response.output) == b"null":
                wanted["output"] = output or b"[]"
        if self._items is not None and not isinstance(response.status, str):
            self._put_right = True
            wanted["status"] = b'"%b"' % last.kind.removeprefix("response.").encode()
        if bill is not None:
            wanted["usage"] = settled_usage(
                bytes(response.usage), bill.usage, bill.in_usage, whole=self._items is not None
            )
            wanted |= _members(bill.beside_usage)
        self._put(last._replace(payload=self._with_identity(last.payload, wanted)))
        return self.out.pop()

    def failure(self, error: SluicegateError) -> bytes:
        """Return the error in both known shapes, and `response.failed`; what is open stays so.

        Start-up events that are still here never left, so their numbers are free.
        """
        left = self._number if self.content else self._number - len(self.out)
        return error_events(error, left, self._envelope())


def _brings_content(piece: Piece) -> bool:
    """Whether an event, no delta, holds anything that the client waits for; one of an unknown kind does."""
    if piece.type not in KNOWN_EVENTS or piece.text or piece.refusal or piece.arguments or piece.input:
        return True
    if bytes(piece.part).startswith(b"{"):
        return bool(text_of(decode_part(piece.part)))
    if bytes(piece.item).startswith(b"{"):
        item = decode_item(piece.item)
        parts = [*(item.summary or ()), *(item.content or ())]
        return item.type not in _HOLDERS or bool(item.encrypted_content) or any(map(text_of, parts))
    return bytes(piece.annotation) != b"null"


def _members(ready: bytes) -> dict[str, bytes]:
    """Return ready JSON members by their keys."""
    if not ready:
        return {}
    given = b"{%b}" % ready
    return {member.key: given[member.start : member.end] for member in json_edit.inner_members(given, 0)}
