"""Where the text of two providers meets: how the second is asked, what is not told twice, limits and stop sequences."""

from typing import Any

import pytest

from sluicegate.messages import Format
from sluicegate.simulator import Answer
from sluicegate.simulator.script import Script
from tests.grid.asked import was_asked
from tests.grid.scenes import QUESTION, TEXT
from tests.grid.speaking import Heard, heard_stream
from tests.taken_over.world import COST, INPUT, SAID, WHOLE, World, broken, model_of, rest

pytestmark = pytest.mark.asyncio(loop_scope="module")


FLAGS = ("continue_final_message", "add_generation_prompt")
"""What vLLM and SGLang are asked with."""


async def go_on(
    world: World, second: str, first_text: tuple[str, ...], rest_text: tuple[str, ...], **fields: Any
) -> Heard:
    """Break a chat stream off behind its first text, and hear the whole."""
    answer = Answer(text=(*first_text, " never"), input_tokens=INPUT)
    world.first.push(broken("chat", "cut", answer, len(first_text)))
    world.second.push(Script(answer=Answer(text=rest_text, input_tokens=INPUT + len(first_text))))
    model = model_of("chat", second)
    return heard_stream("chat", await world.ask("chat", model, **fields), model)


async def test_each_kind_of_chat_provider_is_asked_in_its_way(world: World) -> None:
    said_so_far = "".join(TEXT[:SAID])
    turn = {"role": "assistant", "content": said_so_far}
    for style, last, flags in (
        ("turn", turn, {}),
        ("prefix", turn | {"prefix": True}, {}),
        ("final_message", turn, {"continue_final_message": True, "add_generation_prompt": False}),
    ):
        assert (await go_on(world, style, TEXT[:SAID], TEXT[SAID:])).text == WHOLE
        body = world.asked().json
        assert body["messages"] == [{"role": "user", "content": QUESTION}, last]
        assert {name: body[name] for name in FLAGS if name in body} == flags


async def test_a_beginning_that_is_repeated_is_told_once(world: World) -> None:
    repeated = "".join(TEXT[:SAID])
    assert (
        await go_on(world, "prefix", TEXT[:SAID], (repeated[:7], repeated[7:], *TEXT[SAID:]))
    ).text == WHOLE
    assert (await go_on(world, "turn", TEXT[:SAID], (repeated + TEXT[SAID], *TEXT[SAID + 1 :]))).text == WHOLE
    assert (await go_on(world, "turn", ("ha",), ("ha", "!"))).text == "haha!"


async def test_a_beginning_that_is_repeated_is_charged_once(world: World) -> None:
    model = model_of("messages", "turn")
    for pieces in (TEXT, ("".join(TEXT),)):
        world.first.push(broken("messages", "error"))
        world.second.push(Script(answer=Answer(text=pieces, usage="never")))
        heard = heard_stream("chat", await world.ask("chat", model), model)
        row = world.row()
        assert (heard.text, row.usage.output_tokens, row.usage_source) == (WHOLE, len(TEXT), "counted")
        assert heard.cost_nano_usd == row.cost_nano_usd == COST


async def test_white_space_at_the_seam_stands_once(world: World) -> None:
    heard = await go_on(world, "messages", ("Water", " finds \n"), (" ", "\n its", " level"))
    assert heard.text == "Water finds \n its level"
    assert world.asked().json["messages"][-1]["content"] == "Water finds"
    assert (
        await go_on(world, "messages", ("Water", " finds "), ("its", " level"))
    ).text == "Water finds its level"


async def test_a_stop_sequence_across_the_seam_ends_the_answer(world: World) -> None:
    heard = await go_on(world, "turn", ("Water", " finds", " EN"), ("D", " of", " it"), stop=["END"])
    assert (heard.text, heard.finish) == ("Water finds EN", "stop")
    second = world.asked()
    assert second.json["stop"] == ["END"]
    heard = await go_on(world, "turn", ("Water", " finds", " EN"), ("TRY", " of", " it"), stop=["END"])
    assert heard.text == "Water finds ENTRY of it"


async def test_the_limit_holds_for_both_parts(world: World) -> None:
    for second, client in (
        ("chat", "chat"),
        ("messages", "chat"),
        ("gemini", "gemini"),
        ("completions", "completions"),
    ):
        format: Format = client  # type: ignore[assignment]
        first = "chat" if client == "chat" else client
        world.first.push(broken(first, "cut"))  # type: ignore[arg-type]
        world.second.push(rest())
        limit = {"generationConfig": {"maxOutputTokens": 100}} if client == "gemini" else {"max_tokens": 100}
        heard_stream(
            client, await world.ask(format, model_of(first, second), **limit), model_of(first, second)
        )
        assert was_asked(world.asked()).limit == 100 - SAID
