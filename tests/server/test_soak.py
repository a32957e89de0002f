"""What mixed failures leave behind: no connection to a provider, no request, no memory.

`make soak` (`SLUICEGATE_SOAK=1`) takes ten thousand of them, and then half an hour; `SLUICEGATE_SOAK_MINUTES` and
`SLUICEGATE_SOAK_PER_S` say how long, and how many a second.
"""

import asyncio
import gc
import os
import time
from collections import Counter
from statistics import mean

import pytest

from sluicegate.server.control_socket import ask_supervisor
from sluicegate.server.exchange import Exchange
from sluicegate.server.plain_relay import PlainRelay
from sluicegate.server.serving.request import ServedRequest
from sluicegate.server.stream_relay import StreamRelay
from sluicegate.server.upstream import UpstreamConnection
from sluicegate.simulator import SimulatorProcess, SimulatorSettings
from tests.conftest import MakeSimulator, StartGate, StartInProcess
from tests.server.soak_world import MixedLoad, Sample, children, configuration, take_sample

SOAK = bool(os.environ.get("SLUICEGATE_SOAK"))
REQUESTS = 12_000 if SOAK else 600
"""Most of them fail: ten thousand in a soak."""
MINUTES = float(os.environ.get("SLUICEGATE_SOAK_MINUTES", "30"))
PER_S = float(os.environ.get("SLUICEGATE_SOAK_PER_S", "12"))
SAMPLE_EVERY_S = 10.0
WARM = 0.2
"""The share of a soak in which caches fill; what is held after it is what must not grow."""
FLAT_PERCENT = 2
IDLE_S = 45.0
"""After so long without a request the gate keeps no connection to a provider: idle ones go after 30 s and a sweep."""
FEW = 3
"""Descriptors that a process opens once, when it first needs them: for look-ups of names and the like."""
KEPT = (UpstreamConnection, ServedRequest, StreamRelay, PlainRelay, Exchange)


def alive() -> Counter[str]:
    """Count what requests are made of."""
    gc.collect()
    return Counter(kind.__name__ for kind in KEPT for one in gc.get_objects() if isinstance(one, kind))


@pytest.mark.soak
async def test_mixed_failures_leave_no_connection_and_no_request(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator, dead_port: int
) -> None:
    simulator = await make_simulator(keep=100)
    gate = await start_inprocess(configuration(simulator, dead_port))
    pool = gate.gateway._pool
    load = MixedLoad(gate.url, seed=5)
    await load.run(REQUESTS, at_once=60)
    assert load.failures > 0.8 * REQUESTS
    assert not load.told["hung"], load.told
    async with asyncio.timeout(10):
        while gate.gateway._bench.running or gate.gateway._inbound.connections:
            await asyncio.sleep(0.02)
    await asyncio.sleep(1.5)  # TLS handshakes that were given up are let go of
    assert pool.open_connections == pool.idle_connections, "taken, and not given back"
    assert sum(place.open for place in pool._places.values()) == pool.open_connections
    assert not any(place.waiting for place in pool._places.values())
    await simulator.wait_for(lambda: len(simulator.connections) == pool.idle_connections)
    held = alive()
    assert held.pop("UpstreamConnection", 0) == pool.open_connections
    assert not held, "requests that are over, and still there"
    rows = Counter(row.request_id for row in gate.rows())
    assert set(rows.values()) == {1}, "a row for each"


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="takes half an hour: make soak")
async def test_memory_is_flat_and_no_connection_is_left_after_half_an_hour(
    start_gate: StartGate, dead_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with SimulatorProcess(SimulatorSettings(keep=100)) as simulator:
        server = {"workers": 2, "idle_connection": "20s"}
        gate = await start_gate(configuration(simulator, dead_port, server=server))
        status = await ask_supervisor(gate.config.parent / "journal", "status")
        pids = {"supervisor": gate.child.pid}
        pids |= {f"worker {worker['slot']}": worker["pid"] for worker in status["workers"]}
        pids |= {"admin": next(pid for pid in children(gate.child.pid) if pid not in pids.values())}
        load = MixedLoad(gate.url, seed=7)
        before = take_sample(pids, 0, 0.0)
        samples = await _watch(load, pids, capsys)
        await asyncio.sleep(IDLE_S)
        after = take_sample(pids, load.asked, samples[-1].at_s + IDLE_S)
        connections = simulator.state()["connections"]
    with capsys.disabled():
        print(f"{load.asked} requests, {load.failures} of them failures: {dict(load.told)}")
        print(f"before {before}\nafter  {after}\n{connections} connections at the provider")
        for name in pids:
            first, last = _settled(samples, name), _last(samples, name)
            print(f"{name}: {first:,.0f} KiB when warm, {last:,.0f} KiB at the end: {last / first - 1:+.2%}")
    assert not load.told["hung"]
    assert connections == 1, "the one that asks this"
    assert all(after.descriptors[name] <= before.descriptors[name] + FEW for name in pids), (
        "descriptors are left"
    )
    for name in pids:
        assert _last(samples, name) <= _settled(samples, name) * (1 + FLAT_PERCENT / 100), f"{name} grows"


async def _watch(load: MixedLoad, pids: dict[str, int], capsys: pytest.CaptureFixture[str]) -> list[Sample]:
    """Look at the processes while the load runs."""
    began = time.monotonic()
    running = asyncio.create_task(load.run(round(MINUTES * 60 * PER_S), at_once=200, per_s=PER_S))
    samples: list[Sample] = []
    while not running.done():
        await asyncio.wait([running], timeout=SAMPLE_EVERY_S)
        samples.append(take_sample(pids, load.asked, time.monotonic() - began))
        if len(samples) % 6 == 1:
            with capsys.disabled():
                print(samples[-1], flush=True)
    await running
    return samples


def _settled(samples: list[Sample], name: str) -> float:
    """Return what a process held when its caches had filled."""
    start = round(len(samples) * WARM)
    return mean(sample.resident_kib[name] for sample in samples[start : start + max(1, len(samples) // 10)])


def _last(samples: list[Sample], name: str) -> float:
    return mean(sample.resident_kib[name] for sample in samples[-max(1, len(samples) // 10) :])
