"""Header lines of answers: ids and routing facts, and what an error tells a client's retry logic.

Source: wire formats page `errors.md`, retries by the SDKs; contract E5.
"""

import math
from collections.abc import Sequence
from typing import Final

from sluicegate.errors import IdempotencyError, MethodNotAllowed, RateLimited, SluicegateError

JSON: Final = b"content-type: application/json\r\n"
MIN_RETRY_AFTER_S = 1
MAX_RETRY_AFTER_S = 59
"""Longer waits put some SDKs to sleep for as long, and are ignored by others."""
MAX_DROPPED_BYTES = 1024
MAX_ID_CHARS: Final = 256

_THOUSANDTHS = [f"{number:03}" for number in range(1000)]
"""In three digits: a format with places costs ten times as much as a look into a list."""


def answer_headers(
    request_id: str,
    *,
    provider: str | None = None,
    attempts: int | None = None,
    overhead_ms: float | None = None,
    upstream_id: str | None = None,
    dropped: Sequence[str] = (),
) -> bytes:
    """Return the lines that every answer carries; what is None is left out.

    Args:
        dropped: entries `field;reason` of what was not passed on.
    """
    if provider is not None and attempts:
        lines = (
            f"x-request-id: {request_id}\r\nrequest-id: {request_id}\r\n"
            f"x-sluicegate-provider: {provider}\r\nx-sluicegate-attempts: {attempts}\r\n"
        )
    else:
        lines = f"x-request-id: {request_id}\r\nrequest-id: {request_id}\r\n"
        if provider is not None:
            lines += f"x-sluicegate-provider: {provider}\r\n"
        if attempts:
            lines += f"x-sluicegate-attempts: {attempts}\r\n"
    if overhead_ms is not None:
        microseconds = int(overhead_ms * 1000 + 0.5)
        lines += f"x-sluicegate-overhead-ms: {microseconds // 1000}.{_THOUSANDTHS[microseconds % 1000]}\r\n"
    if (
        upstream_id
        and upstream_id.isascii()
        and upstream_id.isprintable()
        and len(upstream_id) <= MAX_ID_CHARS
    ):
        lines += f"x-sluicegate-upstream-id: {upstream_id}\r\n"
    if dropped:
        lines += f"x-sluicegate-dropped: {dropped_value(dropped)}\r\n"
    return lines.encode("latin-1", "replace")


def dropped_value(dropped: Sequence[str]) -> str:
    """Join the entries, at most 1 KiB, then `...+n`."""
    value = ""
    for number, entry in enumerate(dropped):
        entry = "".join(c for c in entry if c.isprintable() and c.isascii())
        if len(value) + len(entry) + 2 > MAX_DROPPED_BYTES:
            return f"{value}, ...+{len(dropped) - number}"
        value = f"{value}, {entry}" if value else entry
    return value


def error_lines(error: SluicegateError, attempts: int) -> bytes:
    """Return the lines that tell when to come back, or not to.

    Args:
        attempts: how many times we asked a provider; every SDK multiplies them by its own.
    """
    lines = b""
    if error.retry_after_s is not None and error.status in (409, 429, 503, 529):
        seconds = min(max(math.ceil(error.retry_after_s), MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)
        lines += b"retry-after: %d\r\nretry-after-ms: %d\r\n" % (seconds, seconds * 1000)
    elif error.status in (402, 422) or (error.status >= 500 and attempts >= 2):
        lines += b"x-should-retry: false\r\n"
    if isinstance(error, RateLimited):
        lines += error.header_lines
    if isinstance(error, IdempotencyError):
        lines += b"x-sluicegate-first-request-id: %b\r\n" % error.first_request_id.encode()
    if isinstance(error, MethodNotAllowed):
        lines += b"allow: " + error.allow.encode() + b"\r\n"
    return lines
