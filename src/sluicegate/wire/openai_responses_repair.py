"""The grammar of a Responses stream put right on its way through: what items and parts owe before an event may pass.

A healthy stream passes as it is. Else items and parts that nobody announced are begun, those left open are closed,
texts that came only in their end are told as a delta too, indexes are counted without gaps, and ids stay what they
were when their item began. Numbers of events are left to `openai_responses_passing`. Source: wire formats page
`node-sdks.md`, "Responses"; cases B018, B083.
"""

from typing import Any

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.wire import json_edit
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.openai_responses_event import (
    ARGUMENTS,
    FORMAT,
    NULL,
    PART_EVENTS,
    TEXTS,
    Item,
    Piece,
    Place,
    decode_item,
    decode_part,
    text_of,
)
from sluicegate.wire.openai_responses_unfolding import (
    Event,
    Object,
    event,
    parts_of,
    unfold_inside,
    unfold_item,
    unfold_part,
)

_EMPTY = {"message": ("content",), "reasoning": ("summary",)}
"""Lists that a new item has to hold."""
_CALLS = {kind: (name, field) for name, (kind, field) in ARGUMENTS.items()}
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
_decode = msgspec.json.Decoder(Object).decode
_encode = msgspec.json.Encoder().encode


class OpenPart:
    """A part that has begun and not ended."""

    __slots__ = ("family", "given", "index", "members", "said", "texts")

    def __init__(self, family: str, index: int, given: int | None, members: Object) -> None:
        self.family = family
        self.index = index
        """As the client knows it."""
        self.given = given
        """As the provider does."""
        self.members = members
        """All of it but its text."""
        self.texts: list[str] = []
        self.said = False
        """Its text has been told whole."""


class OpenItem:
    """An item that has begun and not ended."""

    __slots__ = ("counts", "id", "index", "kind", "members", "part", "parts", "said", "texts")

    def __init__(self, index: int, members: Object, item: Item) -> None:
        self.index = index
        """As the client knows it."""
        self.members = members
        """All of it but its content."""
        self.id = item.id
        self.kind = item.type
        self.part: OpenPart | None = None
        self.parts: dict[Place, list[Object]] = {"content_index": [], "summary_index": []}
        """Those that have ended."""
        self.texts: list[str] = []
        """Of a call: its arguments."""
        self.said = False
        """Of a call: its arguments have been told whole."""


