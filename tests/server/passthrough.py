"""The smallest gate: passes requests through to one provider and its answers back, with nothing in between.

What it costs is what the HTTP layer costs; `python -m tests.server.measure` measures that.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sluicegate.errors import SluicegateError, UpstreamError
from sluicegate.server import settings_shapes
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.dialing import Origin
from sluicegate.server.exchange import Exchange
from sluicegate.server.inbound import InboundServer
from sluicegate.server.settings import ServerSettings
from sluicegate.server.upstream import Header, UpstreamConnection
from sluicegate.server.upstream_pool import UpstreamPool


class Passage:
    """One answer on its way from the provider to the client."""

    __slots__ = ("_chunks", "_connection", "_done", "_exchange", "_plain", "_status", "error")

    def __init__(
        self, exchange: Exchange, connection: UpstreamConnection, done: asyncio.Future[None]
    ) -> None:
        self._exchange = exchange
        self._connection: UpstreamConnection | None = connection
        self._done = done
        self._chunks: list[bytes] = []
        self._plain = False
        self._status = 0
        self.error: UpstreamError | None = None
        exchange.mover = self

    def head_received(self, status: int, headers: list[Header]) -> None:
        self._status = status
        self._plain = not any(name == b"content-type" and b"event-stream" in value for name, value in headers)
        if not self._plain:
            self._exchange.start(status, b"content-type: text/event-stream\r\n")

    def body_received(self, data: bytes) -> None:
        self._chunks.append(data)

    def read_done(self) -> None:
        if self._plain or not self._chunks:
            return
        chunks = self._chunks
        self._exchange.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        chunks.clear()

    def body_completed(self) -> None:
        self._connection = None
        last = b"".join(self._chunks)
        self._chunks.clear()
        if self._plain:
            self._exchange.respond(self._status, b"content-type: application/json\r\n", last)
        else:
            self._exchange.end(last)
        self._finish()

    def failed(self, error: UpstreamError) -> None:
        self._connection = None
        self.error = error
        if self._exchange.answered:
            self._exchange.abort()
        else:
            self._exchange.respond(error.status, b"", type(error).__name__.encode())
        self._finish()

    def pause(self) -> None:
        if self._connection is not None:
            self._connection.pause_reading()

    def resume(self) -> None:
        if self._connection is not None:
            self._connection.resume_reading()

    def client_left(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        self._finish()

    def _finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)


class PassThrough:
    """The application: everything goes to one origin."""

    def __init__(self, pool: UpstreamPool, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
        self.pool = pool
        self.origin = origin
        self.loop = loop
        self.connect_timeout_s = 5.0
        self.reused = 0

    def head_received(self, exchange: Exchange) -> None:
        if exchange.path == "/unauthenticated":
            exchange.respond(401, b"content-type: text/plain\r\n", b"no key")

    def failed(self, exchange: Exchange, error: Exception) -> None:
        raise error

    async def handle(self, exchange: Exchange) -> None:
        connection = self.pool.take(self.origin)
        if connection is None:
            try:
                connection = await self.pool.connect(self.origin, self.connect_timeout_s)
            except UpstreamError as error:
                exchange.respond(error.status, b"", type(error).__name__.encode())
                return
        else:
            self.reused += 1
        if exchange.gone:
            connection.abort()
            return
        body = exchange.body
        head = b"%b %b HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\n\r\n" % (
            exchange.method.encode(),
            exchange.path.encode(),
            self.origin.authority.encode(),
            len(body),
        )
        done: asyncio.Future[None] = self.loop.create_future()
        connection.send(head, body, Passage(exchange, connection, done))
        exchange.release_body()
        await done

    def protocol_error(self, exchange: Exchange | None, error: SluicegateError) -> tuple[bytes, bytes]:
        return b"content-type: text/plain\r\n", error.message.encode()


class RunningGate:
    """A gate that listens, and what a test wants to look at."""

    def __init__(self, port: int, app: PassThrough, server: InboundServer, pool: UpstreamPool) -> None:
        self.port = port
        self.app = app
        self.server = server
        self.pool = pool


@asynccontextmanager
async def running_gate(
    origin: Origin,
    settings: ServerSettings | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[RunningGate]:
    """Run a pass-through gate in this loop, on a port of its own."""
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    pool = UpstreamPool(loop, deadlines)
    app = PassThrough(pool, origin, loop)
    server = InboundServer(app, settings or ServerSettings(settings_shapes.ServerSettings()), deadlines, loop)
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    await server.listen(sock, ssl_context)
    try:
        yield RunningGate(port, app, server, pool)
    finally:
        server.stop_accepting()
        server.abort_all()
        await server.wait_closed()
        pool.close()
        deadlines.close()
