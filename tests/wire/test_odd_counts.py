"""Counts below zero, wherever a provider's usage has them, never reach a client."""

import json

import pytest

from sluicegate.messages import Usage
from sluicegate.wire import anthropic_usage, gemini_usage, openai_responses_usage, openai_usage
from sluicegate.wire.openai_usage import without_negatives

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
