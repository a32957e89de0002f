"""The client side of tests: a raw HTTP client that can be slow, rude or gone, and remembers when each byte
came.

It shares no code with the gate, and refuses what a careful client would refuse: an answer whose framing is
wrong raises AssertionError. The provider side is `sluicegate.simulator`.
"""

import asyncio
import json
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, cast
from urllib.parse import urlsplit

LINGER_RESET = struct.pack("ii", 1, 0)


class Response(NamedTuple):
    """One answer, read out of the bytes of a connection."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    """Names in lower case, in order."""
    body: bytes
    """Without framing."""
    complete: bool
    """Whether its framing says that all of it came."""
    chunks: tuple[bytes, ...]
    """The chunks of a chunked body."""
    size: int
    """Bytes that it took of the connection, framing and 1xx heads included."""
    version: str
    informational: tuple[int, ...]
    """Statuses of the 1xx heads before it."""

    def header(self, name: str) -> str | None:
        """Return the one value of a header; a header that came twice is wrong."""
        values = [value for key, value in self.headers if key == name.lower()]
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None

    def json(self) -> Any:
        """Return the body, parsed."""
        return json.loads(self.body)


class ResponseReader:
    """Reads one answer out of the bytes of a connection as they come."""

    def __init__(self, method: str = "POST", offset: int = 0) -> None:
        """Begin at an offset of the connection's bytes."""
        self._method = method
        self._start = self._at = offset
        self._informational: list[int] = []
        self._head: tuple[str, int, str, list[tuple[str, str]]] | None = None
        self._chunks: list[bytes] = []
        self._body = b""
        self._complete = False

    def read(self, raw: bytes | bytearray, *, closed: bool = False) -> Response | None:
        """Take in what has come so far; return the answer once it is complete, None until then.

        Args:
            raw: all bytes of the connection.
            closed: it has ended: the answer is returned as it stands, if its head is whole.
        """
        if self._head is None and not self._read_head(raw):
            return None
        assert self._head is not None
        version, status, reason, headers = self._head
        if not self._complete:
            self._read_body(raw, status, dict(headers), closed)
        if not self._complete and not closed:
            return None
        return Response(
            status=status,
            reason=reason,
            headers=headers,
            body=self._body,
            complete=self._complete,
            chunks=tuple(self._chunks),
            size=self._at - self._start,
            version=version,
            informational=tuple(self._informational),
        )

    def _read_head(self, raw: bytes | bytearray) -> bool:
        while True:
            end = raw.find(b"\r\n\r\n", self._at)
            if end < 0:
                return False
            lines = raw[self._at : end].decode("latin-1").split("\r\n")
            version, status, *reason = lines[0].split(" ", 2)
            assert version in ("HTTP/1.1", "HTTP/1.0"), f"status line {lines[0]!r}"
            self._at = end + 4
            if int(status) >= 200:
                break
            self._informational.append(int(status))
        headers = []
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            assert colon, f"header line {line!r}"
            assert name == name.strip(), f"header line {line!r}"
            headers.append((name.lower(), value.strip()))
        self._head = version, int(status), " ".join(reason), headers
        return True

    def _read_body(self, raw: bytes | bytearray, status: int, fields: dict[str, str], closed: bool) -> None:
        chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        assert not (chunked and "content-length" in fields), "both lengths"
        if self._method == "HEAD" or status in (204, 304):
            self._complete = True
        elif chunked:
            self._read_chunks(raw)
            if self._complete or closed:
                self._body = b"".join(self._chunks)
        elif "content-length" in fields:
            length = int(fields["content-length"])
            if closed or len(raw) - self._at >= length:
                self._body = bytes(raw[self._at : self._at + length])
                self._complete = len(self._body) == length
                self._at += len(self._body)
        elif closed:
            self._body, self._complete, self._at = bytes(raw[self._at :]), True, len(raw)

    def _read_chunks(self, raw: bytes | bytearray) -> None:
        while True:
            end = raw.find(b"\r\n", self._at)
            if end < 0:
                return
            size = int(raw[self._at : end].partition(b";")[0], 16)
            start = end + 2
            if len(raw) < start + size + 2:
                return
            assert raw[start + size : start + size + 2] == b"\r\n", "a chunk is longer than it says"
            self._at = start + size + 2
            if size == 0:
                self._complete = True
                return
            self._chunks.append(bytes(raw[start : start + size]))


