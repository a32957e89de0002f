"""A plain answer across formats: what a provider's events say, written whole in the client's format.

The rules that it shares with streams are `translated`'s.
"""

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import (
    End,
    Finish,
    Start,
    StreamError,
    StreamEvent,
    ToolCallStart,
    Untold,
    Usage,
    UsageReport,
    WebSearch,
)
from sluicegate.wire import Bill
from sluicegate.wire.translated import reason_of, texts_of
from sluicegate.wire.translation import Asked, Codec


class TranslatedAnswer:
    """A plain answer across formats. See `PassedAnswer`."""

    def __init__(
        self, client: Codec, asked: Asked, events: list[StreamEvent], upstream_id: str | None
    ) -> None:
        self._client = client
        self._asked = asked
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id = upstream_id
        self.repaired = False
        self.untold: list[str] = []
        self._events: list[StreamEvent] = []
        called: set[int] = set()
        ended = False
        owed: set[int] = set()  # choices with content that no finish has come for
        for event in events:
            match event:
                case StreamError():
                    self.error = event
                    return
                case Start():
                    self.upstream_id = self.upstream_id or event.id
                case Untold():
                    self._name(event.what)
                    continue
                case WebSearch() if not client.tells_searches:
                    for name in event.names:
                        self._name(name)
                    continue
                case UsageReport():
                    self.usage = event.usage
                case ToolCallStart():
                    called.add(event.choice)
                case Finish():
                    reason = reason_of(event, called=event.choice in called)
                    if reason != event.reason:
                        event = msgspec.structs.replace(event, reason=reason)
                    if event.pause is not None and event.raw_reason is not None:
                        self._name(event.raw_reason)
                    self.finish_reason = event.reason
                    owed.discard(event.choice)
                case End():
                    ended = True
            if any(texts_of(event)):
                owed.add(getattr(event, "choice", 0))
            self._events.append(event)
        if ended and owed:  # an end marker, but no word why
            self.repaired = True
            for choice in sorted(owed):
                reason = "tool_calls" if choice in called else "stop"
                self.finish_reason = reason
                self._events.append(Finish(reason, choice))
        if self.finish_reason is None:
            raise DecodeError(client.name, None, "the answer has no end")

    def _name(self, what: str) -> None:
        if what not in self.untold:
            self.untold.append(what)

    def texts(self) -> list[str]:
        """Return every text the model produced, for counting."""
        return [text for event in self._events for text in texts_of(event) if text]

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it."""
        return self._client.encode_answer(self._events, self._asked, bill)
