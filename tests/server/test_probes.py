"""Probes of what is open, and of what works: made by one worker for all, charged to nobody, believed within bounds."""

import asyncio
import json
import os
import signal
import sqlite3
import time
from typing import Any

from sluicegate.server.control_socket import ask_supervisor
from sluicegate.simulator import Received, Simulator
from sluicegate.simulator.script import Script, Stall
from tests.conftest import KEY, PRICE, MakeSimulator, StartGate, make_config
from tests.crash.books import command
from tests.fakes import ask, chat
from tests.gate import RunningGate
from tests.grid.scenes import FORMATS
from tests.server.test_shared_health import metrics

LISTED = Script(
    when="head", body='{"object":"list","data":[]}', headers=(("content-type", "application/json"),)
)
FOREVER = {"open_for": "60s", "max_open_for": "60s"}
EVERY = {"probe": "models", "probe_every": "200ms", "probe_timeout": "1s"}
MODELS = "/p/v1/models"


def config_of(first: Simulator, spare: Simulator, **changes: Any) -> dict[str, Any]:
    """Return a gate of two workers whose model `two` prefers one provider, below a path of its own."""
    providers = {
        "first": {"base_url": f"{first.url}/p/v1", "speaks": ["chat"], "auth": "none"},
        "spare": {"base_url": spare.base_url, "speaks": ["chat"], "auth": "none"},
    }
    routes = [
        {"provider": "first", "model": "m"},
        {"provider": "spare", "model": "m", "priority": 1},
    ]
    models = {"two": {"routes": routes, "price": PRICE}}
    return make_config(
        spare, **{"server": {"workers": 2}, "providers": providers, "models": models} | changes
    )


async def served_by(gate: RunningGate, model: str = "two") -> str | None:
    response = await ask(gate.url, "/v1/chat/completions", chat(model, stream=False), key=KEY, timeout_s=20)
    assert response.status == 200, response.body
    return response.header("x-sluicegate-provider")


async def status(gate: RunningGate) -> dict[str, Any]:
    told: dict[str, Any] = await ask_supervisor(gate.config.parent / "journal", "status")
    return told


def probes(simulator: Simulator) -> list[Received]:
    return [request for request in simulator.requests if request.path.endswith("/models")]


def costs(gate: RunningGate) -> list[tuple[Any, ...]]:
    with sqlite3.connect(gate.config.parent / "sluicegate.db") as store:
        found = "SELECT provider, provider_model, amount_nano, reason FROM provider_costs"
        return store.execute(found).fetchall()


async def test_a_good_probe_lets_a_request_in_before_the_time(
    start_gate: StartGate, make_simulator: MakeSimulator
) -> None:
    first, spare = await make_simulator(), await make_simulator()
    first.push(Script(status=401), path="/chat/completions")
    first.push(Script(when="head", status=500), path=MODELS, times=3)
    first.push(LISTED, path=MODELS, times=None)
    gate = await start_gate(config_of(first, spare, health=FOREVER | EVERY))
    began = time.monotonic()
    assert await served_by(gate) == "spare"
    await first.wait_for(lambda: len(probes(first)) >= 2)
    (watched,) = (await status(gate))["probes"]
    assert (watched["provider"], watched["model"], watched["last"]) == ("first", "m", "ill")
    assert await served_by(gate) == "spare"
    await first.wait_for(lambda: len(probes(first)) >= 4)
    while await served_by(gate) != "first":
        assert time.monotonic() - began < 10, "a probe went well, and nobody is let in"
    assert (await status(gate))["unhealthy"] == []
    made = len(probes(first))
    assert made == 4, "one worker asks for all, and no more once a request may try it"
    await asyncio.sleep(0.6)
    assert len(probes(first)) == made, "what works is not probed unless that is wanted"
    assert all(probe.method == "GET" and not probe.body for probe in probes(first))
    text = await asyncio.to_thread(metrics, gate)
    assert 'sluicegate_probes_total{finding="ill",provider="first"} 3.0' in text
    assert 'sluicegate_probes_total{finding="well",provider="first"} 1.0' in text
    assert "deployment_half_opened" in (gate.config.parent / "gate.log").read_text()
    assert [row["status"] for row in gate.usage()] == ["ok"] * len(gate.usage())
    assert costs(gate) == [], "a list of models costs nothing"


