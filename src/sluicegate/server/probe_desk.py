"""The supervisor's probes: which deployments are due, which worker asks, and what follows for all of them.

One process decides for the whole machine, so that a provider is probed once and not by every worker; a provider's list
of models is asked for once for all of its deployments that are open, and no more than a few probes are under way at a
time, so that a broken network makes no storm. No request waits for a probe. The rules are `routing.probing`'s.
"""

import asyncio
import os
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, cast

import msgspec

from sluicegate.routing.chance import fraction
from sluicegate.routing.probing import Finding, Probe, Watch, after_finding, begin, drawn, trips
from sluicegate.server.control_messages import DeploymentHealth
from sluicegate.server.health_board import HealthBoard, state_of
from sluicegate.server.probe_messages import ProbeAsked, ProbeTold
from sluicegate.server.settings_shapes import WorkerSettings
from sluicegate.server.tally import Tally
from sluicegate.server.telemetry import (
    BREAKER_OPENED,
    DEPLOYMENT_HALF_OPENED,
    DEPLOYMENT_OPENED,
    DEPLOYMENT_REFUSES,
    PROBES,
    log,
)

MAX_AT_ONCE = 4
"""Probes under way; one of each provider at most."""
TICK_S = 0.1
"""How often it is looked what is due, while anything may be."""
ANSWER_S = 2.0
"""How much longer than its own time a probe is waited for: its worker may be busy."""

Place = tuple[str, str]
"""Provider, and its id of a model; the id is empty for all of the provider's."""


class _Asked(NamedTuple):
    """A probe that is under way."""

    question: int
    models: list[str]
    worker: int
    due_at: float
    """By when it is given up."""


