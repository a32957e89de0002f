"""Header lines that tell a client of its limits, in the words that each vendor's SDKs and tools know.

Source: OpenAI, "Rate limits in headers" (`x-ratelimit-*`, spans as `1m0s`); Anthropic, "Rate limits", response headers
(`anthropic-ratelimit-*`, resets as RFC 3339). Both seen 2025-10.
"""

import math
import time
from collections.abc import Iterable
from functools import lru_cache

from sluicegate.billing.limits import Kind

_OPENAI_FORMS = tuple(
    b"x-ratelimit-limit-%b: %%d\r\nx-ratelimit-remaining-%b: %%d\r\nx-ratelimit-reset-%b: %%b\r\n"
    % ((kind,) * 3)
    for kind in (b"requests", b"tokens")
)
_MESSAGES_FORMS = tuple(
    b"anthropic-ratelimit-%b-limit: %%d\r\nanthropic-ratelimit-%b-remaining: %%d\r\n"
    b"anthropic-ratelimit-%b-reset: %%b\r\n" % ((kind,) * 3)
    for kind in (b"requests", b"tokens")
)


class Left:
    """What one limit leaves."""

    __slots__ = ("kind", "left", "limit", "reset_s")

    def __init__(self, kind: Kind, limit: int, left: int, reset_s: float) -> None:
        """Take the limit, what is left of it, and when it will be whole again if nothing more comes."""
        self.kind = kind
        self.limit = limit
        self.left = left
        self.reset_s = reset_s


def limit_lines(lefts: Iterable[Left], *, messages: bool) -> bytes:
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
    forms = _MESSAGES_FORMS if messages else _OPENAI_FORMS
    when = _moment if messages else _span
    lines = b""
    if requests is not None:
        lines = forms[0] % (requests.limit, requests.left, when(requests.reset_s))
    if tokens is not None:
        lines += forms[1] % (tokens.limit, tokens.left, when(tokens.reset_s))
    return lines


def _moment(seconds: float) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(math.ceil(time.time() + seconds))).encode()


@lru_cache(maxsize=128)  # it is a minute for all but those who are refused
def _span(seconds: float) -> bytes:
    minutes, rest = divmod(math.ceil(seconds), 60)
    return b"%dm%ds" % (minutes, rest) if minutes else b"%ds" % rest
