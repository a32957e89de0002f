"""A file of a provider's on its way to a client: bytes as they come, whole or a range, with back-pressure both ways.

Source: RFC 9110 (14 range requests, 15.3.7 partial content, 15.5.17 range not satisfiable).
"""

import asyncio

from sluicegate.errors import (
    RangeUnsatisfiable,
    SluicegateError,
    StateUnknown,
    UpstreamError,
    UpstreamTimeout,
)
from sluicegate.routing.catalog import StreamClocks
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.exchange import Exchange
from sluicegate.server.targets import Target
from sluicegate.server.upstream import UpstreamConnection
from sluicegate.server.upstream_pool import UpstreamPool
from sluicegate.wire.upstream_errors import from_response

_PASSED = (
    b"content-type", b"content-range", b"accept-ranges", b"content-disposition", b"etag", b"last-modified",
)  # fmt: skip
_ASKED = (b"range", b"if-range", b"accept")
MAX_ERROR_BYTES = 65_536
_NEVER = float("inf")


class Download:
    """One answer (`ResponseSink`), from the provider's head to the client's last byte."""

    def __init__(
        self, exchange: Exchange, target: Target, deadlines: Deadlines, clocks: StreamClocks, lines: bytes
    ) -> None:
        """Prepare it.

        Args:
            lines: ready header lines of the client's answer.
        """
        self.done: asyncio.Future[SluicegateError | None] = asyncio.get_running_loop().create_future()
        self.due_at = _NEVER
        self._exchange = exchange
        self._target = target
        self._deadlines = deadlines
        self._clocks = clocks
        self._lines = lines
        self._connection: UpstreamConnection | None = None
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._error_body = b""
        self._paused = False

    async def run(self, pool: UpstreamPool, suffix: str, query: str) -> None:
        """Ask for the file and pass it on; return when it has ended, or the client has gone.

        Args:
            suffix: follows the endpoint's path.
        Raises:
            StateUnknown: there is no such file.
            RangeUnsatisfiable: nothing of it lies in the range.
            UpstreamError: the provider failed; where the answer had begun, it is cut.
        """
        exchange = self._exchange
        timeout_s = self._clocks.connect_timeout_s
        connection = pool.take(self._target.origin) or await pool.connect(self._target.origin, timeout_s)
        if exchange.gone:
            connection.abort()
            return
        self._connection = connection
        exchange.mover = self
        self.due_at = self._deadlines.now + self._clocks.first_token_timeout_s
        self._deadlines.add(self)
        asked = b"".join(
            b"%b: %b\r\n" % (name, value) for name in _ASKED if (value := exchange.header(name)) is not None
        )
        head = self._target.kept_head("GET", suffix, query).replace(b"\r\n\r\n", b"\r\n" + asked + b"\r\n", 1)
        if b"accept: " in asked:
            head = head.replace(b"accept: application/json\r\n", b"", 1)
        try:
            connection.send(head, b"", self)
            error = await self.done
        except asyncio.CancelledError:
            connection.abort()
            raise
        finally:
            self._deadlines.discard(self)
        if error is not None:
            if exchange.answered:
                exchange.cut()
            raise error

    # ---- what the connection tells ----------------------------------------------------------------------------------

    def head_received(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Begin the client's answer, where the provider has the file."""
        self._status = status
        self._headers = dict(headers)
        self._touch()
        if status not in (200, 206):
            return
        lines = self._lines + b"".join(
            b"%b: %b\r\n" % (name, self._headers[name]) for name in _PASSED if name in self._headers
        )
        if self._connection is not None:
            self._connection.read_piecemeal()
        self._exchange.write_piecemeal()
        size = self._headers.get(b"content-length", b"")
        if size.isdigit():
            self._exchange.start_sized(status, lines, int(size))
        else:
            self._exchange.start(status, lines)

    def body_received(self, data: bytes) -> None:
        """Pass a piece on."""
        self._touch()
        if self.done.done():
            return
        if self._status in (200, 206):
            self._exchange.write(data)
        elif len(self._error_body) < MAX_ERROR_BYTES:
            self._error_body += data

    def read_done(self) -> None:
        """Do nothing: pieces have left."""

    def body_completed(self) -> None:
        """End the client's answer, or say what was wrong."""
        if self.done.done():
            return
        if self._status in (200, 206):
            if self._connection is not None:
                self._connection.read_at_once()
            self._exchange.end()
            self.done.set_result(None)
        elif self._status == 404:
            self.done.set_result(StateUnknown("There is no such file, or not any more.", param="id"))
        elif self._status == 416:
            self.done.set_result(RangeUnsatisfiable("The file has nothing in this range.", param="Range"))
        else:
            secrets = self._target.provider.api_keys
            self.done.set_result(from_response(self._status, self._headers, self._error_body, secrets))

    def failed(self, error: UpstreamError) -> None:
        """Take the end of the connection."""
        self._end(error)

    # ---- the client, and the clock ----------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Give up a provider that has fallen silent."""
        if self._paused:
            self.due_at = now + self._clocks.idle_timeout_s
        else:
            self._end(UpstreamTimeout("The provider stopped sending.", "idle"))

    def _touch(self) -> None:
        self.due_at = self._deadlines.now + self._clocks.idle_timeout_s

    def client_left(self) -> None:
        """End: nobody takes it. See `exchange.Mover`."""
        self._end(None)

    def _end(self, error: UpstreamError | None) -> None:
        if not self.done.done():
            self.done.set_result(error)
            if self._connection is not None:
                self._connection.abort()

    def pause(self) -> None:
        """Stop reading: the client does not take what we have."""
        if self._connection is not None and not self.done.done():
            self._paused = True
            self._connection.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._connection is not None and self._paused:
            self._paused = False
            self._touch()
            if not self.done.done():
                self._connection.resume_reading()
