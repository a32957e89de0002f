"""The admin process: uvicorn on the sockets that the supervisor opened, until the supervisor goes."""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import uvicorn

from sluicegate.server.admin.app import admin_app
from sluicegate.server.admin_process import AdminBoot
from sluicegate.server.control import FrameSplitter
from sluicegate.server.telemetry import start_logging

MAX_BOOT_BYTES = 1024 * 1024
SHUTDOWN_S = 1


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: Ctrl-C reaches all processes, and the supervisor alone acts on it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(life: socket.socket, listening: list[socket.socket]) -> None:
    boot = await _booted(life)
    if boot is None:
        return
    config = uvicorn.Config(
        admin_app(Path(boot.journal_dir), boot.store_url, boot.token),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def supervisor_gone() -> None:
        loop.remove_reader(life)
        server.should_exit = True

    loop.add_reader(life, supervisor_gone)
    loop.add_signal_handler(signal.SIGTERM, supervisor_gone)
    await server.serve(sockets=listening)


async def _booted(life: socket.socket) -> AdminBoot | None:
    """Return the frame that the supervisor sent; None where it went before."""
    loop = asyncio.get_running_loop()
    splitter = FrameSplitter(MAX_BOOT_BYTES)
    while data := await loop.sock_recv(life, 65536):
        for body in splitter.feed(data):
            return msgspec.msgpack.decode(body, type=AdminBoot)
    return None


def main() -> None:
    """Run the admin process on its command line."""
    parser = argparse.ArgumentParser(
        prog="sluicegate admin", description="Started by `sluicegate serve` alone."
    )
    parser.add_argument("--life-fd", type=int, required=True)
    parser.add_argument("--listen-fds", required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    start_logging("admin")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    life = socket.socket(fileno=options.life_fd)
    life.setblocking(False)
    listening = [socket.socket(fileno=int(fd)) for fd in options.listen_fds.split(",")]
    for sock in (life, *listening):
        os.set_inheritable(sock.fileno(), False)
    with life:
        asyncio.run(_serve(life, listening))


if __name__ == "__main__":
    main()
