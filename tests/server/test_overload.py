"""A worker with too much to do takes no more, and says when to come back; requests that run are left alone."""

import asyncio
from typing import Any

import pytest

from sluicegate.errors import Overloaded
from sluicegate.server import overload, settings_shapes
from sluicegate.server.deadlines import SWEEP_S, Deadlines
from sluicegate.server.overload import Overload, memory_share, resident_bytes, streams_by_descriptors
from sluicegate.server.settings import ServerSettings
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Script, Stall
from tests.conftest import KEY, Connect, StartInProcess, make_config
from tests.fakes import Response, ask, chat, request_bytes
from tests.inprocess import InProcessGate

PATH = "/v1/chat/completions"
SHORT = Answer(text=(" a", " b"), input_tokens=20)


async def plain(gate: InProcessGate, **fields: Any) -> Response:
    return await ask(gate.url, PATH, chat("m", stream=False, **fields), key=KEY)


def check_refusal(response: Response) -> None:
    assert response.status == 503
    assert response.header("retry-after") == "2"
    assert response.header("x-should-retry") is None
    assert "overloaded" in response.json()["error"]["message"]


async def test_above_max_streams_new_requests_get_503_and_running_ones_go_on(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_inprocess(make_config(simulator, server={"max_streams": 2}))
    running = []
    for _ in range(2):
        simulator.push(Script(answer=SHORT, steps=(Play(before="finish"), Stall())))
        connection = await client(gate.url)
        connection.send(request_bytes(PATH, chat("m"), key=KEY))
        await connection.until_bytes(b" b")
        running.append(connection)
    check_refusal(await plain(gate))
    assert (await ask(gate.url, "/healthz")).status == 200, "who asks how we are is told"
    assert all(connection.ended is None for connection in running)
    await running[0].close()
    await gate.wait_for_rows(1)
    assert (await plain(gate)).status == 200


async def test_above_its_memory_a_worker_takes_no_more(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(make_config(simulator, server={"max_memory": 1_000_000}))
    async with asyncio.timeout(5):
        while (response := await plain(gate)).status == 200:
            await asyncio.sleep(0.05)
    check_refusal(response)
    assert not gate.rows() or gate.rows()[-1].status == "ok"


def settings(max_lag_s: float) -> ServerSettings:
    return ServerSettings(settings_shapes.ServerSettings(max_lag_s=max_lag_s, max_memory_bytes=0))


async def test_a_loop_that_does_not_keep_up_takes_no_more_until_it_does() -> None:
    deadlines = Deadlines(asyncio.get_running_loop())
    looked = Overload(settings(max_lag_s=0.5), deadlines, lambda: 0)
    now = deadlines.now
    now += SWEEP_S + 0.9
    looked.expire(now)  # one hiccup is none
    looked.check()
    now += SWEEP_S + 0.9
    looked.expire(now)
    with pytest.raises(Overloaded, match="does not keep up"):
        looked.check()
    for _ in range(2):
        now += SWEEP_S
        looked.expire(now)
    looked.check()
    assert looked.refused == 1
    deadlines.close()


async def test_limits_of_zero_are_none() -> None:
    deadlines = Deadlines(asyncio.get_running_loop())
    looked = Overload(settings(max_lag_s=0.0), deadlines, lambda: 10)
    looked.expire(deadlines.now + 100)
    looked.expire(deadlines.now + 200)
    looked.check()
    deadlines.close()


def test_what_is_chosen_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert streams_by_descriptors() >= 16
    monkeypatch.setattr(overload.resource, "getrlimit", lambda which: (20_000, 20_000))
    assert streams_by_descriptors() >= 9_000
    assert 0 < memory_share(4) < memory_share(1)
    assert 1_000_000 < resident_bytes() < memory_share(1)
