"""An answer that is not streamed: gathered whole, under one clock. `relay` has what it shares with a streamed one."""

from sluicegate.errors import DecodeError, UpstreamTimeout
from sluicegate.routing.catalog import StreamClocks
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.exchange import Exchange
from sluicegate.server.relay import MAX_ANSWER_BYTES, NEVER, AttemptNotes, Relay


class PlainRelay(Relay):
    """An answer that is not streamed: gathered whole."""

    __slots__ = ("_bytes", "_keepalive_due_at", "_keepalive_every_s", "_pieces")

    def __init__(
        self,
        exchange: Exchange,
        notes: AttemptNotes,
        deadlines: Deadlines,
        clocks: StreamClocks,
        *,
        total_due_at: float,
        secrets: tuple[str, ...],
        drain_cap_s: float | None,
        keepalive_every_s: float | None = None,
    ) -> None:
        """Prepare an attempt.

        Args:
            keepalive_every_s: how often an answer that is late gets a line feed; None: never, as it is no JSON.
        """
        super().__init__(
            exchange,
            notes,
            deadlines,
            clocks,
            total_due_at=total_due_at,
            secrets=secrets,
            drain_cap_s=drain_cap_s,
        )
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._keepalive_every_s = keepalive_every_s
        self._keepalive_due_at = NEVER

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self._pieces)

    def _first_clock_s(self) -> float:
        every_s, exchange = self._keepalive_every_s, self._exchange
        if every_s is not None:
            silent_until = exchange.received_at + self._clocks.plain_keepalive_s
            self._keepalive_due_at = self._started_at + every_s if exchange.answered else silent_until
        return min(self._clocks.response_timeout_s, self._keepalive_due_at - self._started_at)

    def _take(self, data: bytes) -> None:
        self._pieces.append(data)
        self._bytes += len(data)
        if self._bytes > MAX_ANSWER_BYTES:
            raise DecodeError("http", None, "the answer is too long")

    def _take_end(self) -> None:
        if not self.body.strip():
            raise DecodeError("http", None, "the answer is empty")
        self._finish("complete")

    def _expire(self, now: float) -> float:
        due_at = self._started_at + self._clocks.response_timeout_s
        if now >= due_at:
            self._finish("failed", UpstreamTimeout("The provider did not answer in time.", "response"))
            return due_at
        if now >= self._keepalive_due_at:
            self._keep_alive(now)
        return min(due_at, self._keepalive_due_at)

    def _keep_alive(self, now: float) -> None:
        """Have the client wait on: Node gives up after five minutes of silence. The status is fixed by that."""
        assert self._keepalive_every_s is not None, "else it is never due"
        self._keepalive_due_at = now + self._keepalive_every_s
        exchange = self._exchange
        if exchange.gone:
            return
        if exchange.answered:
            exchange.write(b"\n")
        else:
            exchange.start(200, self._notes.head_lines(), b"\n")
