"""What an answer used that one provider began and another went on with: what one provider alone would have told of it.

The client pays its prompt once and all of the answer once, whichever provider produced it. That the second read the
prompt again, and the first part behind it, is the operator's. Source: wire formats page `usage.md`, "Rules"; contract
B1 and B3.
"""

from typing import NamedTuple

import msgspec

from sluicegate.messages import Usage, UsageSource

_INPUT = (
    "input_tokens",
    "longest_input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "input_tool_tokens",
    "input_audio_tokens",
    "input_image_tokens",
)
_PRODUCED = ("output_tokens", "reasoning_tokens", "web_searches", "web_fetches")
"""Counts that add up; other parts of an output are no part of a text."""


class FirstPart(NamedTuple):
    """What the provider that began had used when its stream broke off."""

    usage: Usage
    """Input and output both known, reported or counted."""
    source: UsageSource
    reports_input: bool
    """Its input is the provider's own count."""


def joined(
    first: FirstPart, second: Usage, source: UsageSource, *, reported: bool
) -> tuple[Usage, UsageSource]:
    """Return what both parts used together.

    Args:
        second: of the provider that went on, the first part in its input.
        source: where that is from; none: it produced nothing.
        reported: its input is the provider's own count.
    """
    if source == "none":
        return first.usage, first.source
    before = first.usage
    whole = msgspec.structs.replace(second)
    for field in _PRODUCED:
        one, other = getattr(before, field), getattr(second, field)
        if one is not None and other is not None:
            setattr(whole, field, one + other)
        elif other is None:
            setattr(whole, field, one)
    if first.reports_input or not reported:
        for field in _INPUT:
            setattr(whole, field, getattr(before, field))
    else:
        _take_out(whole, before.output_tokens or 0)
    return whole, "counted" if "counted" in (first.source, source) else "reported"


def _take_out(usage: Usage, tokens: int) -> None:
    """Take the first part out of the input; what was cached can be no more than what is left."""
    usage.input_tokens = left = max(1, (usage.input_tokens or 0) - tokens)
    usage.longest_input_tokens = None
    if usage.cache_read_tokens is not None:
        usage.cache_read_tokens = min(usage.cache_read_tokens, left)
        left -= usage.cache_read_tokens
    if usage.cache_write_tokens is not None and usage.cache_write_tokens > left:
        usage.cache_write_tokens = left
        usage.cache_write_5m_tokens = usage.cache_write_1h_tokens = None
