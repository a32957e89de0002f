"""Usage and cost so far on the events of a stream, for the clients that ask for it.

It wraps the codec of any stream, the format's own or a translated one, and adds a member to the events that are
ready: codecs know nothing of it, and a stream that nobody asked it of has no part in it. What the numbers are is
`billing`'s. Source: the streaming contract, C8; wire formats page `usage.md`.
"""

import re
from collections.abc import Callable

from sluicegate.messages import Usage
from sluicegate.wire import Bill, StreamCodec
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.translation import UsageMark
from sluicegate.wire.wrapped import WrappedStream

_DELTA = re.compile(rb"event: \S+\.delta\n")


def every_event(event: bytes) -> bool:
    """Say yes: chat, completions and Gemini tell usage on whatever has an object."""
    return True


def responses_delta(event: bytes) -> bool:
    """Whether a framed Responses event is a delta."""
    return _DELTA.match(event) is not None


def block_delta(event: bytes) -> bool:
    """Whether a framed Messages event is a delta of a content block."""
    return event.startswith(b"event: content_block_delta\n")


class ContinuousUsage(WrappedStream):
    """A stream whose events tell what it has used so far. See `StreamCodec`."""

    def __init__(
        self, codec: StreamCodec, mark: UsageMark, so_far: Callable[[Usage | None], Bill], *, array: bool
    ) -> None:
        """Begin an answer.

        Args:
            mark: where the client's format has it.
            so_far: what the bill would be now, given the provider's last report.
            array: the events are the elements of a JSON array.
        """
        super().__init__(codec)
        self._mark = mark
        self._so_far = so_far
        self._between = b",\n" if array else b"\n\n"
        self._told = re.compile(rb'"%b"\s*:\s*\{' % mark.key)

    def farewell(self, bill: Bill | None) -> bytes:
        """Return all that completes the answer: the last event tells the bill, those before it what was so far."""
        last = self._codec.farewell(bill)
        if bill is None:
            return last
        return self._marked(last, self._members(self._so_far(self._codec.usage)), again=False)

    def _put(self, ready: int) -> None:
        """Mark what the codec has put out."""
        out = self.out
        members = self._members(self._so_far(self._codec.usage))
        for place in range(ready, len(out)):
            out[place] = self._marked(out[place], members, again=True)

    def _members(self, bill: Bill) -> bytes:
        usage = with_members(self._mark.write(bill.usage), bill.in_usage)
        members = b'"%b":%b' % (self._mark.key, usage)
        return b"%b,%b" % (members, bill.beside_usage) if bill.beside_usage else members

    def _marked(self, framed: bytes, members: bytes, *, again: bool) -> bytes:
        """Return framed events with these members.

        Args:
            again: also in events that tell usage already.
        """
        between = self._between
        if framed.find(between, 0, -len(between)) < 0:
            return self._mark_one(framed, members, again)
        return between.join([self._mark_one(event, members, again) for event in framed.split(between)])

    def _mark_one(self, event: bytes, members: bytes, again: bool) -> bytes:
        start, end = event.find(b"{"), event.rfind(b"}") + 1
        if start < 0 or not self._mark.takes(event):
            return event
        payload = event[start:end]
        if not again and self._told.search(payload) is not None:
            return event
        return event[:start] + with_members(payload, members) + event[end:]
