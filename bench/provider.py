"""A provider for the bench that costs as little as a Python process can: `python bench/provider.py`.

One thread, one epoll, plain non-blocking sockets, answers made beforehand. Streams of one spacing share a wheel and
are spread over its slots; an event costs hardly more than its `send`. Well-formed requests get right answers; nothing
else is checked. `GET /stats` tells how punctual it was.

It prints `{"plain": PORT, "tls": PORT}` once it listens, and ends when its standard input closes.
"""

import contextlib
import gc
import json
import select
import socket
import ssl
import sys
import time
from collections import deque
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import answers  # noqa: E402
from bench.percentiles import percentile  # noqa: E402

TICK_US = 100
"""Shortest time between two slots of a wheel: at 5 ms and 100 streams, two streams share a slot."""
MAX_SLOTS = 1000
_STRIDES = (617, 389, 241, 151, 97, 61, 37)
EVENTS_A_WRITE = 32
"""Events that leave in one write of a burst: about 9 KiB."""


class Connection:
    """One connection from a gate, and the stream that runs on it."""

    __slots__ = (
        "asks_usage",
        "dialect",
        "fd",
        "handshaking",
        "pending",
        "received",
        "sock",
        "stamped",
        "tokens",
        "tokens_left",
        "wheel_slot",
    )

    def __init__(self, sock: socket.socket, handshaking: bool) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.handshaking = handshaking
        self.received = b""
        self.pending = b""
        """What the socket did not take."""
        self.tokens = 0
        self.tokens_left = 0
        self.asks_usage = False
        self.dialect = answers.CHAT
        self.stamped = False
        self.wheel_slot: dict[Connection, None] | None = None


