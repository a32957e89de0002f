"""The official `openai` Node SDK, unmodified, against a running gate (T3, C1–C7, C9, E1–E4)."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.gate import RunningGate
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks
from tests.sdk.world import COST_NANO, KEY, POOR_KEY, SLOW_KEYS, TEXT

pytestmark = needs_node_sdks

SCRIPT = Path(__file__).with_name("openai.mjs")


def node(gate: RunningGate, thing: str, model: str = "plain", key: str = KEY) -> Any:
    """Let Node do one thing, and return what it saw."""
    command = [NODE, str(SCRIPT), f"{gate.url}/v1", key, thing, model]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not run.stderr
    return json.loads(run.stdout)


def test_streamed(gate: RunningGate) -> None:
    chunks = node(gate, "streamed")["chunks"]
    assert "".join(
        choice["delta"].get("content") or "" for c in chunks for choice in c["choices"]
    ) == "".join(TEXT)
    assert {chunk["model"] for chunk in chunks} == {"plain"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["cost_nano_usd"] == COST_NANO


def test_stream_helper(gate: RunningGate) -> None:
    seen = node(gate, "helper")
    assert seen["deltas"] == list(TEXT)
    assert seen["final"]["choices"][0]["message"]["content"] == "".join(TEXT)
    assert seen["final"]["usage"]["completion_tokens"] == 5


def test_not_streamed(gate: RunningGate) -> None:
    seen = node(gate, "whole")
    assert seen["answer"]["choices"][0]["message"]["content"] == "".join(TEXT)
    assert seen["answer"]["usage"]["cost_nano_usd"] == COST_NANO
    assert seen["cost"] == str(COST_NANO)


def test_tool_calls(gate: RunningGate) -> None:
    choice = node(gate, "tools", "calls")["final"]["choices"][0]
    arguments = [call["function"]["arguments"] for call in choice["message"]["tool_calls"]]
    assert arguments == ['{"river": "Elbe"}', '{"river": "Oder"}']
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("key", "model", "status", "name"),
    [
        ("sg-not-a-key-of-this-gate-at-all", "plain", 401, "AuthenticationError"),
        (POOR_KEY, "plain", 402, "APIError"),
        (KEY, "no-such-model", 404, "NotFoundError"),
    ],
)
def test_refused(gate: RunningGate, key: str, model: str, status: int, name: str) -> None:
    error = node(gate, "streamed", model, key)["error"]
    assert (error["status"], error["name"]) == (status, name)


def test_rate_limited(gate: RunningGate) -> None:
    first, second = (node(gate, "whole", key=SLOW_KEYS["node"]) for _ in range(2))
    assert "answer" in first
    assert (second["error"]["status"], second["error"]["name"]) == (429, "RateLimitError")


@pytest.mark.parametrize("model", ["fails", "cut"])
@pytest.mark.parametrize("thing", ["streamed", "helper"])
def test_failure_in_mid_stream_throws(gate: RunningGate, thing: str, model: str) -> None:
    assert "error" in node(gate, thing, model)


def test_leaving_the_loop_ends_the_process(gate: RunningGate) -> None:
    assert node(gate, "leave") == {"left": True}
