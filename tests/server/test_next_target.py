"""Another target after a failed one: what the first attempt asked for or brought means nothing to the second."""

import asyncio

import pytest

from sluicegate.simulator import Simulator
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import ask

MODEL = "m"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_media_that_one_target_wanted_are_not_fetched_for_the_next_that_takes_addresses(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool
) -> None:
    fetched = 0

    async def picture(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal fetched
        await reader.readuntil(b"\r\n\r\n")
        fetched += 1
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(picture, "127.0.0.1", 0) as pages:
        host = f"127.0.0.1:{pages.sockets[0].getsockname()[1]}"
        providers = {
            format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
            for format in ("gemini", "chat")
        }
        routes = [
            {"provider": "gemini", "model": "sim", "priority": 0},
            {"provider": "chat", "model": "sim", "priority": 1},
        ]
        gate = await start_inprocess(
            make_config(
                simulator,
                providers=providers,
                models={MODEL: {"routes": routes, "price": PRICE}},
                media={"fetch": True, "allow_hosts": [host]},
            )
        )
        address = f"http://{host}/one.png"
        body = {
            "model": MODEL,
            "stream": stream,
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]},
            ],
        }
        response = await ask(gate.url, "/v1/chat/completions", body, key=KEY)
        assert response.status == 200
        assert response.complete
    (row,) = await gate.wait_for_rows(1)
    assert (row.provider, row.attempts, row.status) == ("chat", 1, "ok")
    assert fetched == 1
    assert address.encode() in simulator.requests[-1].body
