"""Event-stream framing: bytes to events, by the WHATWG rules, at any cut.

It knows fields, line ends (LF, CRLF, CR), comments, multi-line data and the byte order mark; it knows no wire format
and no JSON. Payloads that are blank, or that begin with a colon (a comment that some gateway wrapped as data), are
dropped. Source: WHATWG HTML, server-sent events, section 9.2.6.
"""

import re
from typing import Final, NamedTuple

from sluicegate.errors import DecodeError

MAX_EVENT_BYTES = 16_777_216
_LINE_END = re.compile(rb"\r\n|\n|\r")
BOM: Final = b"\xef\xbb\xbf"
_NAMED = re.compile(rb"event: ([^\r\n]*+)\ndata: (\{[^\r\n]*+)\n\n")
_NAMED_FRAME_BYTES = 16
"""What framing adds to an event's name and data."""


class Event(NamedTuple):
    """One event: its name (empty where it has none) and its data, lines joined by LF."""

    name: bytes
    data: bytes


_event = tuple.__new__
"""Makes an event without a call of Python."""


class EventReader:
    """Cuts a byte stream into events.

    Invariant: the events do not depend on where the bytes were cut, and the work is linear in the bytes.
    """

    __slots__ = ("_after_cr", "_data", "_held", "_lines", "_max", "_name", "_size", "_started")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._lines: list[bytes] = []
        """Pieces of the line that is not ended yet."""
        self._size = 0
        """Bytes of the event that is not ended yet, comments included, line ends not."""
        self._data: list[bytes] = []
        self._name = b""
        self._after_cr = False
        self._started = False
        self._held = b""

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes and return the events they complete.

        Raises:
            DecodeError: an event, or a line, is longer than the limit.
        """
        if not self._started:
            data = self._without_mark(data)
        if not data:
            return []
        if not self._size and not self._after_cr and len(data) <= self._max:
            events = _plain(data)
            if events is not None:
                return events
        return self._feed_lines(data)

    def _without_mark(self, data: bytes) -> bytes:
        """Return the stream's first bytes without a byte order mark, or none while that cannot be told."""
        data = self._held + data
        if len(data) < 3 and BOM.startswith(data):
            self._held = data
            return b""
        self._started = True
        self._held = b""
        return data.removeprefix(BOM)

    @property
    def clean(self) -> bool:
        """Whether the bytes so far ended exactly at an event's end."""
        return self._started and not self._size and not self._after_cr

    def finish(self) -> list[Event]:
        """Return the event that the end of the stream left without its blank line, if there is one.

        Whether it is whole only its format can tell: the standard drops it, and so must the caller if it is not JSON.
        """
        self._started = True
        if self._held:
            self._lines.append(self._held)
            self._held = b""
        line = b"".join(self._lines)
        self._lines = []
        if line:
            self._take_line(line)
        return self._dispatch()

    def _feed_lines(self, data: bytes) -> list[Event]:
        if self._after_cr:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if 0x0D in data:
            lines = _LINE_END.split(data)
            self._after_cr = data.endswith(b"\r")
        else:
            lines = data.split(b"\n")
        rest = lines.pop()
        events: list[Event] = []
        for line in lines:
            if line:
                self._grow(line)
            if self._lines:
                self._lines.append(line)
                line = b"".join(self._lines)
                self._lines = []
            if line:
                self._take_line(line)
            else:
                events += self._dispatch()
        if rest:
            self._lines.append(rest)
            self._grow(rest)
        return events

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max:
            raise DecodeError("sse", None, f"an event is longer than {self._max} bytes")

    def _take_line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            self._name = line[7:] if line[6:7] == b" " else line[6:]
        elif line == b"data":
            self._data.append(b"")
        elif line == b"event":
            self._name = b""

    def _dispatch(self) -> list[Event]:
        data = b"\n".join(self._data)
        name = self._name
        self._data = []
        self._name = b""
        self._size = 0
        stripped = data.strip()
        if not stripped or stripped.startswith(b":"):
            return []
        return [Event(name, data)]


def _plain(data: bytes) -> list[Event] | None:
    """Read whole events of one `data: ` line each, which is what nearly every read holds; None for all else."""
    if data[:7] == b"event: ":
        return _plain_named(data)
    if data[:7] != b"data: {" or data[-3:] != b"}\n\n" or 0x0D in data:
        return None
    lines = data.count(b"\n")
    if lines == 2:
        return [_event(Event, (b"", data[6:-2]))]
    pieces = data[6:-2].split(b"\n\ndata: ")
    if lines != 2 * len(pieces):
        return None
    for piece in pieces:
        if piece[:1] != b"{":
            return None
    return [Event(b"", piece) for piece in pieces]


def _plain_named(data: bytes) -> list[Event] | None:
    """Read whole events of an `event: ` and a `data: ` line each; None for all else."""
    found = _NAMED.findall(data)
    if len(found) == 1:  # what a paced stream brings
        name, payload = found[0]
        whole = len(name) + len(payload) + _NAMED_FRAME_BYTES == len(data)
        return [_event(Event, (name, payload))] if whole else None
    framed = sum([len(name) + len(payload) for name, payload in found]) + _NAMED_FRAME_BYTES * len(found)
    return [Event(name, payload) for name, payload in found] if framed == len(data) else None


def frame(payload: bytes) -> bytes:
    """Write one nameless event in the narrow form that every SDK reads: `data: `, the payload, a blank line."""
    return b"data: " + payload + b"\n\n"


def frame_named(name: bytes, payload: bytes) -> bytes:
    """Write one event with a name in the narrow form."""
    return b"event: " + name + b"\ndata: " + payload + b"\n\n"
