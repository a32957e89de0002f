"""Every fault behind a gate, for clients of every format, alone and with a healthy second route behind, streamed and
plain: no hang, no false end, one row. Contract E1-E4.

All of one format run at once in one gate. Answers are heard by the formats' grammars, which refuse what an SDK would
not survive; SDKs themselves are in `test_sdk_faults`.
"""

import asyncio
import time
from typing import Any

import pytest

from sluicegate.simulator import Simulator
from tests.conftest import KEY, StartInProcess, make_config
from tests.fakes import Response, ask
from tests.faults.faulty import (
    ALONE,
    CLOCKS,
    FORMATS,
    KINDS,
    LIMIT_S,
    Faulty,
    Outcome,
    harmless_of,
    judge,
    words_of,
)
from tests.grid.scenes import Prompt
from tests.grid.speaking import CHECK, HEAR, path_of, said, told_error

ENDS = {
    "chat": b"[DONE]",
    "completions": b"[DONE]",
    "responses": b"response.completed",
    "messages": b"message_stop",
    "gemini": b'"finishReason":',
}
"""What says in each format that an answer is whole."""


def streamed(format: str, response: Response, took_s: float) -> Outcome:
    """Check a streamed answer."""
    if response.status != 200:
        return failed(format, response, took_s)
    if not response.complete:
        return Outcome(False, "", 200, "aborted", took_s)
    parsed = CHECK[format](response.body, end=None)
    if parsed.error is None:
        return Outcome(True, parsed.text, 200, "", took_s)
    text = parsed.text
    if format == "responses":  # its items stay open
        pieces = (one["delta"] for one in parsed.events if one["type"] == "response.output_text.delta")
        text = "".join(pieces)
    return Outcome(False, text, 200, parsed.error["message"], took_s)


def plain(format: str, response: Response, took_s: float) -> Outcome:
    """Check an answer that was not streamed."""
    if response.status != 200:
        return failed(format, response, took_s)
    if not response.complete:
        return Outcome(False, "", 200, "aborted", took_s)
    return Outcome(True, HEAR[format](response.json())[0], 200, "", took_s)


def failed(format: str, response: Response, took_s: float) -> Outcome:
    """Check an error that came before the answer."""
    told = told_error(format, response)
    assert told.message, "no message"
    assert response.complete
    return Outcome(False, "", response.status, told.message, took_s)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("format", FORMATS)
async def test_every_fault(
    start_inprocess: StartInProcess, providers: Faulty, format: str, stream: bool
) -> None:
    words = words_of(format)
    gate = await start_inprocess(providers.config(words, format))
    heard = streamed if stream else plain
    harmless = harmless_of(format, stream)
    wrong: dict[str, str] = {}

    async def try_fault(model: str) -> Outcome | None:
        began = time.monotonic()
        try:
            body: Any = said(format, model, Prompt(system=None), stream)
            response = await ask(gate.url, path_of(format, model, stream), body, key=KEY, timeout_s=LIMIT_S)
            return heard(format, response, time.monotonic() - began)
        except (AssertionError, TimeoutError, ValueError, KeyError, TypeError, ConnectionError) as error:
            wrong[model] = f"{type(error).__name__}: {error}"
            return None

    models = [f"{kind}-{word}" for word in words if word not in ALONE for kind in KINDS]
    outcomes = dict(zip(models, await asyncio.gather(*map(try_fault, models)), strict=True))
    for model in (f"{kind}-{word}" for word in ALONE if word in words for kind in KINDS):
        outcomes[model] = await try_fault(model)
    rows = await gate.wait_for_rows(len(outcomes))
    assert len(rows) == len(words) * len(KINDS)
    simulator = providers.simulator
    await simulator.wait_for(lambda: all(request.ended is not None for request in simulator.requests))
    for model, outcome in outcomes.items():
        if outcome is None:
            continue
        kind, _, word = model.partition("-")
        mine = [row for row in rows if row.model == model]
        try:
            assert len(mine) == 1, f"{len(mine)} rows"
            judge(word, kind == "backed", harmless, outcome, mine[0])
        except AssertionError as error:
            wrong[model] = str(error).splitlines()[0]
    assert not wrong, "\n".join(f"{model}: {what}" for model, what in sorted(wrong.items()))


@pytest.mark.parametrize("format", FORMATS)
async def test_a_flood_ends_with_the_total_clock(
    start_inprocess: StartInProcess, simulator: Simulator, format: str
) -> None:
    providers = {"sim": {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}}
    config = make_config(simulator, providers=providers, stream=CLOCKS | {"total_timeout": "1s"})
    gate = await start_inprocess(config)
    body = said(format, "sim-flood", Prompt(system=None), True)
    response = await ask(gate.url, path_of(format, "sim-flood", True), body, key=KEY, timeout_s=LIMIT_S)
    assert response.complete
    last = response.body[-3000:]
    assert b'"error":{' in last
    assert ENDS[format] not in last
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.attempts) == ("upstream_error", 1)
    await simulator.wait_for(lambda: simulator.requests[0].ended == "peer_left")
