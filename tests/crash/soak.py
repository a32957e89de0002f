"""Kill -9 and other faults under load, many times, and then prove the books: `python -m tests.crash.soak --kills 100`.

Most kills take a worker, the others the supervisor, alone or with all its workers; some come while the gate still
starts or recovers from the one before. The same code runs small as a test (`test_kills.py`). Contract X6.
"""

import argparse
import asyncio
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, NamedTuple

import uvloop

from sluicegate.simulator import Simulator, SimulatorSettings
from tests.conftest import make_config
from tests.crash.audit import OUTPUT_NANO, Audit, Figures
from tests.crash.books import command, read_books
from tests.crash.faults import DISK_MB, FAULTS, Fault, Faults, Machine, small_disk
from tests.crash.load import ANSWER_TIMEOUT_S, DEFAULT_TOKENS, PATH, Load, Seen
from tests.crash.victim import Victim, Whom
from tests.fakes import ask
from tests.gate import held_port, keep_compiled

CLIENTS = 14
KEYS = {"prepaid": 60, "unlimited": 25, "tight": 15}
"""How often each key is used. The credit of `tight` is soon gone: the end of its leases is under fire too."""
PREPAID_USD = 100
TIGHT_USD_A_KILL = 0.001
NANO = 10**9
TARGETS: tuple[Whom, ...] = (*("worker",) * 8, "supervisor", "both")
"""Whom the kills take in turn. A worker comes back at a quarter of what a whole gate costs: so more can be killed."""
EARLY = 0.25
"""Share of kills that do not wait until the gate serves again."""
TOLD_EVERY = 50
PAUSES_S = (0.02, 0.5)
"""Between one kill and the next."""
EARLY_PAUSES_S = (0.1, 1.0)
"""Where the next comes early: a start takes about as long."""
SPARE_NANO = 1_000_000
"""Left free by the last request: its input is estimated, and others rounded."""
ALARMS = re.compile(r"Traceback|journal_failed|charges_clamped|worker_confused")
"""What no process may have said."""


class Outcome(NamedTuple):
    """What a run came to."""

    seed: int
    kills: dict[Whom, int]
    faults: dict[Fault, int]
    early: int
    """Kills before the gate served again."""
    lasted_s: float
    recovery_s: list[float]
    """From a start to its first readiness, where it was left to get there."""
    figures: Figures
    problems: list[str]
    damage: str
    """What was done to journals."""
    skipped: list[str]
    """Faults that this machine does not let us make."""

    def __str__(self) -> str:
        figures = self.figures
        kills = ", ".join(f"{count} {whom}" for whom, count in self.kills.items())
        faults = ", ".join(f"{count} {fault}" for fault, count in self.faults.items())
        statuses = ", ".join(f"{count} {status}" for status, count in figures.statuses.items())
        mean_s = sum(self.recovery_s) / max(1, len(self.recovery_s))
        return "\n".join(
            (
                f"seed {self.seed}: {sum(self.kills.values())} kills ({kills}; {self.early} of them before it served"
                f" again) in {self.lasted_s:.0f} s",
                f"faults: {faults or 'none'} ({self.damage}); not made here: {', '.join(self.skipped) or 'none'}",
                f"requests {figures.requests}: {figures.whole} whole, {figures.cut} cut, {figures.refused} refused, "
                f"{figures.unanswered} unanswered",
                f"rows {figures.rows}: {statuses}; {figures.crashed} settled by recovery as interrupted "
                f"({figures.crashed_charged} with a charge), {figures.counted_finish} as finished with usage counted",
                f"serving again after {mean_s:.2f} s on average, {max(self.recovery_s, default=0.0):.2f} s at most",
                f"charged {figures.charged_nano} nano-USD: {figures.lost} settled charges lost, "
                f"{figures.twice} charged twice",
                *(f"WRONG {problem}" for problem in self.problems),
                f"{len(self.problems)} problems",
            )
        )


