"""Clocks that a client sets for one request, tighter than the operator's: the header `x-sluicegate-timeouts`.

Its value is a list such as `first_token=20s, idle=10s, min_tokens_per_s=5`. A wish beyond what is configured changes
nothing: the operator's clocks are the bounds, so that no client holds a place for longer than others.
"""

import re

import msgspec

from sluicegate.errors import BadRequest
from sluicegate.routing.catalog import StreamClocks

HEADER = b"x-sluicegate-timeouts"
MIN_S = 0.1
"""The shortest time that can be asked for."""
MAX_RATE = 100_000.0

_FIELDS = {
    "connect": "connect_timeout_s",
    "first_token": "first_token_timeout_s",
    "idle": "idle_timeout_s",
    "response": "response_timeout_s",
    "total": "total_timeout_s",
}
_RATE = "min_tokens_per_s"
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h)")
_NUMBER = re.compile(r"\d{1,6}(?:\.\d{1,3})?")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

Wishes = dict[str, float]
"""Seconds, or tokens a second, by the field of StreamClocks."""


def read_wishes(value: bytes) -> Wishes:
    """Read the header's value.

    Raises:
        BadRequest: it names what is no clock, or something twice, or is malformed.
    """
    wishes: Wishes = {}
    for entry in value.decode("latin-1").split(","):
        name, _, text = (part.strip() for part in entry.partition("="))
        if name == _RATE:
            field, wish = _RATE, _rate(text)
        elif name in _FIELDS:
            field, wish = _FIELDS[name], _seconds(name, text)
        else:
            raise _refusal(f"there is no clock '{name[:40]}'; there are {', '.join(_FIELDS)} and {_RATE}")
        if field in wishes:
            raise _refusal(f"{name} stands twice")
        wishes[field] = wish
    return wishes


def tightened(clocks: StreamClocks, wishes: Wishes) -> StreamClocks:
    """Return the clocks with the wishes that are tighter."""
    tighter = {}
    for field, wish in wishes.items():
        configured: float = getattr(clocks, field)
        tighter[field] = max(wish, configured) if field == _RATE else min(wish, configured)
    return StreamClocks(msgspec.structs.replace(clocks.row, **tighter))


def _seconds(name: str, text: str) -> float:
    found = _DURATION.fullmatch(text)
    seconds = 0.0 if found is None else float(found[1]) * _UNITS_S[found[2]]
    if seconds < MIN_S:
        raise _refusal(f"{name} must be a time of at least 100ms, such as 20s or 1m")
    return seconds


def _rate(text: str) -> float:
    if _NUMBER.fullmatch(text) is None or float(text) > MAX_RATE:
        raise _refusal(f"{_RATE} must be a number of 0 to {MAX_RATE:.0f}")
    return float(text)


def _refusal(reason: str) -> BadRequest:
    name = HEADER.decode()
    return BadRequest(f"Invalid '{name}': {reason}.", param=name)
