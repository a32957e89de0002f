"""Broken characters in JSON events: halves of surrogate pairs joined across neighbours, the rest made U+FFFD.

A model's tokens may cut a character; a provider that escapes its JSON then sends half a pair in one event and the other
half in the next of the same place: an event of another choice in between, which its index tells, goes first. No JSON
reader of a client's takes a lone half. Works on bytes, knows no wire format.
"""

import re

from sluicegate.wire import json_edit

_STRING_MEMBER = re.compile(rb'("[^"\\]++")\s*+:\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_INDEX = re.compile(rb'"(?:[a-z]++_)?index"\s*+:\s*+(\d++)')
_MAX_WAITING = 128
"""Choices a request can ask for; a provider may number them as it likes."""
_LOW_HALF = rb'\s*+:\s*+"(\\u[dD][c-fC-F][0-9a-fA-F]{2})'


class HalfCharacters:
    """Mends one stream's events; an event whose text ends in half a character waits for the next one."""

    __slots__ = ("_waiting", "repaired", "waits")

    def __init__(self) -> None:
        self._waiting: dict[tuple[bytes, ...], bytes] = {}
        """By the place they are about."""
        self.waits = False
        """An event waits for the next one."""
        self.repaired = False

    def mend(self, payload: bytes) -> list[bytes]:
        """Take the next event, which is JSON, and return the events that are whole."""
        whole: list[bytes] = []
        if self._waiting:
            place = _place_of(payload)
            for torn_at in list(self._waiting):
                if place and torn_at and place[0] != torn_at[0]:
                    continue  # of another choice
                torn = self._waiting.pop(torn_at)
                if torn_at == place:
                    torn, payload = _join(torn, payload)
                whole.append(json_edit.replace_lone_surrogates(torn))
            self.waits = bool(self._waiting)
        if not payload.isascii():
            try:
                payload.decode()
            except UnicodeDecodeError:
                self.repaired = True
                payload = payload.decode(errors="replace").encode()
        lone = list(json_edit.lone_surrogates(payload)) if json_edit.may_escape(payload) else []
        if not lone:
            whole.append(payload)
            return whole
        self.repaired = True
        at = lone[-1]
        if payload[at + 3 : at + 4] in b"89abAB" and payload[at + 6 : at + 7] == b'"':
            before = json_edit.replace_lone_surrogates(payload[:at])  # as long as it was
            if len(self._waiting) == _MAX_WAITING:
                whole += self.give_up()
            self._waiting[_place_of(payload)] = before + payload[at:]
            self.waits = True
        else:
            whole.append(json_edit.replace_lone_surrogates(payload))
        return whole

    def give_up(self) -> list[bytes]:
        """Return what still waits, mended as it stands: nothing follows."""
        waiting, self._waiting, self.waits = self._waiting, {}, False
        return [json_edit.replace_lone_surrogates(torn) for torn in waiting.values()]

    def cut_off(self) -> list[bytes]:
        """Return what still waits, without its half: the body has ended, and another may go on with it."""
        waiting, self._waiting, self.waits = self._waiting, {}, False
        cut: list[bytes] = []
        for torn in waiting.values():
            at = json_edit.lone_surrogate(torn)
            assert at is not None, "an event waits because of its lone half"
            cut.append(torn[:at] + torn[at + 6 :])
        return cut


def _join(torn: bytes, following: bytes) -> tuple[bytes, bytes]:
    """Move the half at the end of an event's text to the other half in the same field of the event after it."""
    at = json_edit.lone_surrogate(torn)
    assert at is not None, "an event waits because of its lone half"
    member = next((found for found in _STRING_MEMBER.finditer(torn) if found.end() == at + 7), None)
    if member is not None:
        low = re.search(re.escape(member[1]) + _LOW_HALF, following)
        if low is not None:
            half = torn[at : at + 6]
            return torn[:at] + torn[at + 6 :], following[: low.start(1)] + half + following[low.start(1) :]
    return torn, following


def _place_of(payload: bytes) -> tuple[bytes, ...]:
    """Return the indexes in an event: of its choice or item, and of what it holds of that."""
    return tuple(_INDEX.findall(payload))


def whole_characters(body: bytes) -> bytes:
    """Return JSON text that has no broken characters: what is none became U+FFFD."""
    if not body.isascii():
        body = body.decode(errors="replace").encode()
    return json_edit.replace_lone_surrogates(body) if json_edit.may_escape(body) else body
