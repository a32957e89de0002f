"""Breakers across worker processes: what one finds the others know, and so does a successor; the operator sees it."""

import asyncio
import os
import signal
from http.client import HTTPConnection
from typing import Any

from sluicegate.server.control_socket import ask_supervisor
from sluicegate.simulator.script import Script
from tests.conftest import KEY, PRICE, MakeSimulator, StartGate, make_config
from tests.fakes import ask, chat
from tests.gate import RunningGate


def metrics(gate: RunningGate) -> str:
    connection = HTTPConnection(gate.host, gate.admin_port, timeout=5.0)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


async def status(gate: RunningGate) -> dict[str, Any]:
    told: dict[str, Any] = await ask_supervisor(gate.config.parent / "journal", "status")
    return told


async def served_by(gate: RunningGate, number: int) -> str | None:
    """Ask on a connection of its own, so that both workers are met."""
    response = await ask(gate.url, "/v1/chat/completions", chat("two", f"{number}"), key=KEY)
    assert response.status == 200, response.body
    return response.header("x-sluicegate-provider")


async def test_all_workers_and_their_successors_leave_alone_what_one_found_dead(
    start_gate: StartGate, make_simulator: MakeSimulator
) -> None:
    dead, well = await make_simulator(), await make_simulator()
    dead.push(Script(status=401), times=None)
    providers = {
        name: {"base_url": one.base_url, "speaks": ["chat"], "auth": "none"}
        for name, one in (("dead", dead), ("well", well))
    }
    routes = [
        {"provider": "dead", "model": "sim-text"},
        {"provider": "well", "model": "sim-text", "priority": 1},
    ]
    config = make_config(
        dead,
        server={"workers": 2},
        providers=providers,
        models={"two": {"routes": routes, "price": PRICE}},
        health={"open_for": "60s", "max_open_for": "60s"},
    )
    gate = await start_gate(config)
    assert await served_by(gate, 0) == "well"
    await asyncio.sleep(0.1)  # one worker tells the other
    for number in range(30):
        assert await served_by(gate, number) == "well"
    assert len(dead.requests) == 1
    told = await status(gate)
    (unhealthy,) = told["unhealthy"]
    assert (unhealthy["provider"], unhealthy["model"], unhealthy["state"]) == ("dead", "sim-text", "open")
    assert (unhealthy["why"], unhealthy["times_opened"]) == ("upstream_auth", 1)
    assert 40 < unhealthy["seconds_left"] <= 75
    text = await asyncio.to_thread(metrics, gate)
    assert (
        'sluicegate_deployment_unhealthy{model="sim-text",provider="dead",state="open"} 1.0' in text
        or 'sluicegate_deployment_unhealthy{provider="dead",model="sim-text",state="open"} 1.0' in text
    )
    assert "sluicegate_breaker_opened_total{" in text

    pids = [worker["pid"] for worker in told["workers"]]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        while True:
            workers = (await status(gate))["workers"]
            if sum(w["serving"] and w["pid"] not in pids for w in workers) == 2:
                break
            await asyncio.sleep(0.05)
    for number in range(20):
        assert await served_by(gate, number) == "well"
    assert len(dead.requests) == 1, "the successors knew"
