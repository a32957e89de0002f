"""generateContent, Gemini's format: everything that its codec offers. Source: wire formats page `gemini.md`."""

from sluicegate.wire.continuous_usage import every_event
from sluicegate.wire.gemini_answer_decoder import GeminiAnswerDecoder, decode_answer
from sluicegate.wire.gemini_answer_encoder import GeminiStreamEncoder, encode_answer
from sluicegate.wire.gemini_errors import encode_error, error_event
from sluicegate.wire.gemini_passed_answer import GeminiAnswer
from sluicegate.wire.gemini_passed_request import GeminiRequest
from sluicegate.wire.gemini_passing import GeminiStream
from sluicegate.wire.gemini_request_decoder import decode_request
from sluicegate.wire.gemini_request_encoder import encode_request, tool_names
from sluicegate.wire.gemini_usage import write_usage
from sluicegate.wire.resumption import gemini_resumption
from sluicegate.wire.translation import Codec, UsageMark

KEEPALIVE = b"\n"
"""Anything more than a bare line feed kills the vendor's SDKs; inside an array it is white space."""


def read_request(body: bytes, path_model: str | None, path_streams: bool) -> GeminiRequest:
    """Read a request's edges.

    Args:
        path_model: the model that the path names.
        path_streams: its method is `streamGenerateContent`.
    Raises:
        BadRequest: what is wrong, and `param` says where.
    """
    return GeminiRequest(body, path_model or "", stream=path_streams)


CODEC: Codec = Codec(
    name="gemini",
    vendor="google",
    tells_searches=True,
    joins_usage=True,
    decode_request=decode_request,
    encode_request=encode_request,
    stream_decoder=GeminiAnswerDecoder,
    decode_answer=decode_answer,
    stream_encoder=GeminiStreamEncoder,
    encode_answer=encode_answer,
    read_request=read_request,
    pass_stream=GeminiStream,
    pass_answer=GeminiAnswer,
    encode_error=encode_error,
    error_event=error_event,
    usage_mark=UsageMark(b"usageMetadata", write_usage, every_event),
    keepalive=KEEPALIVE,
    reads_arrays=True,
    resumption=gemini_resumption,
    tool_names=tool_names,
)
