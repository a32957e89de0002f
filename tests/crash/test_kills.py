"""A hundred kills under load, and one of each other fault; `make soak` runs a thousand. Contract X6."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crash.faults import FAULTS, Fault
from tests.crash.soak import Outcome, new_seed, soak

KILLS = 50


async def run(folder: Path, kills: int, faults: Sequence[Fault]) -> Outcome:
    """Run with a seed that is printed, and can be given again."""
    seed = int(os.environ.get("SLUICEGATE_SEED", new_seed()))
    print(f"SLUICEGATE_SEED={seed}")
    outcome = await soak(folder, kills=kills, seed=seed, on_crash="produced", faults=faults)
    print(outcome)
    assert outcome.problems == []
    assert outcome.figures.whole > 0
    return outcome


@pytest.mark.parametrize("gate", ["one", "another"])
async def test_x6_kills_lose_no_charge_and_charge_nothing_twice(gate: str, tmp_path: Path) -> None:
    """Two gates share the hundred, so that they can be killed side by side."""
    outcome = await run(tmp_path, KILLS, ())
    assert sum(outcome.kills.values()) == KILLS
    assert outcome.figures.crashed > 0


async def test_x6_no_more_do_a_full_disk_a_lost_store_and_the_like(tmp_path: Path) -> None:
    outcome = await run(tmp_path, 0, FAULTS)
    assert sum(outcome.faults.values()) == len(FAULTS)
    assert outcome.damage.startswith("1 records corrupted")
    assert set(outcome.skipped) <= {"disk full"}  # only root may mount a small one
