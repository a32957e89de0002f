"""Where one provider's text goes on in another's: what is repeated at the seam is left out.

The provider that goes on is given the text without the white space at its end, since models begin words with it and
some vendors refuse it. So white space that the client has already may come again; and some servers repeat all that they
were given. What is cut off by a stop sequence is `stop_cutting`'s.
"""

from collections.abc import Callable

import msgspec

from sluicegate.messages import Citation, Start, StreamEvent, TextDelta, Untold, UsageReport
from sluicegate.wire.translated import texts_of
from sluicegate.wire.translation import StreamDecoder
from sluicegate.wire.wrapped import WrappedDecoder

_SAYS_NOTHING = (Start, UsageReport, Untold)
MIN_REPEATED = 16
"""Characters: a text as long as this that comes again from its beginning is repeated, not written anew."""


class Seam:
    """Between a text and what goes on with it."""

    def __init__(self, text: str, *, repeats: bool) -> None:
        """Stand behind a text.

        Args:
            text: what the client has.
            repeats: this provider is known to repeat what it was given, however short that is.
        """
        self._given = given(text)
        self._gap = text[len(self._given) :]
        self._repeated = self._given if repeats or len(self._given) >= MIN_REPEATED else ""
        self._held = ""
        """Text that may turn out to be a repetition."""
        self.passed = False
        """Something new has come."""

    def take(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Return events as they stand behind the text before them."""
        told: list[StreamEvent] = []
        for event in events:
            if isinstance(event, Citation):
                event = self._behind(event)
            if self.passed or isinstance(event, _SAYS_NOTHING):
                told.append(event)
            elif isinstance(event, TextDelta):
                self._held += event.text
                text = self._new_text(self._held, at_end=False)
                if text is not None:
                    self.passed = True
                    told += [TextDelta(text)] if text else []
            else:
                self.passed = True
                text = self._new_text(self._held, at_end=True)
                told += [TextDelta(text), event] if text else [event]
        return told

    def _new_text(self, text: str, *, at_end: bool) -> str | None:
        """Return what of the first text the client does not have; None where more of it has to come to tell."""
        repeated, gap = self._repeated, self._gap
        if text.startswith(repeated):
            text = text[len(repeated) :]
        elif repeated.startswith(text) and not at_end:
            return None
        if gap.startswith(text) and not at_end:
            return None
        same = 0
        while same < min(len(gap), len(text)) and gap[same] == text[same]:
            same += 1
        return text[same:]

    def _behind(self, citation: Citation) -> Citation:
        """Return a source whose place is counted from the beginning of the whole answer."""
        offset = len(self._given)
        return msgspec.structs.replace(
            citation, start_index=citation.start_index + offset, end_index=citation.end_index + offset
        )


class SeamReader(WrappedDecoder):
    """Reads the stream of a provider that goes on with a text. See `StreamDecoder`.

    What it repeats is not counted: it was when the client was told.
    """

    def __init__(
        self,
        make_decoder: Callable[[Callable[[str], None]], StreamDecoder],
        seam: Seam,
        count_text: Callable[[str], None],
    ) -> None:
        """Begin to read.

        Args:
            make_decoder: begins to read the provider's stream; what it is given takes every piece of text.
            count_text: given every piece of text that is new.
        """
        super().__init__(make_decoder(self._count))
        self._seam = seam
        self._count_text = count_text

    def take(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Return what is new of events."""
        if self._seam.passed:
            return self._seam.take(events)
        told = self._seam.take(events)
        for event in told:
            for text in texts_of(event):
                self._count_text(text)
        return told

    def _count(self, text: str) -> None:
        if self._seam.passed:
            self._count_text(text)


def given(text: str) -> str:
    """Return the text that a provider is given to go on with."""
    return text.rstrip()
