"""What a provider says in a member where nobody expects it breaks no answer but by its own error: at every place of
plain answers, and of each kind of event of a stream, for clients of every format.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from sluicegate.errors import DecodeError
from tests.transcripts import cases, crossings
from tests.transcripts.crossings import Crossing

ODD = ("1e999", '{"id":1e999}', "[{}]")
"""Numbers beyond all bounds are JSON, and no number; a list stands where a word should, and cannot be looked up."""
PLACE = "@here@"
CASES = {case.name: case for case in crossings.load()} | {
    case.name: Crossing(case.folder, "chat", case.stream, None, case.end, case.end, case.request.choices)
    for case in cases.load()
}
PLAIN = [name for name, case in CASES.items() if case.answer is not None]
STREAMED = [
    name
    for name, case in CASES.items()
    if case.stream is not None and not case.stream.startswith(b"[") and "/cut" not in name
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List the places of all members and elements."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in inner:
        yield (*path, key)
        yield from places(member, (*path, key))


def odd_ones(spelled: bytes) -> Iterator[bytes]:
    """Return an object with something odd at each of its places, and in members that it does not have."""
    whole = json.loads(spelled)
    for path in [*places(whole), ("container",), ("usage", "x")]:
        changed = json.loads(spelled)
        at = changed
        for key in path[:-1]:
            at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
        if not isinstance(at, dict | list):
            continue
        at[path[-1]] = PLACE
        for odd in ODD:
            yield json.dumps(changed).replace(f'"{PLACE}"', odd).encode()


@pytest.mark.parametrize("name", PLAIN)
def test_odd_values_in_plain_answers(name: str) -> None:
    case = CASES[name]
    assert case.answer is not None
    for answer in odd_ones(case.answer):
        odd = Crossing(case.folder, case.format, None, answer, case.end, case.own_end, case.choices)
        for target in (case.format, "chat" if case.format != "chat" else "messages"):
            with contextlib.suppress(DecodeError):
                odd.tell(target)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", STREAMED)
def test_odd_values_in_events(name: str) -> None:
    case = CASES[name]
    events = case.events()
    seen: set[frozenset[str]] = set()
    for number, event in enumerate(events):
        head, found, payload = event.partition(b"data: {")
        if not found:
            continue
        spelled = b"{" + payload.strip()
        kind = frozenset(json.loads(spelled)) | {str(json.loads(spelled).get("type"))}
        if kind in seen:
            continue
        seen.add(kind)
        for place, odd in enumerate(odd_ones(spelled)):
            others = [target for target in case.targets if target != case.format]
            for target in (case.format, others[place % len(others)]):
                framed = head + b"data: " + odd + b"\n\n"
                case.play(target, [*events[:number], framed, *events[number + 1 :]])
    assert seen
