"""A simulator in a process of its own, for load tests, kill tests and SDKs in other languages.

`python -m sluicegate.simulator SETTINGS` (JSON) is what runs there: it prints one line with its URL when it
is ready and ends quietly on SIGINT or SIGTERM, or when the standard input it was given closes.
"""

import asyncio
import http.client
import json
import signal
import ssl
import subprocess
import sys
from types import TracebackType
from typing import Any, Self, cast

import msgspec
import uvloop

from sluicegate.simulator.script import Rule, Script
from sluicegate.simulator.server import Simulator
from sluicegate.simulator.settings import SimulatorSettings


def run(settings: SimulatorSettings, *, with_parent: bool = False) -> None:
    """Serve until a signal comes; with `with_parent` also until standard input closes."""
    uvloop.run(_serve(settings, with_parent))


async def _serve(settings: SimulatorSettings, with_parent: bool) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with Simulator(settings) as simulator:
        print(f"sluicegate simulator on {simulator.url}", flush=True)
        if with_parent:
            loop.add_reader(sys.stdin.fileno(), stopped.set)
        await stopped.wait()
        if with_parent:
            loop.remove_reader(sys.stdin.fileno())


class SimulatorProcess:
    """Starts and drives one from outside: `with SimulatorProcess(settings) as simulator: …`. Its calls
    block."""

    def __init__(self, settings: SimulatorSettings | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        self.url = ""
        self.pid = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, prefix: tuple[str, ...] = ()) -> None:
        """Start it and wait until it listens.

        Args:
            prefix: a command to run it under, such as `taskset -c 1`.
        """
        settings = msgspec.json.encode(self.settings).decode()
        command = [*prefix, sys.executable, "-m", "sluicegate.simulator", settings]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.stop()
            raise RuntimeError("the simulator did not start")
        self.url = line.split()[-1]
        self.pid = self._process.pid

    def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def base_url(self) -> str:
        """What a provider's `base_url` is in the configuration."""
        return self.url + "/v1"

    def push(
        self,
        *scripts: Script,
        model: str | None = None,
        path: str | None = None,
        holds: str | None = None,
        times: int | None = 1,
    ) -> None:
        """Play these scripts, one a request, to the next requests that match."""
        rules = [Rule(script=script, model=model, path=path, holds=holds, times=times) for script in scripts]
        self._call("POST", "/_sim/scripts", msgspec.json.encode(rules))

    def requests(self) -> list[dict[str, Any]]:
        """Return what it was asked, oldest first."""
        return cast(list[dict[str, Any]], self._call("GET", "/_sim/requests"))

    def clear(self) -> None:
        """Forget all requests and rules."""
        self._call("DELETE", "/_sim/requests")
        self._call("DELETE", "/_sim/scripts")

    def state(self) -> dict[str, Any]:
        """Return counts, CPU seconds, and how late the clockwork was."""
        return cast(dict[str, Any], self._call("GET", "/_sim/state"))

    def _call(self, method: str, path: str, body: bytes | None = None) -> object:
        scheme, _, where = self.url.partition("://")
        connection: http.client.HTTPConnection
        if scheme == "https":
            context = ssl.create_default_context(cafile=self.settings.tls_cert_file)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            connection = http.client.HTTPSConnection(where, timeout=30, context=context)
        else:
            connection = http.client.HTTPConnection(where, timeout=30)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            answer: object = json.loads(response.read())
            if response.status != 200:
                raise RuntimeError(f"{method} {path}: {response.status} {answer}")
            return answer
        finally:
            connection.close()
