"""`make bench`: measures the gate beside nginx on one pinned core, and writes `bench/results.md`.

Needs two cores and Debian's nginx (`apt-get install nginx-light`). A busy machine does little harm to CPU figures
(they are the processes' own); first-token times and paces want a quiet one.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import processes, report, targets  # noqa: E402
from bench.scenarios import FIRST_TOKEN_PLANS, SCENARIOS, TRANSLATED, Bench, Effort, Sample  # noqa: E402

_ONLY_FOR = {"unbilled": ("money",), "translating": TRANSLATED}
"""Scenarios of targets that are there for one question."""
_RESULTS = Path(__file__).resolve().parent / "results.md"


def main() -> int:
    """Run what was asked for; 1 where a limit does not hold or an answer was wrong."""
    options = _parse()
    if (os.cpu_count() or 1) < 2:
        print("the bench needs two cores: one for the system under test, one for the load", file=sys.stderr)
        return 2
    if options.gate:
        targets.Gate.package = options.gate.resolve()
    processes.pin_self(processes.LOAD_CORE, options.realtime)
    with tempfile.TemporaryDirectory(prefix="sluicegate-bench-") as folder, processes.cores_awake() as awake:
        results = report.Results(_run(options, Path(folder)))
    text = report.markdown(results, "Bench results", report.command_line(), awake=awake)
    if options.json:
        print(json.dumps([dataclasses.asdict(sample) for sample in results.samples]))
    else:
        print(text)
    if not options.no_write:
        _RESULTS.write_text(text)
    failed = any(verdict.holds is False for verdict in report.verdicts(results))
    return 1 if failed or results.errors() else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="short rounds, fewer of them")
    parser.add_argument("--only", default=",".join(SCENARIOS), help=f"comma list of {', '.join(SCENARIOS)}")
    parser.add_argument("--provider", choices=("plain", "tls", "both"), default="both")
    parser.add_argument(
        "--target",
        default="both",
        help="comma list of gate, nginx, relay, unbilled, translating; both: all but relay",
    )
    parser.add_argument(
        "--gate", type=Path, help="folder of the gate's package, as `make wheel` unpacks it; else the sources"
    )
    parser.add_argument("--relay-command", help="command line of a relay, with {port}, {origin}, {ca_file}")
    parser.add_argument("--unlimited", action="store_true", help="the account is not prepaid: no lease")
    parser.add_argument("--no-usage", action="store_true", help="the client asks for no usage: gates hide it")
    parser.add_argument(
        "--obfuscated", action="store_true", help="events end in a varying field, as OpenAI's"
    )
    parser.add_argument("--rounds", type=int, help="how often each CPU scenario is run")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="before all others on a busy machine; root only. The kernel gives such processes 950 ms of a core's second"
        " (kernel.sched_rt_runtime_us): what needs more stands still for 50 ms, so paces near the limit want this off",
    )
    parser.add_argument("--json", action="store_true", help="print all samples as JSON")
    parser.add_argument("--no-write", action="store_true", help="leave bench/results.md as it is")
    options = parser.parse_args()
    if unknown := set(options.only.split(",")) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    return options


def _run(options: argparse.Namespace, folder: Path) -> list[Sample]:
    names = (
        ["nginx", "gate", "unbilled", "translating"]
        if options.target == "both"
        else options.target.split(",")
    )
    kinds = ["plain", "tls"] if options.provider == "both" else [options.provider]
    effort = Effort.quick() if options.quick else Effort.full()
    if options.rounds:
        effort = dataclasses.replace(effort, rounds=options.rounds)
    provider = targets.ProviderProcess(folder, options.realtime)
    samples: list[Sample] = []
    try:
        bench = Bench(provider, effort, ask_usage=not options.no_usage, obfuscated=options.obfuscated)
        for kind in kinds:
            upstream = provider.upstream(kind == "tls")
            wanted = [one for one in options.only.split(",") if one != "money" or kind == "plain"]
            # Memory is looked at in young processes, which no other scenario has made grow.
            for group in ([s for s in wanted if s != "memory"], [s for s in wanted if s == "memory"]):
                if group:
                    samples += _run_group(options, bench, kind, group, names, upstream, folder)
    finally:
        provider.stop()
    return samples


def _run_group(
    options: argparse.Namespace,
    bench: Bench,
    kind: str,
    scenarios: list[str],
    names: list[str],
    upstream: targets.Upstream,
    folder: Path,
) -> list[Sample]:
    started: list[targets.Target] = []
    samples: list[Sample] = []
    try:
        for name in names:
            if not (set(scenarios) & set(_ONLY_FOR.get(name, scenarios))):
                continue
            own = folder / f"{name}-{kind}-{'-'.join(scenarios)}"
            started.append(_start(name, own, upstream, options))
        for scenario in scenarios:
            running = (
                [targets.Direct(bench.provider.upstream(tls=False)), *started]
                if scenario in FIRST_TOKEN_PLANS
                else started
            )
            running = [target for target in running if scenario in _ONLY_FOR.get(target.name, (scenario,))]
            for sample in bench.samples(scenario, kind, running):
                _progress(sample)
                samples.append(sample)
    finally:
        for target in started:
            target.stop()
    return samples


def _start(
    name: str, folder: Path, upstream: targets.Upstream, options: argparse.Namespace
) -> targets.Target:
    if name == "nginx":
        return targets.Nginx(folder, upstream, options.realtime)
    if name == "gate":
        return targets.Gate(folder, upstream, options.realtime, unlimited=options.unlimited)
    if name == "translating":
        return targets.Translating(folder, upstream, options.realtime, unlimited=options.unlimited)
    if name == "unbilled":
        return targets.Unbilled(folder, upstream, options.realtime, unlimited=options.unlimited)
    if name == "relay" and options.relay_command:
        return targets.Relay(folder, upstream, options.realtime, options.relay_command)
    raise SystemExit(f"no such target: {name}")


def _progress(sample: Sample) -> None:
    shown = " ".join(f"{name}={value:.2f}" for name, value in sample.values.items())
    wrong = f" WRONG {len(sample.errors)}: {sample.errors[0][:300]!r}" if sample.errors else ""
    print(
        f"{sample.scenario:7} {sample.provider:5} {sample.target:6} {shown}{wrong}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
