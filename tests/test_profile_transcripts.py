"""Every profile in every format tells usage and cost as its transcript has it, and as the contract says of the service
it is named for. Contract C6, C7, C9, B3.
"""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sluicegate.config import load
from sluicegate.errors import ConfigError
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Script
from tests.conftest import StartInProcess, make_config
from tests.fakes import ask, chat
from tests.transcripts.profile_cases import CELLS, FOLDER, Recorder

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"
COST = 9 * 1_000 + 4 * 2_000
"""Of the simulator's own answer to four words."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorder(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Recorder]:
    async with Recorder.at(tmp_path_factory.mktemp("profiles")) as running:
        yield running


@pytest.mark.parametrize(("profile", "format"), CELLS)
async def test_a_profile_tells_what_was_reviewed(recorder: Recorder, profile: str, format: str) -> None:
    reviewed = (FOLDER / profile / f"{format}.txt").read_text()
    assert await recorder.record(profile, format) == reviewed, "make transcripts, and look at it"


@pytest.mark.parametrize(("profile", "format"), CELLS)
async def test_what_was_reviewed_is_what_the_contract_says_C6_C7_C9_B3(profile: str, format: str) -> None:
    text = (FOLDER / profile / f"{format}.txt").read_text()
    parts = dict(re.findall(r"# ([^\n]*)\n(.*?)(?=\n# |\Z)", text, re.DOTALL))
    stream, answer = parts["a stream"], parts["an answer"]
    asked = parts.get("a stream that asks for usage", stream)
    optional = format in ("chat", "completions")
    usage = '"usageMetadata":' if format == "gemini" else '"usage":{'
    assert (usage in stream) == (profile in ("openrelay", "cloakray") or not optional)
    assert usage in asked
    assert usage in answer
    cost = 28 * 1_000 + 12 * 100 + 4 * 2_000
    in_usage = f'"cost":0.0000372,"cost_nano_usd":{cost}'
    beside = f'"openrelay":{{"cost_nano_usd":{cost},"priced_at":"online"}}'
    for told in (asked, answer):
        assert told.count(in_usage) == (profile in ("default", "cloakray")), told
        assert told.count(beside) == (profile == "openrelay"), told
        assert told.count("cost_nano_usd") == (profile not in ("relaykit", "rutoken")), told
    header = {
        "default": f"x-sluicegate-cost-nano-usd: {cost}",
        "cloakray": f"x-sluicegate-cost-nano-usd: {cost}",
        "openrelay": f"openrelay-cost-nano-usd: {cost}",
    }.get(profile)
    assert ("cost-nano-usd" in answer) == (header is not None)
    assert header is None or answer.startswith(header)
    assert "cost-nano-usd" not in asked, "a stream carries no cost header"
    for cut in ("the client leaves after two words", "the provider breaks off after two words"):
        assert ("charged 0 nano-USD" in parts[cut]) == (profile == "openrelay")


@pytest.mark.asyncio(loop_scope="function")
async def test_single_switches_of_server_and_key(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    """The server's switches hold where the key says nothing; the key's go before them, and before its profile."""
    stream = {"cost": "extension", "cost_extension_key": "acme", "cost_header": "X-Acme-Cost"}
    keys = [
        {"name": "plain", "key": "sg-plain-0123456789abcdef", "balance_usd": 5},
        {
            "name": "own",
            "key": "sg-own-0123456789abcdef",
            "balance_usd": 5,
            "profile": "openrelay",
            "usage_chunk": "on_request",
            "cost": "usage",
            "cost_header": "",
            "on_disconnect": "produced",
        },
    ]
    gate = await start_inprocess(make_config(simulator, stream=stream, keys=keys))
    told = {}
    for name in ("plain", "own"):
        simulator.push(Script(answer=Answer(text=(" a", " b", " c", " d"))), times=2)
        key = f"sg-{name}-0123456789abcdef"
        plain = await ask(gate.url, CHAT, chat("m", stream=False), key=key)
        streamed = await ask(gate.url, CHAT, chat("m"), key=key)
        assert b'"usage":{' not in streamed.body
        told[name] = plain
    assert told["plain"].json()["acme"] == {"cost_nano_usd": COST, "priced_at": "online"}
    assert told["plain"].header("x-acme-cost") == str(COST)
    assert "cost" not in told["plain"].json()["usage"]
    assert told["own"].json()["usage"]["cost_nano_usd"] == COST
    assert not {"acme", "openrelay"} & set(told["own"].json())
    assert not [name for name, _ in told["own"].headers if "cost" in name]


@pytest.mark.parametrize("place", ["stream", "key"])
async def test_an_unknown_profile_is_refused(tmp_path: Path, place: str) -> None:
    key: dict[str, Any] = {"name": "k", "key": "sg-plain-0123456789abcdef"}
    config: dict[str, Any] = {"keys": [key], "stream": {}}
    (key if place == "key" else config["stream"])["profile"] = "openrelais"
    path = tmp_path / "sluicegate.yaml"
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError) as refused:
        load(path, {})
    assert ("keys[0].profile" if place == "key" else "stream.profile") in str(refused.value)
    assert "openrelay" in str(refused.value)
