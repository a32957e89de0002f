"""Every profile in every format tells usage and cost as its transcript has it, and as the contract says of the service
it is named for. Contract C6, C7, C9, B3.
"""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.transcripts.profile_cases import CELLS, FOLDER, Recorder

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
