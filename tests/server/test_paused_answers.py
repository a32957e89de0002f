"""Answers that their provider pauses (`pause_turn`, `CONTINUATION`), for clients of other formats: resumed,
and told as one: one id, one end, one row, one charge.

Translation matrix, sections 22 and 24; wire formats pages `gemini.md` and `usage.md`; contract E2, E3, X3, B3.
"""

import json
import logging
from typing import Any

import pytest

from sluicegate.messages import Format
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.answer import Answer, ToolCall
from sluicegate.simulator.script import Play, Reset, Stall
from tests.conftest import KEY, PRICE, Connect, StartInProcess, make_config
from tests.fakes import ask, request_bytes
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import Body, Heard, heard_plain, heard_stream, path_of, said
from tests.inprocess import WORKER, InProcessGate

WORDS = tuple(f" w{place}" for place in range(10))
PAUSED: list[Format] = ["messages", "gemini"]
"""Formats whose providers pause answers."""
SEARCH: dict[str, Body] = {
    "chat": {"web_search_options": {}},
    "responses": {"tools": [{"type": "web_search"}]},
    "messages": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    "gemini": {"tools": [{"googleSearch": {}}]},
}
PAIRS = [
    (client, provider)
    for client in FORMATS
    for provider in PAUSED
    if client != provider
    and (client, provider) != ("completions", "messages")  # which cannot ask for a search
]
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])


