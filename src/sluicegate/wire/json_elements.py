"""JSON objects that come one after another, bare or in an array that grows, cut out of a byte stream at any cut.

It knows brackets and strings and nothing of what the objects say; whether each one is valid JSON, its reader tells.
"""

import re

from sluicegate.errors import DecodeError

_IN_STRING = re.compile(rb'["\\]')
_OUTSIDE = re.compile(rb'["\[\]{}]')


def is_array_of_several(body: bytes) -> bool:
    """Whether a whole body is an array of more than one object."""
    return body.startswith(b"[") and len(ElementReader(len(body)).feed(body)) > 1


class ElementReader:
    """Cuts a byte stream into its outermost objects; an array around them is seen through."""

    __slots__ = ("_depth", "_in_string", "_max", "_pieces", "_size", "_skips")

    def __init__(self, max_bytes: int) -> None:
        """Start a stream.

        Args:
            max_bytes: the longest object that is taken.
        """
        self._max = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._depth = 0
        self._in_string = False
        self._skips = False
        """The last byte was a backslash: the next one ends no string."""

    @property
    def inside(self) -> bool:
        """Whether the bytes so far ended inside an object."""
        return self._depth > 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the objects they complete.

        Raises:
            DecodeError: an object is longer than the limit.
        """
        found: list[bytes] = []
        start = 0
        at = 0
        if self._skips and data:
            self._skips = False
            at = 1
        while (match := (_IN_STRING if self._in_string else _OUTSIDE).search(data, at)) is not None:
            at = match.end()
            mark = match[0]
            if mark == b"\\":
                if at == len(data):
                    self._skips = True
                at += 1
            elif mark == b'"':
                self._in_string = self._depth > 0 and not self._in_string
            elif mark in b"{[":
                if self._depth or mark == b"{":
                    if not self._depth:
                        start = match.start()
                    self._depth += 1
            elif self._depth:
                self._depth -= 1
                if not self._depth:
                    self._keep(data[start:at])
                    found.append(b"".join(self._pieces))
                    self._pieces = []
                    self._size = 0
        if self._depth:
            self._keep(data[start:])
        return found

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max:
            raise DecodeError("json", None, f"an event is longer than {self._max} bytes")
        self._pieces.append(piece)
