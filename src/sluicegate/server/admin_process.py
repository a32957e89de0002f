"""The admin process as the supervisor sees it: started with a listening socket and what it may know, and
restarted.

It serves on a listener of its own in a process of its own, so that a slow page never keeps a lease waiting.
It ends when the socket between us closes, whoever of us goes first.
"""

import asyncio
import signal
import socket
import sys

import msgspec

from sluicegate.server.control import encode_frame
from sluicegate.server.listeners import Address, Slot, open_exclusively
from sluicegate.server.telemetry import ADMIN_DIED, log

RESTART_S = 1.0
EXIT_S = 3.0


class AdminBoot(msgspec.Struct, frozen=True):
    """The one frame that the admin process is sent; secrets never stand on a command line."""

    journal_dir: str
    store_url: str
    token: str | None


class AdminProcess:
    """Keeps one admin process running."""

    def __init__(self, boot: AdminBoot, address: Address) -> None:
        self._boot = boot
        self._wanted = address
        self._sockets: Slot = ()
        self._task: asyncio.Task[None] | None = None
        self.address = address
        """Where it is reached, with the port that was taken."""

    async def start(self) -> None:
        """Open its port and start it.

        Raises:
            ConfigError: the port is taken.
        """
        self._sockets = await open_exclusively(self._wanted)
        self.address = Address(self._wanted.host, self._sockets[0].getsockname()[1])
        self._task = asyncio.create_task(self._keep_running())

    async def stop(self) -> None:
        """End it and close its port."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for sock in self._sockets:
            sock.close()

    async def _keep_running(self) -> None:
        while True:
            await self._run_once()
            await asyncio.sleep(RESTART_S)

    async def _run_once(self) -> None:
        ours, theirs = socket.socketpair()
        fds = [sock.fileno() for sock in self._sockets]
        with ours:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "sluicegate.server.admin",
                    "--life-fd",
                    str(theirs.fileno()),
                    "--listen-fds",
                    ",".join(map(str, fds)),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno(), *fds],
                )
            try:
                ours.sendall(encode_frame(self._boot))
                status = await process.wait()
                log(ADMIN_DIED, pid=process.pid, status=status)
            except asyncio.CancelledError:
                await self._end(process, ours)
                raise

    async def _end(self, process: asyncio.subprocess.Process, ours: socket.socket) -> None:
        ours.close()  # it ends by itself then
        try:
            async with asyncio.timeout(EXIT_S):
                await process.wait()
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            await process.wait()
