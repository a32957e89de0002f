"""What becomes of the provider that goes on: it refuses, is full, fails too, has nothing to add; and of the client.
Contract E2, B3, X3; case B133.
"""

import json
import time

import pytest

from sluicegate.messages import Format
from sluicegate.simulator import Answer
from sluicegate.simulator.answer import of_tokens
from sluicegate.simulator.script import Play, Script, Stall
from tests.conftest import KEY
from tests.fakes import Client, ask, request_bytes
from tests.grid.scenes import FORMATS, TEXT, Prompt
from tests.grid.speaking import heard_stream, path_of, said
from tests.taken_over.world import (
    COST,
    INPUT,
    INPUT_NANO,
    OUTPUT_NANO,
    POOR,
    POOR_NANO,
    SAID,
    WHOLE,
    World,
    broken,
    events_until,
    model_of,
    rest,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("client", FORMATS)
async def test_B133_a_refusal_to_go_on_hides_nothing(world: World, client: Format) -> None:
    model = model_of("messages", "messages")
    world.first.push(broken("messages", "error"))
    world.second.push(Script(status=400, message="This model does not support assistant message prefill."))
    heard = heard_stream(client, await world.ask(client, model), model, fails=True)
    assert heard.error is not None
    assert "prefill" not in str(heard.error)
    row = world.row()
    assert (row.status, row.attempts, row.provider) == ("upstream_error", 2, "first-messages")
    assert (row.usage.input_tokens, row.usage.output_tokens) == (INPUT, SAID)
    assert row.cost_nano_usd == INPUT * INPUT_NANO + SAID * OUTPUT_NANO
    assert world.costs() == []


@pytest.mark.parametrize("client", FORMATS)
async def test_E2_what_fails_before_a_new_word_is_not_charged(world: World, client: Format) -> None:
    model = model_of("messages", "messages")
    usage = {"input_tokens": INPUT + SAID, "output_tokens": 8}
    start = {
        "type": "message_start",
        "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "up", "content": [],
                    "stop_reason": None, "stop_sequence": None, "usage": usage},
    }  # fmt: skip
    body = f"event: message_start\ndata: {json.dumps(start)}\n\n"
    begun = Script(headers=(("content-type", "text/event-stream"),), body=body)
    repeating = broken("messages", "cut", Answer(text=TEXT, input_tokens=INPUT + SAID), SAID - 1)
    for second in (begun, repeating):
        world.first.push(broken("messages", "error"))
        world.second.push(second)
        heard = heard_stream(client, await world.ask(client, model), model, fails=True)
        assert heard.text == "".join(TEXT[:SAID])
        row = world.row()
        assert (row.status, row.attempts, row.provider) == ("upstream_error", 2, "first-messages")
        assert (row.usage.input_tokens, row.usage.output_tokens) == (INPUT, SAID)
        assert row.cost_nano_usd == INPUT * INPUT_NANO + SAID * OUTPUT_NANO


async def test_who_cannot_be_reached_is_passed_over(world: World) -> None:
    world.first.push(broken("chat", "cut"))
    world.second.push(rest())
    heard = heard_stream("chat", await world.ask("chat", "past-one"), "past-one")
    row = world.row()
    assert (heard.text, heard.cost_nano_usd) == (WHOLE, COST)
    assert (row.status, row.attempts, row.provider) == ("ok", 3, "second-chat")
    assert world.costs() == [(1, "first-chat", "continued")]


@pytest.mark.parametrize("client", FORMATS)
async def test_E2_a_stream_is_gone_on_with_once(world: World, client: Format) -> None:
    model = model_of("gemini", "messages")
    world.first.push(broken("gemini", "cut"))
    text = TEXT[SAID:]
    world.second.push(broken("messages", "error", Answer(text=text, input_tokens=INPUT + SAID), 2))
    heard = heard_stream(client, await world.ask(client, model), model, fails=True)
    assert heard.text == "".join(TEXT[: SAID + 2])
    row = world.row()
    assert (row.status, row.attempts, row.provider) == ("upstream_error", 2, "second-messages")
    assert (row.usage.input_tokens, row.usage.output_tokens) == (INPUT, SAID + 2)
    assert row.cost_nano_usd == INPUT * INPUT_NANO + (SAID + 2) * OUTPUT_NANO
    assert world.costs() == [(1, "first-gemini", "continued")]


