"""What a worker knows of each deployment: its breaker, what runs there, how fast it is; and what follows from it.

The decisions are `routing`'s (`route`, `health`, `retry`); clock and chance are put in here. Breakers that open, close
or cool are told to the supervisor, which tells the other workers (`health_board`); counts and times are each worker's
own, as connections are spread evenly. A request with one healthy deployment costs an addition or two.
"""

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from sluicegate.errors import UpstreamError, UpstreamStatus
from sluicegate.routing.catalog import Deployment
from sluicegate.routing.catalog_shapes import Strategy
from sluicegate.routing.health import (
    CLOSED,
    Breaker,
    Condition,
    HealthRules,
    after_error,
    after_success,
    effect_of,
)
from sluicegate.routing.hedge import MAX_MEASURED, late_after_s
from sluicegate.routing.retry import FREE_RETRIES, may_retry
from sluicegate.routing.route import Candidate, after_first_token, faded, order
from sluicegate.server import telemetry
from sluicegate.server.control_messages import DeploymentHealth
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.settings import WorkerSettings
from sluicegate.server.supervisor_link import SupervisorLink
from sluicegate.server.tally import Tally
from sluicegate.server.telemetry import log

TURN_S = 5.0
"""Counts are of this span and the one before it."""
MAX_STANDINGS: Final = 10_000
"""Deployments that are remembered; clients choose ids under a wildcard."""
TOLD_AGAIN_S = 1.0
"""A deployment that goes on cooling is told to others only where it takes so much longer."""


class Standing:
    """One deployment as this worker sees it."""

    __slots__ = (
        "_asked_before",
        "_failed_before",
        "_retried_before",
        "asked",
        "breaker",
        "failed",
        "first_token_at",
        "first_token_s",
        "first_tokens",
        "model",
        "provider",
        "retried",
        "running",
        "salt",
        "trial",
        "watched",
    )

    def __init__(self, provider: str, model: str) -> None:
        self.provider = provider
        self.model = model
        self.salt = crc32(f"{provider}/{model}".encode())
        self.breaker = CLOSED
        self.trial: object = None
        """Who makes the attempt that shows whether it works again, while that is under way."""
        self.running = 0
        """Attempts under way."""
        self.asked = self.failed = self.retried = 0
        """Attempts, failures and retries of the current span."""
        self._asked_before = self._failed_before = self._retried_before = 0
        self.watched = False
        """The time to its first token is of interest, or its breaker is: who gets content from it says so."""
        self.first_token_s: float | None = None
        """Moving average, as of `first_token_at`."""
        self.first_token_at = 0.0
        self.first_tokens: deque[float] | None = None
        """The latest times to a first token, where a model hedges."""

    def turn(self) -> None:
        """Begin another span."""
        self._asked_before, self.asked = self.asked, 0
        self._failed_before, self.failed = self.failed, 0
        self._retried_before, self.retried = self.retried, 0

    def forget_counts(self) -> None:
        """Count anew: what led to an open breaker must not open it again at once."""
        self.asked = self.failed = self._asked_before = self._failed_before = 0

    def recent(self) -> tuple[int, int, int]:
        """Return attempts, failures and retries of the last two spans."""
        return (
            self.asked + self._asked_before,
            self.failed + self._failed_before,
            self.retried + self._retried_before,
        )

    def condition(self, now: float) -> Condition:
        """Return what its breaker is now."""
        return self.breaker.condition(now, trial=self.trial is not None)

    def candidate(self, deployment: Deployment, now: float) -> Candidate:
        """Return what routing has to know."""
        closed = self.breaker is CLOSED
        average = self.first_token_s
        return Candidate(
            deployment,
            self.salt,
            "closed" if closed else self.condition(now),
            self.breaker.told,
            self.running,
            None if average is None else faded(average, now - self.first_token_at),
        )


