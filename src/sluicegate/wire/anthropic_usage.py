"""Usage as Messages spells it, read and written.

Input excludes what was read from and written to the cache, and the counts of a stream overwrite each other field by
field: an event that leaves a count out, or says null, leaves it as it was. Source: wire formats page `usage.md`.
"""

from typing import Any

import msgspec

from sluicegate.messages import Usage
from sluicegate.wire import json_edit
from sluicegate.wire.openai_usage import count, with_members, without_negatives

INPUT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class RunningUsage:
    """What one answer has reported so far."""

    __slots__ = ("_counts", "_tier")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._tier: str | None = None

    def take_start(self, raw: bytes | msgspec.Raw) -> None:
        """Take the usage of `message_start`, whose output is a placeholder, and whose input may be one too."""
        self.take(raw)
        self._counts.pop("output_tokens", None)
        self._counts.pop("thinking_tokens", None)
        if not any(self._counts.get(name) for name in INPUT_COUNTS):
            for name in INPUT_COUNTS:  # no prompt is empty: it will be told later
                self._counts.pop(name, None)

    def take(self, raw: bytes | msgspec.Raw) -> None:
        """Take a usage object; what it does not hold stays as it was."""
        try:
            value: Any = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return
        if not isinstance(value, dict):
            return
        self._put(value, *INPUT_COUNTS, "output_tokens")
        self._put(value.get("cache_creation"), "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
        self._put(value.get("output_tokens_details"), "thinking_tokens")
        self._put(value.get("server_tool_use"), "web_search_requests", "web_fetch_requests")
        tier = value.get("service_tier")
        if isinstance(tier, str):
            self._tier = tier

    def _put(self, value: object, *names: str) -> None:
        if isinstance(value, dict):
            for name in names:
                tokens = count(value.get(name))
                if tokens is not None:
                    self._counts[name] = tokens

    def knows_input(self) -> bool:
        """Whether the provider has said how long the prompt is."""
        return "input_tokens" in self._counts

    def normalised(self) -> Usage | None:
        """Return the totals, inclusive; None where nothing usable was reported."""
        get = self._counts.get
        uncached, read, written = get("input_tokens"), get("cache_read_input_tokens"), None
        five, hour = get("ephemeral_5m_input_tokens"), get("ephemeral_1h_input_tokens")
        if five is not None or hour is not None:
            written = (five or 0) + (hour or 0)
        written = get("cache_creation_input_tokens", written)
        if uncached is None and get("output_tokens") is None:
            return None
        return Usage(
            input_tokens=None if uncached is None else uncached + (read or 0) + (written or 0),
            cache_read_tokens=read,
            cache_write_tokens=written,
            cache_write_5m_tokens=five,
            cache_write_1h_tokens=hour,
            output_tokens=get("output_tokens"),
            reasoning_tokens=get("thinking_tokens"),
            web_searches=get("web_search_requests"),
            web_fetches=get("web_fetch_requests"),
            service_tier=self._tier,
        )


def input_counts(usage: Usage) -> dict[str, int]:
    """Return the three input counts as Messages tells them; the cache is taken out of the input."""
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return {
        "input_tokens": max(0, (usage.input_tokens or 0) - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
    }


def write_usage(usage: Usage, *, tier: bool = False) -> bytes:
    """Write a usage object, every input and cache count in it.

    Args:
        tier: say which service tier served, where that is known.
    """
    value: dict[str, Any] = dict(input_counts(usage))
    five, hour = usage.cache_write_5m_tokens, usage.cache_write_1h_tokens
    if five is not None or hour is not None:
        value["cache_creation"] = {
            "ephemeral_5m_input_tokens": five or 0,
            "ephemeral_1h_input_tokens": hour or 0,
        }
    value["output_tokens"] = usage.output_tokens or 0
    if usage.reasoning_tokens is not None:
        value["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    if usage.web_searches is not None or usage.web_fetches is not None:
        value["server_tool_use"] = {
            "web_search_requests": usage.web_searches or 0,
            "web_fetch_requests": usage.web_fetches or 0,
        }
    if tier and usage.service_tier is not None:
        value["service_tier"] = _TIERS.get(usage.service_tier, "standard")
    return msgspec.json.encode(value)


_TIERS = {"standard": "standard", "priority": "priority", "batch": "batch", "fast": "priority"}
"""Tiers of any vendor as Messages names what served."""


def settled_usage(reported: bytes | None, bill_usage: Usage, members: bytes, *, repeat_input: bool) -> bytes:
    """Return a usage object for the client: the provider's own with its counts as settled, or a new one.

    Args:
        reported: what the provider sent in this place, or None.
        members: ready JSON members (the cost) that join it.
        repeat_input: the client has not been told the true input yet.
    """
    if reported is None:
        return with_members(write_usage(bill_usage), members)
    reported = without_negatives(reported)
    counts = input_counts(bill_usage)
    if not repeat_input:
        present = {member.key for member in json_edit.inner_members(reported, 0)}
        counts = {name: tokens for name, tokens in counts.items() if name in present}
    counts["output_tokens"] = bill_usage.output_tokens or 0
    edited = json_edit.changed(reported, {name: b"%d" % tokens for name, tokens in counts.items()})
    return with_members(edited, members)