class Wheel:
    """Streams of one spacing, spread over slots that come up one after another."""

    def __init__(self, every_us: int) -> None:
        count = max(1, min(MAX_SLOTS, every_us // TICK_US))
        self.slots: list[dict[Connection, None]] = [{} for _ in range(count)]
        self.tick_us = every_us / count
        self.base_us = time.monotonic_ns() // 1000
        self.turns = 0
        self._seat = 0
        self._stride = next((prime for prime in _STRIDES if prime < count), 1)

    @property
    def due_us(self) -> float:
        """When the next slot comes up."""
        return self.base_us + (self.turns + 1) * self.tick_us

    def seat(self) -> dict[Connection, None]:
        """Choose a slot for a new stream, far from that of the stream before."""
        self._seat = (self._seat + self._stride) % len(self.slots)
        return self.slots[self._seat]


class Provider:
    """The loop: accepts, reads requests, turns the wheels, goes on with bursts."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._poll = select.epoll()
        self._tls = tls
        self._listeners: dict[int, tuple[socket.socket, bool]] = {}
        self._connections: dict[int, Connection] = {}
        self._wheels: dict[int, Wheel] = {}
        self._bursts: deque[Connection] = deque()
        self._plain = answers.plain_answer()
        self._lateness_us: list[int] = []
        self._events = 0

    def listen(self, *, tls: bool) -> int:
        """Open a listening socket and return its port."""
        sock = socket.create_server(("127.0.0.1", 0), backlog=4096)
        sock.setblocking(False)
        self._listeners[sock.fileno()] = (sock, tls)
        self._poll.register(sock, select.EPOLLIN)
        return int(sock.getsockname()[1])

    def run(self) -> None:
        """Serve until standard input closes."""
        self._poll.register(sys.stdin, select.EPOLLIN)
        stdin = sys.stdin.fileno()
        while True:
            # select() on the epoll descriptor: its time-out counts microseconds, epoll's own milliseconds.
            ready, _, _ = select.select([self._poll], [], [], self._pause_s())
            if ready:
                for fd, mask in self._poll.poll(0):
                    if fd == stdin:
                        return
                    if fd in self._listeners:
                        self._accept(*self._listeners[fd])
                    elif fd in self._connections:
                        self._ready(self._connections[fd], mask)
            self._turn_wheels()
            for _ in range(len(self._bursts)):
                self._go_on_bursting(self._bursts.popleft())

    def _pause_s(self) -> float:
        if self._bursts:
            return 0.0
        due = [wheel.due_us for wheel in self._wheels.values()]
        return max(0.0, (min(due) - time.monotonic_ns() / 1000) / 1e6) if due else 1.0

    def _accept(self, listener: socket.socket, tls: bool) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls and self._tls is not None:
                    sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                self._connections[sock.fileno()] = Connection(sock, tls)
                self._poll.register(sock, select.EPOLLIN)

    def _ready(self, connection: Connection, mask: int) -> None:
        try:
            if connection.handshaking:
                connection.sock.do_handshake()  # type: ignore[attr-defined]
                connection.handshaking = False
            if mask & select.EPOLLOUT and connection.pending:
                self._poll.modify(connection.fd, select.EPOLLIN)
                rest, connection.pending = connection.pending, b""
                self._send(connection, rest)
            while data := connection.sock.recv(65536):
                connection.received += data
                self._serve(connection)
            self._close(connection)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self._close(connection)

    def _serve(self, connection: Connection) -> None:
        """Answer the request that has been received, if it is whole."""
        head, separator, body = connection.received.partition(b"\r\n\r\n")
        if not separator:
            return
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        if len(body) < length:
            return
        connection.received = b""
        if head.startswith(b"GET /stats"):
            self._answer_stats(connection)
        elif b'"stream":true' in body:
            connection.dialect = answers.MESSAGES if head.startswith(b"POST /v1/messages") else answers.CHAT
            self._start_stream(connection, body)
        else:
            self._send(connection, self._plain)

    def _answer_stats(self, connection: Connection) -> None:
        late, self._lateness_us = sorted(self._lateness_us), []
        events, self._events = self._events, 0
        body = json.dumps({"events": events, "late_p99_us": percentile(late, 99)}).encode()
        self._send(connection, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    def _start_stream(self, connection: Connection, body: bytes) -> None:
        scenario = answers.SCENARIO.search(body)
        if scenario is None:
            raise AssertionError("a request without a scenario")
        tokens, every_us = int(scenario[1]), int(scenario[2])
        connection.tokens = tokens
        connection.tokens_left = tokens - 1
        connection.asks_usage = b'"include_usage":true' in body
        connection.stamped = scenario[3] is not None
        first = answers.STREAM_HEAD + connection.dialect.first + connection.dialect.deltas[0]
        if connection.tokens_left == 0:
            first += connection.dialect.last(tokens, connection.asks_usage)
        self._send(connection, first)
        if connection.tokens_left and every_us:
            wheel = self._wheels.get(every_us)
            if wheel is None:
                wheel = self._wheels[every_us] = Wheel(every_us)
            connection.wheel_slot = wheel.seat()
            connection.wheel_slot[connection] = None
        elif connection.tokens_left:
            self._bursts.append(connection)

    def _turn_wheels(self) -> None:
        for every_us, wheel in list(self._wheels.items()):
            now_us = time.monotonic_ns() // 1000
            while wheel.due_us <= now_us:
                due_us = int(wheel.due_us)
                wheel.turns += 1
                slot = wheel.slots[wheel.turns % len(wheel.slots)]
                if slot:
                    self._lateness_us.append(now_us - due_us)
                    self._send_slot(slot, wheel.turns // len(wheel.slots), due_us)
                    now_us = time.monotonic_ns() // 1000
            if not any(wheel.slots):
                del self._wheels[every_us]

    def _send_slot(self, slot: dict[Connection, None], turn: int, due_us: int) -> None:
        for connection in list(slot):
            deltas = connection.dialect.deltas
            event = answers.stamped_event(turn, due_us) if connection.stamped else deltas[turn % len(deltas)]
            connection.tokens_left -= 1
            if connection.tokens_left > 0:
                self._send(connection, event)
            else:
                del slot[connection]
                connection.wheel_slot = None
                self._send(
                    connection, event + connection.dialect.last(connection.tokens, connection.asks_usage)
                )
        self._events += len(slot)

    def _go_on_bursting(self, connection: Connection) -> None:
        if connection.fd not in self._connections or self._connections[connection.fd] is not connection:
            return
        if connection.pending:
            self._bursts.append(connection)
            return
        count = min(EVENTS_A_WRITE, connection.tokens_left)
        turn = connection.tokens - connection.tokens_left
        connection.tokens_left -= count
        if connection.stamped:
            now_us = time.monotonic_ns() // 1000
            events = [answers.stamped_event(turn + i, now_us) for i in range(count)]
        else:
            deltas = connection.dialect.deltas
            events = [deltas[(turn + i) % len(deltas)] for i in range(count)]
        group = b"".join(events)
        if connection.tokens_left:
            self._bursts.append(connection)
        else:
            group += connection.dialect.last(connection.tokens, connection.asks_usage)
        self._send(connection, group)

    def _send(self, connection: Connection, data: bytes) -> None:
        if connection.pending:
            connection.pending += data
            return
        try:
            sent = connection.sock.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            sent = 0
        except OSError:
            self._close(connection)
            return
        if sent < len(data):
            connection.pending = data[sent:]
            self._poll.modify(connection.fd, select.EPOLLIN | select.EPOLLOUT)

    def _close(self, connection: Connection) -> None:
        if self._connections.pop(connection.fd, None) is None:
            return
        if connection.wheel_slot is not None:
            connection.wheel_slot.pop(connection, None)
        self._poll.unregister(connection.fd)
        connection.sock.close()


def main() -> None:
    """Listen plain, and with TLS where a certificate file (chain and key) is named; tell the ports; serve."""
    tls = None
    if len(sys.argv) > 1:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[1])
    provider = Provider(tls)
    ports = {"plain": provider.listen(tls=False), "tls": provider.listen(tls=True) if tls else None}
    print(json.dumps(ports), flush=True)
    gc.disable()  # nothing here makes cycles, and a collection is a pause
    provider.run()


if __name__ == "__main__":
    main()
