"""A stream of typed events that passes as it came: previews of pictures, speech, transcripts.

The event that completes the answer is held until the settlement, and usage and cost are put into it. Errors inside
the stream are told apart; what ends without its last event was cut. Source: OpenAI's API reference, streaming events
of images and audio.
"""

from collections.abc import Callable
from typing import Any

from sluicegate.errors import DecodeError, SluicegateError
from sluicegate.messages import Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.openai_errors import error_body
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.sse import Event, EventReader, frame, frame_named
from sluicegate.wire.translation import PassOptions
from sluicegate.wire.unary.byte_stream import EndpointStream
from sluicegate.wire.upstream_errors import read_stream_error


class EventStream(EndpointStream):
    """One answer's codec. See `StreamCodec`."""

    __slots__ = (
        "_count_text",
        "_held_event",
        "_last",
        "_reader",
        "_usage_of",
    )

    def __init__(
        self,
        options: PassOptions,
        usage_of: Callable[[dict[str, Any]], Usage | None],
        last: tuple[str, ...],
    ) -> None:
        """Begin an answer.

        Args:
            usage_of: reads the event that completes it.
            last: how the type of that event ends.
        """
        super().__init__()
        self._reader = EventReader(options.max_event_bytes)
        self._count_text = options.count_text
        self._usage_of = usage_of
        self._last = last
        self._held_event: Event | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Raises DecodeError."""
        for event in self._reader.feed(data):
            self._take(event)

    def _take(self, event: Event) -> None:
        if self.error is not None or event.data == b"[DONE]":
            return
        fields = json_edit.decode_top(event.data, "sse")
        kind = (
            json_edit.loads(bytes(fields["type"]))
            if "type" in fields
            else event.name.decode("utf-8", "replace")
        )
        if kind == "error" or "error" in fields:
            self.error = read_stream_error(bytes(fields.get("error") or event.data))
            return
        if self._held_event is not None:  # one of several pictures
            self._put_out(self._held_event)
            self._held_event = None
        if isinstance(kind, str) and kind.endswith(self._last):
            self._held_event = event
            self._add_usage(self._usage_of(json_edit.loads(event.data)))
            return
        if "delta" in fields and bytes(fields["delta"]).startswith(b'"'):
            self._count_text(json_edit.loads(bytes(fields["delta"])))
        self._put_out(event)

    def _add_usage(self, usage: Usage | None) -> None:
        """Add what one of several last events tells."""
        known = self.usage
        if known is not None and usage is not None:
            for name in (
                "input_tokens",
                "input_image_tokens",
                "output_tokens",
                "output_image_tokens",
                "images",
            ):
                more = getattr(known, name)
                if more is not None:
                    setattr(usage, name, (getattr(usage, name) or 0) + more)
        self.usage = usage or known

    def _put_out(self, event: Event) -> None:
        self.out.append(_framed(event))
        self.content = True

    def finish(self) -> None:
        """Take the end of the body. Raises DecodeError where the last event did not come."""
        for event in self._reader.finish():
            self._take(event)
        if self.error is None and self._held_event is None:
            raise DecodeError("sse", None, "the last event is missing")
        self.ended = self.error is None

    def farewell(self, bill: Bill | None) -> bytes:
        """Return the last event, with usage and cost."""
        event = self._held_event
        assert event is not None, "the stream has ended"
        if bill is None:
            return _framed(event)
        data = event.data
        usage = json_edit.decode_top(data, "sse").get("usage")
        if usage is not None and bytes(usage).startswith(b"{"):
            data = json_edit.changed(data, {"usage": with_members(bytes(usage), bill.in_usage)})
        return _framed(Event(event.name, with_members(data, bill.beside_usage)))

    def failure(self, error: SluicegateError) -> bytes:
        """Return the terminal error event."""
        return frame_named(b"error", b'{"type":"error",' + error_body(error)[1:])


def _framed(event: Event) -> bytes:
    return frame_named(event.name, event.data) if event.name else frame(event.data)
