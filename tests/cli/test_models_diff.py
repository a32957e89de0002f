"""`sluicegate models diff`: what a file would change about the prices in force."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sluicegate.simulator import Simulator
from tests.conftest import StartGate, make_config

CONFIG = """
providers: {openai: {base_url: "https://api.openai.com/v1"}}
models:
  mini: {routes: [{provider: openai, model: gpt-4o-mini}]}
  own: {routes: [{provider: openai, model: gpt-4o}], price: {input: 1, output: 2}}
"""
PRICES = """
until: 2099-01-01
prices: {openai: {gpt-4o-mini: {input: 0.1, output: 0.9, cache_read: 0.075, per_web_search: 0.01}}}
"""


def diff(config: Path, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "sluicegate", "models", "diff", *arguments, "-c", str(config)]
    run = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_a_price_file_against_the_configuration(tmp_path: Path) -> None:
    config, prices = tmp_path / "sluicegate.yaml", tmp_path / "prices.yaml"
    config.write_text(CONFIG)
    prices.write_text(PRICES)
    found = diff(config, str(prices))
    price = {
        change["rate"]: (change["old"], change["new"]) for change in found if change["what"] == "price mini"
    }
    until = "from 4070908800.0: "
    assert price == {
        "input": (150_000_000, 100_000_000),
        "output": (600_000_000, 900_000_000),
        f"{until}input": (None, 150_000_000),
        f"{until}output": (None, 600_000_000),
        f"{until}cache_read": (None, 75_000_000),
        f"{until}per_web_search": (None, 10_000_000),
    }
    assert {change["what"] for change in found} == {"price mini", "cost openai/gpt-4o-mini"}
    assert diff(config) == []


def test_another_configuration(tmp_path: Path) -> None:
    config, other = tmp_path / "sluicegate.yaml", tmp_path / "other.yaml"
    config.write_text(CONFIG)
    other.write_text(CONFIG.replace("output: 2", "output: 2.5, service_tiers: {flex: 0.5}"))
    assert diff(config, str(other)) == [
        {"what": "price own", "rate": "output", "old": 2 * 10**9, "new": 25 * 10**8},
        {"what": "price own", "rate": "service tier flex", "old": None, "new": 500_000},
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prices: {}", "until: is required"),
        ("until: 2099-01-01\nprices: {openai: {x: {input: -1, output: 1}}}", "must not be negative"),
        ("until: 2099-01-01\nprices: {openai: {x: {input: 1}}}", "output is missing"),
        ("until: 2099-01-01\nfrom: 2099-01-02\nprices: {}", "until must be after from"),
    ],
)
def test_a_wrong_price_file_is_told(tmp_path: Path, text: str, told: str) -> None:
    config, prices = tmp_path / "sluicegate.yaml", tmp_path / "prices.yaml"
    config.write_text(CONFIG)
    prices.write_text(text)
    command = [sys.executable, "-m", "sluicegate", "models", "diff", str(prices), "-c", str(config)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert told in run.stderr
    assert "prices.yaml" in run.stderr


async def test_the_running_gate_is_compared_with_what_is_written(
    start_gate: StartGate, simulator: Simulator, tmp_path: Path
) -> None:
    gate = await start_gate(make_config(simulator))
    assert diff(gate.config) == []
    text = gate.config.read_text()
    gate.config.write_text(text.replace('"output": 2\n', '"output": 3\n', 1))
    assert diff(gate.config) == [{"what": "price m", "rate": "output", "old": 2 * 10**9, "new": 3 * 10**9}]
