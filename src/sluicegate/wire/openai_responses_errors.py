"""The errors of Responses, before and after the first byte. Source: wire formats pages `errors.md` and `responses.md`.

In a stream one event carries both known shapes, nested and flat, and `response.failed` follows it: the Python client
stops at the first, clients that follow the documented shape at the second.
"""

import msgspec

from sluicegate.errors import SluicegateError
from sluicegate.wire import openai_errors
from sluicegate.wire.openai_responses_envelope import Envelope
from sluicegate.wire.sse import frame_named


def encode_error(error: SluicegateError, request_id: str) -> tuple[int, bytes]:
    """Return the status and the JSON body of an error answer."""
    return error.status, openai_errors.error_body(error)


def error_event(error: SluicegateError, request_id: str) -> bytes:
    """Write the events that end a stream which has not begun; no response has an id or a model yet."""
    return error_events(error, 0, Envelope("resp_" + request_id, 0, ""))


def error_events(error: SluicegateError, number: int, envelope: Envelope) -> bytes:
    """Write the events that end a stream; items and parts that are open stay so.

    Args:
        number: the next sequence number.
    """
    kind, code = openai_errors.type_and_code(error)
    code = code or kind
    message = error.message or "The request failed."
    told = {"type": kind, "code": code, "message": message, "param": error.param}
    event = {"type": "error", "code": code, "message": message, "param": error.param, "error": told}
    failed = envelope.write("failed", error=msgspec.json.encode({"code": code, "message": message}))
    return frame_named(b"error", msgspec.json.encode(event | {"sequence_number": number})) + frame_named(
        b"response.failed",
        b'{"type":"response.failed","response":%b,"sequence_number":%d}' % (failed, number + 1),
    )
