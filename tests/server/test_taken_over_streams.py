"""Streams that break off and that another provider goes on with (`stream.continue_midstream`): one answer on the wire,
in every client format, and one truth for its money. Contract E2, E3, B1; cases B060 and B133.

The first provider says the beginning of a sentence and fails; the second, asked with that beginning, says the rest.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio

from sluicegate.billing.ledger import UsageRow
from sluicegate.messages import Format
from sluicegate.simulator import Answer, Received, Simulator, ToolCall
from sluicegate.simulator.answer import of_tokens
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.simulator.script import AnyStep, Close, Error, Play, Reset, Script, Stall, Wait
from tests.conftest import KEY, PRICE, make_config
from tests.fakes import Client, Response, ask, request_bytes
from tests.grammar.gemini import check_gemini_stream
from tests.grid.asked import was_asked
from tests.grid.scenes import FORMATS, LEVEL, QUESTION, TEXT, Prompt
from tests.grid.sdks import Sdks
from tests.grid.speaking import Heard, heard_stream, path_of, said
from tests.inprocess import InProcessGate, in_process_gate

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAID = 4
"""Pieces of the text that the first provider says."""
INPUT = 40
INPUT_NANO, OUTPUT_NANO = 1_000, 2_000
COST = INPUT * INPUT_NANO + len(TEXT) * OUTPUT_NANO
"""Of the whole answer, whoever says which part of it."""
OTHER: dict[Format, Format] = {
    "chat": "messages",
    "completions": "chat",
    "responses": "gemini",
    "messages": "chat",
    "gemini": "messages",
}
"""A first provider that speaks another format than the client."""
FAULTS: dict[str, tuple[AnyStep, ...]] = {
    "cut": (Reset(),),
    "closed": (Close(),),
    "ended": (),
    "error": (Error(status=500),),
    "stall": (Stall(),),
}
WHOLE = "".join(TEXT)
CAN_GO_ON: tuple[Format, ...] = ("chat", "completions", "messages", "gemini")


def untold(client: Format, first: Format, second: Format) -> bool:
    """Whether the second provider could be asked only in a weaker way than the first, which cannot be told any more."""
    return (client == "completions") != (second == "completions") and first == client


def events_until(format: Format, answer: Answer, pieces: int) -> int:
    """Return how many events of a provider's stream hold so many pieces of content."""
    weight = 0
    for place, piece in enumerate(DIALECTS[format].stream(answer, Ask("m"))):
        weight += piece.weight
        if weight >= pieces:
            return place + 1
    raise AssertionError("the answer is too short")


def broken(format: Format, fault: str, answer: Answer | None = None, pieces: int = SAID) -> Script:
    """Return the first provider's part."""
    answer = answer or Answer(text=TEXT, input_tokens=INPUT)
    until = events_until(format, answer, pieces)
    return Script(answer=answer, steps=(Play(stop=until), Wait(s=0.02), *FAULTS[fault]))


def rest(text: tuple[str, ...] = TEXT[SAID:], **fields: Any) -> Script:
    """Return the second provider's part: its prompt is what the client said, and the beginning of the answer."""
    return Script(answer=Answer(text=text, **{"input_tokens": INPUT + SAID, **fields}))


class World(NamedTuple):
    """A gate whose models go to `first`, and to `second` where that fails."""

    gate: InProcessGate
    first: Simulator
    second: Simulator

    async def ask(self, client: Format, model: str, **fields: Any) -> Response:
        body = said(client, model, Prompt(system=None), True) | fields
        return await ask(self.gate.url, path_of(client, model, True), body, key=KEY, timeout_s=8.0)

    async def row(self) -> UsageRow:
        """Return the newest row, once the last request is settled."""
        await asyncio.sleep(0)
        return self.gate.rows()[-1]

    def costs(self) -> list[tuple[int, str, str]]:
        """Return what the operator bears of the last request."""
        row = self.gate.rows()[-1]
        return [
            (cost.attempt, cost.provider, cost.reason)
            for cost in self.gate.provider_costs()
            if cost.request_id == row.request_id
        ]

    def asked(self) -> Received:
        """Return what the second provider was asked last."""
        return self.second.requests[-1]


def model_of(first: str, second: str) -> str:
    """Return the model that goes to a provider of each format."""
    return f"{first}-{second}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Simulator() as first, Simulator() as second:
        settings = configuration(first, second)
        async with in_process_gate(tmp_path_factory.mktemp("continued"), settings).running() as gate:
            yield World(gate, first, second)


@pytest.fixture(autouse=True)
def _unasked(world: World) -> None:
    world.first.clear()
    world.second.clear()


POOR = {client: f"sg-test-key-poor-{client}-0123" for client in ("chat", "responses")}
POOR_NANO = 8_000_000
"""What its account has: 4,000 output tokens."""
STYLES = ("turn", "prefix", "final_message", "none")


