"""Usage as Responses spells it, read and written: inclusive, like ours. Source: wire formats page `usage.md`."""

from typing import Any

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Usage
from sluicegate.wire import json_edit
from sluicegate.wire.openai_responses_event import decode_item, output_of
from sluicegate.wire.openai_responses_searches import KIND as SEARCH
from sluicegate.wire.openai_responses_searches import read_search
from sluicegate.wire.openai_responses_shapes import Response
from sluicegate.wire.openai_usage import count, with_members, without_negatives


def read_usage(response: Response, can: Capabilities | None = None) -> Usage | None:
    """Read what a response says of usage; None where it holds no count that can be used.

    Args:
        can: tells where the provider's counts leave out what the format includes.
    """
    value = _object(response.usage)
    into, out = count(value.get("input_tokens")), count(value.get("output_tokens"))
    if into is None and out is None:
        return None
    read = _details(value.get("input_tokens_details"))
    written = _details(value.get("output_tokens_details"))
    searches = count(_details(_object(response.tool_usage).get("web_search")).get("num_requests"))
    if searches is None and SEARCH.encode() in bytes(response.output):
        searches = _count_searches(response)
    usage = Usage(
        input_tokens=into,
        cache_read_tokens=count(read.get("cached_tokens")),
        cache_write_tokens=count(read.get("cache_write_tokens")),
        input_audio_tokens=count(read.get("audio_tokens")),
        input_image_tokens=count(read.get("image_tokens")),
        output_tokens=out,
        reasoning_tokens=count(written.get("reasoning_tokens")),
        output_audio_tokens=count(written.get("audio_tokens")),
        web_searches=searches,
        service_tier=response.service_tier if isinstance(response.service_tier, str) else None,
    )
    if can is not None and can.prompt_excludes_cache and usage.input_tokens is not None:
        usage.input_tokens += (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    if can is not None and can.output_excludes_reasoning and usage.output_tokens is not None:
        usage.output_tokens += usage.reasoning_tokens or 0
    return usage


def _count_searches(response: Response) -> int | None:
    """Count the searches among a response's items, where its usage does not tell them."""
    items = [decode_item(raw) for raw in output_of(response)]
    return sum(item.type == SEARCH and read_search(item) is not None for item in items) or None


def _object(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        return _details(msgspec.json.decode(raw))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}


def _details(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def write_usage(usage: Usage) -> bytes:
    """Write a usage object; the details that typed clients need are always there."""
    into, out = usage.input_tokens or 0, usage.output_tokens or 0
    return (
        b'{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},'
        b'"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}'
        % (
            into,
            usage.cache_read_tokens or 0,
            usage.cache_write_tokens or 0,
            out,
            usage.reasoning_tokens or 0,
            into + out,
        )
    )


def write_tool_usage(usage: Usage) -> bytes:
    """Return what hosted tools did as a member of the response; empty where nobody told."""
    if usage.web_searches is None:
        return b""
    return b'"tool_usage":{"web_search":{"num_requests":%d}}' % usage.web_searches


def settled_usage(reported: bytes, usage: Usage, members: bytes, *, whole: bool = False) -> bytes:
    """Return the usage object for the client: the provider's own, its three totals put right, or a new one.

    Args:
        reported: what the provider sent in this place; anything but an object is none.
        usage: as it was settled.
        members: ready JSON members (the cost) that join it.
        whole: give it the details that typed clients need, where it has none.
    """
    if not reported.startswith(b"{"):
        return with_members(write_usage(usage), members)
    reported = without_negatives(reported)
    into, out = usage.input_tokens or 0, usage.output_tokens or 0
    totals = {"input_tokens": into, "output_tokens": out, "total_tokens": into + out}
    wanted = {name: b"%d" % tokens for name, tokens in totals.items()}
    if whole:
        told = write_usage(usage)
        present = {member.key for member in json_edit.inner_members(reported, 0)}
        for member in json_edit.inner_members(told, 0):
            if member.key not in present:
                wanted[member.key] = told[member.start : member.end]
    return with_members(json_edit.changed(reported, wanted), members)
