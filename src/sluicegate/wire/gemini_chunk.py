"""One response object of Gemini, read: a piece of a stream, or a whole answer; and streams of them cut into pieces.

Only what metering and translation look at is decoded. A provider's stream is read as events, as a JSON array that
grows (proxies drop `alt=sse`), and as bare objects between events, which is how some tell an error. Source: wire
formats page `gemini.md`, "Reading an upstream of this format".
"""

import re
from collections.abc import Iterator

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.wire import json_edit
from sluicegate.wire.gemini_shapes import Chunk
from sluicegate.wire.half_characters import HalfCharacters
from sluicegate.wire.json_elements import ElementReader
from sluicegate.wire.sse import MAX_EVENT_BYTES, EventReader

FORMAT = "gemini"
_BARE_OBJECT = re.compile(rb"[\r\n](?=[\[{])")
"""A line that begins so is no line of an event stream."""
_BEFORE_JSON = b"\xef\xbb\xbf \t\r\n"


_decode_chunk = msgspec.json.Decoder(Chunk).decode
_BROKEN = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def decode_chunk(payload: bytes) -> Chunk:
    """Decode a response object whose characters are whole.

    Raises:
        DecodeError: it is none.
    """
    try:
        return _decode_chunk(payload)
    except _BROKEN:
        raise DecodeError(FORMAT, None, "an event is not a response object") from None


def split_objects(body: bytes) -> list[bytes]:
    """Return the objects that a body holds: one, or those of an array; what is no object is left out.

    Raises:
        DecodeError: there is none, or the last is cut.
    """
    reader = ElementReader(len(body))
    found = reader.feed(body)
    if not found or reader.inside:
        raise DecodeError(FORMAT, None, "the answer is not a response object")
    return found


class ChunkReader:
    """Cuts a provider's stream into response objects whose characters are whole."""

    __slots__ = ("_begun", "_elements", "_halves", "_max", "_reader")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._reader = EventReader(max_event_bytes)
        self._halves = HalfCharacters()
        self._elements: ElementReader | None = None
        """Set once the stream has turned out to be bare JSON."""
        self._begun = False

    @property
    def clean(self) -> bool:
        """Whether the bytes so far ended exactly at an event's end, and no event waits for the next."""
        return self._elements is None and self._reader.clean and not self._halves.waits

    @property
    def repaired(self) -> bool:
        """Whether something in the framing or in the characters was put right."""
        return self._halves.repaired or self._elements is not None

    def feed(self, data: bytes) -> Iterator[tuple[bytes, Chunk]]:
        """Take the next bytes and yield each object, on one line, and what it says.

        Raises:
            DecodeError: an event is no response object, or too long.
        """
        if self._elements is None:
            if not self._begun:
                data = data.lstrip(_BEFORE_JSON)
                if not data:
                    return
                if data[:1] in b"{[":
                    self._elements = ElementReader(self._max)
                self._begun = True
            elif self.clean and data.lstrip()[:1] in (b"{", b"["):
                self._elements = ElementReader(self._max)
        if self._elements is None:
            bare = _BARE_OBJECT.search(data)
            end = len(data) if bare is None else bare.end()
            for _, payload in self._reader.feed(data[:end]):
                yield from self._take(payload)
            if bare is None:
                return
            self._elements = ElementReader(self._max)
            data = data[end:]
        for payload in self._elements.feed(data):
            yield from self._take(payload)

    def finish(self) -> Iterator[tuple[bytes, Chunk]]:
        """Take the end of the body.

        Raises:
            DecodeError: the body ended inside an event.
        """
        if self._elements is not None:
            if self._elements.inside:
                raise DecodeError(FORMAT, None, "the stream ended inside an event")
        else:
            for _, payload in self._reader.finish():
                yield from self._take(payload)
        for payload in self._halves.cut_off():
            yield payload, decode_chunk(payload)

    def _take(self, payload: bytes) -> Iterator[tuple[bytes, Chunk]]:
        payload = payload.strip()
        if payload.startswith(b"["):
            if payload == b"[DONE]":
                return
            for element in split_objects(payload):
                yield from self._take(element)
            return
        if not payload.startswith(b"{"):
            raise DecodeError(FORMAT, None, "an event is not a JSON object")
        if 0x0A in payload or 0x0D in payload:  # white space of JSON that came on several lines
            payload = payload.replace(b"\r", b" ").replace(b"\n", b" ")
        if not self._halves.waits and not json_edit.may_escape(payload) and payload.isascii():
            yield payload, decode_chunk(payload)
            return
        for whole in self._halves.mend(payload):
            yield whole, decode_chunk(whole)
