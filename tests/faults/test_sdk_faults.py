"""The faults of the catalogue once more, as the official SDKs of all five formats meet them.

Every client format, over a provider of its own format and over one of another, alone and with a healthy second route
behind: the SDK raises its documented error or has the whole answer, never half of one; each request leaves one row.
"""

import asyncio
from typing import Any

import pytest

from sluicegate.billing.ledger import UsageRow
from sluicegate.simulator import Simulator
from tests.conftest import PRICE, StartInProcess, make_config
from tests.faults.faulty import ANSWER, CLOCKS, LIGHT, MAX_ATTEMPTS, MENDED, PATIENCE, REJECTED, UNREACHABLE
from tests.grid.scenes import Prompt
from tests.grid.sdks import SdkError, Sdks

FORMATS = ("chat", "completions", "responses", "messages", "gemini")
LIMIT_S = 9.0
AT_ONCE = 48
"""Requests that run at once: an SDK's client takes more of the processor than the gate."""
ABROAD = ("cut", "error-first", "error-mid", "html", "no-end", "stall", "401", "429", "500", "529")
"""Faults that are tried over a provider of another format too."""


def config_of(simulator: Simulator, format: str) -> dict[str, Any]:
    """Return a configuration with a model `PATH-KIND-WORD` for every fault, path and kind of route."""
    foreign = "messages" if format == "chat" else "chat"
    providers: dict[str, Any] = {}
    models: dict[str, Any] = {}
    for path, spoken in (("own", format), ("other", foreign)):
        provider = {"base_url": simulator.base_url, "speaks": [spoken], "auth": "none"}
        providers[f"{path}-spare"] = provider
        for word in _words(path, format):
            for kind in ("alone", "backed"):
                name = f"{path}-{kind}-{word}"
                providers[name] = provider
                routes = [{"provider": name, "model": f"sim-{word},s=6"}]
                if kind == "backed":
                    routes.append({"provider": f"{path}-spare", "model": "sim-text", "priority": 1})  # type: ignore[dict-item]
                models[name] = {"routes": routes, "price": PRICE}
    return make_config(simulator, models=models, providers=providers, stream=CLOCKS)


def _words(path: str, format: str) -> list[str]:
    """Return the faults to try; in two formats the last event is an answer by itself."""
    words = [word for word in LIGHT if word not in (*PATIENCE, *UNREACHABLE)] if path == "own" else ABROAD
    return [word for word in words if word != "end-only" or format not in ("responses", "gemini")]


async def outcome_of(sdks: Sdks, format: str, model: str, places: asyncio.Semaphore) -> str | Exception:
    """Return the text that the SDK read to the end, or the error it raised."""
    try:
        async with places, asyncio.timeout(LIMIT_S):
            heard = await sdks.ask(format, model, Prompt(), "raw")
    except SdkError as error:
        return error
    return heard.text


def judge(model: str, outcome: str | Exception, row: UsageRow) -> None:
    """Check what a client had in hand against its row."""
    _, kind, word = model.split("-", 2)
    if isinstance(outcome, str):
        assert outcome.startswith(ANSWER), f"a false end: {outcome[:80]!r}"
        assert row.status == "ok", f"the row says {row.status}"
        assert row.usage.output_tokens, "nothing was counted"
    else:
        assert str(outcome), "no message"
        assert row.status == ("rejected" if word in REJECTED else "upstream_error"), row.status
        assert row.cost_nano_usd == 0 or row.usage.output_tokens, "charged for nothing"
    if word in REJECTED:
        assert not isinstance(outcome, str)
        assert row.attempts == 1
    elif kind == "backed" and word in MENDED:
        assert isinstance(outcome, str), f"a second route was there, yet: {outcome!r}"
        assert 2 <= row.attempts <= MAX_ATTEMPTS
    elif word in MENDED:
        assert not isinstance(outcome, str), "a false end"


@pytest.mark.parametrize("format", FORMATS)
async def test_every_sdk_has_the_answer_or_its_error(
    start_inprocess: StartInProcess, simulator: Simulator, format: str
) -> None:
    config = config_of(simulator, format)
    gate = await start_inprocess(config)
    models = sorted(config["models"].keys() - {"m", "sim-*"})
    wrong: dict[str, str] = {}
    places = asyncio.Semaphore(AT_ONCE)
    async with Sdks.at(gate.url) as sdks:
        told = await asyncio.gather(
            *(outcome_of(sdks, format, model, places) for model in models), return_exceptions=True
        )
    rows: dict[str, list[UsageRow]] = {}
    for row in await gate.wait_for_rows(len(models)):
        rows.setdefault(row.model, []).append(row)
    for model, outcome in zip(models, told, strict=True):
        try:
            if isinstance(outcome, BaseException) and not isinstance(outcome, SdkError):
                raise AssertionError(f"{type(outcome).__name__}: {outcome}")
            assert len(rows.get(model, ())) == 1, f"{len(rows.get(model, ()))} rows"
            judge(model, outcome, rows[model][0])
        except AssertionError as error:
            wrong[model] = str(error).splitlines()[0]
    await simulator.wait_for(lambda: all(request.ended is not None for request in simulator.requests))
    assert not wrong, "\n".join(f"{model}: {what}" for model, what in sorted(wrong.items()))
