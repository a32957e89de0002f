"""Turns samples into figures, ratios, verdicts and `results.md`."""

import dataclasses
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.percentiles import median
from bench.scenarios import FIRST_TOKEN_PLANS, PACE_LATE_MS, Sample
from bench.targets import nginx_binary

_NAMES = {
    "plain": "plain request",
    "money": "plain request, with and without money",
    "paced": "event, 5 ms apart, 100 streams",
    "burst": "event, in bursts",
}
_PACE_STREAMS = 1000
_MONEY_LIMIT = 0.6


@dataclass(frozen=True)
class Verdict:
    """One limit, what was measured, and whether it holds; None where nothing was measured."""

    what: str
    limit: str
    measured: str
    holds: bool | None


class Results:
    """All samples of one run."""

    def __init__(self, samples: list[Sample]) -> None:
        self.samples = samples

    def values(self, scenario: str, kind: str, target: str, name: str) -> list[float]:
        """Return one figure of every round."""
        return [
            sample.values[name]
            for sample in self.samples
            if (sample.scenario, sample.provider, sample.target) == (scenario, kind, target)
            and name in sample.values
        ]

    def ratios(self, scenario: str, kind: str, target: str, name: str = "us") -> list[float]:
        """Return a target's figure over nginx's, round by round."""
        ours, theirs = self.values(scenario, kind, target, name), self.values(scenario, kind, "nginx", name)
        return [a / b for a, b in zip(ours, theirs, strict=False) if b]

    def added(self, scenario: str, kind: str, target: str, name: str) -> float | None:
        """Return what a target adds to the first-token time, median over rounds."""
        ours, bare = self.values(scenario, kind, target, name), self.values(scenario, kind, "direct", name)
        return median([a - b for a, b in zip(ours, bare, strict=False)]) if ours and bare else None

    def kib_per_stream(self, kind: str, target: str, figure: str = "rss_kib") -> float | None:
        """Return the growth of memory from one open stream to the most, a stream."""
        streams, kib = (
            self.values("memory", kind, target, "streams"),
            self.values("memory", kind, target, figure),
        )
        if len(streams) < 2:
            return None
        return (kib[-1] - kib[0]) / (streams[-1] - streams[0])

    def paced_streams(self, kind: str, target: str) -> tuple[int, float, bool] | None:
        """Return the most streams that kept the pace, CPU an event there, and whether the load side was the limit."""
        found = [s for s in self.samples if (s.scenario, s.provider, s.target) == ("pace", kind, target)]
        if not found:
            return None
        held = [
            s for s in found if s.values["late_p99_ms"] <= PACE_LATE_MS and s.values["expected_share"] > 0.98
        ]
        best = held[-1] if held else found[0]
        load_bound = found[-1] is not best and found[-1].values["load_busy"] > found[-1].values["core_busy"]
        return (int(best.values["streams"]) if held else 0), best.values["us"], load_bound

    def targets(self) -> list[str]:
        """Return what was measured, in order of appearance."""
        return list(dict.fromkeys(sample.target for sample in self.samples))

    def kinds(self) -> list[str]:
        """Return which providers were used."""
        return list(dict.fromkeys(sample.provider for sample in self.samples))

    def errors(self) -> list[str]:
        """Return what went wrong, with where."""
        return [
            f"{sample.scenario}/{sample.provider}/{sample.target}: {len(sample.errors)} × {sample.errors[0]!r}"
            for sample in self.samples
            if sample.errors
        ]


def verdicts(results: Results, target: str = "gate") -> list[Verdict]:
    """Hold a target to the limits of the project."""
    found = [
        _ratio_verdict(results, target, "plain", "plain", 3.5),
        _ratio_verdict(results, target, "paced", "plain", 2.0),
        _ratio_verdict(results, target, "burst", "plain", 8.0),
        _ratio_verdict(results, target, "plain", "tls", 3.0),
        _ratio_verdict(results, target, "paced", "tls", 2.1),
    ]
    for kind, limit in (("plain", 16.0), ("tls", 64.0)):
        kib = results.kib_per_stream(kind, target)
        found.append(
            Verdict(
                f"memory per open stream, 4,000 open, {_provider(kind)}",
                f"≤ {limit:g} KiB",
                "–" if kib is None else f"{kib:.1f} KiB",
                None if kib is None else kib <= limit,
            )
        )
    for scenario, limit in (("paced", 2.5), ("burst", 14.0)):
        translated = _ratio_verdict(results, "translating", scenario, "plain", limit)
        found.append(dataclasses.replace(translated, what=f"{translated.what}, translated from Messages"))
    for name, limit in (("p50", 2.0), ("p99", 4.0)):
        found.append(_first_token_verdict(results, target, name, limit))
    found.append(_pace_verdict(results, target))
    found.append(_money_verdict(results, target))
    return found


