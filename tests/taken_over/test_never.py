"""Streams that nobody else goes on with: they end with the one error of their format. Contract E2, E3."""

from typing import Any

import msgspec
import pytest

from sluicegate.messages import Format
from sluicegate.simulator import Answer, ToolCall
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.simulator.script import Error, Play, Script, Wait
from tests.grid.asked import was_asked
from tests.grid.scenes import LEVEL, TEXT
from tests.grid.speaking import heard_stream
from tests.taken_over.world import INPUT, OTHER, SAID, WHOLE, World, broken, check_broken, model_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALL = Answer(
    text=TEXT[:2],
    tool_calls=(ToolCall(name="get_level", arguments=('{"river":', ' "Elbe"', "}"), id="call_first"),),
    finish="tool_calls",
    input_tokens=INPUT,
)
THOUGHT = Answer(reasoning=("Rivers", " run"), signature="c2lnbmVk", text=TEXT, input_tokens=INPUT)
DECLINES = Answer(text=TEXT[:2], refusal=("I", " must", " decline"), input_tokens=INPUT)
TOLD: dict[str, tuple[Answer, int]] = {
    "a call has begun": (CALL, 4),
    "a thought was shown, and signed": (THOUGHT, 4),
    "a refusal is open": (DECLINES, 4),
}
"""What the first provider says, and how many pieces of it."""


HIDING: dict[str, tuple[Format, ...]] = {
    "a call has begun": ("gemini",),
    "a thought was shown, and signed": ("completions",),
    "a refusal is open": ("gemini", "completions"),
}
"""Clients that are not told of it, or not yet."""


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (first, name)
        for first in ("chat", "responses", "messages", "gemini")
        for name in TOLD
        if name != "a refusal is open" or first in ("chat", "responses")  # it is text in the others
    ],
)
async def test_E2_calls_thoughts_and_refusals_are_never_gone_on_with(
    world: World, first: Format, name: str
) -> None:
    answer, pieces = TOLD[name]
    if name == "a call has begun" and first == "gemini":
        pieces = CALL.pieces()  # calls come whole
    for client in (first, OTHER[first], *HIDING[name]):
        world.first.push(broken(first, "cut", answer, pieces))
        model = model_of(first, "messages")
        check_broken(world, client, model, await world.ask(client, model))
        row = world.row()
        assert (row.status, row.attempts, row.provider) == ("upstream_error", 1, f"first-{first}")


SHAPE = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {}}}}
TOOLS = [{"type": "function", "function": LEVEL._asdict()}]


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"logprobs": True},
        {"response_format": SHAPE},
        {"reasoning_effort": "high"},
        {"tools": TOOLS, "tool_choice": "required"},
        {"max_tokens": SAID},
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Water"}]},
    ],
    ids=lambda fields: "-".join(fields),
)
async def test_E2_requests_of_which_nobody_else_can_give_the_rest(
    world: World, fields: dict[str, Any]
) -> None:
    world.first.push(broken("chat", "cut"))
    model = model_of("chat", "chat")
    check_broken(world, "chat", model, await world.ask("chat", model, **fields))


async def test_tools_that_were_not_called_are_offered_to_the_second_too(world: World) -> None:
    world.first.push(broken("chat", "cut"))
    world.second.push(
        Script(answer=msgspec.structs.replace(CALL, text=TEXT[SAID:], input_tokens=INPUT + SAID))
    )
    response = await world.ask("chat", model_of("chat", "messages"), tools=TOOLS)
    heard = heard_stream("chat", response, model_of("chat", "messages"))
    assert (heard.text, heard.finish) == (WHOLE, "tool_calls")
    assert [(call.name, call.arguments) for call in heard.calls] == [("get_level", '{"river": "Elbe"}')]
    assert list(was_asked(world.asked()).tools) == ["get_level"]


@pytest.mark.parametrize(
    "model",
    [
        "off",
        "alone",
        model_of("chat", "none"),
        model_of("chat", "responses"),
        model_of("chat", "completions"),
    ],
)
async def test_E2_who_is_not_able_or_not_asked_to_go_on(world: World, model: str) -> None:
    world.first.push(broken("chat", "cut"))
    check_broken(world, "chat", model, await world.ask("chat", model))
    row = world.row()
    assert (row.attempts, row.usage_source, row.usage.output_tokens) == (1, "counted", SAID)


async def test_a_finish_that_was_seen_is_not_gone_on_with(world: World) -> None:
    answer = Answer(text=TEXT[:SAID], input_tokens=INPUT)
    until = next(
        place
        for place, piece in enumerate(DIALECTS["chat"].stream(answer, Ask("m")))
        if piece.kind == "finish"
    )
    world.first.push(Script(answer=answer, steps=(Play(stop=until + 1), Wait(s=0.4), Error(status=500))))
    await world.ask("chat", model_of("chat", "chat"))
    assert not world.second.requests


async def test_what_could_only_be_asked_in_a_weaker_way_is_not_asked(world: World) -> None:
    world.first.push(broken("completions", "cut"))
    model = model_of("completions", "messages")
    check_broken(world, "completions", model, await world.ask("completions", model))


async def test_another_model_that_the_client_named_does_not_go_on(world: World) -> None:
    world.first.push(broken("chat", "cut"))
    model = "alone"
    check_broken(
        world, "chat", model, await world.ask("chat", model, models=["off", model_of("messages", "chat")])
    )


async def test_an_answer_that_its_provider_keeps_is_not_gone_on_with(world: World) -> None:
    world.first.push(broken("responses", "cut"))
    model = model_of("responses", "messages")
    response = await world.ask("responses", model, store=True)
    assert not world.second.requests
    assert b"response.failed" in response.body
