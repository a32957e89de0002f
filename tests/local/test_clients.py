"""Whole clients with a real model behind the gate: Claude Code on its chat format, and `llm`."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import agents, libraries
from tests.clients.world import Commands
from tests.gate import RunningGate, run_gate

__all__ = ["agents", "libraries"]

pytestmark = pytest.mark.clients

KEY = "sg-local-client-tests-0123456789"
PRICE = {"input": 0.15, "output": 0.6}


@pytest.fixture
def gate(local_model: str, tmp_path: Path) -> Iterator[RunningGate]:
    configuration = {
        "server": {"listen": "{listen}"},
        "admin": {"listen": "{admin_listen}"},
        "store": "sqlite:///sluicegate.db",
        "providers": {"local": {"base_url": f"{local_model}/v1", "speaks": ["chat"], "auth": "none"}},
        "models": {"smollm2": {"routes": [{"provider": "local", "model": "smollm2"}], "price": PRICE}},
        "keys": [{"name": "dev", "key": KEY, "balance_usd": 5}],
    }
    with run_gate(tmp_path, json.dumps(configuration)) as running:
        yield running


def check(gate: RunningGate, printed: str, client_format: str) -> None:
    """Check that words came, and that the row counts and charges them."""
    assert printed.strip()
    row = gate.usage()[-1]
    assert (row["client_format"], row["provider_format"], row["status"]) == (client_format, "chat", "ok")
    assert row["usage_source"] == "reported"
    assert row["cost_nano_usd"] == row["input_tokens"] * 150 + row["output_tokens"] * 600


def run(command: list[str], folder: Path, **environment: str) -> str:
    settings = {"HOME": str(folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environment}
    done = subprocess.run(
        command,
        cwd=folder,
        env=settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_claude_code(gate: RunningGate, agents: Commands, tmp_path: Path) -> None:
    """Without its tools, whose descriptions are longer than this model can read."""
    printed = run(
        [
            str(agents.agents / "claude"),
            "-p",
            "Say hello.",
            "--tools",
            "",
            "--system-prompt",
            "Answer in one short sentence.",
        ],
        tmp_path,
        PATH=agents.path,
        ANTHROPIC_BASE_URL=gate.url,
        ANTHROPIC_AUTH_TOKEN=KEY,
        ANTHROPIC_MODEL="smollm2",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="smollm2",
        CLAUDE_CODE_MAX_OUTPUT_TOKENS="600",
        CLAUDE_CODE_EXTRA_BODY=json.dumps({"temperature": 0, "stop_sequences": ["."]}),  # it never ends else
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    check(gate, printed, "messages")


def test_llm(gate: RunningGate, libraries: Path, tmp_path: Path) -> None:
    settings = tmp_path / "llm"
    settings.mkdir()
    model = {
        "model_id": "gate",
        "model_name": "smollm2",
        "api_base": f"{gate.url}/v1",
        "api_key_name": "gate",
    }
    (settings / "extra-openai-models.yaml").write_text(json.dumps([model]))  # JSON is YAML
    (settings / "keys.json").write_text(json.dumps({"gate": KEY}))
    command = [
        str(libraries / "llm"),
        "-m",
        "gate",
        "-o",
        "max_tokens",
        "48",
        "-o",
        "temperature",
        "0",
        "Say hello.",
    ]
    check(gate, run(command, tmp_path, LLM_USER_PATH=str(settings)), "chat")