async def test_bad_probes_keep_requests_away_as_long_as_they_may(
    start_gate: StartGate, make_simulator: MakeSimulator
) -> None:
    first, spare = await make_simulator(), await make_simulator()
    first.push(Script(status=500), path="/chat/completions", times=None)
    first.push(Script(when="head", status=503), path=MODELS, times=None)
    health = EVERY | {"failures": 1, "open_for": "1s", "max_open_for": "4s"}
    gate = await start_gate(config_of(first, spare, health=health))
    assert await served_by(gate) == "spare"
    until = time.monotonic() + 3.0
    while time.monotonic() < until:
        assert await served_by(gate) == "spare"
        await asyncio.sleep(0.02)
    asked = [request for request in first.requests if request not in probes(first)]
    assert len(asked) == 1, "its time was over long ago, but probes still fail"
    async with asyncio.timeout(10):  # the list of models may be what is broken
        while len([request for request in first.requests if request.method == "POST"]) < 2:
            assert await served_by(gate) == "spare"
            await asyncio.sleep(0.02)
    assert time.monotonic() - until > 0.2


async def test_a_list_that_is_there_while_its_models_are_not_is_believed_less_each_time(
    start_gate: StartGate, make_simulator: MakeSimulator
) -> None:
    first, spare = await make_simulator(), await make_simulator()
    first.push(Script(status=500), path="/chat/completions", times=None)
    first.push(LISTED, path=MODELS, times=None)
    health = EVERY | FOREVER | {"failures": 1, "probe_every": "100ms"}
    gate = await start_gate(config_of(first, spare, health=health))
    until = time.monotonic() + 3.0
    while time.monotonic() < until:
        assert await served_by(gate) == "spare"
        await asyncio.sleep(0.01)
    tried = [request.at for request in first.requests if request.method == "POST"]
    assert 3 <= len(tried) <= 9, "after n openings, n probes"
    assert tried[-1] - tried[-2] > tried[1] - tried[0]


async def test_a_request_for_a_token_is_the_operators_expense_in_every_format(
    start_gate: StartGate, make_simulator: MakeSimulator
) -> None:
    first, spare = await make_simulator(), await make_simulator()
    config = config_of(first, spare, health=FOREVER | EVERY)
    for format in FORMATS:
        first.push(Script(status=401), model=format)
        config["providers"][format] = {
            "base_url": f"{first.url}/p/v1", "speaks": [format], "auth": "none", "probe": "request",
        }  # fmt: skip
        routes = [
            {"provider": format, "model": format, "cost": {"input": 1, "output": 10}},
            {"provider": "spare", "model": "m", "priority": 1},
        ]
        config["models"][format] = {"routes": routes, "price": PRICE}
    gate = await start_gate(config)
    for format in FORMATS:
        assert await served_by(gate, format) == "spare"
    asked = await first.wait_for_requests(2 * len(FORMATS))
    probed = {request.format: request for request in asked[len(FORMATS) :]}
    assert probed.keys() == set(FORMATS)
    for format, probe in probed.items():
        fields = probe.json.get("generationConfig") or probe.json
        limits = {"responses": ("max_output_tokens", 16), "gemini": ("maxOutputTokens", 1)}
        name, least = limits.get(format, ("max_tokens", 1))
        assert fields[name] == least
    async with asyncio.timeout(20):
        for format in FORMATS:
            while await served_by(gate, format) != format:
                await asyncio.sleep(0.02)
        while len(found := costs(gate)) < len(FORMATS):
            await asyncio.sleep(0.05)
    for provider, model, amount_nano, reason in found:
        answer = probed[provider].answer
        assert answer is not None
        usage = answer.truth()
        assert (model, reason) == (provider, "probe")
        assert amount_nano == (usage.input_tokens or 0) * 1_000 + (usage.output_tokens or 0) * 10_000 > 0
    rows = gate.usage()
    assert {row["status"] for row in rows} == {"ok"}, "none of a probe"
    (verdict,) = await command(gate.config, "ledger", "verify")
    assert verdict["clean"] is True


