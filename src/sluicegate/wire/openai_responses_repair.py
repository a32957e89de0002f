"""The grammar of a Responses stream put right on its way through: what stands before an event that it may pass.

A healthy stream passes as it is. Else items and parts that nobody announced are begun, those left open are closed,
texts that came only in their end are told as a delta too, calls without arguments get an empty object, indexes are
counted without gaps, and ids stay what they were when their item began. Numbers of events are left to
`openai_responses_passing`. Source: wire formats page `node-sdks.md`, "Responses"; cases B018, B083.
"""

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.wire import json_edit
from sluicegate.wire.openai_responses_event import (
    ARGUMENTS,
    FORMAT,
    PART_EVENTS,
    TEXTS,
    Place,
    decode_item,
    decode_part,
    text_of,
)
from sluicegate.wire.openai_responses_open_item import (
    CALLS,
    HOLDERS,
    NO_ARGUMENTS,
    OpenItem,
    OpenPart,
    place_of,
)
from sluicegate.wire.openai_responses_shapes import NULL, Item, Piece
from sluicegate.wire.openai_responses_unfolding import Event, Object, event, unfold_item

_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
_FAMILY_OF_PART = {family.part: name for name, family in TEXTS.items()}
_COMPLETED = b'"completed"'
_decode = msgspec.json.Decoder(Object).decode
_encode = msgspec.json.Encoder().encode
_WITH_STATUS = (*CALLS, "message")
"""Items that say whether they are whole."""


