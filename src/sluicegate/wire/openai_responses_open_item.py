"""One item of a Responses stream on its way through: what it has told already, and what it owes before it may go on.

Events that are owed have no number yet. Which item an event is about, and what the events of the provider become, is
`openai_responses_repair`'s.
"""

from typing import Any

import msgspec

from sluicegate.wire import json_edit
from sluicegate.wire.openai_responses_event import ARGUMENTS, TEXTS, Place
from sluicegate.wire.openai_responses_shapes import NULL, Item, Piece
from sluicegate.wire.openai_responses_unfolding import (
    Event,
    Object,
    event,
    parts_of,
    unfold_inside,
    unfold_part,
)

HOLDERS = {"message": "content", "reasoning": "summary"}
"""Items that hold parts, and the list that they have from their beginning."""
CALLS = {kind: (name, field) for name, (kind, field) in ARGUMENTS.items()}
"""Items that are calls: the events that tell what they are given, and the field that holds all of it."""
NO_ARGUMENTS = "{}"
_encode = msgspec.json.Encoder().encode
_EMPTY_LIST, _EMPTY_TEXT = msgspec.Raw(b"[]"), msgspec.Raw(b'""')


def place_of(piece: Piece, key: Place) -> int | None:
    """Return which part of its item an event is about, as the provider counts."""
    return piece.content_index if key == "content_index" else piece.summary_index


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

    __slots__ = ("id", "index", "kind", "members", "part", "parts", "said", "texts")

    def __init__(self, index: int, item: Item, members: Object) -> None:
        self.index = index
        """As the client knows it."""
        self.id = item.id
        self.kind = item.type
        self.members = members
        """All of it but its content."""
        self.part: OpenPart | None = None
        self.parts: dict[Place, list[Object]] = {"content_index": [], "summary_index": []}
        """Those that have ended."""
        self.texts: list[str] = []
        """Of a call: its arguments."""
        self.said = False
        """Of a call: its arguments have been told whole."""

    def where(self, **places: int) -> dict[str, Any]:
        """Return what events about the item, or about a part of it, have in common."""
        return {"item_id": self.id, "output_index": self.index, **places}

    @property
    def can_end(self) -> bool:
        """Whether nothing that the provider still sends has to belong to it: true but for calls that are not whole."""
        if self.kind in CALLS:
            return self.said or json_edit.is_json("".join(self.texts).encode())
        return self.kind in HOLDERS

    # ---- parts ----------------------------------------------------------------------------------------------------

    def part_for(self, family: str, given: int | None) -> tuple[OpenPart, list[Event]]:
        """Return the open part that a text goes into, and the events that begin it where nobody announced it."""
        part = self.part
        if part is not None and part.family == family and not part.said and given in (None, part.given):
            return part, []
        events = self.close_part()
        known = TEXTS[family]
        index = len(self.parts[known.place])
        members = {"type": msgspec.Raw(_encode(known.part))}
        if known.part == "output_text":
            members |= {"annotations": _EMPTY_LIST, "logprobs": _EMPTY_LIST}
        part = self.part = OpenPart(family, index, given, members)
        begun = members | {known.field: _EMPTY_TEXT}
        return part, [*events, event(known.added, **self.where(**{known.place: index}), part=begun)]

    def add_part(self, key: Place, members: Object) -> list[Event]:
        """Return the events that tell a whole part."""
        self.parts[key].append(members)
        return unfold_part(self.where(**{key: len(self.parts[key]) - 1}), members)

    def owed_delta(self, part: OpenPart, whole: str) -> list[Event]:
        """Return as a delta what of a text has not come in one."""
        text = _rest(part.texts, whole)
        if not text:
            return []
        part.texts.append(text)
        known = TEXTS[part.family]
        where = self.where(**{known.place: part.index})
        return [event(part.family + ".delta", **where, delta=text, **_extra(known.part))]

    def owed_text(self, part: OpenPart, whole: str) -> list[Event]:
        """Return what has to tell a part's text before the part may end."""
        events = self.owed_delta(part, whole)
        if part.said:
            return events
        part.said = True
        known = TEXTS[part.family]
        where = self.where(**{known.place: part.index})
        text = {known.field: "".join(part.texts)}
        return [*events, event(part.family + ".done", **where, **text, **_extra(known.part))]

    def close_part(self, whole: Object | None = None) -> list[Event]:
        """Return what ends the open part, if there is one.

        Args:
            whole: the part as its item holds it.
        """
        part = self.part
        if part is None:
            return []
        known = TEXTS[part.family]
        told = "" if whole is None else _text(whole, known.field)
        events = self.owed_text(part, told)
        text = "".join(part.texts)
        if whole is None or told != text:
            whole = part.members | {known.field: msgspec.Raw(_encode(text))}
        self.parts[known.place].append(whole)
        self.part = None
        return [*events, event(known.done, **self.where(**{known.place: part.index}), part=whole)]

    # ---- calls ----------------------------------------------------------------------------------------------------

    def owed_arguments_delta(self, whole: str) -> list[Event]:
        """Return as a delta what of a call's arguments has not come in one; of none at all an empty object."""
        if self.kind == "function_call" and not whole.strip() and not "".join(self.texts).strip():
            whole = "".join(self.texts) + NO_ARGUMENTS
        text = _rest(self.texts, whole)
        if not text:
            return []
        self.texts.append(text)
        return [event(CALLS[self.kind][0] + ".delta", **self.where(), delta=text)]

    def owed_arguments(self, whole: str) -> list[Event]:
        """Return what has to tell a call's arguments before the call may end."""
        if self.said:
            return []
        events = self.owed_arguments_delta(whole)
        self.said = True
        family, field = CALLS[self.kind]
        name = {"name": self.members["name"]} if field == "arguments" and "name" in self.members else {}
        return [*events, event(family + ".done", **self.where(), **name, **{field: "".join(self.texts)})]

    # ---- the whole ------------------------------------------------------------------------------------------------

    def begun(self) -> Object:
        """Return the item as it is announced, which its provider did not do."""
        members = dict(self.members)
        if self.kind in HOLDERS:
            members[HOLDERS[self.kind]] = _EMPTY_LIST
        if self.kind == "message":
            members |= {"role": msgspec.Raw(b'"assistant"'), "status": msgspec.Raw(b'"in_progress"')}
        return members

    def owed_inside(self, members: Object) -> list[Event]:
        """Return what has to tell the item's content before it may end.

        Args:
            members: of the whole item.
        """
        if self.kind in CALLS:
            return self.owed_arguments(_text(members, CALLS[self.kind][1]))
        if self.kind not in HOLDERS:
            return []
        part = self.part
        if part is not None:
            key = "summary" if TEXTS[part.family].place == "summary_index" else "content"
            whole = parts_of(members.get(key, NULL))
            return self.close_part(whole[part.index] if part.index < len(whole) else None)
        if any(self.parts.values()):
            return []
        return unfold_inside(self.index, members | {"id": self.members["id"]})

    def gathered(self, status: str) -> Object:
        """Return the item as it was streamed.

        Args:
            status: of the response.
        """
        members = dict(self.members)
        if self.kind in CALLS:
            text = "".join(self.texts)
            members[CALLS[self.kind][1]] = msgspec.Raw(_encode(text))
            is_whole = self.kind == "custom_tool_call" or json_edit.is_json(text.encode())
            members["status"] = msgspec.Raw(b'"completed"' if is_whole else b'"incomplete"')
        elif self.kind == "message":
            members["content"] = msgspec.Raw(_encode(self.parts["content_index"]))
            members["status"] = msgspec.Raw(b'"incomplete"' if status == "incomplete" else b'"completed"')
            members.setdefault("role", msgspec.Raw(b'"assistant"'))
        elif self.kind == "reasoning":
            members["summary"] = msgspec.Raw(_encode(self.parts["summary_index"]))
            if self.parts["content_index"]:
                members["content"] = msgspec.Raw(_encode(self.parts["content_index"]))
        return members


def _extra(part: str) -> dict[str, Any]:
    return {"logprobs": []} if part == "output_text" else {}


def _text(members: Object, key: str) -> str:
    value = msgspec.json.decode(members.get(key, NULL))
    return value if isinstance(value, str) else ""


def _rest(texts: list[str], whole: str) -> str:
    """Return what a whole text has beyond its pieces; nothing where they are no beginning of it."""
    told = "".join(texts)
    return whole[len(told) :] if whole.startswith(told) else ""