async def test_what_works_is_probed_where_that_is_wanted_and_opens_before_anybody_asks(
    start_gate: StartGate, make_simulator: MakeSimulator
) -> None:
    first, spare = await make_simulator(), await make_simulator()
    first.push(LISTED, path=MODELS, times=None)
    health = EVERY | FOREVER | {"failures": 2, "probe_closed_every": "300ms"}
    gate = await start_gate(config_of(first, spare, health=health))
    await first.wait_for(lambda: len(probes(first)) >= 2)
    assert (await status(gate))["unhealthy"] == []
    await first.stop()
    async with asyncio.timeout(10):
        while not (unhealthy := (await status(gate))["unhealthy"]):
            await asyncio.sleep(0.05)
    assert [(one["provider"], one["state"]) for one in unhealthy] == [("first", "open")]
    assert await served_by(gate) == "spare"
    (row,) = gate.usage()
    assert row["attempts"] == 1, "nobody had to find out"
    await first.start()
    async with asyncio.timeout(10):
        while await served_by(gate) != "first":
            await asyncio.sleep(0.02)


async def test_failing_probes_do_not_open_what_answers_clients(
    start_gate: StartGate, make_simulator: MakeSimulator
) -> None:
    first, spare = await make_simulator(), await make_simulator()
    first.push(Script(when="head", status=500), path=MODELS, times=None)
    health = (
        EVERY | FOREVER | {"failures": 5, "probe_closed_every": "200ms"}
    )  # a second to ask for the first time
    gate = await start_gate(config_of(first, spare, server={"workers": 1}, health=health))
    assert await served_by(gate) == "first"
    seen = len(probes(first))
    while len(probes(first)) < seen + 7:
        assert await served_by(gate) == "first"
        await asyncio.sleep(0.01)


async def test_no_storm_where_many_are_dead(start_gate: StartGate, make_simulator: MakeSimulator) -> None:
    """Thirty open deployments of a provider are one probe, and a silent one is waited for no longer than its time."""
    dead, spare = await make_simulator(), await make_simulator()
    dead.push(Script(status=401), path="/chat/completions", times=None)
    dead.push(Script(when="head", steps=(Stall(),)), path=MODELS, times=None)
    config = config_of(dead, spare, health=FOREVER | EVERY | {"probe_timeout": "400ms"})
    for number in range(30):
        routes = [
            {"provider": "first", "model": f"m{number}"},
            {"provider": "spare", "model": "m", "priority": 1},
        ]
        config["models"][f"many-{number}"] = {"routes": routes, "price": PRICE}
    gate = await start_gate(config)
    for number in range(30):
        body = chat(f"many-{number}", stream=False)
        assert (await ask(gate.url, "/v1/chat/completions", body, key=KEY)).status == 200
    before, began = len(probes(dead)), time.monotonic()
    await asyncio.sleep(2.0)
    made, took_s = len(probes(dead)) - before, time.monotonic() - began
    assert 1 <= made <= took_s / 0.4 + 2
    assert len([one for one in probes(dead) if one.ended is None]) <= 1
    assert len((await status(gate))["probes"]) == 30


async def test_probes_are_off_unless_wanted_and_come_with_a_reload(
    start_gate: StartGate, make_simulator: MakeSimulator
) -> None:
    first, spare = await make_simulator(), await make_simulator()
    first.push(Script(status=401), path="/chat/completions")
    first.push(LISTED, path=MODELS, times=None)
    config = config_of(first, spare, health=FOREVER)
    gate = await start_gate(config)
    assert await served_by(gate) == "spare"
    await asyncio.sleep(0.5)
    assert not probes(first)
    text = json.loads(gate.config.read_text())
    text["health"] |= EVERY
    gate.config.write_text(json.dumps(text))
    os.kill(gate.child.pid, signal.SIGHUP)
    await first.wait_for(lambda: len(probes(first)) >= 1)
    async with asyncio.timeout(10):
        while await served_by(gate) != "first":
            await asyncio.sleep(0.02)
