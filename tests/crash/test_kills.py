"""A dozen kills under load; `make soak` runs a hundred. Contract X6."""

import os
from pathlib import Path

from tests.crash.soak import new_seed, soak

KILLS = 12


async def test_x6_kills_lose_no_charge_and_charge_nothing_twice(tmp_path: Path) -> None:
    seed = int(os.environ.get("SLUICEGATE_SEED", new_seed()))
    print(f"SLUICEGATE_SEED={seed}")
    outcome = await soak(tmp_path, kills=KILLS, seed=seed, on_crash="produced")
    print(outcome)
    assert outcome.problems == []
    assert outcome.figures.whole > 0
    assert outcome.figures.crashed > 0
