"""Provider errors, of any format, read into kinds: status first, then typed fields, then text.

What the client is told of them is decided here too: the provider's own message where it is a typed refusal of the
client's request, ours in all other cases, and never a secret. Source: wire formats page `errors.md`.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from sluicegate.errors import Retry, UpstreamStatus
from sluicegate.messages import StreamError

_SPEND_CODES = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "project_spend_limit_exceeded",
        "organization_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_error",
    }
)
_TOO_LONG = ("context_length_exceeded", "prompt is too long", "maximum context")
_SECRETS = re.compile(
    r"(?<![A-Za-z0-9])(?:sk|sg|gsk|csk|xai|hf|r8|fw|pplx|nvapi|pk|rk)[-_][A-Za-z0-9_\-*.]{6,}"  # keys
    r"|\bkey-(?=[A-Za-z]*\d)[A-Za-z0-9]{12,}"
    r"|\bAIza[A-Za-z0-9_\-]{10,}"
    r"|\b(?:org|proj|acct)[-_][A-Za-z0-9]{6,}"  # organisation and project ids
    r"|\bBearer\s+\S+"
    r"|https?://[^\s\"'<>]+"
    r"|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"
    r"|\blocalhost(?::\d+)?\b"
    r"|\b(?:[a-z0-9\-]{1,63}\.){1,12}(?:com|net|org|io|ai|dev|internal|local|cloud)\b(?::\d+)?",
    re.IGNORECASE,
)
_MAX_MESSAGE_CHARS = 2000
UNREAD_DATE_S = 5.0
"""What a `retry-after` that is a date, or no number, is taken for."""
_NAMED_STATUS = {
    "server_is_overloaded": 503,
    "overloaded_error": 529,
    "overloaded": 503,
    "service_unavailable_error": 503,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "RESOURCE_EXHAUSTED": 429,
    "insufficient_quota": 429,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "content_policy_violation": 400,
    "content_filter": 400,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "UNAUTHENTICATED": 401,
    "billing_error": 402,
    "permission_error": 403,
    "PERMISSION_DENIED": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "NOT_FOUND": 404,
    "request_too_large": 413,
    "timeout_error": 504,
    "DEADLINE_EXCEEDED": 504,
    "UNAVAILABLE": 503,
    "INTERNAL": 500,
    "api_error": 500,
    "server_error": 500,
}


def redact(message: str, secrets: tuple[str, ...] = ()) -> str:
    """Take out of a provider's message what a client must not see: keys, account ids, hosts.

    Args:
        secrets: our own keys at the provider, removed wherever they stand.
    """
    for secret in secrets:
        if secret:
            message = message.replace(secret, "[redacted]")
    return _SECRETS.sub("[redacted]", message[: 2 * _MAX_MESSAGE_CHARS])[:_MAX_MESSAGE_CHARS]


def is_nothing(raw: bytes) -> bool:
    """Whether the value of an `error` member says that there is none: null, false, 0 or empty."""
    try:
        return not msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False


def read_stream_error(raw: bytes) -> StreamError:
    """Read the value of an `error` member inside a 200, in any format's shape."""
    try:
        value: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        value = None
    if isinstance(value, str):
        return StreamError(status=500, message=value)
    if not isinstance(value, dict):
        return StreamError(status=500, message="the provider reported an error")
    code = value.get("code")
    kind = value.get("type") or value.get("status")
    message = value.get("message")
    return StreamError(
        status=_status_of(code, kind),
        message=message if isinstance(message, str) and message else "the provider reported an error",
        code=str(code) if code is not None else None,
        type=kind if isinstance(kind, str) else None,
    )


def _status_of(code: object, kind: object) -> int:
    if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit():
        code = int(code)
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599:
        return code
    for word in (code, kind):
        if isinstance(word, str) and word in _NAMED_STATUS:
            return _NAMED_STATUS[word]
    return 500


def from_stream_error(error: StreamError, secrets: tuple[str, ...] = ()) -> UpstreamStatus:
    """Judge an error that came inside a 200 like the status it stands for."""
    return judge(error.status, error.message, error.code, error.type, None, typed=True, secrets=secrets)


