"""JSON read by its edges: top-level members with their byte offsets, and edits at those offsets.

A body that passes in its own format is never parsed and rebuilt: unknown fields, key order, number spelling and white
space are part of what was promised. What has to change is replaced between two offsets. This module knows nothing of
any wire format.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from sluicegate.errors import DecodeError

_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SPACE = b" \t\n\r"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STRUCTURE = re.compile(rb'["\[\]{}]')
_SCALAR_END = re.compile(rb"[,\]}\s]")
_SURROGATE = re.compile(rb"\\(?:u([dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


class Member(NamedTuple):
    """One member of a JSON object, by offsets into the bytes it was read from."""

    key: str
    key_at: int
    """Of the opening quote of the key."""
    start: int
    end: int
    """Of the value."""


class Edit(NamedTuple):
    """Replace the bytes from start to end."""

    start: int
    end: int
    new: bytes


def members(data: bytes, format: str = "json") -> list[Member]:
    """List the members of the one JSON object that `data` holds, duplicates included, in order.

    Args:
        format: named in the error.
    Raises:
        DecodeError: not JSON, not UTF-8 in what had to be read, not an object, or nested too deeply.
    """
    fields = decode_top(data, format)
    found: list[Member] = []
    at = data.index(b"{") + 1
    for key, raw in fields.items():
        key_at = data.find(b'"', at)
        spelled = key.encode()
        end_of_key = key_at + 1 + len(spelled)
        if data[key_at + 1 : end_of_key] != spelled or data[end_of_key : end_of_key + 1] != b'"':
            return _walk(data)  # an escaped spelling or a duplicate
        start = data.index(b":", end_of_key) + 1
        while data[start] in _SPACE:
            start += 1
        end = start + memoryview(raw).nbytes
        found.append(Member(key, key_at, start, end))
        at = end
        while data[at] in _SPACE:
            at += 1
        if data[at] == 0x7D:  # }
            break
        if data[at] != 0x2C:  # a duplicate of another length
            return _walk(data)
    if len(found) != len(fields) or data[at:].strip(_SPACE)[:1] not in (b"}", b'"'):
        return _walk(data)
    if data.find(b'"', at) != -1:  # members beyond the last new key: duplicates
        return _walk(data)
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


def _walk(data: bytes) -> list[Member]:
    """List the members of valid JSON the slow way; sees duplicate and escaped keys."""
    found: list[Member] = []
    at = data.index(b"{") + 1
    while True:
        at = _skip_space(data, at)
        if data[at] == 0x7D:
            return found
        if data[at] == 0x2C:
            at = _skip_space(data, at + 1)
        match = _STRING.match(data, at)
        assert match is not None, "the JSON was decoded before"
        key_at = at
        start = _skip_space(data, data.index(b":", match.end()) + 1)
        at = value_end(data, start)
        found.append(Member(json.loads(match[0]), key_at, start, at))


def _skip_space(data: bytes, at: int) -> int:
    while data[at] in _SPACE:
        at += 1
    return at


def value_end(data: bytes, start: int) -> int:
    """Return where the value that starts at `start` ends, in bytes known to be valid JSON."""
    first = data[start]
    if first == 0x22:
        match = _STRING.match(data, start)
        assert match is not None, "the JSON was decoded before"
        return match.end()
    if first not in b"[{":
        scalar = _SCALAR_END.search(data, start)
        return scalar.start() if scalar else len(data)
    depth = 0
    at = start
    while True:
        found = _STRUCTURE.search(data, at)
        assert found is not None, "the JSON was decoded before"
        mark = found[0]
        if mark == b'"':
            string = _STRING.match(data, found.start())
            assert string is not None, "the JSON was decoded before"
            at = string.end()
            continue
        depth += 1 if mark in b"[{" else -1
        at = found.end()
        if depth == 0:
            return at


def elements(data: bytes, start: int) -> list[tuple[int, int]]:
    """Return the offsets of the elements of the array that starts at `start`, in bytes known to be valid JSON."""
    found: list[tuple[int, int]] = []
    at = _skip_space(data, start + 1)
    while data[at] != 0x5D:
        end = value_end(data, at)
        found.append((at, end))
        at = _skip_space(data, end)
        if data[at] == 0x2C:
            at = _skip_space(data, at + 1)
    return found


def inner_members(data: bytes, start: int) -> list[Member]:
    """List the members of the object that starts at `start`, in bytes known to be valid JSON; offsets are into data."""
    end = value_end(data, start)
    return [
        Member(member.key, member.key_at + start, member.start + start, member.end + start)
        for member in _walk(data[start:end])
    ]


def splice(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply edits that do not overlap, in any order."""
    pieces: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits):
        pieces.append(data[at:start])
        pieces.append(new)
        at = end
    pieces.append(data[at:])
    return b"".join(pieces)


def removal(data: bytes, member: Member) -> Edit:
    """Return the edit that takes one member out, with the comma that joined it.

    Two neighbours cannot both be removed by such edits; take them out one after the other.
    """
    after = member.end
    while data[after] in _SPACE:
        after += 1
    if data[after] == 0x2C:
        after += 1
        while data[after] in _SPACE:
            after += 1
        return Edit(member.key_at, after, b"")
    before = member.key_at - 1
    while data[before] in _SPACE:
        before -= 1
    if data[before] == 0x2C:
        return Edit(before, member.end, b"")
    return Edit(member.key_at, member.end, b"")


def insertion(data: bytes, end: int, new: bytes) -> Edit:
    """Return the edit that adds members (`"key":value,…`) at the end of the object whose value ends at `end`."""
    at = end - 1
    before = at - 1
    while data[before] in _SPACE:
        before -= 1
    return Edit(at, at, new if data[before] == 0x7B else b"," + new)


def settings(data: bytes, start: int, values: dict[str, bytes]) -> list[Edit]:
    """Return the edits that give members of the object at `start` these values, adding those it lacks at its end."""
    edits: list[Edit] = []
    missing = dict(values)
    for member in inner_members(data, start):
        new = missing.pop(member.key, None)
        if new is not None:
            edits.append(Edit(member.start, member.end, new))
    if missing:
        added = b",".join(b'"' + key.encode() + b'":' + new for key, new in missing.items())
        edits.append(insertion(data, value_end(data, start), added))
    return edits


def without(data: bytes, key: str) -> bytes:
    """Return the object without its top-level members of that name."""
    while True:
        member = next((member for member in members(data) if member.key == key), None)
        if member is None:
            return data
        data = splice(data, [removal(data, member)])


def replace_lone_surrogates(data: bytes) -> bytes:
    r"""Return JSON text in which every surrogate escape without its partner has become U+FFFD."""
    pieces: list[bytes] = []
    while True:
        at = lone_surrogate(data)
        if at is None:
            pieces.append(data)
            return b"".join(pieces)
        pieces += (data[:at], b"\\ufffd")
        data = data[at + 6 :]


def lone_surrogate(data: bytes) -> int | None:
    r"""Return the offset of the first `\ud800`–`\udfff` escape that is not half of a pair, or None."""
    high: re.Match[bytes] | None = None
    for match in _SURROGATE.finditer(data):
        code = match[1]
        if high is not None:
            if code is not None and code[1:2] in b"cdefCDEF" and match.start() == high.end():
                high = None
                continue
            return high.start()
        if code is not None:
            if code[1:2] in b"cdefCDEF":
                return match.start()
            high = match
    return high.start() if high is not None else None


def dumps(value: Any) -> bytes:
    """Encode compactly as UTF-8, without ASCII escapes."""
    return msgspec.json.encode(value)
