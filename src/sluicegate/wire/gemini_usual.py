"""The usual event of a Gemini stream: it differs from the one before only in its text and in its running usage.

Nearly all of a stream is such events. Once one has been decoded, the next needs only its edges compared, its text read,
and its usage, which stands behind the text. See `usual_event`, which does the same where usage is not in every event.
"""

import re

import msgspec

from sluicegate.wire import json_edit

_TEXT = re.compile(rb'"text"\s*+:\s*+"')
_decode_text = msgspec.json.Decoder(str).decode
_PREFIX = b"data: "


UsualPiece = tuple[str, bytes, bytes]
"""What varies in one event: the text, the text as JSON spells it without its quotes, and the usage, if there is any."""


class UsualChunk:
    """The edges of an event, as it comes and as it leaves."""

    __slots__ = (
        "_end_bytes",
        "_head",
        "_middle",
        "_next",
        "_out_head",
        "_out_middle",
        "_out_tail",
        "_tail",
        "_wire_head",
        "_wire_tail",
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
        self._out_head, self._out_middle, self._out_tail = after
        self._wire_head = _PREFIX + self._head
        self._wire_tail = self._tail + end
        self._end_bytes = len(end)
        self._next = end + _PREFIX
        self.thought = thought

    def read(self, data: bytes) -> list[UsualPiece] | None:
        """Return what varies in one or several whole events of this shape; None for any other bytes.

        The usage is not looked at: whoever reads it sees whether it is one.
        """
        if not (data.startswith(self._wire_head) and data.endswith(self._wire_tail)):
            return None
        if data.find(self._next) < 0:
            piece = self._read(data, len(self._wire_head), len(data) - len(self._wire_tail))
            return None if piece is None else [piece]
        found: list[UsualPiece] = []
        for payload in data[len(_PREFIX) : -self._end_bytes].split(self._next):
            piece = self.read_payload(payload)
            if piece is None:
                return None
            found.append(piece)
        return found

    def read_payload(self, payload: bytes) -> UsualPiece | None:
        """Return what varies in one event; None for one of another shape."""
        if not (payload.startswith(self._head) and payload.endswith(self._tail)):
            return None
        return self._read(payload, len(self._head), len(payload) - len(self._tail))

    def _read(self, data: bytes, start: int, stop: int) -> UsualPiece | None:
        """Return what varies between two edges."""
        usage = b""
        if self._middle:
            end = data.find(self._middle, start, stop)
            if end < 0:
                return None
            usage = data[end + len(self._middle) : stop]
            raw = data[start:end]
        elif stop < start:
            return None
        else:
            raw = data[start:stop]
        try:
            text = raw.decode()
            if not text.isprintable() or '"' in text or "\\" in text:
                text = _decode_text(b'"%b"' % raw)
        except (UnicodeDecodeError, msgspec.DecodeError):
            return None
        return text, raw, usage

    def write(self, piece: UsualPiece, prefix: bytes, suffix: bytes) -> bytes:
        """Return an event as it leaves, between the bytes that frame it."""
        _, raw, usage = piece
        return prefix + self._out_head + raw + self._out_middle + usage + self._out_tail + suffix


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
