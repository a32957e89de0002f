"""What is measured, and how: each scenario turns a running target into a few figures.

Targets take turns within each round, so that a machine that slows down slows both; what counts is the ratio of one
round's figures, and of the ratios the median.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from bench import processes
from bench.load import Load, LoadFigures, LoadPlan
from bench.percentiles import percentile
from bench.targets import ProviderProcess, Target

TOKENS = 64
"""Content events of one streamed answer."""
PACE_US = 20_000
PACE_LATE_MS = 20.0
PACE_BULK_S = 0.1
"""How often the streams in pace are read of which nobody asks how late they are."""
MEMORY_STREAMS = (1, 1000, 4000)

CPU_PLANS: dict[str, LoadPlan] = {
    "plain": LoadPlan(stream=False, connections=16),
    "money": LoadPlan(stream=False, connections=16),
    "paced": LoadPlan(stream=True, connections=100, tokens=TOKENS, every_us=5000),
    "burst": LoadPlan(stream=True, connections=16, tokens=512),
}
MONEY_ROUNDS = 5
"""Rounds of `money` for one of the others: it looks for a small difference between two large figures."""
TRANSLATED = ("paced", "burst")
"""Scenarios in which a gate that translates is measured too."""
FIRST_TOKEN_PLANS: dict[str, LoadPlan] = {
    "ttft": LoadPlan(stream=True, connections=32, tokens=16, requests_per_s=200),
    "ttft_busy": LoadPlan(
        stream=True, connections=500, tokens=TOKENS, every_us=PACE_US, ramp_per_s=500e6 / (TOKENS * PACE_US)
    ),
}
"""Measured without a relay too; in the second each of 500 streams in pace begins anew when it has ended. They are
opened over the time that one of them takes, so that they do not all begin at once, then and ever after."""
SCENARIOS = (*CPU_PLANS, *FIRST_TOKEN_PLANS, "memory", "pace")


@dataclass(frozen=True)
class Effort:
    """How long and how often."""

    rounds: int
    warm_s: float
    measure_s: float
    pace_steps: tuple[int, ...]

    @classmethod
    def quick(cls) -> "Effort":
        """Enough to see where one stands."""
        return cls(rounds=5, warm_s=0.3, measure_s=0.7, pace_steps=(500, 750, 1000))

    @classmethod
    def full(cls) -> "Effort":
        """Enough to publish."""
        return cls(
            rounds=15, warm_s=0.4, measure_s=1.5, pace_steps=(500, 750, 1000, 1250, 1500, 2000, 2500, 3000)
        )


@dataclass
class Sample:
    """Figures of one target in one round of one scenario."""

    scenario: str
    provider: str
    target: str
    round: int
    values: dict[str, float]
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Bench:
    """The provider and how hard to try."""

    provider: ProviderProcess
    effort: Effort
    ask_usage: bool = True
    obfuscated: bool = False
    """Every event carries a varying field after its text, as OpenAI's do."""

    def samples(self, scenario: str, kind: str, targets: list[Target]) -> Iterator[Sample]:
        """Run one scenario against targets in turn; yields as it goes."""
        if scenario == "pace":
            for target in targets:
                yield from self._paces(kind, target)
            return
        if scenario == "memory":
            for target in targets:
                yield from self._memory(kind, target)
            return
        rounds = self.effort.rounds * (MONEY_ROUNDS if scenario == "money" else 1)
        for round_number in range(rounds):
            ordered = targets if round_number % 2 == 0 else targets[::-1]
            for target in ordered:
                plan = FIRST_TOKEN_PLANS.get(scenario) or CPU_PLANS[scenario]
                yield self._measure(scenario, kind, target, round_number, plan)

    def _measure(self, scenario: str, kind: str, target: Target, round_number: int, plan: LoadPlan) -> Sample:
        meter = _CpuMeter(target, self.provider)
        load = Load(target.port, replace(plan, ask_usage=self.ask_usage, sample_every=int(self.obfuscated)))
        figures = load.run(self.effort.warm_s, self.effort.measure_s, meter.mark)
        values = meter.per_unit(figures, stream=plan.stream)
        values["answers_per_s"] = figures.answers / figures.seconds
        values["first_p50_ms"] = percentile(figures.first_content_ms, 50)
        values["first_p99_ms"] = percentile(figures.first_content_ms, 99)
        time.sleep(0.1)
        return Sample(scenario, kind, target.name, round_number, values, figures.errors)

    def _paces(self, kind: str, target: Target) -> Iterator[Sample]:
        """Raise the number of streams until their events come too late."""
        for round_number, streams in enumerate(self.effort.pace_steps):
            plan = LoadPlan(
                stream=True,
                connections=streams,
                tokens=1_000_000,
                every_us=PACE_US,
                ramp_per_s=1000,
                sample_every=16,
                bulk_every_s=PACE_BULK_S,
                ask_usage=self.ask_usage,
            )
            self.provider.stats()
            meter = _CpuMeter(target, self.provider)
            figures = Load(target.port, plan).run(1.0, max(2.0, self.effort.measure_s), meter.mark)
            values = meter.per_unit(figures, stream=True) | _lateness(figures)
            values["streams"] = streams
            values["expected_share"] = figures.events / figures.seconds / (streams * 1e6 / PACE_US)
            values["provider_late_p99_ms"] = self.provider.stats()["late_p99_us"] / 1000
            yield Sample("pace", kind, target.name, round_number, values, figures.errors)
            time.sleep(0.5)
            if values["late_p99_ms"] > PACE_LATE_MS:
                return

    def _memory(self, kind: str, target: Target) -> Iterator[Sample]:
        """Hold streams open that say a word a second, and look at the resident memory."""
        for round_number, streams in enumerate(MEMORY_STREAMS):
            plan = LoadPlan(
                stream=True,
                connections=streams,
                tokens=1_000_000,
                every_us=1_000_000,
                ramp_per_s=1000,
                ask_usage=self.ask_usage,
            )
            values: dict[str, float] = {"streams": streams}
            figures = Load(target.port, plan).run(2.5, 0.5, _memory_mark(target, values))
            yield Sample("memory", kind, target.name, round_number, values, figures.errors)
            time.sleep(1.5)


