"""One attempt's answer on its way: bytes from the provider through a codec to the client, in protocol callbacks.

Here is what all answers share; `stream_relay` and `plain_relay` have what each kind does with its bytes. No task runs
while a stream does. A relay decides nothing about money or other attempts: it says, once and through `done`, how its
answer ended, and the request's task goes on from there. What would complete an answer never leaves from here; the task
sends it after settlement. Clocks, keep-alives and the short hold of a finish are the worker's sweeps (`deadlines`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Literal, Protocol

from sluicegate.errors import (
    DecodeError,
    SluicegateError,
    StreamCut,
    UpstreamError,
    UpstreamGarbled,
    UpstreamTimeout,
)
from sluicegate.messages import Usage
from sluicegate.routing.catalog import StreamClocks
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.exchange import Exchange
from sluicegate.server.upstream import BodyFeeder, Header, UpstreamConnection
from sluicegate.wire.upstream_errors import from_response

END_GRACE_S: Final = 1.0
"""How long the body of a complete answer may stay open before its connection is given up."""
BODY_LOOK_S = 0.5
"""How often it is looked whether a request's body has passed, once an answer would be late without that."""
MAX_ERROR_BYTES: Final = 65_536
"""What is read of an answer that is not a success."""
MAX_ANSWER_BYTES: Final = 268_435_456
"""The longest answer that is gathered whole."""
NEVER: Final = float("inf")
NO_HEADERS: Final[list[Header]] = []

Ending = Literal["complete", "failed", "gone", "stopped"]
"""How an attempt ended: whole; by an error; the client left; we stopped it."""


class AttemptNotes(Protocol):
    """What a relay tells the request while it runs."""

    def headed(self) -> None:
        """The provider has answered with success."""
        ...

    def begun(self) -> None:
        """The first content is here: nothing can be tried again."""
        ...

    def head_lines(self) -> bytes:
        """Return the header lines of the client's streamed answer."""
        ...

    def usage_came(self, usage: Usage | None) -> None:
        """The provider has told totals, which account for all that it sent until now."""
        ...

    def finish_leaves(self) -> None:
        """The finish leaves before usage has come: journal a checkpoint. Raises StoreUnavailable."""
        ...


