"""What the stream decoders of the three OpenAI formats share: payloads, the usual read, breaks behind good events.

What a payload says, and what ends a stream, is each format's own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import StreamEvent
from sluicegate.wire.openai_events import PayloadReader


class OpenAIStreamDecoder(ABC):
    """Reads one provider's stream. See `StreamDecoder`."""

    end = "a finish reason or its end marker"
    """What a stream that was not cut has at its end."""

    def __init__(
        self, format: str, can: Capabilities, count_text: Callable[[str], None], max_event_bytes: int
    ) -> None:
        """Start an answer.

        Args:
            can: its usage quirks matter.
        """
        self.upstream_id: str | None = None
        self._format = format
        self._can = can
        self._count_text = count_text
        self._max_event_bytes = max_event_bytes
        self._payloads = PayloadReader(format, max_event_bytes)
        self._started = False
        self._ended = False
        self._put_right = False
        self._broken: DecodeError | None = None
        """Found behind events that were good; told once they have been taken."""
        self._events: list[StreamEvent] = []
        """What the bytes that are being read became."""
        self._left: list[StreamEvent] = []

    @property
    def repaired(self) -> bool:
        """Whether anything had to be put right."""
        return self._put_right or self._payloads.repaired

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes.

        Raises:
            DecodeError: they broke the format, now or behind the events that the last call returned.
        """
        if self._broken is not None:
            raise self._broken
        if self._payloads.clean and len(data) <= self._max_event_bytes:
            event = self._take_usual(data)
            if event is not None:
                return [event]
        events: list[StreamEvent] = []
        self._events = events
        try:
            for payload in self._payloads.feed(data):
                if self._ended:
                    break
                self._take(payload)
        except DecodeError as error:
            if not events:
                raise
            self._broken = error
        return events

    def finish(self) -> list[StreamEvent]:
        """Take the end of the body.

        Raises:
            DecodeError: the answer was cut.
        """
        if self._ended:
            return []
        if self._broken is not None:
            raise self._broken
        events: list[StreamEvent] = []
        self._events = self._left = events
        try:
            for payload in self._payloads.finish():
                if not self._ended:
                    self._take(payload)
        except DecodeError:
            if not self._has_finished():
                raise DecodeError(self._format, None, "the stream ended inside an event") from None
        if not self._ended and not self._has_finished():
            raise DecodeError(self._format, None, f"the stream ended without {self.end}")
        return events

    def left(self) -> list[StreamEvent]:
        """Return what the end of a body that was cut still brought, once: `finish` has raised behind it."""
        left, self._left = self._left, []
        return left

    @abstractmethod
    def _take_usual(self, data: bytes) -> StreamEvent | None:
        """Return what a read became that differs from the one before only inside its text; None for any other."""

    @abstractmethod
    def _take(self, payload: bytes) -> None:
        """Take one event, or the end marker. Raises DecodeError."""

    @abstractmethod
    def _has_finished(self) -> bool:
        """Whether all that has begun has told its finish, so that only the marker may be missing."""
