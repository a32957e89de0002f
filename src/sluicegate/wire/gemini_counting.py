"""`countTokens` of Gemini: its request and its answer, both ways. Source: wire formats page README, "Routes"."""

from typing import Any

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import Request
from sluicegate.wire.gemini_chunk import FORMAT
from sluicegate.wire.gemini_fields import Fields
from sluicegate.wire.gemini_request_decoder import decode_fields
from sluicegate.wire.gemini_request_encoder import encode_request
from sluicegate.wire.openai_usage import count
from sluicegate.wire.translation import Notes


def decode_count_request(body: bytes, notes: Notes, path_model: str | None = None) -> Request:
    """Decode a client's question: a whole request inside `generateContentRequest`, or its fields at the top.

    Raises:
        BadRequest: `param` is the path of the field at fault.
        UnsupportedFeature: refused by policy.
    """
    top = Fields(body, "")
    return decode_fields(top.object("generateContentRequest") or top, notes, path_model)


def encode_count_request(request: Request, model: str, can: Capabilities, notes: Notes) -> bytes:
    """Encode the question for a provider of this format, which wants the model's name inside again."""
    inner = encode_request(request, model, can, notes)
    name = msgspec.json.encode(model if "/" in model else f"models/{model}")
    return b'{"generateContentRequest":{"model":%b,%b}' % (name, inner[1:])


def encode_count_answer(tokens: int) -> bytes:
    """Write the answer for a client."""
    return b'{"totalTokens":%d}' % tokens


def decode_count_answer(body: bytes) -> int:
    """Read a provider's answer.

    Raises:
        DecodeError: it tells no count.
    """
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        value = None
    tokens = count(value.get("totalTokens")) if isinstance(value, dict) else None
    if tokens is None:
        raise DecodeError(FORMAT, None, "the answer tells no count of tokens")
    return tokens
