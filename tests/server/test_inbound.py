"""The client's side over real sockets: framing, limits, clocks, leaving, back-pressure and TLS."""

import asyncio
import logging
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sluicegate.errors import Overloaded, TooLarge
from sluicegate.server import client_connection, inbound
from sluicegate.server.client_connection import READ_AHEAD_BYTES
from sluicegate.server.exchange import HIGH_WATER_BYTES, Exchange
from sluicegate.server.inbound import UNSENT_BYTES, InboundServer
from tests.fakes import Client, request_bytes
from tests.node import NODE
from tests.server.http_world import World, serving

TEXT = b"content-type: text/plain\r\n"


async def echo(exchange: Exchange) -> None:
    """Answer with what was asked, whole."""
    exchange.respond(200, TEXT, b"%b %b" % (exchange.path.encode(), exchange.body))


async def stream_three(exchange: Exchange) -> None:
    exchange.start(200, TEXT, b"one ")
    exchange.write(b"two ")
    exchange.write(b"")
    await asyncio.sleep(0)
    exchange.end(b"three")


async def until_gone(exchange: Exchange) -> None:
    """Begin a stream and wait until the client leaves."""
    left = asyncio.Event()
    exchange.on_gone = left.set
    exchange.start(200, TEXT, b"begun")
    await left.wait()


@pytest.fixture
def server_context(certificates: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert_file, certificates.key_file)
    return context


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


POST_CHUNKED = b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


# Answers


async def test_requests_follow_one_another_on_a_connection() -> None:
    async with serving(echo) as world, await Client.connect(world.url) as client:
        for body in (b"hello", b"", b"x" * 200_000):
            answer = await client.ask("/a?b=c", body)
            assert (answer.status, answer.body) == (200, b"/a " + body)
            assert answer.header("connection") is None
        assert (await client.ask("/none")).body == b"/none "
        assert len(world.server.connections) == 1


async def test_a_streamed_answer_is_chunked_and_keeps_the_connection() -> None:
    async with serving(stream_three) as world, await Client.connect(world.url) as client:
        for _ in range(2):
            answer = await client.ask("/")
            assert answer.complete
            assert answer.chunks == (b"one ", b"two ", b"three")
            assert answer.header("transfer-encoding") == "chunked"


async def test_http10_gets_an_unframed_answer_and_a_closed_connection() -> None:
    async with serving(stream_three) as world, await Client.connect(world.url) as client:
        client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answer = await client.response()
        assert (answer.body, answer.complete, answer.header("connection")) == (
            b"one two three",
            True,
            "close",
        )
        assert client.ended == "fin"


async def test_head_answers_have_a_length_and_no_body() -> None:
    async with serving(echo) as world, await Client.connect(world.url) as client:
        answer = await client.ask("/ab", method="HEAD")
        assert (answer.header("content-length"), answer.body) == ("4", b"")
        assert (await client.ask("/next")).body == b"/next "
        assert client.raw.count(b"/ab") == 0


async def test_a_streamed_answer_to_head_is_its_head() -> None:
    async with serving(stream_three) as world, await Client.connect(world.url) as client:
        assert (await client.ask("/", method="HEAD")).body == b""
        assert (await client.ask("/", method="HEAD")).status == 200


async def test_a_streamed_answer_to_head_in_http10_is_its_head() -> None:
    async with serving(stream_three) as world, await Client.connect(world.url) as client:
        client.send(b"HEAD / HTTP/1.0\r\n\r\n")
        await client.until_closed()
        assert client.raw.endswith(b"\r\n\r\n")


async def test_options_and_a_204() -> None:
    async def empty(exchange: Exchange) -> None:
        exchange.respond(204, b"allow: GET\r\n", b"")

    async with serving(empty) as world, await Client.connect(world.url) as client:
        for target in ("/", "*"):
            answer = await client.ask(target, method="OPTIONS")
            assert (answer.status, answer.header("content-length")) == (204, None)


