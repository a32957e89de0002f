"""One worker process: built from what the supervisor sends, run until it drains or the supervisor is gone.

Started by the supervisor (`worker_slots.py`) with the listening sockets of all slots and one control socket;
it accepts from those of its own slot, and from another slot's while told to. It never outlives the supervisor
by more than two seconds, as its successor must get the port and the journals.
"""

import argparse
import asyncio
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any, Protocol

import uvloop

from sluicegate.errors import SluicegateError
from sluicegate.server.app import make_gateway
from sluicegate.server.control_messages import (
    Adopt,
    Boot,
    Configure,
    Counters,
    CountersAsked,
    Drain,
    Leaving,
    Order,
    Release,
    Serving,
)
from sluicegate.server.credit import Credit
from sluicegate.server.garbage import collect_less
from sluicegate.server.journal import JournalWriter
from sluicegate.server.settings_shapes import TlsServer, WorkerSettings
from sluicegate.server.supervisor_link import SupervisorLink
from sluicegate.server.telemetry import SUPERVISOR_LOST, WORKER_FAILED, log, start_logging
from sluicegate.server.worker_exit import BOOT_FAILED, DRAINED, SUPERVISOR_GONE

ORPHAN_S = 1.5
"""How long a worker without supervisor takes to end its streams."""

Listening = tuple[socket.socket, ssl.SSLContext | None]


class WorkerApp(Protocol):
    """What serves in a worker: `server.app.Gateway`."""

    async def start(self, listening: list[Listening]) -> None:
        """Begin to accept."""
        ...

    async def adopt(self, slot: int, listening: list[Listening]) -> None:
        """Accept from another slot's sockets too."""
        ...

    def release(self, slot: int) -> None:
        """Accept no more from another slot's sockets; its connections that are here stay."""
        ...

    def apply(self, settings: WorkerSettings) -> None:
        """Go on with other settings."""
        ...

    def counters(self) -> dict[str, list[Any]]:
        """Return a snapshot for the metrics (`tally.Tally.snapshot`)."""
        ...

    async def drain(self, timeout_s: float, *, succeeded: bool) -> None:
        """Refuse new requests, and return when the running ones have ended.

        With `succeeded` another process has taken the sockets over: nothing is accepted any more. Else new requests
        are told 503.

        What still runs at the limit is ended with its format's error and settled by `on_error`. Cancelled and
        called again where the time is shortened; 0 ends everything now.
        """
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


MakeApp = Callable[
    [WorkerSettings, SupervisorLink, Credit, JournalWriter, asyncio.AbstractEventLoop, int], WorkerApp
]
"""Builds what serves; the last argument is the number of the worker process."""


def server_ssl_context(tls: TlsServer | None) -> ssl.SSLContext | None:
    """Return how to speak TLS to clients; None for plain HTTP.

    Raises:
        OSError: a file cannot be read, or does not hold what it should (ssl.SSLError).
    """
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(tls.cert_file, tls.key_file)
    return context


