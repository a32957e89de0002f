"""`input_tokens` of Responses: its request and its answer, both ways. Source: wire formats page README, "Routes"."""

from typing import Any

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import Request
from sluicegate.wire import json_edit
from sluicegate.wire.openai_responses_event import FORMAT
from sluicegate.wire.openai_responses_request import ResponsesRequest
from sluicegate.wire.openai_responses_request_decoder import decode_request
from sluicegate.wire.openai_responses_request_encoder import encode_request
from sluicegate.wire.openai_usage import count
from sluicegate.wire.translation import Notes

_COUNTED = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"}
)
"""What a provider takes here of a whole request."""


def read_count_request(body: bytes) -> ResponsesRequest:
    """Read the edges of a client's question. Raises BadRequest."""
    return ResponsesRequest(body)


def decode_count_request(body: bytes, notes: Notes, path_model: str | None = None) -> Request:
    """Decode a client's question, which is a request like any other.

    Raises:
        BadRequest: `param` is the path of the field at fault.
        UnsupportedFeature: refused by policy.
    """
    return decode_request(body, notes, path_model)


def encode_count_request(request: Request, model: str, can: Capabilities, notes: Notes) -> bytes:
    """Encode the question for a provider of this format."""
    body = encode_request(request, model, can, notes)
    unwanted = {member.key for member in json_edit.members(body)} - _COUNTED
    return json_edit.changed(body, {}, unwanted)


def encode_count_answer(tokens: int) -> bytes:
    """Write the answer for a client."""
    return b'{"object":"response.input_tokens","input_tokens":%d}' % tokens


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
