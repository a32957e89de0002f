"""SIGTERM while a request is on its way: a new one is told 503 in its format, one that passes already goes on."""

import asyncio
from pathlib import Path

import pytest

from sluicegate.simulator import Simulator
from tests.conftest import KEY, Connect, StartInProcess
from tests.fakes import Client, Response, chat, request_bytes
from tests.jobs_world import jobs_gate
from tests.server.test_failed_disk import PATHS
from tests.server.test_uploads import LARGE, config_of, form, head

TRANSCRIBE = "/v1/audio/transcriptions"
FORM = form(("model", "ears"), ("language", "en"), ("file", LARGE))
FILE = form(("purpose", "user_data"), ("file", LARGE))
HALF = 200_000


def assert_restarting(response: Response, format: str = "chat") -> None:
    """It is a 503 that says when to come back, in the format's shape."""
    assert response.status == 503
    assert response.header("retry-after")
    assert response.header("connection") == "close"
    error = response.json()["error"]
    assert "restarting" in error["message"]
    own = {"messages": ("type", "api_error"), "gemini": ("status", "UNAVAILABLE")}
    key, value = own.get(format, ("type", "service_unavailable_error"))
    assert error[key] == value


@pytest.mark.parametrize("format", PATHS)
async def test_m2_a_request_that_has_not_come_whole_is_told_503(
    format: str, start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_inprocess(config_of(simulator))
    path, body = PATHS[format]
    asked = request_bytes(path, body, key=KEY)
    half = await client(gate.url)
    half.send(asked[:-10])
    await asyncio.sleep(0.05)
    draining = asyncio.create_task(gate.gateway.drain(5.0))
    assert_restarting(await half.response(), format)
    await asyncio.sleep(0.7)
    assert half.ended is None, "a reset could overtake the answer"
    half.half_close()
    await draining
    assert not simulator.requests


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        (TRANSCRIBE, head(TRANSCRIBE, f"content-length: {len(FORM)}")),
        (TRANSCRIBE, head(TRANSCRIBE, f"content-length: {len(FORM)}") + FORM[:60]),
        (TRANSCRIBE, head(TRANSCRIBE, "transfer-encoding: chunked") + b"5\r\n" + FORM[:5] + b"\r\n"),
        ("/v1/files", head("/v1/files", f"content-length: {len(FILE)}") + FILE[:60]),
        ("/v1/chat/completions", b"POST /v1/chat/completions HTTP/1.1\r\nhost: gate\r\n"),
    ],
    ids=["nothing of a form", "some of a form", "some of a form in chunks", "some of a file", "half a head"],
)
async def test_m2_so_is_a_form_that_is_not_admitted_yet(
    path: str, sent: bytes, start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_inprocess(config_of(simulator))
    half = await client(gate.url)
    half.send(sent)
    await asyncio.sleep(0.05)
    draining = asyncio.create_task(gate.gateway.drain(5.0))
    await asyncio.sleep(0.1)
    half.send(b"x" * 1000)  # it has not read the answer yet
    assert_restarting(await half.response())
    half.half_close()
    await draining
    assert gate.rows() == []


@pytest.mark.parametrize(("path", "body"), [(TRANSCRIBE, FORM), ("/v1/files", FILE)])
async def test_m2_what_passes_already_goes_on(
    path: str, body: bytes, simulator: Simulator, client: Connect, tmp_path: Path
) -> None:
    async with jobs_gate(tmp_path, config_of(simulator)) as gate:
        upload = await begun(gate.url, path, body, simulator, client)
        draining = asyncio.create_task(gate.gate.gateway.drain(20.0))
        await asyncio.sleep(0.2)
        upload.send(body[HALF:])
        response = await upload.response(timeout_s=10)
        assert response.status == 200, response.body
        await draining
    assert simulator.requests[-1].body.count(LARGE) == 1


async def begun(url: str, path: str, body: bytes, simulator: Simulator, client: Connect) -> Client:
    """Send half of a form, and return when the provider has some of it."""
    upload = await client(url)
    upload.send(head(path, f"content-length: {len(body)}") + body[:HALF])
    async with asyncio.timeout(5):
        while not simulator.connections:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    return upload


async def test_m2_a_successor_lets_those_finish_that_had_begun_to_send(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_inprocess(config_of(simulator))
    asked = request_bytes("/v1/chat/completions", chat("ears", stream=False), key=KEY)
    half = await client(gate.url)
    half.send(asked[:-10])
    await asyncio.sleep(0.05)
    draining = asyncio.create_task(gate.gateway.drain(20.0, succeeded=True))
    await asyncio.sleep(0.3)
    half.send(asked[-10:])
    assert (await half.response()).status == 200
    await asyncio.wait_for(draining, 5)


@pytest.mark.parametrize(("path", "body"), [(TRANSCRIBE, FORM), ("/v1/files", FILE)])
async def test_m2_at_the_limit_whatever_has_no_answer_is_told_503(
    path: str, body: bytes, simulator: Simulator, client: Connect, tmp_path: Path
) -> None:
    """Also what is neither a stream nor charged."""
    async with jobs_gate(tmp_path, config_of(simulator)) as gate:
        upload = await begun(gate.url, path, body, simulator, client)
        draining = asyncio.create_task(gate.gate.gateway.drain(0.2))
        assert_restarting(await upload.response())
        await upload.close()
        await asyncio.wait_for(draining, 5)
