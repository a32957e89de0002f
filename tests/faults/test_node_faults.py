"""The faults of the grid as the official Node SDKs meet them, all of a format in one Node process. See `sdk_grid`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sluicegate.billing.ledger import UsageRow
from tests.conftest import KEY, StartInProcess
from tests.faults.faulty import FORMATS, Faulty
from tests.faults.sdk_grid import LIMIT_S, config_of, judge, models_of
from tests.grid.scenes import Prompt
from tests.grid.sdks import heard
from tests.grid.speaking import said
from tests.grid.turns import joined
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks

pytestmark = needs_node_sdks

SCRIPT = Path(__file__).parents[1] / "sdk" / "grid.mjs"
AT_ONCE = 24


def job(format: str, model: str, way: str) -> dict[str, Any]:
    """Return what `grid.mjs` is told."""
    body = said(format, model, Prompt(system=None), way == "raw")
    if way != "raw":
        body.pop("stream", None)
    return {"client": format, "way": way, "model": model, "body": body, "tools": []}


async def run_node(url: str, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the SDKs saw, job by job; every request on a connection of its own."""
    process = await asyncio.create_subprocess_exec(
        NODE,
        str(SCRIPT),
        url,
        KEY,
        json.dumps({"connection": "close"}),
        str(AT_ONCE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate(json.dumps(jobs).encode())
    return [json.loads(line) for line in output.decode().splitlines()]


@pytest.mark.soak
@pytest.mark.parametrize("way", ["raw", "plain"])
@pytest.mark.parametrize("format", FORMATS)
async def test_every_node_sdk_has_the_answer_or_its_error(
    start_inprocess: StartInProcess, providers: Faulty, format: str, way: str
) -> None:
    gate = await start_inprocess(config_of(providers, format, way))
    models = models_of(format, way)
    wrong: dict[str, str] = {}
    results = await run_node(gate.url, [job(format, model, way) for model in models])
    rows: dict[str, list[UsageRow]] = {}
    for row in await gate.wait_for_rows(len(models)):
        rows.setdefault(row.model, []).append(row)
    for model, seen in zip(models, results, strict=True):
        try:
            assert len(rows.get(model, ())) == 1, f"{len(rows.get(model, ()))} rows"
            check(format, model, way, seen, rows[model][0])
        except AssertionError as error:
            wrong[model] = str(error).splitlines()[0]
    assert not wrong, "\n".join(f"{model}: {what}" for model, what in sorted(wrong.items()))


def check(format: str, model: str, way: str, seen: dict[str, Any], row: UsageRow) -> None:
    assert seen["took_s"] < LIMIT_S, f"took {seen['took_s']:.1f} s"
    error = seen.get("error")
    text = None
    if error is None:
        answer = joined(format, seen["events"]) if "events" in seen else seen["answer"]
        text = heard(format, answer).text
    else:
        assert error["kind"].endswith("Error"), f"{error['kind']}: {error['text'][:80]}"
        assert error["kind"] not in ("TypeError", "SyntaxError", "Error"), (
            f"{error['kind']}: {error['text'][:80]}"
        )
    judge(format, model, way == "raw", text, "" if error is None else error["text"], row)
