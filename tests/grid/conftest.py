"""One gate and one simulator for a whole module: a provider a format, a model a provider and scene."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from sluicegate.billing.ledger import UsageRow
from sluicegate.simulator import Received, Simulator
from tests.conftest import PRICE, make_config
from tests.grid.scenes import FORMATS, SCENES
from tests.inprocess import InProcessGate, in_process_gate


class Grid(NamedTuple):
    """What a cell needs."""

    gate: InProcessGate
    simulator: Simulator

    def row(self, request_id: str | None) -> UsageRow:
        """Return the journal's row of a request."""
        (row,) = self.rows(request_id)
        return row

    def rows(self, request_id: str | None) -> list[UsageRow]:
        """Return the journal's rows of a request: none where it was refused before admission."""
        return [row for row in self.gate.rows() if row.request_id == request_id]

    @property
    def asked(self) -> Received:
        """The last request that the provider got."""
        return self.simulator.requests[-1]


def model_of(provider: str, scene: str, stream: bool) -> str:
    """Return the public id of a model at a provider that plays a scene."""
    return f"{provider}-{upstream_model(scene, stream)}"


def upstream_model(scene: str, stream: bool) -> str:
    """Return the id by which the simulator knows what to play."""
    return f"{scene}-{'streamed' if stream else 'plain'}"


def configuration(simulator: Simulator) -> dict[str, Any]:
    """Return the configuration of the grid's gate."""
    providers = {
        format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"} for format in FORMATS
    }
    models = {
        model_of(format, scene, stream): {
            "routes": [{"provider": format, "model": upstream_model(scene, stream)}],
            "price": PRICE,
            "capabilities": {"reasoning": "budget" if format in ("messages", "gemini") else "effort"},
        }
        for format in FORMATS
        for scene in (*SCENES, "several", "unsettled")
        for stream in (False, True)
    }
    keys = [{"name": "test", "key": "sg-test-key-0123456789abcdef", "balance_usd": 500}]
    config = make_config(simulator, retry={"max_attempts": 1, "after_send": 0})
    return config | {"providers": providers, "models": models, "keys": keys}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grid(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grid]:
    async with Simulator() as simulator:
        for name, scene in SCENES.items():
            for stream in (False, True):
                simulator.push(scene.script(stream), model=upstream_model(name, stream), times=None)
        gate = in_process_gate(tmp_path_factory.mktemp("grid"), configuration(simulator))
        async with gate.running():
            yield Grid(gate, simulator)
