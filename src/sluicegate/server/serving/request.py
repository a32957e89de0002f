"""One request, from its whole body to its settlement: admit, reserve, attempt, relay, settle.

Read with `stream_relay` (how bytes move while a stream runs) and `tab` (how money does). Everything a request decides
it asks of `routing` and `billing`; everything it writes goes through its tab.

Invariants: nothing is sent to a provider before the reservation is journalled; nothing that completes an answer leaves
before the settlement is; a request that was admitted is settled exactly once, however it ends.
"""

from collections.abc import Coroutine
from typing import Any

from sluicegate.billing.ledger import UsageRow
from sluicegate.billing.price import PLAIN, Prompt, has_dearer_input
from sluicegate.errors import BadRequest, InternalError, ModelNotFound, StoreUnavailable, UpstreamError
from sluicegate.routing.catalog import Model, Price
from sluicegate.server import clock_wishes, continuous, own_responses
from sluicegate.server.choosing import MODELS, PROVIDER_HEADER, Served, find_model, overridden
from sluicegate.server.exchange import Exchange
from sluicegate.server.interpreter import Interpreter
from sluicegate.server.journal import RecordOwner
from sluicegate.server.kept_state import able, formats_of, refuse_loose_run, turn_back, unknown
from sluicegate.server.relay import Relay
from sluicegate.server.serving.attempts import Started, TriedRequest
from sluicegate.server.tab import Tab
from sluicegate.server.unary import UnaryInterpreter
from sluicegate.wire.openai_responses_request import ResponsesRequest
from sluicegate.wire.request_edges import cache_marks, media_tokens
from sluicegate.wire.sealed_id import is_sealed


