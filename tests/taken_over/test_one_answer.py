"""Streams that break off and that another provider goes on with (`stream.continue_midstream`): one answer on the wire,
in every client format, and one charge. Contract E2, E3, B1, C8, G1, X2; case B060.
"""

import re

import pytest

from sluicegate.messages import Format
from tests.conftest import KEY
from tests.fakes import Client, ask
from tests.grammar.gemini import check_gemini_stream
from tests.grid.asked import was_asked
from tests.grid.scenes import FORMATS, QUESTION, TEXT, Prompt
from tests.grid.speaking import LIMIT, heard_stream, path_of, said
from tests.taken_over.world import COST, FAULTS, INPUT, OTHER, SAID, WHOLE, World, broken, model_of, rest

pytestmark = pytest.mark.asyncio(loop_scope="module")

CAN_GO_ON: tuple[Format, ...] = ("chat", "completions", "messages", "gemini")


def untold(client: Format, first: Format, second: Format) -> bool:
    """Whether the second provider could be asked only in a weaker way than the first, which cannot be told any more."""
    return (client == "completions") != (second == "completions") and first == client


CELLS = [
    (client, first, second, fault)
    for client in FORMATS
    for first in (client, OTHER[client])
    for second in CAN_GO_ON
    for fault in FAULTS
    if second != "completions" or client == "completions"
    if not untold(client, first, second)
    if fault != "stall" or second == "messages"  # it takes its time
]


@pytest.mark.parametrize(("client", "first", "second", "fault"), CELLS)
async def test_E2_one_answer_from_two_providers(
    world: World, client: Format, first: Format, second: Format, fault: str
) -> None:
    world.first.push(broken(first, fault))
    world.second.push(rest())
    response = await world.ask(client, model_of(first, second))
    assert response.complete
    heard = heard_stream(client, response, model_of(first, second))
    assert heard.text == WHOLE
    assert (heard.reasoning, heard.refusal, heard.calls, heard.finish) == ("", "", [], "stop")
    row = world.row()
    assert (row.status, row.attempts, row.provider, row.finish_reason) == (
        "ok",
        2,
        f"second-{second}",
        "stop",
    )
    assert (row.usage.input_tokens, row.usage.output_tokens) == (INPUT, len(TEXT))
    assert row.cost_nano_usd == heard.cost_nano_usd == COST
    assert heard.usage is not None
    assert (heard.usage.input_tokens, heard.usage.output_tokens) == (INPUT, len(TEXT))
    assert world.costs() == [(1, f"first-{first}", "continued")]
    if second == "completions":
        assert world.asked().json["prompt"] == QUESTION + "".join(TEXT[:SAID])
        return
    turns = was_asked(world.asked()).turns
    assert [(turn.role.replace("model", "assistant"), turn.value) for turn in turns] == [
        ("user", QUESTION),
        ("assistant", "".join(TEXT[:SAID])),
    ]


@pytest.mark.parametrize("client", FORMATS)
async def test_C8_usage_so_far_goes_on_and_never_falls(world: World, client: Format) -> None:
    model = model_of(client, "completions" if client == "completions" else "messages")
    world.first.push(broken(client, "cut"))
    world.second.push(rest())
    body = said(client, model, Prompt(system=None), True)
    headers = {"x-sluicegate-continuous-usage": "1"}
    response = await ask(
        world.gate.url, path_of(client, model, True), body, key=KEY, headers=headers, timeout_s=8.0
    )
    told = [int(count) for count in re.findall(rb'"cost_nano_usd": ?(\d+)', response.body)]
    assert len(told) >= len(TEXT), response.body
    assert told == sorted(told)
    assert told[-1] == COST
    assert world.row().cost_nano_usd == COST


async def test_G1_an_array_goes_on_too(world: World) -> None:
    model = model_of("gemini", "gemini")
    world.first.push(broken("gemini", "cut"))
    world.second.push(rest())
    body = said("gemini", model, Prompt(system=None), True)
    path = f"/v1beta/models/{model}:streamGenerateContent"
    response = await ask(world.gate.url, path, body, key=KEY, timeout_s=8.0)
    parsed = check_gemini_stream(response.body, array=True, model=model, cost_nano_usd=COST)
    assert parsed.text == WHOLE


async def test_X2_the_record_of_the_request_tells_both_attempts(world: World) -> None:
    world.first.push(broken("chat", "cut"))
    world.second.push(rest())
    response = await world.ask("chat", model_of("chat", "chat"))
    path = f"/v1/generations/{response.header('x-request-id')}"
    async with await Client.connect(world.gate.url) as client:
        client.send(f"GET {path} HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY}\r\n\r\n".encode())
        record = (await client.response(method="GET")).json()
    assert (record["attempts"], record["provider"]) == (2, "second-chat")


async def test_R2_an_answer_that_we_keep_is_kept_whole(world: World) -> None:
    world.first.push(broken("chat", "cut"))
    world.second.push(rest())
    response = await world.ask("responses", model_of("chat", "messages"), store=True)
    heard = heard_stream("responses", response, model_of("chat", "messages"))
    assert (heard.text, heard.cost_nano_usd) == (WHOLE, COST)


async def test_hidden_providers_stay_hidden(world: World) -> None:
    """The provider's own ids are on the wire of the first part only where they would be anyway."""
    world.first.push(broken("chat", "cut"))
    world.second.push(rest())
    response = await world.ask("chat", model_of("chat", "chat"))
    ids = set(re.findall(rb'"id": ?"([^"]+)"', response.body))
    assert len(ids) == 1
    assert response.header("x-sluicegate-provider") == "first-chat"
    assert b"second" not in response.body


async def test_a_provider_may_say_it_of_its_own_streams(world: World) -> None:
    world.first.push(broken("chat", "cut"))
    world.second.push(rest())
    assert heard_stream("chat", await world.ask("chat", "by-provider"), "by-provider").text == WHOLE


async def test_M3_the_second_gets_the_clients_headers_and_fields_that_nobody_knows(world: World) -> None:
    world.first.push(broken("messages", "cut"))
    world.second.push(rest())
    model = model_of("messages", "messages")
    body = said("messages", model, Prompt(system=None), True) | {"new_field": {"a": [1.5]}}
    headers = {"anthropic-beta": "new-2026-11-01", "anthropic-version": "2023-06-01"}
    response = await ask(world.gate.url, "/v1/messages", body, key=KEY, headers=headers)
    assert heard_stream("messages", response, model).text == WHOLE
    assert world.asked().header("anthropic-beta") == "new-2026-11-01"
    assert b'"new_field":{"a":[1.5]}' in world.asked().body.replace(b" ", b"")
    assert world.asked().json["max_tokens"] == LIMIT - SAID