class _CpuMeter:
    """CPU of each part of a target.

    What serves is read between the two marks. What works behind it (supervisor, admin) is read from before the load
    until it has caught up, over all units of the run: under full load it may lag, and its work would not be counted.
    """

    def __init__(self, target: Target, provider: ProviderProcess) -> None:
        self._parts = target.pids()
        self._behind = [part for part in self._parts if part in ("supervisor", "admin")]
        self._parts["provider"] = [provider.pid]
        self._parts["client"] = [os.getpid()]
        self._before = self._read()
        self._at_marks: list[dict[str, float]] = []

    def mark(self) -> None:
        """Read the clocks of all processes."""
        self._at_marks.append(self._read())

    def per_unit(self, figures: LoadFigures, *, stream: bool) -> dict[str, float]:
        """Return microseconds a unit, whole and by part, and how busy the two cores were."""
        units = figures.events if stream else figures.answers
        all_units = figures.all_events if stream else figures.all_answers
        opened, closed = self._at_marks
        spent = {part: closed[part] - opened[part] for part in opened}
        load_s = spent.pop("provider") + spent.pop("client")
        core_busy = sum(spent.values()) / figures.seconds
        values = {f"us_{part}": used * 1e6 / max(1, units) for part, used in spent.items()}
        after = self._when_caught_up()
        for part in self._behind:
            values[f"us_{part}"] = (after[part] - self._before[part]) * 1e6 / max(1, all_units)
        values["us"] = sum(values.values())
        values["core_busy"] = core_busy
        values["load_busy"] = load_s / figures.seconds
        values["units_per_s"] = units / figures.seconds
        return values

    def _when_caught_up(self) -> dict[str, float]:
        last = self._read()
        for _ in range(40 if self._behind else 0):
            time.sleep(0.25)
            now = self._read()
            if sum(now[part] - last[part] for part in self._behind) < 0.05 * 0.25:
                return now
            last = now
        return last

    def _read(self) -> dict[str, float]:
        return {part: sum(processes.cpu_s(pid) for pid in pids) for part, pids in self._parts.items()}


def _lateness(figures: LoadFigures) -> dict[str, float]:
    return {
        "late_p50_ms": percentile(figures.late_ms, 50),
        "late_p99_ms": percentile(figures.late_ms, 99),
        "late_max_ms": figures.late_ms[-1] if figures.late_ms else 0.0,
    }


def _memory_mark(target: Target, values: dict[str, float]) -> Callable[[], None]:
    def mark() -> None:
        for part, pids in target.pids().items():
            values[f"rss_{part}_kib"] = sum(processes.rss_kib(pid) for pid in pids)
        values["rss_kib"] = sum(
            v for name, v in values.items() if name.startswith("rss_") and name != "rss_kib"
        )
        values["pss_kib"] = sum(processes.pss_kib(pid) for pids in target.pids().values() for pid in pids)

    return mark
