"""Whole responses and items told as the events of their stream, and the response that a stream told in the end.

Used where a provider answers in the other way than it was asked, or keeps to itself what a stream has to tell. Unknown
fields, and the spelling of what a tool was given, stay.
"""

from typing import NamedTuple

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.wire.openai_events import DONE, PayloadReader
from sluicegate.wire.openai_responses_event import (
    ARGUMENTS,
    ENDS,
    FORMAT,
    TEXTS,
    decode_piece,
    decode_response,
    failure,
    output_of,
)
from sluicegate.wire.openai_responses_shapes import NULL, Piece

Object = dict[str, msgspec.Raw]
_decode = msgspec.json.Decoder(Object).decode
_decode_list = msgspec.json.Decoder(list[Object]).decode
_encode = msgspec.json.Encoder().encode
_EMPTY_LIST, _EMPTY_TEXT = msgspec.Raw(b"[]"), msgspec.Raw(b'""')
_FAMILY_OF_PART = {family.part: name for name, family in TEXTS.items()}
_ARGUMENTS_OF_ITEM = {kind: (name, field) for name, (kind, field) in ARGUMENTS.items()}


class Event(NamedTuple):
    """An event on its way to a client."""

    kind: str
    payload: bytes
    number: int | None = None
    """The sequence number it holds; None for one that has none yet."""
    owed: bool = False
    """It was made here: the provider has not sent it."""


def event(kind: str, **members: object) -> Event:
    """Return an event with these members."""
    return Event(kind, _encode({"type": kind, **members}), owed=True)


def unfold(body: bytes) -> list[Event]:
    """Return the stream that would have told a response.

    Args:
        body: a response that was decoded before.
    """
    response = _decode(body)
    status = _word(response.get("status")) or "completed"
    begun = response | {
        "status": "in_progress",
        "output": _EMPTY_LIST,
        "usage": NULL,
        "incomplete_details": NULL,
        "error": NULL,
    }
    events = [event(f"response.{kind}", response=begun) for kind in ("created", "in_progress")]
    for place, raw in enumerate(output_of(decode_response(body))):
        events += unfold_item(place, _decode(raw))
    if f"response.{status}" not in ENDS:
        status = "completed"
    return [*events, event(f"response.{status}", response=msgspec.Raw(body))]


def unfold_item(index: int, item: Object) -> list[Event]:
    """Return the events that tell an item from its beginning to its end."""
    kind = _word(item.get("type"))
    begun = dict(item)
    if kind == "message":
        begun |= {"content": _EMPTY_LIST, "status": msgspec.Raw(b'"in_progress"')}
    elif kind == "reasoning":
        begun |= {"summary": _EMPTY_LIST}
        begun.pop("encrypted_content", None)
        if "content" in begun:
            begun["content"] = _EMPTY_LIST
    elif kind in _ARGUMENTS_OF_ITEM:
        begun |= {_ARGUMENTS_OF_ITEM[kind][1]: _EMPTY_TEXT, "status": msgspec.Raw(b'"in_progress"')}
    return [
        event("response.output_item.added", output_index=index, item=begun),
        *unfold_inside(index, item),
        event("response.output_item.done", output_index=index, item=item),
    ]


def unfold_inside(index: int, item: Object) -> list[Event]:
    """Return the events that tell what stands in an item."""
    kind = _word(item.get("type"))
    where: dict[str, object] = {"item_id": item.get("id", NULL), "output_index": index}
    events: list[Event] = []
    if kind in _ARGUMENTS_OF_ITEM:
        family, field = _ARGUMENTS_OF_ITEM[kind]
        given = item.get(field, _EMPTY_TEXT)
        name = {"name": item["name"]} if kind == "function_call" and "name" in item else {}
        if bytes(given) not in (b'""', b"null"):
            events.append(event(f"{family}.delta", **where, delta=given))
        events.append(event(f"{family}.done", **where, **name, **{field: given}))
    elif kind in ("message", "reasoning"):
        for key, place in (("summary", "summary_index"), ("content", "content_index")):
            for number, part in enumerate(parts_of(item.get(key, NULL))):
                events += unfold_part(where | {place: number}, part)
    return events


def parts_of(raw: msgspec.Raw) -> list[Object]:
    """Return a list of objects in an item, or none where there is no list. Raises DecodeError."""
    try:
        return _decode_list(raw) if bytes(raw) != b"null" else []
    except (msgspec.DecodeError, RecursionError):
        raise DecodeError(FORMAT, None, "an item's parts are no list of objects") from None


def unfold_part(where: dict[str, object], part: Object) -> list[Event]:
    """Return the events that tell a part from its beginning to its end; of an unknown kind its two ends."""
    name = _FAMILY_OF_PART.get(_word(part.get("type")))
    added, done = ("response.content_part.added", "response.content_part.done")
    if name is None:
        return [event(added, **where, part=part), event(done, **where, part=part)]
    family = TEXTS[name]
    begun = part | {family.field: _EMPTY_TEXT}
    extra: dict[str, object] = {}
    if family.part == "output_text":
        begun |= {"annotations": _EMPTY_LIST, "logprobs": _EMPTY_LIST}
        extra = {"logprobs": part.get("logprobs", _EMPTY_LIST)}
    text = part.get(family.field, _EMPTY_TEXT)
    events = [event(family.added, **where, part=begun)]
    if bytes(text) not in (b'""', b"null"):
        events.append(event(f"{name}.delta", **where, delta=text, **extra))
    for number, annotation in enumerate(parts_of(part.get("annotations", NULL))):
        events.append(
            event(
                "response.output_text.annotation.added",
                **where,
                annotation_index=number,
                annotation=annotation,
            )
        )
    events.append(event(f"{name}.done", **where, **{family.field: text}, **extra))
    return [*events, event(family.done, **where, part=part)]


def fold(stream: bytes) -> bytes:
    """Return the response that a whole stream tells in the end, or the error event that it ends with.

    Raises:
        DecodeError: it is no stream of this format, or it was cut.
    """
    reader = PayloadReader(FORMAT)
    items: list[msgspec.Raw] = []
    for payload in [*reader.feed(stream), *reader.finish()]:
        if payload == DONE:
            continue
        piece = decode_piece(payload)
        if piece.type == "response.output_item.done":
            items.append(piece.item)
        elif piece.type in ENDS:
            return _whole_response(piece, items)
        elif failure(payload, piece) is not None:
            return payload
    raise DecodeError(FORMAT, None, "the stream ended without its terminal event")


def _whole_response(piece: Piece, items: list[msgspec.Raw]) -> bytes:
    if items and not output_of(decode_response(piece.response)):
        return _encode(_decode(piece.response) | {"output": msgspec.Raw(_encode(items))})
    return bytes(piece.response)


def _word(raw: msgspec.Raw | None) -> str:
    value = None if raw is None else msgspec.json.decode(raw)
    return value if isinstance(value, str) else ""
