"""A connection to a provider: HTTP/1.1, one request at a time, answers as they come.

An answer goes to a `ResponseSink` from within the socket's read callback: no queue and no task switch
between the provider's bytes and the client's. A reused connection that ends before any byte of the answer is
dialled once more, here, unseen; all other failures are told to the sink as one of our errors. What to send,
where, and whether to try again is the caller's. The pool is `upstream_pool`'s, TLS `upstream_tls`'s.

Source: RFC 9112 (6.3 message body length, 9.3.1 retrying requests), RFC 9110 (15.2 informational answers).
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol, cast

import httptools

from sluicegate.errors import ConnectFailed, StreamCut, UpstreamError, UpstreamGarbled
from sluicegate.server.piecemeal import HIGH_WATER_BYTES, LOW_WATER_BYTES, Connection, Piecemeal

if TYPE_CHECKING:
    from sluicegate.server.upstream_pool import Place, UpstreamPool

IDLE_MAX_S = 30.0
"""Longest idle time of a connection that is used again.

Half of the shortest silence after which middle boxes commonly forget a connection without a word (60 s);
servers that close earlier (Node and uvicorn 5 s) are seen closing, say so in `Keep-Alive: timeout`, or are
caught by the second try.
"""
KEEP_ALIVE_MARGIN_S = 1.0
"""A connection whose server names its idle limit is given up so much earlier."""
STALE_WITHIN_S = 30.0
"""A reused connection that ends later than this after the request had not been dead: the provider had it."""
MAX_HEAD_BYTES: Final = 65_536
MAX_INFORMATIONAL: Final = 16
"""Answers of status 1xx taken before the final one."""
JOIN_BYTES: Final = 65_536
"""Up to this size head and body are joined for one write."""

_NEVER = float("inf")
_WATCHED: Final = frozenset((b"content-length", b"transfer-encoding", b"keep-alive"))

log = logging.getLogger(__name__)

Header = tuple[bytes, bytes]


class ResponseSink(Protocol):
    """Who takes one answer. All calls come from the event loop, none from within `send`.

    Order: `head_received`, any number of `body_received`, then `body_completed`; or `failed` at any point,
    as the last call. `read_done` follows the calls of each read from the socket, `body_completed` included,
    but not `failed`.
    """

    def head_received(self, status: int, headers: list[Header]) -> None:
        """Take the final answer's head; names are in lower case."""
        ...

    def body_received(self, data: bytes) -> None:
        """Take a piece of the body, without its framing."""
        ...

    def read_done(self) -> None:
        """Flush what the calls since the last one gathered: no more comes from this read."""
        ...

    def body_completed(self) -> None:
        """Take note that the answer is whole; its connection is already free again, or closed."""
        ...

    def failed(self, error: UpstreamError) -> None:
        """Take note that the answer ended before its end."""
        ...


class BodyFeeder(Protocol):
    """What gives the rest of a request's body to its connection, as it comes."""

    @property
    def complete(self) -> bool:
        """Whether all of the body has been given."""
        ...

    def begin(self, connection: "UpstreamConnection") -> None:
        """Give what comes to this connection; the first part of the body was sent."""
        ...

    def pause(self) -> None:
        """Give nothing more for now: the provider reads too slowly."""
        ...

    def resume(self) -> None:
        """Go on."""
        ...


class _Idle:
    """The sink of connections that have no request: bytes without a request are the peer's error."""

    def head_received(self, status: int, headers: list[Header]) -> None: ...
    def body_received(self, data: bytes) -> None: ...
    def read_done(self) -> None: ...
    def body_completed(self) -> None: ...
    def failed(self, error: UpstreamError) -> None: ...


_NOBODY: ResponseSink = _Idle()


