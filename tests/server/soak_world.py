"""Mixed failures for as long as wanted, through every pair of formats, and what a gate's processes hold meanwhile.

Most requests fail, each in one way of the fault grid's list; some are served, some clients leave in the middle.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.conftest import KEY, PRICE, make_config
from tests.fakes import Client, request_bytes
from tests.faults.faulty import FORMATS, HARMLESS, HEAVY, LIGHT, UNREACHABLE, upstream_model
from tests.grid.scenes import Prompt
from tests.grid.speaking import path_of, said

CLOCKS = {
    "connect_timeout": "500ms",
    "first_token_timeout": "400ms",
    "idle_timeout": "400ms",
    "response_timeout": "800ms",
    "total_timeout": "2s",
    "usage_wait": "200ms",
}
WORDS = tuple(word for word in LIGHT if word not in (*HARMLESS, *HEAVY, "tls-silent", "stranger"))
"""What may befall a request; all of them make it fail."""
WELL_PERCENT, LEAVES_PERCENT = 15, 10
ANSWER_TIMEOUT_S = 60.0


def configuration(provider: Any, closed_port: int, **changes: Any) -> dict[str, Any]:
    """Return a gate with a provider of each format at a simulator, and with some that cannot be reached."""
    plain: str = provider.base_url
    addresses = dict.fromkeys(FORMATS, plain) | {
        "refused": f"http://127.0.0.1:{closed_port}/v1",
        "no-name": "http://nowhere.invalid/v1",
        "not-tls": plain.replace("http:", "https:"),
    }
    providers = {
        name: {"base_url": url, "speaks": [name if name in FORMATS else "chat"], "auth": "none"}
        for name, url in addresses.items()
    }
    models = {
        f"{name}/*": {"routes": [{"provider": name, "model": "*"}], "price": PRICE} for name in addresses
    }
    keys = [{"name": "test", "key": KEY, "balance_usd": 5000}]
    return make_config(provider, providers=providers, models=models, keys=keys, stream=CLOCKS, **changes)


class MixedLoad:
    """Clients that ask for trouble."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.told: Counter[str] = Counter()
        """What became of the requests: a status, `left`, `cut`, `no answer` or `hung`."""
        self.failures = 0
        self._rng = Random(seed)

    @property
    def asked(self) -> int:
        """Requests that are over."""
        return self.told.total()

    async def run(self, count: int, *, at_once: int, per_s: float | None = None) -> None:
        """Ask so many times, so many at once at most.

        Args:
            per_s: asked in a second; None: as fast as answers come.
        """
        places = asyncio.Semaphore(at_once)
        began = time.monotonic()
        running: set[asyncio.Task[None]] = set()
        for number in range(count):
            await places.acquire()
            task = asyncio.create_task(self._ask(places))
            running.add(task)
            task.add_done_callback(running.discard)
            if per_s is not None:
                await asyncio.sleep(max(0.0, began + (number + 1) / per_s - time.monotonic()))
        await asyncio.gather(*running)

    async def _ask(self, places: asyncio.Semaphore) -> None:
        rng = self._rng
        client = rng.choice(FORMATS)
        word = None if rng.randrange(100) < WELL_PERCENT else rng.choice(WORDS)
        leaves = rng.randrange(100) < LEAVES_PERCENT
        stream = leaves or rng.random() < 0.7
        self.failures += word is not None or leaves
        model = f"{word if word in UNREACHABLE else rng.choice(FORMATS)}/{_upstream(word, leaves=leaves)}"
        body = said(
            client, model, Prompt(question="Say something. " * rng.randint(1, 20), system=None), stream
        )
        try:
            async with await Client.connect(self.url) as connection:
                connection.send(request_bytes(path_of(client, model, stream), body, key=KEY))
                if leaves:
                    await connection.until(lambda: _seen_enough(connection), ANSWER_TIMEOUT_S)
                    connection.reset()
                    self.told["left"] += 1
                    return
                response = await connection.response(timeout_s=ANSWER_TIMEOUT_S)
                self.told[str(response.status) if response.complete else "cut"] += 1
        except TimeoutError:
            self.told["hung"] += 1
        except OSError:
            self.told["no answer"] += 1
        finally:
            places.release()


def _seen_enough(connection: Client) -> bool:
    """Whether a client that is to leave has a part of a stream, or something else than one."""
    raw = connection.raw
    return raw.count(b"\n\n") > 3 or connection.ended is not None or not b"HTTP/1.1 200".startswith(raw[:12])


def _upstream(word: str | None, *, leaves: bool) -> str:
    if leaves:
        return "sim-text,tokens=200,pace_ms=20"
    return "sim-text" if word is None else upstream_model(word)


class Sample(NamedTuple):
    """What a gate's processes held at one moment."""

    at_s: float
    """Since the first."""
    asked: int
    resident_kib: Mapping[str, int]
    """By process."""
    descriptors: Mapping[str, int]

    def __str__(self) -> str:
        held = "  ".join(
            f"{name} {kib:,} KiB {self.descriptors[name]} fds" for name, kib in self.resident_kib.items()
        )
        return f"{self.at_s:6.0f} s  {self.asked:6} requests  {held}"


def take_sample(pids: Mapping[str, int], asked: int, at_s: float) -> Sample:
    """Look at processes.

    Args:
        pids: by the name under which they are told.
    """
    return Sample(
        at_s,
        asked,
        {name: resident_kib(pid) for name, pid in pids.items()},
        {name: len(list(Path(f"/proc/{pid}/fd").iterdir())) for name, pid in pids.items()},
    )


def resident_kib(pid: int) -> int:
    """Return a process's resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no such line")


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
