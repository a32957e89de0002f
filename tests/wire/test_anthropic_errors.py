"""Errors and request headers of Messages: every kind in the format's own shape, versions and betas as they must be."""

import json

import pytest

from sluicegate.errors import (
    BadRequest,
    Forbidden,
    HeadersTooLarge,
    InsufficientBalance,
    InternalError,
    MethodNotAllowed,
    ModelNotFound,
    Overloaded,
    PathUnknown,
    RateLimited,
    SluicegateError,
    StreamCut,
    TooLarge,
    Unauthenticated,
    UnsupportedFeature,
    UpstreamTimeout,
)
from sluicegate.wire.anthropic import CODEC
from sluicegate.wire.anthropic_headers import upstream_headers
from sluicegate.wire.upstream_errors import from_response

FAULTS: list[tuple[SluicegateError, int, str]] = [
    (BadRequest("model: Field required", param="model"), 400, "invalid_request_error"),
    (UnsupportedFeature("x", param="n"), 400, "invalid_request_error"),
    (Unauthenticated("x"), 401, "authentication_error"),
    (InsufficientBalance("x"), 402, "billing_error"),
    (Forbidden("x"), 403, "permission_error"),
    (ModelNotFound("x"), 404, "not_found_error"),
    (PathUnknown("x"), 404, "not_found_error"),
    (MethodNotAllowed("x", "POST"), 405, "invalid_request_error"),
    (TooLarge("x"), 413, "request_too_large"),
    (HeadersTooLarge("x"), 431, "invalid_request_error"),
    (RateLimited("x", 3.0), 429, "rate_limit_error"),
    (InternalError("x"), 500, "api_error"),
    (StreamCut("x"), 502, "api_error"),
    (Overloaded("x"), 503, "api_error"),
    (UpstreamTimeout("x", "idle"), 504, "timeout_error"),
    (from_response(529, {}, b""), 529, "overloaded_error"),
    (from_response(503, {}, b""), 529, "overloaded_error"),
    (from_response(402, {}, b""), 529, "overloaded_error"),
    (from_response(401, {}, b""), 502, "api_error"),
    (from_response(404, {}, b""), 502, "api_error"),
    (from_response(429, {}, b""), 429, "rate_limit_error"),
    (from_response(400, {}, b""), 400, "invalid_request_error"),
]


@pytest.mark.parametrize(("error", "status", "type_"), FAULTS, ids=lambda value: getattr(value, "kind", None))
def test_e1_e2_every_kind_has_its_status_and_type(error: SluicegateError, status: int, type_: str) -> None:
    told, body = CODEC.encode_error(error, "req_1")
    assert told == status
    value = json.loads(body)
    assert value == {
        "type": "error",
        "error": {"type": type_, "message": error.message},
        "request_id": "req_1",
    }
    assert CODEC.error_event(error, "req_1") == b"event: error\ndata: " + body + b"\n\n"


def test_a_prompt_that_is_too_long_is_said_so_that_agents_notice() -> None:
    body = b'{"error":{"message":"maximum context is 9 tokens","code":"context_length_exceeded"}}'
    told = json.loads(CODEC.encode_error(from_response(400, {}, body), "r")[1])["error"]["message"]
    assert told.startswith("prompt is too long")
    own = b'{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}'
    told = json.loads(CODEC.encode_error(from_response(400, {}, own), "r")[1])["error"]["message"]
    assert told == "prompt is too long: 9 tokens > 8 maximum"


@pytest.mark.parametrize(
    ("headers", "deny", "lines"),
    [
        ([], [], [b"anthropic-version: 2023-06-01"]),
        ([(b"anthropic-version", b"2026-10-21")], [], [b"anthropic-version: 2026-10-21"]),
        (
            [(b"anthropic-beta", b"x-2099-01-01, interleaved-thinking-2025-05-14"), (b"anthropic-beta", b"b")],
            [],
            [b"anthropic-version: 2023-06-01", b"anthropic-beta: x-2099-01-01,interleaved-thinking-2025-05-14,b"],
        ),
        (
            [(b"anthropic-beta", b"x-2099-01-01,b,b")],
            ["x-2099-*"],
            [b"anthropic-version: 2023-06-01", b"anthropic-beta: b"],
        ),
        ([(b"anthropic-beta", b"x,b")], ["x", "b"], [b"anthropic-version: 2023-06-01"]),
        ([(b"anthropic-version", b"1\x00evil")], [], [b"anthropic-version: 2023-06-01"]),
        (
            [(b"anthropic-workspace-id", b"w_1"), (b"authorization", b"Bearer sg-x"), (b"x-api-key", b"sg-x"),
             (b"cookie", b"a=b"), (b"anthropic-dangerous-direct-browser-access", b"true")],
            [],
            [b"anthropic-version: 2023-06-01", b"anthropic-workspace-id: w_1"],
        ),
    ],
)  # fmt: skip
def test_m3_b040_b072_headers_on_the_same_format(
    headers: list[tuple[bytes, bytes]], deny: list[str], lines: list[bytes]
) -> None:
    assert upstream_headers(b"{}", headers, deny) == b"".join(line + b"\r\n" for line in lines)


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b'{"model":"m"}', b"2026-10-21"),
        (b'{"model":"m","metadata":{"top_k":1}}', b"2026-10-21"),
        (b'{"model":"m","temperature":1}', b"2023-06-01"),
        (b'{"top_p":0.5}', b"2023-06-01"),
        (b'{"top_k":3}', b"2023-06-01"),
        (b"odd", b"2023-06-01"),
    ],
)
def test_the_version_across_formats_is_the_one_that_takes_the_body(body: bytes, version: bytes) -> None:
    assert upstream_headers(body) == b"anthropic-version: " + version + b"\r\n"
