"""Messages, Anthropic's format: everything that its codec offers. Source: wire formats page `anthropic-messages.md`."""

from sluicegate.wire.anthropic_answer_decoder import AnthropicStreamDecoder, decode_answer
from sluicegate.wire.anthropic_answer_encoder import PING, AnthropicStreamEncoder, encode_answer
from sluicegate.wire.anthropic_errors import encode_error, error_event
from sluicegate.wire.anthropic_passed_answer import AnthropicAnswer
from sluicegate.wire.anthropic_passed_request import AnthropicRequest
from sluicegate.wire.anthropic_passing import AnthropicStream
from sluicegate.wire.anthropic_request_decoder import decode_request
from sluicegate.wire.anthropic_request_encoder import encode_request, tool_names
from sluicegate.wire.anthropic_usage import write_usage
from sluicegate.wire.continuous_usage import block_delta
from sluicegate.wire.resumption import anthropic_resumption
from sluicegate.wire.translation import Codec, UsageMark


def read_request(body: bytes, path_model: str | None = None, path_streams: bool = False) -> AnthropicRequest:
    """Read a request's edges.

    Args:
        path_model, path_streams: of no matter here: the body says both.
    Raises:
        BadRequest: what is wrong, and `param` says where.
    """
    return AnthropicRequest(body)


CODEC: Codec = Codec(
    name="messages",
    vendor="anthropic",
    tells_searches=True,
    joins_usage=True,
    decode_request=decode_request,
    encode_request=encode_request,
    stream_decoder=AnthropicStreamDecoder,
    decode_answer=decode_answer,
    stream_encoder=AnthropicStreamEncoder,
    encode_answer=encode_answer,
    read_request=read_request,
    pass_stream=AnthropicStream,
    pass_answer=AnthropicAnswer,
    encode_error=encode_error,
    error_event=error_event,
    usage_mark=UsageMark(b"usage", write_usage, block_delta),
    keepalive=PING,
    resumption=anthropic_resumption,
    tool_names=tool_names,
)
