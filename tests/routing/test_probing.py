"""What probes change: when an open deployment is let in early, held open, and when one that works is opened."""

import pytest

from sluicegate.errors import ConnectFailed, UpstreamError, UpstreamGarbled, UpstreamStatus, UpstreamTimeout
from sluicegate.routing.health import JITTER, HealthRules
from sluicegate.routing.probing import (
    Finding,
    ProbeRules,
    Watch,
    after_finding,
    begin,
    drawn,
    finding_of,
    trips,
)

RULES = ProbeRules(kind="models", every_s=4.0, timeout_s=2.0)
HEALTH = HealthRules(failures=3, open_s=5.0, max_open_s=60.0)


def status(code: int, kind: str) -> UpstreamStatus:
    return UpstreamStatus("no", upstream_status=code, kind=kind, status=502, retry="elsewhere")


@pytest.mark.parametrize(
    ("error", "finding"),
    [
        (None, "well"),
        (ConnectFailed("no"), "ill"),
        (UpstreamTimeout("late", "response"), "ill"),
        (UpstreamGarbled("odd"), "ill"),
        (status(500, "upstream_error"), "ill"),
        (status(401, "upstream_auth"), "refused"),
        (status(402, "upstream_budget"), "refused"),
        (status(429, "rate_limited"), "unclear"),
        (status(404, "upstream_error"), "unclear"),
        (status(400, "bad_request"), "unclear"),
    ],
)
def test_what_a_probe_finds(error: UpstreamError | None, finding: Finding) -> None:
    assert finding_of(error) == finding


def test_times_between_probes_are_drawn_around_their_middle() -> None:
    times = [drawn(4.0, seed) for seed in range(500)]
    assert 4.0 * (1 - JITTER) <= min(times) < 3.1
    assert 4.9 < max(times) <= 4.0 * (1 + JITTER)


def test_the_first_probe_comes_before_the_open_time_is_over() -> None:
    assert all(begin(1, 2.0, 100.0, seed, RULES).due_at <= 101.6 for seed in range(50))
    assert all(103.0 <= begin(1, 60.0, 100.0, seed, RULES).due_at <= 105.0 for seed in range(50))


def found(watch: Watch, finding: Finding, now: float, open_s: float = 9.0) -> tuple[Watch, float]:
    return after_finding(watch, finding, open_s, now, 7, RULES, HEALTH)


def test_one_good_probe_lets_a_request_in() -> None:
    assert found(Watch(1, 100.0, 100.0), "well", 103.0)[1] == 0.0


def test_each_further_opening_wants_one_more_good_probe_in_a_row() -> None:
    watch, open_s = found(Watch(3, 100.0, 100.0), "well", 101.0)
    assert open_s == 9.0
    watch, open_s = found(watch, "well", 102.0)
    assert open_s == 9.0
    broken, _ = found(watch, "ill", 103.0)
    assert found(found(broken, "well", 104.0)[0], "well", 105.0)[1] == 9.0
    watch, open_s = found(watch, "well", 103.0)
    assert open_s == 0.0
    assert watch.well == 0


@pytest.mark.parametrize("finding", ["ill", "refused"])
def test_a_bad_probe_holds_it_open_past_the_next_one(finding: Finding) -> None:
    watch, open_s = found(Watch(1, 100.0, 100.0), finding, 103.0, 0.5)
    assert open_s == pytest.approx(watch.due_at + RULES.timeout_s - 103.0)
    assert 103.0 + 4.0 * (1 - JITTER) <= watch.due_at <= 103.0 + 4.0 * (1 + JITTER)
    assert found(Watch(1, 100.0, 100.0), finding, 103.0, 30.0)[1] == 30.0, "never less than it would be"


def test_probes_hold_it_no_longer_than_the_longest_time() -> None:
    assert found(Watch(1, 100.0, 100.0), "ill", 158.0, 0.5)[1] == pytest.approx(2.0)
    assert found(Watch(1, 100.0, 100.0), "ill", 161.0, 0.5)[1] == 0.5


def test_what_is_unclear_changes_nothing() -> None:
    watch, open_s = found(Watch(1, 100.0, 100.0), "unclear", 103.0)
    assert (open_s, watch.well, watch.opens) == (9.0, 0, 1)


def test_what_works_is_opened_by_failures_in_a_row_or_a_refusal() -> None:
    assert not trips(2, "ill", HEALTH)
    assert trips(3, "ill", HEALTH)
    assert trips(1, "refused", HEALTH)
