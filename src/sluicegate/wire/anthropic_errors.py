"""The errors of Messages, before and after the first byte. Source: wire formats page `errors.md`.

In a stream the status is 200 whatever happens, so the SDKs tell causes apart by `error.type` alone.
"""

import msgspec

from sluicegate.errors import SluicegateError
from sluicegate.wire.sse import frame_named

_STATUS_AND_TYPE: dict[str, tuple[int, str]] = {
    "bad_request": (400, "invalid_request_error"),
    "unsupported_feature": (400, "invalid_request_error"),
    "context_too_long": (400, "invalid_request_error"),
    "content_blocked": (400, "invalid_request_error"),
    "unauthenticated": (401, "authentication_error"),
    "balance_exhausted": (402, "billing_error"),
    "forbidden": (403, "permission_error"),
    "model_unknown": (404, "not_found_error"),
    "not_found": (404, "not_found_error"),
    "path_unknown": (404, "not_found_error"),
    "request_timeout": (408, "timeout_error"),
    "too_large": (413, "request_too_large"),
    "rate_limited": (429, "rate_limit_error"),
    "upstream_budget": (529, "overloaded_error"),
    "overloaded": (529, "overloaded_error"),
    "unavailable": (503, "api_error"),
    "upstream_error": (502, "api_error"),
    "upstream_auth": (502, "api_error"),
    "timeout": (504, "timeout_error"),
    "internal": (500, "api_error"),
    "not_implemented": (501, "api_error"),
}
_TOO_LONG = "prompt is too long"
"""How clients recognise it: they shorten the conversation and ask again."""


def status_and_type(error: SluicegateError) -> tuple[int, str]:
    """Return what the client is told; kinds of the HTTP layer keep their status."""
    return _STATUS_AND_TYPE.get(error.kind, (error.status, "invalid_request_error"))


def encode_error(error: SluicegateError, request_id: str) -> tuple[int, bytes]:
    """Return the status and the JSON body of an error answer."""
    status, _ = status_and_type(error)
    return status, _body(error, request_id)


def error_event(error: SluicegateError, request_id: str) -> bytes:
    """Write the event that ends a stream; nothing follows it, and it works as the very first one too."""
    return frame_named(b"error", _body(error, request_id))


def _body(error: SluicegateError, request_id: str) -> bytes:
    message = error.message or "The request failed."
    if error.kind == "context_too_long" and not message.startswith(_TOO_LONG):
        message = f"{_TOO_LONG}: {message}"
    told = {"type": status_and_type(error)[1], "message": message}
    return msgspec.json.encode({"type": "error", "error": told, "request_id": request_id})
