"""Counts that no answer can have: those below zero never reach a client, and what is beyond all bounds is no count."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.messages import MAX_COUNT, Usage
from sluicegate.wire import anthropic_usage, gemini_usage, openai_responses_usage, openai_usage
from sluicegate.wire.openai_responses_shapes import Response
from sluicegate.wire.openai_usage import without_negatives
from sluicegate.wire.unary.batches import usage_of_line

SETTLED = Usage(input_tokens=9, output_tokens=4)
ODD = {
    "chat": {
        "prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": -3}, "completion_tokens_details": {"reasoning_tokens": -1},
    },
    "responses": {
        "input_tokens": -9, "output_tokens": 4, "total_tokens": -5,
        "input_tokens_details": {"cached_tokens": -3}, "output_tokens_details": {"reasoning_tokens": -1},
    },
    "messages": {
        "input_tokens": 9, "output_tokens": -4, "cache_read_input_tokens": -2,
        "server_tool_use": {"web_search_requests": -1}, "service_tier": "a:-b",
    },
    "gemini": {
        "promptTokenCount": 9, "candidatesTokenCount": -4, "totalTokenCount": 5,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": -9}],
    },
}  # fmt: skip


def settled(format: str, reported: bytes) -> bytes:
    match format:
        case "chat":
            return openai_usage.encode_usage(reported, SETTLED)
        case "responses":
            return openai_responses_usage.settled_usage(reported, SETTLED, b"")
        case "messages":
            return anthropic_usage.settled_usage(reported, SETTLED, b"", repeat_input=True)
    return gemini_usage.settled_usage(reported, SETTLED, b"")


@pytest.mark.parametrize("spaces", [True, False])
@pytest.mark.parametrize("format", ODD)
def test_c5_no_count_below_zero_is_told(format: str, spaces: bool) -> None:
    reported = json.dumps(ODD[format], separators=None if spaces else (",", ":")).encode()
    told = json.loads(settled(format, reported))
    assert "-" not in json.dumps(told).replace("a:-b", "")
    assert told.keys() >= ODD[format].keys()


def test_usage_without_them_stays_the_very_same_bytes() -> None:
    reported = b'{"prompt_tokens": 9,"x":1.50,"cost":1e-7}'
    assert without_negatives(reported) is reported


def read(format: str, into: Any, out: Any, cached: Any) -> Usage | None:
    names = {
        "chat": ("prompt_tokens", "completion_tokens", "prompt_tokens_details"),
        "responses": ("input_tokens", "output_tokens", "input_tokens_details"),
    }
    if format == "messages":
        running = anthropic_usage.RunningUsage()
        running.take(json.dumps({"input_tokens": into, "output_tokens": out}).encode())
        running.take(json.dumps({"cache_read_input_tokens": cached}).encode())
        return running.normalised()
    if format == "gemini":
        counts = {"promptTokenCount": into, "candidatesTokenCount": out, "cachedContentTokenCount": cached}
        return gemini_usage.read_usage(json.dumps(counts).encode())
    told = dict(zip(names[format], (into, out, {"cached_tokens": cached}), strict=True))
    raw = json.dumps(told).encode()
    if format == "chat":
        return openai_usage.read_usage(raw)
    return openai_responses_usage.read_usage(Response(usage=msgspec.Raw(raw)))


@pytest.mark.parametrize(
    "nonsense", [MAX_COUNT + 1, 2**31 - 1, 2**32 - 5, 2**53 - 1, 2**63 - 1, 2**64 - 3, 1e30]
)
@pytest.mark.parametrize("format", ["chat", "responses", "messages", "gemini"])
def test_a_count_beyond_all_bounds_is_not_reported(format: str, nonsense: float) -> None:
    most = 10**9
    usage = read(format, most, most, 0)
    assert usage is not None
    assert usage.output_tokens == most, "the most that is believed"
    assert read(format, 9, nonsense, 0) == Usage(input_tokens=9, cache_read_tokens=0)
    assert read(format, 9, 4, nonsense) == Usage(input_tokens=9, output_tokens=4)
    assert read(format, nonsense, nonsense, 0) is None


def test_counts_by_modality_stand_beside_an_odd_one() -> None:
    told = {
        "promptTokenCount": 9, "candidatesTokenCount": 4, "cachedContentTokenCount": -1,
        "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 7}, None],
        "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 3}, {"modality": "AUDIO"}],
    }  # fmt: skip
    assert gemini_usage.read_usage(json.dumps(told).encode()) == Usage(
        input_tokens=9, input_audio_tokens=7, output_tokens=4, output_image_tokens=3
    )


def test_a_batch_of_responses_tells_what_it_wrote_to_a_cache() -> None:
    details = {"cached_tokens": 2, "cache_write_tokens": 5}
    usage = {"input_tokens": 9, "input_tokens_details": details, "output_tokens": 4}
    line = {"response": {"status_code": 200, "body": {"usage": usage}}}
    assert usage_of_line(json.dumps(line).encode()) == Usage(
        input_tokens=9, cache_read_tokens=2, cache_write_tokens=5, output_tokens=4, service_tier="batch"
    )


_COUNTS = st.one_of(
    st.integers(-2, 60), st.sampled_from([5.0, 1.5, True, None, "5", [], 10**9, 10**9 + 1, 10**23])
)
_DETAILS = st.none() | st.dictionaries(st.sampled_from(["cached_tokens", "reasoning_tokens", "x"]), _COUNTS)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": _COUNTS,
            "completion_tokens": _COUNTS,
            "total_tokens": st.sampled_from(["sum", "5.0"]) | _COUNTS,
            "prompt_tokens_details": _DETAILS,
            "completion_tokens_details": _DETAILS,
        },
    ),
    st.booleans(),
)
def test_a_usage_object_that_is_read_once_is_told_as_one_that_is_read_again(
    counts: dict[str, Any], settled_so: bool
) -> None:
    if counts.get("total_tokens") == "sum":
        parts = [counts.get("prompt_tokens"), counts.get("completion_tokens")]
        counts["total_tokens"] = sum(part for part in parts if isinstance(part, int))
    raw = json.dumps(counts).encode()
    once = openai_usage.ReportedUsage(raw)
    assert once.usage == openai_usage.read_usage(raw)
    usage = once.usage if settled_so and once.usage is not None else SETTLED
    assert once.encode(usage) == openai_usage.encode_usage(None if once.usage is None else raw, usage)
