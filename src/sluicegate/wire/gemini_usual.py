"""The usual event of a Gemini stream: it differs from the one before only in its text and in its running usage.

Nearly all of a stream is such events. Once one has been decoded, the next needs only its edges compared, its text read,
and its usage, which stands behind the text. See `usual_event`, which does the same where usage is not in every event.
"""

import re
from typing import NamedTuple

import msgspec

from sluicegate.wire import json_edit

_TEXT = re.compile(rb'"text"\s*+:\s*+"')
_decode_text = msgspec.json.Decoder(str).decode
_PREFIX = b"data: "


class UsualPiece(NamedTuple):
    """What varies in one event."""

    text: str
    raw: bytes
    """The text as JSON spells it, without its quotes."""
    usage: bytes
    """Empty where the event has none."""


class UsualChunk:
    """The edges of an event, as it comes and as it leaves."""

    __slots__ = (
        "_end",
        "_head",
        "_middle",
        "_next",
        "_out_head",
        "_out_middle",
        "_out_tail",
        "_tail",
        "thought",
    )

    def __init__(
        self,
        before: tuple[bytes, bytes, bytes],
        after: tuple[bytes, bytes, bytes],
        end: bytes,
        *,
        thought: bool,
    ) -> None:
        """Remember an event.

        Args:
            before: of the provider's payload: all up to the text, all between text and usage, and the rest.
            after: the same of the edited one.
            end: what closes the provider's events: a blank line in its own line ends.
            thought: the text is a thought.
        """
        self._head, self._middle, self._tail = before
        self._out_head = _PREFIX + after[0]
        self._out_middle = after[1]
        self._out_tail = after[2] + b"\n\n"
        self._end = end
        self._next = end + _PREFIX
        self.thought = thought

    def read(self, data: bytes) -> list[UsualPiece] | None:
        """Return what varies in one or several whole events of this shape; None for any other bytes."""
        if not (data.startswith(_PREFIX) and data.endswith(self._end)):
            return None
        found: list[UsualPiece] = []
        for payload in data[len(_PREFIX) : -len(self._end)].split(self._next):
            piece = self._read(payload)
            if piece is None:
                return None
            found.append(piece)
        return found

    def _read(self, payload: bytes) -> UsualPiece | None:
        if not (payload.startswith(self._head) and payload.endswith(self._tail)):
            return None
        start, stop = len(self._head), len(payload) - len(self._tail)
        end = stop
        usage = b""
        if self._middle:
            end = payload.find(self._middle, start)
            usage_at = end + len(self._middle)
            if end < 0 or usage_at > stop:
                return None
            usage = payload[usage_at:stop]
        elif end < start:
            return None
        raw = payload[start:end]
        try:
            text = raw.decode()
            if not text.isprintable() or '"' in text or "\\" in text:
                text = _decode_text(b'"%b"' % raw)
        except (UnicodeDecodeError, msgspec.DecodeError):
            return None
        return UsualPiece(text, raw, usage)

    def write(self, piece: UsualPiece) -> bytes:
        """Return an event as it leaves, framed."""
        return self._out_head + piece.raw + self._out_middle + piece.usage + self._out_tail


def learn(payload: bytes, edited: bytes, text: str, end: bytes, *, thought: bool) -> UsualChunk | None:
    """Return the shape of an event, or None where its text cannot be told from its edges.

    Args:
        text: what the only `text` in it says.
        end, thought: see `UsualChunk`.
    """
    before, after = _split(payload, text), _split(edited, text)
    if before is None or after is None or bool(before[1]) != bool(after[1]):
        return None
    return UsualChunk(before, after, end, thought=thought)


def _split(payload: bytes, text: str) -> tuple[bytes, bytes, bytes] | None:
    places = [found.end() for found in _TEXT.finditer(payload)]
    if len(places) != 1:
        return None
    start = places[0]
    end = json_edit.value_end(payload, start - 1) - 1
    if _decode_text(payload[start - 1 : end + 1]) != text:
        return None
    usages = [member for member in json_edit.inner_members(payload, 0) if member.key == "usageMetadata"]
    if not usages:
        return payload[:start], b"", payload[end:]
    usage = usages[-1]
    if len(usages) != 1 or usage.start < end:
        return None
    return payload[:start], payload[end : usage.start], payload[usage.end :]
