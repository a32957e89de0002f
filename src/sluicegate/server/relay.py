"""One attempt's answer on its way: bytes from the provider through a codec to the client, in protocol callbacks.

No task runs while a stream does. A relay decides nothing about money or other attempts: it says, once and through
`done`, how its answer ended, and the request's task goes on from there. What would complete an answer never leaves
from here; the task sends it after settlement. Clocks, keep-alives and the short hold of a finish are the worker's
sweeps (`deadlines`).
"""

import asyncio
from collections.abc import Callable
from typing import Literal, Protocol

from sluicegate.errors import (
    DecodeError,
    SluicegateError,
    StoreUnavailable,
    StreamCut,
    UpstreamError,
    UpstreamGarbled,
    UpstreamTimeout,
)
from sluicegate.messages import Usage
from sluicegate.routing.catalog import StreamClocks
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.exchange import Exchange
from sluicegate.server.upstream import BodyFeeder, UpstreamConnection
from sluicegate.wire import StreamCodec
from sluicegate.wire.sse import BOM
from sluicegate.wire.upstream_errors import from_response, from_stream_error

HOLD_S = 0.25
"""How long a finish waits for the event after it."""
END_GRACE_S = 1.0
"""How long the body of a complete answer may stay open before its connection is given up."""
MAX_START_BYTES = 65_536
"""Start-up events beyond this leave, and the stream counts as begun."""
MAX_ERROR_BYTES = 65_536
MAX_ANSWER_BYTES = 268_435_456
_NEVER = float("inf")
_NO_HEADERS: dict[bytes, bytes] = {}

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


