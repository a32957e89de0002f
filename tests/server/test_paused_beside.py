"""Answers that are resumed beside what else may happen to a stream: a second attempt that wins, one that breaks
off for good and is taken over, a client that has left while the provider finishes.

Translation matrix, section 24; contract B3; cases B060 and B133.
"""

import asyncio

from sluicegate.routing.hedge import MIN_MEASURED
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Reset, Stall
from tests.conftest import KEY, PRICE, Connect, StartInProcess, make_config
from tests.fakes import ask, request_bytes
from tests.grid.scenes import Prompt
from tests.grid.speaking import heard_stream, path_of, said
from tests.inprocess import InProcessGate
from tests.server.test_paused_answers import CALL, CHAT, ONE_CALL, PAUSED_ANSWER, asking
from tests.server.test_paused_answers import start as start_one

PATH = path_of(CHAT, "m", True)


async def start(
    started: StartInProcess, simulator: Simulator, formats: tuple[str, str], **model: object
) -> InProcessGate:
    """Return a gate whose model goes to `first`, then to `second`."""
    providers = {
        name: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
        for name, format in zip(("first", "second"), formats, strict=True)
    }
    routes = [
        {"provider": name, "model": name, "priority": place} for place, name in enumerate(("first", "second"))
    ]
    models = {"m": {"routes": routes, "price": PRICE, **model}}
    return await started(make_config(simulator, providers=providers, models=models))


async def test_a_second_attempt_that_wins_is_gone_on_with_at_its_own_provider(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, ("gemini", "gemini"), hedge_percentile=95)
    simulator.push(Script(answer=Answer(text=(" x",))), model="first", times=MIN_MEASURED)
    for _ in range(MIN_MEASURED):
        assert (await ask(gate.url, PATH, asking(CHAT, stream=True), key=KEY)).status == 200
    simulator.push(Script(steps=(Stall(),)), model="first")
    simulator.push(Script(answer=PAUSED_ANSWER), model="second")
    simulator.push(Script(answer=CALL), model="second")
    response = await ask(gate.url, PATH, asking(CHAT, stream=True), key=KEY)
    heard = heard_stream(CHAT, response, "m")
    assert (heard.text, heard.finish) == (" a b c d e", "stop")
    assert heard.cost_nano_usd == ONE_CALL + 50 * 1000 + 2 * 2000
    assert [request.model for request in list(simulator.requests)[-2:]] == ["second", "second"]
    assert simulator.requests[-1].json["continuationToken"] == PAUSED_ANSWER.token


async def test_b060_a_later_call_that_breaks_off_for_good_is_taken_over(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(
        start_inprocess, simulator, ("gemini", "chat"), stream={"continue_midstream": True},
        capabilities={"continuation": "prefix"},
    )  # fmt: skip
    simulator.push(Script(answer=PAUSED_ANSWER), model="first")
    simulator.push(Script(answer=CALL, steps=(Play(before="finish"), Reset())), model="first")
    simulator.push(Script(answer=Answer(text=(" f", " g"))), model="second")
    response = await ask(gate.url, PATH, said(CHAT, "m", Prompt(system=None), True), key=KEY)
    heard = heard_stream(CHAT, response, "m")
    assert (heard.text, heard.finish) == (" a b c d e f g", "stop")
    assert len(simulator.requests) == 3
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.attempts) == ("ok", 2)
    assert heard.cost_nano_usd == row.cost_nano_usd


async def test_nothing_stays_in_flight_for_a_client_that_had_left_before_the_first_content(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_one(
        start_inprocess,
        simulator,
        "gemini",
        config={"billing": {"on_disconnect": "drain", "drain_cap": "5s"}},
    )
    simulator.push(Script(answer=CALL, first_token_s=0.4))
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, asking(CHAT, stream=True), key=KEY))
    await simulator.wait_for(lambda: len(simulator.requests) == 1)
    await asyncio.sleep(0.05)
    await connection.close()
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage.output_tokens) == ("client_closed", 2)
    assert gate.gateway._inbound.inflight_bytes == 0
