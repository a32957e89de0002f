"""Stop sequences for providers that know none: the answer is cut where one would have ended it.

Text that may be the beginning of a stop sequence waits for what follows. What the provider goes on to write is not read
any more: whoever drives the codec closes the request once it has ended, and counts what was produced. Source:
translation matrix, section 14; case B101.
"""

from collections.abc import Callable, Sequence

from sluicegate.messages import End, Finish, Request, Start, StreamEvent, TextDelta, UsageReport
from sluicegate.wire.translation import Notes, StreamDecoder
from sluicegate.wire.wrapped import WrappedDecoder


def told_to_provider(request: Request, most: int, notes: Notes) -> list[str]:
    """Return the stop sequences that a provider is told; `notes.cut_at` has the others, and says so.

    Args:
        most: how many it takes.
    Raises:
        UnsupportedFeature: several answers cannot be cut here.
    """
    stop = [sequence for sequence in request.stop if sequence]
    if len(stop) > most:
        cut_here(request, stop[most:], notes)
    return stop[:most]


def cut_here(request: Request, stop: list[str], notes: Notes) -> None:
    """Note the stop sequences at which the answer is to be cut here.

    Raises:
        UnsupportedFeature: several answers cannot be.
    """
    if request.choices > 1:
        notes.reject(
            "stop", "more, or others, than this provider takes, and several answers cannot be cut here"
        )
    notes.warn("stop", "the answer is cut here, not at the provider: what it goes on to write costs")
    notes.cut_at = stop


class StopCutter(WrappedDecoder):
    """Reads one provider's stream through another decoder, up to the first stop sequence. See `StreamDecoder`."""

    def __init__(
        self,
        make_decoder: Callable[[Callable[[str], None]], StreamDecoder],
        stop: Sequence[str],
        count_text: Callable[[str], None],
        before: str = "",
    ) -> None:
        """Start an answer.

        Args:
            make_decoder: begins to read the provider's stream; what it is given takes every piece of text.
            stop: the sequences, none of them empty.
            count_text: given every piece of text that does not wait any more. What waits when the stream breaks is
                neither told nor counted: who goes on with it will say it again.
            before: text that the client has already, behind which this answer goes on: a sequence may begin there.
        """
        self._uncounted: list[str] = []
        super().__init__(make_decoder(self._uncounted.append))
        self._cut = _Cut(stop, before)
        self._count_text = count_text

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes. Raises DecodeError."""
        return [] if self._cut.made else super().feed(data)

    def finish(self) -> list[StreamEvent]:
        """Take the end of the body. Raises DecodeError where the answer was cut by anybody else."""
        return [] if self._cut.made else super().finish()

    def take(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Return the events up to the first stop sequence, and the end there."""
        told = self._cut.take(events)
        if self._uncounted:
            text = "".join(self._uncounted)
            self._uncounted.clear()
            waiting = min(self._cut.waiting, len(text))
            if waiting:
                self._uncounted.append(text[-waiting:])
                text = text[:-waiting]
            if text:
                self._count_text(text)
        return told


def cut_answer(events: list[StreamEvent], stop: Sequence[str], before: str = "") -> list[StreamEvent]:
    """Return a plain answer's events up to the first stop sequence; its usage is that of the whole, as it was produced.

    Args:
        events: of one choice.
        before: text before them that the client has already.
    """
    cut = _Cut(stop, before)
    told = cut.take(events)
    if cut.made:
        reports: list[StreamEvent] = [event for event in events if isinstance(event, UsageReport)]
        told[-2:-2] = [report for report in reports if report not in told]
    return told


class _Cut:
    """The text of one answer, watched for stop sequences."""

    __slots__ = ("_held", "_stop", "_told", "made")

    def __init__(self, stop: Sequence[str], before: str) -> None:
        self._stop = stop
        self._told = self._waiting(before) if before else 0
        """How much of what is held the client has already."""
        self._held = before[len(before) - self._told :]
        """Text that may be the beginning of a stop sequence."""
        self.made = False

    @property
    def waiting(self) -> int:
        """How many characters have come and not been told."""
        return 0 if self.made else len(self._held) - self._told

    def take(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Return what may be told; once cut, the last events are Finish and End."""
        told: list[StreamEvent] = []
        for event in events:
            if isinstance(event, TextDelta):
                told += self._text(event.text)
                if self.made:
                    return told
            else:
                if self._held and not isinstance(event, UsageReport | Start):
                    told += _piece(self._held[self._told :])
                    self._held, self._told = "", 0
                told.append(event)
        return told

    def _text(self, text: str) -> list[StreamEvent]:
        text = self._held + text
        matches = [(place, sequence) for sequence in self._stop if (place := text.find(sequence)) >= 0]
        if matches:
            place, sequence = min(matches, key=lambda match: match[0])
            self.made = True
            ends: list[StreamEvent] = [Finish("stop_sequence", stop_sequence=sequence), End()]
            return [*_piece(text[self._told : place]), *ends]
        kept = len(text) - self._waiting(text)
        piece = text[self._told : kept]
        self._held = text[kept:]
        self._told = max(0, self._told - kept)
        return _piece(piece)

    def _waiting(self, text: str) -> int:
        """Return how many characters at the end may be the beginning of a stop sequence."""
        longest = max(map(len, self._stop)) - 1
        for length in range(min(longest, len(text)), 0, -1):
            tail = text[-length:]
            if any(sequence.startswith(tail) for sequence in self._stop):
                return length
        return 0


def _piece(text: str) -> list[StreamEvent]:
    return [TextDelta(text)] if text else []
