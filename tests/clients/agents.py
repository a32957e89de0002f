"""How each coding agent is set up for a gate: the settings of docs/clients.md, in a home of its own."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from sluicegate.messages import Format
from tests.clients.world import QUESTION, Commands

TIMEOUT_S = 150.0

CODEX_CONFIG = """\
model = "{model}"
model_provider = "gate"

[model_providers.gate]
name = "Gate"
base_url = "{gate}/v1"
env_key = "GATE_KEY"
wire_api = "responses"

[analytics]
enabled = false
"""
GEMINI_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
}


class Run(NamedTuple):
    """What an agent printed and how it ended."""

    code: int
    out: str
    err: str


class Agent(NamedTuple):
    """One agent."""

    name: str
    command: str
    format: Format
    tool: str
    """Its tool that reads a file."""
    arguments: Callable[[Path], dict[str, Any]]
    """What that tool is given for a file."""
    path: str
    """Where it asks; `{model}` stands for the model's id."""
    dropped: frozenset[str]
    """Fields of its requests that other formats have no word for; places in lists are left out."""
    set_up: Callable[[Path, str, str, str], tuple[list[str], dict[str, str]]]
    """Takes its home, the gate's URL, a key and a model; returns its arguments and its environment."""

    def run(self, commands: Commands, home: Path, gate: str, key: str, model: str) -> Run:
        """Ask it the question, in a folder that holds the file."""
        home.mkdir(exist_ok=True)
        arguments, settings = self.set_up(home, gate, key, model)
        environment = {
            "HOME": str(home),
            "PATH": commands.path,
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **settings,
        }
        done = subprocess.run(
            [str(commands.agents / self.command), *arguments],
            cwd=home.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return Run(done.returncode, done.stdout, done.stderr)


def _claude_code(home: Path, gate: str, key: str, model: str) -> tuple[list[str], dict[str, str]]:
    return ["-p", QUESTION, "--allowedTools", "Read,ToolSearch,Bash"], {
        "ANTHROPIC_BASE_URL": gate,
        "ANTHROPIC_AUTH_TOKEN": key,
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _codex(home: Path, gate: str, key: str, model: str) -> tuple[list[str], dict[str, str]]:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(CODEX_CONFIG.format(gate=gate, model=model))
    return [
        "exec",
        "--skip-git-repo-check",
        "--sandbox",
        "danger-full-access",  # its sandbox wants privileges that a container may not have
        QUESTION,
    ], {"GATE_KEY": key}


def _gemini_cli(home: Path, gate: str, key: str, model: str) -> tuple[list[str], dict[str, str]]:
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text(json.dumps(GEMINI_SETTINGS))
    return ["-m", model, "-p", QUESTION, "--approval-mode", "yolo", "--skip-trust"], {
        "GOOGLE_GEMINI_BASE_URL": gate,
        "GEMINI_API_KEY": key,
    }


CLAUDE_CODE = Agent(
    "claude-code",
    "claude",
    "messages",
    "Read",
    lambda path: {"file_path": str(path)},
    "/v1/messages?beta=true",
    frozenset({"tools[].defer_loading", "context_management", "cache_control", "user", "metadata.user_id"}),
    _claude_code,
)
CODEX = Agent(
    "codex",
    "codex",
    "responses",
    "exec_command",
    lambda path: {"cmd": f"cat {path}"},
    "/v1/responses",
    frozenset({"tools[].external_web_access", "client_metadata", "prompt_cache_key"}),
    _codex,
)
GEMINI_CLI = Agent(
    "gemini-cli",
    "gemini",
    "gemini",
    "read_file",
    lambda path: {"file_path": str(path)},
    "/v1beta/models/{model}:streamGenerateContent?alt=sse",
    frozenset({"generationConfig.topK", "generationConfig.topP"}),
    _gemini_cli,
)
AGENTS = (CLAUDE_CODE, CODEX, GEMINI_CLI)
