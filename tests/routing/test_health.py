"""When a deployment's breaker opens, for how long, and what closes it."""

import pytest

from sluicegate.errors import (
    ConnectFailed,
    Retry,
    StreamCut,
    UpstreamError,
    UpstreamGarbled,
    UpstreamStatus,
    UpstreamTimeout,
)
from sluicegate.routing.health import (
    CLOSED,
    JITTER,
    Breaker,
    Effect,
    HealthRules,
    after_error,
    after_success,
    effect_of,
)

RULES = HealthRules(failures=3, failure_percent=50, min_requests=10, open_s=4.0, max_open_s=20.0)


def status(code: int, kind: str = "upstream_error", after: float | None = None) -> UpstreamStatus:
    retry: Retry = "elsewhere"
    return UpstreamStatus("no", upstream_status=code, kind=kind, status=502, retry=retry, retry_after_s=after)


@pytest.mark.parametrize(
    ("error", "effect"),
    [
        (ConnectFailed("no"), "failure"),
        (StreamCut("cut"), "failure"),
        (UpstreamGarbled("odd"), "failure"),
        (UpstreamTimeout("late", "connect"), "failure"),
        (UpstreamTimeout("late", "first_token"), "failure"),
        (UpstreamTimeout("late", "idle"), "failure"),
        (UpstreamTimeout("late", "response"), "failure"),
        (UpstreamTimeout("late", "total"), "none"),
        (UpstreamTimeout("full", "pool"), "none"),
        (status(500), "failure"),
        (status(502), "failure"),
        (status(504, "timeout"), "failure"),
        (status(503, "overloaded"), "failure"),
        (status(529, "overloaded"), "failure"),
        (status(503, "overloaded", 5.0), "cooling"),
        (status(529, "overloaded", 5.0), "cooling"),
        (status(429, "rate_limited"), "cooling"),
        (status(429, "rate_limited", 5.0), "cooling"),
        (status(401, "upstream_auth"), "refused"),
        (status(403, "upstream_auth"), "refused"),
        (status(402, "upstream_budget"), "refused"),
        (status(400, "bad_request"), "none"),
        (status(404), "none"),
        (status(408, "timeout"), "none"),
        (status(409), "none"),
        (status(307), "none"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_B094_B136_what_counts_against_a_deployment(error: UpstreamError, effect: Effect) -> None:
    assert effect_of(error) == effect


def fail(
    breaker: Breaker, now: float, error: UpstreamError | None = None, asked: int = 1, failed: int = 1
) -> Breaker:
    return after_error(breaker, error or status(500), asked, failed, now, 7, RULES)


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = fail(fail(CLOSED, 100.0), 100.0)
    assert breaker.condition(100.0) == "closed"
    breaker = fail(breaker, 100.0)
    assert breaker.condition(100.0) == "open"
    assert breaker.kind == "upstream_error"


def test_an_answer_between_them_begins_the_row_anew() -> None:
    breaker = after_success(fail(fail(CLOSED, 1.0), 1.0), 1.0)
    assert breaker is CLOSED
    assert fail(fail(breaker, 1.0), 1.0).condition(1.0) == "closed"


def test_it_opens_at_a_share_of_failures_once_there_are_enough_requests() -> None:
    assert fail(CLOSED, 1.0, asked=9, failed=9).condition(1.0) == "closed"
    assert fail(CLOSED, 1.0, asked=20, failed=9).condition(1.0) == "closed"
    assert fail(CLOSED, 1.0, asked=20, failed=10).condition(1.0) == "open"


@pytest.mark.parametrize("kind", ["upstream_auth", "upstream_budget"])
def test_refused_credentials_open_it_at_once(kind: str) -> None:
    assert fail(CLOSED, 1.0, status(401, kind)).condition(1.0) == "open"


def test_after_its_time_one_trial_decides() -> None:
    breaker = fail(CLOSED, 100.0, status(401, "upstream_auth"))
    until = breaker.open_until
    assert breaker.condition(until - 0.01) == "open"
    assert breaker.condition(until) == "half_open"
    assert breaker.condition(until, trial=True) == "open", "one at a time"
    assert after_success(breaker, until) is CLOSED
    again = fail(breaker, until)
    assert again.condition(until) == "open"
    assert again.opens == 2


def test_late_words_on_old_requests_change_nothing() -> None:
    breaker = fail(CLOSED, 100.0, status(401, "upstream_auth"))
    assert fail(breaker, 100.1).open_until == breaker.open_until
    assert after_success(breaker, 100.1).condition(100.1) == "open"


def test_each_further_time_is_longer_up_to_the_longest_and_drawn() -> None:
    now, breaker = 0.0, CLOSED
    for middle in (4.0, 8.0, 16.0, 20.0, 20.0):
        breaker = fail(breaker, now, status(401, "upstream_auth"))
        open_s = breaker.open_until - now
        assert middle * (1 - JITTER) <= open_s <= middle * (1 + JITTER)
        now = breaker.open_until
    drawn = {
        after_error(CLOSED, status(401, "upstream_auth"), 1, 1, 0.0, seed, RULES).open_until
        for seed in range(200)
    }
    assert min(drawn) < 4.0 * (1 - JITTER * 0.9)
    assert max(drawn) > 4.0 * (1 + JITTER * 0.9)


def test_cooling_is_no_failure_and_ends_by_itself() -> None:
    breaker = fail(fail(CLOSED, 0.0), 0.0)
    breaker = fail(breaker, 0.0, status(429, "rate_limited", 5.0))
    assert breaker.failures == 2
    assert breaker.condition(4.9) == "cooling"
    assert breaker.told
    assert breaker.condition(5.0) == "closed"
    assert after_success(breaker, 1.0).condition(1.0) == "cooling", "an answer does not shorten it"
    assert after_success(breaker, 5.0) is CLOSED


def test_the_longest_wait_that_was_asked_for_holds() -> None:
    breaker = fail(CLOSED, 0.0, status(429, "rate_limited", 9.0))
    assert fail(breaker, 1.0, status(429, "rate_limited", 2.0)).cooling_until == 9.0
    assert fail(breaker, 1.0, status(429, "rate_limited")).told
    guessed = fail(CLOSED, 0.0, status(429, "rate_limited"))
    assert guessed.condition(0.5) == "cooling"
    assert not guessed.told
