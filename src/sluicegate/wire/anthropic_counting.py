"""Counting tokens in Messages: request and answer, both ways. Source: wire formats page `anthropic-messages.md`."""

from typing import Any

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import Request
from sluicegate.wire import json_edit
from sluicegate.wire.anthropic_event import FORMAT
from sluicegate.wire.anthropic_passed_request import AnthropicRequest
from sluicegate.wire.anthropic_request_decoder import decode_request
from sluicegate.wire.anthropic_request_encoder import encode_request
from sluicegate.wire.openai_usage import count
from sluicegate.wire.translation import Notes

_ANSWER_FIELDS = frozenset(
    {"max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier"}
)
"""What shapes an answer and counts for nothing; the provider refuses it here."""


def read_count_request(body: bytes) -> AnthropicRequest:
    """Read the edges of a client's question. Raises BadRequest."""
    return AnthropicRequest(body, counting=True)


def decode_count_request(body: bytes, notes: Notes, path_model: str | None = None) -> Request:
    """Decode a client's question, which needs no limit.

    Raises:
        BadRequest: `param` is the path of the field at fault.
        UnsupportedFeature: refused by policy.
    """
    return decode_request(body, notes, path_model, counting=True)


def encode_count_request(request: Request, model: str, can: Capabilities, notes: Notes) -> bytes:
    """Encode the question for a provider of this format."""
    return json_edit.changed(encode_request(request, model, can, notes), {}, _ANSWER_FIELDS)


def encode_count_answer(tokens: int) -> bytes:
    """Write the answer for a client."""
    return b'{"input_tokens":%d}' % tokens


def decode_count_answer(body: bytes) -> int:
    """Read a provider's answer.

    Raises:
        DecodeError: it tells no count.
    """
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        value = None
    tokens = count(value.get("input_tokens")) if isinstance(value, dict) else None
    if tokens is None:
        raise DecodeError(FORMAT, None, "the answer tells no count of tokens")
    return tokens
