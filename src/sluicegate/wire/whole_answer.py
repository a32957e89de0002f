"""A whole answer's events written by a stream's encoder: so plain answers say what streams of them would have said."""

from sluicegate.messages import StreamEvent
from sluicegate.wire.translated import TranslatedStream
from sluicegate.wire.translation import StreamEncoder


class _Nothing:
    """Stands where a stream's decoder would: the events are known already."""

    upstream_id: str | None = None
    repaired = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Return nothing."""
        return []

    def finish(self) -> list[StreamEvent]:
        """Return nothing."""
        return []

    def left(self) -> list[StreamEvent]:
        """Return nothing."""
        return []


def write_stream(events: list[StreamEvent], encoder: StreamEncoder) -> bytes:
    """Return the stream of an answer, without usage; every choice that the events name is in it.

    Raises:
        DecodeError: the answer has no output at all.
    """
    choices = 1 + max((getattr(event, "choice", 0) for event in events), default=0)
    stream = TranslatedStream(
        _Nothing(), encoder, lambda body: events, lambda text: None, joins_usage=True, choices=choices
    )
    stream.feed_whole(b"")
    return b"".join(stream.out) + stream.farewell(None)
