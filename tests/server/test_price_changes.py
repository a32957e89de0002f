"""A price change never touches a request admitted before it: a reload in mid-stream, and a price with a date."""

import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluicegate.config import load
from sluicegate.errors import ConfigError
from sluicegate.routing import catalog
from sluicegate.routing.catalog_shapes import DatedPrice, Price
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Script, Wait
from tests.conftest import KEY, Connect, StartGate, StartInProcess, make_config
from tests.fakes import ask, chat, request_bytes

PATH = "/v1/chat/completions"
ANSWER = Answer(text=(" one", " two", " three"), input_tokens=10)
SLOW = Script(answer=ANSWER, steps=(Play(stop=2), Wait(s=1.5), Play(start=2)))
OLD_NANO, NEW_NANO = 10 * 1_000 + 3 * 2_000, 10 * 5_000 + 3 * 7_000


async def test_a_reload_in_mid_stream_leaves_the_streams_price(
    start_gate: StartGate, simulator: Simulator, client: Connect
) -> None:
    gate = await start_gate(make_config(simulator))
    simulator.push(SLOW)
    running = await client(gate.url)
    running.send(request_bytes(PATH, chat("m"), key=KEY))
    await running.until_bytes(b" one")
    text = gate.config.read_text()
    changed = text.replace('"input": 1,', '"input": 5,', 1).replace('"output": 2\n', '"output": 7\n', 1)
    gate.config.write_text(changed)
    os.kill(gate.child.pid, signal.SIGHUP)
    ends_at = time.monotonic() + 10
    costs = []
    while time.monotonic() < ends_at and NEW_NANO not in costs:
        simulator.push(Script(answer=ANSWER))
        answer = await ask(gate.url, PATH, chat("m", stream=False), key=KEY)
        costs.append(answer.json()["usage"]["cost_nano_usd"])
    assert costs[-1] == NEW_NANO
    assert set(costs) <= {OLD_NANO, NEW_NANO}
    response = await running.response(timeout_s=10)
    assert response.body.rstrip().endswith(b"data: [DONE]")
    streamed = next(row for row in gate.usage() if row["stream"])
    assert streamed["cost_nano_usd"] == streamed["list_cost_nano_usd"] == OLD_NANO


