"""What the gate of these tests serves, and what its provider says: a call of the client's own tool, then a text.

`on-FORMAT-…` is any model at a provider that speaks that one format. The provider knows that a tool has run by what the
tool read: the text of a file that only the client can see.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sluicegate.messages import Format
from sluicegate.simulator import Answer, Script, SimulatorProcess, ToolCall

KEY = "sg-client-tests-with-plenty-of-credit"
POOR_KEY = "sg-client-tests-without-any-credit"
FORMATS: tuple[Format, ...] = ("chat", "responses", "messages", "gemini")
ALIASES = {
    "gpt-5.5": ("messages", "on-messages-as-gpt"),
    "claude-sonnet-5": ("chat", "on-chat-as-claude"),
    "gemini-2.5-pro": ("responses", "on-responses-as-gemini"),
}
"""Models whose names their vendor's client knows, at a provider of another format."""
FILE = "level.txt"
SECRET = "the-level-is-4711-mm"
"""What the file says, and nothing but the file."""
QUESTION = "Read level.txt and tell me the level."
TEXT = ("The level ", "is 4711 mm.")
SIGNATURE = "c2lnbmVkIGJ5IHRoZSBtb2RlbA=="
PRICE = {"input": 1, "cache_read": 0.1, "output": 2}
NANO_IN, NANO_OUT = 1_000, 2_000


class Commands(NamedTuple):
    """Where the agents' commands lie, and the Node.js that runs them."""

    agents: Path
    node: Path

    @property
    def path(self) -> str:
        """What an agent finds on its PATH."""
        return f"{self.agents}:{self.node}:{os.environ['PATH']}"


def configuration(provider_url: str) -> str:
    """Return the gate's configuration, for `run_gate`."""
    providers = {
        name: {"base_url": f"{provider_url}/v1", "speaks": [name], "auth": "none"} for name in FORMATS
    }
    models: dict[str, Any] = {
        f"on-{name}-*": {"routes": [{"provider": name, "model": f"on-{name}-*"}], "price": PRICE}
        for name in FORMATS
    }
    for alias, (name, upstream) in ALIASES.items():
        models[alias] = {"routes": [{"provider": name, "model": upstream}], "price": PRICE}
    return json.dumps(
        {
            "server": {"listen": "{listen}"},
            "admin": {"listen": "{admin_listen}"},
            "store": "sqlite:///sluicegate.db",
            "providers": providers,
            "models": models,
            "keys": [
                {"name": "rich", "key": KEY, "balance_usd": 50},
                {"name": "poor", "key": POOR_KEY, "balance_usd": 0},
            ],
        }
    )


def final(answer_tokens: int = 40) -> Answer:
    """Return the last answer of a turn."""
    return Answer(text=TEXT, input_tokens=answer_tokens)


def asking(*calls: tuple[str, dict[str, Any]]) -> Answer:
    """Return an answer that thinks, and then calls tools; arguments come in pieces."""
    return Answer(
        reasoning=("I have to ", "look."),
        signature=SIGNATURE,
        tool_calls=tuple(ToolCall(name=name, arguments=_halves(json.dumps(given))) for name, given in calls),
        finish="tool_calls",
        input_tokens=30,
    )


def _halves(text: str) -> tuple[str, ...]:
    half = len(text) // 2
    return text[:half], text[half:]


def script(simulator: SimulatorProcess, upstream: str, answers: Sequence[Answer], tool: str) -> None:
    """Let a model give these answers in turn to requests that offer a tool; whatever else a client asks gets words."""
    for answer in answers:
        simulator.push(Script(name="turn", answer=answer), model=upstream, holds=json.dumps(tool))


def cost_nano(answers: Sequence[Answer]) -> int:
    """Return what a turn of these answers costs."""
    usages = [answer.truth() for answer in answers]
    return sum(
        (usage.input_tokens or 0) * NANO_IN + (usage.output_tokens or 0) * NANO_OUT for usage in usages
    )


def write_file(folder: Path) -> Path:
    """Put the file into a folder."""
    path = folder / FILE
    path.write_text(SECRET + "\n")
    return path