class ItemRepair:
    """Keeps one stream's items grammatical. See `take`."""

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
        self.put_right = False

    # ---- one event ------------------------------------------------------------------------------------------------

    def take(self, payload: bytes, piece: Piece) -> list[Event]:
        """Return an event as it may pass, with what has to stand before it; none where it says nothing new."""
        kind = piece.type
        family, _, last = kind.rpartition(".")
        if family in TEXTS and last in ("delta", "done"):
            return self._take_text(payload, piece, family, last)
        if family in ARGUMENTS and last in ("delta", "done"):
            return self._take_arguments(payload, piece, family, last)
        if family in PART_EVENTS and last in ("added", "done"):
            return self._take_part(payload, piece, PART_EVENTS[family], last)
        if kind == "response.output_item.added":
            return self._add(payload, piece)
        if kind == "response.output_item.done":
            return self._end(payload, piece)
        item = None if piece.output_index is None else self._open.get(piece.output_index)
        return [Event(kind, self._placed(payload, piece, item), piece.sequence_number)]

    def texts_of(self, piece: Piece) -> list[str] | None:
        """Return where the text of a delta that has just passed as it was is gathered."""
        item = self._open.get(piece.output_index) if piece.output_index is not None else None
        if item is None or item.index != piece.output_index:
            return None
        if item.part is None:
            return None
        index = _place(piece, TEXTS[item.part.family].place)
        return item.part.texts if index == item.part.index and piece.item_id == item.id else None

    def close(self, status: str, output: list[msgspec.Raw]) -> list[Event]:
        """Return what the stream owes before its terminal event.

        Args:
            status: of the response.
            output: of the response; what of it has not been told is told now.
        """
        events: list[Event] = []
        for item in list(self._open.values()):
            raw = output[item.index] if item.index < len(output) else None
            if raw is not None and decode_item(raw).type == item.kind:
                events += self._close_item(item, status, raw)
            else:
                events += self._close_item(item, status)
        for raw in output[self._count :]:
            self.put_right = True
            events += self._tell(_decode(raw), decode_item(raw))
        return events

    def output(self, output: list[msgspec.Raw]) -> bytes | None:
        """Return the list of items that the terminal event has to tell instead of its own; None: its own stands.

        Clients take it for the answer, so it may leave out nothing that was streamed, nor name it otherwise.
        """
        told = [decode_item(raw).id for raw in output]
        items = [self._done[index] for index in sorted(self._done)]
        streamed = [decode_item(raw).id for raw in items]
        if not items or told == streamed or len(told) > len(streamed):
            return None
        self.put_right = True
        return _encode(items)

    # ---- places ---------------------------------------------------------------------------------------------------

    def _placed(self, payload: bytes, piece: Piece, item: OpenItem | None, **places: int) -> bytes:
        """Return an event with the indexes and the id by which the client knows the item."""
        if item is None:
            return payload
        wanted: dict[str, bytes] = {}
        if piece.output_index != item.index:
            wanted["output_index"] = b"%d" % item.index
        if piece.item_id != item.id and not piece.type.startswith("response.output_item."):
            wanted["item_id"] = _encode(item.id)
        for key, place in places.items():
            if getattr(piece, key) != place:
                wanted[key] = b"%d" % place
        if not wanted:
            return payload
        self.put_right = True
        return json_edit.splice(payload, json_edit.settings(payload, 0, wanted))

    def _where(self, item: OpenItem) -> dict[str, Any]:
        return {"item_id": item.id, "output_index": item.index}

    def _item_of(self, piece: Piece, kind: str, events: list[Event]) -> OpenItem:
        """Return the open item that an event is about; one that nobody announced, or that is over, begins here."""
        index = piece.output_index
        if index is None:
            index = next(
                (place for place, item in self._open.items() if item.id == piece.item_id),
                next(reversed(self._open), -1),
            )
        found = self._open.get(index)
        if found is None or found.kind != kind:
            if kind in _CALLS:
                raise DecodeError(FORMAT, None, "arguments belong to no call")
            self.put_right = True
            id_ = piece.item_id if piece.item_id and not self._was(piece.item_id) else None
            begun = self._new_item(index, Item(type=kind, id=id_), {"type": msgspec.Raw(_encode(kind))})
            events += self._close_others(begun)
            events.append(
                event("response.output_item.added", output_index=begun.index, item=_begun(begun, kind))
            )
            found = begun
        return found

    def _was(self, id_: str) -> bool:
        return any(decode_item(raw).id == id_ for raw in self._done.values())

    # ---- items ----------------------------------------------------------------------------------------------------

    def _new_item(self, index: int, item: Item, members: Object) -> OpenItem:
        if not item.id:
            item.id = f"{_PREFIXES.get(item.type, 'item')}_{self._minted}{self._count:04x}"
        members["id"] = msgspec.Raw(_encode(item.id))
        if item.type in _CALLS and not item.call_id:
            members["call_id"] = msgspec.Raw(_encode(f"call_{self._minted}{self._count:04x}"))
        opened = OpenItem(self._count, members, item)
        self._count += 1
        self._open[index] = opened
        return opened

    def _close_others(self, new: OpenItem) -> list[Event]:
        """Close what stands before a new item and can be closed: all but calls that are not whole."""
        events: list[Event] = []
        for item in [item for item in self._open.values() if item is not new]:
            if item.kind in _CALLS and not item.said and not json_edit.is_json("".join(item.texts).encode()):
                continue
            if item.kind in _CALLS or item.kind in _EMPTY:
                events += self._close_item(item, "completed")
        return events

    def _add(self, payload: bytes, piece: Piece) -> list[Event]:
        item = decode_item(piece.item)
        index = piece.output_index if piece.output_index is not None else self._count
        twice = self._open.pop(index, None)
        events = [] if twice is None else self._close_item(twice, "completed")
        given_id, given_call_id = item.id, item.call_id
        opened = self._new_item(index, item, _decode(piece.item))
        events += self._close_others(opened)
        wanted: dict[str, bytes] = {}
        if not given_id:
            wanted["id"] = bytes(opened.members["id"])
        if item.type in _CALLS and not given_call_id:
            wanted["call_id"] = bytes(opened.members["call_id"])
        for key in _EMPTY.get(item.type, ()):
            if bytes(opened.members.get(key, NULL)) == b"null":
                wanted[key] = b"[]"
        if item.type in _CALLS and (item.arguments is None and item.input is None):
            wanted[_CALLS[item.type][1]] = b'""'
        events.append(
            Event(
                piece.type,
                self._placed(self._with_item(payload, wanted), piece, opened),
                piece.sequence_number,
            )
        )
        return events

    def _with_item(self, payload: bytes, wanted: dict[str, bytes]) -> bytes:
        """Return an event whose item has these members."""
        if not wanted:
            return payload
        self.put_right = True
        return json_edit.splice(payload, _inner_edits(payload, "item", wanted))

    def _end(self, payload: bytes, piece: Piece) -> list[Event]:
        item = decode_item(piece.item)
        index = piece.output_index
        if index is None:
            index = next((place for place, open_ in self._open.items() if open_.id == item.id), -1)
        opened = self._open.get(index)
        if opened is None or opened.kind != item.type:
            self.put_right = True
            if item.id and self._was(item.id):
                return []
            return self._tell(_decode(piece.item), item)
        events = self._owed_inside(opened, item, _decode(piece.item))
        del self._open[index]
        wanted: dict[str, bytes] = {}
        if item.id != opened.id:
            wanted["id"] = bytes(opened.members["id"])
        if opened.kind in _CALLS:
            if not item.call_id:
                wanted["call_id"] = bytes(opened.members["call_id"])
            if not item.name and "name" in opened.members:
                wanted["name"] = bytes(opened.members["name"])
        if item.status is None and opened.kind in (*_CALLS, "message"):
            wanted["status"] = b'"completed"'
        payload = self._with_item(payload, wanted)
        self._done[opened.index] = msgspec.Raw(json_edit.changed(bytes(piece.item), wanted))
        return [*events, Event(piece.type, self._placed(payload, piece, opened), piece.sequence_number)]

    def _tell(self, members: Object, item: Item) -> list[Event]:
        """Return the whole of an item that nobody announced."""
        opened = self._new_item(-1 - self._count, item, members)
        del self._open[-opened.index - 1]
        if item.type in (*_CALLS, "message") and item.status is None:
            members["status"] = msgspec.Raw(b'"completed"')
        self._done[opened.index] = msgspec.Raw(_encode(members))
        return [*self._close_others(opened), *unfold_item(opened.index, members)]

    def _owed_inside(self, opened: OpenItem, item: Item, members: Object) -> list[Event]:
        """Return what has to tell an item's content before the item may end.

        Args:
            item, members: the whole item.
        """
        if opened.kind in _CALLS:
            return self._owed_arguments(opened, (item.arguments or item.input) or "")
        if opened.kind not in _EMPTY:
            return []
        part = opened.part
        if part is not None:
            key = "summary" if TEXTS[part.family].place == "summary_index" else "content"
            whole = parts_of(members.get(key, NULL))
            return self._close_part(opened, whole[part.index] if part.index < len(whole) else None)
        if any(opened.parts.values()):
            return []
        events = unfold_inside(opened.index, members | {"id": opened.members["id"]})
        self.put_right |= bool(events)
        return events

    def _close_item(self, item: OpenItem, status: str, raw: msgspec.Raw | None = None) -> list[Event]:
        """Return what ends an item whose end never came.

        Args:
            status: of the response.
            raw: the item as the terminal event tells it.
        """
        self.put_right = True
        for index, open_ in list(self._open.items()):
            if open_ is item:
                del self._open[index]
        if raw is not None:
            whole = decode_item(raw)
            members = _decode(raw) | {"id": item.members["id"]}
            if item.kind in _CALLS and not whole.call_id:
                members["call_id"] = item.members["call_id"]
            events = self._owed_inside(item, whole, members)
        else:
            events = self._close_part(item) if item.kind not in _CALLS else self._owed_arguments(item, "")
            members = self._gathered(item, status)
        if item.kind in (*_CALLS, "message") and "status" not in members:
            members["status"] = msgspec.Raw(b'"completed"')
        self._done[item.index] = msgspec.Raw(_encode(members))
        return [*events, event("response.output_item.done", output_index=item.index, item=members)]

    def _gathered(self, item: OpenItem, status: str) -> Object:
        """Return an item as it was streamed."""
        members = dict(item.members)
        if item.kind in _CALLS:
            text = "".join(item.texts)
            members[_CALLS[item.kind][1]] = msgspec.Raw(_encode(text))
            is_whole = item.kind == "custom_tool_call" or json_edit.is_json(text.encode())
            members["status"] = msgspec.Raw(b'"completed"' if is_whole else b'"incomplete"')
        elif item.kind == "message":
            members["content"] = msgspec.Raw(_encode(item.parts["content_index"]))
            members["status"] = msgspec.Raw(b'"incomplete"' if status == "incomplete" else b'"completed"')
            members.setdefault("role", msgspec.Raw(b'"assistant"'))
        elif item.kind == "reasoning":
            members["summary"] = msgspec.Raw(_encode(item.parts["summary_index"]))
            if item.parts["content_index"]:
                members["content"] = msgspec.Raw(_encode(item.parts["content_index"]))
        return members

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _take_part(self, payload: bytes, piece: Piece, key: Place, last: str) -> list[Event]:
        part = decode_part(piece.part)
        family = next((name for name, known in TEXTS.items() if known.part == part.type), None)
        if family is None:
            item = self._open.get(piece.output_index) if piece.output_index is not None else None
            return [Event(piece.type, self._placed(payload, piece, item), piece.sequence_number)]
        events: list[Event] = []
        item = self._item_of(piece, TEXTS[family].item, events)
        given = _place(piece, key)
        index = len(item.parts[key])
        if last == "added":
            events += self._close_part(item)
            index = len(item.parts[key])
            item.part = OpenPart(family, index, given, _decode(piece.part))
            return [
                *events,
                Event(piece.type, self._placed(payload, piece, item, **{key: index}), piece.sequence_number),
            ]
        opened = item.part
        if opened is None or opened.family != family:
            if opened is None and given is not None and given < index:
                self.put_right = True
                return []  # it has been closed before
            self.put_right = True
            events += self._close_part(item)
            item.parts[key].append(_decode(piece.part))
            where = self._where(item) | {key: len(item.parts[key]) - 1}
            return events + unfold_part(where, item.parts[key][-1])
        events += self._owed_text(item, opened, text_of(part))
        item.part = None
        item.parts[key].append(_decode(piece.part))
        return [
            *events,
            Event(
                piece.type, self._placed(payload, piece, item, **{key: opened.index}), piece.sequence_number
            ),
        ]

    def _part_of(self, item: OpenItem, family: str, given: int | None, events: list[Event]) -> OpenPart:
        """Return the open part that a text goes into; one that nobody announced begins here."""
        part = item.part
        if part is not None and part.family == family and not part.said and given in (None, part.given):
            return part
        self.put_right = True
        events += self._close_part(item)
        known = TEXTS[family]
        index = len(item.parts[known.place])
        members = {"type": msgspec.Raw(_encode(known.part))}
        if known.part == "output_text":
            members |= {"annotations": msgspec.Raw(b"[]"), "logprobs": msgspec.Raw(b"[]")}
        part = item.part = OpenPart(family, index, given, members)
        begun = members | {known.field: msgspec.Raw(b'""')}
        events.append(event(known.added, **self._where(item), **{known.place: index}, part=begun))
        return part

    def _take_text(self, payload: bytes, piece: Piece, family: str, last: str) -> list[Event]:
        known = TEXTS[family]
        events: list[Event] = []
        given = _place(piece, known.place)
        text = piece.delta if last == "delta" else (piece.refusal if known.field == "refusal" else piece.text)
        if last == "done" and self._is_over(piece, known.place, given):
            self.put_right = True
            return []
        item = self._item_of(piece, known.item, events)
        part = self._part_of(item, family, given, events)
        if last == "delta":
            part.texts.append(text or "")
        else:
            events += self._owed_delta(item, part, text or "")
            part.said = True
        return [
            *events,
            Event(
                piece.type,
                self._placed(payload, piece, item, **{known.place: part.index}),
                piece.sequence_number,
            ),
        ]

    def _is_over(self, piece: Piece, key: Place, given: int | None) -> bool:
        """Whether a text's end comes behind that of its part or item."""
        item = None if piece.output_index is None else self._open.get(piece.output_index)
        if item is None:
            return bool(piece.item_id) and self._was(piece.item_id or "")
        if item.part is not None:
            return item.part.said and given in (None, item.part.given)
        return given is not None and given < len(item.parts[key])

    def _owed_delta(self, item: OpenItem, part: OpenPart, whole: str) -> list[Event]:
        """Return as a delta what of a text has not come in one."""
        text = _rest(part.texts, whole)
        if not text:
            return []
        self.put_right = True
        part.texts.append(text)
        where = self._where(item) | {TEXTS[part.family].place: part.index}
        extra: dict[str, Any] = {"logprobs": []} if TEXTS[part.family].part == "output_text" else {}
        return [event(part.family + ".delta", **where, delta=text, **extra)]

    def _owed_text(self, item: OpenItem, part: OpenPart, text: str) -> list[Event]:
        """Return what has to tell a part's text before the part may end."""
        events = self._owed_delta(item, part, text)
        if part.said:
            return events
        self.put_right = True
        part.said = True
        known = TEXTS[part.family]
        where = self._where(item) | {known.place: part.index, known.field: "".join(part.texts)}
        extra: dict[str, Any] = {"logprobs": []} if known.part == "output_text" else {}
        return [*events, event(part.family + ".done", **where, **extra)]

    def _close_part(self, item: OpenItem, whole: Object | None = None) -> list[Event]:
        """Return what ends the open part of an item.

        Args:
            whole: the part as its item holds it.
        """
        part = item.part
        if part is None:
            return []
        self.put_right = True
        known = TEXTS[part.family]
        events = self._owed_text(item, part, "" if whole is None else _text(whole, known.field))
        if whole is None or _text(whole, known.field) != "".join(part.texts):
            whole = part.members | {known.field: msgspec.Raw(_encode("".join(part.texts)))}
        item.parts[known.place].append(whole)
        item.part = None
        return [*events, event(known.done, **self._where(item), **{known.place: part.index}, part=whole)]

    # ---- calls ----------------------------------------------------------------------------------------------------

    def _take_arguments(self, payload: bytes, piece: Piece, family: str, last: str) -> list[Event]:
        kind, field = ARGUMENTS[family]
        events: list[Event] = []
        if last == "done" and self._is_over(piece, "content_index", None):
            self.put_right = True
            return []
        item = self._item_of(piece, kind, events)
        if last == "delta":
            item.texts.append(piece.delta or "")
        else:
            text = (piece.arguments if field == "arguments" else piece.input) or ""
            events += self._owed_arguments_delta(item, text)
            item.said = True
        return [*events, Event(piece.type, self._placed(payload, piece, item), piece.sequence_number)]

    def _owed_arguments_delta(self, item: OpenItem, whole: str) -> list[Event]:
        text = _rest(item.texts, whole)
        if not text:
            return []
        self.put_right = True
        item.texts.append(text)
        return [event(_CALLS[item.kind][0] + ".delta", **self._where(item), delta=text)]

    def _owed_arguments(self, item: OpenItem, text: str) -> list[Event]:
        """Return what has to tell a call's arguments before the call may end."""
        if item.said:
            return []
        events = self._owed_arguments_delta(item, text)
        self.put_right = True
        item.said = True
        family, field = _CALLS[item.kind]
        name = {"name": item.members["name"]} if field == "arguments" and "name" in item.members else {}
        done = event(f"{family}.done", **self._where(item), **name, **{field: "".join(item.texts)})
        return [*events, done]


