"""Thoughts and searches in a Messages conversation that its next provider did not make, taken out at their offsets.

A conversation that another vendor's model began holds that vendor's state in envelopes, thoughts that nobody signed,
and searches and sources without the vendor's seal. Going on at a provider of this format, which refuses all of them,
such blocks, and such sources of blocks, are left out; the rest of the body stays as it is. Source: translation matrix,
sections 12, 24 and 25; case B141.
"""

import re

import msgspec

from sluicegate.wire import json_edit
from sluicegate.wire.anthropic_searches import OWN_ID
from sluicegate.wire.envelope import open_envelope
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.json_text import quote

_UNSIGNED = re.compile(rb'"signature"\s*+:\s*+""')
_UNSEALED = re.compile(rb'"encrypted_index"\s*+:\s*+""')
_STATE_FIELDS = {b'"thinking"': "signature", b'"redacted_thinking"': "data"}
_SEARCH_IDS = {b'"server_tool_use"': "id", b'"web_search_tool_result"': "tool_use_id"}


def foreign_state_edits(body: bytes, messages_at: int) -> list[Edit]:
    """Return the edits that take foreign thoughts out.

    Args:
        body: a request whose JSON was read before.
        messages_at: where its array of messages begins.
    """
    if (
        b'"gw1.' not in body
        and not (b'"signature"' in body and _UNSIGNED.search(body))
        and OWN_ID.encode() not in body
        and not (b'"encrypted_index"' in body and _UNSEALED.search(body))
    ):
        return []
    messages = json_edit.elements(body, messages_at)
    emptied: list[int] = []
    edits: list[Edit] = []
    for place, (at, _) in enumerate(messages):
        content = _member(body, at, "content")
        if content is None or body[content] != 0x5B or _text(body, at, "role") != b'"assistant"':
            continue
        blocks = json_edit.elements(body, content)
        doomed: list[int] = []
        for number, (block_at, _) in enumerate(blocks):
            edit = _judge(body, block_at)
            if edit is None:
                continue
            if edit[2]:
                edits.append(edit)
            else:
                doomed.append(number)
        if len(doomed) == len(blocks) and doomed:
            emptied.append(place)
        else:
            edits += _removals(blocks, doomed)
    inside = [messages[place] for place in emptied]
    kept = [edit for edit in edits if not any(start <= edit[0] < end for start, end in inside)]
    return kept + _removals(messages, emptied)


def _judge(body: bytes, at: int) -> Edit | None:
    """Return an edit that gives a block back its own state, an empty one where it must go, None where it may stay."""
    kind = _text(body, at, "type") or b""
    if kind in _SEARCH_IDS:
        id = _text(body, at, _SEARCH_IDS[kind]) or b""
        return (at, at, b"") if id.startswith(b'"' + OWN_ID.encode()) else None
    if kind == b'"text"':
        return _judge_sources(body, at)
    field = _STATE_FIELDS.get(kind)
    start = _member(body, at, field) if field else None
    if start is None:
        return None
    end = json_edit.value_end(body, start)
    if body[start] != 0x22:
        return None
    value = msgspec.json.decode(body[start:end], type=str)
    if not value:
        return (start, end, b"")
    opaque = open_envelope(value)
    if opaque is None:
        return None
    return (start, end, quote(opaque.value) if opaque.vendor == "anthropic" else b"")


def _judge_sources(body: bytes, at: int) -> Edit | None:
    """Return an edit that takes a text's sources from it, where they are another vendor's."""
    start = _member(body, at, "citations")
    if start is None:
        return None
    end = json_edit.value_end(body, start)
    return (start, end, b"null") if _UNSEALED.search(body, start, end) else None


def _removals(items: list[tuple[int, int]], doomed: list[int]) -> list[Edit]:
    """Return the edits that take elements out of an array, each with one of its commas; not all of them."""
    edits: list[Edit] = []
    kept_end: int | None = None
    gone = set(doomed)
    for place, (start, end) in enumerate(items):
        if place not in gone:
            kept_end = end
        elif kept_end is not None:
            edits.append((kept_end, end, b""))
            kept_end = end
        else:
            following = items[place + 1][0] if place + 1 < len(items) else end
            edits.append((start, following, b""))
    return edits


def _member(body: bytes, at: int, key: str | None) -> int | None:
    if body[at] != 0x7B:
        return None
    return next((member.start for member in json_edit.inner_members(body, at) if member.key == key), None)


def _text(body: bytes, at: int, key: str) -> bytes | None:
    start = _member(body, at, key)
    return None if start is None else body[start : json_edit.value_end(body, start)]
