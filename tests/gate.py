"""A whole gate for tests: `sluicegate serve` as a child process, with configuration and folder of its own."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from sluicegate.children import Child

READY_TIMEOUT_S = 90.0


class RunningGate(NamedTuple):
    """Where a gate listens and where its files are."""

    host: str
    port: int
    admin_port: int
    config: Path
    child: Child

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def usage(self) -> list[dict[str, Any]]:
        """Return what `sluicegate usage --json` prints."""
        command = [sys.executable, "-m", "sluicegate", "usage", "--json", "--config", str(self.config)]
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        return [json.loads(line) for line in run.stdout.splitlines()]


def keep_compiled(root: Path) -> None:
    """Have child processes keep the modules that they compile, whatever the environment says.

    Gates are started by the hundred; otherwise most of a start would be compiling them.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(root / ".pytest_cache" / "bytecode")


@contextmanager
def held_port() -> Iterator[int]:
    """Hold a port of loopback until the block is left: it refuses connections while no server of ours listens on it.

    It is bound and never listened on. So the kernel gives it to nobody who asks for any port, nor to an outgoing
    connection; a server that is told its number and sets SO_REUSEADDR, as the gate does, may listen on it. Source:
    socket(7), ip(7).
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def run_gate(folder: Path, configuration: str) -> Iterator[RunningGate]:
    """Run a gate until the block is left.

    Args:
        configuration: the text of sluicegate.yaml without `server.listen` and `admin.listen`, which are
            chosen here: it holds `{listen}` and `{admin_listen}` in their places.
    """
    with held_port() as port, held_port() as admin_port:
        config = folder / "sluicegate.yaml"
        config.write_text(
            configuration.replace("{listen}", f"127.0.0.1:{port}").replace(
                "{admin_listen}", f"127.0.0.1:{admin_port}"
            )
        )
        command = [sys.executable, "-m", "sluicegate", "serve", "--config", str(config)]
        with Child("the gate", command, folder / "gate.log", stop_within_s=10.0) as child:
            child.wait_until(lambda: _is_ready(port), READY_TIMEOUT_S)
            yield RunningGate("127.0.0.1", port, admin_port, config, child)


def _is_ready(port: int) -> bool | None:
    connection = HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        connection.request("GET", "/readyz")
        return True if connection.getresponse().status == 200 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