async def start(
    start: StartInProcess, simulator: Simulator, format: Format, *, config: Any = (), **model: Any
) -> InProcessGate:
    provider = {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
    routes = [{"provider": "sim", "model": "up"}]
    return await start(
        make_config(
            simulator,
            providers={"sim": provider},
            models={"m": {"routes": routes, "price": PRICE, **model}},
            **{"retry": {"max_attempts": 2, "after_send": 1}, **dict(config)},
        )
    )


def asking(client: str, *, stream: bool, **fields: Any) -> Body:
    return said(client, "m", Prompt(), stream) | SEARCH.get(client, {}) | fields


async def hear(gate: InProcessGate, client: str, *, stream: bool, **fields: Any) -> Heard:
    response = await ask(
        gate.url, path_of(client, "m", stream), asking(client, stream=stream, **fields), key=KEY
    )
    assert response.status == 200, response.body
    if not stream:
        row = gate.rows()[-1]
        assert response.header("x-sluicegate-cost-nano-usd") == str(row.cost_nano_usd)
    assert "of the answer" not in (response.header("x-sluicegate-dropped") or "")
    return (heard_stream if stream else heard_plain)(client, response, "m")


@STREAMED
@pytest.mark.parametrize(("client", "provider"), PAIRS)
async def test_s24_it_is_gone_on_with_and_told_as_one(
    start_inprocess: StartInProcess, simulator: Simulator, client: str, provider: Format, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, provider)
    answer = Answer(
        reasoning=("Hm", " hm"),
        signature="U0lH",
        text=WORDS,
        pause_after=4,
        input_tokens=40,
        cache_read_tokens=30,
    )
    simulator.push(Script(answer=answer), times=None)
    heard = await hear(gate, client, stream=stream)
    assert (heard.text, heard.finish) == ("".join(WORDS), "stop")
    if client != "completions":
        assert heard.reasoning == "Hm hm"
    assert len(simulator.requests) == 3
    bodies = [request.json for request in simulator.requests]
    if provider == "messages":
        _check_turns(bodies)
        read = 40 + 44 + 48
    else:
        tokens = [body.pop("continuationToken", None) for body in bodies]
        assert tokens[0] is None
        assert None not in tokens[1:]
        assert bodies == [bodies[0]] * 3
        read = 120
    (row,) = await gate.wait_for_rows(1)
    assert heard.usage is not None
    assert (row.usage.input_tokens, row.usage.cache_read_tokens, row.usage.output_tokens) == (read, 90, 12)
    assert (heard.usage.input_tokens, heard.usage.output_tokens) == (read, 12)
    assert (row.status, row.usage_source, row.attempts, row.repaired) == ("ok", "reported", 1, False)
    cost = (read - 90) * 1000 + 90 * 100 + 12 * 2000
    assert heard.cost_nano_usd == row.cost_nano_usd == row.list_cost_nano_usd == cost


def _check_turns(bodies: list[Body]) -> None:
    """What a Messages provider said comes back as it said it, behind the same request."""
    first = bodies[0]
    for body, told in zip(bodies[1:], (WORDS[:4], WORDS[:8]), strict=True):
        *before, turn = body["messages"]
        assert before == first["messages"]
        assert turn["role"] == "assistant"
        thinking, *texts = turn["content"]
        assert thinking == {"type": "thinking", "thinking": "Hm hm", "signature": "U0lH"}
        assert "".join(block["text"] for block in texts) == "".join(told)
        changed = {"messages", "max_tokens"}
        assert {key: body[key] for key in body.keys() - changed} == {
            key: first[key] for key in first.keys() - changed
        }
    assert [body["max_tokens"] for body in bodies] == [bodies[0]["max_tokens"] - used for used in (0, 6, 10)]


PAUSED_ANSWER = Answer(text=(" a", " b", " c"), finish="paused", token="dG9rZW4=", input_tokens=40)
CALL: Answer = Answer(text=(" d", " e"), input_tokens=50)
CHAT = "chat"
ONE_CALL = 40 * 1000 + 3 * 2000


@STREAMED
@pytest.mark.parametrize("provider", PAUSED)
async def test_s24_beyond_the_limit_the_pause_is_told_and_named(
    start_inprocess: StartInProcess,
    simulator: Simulator,
    caplog: pytest.LogCaptureFixture,
    provider: Format,
    stream: bool,
) -> None:
    gate = await start(start_inprocess, simulator, provider, max_continuations=1)
    simulator.push(Script(answer=Answer(text=WORDS, pause_after=4)), times=None)
    with caplog.at_level(logging.INFO, "sluicegate"):
        response = await ask(gate.url, path_of(CHAT, "m", stream), asking(CHAT, stream=stream), key=KEY)
    heard = (heard_stream if stream else heard_plain)(CHAT, response, "m")
    assert heard.text == "".join(WORDS[:8])
    assert heard.finish == {"messages": "stop", "gemini": "length"}[provider]
    assert len(simulator.requests) == 2
    word = {"messages": "pause_turn", "gemini": "CONTINUATION"}[provider]
    if stream:
        assert [line for line in caplog.messages if "answer_untold" in line and word in line]
    else:
        assert f"{word};of the answer" in (response.header("x-sluicegate-dropped") or "")


@STREAMED
@pytest.mark.parametrize("provider", PAUSED)
async def test_s24_zero_goes_on_with_nothing(
    start_inprocess: StartInProcess, simulator: Simulator, provider: Format, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, provider, max_continuations=0)
    simulator.push(Script(answer=PAUSED_ANSWER))
    response = await ask(gate.url, path_of(CHAT, "m", stream), asking(CHAT, stream=stream), key=KEY)
    assert (heard_stream if stream else heard_plain)(CHAT, response, "m").text == " a b c"
    assert len(simulator.requests) == 1


@STREAMED
async def test_a_token_that_came_before_is_not_sent_again(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, "gemini")
    simulator.push(Script(answer=PAUSED_ANSWER), times=None)
    response = await ask(gate.url, path_of(CHAT, "m", stream), asking(CHAT, stream=stream), key=KEY)
    assert (heard_stream if stream else heard_plain)(CHAT, response, "m").text == " a b c" * 2
    assert len(simulator.requests) == 2


@STREAMED
async def test_calls_of_a_later_call_are_numbered_on_and_have_ids_of_their_own(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, "gemini")
    look = ToolCall(name="look", arguments=('{"at":1}',))
    simulator.push(Script(answer=Answer(tool_calls=(look, look), finish="paused", token="dG9rZW4=")))
    simulator.push(Script(answer=Answer(tool_calls=(look,), finish="tool_calls")))
    heard = await hear(gate, CHAT, stream=stream)
    assert heard.finish == "tool_calls"
    assert [(call.name, call.arguments.replace(" ", "")) for call in heard.calls] == [
        ("look", '{"at":1}')
    ] * 3
    assert len({call.id for call in heard.calls}) == 3


@pytest.mark.parametrize("client", ["chat", "responses", "messages", "gemini"])
async def test_e2_a_later_call_that_fails_is_a_failure_in_mid_stream(
    start_inprocess: StartInProcess, simulator: Simulator, client: str
) -> None:
    provider: Format = "messages" if client == "gemini" else "gemini"
    gate = await start(start_inprocess, simulator, provider)
    simulator.push(Script(answer=PAUSED_ANSWER))
    simulator.push(Script(status=503))
    response = await ask(gate.url, path_of(client, "m", True), asking(client, stream=True), key=KEY)
    heard = heard_stream(client, response, "m", fails=True)
    assert heard.text == " a b c"
    assert heard.error is not None
    assert len(simulator.requests) == 2
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage_source, row.cost_nano_usd) == ("upstream_error", "reported", ONE_CALL)


