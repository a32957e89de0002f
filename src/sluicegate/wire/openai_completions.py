"""Legacy Completions: everything that its codec offers. Source: wire formats page `completions.md`."""

from sluicegate.errors import SluicegateError
from sluicegate.wire import openai_errors
from sluicegate.wire.continuous_usage import every_event
from sluicegate.wire.openai_chat_codec import KEEPALIVE
from sluicegate.wire.openai_completions_answer import CompletionAnswer
from sluicegate.wire.openai_completions_answer_decoder import CompletionStreamDecoder, decode_answer
from sluicegate.wire.openai_completions_answer_encoder import CompletionStreamEncoder, encode_answer
from sluicegate.wire.openai_completions_passing import CompletionStream
from sluicegate.wire.openai_completions_request import CompletionRequest
from sluicegate.wire.openai_completions_request_decoder import decode_request
from sluicegate.wire.openai_completions_request_encoder import encode_request
from sluicegate.wire.openai_usage import write_usage
from sluicegate.wire.translation import Codec, UsageMark


def read_request(body: bytes, path_model: str | None = None, path_streams: bool = False) -> CompletionRequest:
    """Read a request's edges.

    Args:
        path_model, path_streams: of no matter here: the body says both.
    Raises:
        BadRequest: what is wrong, and `param` says where.
    """
    return CompletionRequest(body)


def error_event(error: SluicegateError, request_id: str) -> bytes:
    """Write the terminal error event; the format has no place for the request's id."""
    return openai_errors.error_event(error)


CODEC: Codec = Codec(
    name="completions",
    vendor="openai",
    joins_usage=False,
    decode_request=decode_request,
    encode_request=encode_request,
    stream_decoder=CompletionStreamDecoder,
    decode_answer=decode_answer,
    stream_encoder=CompletionStreamEncoder,
    encode_answer=encode_answer,
    read_request=read_request,
    pass_stream=CompletionStream,
    pass_answer=CompletionAnswer,
    encode_error=openai_errors.encode_error,
    error_event=error_event,
    usage_mark=UsageMark(b"usage", write_usage, every_event),
    keepalive=KEEPALIVE,
)
