"""Several calls of one attempt joined to one answer: each call's choices stand behind those of the calls before it.

Usage is the sum; a call that reported none leaves it unknown. A stream of several calls is `joined_stream`'s. Source:
wire formats pages `completions.md`, "Translating it", and `usage.md`, on retries.
"""

from collections.abc import Sequence

import msgspec

from sluicegate.messages import End, Start, StreamError, StreamEvent, Usage, UsageReport

_WHOLE = ("input_tokens", "output_tokens")
"""Counts whose sum is unknown where one of them is; of all others None adds nothing."""


def summed(first: Usage, second: Usage) -> Usage:
    """Return what two calls used together."""
    total = msgspec.structs.replace(second)
    longest = max(_longest(first), _longest(second))
    for field in Usage.__struct_fields__:
        one, other = getattr(first, field), getattr(second, field)
        if isinstance(one, int) and isinstance(other, int):
            setattr(total, field, one + other)
        elif other is None and field not in _WHOLE:
            setattr(total, field, one)
        elif one is None and field in _WHOLE:
            setattr(total, field, None)
    total.longest_input_tokens = longest if longest < (total.input_tokens or 0) else None
    return total


def _longest(usage: Usage) -> int:
    """Return how much the longest call read."""
    return usage.longest_input_tokens or usage.input_tokens or 0


def joined_events(answers: Sequence[list[StreamEvent]], choices: int) -> list[StreamEvent]:
    """Return the events of several plain answers as those of one.

    Args:
        choices: how many each was asked for.
    """
    joined: list[StreamEvent] = []
    usage: Usage | None = Usage(input_tokens=0, output_tokens=0)
    for call, events in enumerate(answers):
        told: Usage | None = None
        for event in events:
            if isinstance(event, StreamError):
                return [event]
            if isinstance(event, UsageReport):
                told = event.usage
            elif isinstance(event, Start):
                told = event.usage or told
                if not call:
                    joined.append(event)
            elif not isinstance(event, End):
                joined.append(behind(event, call * choices))
        usage = None if usage is None or told is None else summed(usage, told)
    if usage is not None:
        joined.append(UsageReport(usage))
    return [*joined, End()]


def behind(event: StreamEvent, choices: int) -> StreamEvent:
    """Return an event of a call before which so many choices were answered."""
    choice = getattr(event, "choice", None)
    if choice is None or not choices:
        return event
    return msgspec.structs.replace(event, choice=choice + choices)