@pytest.mark.parametrize("provider", PAUSED)
async def test_e3_a_later_call_that_is_cut_is_billed_over_all_of_them(
    start_inprocess: StartInProcess, simulator: Simulator, provider: Format
) -> None:
    gate = await start(start_inprocess, simulator, provider)
    simulator.push(Script(answer=PAUSED_ANSWER))
    simulator.push(Script(answer=CALL, steps=(Play(before="finish"), Reset())))
    response = await ask(gate.url, path_of(CHAT, "m", True), asking(CHAT, stream=True), key=KEY)
    assert heard_stream(CHAT, response, "m", fails=True).text == " a b c d e"
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage.input_tokens, row.usage.output_tokens) == ("upstream_error", 90, 5)
    assert row.cost_nano_usd == 90 * 1000 + 5 * 2000


@pytest.mark.parametrize("policy", ["produced", "none", "drain"])
@pytest.mark.parametrize("provider", PAUSED)
async def test_b3_a_client_that_leaves_in_a_later_call_pays_for_all_of_them(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect, provider: Format, policy: str
) -> None:
    gate = await start(
        start_inprocess, simulator, provider, config={"billing": {"on_disconnect": policy, "drain_cap": "5s"}}
    )
    simulator.push(Script(answer=PAUSED_ANSWER))
    ends = (Stall(),) if policy != "drain" else (Play(start=3),)
    simulator.push(Script(answer=CALL, interval_s=0.2, steps=(Play(stop=5), *ends)))
    connection = await client(gate.url)
    connection.send(request_bytes(path_of(CHAT, "m", True), asking(CHAT, stream=True), key=KEY))
    await connection.until_bytes(b" d")
    await connection.close()
    (row,) = await gate.wait_for_rows(1)
    assert row.status == "client_closed"
    if policy == "none":
        assert row.cost_nano_usd == 0
        return
    assert row.usage.input_tokens == 90
    assert row.usage.output_tokens in ((5,) if policy == "drain" else (4, 5))
    assert row.cost_nano_usd == 90 * 1000 + row.usage.output_tokens * 2000


