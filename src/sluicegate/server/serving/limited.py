"""A request's places under limits: of its key, account and model before anything is reserved, of a deployment before it
is asked."""

from sluicegate.errors import RateLimited, StoreUnavailable
from sluicegate.routing.catalog import Deployment, Model
from sluicegate.routing.catalog_shapes import Limits
from sluicegate.server.limiting import Ticket
from sluicegate.server.serving.attempt import AttemptingRequest


class LimitedRequest(AttemptingRequest):
    """A request that may have to be let in."""

    __slots__ = ()

    async def _admit(self, limits: tuple[Limits, ...], *, may_wait: bool) -> Ticket:
        """Take a place under limits. Raises RateLimited, StoreUnavailable."""
        bench, messages = self._bench, self._interpreter.client_name == "messages"
        estimate = self._estimate()
        patience_s = self._plan.settings.server.queue_for_s if may_wait else 0.0
        if not patience_s:
            ticket = bench.limits.admit_now(limits, estimate, messages=messages)
            return ticket or await bench.limits.admit(limits, estimate, messages=messages)
        return await bench.queue.admit(
            limits, estimate, self._key.id, self._exchange, patience_s, messages=messages
        )

    def _estimate(self) -> int:
        """Return the tokens that a request counts for until it is settled."""
        return self._request.input_estimate + self._wanted_output() * self._request.choices

    async def _admit_at(self, deployment: Deployment) -> None:
        """Take a place under the limits of a deployment, and of a model that was not asked for first.

        Only who has nowhere else to go waits for one. Raises RateLimited, StoreUnavailable.
        """
        limits = self._limits_at(deployment, self._model)
        if not limits:
            return
        self._meter.restart()
        last = self._place == len(self._targets) - 1
        try:
            self._route_ticket = await self._admit(limits, may_wait=last)
        except RateLimited as refusal:
            refusal.header_lines = b""  # what a provider allows us is not the client's to know
            raise

    async def _let_in(self, limits: tuple[Limits, ...]) -> Ticket | None:
        """Take a place that nobody waits for; None where there is none now."""
        try:
            return await self._admit(limits, may_wait=False)
        except (RateLimited, StoreUnavailable):
            return None

    def _limits_at(self, deployment: Deployment, model: Model) -> tuple[Limits, ...]:
        """Return the limits of a deployment, and those of its model where another one was asked for first."""
        limits = () if deployment.limits is None else (deployment.limits,)
        if self._served and model is not self._served[0].model and model.limits is not None:
            return (*limits, model.limits)
        return limits

    def _used_so_far(self) -> int:
        """Return the tokens of an answer that has begun."""
        usage, _ = self._meter.so_far()
        return (usage.input_tokens or 0) + (usage.output_tokens or 0)

    def _count_call(self, tokens: int) -> None:
        """Count one call more of the attempt at hand under the limits of its deployment."""
        if self._route_ticket is not None:
            self._route_ticket.add_call(tokens)

    def _leave_route(self, used: int) -> None:
        """Free what an attempt had under the limits of its deployment."""
        ticket, self._route_ticket = self._route_ticket, None
        if ticket is not None:
            ticket.release(used)
