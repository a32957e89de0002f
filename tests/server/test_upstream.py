"""The provider's side over real sockets: answers of every framing, reuse, the second try, the pool, proxies and TLS."""

import asyncio
import gc
import socket
import ssl
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sluicegate.errors import ConnectFailed, StreamCut, UpstreamGarbled, UpstreamTimeout
from sluicegate.routing.catalog_shapes import TlsFiles
from sluicegate.server import upstream, upstream_pool
from sluicegate.server.dialing import Origin
from sluicegate.server.upstream import UpstreamConnection
from sluicegate.server.upstream_pool import UpstreamPool
from tests.server.http_world import Peer, Recorder, peer, read_request

HEAD = b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture
def server_context(certificates: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert_file, certificates.key_file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def origin_of(provider: Peer, **fields: Any) -> Origin:
    given: dict[str, Any] = {"scheme": "http", "host": "127.0.0.1", "port": provider.port} | fields
    return Origin(**given)


async def obtain(pool: UpstreamPool, origin: Origin, timeout_s: float = 10.0) -> UpstreamConnection:
    return pool.take(origin) or await pool.connect(origin, timeout_s)


async def ask(pool: UpstreamPool, origin: Origin, head: bytes = HEAD, body: bytes = b"body") -> Recorder:
    """Send one request on a connection of the pool and wait for the end of its answer."""
    connection = await obtain(pool, origin)
    sink = Recorder()
    connection.send(head, body, sink)
    return await sink.finished()


def answering(*answers: bytes, close: bool = False) -> Callable[[Any, Any], Awaitable[None]]:
    """Answer the requests of each connection with these, in turn and round again."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = 0
        while True:
            await read_request(reader)
            writer.write(answers[turn % len(answers)])
            turn += 1
            if close:
                return

    return talk


# Framing of answers


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n"
REUSABLE = {
    "length": (OK, 200, b"ok"),
    "chunked": (CHUNKED, 200, b"abcde"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b""),
    "empty": (b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n", 500, b""),
    "informational": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
        200,
        b"ok",
    ),
    "CRLF after it": (OK + b"\r\n", 200, b"ok"),
}


@pytest.mark.parametrize(("answer", "status", "body"), REUSABLE.values(), ids=REUSABLE)
async def test_answers_are_read_and_their_connection_reused(
    pool: UpstreamPool, answer: bytes, status: int, body: bytes
) -> None:
    async with peer(answering(answer)) as provider:
        for _ in range(3):
            sink = await ask(pool, origin_of(provider))
            assert (sink.status, sink.body, sink.error) == (status, body, None)
            assert sink.calls[0] == "head"
            assert sink.calls[-1] in ("completed", "read_done")
        assert (provider.connections, pool.open_connections, pool.idle_connections) == (1, 1, 1)


async def test_the_end_is_told_before_its_read_is_done(pool: UpstreamPool) -> None:
    async with peer(answering(CHUNKED)) as provider:
        sink = await ask(pool, origin_of(provider))
        await asyncio.sleep(0)
        assert sink.calls == ["head", "body", "body", "completed", "read_done"]
        assert (b"transfer-encoding", b"chunked") in sink.headers


@pytest.mark.parametrize("answer", [OK, CHUNKED, REUSABLE["informational"][0]])
async def test_answers_are_read_at_any_cut(pool: UpstreamPool, answer: bytes) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for at in range(len(answer)):
                writer.write(answer[at : at + 1])
                await asyncio.sleep(0)

    async with peer(drip) as provider:
        for _ in range(2):
            sink = await ask(pool, origin_of(provider))
            assert sink.body in (b"ok", b"abcde")
        assert provider.connections == 1


ONCE = {
    "Connection: close": b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "a second answer": OK + OK,
    "garbage after it": OK + b"garbage",
    "data after a last answer": b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nokmore",
    "a short idle limit": b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=1, max=5\r\ncontent-length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("answer", ONCE.values(), ids=ONCE)
async def test_connections_that_cannot_be_trusted_are_not_reused(pool: UpstreamPool, answer: bytes) -> None:
    async with peer(answering(answer)) as provider:
        for count in (1, 2):
            sink = await ask(pool, origin_of(provider))
            assert (sink.body, sink.error, provider.connections) == (b"ok", None, count)


async def test_a_body_without_length_ends_with_the_connection(pool: UpstreamPool) -> None:
    async with peer(answering(b"HTTP/1.1 200 OK\r\n\r\nall of it", close=True)) as provider:
        sink = await ask(pool, origin_of(provider))
        assert (sink.body, sink.calls[-2:], pool.open_connections) == (
            b"all of it",
            ["completed", "read_done"],
            0,
        )


async def test_a_body_without_length_is_cut_by_a_reset(pool: UpstreamPool) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nsome")
        await asyncio.sleep(0.05)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async with peer(talk) as provider:
        sink = await ask(pool, origin_of(provider))
        assert isinstance(sink.error, StreamCut)


async def test_head_answers_have_no_body(pool: UpstreamPool) -> None:
    head = b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n"
    for answer in (
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    ):
        async with peer(answering(answer)) as provider:
            sink = await ask(pool, origin_of(provider), head, b"")
            assert (sink.status, sink.body, sink.error) == (200, b"", None)


GARBLED = {
    "both lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
    "bad chunk size": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc",
    "chunk longer than its size": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcdef\r\n",
    "unknown coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "not HTTP": b"SSH-2.0-OpenSSH_9.9\r\n",
    "switching protocols": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "a storm of informational answers": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100 + OK,
    "an endless head": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000,
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
}


@pytest.mark.parametrize("answer", GARBLED.values(), ids=GARBLED)
async def test_what_is_not_http_is_garbled(pool: UpstreamPool, answer: bytes) -> None:
    async with peer(answering(answer)) as provider:
        sink = await ask(pool, origin_of(provider))
        assert isinstance(sink.error, UpstreamGarbled)
        assert sink.calls[-1] == "failed"
        assert pool.open_connections == 0


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", CHUNKED[:-4]]
)
async def test_an_answer_that_ends_early_is_cut(pool: UpstreamPool, sent: bytes) -> None:
    async with peer(answering(sent, close=True)) as provider:
        connection = await obtain(pool, origin_of(provider))
        sink = Recorder()
        connection.send(HEAD, b"body", sink)
        await sink.finished()
        assert isinstance(sink.error, StreamCut)
        assert connection.responded is bool(sent)
        assert (provider.connections, pool.open_connections) == (1, 0)


async def test_a_fault_of_the_sink_ends_its_answer_alone(
    pool: UpstreamPool, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Recorder):
        def body_received(self, data: bytes) -> None:
            raise RuntimeError("wrong")

    async with peer(answering(OK)) as provider:
        connection = await obtain(pool, origin_of(provider))
        sink = Broken()
        connection.send(HEAD, b"body", sink)
        await sink.finished()
        assert isinstance(sink.error, UpstreamGarbled)
        assert "wrong" in caplog.text
        assert (await ask(pool, origin_of(provider))).body == b"ok"


# Reuse and the second try


async def test_b093_a_reused_connection_that_turns_out_dead_is_tried_once_more(pool: UpstreamPool) -> None:
    async def one_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)  # the second request of a connection is never answered

    async with peer(one_each) as provider:
        origin = origin_of(provider)
        await ask(pool, origin)
        connection = pool.take(origin)
        assert connection is not None
        assert connection.reused
        sink = Recorder()
        connection.send(HEAD, b"body", sink)
        assert (await sink.finished()).body == b"ok"
        assert not connection.responded or connection.closed or pool.idle_connections == 1
        assert (provider.connections, pool.open_connections) == (2, 1)


async def test_b093_an_idle_connection_that_the_server_closed_is_not_used(pool: UpstreamPool) -> None:
    async with peer(answering(OK)) as provider:
        origin = origin_of(provider)
        await ask(pool, origin)
        provider.drop_all()
        await asyncio.sleep(0.05)
        assert (pool.open_connections, pool.take(origin)) == (0, None)
        assert (await ask(pool, origin)).body == b"ok"


async def test_b093_a_connection_that_dies_between_taking_and_sending_is_dialled_again(
    pool: UpstreamPool,
) -> None:
    async with peer(answering(OK)) as provider:
        origin = origin_of(provider)
        await ask(pool, origin)
        connection = pool.take(origin)
        assert connection is not None
        provider.drop_all()
        await asyncio.sleep(0.05)
        sink = Recorder()
        connection.send(HEAD, b"body", sink)
        assert (await sink.finished()).body == b"ok"
        assert (pool.open_connections, pool.idle_connections) == (1, 1)


async def test_b093_the_second_try_fails_as_a_connect_does(pool: UpstreamPool) -> None:
    async with peer(answering(OK)) as provider:
        origin = origin_of(provider)
        await ask(pool, origin)
        connection = pool.take(origin)
        assert connection is not None
    await asyncio.sleep(0.05)  # nobody listens any more
    sink = Recorder()
    connection.send(HEAD, b"body", sink)
    assert isinstance((await sink.finished()).error, ConnectFailed)
    assert pool.open_connections == 0


async def test_b093_there_is_no_third_try(pool: UpstreamPool) -> None:
    async def never_again(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if provider.connections == 1:
            writer.write(OK)
            await read_request(reader)

    async with peer(never_again) as provider:
        await ask(pool, origin_of(provider))
        sink = await ask(pool, origin_of(provider))
        assert isinstance(sink.error, StreamCut)
        assert (provider.connections, pool.open_connections) == (2, 0)


async def test_a_reused_connection_cut_after_its_first_byte_is_not_tried_again(pool: UpstreamPool) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        writer.write(b"HTTP/1.1 2")

    async with peer(half) as provider:
        await ask(pool, origin_of(provider))
        assert isinstance((await ask(pool, origin_of(provider))).error, StreamCut)
        assert provider.connections == 1


async def test_aborting_during_the_second_try_stops_it(pool: UpstreamPool) -> None:
    async with peer(answering(OK)) as provider:
        origin = origin_of(provider)
        await ask(pool, origin)
        connection = pool.take(origin)
        assert connection is not None
        provider.drop_all()
        await asyncio.sleep(0.05)
        sink = Recorder()
        connection.send(HEAD, b"body", sink)
        connection.abort()
        await asyncio.sleep(0.05)
        assert (sink.calls, pool.open_connections) == ([], 0)


async def test_the_last_used_connection_is_taken_first(pool: UpstreamPool) -> None:
    async with peer(answering(OK)) as provider:
        origin = origin_of(provider)
        one, two = await pool.connect(origin, 1.0), await pool.connect(origin, 1.0)
        for connection in (one, two):
            sink = Recorder()
            connection.send(HEAD, b"body", sink)
            await sink.finished()
        assert pool.take(origin) is two
        assert pool.take(origin) is one


@pytest.mark.parametrize("limit", ["IDLE_MAX_S", "TOTAL_MAX_S"])
async def test_old_connections_are_not_used(
    pool: UpstreamPool, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_pool if limit == "TOTAL_MAX_S" else upstream, limit, 0.02)
    async with peer(answering(OK)) as provider:
        origin = origin_of(provider)
        connection = await pool.connect(origin, 1.0)
        await asyncio.sleep(0.05 if limit == "TOTAL_MAX_S" else 0)
        sink = Recorder()
        connection.send(HEAD, b"body", sink)
        await sink.finished()
        await asyncio.sleep(0.05)
        assert (pool.take(origin), pool.open_connections) == (None, 0)


async def test_idle_connections_are_closed_by_the_sweep(pool: UpstreamPool) -> None:
    async with peer(answering(OK)) as provider:
        await ask(pool, origin_of(provider))
        now = asyncio.get_running_loop().time()
        pool.expire(now)
        assert pool.open_connections == 1
        pool.expire(now + upstream.IDLE_MAX_S + 1)
        assert (pool.open_connections, pool._places) == (0, {})
        await asyncio.wait_for(provider.ended.wait(), 1)


async def test_an_early_answer_to_a_large_request_is_taken_and_its_connection_dropped(
    pool: UpstreamPool,
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 No\r\ncontent-length: 3\r\n\r\nbig")
        await asyncio.sleep(1)

    async with peer(refuse) as provider:
        head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 30000000\r\n\r\n"
        sink = await ask(pool, origin_of(provider), head, b"x" * 30_000_000)
        assert (sink.status, sink.body, pool.open_connections) == (413, b"big", 0)


# Leaving and back-pressure


async def test_abort_closes_at_once_and_the_sink_hears_no_more(pool: UpstreamPool) -> None:
    async def flow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\nx\r\n")
            await writer.drain()
            await asyncio.sleep(0.005)

    async with peer(flow) as provider:
        connection = await obtain(pool, origin_of(provider))
        sink = Recorder()
        connection.send(HEAD, b"body", sink)
        await sink.until_body(3)
        connection.abort()
        calls = list(sink.calls)
        assert pool.open_connections == 0
        await asyncio.wait_for(provider.ended.wait(), 1)
        connection.abort()
        assert sink.calls == calls


async def test_abort_from_within_a_call_of_the_sink(pool: UpstreamPool) -> None:
    class Enough(Recorder):
        def body_received(self, data: bytes) -> None:
            super().body_received(data)
            connection.abort()

    async with peer(answering(CHUNKED)) as provider:
        connection = await obtain(pool, origin_of(provider))
        sink = Enough()
        connection.send(HEAD, b"body", sink)
        await sink.until_body(3)
        await asyncio.sleep(0.02)
        assert (sink.calls, pool.open_connections) == (["head", "body"], 0)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_b052_pausing_reaches_the_provider(
    pool: UpstreamPool, scheme: str, certificates: Any, server_context: ssl.SSLContext
) -> None:
    written = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 30000000\r\n\r\n")
        for _ in range(300):
            writer.write(b"x" * 100_000)
            await writer.drain()
            written += 100_000
        await reader.read()

    async with peer(flood, server_context if scheme == "https" else None) as provider:
        tls = TlsFiles(ca_file=certificates.ca_file)
        connection = await obtain(pool, origin_of(provider, scheme=scheme, tls=tls))
        sink = Recorder()
        connection.send(HEAD, b"body", sink)
        await sink.until_body(1)
        connection.pause_reading()
        async with asyncio.timeout(10):  # what lies in buffers passes first
            before = (-1, -1)
            while (now := (sink.size, written)) != before:
                before = now
                await asyncio.sleep(0.1)
        assert sink.size < 30_000_000
        connection.resume_reading()
        assert len((await sink.finished()).body) == 30_000_000
        assert pool.idle_connections == 1


async def test_a_connection_given_back_while_paused_reads_again(pool: UpstreamPool) -> None:
    class Slow(Recorder):
        def body_received(self, data: bytes) -> None:
            super().body_received(data)
            connection.pause_reading()

    async with peer(answering(OK)) as provider:
        connection = await obtain(pool, origin_of(provider))
        sink = Slow()
        connection.send(HEAD, b"body", sink)
        await sink.finished()
        assert (await ask(pool, origin_of(provider))).body == b"ok"
        assert provider.connections == 1


# The pool


async def test_b017_no_ending_keeps_a_place(pool: UpstreamPool) -> None:
    slow = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await read_request(reader)
            path = head.split(b" ")[1]
            if path == b"/garbled":
                writer.write(b"garbled")
            elif path == b"/cut":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")
                return
            elif path == b"/429":
                writer.write(b"HTTP/1.1 429 Slow\r\ncontent-length: 2\r\n\r\nno")
            elif path == b"/slow":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")
                await slow.wait()
            else:
                writer.write(CHUNKED)

    async with peer(talk) as provider:
        origin = origin_of(provider, max_connections=2)

        async def use(path: bytes) -> None:
            connection = await obtain(pool, origin, 10.0)
            sink = Recorder()
            connection.send(HEAD.replace(b"/v1/x", path), b"body", sink)
            if path == b"/slow":
                await sink.until_body(2)
                connection.abort()
            else:
                await sink.finished()

        paths = [b"/garbled", b"/cut", b"/429", b"/slow", b"/full"] * 20
        await asyncio.gather(*(use(path) for path in paths))
        assert pool.open_connections == pool.idle_connections <= 2
        assert pool._places[origin].open == pool.open_connections
        assert (await ask(pool, origin)).body == b"abcde"
        slow.set()


async def test_waiting_for_a_place_ends_with_its_time(pool: UpstreamPool) -> None:
    async with peer(answering(OK)) as provider:
        origin = origin_of(provider, max_connections=1)
        held = await pool.connect(origin, 1.0)
        with pytest.raises(UpstreamTimeout) as caught:
            await pool.connect(origin, 0.05)
        assert caught.value.phase == "pool"
        waiting = asyncio.create_task(pool.connect(origin, 1.0))
        leaving = asyncio.create_task(pool.connect(origin, 1.0))
        await asyncio.sleep(0)
        held.abort()
        leaving.cancel()
        taken = await waiting
        assert not taken.reused
        assert pool.open_connections == 1
        next_one = asyncio.create_task(pool.connect(origin, 1.0))
        await asyncio.sleep(0)
        sink = Recorder()
        taken.send(HEAD, b"body", sink)
        await sink.finished()
        assert await next_one is taken
        taken.abort()
        assert (pool.open_connections, pool._places[origin].open) == (0, 0)


async def test_a_place_given_to_someone_who_leaves_goes_on(pool: UpstreamPool) -> None:
    async with peer(answering(OK)) as provider:
        origin = origin_of(provider, max_connections=1)
        held = await pool.connect(origin, 1.0)
        first = asyncio.create_task(pool.connect(origin, 1.0))
        second = asyncio.create_task(pool.connect(origin, 1.0))
        await asyncio.sleep(0)
        held.abort()
        first.cancel()  # the place was given to it in the same turn
        taken = await second
        assert pool.open_connections == 1
        sink = Recorder()
        taken.send(HEAD, b"body", sink)
        assert (await sink.finished()).body == b"ok"


async def test_a_refused_connection_fails_and_frees_its_place(pool: UpstreamPool, dead_port: int) -> None:
    origin = Origin("http", "127.0.0.1", dead_port, max_connections=1)
    for _ in range(2):
        with pytest.raises(ConnectFailed, match="refused"):
            await pool.connect(origin, 1.0)
    assert pool.open_connections == 0


async def test_an_unknown_name_fails(pool: UpstreamPool) -> None:
    with pytest.raises(ConnectFailed, match="resolved"):
        await pool.connect(Origin("http", "nowhere.invalid", 80), 5.0)
    with pytest.raises(ConnectFailed):
        await pool.connect(Origin("http", "a" * 300, 80), 5.0)


async def test_connecting_ends_with_its_time(pool: UpstreamPool) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as sock:
        origin = Origin("https", "127.0.0.1", sock.getsockname()[1])  # accepts, and never says a word of TLS
        with pytest.raises(UpstreamTimeout) as caught:
            await pool.connect(origin, 0.2)
    assert caught.value.phase == "connect"
    assert pool.open_connections == 0


async def test_a_closed_pool_takes_no_more(pool: UpstreamPool) -> None:
    async with peer(answering(OK)) as provider:
        origin = origin_of(provider)
        sink = Recorder()
        (await pool.connect(origin, 1.0)).send(HEAD, b"body", sink)
        pool.close()
        with pytest.raises(ConnectFailed):
            await pool.connect(origin, 1.0)
        assert (sink.calls, pool.open_connections) == ([], 0)


async def test_finished_connections_leave_no_garbage(pool: UpstreamPool) -> None:
    async with peer(
        answering(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")
    ) as provider:
        gc.disable()
        try:
            connection = await obtain(pool, origin_of(provider))
            sink = Recorder()
            connection.send(HEAD, b"body", sink)
            await sink.finished()
            sinks = weakref.ref(sink)
            del sink, connection
            await asyncio.sleep(0.02)
            assert sinks() is None
        finally:
            gc.enable()


# TLS


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_tls_providers_are_spoken_to(
    pool: UpstreamPool, certificates: Any, server_context: ssl.SSLContext, host: str
) -> None:
    big = b"HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n" + b"x" * 3_000_000
    async with peer(answering(CHUNKED, big), server_context) as provider:
        origin = origin_of(provider, scheme="https", host=host, tls=TlsFiles(ca_file=certificates.ca_file))
        assert (await ask(pool, origin)).body == b"abcde"
        head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
        assert (await ask(pool, origin, head, b"y" * 1_000_000)).body == b"x" * 3_000_000
        assert (await ask(pool, origin)).body == b"abcde"
        assert provider.connections == 1


async def test_tls_streams_share_a_read_buffer_and_not_their_bytes(
    pool: UpstreamPool, certificates: Any, server_context: ssl.SSLContext
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(20):
            writer.write(b"4\r\n%b\r\n" % body)
            await asyncio.sleep(0.002)
        writer.write(b"0\r\n\r\n")

    async with peer(talk, server_context) as provider:
        origin = origin_of(provider, scheme="https", tls=TlsFiles(ca_file=certificates.ca_file))
        sinks = await asyncio.gather(*(ask(pool, origin, HEAD, b"%04d" % number) for number in range(10)))
        assert [sink.body for sink in sinks] == [b"%04d" % number * 20 for number in range(10)]


async def test_certificates_are_checked(
    pool: UpstreamPool, certificates: Any, server_context: ssl.SSLContext
) -> None:
    async with peer(answering(OK), server_context) as provider:
        with pytest.raises(ConnectFailed, match="certificate"):
            await pool.connect(origin_of(provider, scheme="https"), 10.0)
        trusted = TlsFiles(ca_file=certificates.ca_file)
        async with peer(answering(OK), server_context, host="127.0.0.2") as other:
            with pytest.raises(ConnectFailed, match="certificate"):  # of another host
                await pool.connect(origin_of(other, scheme="https", host="127.0.0.2", tls=trusted), 10.0)
        with pytest.raises(ConnectFailed):
            await pool.connect(
                origin_of(provider, scheme="https", tls=TlsFiles(ca_file="/nowhere.pem")), 10.0
            )
        unverified = origin_of(provider, scheme="https", tls=TlsFiles(verify=False))
        assert (await ask(pool, unverified)).body == b"ok"


async def test_a_provider_without_tls_fails_the_handshake(pool: UpstreamPool) -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with peer(hello) as provider:
        with pytest.raises(ConnectFailed, match="TLS"):
            await pool.connect(origin_of(provider, scheme="https"), 10.0)


async def test_tls_handshakes_that_are_given_up_are_not_kept(
    pool: UpstreamPool, certificates: Any, server_context: ssl.SSLContext
) -> None:
    """The loop's own timer would keep each, with a quarter of a megabyte, for a minute."""

    def kept() -> int:
        gc.collect()
        return sum(isinstance(one, UpstreamConnection) for one in gc.get_objects())

    async with peer(answering(OK), server_context) as provider:
        origin = origin_of(provider, scheme="https", tls=TlsFiles(ca_file=certificates.ca_file))
        (await obtain(pool, origin)).abort()  # reads the certificates
        late = 0
        for number in range(200):
            try:
                (await pool.connect(origin, 0.0005 * (1 + number % 20))).abort()
            except UpstreamTimeout:
                late += 1
        assert late
        async with asyncio.timeout(10):
            while kept():
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"])
async def test_a_tls_answer_that_ends_early_is_cut(
    pool: UpstreamPool, certificates: Any, server_context: ssl.SSLContext, sent: bytes
) -> None:
    async with peer(answering(sent, close=True), server_context) as provider:
        origin = origin_of(provider, scheme="https", tls=TlsFiles(ca_file=certificates.ca_file))
        assert isinstance((await ask(pool, origin)).error, StreamCut)


async def test_a_reused_tls_connection_is_tried_once_more(
    pool: UpstreamPool, certificates: Any, server_context: ssl.SSLContext
) -> None:
    async def one_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        writer.transport.abort()

    async with peer(one_each, server_context) as provider:
        origin = origin_of(provider, scheme="https", tls=TlsFiles(ca_file=certificates.ca_file))
        for _ in range(2):
            assert (await ask(pool, origin)).body == b"ok"
        assert provider.connections == 2


# Proxies


class Proxy:
    """A proxy that tunnels and forwards to one provider, and remembers the heads it got."""

    def __init__(self, port: int, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.heads: list[bytes] = []
        self._port = port
        self._answer = answer

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        if head.startswith(b"CONNECT "):
            writer.write(self._answer)
            if b" 200 " not in self._answer:
                return
            head = b""
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        back.write(head)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)


async def test_http_goes_through_a_proxy_in_absolute_form(pool: UpstreamPool) -> None:
    async with peer(answering(OK)) as provider:
        proxy = Proxy(provider.port)
        async with peer(proxy.talk) as middle:
            origin = Origin("http", "api.test", 8080, proxy=f"http://me:se%20cret@127.0.0.1:{middle.port}")
            assert (await ask(pool, origin)).body == b"ok"
            assert proxy.heads[0].startswith(
                b"POST http://api.test:8080/v1/x HTTP/1.1\r\nproxy-authorization: Basic bWU6c2UgY3JldA==\r\nhost: x\r\n"
            )


async def test_https_goes_through_a_tunnel(
    pool: UpstreamPool, certificates: Any, server_context: ssl.SSLContext
) -> None:
    async with peer(answering(CHUNKED), server_context) as provider:
        proxy = Proxy(provider.port)
        async with peer(proxy.talk) as middle:
            origin = Origin(
                "https",
                "localhost",
                provider.port,
                proxy=f"http://me:secret@127.0.0.1:{middle.port}",
                tls=TlsFiles(ca_file=certificates.ca_file),
            )
            for _ in range(2):
                assert (await ask(pool, origin)).body == b"abcde"
            assert proxy.heads == [
                b"CONNECT localhost:%d HTTP/1.1\r\nhost: localhost:%d\r\n" % (provider.port, provider.port)
                + b"proxy-authorization: Basic bWU6c2VjcmV0\r\n\r\n"
            ]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407"),
        (b"HTTP/1.1 200 OK\r\n\r\nbytes of its own", "bytes of its own"),
        (b"garbage\r\n\r\n", "refused"),
        (b"HTTP/1.1 403 No\r\n", "no answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5_000, "no answer"),
    ],
)
async def test_a_proxy_that_opens_no_tunnel_fails(pool: UpstreamPool, answer: bytes, message: str) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if len(answer) > 1_000 or b"own" in answer:
            await reader.read()

    async with peer(refuse) as middle:
        with pytest.raises(ConnectFailed, match=message):
            await pool.connect(
                Origin("https", "api.test", 443, proxy=f"http://127.0.0.1:{middle.port}"), 10.0
            )
    assert pool.open_connections == 0


async def test_other_proxies_are_refused(pool: UpstreamPool) -> None:
    with pytest.raises(ConnectFailed, match="http:// proxies"):
        await pool.connect(Origin("https", "api.test", 443, proxy="socks5://127.0.0.1:1"), 10.0)
