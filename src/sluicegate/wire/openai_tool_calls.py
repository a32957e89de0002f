"""The tool calls of one choice in a chat stream: which fragment belongs to which, and what the client gets of it.

SDKs want calls one after another, numbered from 0 without gaps, the first fragment of each with id, type and name, the
later ones with arguments only. Providers repeat ids, start every call at index 0, send the name late, or interleave
calls. A fragment that is right passes as it stands; one that cannot leave yet is gathered. Without repair the calls are
only followed, to know whether they are whole. Source: wire formats page `chat-completions.md`, "What the SDK needs".
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from sluicegate.wire import json_edit
from sluicegate.wire.openai_chat_chunk import Function, ToolDelta


class Call:
    """One call, as far as it has come."""

    __slots__ = ("custom", "id", "index", "name", "parts", "provider_index", "unsent")

    def __init__(self, provider_index: int | None) -> None:
        self.provider_index = provider_index
        self.index = -1
        """Its number for the client; -1 until it has been opened there."""
        self.id: str | None = None
        self.name: str | None = None
        self.custom = False
        self.parts: list[str] = []
        """Argument text that has come."""
        self.unsent: list[str] = []
        """Argument text that waits until the call may be opened."""

    @property
    def begun(self) -> bool:
        """Whether more than an empty fragment has come."""
        return self.custom or self.name is not None or bool(self.parts)

    @property
    def whole(self) -> bool:
        """Whether the arguments are one JSON text; free-form input always is whole."""
        if self.custom:
            return True
        ends = bool(self.parts) and self.parts[-1].rstrip()[-1:] not in ("{", "[", ",", ":")
        return ends and json_edit.is_json("".join(self.parts).encode())


class Piece(NamedTuple):
    """A fragment for the client."""

    call: Call
    opening: bool
    arguments: str | None
    """What the arguments must say; None: what they say already."""
    source: int | None
    """Which fragment of the event it is made from; None: from none."""
    passes: bool = False
    """The fragment is right as it stands."""


class ToolCalls:
    """The calls of one choice, in order of appearance."""

    __slots__ = ("_by_index", "_calls", "_mint_prefix", "_opened", "_repair", "current")

    def __init__(self, mint_prefix: str, *, repair: bool) -> None:
        """Args: mint_prefix: begins the id of a call that has none, or whose id was used before."""
        self._mint_prefix = mint_prefix
        self._repair = repair
        self._calls: list[Call] = []
        self._by_index: dict[int, Call] = {}
        """Calls by the provider's index, the latest of each."""
        self._opened: list[Call] = []
        self.current: Call | None = None
        """The call that the last fragment belonged to."""

    def __bool__(self) -> bool:
        """Whether a tool was called."""
        return bool(self._calls) and any(call.begun for call in self._calls)

    @property
    def whole(self) -> bool:
        """Whether every call is."""
        return all(call.whole for call in self._calls if call.begun)

    def take(self, deltas: Sequence[ToolDelta]) -> list[Piece] | None:
        """Take an event's fragments and return those for the client, or None where they pass as they stand."""
        pieces = self.follow(deltas)
        if not self._repair or (len(pieces) == len(deltas) and all(piece.passes for piece in pieces)):
            return None
        return pieces

    def follow(self, deltas: Sequence[ToolDelta]) -> list[Piece]:
        """Take an event's fragments and return those for the client, in right order; none without repair."""
        pieces: list[Piece] = []
        for source, delta in enumerate(deltas):
            self.current = call = self._call_of(delta)
            text = arguments_of(delta)
            if text:
                call.parts.append(text)
            if self._repair:
                piece = self._piece(call, delta, text, source)
                if piece is not None:
                    pieces.append(piece)
        if self._repair:
            pieces += self._open_waiting()
        return pieces

    def close(self, *, fill: bool = True) -> list[Piece]:
        """Return what is still owed when the choice ends: calls that waited, and `{}` where no argument came.

        Args:
            fill: say `{}`; else arguments that did not come are left to whoever writes the call.
        """
        if not self._repair:
            return []
        pieces: list[Piece] = []
        if fill and self._opened and not self._opened[-1].parts and not self._opened[-1].custom:
            self._opened[-1].parts.append("{}")
            pieces.append(Piece(self._opened[-1], False, "{}", None))
        for call in self._calls:
            if call.index < 0 and (call.name is not None or call.custom):
                self._open(call)
                if fill and not call.parts and not call.custom:
                    call.parts.append("{}")
                    call.unsent = ["{}"]
                pieces.append(Piece(call, True, _drain(call), None))
        return pieces

    @property
    def nameless(self) -> bool:
        """Whether arguments came for a call whose name did not."""
        if not self._calls or not self._repair:
            return False
        return any(call.name is None and not call.custom and call.parts for call in self._calls)

    # ---- which call -------------------------------------------------------------------------------------------------

    def _call_of(self, delta: ToolDelta) -> Call:
        """Return the call a fragment belongs to: by index, else by id, else the last; or a new one."""
        index = delta.index if type(delta.index) is int and delta.index >= 0 else None
        id_ = delta.id if isinstance(delta.id, str) and delta.id else None
        function = delta.function if isinstance(delta.function, Function) else None
        name = function.name if function is not None and isinstance(function.name, str) else None
        call = self._known(index, id_, name or None)
        if call is None:
            call = Call(index)
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
        if call.id is None:
            call.id = id_
        if name and call.name is None:
            call.name = name
        if delta.custom is not None:
            call.custom = True
        return call

    def _known(self, index: int | None, id_: str | None, name: str | None) -> Call | None:
        if index is not None:
            call = self._by_index.get(index)
            if call is None or id_ is None or call.id in (None, id_):
                return call
            for other in self._calls:
                if other.id == id_ and other.provider_index == index:
                    return other
            # Another id on a used index opens a call; but some servers mint an id for every fragment.
            return None if name is not None or call.whole else call
        if id_ is not None:
            return next((call for call in self._calls if call.id == id_), None)
        if not self._calls:
            return None
        last = self._calls[-1]
        return None if name is not None and last.name is not None else last

    # ---- what of it leaves ------------------------------------------------------------------------------------------

    def _piece(self, call: Call, delta: ToolDelta, text: str, source: int) -> Piece | None:
        function = delta.function if isinstance(delta.function, Function) else None
        if call.index < 0:
            if not self._may_open(call):
                call.unsent.append(text)
                return None
            self._open(call)
            call.unsent.append(text)
            whole = _drain(call)
            passes = (
                type(delta.index) is int
                and delta.index == call.index
                and delta.id == call.id
                and (call.custom or (delta.type == "function" and function is not None))
                and (function is None or (function.name == call.name and function.arguments == whole))
            )
            return Piece(call, True, whole, source, passes)
        if call is not self._opened[-1] and not text.strip():
            return None
        passes = (
            type(delta.index) is int
            and delta.index == call.index
            and delta.id is UNSET
            and delta.type is not None
            and (function is not None or call.custom)
            and (function is None or (function.name is UNSET and _is_text(function.arguments)))
        )
        return Piece(call, False, text, source, passes)

    def _may_open(self, call: Call) -> bool:
        """Whether a call may begin for the client: it is the next one, it has a name, and the one before is whole."""
        return (
            (call.name is not None or call.custom)
            and call is self._calls[len(self._opened)]
            and (not self._opened or self._opened[-1].whole)
        )

    def _open(self, call: Call) -> None:
        call.index = len(self._opened)
        if call.id is None or any(call.id == other.id for other in self._opened):
            call.id = f"{self._mint_prefix}_{call.index}"
        self._opened.append(call)

    def _open_waiting(self) -> list[Piece]:
        pieces: list[Piece] = []
        while len(self._opened) < len(self._calls):
            call = self._calls[len(self._opened)]
            if not self._may_open(call):
                break
            self._open(call)
            pieces.append(Piece(call, True, _drain(call), None))
        return pieces


