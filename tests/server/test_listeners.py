"""Sockets and locks that one supervisor alone may have."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.errors import ConfigError
from sluicegate.server.listeners import (
    Address,
    check_port,
    inherited_socket,
    open_exclusively,
    open_listeners,
)
from sluicegate.server.store_lock import StoreLock


async def test_every_slot_has_a_socket_of_its_own_on_one_port() -> None:
    listeners = await open_listeners(Address("127.0.0.1", 0), 3, {})
    try:
        sockets = {sock.fileno() for slot in listeners.slots for sock in slot}
        assert len(sockets) == 3
        assert {slot[0].getsockname()[1] for slot in listeners.slots} == {listeners.address.port}
        with pytest.raises(ConfigError, match="taken by another program"):
            await check_port(listeners.address, wait_s=0.1)
    finally:
        listeners.close()


async def test_a_port_is_waited_for_while_it_is_taken() -> None:
    (taken,) = await open_exclusively(Address("127.0.0.1", 0))
    port = taken.getsockname()[1]
    opening = asyncio.create_task(open_exclusively(Address("127.0.0.1", port)))
    await asyncio.sleep(0.1)
    assert not opening.done()
    taken.close()
    for sock in await opening:
        sock.close()


async def test_a_name_may_stand_for_several_addresses() -> None:
    listeners = await open_listeners(Address("localhost", 0), 2, {})
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", listeners.address.port)
        writer.close()
        await writer.wait_closed()
        del reader
    finally:
        listeners.close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_an_address_that_is_not_ours_is_told(host: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on {host}:80"):
        await open_exclusively(Address(host, 80))


def test_only_one_listening_socket_may_be_inherited() -> None:
    ours = {"LISTEN_PID": str(os.getpid())}
    assert inherited_socket({}) is None
    assert inherited_socket({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) is None
    assert inherited_socket({**ours, "LISTEN_FDS": "0"}) is None
    with pytest.raises(ConfigError, match="2 sockets"):
        inherited_socket({**ours, "LISTEN_FDS": "2"})


async def test_a_lock_is_free_as_soon_as_its_holder_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "journal" / "lock"
    held = await StoreLock.take([path])
    with pytest.raises(ConfigError, match=f"process {os.getpid()}"):
        await StoreLock.take([path], wait_s=0.1)
    held.release()
    script = (
        "import asyncio, sys, time; from pathlib import Path; from sluicegate.server.store_lock import StoreLock;"
        "lock = asyncio.run(StoreLock.take([Path(sys.argv[1])])); print('held', flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, env=environment
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        taking = asyncio.create_task(StoreLock.take([path], wait_s=30))
        await asyncio.sleep(0.05)
        assert not taking.done()
        holder.kill()
        (await taking).release()


async def test_locks_are_taken_all_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    held = await StoreLock.take([second])
    with pytest.raises(ConfigError):
        await StoreLock.take([first, second], wait_s=0.05)
    (await StoreLock.take([first], wait_s=0)).release()
    held.release()


def test_an_inherited_descriptor_must_listen(tmp_path: Path) -> None:
    script = (
        "import os; from sluicegate.server.listeners import inherited_socket;"
        "inherited_socket({'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'})"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with socket.socket() as idle:
        os.set_inheritable(idle.fileno(), True)
        done = subprocess.run(
            ["bash", "-c", f'exec 3<&{idle.fileno()}; exec "$@"', "-", sys.executable, "-c", script],
            env=environment,
            pass_fds=[idle.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
    assert "no listening socket" in done.stderr
