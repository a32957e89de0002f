"""What is measured: nginx, the gate, any other relay by its command line, and the provider without a relay.

Each runs pinned to the core of the system under test, on a free port of 127.0.0.1, out of a folder of its own.
"""

import contextlib
import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import trustme

from bench import answers, processes

_START_S = 30.0
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Upstream:
    """The provider as a target sees it."""

    port: int
    tls: bool
    ca_file: Path

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"


class Target(Protocol):
    """A running system under test."""

    name: str
    port: int

    def pids(self) -> dict[str, list[int]]:
        """Return its processes by the part they play."""

    def stop(self) -> None:
        """End it, and wait until it has ended."""


class ProviderProcess:
    """The bench's provider, on the load side's core."""

    def __init__(self, folder: Path, realtime: bool) -> None:
        self.ca_file = folder / "ca.pem"
        server_file = folder / "provider.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(
            str(server_file)
        )
        self._process = subprocess.Popen(
            [
                *processes.pinned(processes.LOAD_CORE, realtime),
                sys.executable,
                str(_ROOT / "bench" / "provider.py"),
                str(server_file),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if self._process.stdout is None:
            raise AssertionError("the provider's output is piped")
        ports = json.loads(self._process.stdout.readline())
        self.pid = self._process.pid
        self._ports: dict[bool, int] = {False: ports["plain"], True: ports["tls"]}

    def upstream(self, tls: bool) -> Upstream:
        """Return where targets find it."""
        return Upstream(self._ports[tls], tls, self.ca_file)

    def stats(self) -> dict[str, float]:
        """Return events sent and their lateness since the last call."""
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[False], timeout=10)
        try:
            connection.request("GET", "/stats")
            found: dict[str, float] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return found

    def stop(self) -> None:
        """End it."""
        self._process.communicate(timeout=10)


class Direct:
    """No relay: the client speaks to the provider."""

    name = "direct"

    def __init__(self, upstream: Upstream) -> None:
        self.port = upstream.port

    def pids(self) -> dict[str, list[int]]:
        """No process stands between."""
        return {}

    def stop(self) -> None:
        """Nothing runs."""


class _Started(ABC):
    """A target that is a process tree of its own."""

    name = "?"
    package = _ROOT / "src"
    """Where the gate's package lies."""

    def __init__(self, folder: Path, realtime: bool, ready_path: str) -> None:
        self._held = [hold_port(), hold_port()]
        self.port, self._admin_port = (sock.getsockname()[1] for sock in self._held)
        folder.mkdir(parents=True, exist_ok=True)
        self._log_path = folder / "output.log"
        environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        environment["PYTHONPATH"] = str(self.package)
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*processes.pinned(processes.SUT_CORE, realtime), *self._command(folder)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        try:
            self._wait_until_ready(ready_path)
        except BaseException:
            self.stop()
            raise

    @abstractmethod
    def _command(self, folder: Path) -> list[str]:
        """Return the command line that starts it, with its files in this folder."""

    def pids(self) -> dict[str, list[int]]:
        """Return its processes by the part they play."""
        return {"all": processes.descendants(self._process.pid)}

    def stop(self) -> None:
        """Ask it to end; after ten seconds, end its whole session."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for sock in self._held:
            sock.close()

    def log(self) -> str:
        """Return what it printed."""
        return self._log_path.read_text(errors="replace")

    def _wait_until_ready(self, path: str) -> None:
        ends_at = time.monotonic() + _START_S
        while time.monotonic() < ends_at:
            if self._process.poll() is not None:
                break
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
            try:
                connection.request("GET", path)
                if connection.getresponse().status < 500:
                    return
            except OSError:
                time.sleep(0.05)
            finally:
                connection.close()
        raise RuntimeError(f"{self.name} did not start:\n{self.log()}")


class Nginx(_Started):
    """Debian's nginx with one worker, passing bytes as they come: the limit of what a relay can be."""

    name = "nginx"

    def __init__(self, folder: Path, upstream: Upstream, realtime: bool) -> None:
        self._upstream = upstream
        super().__init__(folder, realtime, "/bench-ready")

    def _command(self, folder: Path) -> list[str]:
        binary = nginx_binary()
        if binary is None:
            raise RuntimeError("nginx is not installed (Debian: apt-get install nginx-light)")
        temporary = "".join(
            f"  {kind}_temp_path {folder}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        scheme = "https" if self._upstream.tls else "http"
        (folder / "nginx.conf").write_text(
            f"daemon off;\nworker_processes 1;\nworker_rlimit_nofile 20000;\npid {folder}/nginx.pid;\n"
            f"error_log stderr error;\n{_nginx_user()}"
            "events { worker_connections 18000; }\n"
            "http {\n  access_log off;\n"
            f"{temporary}"
            f"  upstream provider {{ server 127.0.0.1:{self._upstream.port}; keepalive 8192; }}\n"
            f"  server {{\n    listen 127.0.0.1:{self.port} backlog=4096;\n"
            "    location = /bench-ready { return 204; }\n"
            f"    location / {{\n      proxy_pass {scheme}://provider;\n      proxy_http_version 1.1;\n"
            '      proxy_set_header Connection "";\n      proxy_buffering off;\n      proxy_read_timeout 600s;\n'
            "    }\n  }\n}\n"
        )
        return [binary, "-p", str(folder), "-c", str(folder / "nginx.conf")]


class Gate(_Started):
    """The gate with all on that a paying customer's request passes: key, limits, reservation, journal, metrics."""

    name = "gate"
    _speaks = "chat"

    def __init__(self, folder: Path, upstream: Upstream, realtime: bool, *, unlimited: bool = False) -> None:
        self._upstream = upstream
        self._unlimited = unlimited
        super().__init__(folder, realtime, "/readyz")

    def _command(self, folder: Path) -> list[str]:
        (folder / "sluicegate.yaml").write_text(
            f'server: {{listen: "127.0.0.1:{self.port}", workers: 1}}\n'
            f'admin: {{listen: "127.0.0.1:{self._admin_port}"}}\n'
            'store: "sqlite:///sluicegate.db"\n'
            "journal: {dir: ./journal}\n"
            "providers:\n"
            "  bench:\n"
            f'    base_url: "{self._upstream.origin}/v1"\n'
            f"    speaks: [{self._speaks}]\n"
            f'    api_key: "{answers.PROVIDER_KEY}"\n'
            f'    tls: {{ca_file: "{self._upstream.ca_file}"}}\n'
            "models:\n"
            f"  {answers.PUBLIC_MODEL}:\n"
            f"    routes: [{{provider: bench, model: {answers.PROVIDER_MODEL}}}]\n"
            "    price: {input: 1.25, cache_read: 0.125, output: 10}\n"
            f"accounts: {{bench: {'unlimited' if self._unlimited else '{balance_usd: 1000000}'}}}\n"
            f"keys: [{{name: bench, key: {answers.GATE_KEY}, account: bench,\n"
            "  rpm: 1000000000, tpm: 1000000000000, max_streams: 100000}]\n"
        )
        return [*self._program(), "serve", "-c", "sluicegate.yaml"]

    def _program(self) -> list[str]:
        return [sys.executable, "-m", "sluicegate"]

    def pids(self) -> dict[str, list[int]]:
        """Return supervisor, worker and admin process apart."""
        supervisor, *others = processes.descendants(self._process.pid)
        parts: dict[str, list[int]] = {"worker": [], "supervisor": [supervisor], "admin": []}
        for pid in others:
            parts["admin" if "admin" in processes.command_line(pid) else "worker"].append(pid)
        return parts


class Translating(Gate):
    """The gate in front of a provider of Messages: every event is translated for the client, who speaks Chat."""

    name = "translating"
    _speaks = "messages"


class Unbilled(Gate):
    """The gate with reservation and settlement switched off."""

    name = "unbilled"

    def _program(self) -> list[str]:
        return [sys.executable, str(_ROOT / "bench" / "unbilled.py")]


class Relay(_Started):
    """Any other relay, by a command line in which `{port}`, `{origin}` and `{ca_file}` are filled in."""

    name = "relay"

    def __init__(self, folder: Path, upstream: Upstream, realtime: bool, command: str) -> None:
        self._upstream = upstream
        self._template = command
        super().__init__(folder, realtime, "/")

    def _command(self, folder: Path) -> list[str]:
        filled = self._template.format(
            port=self.port, origin=self._upstream.origin, ca_file=self._upstream.ca_file
        )
        return shlex.split(filled)


def nginx_binary() -> str | None:
    """Return where nginx is, or None; Debian's stands outside an ordinary user's path."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def hold_port() -> socket.socket:
    """Take a port that nobody else is given until it is closed; a server that sets SO_REUSEADDR may listen on it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    return sock


def _nginx_user() -> str:
    """As root, nginx would move its worker to a user that cannot enter our folder."""
    return "user root;\n" if os.geteuid() == 0 else ""
