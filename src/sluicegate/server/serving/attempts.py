"""All attempts of a request: where it may go, one attempt after another, until one of them ends it."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

from sluicegate.errors import ClientError, InternalError, SluicegateError, StoreUnavailable, UpstreamError
from sluicegate.routing.catalog import Deployment
from sluicegate.routing.health import CLOSED
from sluicegate.routing.retry import Progress, final_error
from sluicegate.server.hedging import Outcome
from sluicegate.server.interpreter import Interpreter
from sluicegate.server.relay import Ending, Relay
from sluicegate.server.serving.attempt import Prepared
from sluicegate.server.serving.midstream import MidstreamRequest
from sluicegate.server.upstream import UpstreamConnection
from sluicegate.wire.conversation import conversation_key

Started = Relay | Outcome | Coroutine[Any, Any, Outcome | Relay] | Exception | None
"""An attempt that has been begun: its relay, which may have ended; how it ended; what is to be waited for first; or a
fault of ours in it. None: it has not.
"""


class TriedRequest(MidstreamRequest):
    """A request that is tried until an attempt ends it."""

    __slots__ = ()

    def _start_first(self) -> Started:
        """Make the first attempt as far as it goes without waiting; None where there is nobody to ask."""
        self._choose()
        if not self._targets:
            return None
        self._enter(0)
        return self._start(self._targets[0])

    def _choose(self) -> None:
        """Say once by when all has to have ended, and who may be asked."""
        if not self._due_at:
            self._due_at = self._loop.time() + self._clocks().total_timeout_s
            self._targets = self._choose_targets()

    async def _run(self, started: Started) -> int:
        """Make attempts until one ends; settle and end the answer. Returns the tokens used.

        Args:
            started: the first one, where it has been begun.
        """
        self._choose()
        targets = self._targets
        failures = self._failures
        progress: Progress | None = None
        ending: Ending = "failed"
        error: SluicegateError | None = None
        place: int | None = 0
        if not targets:  # all of them asked for patience: nothing is sent
            place = None
            self._meter.restart()
        try:
            while place is not None:
                if started is None:
                    self._enter(place)
                try:
                    if isinstance(started, Exception):
                        raise started
                    if started is None:
                        started = self._start(targets[place])
                    ending, error = await self._through(started)
                    started = None
                finally:
                    self._leave(self._standing)
                if ending != "failed" or not isinstance(error, UpstreamError | ClientError):
                    break
                if self._route_ticket is not None:
                    self._leave_route(0 if self._first_content is None else self._used_so_far())
                progress = progress or Progress(tuple(target.provider for target in targets))
                if self._hedged is not None:
                    progress, self._hedged = self._hedged.after(progress), None
                if isinstance(error, ClientError):
                    place, progress = self._passed_over(progress)
                    continue
                failures.append(error)
                self._note_failure(error)
                following = self._following(error, progress)
                if following is None:
                    if self._watched is not None and self._first_content is not None:
                        ending, error = await self._take_over(error, progress)
                    break
                if following.retry:
                    self._bench.deployments.retried(targets[following.target])
                if following.wait_s and await self._client_leaves_within(following.wait_s):
                    ending, error = "gone", None
                    break
                place, progress = following.target, following.progress
                self._tried = progress.tried
            if ending == "failed" and failures and not isinstance(error, StoreUnavailable):
                error = final_error(failures) if self._first_content is None else failures[-1]
        except asyncio.CancelledError:
            ending, error = "stopped", InternalError("The gateway stopped serving this request.")
        except Exception:
            await self._end_broken()
            raise
        self._write_reservation()
        try:
            used = self._end_at_once() if ending == "complete" else -1
            return used if used >= 0 else await self._end(ending, error)
        except StoreUnavailable as failure:  # not settled, so nothing that completes the answer may leave
            if not self._exchange.gone:
                self._tell_failure(failure)
            return 0
        except Exception:
            if not self._tab.settled:
                await self._end_broken()
            raise

    def _write_reservation(self) -> None:
        """Wait no more for others to write the reservation with.

        Raises:
            StoreUnavailable: it could not be written, so the request was never admitted.
        """
        if self._unwritten:
            self._bench.till.journal.write_gathered()
        if self._unreserved is not None:
            raise self._unreserved

    async def _end_broken(self) -> None:
        """Settle a request that a fault of ours broke, so that nothing stays held for it."""
        failure = InternalError("The gateway failed; this is not your fault.")
        if not self._tab.settled:
            with contextlib.suppress(StoreUnavailable):  # it is owed, then
                await self._settle("interrupted", failure, billed=False)
        if self._exchange.answered and not self._exchange.ended:
            self._tell_failure(failure)

    def _choose_targets(self) -> tuple[Deployment, ...]:
        """Return the deployments to try, in their order.

        What is told of those that asked to be left alone for now joins the failures.
        """
        failures = self._failures
        known, model = self._bench.deployments, self._model
        deployments = model.deployments
        if not self._served and len(deployments) == 1:
            (only,) = deployments
            if known.get(only.provider, only.model).breaker is CLOSED:
                return deployments
        key = conversation_key(self._request)
        tokens = (self._request.input_estimate, self._reserved_output)
        if not self._served:
            failures += known.cooling_errors(deployments)
            return tuple(
                deployments[place] for place in known.choose(deployments, model.strategy, key, tokens)
            )
        self._order = [
            (one, one.deployments[place])
            for one in self._served
            for place in known.choose(one.deployments, one.model.strategy, key, tokens)
        ]
        for one in self._served:
            failures += known.cooling_errors(one.deployments)
        return tuple(deployment for _, deployment in self._order)

    def _passed_over(self, progress: Progress) -> tuple[int | None, Progress]:
        """Go on from a target whose format cannot say the request, which therefore was not sent."""
        if progress.tried == len(progress.targets):
            return None, progress
        self._attempts -= 1
        target = progress.tried
        return target, progress._replace(target=target, tried=target + 1)

    async def _through(self, started: Relay | Outcome | Coroutine[Any, Any, Outcome | Relay]) -> Outcome:
        """Return how an attempt that was begun ends."""
        if not isinstance(started, Relay):
            waited = started if isinstance(started, tuple) else await started
            if isinstance(waited, tuple):
                return waited
            started = waited
        relay = started
        try:
            if self._unwritten:
                self._bench.till.journal.write_gathered()
            if self._model.hedge_percentile is not None and self._may_race():
                ending, error = await self._run_hedged(relay)
            else:
                try:
                    ending = await relay.done
                finally:
                    relay.leave()
                error = relay.error
            interpreter = self._interpreter
            if ending == "complete" and (interpreter.calls or interpreter.pausable is not None):
                ending, error, relay = await self._make_further_calls(relay)
        except UpstreamError as failure:
            return "failed", failure
        finally:
            self._relay = None
            if self._interpreter.upload is not None:
                self._interpreter.upload.stop()
        if ending == "complete":
            return self._taken(relay)
        self._note_stream()
        return ending, error

    def _taken(self, relay: Relay) -> Outcome:
        """Take a whole answer from its relay."""
        if not self._request.stream:
            return self._read_answer(relay)
        self._note_stream()
        return "complete", None

    def _note_stream(self) -> None:
        """Take from the codec what it has learned of the answer."""
        codec, row = self._codec, self._row
        if codec is not None:
            self._meter.report(codec.usage)
            row.finish_reason, row.repaired, row.upstream_id = (
                codec.finish_reason,
                codec.repaired,
                codec.upstream_id,
            )

    def _start(self, deployment: Deployment) -> Outcome | Relay | Coroutine[Any, Any, Outcome | Relay]:
        """Send the request to a deployment; what is returned else says how the attempt ended before, or waits first.

        What only this needs is let go with it: the attempt itself lives as long as a stream.
        """
        if deployment.limits is not None or self._served:
            return self._start_slowly(deployment, None)
        try:
            prepared = self._prepare(deployment)
        except (ClientError, UpstreamError) as refusal:
            return "failed", refusal
        interpreter, exchange = self._interpreter, self._exchange
        if not (interpreter.wanted or interpreter.upload is not None or exchange.gone) and not self._stopping:
            connection = self._bench.pool.take(prepared[2].origin)
            if connection is not None:
                return self._send(connection, prepared)
        return self._start_slowly(deployment, prepared)

    async def _start_slowly(self, deployment: Deployment, prepared: Prepared | None) -> Outcome | Relay:
        try:
            self._write_reservation()
            if prepared is None:
                await self._admit_at(deployment)
                prepared = self._prepare(deployment)
            provider, format, target, clocks, _ = prepared
            if self._interpreter.wanted:
                await self._interpreter.fill(self._plan.media)
                if self._exchange.gone:
                    return "gone", None
                prepared = provider, format, target, clocks, self._body_for(format, provider, deployment)
            connection = await self._connect(target, clocks)
        except (ClientError, UpstreamError) as refusal:
            return "failed", refusal
        except StoreUnavailable as failure:
            return "stopped", failure
        if connection is None:
            return ("gone", None) if self._stopping is None else ("stopped", self._stopping)
        return self._send(connection, prepared)

    def _send(self, connection: UpstreamConnection, prepared: Prepared) -> Relay:
        provider, format, target, clocks, body = prepared
        self._relay = relay = self._make_relay(format, provider, clocks)
        self._asked_at = time.monotonic()
        if not self._called:
            self._called = self._asked_at
            self._bench.served.overheads.add(self._called - self._started)
        upload = self._interpreter.upload
        if upload is None:
            relay.begin(connection, self._head(format, provider, target, body), body, held=self._unwritten)
        else:
            relay.begin(connection, *self._begin_upload(upload, target), upload)
        return relay

    def _may_race(self) -> bool:
        """Whether a second attempt may run beside this one: streams of text alone, in one call."""
        return (
            self._request.stream
            and isinstance(self._interpreter, Interpreter)
            and not self._interpreter.calls
        )

    async def _client_leaves_within(self, wait_s: float) -> bool:
        """Wait before the next attempt; return True at once when the client leaves meanwhile."""
        left = asyncio.Event()
        self._exchange.on_gone = left.set
        try:
            async with asyncio.timeout(wait_s):
                await left.wait()
        except TimeoutError:
            return self._exchange.gone
        finally:
            self._exchange.on_gone = None
        return True
