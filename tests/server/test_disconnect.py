"""The client leaves, at every phase and under every policy: the provider's request ends within a second, and one
row says what was charged. Contract B3; cases B016, B048, B065, B137, B138."""

import asyncio
import time
from typing import Any, Literal

import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer, ToolCall
from sluicegate.simulator.script import Head, Play, Script, Stall, Wait
from tests.conftest import KEY, Connect, StartInProcess, make_config
from tests.fakes import Client, ask, chat, request_bytes
from tests.inprocess import WORKER, InProcessGate

PATH = "/v1/chat/completions"
WORDS = tuple(
    f" {word}" for word in ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
)
TEXT = Answer(text=WORDS, input_tokens=50)
REASONING = Answer(reasoning=WORDS, text=WORDS, input_tokens=50)
CALL = Answer(tool_calls=(ToolCall(name="f", arguments=('{"a":', "1", "}")),), input_tokens=50)
INPUT_NANO, OUTPUT_NANO = 1_000, 2_000

PHASES: dict[str, Script] = {
    "before the head": Script(answer=TEXT, steps=(Stall(),)),
    "after the head": Script(answer=TEXT, steps=(Head(), Stall())),
    "before content": Script(answer=TEXT, steps=(Play(before="content"), Stall())),
    "in reasoning": Script(answer=REASONING, steps=(Play(stop=5), Stall())),
    "in text": Script(answer=TEXT, steps=(Play(stop=5), Stall())),
    "in tool arguments": Script(answer=CALL, steps=(Play(before="finish"), Stall())),
    "after the finish": Script(answer=TEXT, steps=(Play(before="usage"), Stall())),
}
OUTPUT_SEEN = {
    "before the head": 0,
    "after the head": 0,
    "before content": 0,
    "in reasoning": 4,
    "in text": 4,
    "after the finish": 10,
}
"""Tokens that the client can have got: one a word, behind the one event that starts the answer."""


async def leave(connection: Client, how: str) -> None:
    if how == "reset":
        connection.reset()
    elif how == "half-close":
        connection.half_close()
    else:
        await connection.close()


async def until_begun(connection: Client, simulator: Simulator, phase: str) -> None:
    """Wait until the answer stands where the phase says."""
    await simulator.wait_for(
        lambda: len(simulator.requests) > 0 and simulator.requests[-1].body_at is not None
    )
    if phase in ("in reasoning", "in text", "after the finish"):
        wanted = {
            "in reasoning": b" four",
            "in text": b" four",
            "after the finish": b'"finish_reason":"stop"',
        }[phase]
        await connection.until_bytes(wanted)
    elif phase == "in tool arguments":
        await connection.until_bytes(b'"arguments":"}"')
    else:
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
@pytest.mark.parametrize("phase", PHASES)
async def test_b016_b048_b137_a_stream_is_cut_and_billed_for_what_was_produced(
    gate_inprocess: InProcessGate, simulator: Simulator, client: Connect, phase: str, how: str
) -> None:
    simulator.push(PHASES[phase])
    connection = await client(gate_inprocess.url)
    body = chat("m", "x" * 4_000)
    request = request_bytes(PATH, body, key=KEY)
    connection.send(request)
    await until_begun(connection, simulator, phase)
    left_at = time.monotonic()
    await leave(connection, how)
    await simulator.wait_for(lambda: simulator.requests[-1].peer_left_at is not None, timeout_s=2.0)
    peer_left_at = simulator.requests[-1].peer_left_at
    assert peer_left_at is not None
    assert peer_left_at - left_at < 1.0
    (row,) = await gate_inprocess.wait_for_rows(1)
    assert row.status == ("ok" if phase == "after the finish" else "client_closed")
    body_bytes = len(request) - request.index(b"\r\n\r\n") - 4
    if phase == "before the head":
        assert (row.cost_nano_usd, row.usage_source) == (0, "none")
        return
    assert row.usage_source == "counted"
    assert row.usage.input_tokens == round(body_bytes / 4)
    if phase in OUTPUT_SEEN:
        assert row.usage.output_tokens == OUTPUT_SEEN[phase]
    else:
        assert row.usage.output_tokens is not None
        assert 3 <= row.usage.output_tokens <= 12
    assert row.usage.output_tokens is not None
    assert row.cost_nano_usd == row.usage.input_tokens * INPUT_NANO + row.usage.output_tokens * OUTPUT_NANO


