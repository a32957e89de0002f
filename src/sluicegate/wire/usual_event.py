"""The usual event: one that differs from the event before it only inside one JSON string.

Nearly all of a stream is such events. Once one of them has been decoded and edited, the next needs no decoding: its
edges are compared, its text is read, and it leaves between edges that were edited before. Vendors also pad events with
a random string (`obfuscation`), which may differ as well. Knows no wire format beyond that name.
"""

import re
from functools import cache

import msgspec

from sluicegate.wire import json_edit

_decode_text = msgspec.json.Decoder(str).decode
_decode_texts = msgspec.json.Decoder(list[str]).decode
_PADDING = re.compile(rb'"obfuscation"\s*+:\s*+"')


class UsualEvent:
    """The edges of an event, as it comes and as it leaves."""

    __slots__ = (
        "_edge_bytes", "_from", "_middle", "_out_head", "_out_middle", "_out_tail", "_prefix_bytes", "_to", "parts",
        "text", "wire_head", "wire_tail",
    )  # fmt: skip

    def __init__(
        self,
        before: tuple[bytes, bytes, bytes],
        after: tuple[bytes, bytes, bytes],
        parts: list[str] | None,
        prefix: bytes = b"data: ",
    ) -> None:
        """Remember an event.

        Args:
            before: of the provider's payload: all up to the text, all between text and padding, and the rest.
            after: the same of the edited one.
            parts: gathers the texts; None where nobody needs them.
            prefix: the framing before the payload, the event's name included where it has one.
        """
        # Every stream holds one of these: edges that are alike are kept once.
        self._prefix_bytes = len(prefix)
        self._middle = before[1]
        self.wire_head = prefix + before[0]
        self.wire_tail = before[2] + b"\n\n"
        self._from, self._to = len(self.wire_head), -len(self.wire_tail)
        self._edge_bytes = self._from - self._to
        self._out_head = self.wire_head if after[0] == before[0] else prefix + after[0]
        self._out_middle = after[1]
        self._out_tail = self.wire_tail if after[2] == before[2] else after[2] + b"\n\n"
        self.parts = parts
        self.text = ""
        """Of the last event that was rewritten."""

    @property
    def head(self) -> bytes:
        """All of a payload up to its text."""
        return self.wire_head[self._prefix_bytes :]

    @property
    def tail(self) -> bytes:
        """All of a payload behind its text, or behind its padding."""
        return self.wire_tail[:-2]

    def rewrite_read(self, data: bytes) -> bytes | None:
        """Return what one read brought as it leaves, and keep its text: an event, or several; None for other bytes."""
        if not (data.startswith(self.wire_head) and data.endswith(self.wire_tail)):
            return None
        if self._is_one(data):
            return b"%b%b%b" % (self._out_head, data[self._from : self._to], self._out_tail)
        return self._rewrite_odd(data)

    def takes(self, data: bytes) -> bool:
        """Whether one read brought an event of this shape, or several, whose text is kept: `rewrite_read` for who wants
        nothing else.
        """
        if not (data.startswith(self.wire_head) and data.endswith(self.wire_tail)):
            return False
        return self._is_one(data) or self._rewrite_odd(data) is not None

    def _is_one(self, data: bytes) -> bool:
        """Whether what has the right edges is one event without padding; its text is kept."""
        if self._middle or len(data) < self._edge_bytes:
            return False
        try:
            self.text = _decode_text(data[self._from - 1 : self._to + 1])  # with its quotes
        except (UnicodeDecodeError, msgspec.DecodeError):
            return False
        return True

    def _rewrite_odd(self, data: bytes) -> bytes | None:
        """Return what has the right edges as it leaves: with padding, or several events; None where it is neither."""
        if self._middle or len(data) < self._edge_bytes:
            return self.rewrite(data, self.wire_head, self.wire_tail)
        return self.rewrite_burst(data)

    def rewrite(self, data: bytes, head: bytes, tail: bytes) -> bytes | None:
        """Return an event of this shape as it leaves, framed, and keep its text; None for any other bytes.

        Args:
            head, tail: the edges to look for: with the framing or without it.
        """
        if not (data.startswith(head) and data.endswith(tail)):
            return None
        start = len(head)
        end = len(data) - len(tail)
        padding = b""
        if self._middle:
            text_end = data.find(self._middle, start)
            padding_at = text_end + len(self._middle)
            if text_end < 0 or padding_at > end:
                return None
            padding = data[padding_at:end]
            if padding and not padding.isalnum():
                return None
            end = text_end
        elif end < start:
            return None
        text = data[start:end]
        try:
            decoded = text.decode()
            if not decoded.isprintable() or '"' in decoded or "\\" in decoded:
                decoded = _decode_text(b'"%b"' % text)
        except (UnicodeDecodeError, msgspec.DecodeError):
            return None
        self.text = decoded
        return self._out_head + text + self._out_middle + padding + self._out_tail

    def rewrite_burst(self, data: bytes) -> bytes | None:
        """Return several events that came in one read as they leave, and keep their joined text; None for any other.

        All texts are decoded at once, as the elements of an array. A text that would break out of its place needs a
        quote, which then shows in the decoded ones.
        """
        if self._middle or not (data.startswith(self.wire_head) and data.endswith(self.wire_tail)):
            return None
        texts = data[len(self.wire_head) : -len(self.wire_tail)].split(self.wire_tail + self.wire_head)
        try:
            decoded = _decode_texts(b'["%b"]' % b'","'.join(texts))
        except (UnicodeDecodeError, msgspec.DecodeError):
            return None
        self.text = "".join(decoded)
        if len(decoded) != len(texts) or '"' in self.text:
            return None
        return self._out_head + (self._out_tail + self._out_head).join(texts) + self._out_tail


def learn(
    payload: bytes, edited: bytes, key: str, text: str, parts: list[str] | None, prefix: bytes = b"data: "
) -> UsualEvent | None:
    """Return the shape of an event, or None where its text cannot be told from its edges.

    Args:
        key: of the member whose value, the only string of that name, is `text`.
        parts, prefix: see `UsualEvent`.
    """
    before = _split(payload, key, text)
    if before is None:
        return None
    same = len(payload) - len(before[0])
    if edited.endswith(payload[-same:]):  # all edits stand before the text
        after: tuple[bytes, bytes, bytes] | None = (edited[:-same], before[1], before[2])
    else:
        after = _split(edited, key, text)
    if after is None or bool(before[1]) != bool(after[1]):
        return None
    return UsualEvent(before, after, parts, prefix)


@cache
def _beginning(key: str) -> re.Pattern[bytes]:
    """Return what the value of a key, one of a format's few, begins behind."""
    return re.compile(rb'"%b"\s*+:\s*+"' % key.encode())


def _split(payload: bytes, key: str, text: str) -> tuple[bytes, bytes, bytes] | None:
    name = _beginning(key)
    place = name.search(payload)
    if place is None or name.search(payload, place.end()) is not None:
        return None
    start = place.end()
    end = json_edit.value_end(payload, start - 1) - 1
    if _decode_text(payload[start - 1 : end + 1]) != text:
        return None
    padding = _PADDING.search(payload, end)
    if padding is None or _PADDING.search(payload, padding.end()) is not None:
        return payload[:start], b"", payload[end:]
    padding_at = padding.end()
    padding_end = json_edit.value_end(payload, padding_at - 1) - 1
    return payload[:start], payload[end:padding_at], payload[padding_end:]