class UpstreamConnection:
    """One connection to a provider, and the request that runs on it.

    Taken from the pool it belongs to its taker until the answer is whole, `failed` is told, or `abort` is
    called.
    """

    __slots__ = (
        "_closing",
        "_complete",
        "_dial_again",
        "_dirty",
        "_feeder",
        "_head_bytes",
        "_head_only",
        "_headed",
        "_headers",
        "_informational",
        "_keep_alive",
        "_parser",
        "_paused",
        "_pool",
        "_proxy_prefix",
        "_request",
        "_sent_at",
        "_sink",
        "_timeout_s",
        "_to_end",
        "_transport",
        "born_at",
        "idle_max_s",
        "idle_until",
        "place",
        "responded",
        "reused",
    )

    reused: bool
    """It has carried an answer before."""
    responded: bool
    """A byte of the answer to the running request has come."""

    def __init__(self, pool: "UpstreamPool", place: "Place", timeout_s: float) -> None:
        self._pool = pool
        self.place = place
        self._proxy_prefix = place.proxy_prefix
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._sink = _NOBODY
        self._request: tuple[bytes, bytes] | None = None
        """What must be sent again if a reused connection turns out to be dead."""
        self._dial_again: asyncio.Task[None] | None = None
        self._feeder: BodyFeeder | None = None
        self._headers: list[Header] = []
        self._head_bytes = 0
        self._informational = 0
        self.idle_max_s = IDLE_MAX_S
        self.reused = self.responded = False
        self._headed = self._complete = self._head_only = self._keep_alive = False
        self._to_end = self._dirty = self._paused = self._closing = False
        self.born_at = self._sent_at = 0.0
        self.idle_until = _NEVER

    # The taker's calls

    def send(self, head: bytes, body: bytes, sink: ResponseSink, feeder: BodyFeeder | None = None) -> None:
        """Send one request; the answer goes to `sink`.

        Args:
            head: request line in origin form and all headers, framing included, ending in an empty line.
            feeder: gives the rest of the body. That cannot be sent again, so the connection must be a fresh one.
        """
        self._sink = sink
        self._feeder = feeder
        if self._proxy_prefix is not None:
            head = _address_proxy(head, *self._proxy_prefix)
        self._headers = []
        self._head_bytes = self._informational = 0
        self._headed = self._complete = self._dirty = self._to_end = False
        self.responded = False
        self._sent_at = self._pool.loop.time()
        self._head_only = head.startswith(b"HEAD ")
        fed = feeder is not None and not feeder.complete
        if self._transport is None:  # ended while nobody looked: nothing was sent
            if fed:  # a second dial would have to stop the client meanwhile; another attempt does that
                ended = ConnectFailed("the provider closed the connection before the request was sent")
                self._pool.loop.call_soon(self._fail, ended)
                return
            self._request = (head, body)
            self._closing = False
            self._pool.readmit(self, self.place)
            self._redial()
            return
        if fed:
            self._transport.set_write_buffer_limits(HIGH_WATER_BYTES, LOW_WATER_BYTES)
        elif self.reused:
            self._request = (head, body)
        self._write(head, body)
        if feeder is not None:
            feeder.begin(self)

    def write_more(self, data: bytes) -> None:
        """Send more of the running request's body, framed."""
        if self._transport is not None and self._feeder is not None:
            self._transport.write(data)

    def read_piecemeal(self) -> None:
        """Take an answer that is a large file in small pieces, until `read_at_once`."""
        if self._transport is not None:
            self._transport.set_protocol(Piecemeal(cast(Connection, self), self.feed))

    def read_at_once(self) -> None:
        """Read as usual: the file has passed."""
        if self._transport is not None:
            self._transport.set_protocol(cast(asyncio.BaseProtocol, self))

    def pause_reading(self) -> None:
        """Stop taking the answer, until `resume_reading`."""
        if not self._paused:
            self._paused = True
            if self._transport is not None:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on taking the answer."""
        if self._paused:
            self._paused = False
            if self._transport is not None:
                self._transport.resume_reading()

    def abort(self) -> None:
        """Drop the connection now; the sink hears nothing more."""
        self._sink = _NOBODY
        self._close()

    def replace(self) -> None:
        """Close an idle connection, whose place a new one takes over."""
        self._closing = True  # so that its end frees no place
        self._close()

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._closing:  # not at once: the loop has yet to tie the socket's descriptor to its end
            self._pool.loop.call_soon(cast(asyncio.Transport, transport).abort)
            return
        self._transport = cast(asyncio.Transport, transport)
        self.born_at = self._pool.loop.time()
        self._parser = httptools.HttpResponseParser(self)

    def pause_writing(self) -> None:
        """Hold back the rest of a body that is fed; all others are written whole."""
        if self._feeder is not None:
            self._feeder.pause()

    def resume_writing(self) -> None:
        """See `pause_writing`."""
        if self._feeder is not None:
            self._feeder.resume()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def feed(self, data: bytes | memoryview) -> None:
        """Take one read from the socket."""
        parser = self._parser
        if parser is None:
            return
        if not self._headed:
            if self._sink is _NOBODY:
                self._close()
                return
            self.responded = True
            self._request = None
            self._head_bytes += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self._complete:
                self._break(error)
                return
            self._dirty = True  # what follows a whole answer costs only the connection
        except httptools.HttpParserUpgrade as error:
            self._break(error)
            return
        if self._complete:
            self._finish()
        elif self._headed:
            self._sink.read_done()
        elif self._head_bytes > MAX_HEAD_BYTES:
            self._fail(UpstreamGarbled("the head of the provider's answer is too large"))

    # What httptools tells

    def on_message_begin(self) -> None:
        if self._complete:
            self._dirty = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        parser = self._parser
        assert parser is not None, "it is what calls this"
        status = parser.get_status_code()
        headers = self._headers
        if status < 200:
            self._informational += 1
            if status == 101 or self._informational > MAX_INFORMATIONAL:
                raise UpstreamGarbled("the provider's answer never came past its informational ones")
            self._headers = []
            return
        has_length = False
        self.idle_max_s = IDLE_MAX_S
        for name, value in headers:
            if name in _WATCHED:
                if name == b"content-length":
                    has_length = True
                elif name == b"keep-alive":
                    self.idle_max_s = _idle_limit(value)
                elif value.strip().lower() == b"chunked":
                    has_length = True
                else:
                    raise UpstreamGarbled("the provider's answer has an unknown transfer coding")
        self._to_end = not has_length and not self._head_only and status not in (204, 304)
        self._keep_alive = not self._head_only and parser.should_keep_alive()
        self._headed = True
        self._headers = []  # the sink's now; a stream may stay open for long
        self._sink.head_received(status, headers)
        if self._head_only:
            self._complete = True

    def on_body(self, data: bytes) -> None:
        if not self._complete:
            self._sink.body_received(data)

    def on_message_complete(self) -> None:
        if self._headed:
            self._complete = True

    # Endings

    def _finish(self) -> None:
        """Give the connection back, or close it, then tell that the answer is whole."""
        sink, self._sink = self._sink, _NOBODY
        feeder, self._feeder = self._feeder, None
        if self._paused:
            self.resume_reading()
        transport = self._transport
        if (
            not self._keep_alive
            or (feeder is not None and not feeder.complete)  # answered before the request had come
            or self._dirty
            or transport is None
            or transport.is_closing()
            or transport.get_write_buffer_size()  # answered before the request had been taken
        ):
            self._close()
        else:
            self._headed = self._complete = False
            self.reused = True
            self._pool.give_back(self, self.place)
        sink.body_completed()
        sink.read_done()

    def _end(self, exc: Exception | None) -> None:
        """Act on the end of the connection."""
        transport, self._transport = self._transport, None
        self._parser = None
        if transport is None:
            return
        transport.abort()
        if self._request is not None and self._pool.loop.time() - self._sent_at < STALE_WITHIN_S:
            self._redial()
        elif self._headed and self._to_end and exc is None:
            self._keep_alive = False
            self._complete = True
            self._finish()
        elif self._sink is _NOBODY:
            self._close()
        else:
            self._fail(StreamCut("the provider ended its answer before the end"))

    def _break(self, error: Exception) -> None:
        """Tell what broke the parser: the provider's bytes, our own refusal, or a fault in the sink."""
        cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
        if cause is None:
            self._fail(UpstreamGarbled(f"the provider's answer is not HTTP: {error}"))
        elif isinstance(cause, UpstreamError):
            self._fail(cause)
        else:
            log.error("a provider's answer could not be handled", exc_info=cause)
            self._fail(UpstreamGarbled("the provider's answer could not be handled"))

    def _fail(self, error: UpstreamError) -> None:
        sink, self._sink = self._sink, _NOBODY
        self._close()
        sink.failed(error)

    def _close(self) -> None:
        """Close at once and free the place; harmless when closed."""
        self._request = None
        self._feeder = None
        self._headers = []
        self._parser = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if self._dial_again is not None:
            self._dial_again.cancel()
            self._dial_again = None
        if not self._closing:
            self._closing = True
            self._pool.forget(self, self.place)

    @property
    def closed(self) -> bool:
        """Whether it can carry no further request."""
        return self._closing

    # The second try

    def _redial(self) -> None:
        self._dial_again = self._pool.loop.create_task(self._send_again())

    async def _send_again(self) -> None:
        """Dial again and send what the dead connection did not answer."""
        request, self._request = self._request, None
        self.reused = False
        try:
            await self._pool.dial(self, self._timeout_s)
        except UpstreamError as error:
            self._dial_again = None
            self._fail(error)
            return
        self._dial_again = None
        if request is not None:
            if self._paused and self._transport is not None:
                self._transport.pause_reading()
            self._write(*request)

    def _write(self, head: bytes, body: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        if len(body) <= JOIN_BYTES:
            transport.write(head + body if body else head)
        else:
            transport.writelines((head, body))


class PlainConnection(UpstreamConnection):
    """A connection without TLS: reads come as bytes; a buffer of our own measures the same there."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        self.feed(data)


def _address_proxy(head: bytes, prefix: bytes, authorization: bytes) -> bytes:
    """Write a request's head as proxies want it: with an absolute target, and their own credentials."""
    line, _, headers = head.partition(b"\r\n")
    method, _, rest = line.partition(b" ")
    return b"%b %b%b\r\n%b%b" % (method, prefix, rest, authorization, headers)


def _idle_limit(value: bytes) -> float:
    """Return how long a connection may idle, by what its server's Keep-Alive header promises."""
    for part in value.split(b","):
        name, _, seconds = part.strip().partition(b"=")
        if name.lower() == b"timeout" and seconds.isdigit() and len(seconds) < 10:
            return min(IDLE_MAX_S, int(seconds) - KEEP_ALIVE_MARGIN_S)
    return IDLE_MAX_S
