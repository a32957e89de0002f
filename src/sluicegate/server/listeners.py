"""Listening sockets: one set for each worker slot, or the one that was inherited.

Every slot has sockets of its own on the same addresses (SO_REUSEPORT), which the supervisor keeps open for
good, so that connections queued on a slot survive its worker. Source: socket(7); sd_listen_fds(3).
"""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

from sluicegate.errors import ConfigError

BACKLOG = 4096
TAKEN_WAIT_S = 5.0
"""How long a port may still belong to the workers of a supervisor that was killed."""
_FIRST_INHERITED_FD = 3

Slot = tuple[socket.socket, ...]
"""The sockets that one worker accepts from: one for each address that the host's name stands for."""


class Address(NamedTuple):
    """Where to listen, as the configuration says it; port 0 takes any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listeners:
    """The gate's listening sockets, by worker slot."""

    def __init__(self, slots: list[Slot], address: Address, inherited: bool) -> None:
        self.slots = slots
        self.address = address
        """Where clients reach it, with the port that was taken."""
        self.inherited = inherited
        """One socket for all, so that a slot without a worker needs no other to accept for it."""

    def close(self) -> None:
        """Close them all; what is queued on them is reset."""
        for slot in self.slots:
            for sock in slot:
                sock.close()


async def open_listeners(address: Address, slots: int, environment: Mapping[str, str]) -> Listeners:
    """Take over the inherited socket, else open each slot's own.

    Raises:
        ConfigError: the port is taken, or there is no such address.
    """
    inherited = inherited_socket(environment)
    if inherited is not None:
        host, port = inherited.getsockname()[:2]
        return Listeners([(inherited,)] * slots, Address(host, port), True)
    first = await open_exclusively(address)
    port = first[0].getsockname()[1]
    families = [(sock.family, sock.getsockname()) for sock in first]
    for sock in first:
        sock.close()
    opened: list[Slot] = []
    try:
        for _ in range(slots):
            opened.append(
                tuple(_open(family, where, shared=True, listening=True) for family, where in families)
            )
    except OSError as error:
        for slot in opened:
            for sock in slot:
                sock.close()
        raise _refused(address, error) from error
    return Listeners(opened, Address(address.host, port), False)


async def check_port(address: Address, wait_s: float = TAKEN_WAIT_S) -> None:
    """See that nobody listens on an address, without opening it to clients; waits a while for one that is
    taken.

    Raises:
        ConfigError: the port stays taken, or there is no such address.
    """
    for sock in await _open_when_free(address, wait_s, listening=False):
        sock.close()


async def open_exclusively(address: Address) -> Slot:
    """Open sockets that share their port with nobody; waits a while for one that is taken.

    Raises:
        ConfigError: the port stays taken, or there is no such address.
    """
    return await _open_when_free(address, TAKEN_WAIT_S, listening=True)


def inherits_socket(environment: Mapping[str, str]) -> bool:
    """Whether the service manager opened a socket for this process."""
    return environment.get("LISTEN_PID") == str(os.getpid()) and environment.get("LISTEN_FDS", "0") != "0"


def inherited_socket(environment: Mapping[str, str]) -> socket.socket | None:
    """Return the socket that the service manager opened for this process, if it did.

    Raises:
        ConfigError: it passed more than one, or something else than a listening socket.
    """
    if not inherits_socket(environment):
        return None
    count = environment["LISTEN_FDS"]
    if count != "1":
        raise ConfigError(f"the service manager passed {count} sockets; one is expected")
    sock = socket.socket(fileno=_FIRST_INHERITED_FD)
    if sock.type != socket.SOCK_STREAM or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ConfigError("the service manager passed something that is no listening socket")
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock


async def _open_when_free(address: Address, wait_s: float, *, listening: bool) -> Slot:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return _open_all(_resolve(address), listening)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
                raise _refused(address, error) from error
        await asyncio.sleep(0.05)


def _resolve(address: Address) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    found = socket.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return [(family, where) for family, _, _, _, where in dict.fromkeys(found)]  # type: ignore[misc]


def _open_all(wheres: list[tuple[socket.AddressFamily, tuple[str, int]]], listening: bool) -> Slot:
    opened: list[socket.socket] = []
    try:
        for family, where in wheres:
            port = where[1] or (opened[0].getsockname()[1] if opened else 0)
            try:
                opened.append(_open(family, (where[0], port, *where[2:]), shared=False, listening=listening))
            except OSError as error:
                # A name may stand for an address of a family that this machine does not have.
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) or len(wheres) == 1:
                    raise
        if not opened:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    except OSError:
        for sock in opened:
            sock.close()
        raise
    return tuple(opened)


def _open(
    family: socket.AddressFamily, where: tuple[object, ...], *, shared: bool, listening: bool
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
        if listening:
            sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _refused(address: Address, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"port {address.port} on {address.host} is taken by another program")
    return ConfigError(f"cannot listen on {address}: {error.strerror or error}")
