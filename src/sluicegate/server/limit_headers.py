"""Header lines that tell a client of its limits, in the words that each vendor's SDKs and tools know.

Source: OpenAI, "Rate limits in headers" (`x-ratelimit-*`, spans as `1m0s`); Anthropic, "Rate limits", response headers
(`anthropic-ratelimit-*`, resets as RFC 3339). Both seen 2025-10.
"""

import math
import time
from collections.abc import Sequence

import msgspec

from sluicegate.billing.limits import Kind


class Left(msgspec.Struct, frozen=True, gc=False):
    """What one limit leaves."""

    kind: Kind
    limit: int
    left: int
    reset_s: float
    """When it will be whole again, if nothing more comes."""


def limit_lines(lefts: Sequence[Left], *, messages: bool) -> bytes:
    """Return the lines of the tightest limit of requests and of tokens; streams have no names for theirs.

    Args:
        messages: in the words of the Messages format, else in those of OpenAI's.
    """
    requests: Left | None = None
    tokens: Left | None = None
    for one in lefts:
        if one.kind == "requests":
            if requests is None or (one.left, one.limit) < (requests.left, requests.limit):
                requests = one
        elif one.kind == "tokens" and (tokens is None or (one.left, one.limit) < (tokens.left, tokens.limit)):
            tokens = one
    lines = b""
    for tightest in (requests, tokens):
        if tightest is not None:
            lines += _lines(tightest, messages=messages)
    return lines


def _lines(left: Left, *, messages: bool) -> bytes:
    name = left.kind.encode()
    if messages:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(math.ceil(time.time() + left.reset_s)))
        form = (
            b"anthropic-ratelimit-%b-limit: %d\r\nanthropic-ratelimit-%b-remaining: %d\r\n"
            b"anthropic-ratelimit-%b-reset: %b\r\n"
        )
        reset = at.encode()
    else:
        form = b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %b\r\n"
        reset = _span(left.reset_s)
    return form % (name, left.limit, name, left.left, name, reset)


def _span(seconds: float) -> bytes:
    minutes, rest = divmod(math.ceil(seconds), 60)
    return b"%dm%ds" % (minutes, rest) if minutes else b"%ds" % rest
