"""Edits of a chat chunk at its offsets: what every chunk must say, and what a client cannot read as it came.

What has to change is `openai_chat`'s to decide; here is where it stands in the bytes. Source: wire formats page
`chat-completions.md`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec import UNSET

from sluicegate.wire import json_edit
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.openai_chat_chunk import Choice, Chunk, Delta
from sluicegate.wire.openai_tool_calls import Piece, ToolCalls, write_pieces

_MAX_SHARED_BYTES = 4096
"""What longer chunks say is spelled anew for each: it may be long itself."""
_NULL_USAGE = b',"usage":null'
_KNOWN_ALONE = re.compile(
    rb'"delta":\{(?:"(?:role|content|refusal|reasoning_content|reasoning|tool_calls)":(?:null|"[a-z]*+"),?+)*+\}'
)
_FINISH_KEY = re.compile(rb'"finish_reason"\s*+:\s*+')


class ChoiceState:
    """What one choice has come to."""

    __slots__ = ("calls", "finish_left", "held", "held_content", "index", "reason", "role_left")

    def __init__(self, index: int, calls: ToolCalls) -> None:
        self.index = index
        self.calls = calls
        self.role_left = False
        self.reason: str | None = None
        """Why it has finished; None while it runs."""
        self.held: bytes | None = None
        """Its finish, which waits for what follows."""
        self.held_content = False
        """The held event carries content, or the role, that has not left yet."""
        self.finish_left = False


@lru_cache(maxsize=512, typed=True)
def _spelled(name: str, theirs: str | int, ours: str | int) -> tuple[bytes, bytes, bytes]:
    """Return a key, and the key with either value, as nearly all who write JSON spell it: without spaces."""
    key = b'"%b"' % name.encode()
    return key, b"%b:%b" % (key, json_edit.dumps(theirs)), b"%b:%b" % (key, json_edit.dumps(ours))


def usual_edits(
    payload: bytes, chunk: Chunk, same: Mapping[str, str | int], dropped: Collection[str]
) -> list[Edit] | None:
    """Return the edits of a chunk that says all it must, found without walking it; None where that is not sure.

    Args:
        same: what every chunk says alike.
        dropped: members that have to go.
    """
    edits: list[Edit] = []
    for name, ours in same.items():
        theirs = getattr(chunk, name)
        if type(theirs) is not type(ours):
            return None
        if theirs == ours:
            continue  # however often it stands there: readers take the last, as we do
        shared = name == "model" and len(payload) < _MAX_SHARED_BYTES
        key, member, new = (_spelled if shared else _spelled.__wrapped__)(name, theirs, ours)
        at = payload.find(key)
        sole = at >= 0 and payload.find(key, at + 1) < 0 and not json_edit.may_spell_ascii(payload)
        if sole and payload.startswith(member, at):
            edits.append((at, at + len(member), new))
            continue
        value = member[len(key) + 1 :]
        at = json_edit.sole_value(payload, key, value)
        if at < 0:
            return None
        edits.append((at, at + len(value), new[len(key) + 1 :]))
    for name in dropped:
        if b'"%b"' % name.encode() not in payload:
            if json_edit.may_spell_ascii(payload):  # it may be spelled in another way
                return None
            continue
        at = payload.find(_NULL_USAGE)
        if name != "usage" or at < 0 or json_edit.sole_value(payload, b'"usage"', b"null") < 0:
            return None
        edits.append((at, at + len(_NULL_USAGE), b""))
    return edits


def says_nothing_unknown(payload: bytes) -> bool:
    """Whether the one delta of a chunk, as its bytes show, has no member but those the codec knows: a quick look, which
    settles it for the first chunk and the last of nearly every stream.
    """
    return (
        payload.count(b'"delta"') == 1
        and _KNOWN_ALONE.search(payload) is not None
        and not json_edit.may_spell_ascii(payload)
    )


def needs_edit(choice: Choice, state: ChoiceState, *, repair: bool) -> bool:
    """Whether a choice of a chunk does not say all it must, or what it must not."""
    delta = choice.delta
    reason = choice.finish_reason
    return (
        type(choice.index) is not int
        or choice.index != state.index
        or delta is None
        or (reason is not None and (not isinstance(reason, str) or not reason))
        or (delta.role is not UNSET and repair if state.role_left else delta.role != "assistant")
        or (repair and is_misnamed(delta))
    )


def edit_choice(
    payload: bytes,
    start: int,
    choice: Choice,
    state: ChoiceState,
    pieces: list[Piece] | None,
    *,
    repair: bool,
) -> list[Edit]:
    """Return the edits of the choice that begins at `start`.

    Args:
        pieces: fragments of tool calls that stand in place of its own; None: those stay.
    """
    members = json_edit.inner_members(payload, start)
    wanted = {"index": b"%d" % state.index}
    delta = choice.delta
    if delta is None:
        wanted["delta"] = b"{}" if state.role_left else b'{"role":"assistant"}'
    if choice.finish_reason is not None and not (
        isinstance(choice.finish_reason, str) and choice.finish_reason
    ):
        wanted["finish_reason"] = b"null"
    edits = json_edit.edits(payload, members, wanted, start=start)
    if delta is None:
        return edits
    at = next(member.start for member in reversed(members) if member.key == "delta")
    inner = json_edit.inner_members(payload, at)
    spans = {member.key: member for member in inner}
    in_delta: dict[str, bytes] = {}
    dropped: list[str] = []
    if not state.role_left:
        in_delta["role"] = b'"assistant"'
    elif repair:
        dropped.append("role")
    if repair and is_misnamed(delta):
        reasoning = spans["reasoning"]
        in_delta["reasoning_content"] = payload[reasoning.start : reasoning.end]
        dropped.append("reasoning")
    if pieces:
        tools = spans["tool_calls"]
        in_delta["tool_calls"] = write_pieces(pieces, payload, json_edit.elements(payload, tools.start))
    elif pieces is not None:
        dropped.append("tool_calls")
    return edits + json_edit.edits(payload, inner, in_delta, dropped, start=at)


def is_misnamed(delta: Delta) -> bool:
    """Whether reasoning comes as `reasoning` alone."""
    theirs = delta.reasoning
    return isinstance(theirs, str) and bool(theirs) and delta.reasoning_content in (UNSET, None, "")


def with_reasons(payload: bytes, reasons: Sequence[str | None]) -> bytes:
    """Set the finish reasons of an event's choices."""
    key = _FINISH_KEY.search(payload) if len(reasons) == 1 else None
    if key is not None and _FINISH_KEY.search(payload, key.end()) is None:  # the usual case: no walk
        at = key.end()
        new = b"null" if reasons[0] is None else msgspec.json.encode(reasons[0])
        return payload[:at] + new + payload[json_edit.value_end(payload, at) :]
    members = json_edit.inner_members(payload, 0)
    at = next(member.start for member in reversed(members) if member.key == "choices")
    edits: list[Edit] = []
    for (start, _), reason in zip(json_edit.elements(payload, at), reasons, strict=True):
        new = b"null" if reason is None else msgspec.json.encode(reason)
        edits += json_edit.settings(payload, start, {"finish_reason": new})
    return json_edit.splice(payload, edits)
