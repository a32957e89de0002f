"""What a slow client, a flooding provider and thousands of open streams cost. Case B052; `make soak`'s
`SLUICEGATE_SOAK=1` opens 9,000."""

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from sluicegate.server.control_socket import ask_supervisor
from sluicegate.server.worker import raise_descriptor_limit
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Script, Stall
from tests.conftest import KEY, Connect, StartGate, StartInProcess, make_config
from tests.fakes import Client, ask, chat, request_bytes

PATH = "/v1/chat/completions"
SOAK = bool(os.environ.get("SLUICEGATE_SOAK"))
OPEN_STREAMS = 9_000 if SOAK else 300
KIB_A_STREAM = 24
FLOOD = Answer(text=(" word" * 2_000,) * 2_000, input_tokens=20)
"""Twenty megabytes."""


async def test_b052_a_client_that_reads_a_byte_a_second_is_cut_and_its_provider_paused(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    simulator.push(Script(answer=FLOOD))
    gate = await start_inprocess(make_config(simulator, server={"write_timeout": "1500ms"}))
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        await loop.sock_connect(sock, ("127.0.0.1", gate.port))
        await loop.sock_sendall(sock, request_bytes(PATH, chat("m"), key=KEY))
        began = time.monotonic()
        while not gate.rows():
            assert time.monotonic() - began < 20
            await loop.sock_recv(sock, 1)
            await asyncio.sleep(1.0)
    (row,) = gate.rows()
    assert row.status == "client_closed"
    assert 0.9 < time.monotonic() - began < 15
    await simulator.wait_for(lambda: simulator.requests[-1].ended == "peer_left", 5.0)
    sent = simulator.requests[-1].body_bytes_sent
    assert sent < 12_000_000, "it was paused: what lies in the sockets' buffers is all that it could send"
    assert not gate.gateway._inbound.connections


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no such line")


@pytest.mark.soak
async def test_thousands_of_open_streams_on_one_worker(
    start_gate: StartGate, make_simulator: Any, client: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    raise_descriptor_limit()
    simulator = await make_simulator(keep=10)
    short = Answer(text=(" a", " b"), input_tokens=20)
    simulator.push(Script(answer=short, steps=(Play(before="finish"), Stall())), model="m", times=None)
    config = make_config(
        simulator,
        keys=[{"name": "test", "key": KEY, "balance_usd": 1_000}],
        server={"drain_timeout": "0s", "keepalive_after": "10m", "keepalive_every": "10m"},
    )
    gate = await start_gate(config)
    status: Any = await ask_supervisor(gate.config.parent / "journal", "status")
    (worker,) = status["workers"]
    assert (await ask(gate.url, PATH, chat("sim-text"), key=KEY)).status == 200
    before = resident_kib(worker["pid"])
    streams: list[Client] = []
    while len(streams) < OPEN_STREAMS:
        opened = [await client(gate.url) for _ in range(100)]
        for connection in opened:
            connection.send(request_bytes(PATH, chat("m"), key=KEY))
        await asyncio.gather(*(connection.until_bytes(b" b", 60) for connection in opened))
        streams += opened
    each_kib = (resident_kib(worker["pid"]) - before) / OPEN_STREAMS
    with capsys.disabled():
        print(f"{OPEN_STREAMS} open streams on one worker: {each_kib:.1f} KiB each")
    assert each_kib < KIB_A_STREAM
    response = await ask(gate.url, PATH, chat("sim-text", stream=False), key=KEY, timeout_s=20)
    assert response.status == 200, "it serves on"
    assert all(connection.ended is None for connection in streams)
