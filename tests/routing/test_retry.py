"""May we try again, where, and after how long: the whole table, and what never changes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import (
    ConnectFailed,
    Retry,
    StreamCut,
    UpstreamError,
    UpstreamGarbled,
    UpstreamStatus,
    UpstreamTimeout,
)
from sluicegate.routing.retry import (
    BASE_WAIT_S,
    MAX_WAIT_S,
    Progress,
    Rules,
    final_error,
    may_retry,
    next_attempt,
)

RULES = Rules(max_attempts=3, after_send=1)


def status(
    code: int, kind: str = "upstream_error", retry: Retry = "elsewhere", after: float | None = None
) -> UpstreamStatus:
    return UpstreamStatus("no", upstream_status=code, kind=kind, status=502, retry=retry, retry_after_s=after)


ERRORS: dict[str, UpstreamError] = {
    "refused": ConnectFailed("no"),
    "connect timeout": UpstreamTimeout("late", "connect"),
    "no connection free": UpstreamTimeout("full", "pool"),
    "first token timeout": UpstreamTimeout("late", "first_token"),
    "idle timeout": UpstreamTimeout("late", "idle"),
    "response timeout": UpstreamTimeout("late", "response"),
    "total timeout": UpstreamTimeout("late", "total"),
    "cut": StreamCut("cut"),
    "garbled": UpstreamGarbled("odd"),
    "400": status(400, "bad_request", "never"),
    "413": status(413, "too_large", "never"),
    "401": status(401, "upstream_auth"),
    "402": status(402, "upstream_budget"),
    "429 of our budget": status(429, "upstream_budget"),
    "404": status(404),
    "408": status(408, "timeout"),
    "409": status(409),
    "429": status(429, "rate_limited"),
    "429 with a wait": status(429, "rate_limited", after=5.0),
    "500": status(500),
    "502": status(502),
    "503": status(503, "overloaded", "same"),
    "503 with a wait": status(503, "overloaded", after=5.0),
    "504": status(504, "timeout"),
    "529": status(529, "overloaded", "same"),
}

SAME, NEXT, STOP = "same", "next", "stop"


def progress_of(targets: int, **changes: Any) -> Progress:
    """Return the progress of a request with so many targets, each at a provider of its own."""
    return Progress(tuple(f"p{number}" for number in range(targets)))._replace(**changes)


def decide(name: str, progress: Progress, rules: Rules = RULES, left_s: float = 100.0) -> str:
    attempt = next_attempt(ERRORS[name], progress, rules, left_s, seed=7)
    if attempt is None:
        return STOP
    assert attempt.target == attempt.progress.target
    assert attempt.progress.made == progress.made + 1
    if attempt.target == progress.target:
        assert attempt.retry
        return SAME
    assert attempt.target == progress.target + 1
    assert attempt.wait_s == 0
    assert not attempt.retry
    return NEXT


@pytest.mark.parametrize(
    ("name", "others_left", "none_left"),
    [
        ("refused", NEXT, SAME),
        ("connect timeout", NEXT, SAME),
        ("no connection free", NEXT, SAME),
        ("first token timeout", NEXT, STOP),
        ("idle timeout", NEXT, STOP),
        ("response timeout", NEXT, STOP),
        ("total timeout", STOP, STOP),
        ("cut", NEXT, SAME),
        ("garbled", NEXT, SAME),
        ("400", STOP, STOP),
        ("413", STOP, STOP),
        ("401", NEXT, STOP),
        ("402", NEXT, STOP),
        ("429 of our budget", NEXT, STOP),
        ("404", NEXT, STOP),
        ("408", NEXT, SAME),
        ("409", NEXT, SAME),
        ("429", NEXT, SAME),
        ("429 with a wait", NEXT, STOP),
        ("500", NEXT, STOP),
        ("502", NEXT, STOP),
        ("503", NEXT, SAME),
        ("503 with a wait", NEXT, STOP),
        ("504", NEXT, STOP),
        ("529", NEXT, SAME),
    ],
)
def test_what_follows_the_first_failure(name: str, others_left: str, none_left: str) -> None:
    assert decide(name, progress_of(2)) == others_left
    assert decide(name, progress_of(1)) == none_left


@pytest.mark.parametrize("name", ERRORS)
def test_B060_nothing_follows_once_content_has_left(name: str) -> None:
    assert decide(name, progress_of(3, begun=True)) == STOP


@pytest.mark.parametrize("name", ERRORS)
def test_B135_nothing_follows_the_deadline(name: str) -> None:
    assert decide(name, progress_of(3), left_s=0.0) == STOP


@pytest.mark.parametrize("name", ["refused", "429", "503", "529"])
def test_a_request_asks_again_up_to_max_attempts_and_tries_every_target(name: str) -> None:
    assert decide(name, progress_of(1, made=2)) == SAME
    assert decide(name, progress_of(1, made=3)) == STOP
    assert decide(name, progress_of(5, made=4, target=3, tried=4)) == NEXT
    assert decide(name, progress_of(5, made=5, target=4, tried=5)) == STOP


def test_what_did_nothing_is_asked_again_in_turn_once_all_have_been_tried() -> None:
    progress = progress_of(3)
    asked = [0]
    for name in ("refused", "500", "503", "429", "529"):
        attempt = next_attempt(ERRORS[name], progress, Rules(max_attempts=6), 100.0, 1)
        assert attempt is not None
        progress = attempt.progress
        asked.append(attempt.target)
    assert asked == [0, 1, 2, 0, 2, 0], "the one that failed with 500 is not asked again"


@pytest.mark.parametrize("name", ["refused", "429", "503"])
def test_a_spent_budget_allows_other_providers_alone(name: str) -> None:
    providers = Progress(("a", "a", "b"))
    attempt = next_attempt(ERRORS[name], providers, RULES, 100.0, 1, frozenset({"a"}))
    assert attempt is not None
    assert (attempt.target, attempt.retry, attempt.wait_s) == (2, False, 0.0)
    after = next_attempt(ERRORS[name], attempt.progress, RULES, 100.0, 1, frozenset({"a", "b"}))
    assert after is None
    free = next_attempt(ERRORS[name], providers, RULES, 100.0, 1)
    assert free is not None
    assert (free.target, free.retry) == (1, True), "another model of the same provider is a retry of it"


def test_a_budget_is_a_share_of_what_was_asked_and_ten_are_free() -> None:
    assert may_retry(asked=0, retried=9, percent=20)
    assert not may_retry(asked=0, retried=10, percent=20)
    assert may_retry(asked=1000, retried=199, percent=20)
    assert not may_retry(asked=1000, retried=200, percent=20)
    assert not may_retry(asked=1000, retried=10, percent=0)


@pytest.mark.parametrize("name", ["first token timeout", "response timeout", "cut", "408", "409", "504"])
def test_B068_what_may_have_been_done_is_asked_again_only_so_often(name: str) -> None:
    assert decide(name, progress_of(5, unanswered=1)) == STOP
    assert decide(name, progress_of(5), Rules(after_send=0)) == STOP
    assert decide(name, progress_of(5, unanswered=1), Rules(after_send=2)) == NEXT


def test_B068_what_may_have_been_done_is_not_asked_again_after_others() -> None:
    cut = next_attempt(ERRORS["cut"], progress_of(2), RULES, 100.0, 1)
    assert cut is not None
    refused = next_attempt(ERRORS["refused"], cut.progress, RULES, 100.0, 1)
    assert refused is not None
    assert refused.target == 1, "the first target may be at work on it"


@pytest.mark.parametrize("name", ["500", "429", "refused", "401"])
def test_what_was_not_done_does_not_use_that_up(name: str) -> None:
    attempt = next_attempt(ERRORS[name], progress_of(2, unanswered=1), RULES, 100.0, 1)
    assert attempt is not None
    assert attempt.progress.unanswered == 1


def test_B134_waits_double_and_are_capped_and_differ() -> None:
    for made in range(1, 10):
        bound = min(MAX_WAIT_S, BASE_WAIT_S * 2 ** (made - 1))
        waits = []
        for seed in range(500):
            attempt = next_attempt(ERRORS["refused"], progress_of(1, made=made), Rules(20), 1e6, seed)
            assert attempt is not None
            waits.append(attempt.wait_s)
        assert 0 <= min(waits) < bound / 10
        assert bound * 0.9 < max(waits) <= bound
        assert abs(sum(waits) / len(waits) - bound / 2) < bound / 10


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    slow = next(
        seed
        for seed in range(100)
        if (attempt := next_attempt(ERRORS["refused"], progress_of(1), RULES, 10.0, seed))
        and attempt.wait_s > 0.2
    )
    assert next_attempt(ERRORS["refused"], progress_of(1), RULES, 0.1, slow) is None
    moved = next_attempt(ERRORS["refused"], progress_of(2), RULES, 0.1, slow)
    assert moved is not None
    assert (moved.target, moved.wait_s) == (1, 0.0)


@given(
    st.lists(st.sampled_from(sorted(ERRORS)), min_size=60, max_size=60),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(),
)
def test_every_request_ends(names: list[str], targets: int, most: int, after_send: int, seed: int) -> None:
    progress = progress_of(targets)
    made = 1
    for name in names:
        attempt = next_attempt(ERRORS[name], progress, Rules(most, after_send), 1e9, seed)
        if attempt is None:
            break
        progress = attempt.progress
        made += 1
    else:
        raise AssertionError("it never ended")
    assert made <= max(targets, most)
    assert progress.unanswered <= after_send


def test_B030_the_client_is_told_the_shortest_wait() -> None:
    short, long = status(429, "rate_limited", after=5.0), status(503, "overloaded", after=12.0)
    assert final_error([long, short]) is short
    assert final_error([short, long]) is short
    assert final_error([short, ERRORS["500"]]) is short


def test_without_a_wait_the_client_is_told_the_last_failure() -> None:
    assert final_error([ERRORS["refused"], ERRORS["500"]]) is ERRORS["500"]


def test_a_final_refusal_is_told_as_it_is() -> None:
    assert final_error([status(429, "rate_limited", after=5.0), ERRORS["400"]]) is ERRORS["400"]