def write_pieces(pieces: Sequence[Piece], data: bytes, spans: Sequence[tuple[int, int]]) -> bytes:
    """Write the array of fragments for the client.

    Args:
        data: the provider's event, which holds its fragments at `spans`.
    """
    written: list[bytes] = []
    for piece in pieces:
        source = b"{}"
        if piece.source is not None:
            start, end = spans[piece.source]
            source = data[start:end]
        written.append(source if piece.passes else _write(piece, source))
    return b"[" + b",".join(written) + b"]"


def _write(piece: Piece, source: bytes) -> bytes:
    call = piece.call
    members = json_edit.inner_members(source, 0)
    wanted = {"index": b"%d" % call.index}
    dropped: tuple[str, ...] = ("id", "name", "type")
    if piece.opening:
        wanted["id"] = msgspec.json.encode(call.id)
        dropped = ()
        if not call.custom:
            wanted["type"] = b'"function"'
    if not call.custom:
        function = next(
            (source[member.start : member.end] for member in members if member.key == "function"), b"{}"
        )
        inner: dict[str, bytes] = {}
        if piece.opening:
            inner["name"] = msgspec.json.encode(call.name)
        if piece.arguments is not None:
            inner["arguments"] = msgspec.json.encode(piece.arguments)
        wanted["function"] = json_edit.changed(function if function != b"null" else b"{}", inner, dropped)
    return json_edit.splice(source, json_edit.edits(source, members, wanted, dropped))


def _drain(call: Call) -> str:
    text = "".join(call.unsent)
    call.unsent.clear()
    return text


def _is_text(arguments: Any) -> bool:
    return arguments is UNSET or isinstance(arguments, str)


def arguments_of(delta: ToolDelta) -> str:
    """Return a fragment's argument text; an object that should have been text is written as text."""
    if not isinstance(delta.function, Function):
        return ""
    arguments = delta.function.arguments
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, dict | list):
        return msgspec.json.encode(arguments).decode()
    return ""
