"""A gate with a scripted provider behind it and a tap before it, for whole clients."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sluicegate.simulator import SimulatorProcess
from tests.clients.tap import Tap
from tests.clients.world import Commands, configuration
from tests.gate import RunningGate, run_gate
from tests.node import BROUGHT

FOLDER = Path(__file__).parent


class World(NamedTuple):
    """What a client runs in."""

    gate: RunningGate
    simulator: SimulatorProcess
    tap: Tap
    """Where clients connect to."""

    def rows(self, models: set[str], count: int) -> list[dict[str, Any]]:
        """Return the rows of models, once there are so many."""
        give_up_at = time.monotonic() + 20.0
        while True:
            rows = [row for row in self.gate.usage() if row["model"] in models]
            if len(rows) >= count or time.monotonic() > give_up_at:
                return rows


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGate, SimulatorProcess]]:
    with (
        SimulatorProcess() as simulator,
        run_gate(tmp_path_factory.mktemp("clients"), configuration(simulator.url)) as gate,
    ):
        yield gate, simulator


@pytest.fixture
def world(running: tuple[RunningGate, SimulatorProcess]) -> Iterator[World]:
    gate, simulator = running
    simulator.clear()
    with Tap(gate.port) as tap:
        yield World(gate, simulator, tap)


@pytest.fixture(scope="session")
def agents() -> Commands:
    """The agents, on a Node.js of their own: Debian's may be too old for one of them."""
    commands = FOLDER / "node_modules" / ".bin"
    if not commands.exists() or BROUGHT is None:
        pytest.skip("the agents are not installed: `make clients` found no npm registry, or did not run")
    return Commands(commands, BROUGHT.parent)


@pytest.fixture(scope="session")
def libraries() -> Path:
    """Folder of the Python clients' commands, in an environment of their own."""
    commands = FOLDER / ".venv" / "bin"
    if not (commands / "llm").exists():
        pytest.skip("the Python clients are not installed: `make clients` does it")
    return commands
