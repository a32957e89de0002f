"""The events of a chat or completions stream as whole JSON texts: framing, broken characters, the end marker.

What an event says is left to the decoders of the two formats. Source: wire formats page `chat-completions.md`,
"Reading other servers' chat dialect".
"""

from collections.abc import Iterator

from sluicegate.errors import DecodeError
from sluicegate.wire import json_edit
from sluicegate.wire.half_characters import HalfCharacters
from sluicegate.wire.sse import MAX_EVENT_BYTES, EventReader

DONE = b"[DONE]"


class PayloadReader:
    """Reads one provider's stream."""

    __slots__ = ("_events", "_format", "_halves", "_split")

    def __init__(self, format: str, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Start a stream; the format is named in errors."""
        self._format = format
        self._events = EventReader(max_event_bytes)
        self._halves = HalfCharacters()
        self._split = False

    @property
    def clean(self) -> bool:
        """Whether the bytes so far ended exactly at an event's end, and nothing of it waits."""
        return self._events.clean and not self._halves.waits

    @property
    def repaired(self) -> bool:
        """Whether anything had to be put right."""
        return self._split or self._halves.repaired

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes and give the payloads they complete, the end marker as `DONE`. Raises DecodeError."""
        for _, payload in self._events.feed(data):
            yield from self._whole(payload)

    def finish(self) -> Iterator[bytes]:
        """Give what the end of the body left behind. Raises DecodeError."""
        for _, payload in self._events.finish():
            yield from self._whole(payload)
        yield from self._halves.cut_off()

    def _whole(self, payload: bytes) -> Iterator[bytes]:
        payload = payload.strip()
        if payload == DONE:
            yield from self._halves.give_up()
            yield DONE
        elif 0x0A in payload and not json_edit.is_json(payload):
            self._split = True  # several events that lost the blank lines between them
            for line in payload.split(b"\n"):
                if line.strip():
                    yield from self._whole(line)
        elif not payload.startswith(b"{"):
            raise DecodeError(self._format, None, "an event is not a JSON object")
        elif not self._halves.waits and not json_edit.may_escape(payload) and payload.isascii():
            yield payload
        else:
            yield from self._halves.mend(payload)
