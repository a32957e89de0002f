"""Short questions to a provider about what it keeps, without a client's request behind them.

Source: wire formats page `responses.md`, "State".
"""

import asyncio

from sluicegate.errors import StateUnknown, UpstreamError, UpstreamGarbled
from sluicegate.server.targets import Target
from sluicegate.server.upstream import UpstreamPool
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


async def ask(
    pool: UpstreamPool,
    target: Target,
    method: str,
    suffix: str,
    query: str = "",
    *,
    timeout_s: float = CALL_S,
) -> bytes:
    """Ask a provider about an answer that it keeps; return the JSON object that it tells.

    Raises:
        StateUnknown: it keeps none.
        UpstreamError: it did not answer in time, or not well.
    """
    sink = _Sink()
    try:
        async with asyncio.timeout(timeout_s):
            connection = pool.take(target.origin) or await pool.connect(target.origin, timeout_s)
            try:
                connection.send(target.kept_head(method, suffix, query), b"", sink)
                body = await sink.done
            finally:
                if not sink.done.done() or sink.done.cancelled():
                    connection.abort()
    except TimeoutError:
        raise UpstreamError("The provider did not answer in time.") from None
    if sink.status == 404:
        raise StateUnknown("The provider keeps no such answer.")
    if sink.status != 200:
        raise from_response(sink.status, sink.headers, body, target.provider.api_keys)
    if not (body.startswith(b"{") and json_edit.is_json(body)):
        raise UpstreamGarbled("The provider's answer is no JSON object.")
    return body
