"""A whole gate for tests: `sluicegate serve` as a child process, with configuration and folder of its own."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that were free a moment ago."""
    with ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in bound]


@contextmanager
def run_gate(folder: Path, configuration: str) -> Iterator[RunningGate]:
    """Run a gate until the block is left.

    Args:
        configuration: the text of sluicegate.yaml without `server.listen` and `admin.listen`, which are
            chosen here: it holds `{listen}` and `{admin_listen}` in their places.
    """
    port, admin_port = free_ports(2)
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
