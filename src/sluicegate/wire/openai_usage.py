"""Usage as the chat and completions formats spell it, read and written. Source: wire formats page `usage.md`."""

from typing import Any, Final

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.messages import MAX_COUNT, Usage
from sluicegate.wire import json_edit
from sluicegate.wire.openai_usage_shapes import CompletionDetails, PromptDetails, Reported, Said, Told, Totals


def count(value: object) -> int | None:
    """Accept a count a provider may have written: a non-negative integer that an answer can have, also as a float
    without fraction.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    return None


_TIERS = {
    "auto": "auto",
    "default": "default",
    "standard": "default",
    "flex": "flex",
    "scale": "scale",
    "priority": "priority",
    "fast": "priority",
}


_decode_reported: Final = msgspec.json.Decoder(Reported).decode


def read_usage(raw: bytes | msgspec.Raw) -> Usage | None:
    """Read a usage object; None where it holds no count that can be used."""
    try:
        reported = _decode_reported(raw)
    except msgspec.ValidationError:
        return _read_odd(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return _usage_of(reported)


_NO_PROMPT_DETAILS = PromptDetails()
_NO_COMPLETION_DETAILS = CompletionDetails()


def _usage_of(reported: Reported) -> Usage | None:
    into, out = reported.prompt_tokens, reported.completion_tokens
    if into is None and out is None:
        return None
    prompt, completion = reported.prompt_tokens_details, reported.completion_tokens_details
    if prompt is None and completion is None:
        return Usage(input_tokens=into, output_tokens=out)
    if prompt is None:
        prompt = _NO_PROMPT_DETAILS
    if completion is None:
        completion = _NO_COMPLETION_DETAILS
    return Usage(
        input_tokens=into,
        output_tokens=out,
        cache_read_tokens=prompt.cached_tokens,
        cache_write_tokens=prompt.cache_write_tokens,
        input_audio_tokens=prompt.audio_tokens,
        input_image_tokens=prompt.image_tokens,
        reasoning_tokens=completion.reasoning_tokens,
        output_audio_tokens=completion.audio_tokens,
        prediction_accepted_tokens=completion.accepted_prediction_tokens,
        prediction_rejected_tokens=completion.rejected_prediction_tokens,
    )


def _read_odd(raw: bytes | msgspec.Raw) -> Usage | None:
    """Read a usage object in which some count is none: negative, fractional, beyond all bounds or of another type."""
    try:
        value: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    prompt = value.get("prompt_tokens_details")
    completion = value.get("completion_tokens_details")
    prompt = prompt if isinstance(prompt, dict) else {}
    completion = completion if isinstance(completion, dict) else {}
    usage = Usage(
        input_tokens=count(value.get("prompt_tokens")),
        output_tokens=count(value.get("completion_tokens")),
        cache_read_tokens=count(prompt.get("cached_tokens")),
        cache_write_tokens=count(prompt.get("cache_write_tokens")),
        input_audio_tokens=count(prompt.get("audio_tokens")),
        input_image_tokens=count(prompt.get("image_tokens")),
        reasoning_tokens=count(completion.get("reasoning_tokens")),
        output_audio_tokens=count(completion.get("audio_tokens")),
        prediction_accepted_tokens=count(completion.get("accepted_prediction_tokens")),
        prediction_rejected_tokens=count(completion.get("rejected_prediction_tokens")),
    )
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    return usage


_decode_totals = msgspec.json.Decoder(Totals).decode


def read_normal_usage(raw: bytes, can: Capabilities) -> Usage | None:
    """Read a usage object of a server that may count otherwise than the format does, and make it inclusive.

    A total that is the sum already contradicts the quirk, and wins.
    """
    usage = read_usage(raw)
    if usage is None or not (can.prompt_excludes_cache or can.output_excludes_reasoning):
        return usage
    try:
        total = _decode_totals(raw).total_tokens
    except msgspec.DecodeError:
        total = None
    into, out = usage.input_tokens, usage.output_tokens
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    if total is not None and total == (into or 0) + (out or 0):
        return usage
    if can.prompt_excludes_cache and into is not None:
        usage.input_tokens = into + cached
    if can.output_excludes_reasoning and out is not None:
        usage.output_tokens = out + (usage.reasoning_tokens or 0)
    return usage


def served_tier(usage: Usage) -> str | None:
    """Return the tier that served, of any vendor, as OpenAI's formats name it; None where that is not known."""
    return _TIERS.get(usage.service_tier or "")


