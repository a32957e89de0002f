"""How answers travel: cases B017, B060, B066, B092, B133, at a running gate, for clients of every format."""

import asyncio
from collections.abc import AsyncIterator
from itertools import product

import pytest
import pytest_asyncio

from sluicegate.simulator import Head, Reset, Script, Send, Simulator, Wait
from tests.cases.broken import HALF
from tests.cases.framed import STREAMS
from tests.cases.frames import text
from tests.cases.world import World, configuration
from tests.conftest import KEY, PRICE
from tests.fakes import Client, request_bytes
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import heard_stream, path_of, said, told_inside, wording
from tests.inprocess import in_process_gate

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = Prompt()
GAP_S = 0.1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A gate with a second route behind each first one, and two connections to each provider."""
    async with Simulator() as simulator:
        config = configuration(simulator, retry={"max_attempts": 3})
        for format in FORMATS:
            config["providers"][format] = config["providers"][format] | {"max_connections": 2}
            spare = {"provider": "chat" if format != "chat" else "messages", "model": "spare", "priority": 1}
            for client, kind in product(FORMATS, ("words", "start")):
                first = {"provider": format, "model": f"{kind}-{client}-{format}"}
                routes = {"routes": [first, spare], "price": PRICE}
                config["models"][f"backed-{kind}-{client}-{format}"] = routes
        gate = in_process_gate(tmp_path_factory.mktemp("delivery"), config)
        async with gate.running():
            yield World(gate, simulator)


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("provider", FORMATS)
async def test_b060_b133_nothing_is_tried_again_behind_words(
    backed: World, client: str, provider: str
) -> None:
    upstream = f"words-{client}-{provider}"
    steps = (Send(data=HALF[provider]), Wait(s=0.02), Reset())
    backed.simulator.push(Script(steps=steps), model=upstream)
    asked_before = backed.simulator.requests_made
    response = await backed.post(client, f"backed-{upstream}", ASK, stream=True)
    heard = heard_stream(client, response, f"backed-{upstream}", fails=True)
    assert heard.text == "Hello wor"
    assert told_inside(client, heard.error).word == wording(client, "upstream_error")[1]
    assert backed.simulator.requests_made == asked_before + 1
    row = backed.gate.rows()[-1]
    assert (row.status, row.attempts) == ("upstream_error", 1)
    assert not [cost for cost in backed.gate.provider_costs() if cost.request_id == row.request_id]


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("provider", FORMATS)
async def test_b060_before_words_the_second_route_answers(backed: World, client: str, provider: str) -> None:
    start = STREAMS[provider].partition(b"Hello")[0].rpartition(b"\n\n")
    upstream = f"start-{client}-{provider}"
    steps = (Head(), Send(data=start[0] + start[1]), Wait(s=0.02), Reset())
    backed.simulator.push(Script(steps=steps), model=upstream, times=None)
    outcome = await backed.hear(client, f"backed-{upstream}", ASK, stream=True)
    assert outcome.heard is not None
    assert outcome.told is None
    assert outcome.row is not None
    assert outcome.row.provider == ("chat" if provider != "chat" else "messages")
    assert outcome.row.attempts >= 2
    assert outcome.row.cost_nano_usd == outcome.heard.cost_nano_usd


@pytest.mark.parametrize("client", FORMATS)
async def test_b066_b092_events_leave_as_they_come(world: World, client: str) -> None:
    async def listen(provider: str) -> None:
        events = [each + b"\n\n" for each in STREAMS[provider].split(b"\n\n") if each]
        words = [place for place, each in enumerate(events) if b'"Hello"' in each or b'" world"' in each][:2]
        head, middle, tail = (
            b"".join(events[: words[0] + 1]),
            b"".join(events[words[0] + 1 : words[1] + 1]),
            b"".join(events[words[1] + 1 :]),
        )
        upstream = f"paced-{client}-{provider}"
        steps = (Send(data=head), Wait(s=GAP_S), Send(data=middle), Wait(s=GAP_S), Send(data=tail))
        world.simulator.push(Script(steps=steps), model=upstream)
        model = f"{provider}/{upstream}"
        headers = {"accept-encoding": "gzip, br"}
        raw = request_bytes(
            path_of(client, model, True), said(client, model, ASK, True), key=KEY, headers=headers
        )
        async with await Client.connect(world.gate.url) as connection:
            connection.send(raw)
            response = await connection.response()
            assert response.header("content-encoding") is None
            assert response.header("content-length") is None
            assert response.header("content-type") == "text/event-stream; charset=utf-8"
            assert response.header("cache-control") == "no-cache"
            assert response.header("x-accel-buffering") == "no"
            hello, world_, end = (
                connection.time_of(word) for word in (b"Hello", b" world", b"\r\n0\r\n\r\n")
            )
            assert world_ - hello > GAP_S / 2
            assert end - hello > GAP_S

    await asyncio.gather(*(listen(provider) for provider in FORMATS))


async def test_b017_the_pool_is_whole_after_all_that_went_wrong(backed: World) -> None:
    """Two connections at most to each provider, and dozens of streams that end in every way."""
    scripts = {
        "full": Script(steps=(Send(data=STREAMS["chat"]),)),
        "limit": Script(status=429, body='{"error":{"message":"slow down"}}'),
        "garbage": Script(steps=(Send(data=b"data: {nonsense\n\n"),)),
        "cut": Script(steps=(Send(data=text("Hello")), Wait(s=0.01), Reset())),
        "left": Script(steps=(Send(data=text("Hello")), Wait(s=30))),
    }
    for name, script in scripts.items():
        backed.simulator.push(script, model=f"pool-{name}", times=None)

    async def one(name: str) -> None:
        if name != "left":
            await backed.post("chat", f"chat/pool-{name}", ASK, stream=True)
            return
        async with await Client.connect(backed.gate.url) as connection:
            connection.send(
                request_bytes("/v1/chat/completions", said("chat", "chat/pool-left", ASK, True), key=KEY)
            )
            async with asyncio.timeout(5):
                while b"Hello" not in connection.raw:
                    await asyncio.sleep(0.002)
            connection.reset()

    await asyncio.gather(*(one(name) for name in scripts for _ in range(20)))
    async with asyncio.timeout(2):
        response = await backed.post("chat", "chat/pool-full", ASK, stream=True)
    assert heard_stream("chat", response, "chat/pool-full").text == "Hello world"
    assert sum(1 for connection in backed.simulator.connections) <= 2 * len(FORMATS)