class Relay:
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
        "_last_byte_at",
        "_loop",
        "_notes",
        "_paused",
        "_secrets",
        "_started_at",
        "_total_due_at",
        "done",
        "due_at",
        "error",
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
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Ending] = loop.create_future()
        self.error: SluicegateError | None = None
        self.due_at = _NEVER
        self.status = 0
        self.upstream_headers: dict[bytes, bytes] = {}
        self._exchange = exchange
        self._notes = notes
        self._deadlines = deadlines
        self._clocks = clocks
        self._secrets = secrets
        self._drain_cap_s = drain_cap_s
        self._loop = loop
        self._total_due_at = total_due_at
        self._connection: UpstreamConnection | None = None
        self._started_at = 0.0
        self._last_byte_at = 0.0
        self._body_begun = False
        self._body_ended = False
        self._paused = False
        self._error_body: list[bytes] = []
        self._error_bytes = 0

    async def run(
        self,
        connection: UpstreamConnection,
        head: bytes,
        body: bytes,
        *,
        feeder: BodyFeeder | None = None,
        shared: bool = False,
    ) -> Ending:
        """Send the request and return how its answer ended; `error` says why it failed.

        Args:
            feeder: gives the rest of the body.
            shared: another attempt runs beside; who leads the two tells us of the client.
        """
        self._connection = connection
        self._started_at = self._last_byte_at = self._loop.time()
        self.due_at = min(self._total_due_at, self._started_at + self._first_clock_s())
        exchange = self._exchange
        if not shared:
            self.attend()
        if exchange.gone:
            self.client_left()
        self._deadlines.add(self)
        if not self.done.done():
            connection.send(head, body, self, feeder)
            del head, body  # this frame lives as long as the stream
            if exchange.paused:
                self.pause()
        try:
            return await self.done
        finally:
            self._deadlines.discard(self)
            if exchange.on_gone == self.client_left:
                exchange.on_gone = exchange.on_pause = exchange.on_resume = None
            if not self._body_ended:
                if self.done.done() and not self.done.cancelled() and self.done.result() == "complete":
                    self.due_at = self._loop.time() + END_GRACE_S
                    if self._paused:
                        connection.resume_reading()
                    self._deadlines.add_short(self)
                else:
                    connection.abort()

    def attend(self) -> None:
        """Be the one that is told of the client."""
        exchange = self._exchange
        exchange.on_gone = self.client_left
        exchange.on_pause = self.pause
        exchange.on_resume = self.resume

    def report_to(self, notes: AttemptNotes) -> None:
        """Tell another from now on."""
        self._notes = notes

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
        for name, value in headers:
            self.upstream_headers.setdefault(name, value)
        if status == 200:
            coding = self.upstream_headers.get(b"content-encoding", b"identity")
            if coding.lower() != b"identity":
                self._finish("failed", UpstreamGarbled("The provider's answer is compressed."))
                return
            self._notes.headed()

    def body_received(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._last_byte_at = self._deadlines.now
        self._body_begun = True
        if self.done.done():
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
        """Send on what the read brought."""

    def body_completed(self) -> None:
        """Take the end of the body."""
        self._body_ended = True
        self._deadlines.discard_short(self)
        if self.done.done():
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
        if self.done.done():
            return
        if self.status not in (0, 200):
            self._judge_refusal()
            return
        self._connection_failed(error)

    # ---- what each kind of answer does with it ----------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        raise NotImplementedError

    def _take_end(self) -> None:
        raise NotImplementedError

    def _first_clock_s(self) -> float:
        raise NotImplementedError

    def _connection_failed(self, error: UpstreamError) -> None:
        self._finish("failed", error)

    # ---- endings ----------------------------------------------------------------------------------------------------

    def _judge_refusal(self) -> None:
        body = b"".join(self._error_body)[:MAX_ERROR_BYTES]
        self._finish("failed", from_response(self.status, self.upstream_headers, body, self._secrets))

    def _garbled(self, error: DecodeError) -> None:
        self._finish("failed", UpstreamGarbled(f"The provider's answer broke its format: {error.reason}."))

    def _cut(self, error: DecodeError) -> None:
        self._finish("failed", StreamCut(f"The provider's answer was cut: {error.reason}."))

    def _finish(self, ending: Ending, error: SluicegateError | None = None) -> None:
        if not self.done.done():
            self.error = error
            self.done.set_result(ending)

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
        if self.done.done():
            if not self._body_ended and self._connection is not None and now >= self.due_at:
                self._body_ended = True
                self._deadlines.discard_short(self)
                self._connection.abort()
            return
        if now >= self._total_due_at:
            self._finish("failed", UpstreamTimeout("The request took longer than its total time.", "total"))
            return
        self.due_at = min(self._total_due_at, self._expire(now))

    def _expire(self, now: float) -> float:
        """Act on the clocks of this kind of answer; return when to look again."""
        raise NotImplementedError


class StreamRelay(Relay):
    """A streamed answer."""

    __slots__ = (
        "_beginning",
        "_begun",
        "_finish_held_at",
        "_finish_left_at",
        "_first_token_due_at",
        "_keepalive",
        "_keepalive_after_s",
        "_keepalive_every_s",
        "_paced_at",
        "_paced_tokens",
        "_passes_bytes",
        "_produced",
        "_reads_arrays",
        "_sent_at",
        "_sniffed",
        "_usage",
        "_whole",
        "codec",
    )

    def __init__(
        self,
        exchange: Exchange,
        codec: StreamCodec,
        notes: AttemptNotes,
        deadlines: Deadlines,
        clocks: StreamClocks,
        *,
        total_due_at: float,
        secrets: tuple[str, ...],
        drain_cap_s: float | None,
        keepalive: bytes,
        keepalive_after_s: float,
        keepalive_every_s: float,
        reads_arrays: bool = False,
        passes_bytes: bool = False,
        produced: Callable[[], int] | None = None,
    ) -> None:
        """Prepare an attempt.

        Args:
            keepalive: the bytes that the client's SDK survives between events.
            produced: tells the output tokens so far, where the stream is held to a minimum rate.
            passes_bytes: what comes are no events, unless the provider calls it JSON; nothing may be sent between.
            reads_arrays: the provider's format may stream a JSON array instead of events.
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
        self.codec = codec
        self._reads_arrays = reads_arrays
        self._keepalive = keepalive
        self._keepalive_after_s = _NEVER if passes_bytes else keepalive_after_s
        self._passes_bytes = passes_bytes
        self._keepalive_every_s = keepalive_every_s
        self._begun = False
        self._sniffed = False
        self._whole: list[bytes] | None = None
        """Pieces of an answer that came as one JSON object instead of a stream."""
        self._beginning = b""
        self._finish_held_at = _NEVER
        self._finish_left_at = _NEVER
        self._sent_at = self._loop.time()
        self._first_token_due_at = _NEVER
        self._usage: Usage | None = None
        self._produced = produced
        self._paced_at = _NEVER
        self._paced_tokens = 0

    @property
    def begun(self) -> bool:
        """Whether content has left for the client."""
        return self._begun

    def _first_clock_s(self) -> float:
        self._first_token_due_at = self._started_at + self._clocks.first_token_timeout_s
        self._sent_at = max(self._sent_at, self._started_at) if not self._exchange.answered else self._sent_at
        return min(self._clocks.first_token_timeout_s, self._keepalive_after_s)

    def _take(self, data: bytes) -> None:
        if self._sniffed and self._whole is None:
            self.codec.feed(data)
            return
        if self._whole is not None:
            self._keep_whole(data)
            return
        kind = self.upstream_headers.get(b"content-type", b"").lower()
        if self._passes_bytes and not kind.startswith(b"application/json"):
            self._sniffed = True
            self.codec.feed(data)
            return
        data = self._beginning + data
        start = data.removeprefix(BOM).lstrip()[:8]
        if not start or (len(data) < 3 and BOM.startswith(data)):
            self._beginning = data if len(data) < 4 else data[-1:]
            return
        self._beginning = b""
        self._sniffed = True
        if (
            kind.startswith(b"text/event-stream")
            or not start.startswith((b"{", b"[", b"<"))
            or (self._reads_arrays and start.startswith(b"["))
        ):
            self.codec.feed(data)
        elif start.startswith(b"<"):
            raise DecodeError("http", None, "a page instead of a stream")
        else:
            self._whole = []
            self._keep_whole(data.removeprefix(BOM))

    def _keep_whole(self, data: bytes) -> None:
        assert self._whole is not None
        self._whole.append(data)
        self._error_bytes += len(data)
        if self._error_bytes > MAX_ANSWER_BYTES:
            raise DecodeError("http", None, "the answer is too long")

    def _take_end(self) -> None:
        if self._whole is not None:
            self.codec.feed_whole(b"".join(self._whole))
        elif not self._sniffed:
            raise DecodeError("http", None, "the answer is empty")
        else:
            self.codec.finish()
        self.read_done()

    def _connection_failed(self, error: UpstreamError) -> None:
        """A cut after the finish is an end: the marker is all that was missing."""
        if isinstance(error, StreamCut) and self._whole is None and self._sniffed and not self._passes_bytes:
            try:
                self.codec.finish()
            except DecodeError:
                pass
            else:
                self.read_done()
                return
        self._put_out()
        self._finish("failed", error)

    def read_done(self) -> None:
        """Send on what the read brought, in one write."""
        if self.done.done():
            return
        codec = self.codec
        if codec.usage is not self._usage:
            self._usage = codec.usage
            self._notes.usage_came(codec.usage)
        if codec.error is not None:
            self._put_out()
            self._finish("failed", from_stream_error(codec.error, self._secrets))
        elif codec.ended:
            if codec.content and not self._begun:
                self._begin()
            self._finish("complete")  # what is out but unsent leaves with the farewell
        else:
            if codec.held:
                codec.flush()
                if self._finish_held_at == _NEVER or codec.out:  # held anew behind what is going out
                    self._finish_held_at = self._loop.time()
                    self.due_at = self._finish_held_at + self._hold_s()
                    self._deadlines.add_short(self)
            if codec.out:
                self._put_out()

    def _begin(self) -> None:
        self._begun = True
        self.upstream_headers = _NO_HEADERS  # they have been judged, and streams may be many
        self._notes.begun()
        if self._produced is not None:
            self._pace_anew(self._deadlines.now)
            self.due_at = min(self.due_at, self._deadlines.now + self._clocks.min_tokens_window_s)

    def _put_out(self) -> None:
        """Write the events that are ready, once there is content among them."""
        codec = self.codec
        out = codec.out
        if not out:
            return
        if not self._begun:
            if not codec.content and sum(map(len, out)) <= MAX_START_BYTES:
                return
            self._begin()
            if not self._exchange.answered and not codec.finishing:
                data = b"".join(out)
                out.clear()
                self._sent_at = self._deadlines.now
                self._exchange.start(200, self._notes.head_lines(), data)
                return
        if codec.finishing:
            codec.finishing = False
            self._finish_left_at = self._loop.time()
            try:
                self._notes.finish_leaves()
            except StoreUnavailable as error:
                self._finish("failed", error)
                return
        self._sent_at = self._deadlines.now
        if not self._exchange.answered:
            self._exchange.start(200, self._notes.head_lines())
        if len(out) == 1:
            self._exchange.write(out.pop())
        else:
            self._exchange.write(b"".join(out))
            out.clear()

    def _garbled(self, error: DecodeError) -> None:
        self._put_out_begun()
        super()._garbled(error)

    def _cut(self, error: DecodeError) -> None:
        self._put_out_begun()
        super()._cut(error)

    def _put_out_begun(self) -> None:
        """Write what stands before the break: events that were told are counted, and numbered in some formats."""
        if self._begun and not self.codec.finishing:
            self._put_out()

    def _hold_s(self) -> float:
        return self._clocks.usage_wait_s if self.codec.joins_usage else HOLD_S

    def _expire(self, now: float) -> float:
        codec = self.codec
        clocks = self._clocks
        if codec.held:
            if now < self._finish_held_at + self._hold_s():
                return self._finish_held_at + self._hold_s()
            if codec.joins_usage:  # waited for usage long enough: it will be counted
                self._finish("complete")
                return _NEVER
            codec.release()
            self._finish_held_at = _NEVER
            self._put_out()
        else:
            self._finish_held_at = _NEVER
        if self._finish_left_at + clocks.usage_wait_s <= now:
            self._finish("complete")
            return _NEVER
        if not codec.content and now >= self._first_token_due_at:
            self._finish("failed", UpstreamTimeout("The provider produced nothing in time.", "first_token"))
            return _NEVER
        idle_due_at = (
            self._last_byte_at + clocks.idle_timeout_s if self._body_begun and not self._paused else _NEVER
        )
        if now >= idle_due_at:
            self._finish("failed", UpstreamTimeout("The provider stopped sending.", "idle"))
            return _NEVER
        paced_due_at = _NEVER if self._produced is None or not self._begun else self._keep_pace(now)
        return min(
            self._keep_alive(now),
            idle_due_at,
            paced_due_at,
            _NEVER if codec.content else self._first_token_due_at,
            self._finish_left_at + clocks.usage_wait_s,
        )

    def _pace_anew(self, now: float) -> None:
        assert self._produced is not None, "only such streams have a pace"
        self._paced_at, self._paced_tokens = now, self._produced()

    def _keep_pace(self, now: float) -> float:
        """End a stream that was too slow since it was last looked at; return when to look again."""
        window_s = self._clocks.min_tokens_window_s
        if self._paused or self._finish_left_at != _NEVER:  # not the provider's to hurry
            self._pace_anew(now)
        elif now >= self._paced_at + window_s:
            before, since_s = self._paced_tokens, now - self._paced_at
            self._pace_anew(now)
            if self._paced_tokens - before < self._clocks.min_tokens_per_s * since_s:
                self._finish("failed", UpstreamTimeout("The provider sent too slowly.", "rate"))
                return _NEVER
        return self._paced_at + window_s

    def resume(self) -> None:
        """Read on; the time in between was the client's."""
        if self._paused and self._produced is not None and self._begun:
            self._pace_anew(self._loop.time())
        super().resume()

    def _keep_alive(self, now: float) -> float:
        """Break a long silence with what the client's SDK survives; return when the next one is due."""
        wait_s = self._keepalive_every_s if self._exchange.answered else self._keepalive_after_s
        due_at = self._sent_at + wait_s
        if now < due_at or self._exchange.gone or self._paused:
            return max(due_at, now + 1.0)
        self._sent_at = now
        if self._exchange.answered:
            self._exchange.write(self._keepalive)
        else:
            self._exchange.start(200, self._notes.head_lines(), self._keepalive)
        return now + self._keepalive_every_s


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
        self._keepalive_due_at = _NEVER

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
