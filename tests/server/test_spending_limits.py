"""Spending limits of keys as clients meet them: refusals in each format, streams that stop or finish, exact sums."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from sluicegate.billing.ledger import Reserved
from sluicegate.server.control_messages import Cautious
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer, of_tokens
from sluicegate.simulator.script import Script
from tests.conftest import KEY, StartGate, StartInProcess, make_config
from tests.fakes import Response, ask, chat
from tests.grammar.chat import check_chat_stream
from tests.inprocess import InProcessGate
from tests.server.test_cost_in_every_format import FORMATS, body_of

PATH = "/v1/chat/completions"
OUT_NANO = 2_000
"""Of one output token; input is free here, so that a request reserves its output limit and no more."""
MODELS = {"m": {"price": {"input": 0, "output": 2, "cache_read": None}}}


def config_of(simulator: Simulator, key: dict[str, Any], **changes: Any) -> dict[str, Any]:
    limited = {"name": "test", "key": KEY, "balance_usd": 5, **key}
    return make_config(simulator, models=MODELS, keys=[limited], **changes)


def usd(nano: int) -> str:
    return f"{nano / 10**9:.9f}"


def free_credit(gate: InProcessGate) -> int:
    """Return what may be reserved: what the worker has idle, too."""
    return gate.book.free("test") + gate.gateway._credit.idle("test")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("stream", [True, False])
async def test_b4_a_limit_is_refused_in_the_clients_format_and_named(
    start_inprocess: StartInProcess, simulator: Simulator, format: str, stream: bool
) -> None:
    gate = await start_inprocess(config_of(simulator, {"day_usd": usd(50 * OUT_NANO), "month_usd": 1}))
    path, body = body_of(format, "m", stream=stream)
    if format == "gemini":
        body["generationConfig"] = {"maxOutputTokens": 100}
    else:
        body["max_output_tokens" if format == "responses" else "max_tokens"] = 100
    response = await ask(gate.url, path, body, key=KEY)
    assert response.status == 402
    told = response.json()["error"]
    assert "may spend 0.0001 USD a day (UTC); it resets at " in told["message"]
    assert "reserves 0.0002 USD, 0.0001 USD are left" in told["message"]
    assert "covers 50 output tokens" in told["message"]
    if format == "gemini":
        assert told["status"] == "FAILED_PRECONDITION"
    elif format == "messages":
        assert told["type"] == "billing_error"
    else:
        assert told["type"] == "insufficient_quota"
    assert not simulator.requests
    assert not gate.rows()
    assert free_credit(gate) == 5 * 10**9, "credit that was held meanwhile is free again"


async def test_a_limit_is_spent_to_the_last_nano_and_no_further(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(config_of(simulator, {"day_usd": usd(100 * OUT_NANO)}))
    simulator.push(*[Script(answer=of_tokens(10, input_tokens=1)) for _ in range(10)])
    for _ in range(10):
        response = await ask(gate.url, PATH, chat("m", stream=False, max_tokens=10), key=KEY)
        assert response.status == 200
    response = await ask(gate.url, PATH, chat("m", stream=False, max_tokens=10), key=KEY)
    assert response.status == 402
    rows = gate.rows()
    assert sum(row.cost_nano_usd for row in rows) == 100 * OUT_NANO
    assert all(row.limited for row in rows)


async def test_without_a_limit_of_its_own_a_plain_answer_is_cut_to_what_is_left(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(config_of(simulator, {"week_usd": usd(300 * OUT_NANO)}))
    response = await ask(gate.url, PATH, chat("m", stream=False), key=KEY)
    assert response.status == 200
    assert response.header("x-sluicegate-dropped") == "max_completion_tokens;cut to credit"
    assert json.loads(simulator.requests[-1].body)["max_completion_tokens"] == 300


async def long_stream(
    start_inprocess: StartInProcess, simulator: Simulator, **key: Any
) -> tuple[Response, Any]:
    gate = await start_inprocess(
        config_of(
            simulator,
            {"day_usd": usd(200 * OUT_NANO), **key},
            billing={"reserve_output_tokens": 150},
            accounts={"free": "unlimited"},
        )
    )
    simulator.push(Script(answer=of_tokens(2_000, input_tokens=1), interval_s=0.001))
    body = chat("m", stream_options={"include_usage": True})
    response = await ask(gate.url, PATH, body, key=KEY, timeout_s=30)
    (row,) = await gate.wait_for_rows(1)
    return response, row


@pytest.mark.parametrize("account", [{}, {"account": "free", "balance_usd": None}])
async def test_x3_a_running_stream_stops_at_a_limit(
    start_inprocess: StartInProcess, simulator: Simulator, account: dict[str, Any]
) -> None:
    response, row = await long_stream(start_inprocess, simulator, **account)
    text = response.body.decode()
    assert "data: [DONE]" not in text
    assert '"type":"insufficient_quota"' in text
    assert "a day (UTC); it resets at " in text
    assert (row.status, row.limited) == ("credit_spent", True)
    assert 150 * OUT_NANO <= row.cost_nano_usd <= 200 * OUT_NANO
    assert row.list_cost_nano_usd == row.cost_nano_usd + row.shortfall_nano_usd


@pytest.mark.parametrize("account", [{}, {"account": "free", "balance_usd": None}])
async def test_a_running_stream_finishes_at_the_operators_expense_where_the_key_says_so(
    start_inprocess: StartInProcess, simulator: Simulator, account: dict[str, Any]
) -> None:
    response, row = await long_stream(start_inprocess, simulator, on_limit="finish", **account)
    check_chat_stream(response.body, usage=True, cost_nano_usd=200 * OUT_NANO)
    assert (row.status, row.usage.output_tokens) == ("ok", 2_000)
    assert row.list_cost_nano_usd == 2_000 * OUT_NANO
    assert row.cost_nano_usd == 200 * OUT_NANO, "all that the limit leaves, and nothing more"
    assert row.shortfall_nano_usd == 1_800 * OUT_NANO


async def test_a_dearer_truth_takes_no_more_than_the_limit_leaves(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(config_of(simulator, {"lifetime_usd": usd(150 * OUT_NANO)}))
    simulator.push(Script(answer=Answer(text=(" x",), input_tokens=1, output_tokens=300)))
    response = await ask(gate.url, PATH, chat("m", stream=False, max_tokens=100), key=KEY)
    assert response.json()["usage"]["cost_nano_usd"] == 150 * OUT_NANO
    (row,) = gate.rows()
    assert (row.cost_nano_usd, row.shortfall_nano_usd) == (150 * OUT_NANO, 150 * OUT_NANO)
    assert free_credit(gate) == 5 * 10**9 - 150 * OUT_NANO


async def test_many_at_once_never_pass_a_limit(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    gate = await start_inprocess(config_of(simulator, {"day_usd": usd(70 * OUT_NANO), "week_usd": 1}))
    simulator.push(*[Script(answer=of_tokens(10, input_tokens=1)) for _ in range(60)])
    answers = await asyncio.gather(
        *(
            ask(gate.url, PATH, chat("m", stream=False, max_tokens=10), key=KEY, timeout_s=20)
            for _ in range(60)
        )
    )
    statuses = [answer.status for answer in answers]
    assert (statuses.count(200), statuses.count(402)) == (7, 53)
    assert sum(row.cost_nano_usd for row in gate.rows()) == 70 * OUT_NANO


async def test_a_new_day_has_a_new_budget_and_the_idle_one_goes_back(
    start_inprocess: StartInProcess, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(simulator, {"day_usd": usd(50 * OUT_NANO), "month_usd": usd(70 * OUT_NANO)})
    gate = await start_inprocess(config)
    noon = time.time() // 86_400 * 86_400 + 43_200
    while time.gmtime(noon + 86_400).tm_mday < 3:  # not over the end of a month
        noon += 86_400

    async def spend(at: float, tokens: int) -> int:
        monkeypatch.setattr(time, "time", lambda: at)
        simulator.push(Script(answer=of_tokens(tokens, input_tokens=1)))
        body = chat("m", stream=False, max_tokens=tokens)
        status = (await ask(gate.url, PATH, body, key=KEY)).status
        if status != 200:
            simulator.clear()
        gate.rows()
        return status

    assert await spend(noon, 50) == 200
    assert await spend(noon, 1) == 402
    assert await spend(noon + 86_400, 21) == 402, "the month leaves 20"
    assert await spend(noon + 86_400, 20) == 200
    assert await spend(noon + 86_400, 1) == 402


async def test_a_key_without_limits_is_not_held_against_any(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(make_config(simulator))
    await ask(gate.url, PATH, chat("m", stream=False), key=KEY)
    (row,) = gate.rows()
    assert not row.limited
    assert not gate.budgets


async def test_an_account_past_the_days_shortfall_holds_whole_limits(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(make_config(simulator, models=MODELS))
    body = chat("m", max_tokens=5_000)
    simulator.push(Script(answer=of_tokens(1)), Script(answer=of_tokens(1)))
    await ask(gate.url, PATH, body, key=KEY)
    gate.send(1, Cautious(["test"]))
    await ask(gate.url, PATH, body, key=KEY)
    gate.rows()
    held = [record.amount_nano for record in gate.records if isinstance(record, Reserved)]
    assert held == [1_024 * OUT_NANO, 5_000 * OUT_NANO]


async def test_the_operator_is_told_of_an_account_past_the_days_shortfall(
    start_gate: StartGate, simulator: Simulator, tmp_path: Path
) -> None:
    key = {"name": "test", "key": KEY, "balance_usd": usd(100 * OUT_NANO)}
    gate = await start_gate(
        make_config(simulator, models=MODELS, keys=[key], billing={"shortfall_limit_usd": usd(10 * OUT_NANO)})
    )
    simulator.push(Script(answer=Answer(text=(" x",), input_tokens=1, output_tokens=120)))
    assert (await ask(gate.url, PATH, chat("m", stream=False, max_tokens=100), key=KEY)).status == 200
    for _ in range(100):
        if "shortfall_limit_passed" in (tmp_path / "gate.log").read_text():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("nobody was told")
