"""The order in which a model's deployments are tried."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.routing.catalog import Deployment, Model
from sluicegate.routing.route import order


def model(*targets: tuple[int, int]) -> Model:
    """Make a model of (priority, weight) pairs, sorted as the catalogue sorts them."""
    deployments = [
        Deployment(provider="p", model=str(index), priority=priority, weight=weight)
        for index, (priority, weight) in enumerate(targets)
    ]
    return Model(
        id="m", deployments=tuple(sorted(deployments, key=lambda target: target.priority)), price=None
    )


TARGETS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=6)


@given(TARGETS, st.integers())
def test_every_deployment_stands_once_and_groups_keep_their_order(
    targets: list[tuple[int, int]], seed: int
) -> None:
    served = model(*targets)
    chosen = order(served, seed)
    assert Counter(chosen) == Counter(served.deployments)
    assert [target.priority for target in chosen] == sorted(priority for priority, _ in targets)


@given(TARGETS, st.integers())
def test_the_same_seed_gives_the_same_order(targets: list[tuple[int, int]], seed: int) -> None:
    assert order(model(*targets), seed) == order(model(*targets), seed)


@given(TARGETS, st.integers())
def test_weight_0_comes_after_the_rest_of_its_group(targets: list[tuple[int, int]], seed: int) -> None:
    for priority in {priority for priority, _ in targets}:
        weights = [target.weight for target in order(model(*targets), seed) if target.priority == priority]
        assert weights[weights.index(0) :] == [0] * weights.count(0) if 0 in weights else True


def test_shares_follow_the_weights() -> None:
    served = model((0, 7), (0, 2), (0, 1), (1, 1))
    first = Counter(order(served, seed)[0].model for seed in range(20_000))
    for name, share in (("0", 0.7), ("1", 0.2), ("2", 0.1)):
        assert abs(first[name] / 20_000 - share) < 0.015
    assert first["3"] == 0


def test_the_second_choice_follows_the_weights_of_what_is_left() -> None:
    served = model((0, 1), (0, 3), (0, 1))
    second = Counter(
        order(served, seed)[1].model for seed in range(20_000) if order(served, seed)[0].model == "0"
    )
    assert abs(second["1"] / second.total() - 0.75) < 0.02