@pytest.mark.parametrize("phase", PHASES)
async def test_b016_policy_none_bills_only_a_finished_stream(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect, phase: str
) -> None:
    gate = await start_inprocess(make_config(simulator, stream={"profile": "openrelay"}))
    simulator.push(PHASES[phase])
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m"), key=KEY))
    await until_begun(connection, simulator, phase)
    await connection.close()
    (row,) = await gate.wait_for_rows(1)
    assert (row.cost_nano_usd > 0) == (phase == "after the finish")


async def test_policy_drain_bills_what_the_provider_counts(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_inprocess(make_config(simulator, billing={"on_disconnect": "drain"}))
    simulator.push(Script(answer=TEXT, steps=(Play(stop=4), Wait(s=0.3), Play(start=4))))
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m"), key=KEY))
    await connection.until_bytes(b" three")
    await connection.close()
    (row,) = await gate.wait_for_rows(1)
    assert simulator.requests[-1].ended == "complete"
    assert row.usage_source == "reported"
    assert (row.usage.input_tokens, row.usage.output_tokens) == (50, 10)
    assert row.cost_nano_usd == 50 * INPUT_NANO + 10 * OUTPUT_NANO


async def test_policy_drain_ends_at_its_cap(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_inprocess(
        make_config(simulator, billing={"on_disconnect": "drain", "drain_cap": "1s"})
    )
    simulator.push(PHASES["in text"])
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m"), key=KEY))
    await connection.until_bytes(b" four")
    await connection.close()
    (row,) = await gate.wait_for_rows(1, timeout_s=4.0)
    await simulator.wait_for(lambda: simulator.requests[-1].peer_left_at is not None)
    assert row.usage_source == "counted"
    assert row.usage.output_tokens == 4


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_plain_answer_that_nobody_waits_for_costs_nothing(
    gate_inprocess: InProcessGate, simulator: Simulator, client: Connect, how: Literal["close", "reset"]
) -> None:
    simulator.push(Script(answer=TEXT, first_token_s=10.0))
    connection = await client(gate_inprocess.url)
    connection.send(request_bytes(PATH, chat("m", stream=False), key=KEY))
    await simulator.wait_for(lambda: len(simulator.requests) > 0)
    await leave(connection, how)
    await simulator.wait_for(lambda: simulator.requests[-1].peer_left_at is not None, timeout_s=2.0)
    (row,) = await gate_inprocess.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd, row.usage_source) == ("client_closed", 0, "none")


async def test_b065_slots_and_credit_come_back(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    keys: list[dict[str, Any]] = [{"name": "one", "key": KEY, "balance_usd": 5, "max_streams": 1}]
    gate = await start_inprocess(make_config(simulator, keys=keys))
    phases = list(PHASES)
    for turn in range(len(phases) * 2):
        simulator.push(PHASES[phases[turn % len(phases)]])
        before = len(simulator.requests)
        connection = await client(gate.url)
        connection.send(request_bytes(PATH, chat("m"), key=KEY))
        await simulator.wait_for(lambda seen=before: len(simulator.requests) > seen)  # type: ignore[misc]
        await connection.close()
        await gate.wait_for_rows(turn + 1)
        await asyncio.sleep(0.01)
    response = await ask(gate.url, PATH, chat("m", stream=False), key=KEY)
    assert response.status == 200
    rows = await gate.wait_for_rows(len(phases) * 2 + 1)
    spent = sum(row.cost_nano_usd for row in rows)
    assert gate.book.free("one") + gate.book.leased_to("one", WORKER) == 5_000_000_000 - spent


async def test_a_client_that_leaves_while_we_connect(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    """The address never answers: a documentation address behind a proxy that accepts and stays silent."""
    simulator.push(Script(when="accept", steps=(Stall(),)), times=None)
    provider = {"base_url": "http://provider.test:81/v1", "proxy": simulator.url, "auth": "none"}
    models = {"m": {"routes": [{"provider": "far", "model": "m"}], "price": {"input": 1, "output": 2}}}
    gate = await start_inprocess(make_config(simulator, providers={"far": provider}, models=models))
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m"), key=KEY))
    await asyncio.sleep(0.1)
    await connection.close()
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("client_closed", 0)
