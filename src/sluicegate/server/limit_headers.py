"""Header lines that tell a client of its limits, in the words that each vendor's SDKs and tools know.

Source: OpenAI, "Rate limits in headers" (`x-ratelimit-*`, spans as `1m0s`); Anthropic, "Rate limits", response headers
(`anthropic-ratelimit-*`, resets as RFC 3339). Both seen 2025-10.
"""

import math
import time
from functools import lru_cache

from sluicegate.billing.limits import Kind

USUAL_RESET_S = 60.0
"""When a limit is whole again if nothing more comes, for all but those who are refused."""


class LimitLines:
    """The lines of one limit of requests or of tokens; what stays the same in them is written once."""

    __slots__ = ("_messages", "_messages_reset", "_openai", "_openai_reset")

    def __init__(self, kind: Kind, limit: int) -> None:
        name, number = kind.encode(), str(limit).encode()
        self._openai = b"x-ratelimit-limit-%b: %b\r\nx-ratelimit-remaining-%b: " % (name, number, name)
        self._openai_reset = b"\r\nx-ratelimit-reset-%b: " % name
        self._messages = b"anthropic-ratelimit-%b-limit: %b\r\nanthropic-ratelimit-%b-remaining: " % (
            name,
            number,
            name,
        )
        self._messages_reset = b"\r\nanthropic-ratelimit-%b-reset: " % name

    def write(self, left: int, reset_s: float, *, messages: bool) -> bytes:
        """Return the lines.

        Args:
            left: what is left of the limit.
            reset_s: when it will be whole again if nothing more comes.
            messages: in the words of the Messages format, else in those of OpenAI's.
        """
        number = str(left).encode()
        if messages:
            when = _moment(math.ceil(time.time() + reset_s))
            return b"%b%b%b%b\r\n" % (self._messages, number, self._messages_reset, when)
        when = b"1m0s" if reset_s == USUAL_RESET_S else _span(math.ceil(reset_s))
        return b"%b%b%b%b\r\n" % (self._openai, number, self._openai_reset, when)


@lru_cache(maxsize=8)
def _moment(at: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)).encode()


def _span(seconds: int) -> bytes:
    minutes, rest = divmod(seconds, 60)
    return b"%dm%ds" % (minutes, rest) if minutes else b"%ds" % rest
