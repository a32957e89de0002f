"""Which level decides a switch, and what each profile sets: contract C6, C7, C9 and B3."""

import itertools

import pytest

from sluicegate.billing.profiles import PROFILES, SWITCHES, Switches, decide
from sluicegate.routing.catalog_shapes import StreamSwitches

NONE = StreamSwitches()


def told(switches: Switches, **other: object) -> dict[str, object]:
    return {name: getattr(switches, name) for name in SWITCHES} | other


def test_nothing_said_is_the_default_profile() -> None:
    assert told(decide([NONE] * 4)) == told(PROFILES["default"])
    assert told(decide([])) == told(PROFILES["default"])


@pytest.mark.parametrize(
    ("profile", "usage_chunk", "cost", "header", "cut"),
    [
        ("default", "on_request", "usage", "x-sluicegate-cost-nano-usd", "produced"),
        ("relaykit", "on_request", "none", "", "produced"),
        ("openrelay", "always", "extension", "OpenRelay-Cost-Nano-USD", "none"),
        ("rutoken", "on_request", "none", "", "produced"),
        ("cloakray", "always", "usage", "x-sluicegate-cost-nano-usd", "produced"),
    ],
)
def test_profiles_C6_C7_C9_B3(profile: str, usage_chunk: str, cost: str, header: str, cut: str) -> None:
    switches = decide([StreamSwitches(profile=profile)])
    assert (switches.usage_chunk, switches.cost, switches.cost_header) == (usage_chunk, cost, header)
    assert (switches.on_disconnect, switches.on_error) == (cut, cut)


SINGLE: dict[str, tuple[object, object]] = {
    "usage_chunk": ("always", "on_request"), "cost": ("none", "usage"), "cost_extension_key": ("mine", "theirs"),
    "cost_header": ("", "x-cost"), "on_disconnect": ("drain", "none"), "on_error": ("none", "produced"),
}  # fmt: skip


def test_every_switch_is_tried() -> None:
    assert set(SINGLE) == set(SWITCHES)


@pytest.mark.parametrize("name", SINGLE)
def test_the_first_level_that_says_it_decides(name: str) -> None:
    first, later = (StreamSwitches(**{name: value}) for value in SINGLE[name])  # type: ignore[arg-type]
    for place, other in itertools.combinations(range(4), 2):
        levels = [NONE] * 4
        levels[place], levels[other] = first, later
        decided = decide(levels)
        assert getattr(decided, name) == SINGLE[name][0]
        assert told(decided, **{name: None}) == told(PROFILES["default"], **{name: None})


def test_at_one_level_a_switch_goes_before_its_profile() -> None:
    decided = decide(
        [StreamSwitches(profile="openrelay", cost="usage"), StreamSwitches(usage_chunk="on_request")]
    )
    assert told(decided) == told(PROFILES["openrelay"], cost="usage")


def test_a_profile_goes_before_switches_of_later_levels() -> None:
    decided = decide(
        [NONE, StreamSwitches(profile="relaykit"), StreamSwitches(cost="usage", cost_header="x-late")]
    )
    assert told(decided) == told(PROFILES["relaykit"])