class ProbeDesk:
    """Has probed what is open, and what works too where that is wanted."""

    def __init__(
        self,
        settings: WorkerSettings,
        board: HealthBoard,
        tally: Tally,
        send: Callable[[int, ProbeAsked | DeploymentHealth], None],
        live: Callable[[], Collection[int]],
    ) -> None:
        """Open it.

        Args:
            board: what is known of the health of deployments; what a probe changes is put there and told to all.
            send: tells a worker; nothing where it is gone.
            live: the worker processes that can be asked.
        """
        self._board = board
        self._tally = tally
        self._send = send
        self._live = live
        self._loop = asyncio.get_running_loop()
        self._watches: dict[Place, Watch] = {}
        """What is open and probed."""
        self._closed_due: dict[Place, float] = {}
        """When what works is probed next."""
        self._known: dict[str, list[str]] = {}
        """By provider, the models that the configuration names; those of wildcards nobody knows."""
        self._ill: dict[Place, int] = {}
        """Probes in a row that found ill what works."""
        self._under_way: dict[str, _Asked] = {}
        """By provider."""
        self._questions = 0
        self._news = asyncio.Event()
        self.apply(settings)

    def apply(self, settings: WorkerSettings) -> None:
        """Go on with other settings."""
        catalogue = settings.catalogue
        self._rules, self._health = settings.probes, settings.health
        self._kinds: dict[str, Probe] = {
            name: provider.probe or self._rules.kind for name, provider in catalogue.providers.items()
        }
        known = {
            (target.provider, target.model)
            for model in catalogue.models.values()
            for target in model.deployments
        }
        self._known = {}
        self._closed_due = {}
        for provider, model in sorted(known):
            kind = self._kinds[provider]
            if "*" in model or kind == "none":
                continue
            self._known.setdefault(provider, []).append(model)
            if self._rules.closed_every_s:
                place = (provider, model if kind == "request" else "")
                self._closed_due[place] = self._loop.time() + self._rules.closed_every_s * fraction(_seed())
        self._news.set()

    async def run(self) -> None:
        """Ask what is due, until cancelled."""
        while True:
            self._news.clear()
            self._give_up_late()
            self._watch_open()
            self._ask_due()
            idle = not (self._watches or self._closed_due or self._under_way)
            try:
                async with asyncio.timeout(None if idle else TICK_S):
                    await self._news.wait()
            except TimeoutError:
                continue

    def noticed(self) -> None:
        """Look again: something was put on the board."""
        self._news.set()

    def forget_worker(self, number: int) -> None:
        """Wait no longer for a worker that has ended; another one is asked in time."""
        for provider, asked in list(self._under_way.items()):
            if asked.worker == number:
                self._end(provider, ProbeTold(asked.question, "unclear"))

    def heard(self, told: ProbeTold) -> None:
        """Act on what a probe found."""
        for provider, asked in self._under_way.items():
            if asked.question == told.question:
                self._tally.add(PROBES, 1, provider, told.finding)
                self._end(provider, told)
                return

    def status(self) -> list[dict[str, Any]]:
        """Return for people what is open and probed."""
        now = self._loop.time()
        return [
            {
                "provider": provider,
                "model": model,
                "probe": self._kinds.get(provider, "none"),
                "last": watch.last,
                "well_in_a_row": watch.well,
                "wanted_in_a_row": watch.opens,
                "next_s": round(max(0.0, watch.due_at - now), 1),
            }
            for (provider, model), watch in self._watches.items()
        ]

    # ---- what is due ------------------------------------------------------------------------------------------------

    def _watch_open(self) -> None:
        """Follow the board: begin to watch what has opened, forget what is open no more."""
        now = self._loop.time()
        watches: dict[Place, Watch] = {}
        for health in self._board.current():
            place = (health.provider, health.model)
            if self._kinds.get(health.provider, "none") == "none" or state_of(health) != "open":
                continue
            watch = self._watches.get(place)
            if watch is None or watch.opens != health.opens:
                watch = begin(health.opens, health.open_s, now, _seed(), self._rules)
            watches[place] = watch
        self._watches = watches

    def _ask_due(self) -> None:
        now = self._loop.time()
        due = [(watch.due_at, place) for place, watch in self._watches.items() if watch.due_at <= now]
        unwell = (
            {(health.provider, health.model) for health in self._board.current()} if self._closed_due else ()
        )
        for _, (provider, model) in sorted(due):
            if self._kinds[provider] == "models":
                models = [other for name, other in self._watches if name == provider]
            else:
                models = [model]
            self._ask(provider, models)
        for (provider, model), due_at in self._closed_due.items():
            if due_at <= now:
                wanted = [model] if model else self._known[provider]
                models = [name for name in wanted if (provider, name) not in unwell]
                if models:
                    self._ask(provider, models)
                else:
                    self._put_off(provider, model)

    def _ask(self, provider: str, models: list[str]) -> None:
        live = sorted(self._live())
        if not live or provider in self._under_way or len(self._under_way) >= MAX_AT_ONCE:
            return
        self._questions += 1
        timeout_s = self._rules.timeout_s
        worker = live[self._questions % len(live)]
        due_at = self._loop.time() + timeout_s + ANSWER_S
        self._under_way[provider] = _Asked(self._questions, models, worker, due_at)
        self._send(worker, ProbeAsked(self._questions, provider, models, self._kinds[provider], timeout_s))

    # ---- what follows -----------------------------------------------------------------------------------------------

    def _give_up_late(self) -> None:
        now = self._loop.time()
        for provider, asked in list(self._under_way.items()):
            if asked.due_at <= now:
                self._end(provider, ProbeTold(asked.question, "unclear"))

    def _end(self, provider: str, told: ProbeTold) -> None:
        asked = self._under_way.pop(provider)
        unwell = {health.model: health for health in self._board.current() if health.provider == provider}
        for model in asked.models:
            health, watch = unwell.get(model), self._watches.get((provider, model))
            if health is None:
                self._found_closed(provider, model, told)
            elif watch is not None:
                self._found_open(watch, cast(Finding, told.finding), health)
        ill = told.finding in ("ill", "refused")
        for model in ("", *asked.models):
            if (provider, model) in self._closed_due:
                self._put_off(provider, model, soon=ill)
        self._news.set()

    def _found_open(self, watch: Watch, finding: Finding, health: DeploymentHealth) -> None:
        """Let one request in, or hold it open, by what a probe found of an open deployment."""
        if watch.opens != health.opens or state_of(health) != "open":
            return  # a request has tried it meanwhile
        now = self._loop.time()
        watch, open_s = after_finding(watch, finding, health.open_s, now, _seed(), self._rules, self._health)
        self._watches[health.provider, health.model] = watch
        if open_s == health.open_s:
            return
        if not open_s:
            log(DEPLOYMENT_HALF_OPENED, provider=health.provider, model=health.model)
        self._tell(msgspec.structs.replace(health, open_s=open_s))

    def _found_closed(self, provider: str, model: str, told: ProbeTold) -> None:
        """Open a deployment that works as far as anybody knew, where probes fail and no client is answered."""
        place = (provider, model)
        finding = cast(Finding, told.finding)
        if finding not in ("ill", "refused") or model in told.answering:
            self._ill.pop(place, None)
            return
        self._ill[place] = ill = self._ill.get(place, 0) + 1
        if trips(ill, finding, self._health):
            del self._ill[place]
            open_s = drawn(self._health.open_s, _seed())
            event = DEPLOYMENT_REFUSES if finding == "refused" else DEPLOYMENT_OPENED
            log(event, provider=provider, model=model, why=told.why, for_s=round(open_s, 1), by="probe")
            self._tally.add(BREAKER_OPENED, 1, provider, model, told.why)
            self._tell(DeploymentHealth(provider, model, 1, open_s, 0.0, told.why))

    def _tell(self, health: DeploymentHealth) -> None:
        self._board.put(health)
        for worker in self._live():
            self._send(worker, health)

    def _put_off(self, provider: str, model: str, *, soon: bool = False) -> None:
        """Probe what works again in its time; sooner where it may have ceased to."""
        every_s = self._rules.closed_every_s
        wait_s = min(self._rules.every_s, every_s) if soon else every_s
        self._closed_due[provider, model] = self._loop.time() + drawn(wait_s, _seed())


def _seed() -> int:
    return int.from_bytes(os.urandom(8))
