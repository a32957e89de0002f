"""The end of a request: settle by how its last attempt ended, then send what ends the answer.

Nothing that completes an answer leaves before its settlement is journalled; what is settled is settled once.
"""

import asyncio
import logging
import time
from typing import Literal

from sluicegate.billing.ledger import UsageRow
from sluicegate.errors import (
    ClientError,
    InsufficientBalance,
    SluicegateError,
    StoreUnavailable,
    UpstreamError,
    UpstreamStatus,
)
from sluicegate.messages import Usage, UsageSource
from sluicegate.routing.health import CLOSED
from sluicegate.server import telemetry
from sluicegate.server.background import Run, RunEnd, judge, run_name
from sluicegate.server.control_messages import RunChanged
from sluicegate.server.interpreter import Interpreter
from sluicegate.server.job_poll import kept_of, running
from sluicegate.server.kept_state import queued
from sluicegate.server.refusals import JSON, error_lines
from sluicegate.server.relay import Ending
from sluicegate.server.serving.state import RequestState, milliseconds
from sluicegate.wire.cost import bill
from sluicegate.wire.openai_responses_passed_answer import ResponsesAnswer
from sluicegate.wire.unary.jobs import JobAnswer, told

log = logging.getLogger(__name__)


class EndingRequest(RequestState):
    """A request that can be ended. It owns its records in the journal: the reservation, and then the settlement."""

    __slots__ = ()

    def written(self) -> None:
        """A record that was gathered is written: send what waits for it."""
        if self._unwritten:
            self._unwritten = False
            if self._relay is not None:
                self._relay.send_held()
            return
        exchange, answer = self._exchange, self._held_answer
        exchange.settling = False
        self._tab.close()
        self._bench.served.settled(self._row)
        if answer is None:  # it broke after it was settled, and the client has been told
            return
        self._held_answer = None
        try:
            self._send_farewell(answer)
        except Exception:  # nobody waits for us who could tell the client
            log.exception("a settled answer could not be sent: %s", self.request_id)
            exchange.give_up()

    def unwritten(self, error: StoreUnavailable) -> None:
        """A record that was gathered could not be written: what waits for it never leaves."""
        if self._unwritten:
            self._unwritten = False
            self._unreserved = error
            self._tab.give_back()
            if self._relay is not None:
                self._relay.stop(error)
            return
        self._exchange.settling = False
        self._tab.owe()
        if self._held_answer is not None and not self._exchange.gone:
            self._held_answer = None
            self._tell_failure(error)

    def _end_at_once(self, *, together: bool = False) -> int:
        """Settle and end a whole answer, as nearly all of them can be, without waiting for anything.

        Args:
            together: its settlement may be written with those of others; the answer leaves after that.
        Returns:
            The tokens used; -1: something has to be waited for, or the answer is not an ordinary one.
        """
        answer, meter, exchange = self._answer, self._meter, self._exchange
        if exchange.gone or self._keeping is not None or meter.late:
            return -1
        if answer is not None and (isinstance(answer, JobAnswer) or self._runs_on()):
            return -1
        usage, source = meter.final()
        self._note_end("ok", None, usage)
        # A stream's end is built from what its codec forgets by that: nothing could be told in its stead.
        together = together and answer is not None
        if not self._tab.settle_now(usage, source, self if together else None):
            return -1
        if self._standing.breaker is not CLOSED:
            self._bench.deployments.worked(self._standing)
        if together:
            self._held_answer = self._whole(usage, source)
            exchange.settling = True
        else:
            self._bench.served.settled(self._row)
            self._send_farewell(self._whole(usage, source))
        return (usage.input_tokens or 0) + (usage.output_tokens or 0)

    async def _end(self, ending: Ending, error: SluicegateError | None) -> int:
        """Settle by how the last attempt ended, then send what ends the answer. Returns the tokens used."""
        exchange = self._exchange
        if ending == "complete" and self._answer is not None and self._runs_on():
            return await self._follow_run()
        if ending == "complete" and isinstance(self._answer, JobAnswer):
            return await self._hand_over(self._answer)
        if ending == "complete" and self._standing.breaker is not CLOSED:
            self._bench.deployments.worked(self._standing)
        while self._meter.late:
            self._meter.catch_up()
            await asyncio.sleep(0)
        if ending == "complete" and not exchange.gone:
            usage, source = self._meter.final()
            await self._settle_as("ok", None, usage, source)
            farewell = self._whole(usage, source)
            if self._keeping is not None:
                await self._keeping.keep(farewell, stream=self._request.stream)
            self._send_farewell(farewell)
            return (usage.input_tokens or 0) + (usage.output_tokens or 0)
        if ending in ("complete", "gone"):
            whole = self._request.stream or ending == "complete"
            row = await self._settle("client_closed", None, billed=whole and self._policy("on_disconnect"))
        elif isinstance(error, InsufficientBalance):
            row = await self._settle("credit_spent", error, billed=True)
        else:
            refused = isinstance(error, ClientError) or (
                isinstance(error, UpstreamStatus) and error.retry == "never"
            )
            failed = "upstream_error" if isinstance(error, UpstreamError) else "interrupted"
            begun = self._first_content is not None
            row = await self._settle(
                "rejected" if refused else failed, error, billed=begun and self._policy("on_error")
            )
        if error is not None and not exchange.gone:
            self._tell_failure(error)
        return (row.usage.input_tokens or 0) + (row.usage.output_tokens or 0)

    def _whole(self, usage: Usage, source: UsageSource) -> bytes:
        """Learn from a whole answer that is settled; return what completes it."""
        interpreter = self._interpreter
        if source == "reported":
            self._meter.learn_output()
        interpreter.remember()
        if interpreter.untold:
            telemetry.log(telemetry.ANSWER_UNTOLD, id=self.request_id, what=",".join(interpreter.untold))
        self._bench.served.answered(self._row)
        return self._farewell()

    def _runs_on(self) -> bool:
        """Whether the answer only says that a run was queued, which is to go on in the background.

        What nobody asked to keep cannot be asked after: it is told as it stands.
        """
        answer, interpreter = self._answer, self._interpreter
        return (
            isinstance(answer, ResponsesAnswer)
            and answer.finish_reason is None
            and answer.upstream_id is not None
            and isinstance(interpreter, Interpreter)
            and interpreter.asked.close_id is not None
        )

    async def _follow_run(self) -> int:
        """Tell the client that its run is queued, and settle it when the provider says how it ended.

        The client may be gone by then, or before.
        """
        answer, row, exchange = self._answer, self._row, self._exchange
        assert isinstance(answer, ResponsesAnswer), "looked at before"
        assert answer.upstream_id is not None, "likewise"
        assert isinstance(self._interpreter, Interpreter), "likewise"
        provider = row.provider or ""
        target = self._plan.targets.get(provider, "responses", self._deployment.model)
        link, name = self._bench.till.link, run_name(provider, answer.upstream_id)
        link.send(RunChanged(name, open=True))
        self._pending = run = Run(self._bench.pool, target, answer.upstream_id)
        try:
            if not exchange.gone:
                told = queued(answer.body, self._interpreter.asked, answer.upstream_id)
                if exchange.answered:
                    exchange.end(told)
                else:
                    exchange.respond(200, JSON + self._told(), told)
            if self.claimed is not None:
                await self.claimed.tell()
            response = await run.end(self._due_at)
            end = judge(response, self._interpreter.asked, given_up=run.given_up)
            return await self._settle_run(end)
        except StoreUnavailable:
            return 0  # it is owed, then
        finally:
            self._pending = None
            link.send(RunChanged(name, open=False))

    async def _settle_run(self, end: RunEnd) -> int:
        """Settle a run by how it ended. Returns the tokens used."""
        row, usage = self._row, Usage()
        source: UsageSource = "none"
        row.finish_reason = end.finish_reason
        if end.billed:
            for text in end.texts:
                self._meter.add(text)
            self._meter.report(end.usage)
            usage, source = self._meter.final()
        elif end.error is not None:
            place = row.provider or "", row.provider_model or ""
            self._tab.lost_attempt(self._attempts, *place, time.time(), type(end.error).__name__)
        await self._settle_as(end.status, end.error, usage, source)
        outcome = "ok" if end.error is None else end.error.kind
        self._bench.tally.add(telemetry.ATTEMPTS, 1, row.provider or "", outcome)
        return (usage.input_tokens or 0) + (usage.output_tokens or 0)

    async def _hand_over(self, answer: JobAnswer) -> int:
        """Leave the rest of the request to the supervisor, and tell the client what work it may ask for.

        Raises:
            StoreUnavailable: that is not written down, so nobody may learn of it.
        """
        row, seal = self._row, self._plan.seal
        kept = kept_of(answer, self._interpreter.client_name, row, time.time())
        await self._tab.hand_over(kept)
        self._bench.tally.add(telemetry.ATTEMPTS, 1, row.provider or "", "ok")
        if not self._exchange.gone:

            def close(id: str) -> str:
                return seal.close(row.account_id, kept.provider, id, row.model)

            body = told(running(kept), row.model, close)
            self._exchange.respond(200, self._interpreter.answer_line + self._told(), body)
        return 0

    def _policy(self, name: Literal["on_disconnect", "on_error"]) -> bool:
        """Whether a cut stream is billed; what was never attempted is not."""
        return self._switches is not None and getattr(self._switches, name) != "none"

    async def _settle(self, status: str, error: SluicegateError | None, *, billed: bool) -> UsageRow:
        """Settle an answer that is not whole; one whose finish has left is complete in every policy."""
        if self._finish_left:
            return await self._settle_as("ok", error, *self._meter.final())
        usage, source = self._meter.produced() if billed else (Usage(), "none")
        return await self._settle_as(status, error, usage, source)

    async def _settle_as(
        self, status: str, error: SluicegateError | None, usage: Usage, source: UsageSource
    ) -> UsageRow:
        self._note_end(status, error, usage)
        row = self._row
        if not self._tab.settle_now(usage, source):
            await self._tab.settle_slowly()
        self._bench.served.settled(row)
        return row

    def _note_end(self, status: str, error: SluicegateError | None, usage: Usage) -> None:
        """Say in the row how the request ended, and when."""
        now = time.monotonic()
        row = self._row
        row.status = status
        row.error = None if error is None else error.kind
        row.duration_ms = milliseconds(now - self._started)
        output = usage.output_tokens
        if self._first_content is not None:
            row.ttft_ms = milliseconds(self._first_content - self._started)
            span_s = now - self._first_content
            if output is not None and output > 1 and span_s > 0:
                row.tokens_per_s = round((output - 1) / span_s, 2)

    def _farewell(self) -> bytes:
        """Return what completes the answer: all of a plain one, the rest of a stream."""
        switches, row = self._switches, self._row
        assert switches is not None
        told = bill(row.usage, row.cost_nano_usd, switches.cost, switches.cost_extension_key)
        if not self._request.stream:
            assert self._answer is not None
            return self._answer.encode(told)
        codec = self._codec
        assert codec is not None
        last = b"".join(codec.out) + codec.farewell(told if self._shows_usage() else None)
        codec.out.clear()
        return last

    def _send_farewell(self, farewell: bytes) -> None:
        switches, exchange = self._switches, self._exchange
        assert switches is not None
        if not self._request.stream:
            if exchange.answered:  # a line feed was sent to keep the client waiting
                exchange.end(farewell)
                return
            lines = self._interpreter.answer_line + self._told()
            if switches.cost_header:
                lines += b"%b: %d\r\n" % (switches.cost_header.encode(), self._row.cost_nano_usd)
            exchange.respond(200, lines, farewell)
            return
        if not exchange.answered:
            exchange.start(200, self.head_lines())
        exchange.end(farewell)

    def _tell_failure(self, error: SluicegateError) -> None:
        """Tell the client: an error answer while the status is open, else the format's error event and no marker."""
        exchange = self._exchange
        if exchange.answered:
            exchange.closing = True
            codec = self._codec
            if codec is None:
                exchange.abort()
            elif self._interpreter.passes_bytes:  # no place for an error: the answer must not look complete
                exchange.cut()
            else:  # content of the last read may still be here; a finish, or what an attempt never sent, is not told
                unsent = b"".join(codec.out) if codec.ended and not codec.finishing else b""
                exchange.end(unsent + codec.failure(error))
            return
        status, body = self._interpreter.error(error, self.request_id)
        exchange.respond(status, JSON + self._told() + error_lines(error, self._attempts), body)