def write_usage(usage: Usage) -> bytes:
    """Write a usage object; details only where they are known."""
    value: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens or 0,
        "completion_tokens": usage.output_tokens or 0,
        "total_tokens": (usage.input_tokens or 0) + (usage.output_tokens or 0),
    }
    prompt = {
        "cached_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "audio_tokens": usage.input_audio_tokens,
    }
    completion = {
        "reasoning_tokens": usage.reasoning_tokens,
        "audio_tokens": usage.output_audio_tokens,
        "accepted_prediction_tokens": usage.prediction_accepted_tokens,
        "rejected_prediction_tokens": usage.prediction_rejected_tokens,
    }
    for name, details in (("prompt_tokens_details", prompt), ("completion_tokens_details", completion)):
        known = {key: tokens for key, tokens in details.items() if tokens is not None}
        if known:
            value[name] = known
    return msgspec.json.encode(value)


_decode_said: Final = msgspec.json.Decoder(Said).decode


def encode_usage(reported: bytes | None, usage: Usage) -> bytes:
    """Return the usage object for the client: the provider's own, its three totals put right, or a new one.

    Args:
        reported: what the provider sent, or None.
        usage: the same as it was settled.
    """
    if reported is None:
        return write_usage(usage)
    reported = without_negatives(reported)
    into, out = usage.input_tokens or 0, usage.output_tokens or 0
    try:
        said = _decode_said(reported)
    except msgspec.DecodeError:  # a number beyond all bounds
        said = Said()
    if (
        said.prompt_tokens == into
        and said.completion_tokens == out
        and said.total_tokens == into + out
        and type(said.prompt_tokens) is type(said.completion_tokens) is type(said.total_tokens) is int
    ):
        return reported  # nearly always
    totals = {"prompt_tokens": into, "completion_tokens": out, "total_tokens": into + out}
    wanted = {key: b"%d" % value for key, value in totals.items()}
    start = reported.index(b"{")
    return json_edit.splice(
        reported, json_edit.edits(reported, json_edit.inner_members(reported, start), wanted, start=start)
    )


_decode_told = msgspec.json.Decoder(Told).decode


class ReportedUsage:
    """A usage object as a provider sent it, read once: for the meter, and for the client."""

    __slots__ = ("_completion", "_prompt", "_sums_up", "raw", "usage")

    def __init__(self, raw: bytes) -> None:
        """Read an object, or whatever stands in its place."""
        self.raw = raw
        self.usage: Usage | None
        """What it counts; None where it holds nothing that can be used."""
        self._prompt: int | None = None
        self._completion: int | None = None
        self._sums_up = False
        """It says all three totals as integers, and they agree; nothing in it is below zero."""
        try:
            told = _decode_told(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self.usage = read_usage(raw)
            return
        self.usage = _usage_of(told)
        into, out, total = told.prompt_tokens, told.completion_tokens, told.total_tokens
        if into is not None and out is not None and type(total) is int and total == into + out:
            self._prompt = into
            self._completion = out
            self._sums_up = 0x2D not in raw

    def encode(self, usage: Usage) -> bytes:
        """Return the object for the client, as `encode_usage` does: nearly always it is `raw` itself.

        Args:
            usage: the same as it was settled.
        """
        if self._sums_up and usage.input_tokens == self._prompt and usage.output_tokens == self._completion:
            return self.raw
        return encode_usage(None if self.usage is None else self.raw, usage)


def without_negatives(reported: bytes) -> bytes:
    """Return a provider's usage object, of any format, with 0 for every count below it: clients add them up."""
    if 0x2D not in reported or (b":-" not in reported and b": -" not in reported):
        return reported  # always, but for servers that subtract wrongly
    try:
        value = msgspec.json.decode(reported)
    except msgspec.DecodeError:  # a number beyond all bounds: who reads it cannot add it up either
        return reported
    return msgspec.json.encode(_not_below_zero(value))


def _not_below_zero(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _not_below_zero(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_not_below_zero(inner) for inner in value]
    return 0 if type(value) is int and value < 0 else value


def names_none_of(object_json: bytes, members: bytes) -> bool:
    """Whether a JSON object's text has none of these ready members for sure: it names nothing that begins so."""
    name = members[: members.index(b'"', 1)]
    return object_json.find(name) < 0 and not json_edit.may_spell_ascii(object_json)


def with_members(object_json: bytes, members: bytes) -> bytes:
    """Give a JSON object's text these ready members (`"key":value,…`), in place of what it has of that name."""
    if not members:
        return object_json
    if names_none_of(object_json, members) and not object_json[:-1].rstrip().endswith(b"{"):
        end = object_json.rindex(b"}")  # the usual case
        return b"%b,%b%b" % (object_json[:end], members, object_json[end:])
    given = b"{%b}" % members
    values = {member.key: given[member.start : member.end] for member in json_edit.inner_members(given, 0)}
    return json_edit.changed(object_json, values)
