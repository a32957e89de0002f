"""The pool of connections to providers: one for a request at once, where one is idle, or dialled, or waited for.

Dialling (DNS, TCP, proxies) is `dialing`'s, what happens on a connection `upstream`'s and `upstream_tls`'s.
"""

import asyncio
from collections import deque

from sluicegate.errors import ConnectFailed, UpstreamTimeout
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.dialing import Dialer, Origin, proxy_request_prefix
from sluicegate.server.garbage import give_back_freed
from sluicegate.server.upstream import PlainConnection, UpstreamConnection
from sluicegate.server.upstream_tls import FEED_BYTES, RECORD_BYTES, TlsConnection

TOTAL_MAX_S = 600.0
"""Longest life of a connection that is used again: changes of DNS are noticed within it."""
READ_BUFFER_BYTES = FEED_BYTES + 2 * RECORD_BYTES
"""Of the buffer that all connections under TLS share: what OpenSSL is given at once may end a record that had begun."""
SWEEP_S = 1.0
"""How often idle connections are looked at."""
MANY_HANDSHAKES = 200
"""After so many, what they have freed is given back at the next look."""


class Place:
    """The connections of one origin: idle ones, how many are open, and who waits for one."""

    __slots__ = ("idle", "open", "origin", "proxy_prefix", "waiting")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.proxy_prefix = proxy_request_prefix(origin)
        self.idle: list[UpstreamConnection] = []
        """Last used last: it is taken first, so that the rest can age."""
        self.open = 0
        self.waiting: deque[asyncio.Future[UpstreamConnection | None]] = deque()
        """Each gets a connection, or None with the right to open one."""


class UpstreamPool:
    """All connections of a worker to its providers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines) -> None:
        self.loop = loop
        self.read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.due_at = loop.time() + SWEEP_S
        self._deadlines = deadlines
        self._dialer = Dialer(loop)
        self._places: dict[Origin, Place] = {}
        self._last_place: Place | None = None
        """Where a connection was looked for last: an origin has much to hash."""
        self._open: set[UpstreamConnection] = set()
        self._handshakes = 0
        """Since what they free was given back."""
        self._closed = False
        deadlines.add(self)

    def take(self, origin: Origin) -> UpstreamConnection | None:
        """Return an idle connection at once, or None."""
        place = self._last_place
        if place is None or place.origin is not origin:
            place = self._last_place = self._places.get(origin)
        if place is None or not place.idle:
            return None
        now = self.loop.time()
        while place.idle:
            connection = place.idle.pop()
            if connection.idle_until > now:
                return connection
            connection.abort()
        return None

    async def connect(self, origin: Origin, timeout_s: float, *, fresh: bool = False) -> UpstreamConnection:
        """Open a connection; where the origin has its most already, wait for one of them, or for its place.

        Args:
            timeout_s: bounds all of it: the wait, DNS, TCP, proxy and TLS.
            fresh: never one that has been used; it may have to close one that could be.
        Raises:
            ConnectFailed: nothing answers there, or not as it should.
            UpstreamTimeout: of phase connect, or pool where our own limit of connections was in the way.
        """
        place = self._place(origin)
        began_at = self.loop.time()
        if not origin.max_connections or place.open < origin.max_connections:
            place.open += 1
        else:
            ready = self.take(origin) or await self._wait(place, timeout_s)
            if ready is not None and not fresh:
                return ready
            if ready is not None:
                self._open.discard(ready)
                ready.replace()
        kind = TlsConnection if origin.scheme == "https" else PlainConnection
        self._handshakes += kind is TlsConnection
        connection = kind(self, place, timeout_s)
        self._open.add(connection)
        try:
            await self.dial(connection, timeout_s - (self.loop.time() - began_at))
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _wait(self, place: Place, timeout_s: float) -> UpstreamConnection | None:
        """Wait for a connection, or for None: the right to open one."""
        waiter: asyncio.Future[UpstreamConnection | None] = self.loop.create_future()
        place.waiting.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():  # given just as we left: it goes to the next
                given = waiter.result()
                if given is None:
                    self._free_place(place)
                else:
                    self.give_back(given, place)
            if isinstance(error, TimeoutError):
                raise UpstreamTimeout(
                    "all connections that the provider may have are in use", phase="pool"
                ) from None
            raise
        finally:
            if not waiter.done():
                waiter.cancel()

    async def dial(self, connection: UpstreamConnection, timeout_s: float) -> None:
        """Connect, or reconnect, a connection to its target.

        Raises:
            ConnectFailed, UpstreamTimeout
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._dialer.dial(connection.place.origin, connection)
        except TimeoutError:
            raise UpstreamTimeout("no connection to the provider in time", phase="connect") from None
        if self._closed:
            connection.abort()
            raise ConnectFailed("the gate is shutting down")

    def give_back(self, connection: UpstreamConnection, place: Place) -> None:
        """Take a connection whose answer is whole: for whoever waits longest, else for later."""
        now = self.loop.time()
        if self._closed or connection.closed or now - connection.born_at > TOTAL_MAX_S:
            connection.abort()
            return
        while place.waiting:
            waiter = place.waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        connection.idle_until = now + connection.idle_max_s
        place.idle.append(connection)

    def readmit(self, connection: UpstreamConnection, place: Place) -> None:
        """Count a connection again that died between being taken and being used."""
        self._places.setdefault(place.origin, place)
        place.open += 1
        self._open.add(connection)

    def forget(self, connection: UpstreamConnection, place: Place) -> None:
        """Drop a closed connection; its place goes to whoever waits longest."""
        self._open.discard(connection)
        if connection in place.idle:
            place.idle.remove(connection)
        self._free_place(place)

    def expire(self, now: float) -> None:
        """Close idle connections that are too old, and forget origins that have none left; give back what is free."""
        self.due_at = now + SWEEP_S
        if self._handshakes >= MANY_HANDSHAKES:
            self._handshakes = 0
            give_back_freed()
        for origin, place in list(self._places.items()):
            for connection in [idle for idle in place.idle if idle.idle_until <= now]:
                connection.abort()
            if not place.open and not place.waiting:
                del self._places[origin]
                self._last_place = None

    def close(self) -> None:
        """Drop every connection; running requests hear nothing more."""
        self._closed = True
        self._deadlines.discard(self)
        for connection in list(self._open):
            connection.abort()

    @property
    def open_connections(self) -> int:
        """Connections that are open or being opened."""
        return len(self._open)

    @property
    def idle_connections(self) -> int:
        """Connections that wait for their next request."""
        return sum(len(place.idle) for place in self._places.values())

    def _place(self, origin: Origin) -> Place:
        place = self._places.get(origin)
        if place is None:
            place = self._places[origin] = Place(origin)
        return place

    def _free_place(self, place: Place) -> None:
        while place.waiting:
            waiter = place.waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        place.open -= 1