def raise_descriptor_limit() -> None:
    """Allow this process as many descriptors as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return  # some systems refuse an unlimited hard limit; the soft one serves


class Worker:
    """The worker process around its app: boot, orders, end."""

    def __init__(self, slots: list[list[socket.socket]], slot: int, make_app: MakeApp) -> None:
        self._slots = slots
        self._slot = slot
        self._make_app = make_app
        self._orders: asyncio.Queue[Adopt | Release] = asyncio.Queue()
        self._drain_s: float | None = None
        self._succeeded = False
        """A successor serves our slot already."""
        self._drain_changed = asyncio.Event()
        self._tls: ssl.SSLContext | None = None

    async def run(self, control: socket.socket) -> int:
        """Serve until told to end; return the exit status."""
        link = await SupervisorLink.open(control)
        try:
            boot = await link.booted()
        except SluicegateError:
            return SUPERVISOR_GONE
        try:
            journal, app = await self._start(link, boot)
        except (SluicegateError, OSError) as error:
            log(WORKER_FAILED, slot=self._slot, error=error)
            return BOOT_FAILED
        adopting = asyncio.create_task(self._adopt(app))
        try:
            status = await self._serve(link, app)
            # What was settled is in the journal; the supervisor is told before the lock on it goes.
            link.send(Counters(0, app.counters()))
        finally:
            adopting.cancel()
            app.close()
            journal.close()
            link.close()
        await asyncio.sleep(0)  # the link's last words leave
        return status

    async def _start(self, link: SupervisorLink, boot: Boot) -> tuple[JournalWriter, WorkerApp]:
        loop = asyncio.get_running_loop()
        settings = boot.settings
        self._tls = server_ssl_context(settings.server.tls)
        journal = JournalWriter(settings.journal, boot.number, loop)
        app = self._make_app(settings, link, Credit(link), journal, loop, boot.number)
        link.take_orders(lambda order: self._ordered(link, app, order))
        loop.add_signal_handler(signal.SIGTERM, self._terminated, link, settings.server.drain_timeout_s)
        await app.start(self._listening(self._slot))
        collect_less()
        link.send(Serving())
        return journal, app

    def _listening(self, slot: int) -> list[Listening]:
        # Copies, as who stops accepting from a socket closes it, and another slot's may be adopted again.
        return [(sock.dup(), self._tls) for sock in self._slots[slot]]

    async def _serve(self, link: SupervisorLink, app: WorkerApp) -> int:
        """Return when the worker has drained, or lost its supervisor and ended its streams."""
        lost = asyncio.create_task(link.lost.wait())
        told = asyncio.create_task(self._drain_changed.wait())
        try:
            await asyncio.wait([lost, told], return_when=asyncio.FIRST_COMPLETED)
            while not lost.done():
                self._drain_changed.clear()
                assert self._drain_s is not None
                told = asyncio.create_task(self._drain_changed.wait())
                draining = asyncio.create_task(app.drain(self._drain_s, succeeded=self._succeeded))
                # A second order shortens the time: the drain begins anew with what it says.
                await asyncio.wait([lost, told, draining], return_when=asyncio.FIRST_COMPLETED)
                if draining.done():
                    draining.result()
                    return DRAINED
                draining.cancel()
                await asyncio.wait([draining])
        finally:
            lost.cancel()
            told.cancel()
        log(SUPERVISOR_LOST)
        try:
            async with asyncio.timeout(ORPHAN_S):
                await app.drain(0, succeeded=False)
        except TimeoutError:
            pass  # what is still open is cut; recovery settles it
        return SUPERVISOR_GONE

    def _ordered(self, link: SupervisorLink, app: WorkerApp, order: Order) -> None:
        match order:
            case Configure():
                app.apply(order.settings)
            case CountersAsked():
                link.send(Counters(order.question, app.counters()))
            case Drain():
                self._drain(order.timeout_s)
            case _:
                self._orders.put_nowait(order)

    def _terminated(self, link: SupervisorLink, drain_timeout_s: float) -> None:
        """Drain on the first SIGTERM, end at once on the second; service managers signal all processes."""
        if self._drain_s is None:
            link.send(Leaving())
            self._succeeded = True
            self._drain(drain_timeout_s)
        else:
            self._drain(0)

    def _drain(self, timeout_s: float) -> None:
        if self._drain_s is None or timeout_s < self._drain_s:
            self._drain_s = timeout_s
            self._drain_changed.set()

    async def _adopt(self, app: WorkerApp) -> None:
        """Carry out, one after the other, what was ordered about other slots."""
        while True:
            order = await self._orders.get()
            if isinstance(order, Adopt):
                await app.adopt(order.slot, self._listening(order.slot))
            else:
                app.release(order.slot)


def run_worker(arguments: list[str], make_app: MakeApp) -> int:
    """Run a worker process on its command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="sluicegate worker", description="Started by `sluicegate serve` alone."
    )
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--slot", type=int, required=True)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument(
        "--listen-fds", required=True, help="descriptors: `,` between those of a slot, `;` between slots"
    )
    options = parser.parse_args(arguments)
    # Ctrl-C reaches the whole process group; the supervisor alone acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    start_logging(f"worker-{options.number}")
    raise_descriptor_limit()
    slots_fds = [[int(fd) for fd in fds.split(",")] for fds in options.listen_fds.split(";")]
    # One object for each descriptor: slots share it where one socket was inherited for all.
    sockets = {fd: socket.socket(fileno=fd) for fd in {fd for fds in slots_fds for fd in fds}}
    slots = [[sockets[fd] for fd in fds] for fds in slots_fds]
    control = socket.socket(fileno=options.control_fd)
    for inherited in (control, *sockets.values()):
        os.set_inheritable(inherited.fileno(), False)

    async def run() -> int:
        return await Worker(slots, options.slot, make_app).run(control)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(run())
    for sock in sockets.values():
        sock.close()
    return status


def main() -> None:
    """Run the gateway in a worker process."""
    sys.exit(run_worker(sys.argv[1:], make_gateway))


if __name__ == "__main__":
    main()