class ItemRepair:
    """Keeps one stream's items grammatical."""

    def __init__(self, minted: str) -> None:
        """Start an answer.

        Args:
            minted: letters and digits for the ids of what has none.
        """
        self._minted = minted
        self._open: dict[int, OpenItem] = {}
        """By the provider's index."""
        self._count = 0
        self._done: dict[int, msgspec.Raw] = {}
        """Items that have ended, as the client got them, by their index there."""
        self._differs = False
        """Some of them are not what the provider said."""
        self.put_right = False

    # ---- one event ------------------------------------------------------------------------------------------------

    def take(self, payload: bytes, piece: Piece) -> list[Event]:
        """Return an event as it may pass, with what has to stand before it; none where it says nothing new.

        Raises:
            DecodeError: it is about nothing that could be begun for it.
        """
        events = self._take(payload, piece)
        if len(events) != 1 or events[0].payload is not payload:
            self.put_right = True
        return events

    def _take(self, payload: bytes, piece: Piece) -> list[Event]:
        family, _, last = piece.type.rpartition(".")
        if last in ("delta", "done") and family in TEXTS:
            return self._take_text(payload, piece, family, is_whole=last == "done")
        if last in ("delta", "done") and family in ARGUMENTS:
            return self._take_arguments(payload, piece, family, is_whole=last == "done")
        if last in ("added", "done") and family in PART_EVENTS:
            return self._take_part(payload, piece, PART_EVENTS[family], is_over=last == "done")
        if piece.type == "response.output_item.added":
            return self._add(payload, piece)
        if piece.type == "response.output_item.done":
            return self._end(payload, piece)
        return [
            _placed(payload, piece, self._open.get(-1 if piece.output_index is None else piece.output_index))
        ]

    def texts_of(self, piece: Piece) -> list[str] | None:
        """Return where the text of a delta that has just passed as it was is gathered."""
        item = self._open.get(piece.output_index) if piece.output_index is not None else None
        if item is None or item.index != piece.output_index or item.id != piece.item_id:
            return None
        if item.kind in CALLS:
            return item.texts
        part = item.part
        if part is None or place_of(piece, TEXTS[part.family].place) != part.index:
            return None
        return part.texts

    def close(self, status: str, output: list[msgspec.Raw]) -> list[Event]:
        """Return what the stream owes before its terminal event.

        Args:
            status: of the response.
            output: of the response; what of it has not been told is told now.
        """
        events: list[Event] = []
        for item in list(self._open.values()):
            raw = output[item.index] if item.index < len(output) else None
            is_same = raw is not None and decode_item(raw).type == item.kind
            events += self._close_item(item, status, raw if is_same else None)
        for raw in output[self._count :]:
            events += self._tell(decode_item(raw), _decode(raw))
        self.put_right |= bool(events)
        return events

    def output(self, output: list[msgspec.Raw]) -> bytes | None:
        """Return the list of items that the terminal event has to tell instead of its own; None: its own stands.

        Clients take it for the answer, so it may leave out nothing that was streamed, nor name it otherwise.
        """
        told = [_id_of(raw) for raw in output]
        items = [self._done[index] for index in sorted(self._done)]
        streamed = [_id_of(raw) for raw in items]
        if not items or len(told) > len(streamed) or (told == streamed and not self._differs):
            return None
        self.put_right = True
        return _encode(items)

    # ---- items ----------------------------------------------------------------------------------------------------

    def _item_of(self, piece: Piece, kind: str) -> tuple[OpenItem, list[Event]]:
        """Return the open item that an event is about; one that nobody announced, or that is over, begins here."""
        index = piece.output_index
        if index is None:
            by_id = (place for place, item in self._open.items() if item.id == piece.item_id)
            index = next(by_id, next(reversed(self._open), -1))
        found = self._open.get(index)
        if found is not None and found.kind == kind:
            return found, []
        if kind in CALLS:
            raise DecodeError(FORMAT, None, "arguments belong to no call")
        id_ = piece.item_id if piece.item_id and not self._was(piece.item_id) else None
        begun = self._new_item(index, Item(type=kind, id=id_), {"type": msgspec.Raw(_encode(kind))})
        added = event("response.output_item.added", output_index=begun.index, item=begun.begun())
        return begun, [*self._close_others(begun), added]

    def _was(self, id_: str) -> bool:
        return any(decode_item(raw).id == id_ for raw in self._done.values())

    def _new_item(self, index: int, item: Item, members: Object) -> OpenItem:
        """Open an item, with ids where it has none."""
        item.id = item.id or f"{_PREFIXES.get(item.type, 'item')}_{self._minted}{self._count:04x}"
        members["id"] = msgspec.Raw(_encode(item.id))
        if item.type in CALLS and not item.call_id:
            members["call_id"] = msgspec.Raw(_encode(f"call_{self._minted}{self._count:04x}"))
        opened = self._open[index] = OpenItem(self._count, item, members)
        self._count += 1
        return opened

    def _close_others(self, new: OpenItem) -> list[Event]:
        """Return what ends the items before a new one, as far as they can end."""
        others = [item for item in self._open.values() if item is not new and item.can_end]
        return [event for item in others for event in self._close_item(item, "completed")]

    def _add(self, payload: bytes, piece: Piece) -> list[Event]:
        item = decode_item(piece.item)
        given_id, given_call_id = item.id, item.call_id
        index = piece.output_index if piece.output_index is not None else self._count
        twice = self._open.get(index)
        events = [] if twice is None else self._close_item(twice, "completed")
        opened = self._new_item(index, item, _decode(piece.item))
        events += self._close_others(opened)
        wanted: dict[str, bytes] = {}
        if not given_id:
            wanted["id"] = bytes(opened.members["id"])
        if item.type in CALLS and not given_call_id:
            wanted["call_id"] = bytes(opened.members["call_id"])
        holder = HOLDERS.get(item.type)
        if holder is not None and bytes(opened.members.get(holder, NULL)) == b"null":
            wanted[holder] = b"[]"
        if item.type in CALLS and item.arguments is None and item.input is None:
            wanted[CALLS[item.type][1]] = b'""'
        return [*events, _placed(_with_item(payload, wanted), piece, opened)]

    def _end(self, payload: bytes, piece: Piece) -> list[Event]:
        item = decode_item(piece.item)
        index = piece.output_index
        if index is None:
            index = next((place for place, open_ in self._open.items() if open_.id == item.id), -1)
        opened = self._open.get(index)
        if opened is None or opened.kind != item.type:
            return [] if item.id and self._was(item.id) else self._tell(item, _decode(piece.item))
        events = opened.owed_inside(_decode(piece.item))
        del self._open[index]
        wanted: dict[str, bytes] = {}
        if item.id != opened.id:
            wanted["id"] = bytes(opened.members["id"])
        if opened.kind in CALLS and not item.call_id:
            wanted["call_id"] = bytes(opened.members["call_id"])
        if opened.kind in CALLS and not item.name and "name" in opened.members:
            wanted["name"] = bytes(opened.members["name"])
        if opened.kind == "function_call" and not (item.arguments or "").strip():
            wanted["arguments"] = _encode("".join(opened.texts))
        if item.status is None and opened.kind in _WITH_STATUS:
            wanted["status"] = _COMPLETED
        self._differs |= bool(wanted)
        self._done[opened.index] = msgspec.Raw(json_edit.changed(bytes(piece.item), wanted))
        return [*events, _placed(_with_item(payload, wanted), piece, opened)]

    def _tell(self, item: Item, members: Object) -> list[Event]:
        """Return the whole of an item that nobody announced."""
        before = dict(members)
        index = -1 - self._count  # a place that no provider uses
        opened = self._new_item(index, item, members)
        del self._open[index]
        if item.type in _WITH_STATUS and item.status is None:
            members["status"] = msgspec.Raw(_COMPLETED)
        if item.type == "function_call" and not (item.arguments or "").strip():
            members["arguments"] = msgspec.Raw(_encode(NO_ARGUMENTS))
        self._differs |= members != before
        self._done[opened.index] = msgspec.Raw(_encode(members))
        return [*self._close_others(opened), *unfold_item(opened.index, members)]

    def _close_item(self, item: OpenItem, status: str, raw: msgspec.Raw | None = None) -> list[Event]:
        """Return what ends an item whose end never came.

        Args:
            status: of the response.
            raw: the item as the terminal event tells it.
        """
        self._open = {index: open_ for index, open_ in self._open.items() if open_ is not item}
        if raw is not None:
            members = _decode(raw) | {"id": item.members["id"]}
            if item.kind in CALLS:
                members |= {"call_id": item.members["call_id"]}
            events = item.owed_inside(members)
            if item.kind == "function_call":
                members["arguments"] = msgspec.Raw(_encode("".join(item.texts)))
            self._differs = True
        else:
            events = item.owed_arguments("") if item.kind in CALLS else item.close_part()
            members = item.gathered(status)
        if item.kind in _WITH_STATUS:
            members.setdefault("status", msgspec.Raw(_COMPLETED))
        self._done[item.index] = msgspec.Raw(_encode(members))
        return [*events, event("response.output_item.done", output_index=item.index, item=members)]

    # ---- what stands in items -------------------------------------------------------------------------------------

    def _take_part(self, payload: bytes, piece: Piece, key: Place, *, is_over: bool) -> list[Event]:
        part = decode_part(piece.part)
        family = _FAMILY_OF_PART.get(part.type)
        if family is None:
            index = -1 if piece.output_index is None else piece.output_index
            return [_placed(payload, piece, self._open.get(index))]
        item, events = self._item_of(piece, TEXTS[family].item)
        given = place_of(piece, key)
        if not is_over:
            events += item.close_part()
            item.part = OpenPart(family, len(item.parts[key]), given, _decode(piece.part))
            return [*events, _placed(payload, piece, item, **{key: item.part.index})]
        opened = item.part
        if opened is None and given is not None and given < len(item.parts[key]):
            return []  # it has been closed before
        if opened is None or opened.family != family:
            return [*events, *item.close_part(), *item.add_part(key, _decode(piece.part))]
        events += item.owed_text(opened, text_of(part))
        item.part = None
        item.parts[key].append(_decode(piece.part))
        return [*events, _placed(payload, piece, item, **{key: opened.index})]

    def _take_text(self, payload: bytes, piece: Piece, family: str, *, is_whole: bool) -> list[Event]:
        known = TEXTS[family]
        given = place_of(piece, known.place)
        if is_whole and self._is_over(piece, known.place, given):
            return []
        item, events = self._item_of(piece, known.item)
        part, begins = item.part_for(family, given)
        events += begins
        if is_whole:
            events += item.owed_delta(part, (piece.text or piece.refusal) or "")
            part.said = True
        else:
            part.texts.append(piece.delta or "")
        return [*events, _placed(payload, piece, item, **{known.place: part.index})]

    def _is_over(self, piece: Piece, key: Place, given: int | None) -> bool:
        """Whether the end of a text comes behind that of its part or item."""
        item = None if piece.output_index is None else self._open.get(piece.output_index)
        if item is None:
            return piece.item_id is not None and self._was(piece.item_id)
        if item.part is not None:
            return item.part.said and given in (None, item.part.given)
        return given is not None and given < len(item.parts[key])

    def _take_arguments(self, payload: bytes, piece: Piece, family: str, *, is_whole: bool) -> list[Event]:
        kind, field = ARGUMENTS[family]
        if is_whole and self._is_over(piece, "content_index", None):
            return []
        item, events = self._item_of(piece, kind)
        if not is_whole:
            item.texts.append(piece.delta or "")
            return [*events, _placed(payload, piece, item)]
        events += item.owed_arguments_delta((piece.arguments or piece.input) or "")
        item.said = True
        if kind == "function_call" and not (piece.arguments or "").strip():
            told = {field: _encode("".join(item.texts))}
            payload = json_edit.splice(payload, json_edit.settings(payload, 0, told))
        return [*events, _placed(payload, piece, item)]


def _placed(payload: bytes, piece: Piece, item: OpenItem | None, **places: int) -> Event:
    """Return an event with the indexes and the id by which the client knows its item."""
    wanted: dict[str, bytes] = {}
    if item is not None:
        if piece.output_index != item.index:
            wanted["output_index"] = b"%d" % item.index
        if piece.item_id != item.id and not piece.type.startswith("response.output_item."):
            wanted["item_id"] = _encode(item.id)
    for key, place in places.items():
        if getattr(piece, key) != place:
            wanted[key] = b"%d" % place
    if wanted:
        payload = json_edit.splice(payload, json_edit.settings(payload, 0, wanted))
    return Event(piece.type, payload, piece.sequence_number)


def _with_item(payload: bytes, wanted: dict[str, bytes]) -> bytes:
    """Return an event whose item has these members."""
    if not wanted:
        return payload
    members = reversed(json_edit.inner_members(payload, 0))
    at = next(member.start for member in members if member.key == "item")
    return json_edit.splice(payload, json_edit.settings(payload, at, wanted))


def _id_of(raw: msgspec.Raw) -> str | None:
    """Return an item's id; None also of one that has left although it has not the shape of its type."""
    try:
        return decode_item(raw).id
    except DecodeError:
        return None
