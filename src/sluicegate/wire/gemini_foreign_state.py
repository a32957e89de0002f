"""State in a Gemini conversation that its next provider did not make, taken out of the bytes.

A conversation that another vendor's model began holds that vendor's state sealed in thought signatures. Going on at a
provider of this format, which would refuse them, they are left out, and with them the empty thoughts that only carried
them; all else stays as it is. Source: translation matrix, section 12; case B141.
"""

import msgspec

from sluicegate.wire import json_edit
from sluicegate.wire.gemini_fields import camel
from sluicegate.wire.gemini_signature import read_signature

_SEALED = b'"Z3cx'
"""How every envelope begins once it is base64."""
_EMPTY = {"text": b'""', "thought": b"true"}


def without_foreign_state(contents: bytes) -> bytes:
    """Return a conversation without other vendors' state.

    Args:
        contents: the value as it stands, whose JSON was read before.
    """
    if _SEALED not in contents:
        return contents
    if contents.startswith(b"{"):
        return _cleaned_content(contents) or contents
    kept = [_cleaned_content(contents[start:end]) for start, end in json_edit.elements(contents, 0)]
    return b"[%b]" % b",".join(content for content in kept if content is not None)


def _cleaned_content(content: bytes) -> bytes | None:
    """Return a content, or None where nothing is left of it."""
    parts = _member(content, "parts") if _SEALED in content and content.startswith(b"{") else None
    if parts is None:
        return content
    start, end = parts
    raw = content[start:end]
    items = json_edit.elements(raw, 0) if raw.startswith(b"[") else [(0, len(raw))]
    kept = [_cleaned_part(raw[at:stop]) for at, stop in items]
    left = [part for part in kept if part is not None]
    if not left:
        return None
    return content[:start] + b"[%b]" % b",".join(left) + content[end:]


def _cleaned_part(part: bytes) -> bytes | None:
    """Return a part without state that is not Google's, or None where it carried nothing else."""
    place = _member(part, "thoughtSignature") if _SEALED in part and part.startswith(b"{") else None
    if place is None or part[place[0] : place[0] + 1] != b'"':
        return part
    opaque = read_signature(msgspec.json.decode(part[place[0] : place[1]], type=str))
    if opaque is not None and opaque.vendor == "google":
        return part[: place[0]] + msgspec.json.encode(opaque.value) + part[place[1] :]
    members = json_edit.inner_members(part, 0)
    doomed = {member.key for member in members if camel(member.key) == "thoughtSignature"}
    rest = {member.key: part[member.start : member.end] for member in members if member.key not in doomed}
    if rest == _EMPTY or rest == {"text": b'""'}:
        return None
    return json_edit.splice(part, json_edit.edits(part, members, {}, doomed))


def _member(data: bytes, name: str) -> tuple[int, int] | None:
    """Return where an object's member of this name stands, in either spelling."""
    found = [member for member in json_edit.inner_members(data, 0) if camel(member.key) == name]
    return (found[-1].start, found[-1].end) if found else None
