"""What is read of a legacy completion, whole or a chunk of its stream: both have one shape.

Source: wire formats page `completions.md`, "Response" and "Stream".
"""

from typing import Any

import msgspec
from msgspec import UNSET

from sluicegate.errors import DecodeError
from sluicegate.messages import StreamError
from sluicegate.wire.openai_finish import right_reason
from sluicegate.wire.upstream_errors import is_nothing, read_stream_error

FORMAT = "completions"
OBJECT = "text_completion"


class Choice(msgspec.Struct, gc=False):
    text: Any = None
    index: Any = None
    logprobs: Any = None
    finish_reason: Any = None
    stop_reason: Any = None


class Chunk(msgspec.Struct, gc=False):
    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    type: Any = None
    choices: list[Choice] | None = None
    usage: msgspec.Raw | msgspec.UnsetType = UNSET
    error: msgspec.Raw | msgspec.UnsetType = UNSET


_decode = msgspec.json.Decoder(Chunk).decode


def decode_chunk(payload: bytes) -> Chunk:
    """Decode a completion. Raises DecodeError."""
    try:
        return _decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise DecodeError(FORMAT, None, "this is not a text completion") from None


def error_of(payload: bytes, chunk: Chunk) -> StreamError | None:
    """Return the error that a provider reports instead of a completion, or beside one."""
    if chunk.error is not UNSET and not is_nothing(bytes(chunk.error)):
        return read_stream_error(bytes(chunk.error))
    if not chunk.choices and (chunk.type == "error" or chunk.object == "error"):
        return read_stream_error(payload)
    if any(choice.finish_reason == "error" for choice in chunk.choices or ()):
        return StreamError(status=500, message="the provider reported an error")
    return None


def known_reason(reason: object) -> str | None:
    """Return the finish reason as this format has it; None where there is none yet."""
    if not isinstance(reason, str) or not reason:
        return None
    right = right_reason(reason, called=False)
    return right if right in ("stop", "length", "content_filter") else "stop"


def index_of(choice: Choice, place: int) -> int:
    """Return a choice's number: by its place where it has none."""
    return choice.index if type(choice.index) is int and choice.index >= 0 else place
