"""Coding agents as their users run them: a turn with a tool call, on a provider of another format (X1, X2).

The agent's own tool runs, its result reaches the provider, the last text is printed, every request is charged, and what
is lost on the way is on a list of things that do not matter.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sluicegate.messages import Format
from sluicegate.simulator import Answer
from tests.clients.agents import AGENTS, CLAUDE_CODE, CODEX, Agent, Run
from tests.clients.conftest import World
from tests.clients.world import (
    ALIASES,
    FORMATS,
    KEY,
    POOR_KEY,
    SECRET,
    SIGNATURE,
    TEXT,
    Commands,
    asking,
    cost_nano,
    final,
    script,
    write_file,
)

pytestmark = pytest.mark.clients

PAIRS = [(agent, target) for agent in AGENTS for target in FORMATS if target != agent.format]
THOUGHTS = frozenset({"thinking", "reasoning", "generationConfig.thinkingConfig"})
"""Earlier thoughts: a chat provider takes none back, Gemini only signatures."""
LOST: dict[Format, frozenset[str]] = {
    "chat": THOUGHTS | {"web_search_options", "web_search", "tools.web_search"},
    "responses": frozenset(),
    "messages": frozenset(),
    "gemini": THOUGHTS | {"web_search", "tools.web_search", "messages[]"},
}
"""What a provider's format has no word for, whoever asks: a search beside functions; a system message in
mid-conversation, which Gemini gets as marked user text."""


def turn(world: World, agents: Commands, folder: Path, agent: Agent, model: str, *answers: Answer) -> Run:
    """Let an agent take a turn in which its provider gives these answers."""
    _, upstream = ALIASES.get(model, ("", model))
    script(world.simulator, upstream, answers, agent.tool)
    return agent.run(agents, folder / "home", world.tap.url, KEY, model)


def provider_saw(world: World) -> list[dict[str, Any]]:
    """Return the requests that a scripted answer was given to."""
    return [request for request in world.simulator.requests() if request["script"] == "turn"]


def check(world: World, agent: Agent, model: str, run: Run, *answers: Answer, target: Format) -> None:
    """Check a turn: what was printed, what was asked, how it was answered and what it cost."""
    assert run.code == 0, run
    assert "".join(TEXT) in run.out, run
    seen = provider_saw(world)
    assert [request["ended"] for request in seen] == ["complete"] * len(answers)
    assert SECRET not in seen[0]["body"]
    assert SECRET in seen[-1]["body"], "the tool's result has not reached the provider"
    if target in ("messages", "gemini", "responses"):
        assert SIGNATURE in seen[-1]["body"], "the state of the thoughts has not come back"
    exchanges = world.tap.exchanges
    assert {exchange.target for exchange in exchanges} == {agent.path.format(model=model)}
    for exchange in exchanges:
        assert (exchange.method, exchange.status, exchange.complete) == ("POST", 200, True)
        assert b'"error":{' not in exchange.answer
        lost = {re.sub(r"\[\d+\]", "[]", entry) for entry in exchange.dropped}
        assert lost <= agent.dropped | LOST[target]
    rows = world.rows({model}, len(answers))
    assert len(rows) == len(exchanges) == len(answers)
    for row in rows:
        assert (row["status"], row["usage_source"]) == ("ok", "reported")
        assert (row["client_format"], row["provider_format"]) == (agent.format, target)
    assert sum(row["cost_nano_usd"] for row in rows) == cost_nano(answers)


@pytest.mark.parametrize(
    ("agent", "target"), PAIRS, ids=[f"{agent.name}-on-{target}" for agent, target in PAIRS]
)
def test_a_turn_with_a_tool(
    world: World, agents: Commands, tmp_path: Path, agent: Agent, target: Format
) -> None:
    model = f"on-{target}-for-{agent.command}"
    answers = (asking((agent.tool, agent.arguments(write_file(tmp_path)))), final())
    run = turn(world, agents, tmp_path, agent, model, *answers)
    check(world, agent, model, run, *answers, target=target)


def test_claude_code_searches_tools_and_reads_a_picture(
    world: World, agents: Commands, tmp_path: Path
) -> None:
    """On a model it knows: adaptive thinking, tools that are loaded by a search, a picture in a tool's result."""
    path = write_file(tmp_path)
    picture = tmp_path / "p.png"
    picture.write_bytes(PNG)
    answers = (
        asking(
            ("ToolSearch", {"query": "select:WebFetch", "max_results": 3}), ("Read", {"file_path": str(path)})
        ),
        asking(("Read", {"file_path": str(picture)})),
        asking(("Bash", {"command": "exit 3"})),
        final(),
    )
    run = turn(world, agents, tmp_path, CLAUDE_CODE, "claude-sonnet-5", *answers)
    assert run.code == 0, run
    assert "".join(TEXT) in run.out
    assert [exchange.status for exchange in world.tap.exchanges] == [200] * 4
    last = provider_saw(world)[-1]["json"]
    results = [message["content"] for message in last["messages"] if message["role"] == "tool"]
    assert results[0] == "The tool WebFetch can be called now."
    assert SECRET in results[1]
    assert results[3].startswith("[tool error] Exit code 3")
    assert "data:image/png;base64," in json.dumps(last["messages"])
    assert "WebFetch" in [tool["function"]["name"] for tool in last["tools"]]
    assert len(last["user"]) <= 64


def test_codex_searches_tools_and_patches(world: World, agents: Commands, tmp_path: Path) -> None:
    """On a model it knows: a search for tools of its own, what it found in a namespace, a free-form tool."""
    path = write_file(tmp_path)
    patch = "*** Begin Patch\n*** Add File: made.txt\n+made\n*** End Patch\n"
    answers = (
        asking(("tool_search", {"query": "close agent"}), ("exec_command", {"cmd": f"cat {path}"})),
        asking(("multi_agent_v1__close_agent", {"target": "nobody"}), ("apply_patch", {"input": patch})),
        final(),
    )
    run = turn(world, agents, tmp_path, CODEX, "gpt-5.5", *answers)
    assert run.code == 0, run
    assert "".join(TEXT) in run.out
    assert (tmp_path / "made.txt").read_text() == "made\n"
    assert [exchange.status for exchange in world.tap.exchanges] == [200] * 3
    last = provider_saw(world)[-1]["json"]
    results = json.dumps([block for turn in last["messages"] for block in turn["content"]])
    assert "multi_agent_v1__close_agent" in [tool["name"] for tool in last["tools"]]
    assert "These tools can be called now: " in results
    assert "invalid agent id nobody" in results, "the tool that was found has not been called"
    assert "Success. Updated the following files" in results
    assert SIGNATURE in results


@pytest.mark.parametrize("agent", AGENTS, ids=[agent.name for agent in AGENTS])
def test_without_credit_the_gate_is_heard(
    world: World, agents: Commands, tmp_path: Path, agent: Agent
) -> None:
    model = f"on-{FORMATS[agent is not CLAUDE_CODE]}-poor-{agent.command}"
    run = agent.run(agents, tmp_path / "home", world.tap.url, POOR_KEY, model)
    assert run.code != 0
    assert re.search(r"balance|credit|\b402\b", run.out + run.err), run
    assert {exchange.status for exchange in world.tap.exchanges} == {402}
    assert not world.simulator.requests()


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""One pixel."""
