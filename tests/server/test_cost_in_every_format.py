"""B1: streamed cost = unstreamed cost = price × usage, in every format, against the same sum in decimals."""

import json
import random
from typing import Any

import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Script
from tests.billing.decimals import cost_nano_usd
from tests.conftest import KEY, StartInProcess, make_config
from tests.fakes import Response, ask

FORMATS = ("chat", "completions", "responses", "messages", "gemini")
PROMPT = [{"role": "user", "content": "Hello"}]
MODELS = 6


def body_of(format: str, model: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """Return path and body of a request in a format."""
    if format == "gemini":
        action = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/v1beta/models/{model}:{action}", {
            "contents": [{"role": "user", "parts": [{"text": "Hello"}]}]
        }
    common: dict[str, Any] = {"model": model, "stream": stream}
    if format == "messages":
        return "/v1/messages", {**common, "max_tokens": 100, "messages": PROMPT}
    if format == "responses":
        return "/v1/responses", {**common, "input": "Hello"}
    if stream:
        common["stream_options"] = {"include_usage": True}
    if format == "chat":
        return "/v1/chat/completions", {**common, "messages": PROMPT}
    return "/v1/completions", {**common, "prompt": "Hello"}


def told_nano(response: Response) -> int:
    """Return the cost that an answer tells, streamed or not."""
    text = response.body.decode()
    if response.header("content-type") == "application/json":
        found = _cost(json.loads(text))
        assert response.header("x-sluicegate-cost-nano-usd") == str(found)
        assert found is not None
        return found
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    costs = [cost for event in events if (cost := _cost(event)) is not None]
    assert len(costs) == 1, "the cost is told once, at the end"
    return costs[0]


def _cost(value: Any) -> int | None:
    if isinstance(value, dict):
        if "cost_nano_usd" in value:
            return int(value["cost_nano_usd"])
        return next((found for inner in value.values() if (found := _cost(inner)) is not None), None)
    return None


def random_price(rng: random.Random) -> dict[str, Any]:
    def rate() -> float:
        return rng.choice((rng.randrange(10**6) / 10**6, rng.randrange(10**4) / 100, 0))

    price: dict[str, Any] = {"input": rate(), "output": rate()}
    for name in ("cache_read", "cache_write", "reasoning"):
        if rng.random() < 0.6:
            price[name] = rate()
    if rng.random() < 0.3:
        price["per_request"] = rng.randrange(10**6) / 10**9
    if rng.random() < 0.5:
        price["tiers"] = [{"above_input_tokens": rng.randrange(1, 4000), "input": rate(), "output": rate()}]
    return price


def random_parts(rng: random.Random, format: str) -> dict[str, int]:
    parts = {name: rng.randrange(2000) for name in ("fresh", "read", "write_5m", "text", "reasoning")}
    parts["fresh"] += 1
    parts["text"] += 1
    if format in ("gemini", "completions"):
        parts["write_5m"] = 0
    return parts


@pytest.mark.parametrize("provider_format", FORMATS)
async def test_b1_streamed_cost_is_unstreamed_cost_is_price_times_usage(
    start_inprocess: StartInProcess, simulator: Simulator, provider_format: str
) -> None:
    rng = random.Random(provider_format)
    prices = {f"m{number}": random_price(rng) for number in range(MODELS)}
    gate = await start_inprocess(
        make_config(
            simulator,
            providers={"sim": {"base_url": simulator.base_url, "speaks": [provider_format], "auth": "none"}},
            models={
                model: {"routes": [{"provider": "sim", "model": "x"}], "price": price}
                for model, price in prices.items()
            },
            keys=[{"name": "test", "key": KEY, "balance_usd": 1000000}],
        )
    )
    expected: list[int] = []
    for model, price in prices.items():
        for client_format in {provider_format, rng.choice(FORMATS), rng.choice(FORMATS)}:
            parts = random_parts(rng, provider_format)
            answer = Answer(
                reasoning=(" think",) if provider_format != "completions" else (),
                text=(" hello", " world"),
                input_tokens=parts["fresh"] + parts["read"] + parts["write_5m"],
                cache_read_tokens=parts["read"],
                cache_write_tokens=parts["write_5m"] or None,
                output_tokens=parts["text"] + parts["reasoning"],
                reasoning_tokens=parts["reasoning"],
            )
            nano = cost_nano_usd(price, parts)
            for stream in (True, False):
                simulator.push(Script(answer=answer))
                path, body = body_of(client_format, model, stream=stream)
                response = await ask(gate.url, path, body, key=KEY)
                assert response.status == 200, response.body
                assert told_nano(response) == nano, (client_format, stream, price, parts)
                expected.append(nano)
    rows = gate.rows()
    assert [row.cost_nano_usd for row in rows] == expected
    assert not any(row.shortfall_nano_usd or row.usage_odd for row in rows)
