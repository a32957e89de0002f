"""The client side of the bench: many connections on one epoll, with as little work a read as can be.

A read costs one `recv` and one count of event ends. Only every `sample_every`th connection looks at the events' due
times. Answers are held to what they should be (status, number of events, end marker), so that a gate that fails fast
is not taken for a fast gate.
"""

import gc
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench import answers

_POLL_S = 0.002
_ALL_BEGUN_S = 60.0
"""How long connections may take to get their first answer: TLS handshakes with a provider are slow."""


@dataclass
class LoadFigures:
    """What the client saw between the two marks, and what went wrong at any time."""

    answers: int = 0
    events: int = 0
    all_answers: int = 0
    """Before and after the marks too."""
    all_events: int = 0
    seconds: float = 0.0
    first_content_ms: list[float] = field(default_factory=list)
    """Of each answer, from the request's write to the first read of its answer."""
    late_ms: list[float] = field(default_factory=list)
    """Of each event on a sampled connection, from when it was due at the provider to when it was read."""
    reconnects: int = 0
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LoadPlan:
    """What to ask for, on how many connections, and how."""

    stream: bool
    connections: int
    tokens: int = 0
    every_us: int = 0
    requests_per_s: float = 0.0
    """0: each connection asks again as soon as its answer is whole."""
    ramp_per_s: float = 2000.0
    """Connections opened a second."""
    sample_every: int = 0
    """Every so many connections, one whose events are stamped and whose lateness is noted; 0: none."""
    bulk_every_s: float = 0.0
    """Connections that are not sampled are read so often, several events at once; 0: each as its events come. At a
    thousand streams the client would else be late by itself, and its core the limit of all that is measured."""
    ask_usage: bool = True

    @property
    def events_per_answer(self) -> int:
        """SSE events that a whole streamed answer has: role, content, finish reason, usage, marker."""
        return self.tokens + (4 if self.ask_usage else 3)


class _Client:
    """One connection, and the answer that is coming on it."""

    __slots__ = (
        "answer_bytes",
        "begun",
        "body_end",
        "closing",
        "events",
        "sampled",
        "sent_at",
        "sock",
        "tail",
    )

    def __init__(self, sock: socket.socket, sampled: bool) -> None:
        self.sock = sock
        self.sampled = sampled
        self.events = 0
        self.answer_bytes = 0
        self.body_end = 0
        """Length of the whole answer, where its head tells it."""
        self.tail = b""
        self.closing = False
        self.begun = False
        """Whether any answer has ever come on it."""
        self.sent_at = 0.0


