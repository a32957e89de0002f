"""Limits a minute: never more than the limit in any 60 seconds, nearly all of it when asked for, exact books."""

import copy
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluicegate.billing.fair_queue import FairQueue
from sluicegate.billing.limits import WINDOW_S, Grant, Kind, LimitBook, Return, SlidingWindow, Want
from tests.profiles import examples


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
    assert LimitBook().ask(1, [Want("key:a", "requests", 0, 1)], 5.0, 1).refused == 0


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


Books.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
test_books = Books.TestCase


def ask(
    book: LimitBook, *needs: tuple[Kind, int, int], now: float = 10.0, worker: int = 1, workers: int = 2
) -> Grant:
    return book.ask(worker, [Want("key:a", kind, limit, need) for kind, limit, need in needs], now, workers)


def test_requests_tokens_and_streams() -> None:
    book = LimitBook()
    for _ in range(2):
        assert ask(book, ("requests", 3, 1), ("tokens", 100, 40), ("streams", 2, 1)).refused == -1
    at_once = ask(book, ("requests", 3, 1), ("tokens", 100, 1), ("streams", 2, 1))
    assert (at_once.refused, at_once.wait_s) == (2, 1.0)
    book.give_back(1, Return("key:a", "streams", 1), 11.0)
    book.give_back(1, Return("key:a", "tokens", 30, 10), 11.0)
    too_many = ask(book, ("requests", 3, 1), ("tokens", 100, 60), ("streams", 2, 1), now=11.0)
    assert too_many.refused == 1
    assert ask(book, ("requests", 3, 1), ("tokens", 100, 50), ("streams", 2, 1), now=11.0).refused == -1
    asked_often = ask(book, ("requests", 3, 1), now=12.0)
    assert asked_often.refused == 0
    assert 58 <= asked_often.wait_s <= 60
    assert 59 <= asked_often.reset_s <= 60


def test_what_was_refused_is_not_booked() -> None:
    book = LimitBook()
    for _ in range(5):
        ask(book, ("requests", 2, 1), ("tokens", 10, 8), ("streams", 9, 1))
    assert [book.used("key:a", kind, 10.0) for kind in ("requests", "tokens", "streams")] == [1, 8, 1]


def test_what_is_left_of_a_slice_goes_back_into_its_second() -> None:
    book = LimitBook()
    got = ask(book, ("requests", 1000, 1), now=10.9)
    assert (got.second, got.slices[0].amount, got.slices[0].left) == (10, 1 + 5, 994)
    again = book.ask(1, [Want("key:a", "requests", 1000, 1, 5, 10)], 12.0, 2)
    assert (again.second, book.used("key:a", "requests", 12.0)) == (12, 1 + 6)
    assert book.used("key:a", "requests", 71.5) == 6  # what was used in second 10 is out of the window
    assert book.used("key:a", "requests", 73.0) == 0


def test_tokens_beyond_the_estimate_are_booked_too() -> None:
    book = LimitBook()
    ask(book, ("tokens", 100, 10))
    book.give_back(1, Return("key:a", "tokens", -85, 10), 15.0)
    assert ask(book, ("tokens", 100, 6), now=15.0).refused == 0
    assert ask(book, ("tokens", 100, 5), now=15.0).refused == -1


def test_a_dead_worker_frees_its_places_and_no_minute() -> None:
    book = LimitBook()
    ask(book, ("requests", 3, 1), ("streams", 1, 1), worker=1)
    assert ask(book, ("requests", 3, 1), ("streams", 1, 1), worker=2).refused == 1
    book.release_worker(1)
    assert ask(book, ("requests", 3, 1), ("streams", 1, 1), worker=2).refused == -1
    assert book.used("key:a", "requests", 10.0) == 2


def test_what_nobody_uses_is_forgotten() -> None:
    book = LimitBook()
    ask(book, ("requests", 3, 1), ("streams", 1, 1), worker=1)
    book.forget_idle(20.0)
    assert len(book) == 2
    book.release_worker(1)
    book.forget_idle(80.0)
    assert len(book) == 0


@pytest.mark.parametrize("workers", [1, 2, 4, 16])
@pytest.mark.parametrize("limit", [1, 59, 600, 20_000])
def test_slices_of_many_workers_never_pass_the_limit_nor_strand_two_percent(limit: int, workers: int) -> None:
    """Workers ask as the clerk does: when what they have of this second is used up, giving back what is older."""
    chance = random.Random(limit * workers)
    book = LimitBook()
    idle = dict.fromkeys(range(workers), (0, 0))
    taken: list[tuple[float, int]] = []
    now = 100.0
    while now < 260.0:  # all the time somebody asks somewhere
        now += 30 / limit * chance.random()
        worker = chance.randrange(workers)
        amount, second = idle[worker]
        if not amount or second != int(now):
            grant = book.ask(worker, [Want("key:a", "requests", limit, 1, amount, second)], now, workers)
            amount, second = (grant.slices[0].amount, grant.second) if grant.refused < 0 else (0, 0)
        if amount:
            taken.append((now, 1))
            amount -= 1
        idle[worker] = (amount, second)
    assert busiest_minute(taken) <= limit
    served = len([at for at, _ in taken if at < 100.0 + 61 * 2])  # two turns of the ring
    assert served >= 0.98 * limit * 2 - workers


def test_keys_take_turns() -> None:
    line: FairQueue[str] = FairQueue()
    for number in range(3):
        line.add("busy", f"busy {number}")
    line.add("calm", "calm 0")
    order = []
    while (waiter := line.first()) is not None:
        order.append(waiter)
        assert line.remove(waiter.split()[0], waiter)
    assert order == ["busy 0", "calm 0", "busy 1", "busy 2"]
    assert not line.remove("calm", "calm 0")
    assert len(line) == 0


def test_who_leaves_the_line_costs_nobody_a_turn() -> None:
    line: FairQueue[str] = FairQueue()
    line.add("a", "a 0")
    line.add("a", "a 1")
    line.add("b", "b 0")
    assert line.remove("a", "a 1")
    assert line.first() == "a 0"
