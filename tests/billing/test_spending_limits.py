"""Spending limits: UTC periods, and budgets that no interleaving of leases and charges takes past a limit."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.budgets import Budgets
from sluicegate.billing.shortfall import ShortfallWatch
from sluicegate.billing.spending_limits import (
    DAY_S,
    WINDOWS,
    begins_at,
    budget_name,
    day_of,
    describe,
    ends_at,
    period_of,
    read_budget_name,
)

MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


def key_with(**limits: int) -> KeyRecord:
    return KeyRecord(id="k", name="k", prefix="", hash=b"", account_id="a", **limits)  # type: ignore[arg-type]


@given(MOMENTS)
def test_every_moment_lies_in_its_period(moment: datetime) -> None:
    at = moment.timestamp()
    for window in WINDOWS:
        ends = ends_at(window, day_of(at))
        assert begins_at(window, day_of(at)) <= at
        assert ends is None or at < ends
        assert ends is None or begins_at(window, day_of(ends)) == ends


@given(MOMENTS)
def test_periods_are_those_of_the_calendar(moment: datetime) -> None:
    day = day_of(moment.timestamp())
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    monday = midnight - timedelta(days=midnight.weekday())
    first = midnight.replace(day=1)
    begun = [datetime.fromtimestamp(begins_at(window, day), UTC) for window in ("day", "week", "month")]
    assert begun == [midnight, monday, first]


@given(MOMENTS, MOMENTS)
def test_two_days_share_a_period_only_where_they_began_it_together(one: datetime, other: datetime) -> None:
    days = day_of(one.timestamp()), day_of(other.timestamp())
    for window in WINDOWS:
        same = period_of(window, days[0]) == period_of(window, days[1])
        assert same == (begins_at(window, days[0]) == begins_at(window, days[1]))


def test_a_refusal_says_what_the_limit_is_and_when_it_resets() -> None:
    day = day_of(datetime(2026, 12, 31, 23, 59, tzinfo=UTC).timestamp())
    assert describe("day", 5 * 10**9, day) == "5 USD a day (UTC); it resets at 2027-01-01T00:00:00Z"
    assert describe("week", 10**8, day) == "0.1 USD a week (UTC); it resets at 2027-01-04T00:00:00Z"
    assert describe("month", 1, day).endswith("a month (UTC); it resets at 2027-01-01T00:00:00Z")
    assert describe("lifetime", 10**9, day) == "1 USD in all; it does not reset"


@given(st.text("abcdef_0123456789", min_size=1), st.integers(0, 10**6))
def test_a_budgets_name_says_key_and_day(key_id: str, day: int) -> None:
    assert read_budget_name(budget_name(key_id, day)) == (key_id, day)


TODAY = 20_000
"""A Wednesday (2024-10-04 is a Friday: the day after tomorrow); its week began on day 19,996."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["lease", "part", "spend", "give back", "die"]),
        st.integers(0, 2),
        st.integers(0, 9),
        st.integers(1, 60),
    ),
    max_size=60,
)


@given(
    st.fixed_dictionaries({f"{window}_nano": st.none() | st.integers(0, 300) for window in WINDOWS}), STEPS
)
def test_charges_never_pass_a_limit(limits: dict[str, int], steps: list[tuple[str, int, int, int]]) -> None:
    """Three workers lease for ten days, spend, give back and die; a plain model keeps what was charged."""
    budgets = Budgets()
    key = key_with(**{name: nano for name, nano in limits.items() if nano is not None})
    budgets.put(key, {}, TODAY)
    charged: dict[int, int] = {}
    for what, worker, ahead, nano in steps:
        day = TODAY + ahead
        name = budget_name("k", day)
        held = budgets.leased_to(name, worker)
        if what == "lease":
            grant = budgets.lease(name, worker, nano, 3)
            assert grant.amount_nano == 0 or grant.amount_nano >= nano
        elif what == "part":
            assert budgets.lease_part(name, worker, nano).amount_nano <= nano
        elif what == "spend":
            spent = min(held, nano)
            budgets.book("k", day, spent, worker, held=True)
            charged[day] = charged.get(day, 0) + spent
            assert budgets.leased_to(name, worker) == held - spent
        elif what == "give back":
            budgets.give_back(name, worker, min(held, nano))
        else:
            budgets.release_worker(worker)
            assert budgets.leased_to(name, worker) == 0
        for window in WINDOWS:
            limit = limits[f"{window}_nano"]
            sums: dict[int, int] = {}
            for spent_on, amount in charged.items():
                period = period_of(window, spent_on)
                sums[period] = sums.get(period, 0) + amount
            assert limit is None or max(sums.values(), default=0) <= limit


def test_a_refusal_names_the_window_that_leaves_least() -> None:
    budgets = Budgets()
    budgets.put(key_with(day_nano=100, month_nano=120), {"month": 70}, TODAY)
    refused = budgets.lease(budget_name("k", TODAY), 1, 60, 1)
    assert (refused.amount_nano, refused.available_nano, refused.limit) == (0, 50, "month")
    assert budgets.lease(budget_name("k", TODAY), 1, 50, 1).amount_nano == 50


def test_what_is_leased_of_yesterday_counts_against_the_week_and_not_the_day() -> None:
    budgets = Budgets()
    budgets.put(key_with(day_nano=100, week_nano=150), {}, TODAY)
    assert budgets.lease(budget_name("k", TODAY), 1, 100, 1).amount_nano == 100
    tomorrow = budget_name("k", TODAY + 1)
    assert budgets.free(tomorrow) == 50
    assert budgets.beside(tomorrow) == [budget_name("k", TODAY)]
    budgets.book("k", TODAY, 100, 1, held=True)
    assert budgets.free(tomorrow) == 50
    assert budgets.beside(tomorrow) == []


def test_limits_that_are_lowered_want_idle_leases_back() -> None:
    budgets = Budgets()
    assert budgets.put(key_with(day_nano=100), {}, TODAY)
    budgets.lease(budget_name("k", TODAY), 1, 90, 1)
    assert not budgets.put(key_with(day_nano=200), {}, TODAY)
    assert budgets.put(key_with(day_nano=50), {}, TODAY)
    assert budgets.free(budget_name("k", TODAY)) == -40
    assert budgets.unknown(key_with(day_nano=50, month_nano=9)) == ["month"]


def test_a_worker_cannot_give_back_more_than_it_holds() -> None:
    budgets = Budgets()
    budgets.put(key_with(day_nano=100), {}, TODAY)
    with pytest.raises(AssertionError):
        budgets.give_back(budget_name("k", TODAY), 1, 1)


def test_an_account_past_the_days_shortfall_is_told_once_and_free_again_the_next_day() -> None:
    watch = ShortfallWatch(100, DAY_S * 5.0, {"old": 101})
    assert watch.passed == ["old"]
    assert watch.add({"a": 100}, DAY_S * 5.5) == []
    assert watch.add({"a": 1, "b": 5}, DAY_S * 5.6) == ["a"]
    assert watch.add({"a": 50}, DAY_S * 5.7) == []
    assert sorted(watch.passed) == ["a", "old"]
    assert watch.turn(DAY_S * 6.0)
    assert watch.passed == []
    assert not watch.turn(DAY_S * 6.5)