def configuration(first: Simulator, second: Simulator) -> dict[str, Any]:
    """Return a configuration with a model for every pair of providers."""

    def provider(simulator: Simulator, format: str, **more: Any) -> dict[str, Any]:
        return {"base_url": simulator.base_url, "speaks": [format], "auth": "none", **more}

    providers: dict[str, Any] = {}
    for format in FORMATS:
        providers[f"first-{format}"] = provider(first, format, stream={"idle_timeout": "250ms"})
        providers[f"second-{format}"] = provider(second, format, stream={"first_token_timeout": "1s"})
    providers["second-chat"]["capabilities"] = {"continuation": "turn"}
    for style in STYLES:
        abilities = {} if style == "none" else {"continuation": style}
        providers[f"second-{style}"] = provider(second, "chat", capabilities=abilities)
    providers["gone"] = provider(first, "chat", capabilities={"continuation": "turn"})
    providers["gone"]["base_url"] = "http://127.0.0.1:1/v1"

    def routes(*names: str) -> list[dict[str, Any]]:
        return [{"provider": name, "model": "up", "priority": place} for place, name in enumerate(names)]

    models: dict[str, Any] = {
        model_of(one, other): {"routes": routes(f"first-{one}", f"second-{other}"), "price": PRICE}
        for one in FORMATS
        for other in (*FORMATS, *STYLES)
    }
    models["off"] = {
        "routes": routes("first-chat", "second-chat"),
        "price": PRICE,
        "stream": {"continue_midstream": False},
    }
    models["past-one"] = {"routes": routes("first-chat", "gone", "second-chat"), "price": PRICE}
    providers["second-limited"] = provider(second, "messages")
    models["limited"] = {"routes": routes("first-chat", "second-limited"), "price": PRICE}
    models["limited"]["routes"][1]["rpm"] = 1
    models["alone"] = {"routes": routes("first-chat"), "price": PRICE}
    return make_config(
        first,
        providers=providers,
        models=models,
        stream={"continue_midstream": True, "idle_timeout": "3s"},
        health={"failures": 1000, "min_requests": 1_000_000},
        retry={"budget_percent": 100},
        keys=[
            {"name": "test", "key": KEY, "balance_usd": 5},
            *(
                {"name": name, "key": key, "balance_usd": str(POOR_NANO / 10**9)}
                for name, key in POOR.items()
            ),
        ],
    )


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
    row = await world.row()
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


# ---- what is never gone on with -------------------------------------------------------------------------------------

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


def check_broken(world: World, client: Format, model: str, response: Response) -> Heard:
    """Check that a stream ended with one error, and that the second provider was not asked."""
    assert not world.second.requests
    assert response.header("x-sluicegate-attempts") == "1"
    return heard_stream(client, response, model, fails=True)


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
        row = await world.row()
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
    row = await world.row()
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


# ---- what becomes of the second --------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", FORMATS)
async def test_B133_a_refusal_to_go_on_hides_nothing(world: World, client: Format) -> None:
    model = model_of("messages", "messages")
    world.first.push(broken("messages", "error"))
    world.second.push(Script(status=400, message="This model does not support assistant message prefill."))
    heard = heard_stream(client, await world.ask(client, model), model, fails=True)
    assert heard.error is not None
    assert "prefill" not in str(heard.error)
    row = await world.row()
    assert (row.status, row.attempts, row.provider) == ("upstream_error", 2, "first-messages")
    assert (row.usage.input_tokens, row.usage.output_tokens) == (INPUT, SAID)
    assert row.cost_nano_usd == INPUT * INPUT_NANO + SAID * OUTPUT_NANO
    assert world.costs() == []


async def test_who_cannot_be_reached_is_passed_over(world: World) -> None:
    world.first.push(broken("chat", "cut"))
    world.second.push(rest())
    heard = heard_stream("chat", await world.ask("chat", "past-one"), "past-one")
    row = await world.row()
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
    row = await world.row()
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
    row = await world.row()
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


# ---- the seam -------------------------------------------------------------------------------------------------------


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
        assert {
            name: body[name] for name in body if "_m" in name and name != "stream_options"
        } | flags == flags
        assert {name: body.get(name) for name in flags} == flags


async def test_a_beginning_that_is_repeated_is_told_once(world: World) -> None:
    repeated = "".join(TEXT[:SAID])
    assert (
        await go_on(world, "prefix", TEXT[:SAID], (repeated[:7], repeated[7:], *TEXT[SAID:]))
    ).text == WHOLE
    assert (await go_on(world, "turn", TEXT[:SAID], (repeated + TEXT[SAID], *TEXT[SAID + 1 :]))).text == WHOLE
    assert (await go_on(world, "turn", ("ha",), ("ha", "!"))).text == "haha!"


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


# ---- what else goes on ----------------------------------------------------------------------------------------------


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
    assert (await world.row()).cost_nano_usd == COST


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


@pytest.mark.parametrize("client", ["chat", "completions", "responses", "messages", "gemini"])
async def test_T3_official_sdks_read_one_answer(world: World, client: Format) -> None:
    async with Sdks.at(world.gate.url) as sdks:
        for way in ("raw", "helper"):
            if way == "helper" and client == "completions":
                continue
            second = "completions" if client == "completions" else "messages"
            world.first.push(broken(client, "cut"))
            world.second.push(rest())
            heard = await sdks.ask(client, model_of(client, second), Prompt(system=None), way)  # type: ignore[arg-type]
            assert (heard.text, heard.finish) == (WHOLE, "stop")
            assert heard.usage is not None
            assert (heard.usage.input_tokens, heard.usage.output_tokens) == (INPUT, len(TEXT))
