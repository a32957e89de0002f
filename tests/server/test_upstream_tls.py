"""TLS with providers over real sockets: records in any pieces, ends of every kind, and buffers that stay small."""

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from sluicegate.errors import ConnectFailed, StreamCut, UpstreamTimeout
from sluicegate.routing.catalog_shapes import TlsFiles
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.dialing import Origin
from sluicegate.server.upstream import UpstreamConnection
from sluicegate.server.upstream_pool import UpstreamPool
from tests.server.http_world import Recorder, read_request

HEAD = b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
TO_END = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def server_context(certificates: Any, request: pytest.FixtureRequest) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = context.minimum_version = request.param
    context.load_cert_chain(certificates.cert_file, certificates.key_file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


class RawPeer:
    """A provider whose every byte under TLS is in the test's hands."""

    def __init__(
        self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def _more(self) -> None:
        self.send(self.taken())
        data = await self.reader.read(65_536)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._more()
        self.send(self.taken())

    async def request(self) -> bytes:
        """Read one request of four bytes."""
        got = b""
        while not (got.endswith(b"body") and b"\r\n\r\n" in got):
            try:
                got += self.tls.read(65_536)
            except ssl.SSLWantReadError:
                await self._more()
        return got

    def records(self, *pieces: bytes) -> bytes:
        """Encrypt each piece into records of its own."""
        for piece in pieces:
            for at in range(0, len(piece), 16_384):
                self.tls.write(piece[at : at + 16_384])
        return self.taken()

    def close_notify(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.taken()

    def taken(self) -> bytes:
        return self._outgoing.read()

    def send(self, data: bytes) -> None:
        if data:
            self.writer.write(data)


@asynccontextmanager
async def provider(context: ssl.SSLContext, certificates: Any, talk: Any) -> AsyncIterator[Origin]:
    """Run a provider that talks so on each connection, and then closes it without a word."""
    running: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            raw = RawPeer(context, reader, writer)
            await raw.shake_hands()
            await talk(raw)
        except (ssl.SSLError, ConnectionError):
            pass
        finally:
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Origin("https", "127.0.0.1", port, tls=TlsFiles(ca_file=certificates.ca_file))
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.sleep(0)


async def ask(pool: UpstreamPool, origin: Origin) -> Recorder:
    connection = pool.take(origin) or await pool.connect(origin, 10.0)
    sink = Recorder()
    connection.send(HEAD, b"body", sink)
    return await sink.finished()


async def test_records_are_read_at_any_cut(
    pool: UpstreamPool, server_context: ssl.SSLContext, certificates: Any
) -> None:
    async def drip(raw: RawPeer) -> None:
        for _ in range(2):
            assert (await raw.request()).endswith(b"\r\n\r\nbody")
            data = raw.records(OK[:20], OK[20:-1], OK[-1:])
            for at in range(len(data)):
                raw.send(data[at : at + 1])
                await asyncio.sleep(0)
        await raw.reader.read()

    async with provider(server_context, certificates, drip) as origin:
        for _ in range(2):
            assert (await ask(pool, origin)).body == b"ok"
        assert pool.open_connections == pool.idle_connections == 1


async def test_what_one_read_brings_is_taken_at_once(
    pool: UpstreamPool, server_context: ssl.SSLContext, certificates: Any
) -> None:
    async def burst(raw: RawPeer) -> None:
        await raw.request()
        raw.send(raw.records(TO_END.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n")))
        await asyncio.sleep(0.05)
        raw.send(raw.records(*[b"1\r\nx\r\n"] * 50))
        await asyncio.sleep(0.05)
        raw.send(raw.records(b"0\r\n\r\n"))
        await raw.reader.read()

    async with provider(server_context, certificates, burst) as origin:
        sink = await ask(pool, origin)
        assert sink.body == b"x" * 50
        assert sink.calls.count("read_done") <= 3


async def test_what_follows_an_answer_in_one_read_is_no_answer_to_the_next_request(
    pool: UpstreamPool, server_context: ssl.SSLContext, certificates: Any
) -> None:
    async def talk(raw: RawPeer) -> None:
        await raw.request()
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: 30000\r\n\r\n" + b"x" * 30_000
        raw.send(raw.records(answer, b"HTTP/1.1 200 OK\r\ncontent-length: 9000\r\n\r\n" + b"y" * 9_000))
        await raw.reader.read()

    class Hasty(Recorder):
        reused: UpstreamConnection | None = None

        def body_completed(self) -> None:
            super().body_completed()
            self.reused = pool.take(origin)

    async with provider(server_context, certificates, talk) as origin:
        connection = await pool.connect(origin, 10.0)
        sink = Hasty()
        connection.send(HEAD, b"body", sink)
        assert (await sink.finished()).body == b"x" * 30_000
        assert sink.reused is None
        assert pool.open_connections == 0


@pytest.mark.parametrize("size", [16_383, 16_384, 32_768, 98_304, 500_000, 5_000_000])
async def test_large_bodies_pass_both_ways_whole_and_leave_small_buffers(
    pool: UpstreamPool, server_context: ssl.SSLContext, certificates: Any, size: int
) -> None:
    body = bytes(number % 251 for number in range(1000)) * (size // 1000 + 1)
    body = body[:size]
    got: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            got.append((await read_request(reader))[1])
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + body)

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=server_context)
    try:
        port = server.sockets[0].getsockname()[1]
        origin = Origin("https", "127.0.0.1", port, tls=TlsFiles(ca_file=certificates.ca_file))
        for _ in range(2):
            connection = pool.take(origin) or await pool.connect(origin, 10.0)
            sink = Recorder()
            connection.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size, body, sink)
            assert (await sink.finished()).body == body
        assert got == [body, body]
        connection.abort()
    finally:
        server.close()


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("notified", [True, False])
async def test_an_answer_that_goes_on_to_the_end_ends_with_the_connection(
    pool: UpstreamPool, server_context: ssl.SSLContext, certificates: Any, notified: bool, together: bool
) -> None:
    async def talk(raw: RawPeer) -> None:
        await raw.request()
        data = raw.records(TO_END, b"all of it")
        end = raw.close_notify() if notified else b""
        if together:
            raw.send(data + end)
        else:
            raw.send(data)
            await asyncio.sleep(0.02)
            raw.send(end)
        if notified:
            await raw.reader.read()  # it is we who close

    async with provider(server_context, certificates, talk) as origin:
        sink = await ask(pool, origin)
        assert (sink.body, sink.error) == (b"all of it", None)
        assert pool.open_connections == 0


@pytest.mark.parametrize("end", ["notified", "cut", "garbage", "half a record"])
async def test_an_answer_of_known_length_that_ends_early_is_cut(
    pool: UpstreamPool, server_context: ssl.SSLContext, certificates: Any, end: str
) -> None:
    async def talk(raw: RawPeer) -> None:
        await raw.request()
        raw.send(raw.records(OK[:-1]))
        if end == "notified":
            raw.send(raw.close_notify())
            await raw.reader.read()
        elif end == "garbage":
            raw.send(b"\x17\x03\x03\x00\x20" + bytes(32))
            await raw.reader.read()
        elif end == "half a record":
            raw.send(raw.records(OK[-1:])[:-5])

    async with provider(server_context, certificates, talk) as origin:
        sink = await ask(pool, origin)
        assert sink.body == b"o"
        assert isinstance(sink.error, StreamCut)
        assert pool.open_connections == 0


async def test_an_idle_connection_that_its_provider_ends_is_not_used_again(
    pool: UpstreamPool, server_context: ssl.SSLContext, certificates: Any
) -> None:
    async def talk(raw: RawPeer) -> None:
        await raw.request()
        raw.send(raw.records(OK) + raw.close_notify())
        await raw.reader.read()

    async with provider(server_context, certificates, talk) as origin:
        for _ in range(2):
            assert (await ask(pool, origin)).body == b"ok"
            await asyncio.sleep(0.02)
            assert pool.open_connections == 0


async def test_a_provider_that_leaves_during_the_handshake_fails(pool: UpstreamPool) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.close()

    server = await asyncio.start_server(leave, "127.0.0.1", 0)
    origin = Origin("https", "127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(ConnectFailed, match="connection closed"):
        await pool.connect(origin, 10.0)
    server.close()
    assert pool.open_connections == 0


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_pool_may_close_at_any_point_of_dialling(certificates: Any, scheme: str) -> None:
    """Descriptors are closed once: the next to be opened has the same number."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    origin = Origin(scheme, "127.0.0.1", port, tls=TlsFiles(verify=False))
    for turns in range(30):
        pool = UpstreamPool(loop, deadlines)
        pool._dialer._contexts[origin.tls] = ssl._create_unverified_context()
        dialling = asyncio.ensure_future(pool.connect(origin, 0.2))
        for _ in range(turns):
            await asyncio.sleep(0)
        pool.close()
        with suppress(ConnectFailed, UpstreamTimeout):
            (await dialling).abort()
        assert pool.open_connections == 0
    await asyncio.sleep(0.01)
    gc.collect()  # what is closed a second time is told of here
    server.close()
    deadlines.close()


async def test_a_pool_that_closes_ends_handshakes(pool: UpstreamPool) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    origin = Origin("https", "127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(UpstreamTimeout):
        await pool.connect(origin, 0.1)
    dialling = asyncio.ensure_future(pool.connect(origin, 10.0))
    await asyncio.sleep(0.1)
    pool.close()
    with pytest.raises(ConnectFailed):
        await dialling
    server.close()


async def test_what_a_paused_answer_brings_waits_in_the_kernel(
    pool: UpstreamPool, server_context: ssl.SSLContext, certificates: Any
) -> None:
    async def talk(raw: RawPeer) -> None:
        await raw.request()
        raw.send(raw.records(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n", b"a"))
        await asyncio.sleep(0.05)
        raw.send(raw.records(b"b", b"cd"))

    class Pausing(Recorder):
        connection: UpstreamConnection

        def body_received(self, data: bytes) -> None:
            super().body_received(data)
            if self.size == 1:
                self.connection.pause_reading()

    async with provider(server_context, certificates, talk) as origin:
        sink = Pausing()
        sink.connection = await pool.connect(origin, 10.0)
        sink.connection.send(HEAD, b"body", sink)
        await asyncio.sleep(0.15)
        assert (sink.body, sink.error) == (b"a", None)
        sink.connection.resume_reading()
        assert (await sink.finished()).body == b"abcd", "though its provider has closed since"