async def test_a_price_with_a_date_begins_without_a_reload(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    begins_at = datetime.now(UTC) + timedelta(seconds=1)
    price: dict[str, Any] = {
        "input": 1,
        "output": 2,
        "changes": [{"from": begins_at.isoformat(), "input": 5, "output": 7}],
    }
    gate = await start_inprocess(make_config(simulator, models={"m": {"price": price}}))
    simulator.push(SLOW)
    running = await client(gate.url)
    running.send(request_bytes(PATH, chat("m"), key=KEY))
    await running.response(timeout_s=10)
    assert time.time() > begins_at.timestamp(), "it ends after the change"
    simulator.push(Script(answer=ANSWER))
    await ask(gate.url, PATH, chat("m", stream=False), key=KEY)
    assert [row.cost_nano_usd for row in gate.rows()] == [OLD_NANO, NEW_NANO]


NOW = datetime(2026, 12, 15, tzinfo=UTC)


def configured(folder: Path, price_file: str, model: str = "gpt-4o-mini") -> Any:
    (folder / "prices.yaml").write_text(price_file)
    (folder / "sluicegate.yaml").write_text(
        "billing: {catalogue_file: prices.yaml, markup_percent: 10}\n"
        'providers: {p: {base_url: "https://api.openai.com/v1"}}\n'
        f'models: {{m: {{routes: [{{provider: p, model: "{model}"}}]}},\n'
        '  "w/*": {routes: [{provider: p, model: "*"}]}}\n'
    )
    return load(folder / "sluicegate.yaml", {}, NOW).worker_settings(b"", {}).catalogue


BUNDLED = Price(input=165_000_000, output=660_000_000, cache_read=82_500_000, per_web_search=11_000_000)
FILED = Price(input=1_100_000_000, output=2_200_000_000)


def test_a_price_file_holds_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    text = "from: {}\nuntil: {}\nprices: {{openai: {{GPT-4o-mini: {{input: 1, output: 2}}}}}}"
    january, february = 1798761600.0, 1801440000.0
    for asked in ("m", "w/gpt-4o-mini"):
        model = configured(tmp_path, text.format("2026-12-01", "2027-01-01")).find(asked)
        assert (model.price, model.later) == (FILED, (DatedPrice(from_at=january, price=BUNDLED),))
        model = configured(tmp_path, text.format("2027-01-01", "2027-02-01")).find(asked)
        assert model.price == BUNDLED
        assert model.later == (
            DatedPrice(from_at=january, price=FILED),
            DatedPrice(from_at=february, price=BUNDLED),
        )
        served = catalog.Model(model)
        for at, price in (
            (january - 1, BUNDLED),
            (january, FILED),
            (february - 1, FILED),
            (february, BUNDLED),
        ):
            held = served.price_at(at)
            assert held is not None
            assert held.row == price
        model = configured(tmp_path, text.format("2026-11-01", "2026-12-01")).find(asked)
        assert (model.price, model.later) == (BUNDLED, ())


def test_a_price_file_may_name_what_the_list_does_not_have(tmp_path: Path) -> None:
    text = "until: {}\nprices: {{openai: {{brand-new: {{input: 1, output: 2}}}}}}"
    catalogue = configured(tmp_path, text.format("2027-01-01"), "brand-new")
    assert catalogue.find("m").price == catalogue.find("w/brand-new").price == FILED
    with pytest.raises(ConfigError, match="does not list brand-new"):
        configured(tmp_path, text.format("2026-12-01"), "brand-new")


def test_a_wrong_price_file_stops_the_load_and_says_where(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"billing\.catalogue_file: .*prices\.yaml:2: prices\.openai\.x\.input"
    ):
        configured(tmp_path, "until: 2027-01-01\nprices: {openai: {x: {input: 1e12, output: 1}}}")


@pytest.mark.parametrize(
    ("price", "told"),
    [
        ("{input: -1, output: 2}", "input: must not be negative"),
        ("{input: 1000000.1, output: 2}", "input: must be at most 1000000 USD"),
        (
            "{input: 1, output: 2, tiers: [{above_input_tokens: 5}, {above_input_tokens: 5}]}",
            "lowest threshold",
        ),
        (
            "{input: 1, output: 2, tiers: [{above: 5}]}",
            "tiers[0].above: unknown field; there are above_input_tokens",
        ),
        (
            "{input: 1, output: 2, service_tiers: {flex: -0.5}}",
            "service_tiers.flex: must be a factor of 0 to 100",
        ),
        ("{input: 1, output: 2, service_tiers: {flex: 101}}", "must be a factor of 0 to 100"),
        ("{input: 1, output: 2, changes: [{input: 1, output: 2}]}", "changes[0].from: is required"),
        ("{input: 1, output: 2, changes: [{from: 2027-01-01, input: 2}]}", "output is missing"),
        (
            "{input: 1, output: 2, changes: [{from: 2027-01-01, free: true}, {from: 2026-01-01, free: true}]}",
            "earliest first",
        ),
        ("{input: 1, output: 2, per_image: [{size: big}]}", "per_image[0].usd: is required"),
    ],
)
def test_negative_absurd_and_disordered_prices_are_refused(tmp_path: Path, price: str, told: str) -> None:
    path = tmp_path / "sluicegate.yaml"
    path.write_text(
        "providers: {p: {base_url: http://127.0.0.1:1}}\n"
        f"models: {{m: {{routes: [{{provider: p, model: m}}], price: {price}}}}}\n"
    )
    with pytest.raises(ConfigError) as refused:
        load(path, {})
    assert told in refused.value.message
