"""One request, from its whole body to its settlement: admit, reserve, attempt, relay, settle.

Read with `relay` (how bytes move while a stream runs) and `tab` (how money does). The stages are in the order of the
methods. Everything a request decides it asks of `routing` and `billing`; everything it writes goes through its tab.

Invariants: nothing is sent to a provider before the reservation is journalled; nothing that completes an answer leaves
before the settlement is; a request that was admitted is settled exactly once, however it ends.
"""

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Coroutine
from typing import Any, Literal, NamedTuple

import msgspec

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.ledger import UsageRow
from sluicegate.billing.limits import KeyLimits, Refusal
from sluicegate.billing.meter import InputRatios, Meter
from sluicegate.billing.profiles import Switches, decide
from sluicegate.billing.spending_limits import limits_of
from sluicegate.errors import (
    ClientError,
    DecodeError,
    InsufficientBalance,
    InternalError,
    RateLimited,
    SluicegateError,
    StoreUnavailable,
    UpstreamError,
    UpstreamGarbled,
    UpstreamStatus,
    UpstreamTimeout,
)
from sluicegate.messages import Shape, Usage, UsageSource
from sluicegate.routing.catalog import Deployment, Model, Price, Provider, StreamClocks
from sluicegate.routing.health import CLOSED
from sluicegate.routing.retry import Attempt, Progress, Rules, final_error, next_attempt
from sluicegate.server import continuous, own_responses, telemetry
from sluicegate.server.background import Run, RunEnd, judge, run_name
from sluicegate.server.choosing import MODELS, PROVIDER_HEADER, Served, find_model, overridden
from sluicegate.server.control import RunChanged
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.deployments import Deployments, Standing
from sluicegate.server.hedging import Hedged, Lane, Outcome, Race
from sluicegate.server.inbound import Exchange
from sluicegate.server.interpreter import AttemptState, Interpreter
from sluicegate.server.kept_state import (
    KEEPING,
    able,
    closing,
    formats_of,
    queued,
    refuse_loose_run,
    turn_back,
    unknown,
)
from sluicegate.server.media_fetch import MediaFetcher
from sluicegate.server.own_responses import Keeping
from sluicegate.server.refusals import answer_headers, error_lines
from sluicegate.server.relay import Ending, PlainRelay, Relay, StreamRelay
from sluicegate.server.settings import WorkerSettings
from sluicegate.server.tab import Tab, Till
from sluicegate.server.targets import Target, Targets
from sluicegate.server.telemetry import Tally
from sluicegate.server.thoughts import ThoughtMemory
from sluicegate.server.unary import UnaryInterpreter
from sluicegate.server.upload import Upload
from sluicegate.server.upstream import UpstreamConnection, UpstreamPool
from sluicegate.wire import StreamCodec
from sluicegate.wire.conversation import conversation_key
from sluicegate.wire.cost import bill
from sluicegate.wire.openai_responses_passed_answer import ResponsesAnswer
from sluicegate.wire.openai_responses_request import ResponsesRequest
from sluicegate.wire.sealed_id import IdSeal, is_sealed
from sluicegate.wire.translation import Asked, PassedAnswer, PassOptions
from sluicegate.wire.upstream_errors import from_stream_error

JSON = b"content-type: application/json\r\n"
EXTEND_AT = 0.75
"""Share of the reserved output that is used up when a running stream asks for more."""
CHECKPOINT_S = 5.0
"""A running stream that a crash charges for journals where it stands so often, and whenever its text is counted: about
every 256 tokens.
"""
_NO_HEADERS: list[tuple[bytes, bytes]] = []
"""Of every request whose answer has begun; streams may be many."""

_REQUEST_SLOTS = (
    "_answer",
    "_asked_at",
    "_attempts",
    "_bench",
    "_called",
    "_checkpointed",
    "_codec",
    "_deployment",
    "_due_at",
    "_estimate",
    "_exchange",
    "_extending",
    "_failures",
    "_finish_left",
    "_hedged",
    "_first_content",
    "_interpreter",
    "_key",
    "_keeping",
    "_limit",
    "_loop",
    "_meter",
    "_model",
    "_number",
    "_order",
    "_own_input",
    "_pending",
    "_place",
    "_plan",
    "_previous_id",
    "_race",
    "_relay",
    "_request",
    "_reserved_output",
    "_row",
    "_served",
    "_standing",
    "_started",
    "_started_at",
    "_stopping",
    "_switches",
    "_tab",
    "_target",
    "_targets",
    "_tried",
    "due_at",
    "request_id",
)


_Prepared = tuple[Provider, Shape, Target, StreamClocks, bytes]
"""An attempt that has not been sent: where to, how, under which clocks, and its body."""


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


