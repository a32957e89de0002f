"""Memory of a worker while large files pass both ways: none of them is ever held whole.

With SLUICEGATE_SOAK=1 it is 50 uploads and 50 downloads of 100 MiB at once.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from bench.processes import command_line, descendants, rss_kib
from tests.conftest import KEY, StartGate, make_config

SOAK = os.environ.get("SLUICEGATE_SOAK") == "1"
FILE_BYTES = (100 if SOAK else 12) * 1_048_576
AT_ONCE = 50 if SOAK else 10
SHORT_BYTES = (30 if SOAK else 4) * 1_048_576
FLAT_KIB = 8 * 1024
"""What all of them together may need beyond what an idle worker has."""
PIECE = bytes(65_536)


@pytest.fixture
async def provider() -> AsyncIterator[str]:
    """Reads forms and throws them away; speaks as many bytes as it is told to."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        left = next(int(line[16:]) for line in lines if line.startswith(b"content-length: "))
        body = b""
        while left:
            piece = await reader.read(min(left, 262_144))
            left -= len(piece)
            body = body or piece
        if b"/speech" in lines[0]:
            size = int(json.loads(body)["input"])
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: %d\r\n\r\n" % size)
            for _ in range(size // len(PIECE)):
                writer.write(PIECE)
                await writer.drain()
        else:
            writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{"text":"x"}')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=262_144)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def _upload(port: int, size: int) -> bytes:
    begin = (
        b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nfiles\r\n'
        b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
    )
    end = b"\r\n--b--\r\n"
    length = len(begin) + size + len(end)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=262_144)
    writer.write(_head("/v1/audio/transcriptions", "multipart/form-data; boundary=b", length) + begin)
    for _ in range(size // len(PIECE)):
        writer.write(PIECE)
        await writer.drain()
    writer.write(end)
    answer = await reader.read(65_536)
    writer.close()
    return answer


async def _download(port: int, size: int) -> int:
    body = b'{"model":"files","voice":"v","input":"%d"}' % size
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=262_144)
    writer.write(_head("/v1/audio/speech", "application/json", len(body)) + body)
    got = 0
    while piece := await reader.read(262_144):
        got += len(piece)
    writer.close()
    return got


async def _transfer(port: int, size: int) -> None:
    uploads = asyncio.gather(*(_upload(port, size) for _ in range(AT_ONCE)))
    downloads = asyncio.gather(*(_download(port, size) for _ in range(AT_ONCE)))
    assert all(b"200 OK" in answer for answer in await uploads)
    assert all(got > size for got in await downloads)


def _head(path: str, content_type: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: gate\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\n"
        f"content-type: {content_type}\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


@pytest.mark.soak
async def test_memory_is_flat_while_large_files_pass_both_ways(
    simulator: Any, start_gate: StartGate, provider: str
) -> None:
    price = {"input": 0, "output": 0}
    config = make_config(
        simulator,
        providers={"sim": {"base_url": provider, "speaks": ["chat"], "auth": "none"}},
        models={"files": {"routes": [{"provider": "sim", "model": "files"}], "price": price}},
    )
    gate = await start_gate(config)
    (worker,) = [pid for pid in descendants(gate.child.pid) if _is_worker(pid)]
    idle = rss_kib(worker)
    short = await _peak(worker, _transfer(gate.port, SHORT_BYTES))
    long = await _peak(worker, _transfer(gate.port, FILE_BYTES))
    print(f"idle {idle} KiB, short files {short} KiB, long files {long} KiB")
    assert max(long, short) - idle < FLAT_KIB


async def _peak(pid: int, work: Coroutine[Any, Any, None]) -> int:
    """Return the most memory that a process has while something is done."""
    task = asyncio.ensure_future(work)
    most = 0
    while not task.done():
        most = max(most, rss_kib(pid))
        await asyncio.sleep(0.01)
    await task
    return most


def _is_worker(pid: int) -> bool:
    return "server.worker" in command_line(pid)
