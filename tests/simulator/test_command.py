"""`sluicegate simulate` on a real command line."""

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

COMMAND = [sys.executable, "-m", "sluicegate", "simulate"]


@contextmanager
def simulating(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.kill()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_a_signal_and_ends_cleanly(end: signal.Signals) -> None:
    with simulating("--port", "0", "--tokens", "3", "--tokens-per-s", "0", "--prompt-tokens", "7") as (
        process,
        url,
    ):
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
        connection.request("POST", "/v1/chat/completions", json.dumps({"model": "m"}))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert answer["choices"][0]["message"]["content"] == " the of and"
        assert answer["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        process.send_signal(end)
        assert process.wait(5) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_taken_port_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = subprocess.run([*COMMAND, "--port", str(port)], capture_output=True, text=True, timeout=20)
    assert run.returncode == 2
    assert run.stderr == f"sluicegate: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert run.stdout == ""


def test_lists_its_models() -> None:
    run = subprocess.run(
        [*COMMAND, "--list", "--json"], capture_output=True, text=True, timeout=20, check=True
    )
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert {"model": "sim-text", "answer": "plain words"} in rows
    assert len(rows) > 60
