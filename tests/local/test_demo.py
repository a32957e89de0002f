"""`sluicegate demo` from end to end: with the real model, with the simulator, and the ways it ends."""

import fcntl
import json
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
from typing import Any

import pytest
from anthropic import Anthropic
from anthropic.types import MessageParam
from google import genai
from google.genai.types import GenerateContentConfig, HttpOptions
from openai import OpenAI

from tests.gate import held_port

DEMO = [sys.executable, "-m", "sluicegate", "demo"]
TIMEOUT_S = 180.0
HELLO: list[MessageParam] = [{"role": "user", "content": "Say hello."}]

WITHOUT_LOCAL = """\
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "xllamacpp" else find_spec(name, *rest)
sys.argv[0] = "sluicegate"
from sluicegate.cli import main
main()
"""


@contextmanager
def demo_port() -> Iterator[int]:
    """Hold a port, and the next one with it."""
    while True:
        with held_port() as port, socket.socket() as above:
            above.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                above.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            yield port
            return


def run_once(folder: Path, *command: str) -> str:
    with demo_port() as port:
        command = (*(command or DEMO), "--once", "--port", str(port))
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert run.returncode == 0, run.stdout + run.stderr
    assert not run.stderr
    return run.stdout


USAGE = r"(\d+) tokens read(?: \((\d+) of them cached\))?, (\d+) written"
COST = r"\$(0\.\d+) \(([\d,]+) nano-dollars\)"
PATHS = {
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/smollm2:streamGenerateContent?alt=sse",
}


def check_tour(folder: Path, printed: str) -> None:
    """Check what a tour, the last in its folder, printed of each format against the rows that `usage` has."""
    chat, *others = rows_of(folder)[-5:]
    usage = re.search(f"^usage +{USAGE}$", printed, re.MULTILINE)
    cost = re.search(f"^cost +{COST}$", printed, re.MULTILINE)
    assert usage is not None, printed
    assert cost is not None, printed
    assert re.search(r"^first token +\d+ ms$", printed, re.MULTILINE)
    check_charge(chat, (*usage.groups(), *cost.groups()))
    assert [row["client_format"] for row in (chat, *others)] == ["chat", *PATHS]
    for row in others:
        asked = re.escape(PATHS[row["client_format"]])
        short = re.search(rf"^\w+, POST {asked}\n(.+)\n{USAGE}, {COST}$", printed, re.MULTILINE)
        assert short is not None, printed
        assert len(short[1]) > 20
        check_charge(row, short.groups()[1:])
    assert [row["provider_format"] for row in others] == ["completions", "responses", "messages", "chat"]


