"""The errors of Gemini, before and after the first byte. Source: wire formats page `errors.md`.

`error` is the first key and `code` an integer: the SDKs read an event without either as an answer, or die of it.
"""

import math
from typing import Any

import msgspec

from sluicegate.errors import SluicegateError
from sluicegate.wire.sse import frame

_STATUS_AND_WORD: dict[str, tuple[int, str]] = {
    "bad_request": (400, "INVALID_ARGUMENT"),
    "unsupported_feature": (400, "INVALID_ARGUMENT"),
    "context_too_long": (400, "INVALID_ARGUMENT"),
    "content_blocked": (400, "INVALID_ARGUMENT"),
    "unauthenticated": (401, "UNAUTHENTICATED"),
    "balance_exhausted": (402, "FAILED_PRECONDITION"),
    "forbidden": (403, "PERMISSION_DENIED"),
    "model_unknown": (404, "NOT_FOUND"),
    "not_found": (404, "NOT_FOUND"),
    "path_unknown": (404, "NOT_FOUND"),
    "request_running": (409, "ABORTED"),
    "already_served": (422, "FAILED_PRECONDITION"),
    "request_timeout": (408, "DEADLINE_EXCEEDED"),
    "too_large": (413, "INVALID_ARGUMENT"),
    "rate_limited": (429, "RESOURCE_EXHAUSTED"),
    "upstream_budget": (503, "UNAVAILABLE"),
    "overloaded": (503, "UNAVAILABLE"),
    "unavailable": (503, "UNAVAILABLE"),
    "upstream_error": (503, "UNAVAILABLE"),
    "upstream_auth": (503, "UNAVAILABLE"),
    "timeout": (504, "DEADLINE_EXCEEDED"),
    "internal": (500, "INTERNAL"),
    "not_implemented": (501, "UNIMPLEMENTED"),
}
_WAITS = frozenset({"rate_limited", "overloaded", "unavailable", "request_running"})
_TYPES = "type.googleapis.com/google.rpc."
_BLOCKED = (
    b'{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},'
    b'"usageMetadata":{"promptTokenCount":0,"totalTokenCount":0}}'
)
"""How this format says that the whole request was refused for its content."""


def encode_error(error: SluicegateError, request_id: str) -> tuple[int, bytes]:
    """Return the status and the JSON body of an error answer; a refused prompt is an answer with status 200."""
    if error.kind == "content_blocked":
        return 200, _BLOCKED
    return status_and_word(error)[0], error_object(error)


def status_and_word(error: SluicegateError) -> tuple[int, str]:
    """Return what the client is told; kinds of the HTTP layer keep their status."""
    return _STATUS_AND_WORD.get(error.kind, (error.status, "INVALID_ARGUMENT"))


def error_event(error: SluicegateError, request_id: str) -> bytes:
    """Write the event that ends a stream; nothing follows it, and it works as the very first one too."""
    return frame(error_object(error))


def error_object(error: SluicegateError) -> bytes:
    """Write an error object."""
    status, word = status_and_word(error)
    told: dict[str, Any] = {
        "code": status if 400 <= status <= 599 else 500,
        "message": error.message or "The request failed.",
        "status": word,
    }
    details = _details(error)
    if details:
        told["details"] = details
    return msgspec.json.encode({"error": told})


def _details(error: SluicegateError) -> list[dict[str, Any]]:
    if error.kind == "unauthenticated":
        return [{"@type": _TYPES + "ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
    if error.kind in _WAITS and error.retry_after_s is not None:
        wait_s = min(max(math.ceil(error.retry_after_s), 1), 59)
        return [{"@type": _TYPES + "RetryInfo", "retryDelay": f"{wait_s}s"}]
    if error.param is not None and status_and_word(error)[0] == 400:
        violation = {"field": error.param, "description": error.message}
        return [{"@type": _TYPES + "BadRequest", "fieldViolations": [violation]}]
    return []
