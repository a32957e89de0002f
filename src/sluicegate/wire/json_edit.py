"""JSON read by its edges: top-level members with their byte offsets, and edits at those offsets.

A body that passes in its own format is never parsed and rebuilt: unknown fields, key order, number spelling and white
space are part of what was promised. What has to change is replaced between two offsets. This module knows nothing of
any wire format.
"""

import json
import re
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from sluicegate.errors import DecodeError

_TOP: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SPACE = b" \t\n\r"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SCALAR = rb'[^\s,\[\]{}"]++'
_MEMBER = re.compile(
    rb'[\s,]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*+:\s*+(' + _STRING + rb"|" + _SCALAR + rb")?+", re.DOTALL
)
"""A key and its value; the value is not matched where it is an array or an object."""
_KEY: Final = re.compile(rb'[\s,]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*+:\s*+', re.DOTALL)
_CLOSE: Final = re.compile(rb"\s*+}\s*+\Z")
_FLAT = re.compile(_STRING + rb"|" + _SCALAR, re.DOTALL)
_COLON: Final = re.compile(rb"\s*+:\s*+")
_JOINT = re.compile(rb"[\s,]*+")
_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:' + _STRING + rb'[^"\[\]{}]*+)*+([\[\]{}])', re.DOTALL)
"""All up to the next bracket that is not inside a string."""
_SURROGATE = re.compile(rb"\\\\|\\u([dD][89a-fA-F][0-9a-fA-F]{2})")
"""Escaped backslashes are matched too, so that what follows them is not taken for an escape."""


class Member:
    """One member of a JSON object, by offsets into the bytes it was read from."""

    __slots__ = ("end", "key", "key_at", "start")

    def __init__(self, key: str, key_at: int, start: int, end: int) -> None:
        """Take the key, and where its opening quote, the value's first byte and the byte behind the value are."""
        self.key = key
        self.key_at = key_at
        self.start = start
        self.end = end


Edit = tuple[int, int, bytes]
"""Replace the bytes from the first offset to the second by these."""


def members(data: bytes, format: str = "json") -> list[Member]:
    """List the members of the one JSON object that `data` holds, duplicates included, in order.

    Args:
        format: named in the error.
    Raises:
        DecodeError: not JSON, not UTF-8 in what had to be read, not an object, or nested too deeply.
    """
    return members_of(data, decode_top(data, format))


def members_of(data: bytes, fields: Mapping[str, msgspec.Raw]) -> list[Member]:
    """List the members of an object, as `members`, whose top level was decoded to these fields."""
    if is_compact(data, fields):
        return _members_without_space(fields)
    found: list[Member] = []
    first = at = data.index(b"{") + 1
    for key, raw in fields.items():
        match = _KEY.match(data, at)
        if match is None or match[1] != key.encode():
            return inner_members(data, first - 1)  # an escaped spelling or a duplicate
        start = match.end()
        value = bytes(raw)
        at = start + len(value)
        if data[start:at] != value:
            break  # a duplicate of another length, whose length was taken for the first one's
        found.append(Member(key, match.start(1) - 1, start, at))
    else:
        if _CLOSE.match(data, at) is not None:
            return found
    return inner_members(data, first - 1)  # a duplicate, at hand or behind the last new key


def is_compact(data: bytes, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether an object that was decoded to these fields has nothing but them, as most clients write it.

    Where keys, in characters, and values come to the length of the whole, there is no space, no duplicate, and no key
    that is spelled with escapes or in more bytes than characters: all of these would only make it longer. So each
    member stands where the ones before it end.
    """
    length = 1 + 4 * len(fields)
    for key, raw in fields.items():
        length += len(key) + len(raw)
    return length == len(data)


def place_in_compact(fields: Mapping[str, msgspec.Raw], wanted: str) -> tuple[int, int]:
    """Return the offsets of the value of a key that there is, in an object that `is_compact`."""
    end = 0
    for key, raw in fields.items():
        start = end + len(key) + 4
        end = start + len(raw)
        if key == wanted:
            return start, end
    raise AssertionError("the key is one of the object's")


def _members_without_space(fields: Mapping[str, msgspec.Raw]) -> list[Member]:
    """List the members of an object that `is_compact`."""
    found: list[Member] = []
    at = 1
    for key, raw in fields.items():
        start = at + len(key) + 3
        end = start + len(raw)
        found.append(Member(key, at, start, end))
        at = end + 1
    return found


def decode_top(data: bytes, format: str) -> dict[str, msgspec.Raw]:
    """Decode an object's top level, its values left as they stand; of duplicate keys the last one is kept.

    Raises:
        DecodeError: as `members`.
    """
    try:
        return _TOP.decode(data)
    except msgspec.ValidationError:
        raise DecodeError(format, None, "must be a JSON object") from None
    except msgspec.DecodeError as error:
        raise DecodeError(format, None, _reason(error)) from None
    except RecursionError:
        raise DecodeError(format, None, "JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise DecodeError(format, error.start, "JSON is not UTF-8") from None


def _reason(error: msgspec.DecodeError) -> str:
    text = str(error)
    if text.startswith("JSON is malformed"):
        return text
    return "JSON is malformed: " + text[0].lower() + text[1:]


def inner_members(data: bytes, start: int) -> list[Member]:
    """List the members of the object that starts at `start`, in bytes known to be valid JSON and UTF-8.

    Duplicate and escaped keys are seen; offsets are into `data`.
    """
    found: list[Member] = []
    at = start + 1
    while (match := _MEMBER.match(data, at)) is not None:
        spelled = match[1]
        key = json.loads(b'"%b"' % spelled) if b"\\" in spelled else spelled.decode()
        value_at, at = match.span(2)
        if at < 0:
            value_at = match.end()
            at = value_end(data, value_at)
        found.append(Member(key, match.start(1) - 1, value_at, at))
    return found


def value_end(data: bytes, start: int) -> int:
    """Return where the value that starts at `start` ends, in bytes known to be valid JSON."""
    flat = _FLAT.match(data, start)
    if flat is not None:
        return flat.end()
    depth = 0
    at = start
    while True:
        found = _BRACKET.match(data, at)
        assert found is not None, "the JSON was decoded before"
        at = found.end()
        depth += 1 if data[at - 1] in b"[{" else -1
        if depth == 0:
            return at


def sole_value(data: bytes, key: bytes, value: bytes) -> int:
    """Return where the value of a key begins that stands once in all the JSON, spelled plainly, and has this value.

    -1 where it is not so sure: then `members` finds it. A quote inside a string is escaped, so the inside of a string
    never looks like a key here.

    Args:
        key: with its quotes.
    """
    at = data.find(key)
    if at < 0 or data.find(key, at + 1) >= 0 or may_spell_ascii(data):
        return -1
    at += len(key)
    if data[at : at + 1] == b":" and data[at + 1 : at + 1 + len(value)] == value:
        return at + 1
    colon = _COLON.match(data, at)
    return colon.end() if colon is not None and data.startswith(value, colon.end()) else -1


def elements(data: bytes, start: int) -> list[tuple[int, int]]:
    """Return the offsets of the elements of the array that starts at `start`, in bytes known to be valid JSON."""
    found: list[tuple[int, int]] = []
    at = start + 1
    while True:
        joint = _JOINT.match(data, at)
        assert joint is not None, "it matches nothing too"
        at = joint.end()
        if data[at] == 0x5D:
            return found
        end = value_end(data, at)
        found.append((at, end))
        at = end


def splice(data: bytes, edits: Collection[Edit]) -> bytes:
    """Apply edits that do not overlap, in any order."""
    if not edits:
        return data
    if len(edits) == 1:
        ((start, end, new),) = edits
        return data[:start] + new + data[end:]
    pieces: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits):
        pieces.append(data[at:start])
        pieces.append(new)
        at = end
    pieces.append(data[at:])
    return b"".join(pieces)


def edits(
    data: bytes,
    members: Sequence[Member],
    wanted: Mapping[str, bytes],
    dropped: Container[str] = (),
    *,
    start: int = 0,
) -> list[Edit]:
    """Return the edits that give an object's members these values, add those it lacks, and take some out.

    Args:
        members: of the object, all of them.
        wanted: keys, which need no escape, and the JSON text of their values; one that comes twice stays once.
        dropped: keys to take out, each with the comma that joined it.
        start: where the object begins, or anything before it but white space.
    """
    found: list[Edit] = []
    missing = dict(wanted)
    kept_end: int | None = None
    cut_from: int | None = None
    for member in members:
        key, end = member.key, member.end
        if key in dropped or (key in wanted and key not in missing):
            if cut_from is None:
                cut_from = member.key_at
            continue
        if cut_from is not None:
            found.append((cut_from, member.key_at, b""))
            cut_from = None
        kept_end = end
        new = wanted.get(key)
        if new is not None:
            del missing[key]
            if data[member.start : end] != new:
                found.append((member.start, end, new))
    last_end = members[-1].end if members else data.index(b"{", start) + 1
    if cut_from is not None:
        found.append((cut_from if kept_end is None else kept_end, last_end, b""))
    if missing:
        added = b",".join(b'"%b":%b' % (key.encode(), new) for key, new in missing.items())
        found.append((last_end, last_end, added if kept_end is None else b"," + added))
    return found


def changed(data: bytes, wanted: Mapping[str, bytes], dropped: Container[str] = ()) -> bytes:
    """Return the object with these values set and those members gone; see `edits`.

    Raises:
        DecodeError: as `members`.
    """
    return splice(data, edits(data, members(data), wanted, dropped))


def replace_lone_surrogates(data: bytes) -> bytes:
    r"""Return JSON text in which every surrogate escape without its partner has become U+FFFD."""
    return splice(data, [(at, at + 6, b"\\ufffd") for at in lone_surrogates(data)])


def may_escape(data: bytes) -> bool:
    r"""Whether JSON text may hold a `\uXXXX` escape. One byte is looked for ten times as fast as two."""
    return 0x5C in data and data.find(b"\\u") >= 0


def may_spell_ascii(data: bytes) -> bool:
    r"""Whether JSON text may hold an ASCII character as an escape, `\u00XX`, in a key for instance."""
    return 0x5C in data and data.find(b"\\u00") >= 0


def lone_surrogate(data: bytes) -> int | None:
    r"""Return the offset of the first `\ud800`–`\udfff` escape that is not half of a pair, or None."""
    return next(lone_surrogates(data), None)


def lone_surrogates(data: bytes) -> Iterator[int]:
    r"""Find the `\ud800`–`\udfff` escapes that are not half of a pair."""
    high_at: int | None = None
    for match in _SURROGATE.finditer(data):
        code = match[1]
        at = match.start()
        is_low = code is not None and code[1:2] in b"cdefCDEF"
        if high_at is not None:
            if is_low and at == high_at + 6:
                high_at = None
                continue
            yield high_at
            high_at = None
        if is_low:
            yield at
        elif code is not None:
            high_at = at
    if high_at is not None:
        yield high_at


def settings(data: bytes, start: int, values: Mapping[str, bytes]) -> list[Edit]:
    """Return the edits that give members of the object at `start` these values; see `edits`."""
    return edits(data, inner_members(data, start), values, start=start)


def dumps(value: object) -> bytes:
    """Encode compactly as UTF-8, without ASCII escapes."""
    return msgspec.json.encode(value)


def is_json(data: bytes) -> bool:
    """Whether bytes are one JSON text."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def loads(raw: bytes, format: str = "json") -> Any:
    """Decode one JSON text.

    Raises:
        DecodeError: it is none, a number is beyond all bounds, or it is nested too deeply.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DecodeError(format, None, f"JSON is malformed: {error}") from None
