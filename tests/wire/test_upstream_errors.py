"""Provider errors into kinds: every row of wire/errors.md, what the client is told of them, and what it never is."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import RateLimited, UpstreamStatus
from sluicegate.messages import StreamError
from sluicegate.wire.openai_errors import error_body, error_event
from sluicegate.wire.upstream_errors import (
    from_response,
    from_stream_error,
    is_nothing,
    read_stream_error,
    redact,
    retry_after_s,
)


def openai(message: str = "theirs", **more: Any) -> bytes:
    return json.dumps(
        {"error": {"message": message, "type": None, "param": None, "code": None, **more}}
    ).encode()


def anthropic(kind: str, **more: Any) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": "theirs", **more}}).encode()


GEMINI_KEY = json.dumps([{"error": {"code": 400, "message": "theirs", "status": "INVALID_ARGUMENT",
             "details": [{"@type": "google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]}}]).encode()  # fmt: skip

TABLE = [
    # status, body, kind, status told, retry, the provider's message is kept
    (400, openai(code="context_length_exceeded"), "context_too_long", 400, "never", True),
    (400, openai("prompt is too long: 9 tokens"), "context_too_long", 400, "never", True),
    (400, openai("the maximum context of this model"), "context_too_long", 400, "never", True),
    (400, openai(code="content_policy_violation"), "content_blocked", 400, "never", True),
    (400, openai(code="content_filter"), "content_blocked", 400, "never", True),
    (400, openai(), "bad_request", 400, "never", True),
    (422, openai(), "bad_request", 400, "never", True),
    (400, anthropic("invalid_request_error"), "bad_request", 400, "never", True),
    (400, GEMINI_KEY, "upstream_auth", 502, "elsewhere", False),
    (401, openai(code="invalid_api_key"), "upstream_auth", 502, "elsewhere", False),
    (403, openai(), "upstream_auth", 502, "elsewhere", False),
    (402, openai(), "upstream_budget", 503, "elsewhere", False),
    (429, openai(type="insufficient_quota"), "upstream_budget", 503, "elsewhere", False),
    (429, openai(code="credit_balance_exhausted"), "upstream_budget", 503, "elsewhere", False),
    (429, openai(code="project_spend_limit_exceeded"), "upstream_budget", 503, "elsewhere", False),
    (429, openai(code="organization_spend_limit_exceeded"), "upstream_budget", 503, "elsewhere", False),
    (429, openai(code="organization_usage_limit_exceeded"), "upstream_budget", 503, "elsewhere", False),
    (429, anthropic("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
     "upstream_budget", 503, "elsewhere", False),
    (404, openai(code="model_not_found"), "upstream_error", 502, "elsewhere", False),
    (408, b"", "timeout", 504, "elsewhere", False),
    (409, openai(), "upstream_error", 502, "elsewhere", False),
    (425, openai(), "upstream_error", 502, "elsewhere", False),
    (413, openai(), "too_large", 413, "never", True),
    (429, openai(type="tokens", code="rate_limit_exceeded"), "rate_limited", 429, "elsewhere", True),
    (429, anthropic("rate_limit_error"), "rate_limited", 429, "elsewhere", True),
    (503, openai(), "overloaded", 503, "same", False),
    (529, anthropic("overloaded_error"), "overloaded", 503, "same", False),
    (500, openai(code="server_is_overloaded"), "overloaded", 503, "same", False),
    (504, b"", "timeout", 504, "elsewhere", False),
    (500, openai(), "upstream_error", 502, "elsewhere", False),
    (502, b"<html>bad gateway</html>", "upstream_error", 502, "elsewhere", False),
    (520, b"", "upstream_error", 502, "elsewhere", False),
    (302, b"", "upstream_error", 502, "elsewhere", False),
    (418, openai(), "upstream_error", 502, "elsewhere", False),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind", "told", "retry", "kept"), TABLE)
def test_the_whole_table_E1_B075(
    status: int, body: bytes, kind: str, told: int, retry: str, kept: bool
) -> None:
    error = from_response(status, {}, body)
    assert (error.kind, error.status, error.retry, error.upstream_status) == (kind, told, retry, status)
    theirs = body[body.find(b'"message": "') + 12 :].split(b'"')[0].decode() if body else ""
    assert (error.message == theirs) == kept
    assert error.message
    told_body = json.loads(error_body(error))["error"]
    assert set(told_body) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("status", [401, 402, 403, 404])
def test_the_operators_trouble_is_never_told_as_the_clients_E1(status: int) -> None:
    for body in (openai("your key sk-abcdef123456 is wrong"), b"<html>", b"", b"null", b"[]"):
        error = from_response(status, {}, body)
        assert error.status in (502, 503)
        assert "sk-" not in error.message


def test_overload_with_a_time_to_come_back_goes_elsewhere() -> None:
    error = from_response(503, {b"retry-after": b"2"}, openai())
    assert (error.retry, error.retry_after_s) == ("elsewhere", 2.0)


def test_param_is_kept_for_the_clients_own_faults() -> None:
    assert from_response(400, {}, openai(param="messages[3].role")).param == "messages[3].role"
    assert from_response(400, {}, openai(param=7)).param is None
    assert from_response(500, {}, openai(param="x")).param is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({b"retry-after": b"2"}, 2.0), ({b"retry-after": b"0.2"}, 1.0), ({b"retry-after": b"0"}, 1.0),
        ({b"retry-after": b"3600"}, 59.0), ({b"retry-after": b"1e999"}, 59.0), ({b"retry-after": b"nan"}, None),
        ({b"retry-after": b"-5"}, None), ({b"retry-after": b"Wed, 21 Oct 2026 07:28:00 GMT"}, 5.0),
        ({b"retry-after": b""}, 5.0), ({b"retry-after-ms": b"1500"}, 1.5), ({}, None),
        ({b"retry-after-ms": b"3000", b"retry-after": b"9"}, 3.0),
        ({b"retry-after-ms": b"soon", b"retry-after": b"9"}, 9.0), ({b"retry-after": b"\xff"}, 5.0),
    ],
)  # fmt: skip
def test_when_to_come_back_E5(headers: dict[bytes, bytes], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        ({"code": 502, "message": "m"}, 502), ({"code": "429", "message": "m"}, 429),
        ({"code": "rate_limit_exceeded", "message": "m"}, 429), ({"type": "overloaded_error", "message": "m"}, 529),
        ({"status": "UNAVAILABLE", "message": "m"}, 503), ({"code": True, "message": "m"}, 500),
        ({"code": 200, "message": "m"}, 500), ({"code": 1e3, "message": "m"}, 500), ({"code": [], "message": "m"}, 500),
        ({"code": "²²²", "message": "m"}, 500), ({"code": "4" * 5000, "message": "m"}, 500),
        ({"type": ["x"], "message": "m"}, 500), ({"type": "context_length_exceeded", "message": "m"}, 400), ("m", 500),
    ],
)  # fmt: skip
def test_errors_inside_a_200_count_as_the_status_they_stand_for(raw: Any, status: int) -> None:
    error = read_stream_error(json.dumps(raw).encode())
    assert (error.status, error.message) == (status, "m")
    assert isinstance(from_stream_error(error), UpstreamStatus)


def test_a_stream_error_is_judged_like_its_status() -> None:
    for status, kind in (
        (401, "upstream_auth"),
        (402, "upstream_budget"),
        (404, "upstream_error"),
        (429, "rate_limited"),
    ):
        assert from_stream_error(StreamError(status=status, message="m")).kind == kind


@pytest.mark.parametrize(
    ("raw", "nothing"),
    [(b"null", True), (b"false", True), (b"{ }", True), (b"[]", True), (b'""', True), (b"0.0", True), (b"{", False),
     (b'{"message":""}', False), (b'"x"', False), (b"1", False), (b"[" * 5000 + b"]" * 5000, False)],
)  # fmt: skip
def test_what_an_error_member_must_say_to_be_one(raw: bytes, nothing: bool) -> None:
    assert is_nothing(raw) == nothing


SECRETS = [
    "sk-proj-abc_DEF-123456", "sk-ant-api03-AbCdEf123", "gsk_abcdefghij", "sg-0123456789abcdef", "xai-abcdefgh12",
    "AIzaSyA-1234567890abc", "sk-****************abcd", "org-AbC123def", "proj_12345678", "Bearer abc.def",
    "https://user:pw@llm.internal:8443/v1?x=1", "10.1.2.3:8000", "gpu-7.cluster.local:8000", "api.provider.com",
    "localhost:8080", "hf_abcdefghijkl", "r8_abcdefghijkl", "pplx-abcdefgh1",
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("frame", ["{}", "Incorrect key: {}.", "see '{}'", "({}), then", "a={} b"])
def test_redaction(secret: str, frame: str) -> None:
    told = redact(frame.format(secret))
    assert secret not in told
    assert secret[4:-2] not in told
    assert "[redacted]" in told


@pytest.mark.parametrize(
    "harmless",
    ["task-specific prompts", "disk-based or risk-averse", "messages[0].content must be a string", "max_tokens: 4096",
     "model gpt-5.1-mini", "key-value pairs", "version 1.2.3", "tools.0.function.parameters", "e.g. this", "12:30:45"],
)  # fmt: skip
def test_redaction_leaves_ordinary_words(harmless: str) -> None:
    assert redact(harmless) == harmless


def test_our_own_keys_are_redacted_wherever_they_stand() -> None:
    assert redact("xmysecretx and mysecret", ("mysecret", "")) == "x[redacted]x and [redacted]"
    error = from_response(400, {}, openai("the key hunter2hunter2 is bad"), ("hunter2hunter2",))
    assert "hunter2" not in error.message


def test_long_messages_are_cut_and_cost_little() -> None:
    start = time.process_time()
    for pattern in ("a-", "a.", "1.", "sk-", "x" * 64 + ".", "http://", "Bearer "):
        assert len(redact(pattern * 40_000)) <= 2000
    assert time.process_time() - start < 2


@given(st.integers(100, 599), st.one_of(
    st.binary(max_size=40),
    st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
                 lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(
                     st.sampled_from(
                         ["error", "message", "code", "type", "status", "details", "error_code", "reason", "param"]),
                     inner, max_size=4)), max_leaves=8).map(lambda value: json.dumps(value).encode()),
))  # fmt: skip
def test_any_body_is_judged(status: int, body: bytes) -> None:
    error = from_response(status, {}, body)
    assert error.message
    assert 400 <= error.status <= 599
    json.loads(error_body(error))


def test_error_event_is_one_nested_event() -> None:
    assert error_event(RateLimited("slow", 2.0)) == (
        b'data: {"error":{"message":"slow","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}\n\n'
    )


def test_what_a_filter_ends_inside_a_stream_is_asked_of_nobody_else_B060() -> None:
    for code in ("content_filter", "content_policy_violation"):
        error = from_stream_error(
            read_stream_error(json.dumps({"code": code, "message": "held back"}).encode())
        )
        assert (error.kind, error.retry) == ("content_blocked", "never")