async def test_B3_a_client_that_leaves_pays_for_both_parts(world: World) -> None:
    body = said("chat", model_of("chat", "messages"), Prompt(system=None), True)
    world.first.push(broken("chat", "cut"))
    until = events_until("messages", Answer(text=TEXT[SAID:]), 2)
    answer = Answer(text=TEXT[SAID:], input_tokens=INPUT + SAID)
    world.second.push(Script(answer=answer, steps=(Play(stop=until), Stall())))
    rows = len(world.gate.rows())
    async with await Client.connect(world.gate.url) as client:
        client.send(request_bytes("/v1/chat/completions", body, key=KEY))
        await client.until_bytes(TEXT[SAID + 1].encode())
        await client.close()
    row = (await world.gate.wait_for_rows(rows + 1))[-1]
    assert (row.status, row.attempts) == ("client_closed", 2)
    assert (row.usage.input_tokens, row.usage.output_tokens) == (INPUT, SAID + 2)
    second = world.asked()
    await world.second.wait_for(lambda: second.ended is not None, timeout_s=1.0)


async def test_a_second_that_has_nothing_to_add_ends_the_answer(world: World) -> None:
    world.first.push(broken("chat", "cut", Answer(text=TEXT, input_tokens=INPUT), len(TEXT)))
    world.second.push(rest((), input_tokens=INPUT + len(TEXT)))
    model = model_of("chat", "messages")
    heard = heard_stream("chat", await world.ask("chat", model), model)
    assert (heard.text, heard.finish, heard.cost_nano_usd) == (WHOLE, "stop", COST)
    assert world.costs() == [(1, "first-chat", "continued")]


async def test_an_answer_that_comes_whole_is_gone_on_with_too(world: World) -> None:
    world.first.push(broken("chat", "cut"))
    answer = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "up", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "".join(TEXT[SAID:])}], "stop_sequence": None,
        "usage": {"input_tokens": INPUT + SAID, "output_tokens": len(TEXT) - SAID},
    }  # fmt: skip
    world.second.push(Script(headers=(("content-type", "application/json"),), body=json.dumps(answer)))
    model = model_of("chat", "messages")
    heard = heard_stream("chat", await world.ask("chat", model), model)
    assert (heard.text, heard.finish, heard.cost_nano_usd) == (WHOLE, "stop", COST)


@pytest.mark.parametrize("client", ["chat", "responses"])
async def test_X3_money_that_ends_in_the_second_part_ends_the_stream(world: World, client: Format) -> None:
    first = Answer(text=TEXT, input_tokens=INPUT)
    words = of_tokens(4000, input_tokens=INPUT + SAID)
    world.first.push(broken("chat", "cut", first))
    world.second.push(Script(answer=words, interval_s=0.0005))
    body = said(client, model_of("chat", "messages"), Prompt(system=None), True)
    body["max_output_tokens" if client == "responses" else "max_tokens"] = 4000
    path = path_of(client, model_of("chat", "messages"), True)
    response = await ask(world.gate.url, path, body, key=POOR[client], timeout_s=10.0)
    heard_stream(client, response, model_of("chat", "messages"), fails=True)
    row = world.row()
    assert (row.status, row.attempts) == ("credit_spent", 2)
    assert row.cost_nano_usd <= POOR_NANO
    assert row.cost_nano_usd == INPUT * INPUT_NANO + (row.usage.output_tokens or 0) * OUTPUT_NANO
    assert row.cost_nano_usd > POOR_NANO // 2


async def test_a_route_that_is_full_is_passed_over(world: World) -> None:
    world.first.push(broken("chat", "cut"), Script(), broken("chat", "cut"))
    world.second.push(rest())
    assert heard_stream("chat", await world.ask("chat", "limited"), "limited").text == WHOLE
    world.first.clear()
    world.first.push(broken("chat", "cut"))
    heard = heard_stream("chat", await world.ask("chat", "limited"), "limited", fails=True)
    assert heard.text == "".join(TEXT[:SAID])
    assert len(world.second.requests) == 1


async def test_what_is_told_is_why_it_broke_off_not_that_another_asked_for_patience(world: World) -> None:
    world.first.push(Script(status=429, headers=(("retry-after", "1"),)))
    world.second.push(broken("chat", "cut"))
    response = await world.ask("chat", model_of("completions", "none"), n=1)
    heard = heard_stream("chat", response, model_of("completions", "none"), fails=True)
    assert heard.error is not None
    assert "limit" not in heard.error["message"]


async def test_the_time_of_the_request_is_that_of_both(world: World) -> None:
    world.first.push(broken("chat", "cut"))
    world.second.push(Script(steps=(Stall(),)))
    body = said("chat", model_of("chat", "chat"), Prompt(system=None), True)
    headers = {"x-sluicegate-timeouts": "total=400ms"}
    began = time.monotonic()
    response = await ask(
        world.gate.url, "/v1/chat/completions", body, key=KEY, headers=headers, timeout_s=5.0
    )
    assert time.monotonic() - began < 3.0
    heard_stream("chat", response, model_of("chat", "chat"), fails=True)
