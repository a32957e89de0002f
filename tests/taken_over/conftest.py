"""One gate for the tests of a module."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sluicegate.simulator import Simulator
from tests.inprocess import in_process_gate
from tests.taken_over.world import World, configuration


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Simulator() as first, Simulator() as second:
        folder, settings = tmp_path_factory.mktemp("taken-over"), configuration(first, second)
        async with in_process_gate(folder, settings).running() as gate:
            yield World(gate, first, second)


@pytest.fixture
def world(shared: World) -> World:
    """The gate and its providers, which have been asked nothing yet."""
    shared.first.clear()
    shared.second.clear()
    return shared
