"""May we try again, where, and after how long: the whole table, and what never changes."""

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
from sluicegate.routing.retry import BASE_WAIT_S, MAX_WAIT_S, Progress, Rules, final_error, next_attempt

RULES = Rules(max_attempts=3, after_send=1)


def status(
    code: int, kind: str = "upstream_error", retry: Retry = "elsewhere", after: float | None = None
) -> UpstreamStatus:
    return UpstreamStatus("no", upstream_status=code, kind=kind, status=502, retry=retry, retry_after_s=after)


ERRORS: dict[str, UpstreamError] = {
    "refused": ConnectFailed("no"),
    "connect timeout": UpstreamTimeout("late", "connect"),
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


def decide(name: str, progress: Progress, rules: Rules = RULES, left_s: float = 100.0) -> str:
    attempt = next_attempt(ERRORS[name], progress, rules, left_s, seed=7)
    if attempt is None:
        return STOP
    assert attempt.target == attempt.progress.target
    if attempt.target == progress.target:
        assert attempt.progress.made_here == progress.made_here + 1
        return SAME
    assert attempt.target == progress.target + 1
    assert attempt.wait_s == 0
    return NEXT


@pytest.mark.parametrize(
    ("name", "others_left", "none_left"),
    [
        ("refused", SAME, SAME),
        ("connect timeout", NEXT, SAME),
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
        ("503", SAME, SAME),
        ("503 with a wait", NEXT, STOP),
        ("504", NEXT, STOP),
        ("529", SAME, SAME),
    ],
)
def test_what_follows_the_first_failure(name: str, others_left: str, none_left: str) -> None:
    assert decide(name, Progress(targets=2)) == others_left
    assert decide(name, Progress(targets=1)) == none_left


@pytest.mark.parametrize("name", ERRORS)
def test_B060_nothing_follows_once_content_has_left(name: str) -> None:
    assert decide(name, Progress(targets=3, begun=True)) == STOP


@pytest.mark.parametrize("name", ERRORS)
def test_B135_nothing_follows_the_deadline(name: str) -> None:
    assert decide(name, Progress(targets=3), left_s=0.0) == STOP


@pytest.mark.parametrize("name", ["refused", "429", "503", "529"])
def test_attempts_at_one_target_end_at_max_attempts(name: str) -> None:
    assert decide(name, Progress(targets=1, made_here=2)) == SAME
    assert decide(name, Progress(targets=1, made_here=3)) == STOP
    assert decide(name, Progress(targets=2, made_here=3)) == NEXT


@pytest.mark.parametrize("name", ["first token timeout", "response timeout", "cut", "408", "409", "504"])
def test_B068_what_may_have_been_done_is_asked_again_only_so_often(name: str) -> None:
    assert decide(name, Progress(targets=5, unanswered=1)) == STOP
    assert decide(name, Progress(targets=5), Rules(after_send=0)) == STOP
    assert decide(name, Progress(targets=5, unanswered=1), Rules(after_send=2)) == NEXT


@pytest.mark.parametrize("name", ["500", "429", "refused", "401"])
def test_what_was_not_done_does_not_use_that_up(name: str) -> None:
    attempt = next_attempt(ERRORS[name], Progress(targets=2, unanswered=1), RULES, 100.0, 1)
    assert attempt is not None
    assert attempt.progress.unanswered == 1


def test_B134_waits_double_and_are_capped_and_differ() -> None:
    for made in range(1, 10):
        bound = min(MAX_WAIT_S, BASE_WAIT_S * 2 ** (made - 1))
        waits = []
        for seed in range(500):
            attempt = next_attempt(ERRORS["refused"], Progress(1, made_here=made), Rules(20), 1e6, seed)
            assert attempt is not None
            waits.append(attempt.wait_s)
        assert 0 <= min(waits) < bound / 10
        assert bound * 0.9 < max(waits) <= bound
        assert abs(sum(waits) / len(waits) - bound / 2) < bound / 10


def test_a_wait_beyond_the_deadline_moves_on_instead() -> None:
    slow = next(
        seed
        for seed in range(100)
        if (attempt := next_attempt(ERRORS["refused"], Progress(1), RULES, 10.0, seed))
        and attempt.wait_s > 0.2
    )
    assert next_attempt(ERRORS["refused"], Progress(targets=1), RULES, 0.1, slow) is None
    moved = next_attempt(ERRORS["refused"], Progress(targets=2), RULES, 0.1, slow)
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
    progress = Progress(targets)
    made = 1
    for name in names:
        attempt = next_attempt(ERRORS[name], progress, Rules(most, after_send), 1e9, seed)
        if attempt is None:
            break
        progress = attempt.progress
        made += 1
    else:
        raise AssertionError("it never ended")
    assert made <= targets * max(most, 1)
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
