"""Where a body names what a provider keeps: files, containers, caches, conversations, sounds, earlier answers.

Read from the bytes by structure, so that what looks like such a field inside a tool's arguments or a schema is left
alone, and an escaped spelling of a key is seen. Whose an id is, `sealed_id` knows. Source: wire formats pages, fields
of each format; design page, "Tenants".
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from sluicegate.messages import Format
from sluicegate.wire import json_edit
from sluicegate.wire.gemini_fields import camel
from sluicegate.wire.sealed_id import MARK, is_sealed

_KEYS: Mapping[Format, frozenset[str]] = {
    "chat": frozenset({"file_id", "audio"}),
    "completions": frozenset(),
    "responses": frozenset(
        {
            "file_id",
            "file_ids",
            "container",
            "container_id",
            "vector_store_ids",
            "skill_id",
            "previous_response_id",
            "comparison_response_id",
            "conversation",
            "item_id",
            "approval_request_id",
        }
    ),
    "messages": frozenset({"file_id", "container", "skill_id"}),
    "gemini": frozenset({"cachedContent", "fileUri", "fileSearchStoreNames"}),
}
_OPAQUE: Mapping[Format, frozenset[str]] = {
    "chat": frozenset({"parameters", "metadata", "schema", "arguments"}),
    "completions": frozenset(),
    "responses": frozenset({"parameters", "metadata", "schema", "arguments", "variables", "usage"}),
    "messages": frozenset({"input", "input_schema", "metadata", "schema", "usage"}),
    "gemini": frozenset(
        {
            "args",
            "response",
            "parameters",
            "parametersJsonSchema",
            "responseSchema",
            "responseJsonSchema",
            "labels",
        }
    ),
}
"""What the client's own words stand under."""
_ITEMS_IN = frozenset({"input", "output", "item", "data"})
"""Members of Responses that hold items, which have ids of their own."""
_HINTS: Final[Mapping[Format, tuple[bytes, ...]]] = {
    "chat": (b'"file_id"',),
    "completions": (),
    "responses": (b"file_id", b"container_id", b"item_reference", b"_" + MARK.encode()),
    "messages": (b'"file_id"', b'"skill_id"'),
    "gemini": (b"file_search_store", b"fileSearchStore"),
}
"""What a body holds that may name an id deep inside; of chat's sounds `ChatRequest` knows by itself."""
_ESCAPED_LETTER: Final = re.compile(rb"\\u00[2-7]")
_SERVICE_FILE = re.compile(rf"(?:https?://[^/]*\bgoogleapis\.com/.*)?files/[^/]++\Z|.*/files/{MARK}")
"""Of a Gemini file that the service keeps; any other address is nobody's."""
_OWN_SKILL = "skill_"
"""Skills of the vendor have plain names."""


class Place(NamedTuple):
    """One id in a body."""

    path: str
    """Of its field."""
    start: int
    end: int
    """Of the JSON string."""
    id: str
    item: bool
    """It is an item's own id, and not a field that refers to something: what is not ours may be anyone's own."""


def may_name_ids(data: bytes, format: Format) -> bool:
    """Whether a body may name such ids somewhere inside. A quick look: rarely true without reason."""
    if 0x5F in data or format == "gemini":  # one byte is looked for ten times as fast
        for hint in _HINTS[format]:
            if data.find(hint) >= 0:
                return True
    return json_edit.may_spell_ascii(data) and _ESCAPED_LETTER.search(data) is not None


def places(data: bytes, format: Format) -> Iterator[Place]:
    """Find every id that a body names.

    Args:
        data: valid JSON and UTF-8, an object.
    """
    keys, opaque = _KEYS[format], _OPAQUE[format]
    is_gemini = format == "gemini"
    waiting: list[tuple[int, str, bool]] = [(data.index(b"{"), "", False)]
    while waiting:
        at, path, is_item = waiting.pop()
        if data[at] == 0x5B:
            for number, (start, _) in enumerate(json_edit.elements(data, at)):
                if data[start] in b"[{":
                    waiting.append((start, f"{path}[{number}]", is_item))
            continue
        for member in json_edit.inner_members(data, at):
            key, start, end = member.key, member.start, member.end
            name = camel(key) if is_gemini else key
            where = f"{path}.{name}" if path else name
            if name in keys:
                yield from _under(data, name, where, start, end)
            elif is_item and key == "id" and data[start] == 0x22:
                yield Place(where, start, end, _text(data, start, end), True)
            if data[start] in b"[{" and name not in opaque:
                holds_items = format == "responses" and (name in _ITEMS_IN and not is_item)
                waiting.append((start, where, holds_items))


def _under(data: bytes, key: str, path: str, start: int, end: int) -> Iterator[Place]:
    """Find the ids in the value of a field that names some."""
    first = data[start]
    if first == 0x22:
        id = _text(data, start, end)
        if _is_kept(key, id):
            yield Place(path, start, end, id, False)
    elif first == 0x5B:
        for number, (inner, inner_end) in enumerate(json_edit.elements(data, start)):
            if data[inner] == 0x22:
                yield Place(f"{path}[{number}]", inner, inner_end, _text(data, inner, inner_end), False)
    elif first == 0x7B:
        for member in json_edit.inner_members(data, start):
            if member.key == "id" and data[member.start] == 0x22:
                id = _text(data, member.start, member.end)
                yield Place(f"{path}.id", member.start, member.end, id, False)


def _is_kept(key: str, id: str) -> bool:
    if key == "audio":  # a sound that is kept is named by an object
        return False
    if key == "fileUri":
        return _SERVICE_FILE.match(id) is not None
    return key != "skill_id" or id.startswith(_OWN_SKILL)


def _text(data: bytes, start: int, end: int) -> str:
    try:
        return msgspec.json.decode(data[start:end], type=str)
    except msgspec.DecodeError:  # half a surrogate pair: nobody's id
        return "\ufffd"


def is_reference(data: bytes, place: Place) -> bool:
    """Whether an item's id stands for the whole item, which somebody keeps."""
    at = data.rindex(b"{", 0, place.start)
    members = {member.key: data[member.start : member.end] for member in json_edit.inner_members(data, at)}
    return members.get("type") in (b'"item_reference"', b"null", None) and members.keys() <= {"id", "type"}


def reference_at(data: bytes, place: Place) -> tuple[int, int]:
    """Return the offsets of the item whose id stands at a place."""
    start = data.rindex(b"{", 0, place.start)
    return start, json_edit.value_end(data, start)


def sealed(data: bytes, format: Format, close: Callable[[str], str]) -> bytes:
    """Return an answer, or a part of one, in which every id that it names is ours.

    Args:
        close: turns a provider's id into ours.
    """
    edits = [
        (place.start, place.end, json_edit.dumps(close(place.id)))
        for place in places(data, format)
        if not is_sealed(place.id)
    ]
    return json_edit.splice(data, edits)