class Load:
    """Runs one plan against one address."""

    def __init__(self, port: int, plan: LoadPlan) -> None:
        self._address = ("127.0.0.1", port)
        self._plan = plan
        self._request, self._sampled_request = (
            answers.request(
                port,
                stream=plan.stream,
                tokens=plan.tokens,
                every_us=plan.every_us,
                stamped=stamped,
                ask_usage=plan.ask_usage,
            )
            for stamped in (False, True)
        )
        self._poll = select.epoll()
        self._clients: dict[int, _Client] = {}
        self._idle: list[_Client] = []
        self._bulk: list[_Client] = []
        """Those that are read in turn, not as they become readable."""
        self._bulk_reads = 0
        self._opened = 0
        self._measuring = False
        self.figures = LoadFigures()

    def run(self, warm_s: float, measure_s: float, mark: Callable[[], None]) -> LoadFigures:
        """Open all connections, wait, then measure; `mark` is called as the window opens and as it closes."""
        gc.collect()
        gc.disable()
        try:
            started_at = time.monotonic()
            self._turn_until(started_at + self._plan.connections / self._plan.ramp_per_s, started_at)
            if self._opened < self._plan.connections:
                self._open_due(self._plan.connections)
            self._wait_until_all_have_begun()
            self._turn_until(time.monotonic() + warm_s)
            opens_at = time.monotonic()
            mark()
            self._measuring = True
            self._turn_until(opens_at + measure_s)
            self._measuring = False
            mark()
            self.figures.seconds = time.monotonic() - opens_at
        finally:
            gc.enable()
            self.close()
        self.figures.first_content_ms.sort()
        self.figures.late_ms.sort()
        return self.figures

    def close(self) -> None:
        """Leave, in the middle of answers too."""
        for client in self._clients.values():
            client.sock.close()
        self._clients.clear()
        self._poll.close()

    def _wait_until_all_have_begun(self) -> None:
        gives_up_at = time.monotonic() + _ALL_BEGUN_S
        while not self._plan.requests_per_s and not all(client.begun for client in self._clients.values()):
            if time.monotonic() > gives_up_at:
                waiting = sum(not client.begun for client in self._clients.values())
                raise RuntimeError(f"{waiting} of {self._plan.connections} connections got no answer")
            self._turn_until(time.monotonic() + 0.05)

    def _turn_until(self, ends_at: float, ramp_from: float | None = None) -> None:
        plan = self._plan
        next_request_at = time.monotonic()
        while (now := time.monotonic()) < ends_at:
            if ramp_from is not None:
                self._open_due(int((now - ramp_from) * plan.ramp_per_s) + 1)
            if plan.requests_per_s:
                while next_request_at <= now:
                    next_request_at += 1 / plan.requests_per_s
                    if self._idle:
                        self._ask(self._idle.pop())
            if self._bulk:
                self._read_bulk(now)
            for fd, _ in self._poll.poll(min(_POLL_S, ends_at - now)):
                client = self._clients.get(fd)
                if client is not None:
                    self._read(client)

    def _read_bulk(self, now: float) -> None:
        """Read those whose turn it is, so many at the most as there are."""
        due = int(now / self._plan.bulk_every_s * len(self._bulk))
        for turn in range(max(self._bulk_reads, due - len(self._bulk)), due):
            self._read(self._bulk[turn % len(self._bulk)])
        self._bulk_reads = due

    def _open_due(self, wanted: int) -> None:
        while self._opened < min(wanted, self._plan.connections):
            self._opened += 1
            self._open(sampled=self._plan.sample_every > 0 and self._opened % self._plan.sample_every == 0)

    def _open(self, sampled: bool) -> None:
        sock = socket.create_connection(self._address)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = _Client(sock, sampled)
        self._clients[sock.fileno()] = client
        if self._plan.bulk_every_s and not sampled:
            self._bulk.append(client)
        else:
            self._poll.register(sock, select.EPOLLIN)
        self._free(client)

    def _free(self, client: _Client) -> None:
        if self._plan.requests_per_s:
            self._idle.append(client)
        else:
            self._ask(client)

    def _ask(self, client: _Client) -> None:
        client.events = client.answer_bytes = client.body_end = 0
        client.tail = b""
        client.sent_at = time.monotonic()
        try:
            client.sock.send(self._sampled_request if client.sampled else self._request)
        except OSError:
            self._lost(client)

    def _read(self, client: _Client) -> None:
        try:
            data = client.sock.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost(client)
            return
        if not client.answer_bytes and not self._begin(client, data):
            return
        client.answer_bytes += len(data)
        if self._plan.stream:
            count = data.count(b"\n\n")
            client.events += count
            self.figures.all_events += count
            if self._measuring:
                self.figures.events += count
                if client.sampled:
                    self._note_lateness(data)
            end = data[-5:] if len(data) >= 5 else (client.tail + data)[-5:]
            client.tail = end
            if end == answers.END:
                # An event end that is cut by a chunk's end is not counted; relays cut after 4 KiB at the earliest.
                missed = self._plan.events_per_answer - client.events
                if not 0 <= missed <= client.answer_bytes // 4096:
                    self._fail(f"{client.events} events, not {self._plan.events_per_answer}")
                self._finished(client)
        elif client.answer_bytes >= client.body_end:
            self._finished(client)

    def _begin(self, client: _Client, data: bytes) -> bool:
        """Look at the head of an answer; False where it is no answer to go on with."""
        if self._measuring and client.sent_at:
            self.figures.first_content_ms.append((time.monotonic() - client.sent_at) * 1000)
        head_end = data.find(b"\r\n\r\n")
        head = data[:head_end].lower()
        if not data.startswith(b"HTTP/1.1 200 ") or head_end < 0:
            self._fail(data[:400].decode("latin-1"))
            self._replace(client)
            return False
        client.closing = b"connection: close" in head
        client.begun = True
        if not self._plan.stream:
            at = head.find(b"content-length: ")
            if at < 0:
                raise AssertionError("a plain answer without content-length")
            client.body_end = head_end + 4 + int(head[at + 16 :].split(b"\r\n", 1)[0])
        return True

    def _finished(self, client: _Client) -> None:
        self.figures.all_answers += 1
        if self._measuring:
            self.figures.answers += 1
        if client.closing:
            self._replace(client)
        else:
            self._free(client)

    def _note_lateness(self, data: bytes) -> None:
        now_us = time.monotonic_ns() // 1000
        for due in answers.DUE.findall(data):
            self.figures.late_ms.append((now_us - int(due)) % answers.DUE_WRAPS_US / 1000)

    def _lost(self, client: _Client) -> None:
        """The peer closed: between answers it may, inside one it must not."""
        if client.answer_bytes and not self._is_whole(client):
            self._fail("closed inside an answer")
        self._replace(client)

    def _is_whole(self, client: _Client) -> bool:
        return client.tail == answers.END if self._plan.stream else client.answer_bytes >= client.body_end

    def _replace(self, client: _Client) -> None:
        self.figures.reconnects += 1
        if client in self._bulk:
            self._bulk.remove(client)
        else:
            self._poll.unregister(client.sock)
        del self._clients[client.sock.fileno()]
        client.sock.close()
        if client in self._idle:
            self._idle.remove(client)
        self._open(client.sampled)

    def _fail(self, what: str) -> None:
        if len(self.figures.errors) >= 1000:
            raise RuntimeError(f"the target keeps failing: {what}")
        self.figures.errors.append(what)
