"""A client's connection: one request at a time read off it, under limits and clocks.

It reads ahead (bounded) while an answer runs, because a client that leaves is noticed only by reading. Every clock of a
connection is one `due_at` in the worker's sweep. Syntax and framing of requests are `http_head`'s, answers are
`exchange`'s.

Source: RFC 9112 (9.3 persistence and pipelining, 9.6 tear-down), RFC 9110 (10.1.1 Expect).
"""

import array
import asyncio
import contextlib
import errno
import fcntl
import logging
import socket
import struct
import termios
import time
from typing import TYPE_CHECKING, Final, cast

from sluicegate.errors import (
    ClientError,
    Overloaded,
    RequestTimeout,
    SluicegateError,
    TooLarge,
)
from sluicegate.server import piecemeal
from sluicegate.server.exchange import HIGH_WATER_BYTES, BodySink, Exchange
from sluicegate.server.http_head import END_OF_HEAD, MAX_HEAD_BYTES, ChunkedBody, check_beginning
from sluicegate.server.known_heads import LastHead
from sluicegate.server.piecemeal import Piecemeal

if TYPE_CHECKING:
    from sluicegate.server.inbound import InboundServer

MAX_REQUESTS = 1_000
"""Requests after which a connection closes, so that connections spread over new workers."""
MAX_AGE_S = 300.0
"""Age at which it closes, likewise."""
LINGER_S = 2.0
"""How long an early answer waits, discarding what the client still sends, before its connection closes."""
LOW_WATER_BYTES: Final = 16_384
"""Unsent bytes of an answer below which its writer may go on."""
READ_AHEAD_BYTES = 65_536
"""What is kept of a client that sends on while its answer runs."""

_NEVER: Final = float("inf")
_RESET = struct.pack("ii", 1, 0)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# States of a connection, and what a read means in each.
_HEAD: Final = 0  # a request's head, or the first byte of one
_BODY: Final = 1  # the rest of a request's body
_BUSY: Final = 2  # the application has the request: kept for later
_PARTING: Final = 3  # answered early: discarded
_CLOSED = 4  # discarded

log = logging.getLogger(__name__)