class Relay(ABC):
    """What every attempt shares: the provider's head, its errors, the clocks, the ending."""

    __slots__ = (
        "_body_begun",
        "_body_ended",
        "_clocks",
        "_connection",
        "_deadlines",
        "_drain_cap_s",
        "_error_body",
        "_error_bytes",
        "_exchange",
        "_feeder",
        "_last_byte_at",
        "_loop",
        "_notes",
        "_paused",
        "_secrets",
        "_started_at",
        "_total_due_at",
        "_unsent",
        "_waiter",
        "due_at",
        "ending",
        "error",
        "on_end",
        "status",
        "upstream_headers",
    )

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
    ) -> None:
        """Prepare an attempt.

        Args:
            total_due_at: loop time by which the whole request must have ended.
            secrets: our keys at the provider, which no error may tell.
            drain_cap_s: how long the provider may finish after the client left; None: it is cut off at once.
        """
        self._loop = deadlines.loop
        self.ending: Ending | None = None
        """How it has ended; None while it runs."""
        self.error: SluicegateError | None = None
        self.on_end: Callable[[], object] | None = None
        """Called once when it ends, in the middle of whatever ended it; set by who does not wait for `done`."""
        self._waiter: asyncio.Future[Ending] | None = None
        self.due_at = NEVER
        self.status = 0
        self.upstream_headers: list[Header] = NO_HEADERS
        """As they came, names in lower case; empty again once content has left."""
        self._exchange = exchange
        self._notes = notes
        self._deadlines = deadlines
        self._clocks = clocks
        self._secrets = secrets
        self._drain_cap_s = drain_cap_s
        self._total_due_at = total_due_at
        self._connection: UpstreamConnection | None = None
        self._feeder: BodyFeeder | None = None
        """What gives the request's body, as long as its provider may not have all of it."""
        self._started_at = 0.0
        self._last_byte_at = 0.0
        self._body_begun = False
        self._body_ended = False
        self._paused = False
        self._error_body: list[bytes] = []
        self._error_bytes = 0
        self._unsent: tuple[bytes, bytes] | None = None
        """Head and body of a request that is held back."""

    def begin(
        self,
        connection: UpstreamConnection,
        head: bytes,
        body: bytes,
        feeder: BodyFeeder | None = None,
        shared: bool = False,
        held: bool = False,
    ) -> None:
        """Send the request. Who begins waits for `done`, and calls `leave` whatever comes of that.

        Args:
            feeder: gives the rest of the body.
            shared: another attempt runs beside; who leads the two tells us of the client.
            held: it is sent by `send_held`, in this turn of the loop or the next.
        """
        self._connection = connection
        self._feeder = None if feeder is None or feeder.complete else feeder
        self._started_at = self._last_byte_at = self._loop.time()
        self.due_at = min(self._total_due_at, self._started_at + self._first_clock_s())
        exchange = self._exchange
        if not shared:
            self.attend()
        if exchange.gone:
            self.client_left()
        self._deadlines.add(self)
        if held:
            self._unsent = (head, body)
        elif self.ending is None:
            connection.send(head, body, self, feeder)
            if exchange.paused:
                self.pause()

    def send_held(self) -> None:
        """Send a request that was held back, unless the attempt has ended meanwhile."""
        unsent, self._unsent = self._unsent, None
        connection = self._connection
        if unsent is None or connection is None or self.ending is not None:
            return
        connection.send(unsent[0], unsent[1], self)
        if self._exchange.paused:
            self.pause()

    async def ended(self) -> Ending:
        """Wait until the answer has ended; return how. `error` says why it failed."""
        try:
            return await self.done
        finally:
            self.leave()

    def leave(self) -> None:
        """Look no more at the client, and see to the connection where the answer's body has not ended."""
        exchange = self._exchange
        self._deadlines.discard(self)
        if exchange.mover is self:
            exchange.mover = None
        if not self._body_ended:
            connection = self._connection
            assert connection is not None, "it has begun"
            if self.ending == "complete":
                self.due_at = self._loop.time() + END_GRACE_S
                if self._paused:
                    connection.resume_reading()
                self._deadlines.add_short(self)
            else:
                connection.abort()

    def attend(self) -> None:
        """Be the one that is told of the client."""
        self._exchange.mover = self

    def report_to(self, notes: AttemptNotes) -> None:
        """Tell another from now on."""
        self._notes = notes

    @property
    def done(self) -> asyncio.Future[Ending]:
        """What has the ending as its result."""
        waiter = self._waiter
        if waiter is None:
            waiter = self._waiter = self._loop.create_future()
            if self.ending is not None:
                waiter.set_result(self.ending)
        return waiter

    @property
    def started_at(self) -> float:
        """Loop time at which the request was sent."""
        return self._started_at

    @property
    def begun(self) -> bool:
        """Whether content has left for the client."""
        return False

    def stop(self, error: SluicegateError) -> None:
        """End the attempt from outside, with what the client is told."""
        self._finish("stopped", error)

    # ---- what the connection tells ----------------------------------------------------------------------------------

    def head_received(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Take the head of the provider's answer."""
        self.status = status
        self._last_byte_at = self._deadlines.now
        self.upstream_headers = headers
        if status == 200:
            coding = self.upstream_header(b"content-encoding")
            if coding is not None and coding.lower() != b"identity":
                self._finish("failed", UpstreamGarbled("The provider's answer is compressed."))
                return
            self._notes.headed()

    def upstream_header(self, name: bytes) -> bytes | None:
        """Return the value of a header of the provider's answer; of two alike the first counts."""
        for known, value in self.upstream_headers:
            if known == name:
                return value
        return None

    def body_received(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._last_byte_at = self._deadlines.now
        self._body_begun = True
        if self.ending is not None:
            return
        if self.status != 200:
            self._error_body.append(data)
            self._error_bytes += len(data)
            if self._error_bytes > MAX_ERROR_BYTES:
                self._judge_refusal()
            return
        try:
            self._take(data)
        except DecodeError as error:
            self._garbled(error)

    def read_done(self) -> None:
        """Send on what the read brought; an answer that is gathered whole has nothing to send yet."""
        return

    def body_completed(self) -> None:
        """Take the end of the body."""
        self._body_ended = True
        self._deadlines.discard_short(self)
        if self.ending is not None:
            return
        if self.status != 200:
            self._judge_refusal()
            return
        try:
            self._take_end()
        except DecodeError as error:
            self._cut(error)

    def failed(self, error: UpstreamError) -> None:
        """Take the end of the connection."""
        self._body_ended = True
        self._deadlines.discard_short(self)
        if self.ending is not None:
            return
        if self.status not in (0, 200):
            self._judge_refusal()
            return
        self._connection_failed(error)

    # ---- what each kind of answer does with it ----------------------------------------------------------------------

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """Take a piece of the body. Raises DecodeError."""

    @abstractmethod
    def _take_end(self) -> None:
        """Take the end of the body. Raises DecodeError."""

    @abstractmethod
    def _first_clock_s(self) -> float:
        """Return how long nothing has to happen after the request was sent, before the clocks are looked at."""

    def _connection_failed(self, error: UpstreamError) -> None:
        self._finish("failed", error)

    # ---- endings ----------------------------------------------------------------------------------------------------

    def _judge_refusal(self) -> None:
        body = b"".join(self._error_body)[:MAX_ERROR_BYTES]
        headers = dict(reversed(self.upstream_headers))
        self._finish("failed", from_response(self.status, headers, body, self._secrets))

    def _garbled(self, error: DecodeError) -> None:
        self._finish("failed", UpstreamGarbled(f"The provider's answer broke its format: {error.reason}."))

    def _cut(self, error: DecodeError) -> None:
        self._finish("failed", StreamCut(f"The provider's answer was cut: {error.reason}."))

    def _finish(self, ending: Ending, error: SluicegateError | None = None) -> None:
        if self.ending is not None:
            return
        self.error = error
        self.ending = ending
        waiter, on_end = self._waiter, self.on_end
        if waiter is not None and not waiter.done():
            waiter.set_result(ending)
        if on_end is not None:
            self.on_end = None
            on_end()

    def client_left(self) -> None:
        """End the attempt, or let the provider finish where that is what we promised."""
        if self._drain_cap_s is None or not self._connection:
            self._finish("gone")
            if self._connection is not None and not self._body_ended:
                self._body_ended = True
                self._connection.abort()
        else:
            self._total_due_at = min(self._total_due_at, self._loop.time() + self._drain_cap_s)
            self.due_at = min(self.due_at, self._total_due_at)
            self.resume()

    # ---- back-pressure and clocks -----------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading: the client does not take what we have."""
        if self._connection is not None and not (self._paused or self._body_ended or self._exchange.gone):
            self._paused = True
            self._connection.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._connection is not None and self._paused:
            self._paused = False
            self._last_byte_at = self._loop.time()
            if not self._body_ended:  # else the connection is back in the pool
                self._connection.resume_reading()

    def expire(self, now: float) -> None:
        """Act on whichever clock has run out, and set the next."""
        if self.ending is not None:
            if not self._body_ended and self._connection is not None and now >= self.due_at:
                self._body_ended = True
                self._deadlines.discard_short(self)
                self._connection.abort()
            return
        if now >= self._total_due_at:
            self._finish("failed", UpstreamTimeout("The request took longer than its total time.", "total"))
            return
        if self._feeder is not None and not self._body_begun:
            self._wait_for_body(now, self._feeder)
            return
        self.due_at = min(self._total_due_at, self._expire(now))

    def _wait_for_body(self, now: float, feeder: BodyFeeder) -> None:
        """Begin the answer's clocks when the request's body has passed: until then the client is waited for."""
        if not feeder.complete:
            self.due_at = min(self._total_due_at, now + BODY_LOOK_S)
            return
        self._feeder = None
        self._started_at = self._last_byte_at = now
        self.due_at = min(self._total_due_at, now + self._first_clock_s())

    @abstractmethod
    def _expire(self, now: float) -> float:
        """Act on the clocks of this kind of answer; return when to look again."""
