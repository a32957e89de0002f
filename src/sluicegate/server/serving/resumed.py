"""Calls of an attempt beyond its first: one for each further answer that was asked for, and those that resume an answer
which its provider pauses, for clients who would not.

All of them are one answer, one row and one charge; at limits they are one request of the client's, and as many of the
deployment's as there are calls. What each reads is held before it is made; where credit ends, so does the answer. A
call that fails is a failure of the attempt: of a stream that has begun it is one in mid-stream.
"""

import msgspec

from sluicegate.errors import DecodeError, InsufficientBalance, SluicegateError, StoreUnavailable
from sluicegate.routing.catalog import StreamClocks
from sluicegate.server.interpreter import Interpreter
from sluicegate.server.pausable_answer import PausableAnswer
from sluicegate.server.plain_relay import PlainRelay
from sluicegate.server.relay import Ending, Relay
from sluicegate.server.serving.hedged import HedgedRequest
from sluicegate.server.stream_relay import StreamRelay
from sluicegate.wire.request_edges import BYTES_PER_TOKEN

Went = tuple[Ending, SluicegateError | None, Relay]
"""How the last call ended."""


class ResumedRequest(HedgedRequest):
    """A request whose answer may take more calls than were foreseen."""

    __slots__ = ()

    async def _make_further_calls(self, relay: Relay) -> Went:
        """Make the calls that an attempt takes beyond its first, one after the other.

        Args:
            relay: of the first, which is complete.
        Raises:
            UpstreamError: no connection for one of them.
        """
        interpreter = self._interpreter
        went: Went = "complete", None, relay
        if interpreter.pausable is not None:
            went = await self._resume(relay, interpreter.pausable)
        if not interpreter.calls:
            return went
        provider, format = self._asked_of()
        target = self._plan.targets.get(provider.name, format, self._deployment.model)
        clocks = self._clocks(self._deployment)
        for body in interpreter.calls:
            ending, _, relay = went
            if ending != "complete":
                break
            if isinstance(relay, PlainRelay):
                interpreter.keep(relay.body)
            elif isinstance(relay, StreamRelay):
                relay.hand_on()
            connection = await self._connect(target, clocks)
            if connection is None:
                return ("gone" if self._stopping is None else "stopped"), self._stopping, relay
            part = interpreter.part_of(body)
            self._meter.ask_again(0, part)
            interpreter.next_answer()
            if self._codec is not None:
                self._codec.flush()  # whatever stands around it takes over where it is
            self._relay = relay = self._make_relay(format, provider, clocks, self._codec)
            # The output of all was estimated before the first.
            self._count_call(round(self._request.input_estimate * part))
            relay.begin(connection, self._head(format, provider, target, body), body)
            ending = await relay.ended()
            went = ending, relay.error, relay
            if ending == "complete" and interpreter.pausable is not None:
                went = await self._resume(relay, interpreter.pausable)
        return went

    async def _resume(self, relay: Relay, pausable: PausableAnswer) -> Went:
        """Make the calls that an answer takes which was paused.

        Args:
            relay: of the answer's first call, which is complete.
        Raises:
            UpstreamError: no connection for one of them.
        """
        provider, format = self._asked_of()
        target = self._plan.targets.get(provider.name, format, self._deployment.model)
        clocks = self._clocks(self._deployment)
        plain_due_at = self._loop.time() + clocks.response_timeout_s
        if isinstance(relay, PlainRelay):
            plain_due_at = relay.started_at + clocks.response_timeout_s
        while not self._exchange.gone:
            body = self._next_body(relay, pausable)
            if body is None:
                break
            more_bytes = len(body) - pausable.first_bytes
            input_tokens = self._request.input_estimate + max(0, more_bytes) // BYTES_PER_TOKEN
            if self._codec is not None:
                self._send_so_far()
            refusal = await self._hold_for_call(input_tokens, pausable)
            if refusal is not None:
                if self._first_content is not None:
                    return "stopped", refusal, relay
                pausable.stop_here()
                break
            connection = await self._connect(target, clocks)
            if connection is None:
                return ("gone" if self._stopping is None else "stopped"), self._stopping, relay
            self._meter.ask_again(more_bytes)
            pausable.next_call()
            if self._codec is not None:
                self._codec.flush()  # whatever stands around it takes over where it is
            else:
                clocks = self._what_is_left(clocks, plain_due_at)
            self._relay = relay = self._make_relay(format, provider, clocks, self._codec)
            self._count_call(input_tokens + (0 if pausable.shares_limit else self._wanted_output()))
            relay.begin(connection, self._head(format, provider, target, body), body)
            ending = await relay.ended()
            if ending != "complete":
                return ending, relay.error, relay
        if self._codec is not None:
            self._codec.flush()
        return "complete", None, relay

    def _next_body(self, relay: Relay, pausable: PausableAnswer) -> bytes | None:
        """Return the body of the next call; None where the answer is whole, or as whole as it will be."""
        interpreter = self._interpreter
        assert isinstance(interpreter, Interpreter), "no other answer is paused"
        _, format = self._asked_of()
        answer = relay.body if isinstance(relay, PlainRelay) else None
        if not pausable.is_paused(answer):
            return None
        try:
            return pausable.next_body(
                answer, lambda body: interpreter.events_of(format, self._deployment, body)[0]
            )
        except DecodeError:
            return None  # told when the answer is read

    async def _hold_for_call(self, input_tokens: int, pausable: PausableAnswer) -> InsufficientBalance | None:
        """Hold money for one call more; return the refusal where there is not enough.

        Args:
            input_tokens: of that one.
        """
        try:
            await self._tab.extend_for_call(input_tokens)
            if not pausable.shares_limit and (not self._request.stream or self._hides_output()):
                await self._tab.extend_by(self._reserved_output // self._request.choices)
        except InsufficientBalance as refusal:
            return refusal if refusal.limit else InsufficientBalance("The credit of this account is used up.")
        except StoreUnavailable:
            pass  # silence stops nobody
        return None

    def _send_so_far(self) -> None:
        """Send what a call brought with its end: the next one may be long in coming."""
        codec, exchange = self._codec, self._exchange
        assert codec is not None, "it is a stream"
        if not codec.content or not codec.out:
            return
        data = b"".join(codec.out)
        codec.out.clear()
        if exchange.answered:
            exchange.write(data)
        else:
            exchange.start(200, self.head_lines(), data)

    def _what_is_left(self, clocks: StreamClocks, due_at: float) -> StreamClocks:
        """Return the clocks of a further call of a plain answer: all of them together have the time of one."""
        left_s = max(0.0, due_at - self._loop.time())
        return StreamClocks(msgspec.structs.replace(clocks.row, response_timeout_s=left_s))
