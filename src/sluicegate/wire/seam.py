"""Where one provider's text goes on in another's: what is repeated at the seam is left out.

The provider that goes on is given the text without the white space at its end, since models begin words with it and
some vendors refuse it. So white space that the client has already may come again; and some servers repeat all that they
were given. What is cut off by a stop sequence is `stop_cutting`'s.
"""

import msgspec

from sluicegate.messages import Citation, Start, StreamEvent, TextDelta, Untold, UsageReport
from sluicegate.wire.translation import StreamDecoder
from sluicegate.wire.wrapped import WrappedDecoder

_SAYS_NOTHING = (Start, UsageReport, Untold)
MIN_REPEATED = 16
"""Characters: a text as long as this that comes again from its beginning is repeated, not written anew."""


class Seam(WrappedDecoder):
    """Reads the stream of a provider that goes on with a text. See `StreamDecoder`."""

    def __init__(self, decoder: StreamDecoder, text: str, *, repeats: bool) -> None:
        """Begin to read.

        Args:
            text: what the client has.
            repeats: this provider is known to repeat what it was given, however short that is.
        """
        super().__init__(decoder)
        self._given = given(text)
        self._gap = text[len(self._given) :]
        self._repeated = self._given if repeats or len(self._given) >= MIN_REPEATED else ""
        self._held = ""
        """Text that may turn out to be a repetition."""
        self._passed = False

    def take(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Return events as they stand behind the text before them."""
        told: list[StreamEvent] = []
        for event in events:
            if isinstance(event, Citation):
                event = self._behind(event)
            if self._passed or isinstance(event, _SAYS_NOTHING):
                told.append(event)
            elif isinstance(event, TextDelta):
                self._held += event.text
                text = self._new_text(self._held, at_end=False)
                if text is not None:
                    self._passed = True
                    told += [TextDelta(text)] if text else []
            else:
                self._passed = True
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


def given(text: str) -> str:
    """Return the text that a provider is given to go on with."""
    return text.rstrip()