def from_response(
    status: int, headers: Mapping[bytes, bytes], body: bytes, secrets: tuple[str, ...] = ()
) -> UpstreamStatus:
    """Judge an error answer of a provider.

    Args:
        headers: names lower-cased.
        secrets: never told on.
    """
    message, code, kind, param = "", None, None, None
    typed = False
    try:
        value: Any = msgspec.json.decode(body) if body.lstrip()[:1] in b"{[" and body.strip() else None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        value = None
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, dict):
        error = value.get("error", value)
        if isinstance(error, str):
            message, typed = error, True
        elif isinstance(error, dict):
            said: Any = error.get("message")
            message = said if isinstance(said, str) else ""
            typed = bool(message)
            code, kind = error.get("code"), error.get("type") or error.get("status")
            details = error.get("details")
            if isinstance(details, dict) and isinstance(details.get("error_code"), str):
                code = details["error_code"]
            if isinstance(details, list) and any(
                isinstance(item, dict) and item.get("reason") == "API_KEY_INVALID" for item in details
            ):
                code = "API_KEY_INVALID"
            given = error.get("param")
            param = given if isinstance(given, str) else None
    judged = judge(
        status,
        message,
        str(code) if code is not None else None,
        kind if isinstance(kind, str) else None,
        retry_after_s(headers),
        typed=typed,
        secrets=secrets,
    )
    if judged.kind in ("bad_request", "context_too_long", "content_blocked"):
        judged.param = param
    return judged


def retry_after_s(headers: Mapping[bytes, bytes]) -> float | None:
    """Return when the provider wants to be asked again, in seconds clamped to 1–59; dates are not read."""
    for name, unit in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        value = headers.get(name)
        if value is not None:
            try:
                seconds = float(value) * unit
            except ValueError:
                if name == b"retry-after-ms":
                    continue
                return UNREAD_DATE_S
            if seconds >= 0:  # not NaN
                return min(max(seconds, 1.0), 59.0)
    return None


def judge(
    status: int,
    message: str,
    code: str | None,
    kind: str | None,
    wait_s: float | None,
    *,
    typed: bool,
    secrets: tuple[str, ...],
) -> UpstreamStatus:
    """Turn what a provider said into one of our kinds, with the status and the words the client gets."""
    lower = message.lower()
    words = {word for word in (code, kind) if word}
    theirs = redact(message, secrets) if typed and message else ""

    def told(our_kind: str, our_status: int, retry: Retry, text: str, keep: bool = False) -> UpstreamStatus:
        return UpstreamStatus(
            theirs if keep and theirs else text,
            upstream_status=status,
            kind=our_kind,
            status=our_status,
            retry=retry,
            retry_after_s=wait_s,
            code=code,
        )

    spent = bool(words & _SPEND_CODES) or any(word.endswith("spend_limit_reached") for word in words)
    if status == 402 or (status in (400, 403, 429) and spent):
        return told(
            "upstream_budget", 503, "elsewhere", "The provider of this model is not available at the moment."
        )
    if status in (401, 403) or "API_KEY_INVALID" in words:
        return told("upstream_auth", 502, "elsewhere", "The provider refused the gateway's credentials.")
    if status in (400, 422):
        if "content_policy_violation" in words or "content_filter" in words:
            return told(
                "content_blocked", 400, "never", "The provider's content policy refused the request.", True
            )
        if any(word in lower or word in words for word in _TOO_LONG):
            return told("context_too_long", 400, "never", "The prompt is too long for this model.", True)
        return told("bad_request", 400, "never", "The provider refused the request as malformed.", True)
    if status == 404:
        return told("upstream_error", 502, "elsewhere", "The provider does not know this model or path.")
    if status == 413:
        return told("too_large", 413, "never", "The request is too large for the provider.", True)
    if status == 429:
        return told(
            "rate_limited", 429, "elsewhere", "The provider is limiting requests; try again later.", True
        )
    if status in (408, 504):
        return told("timeout", 504, "elsewhere", "The provider did not answer in time.")
    if status in (503, 529) or "server_is_overloaded" in words:
        retry: Retry = "same" if wait_s is None else "elsewhere"
        return told("overloaded", 503, retry, "The provider is overloaded; try again later.")
    return told("upstream_error", 502, "elsewhere", f"The provider failed with status {status}.")
