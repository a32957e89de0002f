"""The client's side of a worker: where clients connect, their connections, and the requests that run.

What is read off one connection is `client_connection`'s, what is answered `exchange`'s and the application's (`App`).
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Coroutine
from typing import Any, Protocol, cast

from sluicegate.errors import SluicegateError
from sluicegate.server.client_connection import InboundConnection
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.exchange import Exchange, Runner
from sluicegate.server.known_heads import KnownHeads
from sluicegate.server.settings import ServerSettings

UNSENT_BYTES = 131_072
"""What the kernel takes of an answer beyond what is on its way (TCP_NOTSENT_LOWAT)."""
TLS_SHUTDOWN_S = 5.0
MAX_IDLE_HANDS = 128
"""Tasks that wait for their next request; more end with theirs."""

log = logging.getLogger(__name__)


class App(Protocol):
    """What answers requests."""

    def head_received(self, exchange: Exchange) -> None:
        """Look at a request whose body may be on its way: answer it, set its limit, or do nothing."""
        ...

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        """Answer a whole request, but nothing of it within this call.

        Returns:
            What is to be run in a task: the answer has ended, or the client has gone, when it does. None: it runs
            without one, by what the loop calls; who runs it stands in `exchange.runner`, and calls `exchange.served` at
            the end, or `exchange.go_on` should it need a task after all.
        """
        ...

    def failed(self, exchange: Exchange, error: Exception) -> None:
        """Answer a request that `handle` has given up: refused, or broken by a fault."""
        ...

    def protocol_error(self, exchange: Exchange | None, error: SluicegateError) -> tuple[bytes, bytes]:
        """Return header lines and body of the answer to what this layer refuses by itself.

        Args:
            exchange: what is known of the request; None where not even its first line could be read.
        """
        ...


class _Hand:
    """A task that serves one request after another: to make one costs several times what it costs to wake it."""

    __slots__ = ("next", "task")
    __deletable__ = ("task",)

    task: asyncio.Task[None]
    next: asyncio.Future[tuple[Exchange, Coroutine[Any, Any, None]]]
    """The request that it serves next, and what serves it."""


class InboundServer:
    """The listening side of a worker: its sockets, its clients' connections and the requests that run."""

    def __init__(
        self, app: App, settings: ServerSettings, deadlines: Deadlines, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.app = app
        self.settings = settings
        self.deadlines = deadlines
        self.loop = loop
        self.heads = KnownHeads()
        self.connections: set[InboundConnection] = set()
        self.inflight_bytes = 0
        """Bytes of request bodies in memory, over all connections."""
        self.draining = False
        self._listeners: dict[socket.socket, asyncio.AbstractServer] = {}
        """By the socket that was given; its descriptor would not do, which the next one may have once it is closed."""
        self._running: dict[Exchange, Runner] = {}
        self._idle: list[_Hand] = []
        """Those that wait; who waited last is called first."""
        self._stopped: SluicegateError | None = None
        """What those are told that were stopped."""
        self._emptied: asyncio.Future[None] | None = None

    async def listen(self, sock: socket.socket, ssl_context: ssl.SSLContext | None = None) -> None:
        """Accept clients from a socket that is bound, and listening or not; it stays the caller's."""
        # Accepted sockets inherit these. The last drops a client whose machine has vanished, however little it is sent.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        unacked_max_ms = int(self.settings.write_timeout_s * 1000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unacked_max_ms)
        secure = ssl_context is not None
        self._listeners[sock] = await self.loop.create_server(
            lambda: cast(asyncio.Protocol, InboundConnection(self)),
            sock=sock.dup(),
            backlog=4096,
            ssl=ssl_context,
            ssl_handshake_timeout=self.settings.request_timeout_s if secure else None,
            ssl_shutdown_timeout=TLS_SHUTDOWN_S if secure else None,
        )

    def unlisten(self, sock: socket.socket) -> None:
        """Accept no more from one socket; the connections that came through it stay."""
        listener = self._listeners.pop(sock, None)
        if listener is not None:
            listener.close()

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections close after the answer they wait for."""
        self.draining = True
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    def close_idle(self, *, but_fresh: bool = False) -> bool:
        """Close connections that wait for a request; running answers announce that theirs is the last.

        Args:
            but_fresh: not those that wait for their first one.
        Returns:
            Whether there are any of those.
        """
        self.draining = True
        spared = False
        for connection in list(self.connections):
            if but_fresh and connection.fresh:
                spared = True
            else:
                connection.close_if_idle()
        return spared

    @property
    def busy(self) -> bool:
        """Whether a request runs, or the rest of one is on its way."""
        return bool(self._running) or any(connection.reading for connection in self.connections)

    @property
    def parting(self) -> bool:
        """Whether a client that has its answer may still be sending."""
        return any(connection.parting for connection in self.connections)

    def refuse_unread(self, error: SluicegateError) -> None:
        """Answer the requests of which not enough has come to serve them."""
        for connection in list(self.connections):
            connection.refuse_unread(error)

    def stop_all(self, error: SluicegateError) -> None:
        """Stop what still runs; where no answer has begun, this is it."""
        self._stopped = error
        for runner in self._running.values():
            self.loop.call_soon(runner.cancel)  # after its first turn: a request may just have come

    def abort_all(self) -> None:
        """Reset what is still open."""
        for connection in list(self.connections):
            connection.eof_received()
            connection.reset()

    async def wait_closed(self) -> None:
        """Wait until no connection is left and no request runs."""
        while self.connections or self._running:
            self._emptied = self.loop.create_future()
            await self._emptied
        while self._idle:
            self._idle.pop().task.cancel()

    def run(self, exchange: Exchange) -> None:
        """Have the application answer a whole request."""
        try:
            serving = self.app.handle(exchange)
        except Exception as error:
            serving = _raise(error)
        if serving is not None:
            self.go_on(exchange, serving)
        else:
            assert exchange.runner is not None, "who runs it stands there"
            self._running[exchange] = exchange.runner

    def go_on(self, exchange: Exchange, serving: Coroutine[Any, Any, None]) -> None:
        """Have a request served by a task that does nothing else meanwhile."""
        idle = self._idle
        while idle:
            hand = idle.pop()
            if not hand.next.done():  # else it was stopped as it waited
                break
        else:
            hand = _Hand()
            hand.next = self.loop.create_future()
            hand.task = self.loop.create_task(self._work(hand))
        self._running[exchange] = hand.task
        hand.next.set_result((exchange, serving))

    def served(self, exchange: Exchange) -> None:
        """Take note that whoever ran a request is done with it."""
        del self._running[exchange]
        exchange.runner = None
        if not (exchange.ended or exchange.settling):
            exchange.give_up()
        if self._emptied is not None:
            self._note_emptied()

    async def _work(self, hand: _Hand) -> None:
        try:
            while True:
                await self._handle(*await hand.next)
                if self._stopped is not None or len(self._idle) >= MAX_IDLE_HANDS:
                    return
                hand.next = self.loop.create_future()
                self._idle.append(hand)
        finally:
            del hand.task  # which refers to us

    async def _handle(self, exchange: Exchange, serving: Coroutine[Any, Any, None]) -> None:
        try:
            await serving
        except asyncio.CancelledError:
            if self._stopped is None:
                raise
            exchange.refuse(self._stopped)
        except Exception as error:
            self._fail(exchange, error)
        finally:
            self.served(exchange)

    def _fail(self, exchange: Exchange, error: Exception) -> None:
        try:
            self.app.failed(exchange, error)
        except Exception:
            log.exception("a request failed by a fault of the gate")

    def forget(self, connection: InboundConnection) -> None:
        """Drop a connection that is no more."""
        self.connections.discard(connection)
        self._note_emptied()

    def _note_emptied(self) -> None:
        emptied = self._emptied
        if emptied is not None and not emptied.done() and not self.connections and not self._running:
            emptied.set_result(None)


async def _raise(error: Exception) -> None:
    """Refuse a request in a task: an answer within `run` could have the next request of its connection run in there."""
    raise error