class Plan:
    """What one set of settings means to requests; a reload makes a new one, and running requests keep theirs."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.targets = Targets(settings.catalogue.providers)
        self.media = MediaFetcher(settings.media)
        self.retry = Rules(settings.retry.max_attempts, settings.retry.after_send)
        self.seal = IdSeal(settings.key_secret, settings.catalogue.providers)
        self._switches: dict[tuple[str, str, str], tuple[KeyRecord, Switches]] = {}

    def switches(self, key: KeyRecord, model: Model, provider: Provider) -> Switches:
        """Return the decided switches of a key at a model of a provider."""
        place = (key.id, model.id, provider.name)
        known = self._switches.get(place)
        if known is not None and known[0] is key:
            return known[1]
        switches = decide((key.switches, model.switches, provider.switches, self.settings.switches))
        if len(self._switches) > Targets.MAX:
            self._switches.clear()
        self._switches[place] = (key, switches)
        return switches

    def clocks(self, model: Model, deployment: Deployment | None = None) -> StreamClocks:
        """Return the clocks of a model, or of one deployment of it."""
        if deployment is not None and deployment.clocks is not None:
            return deployment.clocks
        return model.clocks or self.settings.clocks


class Bench:
    """What the requests of a worker share."""

    def __init__(
        self, settings: WorkerSettings, till: Till, deadlines: Deadlines, pool: UpstreamPool, number: int
    ) -> None:
        self.plan = Plan(settings)
        self.till = till
        self.deadlines = deadlines
        self.pool = pool
        self.number = number
        self.tally = Tally()
        self.deployments = Deployments(deadlines, self.tally, till.link)
        self.deployments.apply(settings)
        self.ratios = InputRatios()
        self.thoughts = ThoughtMemory()
        self.limits: dict[str, tuple[KeyRecord, KeyLimits]] = {}
        self.running: set[ServedRequest] = set()

    def limits_of(self, key: KeyRecord) -> KeyLimits:
        """Return what a key may do; changed limits start a new count."""
        known = self.limits.get(key.id)
        if known is not None and known[0] is key:
            return known[1]
        spending = bool(limits_of(key))
        if known is not None and _same_limits(known[0], key):
            known[1].spending = spending
            self.limits[key.id] = (key, known[1])
            return known[1]
        limits = KeyLimits(key.rpm, key.tpm, key.max_streams, spending=spending)
        self.limits[key.id] = (key, limits)
        return limits

    def running_row(self, key_id: str, request_id: str) -> UsageRow | None:
        """Return the row of a key's running request as it would be now; None where none of that id is served here."""
        for request in self.running:
            if request.request_id == request_id and request.key_id == key_id:
                return request.row_so_far()
        return None


def _same_limits(one: KeyRecord, other: KeyRecord) -> bool:
    return (one.rpm, one.tpm, one.max_streams) == (other.rpm, other.tpm, other.max_streams)


