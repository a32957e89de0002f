"""Libraries that run a model's tools themselves: whole turns on providers of other formats (X1, X2)."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sluicegate.messages import Format
from tests.clients.conftest import FOLDER, World
from tests.clients.world import (
    FORMATS,
    KEY,
    QUESTION,
    SECRET,
    TEXT,
    asking,
    cost_nano,
    final,
    script,
    write_file,
)
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks

pytestmark = pytest.mark.clients

LANGCHAIN: dict[str, Format] = {
    "openai": "chat",
    "openai-responses": "responses",
    "anthropic": "messages",
    "google": "gemini",
}
"""LangChain's integrations, and the format that each speaks."""
AI_SDK: dict[str, Format] = {
    "openai-compatible": "chat",
    "openai": "responses",
    "anthropic": "messages",
    "google": "gemini",
}
"""The AI SDK's providers, and the format that each speaks."""


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Run a client with a home of its own; return what it printed."""
    settings = {"HOME": str(folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environment}
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


HARMLESS = {
    "thinking",
    "reasoning",
    "reasoning_effort",
    "generationConfig.thinkingConfig",
    "input.item_reference",
    "tools[0].eager_input_streaming",
}
"""Earlier thoughts in the words of each format, where the provider takes none back; a hint that one vendor knows."""


class Turn(NamedTuple):
    """One turn of one client."""

    vendor: str
    speaks: Format
    model: str
    how: str

    def __str__(self) -> str:
        return f"{self.vendor}:{self.model}:{self.how}"


def prepare(
    world: World, folder: Path, client: str, vendors: dict[str, Format], *, all_pairs: bool
) -> list[Turn]:
    """Script turns through every vendor's part of a client, on providers of other formats.

    Args:
        all_pairs: each on every such provider, streamed and not; else each once streamed and once not.
    """
    call = ("read_file", {"file_path": str(write_file(folder))})
    turns = []
    for place, (vendor, speaks) in enumerate(vendors.items()):
        others = [target for target in FORMATS if target != speaks]
        for shift, how in enumerate(("plain", "streamed")):
            for target in others if all_pairs else [others[(place + shift) % len(others)]]:
                turn = Turn(vendor, speaks, f"on-{target}-for-{client}-{vendor}-{how}", how)
                script(world.simulator, turn.model, (asking(call), final()), "read_file")
                turns.append(turn)
    return turns


def check(world: World, turns: list[Turn]) -> None:
    """Check that every turn had its tool's result, was charged, and lost nothing but earlier thoughts."""
    answers = (asking(("read_file", {"file_path": "x"})), final())
    seen = world.simulator.requests()
    rows_of = world.rows({turn.model for turn in turns}, 2 * len(turns))
    for turn in turns:
        first, second = (request for request in seen if request["model"] == turn.model)
        assert SECRET not in first["body"]
        assert SECRET in second["body"]
        rows = [row for row in rows_of if row["model"] == turn.model]
        assert [(row["client_format"], row["status"], row["usage_source"]) for row in rows] == [
            (turn.speaks, "ok", "reported")
        ] * 2
        assert sum(row["cost_nano_usd"] for row in rows) == cost_nano(answers)
    assert {exchange.status for exchange in world.tap.exchanges} == {200}
    lost = set().union(*(exchange.dropped for exchange in world.tap.exchanges))
    assert lost <= HARMLESS


def told_of(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_langchain_agents(world: World, libraries: Path, tmp_path: Path) -> None:
    turns = prepare(world, tmp_path, "langchain", LANGCHAIN, all_pairs=False)
    command = [libraries / "python", FOLDER / "langchain_turn.py", world.tap.url, KEY, QUESTION]
    printed = run([*command, *map(str, turns)], tmp_path, LANGSMITH_TRACING="false")
    for turn, told in zip(turns, told_of(printed), strict=True):
        assert (told["turn"], told["text"]) == (str(turn), "".join(TEXT))
        if turn.how == "plain":
            assert told["kinds"] == ["human", "ai", "tool", "ai"]
            assert [count for count, _ in told["usage"]] == [30, 40]
        else:
            assert told["pieces"] == len(TEXT)
    check(world, turns)


@needs_node_sdks
def test_vercel_ai_sdk(world: World, tmp_path: Path) -> None:
    turns = prepare(world, tmp_path, "ai-sdk", AI_SDK, all_pairs=True)
    command = [NODE, FOLDER.parent / "sdk" / "turn.mjs", world.tap.url, KEY, QUESTION]
    for turn, told in zip(turns, told_of(run([*command, *map(str, turns)], tmp_path)), strict=True):
        assert (told["turn"], told["text"]) == (str(turn), "".join(TEXT))
        assert told["steps"] == ["tool-calls", "stop"]
        assert [count for count, _ in told["usage"]] == [30, 40]
    check(world, turns)


def test_llm(world: World, libraries: Path, tmp_path: Path) -> None:
    """Simon Willison's `llm`, with a tool from a file of functions."""
    turns = prepare(world, tmp_path, "llm", {"openai": "chat"}, all_pairs=False)
    settings = tmp_path / "llm"
    settings.mkdir()
    described = [
        {
            "model_id": turn.model,
            "model_name": turn.model,
            "api_base": f"{world.tap.url}/v1",
            "api_key_name": "gate",
            "supports_tools": True,
        }
        for turn in turns
    ]
    (settings / "extra-openai-models.yaml").write_text(json.dumps(described))  # JSON is YAML
    (settings / "keys.json").write_text(json.dumps({"gate": KEY}))
    (tmp_path / "tools.py").write_text(
        'def read_file(file_path: str) -> str:\n    "Read a file."\n    return open(file_path).read()\n'
    )
    for turn in turns:
        plain = ["--no-stream"] if turn.how == "plain" else []
        command = [libraries / "llm", "-m", turn.model, *plain, "--functions", "tools.py", QUESTION]
        assert run(command, tmp_path, LLM_USER_PATH=str(settings)) == "".join(TEXT) + "\n"
    check(world, turns)
