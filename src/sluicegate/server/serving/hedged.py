"""Two attempts of a request at once: a second one begins when the first token is late, and the loser is dropped.

Which of the two wins, `server.hedging` decides; here is what a request keeps of each. Each has a place of its own under
the limits of its deployment; a second one that would have to wait for that does not begin.
"""

import time
from collections.abc import Coroutine
from typing import Any, NamedTuple

from sluicegate.billing.meter import Meter
from sluicegate.billing.profiles import Switches
from sluicegate.errors import ClientError, UpstreamError
from sluicegate.messages import Shape, Usage
from sluicegate.routing.catalog import Deployment, Model, Provider, StreamClocks
from sluicegate.server import telemetry
from sluicegate.server.deployments import Standing
from sluicegate.server.hedging import Hedged, Lane, Outcome, Race
from sluicegate.server.interpreter import AttemptState, Interpreter
from sluicegate.server.limiting import Ticket
from sluicegate.server.own_responses import Keeping
from sluicegate.server.relay import Relay
from sluicegate.server.serving.limited import LimitedRequest
from sluicegate.server.targets import Target
from sluicegate.wire import StreamCodec
from sluicegate.wire.two_part_stream import WatchedStream


class _Kept(NamedTuple):
    """What a request keeps of one attempt while another one of two has the word."""

    number: int
    """Of the attempt, counting from 1."""
    place: int
    model: Model
    deployment: Deployment
    standing: Standing
    switches: Switches | None
    meter: Meter
    codec: StreamCodec | None
    relay: Relay | None
    asked_at: float
    attempt: AttemptState
    keeping: Keeping | None
    name: str
    provider: str | None
    provider_model: str | None
    provider_format: str | None
    watched: WatchedStream | None
    route_ticket: Ticket | None


