"""The lines that tell a client of its limits, in either vendor's words."""

import time
from datetime import UTC, datetime

from sluicegate.server.limit_headers import USUAL_RESET_S, LimitLines


def test_openai_is_told_how_long() -> None:
    lines = LimitLines("tokens", 90_000)
    assert lines.write(89_000, USUAL_RESET_S, messages=False) == (
        b"x-ratelimit-limit-tokens: 90000\r\n"
        b"x-ratelimit-remaining-tokens: 89000\r\n"
        b"x-ratelimit-reset-tokens: 1m0s\r\n"
    )
    assert lines.write(0, 59.2, messages=False).endswith(b"x-ratelimit-reset-tokens: 1m0s\r\n")
    assert lines.write(0, 12.1, messages=False).endswith(b"x-ratelimit-reset-tokens: 13s\r\n")
    assert lines.write(0, 75.0, messages=False).endswith(b"x-ratelimit-reset-tokens: 1m15s\r\n")


def test_messages_is_told_when() -> None:
    lines = LimitLines("requests", 60)
    for wait_s in (USUAL_RESET_S, 2.5):
        before = time.time()
        told = lines.write(7, wait_s, messages=True)
        start, _, reset = told.rpartition(b": ")
        assert start == (
            b"anthropic-ratelimit-requests-limit: 60\r\n"
            b"anthropic-ratelimit-requests-remaining: 7\r\n"
            b"anthropic-ratelimit-requests-reset"
        )
        at = datetime.strptime(reset.decode(), "%Y-%m-%dT%H:%M:%SZ\r\n").replace(tzinfo=UTC).timestamp()
        assert before + wait_s <= at < time.time() + wait_s + 1
