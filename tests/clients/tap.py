"""Listens between a client and a gate, and remembers every exchange: what was asked, and how it was answered.

Bytes pass as they are; nothing of the gate's is used to read them.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httptools


@dataclass
class Exchange:
    """One request and its answer."""

    method: str = ""
    target: str = ""
    """Path and query."""
    asked: dict[str, str] = field(default_factory=dict)
    """Headers of the request, names in lower case."""
    body: bytes = b""
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """Of the answer."""
    answer: bytes = b""
    complete: bool = False

    @property
    def dropped(self) -> set[str]:
        """The fields that the gate named as not passed on."""
        named = self.headers.get("x-sluicegate-dropped", "")
        return {entry.partition(";")[0] for entry in named.split(", ") if entry}


class Tap:
    """A listener in threads of its own: `with Tap(port) as tap: …`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._clients: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.exchanges: list[Exchange] = []
        """In the order in which they were asked, of all connections."""

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10.0)
        self._listening.close()

    def _start(self, run: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                self._clients.append(client)
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as gate:
            reader = _Connection(self.exchanges)
            back = self._start(_pump, gate, client, reader.answered)
            _pump(client, gate, reader.asked)
            back.join()


def _pump(source: socket.socket, sink: socket.socket, heard: Callable[[bytes], None]) -> None:
    """Pass bytes on until there are no more."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            heard(data)
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class _Connection:
    """Reads both directions of one connection; a client asks again only when it was answered."""

    def __init__(self, exchanges: list[Exchange]) -> None:
        self._exchanges = exchanges
        self._exchange = Exchange()
        self._request = httptools.HttpRequestParser(_Request(self))
        self._response: Any = None

    def asked(self, data: bytes) -> None:
        self._request.feed_data(data)

    def begin(self) -> Exchange:
        self._exchange = Exchange()
        self._response = None
        self._exchanges.append(self._exchange)
        return self._exchange

    def method(self) -> str:
        return str(self._request.get_method().decode())

    def answered(self, data: bytes) -> None:
        if self._response is None:
            self._response = httptools.HttpResponseParser(_Response(self))
        self._response.feed_data(data)

    def status(self) -> int:
        return int(self._response.get_status_code())

    @property
    def exchange(self) -> Exchange:
        return self._exchange


class _Request:
    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def on_message_begin(self) -> None:
        self._connection.begin()

    def on_url(self, url: bytes) -> None:
        self._connection.exchange.target += url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._connection.exchange.asked[name.decode().lower()] = value.decode()

    def on_headers_complete(self) -> None:
        self._connection.exchange.method = self._connection.method()

    def on_body(self, body: bytes) -> None:
        self._connection.exchange.body += body


class _Response:
    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def on_header(self, name: bytes, value: bytes) -> None:
        self._connection.exchange.headers[name.decode().lower()] = value.decode()

    def on_headers_complete(self) -> None:
        self._connection.exchange.status = self._connection.status()

    def on_body(self, body: bytes) -> None:
        self._connection.exchange.answer += body

    def on_message_complete(self) -> None:
        self._connection.exchange.complete = True
