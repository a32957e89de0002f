"""What tests of the HTTP layer stand on: an inbound server with a scripted application, and scripted peers."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from sluicegate.errors import SluicegateError, UpstreamError
from sluicegate.server import settings_shapes
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.exchange import Exchange
from sluicegate.server.inbound import InboundServer
from sluicegate.server.settings import ServerSettings
from sluicegate.server.upstream import Header

Handle = Callable[[Exchange], Awaitable[None]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class ScriptedApp:
    """An application that does what a test says, and remembers what it saw."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.on_head: Callable[[Exchange], None] = lambda exchange: None
        self.begin: Callable[[Exchange], bool] = lambda exchange: False
        """Serves a request without a task, where it says so; may raise."""
        self.exchanges: list[Exchange] = []
        """Handled ones, in order."""
        self.bodies: list[bytes] = []
        self.refused: list[tuple[str | None, str]] = []
        """Path, where known, and class of each error that the HTTP layer answered by itself."""

    def head_received(self, exchange: Exchange) -> None:
        self.on_head(exchange)

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        self.exchanges.append(exchange)
        self.bodies.append(exchange.body)
        return None if self.begin(exchange) else self._serve(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        await self._handle(exchange)

    def failed(self, exchange: Exchange, error: Exception) -> None:
        raise error

    def protocol_error(self, exchange: Exchange | None, error: SluicegateError) -> tuple[bytes, bytes]:
        self.refused.append((None if exchange is None else exchange.path, type(error).__name__))
        return b"content-type: text/plain\r\n", error.message.encode()


class World:
    """A running inbound server."""

    def __init__(self, app: ScriptedApp, server: InboundServer, port: int, secure: bool) -> None:
        self.app = app
        self.server = server
        self.port = port
        self.url = f"{'https' if secure else 'http'}://127.0.0.1:{port}"


@asynccontextmanager
async def serving(
    handle: Handle, ssl_context: ssl.SSLContext | None = None, **settings: Any
) -> AsyncIterator[World]:
    """Run an inbound server whose application calls `handle`; nothing may be left of it at the end."""
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    app = ScriptedApp(handle)
    server = InboundServer(app, ServerSettings(settings_shapes.ServerSettings(**settings)), deadlines, loop)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        await server.listen(sock, ssl_context)
        try:
            yield World(app, server, sock.getsockname()[1], ssl_context is not None)
        finally:
            server.stop_accepting()
            server.abort_all()
            async with asyncio.timeout(15):
                await server.wait_closed()
            deadlines.close()
            assert server.inflight_bytes == 0


class Peer:
    """A scripted provider: `talk` runs once for each connection."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.port = 0
        self.connections = 0
        self.ended = asyncio.Event()
        """Set when a client has left while `talk` was reading."""
        self._writers: set[asyncio.StreamWriter] = set()

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            await self._talk(reader, writer)
        except (
            asyncio.IncompleteReadError,
            ConnectionError,
            RuntimeError,
        ):  # the last: uvloop, writing after an end
            self.ended.set()
        finally:
            self._writers.discard(writer)
            writer.close()

    def drop_all(self) -> None:
        """Break every connection off."""
        for writer in list(self._writers):
            writer.transport.abort()


@asynccontextmanager
async def peer(
    talk: Talk, ssl_context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Peer]:
    """Run a scripted provider."""
    scripted = Peer(talk)
    server = await asyncio.start_server(scripted.run, host, 0, ssl=ssl_context)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()
        scripted.drop_all()
        await asyncio.sleep(0)


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one request of known length; return head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    return head, await reader.readexactly(length)


class Recorder:
    """A sink that remembers an answer."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self.size = 0
        self._pieces: list[bytes] = []
        self.calls: list[str] = []
        self.error: UpstreamError | None = None
        self.done = asyncio.Event()
        self.news = asyncio.Event()

    def head_received(self, status: int, headers: list[Header]) -> None:
        self.status, self.headers = status, headers
        self._note("head")

    def body_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self.size += len(data)
        self._note("body")

    def read_done(self) -> None:
        self._note("read_done")

    def body_completed(self) -> None:
        self._note("completed")
        self.done.set()

    def failed(self, error: UpstreamError) -> None:
        self.error = error
        self._note("failed")
        self.done.set()

    @property
    def body(self) -> bytes:
        return b"".join(self._pieces)

    async def finished(self) -> "Recorder":
        """Wait for the end of the answer."""
        async with asyncio.timeout(15):
            await self.done.wait()
        return self

    async def until_body(self, size: int) -> None:
        """Wait until so many bytes of the body have come."""
        async with asyncio.timeout(15):
            while self.size < size:
                self.news.clear()
                await self.news.wait()

    def _note(self, call: str) -> None:
        assert not self.done.is_set() or call == "read_done", f"{call} after the end"
        self.calls.append(call)
        self.news.set()
