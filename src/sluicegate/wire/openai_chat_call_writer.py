"""The tool calls of one choice on their way to a chat client: in turn, numbered from 0, arguments never empty.

SDK helpers read a call when the next one begins, so what providers let overlap is put in order. A free-form call goes
to clients that declared the tool so, whatever the provider made of it; `function_call` to those of the old dialect,
which knows one call. Source: wire formats page `chat-completions.md`, "What the SDK needs"; translation matrix,
sections 8 and 9.
"""

from typing import Any

import msgspec

from sluicegate.messages import StreamEvent, ToolCallDelta, ToolCallEnd, ToolCallStart
from sluicegate.wire import json_edit
from sluicegate.wire.json_text import quote
from sluicegate.wire.serial_calls import SerialCalls
from sluicegate.wire.translation import Asked


class _Call:
    """One call."""

    __slots__ = ("custom", "ended", "gathers", "id", "index", "number", "parts")

    def __init__(self, start: ToolCallStart, number: int, id_: str, *, custom: bool) -> None:
        self.index = start.index
        self.number = number
        """Its number for the client."""
        self.id = id_
        self.custom = custom
        """The client gets plain input."""
        self.gathers = custom != start.custom
        """Arguments are turned from JSON into plain input, or the other way, once they are whole."""
        self.parts: list[str] = []
        self.ended = False


class CallWriter:
    """Writes the calls of one choice as members of its deltas."""

    def __init__(self, asked: Asked, choice: int) -> None:
        self._asked = asked
        self._choice = choice
        self._in_turn = SerialCalls()
        self._calls: list[_Call] = []
        self.ids: dict[int, str] = {}
        """As the client knows them, by the provider's index."""

    def take(self, event: ToolCallStart | ToolCallDelta | ToolCallEnd) -> list[bytes]:
        """Return the members that an event brings, each for a delta of its own."""
        return self._write(self._in_turn.take(event))

    def close(self) -> list[bytes]:
        """Return what is owed when the choice ends."""
        return self._write(self._in_turn.close()) + self._end_last()

    def _write(self, events: list[StreamEvent]) -> list[bytes]:
        deltas: list[bytes] = []
        for event in events:
            if isinstance(event, ToolCallStart):
                deltas += self._end_last()
                deltas += self._begin(event)
            elif isinstance(event, ToolCallDelta):
                deltas += self._add(event)
            else:
                deltas += self._end_last()
        return deltas

    def _begin(self, start: ToolCallStart) -> list[bytes]:
        asked, number = self._asked, len(self._calls)
        id_ = start.id
        if not id_ or any(call.id == id_ for call in self._calls):
            id_ = f"call_{asked.id}_{self._choice}_{number}"
        name = asked.tool_names.get(start.name, start.name)
        call = _Call(start, number, id_, custom=name in asked.custom_tools)
        self._calls.append(call)
        self.ids[start.index] = id_
        if asked.legacy_functions:
            return [b'"function_call":{"name":%b,"arguments":""}' % quote(name)] if number == 0 else []
        if call.custom:
            told = b'"type":"custom","custom":{"name":%b,"input":""}' % quote(name)
        else:
            told = b'"type":"function","function":{"name":%b,"arguments":""}' % quote(name)
        return [b'"tool_calls":[{"index":%d,"id":%b,%b}]' % (number, quote(id_), told)]

    def _add(self, delta: ToolCallDelta) -> list[bytes]:
        call = self._calls[-1]
        if not delta.arguments:
            return []
        call.parts.append(delta.arguments)
        return [] if call.gathers else self._piece(call, delta.arguments)

    def _piece(self, call: _Call, text: str) -> list[bytes]:
        if self._asked.legacy_functions:
            return [b'"function_call":{"arguments":%b}' % quote(text)] if call.number == 0 else []
        key = b'"custom":{"input":%b}' if call.custom else b'"function":{"arguments":%b}'
        return [b'"tool_calls":[{"index":%d,%b}]' % (call.number, key % quote(text))]

    def _end_last(self) -> list[bytes]:
        """Return what the last call still lacks."""
        if not self._calls or self._calls[-1].ended:
            return []
        call = self._calls[-1]
        call.ended = True
        text = "".join(call.parts)
        if call.gathers:
            text = plain_input(text) if call.custom else json_edit.dumps({"input": text}).decode()
            return self._piece(call, text)
        return [] if text.strip() or call.custom else self._piece(call, "{}")


def plain_input(arguments: str) -> str:
    """Return a free-form tool's input out of the one argument of the function that it was sent as."""
    try:
        value: Any = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return arguments
    given = value.get("input") if isinstance(value, dict) else None
    return given if isinstance(given, str) else arguments
