"""Opaque reasoning state as chat messages carry it: `reasoning_details`, an extra list beside `reasoning_content`.

Chat has no field for signatures and hidden thoughts. A gate's answer carries each in an entry with its own `index`, as
SDK helpers want it, sealed in an envelope; an entry says which characters of `reasoning_content` it signs, which call
it hangs on, or that it belongs to the text. Clients that give the list back get their state restored. Entries of other
servers are read too: what they hold goes back to servers of this dialect alone, as it came. Source: wire formats page
`chat-completions.md`, "Reasoning text"; translation matrix, section 12.
"""

from typing import Any, NamedTuple

import msgspec

from sluicegate.messages import Opaque, Reasoning, Vendor
from sluicegate.wire import json_edit
from sluicegate.wire.envelope import open_envelope, seal

VENDOR: Vendor = "other"
"""Whose the state of a chat server is: nobody's that we know, whatever model may stand behind it."""
_TEXT_KEYS = ("text", "summary")
_FORMATS: tuple[tuple[str, Vendor], ...] = (
    ("anthropic", "anthropic"),
    ("google", "google"),
    ("gemini", "google"),
    ("openai", "openai"),
)
"""How other servers' entries name the vendor; versions follow."""


class History(NamedTuple):
    """The reasoning of an earlier turn."""

    thoughts: list[Reasoning]
    on_text: Opaque | None
    """State of the turn's text."""
    on_calls: dict[str, Opaque]
    """State of its calls, by id."""


def write_entry(
    opaque: Opaque, index: int, *, span: tuple[int, int] | None, call_id: str | None, on_text: bool
) -> bytes:
    """Write an entry for a client.

    Args:
        index: place among the entries of the message.
        span: the characters of its reasoning text that are signed.
        call_id: of the call it hangs on.
        on_text: it belongs to the visible text.
    """
    key = "signature" if opaque.kind == "signature" else "data"
    entry: dict[str, Any] = {
        "index": index,
        "type": opaque.kind,
        "format": opaque.vendor,
        key: seal(opaque),
    }
    if call_id is not None:
        entry["tool_call_id"] = call_id
    elif on_text:
        entry["of"] = "text"
    elif span is not None:
        entry["start"], entry["end"] = span
    return json_edit.dumps(entry)


def read_history(text: str, entries: list[dict[str, Any]]) -> History:
    """Return the reasoning of a turn that a client gives back, in order, each thought with its own state."""
    history = History([], None, {})
    thoughts = history.thoughts
    on_text: Opaque | None = None
    at = 0
    unplaced: Reasoning | None = None
    for entry in entries:
        opaque = _opaque(entry)
        own_text = _text(entry)
        if opaque is None:
            if own_text and not text:
                thoughts.append(Reasoning(text=own_text, summary="summary" in entry))
            continue
        call_id, start, end = entry.get("tool_call_id"), entry.get("start"), entry.get("end")
        if isinstance(call_id, str):
            history.on_calls[call_id] = opaque
        elif entry.get("of") == "text":
            on_text = opaque
        elif type(start) is int and type(end) is int and at <= start <= end <= len(text):
            if start > at:
                thoughts.append(Reasoning(text=text[at:start]))
            thoughts.append(Reasoning(text=text[start:end], opaque=opaque))
            at = end
        else:
            thought = Reasoning(text="" if text else own_text, opaque=opaque)
            thoughts.append(thought)
            if opaque.kind == "signature" and not thought.text:
                unplaced = unplaced or thought
    rest = text[at:]
    if rest and unplaced is not None:
        unplaced.text = rest  # an entry that does not say what it signs
    elif rest:
        thoughts.append(Reasoning(text=rest))
    return history._replace(on_text=on_text)


def _opaque(entry: dict[str, Any]) -> Opaque | None:
    value = _value(entry)
    if value is None:
        return None
    opened = open_envelope(value)
    if opened is not None:
        return opened
    named = str(entry.get("format") or "")
    vendor = next((vendor for prefix, vendor in _FORMATS if named.startswith(prefix)), None)
    if vendor is None:
        return _kept(entry)
    kind = str(entry.get("type") or "")
    id_ = entry.get("id")
    return Opaque(
        vendor=vendor,
        kind="signature" if "signature" in entry else "redacted" if kind == "redacted" else "encrypted",
        value=value,
        id=id_ if isinstance(id_, str) else None,
    )


def _value(entry: dict[str, Any]) -> str | None:
    for key in ("signature", "data"):
        value = entry.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def _text(entry: dict[str, Any]) -> str:
    return next((text for key in _TEXT_KEYS if isinstance(text := entry.get(key), str)), "")


def _kept(entry: dict[str, Any]) -> Opaque:
    """Return an entry of a chat server as state of its own, to be given back as it came."""
    bare = {key: value for key, value in entry.items() if key != "index" and key not in _TEXT_KEYS}
    return Opaque(
        vendor=VENDOR,
        kind="signature" if isinstance(entry.get("signature"), str) else "encrypted",
        value=json_edit.dumps(bare).decode(),
    )


def read_entries(entries: Any) -> tuple[str, list[Opaque]]:
    """Return what a chat server's entries say in words, and the state they hold."""
    if not isinstance(entries, list):
        return "", []
    known = [entry for entry in entries if isinstance(entry, dict)]
    states = [_kept(entry) for entry in known if _value(entry) is not None]
    return "".join(_text(entry) for entry in known), states


def give_back(thoughts: list[Reasoning]) -> list[dict[str, Any]]:
    """Return the entries that a chat server gave earlier, for the same dialect again; nobody else's."""
    given: list[dict[str, Any]] = []
    for thought in thoughts:
        opaque = thought.opaque
        if opaque is None or opaque.vendor != VENDOR:
            continue
        try:
            entry = msgspec.json.decode(opaque.value, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            continue  # sealed by somebody else
        if thought.text and entry.get("type") == "reasoning.text":
            entry["text"] = thought.text
        given.append({"index": len(given), **entry})
    return given
