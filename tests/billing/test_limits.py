"""Limits a minute: never more than the limit in any 60 seconds, nearly all of it when asked for, exact books."""

import copy
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluicegate.billing.limits import WINDOW_S, KeyLimits, Refusal, SlidingWindow


def busiest_minute(taken: list[tuple[float, int]]) -> int:
    """Return the most that any 60 seconds hold, both ends included."""
    most = used = first = 0
    for at, amount in taken:
        used += amount
        while taken[first][0] < at - WINDOW_S:
            used -= taken[first][1]
            first += 1
        most = max(most, used)
    return most


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("limit", [1, 7, 600])
def test_no_minute_holds_more_than_the_limit(limit: int, seed: int) -> None:
    chance = random.Random(seed)
    window = SlidingWindow(limit)
    now = chance.random() * 1000
    taken: list[tuple[float, int]] = []
    for _ in range(4000):
        now += chance.choice([0.0, 0.001, 0.3, 1.0, 7.0, 61.5]) * chance.random()
        if not window.wait_s(now, 1):
            window.take(now, 1)
            taken.append((now, 1))
    assert busiest_minute(taken) <= limit


@pytest.mark.parametrize("limit", [60, 600, 6000])
def test_a_steady_client_gets_98_percent(limit: int) -> None:
    window = SlidingWindow(limit)
    got = 0
    step = 60 / limit / 4  # asks four times as often as it may
    for number in range(limit * 4 * 10):  # ten minutes
        now = 5.5 + number * step
        if not window.wait_s(now, 1):
            window.take(now, 1)
            got += 1
    assert 0.98 * limit * 10 <= got <= limit * 11


@given(
    st.floats(0, 1e6),
    st.lists(st.tuples(st.floats(0, 70), st.integers(1, 30)), max_size=40),
    st.integers(1, 60),
)
def test_who_waits_as_told_gets_in(start: float, steps: list[tuple[float, int]], limit: int) -> None:
    window = SlidingWindow(limit)
    now = start
    for gap, amount in steps:
        now += gap
        wait_s = window.wait_s(now, amount)
        assert wait_s == 0 or 1 <= wait_s <= WINDOW_S + 1
        if wait_s and amount <= limit:
            assert copy.deepcopy(window).wait_s(now + wait_s + 1e-6, amount) == 0
        if not wait_s:
            window.take(now, amount)


def test_more_than_the_limit_fits_an_empty_window_alone() -> None:
    window = SlidingWindow(10)
    assert window.wait_s(0.0, 25) == 0
    window.take(0.0, 25)
    assert window.wait_s(1.0, 1) > 1
    assert window.wait_s(61.0, 25) == 0


def test_a_limit_of_nothing_lets_nothing_in() -> None:
    assert SlidingWindow(0).wait_s(5.0, 1) >= 1
    assert isinstance(KeyLimits(0, None, None).admit(5.0, 1), Refusal)


def test_a_clock_that_stands_or_steps_back_loses_nothing() -> None:
    window = SlidingWindow(2)
    window.take(100.5, 1)
    window.take(99.0, 1)
    assert window.used(99.0) == 2
    assert window.wait_s(100.9, 1) > 0


class Books(RuleBasedStateMachine):
    """A window beside a plain list of what was booked when."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.25
        self.window = SlidingWindow(100)
        self.booked: Counter[int] = Counter()

    @rule(seconds=st.sampled_from([0.0, 0.3, 0.5, 1.0, 13.0, 59.0, 60.0, 61.0, 62.0, 500.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(amount=st.integers(0, 90))
    def take(self, amount: int) -> None:
        if self.window.wait_s(self.now, amount) == 0:
            self.booked[self.window.take(self.now, amount)] += amount

    @precondition(lambda self: self.booked)
    @rule(data=st.data(), difference=st.integers(-120, 60))
    def correct(self, data: st.DataObject, difference: int) -> None:
        second = data.draw(st.sampled_from(sorted(self.booked)))
        self.window.correct(self.now, second, difference)
        self.booked[second] = max(0, self.booked[second] + difference)

    @invariant()
    def used_is_what_the_last_minute_booked(self) -> None:
        second = int(self.now)
        held = sum(amount for at, amount in self.booked.items() if second - at <= WINDOW_S)
        assert self.window.used(self.now) == held


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_books = Books.TestCase


def test_requests_tokens_and_streams() -> None:
    limits = KeyLimits(rpm=3, tpm=100, max_streams=2)
    first = limits.admit(10.0, 40)
    second = limits.admit(10.0, 40)
    assert (first, second, limits.running) == (10, 10, 2)
    at_once = limits.admit(10.0, 1)
    assert isinstance(at_once, Refusal)
    assert "at once" in at_once.message
    limits.release(11.0, 10, 40, 10)
    too_many = limits.admit(11.0, 60)
    assert isinstance(too_many, Refusal)
    assert "tokens a minute" in too_many.message
    assert limits.admit(11.0, 50) == 11
    limits.release(12.0, 11, 50, 50)
    asked_often = limits.admit(12.0, 0)
    assert isinstance(asked_often, Refusal)
    assert "requests a minute" in asked_often.message
    assert 1 <= asked_often.wait_s <= 61


def test_what_was_refused_is_not_booked() -> None:
    limits = KeyLimits(rpm=2, tpm=10, max_streams=None)
    for _ in range(5):
        limits.admit(1.0, 8)
    assert limits.running == 1
    assert limits.admit(1.0, 2) == 1


def test_release_books_what_was_used_not_what_was_estimated() -> None:
    limits = KeyLimits(rpm=None, tpm=100, max_streams=None)
    admitted = limits.admit(1.0, 100)
    assert admitted == 1
    limits.release(5.0, 1, 100, 30)
    assert limits.admit(5.0, 70) == 5
    limits.release(200.0, 5, 70, 500)  # long after its minute: nothing to correct
    assert limits.admit(200.0, 100) == 200


def test_no_limits_at_all() -> None:
    limits = KeyLimits(None, None, None)
    for _ in range(1000):
        assert not isinstance(limits.admit(1.0, 10**9), Refusal)
    assert limits.running == 1000
