"""Responses, OpenAI's newer format: everything that its codec offers. Source: wire formats page `responses.md`."""

from sluicegate.wire.continuous_usage import responses_delta
from sluicegate.wire.openai_responses_answer_decoder import ResponsesStreamDecoder, decode_answer
from sluicegate.wire.openai_responses_answer_encoder import KEEPALIVE, ResponsesStreamEncoder, encode_answer
from sluicegate.wire.openai_responses_errors import encode_error, error_event
from sluicegate.wire.openai_responses_passed_answer import ResponsesAnswer
from sluicegate.wire.openai_responses_passing import ResponsesStream
from sluicegate.wire.openai_responses_request import ResponsesRequest
from sluicegate.wire.openai_responses_request_decoder import decode_request
from sluicegate.wire.openai_responses_request_encoder import encode_request
from sluicegate.wire.openai_responses_tools import tool_names
from sluicegate.wire.openai_responses_usage import write_usage
from sluicegate.wire.translation import Codec, UsageMark


def read_request(body: bytes, path_model: str | None = None, path_streams: bool = False) -> ResponsesRequest:
    """Read a request's edges.

    Args:
        path_model, path_streams: of no matter here: the body says both.
    Raises:
        BadRequest: what is wrong, and `param` says where.
    """
    return ResponsesRequest(body)


CODEC: Codec = Codec(
    name="responses",
    vendor="openai",
    tells_searches=True,
    joins_usage=True,
    decode_request=decode_request,
    encode_request=encode_request,
    stream_decoder=ResponsesStreamDecoder,
    decode_answer=decode_answer,
    stream_encoder=ResponsesStreamEncoder,
    encode_answer=encode_answer,
    read_request=read_request,
    pass_stream=ResponsesStream,
    pass_answer=ResponsesAnswer,
    encode_error=encode_error,
    error_event=error_event,
    usage_mark=UsageMark(b"usage", write_usage, responses_delta),
    keepalive=KEEPALIVE,
    tool_names=tool_names,
)
