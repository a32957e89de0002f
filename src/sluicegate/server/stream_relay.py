"""A streamed answer on its way: what waits for content, what waits at the end, and what breaks a silence.

`relay` has what it shares with a plain one.
"""

from collections.abc import Callable

from sluicegate.errors import (
    DecodeError,
    SluicegateError,
    StoreUnavailable,
    StreamCut,
    UpstreamError,
    UpstreamTimeout,
)
from sluicegate.messages import Usage
from sluicegate.routing.catalog import StreamClocks
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.exchange import Exchange
from sluicegate.server.relay import MAX_ANSWER_BYTES, NEVER, NO_HEADERS, AttemptNotes, Ending, Relay
from sluicegate.wire import StreamCodec
from sluicegate.wire.sse import BOM
from sluicegate.wire.upstream_errors import from_stream_error

HOLD_S = 0.25
"""How long a finish waits for the event after it."""
MAX_START_BYTES = 65_536
"""Start-up events beyond this leave, and the stream counts as begun."""


class StreamRelay(Relay):
    """A streamed answer."""

    __slots__ = (
        "_beginning",
        "_begun",
        "_finish_held_at",
        "_finish_left_at",
        "_first_token_due_at",
        "_flows",
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
        self._keepalive_after_s = NEVER if passes_bytes else keepalive_after_s
        self._passes_bytes = passes_bytes
        self._keepalive_every_s = keepalive_every_s
        self._begun = False
        self._sniffed = False
        self._flows = False
        """All that comes is the codec's: it is known to be a stream, and has not ended."""
        self._whole: list[bytes] | None = None
        """Pieces of an answer that came as one JSON object instead of a stream."""
        self._beginning = b""
        self._finish_held_at = NEVER
        self._finish_left_at = NEVER
        self._sent_at = self._loop.time()
        self._first_token_due_at = NEVER
        self._usage: Usage | None = None
        self._produced = produced
        self._paced_at = NEVER
        self._paced_tokens = 0

    @property
    def begun(self) -> bool:
        """Whether content has left for the client."""
        return self._begun

    def _first_clock_s(self) -> float:
        self._first_token_due_at = self._started_at + self._clocks.first_token_timeout_s
        self._sent_at = max(self._sent_at, self._started_at) if not self._exchange.answered else self._sent_at
        clocks = self._clocks
        return min(clocks.first_token_timeout_s, clocks.idle_timeout_s, self._keepalive_after_s)

    def follow(self) -> None:
        """Stand behind another call of an answer that has begun: silence is that of a stream that runs."""
        self._body_begun = True

    def body_received(self, data: bytes) -> None:
        """Take a piece of the body."""
        if self._flows:
            self._last_byte_at = self._deadlines.now
            try:
                self.codec.feed(data)
            except DecodeError as error:
                self._garbled(error)
        else:
            super().body_received(data)

    def _take(self, data: bytes) -> None:
        if self._whole is not None:
            self._keep_whole(data)
            return
        kind = (self.upstream_header(b"content-type") or b"").lower()
        if self._passes_bytes and kind.startswith(b"text/"):
            raise DecodeError("http", None, "a text instead of sound")
        if self._passes_bytes and b"json" not in kind.partition(b";")[0]:
            self._sniffed = True
            if self._connection is not None:
                self._connection.read_piecemeal()
            self._exchange.write_piecemeal()
            self._flows = True
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
            self._flows = True
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
            if self._passes_bytes and self._connection is not None:
                self._connection.read_at_once()
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
        codec = self.codec
        if (
            self._flows
            and self._begun
            and codec.usage is self._usage
            and not (codec.ended or codec.held or codec.finishing)
            and codec.error is None
        ):  # nearly all reads: more of a stream that runs
            out = codec.out
            if out:
                self._sent_at = self._deadlines.now
                self._exchange.write(out.pop() if len(out) == 1 else b"".join(out))
                out.clear()
            return
        if self.ending is not None:
            return
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
                if self._finish_held_at == NEVER or codec.out:  # held anew behind what is going out
                    self._finish_held_at = self._loop.time()
                    self.due_at = self._finish_held_at + self._hold_s()
                    self._deadlines.add_short(self)
            if codec.out:
                self._put_out()

    def _finish(self, ending: Ending, error: SluicegateError | None = None) -> None:
        self._flows = False
        super()._finish(ending, error)

    def hand_on(self) -> None:
        """Send on what the call that has ended brought: another one follows it."""
        self._put_out()

    def _begin(self) -> None:
        self._begun = True
        self.upstream_headers = NO_HEADERS  # they have been judged, and streams may be many
        self._notes.begun()
        if self._produced is not None:
            now = self._loop.time()  # the sweep's own time may lag by a good part of a short window
            self._pace_anew(now)
            self.due_at = min(self.due_at, now + self._clocks.min_tokens_window_s)

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
                return NEVER
            codec.release()
            self._finish_held_at = NEVER
            self._put_out()
        else:
            self._finish_held_at = NEVER
        if self._finish_left_at + clocks.usage_wait_s <= now:
            self._finish("complete")
            return NEVER
        if not codec.content and now >= self._first_token_due_at:
            self._finish("failed", UpstreamTimeout("The provider produced nothing in time.", "first_token"))
            return NEVER
        idle_due_at = (
            self._last_byte_at + clocks.idle_timeout_s if self._body_begun and not self._paused else NEVER
        )
        if now >= idle_due_at:
            self._finish("failed", UpstreamTimeout("The provider stopped sending.", "idle"))
            return NEVER
        paced_due_at = NEVER if self._produced is None or not self._begun else self._keep_pace(now)
        return min(
            self._keep_alive(now),
            idle_due_at,
            paced_due_at,
            NEVER if codec.content else self._first_token_due_at,
            self._finish_left_at + clocks.usage_wait_s,
        )

    def _pace_anew(self, now: float) -> None:
        assert self._produced is not None, "only such streams have a pace"
        self._paced_at, self._paced_tokens = now, self._produced()

    def _keep_pace(self, now: float) -> float:
        """End a stream that was too slow since it was last looked at; return when to look again."""
        window_s = self._clocks.min_tokens_window_s
        if self._paused or self._finish_left_at != NEVER:  # not the provider's to hurry
            self._pace_anew(now)
        elif now >= self._paced_at + window_s:
            before, since_s = self._paced_tokens, now - self._paced_at
            self._pace_anew(now)
            if self._paced_tokens - before < self._clocks.min_tokens_per_s * since_s:
                self._finish("failed", UpstreamTimeout("The provider sent too slowly.", "rate"))
                return NEVER
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