async def soak(
    folder: Path,
    *,
    kills: int,
    seed: int,
    clients: int = CLIENTS,
    on_crash: str = "none",
    sync: str = "process",
    faults: Sequence[Fault] = (),
    enough: asyncio.Event | None = None,
) -> Outcome:
    """Run a gate in a folder, kill it under load and make faults, stop it, and audit what it leaves.

    Args:
        enough: ends the killing before its time, once it is set.
    """
    began = time.monotonic()
    rng = Random(seed)
    credit = {
        "prepaid": PREPAID_USD * NANO,
        "unlimited": None,
        "tight": round(TIGHT_USD_A_KILL * (kills + len(faults)) * NANO),
    }
    keys = {name: f"sg-crash-{name}-0123456789" for name in KEYS}
    machine = Machine(folder / "machine")
    data = folder / "data"
    with small_disk(data, DISK_MB + kills // 4) as may_fill, held_port() as port, held_port() as admin_port:
        async with Simulator(
            SimulatorSettings(tokens=DEFAULT_TOKENS, interval_s=0.005, keep=10**7)
        ) as simulator:
            configuration = _configuration(simulator, keys, credit, on_crash, sync, data)
            victim = Victim(folder, configuration, port, admin_port, first_on_path=machine.folder)
            making = Faults(victim, data, machine, rng, may_fill=may_fill)
            try:
                victim.start()
                await victim.ready()
                weighted = {name: (keys[name], weight) for name, weight in KEYS.items()}
                load = Load(victim.url, weighted, seed, clients)
                try:
                    killing = _Killing(victim, making, rng)
                    await killing.run(_plan(kills, faults, rng), enough or asyncio.Event())
                    await load.stop()
                finally:
                    await load.cancel()
                seen = load.seen
                seen += await _spend_all(victim, keys, credit, len(seen))
                victim_status = await asyncio.to_thread(victim.stop)
            finally:
                victim.stop()
            books = await read_books(victim.config)
        unnoted = {
            each.name
            for each in seen
            for start, end in making.failed_disks
            if each.asked_at < end and each.ended_at > start
        }
        audit = Audit(
            seen,
            simulator.requests,
            books,
            credit,
            on_crash=on_crash,
            spoilt=making.spoilt,
            unnoted=unnoted,
        )
        problems = audit.problems + making.problems + victim.outlived + list(_left_behind(victim, making))
        if victim_status != 0:
            problems.append(f"the gate ended with status {victim_status}")
        if problems and may_fill:
            shutil.copytree(data, folder / "kept")
    return Outcome(
        seed,
        killing.kills,
        killing.faults,
        killing.early,
        time.monotonic() - began,
        killing.recovery_s,
        audit.figures,
        problems,
        f"{making.damaged} records corrupted, {making.torn} ends torn",
        making.skipped,
    )


def _configuration(
    simulator: Simulator,
    keys: dict[str, str],
    credit: dict[str, int | None],
    on_crash: str,
    sync: str,
    data: Path,
) -> dict[str, Any]:
    paying = {
        name: {"account": name} if nano is None else {"balance_usd": f"{nano / NANO:.9f}"}
        for name, nano in credit.items()
    }
    return make_config(
        simulator,
        server={"workers": 2, "drain_timeout": "5s"},
        accounts={name: "unlimited" for name, nano in credit.items() if nano is None},
        keys=[{"name": name, "key": key, **paying[name]} for name, key in keys.items()],
        billing={"on_crash": on_crash, "reserve_output_tokens": 64},
        store=f"sqlite:///{data}/sluicegate.db",
        journal={"sync": sync, "dir": str(data / "journal")},
    )


def _plan(kills: int, faults: Sequence[Fault], rng: Random) -> list[Whom | Fault]:
    plan: list[Whom | Fault] = [TARGETS[number % len(TARGETS)] for number in range(kills)]
    plan += faults
    rng.shuffle(plan)
    return plan


class _Killing:
    """Carries a plan out and notes what it took."""

    def __init__(self, victim: Victim, making: Faults, rng: Random) -> None:
        self._victim = victim
        self._making = making
        self._rng = rng
        self.kills: Counter[Whom] = Counter()
        self.faults: Counter[Fault] = Counter()
        self.early = 0
        self.recovery_s: list[float] = []

    async def run(self, plan: list[Whom | Fault], enough: asyncio.Event) -> None:
        """Kill as planned, and wait until the gate serves after the last."""
        rng, victim = self._rng, self._victim
        early = False
        for number, whom in enumerate(plan):
            if number and number % TOLD_EVERY == 0:
                print(f"{number} of {len(plan)}, {victim.starts} starts", flush=True)
            if enough.is_set():
                break
            await asyncio.sleep(rng.uniform(*EARLY_PAUSES_S if early else PAUSES_S))
            if whom in FAULTS:
                if early:
                    await victim.ready()
                early = False
                await self._making.make(whom)
                self.faults[whom] += 1
                await victim.ready()
                continue
            await victim.kill(whom, rng)
            killed_at = time.monotonic()
            self.kills[whom] += 1
            early = rng.random() < EARLY
            if early:
                self.early += 1
            else:
                await self._recovered(whom, killed_at)
        await victim.ready()

    async def _recovered(self, whom: Whom, killed_at: float) -> None:
        await self._victim.ready()
        if whom != "worker":
            self.recovery_s.append(time.monotonic() - killed_at)


async def _spend_all(
    victim: Victim, keys: dict[str, str], credit: dict[str, int | None], number: int
) -> list[Seen]:
    """Ask, for each prepaid account, for all the credit it has left: a reservation or lease that outlived its owner
    would stand in the way.
    """
    told = {key["account"]: key["balance_nano_usd"] for key in await command(victim.config, "keys", "list")}
    asked: list[Seen] = []
    for account in (name for name, nano in credit.items() if nano is not None):
        tokens = (told[account] - SPARE_NANO) // OUTPUT_NANO
        if tokens < DEFAULT_TOKENS:
            continue
        seen = Seen(number + len(asked), account, "plain")
        messages = [{"role": "user", "content": "All of it."}]
        body = {"model": "m", "messages": messages, "max_tokens": tokens, "user": seen.name}
        seen.take(
            await ask(
                victim.url,
                PATH,
                body,
                key=keys[account],
                headers={"x-request-id": seen.name},
                timeout_s=ANSWER_TIMEOUT_S,
            )
        )
        asked.append(seen)
    return asked


def _left_behind(victim: Victim, making: Faults) -> Iterable[str]:
    """Tell what a gate that has ended in order may not leave, and what none of its processes may have said."""
    for path in victim.folder.rglob("*.journal"):
        yield f"{path.name} is left, though the gate has ended"
    damaged = failed = renewed = 0
    for path in victim.logs:
        for line in path.read_text(errors="replace").splitlines():
            if "journal_damaged" in line:
                damaged += 1
            elif "journal_failed" in line and "doing=syncing" in line and making.failed_disks:
                failed += 1
            elif "journal_renewed" in line:
                renewed += 1
            elif ALARMS.search(line):
                yield f"{path.name}: {line}"
    if damaged != making.damaged:
        yield f"{making.damaged} records were corrupted, and the operator was told of {damaged}"
    if making.failed_disks and not failed >= renewed > 0:
        yield f"the disk failed, which the operator was told {failed} times, and {renewed} times that it works again"


def main() -> None:
    """Run from the command line; Ctrl-C ends the killing. Status 1 where something is wrong, and the folder is kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--on-crash", choices=("none", "produced"), default="none")
    parser.add_argument("--faults", type=int, default=None, help="of each sort; default: one for 20 kills")
    parser.add_argument("--sync", choices=("process", "disk"), default="process")
    options = parser.parse_args()
    keep_compiled(Path(__file__).parents[2])
    seed = new_seed() if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="sluicegate-crash-"))

    async def run() -> Outcome:
        enough = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, enough.set)
        return await soak(
            folder,
            kills=options.kills,
            seed=seed,
            clients=options.clients,
            on_crash=options.on_crash,
            sync=options.sync,
            faults=FAULTS * (options.kills // 20 if options.faults is None else options.faults),
            enough=enough,
        )

    outcome = uvloop.run(run())
    print(outcome)
    if outcome.problems:
        sys.exit(f"kept: {folder}")
    shutil.rmtree(folder)


def new_seed() -> int:
    """Return a seed to run with, and to print."""
    return SystemRandom().randrange(10**6)


if __name__ == "__main__":
    main()