def _text(members: Object, key: str) -> str:
    value = msgspec.json.decode(members.get(key, NULL))
    return value if isinstance(value, str) else ""


def _rest(texts: list[str], whole: str) -> str:
    """Return what a whole text has beyond its pieces; nothing where they are no beginning of it."""
    told = "".join(texts)
    return whole[len(told) :] if whole.startswith(told) else ""


def _place(piece: Piece, key: Place) -> int | None:
    return piece.content_index if key == "content_index" else piece.summary_index


def _begun(item: OpenItem, kind: str) -> Object:
    """Return an item as it is announced, which its provider did not do."""
    members = dict(item.members)
    for key in _EMPTY.get(kind, ()):
        members[key] = msgspec.Raw(b"[]")
    if kind == "message":
        members |= {"role": msgspec.Raw(b'"assistant"'), "status": msgspec.Raw(b'"in_progress"')}
    elif kind in _CALLS:
        members |= {_CALLS[kind][1]: msgspec.Raw(b'""'), "status": msgspec.Raw(b'"in_progress"')}
    return members


def _inner_edits(payload: bytes, key: str, wanted: dict[str, bytes]) -> list[Edit]:
    """Return the edits that give these members to the object under a key."""
    at = next(member.start for member in reversed(json_edit.inner_members(payload, 0)) if member.key == key)
    return json_edit.settings(payload, at, wanted)