class ServedRequest:
    """One generation request in any format, streamed or not."""

    __slots__ = _REQUEST_SLOTS

    def __init__(
        self,
        bench: Bench,
        exchange: Exchange,
        key: KeyRecord,
        request_id: str,
        interpreter: Interpreter | UnaryInterpreter,
    ) -> None:
        self._bench = bench
        self._plan = bench.plan
        self._exchange = exchange
        self._key = key
        self.request_id = request_id
        self._loop = asyncio.get_running_loop()
        self._started_at = time.time()
        self._started = exchange.received_at
        self._called = 0.0
        self._first_content: float | None = None
        self._attempts = 0
        self._relay: Relay | None = None
        self._interpreter = interpreter
        self._request = interpreter.request
        self._codec: StreamCodec | None = None
        self._answer: PassedAnswer | None = None
        self._finish_left = False
        self._reserved_output = 0
        self._limit: int | None = None
        self._extending = False
        self._checkpointed = 0
        self.due_at = math.inf
        """When the next checkpoint is due, once the stream has begun."""
        self._stopping: SluicegateError | None = None
        self._previous_id: str | None = None
        """Of the answer that the client goes on from, as it spelled it."""
        self._own_input: bytes | None = None
        """What the client adds to a conversation that we keep, where it goes on from one."""
        self._keeping: Keeping | None = None
        self._pending: Run | None = None
        """What goes on in the background."""
        self._switches: Switches | None = None
        self._served: tuple[Served, ...] = ()
        """What may serve it, where it overrides something; else its model alone."""
        self._order: list[tuple[Served, Deployment]] = []
        self._targets: tuple[Deployment, ...] = ()
        self._tried = 1
        self._failures: list[UpstreamError] = []
        self._race: Race | None = None
        self._hedged: Hedged | None = None
        self._standing: Standing

    # ---- admission --------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serve the request to its end. What is refused here has not been charged.

        Raises:
            SluicegateError: refused, or failed before a byte was sent; to be told as an error answer.
        """
        request = self._request
        catalogue = self._plan.settings.catalogue
        self._model = model = find_model(catalogue, self._key, request.model)
        provider = self._exchange.header(PROVIDER_HEADER)
        if provider is not None or request.names_other_models is not None:
            self._served = overridden(catalogue, self._key, request, model, provider)
            if request.value(MODELS) is not None:
                self._interpreter.take_out(MODELS)
                self._request = request = self._interpreter.request
        if request.names_kept_state:
            await self._turn_back()
            request = self._request
        if request.stream:
            asked = self._exchange.header(continuous.HEADER)
            if asked is not None:
                continuous.ask_by_header(request, asked)
        wanted = self._wanted_output()
        limits = self._bench.limits_of(self._key)
        now = self._loop.time()
        self._estimate = request.input_estimate + wanted * request.choices
        admitted = limits.admit(now, self._estimate)
        if isinstance(admitted, Refusal):
            raise RateLimited(admitted.message, admitted.wait_s)
        used = 0
        try:
            await self._reserve(model, limits)
            self._bench.running.add(self)
            used = await self._run()
        finally:
            self._bench.running.discard(self)
            self._bench.deadlines.discard(self)
            limits.release(self._loop.time(), admitted, self._estimate, used)

    async def _turn_back(self) -> None:
        """Put in place of our ids what they stand for: what we keep ourselves, or the ids of the provider that does.

        Only that provider is asked then.
        """
        interpreter, model = self._interpreter, self._model
        assert isinstance(interpreter, Interpreter), "others name nothing that is kept"
        self._previous_id = getattr(self._request, "previous_response_id", None)
        if isinstance(self._request, ResponsesRequest) and self._plan.settings.responses_store.enabled:
            await self._say_what_we_keep()
        request = self._request
        served = self._served or (Served(request.model, model, model.deployments),)
        providers = self._plan.settings.catalogue.providers
        body, keeper = turn_back(
            request.body,
            interpreter.client.name,
            self._key.account_id,
            self._plan.seal,
            formats_of(served, providers),
        )
        if body is not request.body:
            interpreter.replace_body(body)
            self._request = interpreter.request
        background: bool = getattr(request, "background", False)
        if background:
            refuse_loose_run(request)
        if keeper is not None or background:
            self._served = able(served, providers, keeper, background=background)

    async def _say_what_we_keep(self) -> None:
        """Put in place what we keep ourselves: items that are referred to, and the conversation that goes on."""
        link, account_id, interpreter = self._bench.till.link, self._key.account_id, self._interpreter
        assert isinstance(interpreter, Interpreter), "only its request is one of these"
        body = given = self._request.body
        if b"item_reference" in body:
            body = await own_responses.with_own_items(link, account_id, body)
        id = self._previous_id
        if id is not None and not is_sealed(id):
            turns = await own_responses.find(link, account_id, id, whole=True)
            if not turns:
                raise unknown("previous_response_id", id)
            self._own_input = own_responses.input_of(body)
            body = own_responses.continued(body, turns)
        if body is not given:
            interpreter.replace_body(body)
            self._request = interpreter.request

    async def _reserve(self, model: Model, limits: KeyLimits) -> None:
        request = self._request
        settings = self._plan.settings
        till = self._bench.till
        whole = self._wanted_output()
        output = whole
        cautious = till.link.cautious
        if (
            request.stream
            and not self._hides_output()
            and self._interpreter.units is None
            and not (cautious and self._key.account_id in cautious)
        ):
            output = min(whole, settings.billing.reserve_output_tokens)
        self._row = UsageRow(
            request_id=self.request_id,
            key_id=self._key.id,
            account_id=self._key.account_id,
            key=self._key.name,
            model=request.model,
            client_format=self._interpreter.client_name,
            stream=request.stream,
            started_at=self._started_at,
            client_request_id=_header_text(self._exchange, b"x-request-id"),
        )
        price = model.price_at(self._started_at) if model.later else model.price
        others: tuple[Price | None, ...] = ()
        if self._served:
            others = tuple(one.model.price_at(self._started_at) for one in self._served)
        tier = request.service_tier if others or (price is not None and price.service_tiers) else None
        units = self._interpreter.units
        budget = till.credit.budget_of(self._key.id, self._started_at) if limits.spending else None
        self._tab = Tab(till, self._key, price, self._row, others, tier, units, budget)
        covered = await self._tab.reserve(
            request.input_estimate,
            output * request.choices,
            may_cut=not request.stream and request.max_output_tokens is None and units is None,
        )
        self._reserved_output = covered
        if covered < output * request.choices:
            self._limit = covered // request.choices
        self._meter = self._new_meter()

    def _new_meter(self) -> Meter:
        request = self._request
        return Meter(
            self._bench.ratios,
            self._key.id,
            self._model.id,
            len(request.body),
            self._counted if request.stream and (self._tab.held or self._checkpoints) else None,
            self._text_is_late,
        )

    def _wanted_output(self) -> int:
        limit = self._request.max_output_tokens
        return self._max_output_tokens() if limit is None else limit

    def _max_output_tokens(self) -> int:
        """The output to expect where the client gave no limit: of the model that may give the most."""
        if not self._served:
            return self._model.max_output_tokens
        return max(one.model.max_output_tokens for one in self._served)

    def _hides_output(self) -> bool:
        if not self._served:
            return self._model.hidden_output
        return any(one.model.hidden_output for one in self._served)

    # ---- attempts ---------------------------------------------------------------------------------------------------

    async def _run(self) -> int:
        """Make attempts until one ends; settle and end the answer. Returns the tokens used."""
        self._due_at = self._loop.time() + self._plan.clocks(self._model).total_timeout_s
        self._targets = targets = self._choose_targets()
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
                self._enter(place)
                try:
                    ending, error = await self._attempt(targets[place])
                finally:
                    self._leave(self._standing)
                if ending != "failed" or not isinstance(error, UpstreamError | ClientError):
                    break
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
                    break
                if following.retry:
                    self._bench.deployments.retried(targets[following.target])
                if following.wait_s and await self._client_leaves_within(following.wait_s):
                    ending, error = "gone", None
                    break
                place, progress = following.target, following.progress
                self._tried = progress.tried
            if ending == "failed" and failures and not isinstance(error, StoreUnavailable):
                error = final_error(failures)
        except asyncio.CancelledError:
            ending, error = "stopped", InternalError("The gateway stopped serving this request.")
        except Exception:
            failure = InternalError("The gateway failed; this is not your fault.")
            with contextlib.suppress(StoreUnavailable):  # it is owed, then
                await self._settle("interrupted", failure, billed=False)
            if self._exchange.answered and not self._exchange.ended:
                self._tell_failure(failure)
            raise
        try:
            return await self._end(ending, error)
        except StoreUnavailable as failure:  # not settled, so nothing that completes the answer may leave
            if not self._exchange.gone:
                self._tell_failure(failure)
            return 0

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

    def _enter(self, place: int) -> Standing:
        """Begin an attempt at a target, under the eyes of what is known of its deployment."""
        known = self._bench.deployments
        deployment = self._targets[place]
        self._place = place
        if self._served:
            self._serve_as(self._order[place][0])
        self._attempts += 1
        self._number = self._attempts
        self._standing = standing = known.get(deployment.provider, deployment.model)
        standing.asked += 1
        standing.running += 1
        if standing.breaker is not CLOSED:
            known.starts(standing, self)
        return standing

    def _leave(self, standing: Standing) -> None:
        standing.running -= 1
        if standing.trial is self:
            standing.trial = None

    def _passed_over(self, progress: Progress) -> tuple[int | None, Progress]:
        """Go on from a target whose format cannot say the request, which therefore was not sent."""
        if progress.tried == len(progress.targets):
            return None, progress
        self._attempts -= 1
        target = progress.tried
        return target, progress._replace(target=target, tried=target + 1)

    def _serve_as(self, one: Served) -> None:
        """Go on with one of the models that the client named: what it is called and costs is that one's."""
        self._row.model = one.name
        if one.model is not self._model:
            self._model = one.model
            self._tab.served_at(one.model.price_at(self._started_at))

    def _following(self, error: UpstreamError, progress: Progress) -> Attempt | None:
        """Return the attempt that follows a failed one, or None."""
        return next_attempt(
            error,
            progress._replace(begun=self._first_content is not None or self._interpreter.spent),
            self._plan.retry,
            self._due_at - self._loop.time(),
            int.from_bytes(os.urandom(8)),
            self._bench.deployments.spent(progress.targets),
        )

    def _prepare(self, deployment: Deployment) -> "_Prepared":
        """Say the request as its provider wants it. Raises ClientError."""
        provider = self._plan.settings.catalogue.providers[deployment.provider]
        self._deployment = deployment
        interpreter, row = self._interpreter, self._row
        format = interpreter.target_format(provider)
        target = self._plan.targets.get(provider.name, format, deployment.model)
        self._switches = self._plan.switches(self._key, self._model, provider)
        clocks = self._plan.clocks(self._model, deployment)
        row.provider, row.provider_model, row.provider_format = provider.name, deployment.model, format
        row.attempts = self._attempts
        row.upstream_id = None
        self._meter.restart()
        interpreter.asked = asked = self._asked()
        if interpreter.client_name in KEEPING:
            self._prepare_keeping(asked, format, provider)
        return provider, format, target, clocks, self._body_for(format, provider, deployment)

    def _body_for(self, format: Shape, provider: Provider, deployment: Deployment) -> bytes:
        body = self._interpreter.upstream_body(format, provider, self._model, deployment, self._limit)
        if self._request.continuous_usage and self._request.stream:
            body = continuous.asking_provider(body, format, provider)
        return body

    async def _attempt(self, deployment: Deployment) -> Outcome:
        row = self._row
        try:
            provider, format, target, clocks, body = self._prepare(deployment)
            if self._interpreter.wanted:
                await self._plan.media.fill(self._interpreter.wanted)
                body = self._body_for(format, provider, deployment)
            connection = await self._connect(target, clocks)
        except (ClientError, UpstreamError) as refusal:
            return "failed", refusal
        if connection is None:
            return ("gone", None) if self._stopping is None else ("stopped", self._stopping)
        self._relay = relay = self._make_relay(format, provider, clocks)
        self._asked_at = time.monotonic()
        if not self._called:
            self._called = self._asked_at
            self._bench.tally.observe(telemetry.OVERHEAD, self._called - self._started)
        percentile = self._model.hedge_percentile
        try:
            upload = self._interpreter.upload
            if upload is None:
                running = relay.run(connection, self._head(format, provider, target, body), body)
            else:
                running = relay.run(connection, *self._begin_upload(upload, target), feeder=upload)
            del body  # this frame lives as long as the stream
            if percentile is None or not self._request.stream or upload is not None:
                ending = await running
                if ending == "complete" and self._interpreter.calls:
                    ending, relay = await self._make_other_calls(relay, target, format, provider, clocks)
                error = relay.error
            else:
                ending, error = await self._run_hedged(running, relay, percentile)
        except UpstreamError as failure:
            return "failed", failure
        finally:
            self._relay = None
            if self._interpreter.upload is not None:
                self._interpreter.upload.stop()
        if ending == "complete" and not self._request.stream:
            return self._read_answer(relay, format, provider)
        if self._codec is not None:
            self._meter.report(self._codec.usage)
            row.finish_reason, row.repaired = self._codec.finish_reason, self._codec.repaired
            row.upstream_id = self._codec.upstream_id
        return ending, error

    def _head(self, format: Shape, provider: Provider, target: Target, body: bytes) -> bytes:
        lines = self._interpreter.upstream_lines(format, provider, body, self._exchange.headers)
        return target.head(len(body), stream=self._request.stream, lines=lines)

    # ---- two attempts at once (Racer) -------------------------------------------------------------------------------

    async def _run_hedged(
        self, running: Coroutine[Any, Any, Ending], relay: Relay, percentile: float
    ) -> Outcome:
        """Run an attempt that gets a second one beside it should its first token be late."""
        late_s = self._bench.deployments.late_after_s(self._standing, percentile)
        if late_s is None or self._hedged is not None or self._tried >= len(self._targets):
            return await running, relay.error
        first = Lane(self._place)
        first.relay, first.kept = relay, self._kept()
        self._race = Race(self, self._exchange, first)
        try:
            _, outcome = await self._race.run(running, late_s, self._begin_second)
        finally:
            self._race = None
        return outcome

    def _begin_second(self, race: Race) -> tuple[Lane, Coroutine[Any, Any, Outcome]] | None:
        """Prepare the second attempt, at the next target; None where that may not be asked."""
        known, place = self._bench.deployments, self._tried
        deployment = self._targets[place]
        if known.spent((deployment.provider,)):
            return None
        first = self._kept()
        self._enter(place)
        self._meter = self._new_meter()
        self._codec = self._relay = None
        try:
            prepared = self._prepare(deployment)
        except ClientError:
            prepared = None
        if prepared is None or self._interpreter.wanted:  # it cannot say it, or not without a wait
            self._leave(self._standing)
            self._attempts -= 1
            self._restore(first)
            return None
        known.retried(deployment)
        self._tried = place + 1
        lane = Lane(place)
        lane.kept = self._kept()
        self._hedged = Hedged(place, first.place)
        self._restore(first)
        return lane, self._second(race, lane, prepared)

    async def _second(self, race: Race, lane: Lane, prepared: "_Prepared") -> Outcome:
        provider, format, target, clocks, body = prepared
        del prepared
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
        running = relay.run(connection, head, body, shared=True)
        del body, head, other
        return await running, relay.error

    def _kept(self) -> "_Kept":
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
        )

    def _restore(self, kept: "_Kept") -> None:
        if kept.model is not self._model:
            self._model = kept.model
            self._tab.served_at(kept.model.price)
        self._number, self._place = kept.number, kept.place
        self._deployment, self._standing, self._switches = kept.deployment, kept.standing, kept.switches
        self._meter, self._codec, self._relay = kept.meter, kept.codec, kept.relay
        self._asked_at = kept.asked_at
        assert isinstance(self._interpreter, Interpreter)
        self._interpreter.resume(kept.attempt)
        self._keeping = kept.keeping
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
        self._restore(other)

    def lane_lost(self, lane: Lane) -> None:
        """Take note of an attempt that was stopped; what it cost is the operator's."""
        kept = lane.kept
        self._leave(kept.standing)
        if lane.relay is None:
            return  # it had not been sent
        provider, now = kept.provider or "", time.monotonic()
        self._bench.deployments.late(kept.standing, now - kept.asked_at)
        self._bench.tally.add(telemetry.ATTEMPTS, 1, provider, "hedged")
        self._tab.lost_attempt(kept.number, provider, kept.provider_model or "", time.time(), "hedged")

    def _prepare_keeping(self, asked: Asked, format: Shape, provider: Provider) -> None:
        """Say whether the answer is kept: by the provider where it speaks the client's format, else by us."""
        request, account_id = self._request, self._key.account_id
        client = self._interpreter.client_name
        self._keeping = None
        asked.previous_id = self._previous_id
        if format == client:
            asked.close_id = closing(self._plan.seal, request, client, account_id, provider.name)
        elif isinstance(request, ResponsesRequest) and request.store:
            asked.kept = self._plan.settings.responses_store.enabled
            if asked.kept:
                previous = None if self._own_input is None else self._previous_id
                items = self._own_input or own_responses.input_of(request.body)
                self._keeping = Keeping(
                    self._bench.till.link, account_id, "resp_" + asked.id, previous, items
                )

    def _begin_upload(self, upload: Upload, target: Target) -> tuple[bytes, bytes]:
        """Return the head of a request with a form, and as much of the form as has come."""
        upload.on_failed = self.stop
        first = upload.first_part(target.model)
        framing = upload.framing(target.model, first)
        content_type = self._exchange.header(b"content-type") or b""
        head = target.upload_head(framing, content_type, stream=self._request.stream)
        return head, upload.framed(first)

    async def _make_other_calls(
        self, relay: Relay, target: Target, format: Shape, provider: Provider, clocks: StreamClocks
    ) -> tuple[Ending, Relay]:
        """Make the calls that an attempt takes beyond its first, one after the other; return how the last one ended.

        Raises:
            UpstreamError: no connection for one of them.
        """
        for body in self._interpreter.calls:
            assert isinstance(relay, PlainRelay)
            self._interpreter.keep(relay.body)
            connection = await self._connect(target, clocks)
            if connection is None:
                relay.error = self._stopping
                return ("gone" if self._stopping is None else "stopped"), relay
            self._relay = relay = self._make_relay(format, provider, clocks)
            ending = await relay.run(connection, target.head(len(body), stream=False), body)
            if ending != "complete":
                return ending, relay
        return "complete", relay

    async def _connect(self, target: Target, clocks: StreamClocks) -> UpstreamConnection | None:
        """Return a connection, or None where the client left or the request was stopped meanwhile.

        Raises:
            UpstreamError: there is none, or not in time.
        """
        connection = None  # what passes as it comes cannot be sent again, as a used connection may want
        if self._interpreter.upload is None:
            connection = self._bench.pool.take(target.origin)
        if connection is None:
            timeout_s = min(clocks.connect_timeout_s, self._due_at - self._loop.time())
            if timeout_s <= 0:
                raise UpstreamTimeout("The request took longer than its total time.", "total")
            dialling = asyncio.ensure_future(self._bench.pool.connect(target.origin, timeout_s))
            self._exchange.on_gone = lambda: _cancel(dialling)
            try:
                connection = await dialling
            except asyncio.CancelledError:
                if self._exchange.gone and dialling.cancelled():
                    return None
                dialling.cancel()
                raise
            finally:
                self._exchange.on_gone = None
        if self._exchange.gone or self._stopping is not None:
            connection.abort()
            return None
        return connection

    def _asked(self) -> Asked:
        return Asked(
            model=self._row.model,
            id=self.request_id[4:],
            created=int(self._started_at),
            hide_provider=not self._plan.settings.server.expose_provider,
            input_estimate=max(1, len(self._request.body) // 4),
            usage_shown=self._shows_usage(),
            continuous_usage=self._request.continuous_usage,
            array=self._interpreter.array,
        )

    def _make_relay(self, format: Shape, provider: Provider, clocks: StreamClocks) -> Relay:
        settings = self._plan.settings
        assert self._switches is not None
        drain_cap_s = settings.billing.drain_cap_s if self._switches.on_disconnect == "drain" else None
        if not self._request.stream:
            if getattr(self._request, "background", False):
                drain_cap_s = (
                    settings.billing.drain_cap_s
                )  # its id must be learned, or nobody could settle it
            return PlainRelay(
                self._exchange,
                self,
                self._bench.deadlines,
                clocks,
                total_due_at=self._due_at,
                secrets=provider.api_keys,
                drain_cap_s=drain_cap_s,
            )
        options = PassOptions(
            count_text=self._meter.add,
            usage_shown=self._shows_usage(),
            repair=provider.repair,
            choices=self._request.choices,
            max_event_bytes=clocks.max_event_bytes,
            array=self._interpreter.array,
        )
        codec = self._interpreter.stream(format, self._deployment, options)
        if self._request.continuous_usage:
            codec = continuous.telling(
                codec,
                self._interpreter.client,
                self._meter,
                self._tab,
                self._switches,
                array=options.array,
            )
        self._codec = codec
        return StreamRelay(
            self._exchange,
            codec,
            self,
            self._bench.deadlines,
            clocks,
            total_due_at=self._due_at,
            secrets=provider.api_keys,
            drain_cap_s=drain_cap_s,
            keepalive=self._interpreter.keepalive,
            passes_bytes=self._interpreter.passes_bytes,
            keepalive_after_s=settings.server.keepalive_after_s,
            keepalive_every_s=settings.server.keepalive_every_s,
            reads_arrays=self._interpreter.reads_arrays(format),
        )

    def _read_answer(
        self, relay: Relay, format: Shape, provider: Provider
    ) -> tuple[Ending, SluicegateError | None]:
        assert isinstance(relay, PlainRelay)
        try:
            answer = self._interpreter.plain(format, self._deployment, relay.body)
        except DecodeError as error:
            return "failed", UpstreamGarbled(f"The provider's answer broke its format: {error.reason}.")
        if answer.error is not None:
            return "failed", from_stream_error(answer.error, provider.api_keys)
        self._answer = answer
        self._meter.report(answer.usage)
        row = self._row
        row.finish_reason, row.upstream_id = answer.finish_reason, answer.upstream_id
        row.repaired = answer.repaired
        if answer.usage is None or answer.usage.output_tokens is None:
            for text in answer.texts():
                self._meter.add(text)
        return "complete", None

    def _note_failure(self, error: UpstreamError) -> None:
        row = self._row
        provider, model = row.provider or "", row.provider_model or ""
        outcome = error.kind
        self._bench.deployments.failed(self._standing, error)
        self._bench.tally.add(telemetry.ATTEMPTS, 1, provider, outcome)
        sent = (
            not (isinstance(error, UpstreamTimeout) and error.phase in ("pool", "connect"))
            and error.retry != "same"
        )
        refused = isinstance(error, UpstreamStatus) and error.upstream_status < 500
        if sent and not refused and self._first_content is None:
            self._tab.lost_attempt(self._number, provider, model, time.time(), type(error).__name__)

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

    # ---- what the relay tells (AttemptNotes) ------------------------------------------------------------------------

    def headed(self) -> None:
        """The provider has answered with success."""
        self._meter.headed = True
        if self._interpreter.passes_bytes and self._relay is not None:
            kind = self._relay.upstream_headers.get(b"content-type", b"application/octet-stream")
            self._interpreter.note_type(kind)

    def begun(self) -> None:
        """Content is here: the first token's time, and the body is not needed for another attempt."""
        self._first_content = time.monotonic()
        if self._standing.watched:
            self._bench.deployments.begun(self._standing, self._first_content - self._asked_at)
        self._exchange.release_body()
        self._exchange.headers = _NO_HEADERS
        self._exchange.route = None
        self._interpreter.release()
        if self._checkpoints:
            self.due_at = self._bench.deadlines.now + CHECKPOINT_S
            self._bench.deadlines.add(self)

    def head_lines(self) -> bytes:
        """Return the header lines of a streamed answer."""
        return self._interpreter.stream_lines + self._told()

    def usage_came(self, usage: Usage | None) -> None:
        """The provider has told totals, which account for all that it sent until now."""
        self._meter.report(usage)

    def finish_leaves(self) -> None:
        """Checkpoint: the finish leaves before usage has come."""
        assert self._codec is not None
        self._meter.report(self._codec.usage)
        self._row.finish_reason = self._codec.finish_reason
        self._tab.checkpoint(*self._meter.final(), finished=True)
        self._finish_left = True

    def _counted(self, output_tokens: int) -> None:
        """Ask for more before the reserved output is used up; the stream runs on meanwhile."""
        if self._checkpoints:
            self._checkpoint()
        if self._tab.held and not self._extending and output_tokens >= self._reserved_output * EXTEND_AT:
            self._extending = True
            self._loop.create_task(self._extend())

    def _text_is_late(self) -> None:
        """Text comes faster than it may be counted: count it in the turns to come, a piece in each."""
        self._loop.call_soon(self._count_late)

    def _count_late(self) -> None:
        if not self._tab.settled and self._meter.catch_up():
            self._loop.call_soon(self._count_late)

    @property
    def _checkpoints(self) -> bool:
        """Whether a crash charges for what was produced until then."""
        return self._tab.on_crash == "produced"

    def expire(self, now: float) -> None:
        """Journal a checkpoint: its time has come."""
        self.due_at = now + CHECKPOINT_S
        self._checkpoint()

    def _checkpoint(self) -> None:
        """Journal where the stream stands; once its finish has left, that stands there for good."""
        if self._finish_left or self._tab.settled or self._meter.late:
            return
        assert self._codec is not None
        self._meter.report(self._codec.usage)
        usage, source = self._meter.produced()
        output_tokens = usage.output_tokens or 0
        if output_tokens == self._checkpointed:
            return
        self._checkpointed = output_tokens
        with contextlib.suppress(StoreUnavailable):  # the one before, or the next, has to do
            self._tab.checkpoint(usage, source)

    async def _extend(self) -> None:
        more = self._plan.settings.billing.reserve_output_tokens
        try:
            await self._tab.extend_by(more)
            self._reserved_output += more
        except InsufficientBalance as refusal:
            used_up = InsufficientBalance("The credit of this account is used up.")
            self.stop(refusal if refusal.limit else used_up)
        except StoreUnavailable:
            pass  # silence stops nobody; asked again when more was counted
        finally:
            self._extending = False

    @property
    def tab(self) -> Tab | None:
        """What the request was settled as; None where it was never admitted."""
        return getattr(self, "_tab", None)

    @property
    def key_id(self) -> str:
        """Whose request it is."""
        return self._key.id

    def row_so_far(self) -> UsageRow | None:
        """Return the row as it would be now; None once it is settled."""
        if self._tab.settled:
            return None
        if self._codec is not None:
            self._meter.report(self._codec.usage)
        usage, source = self._meter.so_far()
        now = time.monotonic()
        row = msgspec.structs.replace(
            self._row,
            usage=usage,
            usage_source=source,
            cost_nano_usd=self._tab.cost_so_far(usage) if source != "none" else 0,
            duration_ms=round((now - self._started) * 1000, 3),
        )
        if self._first_content is not None:
            row.ttft_ms = round((self._first_content - self._started) * 1000, 3)
        return row

    @property
    def streaming(self) -> bool:
        """Whether a byte of a streamed answer is out."""
        return self._request.stream and self._exchange.answered

    def stop(self, error: SluicegateError) -> None:
        """End the request from outside, with what the client is told."""
        self._stopping = error
        if self._race is not None:
            self._race.stop(error)
        elif self._relay is not None:
            self._relay.stop(error)
        if self._pending is not None:
            self._pending.stop()

    # ---- the end ----------------------------------------------------------------------------------------------------

    async def _end(self, ending: Ending, error: SluicegateError | None) -> int:
        """Settle by how the last attempt ended, then send what ends the answer. Returns the tokens used."""
        exchange = self._exchange
        if ending == "complete" and self._runs_on():
            return await self._follow_run()
        if ending == "complete" and self._standing.breaker is not CLOSED:
            self._bench.deployments.worked(self._standing)
        while self._meter.late:
            self._meter.catch_up()
            await asyncio.sleep(0)
        if ending == "complete" and not exchange.gone:
            usage, source = self._meter.final()
            self._interpreter.remember()
            if self._interpreter.untold:
                telemetry.log(
                    telemetry.ANSWER_UNTOLD, id=self.request_id, what=",".join(self._interpreter.untold)
                )
            await self._settle_as("ok", None, usage, source)
            self._bench.tally.add(telemetry.ATTEMPTS, 1, self._row.provider or "", "ok")
            farewell = self._farewell()
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

    def _runs_on(self) -> bool:
        """Whether the answer only says that a run was queued, which is to go on in the background."""
        answer = self._answer
        return (
            isinstance(answer, ResponsesAnswer)
            and answer.finish_reason is None
            and answer.upstream_id is not None
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
                exchange.respond(200, JSON + self._told(), told)
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
        now = time.monotonic()
        row = self._row
        row.status = status
        row.error = None if error is None else error.kind
        row.duration_ms = round((now - self._started) * 1000, 3)
        output = usage.output_tokens
        if self._first_content is not None:
            row.ttft_ms = round((self._first_content - self._started) * 1000, 3)
            span_s = now - self._first_content
            if output is not None and output > 1 and span_s > 0:
                row.tokens_per_s = round((output - 1) / span_s, 2)
        await self._tab.settle(usage, source)
        self._bench.tally.settled(row)
        return row

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
            elif (
                self._interpreter.passes_bytes
            ):  # there is no place for an error: the answer must not look complete
                exchange.cut()
            else:  # content of the last read may still be here; a finish, or what an attempt never sent, is not told
                unsent = b"".join(codec.out) if codec.ended and not codec.finishing else b""
                exchange.end(unsent + codec.failure(error))
            return
        status, body = self._interpreter.error(error, self.request_id)
        exchange.respond(status, JSON + self._told() + error_lines(error, self._attempts), body)

    def _shows_usage(self) -> bool:
        assert self._switches is not None
        return self._request.include_usage or self._switches.usage_chunk == "always"

    def _told(self) -> bytes:
        row, server = self._row, self._plan.settings.server
        dropped = self._interpreter.dropped
        if self._limit is not None:
            dropped = [*dropped, f"{self._request.max_output_key};cut to credit"]
        if self._answer is not None:
            dropped = [*dropped, *(f"{what};of the answer" for what in self._interpreter.untold)]
        upstream_id = self._codec.upstream_id if self._codec is not None else row.upstream_id
        return answer_headers(
            self.request_id,
            provider=row.provider if server.expose_provider else None,
            attempts=self._attempts if server.expose_provider else None,
            overhead_ms=(self._called - self._started) * 1000 if self._called else None,
            upstream_id=upstream_id if server.expose_provider else None,
            dropped=dropped,
        )


def _cancel(task: "asyncio.Future[UpstreamConnection]") -> None:
    task.cancel()


def _header_text(exchange: Exchange, name: bytes) -> str | None:
    value = exchange.header(name)
    return None if value is None else value[:128].decode("latin-1")
