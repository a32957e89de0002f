"""One streamed answer from two providers: what the first broke off, the second goes on with, and the client sees one.

While the first writes, `WatchedStream` only looks on. The second is read as across formats, whichever it speaks,
and its events are written by an encoder that takes over where the client stands: same ids, one role, indexes and
numbers that go on, one end. Source: contract E2; cases B060 and B133.
"""

from collections.abc import Callable

from sluicegate.messages import End, Finish, Start, StreamError, StreamEvent, UsageReport
from sluicegate.wire import StreamCodec
from sluicegate.wire.seam import Seam, SeamReader
from sluicegate.wire.stop_cutting import StopCutter, cut_answer
from sluicegate.wire.told_text import Told
from sluicegate.wire.translated import TranslatedStream
from sluicegate.wire.translation import StreamDecoder, StreamEncoder
from sluicegate.wire.wrapped import WrappedStream

_NO_CONTENT = (Start, Finish, UsageReport, StreamError, End)


class WatchedStream(WrappedStream):
    """A stream that another provider may go on with, should it break off. See `StreamCodec`."""

    def __init__(self, codec: StreamCodec, told: Told) -> None:
        """Begin an answer.

        Args:
            told: knows nothing yet.
        """
        super().__init__(codec)
        self._told = told
        self._watching = True
        if isinstance(codec, TranslatedStream):
            codec.show(self._see)

    @property
    def told(self) -> Told | None:
        """What the client has, where that can be gone on with: text, and no finish that may have left or waits."""
        told = self._told
        return told if told.has_text and self.finish_reason is None and not self.held else None

    @property
    def taken_over(self) -> bool:
        """Whether another provider has gone on with it, and content came of that."""
        return self.content and not self._watching

    def take_over(self, codec: StreamCodec) -> None:
        """Take what follows from another stream."""
        self._watching = False
        codec.out = self.out
        self._codec = codec
        self._follow(len(self.out))

    def _put(self, ready: int) -> None:
        if self._watching and self._told.open:
            self._told.take(b"".join(self.out[ready:]))

    def _see(self, event: StreamEvent) -> None:
        """Look at what a provider of another format says and the client may not be told: thoughts, half a call."""
        if not isinstance(event, _NO_CONTENT) and getattr(event, "text", True):
            self._told.open = False


class TakenOverStream(TranslatedStream):
    """The stream of a provider that goes on with what another has begun."""

    def __init__(
        self,
        make_decoder: Callable[[Callable[[str], None]], StreamDecoder],
        encoder: StreamEncoder,
        decode_whole: Callable[[bytes], list[StreamEvent]],
        count_text: Callable[[str], None],
        told: Told,
        *,
        stop: list[str],
        repeats: bool,
        joins_usage: bool,
        follow: Callable[[StreamEvent], None] | None = None,
    ) -> None:
        """Start where the client stands.

        Args:
            told: what it has.
            stop: sequences that end the answer, which may stand across the seam.
            repeats: the provider is known to repeat what it was given.
            make_decoder: see `SeamReader`.
            encoder, decode_whole, count_text, joins_usage, follow: as of any stream across formats.
        """
        text = told.text

        def whole(body: bytes) -> list[StreamEvent]:
            events = Seam(text, repeats=repeats).take(decode_whole(body))
            return cut_answer(events, stop, text) if stop else events

        def reader(count_text: Callable[[str], None]) -> StreamDecoder:
            return SeamReader(make_decoder, Seam(text, repeats=repeats), count_text)

        super().__init__(
            StopCutter(reader, stop, count_text, text) if stop else reader(count_text),
            encoder,
            whole,
            count_text,
            joins_usage=joins_usage,
            follow=follow,
        )
        self._started = True
        encoder.take_over(told)
