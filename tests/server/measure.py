"""CPU of the HTTP layer per plain request and per streamed event, from the process's own accounting.

Run as `python -m tests.server.measure [--tls]`. The pass-through gate runs here; the provider and the clients run in
processes of their own, so that only the gate's time is counted.
"""

import argparse
import asyncio
import functools
import gc
import multiprocessing
import resource
import socket
import ssl
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import trustme
import uvloop

from sluicegate.routing.catalog_shapes import TlsFiles
from sluicegate.server.dialing import Origin
from tests.server.passthrough import running_gate

EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
    b'"delta":{"content":" token"},"finish_reason":null}]}\n\n'
)
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
ANSWER = (
    b'{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}]}'
)
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(ANSWER),
    ANSWER,
)
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}'
EVENTS = 64


class Provider(asyncio.Protocol):
    """Answers by path: /plain, /paced/N (events N ms apart), /burst."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        path = data.split(b" ", 2)[1]
        if path == b"/plain":
            self._transport.write(PLAIN)
        elif path == b"/burst":
            self._transport.write(STREAM + CHUNK * EVENTS + b"0\r\n\r\n")
        elif path == b"/hold":
            self._transport.write(STREAM + CHUNK)
        else:
            self._left = EVENTS
            self._gap_s = int(path.rsplit(b"/", 1)[1]) / 1000
            self._transport.write(STREAM)
            self._loop.call_later(self._gap_s, self._tick)

    def _tick(self) -> None:
        self._left -= 1
        if self._left:
            self._transport.write(CHUNK)
            self._loop.call_later(self._gap_s, self._tick)
        else:
            self._transport.write(CHUNK + b"0\r\n\r\n")


def serve_provider(sock: socket.socket, certificate: str | None) -> None:
    async def run() -> None:
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Provider(loop), sock=sock, ssl=context, backlog=4096)
        await server.serve_forever()

    uvloop.run(run())


class Client(asyncio.Protocol):
    """Asks for one path again and again on one connection, and on a new one where the gate says it was the last."""

    def __init__(self, path: str, times: int, port: int, done: asyncio.Future[None]) -> None:
        self._port = port
        head = f"POST {path} HTTP/1.1\r\nhost: gate\r\ncontent-type: application/json\r\naccept: */*\r\n"
        head += (
            "authorization: Bearer sg-0123456789abcdef\r\nuser-agent: measure/1\r\naccept-encoding: gzip\r\n"
        )
        self._request = f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY
        self._left = times
        self._done = done
        self._end = ANSWER if path == "/plain" else EVENT + b"\r\n" if path == "/hold" else b"\r\n0\r\n\r\n"
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-len(self._end) :]
        if self._tail == self._end:
            self._tail = b""
            self._left -= 1
            if self._left:
                self._transport.write(self._request)
            elif not self._done.done():
                self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            if self._tail or exc is not None:
                self._done.set_exception(ConnectionError("the gate broke an answer off"))
            else:
                loop = self._done.get_loop()
                self._connecting = loop.create_task(
                    loop.create_connection(lambda: self, "127.0.0.1", self._port)
                )


def _same(client: Client) -> Client:
    return client


def run_clients(port: int, orders: Connection) -> None:
    async def load(path: str, streams: int, times: int) -> None:
        loop = asyncio.get_running_loop()
        waits = []
        for _ in range(streams):
            done: asyncio.Future[None] = loop.create_future()
            waits.append(done)
            client = Client(path, times, port, done)
            await loop.create_connection(functools.partial(_same, client), "127.0.0.1", port)
        await asyncio.gather(*waits)
        if path == "/hold":
            orders.send("held")
            await loop.run_in_executor(None, orders.recv)

    while True:
        order = orders.recv()
        if order is None:
            return
        uvloop.run(load(*order))
        orders.send("done")


def resident_kib() -> int:
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmRSS"))


async def measure(origin: Origin, scale: float) -> None:
    loop = asyncio.get_running_loop()
    async with running_gate(origin) as gate:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(
            target=run_clients, args=(gate.port, theirs), daemon=True
        )
        process.start()

        async def cost(path: str, streams: int, times: int) -> float:
            before = resource.getrusage(resource.RUSAGE_SELF)
            ours.send((path, streams, times))
            await loop.run_in_executor(None, ours.recv)
            after = resource.getrusage(resource.RUSAGE_SELF)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        await cost("/plain", 10, 50)
        requests = int(500 * scale)
        print(f"plain request: {await cost('/plain', 16, requests) / 16 / requests * 1e6:.1f} us")
        rounds = max(1, int(3 * scale))
        paced_s = await cost("/paced/5", 100, rounds) / 100 / rounds / EVENTS
        print(f"event, 5 ms apart, 100 streams: {paced_s * 1e6:.1f} us")
        rounds = int(10 * scale)
        print(f"event, burst: {await cost('/burst', 100, rounds) / 100 / rounds / EVENTS * 1e6:.2f} us")
        streams = int(1000 * scale)
        gc.collect()
        before = resident_kib()
        ours.send(("/hold", streams, 1))
        await loop.run_in_executor(None, ours.recv)
        print(f"open stream, {streams}: {(resident_kib() - before) / streams:.1f} KiB")
        ours.send(None)
        await loop.run_in_executor(None, ours.recv)
        ours.send(None)
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        certificate, tls = None, TlsFiles()
        if options.tls:
            authority = trustme.CA()
            certificate = f"{folder}/server.pem"
            authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
            authority.cert_pem.write_to_path(f"{folder}/ca.pem")
            tls = TlsFiles(ca_file=f"{folder}/ca.pem")
        sock = socket.create_server(("127.0.0.1", 0), backlog=4096)
        port = sock.getsockname()[1]
        context = multiprocessing.get_context("fork")
        provider = context.Process(target=serve_provider, args=(sock, certificate), daemon=True)
        provider.start()
        origin = Origin(
            "https" if options.tls else "http", "localhost" if options.tls else "127.0.0.1", port, tls=tls
        )
        try:
            uvloop.run(measure(origin, options.scale))
        finally:
            provider.terminate()
            provider.join()


if __name__ == "__main__":
    main()
