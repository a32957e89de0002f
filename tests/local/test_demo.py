"""`sluicegate demo` from end to end: with the real model, with the simulator, and the ways it ends."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gate import free_ports

pytestmark = pytest.mark.xdist_group("local_model")

DEMO = [sys.executable, "-m", "sluicegate", "demo"]
TIMEOUT_S = 180.0

WITHOUT_LOCAL = """\
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "xllamacpp" else find_spec(name, *rest)
sys.argv[0] = "sluicegate"
from sluicegate.cli import main
main()
"""


def demo_port() -> int:
    """Return a port that is free, as is the next one."""
    while True:
        (port,) = free_ports(1)
        with socket.socket() as above:
            try:
                above.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def run_once(folder: Path, *command: str) -> str:
    command = (*(command or DEMO), "--once", "--port", str(demo_port()))
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert run.returncode == 0, run.stdout + run.stderr
    assert not run.stderr
    return run.stdout


def check_receipt(printed: str) -> int:
    """Check what a tour printed about usage and cost, and return the cost in nano-USD."""
    usage = re.search(
        r"^usage +(\d+) tokens read(?: \((\d+) of them cached\))?, (\d+) written$", printed, re.MULTILINE
    )
    cost = re.search(r"^cost +\$(0\.\d+) \(([\d,]+) nano-dollars\)$", printed, re.MULTILINE)
    assert usage is not None, printed
    assert cost is not None, printed
    read, cached, written = int(usage[1]), int(usage[2] or 0), int(usage[3])
    nano = (read - cached) * 150 + cached * 75 + written * 600
    assert int(cost[2].replace(",", "")) == nano
    assert cost[1] == f"{nano / 1e9:.9f}".rstrip("0")
    assert re.search(r"^first token +\d+ ms$", printed, re.MULTILINE)
    return nano


def processes_of(folder: Path) -> list[int]:
    """Return the processes that work in a folder or below."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink().is_relative_to(folder):
                found.append(int(link.parent.name))
        except OSError:
            continue
    return found


def wait_for_no_process(folder: Path) -> None:
    give_up_at = time.monotonic() + 10
    while left := processes_of(folder):
        assert time.monotonic() < give_up_at, f"still running: {left}"
        time.sleep(0.05)


@contextmanager
def serving(folder: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the demo until it serves; yield it with what it has printed."""
    command = [*DEMO, "--port", str(port)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as demo:
        assert demo.stdout is not None
        try:
            printed = ""
            for line in demo.stdout:
                printed += line
                if "Ctrl-C" in line:
                    break
            assert "Ctrl-C" in printed, printed
            yield demo, printed
        finally:
            demo.kill()


def test_once_with_the_real_model_twice_in_one_folder(tmp_path: Path) -> None:
    first = run_once(tmp_path)
    assert "SmolLM2 135M is loaded" in first
    costs = [check_receipt(first), check_receipt(run_once(tmp_path))]
    config = tmp_path / "sluicegate-demo" / "sluicegate.yaml"
    assert config.stat().st_mode & 0o077 == 0, "the key in it is for its owner alone"
    usage = subprocess.run(
        [sys.executable, "-m", "sluicegate", "usage", "--json", "--config", str(config)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [int(nano) for nano in re.findall(r'"cost_nano_usd": ?(\d+)', usage.stdout)] == costs
    verify = [sys.executable, "-m", "sluicegate", "ledger", "verify", "--config", str(config)]
    subprocess.run(verify, capture_output=True, check=True)
    wait_for_no_process(tmp_path)


def test_once_with_the_simulator(tmp_path: Path) -> None:
    printed = run_once(tmp_path, sys.executable, "-c", WITHOUT_LOCAL, "demo")
    assert "The extra `local` is not installed: the simulator answers, not a model." in printed
    check_receipt(printed)
    wait_for_no_process(tmp_path)


def test_what_it_prints_works_as_pasted_and_ctrl_c_is_one_line(tmp_path: Path) -> None:
    with serving(tmp_path, demo_port()) as (demo, printed):
        curl = printed[printed.index("curl -N") : printed.index("\n\nor in Python")]
        answer = subprocess.run(
            ["bash", "-c", curl], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        assert "data: [DONE]" in answer.stdout, shlex.quote(curl)
        snippet = printed[printed.index("import json") : printed.index("\n\nor with any OpenAI client")]
        answer = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", snippet],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        assert len(answer.stdout) > 20
        (usage,) = [line for line in printed.splitlines() if " usage --config " in line]
        answer = subprocess.run(
            ["bash", "-c", usage], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        assert "smollm2" in answer.stdout
        demo.send_signal(signal.SIGINT)
        assert demo.stdout is not None
        rest = demo.stdout.read()
        assert demo.wait(TIMEOUT_S) == 0
    assert rest.strip() == "Stopped."
    wait_for_no_process(tmp_path)


def test_children_die_with_a_killed_demo(tmp_path: Path) -> None:
    with serving(tmp_path, demo_port()) as (demo, _):
        assert len(processes_of(tmp_path)) >= 3
        demo.kill()
    wait_for_no_process(tmp_path)


@pytest.mark.parametrize("above", [0, 1])
def test_a_taken_port_is_one_line(tmp_path: Path, above: int) -> None:
    port = demo_port()
    with socket.create_server(("127.0.0.1", port + above)):
        run = subprocess.run(
            [*DEMO, "--port", str(port)], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    assert run.returncode == 1
    assert run.stdout.splitlines() == [
        f"Port {port + above} cannot be had (Address already in use); try --port with another."
    ]
    assert not run.stderr
