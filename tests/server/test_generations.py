"""`GET /v1/generations/{id}`: what became of a request, and where a running one stands, whichever worker is asked.
Contract X2."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from sluicegate.server.control_socket import call_supervisor
from sluicegate.server.request_ids import RequestIds, read_request_id
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Script, Stall
from tests.conftest import KEY as INPROCESS_KEY
from tests.conftest import PRICE, StartInProcess, make_config
from tests.fakes import Client, Response, ask, chat, request_bytes
from tests.gate import RunningGate, run_gate
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import path_of, said

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY, OTHER_KEY = "sg-asking-key-0123456789ab", "sg-other-key-0123456789ab"
WORDS = (" one", " two", " three", " four", " five", " six", " seven", " eight")
ANSWER = Answer(text=WORDS, input_tokens=40)
COUNTS = {
    "input_tokens": 40,
    "cache_read_tokens": 0,
    "cache_write_tokens": 0,
    "output_tokens": 8,
    "reasoning_tokens": None,
}


class World(NamedTuple):
    """A gate with two workers, and the provider behind it."""

    gate: RunningGate
    simulator: Simulator

    async def told(self, request_id: str | None, key: str = KEY) -> Response:
        """Ask for a request on a connection of its own: any worker may take it."""
        assert request_id is not None
        return await ask(self.gate.url, f"/v1/generations/{request_id}", key=key, timeout_s=15.0)

    async def told_by_all(self, request_id: str | None) -> list[dict[str, Any]]:
        """Ask until both workers have answered."""
        told: list[dict[str, Any]] = []
        workers: set[int] = set()
        async with asyncio.timeout(30):
            while len(workers) < 2:
                answer = await self.told(request_id)
                assert answer.status == 200, answer.body
                told.append(answer.json())
                own = read_request_id(answer.header("x-request-id") or "")
                assert own is not None
                workers.add(own[1])
        return told


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Simulator() as simulator:
        providers: dict[str, Any] = {
            format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"} for format in FORMATS
        }
        models = {
            f"{format}-*": {"routes": [{"provider": format, "model": "*"}], "price": PRICE}
            for format in FORMATS
        }
        keys = [
            {"name": "asking", "key": KEY, "balance_usd": 5},
            {"name": "other", "key": OTHER_KEY, "balance_usd": 5},
        ]
        config = make_config(simulator, server={"workers": 2})
        text = str(config | {"providers": providers, "models": models, "keys": keys})
        text = text.replace("True", "true").replace("None", "null")
        folder: Path = tmp_path_factory.mktemp("generations")
        with ExitStack() as running:
            gate = await asyncio.to_thread(running.enter_context, run_gate(folder, text))
            yield World(gate, simulator)
            await asyncio.to_thread(running.close)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("client", FORMATS)
async def test_x2_a_request_that_has_ended_is_told_at_once_and_by_every_worker(
    world: World, client: str, stream: bool
) -> None:
    model = f"messages-ended-{client}-{stream}"
    world.simulator.push(Script(answer=ANSWER), model=model.removeprefix("messages-"))
    body = said(client, model, Prompt(), stream)
    response = await ask(world.gate.url, path_of(client, model, stream), body, key=KEY, timeout_s=15.0)
    assert response.status == 200
    told = await world.told_by_all(response.header("x-request-id"))
    assert all(one == told[0] for one in told)
    one = told[0]
    assert (one["id"], one["object"]) == (response.header("x-request-id"), "generation")
    assert (one["state"], one["status"], one["finish_reason"], one["error"]) == ("done", "ok", "stop", None)
    assert (one["model"], one["stream"], one["client_format"]) == (model, stream, client)
    assert (one["provider"], one["provider_format"], one["attempts"]) == ("messages", "messages", 1)
    assert one["provider_model"] == model.removeprefix("messages-")
    assert (one["usage"], one["usage_source"]) == (COUNTS, "reported")
    assert one["cost_nano_usd"] == 40 * 1_000 + 8 * 2_000
    assert one["cost"] == 0.000056
    assert one["duration_ms"] > 0
    assert (one["ttft_ms"] is not None) == stream
    assert one["started_at"] > 1_700_000_000


async def test_x2_a_running_request_is_told_by_every_worker(world: World) -> None:
    world.simulator.push(Script(answer=ANSWER, steps=(Play(stop=5), Stall())), model="running")
    async with await Client.connect(world.gate.url) as connection:
        connection.send(request_bytes("/v1/chat/completions", chat("chat-running"), key=KEY))
        await connection.until_bytes(b" four", timeout_s=15.0)
        head = bytes(connection.raw).split(b"\r\n\r\n")[0].decode()
        request_id = next(
            line.split(": ")[1] for line in head.split("\r\n") if line.startswith("x-request-id")
        )
        for one in await world.told_by_all(request_id):
            assert (one["state"], one["status"]) == ("running", None)
            assert (one["usage"]["output_tokens"], one["usage_source"]) == (4, "counted")
            assert one["cost_nano_usd"] == one["usage"]["input_tokens"] * 1_000 + 4 * 2_000
            assert one["ttft_ms"] <= one["duration_ms"]
        assert (await world.told(request_id, OTHER_KEY)).status == 404
    async with asyncio.timeout(15):
        while (one := (await world.told(request_id)).json())["state"] == "running":
            await asyncio.sleep(0.02)
    assert (one["status"], one["usage"]["output_tokens"]) == ("client_closed", 4)


async def test_x2_what_is_not_the_keys_own_is_unknown(world: World) -> None:
    world.simulator.push(Script(answer=ANSWER), model="mine")
    response = await ask(world.gate.url, "/v1/chat/completions", chat("chat-mine", stream=False), key=KEY)
    mine = response.header("x-request-id")
    nobodys = RequestIds(1).new()
    unknown = [
        await world.told(mine, OTHER_KEY),
        await world.told(nobodys),
        await world.told(RequestIds(999).new()),
        await world.told("req_1"),
        await world.told("../../etc/passwd"),
        await world.told("req_" + "g" * 40),
        await world.told("req_" + "0" * 400),
    ]
    for answer in unknown:
        assert answer.status == 404
        assert answer.json()["error"]["code"] == "not_found"
    messages = [answer.json()["error"]["message"] for answer in unknown[:2]]
    assert messages[0].replace(str(mine), nobodys) == messages[1]
    assert (await world.told(mine, "sg-no-key-0123456789abcdef")).status == 401
    assert (await ask(world.gate.url, f"/v1/generations/{mine}", b"{}", key=KEY)).status == 405


async def test_x2_a_request_whose_worker_was_killed_is_told_as_interrupted(world: World) -> None:
    world.simulator.push(Script(answer=ANSWER, steps=(Play(stop=5), Stall())), model="killed")
    async with await Client.connect(world.gate.url) as connection:
        connection.send(request_bytes("/v1/chat/completions", chat("chat-killed"), key=KEY))
        await connection.until_bytes(b" four", timeout_s=15.0)
        head = bytes(connection.raw).split(b"\r\n\r\n")[0].decode()
        request_id = next(
            line.split(": ")[1] for line in head.split("\r\n") if line.startswith("x-request-id")
        )
        known = read_request_id(request_id)
        assert known is not None
        os.kill(await asyncio.to_thread(pid_of_worker, world.gate, known[1]), signal.SIGKILL)
        await connection.until_closed(timeout_s=15.0)
    async with asyncio.timeout(30):
        while True:
            try:
                answer = await world.told(request_id)
            except ConnectionError:
                continue  # its successor is not there yet
            if answer.status == 200:
                break
            await asyncio.sleep(0.05)
    one = answer.json()
    assert (one["state"], one["status"], one["cost_nano_usd"]) == ("done", "interrupted", 0)


def pid_of_worker(gate: RunningGate, number: int) -> int:
    """Return the process id of a worker by its number."""
    status = call_supervisor(gate.config.parent / "journal", "status")
    return next(worker["pid"] for worker in status["workers"] if worker["number"] == number)


@pytest.mark.asyncio(loop_scope="function")
async def test_x2_the_provider_is_hidden_where_the_operator_says_so(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(make_config(simulator, server={"expose_provider": False}))
    response = await ask(gate.url, "/v1/chat/completions", chat("m", stream=False), key=INPROCESS_KEY)
    request_id = response.header("x-request-id")
    told = await ask(gate.url, f"/v1/generations/{request_id}", key=INPROCESS_KEY)
    assert told.json()["status"] == "ok"
    assert not {"provider", "provider_model", "provider_format", "upstream_id", "attempts"} & set(told.json())