class HedgedRequest(LimitedRequest):
    """A request that may have a second attempt beside its first."""

    __slots__ = ()

    async def _run_hedged(self, relay: Relay) -> Outcome:
        """Wait for an attempt that gets a second one beside it should its first token be late."""
        percentile = self._model.hedge_percentile
        assert percentile is not None, "looked at before"
        late_s = self._bench.deployments.late_after_s(self._standing, percentile)
        if late_s is None or self._hedged is not None or self._tried >= len(self._targets):
            return await relay.ended(), relay.error
        first = Lane(self._place)
        first.relay, first.kept = relay, self._kept()
        self._race = race = Race(self, self._exchange, first)
        try:
            _, outcome = await race.run(relay.ended(), late_s, self._begin_second)
        finally:
            self._race = None
            for lane in race.lanes:  # both were ended by a fault, or from outside
                ticket: Ticket | None = lane.kept.route_ticket
                if ticket is not None and ticket is not self._route_ticket:
                    ticket.release(0)
        return outcome

    async def _begin_second(self, race: Race) -> tuple[Lane, Coroutine[Any, Any, Outcome]] | None:
        """Prepare the second attempt, at the next target; None where that may not be asked, or is full."""
        known, place, relay = self._bench.deployments, self._tried, self._relay
        deployment = self._targets[place]
        if known.spent((deployment.provider,)):
            return None
        model = self._order[place][0].model if self._served else self._model
        limits, ticket = self._limits_at(deployment, model), None
        if limits:
            ticket = await self._let_in(limits)
            if ticket is None:
                return None
            assert relay is not None, "the first runs"
            if race.is_over(relay):
                ticket.undo()
                return None
        first = self._kept()
        self._route_ticket = ticket
        self._enter(place)
        self._meter = self._new_meter()
        self._codec = self._relay = None
        try:
            prepared = self._prepare(deployment)
        except ClientError:
            prepared = None
        interpreter = self._interpreter
        # Such a request cannot be said there, or not in one call at once.
        if prepared is None or interpreter.wanted or interpreter.calls:
            self._leave(self._standing)
            self._attempts -= 1
            self._restore(first)
            if ticket is not None:
                ticket.undo()
            return None
        known.retried(deployment)
        self._tried = place + 1
        lane = Lane(place)
        lane.kept = self._kept()
        self._hedged = Hedged(place, first.place)
        self._restore(first)
        return lane, self._second(race, lane, *prepared)

    async def _second(
        self,
        race: Race,
        lane: Lane,
        provider: Provider,
        format: Shape,
        target: Target,
        clocks: StreamClocks,
        body: bytes,
    ) -> Outcome:
        timeout_s = min(clocks.connect_timeout_s, self._due_at - self._loop.time())
        try:
            connection = self._bench.pool.take(target.origin)
            connection = connection or await self._bench.pool.connect(target.origin, timeout_s)
        except UpstreamError as error:
            return "failed", error
        other = self._kept()
        self._restore(lane.kept)
        relay = self._make_relay(format, provider, clocks)
        relay.report_to(race.notes(lane))
        self._relay, self._asked_at = relay, time.monotonic()
        head = self._head(format, provider, target, body)
        lane.relay, lane.kept = relay, self._kept()
        self._restore(other)
        relay.begin(connection, head, body, shared=True)
        body = head = b""  # this frame lives as long as the stream
        del other
        return await relay.ended(), relay.error

    def _kept(self) -> _Kept:
        row = self._row
        assert isinstance(self._interpreter, Interpreter)
        return _Kept(
            self._number,
            self._place,
            self._model,
            self._deployment,
            self._standing,
            self._switches,
            self._meter,
            self._codec,
            self._relay,
            self._asked_at,
            self._interpreter.attempt(),
            self._keeping,
            row.model,
            row.provider,
            row.provider_model,
            row.provider_format,
            self._watched,
            self._route_ticket,
        )

    def _restore(self, kept: _Kept) -> None:
        self._go_on_at(kept.model)
        self._number, self._place = kept.number, kept.place
        self._deployment, self._standing, self._switches = kept.deployment, kept.standing, kept.switches
        self._meter, self._codec, self._relay = kept.meter, kept.codec, kept.relay
        self._asked_at = kept.asked_at
        assert isinstance(self._interpreter, Interpreter)
        self._interpreter.resume(kept.attempt)
        self._keeping, self._watched, self._route_ticket = kept.keeping, kept.watched, kept.route_ticket
        row = self._row
        row.model, row.provider, row.provider_model = kept.name, kept.provider, kept.provider_model
        row.provider_format = kept.provider_format

    def take_lane(self, lane: Lane) -> None:
        """Go on as one of two attempts."""
        self._restore(lane.kept)
        if self._hedged is not None:
            self._hedged = self._hedged._replace(last=lane.place)

    def headed_in(self, lane: Lane) -> None:
        """Take note of a success that has not brought content yet."""
        lane.kept.meter.headed = True

    def usage_in(self, lane: Lane, usage: Usage | None) -> None:
        """Take the totals of one attempt of two."""
        lane.kept.meter.report(usage)

    def lane_failed(self, lane: Lane, error: UpstreamError) -> None:
        """Take note of a failure while the other attempt goes on."""
        other = self._kept()
        self._restore(lane.kept)
        self._failures.append(error)
        self._note_failure(error)
        self._leave(self._standing)
        if self._route_ticket is not None:
            self._leave_route(0)
        self._restore(other)

    def lane_lost(self, lane: Lane) -> None:
        """Take note of an attempt that was stopped; what it cost is the operator's."""
        kept = lane.kept
        self._leave(kept.standing)
        if lane.relay is None:  # it had not been sent
            if kept.route_ticket is not None:
                kept.route_ticket.undo()
            return
        if kept.route_ticket is not None:
            kept.route_ticket.release(self._request.input_estimate)  # which its provider has read
        provider, now = kept.provider or "", time.monotonic()
        self._bench.deployments.late(kept.standing, now - kept.asked_at)
        self._bench.tally.add(telemetry.ATTEMPTS, 1, provider, "hedged")
        self._tab.lost_attempt(kept.number, provider, kept.provider_model or "", time.time(), "hedged")