@pytest.mark.parametrize("ending", ["cut", "abort"])
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_broken_answer_never_looks_complete(ending: str, version: bytes) -> None:
    async def break_off(exchange: Exchange) -> None:
        exchange.start(200, TEXT, b"some")
        await asyncio.sleep(0.02)
        exchange.write(b"last")
        exchange.cut() if ending == "cut" else exchange.abort()

    async with serving(break_off) as world, await Client.connect(world.url) as client:
        client.send(b"GET / HTTP/%b\r\nHost: x\r\n\r\n" % version)
        how = await client.until_closed()
        if ending == "cut":
            await client.until_bytes(b"last")
        assert how == ("fin" if (ending, version) == ("cut", b"1.1") else "reset")
        assert b"0\r\n\r\n" not in client.raw


async def test_an_answer_is_given_once() -> None:
    async def twice(exchange: Exchange) -> None:
        await echo(exchange)
        with pytest.raises(AssertionError):
            exchange.respond(200, b"", b"")
        with pytest.raises(AssertionError):
            exchange.write(b"x")

    async with serving(twice) as world, await Client.connect(world.url) as client:
        assert (await client.ask("/a")).body == b"/a "
        assert (await client.ask("/b")).body == b"/b "


# Bodies


async def test_bodies_arrive_whole_at_any_cut() -> None:
    async with serving(echo) as world, await Client.connect(world.url) as client:
        for raw in (request_bytes("/c", b"hello"), POST_CHUNKED + chunked(b"he", b"llo")):
            await client.send_slowly(raw, every_s=0)
            assert (await client.response()).body == b"/c hello"
            await client.send_slowly(raw, size=len(raw) // 2, every_s=0.01)
            assert (await client.response()).body == b"/c hello"


async def test_empty_lines_before_a_request_are_ignored_at_any_cut() -> None:
    before = b"\r\n" * 2
    async with serving(echo) as world, await Client.connect(world.url) as client:
        for cut in range(len(before) + 1):
            client.send(before[:cut])
            await asyncio.sleep(0.005)
            client.send(before[cut:] + request_bytes(f"/cut/{cut}"))
            assert (await client.response()).status == 200
        await client.send_slowly(before + request_bytes("/bytes"))
        assert (await client.response()).status == 200
        client.send(b"\r")
        await asyncio.sleep(0.005)
        client.send(request_bytes("/no-line"))
        assert (await client.response()).status == 400


async def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    running = 0

    async def count(exchange: Exchange) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.001)
        running -= 1
        await echo(exchange)

    requests = [request_bytes(f"/{n}", b"x" * n) for n in range(20)] + [POST_CHUNKED + chunked(b"hello")] * 3
    async with serving(count) as world, await Client.connect(world.url) as client:
        client.send(b"".join(requests))
        for n in range(20):
            assert (await client.response()).body == b"/%d %b" % (n, b"x" * n)
        for _ in range(3):
            assert (await client.response()).body == b"/c hello"


async def test_reading_ahead_is_bounded() -> None:
    go = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await go.wait()
        await echo(exchange)

    async with serving(wait) as world, await Client.connect(world.url) as client:
        client.send(request_bytes("/first") + request_bytes("/second", b"y" * 8_000_000))
        await asyncio.sleep(0.1)
        connection = next(iter(world.server.connections))
        assert len(connection._ahead or b"") < READ_AHEAD_BYTES + 300_000
        go.set()
        assert (await client.response()).body == b"/first "
        assert len((await client.response()).body) == 8_000_008


