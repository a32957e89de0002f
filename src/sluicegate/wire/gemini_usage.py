"""Usage as Gemini spells it, read and written.

The candidates' count leaves thoughts out, and the prompt's count what hosted tools fed back; a count that is missing is
what the total leaves for it. In a stream each report replaces the one before. Source: wire formats page `usage.md`.
"""

from typing import Any

import msgspec

from sluicegate.messages import Usage
from sluicegate.wire import json_edit
from sluicegate.wire.gemini_usage_shapes import Details, Reported
from sluicegate.wire.openai_usage import count, with_members, without_negatives

_TIERS = {
    "default": "standard",
    "standard": "standard",
    "flex": "flex",
    "priority": "priority",
    "fast": "priority",
}


_decode = msgspec.json.Decoder(Reported).decode


def read_usage(raw: bytes | msgspec.Raw, *, excludes_cache: bool = False) -> Usage | None:
    """Read a usage object; None where it holds no count that can be used.

    Args:
        excludes_cache: a quirk of the provider: its prompt count leaves cached tokens out.
    """
    try:
        return usage_of(raw, excludes_cache=excludes_cache)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def usage_of(raw: bytes | msgspec.Raw, *, excludes_cache: bool = False) -> Usage | None:
    """Read a usage object, like `read_usage`. Raises what msgspec raises where it is none."""
    try:
        reported = _decode(raw)
    except msgspec.ValidationError:
        reported = _read_odd(raw)
    prompt, visible = reported.promptTokenCount, reported.candidatesTokenCount
    thoughts, tools = reported.thoughtsTokenCount, reported.toolUsePromptTokenCount
    if reported.totalTokenCount is not None:
        rest = reported.totalTokenCount - (prompt or 0) - (visible or 0) - (thoughts or 0) - (tools or 0)
        if rest >= 0:
            if visible is None and prompt is not None:
                visible = rest
            elif prompt is None and visible is not None:
                prompt = rest
            elif rest and thoughts is None and prompt is not None:
                thoughts = rest
    if prompt is None and visible is None:
        return None
    usage = Usage(input_tokens=prompt, output_tokens=visible)
    if prompt is not None and tools is not None:
        usage.input_tokens = prompt + tools
        usage.input_tool_tokens = tools
    if thoughts is not None:
        usage.reasoning_tokens = thoughts
        if visible is not None:
            usage.output_tokens = visible + thoughts
    cached = reported.cachedContentTokenCount
    if cached is not None:
        usage.cache_read_tokens = cached
        if excludes_cache and usage.input_tokens is not None:
            usage.input_tokens += cached
    if reported.promptTokensDetails:
        usage.input_audio_tokens = _of(reported.promptTokensDetails, "AUDIO")
        usage.input_image_tokens = _of(reported.promptTokensDetails, "IMAGE")
    if reported.candidatesTokensDetails:
        usage.output_audio_tokens = _of(reported.candidatesTokensDetails, "AUDIO")
        usage.output_image_tokens = _of(reported.candidatesTokensDetails, "IMAGE")
    if reported.serviceTier:
        usage.service_tier = reported.serviceTier.lower()
    return usage


def _read_odd(raw: bytes | msgspec.Raw) -> Reported:
    """Read a usage object in which something is of another type, or some count is none."""
    value: Any = msgspec.json.decode(raw)
    reported = Reported()
    if isinstance(value, dict):
        for name in _COUNTS:
            setattr(reported, name, count(value.get(name)))
        reported.promptTokensDetails = _details(value.get("promptTokensDetails"))
        reported.candidatesTokensDetails = _details(value.get("candidatesTokensDetails"))
        tier = value.get("serviceTier")
        reported.serviceTier = tier if isinstance(tier, str) else None
    return reported


_COUNTS = [name for name in Reported.__struct_fields__ if name.endswith("Count")]


def _details(value: Any) -> list[Details] | None:
    """Return what there is of counts by modality."""
    if not isinstance(value, list):
        return None
    return [Details(one.get("modality"), one.get("tokenCount")) for one in value if isinstance(one, dict)]


def _of(details: list[Details], modality: str) -> int | None:
    counts = [count(detail.tokenCount) for detail in details if detail.modality == modality]
    known = [tokens for tokens in counts if tokens is not None]
    return sum(known) if known else None


def _counts(usage: Usage) -> dict[str, int]:
    """Return the counts as Gemini tells them; what is taken apart never falls below 0."""
    into, out = usage.input_tokens or 0, usage.output_tokens or 0
    tools, thoughts = usage.input_tool_tokens or 0, usage.reasoning_tokens or 0
    counts = {"promptTokenCount": max(0, into - tools)}
    if usage.cache_read_tokens:
        counts["cachedContentTokenCount"] = usage.cache_read_tokens
    if tools:
        counts["toolUsePromptTokenCount"] = tools
    counts["candidatesTokenCount"] = max(0, out - thoughts)
    if thoughts:
        counts["thoughtsTokenCount"] = thoughts
    counts["totalTokenCount"] = into + out
    return counts


def write_usage(usage: Usage) -> bytes:
    """Write a usage object; the tier that served where it is known and has a word here."""
    value: dict[str, Any] = {**_counts(usage)}
    tier = _TIERS.get(usage.service_tier or "")
    if tier is not None:
        value["serviceTier"] = tier
    return msgspec.json.encode(value)


def settled_usage(reported: bytes | None, usage: Usage, members: bytes) -> bytes:
    """Return the usage object for the client: the provider's own, its counts as they were settled, or a new one.

    Args:
        reported: what the provider sent, or None.
        members: ready JSON members (the cost) that join it.
    """
    if reported is None:
        return with_members(write_usage(usage), members)
    reported = without_negatives(reported)
    present = {member.key for member in json_edit.inner_members(reported, reported.index(b"{"))}
    wanted = {
        key: b"%d" % tokens
        for key, tokens in _counts(usage).items()
        if tokens or key in present or key in ("promptTokenCount", "totalTokenCount")
    }
    return with_members(json_edit.changed(reported, wanted), members)
