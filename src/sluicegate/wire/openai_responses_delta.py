"""The usual delta event: one that goes on with the text of the event before it, under the next sequence number.

Nearly all of a stream is such events. Once one has been decoded, the next needs no decoding: number and edges are
compared, its text is read. Vendors also pad events with a random string (`obfuscation`), which may differ as well.
Like `usual_event`, for events that carry a number.
"""

import re

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.wire import json_edit
from sluicegate.wire.openai_responses_event import FORMAT

_SLOTS = ("delta", "obfuscation", "sequence_number")
_TEXT = rb'([^"\\]*+(?:\\.[^"\\]*+)*+)'
_NUMBER = rb"(0|[1-9][0-9]{0,14}+)"
_PADDING = rb"([A-Za-z0-9]*+)"
_decode_text = msgspec.json.Decoder(str).decode
_decode_texts = msgspec.json.Decoder(list[str]).decode


class UsualDelta:
    """The edges of a delta event."""

    __slots__ = ("_burst", "_edges", "_groups", "_numbered", "_padded", "_plain_bytes", "number")

    def __init__(self, edges: list[bytes], numbered: int | None, number: int | None) -> None:
        """Remember an event.

        Args:
            edges: what stands before the text, between text and padding (empty where there is no padding), and behind;
                the place of the number is `%d`.
            numbered: which of the three holds the number; None: events have none.
            number: the one that comes next.
        """
        self._edges = edges
        self._numbered = numbered
        self._padded = bool(edges[1])
        self.number = number
        self._burst: re.Pattern[bytes] | None = None
        """Finds several of them; made when several have come."""
        self._groups = (0, 0)
        """Where its matches hold text and number."""
        self._plain_bytes = 0
        """Of an event, less its text, its number and its padding."""

    def text(self, data: bytes) -> str | None:
        """Return the text of a read of nothing but such events, in order, and count them; None for any other."""
        if data.count(b"\n") != 3:
            return self._texts(data)
        head, middle, tail = self._edges
        if self._numbered == 2:
            tail = tail % self.number
        elif self._numbered == 0:
            head = head % self.number
        elif self._numbered == 1:
            middle = middle % self.number
        if not (data.startswith(head) and data.endswith(tail)):
            return None
        start, end = len(head), len(data) - len(tail)
        if self._padded:
            text_end = data.find(middle, start)
            padding = data[text_end + len(middle) : end]
            if text_end < 0 or not (padding.isalnum() or not padding):
                return None
            end = text_end
        if end < start:
            return None
        raw = data[start:end]
        try:
            text = raw.decode()
            if not text.isprintable() or '"' in text or "\\" in text:
                text = _decode_text(b'"%b"' % raw)
        except (UnicodeDecodeError, msgspec.DecodeError):
            return None
        if self.number is not None:
            self.number += 1
        return text

    def _texts(self, data: bytes) -> str | None:
        """Return the joined texts of several events.

        They are decoded at once, as the elements of an array.
        """
        burst = self._burst
        if burst is None:
            burst = self._burst = self._make_burst()
        found = burst.findall(data)
        if not found:
            return None
        columns = list(zip(*found, strict=True))
        text_at, number_at = self._groups
        joined = b'","'.join(columns[text_at])
        others = sum([len(b"".join(column)) for place, column in enumerate(columns) if place != text_at])
        framing = self._plain_bytes * len(found) - 3 * (len(found) - 1)
        if len(joined) + others + framing != len(data):
            return None
        number = self.number
        if number is not None:
            if list(map(int, columns[number_at])) != list(range(number, number + len(found))):
                return None
            number += len(found)
        try:
            texts = _decode_texts(b'["%b"]' % joined)
        except (UnicodeDecodeError, msgspec.DecodeError):
            return None
        self.number = number
        return "".join(texts)

    def _make_burst(self) -> re.Pattern[bytes]:
        slots = [_TEXT, _PADDING if self._padded else b"()"]
        places = ["text", "padding"]
        pattern = b""
        for place, edge in enumerate(self._edges):
            if place == self._numbered:
                before, after = (part.replace(b"%%", b"%") for part in edge.split(b"%d"))
                pattern += re.escape(before) + _NUMBER + re.escape(after)
                places.insert(place, "number")
                self._plain_bytes += len(before) + len(after)
            else:
                pattern += re.escape(edge)
                self._plain_bytes += len(edge)
            if place < 2:
                pattern += slots[place]
        self._groups = (places.index("text"), places.index("number") if "number" in places else 0)
        return re.compile(pattern)


def learn(payload: bytes, kind: str) -> UsualDelta | None:
    """Return the shape of a delta event, or None where it has none that is worth remembering.

    Args:
        payload: of the event, which was decoded before.
        kind: its type.
    """
    try:
        slots = [member for member in json_edit.members(payload, FORMAT) if member.key in _SLOTS]
    except DecodeError:
        return None
    keys = [member.key for member in slots]
    if len(set(keys)) != len(keys) or "delta" not in keys:
        return None
    edges = [b"event: %b\ndata: " % kind.encode().replace(b"%", b"%%")]
    numbered: int | None = None
    number: int | None = None
    at = 0
    for slot in slots:
        key, start, end = slot.key, slot.start, slot.end
        if key == "sequence_number":
            spelled = payload[start:end]
            if not spelled.isdigit():
                return None
            edges[-1] += _escaped(payload[at:start]) + b"%d"
            numbered, number, at = len(edges) - 1, int(spelled) + 1, end
        elif key == "obfuscation" and len(edges) == 1:
            return None  # padding stands behind the text
        else:
            edges[-1] += _escaped(payload[at : start + 1])
            edges.append(b"")
            at = end - 1
    edges[-1] += _escaped(payload[at:]) + b"\n\n"
    if len(edges) == 2:
        edges.insert(1, b"")
        numbered = 2 if numbered == 1 else numbered
    return UsualDelta(
        [edge if place == numbered else edge.replace(b"%%", b"%") for place, edge in enumerate(edges)],
        numbered,
        number,
    )


def _escaped(edge: bytes) -> bytes:
    return edge.replace(b"%", b"%%")
