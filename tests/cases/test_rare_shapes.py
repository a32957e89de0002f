"""Answers that are legal, or nearly so, and rare: what every client must hear of them, streamed, cut up and plain.

None of them was reported; each was found by playing such shapes to clients of every format.
"""

import json
from typing import Any

import pytest

from tests.cases.frames import (
    event,
    message_end,
    message_start,
)
from tests.cases.world import TOOLS, Outcome, World
from tests.grid.scenes import FORMATS, Prompt

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONVERSATIONS = tuple(format for format in FORMATS if format != "completions")
JSON = (("content-type", "application/json"),)


async def streamed(
    world: World, client: str, provider: str, name: str, body: bytes, prompt: Prompt
) -> Outcome:
    """Play a stream whole, then byte by byte; both must say the same."""
    outcomes = []
    for cut in ("whole", "bytes"):
        played = f"{name}-{client}-{cut}"
        world.plays(played, body, cut)  # type: ignore[arg-type]  # both are cuts
        outcomes.append(await world.hear(client, f"{provider}/{played}", prompt, stream=True))
    whole, bytewise = outcomes
    assert (whole.heard, whole.told) == (bytewise.heard, bytewise.told)
    return whole


async def plain(world: World, client: str, provider: str, name: str, body: Any, prompt: Prompt) -> Outcome:
    """Play a body to a client that asked for no stream."""
    played = f"{name}-{client}-plain"
    world.plays(played, json.dumps(body).encode(), headers=JSON)
    return await world.hear(client, f"{provider}/{played}", prompt, stream=False)


# ---- a tool's input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CONVERSATIONS)
async def test_an_empty_piece_does_not_replace_input_that_the_start_gave(world: World, client: str) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "level", "input": {"gate": "north"}}
    empty = {"type": "input_json_delta", "partial_json": ""}
    body = (
        message_start()
        + event("content_block_start", index=0, content_block=block)
        + event("content_block_delta", index=0, delta=empty)
        + event("content_block_stop", index=0)
        + message_end("tool_use")
    )
    outcome = await streamed(world, client, "messages", "given-input", body, TOOLS)
    assert outcome.heard is not None
    assert [(said.name, json.loads(said.arguments)) for said in outcome.heard.calls] == [
        ("level", {"gate": "north"})
    ]