class ServedRequest(TriedRequest):
    """One request of any kind, streamed or not."""

    __slots__ = ()

    async def serve(self) -> None:
        """Serve the request to its end. What is refused here has not been charged.

        Raises:
            SluicegateError: refused, or failed before a byte was sent; to be told as an error answer.
        """
        request = self._request
        catalogue = self._plan.settings.catalogue
        self._model = model = self._find_model()
        asks_gate = self._exchange.asks_gate
        provider = self._exchange.header(PROVIDER_HEADER) if asks_gate else None
        if provider is not None or request.names_other_models is not None:
            self._served = overridden(catalogue, self._key, request, model, provider)
            if request.value(MODELS) is not None:
                self._interpreter.take_out(MODELS)
                self._request = request = self._interpreter.request
        if request.names_kept_state:
            await self._turn_back()
            request = self._request
        if asks_gate:
            self._take_wishes()
        known = self._bench.limits.known(self._key)
        limits = known.limits if model.limits is None else (*known.limits, model.limits)
        if limits:
            self._ticket = await self._admit(limits, may_wait=True)
        try:
            self._open_tab(model, known.spending)
            reserved = self._reserve_now()
        except BaseException:
            self._part(0)
            raise
        await self._go_on(None, reserved=reserved)

    def begin(self) -> Coroutine[Any, Any, None] | None:
        """Begin to serve the request. An ordinary one needs no task: all of it happens in what the loop calls.

        Returns:
            None: it is on its way, and ends by itself. Else what has to run in a task: `serve`, or the rest of it from
            where something has to be waited for.
        Raises:
            SluicegateError: refused; nothing has been charged.
        """
        request, bench = self._request, self._bench
        if request.names_kept_state or request.names_other_models is not None or self._exchange.asks_gate:
            return self.serve()
        self._model = model = self._find_model()
        known = bench.limits.known(self._key)
        limits = known.limits if model.limits is None else (*known.limits, model.limits)
        if limits:
            if self._plan.settings.server.queue_for_s:
                return self.serve()
            ticket = bench.limits.admit_now(
                limits, self._estimate(), messages=self._interpreter.client_name == "messages"
            )
            if ticket is None:
                return self.serve()
            self._ticket = ticket
        try:
            self._open_tab(model, known.spending)
            # Who measures without money has nothing to write, so nothing would be sent.
            if not self._reserve_now(self if bench.other_tab is None else None):
                return self._go_on(None, reserved=False)
            self._meter = self._new_meter()
        except BaseException:
            self._part(0)
            raise
        bench.running.add(self)
        try:
            started = self._start_first()
        except Exception as fault:
            return self._go_on(fault)
        if (
            not isinstance(started, Relay)
            or started.ending is not None
            or model.hedge_percentile is not None
            or self._interpreter.calls
            or self._interpreter.pausable is not None
        ):
            return self._go_on(started)
        started.on_end = self._attempt_ended
        self._exchange.runner = self
        return None

    def cancel(self) -> None:
        """Stop a request that runs without a task. See `exchange.Runner`."""
        self.stop(InternalError("The gateway stopped serving this request."))

    def _attempt_ended(self) -> None:
        """Take the end of the only attempt so far."""
        if self._request.stream:  # what its last read brought is sent first
            self._loop.call_soon(self._end_or_go_on)
        else:
            self._end_or_go_on()

    def _end_or_go_on(self) -> None:
        """End a request that runs without a task; where that is not done at once, go on in one."""
        started: Started = self._relay
        used = -1
        try:
            if isinstance(started, Relay) and started.ending == "complete" and not self._exchange.gone:
                started.leave()
                started = self._taken(started)
                self._relay = None
                if started[0] == "complete":
                    used = self._end_whole()
        except UpstreamError as failure:
            started = "failed", failure
        except Exception as fault:
            started = fault
        if used < 0:
            self._exchange.go_on(self._go_on(started))
            return
        self._leave(self._standing)
        self._let_go()
        self._part(used)
        self._exchange.served()

    def _end_whole(self) -> int:
        try:
            return self._end_at_once(together=self._bench.other_tab is None)
        except StoreUnavailable as failure:  # not settled, so nothing that completes the answer may leave
            if not self._exchange.gone:
                self._tell_failure(failure)
            return 0

    async def _go_on(self, started: Started, *, reserved: bool = True) -> None:
        """Serve a request whose tab is open to its end.

        Args:
            started: how far its first attempt has come. None: it has not begun.
            reserved: what it may cost is held.
        """
        used = 0
        try:
            if not reserved:
                await self._reserve()
            if started is None:
                self._meter = self._new_meter()
                self._bench.running.add(self)
            try:
                used = await self._run(started)
            finally:
                self._let_go()
        finally:
            self._part(used)

    def _part(self, used: int) -> None:
        """Leave all that kept a place for the request, which has used so many tokens."""
        self._bench.running.discard(self)
        self._bench.deadlines.discard(self)
        if self._ticket is not None:
            self._ticket.release(used)
        if self._route_ticket is not None:
            self._leave_route(used)

    def _find_model(self) -> Model:
        """Return the model that is asked for. Raises ModelNotFound, BadRequest."""
        request = self._request
        try:
            return find_model(self._plan.settings.catalogue, self._key, request.model)
        except ModelNotFound:
            if getattr(request, "model_left_out", False):  # the client did not ask for the one we do not have
                raise BadRequest("Missing required parameter: 'model'.", param="model") from None
            raise

    def _let_go(self) -> None:
        """Part what holds each other, so that all of it is freed now, and not by the collector, for which all wait."""
        self._meter.fall_silent()
        interpreter = self._interpreter
        if (interpreter.pausable is not None or interpreter.calls) and isinstance(interpreter, Interpreter):
            interpreter.let_go()

    def _take_wishes(self) -> None:
        """Take down what the client asks of the gate by its headers. Raises BadRequest."""
        if self._request.stream:
            asked = self._exchange.header(continuous.HEADER)
            if asked is not None:
                continuous.ask_by_header(self._request, asked)
        wishes = self._exchange.header(clock_wishes.HEADER)
        if wishes is not None:
            self._wishes = clock_wishes.read_wishes(wishes)

    async def _turn_back(self) -> None:
        """Put in place of our ids what they stand for: what we keep ourselves, or the ids of the provider that does.

        Only that provider is asked then.
        """
        interpreter, model = self._interpreter, self._model
        if isinstance(interpreter, UnaryInterpreter):  # its ids have been turned back when it was read
            served = self._served or (Served(self._request.model, model, model.deployments),)
            providers = self._plan.settings.catalogue.providers
            self._served = able(served, providers, interpreter.keeper, background=False)
            return
        if isinstance(self._request, ResponsesRequest):
            self._previous_id = self._request.previous_response_id
            if self._plan.settings.responses_store.enabled:
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
        background = isinstance(request, ResponsesRequest) and request.background
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

    def _open_tab(self, model: Model, spending: bool) -> None:
        """Begin the request's row and its tab; say how much output is to be reserved."""
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
        budget = till.credit.budget_of(self._key.id, self._started_at) if spending else None
        prompt = PLAIN
        if others or (price is not None and has_dearer_input(price)):
            prompt = self._prompt()
        tab = self._bench.other_tab
        if tab is None:
            self._tab = Tab(till, self._key, price, self._row, others, tier, units, budget, prompt)
        else:
            self._tab = tab(till, self._key, price, self._row, others, tier, units, budget, prompt)
        self._reserved_output = output * request.choices

    def _reserve_now(self, owner: RecordOwner | None = None) -> bool:
        """Hold what the request may cost, where nobody has to be asked.

        Args:
            owner: we, where the record may be written with others.
        Raises:
            StoreUnavailable: the journal takes nothing.
        """
        request, output = self._request, self._reserved_output
        if request.choices == 1:
            reserved = self._tab.reserve_now(request.input_estimate, output, 0, owner)
        else:
            reserved = self._tab.reserve_now(
                self._input_of_all_calls(), output, request.input_estimate, owner
            )
        self._unwritten = reserved and owner is not None
        return reserved

    async def _reserve(self) -> None:
        """Have what the request may cost held. Raises InsufficientBalance, StoreUnavailable."""
        request, wanted, units = self._request, self._reserved_output, self._interpreter.units
        covered = await self._tab.reserve_slowly(
            request.input_estimate if request.choices == 1 else self._input_of_all_calls(),
            wanted,
            may_cut=not request.stream and request.max_output_tokens is None and units is None,
        )
        self._reserved_output = covered
        if covered < wanted:
            self._limit = covered // request.choices

    def _prompt(self) -> Prompt:
        """Return what of the prompt may cost more than fresh text.

        Messages are written to a cache where a mark says so; any other provider that charges for writes may do so by
        itself.
        """
        body = self._request.body
        marked, for_an_hour = cache_marks(body)
        providers = self._plan.settings.catalogue.providers
        served = self._served or (Served(self._request.model, self._model, self._model.deployments),)
        by_itself = formats_of(served, providers) != {"messages"}
        return Prompt(marked or by_itself, for_an_hour, media_tokens(body))

    def _input_of_all_calls(self) -> int:
        """Return the input to reserve where several answers are wanted, which may take a call each."""
        request = self._request
        prompts: int = getattr(request, "prompts", 1)
        answers = request.choices // prompts
        models = [one.model for one in self._served] or [self._model]
        may_call = any(answers <= model.max_calls for model in models)
        return request.input_estimate * (answers if may_call else 1)


def _header_text(exchange: Exchange, name: bytes) -> str | None:
    value = exchange.header(name)
    return None if value is None else value[:128].decode("latin-1")
