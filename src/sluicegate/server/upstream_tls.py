"""A connection to a provider under TLS: what the socket brings is decrypted, what is sent is encrypted, here.

The loop has TLS of its own. It serves any program: with a state machine, buffers and timers for each connection, and
turns of the loop between the socket and us. A connection to a provider is never closed in an orderly way, and what is
read of it is taken at once; without all that a request costs a good tenth less. The keys and the records are OpenSSL's.

Source: RFC 8446 (TLS 1.3), RFC 5246 (TLS 1.2).
"""

import asyncio
import ssl
from typing import TYPE_CHECKING, Protocol, cast

from sluicegate.server.piecemeal import Connection, Piecemeal
from sluicegate.server.upstream import JOIN_BYTES, UpstreamConnection

if TYPE_CHECKING:
    from sluicegate.server.upstream_pool import Place, UpstreamPool

RECORD_BYTES = 16_384
"""The most that one record holds."""
FEED_BYTES = 32_768
"""How much OpenSSL is given at once: its buffers stay as large as they ever were."""


class _Tls(Protocol):
    """What is used of an `SSLObject`, or of what it only passes calls on to."""

    def do_handshake(self) -> None: ...
    def read(self, len: int, buffer: memoryview, /) -> int: ...
    def write(self, data: bytes | memoryview, /) -> int: ...


class TlsConnection(UpstreamConnection):
    """A connection under TLS.

    All of a pool decrypt into one buffer, which is safe: what a read brought is fed to its end before the loop does
    anything else.
    """

    __slots__ = ("_broken_by", "_incoming", "_outgoing", "_secured", "_tls", "_unsent")

    def __init__(self, pool: "UpstreamPool", place: "Place", timeout_s: float) -> None:
        super().__init__(pool, place, timeout_s)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: _Tls | None = None
        self._secured: asyncio.Future[None] | None = None
        """While the handshake runs."""
        self._unsent = b""
        """What cannot be encrypted before the provider has agreed to new keys, as it asked for."""
        self._broken_by: Exception | None = None

    # The handshake

    def begin_tls(self, context: ssl.SSLContext, host: str) -> asyncio.Future[None]:
        """Shake hands as soon as the socket is connected.

        Returns: what is done when the provider has shown to be this host; its error may be any of `ssl` or `OSError`.
        """
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        # What an `SSLObject` only passes calls on to, where it can be had: each would be one more call in Python.
        self._tls = cast(_Tls, getattr(tls, "_sslobj", tls))
        self._unsent = b""
        self._broken_by = None
        self._secured = secured = self._pool.loop.create_future()
        return secured

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._transport is not None:
            self._shake_hands()

    def _shake_hands(self) -> bool:
        """Go on with the handshake; return whether it is done, and something has come after it."""
        tls, secured = self._tls, self._secured
        if tls is None or secured is None or secured.done():
            return False
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except OSError as error:  # as all of `ssl` are
            self._stop_handshake(error)
            return False
        self._flush()
        self._secured = None
        self.born_at = self._pool.loop.time()
        secured.set_result(None)
        return bool(self._incoming.pending)

    def _stop_handshake(self, error: Exception | None) -> None:
        secured = self._secured
        if secured is not None and not secured.done():
            secured.set_exception(error or ConnectionResetError())
            secured.exception()  # nobody may be waiting for it any more

    # What the transport tells

    def data_received(self, data: bytes) -> None:
        """Decrypt what one read brought, and take it."""
        size = len(data)
        if size <= FEED_BYTES:
            self._incoming.write(data)
            self._take()
            return
        for at in range(0, size, FEED_BYTES):
            self._dirty = (
                at + FEED_BYTES < size
            )  # an answer that is whole before its read is has something after it
            self._incoming.write(data[at : at + FEED_BYTES])
            self._take()

    def eof_received(self) -> None:
        if self._secured is None:
            self._end(None)
        else:
            self._stop_handshake(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._secured is None:
            self._end(exc or self._broken_by)
        else:
            self._stop_handshake(exc)

    def _take(self) -> None:
        if self._secured is not None and not self._shake_hands():
            return
        tls, incoming, buffer = self._tls, self._incoming, self._pool.read_buffer
        if tls is None:
            return
        size = 0
        ended = False
        error: Exception | None = None
        try:
            while True:
                count = tls.read(RECORD_BYTES, buffer[size:] if size else buffer)
                if not count:
                    ended = True
                    break
                size += count
                if not incoming.pending:  # to ask again would raise, which costs more than all the rest here
                    break
        except ssl.SSLWantReadError:
            pass
        except OSError as caught:
            ended, error = True, caught
        if self._unsent:
            self._encrypt(b"")
        elif self._outgoing.pending:
            self._flush()
        if size:
            self.feed(buffer[:size])
        if ended:
            self._end(error)

    # What is sent

    def write_more(self, data: bytes) -> None:
        if self._transport is not None and self._feeder is not None:
            self._encrypt(data)

    def read_piecemeal(self) -> None:
        if self._transport is not None:
            self._transport.set_protocol(Piecemeal(cast(Connection, self), self.data_received))

    def _write(self, head: bytes, body: bytes) -> None:
        if self._transport is None:
            return
        if len(body) <= JOIN_BYTES:
            self._encrypt(head + body if body else head)
        else:
            self._encrypt(head)
            self._encrypt(body)

    def _encrypt(self, data: bytes) -> None:
        tls, transport = self._tls, self._transport
        if tls is None or transport is None:
            return
        if self._unsent:
            data = self._unsent + data
            self._unsent = b""
        size, sent = len(data), 0
        try:
            while sent < size:  # one record each time
                sent += tls.write(memoryview(data)[sent:] if sent else data)
                if sent < size and self._outgoing.pending > JOIN_BYTES:
                    self._flush()
        except ssl.SSLWantReadError:
            self._unsent = data[sent:]
        except OSError as error:
            self._broken_by = error
            transport.abort()
            return
        self._flush()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and self._transport is not None:
            self._transport.write(data)

    def _close(self) -> None:
        super()._close()
        self._tls = None
        self._unsent = b""
        self._stop_handshake(ConnectionAbortedError())
        self._secured = None
