"""What served a request is freed as it ends, by reference count alone.

Cycles would wait for the collector: it stops a worker for about a millisecond per thousand objects, and until it comes
each request is served in memory that no cache holds.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.conftest import KEY, MakeSimulator, StartInProcess
from tests.fakes import Client, request_bytes
from tests.faults.faulty import FORMATS, upstream_model
from tests.grid.scenes import Prompt
from tests.grid.speaking import path_of, said
from tests.inprocess import InProcessGate
from tests.server.soak_world import configuration

OF_REQUESTS = ("sluicegate.server", "sluicegate.wire", "sluicegate.billing", "sluicegate.errors")
PROMPT = Prompt(question="Say something.", system=None)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def found_by_collector() -> Counter[str]:
    """Count what nobody can reach, and yet was not freed, of the parts that serve requests."""
    gc.collect()
    names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    return Counter(name for name in names if name.startswith(OF_REQUESTS))


async def ask_all(gate: InProcessGate, client: str, upstream: str, *, leaves: bool = False) -> None:
    """Ask providers of each format, streamed and not, and wait until nothing of it runs."""
    for provider in FORMATS:
        for stream in (True,) if leaves else (True, False):
            model = f"{provider}/{upstream}"
            body = said(client, model, PROMPT, stream)
            async with await Client.connect(gate.url) as connection:
                connection.send(request_bytes(path_of(client, model, stream), body, key=KEY))
                if leaves:
                    await connection.until(lambda sure=connection: sure.raw.count(b"\n\n") > 3, 10.0)
                    connection.reset()
                else:
                    await connection.response(timeout_s=10.0)
    async with asyncio.timeout(10):
        while gate.gateway._bench.running or gate.gateway._inbound.connections:
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("ending", ["whole", "refused", "broken", "left"])
async def test_nothing_of_a_request_waits_for_the_collector(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator, dead_port: int, client: str, ending: str
) -> None:
    simulator = await make_simulator(keep=10)
    gate = await start_inprocess(configuration(simulator, dead_port))
    upstream = {
        "whole": "sim-text,tokens=600",
        "refused": upstream_model("400"),
        "broken": upstream_model("cut"),
        "left": "sim-text,tokens=2000,pace_ms=5",
    }[ending]
    await ask_all(gate, client, upstream, leaves=ending == "left")
    assert found_by_collector() == Counter()


@pytest.mark.usefixtures("no_collector")
async def test_an_answer_of_several_calls_waits_for_no_collector(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator, dead_port: int
) -> None:
    simulator = await make_simulator(keep=10)
    gate = await start_inprocess(configuration(simulator, dead_port))
    for stream in (True, False):
        body = {"model": "chat/sim-text", "prompt": ["One.", "Two."], "stream": stream}
        async with await Client.connect(gate.url) as connection:
            connection.send(request_bytes("/v1/completions", body, key=KEY))
            response = await connection.response(timeout_s=10.0)
            assert response.status == 200
    async with asyncio.timeout(10):
        while gate.gateway._bench.running or gate.gateway._inbound.connections:
            await asyncio.sleep(0.01)
    assert len(simulator.requests) == 4
    assert found_by_collector() == Counter()
