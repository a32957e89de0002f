"""The narrow form of an event stream, the only one that every SDK survives: what the gate must emit.

UTF-8, LF line ends, one `data: ` line an event (after its `event: ` line where the format names events), a blank line
after each event, the last one included. Between events a keep-alive may stand, in the one form its format allows.
Source: wire/README.md, "Common SSE rules".
"""

import json
from decimal import Decimal
from typing import Any, Literal, NamedTuple

KeepAlive = Literal["comment", "line_feed", None]


class SseEvent(NamedTuple):
    """One event."""

    name: str | None
    data: str


def check_events(
    raw: bytes, *, keepalive: KeepAlive = None, named: bool = False
) -> tuple[list[SseEvent], int]:
    """Return the events and the number of keep-alives; raises AssertionError where the form is not the narrow one."""
    assert not raw.startswith(b"\xef\xbb\xbf"), "BOM"
    assert b"\r" not in raw, "CR"
    text = raw.decode()  # UnicodeDecodeError: not UTF-8
    assert not text or text.endswith("\n\n") or (keepalive == "line_feed" and text.endswith("\n")), (
        f"the last event is not closed: {text[-80:]!r}"
    )
    events: list[SseEvent] = []
    kept = at = 0
    while at < len(text):
        if text[at] == "\n":
            assert keepalive == "line_feed", "an extra blank line"
            kept, at = kept + 1, at + 1
            continue
        end = text.index("\n\n", at)
        block, at = text[at:end], end + 2
        lines = block.split("\n")
        if lines[0].startswith(":"):
            assert keepalive == "comment", f"a comment: {block!r}"
            assert len(lines) == 1, f"a comment inside an event: {block!r}"
            kept += 1
            continue
        name = None
        if named:
            assert lines[0].startswith("event: "), f"no event name: {block!r}"
            name = lines.pop(0).removeprefix("event: ")
        assert len(lines) == 1, f"more than one line: {block!r}"
        assert lines[0].startswith("data: "), f"not a data line: {block!r}"
        data = lines[0].removeprefix("data: ")
        assert data, "an empty event"
        assert not data.startswith(" "), f"two spaces before the data: {block!r}"
        events.append(SseEvent(name, data))
    return events, kept


def parse_object(data: str) -> dict[str, Any]:
    """Return an event's JSON object: no duplicate keys, no lone surrogates, numbers exact (Decimal)."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), f"duplicate keys: {keys}"
        return dict(pairs)

    value = json.loads(data, object_pairs_hook=unique, parse_float=Decimal)
    assert isinstance(value, dict), f"not an object: {data!r}"
    _no_surrogates(value)
    return value


def _no_surrogates(value: Any) -> None:
    if isinstance(value, str):
        value.encode()  # UnicodeEncodeError: a lone surrogate
    elif isinstance(value, dict):
        for key, inner in value.items():
            _no_surrogates(key)
            _no_surrogates(inner)
    elif isinstance(value, list):
        for inner in value:
            _no_surrogates(inner)


def check_count(usage: dict[str, Any], *names: str) -> None:
    """Check that counts are whole and not negative."""
    for name in names:
        count = usage.get(name)
        assert isinstance(count, int), f"{name} is {count!r}"
        assert not isinstance(count, bool), f"{name} is {count!r}"
        assert count >= 0, f"{name} is {count!r}"


def check_cost(usage: dict[str, Any], cost_nano_usd: int | None = None) -> None:
    """Check contract C7 with `cost: usage`: both fields, and the same amount in both."""
    nano = usage.get("cost_nano_usd")
    assert isinstance(nano, int), f"cost_nano_usd is {nano!r}"
    cost = usage.get("cost")
    assert isinstance(cost, int | Decimal), f"cost is {cost!r}, not a number"
    assert Decimal(cost) * 10**9 == nano, f"cost is {cost}, cost_nano_usd {nano}"
    if cost_nano_usd is not None:
        assert nano == cost_nano_usd, f"cost_nano_usd is {nano}, not {cost_nano_usd}"


class ParsedCall(NamedTuple):
    """A tool call, put together."""

    id: str
    name: str
    arguments: str


class ParsedStream(NamedTuple):
    """What a stream said, in words that are the same for every format."""

    text: str
    reasoning: str
    refusal: str
    tool_calls: list[ParsedCall]
    finish: str | None
    """The format's own word."""
    usage: dict[str, Any] | None
    error: dict[str, Any] | None
    """The inner error object."""
    events: list[dict[str, Any]]
    keepalives: int
    texts: tuple[str, ...] = ()
    """Text of each choice, where the format has choices."""
