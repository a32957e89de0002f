"""The order in which a model's deployments are tried."""

from collections import Counter
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.routing import catalog
from sluicegate.routing.catalog_shapes import Deployment, Price
from sluicegate.routing.health import Condition
from sluicegate.routing.route import AVERAGED_S, Candidate, after_first_token, faded, order


def candidate(
    name: str,
    priority: int = 0,
    weight: int = 1,
    *,
    cost: Price | None = None,
    condition: Condition = "closed",
    told: bool = True,
    running: int = 0,
    first_token_s: float | None = None,
) -> Candidate:
    return Candidate(
        catalog.Deployment(Deployment(provider="p", model=name, priority=priority, weight=weight, cost=cost)),
        crc32(name.encode()),
        condition,
        told,
        running,
        first_token_s,
    )


def candidates(*targets: tuple[int, int]) -> list[Candidate]:
    """Make candidates of (priority, weight) pairs, sorted as the catalogue sorts them."""
    made = [candidate(f"m{index}", *target) for index, target in enumerate(targets)]
    return sorted(made, key=lambda one: one.deployment.priority)


TARGETS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=6)


@given(TARGETS, st.integers(0, 2**64 - 1))
def test_every_deployment_stands_once_and_groups_keep_their_order(
    targets: list[tuple[int, int]], key: int
) -> None:
    known = candidates(*targets)
    chosen = order(known, "weighted", key)
    assert sorted(chosen) == list(range(len(known)))
    assert [known[place].deployment.priority for place in chosen] == sorted(
        priority for priority, _ in targets
    )


@given(TARGETS, st.integers(0, 2**64 - 1))
def test_weight_0_comes_after_the_rest_of_its_group(targets: list[tuple[int, int]], key: int) -> None:
    known = candidates(*targets)
    chosen = [known[place].deployment for place in order(known, "weighted", key)]
    for priority in {priority for priority, _ in targets}:
        weights = [target.weight for target in chosen if target.priority == priority]
        assert weights[weights.index(0) :] == [0] * weights.count(0) if 0 in weights else True


def test_shares_of_conversations_follow_the_weights() -> None:
    known = candidates((0, 7), (0, 2), (0, 1), (1, 1))
    first = Counter(order(known, "weighted", key)[0] for key in range(20_000))
    for place, share in ((0, 0.7), (1, 0.2), (2, 0.1)):
        assert abs(first[place] / 20_000 - share) < 0.015
    assert first[3] == 0


def test_the_second_choice_follows_the_weights_of_what_is_left() -> None:
    known = candidates((0, 1), (0, 3), (0, 1))
    orders = [order(known, "weighted", key) for key in range(20_000)]
    second = Counter(chosen[1] for chosen in orders if chosen[0] == 0)
    assert abs(second[1] / second.total() - 0.75) < 0.02


def test_a_conversation_keeps_its_deployment_and_moves_only_where_that_goes() -> None:
    three = [candidate("a"), candidate("b"), candidate("c")]
    open_b = [candidate("a"), candidate("b", condition="open"), candidate("c")]
    for key in range(500):
        before = order(three, "weighted", key)
        after = order(open_b, "weighted", key)
        assert after == [place for place in before if place != 1]
        assert order(three, "weighted", key) == before


def test_what_is_open_or_cooling_is_left_out() -> None:
    known = [
        candidate("open", condition="open"),
        candidate("cooling", condition="cooling"),
        candidate("half", condition="half_open", priority=1),
        candidate("well", priority=2),
    ]
    assert order(known, "weighted", 1) == [2, 3]


def test_with_nothing_else_left_what_is_open_is_tried_and_who_asked_for_patience_is_not() -> None:
    known = [
        candidate("told", condition="cooling"),
        candidate("guessed", condition="cooling", told=False, priority=1),
        candidate("open", condition="open", priority=2),
    ]
    assert order(known, "weighted", 1) == [1, 2]
    assert order(known[:1], "weighted", 1) == []


def test_cheapest_counts_what_the_request_may_come_to() -> None:
    known = [
        candidate("long answers", cost=Price(input=10, output=1)),
        candidate("long questions", cost=Price(input=1, output=10)),
        candidate("unknown"),
        candidate("per request", cost=Price(per_request=100)),
    ]
    assert order(known, "cheapest", 5, (1000, 10))[:2] == [1, 0]
    assert order(known, "cheapest", 5, (10, 1000))[:2] == [0, 1]
    assert order(known, "cheapest", 5, (10**9, 10**9))[0] == 3
    assert all(order(known, "cheapest", key)[-1] == 2 for key in range(20))


def test_among_equals_in_cost_a_conversation_has_its_own() -> None:
    known = [candidate(name, cost=Price(input=1)) for name in "abc"]
    firsts = {key: order(known, "cheapest", key)[0] for key in range(100)}
    assert len(set(firsts.values())) == 3
    assert firsts == {key: order(known, "weighted", key)[0] for key in range(100)}


@pytest.mark.parametrize("key", range(10))
def test_least_busy_goes_where_least_runs_for_its_weight(key: int) -> None:
    assert order([candidate("a", running=1), candidate("b")], "least_busy", key)[0] == 1
    known = [candidate("a", weight=4, running=8), candidate("b", running=3)]
    assert order(known, "least_busy", key)[0] == 0


@pytest.mark.parametrize("strategy", ["least_busy", "fastest_first_token"])
def test_a_conversation_stays_while_its_own_is_nearly_as_good(strategy: str) -> None:
    def pair(own: int, other: int) -> list[Candidate]:
        return [
            candidate("a", running=own, first_token_s=own / 100),
            candidate("b", running=other, first_token_s=other / 100),
        ]

    key = next(key for key in range(99) if order(pair(1, 1), "weighted", key)[0] == 0)
    assert order(pair(100, 81), strategy, key)[0] == 0  # type: ignore[arg-type]
    assert order(pair(100, 79), strategy, key)[0] == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("key", range(10))
def test_fastest_first_token_measures_each_by_one_request_at_first(key: int) -> None:
    fast, slow = candidate("a", first_token_s=0.1), candidate("b", first_token_s=0.5)
    assert order([slow, fast], "fastest_first_token", key)[0] == 1
    assert order([fast, candidate("new")], "fastest_first_token", key)[0] == 1
    assert order([fast, candidate("new", running=1)], "fastest_first_token", key)[0] == 0


def test_an_average_follows_peaks_at_once_and_falls_slowly() -> None:
    assert after_first_token(None, 0.0, 0.2) == 0.2
    assert after_first_token(0.2, 1.0, 3.0) == 3.0
    one_later = after_first_token(3.0, 1.0, 0.2)
    assert 2.8 < one_later < 3.0
    assert 0.2 < after_first_token(3.0, AVERAGED_S, 0.2) < 1.3
    assert faded(0.5, 0.0) == 0.5
    assert faded(0.5, 2 * AVERAGED_S) < 0.1
