"""The error bodies of the three OpenAI formats, before and after the first byte.

Source: wire formats page `errors.md`, cross-format mapping.
"""

import msgspec

from sluicegate.errors import SluicegateError

TYPES: dict[str, tuple[str, str | None]] = {
    "bad_request": ("invalid_request_error", None),
    "unsupported_feature": ("invalid_request_error", "unsupported_parameter"),
    "context_too_long": ("invalid_request_error", "context_length_exceeded"),
    "content_blocked": ("invalid_request_error", "content_policy_violation"),
    "unauthenticated": ("invalid_request_error", "invalid_api_key"),
    "forbidden": ("request_forbidden", None),
    "model_unknown": ("invalid_request_error", "model_not_found"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "rate_limited": ("rate_limit_error", "rate_limit_exceeded"),
    "balance_exhausted": ("insufficient_quota", "insufficient_balance"),
    "upstream_budget": ("service_unavailable_error", "upstream_budget"),
    "overloaded": ("service_unavailable_error", "server_is_overloaded"),
    "unavailable": ("service_unavailable_error", "gate_unavailable"),
    "upstream_error": ("server_error", "upstream_error"),
    "upstream_auth": ("server_error", "upstream_auth"),
    "timeout": ("server_error", "timeout"),
    "internal": ("server_error", None),
}
"""Kind to (type, code); kinds of the HTTP layer are their own code."""


def type_and_code(error: SluicegateError) -> tuple[str, str | None]:
    """Return the `type` and `code` an OpenAI client is told."""
    return TYPES.get(error.kind, ("invalid_request_error", error.kind))


def error_body(error: SluicegateError) -> bytes:
    """Write the JSON body of an error answer; all four keys are always there."""
    kind, code = type_and_code(error)
    return msgspec.json.encode(
        {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}
    )


def encode_error(error: SluicegateError, request_id: str) -> tuple[int, bytes]:
    """Return the status and the body of an error answer, which has no place for the request's id."""
    return error.status, error_body(error)


def error_event(error: SluicegateError) -> bytes:
    """Write the error event of a chat or completions stream: nested, alone in its event, and no `[DONE]` after it."""
    return b"data: " + error_body(error) + b"\n\n"
