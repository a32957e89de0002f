"""Chat Completions: everything that its codec offers. Source: wire formats page `chat-completions.md`."""

from functools import partial

from sluicegate.errors import SluicegateError
from sluicegate.wire import openai_errors
from sluicegate.wire.continuous_usage import every_event
from sluicegate.wire.openai_chat import ChatStream
from sluicegate.wire.openai_chat_answer import ChatAnswer
from sluicegate.wire.openai_chat_answer_decoder import ChatStreamDecoder, decode_answer
from sluicegate.wire.openai_chat_answer_encoder import ChatStreamEncoder, encode_answer
from sluicegate.wire.openai_chat_identity import Identity
from sluicegate.wire.openai_chat_request import ChatRequest
from sluicegate.wire.openai_chat_request_decoder import decode_request
from sluicegate.wire.openai_chat_request_encoder import encode_request, tool_names
from sluicegate.wire.openai_chat_sound import SoundingChatAnswer, SoundingChatStream
from sluicegate.wire.openai_usage import write_usage
from sluicegate.wire.translation import Asked, Codec, PassOptions, UsageMark

KEEPALIVE = b": keep-alive\n\n"


def read_request(body: bytes, path_model: str | None = None, path_streams: bool = False) -> ChatRequest:
    """Read a request's edges.

    Args:
        path_model, path_streams: of no matter here: the body says both.
    Raises:
        BadRequest: what is wrong, and `param` says where.
    """
    return ChatRequest(body)


def pass_stream(asked: Asked, options: PassOptions) -> ChatStream:
    """Return the codec of a stream from a chat provider to a chat client."""
    make = ChatStream if asked.close_id is None else partial(SoundingChatStream, asked.close_id)
    return make(
        _identity(asked),
        count_text=options.count_text,
        keep_null_usage=options.usage_shown,
        repair=options.repair,
        choices=options.choices,
        max_event_bytes=options.max_event_bytes,
    )


def pass_answer(asked: Asked, body: bytes) -> ChatAnswer:
    """Read a chat provider's plain answer for a chat client. Raises DecodeError."""
    if asked.close_id is not None:
        return SoundingChatAnswer(asked.close_id, _identity(asked), body)
    return ChatAnswer(_identity(asked), body)


def _identity(asked: Asked) -> Identity:
    return Identity(asked.model, "chatcmpl-" + asked.id, asked.created, asked.hide_provider)


def error_event(error: SluicegateError, request_id: str) -> bytes:
    """Write the terminal error event; the format has no place for the request's id."""
    return openai_errors.error_event(error)


CODEC: Codec = Codec(
    name="chat",
    vendor="openai",
    joins_usage=False,
    decode_request=decode_request,
    encode_request=encode_request,
    stream_decoder=ChatStreamDecoder,
    decode_answer=decode_answer,
    stream_encoder=ChatStreamEncoder,
    encode_answer=encode_answer,
    read_request=read_request,
    pass_stream=pass_stream,
    pass_answer=pass_answer,
    encode_error=openai_errors.encode_error,
    error_event=error_event,
    usage_mark=UsageMark(b"usage", write_usage, every_event),
    keepalive=KEEPALIVE,
    tool_names=tool_names,
)
