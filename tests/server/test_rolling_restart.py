"""Workers replaced one after the other under load: no stream is cut, no connection refused, no limit forgotten."""

import asyncio
import os
import signal
from collections import Counter
from typing import Any

from sluicegate.server.control_socket import ask_supervisor
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Script
from tests.conftest import KEY, Connect, StartGate, StartInProcess, make_config
from tests.fakes import Client, ask, chat, request_bytes
from tests.gate import RunningGate
from tests.grammar.chat import check_chat_stream

PATH = "/v1/chat/completions"
STREAMS = 200
WORDS = tuple(f" word{number}" for number in range(20))


async def workers(gate: RunningGate) -> dict[int, bool]:
    """Return whether each worker process serves, by its pid."""
    status: Any = await ask_supervisor(gate.config.parent / "journal", "status")
    return {one["pid"]: one["serving"] for one in status["workers"]}


async def replace_one(gate: RunningGate, pid: int) -> None:
    """Tell a worker to go; return when its successor serves."""
    before = set(await workers(gate))
    os.kill(pid, signal.SIGTERM)
    async with asyncio.timeout(30):
        while not any(serving for new, serving in (await workers(gate)).items() if new not in before):
            await asyncio.sleep(0.05)


async def keep_asking(gate: RunningGate, seen: Counter[object], done: asyncio.Event) -> None:
    """Ask on fresh connections until told to stop; note what came of each."""
    while not done.is_set():
        try:
            response = await ask(gate.url, PATH, chat("sim-text", stream=False), key=KEY, timeout_s=20)
            told = "" if response.status == 200 else response.json()["error"]["message"]
            seen[response.status, told] += 1
        except (OSError, AssertionError, TimeoutError) as error:
            seen[repr(error)] += 1
        await asyncio.sleep(0.02)


async def test_a_rolling_restart_under_load_cuts_and_refuses_nobody(
    start_gate: StartGate, simulator: Simulator, client: Connect
) -> None:
    simulator.push(
        Script(answer=Answer(text=WORDS, input_tokens=10), interval_s=0.4), model="slow", times=None
    )
    models = {"slow": {"routes": [{"provider": "sim", "model": "slow"}], "price": "free"}}
    server = {"workers": 2, "drain_timeout": "60s"}
    gate = await start_gate(make_config(simulator, server=server, models=models))
    old = list(await workers(gate))
    streams: list[Client] = []
    for _ in range(STREAMS):
        connection = await client(gate.url)
        connection.send(request_bytes(PATH, chat("slow"), key=KEY))
        streams.append(connection)
    await asyncio.gather(*(connection.until_bytes(b" word0", 30) for connection in streams))
    seen: Counter[object] = Counter()
    done = asyncio.Event()
    asking = [asyncio.create_task(keep_asking(gate, seen, done)) for _ in range(4)]
    for pid in old:
        await replace_one(gate, pid)
    responses = await asyncio.gather(*(connection.response(timeout_s=60) for connection in streams))
    done.set()
    await asyncio.gather(*asking)
    assert [*seen] == [(200, "")], seen
    assert seen[200, ""] > 10
    whole = "".join(WORDS)
    assert all(check_chat_stream(response.body).text == whole for response in responses)
    async with asyncio.timeout(20):
        while set(old) & set(await workers(gate)):
            await asyncio.sleep(0.05)
    rows = gate.usage()
    assert Counter(row["status"] for row in rows) == {"ok": STREAMS + seen[200, ""]}


async def test_a_client_that_was_let_in_just_before_is_served(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    """Its connection was accepted: to close it before its first request would look like a refusal."""
    gate = await start_inprocess(make_config(simulator))
    fresh = await client(gate.url)
    await fresh.ask("/healthz", method="GET")
    used, fresh = fresh, await client(gate.url)
    await asyncio.sleep(0.05)  # accepted
    draining = asyncio.create_task(gate.gateway.drain(5.0, succeeded=True))
    await asyncio.sleep(0.2)
    response = await fresh.ask(PATH, chat("sim-text", stream=False), key=KEY)
    assert (response.status, response.header("connection")) == (200, "close")
    assert used.ended is not None
    await draining
