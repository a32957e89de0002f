"""Short questions to a provider about what it keeps, without a client's request behind them.

Source: wire formats page `responses.md`, "State".
"""

import asyncio
from collections.abc import AsyncIterator

from sluicegate.errors import StateUnknown, UpstreamError, UpstreamGarbled, UpstreamTimeout
from sluicegate.server.dialing import Origin
from sluicegate.server.targets import Target
from sluicegate.server.upstream import UpstreamConnection
from sluicegate.server.upstream_pool import UpstreamPool
from sluicegate.wire import json_edit
from sluicegate.wire.upstream_errors import from_response

CALL_S = 10.0
"""The longest that one question may take."""
MAX_BYTES = 268_435_456


class _Sink:
    """Gathers one answer."""

    def __init__(self) -> None:
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._bytes = 0

    def head_received(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.headers = dict(headers)

    def body_received(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes <= MAX_BYTES:
            self._pieces.append(data)

    def read_done(self) -> None:
        """Nothing leaves before all is here."""

    def body_completed(self) -> None:
        if not self.done.done():
            self.done.set_result(b"".join(self._pieces).strip())

    def failed(self, error: UpstreamError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _LineSink(_Sink):
    """Gives lines as they come, and holds the provider back while nobody takes them."""

    def __init__(self, connection: UpstreamConnection, max_line_bytes: int) -> None:
        super().__init__()
        self.lines: list[bytes] = []
        self.news = asyncio.Event()
        self._connection = connection
        self._most = max_line_bytes
        self._rest = b""

    def body_received(self, data: bytes) -> None:
        if self.status != 200:
            super().body_received(data)
            return
        *whole, self._rest = (self._rest + data).split(b"\n")
        self.lines += whole
        if len(self._rest) > self._most:
            self.failed(UpstreamGarbled("A line of the provider's file is too long."))
            self._connection.abort()

    def read_done(self) -> None:
        self.news.set()
        if self.lines and not self.done.done():
            self._connection.pause_reading()

    def body_completed(self) -> None:
        if self._rest:
            self.lines.append(self._rest)
        super().body_completed()
        self.news.set()

    def failed(self, error: UpstreamError) -> None:
        super().failed(error)
        self.news.set()


async def read_lines(
    pool: UpstreamPool, target: Target, suffix: str, max_line_bytes: int
) -> AsyncIterator[bytes]:
    """Give a file that a provider keeps line by line, empty ones left out.

    Args:
        max_line_bytes: a longer line ends it.
    Raises:
        StateUnknown: it keeps none.
        UpstreamError: it did not answer in time, or not well; lines may have been given by then.
    """
    connection = pool.take(target.origin) or await pool.connect(target.origin, CALL_S)
    sink = _LineSink(connection, max_line_bytes)
    connection.send(target.kept_head("GET", suffix, ""), b"", sink)
    try:
        ended = False
        while not ended:
            async with asyncio.timeout(CALL_S):
                await sink.news.wait()
            sink.news.clear()
            ended = sink.done.done()
            lines, sink.lines = sink.lines, []
            for line in lines:
                if line.strip():
                    yield line
                    await asyncio.sleep(0)
            if not sink.done.done():
                connection.resume_reading()
    except TimeoutError:
        raise UpstreamError("The provider did not answer in time.") from None
    finally:
        if not sink.done.done():
            connection.abort()
            sink.done.cancel()
    body = await sink.done
    if sink.status == 404:
        raise StateUnknown("The provider keeps no such file.")
    if sink.status != 200:
        raise from_response(sink.status, sink.headers, body, target.provider.api_keys)


async def call(
    pool: UpstreamPool, origin: Origin, head: bytes, body: bytes, timeout_s: float
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Make one call that is answered at once; return status, headers by their lower-case names, and body.

    Raises:
        UpstreamError: no connection, no whole answer, or neither in time.
    """
    sink = _Sink()
    try:
        async with asyncio.timeout(timeout_s):
            connection = pool.take(origin) or await pool.connect(origin, timeout_s)
            try:
                connection.send(head, body, sink)
                answer = await sink.done
            finally:
                if not sink.done.done() or sink.done.cancelled():
                    connection.abort()
    except TimeoutError:
        raise UpstreamTimeout("The provider did not answer in time.", "response") from None
    return sink.status, sink.headers, answer


async def ask(
    pool: UpstreamPool,
    target: Target,
    method: str,
    suffix: str,
    query: str = "",
    *,
    body: bytes = b"",
    timeout_s: float = CALL_S,
) -> bytes:
    """Ask a provider about what it keeps; return the JSON object that it tells.

    Args:
        body: JSON.
    Raises:
        StateUnknown: it keeps none.
        UpstreamError: it did not answer in time, or not well.
    """
    head = target.kept_head(method, suffix, query, len(body))
    status, headers, answer = await call(pool, target.origin, head, body, timeout_s)
    if status == 404:
        raise StateUnknown("The provider keeps no such answer.")
    if status != 200:
        raise from_response(status, headers, answer, target.provider.api_keys)
    if not (answer.startswith(b"{") and json_edit.is_json(answer)):
        raise UpstreamGarbled("The provider's answer is no JSON object.")
    return answer
