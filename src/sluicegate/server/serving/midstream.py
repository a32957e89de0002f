"""A stream that broke off, and goes on from another deployment (`stream.continue_midstream`).

The client sees one answer, and pays for one: its prompt once, and the text of both parts. The part that broke off is
an attempt in the row's count, and a `provider_cost` row of the operator's. Whoever cannot go on, or fails before a word
of its own, changes nothing: the client is told why the stream broke off. A stream is gone on with once. Source:
contract E2, E3; cases B060 and B133.
"""

import asyncio
import time
from typing import NamedTuple

from sluicegate.errors import UpstreamError
from sluicegate.routing.catalog import Deployment
from sluicegate.routing.catalog_shapes import Limits
from sluicegate.routing.retry import Progress, may_take_over
from sluicegate.server import continuous, telemetry
from sluicegate.server.hedging import Outcome
from sluicegate.server.interpreter import Interpreter
from sluicegate.server.serving.resumed import ResumedRequest
from sluicegate.server.takeover import Asking, Takeover
from sluicegate.wire.two_part_stream import WatchedStream


class _FirstAttempt(NamedTuple):
    """The attempt that broke off."""

    number: int
    """Counting from 1."""
    deployment: Deployment
    format: str | None
    """How it was asked."""
    upstream_id: str | None
    repaired: bool


class MidstreamRequest(ResumedRequest):
    """A request whose stream another deployment may go on with."""

    __slots__ = ()

    async def _take_over(self, error: UpstreamError, progress: Progress) -> Outcome:
        """Have the rest of a stream that broke off from the next deployment that can give it; return how that ended.

        Args:
            error: why it broke off; that has been noted.
        """
        watched, row = self._watched, self._row
        assert watched is not None, "looked at before"
        takeover = await self._takeover(watched)
        if takeover is None:
            return "failed", error
        first = _FirstAttempt(
            self._number, self._deployment, row.provider_format, row.upstream_id, row.repaired
        )
        outcome: Outcome = "failed", error
        reason = error
        for place in range(progress.tried, len(self._targets)):
            if self._exchange.gone or not may_take_over(reason, self._due_at - self._loop.time()):
                break
            asking = self._ask_at(place, first.deployment, takeover)
            if asking is None or not await self._enter_route(self._targets[place].limits):
                continue
            self._enter(place)
            try:
                ending, failure = await self._rest(watched, takeover, asking)
            finally:
                self._leave(self._standing)
            again = failure if ending == "failed" and isinstance(failure, UpstreamError) else None
            if again is not None:
                self._note_failure(again)
            if watched.taken_over or ending == "complete":
                self._note_first(first)
                self._failures += [] if again is None else [again]
                return ending, failure
            self._meter.take_over(first.deployment.model)  # what nobody was told of is not counted
            if again is None:
                outcome = ending, failure
                break
            self._note_lost(again)
            if self._route_ticket is not None:
                self._leave_route(0)
            reason = again
        self._put_back(first)
        return outcome

    def _put_back(self, first: _FirstAttempt) -> None:
        """Have the row tell of the first attempt alone: those after it brought nothing."""
        row = self._row
        row.provider, row.provider_model = first.deployment.provider, first.deployment.model
        row.provider_format, row.upstream_id, row.repaired = first.format, first.upstream_id, first.repaired
        row.finish_reason = None

    def _note_first(self, first: _FirstAttempt) -> None:
        """Note the part that broke off: its provider may want to be paid for it, and for the prompt."""
        place = first.deployment.provider, first.deployment.model
        self._tab.lost_attempt(first.number, *place, time.time(), "continued")
        self._bench.tally.add(telemetry.STREAMS_CONTINUED, 1, self._row.provider or "")
        self._row.repaired |= first.repaired

    async def _takeover(self, watched: WatchedStream) -> Takeover | None:
        """Return what broke off, where anybody may go on with it."""
        assert isinstance(self._interpreter, Interpreter), "only streams of text are watched"
        told = watched.told
        if told is None:
            return None
        while self._meter.late:
            self._meter.catch_up()
            await asyncio.sleep(0)
        return Takeover.of(self._interpreter, told, self._meter.produced()[0].output_tokens or 0)

    def _ask_at(self, place: int, broken: Deployment, takeover: Takeover) -> Asking | None:
        """Return how a target is asked to go on; None where it may not or cannot be."""
        deployment, known = self._targets[place], self._bench.deployments
        if self._served and self._order[place][0].model is not self._model:
            return None  # another model: the client would have to be told
        if (deployment.provider, deployment.model) == (broken.provider, broken.model):
            return None
        standing = known.get(deployment.provider, deployment.model)
        if standing.condition(self._loop.time()) not in ("closed", "half_open"):
            return None
        is_retry = deployment.provider == broken.provider
        if is_retry and known.spent((deployment.provider,)):
            return None
        provider = self._plan.settings.catalogue.providers[deployment.provider]
        asking = takeover.ask(provider, self._model, deployment)
        if asking is not None and is_retry:
            known.retried(deployment)
        return asking

    async def _enter_route(self, limits: Limits | None) -> bool:
        """Take a place under the limits of a deployment, where there is one now: a stream waits for none."""
        if limits is None:
            return True
        self._route_ticket = await self._let_in((limits,))
        return self._route_ticket is not None

    async def _rest(self, watched: WatchedStream, takeover: Takeover, asking: Asking) -> Outcome:
        """Make the attempt at the target at hand."""
        deployment = self._deployment = self._targets[self._place]
        provider = self._plan.settings.catalogue.providers[deployment.provider]
        row, codec, clocks = self._row, self._codec, self._clocks(deployment)
        assert codec is not None, "the stream has begun"
        row.provider, row.provider_model, row.provider_format = provider.name, deployment.model, asking.format
        row.attempts, row.upstream_id = self._attempts, None
        target = self._plan.targets.get(provider.name, asking.format, deployment.model)
        body = asking.body
        if self._request.continuous_usage:
            body = continuous.asking_provider(body, asking.format, provider)
        try:
            connection = await self._connect(target, clocks)
        except UpstreamError as failure:
            return "failed", failure
        if connection is None:
            return ("gone", None) if self._stopping is None else ("stopped", self._stopping)
        self._meter.take_over(deployment.model)
        watched.take_over(takeover.stream(asking, self._meter.add, clocks.max_event_bytes))
        codec.flush()  # whatever stands around it takes over where it is
        self._relay = relay = self._make_relay(asking.format, provider, clocks, codec)
        self._asked_at = time.monotonic()
        try:
            relay.begin(connection, self._head(asking.format, provider, target, body), body)
            ending = await relay.ended()
        finally:
            self._relay = None
        self._meter.report(codec.usage)
        row.finish_reason, row.repaired, row.upstream_id = (
            codec.finish_reason,
            codec.repaired,
            codec.upstream_id,
        )
        return ending, relay.error
