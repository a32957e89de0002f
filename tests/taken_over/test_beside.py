"""Streams that break off behind a hedge, and a next provider that is late: it is waited for, or the client leaves."""

import asyncio
import contextlib
import socket
import sqlite3
import subprocess
import sys

import msgspec
import pytest

from sluicegate.routing.hedge import MIN_MEASURED
from sluicegate.simulator.script import Script, Stall
from tests.conftest import KEY, PRICE, MakeSimulator, StartGate, StartInProcess, make_config
from tests.fakes import Client, ask, request_bytes
from tests.grammar.chat import check_chat_stream
from tests.grid.scenes import Prompt
from tests.grid.speaking import heard_stream, said
from tests.taken_over.world import COST, WHOLE, broken, configuration, model_of, rest

CHAT = "/v1/chat/completions"
BODY = said("chat", "m", Prompt(system=None), True)


async def test_the_winner_of_two_may_be_gone_on_with(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator
) -> None:
    slow, winner, last = [await make_simulator() for _ in range(3)]
    named = {"slow": (slow, "chat"), "winner": (winner, "chat"), "last": (last, "messages")}
    config = make_config(
        slow,
        providers={
            name: {"base_url": one.base_url, "speaks": [format], "auth": "none"}
            for name, (one, format) in named.items()
        },
        models={
            "m": {
                "routes": [
                    {"provider": name, "model": "up", "priority": place} for place, name in enumerate(named)
                ],
                "price": PRICE,
                "hedge_percentile": 95,
            }
        },
        stream={"continue_midstream": True},
    )
    gate = await start_inprocess(config)
    for _ in range(MIN_MEASURED):
        assert (await ask(gate.url, CHAT, BODY, key=KEY)).status == 200
    standing = gate.gateway._bench.deployments.get("slow", "up")
    assert standing.first_tokens is not None
    standing.first_tokens.extend([0.1] * MIN_MEASURED)
    slow.push(Script(steps=(Stall(),)))
    winner.push(broken("chat", "cut"))
    last.push(rest())
    heard = heard_stream("chat", await ask(gate.url, CHAT, BODY, key=KEY), "m")
    assert (heard.text, heard.cost_nano_usd) == (WHOLE, COST)
    row = gate.rows()[-1]
    assert (row.status, row.attempts, row.provider) == ("ok", 3, "last")
    costs = [(cost.attempt, cost.provider, cost.reason) for cost in gate.provider_costs()]
    assert sorted(costs) == [(1, "slow", "hedged"), (2, "winner", "continued")]


@pytest.mark.parametrize("leaves", ["while the second is dialled", "before"])
async def test_who_leaves_before_the_second_says_anything_pays_for_the_first_part(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator, leaves: str
) -> None:
    first = await make_simulator()
    silent = socket.create_server(("127.0.0.1", 0))  # nobody accepts
    port = silent.getsockname()[1]
    config = make_config(
        first,
        providers={
            "first": {"base_url": first.base_url, "speaks": ["chat"], "auth": "none"},
            "second": {
                "base_url": "https://provider.test/v1",
                "proxy": f"http://127.0.0.1:{port}",
                "speaks": ["messages"],
                "auth": "none",
            },
        },
        models={
            "m": {
                "routes": [
                    {"provider": "first", "model": "up"},
                    {"provider": "second", "model": "up", "priority": 1},
                ],
                "price": PRICE,
            }
        },
        stream={"continue_midstream": True, "connect_timeout": "3s"},
    )
    gate = await start_inprocess(config)
    first.push(broken("chat", "cut"))
    async with await Client.connect(gate.url) as client:
        client.send(request_bytes(CHAT, BODY, key=KEY))
        await client.until_bytes(b" own")
        if leaves != "before":
            await asyncio.sleep(0.2)
        await client.close()
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.provider, row.usage.output_tokens) == ("client_closed", "first", 4)
    assert row.attempts == (1 if leaves == "before" else 2)
    silent.close()


async def test_X4_a_second_that_is_late_is_waited_for_with_keep_alives(
    start_inprocess: StartInProcess, make_simulator: MakeSimulator
) -> None:
    first, second = await make_simulator(), await make_simulator()
    config = configuration(first, second) | {
        "server": {"keepalive_after": "200ms", "keepalive_every": "200ms"}
    }
    gate = await start_inprocess(config)
    first.push(broken("chat", "cut"))
    second.push(msgspec.structs.replace(rest(), first_token_s=0.7))
    model = model_of("chat", "messages")
    response = await ask(gate.url, CHAT, BODY | {"model": model}, key=KEY)
    parsed = check_chat_stream(response.body, model=model, keepalive=True, cost_nano_usd=COST)
    assert parsed.text == WHOLE
    assert parsed.keepalives


async def test_the_whole_gate_books_one_charge_and_the_operators_row(
    start_gate: StartGate, make_simulator: MakeSimulator
) -> None:
    first, second = await make_simulator(), await make_simulator()
    gate = await start_gate(configuration(first, second) | {"admin": {"listen": "{admin_listen}"}})
    first.push(broken("chat", "cut"))
    second.push(rest())
    model = model_of("chat", "messages")
    heard = heard_stream("chat", await ask(gate.url, CHAT, BODY | {"model": model}, key=KEY), model)
    assert (heard.text, heard.cost_nano_usd) == (WHOLE, COST)
    await asyncio.sleep(0.5)  # a row is visible by then
    (row,) = await asyncio.to_thread(gate.usage)
    assert (row["status"], row["attempts"], row["provider"], row["cost_nano_usd"]) == (
        "ok",
        2,
        "second-messages",
        COST,
    )
    found = "SELECT request_id, attempt, provider, reason FROM provider_costs"
    with contextlib.closing(sqlite3.connect(gate.config.parent / "sluicegate.db")) as store:
        assert store.execute(found).fetchall() == [(row["request_id"], 1, "first-chat", "continued")]
    command = [sys.executable, "-m", "sluicegate", "ledger", "verify", "--config", str(gate.config)]
    verified = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=30)
    assert verified.returncode == 0, verified.stdout
    metrics = await ask(f"http://{gate.host}:{gate.admin_port}", "/metrics", method="GET")
    assert b'sluicegate_streams_continued_total{provider="second-messages"} 1' in metrics.body
