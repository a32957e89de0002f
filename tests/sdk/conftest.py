"""A gate with a scripted provider behind it, for the official SDKs."""

from collections.abc import Iterator

import pytest

from sluicegate.simulator import SimulatorProcess
from tests.gate import RunningGate, run_gate
from tests.sdk.world import SCRIPTS, configuration


@pytest.fixture(scope="session")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGate]:
    with SimulatorProcess() as simulator:
        for name, script in SCRIPTS.items():
            simulator.push(script, model=name, times=None)
        with run_gate(tmp_path_factory.mktemp("sdk"), configuration(simulator.url)) as running:
            yield running