def _first_token_verdict(results: Results, target: str, name: str, limit: float) -> Verdict:
    """Hold what the gate adds to the first token beside 500 streams against what nginx adds."""
    ours, theirs = (results.added("ttft_busy", "plain", one, f"first_{name}_ms") for one in (target, "nginx"))
    what, bound = f"added first-token time, {name}, 500 streams in pace", f"≤ {limit:g} × nginx"
    if ours is None or theirs is None or theirs <= 0:
        return Verdict(what, bound, "–", None)
    ratio = ours / theirs
    return Verdict(what, bound, f"{ratio:.2f} × ({ours:.2f} ms for {theirs:.2f})", ratio <= limit)


def _money_verdict(results: Results, target: str) -> Verdict:
    """Hold what reservation and settlement cost the worker against nginx: the gate less one that has them off."""
    with_money = results.values("money", "plain", target, "us_worker")
    without = results.values("money", "plain", "unbilled", "us_worker")
    nginx = results.values("money", "plain", "nginx", "us")
    shares = [(a - b) / c for a, b, c in zip(with_money, without, nginx, strict=False) if c]
    return Verdict(
        "CPU of reservation and settlement per plain request, plain provider",
        f"≤ {_MONEY_LIMIT:g} × nginx",
        f"{median(shares):.2f} × ({min(shares):.2f}–{max(shares):.2f})" if shares else "–",
        median(shares) <= _MONEY_LIMIT if shares else None,
    )


def _ratio_verdict(results: Results, target: str, scenario: str, kind: str, limit: float) -> Verdict:
    ratios = results.ratios(scenario, kind, target)
    return Verdict(
        f"CPU per {_NAMES[scenario]}, {_provider(kind)}",
        f"≤ {limit:g} × nginx",
        f"{median(ratios):.2f} × ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else "–",
        median(ratios) <= limit if ratios else None,
    )


def _pace_verdict(results: Results, target: str) -> Verdict:
    found = results.paced_streams("plain", target)
    if found is None:
        return Verdict("streams that keep a 20 ms pace", f"≥ {_PACE_STREAMS:,}", "–", None)
    streams, us, load_bound = found
    core = us * 50_000 / 1e6
    holds = streams >= _PACE_STREAMS or (load_bound and core <= 0.9)
    note = (
        f"{streams:,} (p99 lateness ≤ {PACE_LATE_MS:g} ms; {us:.1f} µs an event × 50,000 = {core:.2f} core)"
    )
    return Verdict("streams that keep a 20 ms pace", f"≥ {_PACE_STREAMS:,}", note, holds)


def _provider(kind: str) -> str:
    return "TLS to the provider" if kind == "tls" else "plain provider"


def machine(*, awake: bool) -> list[str]:
    """Describe where this ran, in short lines. Args: awake: idle cores did not sleep."""
    cpu = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    parts = [f"{name} {_version(name)}" for name in ("uvloop", "httptools", "msgspec")]
    binary = nginx_binary()
    nginx = (
        subprocess.run([binary, "-v"], capture_output=True, text=True).stderr.strip()
        if binary
        else "no nginx"
    )
    nginx = re.sub(r"^nginx version: nginx/", "nginx ", nginx)
    return [
        f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        f"Python {platform.python_version()}, {', '.join(parts)}",
        f"{nginx}, one worker, `proxy_buffering off`, upstream keep-alive; the system under test alone on core 1,"
        f" client and provider on core 0; idle cores {'kept awake' if awake else 'sleep'}",
    ]


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(absent)"


def markdown(results: Results, title: str, command: str, *, awake: bool) -> str:
    """Write the whole report. Args: awake: idle cores did not sleep."""
    return "\n".join(_lines(results, title, command, awake)) + "\n"