class Deployments:
    """All deployments that this worker has asked, and lately."""

    def __init__(self, deadlines: Deadlines, tally: Tally, link: SupervisorLink) -> None:
        """Start with what the other workers have found."""
        self._loop = asyncio.get_running_loop()
        self._tally = tally
        self._link = link
        self._standings: dict[tuple[str, str], Standing] = {}
        self._rules = HealthRules()
        self._budget_percent = 20
        self._free_retries = FREE_RETRIES
        self.due_at = self._loop.time() + TURN_S
        deadlines.add(self)
        link.take_health(self.learn)

    def apply(self, settings: WorkerSettings) -> None:
        """Go on with other settings."""
        self._rules = settings.health
        self._budget_percent = settings.retry.budget_percent
        self._free_retries = max(1, FREE_RETRIES // settings.server.workers)

    def get(self, provider: str, model: str) -> Standing:
        """Return a deployment's standing."""
        standing = self._standings.get((provider, model))
        if standing is None:
            if len(self._standings) >= MAX_STANDINGS:
                self._forget_idle()
            standing = self._standings[provider, model] = Standing(provider, model)
        return standing

    def answers(self, provider: str, model: str) -> bool:
        """Whether a deployment has answered requests in the last two spans."""
        standing = self._standings.get((provider, model))
        if standing is None:
            return False
        asked, failed, _ = standing.recent()
        return asked - failed - standing.running > 0

    def choose(
        self, deployments: Sequence[Deployment], strategy: Strategy, key: int, tokens: tuple[int, int]
    ) -> list[int]:
        """Return the places of the deployments to try, in order; see `routing.route.order`."""
        now = self._loop.time()
        candidates = []
        for deployment in deployments:
            standing = self.get(deployment.provider, deployment.model)
            if strategy == "fastest_first_token":
                standing.watched = True
            candidates.append(standing.candidate(deployment, now))
        return order(candidates, strategy, key, tokens)

    def cooling_errors(self, deployments: Sequence[Deployment]) -> list[UpstreamError]:
        """Return what a client is told of those that asked to be left alone, with the rest of their time."""
        now = self._loop.time()
        errors: list[UpstreamError] = []
        for deployment in deployments:
            breaker = self.get(deployment.provider, deployment.model).breaker
            left_s = breaker.cooling_until - now
            if breaker.told and left_s > 0:
                errors.append(_asks_for_patience(breaker.kind, left_s))
        return errors

    # ---- what happens to them ---------------------------------------------------------------------------------------

    def starts(self, standing: Standing, attempt: object) -> None:
        """Take note of an attempt at one whose breaker is not closed: it may be the one that tries it out."""
        if standing.condition(self._loop.time()) == "half_open":
            standing.trial = attempt

    def begun(self, standing: Standing, took_s: float) -> None:
        """Take note of the first content of one that is watched."""
        now = self._loop.time()
        if standing.breaker is not CLOSED:
            self.worked(standing)
        standing.first_token_s = after_first_token(
            standing.first_token_s, now - standing.first_token_at, took_s
        )
        standing.first_token_at = now
        if standing.first_tokens is not None:
            standing.first_tokens.append(took_s)

    def late_after_s(self, standing: Standing, percentile: float) -> float | None:
        """Return after how long a first token is late; see `routing.hedge`. From now on they are measured."""
        if standing.first_tokens is None:
            standing.first_tokens = deque(maxlen=MAX_MEASURED)
            standing.watched = True
        return late_after_s(standing.first_tokens, percentile)

    def late(self, standing: Standing, after_s: float) -> None:
        """Take note of a first token that nobody waited for any longer: it took so long at least."""
        if standing.first_tokens is not None:
            standing.first_tokens.append(after_s)

    def worked(self, standing: Standing) -> None:
        """Take note of an answer from one whose breaker is not closed."""
        standing.trial = None
        self._move(standing, after_success(standing.breaker, self._loop.time()))

    def failed(self, standing: Standing, error: UpstreamError) -> None:
        """Take note of a failed attempt."""
        effect = effect_of(error)
        if effect == "none":
            return
        standing.failed += effect == "failure"
        asked, failed, _ = standing.recent()
        seed = int.from_bytes(os.urandom(8))
        self._move(
            standing,
            after_error(standing.breaker, error, asked, failed, self._loop.time(), seed, self._rules),
        )

    def learn(self, told: DeploymentHealth) -> None:
        """Take over what another worker found."""
        now = self._loop.time()
        standing = self.get(told.provider, told.model)
        standing.trial = None
        standing.breaker = (
            CLOSED
            if not told.opens and told.cooling_s <= 0
            else Breaker(
                failures=standing.breaker.failures,
                opens=told.opens,
                open_until=now + told.open_s,
                cooling_until=now + told.cooling_s,
                told=True,
                kind=told.kind,
            )
        )
        standing.watched = standing.watched or standing.breaker is not CLOSED

    def _move(self, standing: Standing, breaker: Breaker) -> None:
        """Go on with another breaker, and tell of it where that changes what others may do."""
        before, standing.breaker = standing.breaker, breaker
        if breaker is CLOSED and before is CLOSED:
            return
        standing.watched = True
        opened, closed = breaker.opens > before.opens, bool(before.opens and not breaker.opens)
        cools = breaker.told and breaker.cooling_until > before.cooling_until + TOLD_AGAIN_S
        if not (opened or closed or cools):
            return
        now = self._loop.time()
        if opened:
            refused = breaker.kind in ("upstream_auth", "upstream_budget")
            log(
                telemetry.DEPLOYMENT_REFUSES if refused else telemetry.DEPLOYMENT_OPENED,
                provider=standing.provider,
                model=standing.model,
                why=breaker.kind,
                for_s=round(breaker.open_until - now, 1),
            )
            self._tally.add(telemetry.BREAKER_OPENED, 1, standing.provider, standing.model, breaker.kind)
            standing.forget_counts()
        elif closed:
            log(telemetry.DEPLOYMENT_CLOSED, provider=standing.provider, model=standing.model)
        self._link.send(
            DeploymentHealth(
                standing.provider,
                standing.model,
                breaker.opens,
                max(0.0, breaker.open_until - now),
                max(0.0, breaker.cooling_until - now) if breaker.told else 0.0,
                breaker.kind,
            )
        )

    def retried(self, deployment: Deployment) -> None:
        """Count a retry against its provider's budget."""
        self.get(deployment.provider, deployment.model).retried += 1

    # ---- retries ----------------------------------------------------------------------------------------------------

    def spent(self, providers: Sequence[str]) -> frozenset[str]:
        """Return those of the providers that may get no more retries now."""
        spent = frozenset(provider for provider in set(providers) if not self._may_retry(provider))
        for provider in spent:
            self._tally.add(telemetry.RETRIES_REFUSED, 1, provider)
        return spent

    def _may_retry(self, provider: str) -> bool:
        asked = retried = 0
        for (name, _), standing in self._standings.items():
            if name == provider:
                theirs = standing.recent()
                asked += theirs[0]
                retried += theirs[2]
        return may_retry(asked, retried, self._budget_percent, self._free_retries)

    # ---- time -------------------------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Begin another span of all counts."""
        self.due_at = now + TURN_S
        for standing in self._standings.values():
            standing.turn()

    def _forget_idle(self) -> None:
        for place, standing in list(self._standings.items()):
            if not standing.running and standing.breaker is CLOSED:
                del self._standings[place]
        if len(self._standings) >= MAX_STANDINGS:
            self._standings.clear()


def _asks_for_patience(kind: str, left_s: float) -> UpstreamStatus:
    limited = kind == "rate_limited"
    status = 429 if limited else 503
    return UpstreamStatus(
        f"The provider is {'limiting requests' if limited else 'overloaded'}; try again later.",
        upstream_status=status,
        kind=kind,
        status=status,
        retry="elsewhere",
        retry_after_s=left_s,
    )
