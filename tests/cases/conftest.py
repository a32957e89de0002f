"""One gate and one provider for each module of cases."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sluicegate.simulator import Simulator
from tests.cases.world import World, configuration
from tests.inprocess import in_process_gate


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Simulator() as simulator:
        gate = in_process_gate(tmp_path_factory.mktemp("cases"), configuration(simulator))
        async with gate.running():
            yield World(gate, simulator)
