"""The faults of the grid as the official Python SDKs of all five formats meet them. See `sdk_grid`."""

import asyncio

import pytest

from sluicegate.billing.ledger import UsageRow
from tests.conftest import StartInProcess
from tests.faults.faulty import FORMATS, WAITS, Faulty
from tests.faults.sdk_grid import LIMIT_S, config_of, judge, models_of
from tests.grid.scenes import Prompt
from tests.grid.sdks import SdkError, Sdks, Way

AT_ONCE = 6
"""Requests that run at once, beside those that only wait: an SDK takes more of the processor than the gate, whose
clocks run on."""


async def outcome_of(
    sdks: Sdks, format: str, model: str, way: Way, places: asyncio.Semaphore
) -> str | Exception:
    """Return the text that the SDK read to the end, or the error it raised."""
    try:
        async with places, asyncio.timeout(LIMIT_S):
            heard = await sdks.ask(format, model, Prompt(system=None), way)
    except SdkError as error:
        return error
    return heard.text


@pytest.mark.soak
@pytest.mark.parametrize("way", ["raw", "plain"])
@pytest.mark.parametrize("format", FORMATS)
async def test_every_sdk_has_the_answer_or_its_error(
    start_inprocess: StartInProcess, providers: Faulty, format: str, way: Way
) -> None:
    gate = await start_inprocess(config_of(providers, format, way))
    models = models_of(format, way)
    wrong: dict[str, str] = {}
    quick, waiting = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(len(models))

    def places(model: str) -> asyncio.Semaphore:
        return waiting if model.split("-", 2)[2] in WAITS else quick

    async with Sdks.at(gate.url) as sdks:
        told = await asyncio.gather(
            *(outcome_of(sdks, format, model, way, places(model)) for model in models), return_exceptions=True
        )
    rows: dict[str, list[UsageRow]] = {}
    for row in await gate.wait_for_rows(len(models)):
        rows.setdefault(row.model, []).append(row)
    for model, outcome in zip(models, told, strict=True):
        try:
            if isinstance(outcome, BaseException) and not isinstance(outcome, SdkError):
                raise AssertionError(f"{type(outcome).__name__}: {outcome}")
            assert len(rows.get(model, ())) == 1, f"{len(rows.get(model, ()))} rows"
            text = outcome if isinstance(outcome, str) else None
            judge(format, model, way == "raw", text, str(outcome), rows[model][0])
        except AssertionError as error:
            wrong[model] = str(error).splitlines()[0]
    simulator = providers.simulator
    await simulator.wait_for(lambda: all(request.ended is not None for request in simulator.requests))
    assert not wrong, "\n".join(f"{model}: {what}" for model, what in sorted(wrong.items()))
