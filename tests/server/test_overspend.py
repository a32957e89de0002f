"""Four worker processes, hundreds of requests at once on little credit: no balance goes under, no limit is passed."""

import asyncio
import collections
import json
from pathlib import Path
from typing import Any

from sluicegate.server.control_socket import call_supervisor
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Script
from tests.conftest import StartGate, make_config
from tests.fakes import ask, chat
from tests.gate import RunningGate

PATH = "/v1/chat/completions"
REQUESTS = 500
TOKENS = 100
RESERVED_NANO = TOKENS * 1_000
"""Of one request: input is free, a token of output costs 1,000 nano-USD."""
CREDIT_NANO = 50 * RESERVED_NANO
WAIT_S = 60.0


def key_of(name: str) -> str:
    return f"sg-{name}-0123456789abcdef"


def config_of(simulator: Simulator) -> dict[str, Any]:
    credit = f"{CREDIT_NANO / 10**9:.9f}"
    names = {"equal": credit, "triple": credit, "one": f"{RESERVED_NANO / 10**9:.9f}"}
    keys = [{"name": name, "key": key_of(name), "balance_usd": usd} for name, usd in names.items()]
    limits = {"day_usd": credit, "lifetime_usd": 1}
    keys += [{"name": "limited", "key": key_of("limited"), "account": "rich", **limits}]
    return make_config(
        simulator,
        server={"workers": 4},
        accounts={"rich": {"balance_usd": 1000}},
        models={
            name: {"routes": [{"provider": "sim", "model": name}], "price": {"input": 0, "output": 1}}
            for name in ("equal", "triple", "failing")
        },
        keys=keys,
    )


async def burst(gate: RunningGate, key: str, model: str) -> collections.Counter[int]:
    """Send all requests at once; return how often each status came."""
    body = chat(model, stream=True, max_tokens=TOKENS)
    answers = await asyncio.gather(
        *(ask(gate.url, PATH, body, key=key_of(key), timeout_s=WAIT_S) for _ in range(REQUESTS))
    )
    for answer in answers:
        if answer.status == 200:
            assert answer.body.rstrip().endswith(b"data: [DONE]")
        else:
            assert answer.json()["error"]["type"] == "insufficient_quota"
    return collections.Counter(answer.status for answer in answers)


def operate(folder: Path, operation: str, **arguments: Any) -> Any:
    return call_supervisor(folder / "journal", operation, arguments)


def balance(folder: Path, account: str) -> int:
    found = {one["id"]: one["balance_nano_usd"] for one in operate(folder, "accounts.list")["accounts"]}
    return int(found[account])


async def test_x3_500_at_once_on_four_workers_never_overspend(
    start_gate: StartGate, simulator: Simulator, tmp_path: Path
) -> None:
    gate = await start_gate(config_of(simulator))
    for model, tokens in (("equal", TOKENS), ("triple", 3 * TOKENS)):
        script = Script(
            answer=Answer(text=(" x",), input_tokens=1, output_tokens=tokens, usage="always"),
            first_token_s=0.5,
        )
        simulator.push(script, model=model, times=None)

    served = await burst(gate, "equal", "equal")
    assert served[200] >= 45
    assert served[200] + served[402] == REQUESTS
    three = await burst(gate, "triple", "triple")
    assert three[200] >= 1
    assert three[200] + three[402] == REQUESTS
    limited = await burst(gate, "limited", "equal")
    assert limited[200] >= 45
    assert limited[200] + limited[402] == REQUESTS
    await asyncio.sleep(0.5)  # a row is there within half a second

    rows: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for row in await asyncio.to_thread(gate.usage):
        rows[row["key"]].append(row)
    assert len(rows["equal"]) == served[200]
    assert all(row["cost_nano_usd"] == RESERVED_NANO for row in rows["equal"])
    assert not any(row["shortfall_nano_usd"] for row in rows["equal"])
    assert balance(tmp_path, "equal") == CREDIT_NANO - served[200] * RESERVED_NANO >= 0

    charged = sum(row["cost_nano_usd"] for row in rows["triple"])
    assert len(rows["triple"]) == three[200]
    assert all(
        row["cost_nano_usd"] + row["shortfall_nano_usd"] == row["list_cost_nano_usd"] == 3 * RESERVED_NANO
        for row in rows["triple"]
    )
    assert balance(tmp_path, "triple") == CREDIT_NANO - charged >= 0
    assert charged > CREDIT_NANO - RESERVED_NANO, "no credit is left that a request could have had"

    spent = sum(row["cost_nano_usd"] for row in rows["limited"])
    assert len(rows["limited"]) == limited[200]
    assert spent == limited[200] * RESERVED_NANO <= CREDIT_NANO
    assert balance(tmp_path, "rich") == 1000 * 10**9 - spent

    # A reservation that is freed in one worker is usable at once in every other.
    simulator.push(Script(status=400, message="no"), model="failing", times=None)
    for _ in range(60):
        answer = await ask(
            gate.url, PATH, chat("failing", max_tokens=TOKENS), key=key_of("one"), timeout_s=WAIT_S
        )
        assert answer.status == 400, answer.body


async def test_limits_by_command_hold_at_once_and_cannot_be_below_what_is_spent(
    start_gate: StartGate, simulator: Simulator, tmp_path: Path
) -> None:
    gate = await start_gate(make_config(simulator, server={"workers": 2}))
    folder = gate.config.parent

    async def spend(tokens: int) -> int:
        simulator.push(Script(answer=Answer(text=(" x",), input_tokens=1, output_tokens=tokens)))
        key = "sg-test-key-0123456789abcdef"
        answer = await ask(
            gate.url, PATH, chat("m", stream=False, max_tokens=tokens), key=key, timeout_s=WAIT_S
        )
        if answer.status != 200:
            simulator.clear()
        return answer.status

    def limit(**changes: int | None) -> dict[str, Any]:
        key: dict[str, Any] = operate(folder, "keys.limit", key="test", **changes)["key"]
        return key

    assert await spend(1000) == 200  # 2,001,000 nano-USD
    await asyncio.sleep(0.5)
    for window in ("day", "week", "month", "lifetime"):
        told = await asyncio.to_thread(refusal_of, folder, f"{window}_nano", 2_000_999)
        assert told.startswith(f"{window}_usd: key 'test' has spent 0.002001 USD ")
        assert limit(rpm=1000)[f"{window}_nano_usd"] is None, "nothing changed"
    assert limit(day_nano=2_001_000)["day_nano_usd"] == 2_001_000
    assert await spend(1) == 402
    limit(day_nano=3_000_000, month_nano=2_500_000)
    assert await spend(1000) == 402
    assert await spend(150) == 200
    limit(day_nano=None, month_nano=None)
    assert await spend(1000) == 200

    text = gate.config.read_text()
    config = json.loads(text)
    config["keys"][0]["week_usd"] = 0.0001
    gate.config.write_text(json.dumps(config))
    await asyncio.sleep(0.5)
    told = await asyncio.to_thread(refusal_of, folder, None, 0)
    assert told.startswith("keys: test: week_usd: key 'test' has spent ")
    assert limit(rpm=999)["week_nano_usd"] is None, "nothing changed"
    assert await spend(1000) == 200


def refusal_of(folder: Path, limit: str | None, nano: int) -> str:
    """Return how a limit, or a reload, is refused."""
    try:
        if limit is None:
            operate(folder, "reload")
        else:
            operate(folder, "keys.limit", key="test", **{limit: nano})
    except Exception as error:
        return str(getattr(error, "message", error))
    raise AssertionError("it was not refused")
