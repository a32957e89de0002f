"""Tool calls put one after another, for formats whose streams cannot tell two at once.

While a call's arguments are not whole, all other content waits behind it. Knows no wire format.
"""

from sluicegate.messages import StreamEvent, ToolCallDelta, ToolCallEnd, ToolCallStart
from sluicegate.wire import json_edit


class _Call:
    """The call that was told last."""

    __slots__ = ("_judged", "custom", "ended", "index", "parts")

    def __init__(self, start: ToolCallStart) -> None:
        self.index = start.index
        self.custom = start.custom
        self.parts: list[str] = []
        self.ended = False
        self._judged = (0, False)
        """How many pieces had come when it was last looked at, and what was found."""

    def is_whole(self) -> bool:
        """Whether nothing can follow its arguments but white space."""
        if self.ended or self.custom or not self.parts or not self.parts[-1].rstrip().endswith("}"):
            return self.ended
        if self._judged[0] != len(self.parts):
            text = "".join(self.parts).encode(errors="replace")
            self._judged = (len(self.parts), json_edit.is_json(text))
        return self._judged[1]


class SerialCalls:
    """The content events of one answer, in an order in which calls do not overlap."""

    __slots__ = ("_call", "_waiting")

    def __init__(self) -> None:
        self._call: _Call | None = None
        self._waiting: list[StreamEvent] = []

    def take(self, event: StreamEvent) -> list[StreamEvent]:
        """Return what may be told now; what belongs to a call that is over is left out."""
        if self._must_wait(event):
            self._waiting.append(event)
            return []
        return [*self._pass(event), *self._catch_up()]

    def close(self) -> list[StreamEvent]:
        """Return what still waits, behind calls that never became whole."""
        told: list[StreamEvent] = []
        while self._waiting:
            if self._call is not None:
                self._call.ended = True
            told += self._catch_up()
        return told

    def _must_wait(self, event: StreamEvent) -> bool:
        call = self._call
        if isinstance(event, ToolCallDelta | ToolCallEnd):
            return (call is None or event.index != call.index) and self._begins_later(event.index)
        if self._waiting:
            return True  # nothing overtakes what came before it
        return call is not None and not call.is_whole()

    def _begins_later(self, index: int) -> bool:
        return any(isinstance(event, ToolCallStart) and event.index == index for event in self._waiting)

    def _pass(self, event: StreamEvent) -> list[StreamEvent]:
        call = self._call
        if isinstance(event, ToolCallStart):
            self._call = _Call(event)
        elif isinstance(event, ToolCallDelta | ToolCallEnd):
            if call is None or event.index != call.index or call.ended:
                return []
            if isinstance(event, ToolCallEnd):
                call.ended = True
            else:
                call.parts.append(event.arguments)
        elif call is not None:
            call.ended = True  # it was whole, and what comes stands behind it
        return [event]

    def _catch_up(self) -> list[StreamEvent]:
        told: list[StreamEvent] = []
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                if self._must_wait(event):
                    self._waiting.append(event)
                else:
                    told += self._pass(event)
            if len(self._waiting) == len(waiting):
                break
        return told