async def test_what_came_leaves_before_the_next_call_answers(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start(start_inprocess, simulator, "gemini")
    simulator.push(Script(answer=PAUSED_ANSWER, interval_s=0.0))
    simulator.push(Script(answer=CALL, steps=(Stall(),)))
    connection = await client(gate.url)
    connection.send(request_bytes(path_of(CHAT, "m", True), asking(CHAT, stream=True), key=KEY))
    await connection.until_bytes(b" c")
    await simulator.wait_for(lambda: len(simulator.requests) == 2)
    assert b'finish_reason":"' not in connection.received


async def test_a_plain_answer_whose_later_call_fails_is_tried_anew(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "gemini")
    simulator.push(Script(answer=PAUSED_ANSWER))
    simulator.push(Script(status=503))
    simulator.push(Script(answer=CALL))
    heard = await hear(gate, CHAT, stream=False)
    assert heard.text == " d e"
    (row,) = await gate.wait_for_rows(1)
    assert (row.attempts, row.cost_nano_usd) == (2, 50 * 1000 + 2 * 2000)


async def test_x3_a_stream_whose_credit_does_not_reach_for_the_next_call_ends(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate, credit = await _poor(start_inprocess, simulator)
    response = await ask(gate.url, path_of(CHAT, "m", True), _long(stream=True), key="sg-poor-key-0123456789")
    heard = heard_stream(CHAT, response, "m", fails=True)
    assert heard.text == " a b c"
    assert "credit" in str(heard.error)
    assert len(simulator.requests) == 1
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("credit_spent", ONE_CALL)
    assert gate.book.free("poor") + gate.book.leased_to("poor", WORKER) == credit - ONE_CALL


async def test_x3_a_plain_answer_whose_credit_does_not_reach_for_the_next_call_is_told_as_far_as_it_came(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate, credit = await _poor(start_inprocess, simulator)
    response = await ask(
        gate.url, path_of(CHAT, "m", False), _long(stream=False), key="sg-poor-key-0123456789"
    )
    assert heard_plain(CHAT, response, "m").text == " a b c"
    assert "CONTINUATION;of the answer" in (response.header("x-sluicegate-dropped") or "")
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("ok", ONE_CALL)
    assert gate.book.free("poor") + gate.book.leased_to("poor", WORKER) == credit - ONE_CALL


def _long(*, stream: bool) -> Body:
    """A request of which credit pays one reading: a million tokens in."""
    return asking(CHAT, stream=stream, messages=[{"role": "user", "content": "a" * 3_000_000}], max_tokens=10)


async def _poor(started: StartInProcess, simulator: Simulator) -> tuple[InProcessGate, int]:
    keys = [{"name": "poor", "key": "sg-poor-key-0123456789", "balance_usd": 1.5}]
    gate = await start(started, simulator, "gemini", config={"keys": keys})
    simulator.push(Script(answer=PAUSED_ANSWER))
    simulator.push(Script(answer=CALL))
    return gate, 1_500_000_000


async def test_the_time_of_a_plain_answer_is_that_of_all_its_calls(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "gemini", stream={"response_timeout": "1s"}, config={
        "retry": {"max_attempts": 1}
    })  # fmt: skip
    simulator.push(Script(answer=PAUSED_ANSWER, first_token_s=0.7))
    simulator.push(Script(answer=CALL, first_token_s=0.7))
    response = await ask(gate.url, path_of(CHAT, "m", False), asking(CHAT, stream=False), key=KEY)
    assert response.status == 504


async def test_e4_silence_of_a_later_call_is_silence_in_mid_stream(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "gemini", stream={"idle_timeout": "300ms"})
    simulator.push(Script(answer=PAUSED_ANSWER))
    simulator.push(Script(answer=CALL, steps=(Stall(),)))
    response = await ask(gate.url, path_of(CHAT, "m", True), asking(CHAT, stream=True), key=KEY)
    assert heard_stream(CHAT, response, "m", fails=True).text == " a b c"
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.error) == ("upstream_error", "timeout")


async def test_c8_usage_so_far_never_falls_between_calls(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "messages")
    simulator.push(Script(answer=Answer(text=WORDS, pause_after=4, input_tokens=40)), times=None)
    body = asking("gemini", stream=True)
    headers = {"x-sluicegate-continuous-usage": "1"}
    response = await ask(gate.url, path_of("gemini", "m", True), body, key=KEY, headers=headers)
    heard = heard_stream("gemini", response, "m")
    events = [json.loads(line[6:]) for line in response.body.splitlines() if line.startswith(b"data: ")]
    costs = [event["usageMetadata"]["cost_nano_usd"] for event in events]
    assert costs == sorted(costs)
    assert heard.text == "".join(WORDS)
    (row,) = await gate.wait_for_rows(1)
    assert costs[-1] == heard.cost_nano_usd == row.cost_nano_usd == (40 + 44 + 48) * 1000 + 10 * 2000


async def test_a_client_of_the_providers_own_format_is_told_what_it_says(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "messages")
    simulator.push(Script(answer=PAUSED_ANSWER))
    response = await ask(gate.url, path_of("messages", "m", False), asking("messages", stream=False), key=KEY)
    assert response.json()["stop_reason"] == "pause_turn"
    assert len(simulator.requests) == 1


async def test_a_kept_request_counts_as_in_flight(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start(start_inprocess, simulator, "gemini")
    simulator.push(Script(answer=CALL, steps=(Play(stop=1), Stall())))
    connection = await client(gate.url)
    body = asking(CHAT, stream=True, messages=[{"role": "user", "content": "a" * 50_000}])
    connection.send(request_bytes(path_of(CHAT, "m", True), body, key=KEY))
    await connection.until_bytes(b" d")
    inbound = gate.gateway._inbound
    assert 50_000 < inbound.inflight_bytes < 51_000
    await connection.close()
    await gate.wait_for_rows(1)
    assert inbound.inflight_bytes == 0
