"""One event has a limit in bytes, `stream.max_event_bytes`, whichever formats meet; a JSON array is a stream too.

Streams are real, and so are the provider's bytes: a line without end is read no further than the limit, what was told
before it stays, and the client gets its own format's error and no end marker. Contract R and E.
"""

import asyncio
from typing import Any

import pytest

from sluicegate.simulator import Answer, Cuts, EndlessLine, Huge, Play, Script, Send, Simulator, Wait
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import Client, ask, request_bytes
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import heard_stream, path_of, said
from tests.inprocess import InProcessGate

LIMIT = 65_536
SLACK_BYTES = 8_388_608
"""What sockets on both sides may hold beyond what the gate has read."""
MODEL = "limited"


def config_of(simulator: Simulator, provider: str) -> dict[str, Any]:
    return make_config(
        simulator,
        providers={"sim": {"base_url": simulator.base_url, "speaks": [provider], "auth": "none"}},
        models={MODEL: {"routes": [{"provider": "sim", "model": MODEL}], "price": PRICE}},
        stream={"max_event_bytes": LIMIT},
        retry={"max_attempts": 1, "after_send": 0},
    )


async def ask_stream(gate: InProcessGate, client: str) -> Any:
    body = said(client, MODEL, Prompt(), True)
    return await ask(gate.url, path_of(client, MODEL, True), body, key=KEY, timeout_s=20.0)


@pytest.mark.parametrize("provider", FORMATS)
async def test_a_line_without_end(
    start_inprocess: StartInProcess, simulator: Simulator, provider: str
) -> None:
    gate = await start_inprocess(config_of(simulator, provider))
    for client in FORMATS:
        steps = (Play(before="finish", skip=("finish", "usage", "end")), Wait(s=0.05), EndlessLine())
        simulator.push(Script(answer=Answer(text=("Some", " text.")), steps=steps))
        response = await ask_stream(gate, client)
        heard = heard_stream(client, response, MODEL, fails=True)
        assert heard.text == "Some text.", client
        assert heard.error is not None
        assert f"an event is longer than {LIMIT} bytes" in heard.error["message"]
        record = simulator.requests[-1]
        async with asyncio.timeout(5.0):
            while record.ended is None:
                await asyncio.sleep(0.005)
        assert record.ended == "peer_left"
        assert record.body_bytes_sent < LIMIT + SLACK_BYTES
    rows = await gate.wait_for_rows(len(FORMATS))
    assert {row.status for row in rows} == {"upstream_error"}


@pytest.mark.parametrize("cuts", [(), (Cuts(every=1000, gap_s=0.0),)], ids=["whole", "in-pieces"])
@pytest.mark.parametrize("provider", FORMATS)
async def test_an_event_above_the_limit(
    start_inprocess: StartInProcess, simulator: Simulator, provider: str, cuts: tuple[Cuts, ...]
) -> None:
    """It is refused however its bytes come; the largest that is allowed passes."""
    gate = await start_inprocess(config_of(simulator, provider))
    for client in FORMATS:
        play = Play(before="finish", skip=("finish", "usage", "end"))
        large, larger = Huge(bytes=LIMIT - 4096), Huge(bytes=LIMIT + 1)
        simulator.push(
            Script(answer=Answer(text=("a", "b", "c", "d")), steps=(*cuts, play, large, Wait(s=0.05), larger))
        )
        heard = heard_stream(client, await ask_stream(gate, client), MODEL, fails=True)
        assert heard.text == "abcd" + "x" * large.bytes, client
        assert heard.error is not None
        assert f"an event is longer than {LIMIT} bytes" in heard.error["message"]


@pytest.mark.parametrize("client", FORMATS)
async def test_an_array_is_told_as_it_grows(
    start_inprocess: StartInProcess, simulator: Simulator, client: str
) -> None:
    """Proxies drop `alt=sse`, and the provider then writes one JSON array."""
    gate = await start_inprocess(config_of(simulator, "gemini"))
    first = '[{"candidates":[{"content":{"role":"model","parts":[{"text":"one"}]},"index":0}]}'
    last = (
        ',\r\n{"candidates":[{"content":{"role":"model","parts":[{"text":" two"}]},"index":0,"finishReason":"STOP"}],'
        '"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":2,"totalTokenCount":7}}\n]'
    )
    json = (("content-type", "application/json; charset=UTF-8"),)
    simulator.push(Script(headers=json, steps=(Send(text=first), Wait(s=0.4), Send(text=last))))
    async with await Client.connect(gate.url) as raw:
        body = said(client, MODEL, Prompt(), True)
        raw.send(request_bytes(path_of(client, MODEL, True), body, key=KEY))
        response = await raw.response()
        assert raw.time_of(b"two") - raw.time_of(b"one") > 0.2
    heard = heard_stream(client, response, MODEL)
    assert heard.text == "one two"
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage.input_tokens, row.usage.output_tokens) == ("ok", 5, 2)


@pytest.mark.parametrize("client", ["chat", "gemini"])
async def test_an_element_of_an_array_has_the_limit_too(
    start_inprocess: StartInProcess, simulator: Simulator, client: str
) -> None:
    gate = await start_inprocess(config_of(simulator, "gemini"))
    first = '[{"candidates":[{"content":{"role":"model","parts":[{"text":"one"}]},"index":0}]},'
    endless = '{"candidates":[{"content":{"role":"model","parts":[{"text":"' + "x" * (1 << 20)
    json = (("content-type", "application/json"),)
    simulator.push(Script(headers=json, steps=(Send(text=first), Wait(s=0.05), Send(text=endless))))
    heard = heard_stream(client, await ask_stream(gate, client), MODEL, fails=True)
    assert heard.text == "one"
    assert heard.error is not None
    assert f"an event is longer than {LIMIT} bytes" in heard.error["message"]
