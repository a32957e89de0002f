"""Fixtures that any test may use: a scripted provider, raw clients, certificates, ports, and whole gates.

Every fixture belongs to one test (certificates to the session) and takes a port of its own, so that tests run
in parallel. Asynchronous tests run on uvloop, as the product does.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
import trustme
import uvloop
from hypothesis import settings

from sluicegate.simulator import Simulator, SimulatorProcess, SimulatorSettings
from tests.fakes import Client
from tests.gate import RunningGate, held_port, keep_compiled, run_gate
from tests.inprocess import InProcessGate, in_process_gate
from tests.scheduling import Scheduling, by_length

# A busy machine is no fault of the code; the same commit gives the same result: `make fuzz` is what looks for more.
settings.register_profile("test", deadline=None, derandomize=True)
settings.load_profile("test")

KEY = "sg-test-key-0123456789abcdef"
"""The key that `make_config` sets up, with $5."""
MODEL = "m"
"""The priced model that `make_config` sets up; `sim-…` models go through by name at the same price."""
PRICE = {"input": 1, "cache_read": 0.1, "output": 2}
"""USD per million tokens: 1,000 nano-USD an input token, 100 a cached one, 2,000 an output token."""


def pytest_configure(config: pytest.Config) -> None:
    keep_compiled(config.rootpath)
    # A shell without job control starts what runs in the background with Ctrl-C ignored, and every child inherits that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=by_length)


@pytest.hookimpl(optionalhook=True)  # without xdist nobody asks
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


class Certificates(NamedTuple):
    """Files of a certificate for 127.0.0.1 and localhost, and of the authority that signed it."""

    ca_file: str
    cert_file: str
    key_file: str


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1", "localhost", "::1")
    ca, cert, key = (str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    leaf.private_key_pem.write_to_path(key)
    for index, blob in enumerate(leaf.cert_chain_pems):
        blob.write_to_path(cert, append=index > 0)
    return Certificates(ca, cert, key)


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port of loopback that refuses connections: nobody comes to listen on it."""
    with held_port() as port:
        yield port


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator() as running:
        yield running


class MakeSimulator(Protocol):
    """Starts one more simulator in the test's loop, with settings of its own."""

    def __call__(self, **settings: Any) -> Awaitable[Simulator]: ...


@pytest.fixture
async def make_simulator() -> AsyncIterator[MakeSimulator]:
    async with AsyncExitStack() as running:

        async def make(**settings: Any) -> Simulator:
            return await running.enter_async_context(Simulator(SimulatorSettings(**settings)))

        yield make


@pytest.fixture
def simulator_process() -> Iterator[SimulatorProcess]:
    with SimulatorProcess() as running:
        yield running


class Connect(Protocol):
    """Opens a raw connection that is closed when the test ends."""

    def __call__(
        self, url: str, *, ca_file: str | None = None, receive_buffer_bytes: int | None = None
    ) -> Awaitable[Client]: ...


@pytest.fixture
async def client() -> AsyncIterator[Connect]:
    async with AsyncExitStack() as connections:

        async def connect(
            url: str, *, ca_file: str | None = None, receive_buffer_bytes: int | None = None
        ) -> Client:
            opened = await Client.connect(url, ca_file=ca_file, receive_buffer_bytes=receive_buffer_bytes)
            return await connections.enter_async_context(opened)

        yield connect


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` put into its mappings; None takes a key away."""
    merged = dict(base)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = merge(merged[name], value)
        else:
            merged[name] = value
    return merged


def make_config(simulator: Simulator | SimulatorProcess, **changes: Any) -> dict[str, Any]:
    """Return a configuration of a gate with one provider, the simulator, and the key `KEY`.

    Args:
        changes: top-level keys, merged into it: `make_config(simulator, stream={"idle_timeout": "1s"})`.
    """
    base = {
        "server": {"listen": "{listen}", "workers": 1, "drain_timeout": "2s"},
        "admin": {"listen": "{admin_listen}"},
        "store": "sqlite:///sluicegate.db",
        "providers": {"sim": {"base_url": simulator.base_url, "speaks": ["chat"], "auth": "none"}},
        "models": {
            MODEL: {"routes": [{"provider": "sim", "model": MODEL}], "price": PRICE},
            "sim-*": {"routes": [{"provider": "sim", "model": "sim-*"}], "price": PRICE},
        },
        "keys": [{"name": "test", "key": KEY, "balance_usd": 5}],
    }
    return merge(base, changes)


StartGate = Callable[[dict[str, Any]], Awaitable[RunningGate]]
"""Starts a gate (supervisor and workers, as processes) in the test's folder from a configuration."""


@pytest.fixture
async def start_gate(tmp_path: Path) -> AsyncIterator[StartGate]:
    with ExitStack() as gates:

        async def start(config: dict[str, Any]) -> RunningGate:
            text = json.dumps(config, indent=1)  # JSON is YAML
            return await asyncio.to_thread(gates.enter_context, run_gate(tmp_path, text))

        yield start
        await asyncio.to_thread(gates.close)


@pytest.fixture
async def gate(simulator: Simulator, start_gate: StartGate) -> RunningGate:
    """A running gate in front of `simulator`."""
    return await start_gate(make_config(simulator))


@pytest.fixture
async def gate_inprocess(simulator: Simulator, tmp_path: Path) -> AsyncIterator[InProcessGate]:
    """A worker's gateway in the test's loop, in front of `simulator`."""
    async with in_process_gate(tmp_path, make_config(simulator)).running() as running:
        yield running


StartInProcess = Callable[[dict[str, Any]], Awaitable[InProcessGate]]
"""Starts a worker's gateway in the test's loop from a configuration."""


@pytest.fixture
async def start_inprocess(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StartInProcess]:
    async with AsyncExitStack() as gates:

        async def start(config: dict[str, Any]) -> InProcessGate:
            folder = tmp_path_factory.mktemp("gate")
            return await gates.enter_async_context(in_process_gate(folder, config).running())

        yield start