async def test_continue_is_said_only_where_it_is_waited_for() -> None:
    head = b"POST /c HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    async with serving(echo) as world, await Client.connect(world.url) as client:
        client.send(head)
        await client.until_bytes(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.send(b"hello")
        answer = await client.response()
        assert (answer.informational, answer.body) == ((100,), b"/c hello")
        client.send(head + b"hello")
        assert (await client.response()).informational == ()


async def test_a_refused_expectation_costs_no_body() -> None:
    async with serving(echo) as world, await Client.connect(world.url) as client:
        world.app.on_head = lambda exchange: exchange.respond(401, b"", b"no")
        client.send(b"POST /c HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        answer = await client.response()
        assert (answer.status, answer.informational, answer.header("connection")) == (401, (), "close")


async def test_an_h2c_upgrade_is_served_as_http11_with_its_body() -> None:
    async with serving(echo) as world, await Client.connect(world.url) as client:
        client.send(
            b"POST /u HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nContent-Length: 25\r\n\r\nGET /smuggled HTTP/1.1\r\n\r"
        )
        assert (await client.response()).body.startswith(b"/u GET /smuggled")
        assert len(world.app.exchanges) == 1


# Refusals


REFUSED = {
    "garbage": (b"\x16\x03\x01\x00\xa5\x01\x00\x00", 400),
    "HTTP/0.9": (b"GET /\r\n", 400),
    "bare LF": (b"GET / HTTP/1.1\nHost: x\n\n", 400),
    "obs-fold": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400),
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    "both lengths": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "bad chunk": (POST_CHUNKED + b"zz\r\n", 400),
    "CONNECT": (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "unknown method": (b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "endless URI": (b"GET /" + b"a" * 20_000, 414),
    "long URI": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "large head": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000, 431),
    "whole large head": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", 431),
    "many headers": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
    "expectation": (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", 417),
}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_closes_the_connection(data: bytes, status: int) -> None:
    async with serving(echo) as world, await Client.connect(world.url) as client:
        client.send(data)
        answer = await client.response()
        assert (answer.status, answer.header("connection")) == (status, "close")
        assert answer.complete
        client.send(request_bytes("/after"))
        await asyncio.sleep(0.02)
        assert world.app.exchanges == []
        assert len(world.app.refused) == 1


async def test_a_body_that_says_it_is_too_large_is_refused_at_once() -> None:
    async with serving(echo, max_body_bytes=1_000) as world, await Client.connect(world.url) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n")
        answer = await client.response()
        assert (answer.status, answer.header("connection")) == (413, "close")
        assert world.app.refused == [("/", TooLarge.__name__)]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_chunked_body_is_refused_where_it_becomes_too_large(whole: bool) -> None:
    async with serving(echo, max_body_bytes=1_000) as world, await Client.connect(world.url) as client:
        client.send(POST_CHUNKED)
        data = chunked(b"x" * 600, b"y" * 600)
        client.send(data if whole else data[:-200])
        assert (await client.response()).status == 413


async def test_the_application_may_allow_more() -> None:
    def allow(exchange: Exchange) -> None:
        exchange.max_body_bytes = 5_000

    async with serving(echo, max_body_bytes=1_000) as world, await Client.connect(world.url) as client:
        world.app.on_head = allow
        assert (await client.ask("/", b"x" * 4_000)).status == 200
        assert (await client.ask("/", b"x" * 6_000)).status == 413


async def test_bytes_in_flight_are_bounded_over_all_connections() -> None:
    go = asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        await go.wait()
        await echo(exchange)

    async with (
        serving(hold, max_inflight_bytes=3_000) as world,
        await Client.connect(world.url) as one,
        await Client.connect(world.url) as two,
    ):
        one.send(request_bytes("/", b"x" * 2_000))
        while world.server.inflight_bytes < 2_000:
            await asyncio.sleep(0)
        assert (await two.ask("/", b"y" * 2_000)).status == 503
        assert world.app.refused == [("/", "Overloaded")]
        world.app.exchanges[0].release_body()
        assert world.server.inflight_bytes == 0
        go.set()
        assert (await one.response()).status == 200


async def test_a_fault_of_the_application_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(exchange: Exchange) -> None:
        if exchange.path == "/late":
            exchange.start(200, TEXT, b"some")
        if exchange.path != "/forgotten":
            raise RuntimeError("wrong")

    def fail_early(exchange: Exchange) -> None:
        if exchange.path == "/head":
            raise RuntimeError("wrong")

    async with serving(fail) as world:
        world.app.on_head = fail_early
        for path in ("/early", "/forgotten", "/head"):
            async with await Client.connect(world.url) as client:
                assert (await client.ask(path, b"body")).status == 500
        async with await Client.connect(world.url) as client:
            client.send(request_bytes("/late"))
            assert await client.until_closed() == "reset"
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3


# Early answers


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_an_answer_given_while_the_client_sends_arrives(framing: str) -> None:
    async with serving(echo) as world, await Client.connect(world.url) as client:
        world.app.on_head = lambda exchange: exchange.respond(401, b"", b"no key")
        client.send(
            POST_CHUNKED
            if framing == "chunked"
            else b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n"
        )
        for _ in range(10):
            client.send(b"c350\r\n" + b"x" * 50_000 + b"\r\n" if framing == "chunked" else b"x" * 50_000)
            await asyncio.sleep(0.01)
        answer = await client.response()
        assert (answer.status, answer.body, answer.header("connection")) == (401, b"no key", "close")
        if framing == "length":  # all of it was read, so there is nothing to wait for
            assert await client.until_closed(1.0) == "fin"


async def test_discarding_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "LINGER_S", 0.2)
    async with serving(echo) as world, await Client.connect(world.url) as client:
        world.app.on_head = lambda exchange: exchange.respond(401, b"", b"no key")
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n")
        assert (await client.response()).status == 401
        await client.until_closed(1.0)


async def test_an_early_answer_to_a_whole_request_keeps_the_connection() -> None:
    async with serving(echo) as world, await Client.connect(world.url) as client:
        world.app.on_head = lambda exchange: (
            exchange.respond(401, b"", b"no") if exchange.path == "/x" else None
        )
        client.send(request_bytes("/x", b"body") * 500 + request_bytes("/y", b"body"))
        for _ in range(500):
            assert (await client.response()).header("connection") is None
        assert (await client.response()).body == b"/y body"


NODE_EARLY = """
const http = require('http');
const url = process.argv[1];
async function main() {
  const kinds = { fetch: 0, http: 0 };
  for (let i = 0; i < 20; i++) {
    const body = new ReadableStream({
      async start(c) {
        for (let n = 0; n < 20; n++) {
          await new Promise(r => setTimeout(r, 2));
          try { c.enqueue(new Uint8Array(50000)); } catch { return; }
        }
        try { c.close(); } catch {}
      }
    });
    const answer = await fetch(url, { method: 'POST', body, duplex: 'half' });
    if (answer.status === 401 && await answer.text() === 'no key') kinds.fetch++;
    kinds.http += await new Promise(resolve => {
      let text = '', status = 0;
      const req = http.request(url, { method: 'POST', headers: { 'content-length': 1000000 } }, res => {
        status = res.statusCode;
        res.on('data', d => text += d);
        res.on('end', () => resolve(status === 401 && text === 'no key' ? 1 : 0));
      });
      req.on('error', () => resolve(0));
      let left = 20;
      const timer = setInterval(() => {
        if (left-- > 0) return req.write(Buffer.alloc(50000));
        clearInterval(timer);
        req.end();
      }, 2);
    });
  }
  console.log(JSON.stringify(kinds));
}
main().catch(e => { console.log(String(e), String(e.cause)); process.exit(1); });
"""


@pytest.mark.skipif(shutil.which(NODE) is None, reason="needs Node")
async def test_node_gets_an_answer_that_is_given_while_it_sends() -> None:
    async with serving(echo) as world:
        world.app.on_head = lambda exchange: exchange.respond(401, TEXT, b"no key")
        node = await asyncio.create_subprocess_exec(
            NODE,
            "-e",
            NODE_EARLY,
            world.url,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(node.communicate(), 30)
        assert out == b'{"fetch":20,"http":20}\n'


# Clocks


async def test_a_head_that_drips_is_given_up() -> None:
    async with serving(echo, request_timeout_s=0.3) as world, await Client.connect(world.url) as client:
        drip = asyncio.create_task(client.send_slowly(b"GET / HTTP/1.1\r\nHost: " + b"x" * 100, every_s=0.05))
        answer = await client.response(timeout_s=2.0)
        assert (answer.status, answer.header("connection")) == (408, "close")
        drip.cancel()


@pytest.mark.parametrize("head", [POST_CHUNKED, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"])
async def test_a_body_may_be_slow_but_not_stop(head: bytes) -> None:
    async with serving(echo, request_timeout_s=0.4) as world, await Client.connect(world.url) as client:
        client.send(head)
        for _ in range(6):
            client.send(b"1\r\nx\r\n" if head is POST_CHUNKED else b"x")
            await asyncio.sleep(0.15)
        assert client.raw == b""
        assert (await client.response(timeout_s=2.0)).status == 408


async def test_idle_connections_are_closed_without_a_word() -> None:
    async with (
        serving(echo, idle_connection_s=0.2) as world,
        await Client.connect(world.url) as fresh,
        await Client.connect(world.url) as used,
    ):
        await used.ask("/")
        assert await fresh.until_closed(2.0) == "fin"
        assert await used.until_closed(2.0) == "fin"
        assert fresh.raw == b""


async def test_connections_close_after_many_requests_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "MAX_REQUESTS", 3)
    async with serving(echo) as world, await Client.connect(world.url) as client:
        said = [(await client.ask("/")).header("connection") for _ in range(3)]
        assert said == [None, None, "close"]
        assert await client.until_closed() == "fin"


async def test_old_connections_close_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "MAX_AGE_S", 0.4)
    async with serving(stream_three) as world, await Client.connect(world.url) as client:
        assert (await client.ask("/")).header("connection") is None
        await asyncio.sleep(0.5)
        answer = await client.ask("/")
        assert (answer.header("connection"), answer.complete) == ("close", True)
        assert await client.until_closed() == "fin"


# Leaving


@pytest.mark.parametrize("how", ["close", "half_close", "reset"])
async def test_a_client_that_leaves_is_noticed_at_once(how: str) -> None:
    ended = asyncio.Event()

    async def handle(exchange: Exchange) -> None:
        await until_gone(exchange)
        ended.set()

    async with serving(handle) as world, await Client.connect(world.url) as client:
        client.send(request_bytes("/", b"body"))
        await client.until_bytes(b"begun")
        if how == "close":
            await client.close()
        else:
            getattr(client, how)()
        await asyncio.wait_for(ended.wait(), 1)
        exchange = world.app.exchanges[0]
        assert (exchange.gone, exchange.write_timed_out) == (True, False)
        exchange.write(b"into the void")
        exchange.end(b"still")
        exchange.abort()
        exchange.cut()
        assert not exchange.paused


async def test_leaving_is_told_before_an_answer_and_not_after_it() -> None:
    told: list[str] = []
    waiting = asyncio.Event()

    async def handle(exchange: Exchange) -> None:
        exchange.on_gone = lambda: told.append(exchange.path)
        if exchange.path == "/slow":
            waiting.set()
            while not exchange.gone:
                await asyncio.sleep(0.01)
            exchange.respond(200, TEXT, b"for nobody")
        else:
            await echo(exchange)

    async with serving(handle) as world:
        async with await Client.connect(world.url) as client:
            await client.ask("/quick")
        async with await Client.connect(world.url) as client:
            client.send(request_bytes("/slow"))
            await waiting.wait()
        await asyncio.wait_for(world.server.wait_closed(), 2)
        assert told == ["/slow"]


async def test_a_request_cut_in_the_middle_reaches_nobody() -> None:
    async with serving(echo) as world:
        for part in (
            b"GE",
            b"GET / HTTP/1.1\r\nHo",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
        ):
            async with await Client.connect(world.url) as client:
                client.send(part)
                await asyncio.sleep(0.01)
        await asyncio.wait_for(world.server.wait_closed(), 2)
        assert world.app.exchanges == []
        assert world.server.inflight_bytes == 0


# Back-pressure


@pytest.mark.parametrize("secure", [False, True])
async def test_b052_a_client_that_reads_nothing_pauses_the_answer_and_is_dropped(
    secure: bool, server_context: ssl.SSLContext, certificates: Any
) -> None:
    events: list[str] = []

    async def flood(exchange: Exchange) -> None:
        gone = asyncio.Event()
        paused = asyncio.Event()

        def pause() -> None:
            events.append("pause")
            paused.set()

        exchange.mover = SimpleNamespace(pause=pause, client_left=gone.set)
        exchange.start(200, TEXT)
        written = 0
        while not exchange.paused:
            exchange.write(b"x" * 10_000)
            written += 10_000
            await asyncio.sleep(0)
        assert paused.is_set()
        assert exchange._transport.get_write_buffer_size() < HIGH_WATER_BYTES + 20_000
        await gone.wait()
        events.append("gone" if exchange.write_timed_out else "left")

    async with (
        serving(flood, server_context if secure else None, write_timeout_s=0.4) as world,
        await Client.connect(world.url, ca_file=certificates.ca_file, receive_buffer_bytes=16_384) as client,
    ):
        client.pause()
        client.send(request_bytes("/"))
        await asyncio.wait_for(world.server.wait_closed(), 3)
        assert events == ["pause", "gone"]


async def test_b052_a_slow_reader_is_paused_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound, "UNSENT_BYTES", 600_000)  # more than the client reads within write_timeout
    resumed = asyncio.Event()
    paused_s = 0.0

    async def flood(exchange: Exchange) -> None:
        nonlocal paused_s
        exchange.mover = SimpleNamespace(pause=lambda: None, resume=resumed.set, client_left=resumed.set)
        exchange.start(200, TEXT)
        while not exchange.paused:
            exchange.write(b"x" * 10_000)
            await asyncio.sleep(0)
        began_at = time.monotonic()
        await resumed.wait()
        paused_s = time.monotonic() - began_at
        exchange.end(b"end")

    loop = asyncio.get_running_loop()
    async with serving(flood, write_timeout_s=1.5) as world:
        with socket.socket() as sock:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            await loop.sock_connect(sock, ("127.0.0.1", world.port))
            await loop.sock_sendall(sock, request_bytes("/"))
            for _ in range(44):
                await loop.sock_recv(sock, 5_000)
                await asyncio.sleep(0.05)
            raw = b""
            while not raw.endswith(b"\r\n0\r\n\r\n"):
                raw += await loop.sock_recv(sock, 1_000_000)
                assert raw, "the gate gave up"
        assert paused_s > 1.6


async def test_a_whole_answer_that_is_not_read_is_dropped_too() -> None:
    async def large(exchange: Exchange) -> None:
        exchange.respond(200, TEXT, b"x" * 5_000_000)

    async with (
        serving(large, write_timeout_s=0.3) as world,
        await Client.connect(world.url, receive_buffer_bytes=16_384) as client,
    ):
        client.pause()
        client.send(request_bytes("/"))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(world.server.wait_closed(), 3)


# The server


async def test_draining_finishes_answers_and_takes_no_more() -> None:
    go = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await go.wait()
        await stream_three(exchange)

    async with (
        serving(wait) as world,
        await Client.connect(world.url) as idle,
        await Client.connect(world.url) as busy,
    ):
        busy.send(request_bytes("/"))
        while not world.app.exchanges:
            await asyncio.sleep(0)
        world.server.stop_accepting()
        world.server.close_idle()
        assert await idle.until_closed() == "fin"
        async with await Client.connect(world.url) as late:  # the socket itself is the caller's
            late.send(request_bytes("/"))
            await asyncio.sleep(0.05)
            assert len(world.server.connections) == 1
        go.set()
        answer = await busy.response()
        assert (answer.complete, answer.header("connection")) == (True, "close")
        await asyncio.wait_for(world.server.wait_closed(), 2)


async def test_sockets_have_no_delay_and_little_unsent() -> None:
    async with serving(echo) as world, await Client.connect(world.url) as client:
        await client.ask("/")
        sock = next(iter(world.server.connections)).transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


async def test_tls_clients_are_served(server_context: ssl.SSLContext, certificates: Any) -> None:
    async def handle(exchange: Exchange) -> None:
        await (stream_three if exchange.path == "/s" else echo)(exchange)

    async with serving(handle, server_context) as world:
        async with await Client.connect(world.url, ca_file=certificates.ca_file) as client:
            assert (await client.ask("/a", b"x" * 100_000)).body == b"/a " + b"x" * 100_000
            assert (await client.ask("/s")).body == b"one two three"
            world.app.on_head = lambda exchange: exchange.respond(401, b"", b"no")
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
            assert (await client.response()).status == 401
        async with await Client.connect(f"http://127.0.0.1:{world.port}") as plain:
            plain.send(request_bytes("/"))
            await plain.until_closed()


async def test_tls_clients_that_leave_are_noticed(server_context: ssl.SSLContext, certificates: Any) -> None:
    ended = asyncio.Event()

    async def handle(exchange: Exchange) -> None:
        await until_gone(exchange)
        ended.set()

    async with serving(handle, server_context) as world:
        client = await Client.connect(world.url, ca_file=certificates.ca_file)
        client.send(request_bytes("/"))
        await client.until_bytes(b"begun")
        await client.close()
        await asyncio.wait_for(ended.wait(), 1)


async def test_a_task_serves_one_request_after_another_and_ends_with_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbound, "MAX_IDLE_HANDS", 4)
    tasks: list[asyncio.Task[None] | None] = []
    together = asyncio.Barrier(6)

    async def handle(exchange: Exchange) -> None:
        tasks.append(asyncio.current_task())
        if exchange.path == "/together":
            await together.wait()
        await echo(exchange)

    async def ask(world: World) -> None:
        async with await Client.connect(world.url) as client:
            assert (await client.ask("/together", b"x")).complete

    async with serving(handle) as world:
        async with await Client.connect(world.url) as client:
            for number in range(5):
                assert (await client.ask("/", b"x" * number)).body.endswith(b"x" * number)
        assert len(set(tasks)) == 1
        await asyncio.gather(*(ask(world) for _ in range(6)))
        assert len(set(tasks)) == 6
        await asyncio.sleep(0.01)
        assert sum(task is not None and not task.done() for task in set(tasks)) == 4
    await asyncio.sleep(0.01)
    assert all(task is not None and task.done() for task in tasks)


class Timed:
    """Runs a request without a task, by what the loop calls."""

    def __init__(self, exchange: Exchange, then: Callable[[Exchange], object], after_s: float = 0.0) -> None:
        self.exchange = exchange
        self.cancelled = False
        exchange.runner = self
        self._timer = asyncio.get_running_loop().call_later(after_s, then, exchange)

    def cancel(self) -> None:
        self.cancelled = True
        self._timer.cancel()
        self.exchange.respond(503, TEXT, b"stopped")
        self.exchange.served()


async def test_a_request_may_run_without_a_task_and_go_on_in_one() -> None:
    tasks: list[int] = []
    begin_at = len(asyncio.all_tasks())

    def answer(exchange: Exchange) -> None:
        tasks.append(len(asyncio.all_tasks()))
        exchange.respond(200, TEXT, b"by itself")
        exchange.served()

    def go_on(exchange: Exchange) -> None:
        exchange.go_on(echo(exchange))

    def begin(exchange: Exchange) -> bool:
        then = {"/alone": answer, "/on": go_on, "/unanswered": Exchange.served}
        Timed(exchange, then[exchange.path])
        return True

    async with serving(echo) as world, await Client.connect(world.url) as client:
        world.app.begin = begin
        for _ in range(3):
            assert (await client.ask("/alone", b"x")).body == b"by itself"
        assert tasks == [begin_at] * 3
        assert (await client.ask("/on", b"x")).body == b"/on x"
        assert (await client.ask("/alone", b"x")).body == b"by itself"
        assert (await client.ask("/unanswered", b"x")).status == 500
        assert world.server._running == {}
        assert not world.server.busy


async def test_who_runs_without_a_task_is_stopped_with_the_others() -> None:
    runners: list[Timed] = []

    def begin(exchange: Exchange) -> bool:
        runners.append(Timed(exchange, echo, after_s=30))
        asyncio.get_running_loop().call_soon(world.server.stop_all, Overloaded("restarting"))
        return True

    async with serving(echo) as world, await Client.connect(world.url) as client:
        world.app.begin = begin
        assert (await client.ask("/", b"x")).body == b"stopped"
        assert [runner.cancelled for runner in runners] == [True]
        assert world.server._running == {}


async def test_what_is_refused_at_once_is_answered_after_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a refusal would begin the next pipelined request, and its refusal the one after: as deep as a buffer."""
    depth = deepest = 0

    def begin(exchange: Exchange) -> bool:
        nonlocal depth, deepest
        depth += 1
        deepest = max(deepest, depth)
        asyncio.get_running_loop().call_soon(ended)
        raise Overloaded("refused")

    def ended() -> None:
        nonlocal depth
        depth -= 1

    async with serving(echo) as world, await Client.connect(world.url) as client:
        world.app.begin = begin
        monkeypatch.setattr(world.app, "failed", lambda exchange, error: exchange.respond(503, TEXT, b"no"))
        client.send(b"".join(request_bytes(f"/{n}") for n in range(200)))
        for _ in range(200):
            assert (await client.response()).status == 503
    assert deepest == 1


async def test_a_request_that_comes_as_all_are_stopped_is_told_so() -> None:
    restarting = Overloaded("The gateway is restarting.")

    async def handle(exchange: Exchange) -> None:
        if exchange.path == "/":
            await echo(exchange)
        else:
            await asyncio.sleep(10)

    def stop_soon(server: InboundServer) -> None:
        """Before the request's task has its first turn."""
        asyncio.get_running_loop().call_soon(server.stop_all, restarting)

    for requests_before in (0, 1):
        async with serving(handle) as world, await Client.connect(world.url) as client:
            for _ in range(requests_before):
                await client.ask("/", b"x")
            world.app.on_head = lambda exchange: stop_soon(world.server)
            assert (await client.ask("/slow", b"x")).status == 503
            assert world.server._running == {}


async def test_nothing_is_left_of_many_clients() -> None:
    async def handle(exchange: Exchange) -> None:
        await (stream_three if exchange.path == "/s" else echo)(exchange)

    async def use(world: World, number: int) -> None:
        async with await Client.connect(world.url) as client:
            for _ in range(3):
                assert (await client.ask("/s" if number % 2 else "/e", b"x" * number)).complete

    async with serving(handle) as world:
        await asyncio.gather(*(use(world, number) for number in range(40)))
        await asyncio.wait_for(world.server.wait_closed(), 2)
        assert (world.server.connections, world.server.inflight_bytes) == (set(), 0)
        assert world.server.deadlines._items == set()


async def test_sockets_that_the_caller_has_let_go_of_are_left_when_accepting_stops() -> None:
    """Their descriptors are free for the next one, which must not take their place."""
    async with serving(stream_three) as world:
        ports = []
        for _ in range(3):
            given = socket.create_server(("127.0.0.1", 0))
            ports.append(given.getsockname()[1])
            await world.server.listen(given)
            given.close()
        world.server.stop_accepting()
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                await asyncio.wait_for(Client.connect(f"http://127.0.0.1:{port}"), 5)