def _lines(results: Results, title: str, command: str, awake: bool) -> Iterator[str]:
    yield f"# {title}\n"
    yield f"Made by `{command}`. Absolute times say something about this machine only; ratios to nginx in the same run"
    yield "are what counts: medians over rounds in which the targets took turns, lowest and highest in parentheses.\n"
    for line in machine(awake=awake):
        yield f"- {line}"
    yield "\n## Limits\n"
    yield "| what | limit | measured | |"
    yield "| --- | --- | --- | --- |"
    marks = {True: "holds", False: "**FAILS**", None: "not measured"}
    for verdict in verdicts(results):
        yield f"| {verdict.what} | {verdict.limit} | {verdict.measured} | {marks[verdict.holds]} |"
    for section in (_cpu_section, _first_token_section, _memory_section, _pace_section):
        yield from section(results)
    if errors := results.errors():
        yield "\n## Wrong answers\n"
        yield from (f"- {error}" for error in errors)


def _cpu_section(results: Results) -> Iterator[str]:
    yield "\n## CPU\n"
    yield "Median µs of CPU: whole, then by process; ratio to nginx; units a second while measured.\n"
    yield "| per | provider | target | µs | worker / supervisor / admin | × nginx | units/s | core busy |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for scenario, name in _NAMES.items():
        for kind in results.kinds():
            for target in results.targets():
                get = _median_getter(results, scenario, kind, target)
                if not results.values(scenario, kind, target, "us"):
                    continue
                parts = " / ".join(f"{get(f'us_{part}'):.2f}" for part in ("worker", "supervisor", "admin"))
                ratios = results.ratios(scenario, kind, target)
                ratio = f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else "–"
                yield (
                    f"| {name} | {kind} | {target} | {get('us'):.2f} | {parts if target == 'gate' else '–'} |"
                    f" {ratio} | {get('units_per_s'):,.0f} | {get('core_busy'):.0%} |"
                )


def _first_token_section(results: Results) -> Iterator[str]:
    if not any(sample.scenario in FIRST_TOKEN_PLANS for sample in results.samples):
        return
    yield "\n## Added first-token time\n"
    yield "Against the same client without a relay: 200 short streams a second, or 500 streams at a 20 ms pace.\n"
    yield "| beside | provider | target | p50 | p99 |"
    yield "| --- | --- | --- | --- | --- |"
    for scenario, beside in (("ttft", "200 a second"), ("ttft_busy", "500 in pace")):
        for kind in results.kinds():
            for target in results.targets():
                p50, p99 = (
                    results.added(scenario, kind, target, name) for name in ("first_p50_ms", "first_p99_ms")
                )
                if target != "direct" and p50 is not None and p99 is not None:
                    yield f"| {beside} | {kind} | {target} | {p50:.2f} ms | {p99:.2f} ms |"


def _memory_section(results: Results) -> Iterator[str]:
    if not any(sample.scenario == "memory" for sample in results.samples):
        return
    yield "\n## Memory\n"
    yield "Resident memory of all processes of the target; growth a stream from one open stream to the most.\n"
    yield "| provider | target | open streams: RSS | RSS a stream | PSS a stream |"
    yield "| --- | --- | --- | --- | --- |"
    for kind in results.kinds():
        for target in results.targets():
            rss = results.values("memory", kind, target, "rss_kib")
            streams = results.values("memory", kind, target, "streams")
            growth, pss = (results.kib_per_stream(kind, target, name) for name in ("rss_kib", "pss_kib"))
            if growth is None or pss is None:
                continue
            steps = ", ".join(f"{n:,.0f}: {kib / 1024:.1f} MiB" for n, kib in zip(streams, rss, strict=True))
            yield f"| {kind} | {target} | {steps} | {growth:.1f} KiB | {pss:.1f} KiB |"


def _pace_section(results: Results) -> Iterator[str]:
    paces = [sample for sample in results.samples if sample.scenario == "pace"]
    if not paces:
        return
    yield "\n## Streams at a 20 ms pace\n"
    yield "| provider | target | streams | lateness p50 / p99 | provider's p99 | core busy | load busy | µs an event |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for sample in paces:
        v = sample.values
        yield (
            f"| {sample.provider} | {sample.target} | {v['streams']:,.0f} | {v['late_p50_ms']:.1f} /"
            f" {v['late_p99_ms']:.1f} ms | {v['provider_late_p99_ms']:.1f} ms | {v['core_busy']:.0%} |"
            f" {v['load_busy']:.0%} | {v['us']:.1f} |"
        )


def _median_getter(results: Results, scenario: str, kind: str, target: str) -> Callable[[str], float]:
    def get(name: str) -> float:
        return median(results.values(scenario, kind, target, name))

    return get


def command_line() -> str:
    """Return how this run was asked for."""
    return " ".join(["python", *sys.argv])