def check_charge(row: dict[str, Any], printed: tuple[str | None, ...]) -> None:
    """Compare a row with what was printed: counts, dollars, nano-dollars; all by the price in the configuration."""
    read, cached, written, usd, nano = printed
    counts = (int(read or 0), int(cached or 0), int(written or 0))
    assert counts == (row["input_tokens"], row["cache_read_tokens"] or 0, row["output_tokens"])
    assert int((nano or "").replace(",", "")) == row["cost_nano_usd"]
    assert usd == f"{row['cost_nano_usd'] / 1e9:.9f}".rstrip("0")
    assert row["cost_nano_usd"] == (counts[0] - counts[1]) * 150 + counts[1] * 75 + counts[2] * 600
    assert (row["status"], row["usage_source"]) == ("ok", "reported")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return all rows of the store that a demo left in its folder."""
    config = str(folder / "sluicegate-demo" / "sluicegate.yaml")
    usage = [sys.executable, "-m", "sluicegate", "usage", "--json", "--config", config]
    printed = subprocess.run(usage, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


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
    check_tour(tmp_path, first)
    check_tour(tmp_path, run_once(tmp_path))
    assert len(rows_of(tmp_path)) == 10
    config = tmp_path / "sluicegate-demo" / "sluicegate.yaml"
    assert config.stat().st_mode & 0o077 == 0, "the key in it is for its owner alone"
    verify = [sys.executable, "-m", "sluicegate", "ledger", "verify", "--config", str(config)]
    subprocess.run(verify, capture_output=True, check=True)
    wait_for_no_process(tmp_path)


def test_once_with_the_simulator(tmp_path: Path) -> None:
    printed = run_once(tmp_path, sys.executable, "-c", WITHOUT_LOCAL, "demo")
    assert "The extra `local` is not installed: the simulator answers, not a model." in printed
    check_tour(tmp_path, printed)
    wait_for_no_process(tmp_path)


def check_sdks(printed: str) -> None:
    """Ask with each vendor's SDK, at the base URL that the demo names for it."""
    named = re.search(
        r"^or with an SDK .*: base URL (\S+) for OpenAI's, (\S+) for Anthropic's", printed, re.M
    )
    key = re.search(r"Bearer (sg-[\w-]+)", printed)
    assert named is not None, printed
    assert key is not None, printed
    with OpenAI(base_url=named[1], api_key=key[1]) as openai:
        response = openai.responses.create(model="smollm2", input="Say hello.", max_output_tokens=8)
        assert response.output_text
    with Anthropic(base_url=named[2], api_key=key[1]) as anthropic:
        message = anthropic.messages.create(model="smollm2", messages=HELLO, max_tokens=8)
        assert message.content
    with genai.Client(api_key=key[1], http_options=HttpOptions(base_url=named[2])) as gemini:
        answer = gemini.models.generate_content(
            model="smollm2",
            contents="Say hello.",
            config=GenerateContentConfig(max_output_tokens=8),
        )
        assert answer.text


def test_what_it_prints_works_as_pasted_and_ctrl_c_is_one_line(tmp_path: Path) -> None:
    with demo_port() as port, serving(tmp_path, port) as (demo, printed):
        curl = printed[printed.index("curl -N") : printed.index("\n\nor in Python")]
        answer = subprocess.run(
            ["bash", "-c", curl], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        assert "data: [DONE]" in answer.stdout, shlex.quote(curl)
        snippet = printed[printed.index("import json") : printed.index("\n\nor with an SDK")]
        answer = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", snippet],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        assert len(answer.stdout) > 20
        check_sdks(printed)
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
    with demo_port() as port, serving(tmp_path, port) as (demo, _):
        assert len(processes_of(tmp_path)) >= 3
        demo.kill()
    wait_for_no_process(tmp_path)


@pytest.mark.parametrize("above", [0, 1])
def test_a_taken_port_is_one_line(tmp_path: Path, above: int) -> None:
    with demo_port() as port, socket.create_server(("127.0.0.1", port + above)):
        run = subprocess.run(
            [*DEMO, "--port", str(port)], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    assert run.returncode == 1
    assert run.stdout.splitlines() == [
        f"Port {port + above} cannot be had (Address already in use); try --port with another."
    ]
    assert not run.stderr


def test_a_second_demo_leaves_the_files_of_the_first_alone(tmp_path: Path) -> None:
    journal = tmp_path / "sluicegate-demo" / "journal"
    journal.mkdir(parents=True)
    with (journal / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = once(tmp_path)
    assert told == [
        "Another demo serves out of sluicegate-demo: end it first, or run this one in another folder."
    ]
    assert os.listdir(journal.parent) == ["journal"]


def test_a_file_in_the_place_of_its_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "sluicegate-demo").touch()
    assert once(tmp_path) == [f"{tmp_path}/sluicegate-demo cannot be made (File exists)."]


@pytest.mark.parametrize("port", ["0", "65535", "99999", "-1"])
def test_a_port_that_cannot_be_is_refused(tmp_path: Path, port: str) -> None:
    run = subprocess.run(
        [*DEMO, "--port", port], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert run.returncode == 2
    assert "Invalid value for '--port'" in run.stderr
    assert "Traceback" not in run.stderr


def once(folder: Path) -> list[str]:
    """Return what a demo says that cannot begin."""
    with demo_port() as port:
        command = [*DEMO, "--port", str(port)]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (run.returncode, run.stderr) == (1, "")
    return run.stdout.splitlines()