def request_bytes(
    path: str,
    body: bytes | Mapping[str, Any] | None = None,
    *,
    method: str | None = None,
    host: str = "gate.test",
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return one request, whole: POST with a body, else GET."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    fields = {"host": host}
    if body is not None:
        fields |= {"content-type": "application/json", "content-length": str(len(data))}
    if key is not None:
        fields["authorization"] = f"Bearer {key}"
    fields |= headers or {}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    method = method or ("GET" if body is None else "POST")
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + data


class Client(asyncio.Protocol):
    """One raw connection: `async with await Client.connect(url) as client: …`."""

    def __init__(self) -> None:
        self.received: list[tuple[float, bytes]] = []
        """Every read, with its time (`time.monotonic`)."""
        self.raw = bytearray()
        """All of them together."""
        self.ended: str | None = None
        """How the peer ended the connection: `fin`, `reset`, or None while it is open."""
        self._transport: asyncio.Transport | None = None
        self._news = asyncio.Event()
        self._lost = asyncio.Event()
        self._taken = 0

    @classmethod
    async def connect(
        cls, url: str, *, ca_file: str | None = None, receive_buffer_bytes: int | None = None
    ) -> Self:
        """Connect to `http://host:port` or `https://host:port`.

        Args:
            receive_buffer_bytes: size of the kernel's buffer, so that a slow reader is felt early.
        """
        parts = urlsplit(url)
        host, secure = parts.hostname or "127.0.0.1", parts.scheme == "https"
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            sock.setblocking(False)
            if receive_buffer_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            await loop.sock_connect(sock, (host, parts.port or (443 if secure else 80)))
            context = ssl.create_default_context(cafile=ca_file) if secure else None
            client = cls()
            await loop.create_connection(
                lambda: client, sock=sock, ssl=context, server_hostname=host if secure else None
            )
        except BaseException:
            sock.close()
            raise
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received.append((time.monotonic(), data))
        self.raw += data
        self._news.set()

    def eof_received(self) -> bool:
        self.ended = "fin"
        self._news.set()
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.ended is None:
            self.ended = "reset" if isinstance(exc, ConnectionError) else "fin"
        self._lost.set()
        self._news.set()

    # what tests call

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        assert self._transport is not None
        self._transport.write(data)

    async def send_slowly(self, data: bytes, size: int = 1, every_s: float = 0.001) -> None:
        """Send bytes in pieces."""
        for offset in range(0, len(data), size):
            self.send(data[offset : offset + size])
            await asyncio.sleep(every_s)

    async def until(self, true: Callable[[], bool], timeout_s: float = 5.0) -> None:
        """Wait until something holds that depends on what has come; raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not true():
                self._news.clear()
                await self._news.wait()

    async def until_bytes(self, wanted: bytes, timeout_s: float = 5.0) -> None:
        """Wait until these bytes have come."""
        await self.until(lambda: wanted in self.raw, timeout_s)

    async def until_closed(self, timeout_s: float = 5.0) -> str:
        """Wait until the peer has ended the connection; return how."""
        await self.until(lambda: self.ended is not None, timeout_s)
        assert self.ended is not None
        return self.ended

    async def response(self, *, method: str = "POST", timeout_s: float = 5.0) -> Response:
        """Return the next answer of the connection: complete, or as it was when the peer ended it."""
        reader = ResponseReader(method, self._taken)
        found: Response | None = None

        def whole() -> bool:
            nonlocal found
            closed = self.ended is not None
            found = reader.read(self.raw, closed=closed)
            return closed or found is not None

        await self.until(whole, timeout_s)
        if found is None:
            raise ConnectionError(f"the peer ended the connection ({self.ended}) without an answer")
        self._taken += found.size
        return found

    async def ask(
        self,
        path: str,
        body: bytes | Mapping[str, Any] | None = None,
        *,
        method: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 5.0,
    ) -> Response:
        """Send one request and return its answer."""
        self.send(request_bytes(path, body, method=method, key=key, headers=headers))
        return await self.response(method=method or "POST", timeout_s=timeout_s)

    def time_of(self, wanted: bytes) -> float:
        """Return when the last of these bytes came (their first occurrence)."""
        end = self.raw.index(wanted) + len(wanted)
        for at, data in self.received:
            end -= len(data)
            if end <= 0:
                return at
        raise AssertionError("received and raw differ")

    def pause(self) -> None:
        """Stop reading."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        assert self._transport is not None
        self._transport.resume_reading()

    async def read_slowly(self, bytes_per_s: int, for_s: float) -> None:
        """Read no faster than this for a while; works best with a small receive buffer."""
        end = time.monotonic() + for_s
        while time.monotonic() < end and self.ended is None:
            before = len(self.raw)
            self.resume()
            await asyncio.sleep(0.001)
            self.pause()
            await asyncio.sleep(max((len(self.raw) - before) / bytes_per_s, 0.001))

    def half_close(self) -> None:
        """Send FIN and go on reading."""
        assert self._transport is not None
        self._transport.write_eof()

    def reset(self) -> None:
        """Leave with RST."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            self._transport.abort()

    async def close(self) -> None:
        """Leave with FIN; harmless when the connection is over."""
        if self._transport is not None:
            self._transport.close()
            try:
                async with asyncio.timeout(0.5):
                    await self._lost.wait()
            except TimeoutError:
                self._transport.abort()
                await self._lost.wait()
            self._transport = None


async def ask(
    url: str,
    path: str,
    body: bytes | Mapping[str, Any] | None = None,
    *,
    method: str | None = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    ca_file: str | None = None,
    timeout_s: float = 5.0,
) -> Response:
    """Send one request on a connection of its own and return the answer."""
    async with await Client.connect(url, ca_file=ca_file) as client:
        return await client.ask(path, body, method=method, key=key, headers=headers, timeout_s=timeout_s)


def chat(model: str, text: str = "Hello", **fields: Any) -> dict[str, Any]:
    """Return the body of a streamed chat request; `stream=False` for a plain one."""
    return {"model": model, "messages": [{"role": "user", "content": text}], "stream": True} | fields