class InboundConnection:
    """One client's connection."""

    __slots__ = (
        "_ahead",
        "_born_at",
        "_chunks",
        "_exchange",
        "_last_head",
        "_missing",
        "_partial",
        "_pieces",
        "_progress_at",
        "_received_at",
        "_served",
        "_state",
        "_state_due_at",
        "_unread_bytes",
        "due_at",
        "server",
        "transport",
        "write_paused",
    )

    transport: asyncio.Transport

    def __init__(self, server: "InboundServer") -> None:
        self.server = server
        self.due_at = self._state_due_at = _NEVER
        self.write_paused = False
        self._state = _HEAD
        self._exchange: Exchange | None = None
        self._partial: bytearray | None = None
        """A head that has begun and not ended."""
        self._received_at = 0.0
        self._last_head: LastHead | None = None
        self._pieces: list[bytes] = []
        self._missing = 0
        self._chunks: ChunkedBody | None = None
        self._ahead: bytes | None = None
        """What came after the request that is being answered."""
        self._served = 0
        self._born_at = 0.0
        self._progress_at = 0.0
        self._unread_bytes = 0

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        server = self.server
        self.transport.set_write_buffer_limits(HIGH_WATER_BYTES, LOW_WATER_BYTES)
        self._born_at = now = server.loop.time()
        self._wait_until(now + server.settings.idle_connection_s)
        server.connections.add(self)
        server.deadlines.add(self)

    def data_received(self, data: bytes) -> None:
        if self._state == _HEAD:
            self._read_head(data)
        elif self._state == _BODY:
            self._read_body(data)
        elif self._state == _BUSY:
            self._read_ahead(data)
        elif self._state == _PARTING:
            self._discard(data)

    def eof_received(self) -> None:
        """Take the client's end, also a half-close, for its leaving; the transport closes."""
        self._lose_client()
        self._wait_until(self.server.loop.time() + self.server.settings.write_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._exchange is not None and isinstance(exc, OSError) and exc.errno == errno.ETIMEDOUT:
            self._exchange.write_timed_out = True
        self._lose_client()
        self.server.deadlines.discard(self)
        self.server.forget(self)

    def pause_writing(self) -> None:
        self.write_paused = True
        now = self.server.loop.time()
        self._progress_at = now
        self._unread_bytes = self._count_unread()
        self.due_at = now + self.server.settings.write_timeout_s / 4
        exchange = self._exchange
        if exchange is not None and exchange.mover is not None:
            exchange.mover.pause()

    def resume_writing(self) -> None:
        self.write_paused = False
        self.due_at = self._state_due_at
        exchange = self._exchange
        if exchange is not None and exchange.mover is not None:
            exchange.mover.resume()

    # Requests

    def _read_head(self, data: bytes) -> None:
        partial = self._partial
        if partial is not None and partial.startswith(b"\r"):
            data = bytes(partial) + data
            partial = self._partial = None
        if partial is None:
            self._received_at = time.monotonic()  # the loop's own time stands still within a turn
            while data.startswith(b"\r\n"):  # RFC 9112, 2.2: empty lines before a request are ignored
                data = data[2:]
            end = data.find(END_OF_HEAD)
        else:
            searched = max(0, len(partial) - 3)
            partial += data
            end = partial.find(END_OF_HEAD, searched)
            if end >= 0:
                data = bytes(partial)
        if 0 <= end <= MAX_HEAD_BYTES:
            self._partial = None
            end += len(END_OF_HEAD)
            self._begin(data[:end], data[end:])
            return
        if partial is None:
            if not data:
                return
            self._partial = partial = bytearray(data)
            if data == b"\r":
                return  # half of such an empty line: no request has begun
            self._wait_until(self._received_at + self.server.settings.request_timeout_s)
        try:
            check_beginning(partial)
        except ClientError as error:
            self._refuse(None, error)

    def _begin(self, head: bytes, rest: bytes) -> None:
        """Take up one request: its head is whole, and `rest` is what followed it."""
        server = self.server
        exchange = Exchange(self, self._received_at, server.settings.max_body_bytes)
        try:
            self._last_head = server.heads.read(exchange, head, self._last_head)
        except ClientError as error:
            self._refuse(exchange, error)
            return
        self._exchange = exchange
        self._served += 1
        exchange.closing = (
            not exchange.keep_alive
            or server.draining
            or self._served >= MAX_REQUESTS
            or self._received_at - self._born_at > MAX_AGE_S
        )
        length = exchange.content_length
        if exchange.chunked:
            self._state = _BODY
        elif len(rest) >= length:
            self._state = _BUSY
            exchange.complete = True
            self._wait_until(_NEVER)
            if length < len(rest):
                self._ahead = rest[length:]
                rest = rest[:length]
        else:
            self._state = _BODY
            self._missing = length - len(rest)
        try:
            server.app.head_received(exchange)
        except Exception:
            log.exception("a request's head could not be handled")
            exchange.give_up()
        if exchange.ended or exchange.gone:
            return
        if length > exchange.max_body_bytes:
            self._refuse(exchange, self._too_large(exchange))
        elif exchange.body_sink is not None:
            server.run(exchange)
            self._stream_body(exchange, exchange.body_sink, rest)
        elif exchange.complete:
            exchange.hold(length)
            if server.inflight_bytes > server.settings.max_inflight_bytes:
                self._refuse(exchange, self._overloaded())
                return
            exchange.body = rest
            server.run(exchange)
        else:
            self._await_body(exchange, rest)

    def _stream_body(self, exchange: Exchange, sink: BodySink, rest: bytes) -> None:
        if not exchange.complete:
            self.transport.set_protocol(Piecemeal(self, self.data_received))
            self._await_body(exchange, rest)
            return
        exchange.body_bytes = len(rest)
        exchange.hold(len(rest))
        sink.feed(rest)
        sink.completed()

    def write_piecemeal(self) -> None:
        """Keep less of answers in memory from now on: who has come for one file comes for others."""
        self.transport.set_write_buffer_limits(piecemeal.HIGH_WATER_BYTES, piecemeal.LOW_WATER_BYTES)

    def pause_body(self) -> None:
        """Read no more of the body; its clock stands still."""
        if self._state == _BODY:
            self.transport.pause_reading()
            self._wait_until(_NEVER)

    def resume_body(self) -> None:
        """Read on."""
        if self._state == _BODY:
            self.transport.resume_reading()
            self._wait_until(self.server.loop.time() + self.server.settings.request_timeout_s)

    def _await_body(self, exchange: Exchange, rest: bytes) -> None:
        self._pieces = []
        self._missing = exchange.content_length
        if exchange.chunked:
            self._chunks = ChunkedBody(self._accept_piece)
        if exchange.expects_continue and not rest:
            self.transport.write(_CONTINUE)
        if rest:
            self._read_body(rest)
        else:
            self._wait_until(self.server.loop.time() + self.server.settings.request_timeout_s)

    def _read_body(self, data: bytes) -> None:
        """Take bytes of the body; where it is whole, hand the request over."""
        exchange = self._exchange
        if exchange is None:
            return
        try:
            if self._chunks is not None:
                whole = self._chunks.feed(data)
                rest = self._chunks.rest
            else:
                rest = data[self._missing :]
                piece = data[: self._missing] if rest else data
                self._missing -= len(piece)
                self._accept_piece(piece)
                whole = self._missing == 0
        except SluicegateError as error:
            self._fail_body(exchange, error)
            return
        server = self.server
        if self._state != _BODY:  # the answer came before the body's end
            return
        if not whole:
            if self.transport.is_reading():
                self._wait_until(server.loop.time() + server.settings.request_timeout_s)
            return
        self._chunks = None
        if exchange.body_sink is not None:
            self.transport.set_protocol(cast(asyncio.BaseProtocol, self))
            exchange.complete = True
            self._state = _BUSY
            self._wait_until(_NEVER)
            if rest:
                self._ahead = rest
            exchange.body_sink.completed()
            return
        pieces, self._pieces = self._pieces, []
        exchange.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        exchange.complete = True
        self._state = _BUSY
        self._wait_until(_NEVER)
        if rest:
            self._ahead = rest
        server.run(exchange)

    def _fail_body(self, exchange: Exchange, error: SluicegateError) -> None:
        if exchange.body_sink is None:
            self._refuse(exchange, error)
            return
        self.transport.pause_reading()
        self._wait_until(_NEVER)
        exchange.body_sink.failed(error)

    def _take_piece(self, exchange: Exchange, sink: BodySink, piece: bytes) -> None:
        exchange.body_bytes += len(piece)
        if exchange.body_bytes > exchange.max_body_bytes:
            raise self._too_large(exchange)
        if not sink.passing:
            exchange.hold(len(piece))
            if self.server.inflight_bytes > self.server.settings.max_inflight_bytes:
                raise self._overloaded()
        sink.feed(piece)

    def _accept_piece(self, piece: bytes) -> None:
        exchange = cast(Exchange, self._exchange)
        if exchange.body_sink is not None:
            self._take_piece(exchange, exchange.body_sink, piece)
            return
        exchange.hold(len(piece))
        if exchange.held_bytes > exchange.max_body_bytes:
            raise self._too_large(exchange)
        if self.server.inflight_bytes > self.server.settings.max_inflight_bytes:
            raise self._overloaded()
        self._pieces.append(piece)

    def _read_ahead(self, data: bytes) -> None:
        """Keep what a client sends while its answer runs; past the limit stop reading until it has ended."""
        self._ahead = data if self._ahead is None else self._ahead + data
        if len(self._ahead) > READ_AHEAD_BYTES:
            self.transport.pause_reading()

    def _go_on(self) -> None:
        """Take up what was read ahead."""
        data = self._ahead
        if self._state == _BUSY and self._exchange is None and data is not None:
            self._ahead = None
            self._state = _HEAD
            self.transport.resume_reading()
            self._read_head(data)

    # Answers

    def answer_ended(self, exchange: Exchange) -> None:
        """Go on with the next request, or part from the client."""
        self._exchange = None
        server = self.server
        if exchange.closing or server.draining:
            self._part(exchange.complete)
            return
        self._wait_until(server.loop.time() + server.settings.idle_connection_s)
        if self._ahead is None:
            self._state = _HEAD
        else:
            server.loop.call_soon(self._go_on)

    def _part(self, request_read: bool) -> None:
        """Close after the last answer; where the client may still be sending, read on for a while first.

        A socket closed with unread bytes is reset, and the reset can overtake the answer.
        """
        self._pieces = []
        self._partial = None
        if request_read and self._ahead is None:
            self.close()
            return
        self._ahead = None
        self._state = _PARTING
        self.transport.resume_reading()
        self._wait_until(self.server.loop.time() + LINGER_S)

    def _discard(self, data: bytes) -> None:
        """Drop what a client sends after its answer; a body of known length may end the wait."""
        if self._missing:
            self._missing -= len(data)
            if self._missing <= 0:
                self.close()

    def _refuse(self, exchange: Exchange | None, error: SluicegateError) -> None:
        """Answer what this layer does not take; the connection closes: its framing cannot be relied on."""
        if exchange is None:
            exchange = Exchange(self, self._received_at, 0)
            exchange.clear()
        self._exchange = exchange
        exchange.closing = True
        known = exchange if exchange.path else None
        try:
            headers, body = self.server.app.protocol_error(known, error)
        except Exception:
            log.exception("an error could not be told to the client")
            headers, body = b"", b""
        exchange.respond(error.status, headers, body)

    def fail(self, exchange: Exchange, error: SluicegateError) -> None:
        """See `Exchange.refuse`."""
        if exchange.gone or exchange.ended:
            return
        if exchange.answered:
            exchange.abort()
        else:
            self._refuse(exchange, error)

    def close(self) -> None:
        """Close once everything written has left, or when the client does not take it in time."""
        if self._state != _CLOSED:
            self._state = _CLOSED
            self._wait_until(self.server.loop.time() + self.server.settings.write_timeout_s)
            self.transport.close()

    @property
    def fresh(self) -> bool:
        """Whether it waits for its first request: its client has just been let in, and expects an answer."""
        return self._state == _HEAD and self._partial is None and not self._served

    @property
    def reading(self) -> bool:
        """Whether a request has begun to come, and is not served yet."""
        if self._state != _BODY or self._exchange is None:
            return self._state == _HEAD and self._partial is not None
        sink = self._exchange.body_sink
        return not self._exchange.answered and (sink is None or not sink.ready)

    @property
    def parting(self) -> bool:
        """Whether its client has its answer, and may still be sending."""
        return self._state == _PARTING

    def refuse_unread(self, error: SluicegateError) -> None:
        """Answer a request that is not served yet; nothing for any other."""
        if not self.reading:
            return
        if self._exchange is None:
            self._refuse(None, error)
        else:
            self._fail_body(self._exchange, error)

    def close_if_idle(self) -> None:
        """Close a connection that waits for its next request; any other closes after its answer."""
        if self._state == _HEAD and self._partial is None:
            self.close()
        elif self._exchange is not None and not self._exchange.answered:
            self._exchange.closing = True

    def break_off(self, reset: bool) -> None:
        """Close after what was written; by RST where an orderly close would look like the answer's end."""
        if reset:
            self._set_reset()
        self._exchange = None
        self.close()

    def reset(self) -> None:
        """Drop the connection at once, by RST."""
        self._state = _CLOSED
        self._exchange = None
        self._set_reset()
        self.transport.abort()

    def _set_reset(self) -> None:
        sock = self._socket()
        if sock is not None:
            with contextlib.suppress(OSError):  # closed already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _socket(self) -> socket.socket | None:
        """Return the connection's socket, or None when it is closed."""
        return cast("socket.socket | None", self.transport.get_extra_info("socket"))

    def _lose_client(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._state = _CLOSED
        self._ahead = self._partial = self._chunks = None
        self._pieces = []
        if exchange is not None:
            exchange.lose_client()

    # Clocks

    def _wait_until(self, due_at: float) -> None:
        self._state_due_at = due_at
        if not self.write_paused:
            self.due_at = due_at

    def expire(self, now: float) -> None:
        """Act on the deadline of the state the connection is in."""
        if self.write_paused:
            self._watch_writing(now)
            return
        self._wait_until(_NEVER)
        if self._state == _HEAD and self._partial is None:
            self.close()
        elif self._state == _BODY and self._exchange is not None:
            self._fail_body(self._exchange, RequestTimeout("the request did not arrive in time"))
        elif self._state in (_HEAD, _BODY):
            self._refuse(self._exchange, RequestTimeout("the request did not arrive in time"))
        elif self._state == _PARTING:
            self.close()
        elif self._state == _CLOSED:
            self.transport.abort()

    def _watch_writing(self, now: float) -> None:
        """Drop a client that has read nothing for `write_timeout`; a slow one that reads on stays."""
        timeout_s = self.server.settings.write_timeout_s
        unread = self._count_unread()
        if unread != self._unread_bytes:
            self._unread_bytes = unread
            self._progress_at = now
        elif now - self._progress_at >= timeout_s:
            exchange = self._exchange
            if exchange is not None:
                exchange.write_timed_out = True
            self._lose_client()
            self.reset()
            self.due_at = _NEVER
            return
        self.due_at = min(now + timeout_s / 4, self._progress_at + timeout_s)

    def _count_unread(self) -> int:
        """Count what was written and not yet received by the client: here, and in the kernel."""
        queued = array.array("i", [0])
        sock = self._socket()
        if sock is not None:
            with contextlib.suppress(OSError, ValueError):  # closed already
                fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, queued)
        return self.transport.get_write_buffer_size() + queued[0]

    def _too_large(self, exchange: Exchange) -> TooLarge:
        return TooLarge(f"the request's body is larger than {exchange.max_body_bytes} bytes")

    def _overloaded(self) -> Overloaded:
        return Overloaded("too many request bytes are in flight; try again soon")
