"""The Vercel AI SDK's default conversation (Responses, kept, told by ids) at providers that keep nothing.

Wire formats page `node-sdks.md`; `responses.md`, "State".
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate.simulator import Script, SimulatorProcess
from sluicegate.simulator.answer import Answer, ToolCall
from tests.conftest import KEY, PRICE, make_config
from tests.gate import RunningGate, run_gate
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks

SCRIPT = Path(__file__).with_name("kept.mjs")
FORMATS = ("chat", "messages", "gemini")
SIGNATURE = "U0lHTkFUVVJF"
ANSWERS = (
    Answer(
        reasoning=("Let me", " look"),
        signature=SIGNATURE,
        tool_calls=(ToolCall(name="weather", arguments=('{"city":', '"Paris"}'), id="call_1"),),
        finish="tool_calls",
    ),
    Answer(text=("It", " is.")),
    Answer(text=("Quite", " sure.")),
    Answer(text=("You are", " welcome.")),
)
SAID = ["It is.", "Quite sure.", "You are welcome."]


@pytest.fixture(scope="module")
def provider() -> Iterator[SimulatorProcess]:
    with SimulatorProcess() as simulator:
        yield simulator


@pytest.fixture(scope="module")
def gate(provider: SimulatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGate]:
    models: dict[str, Any] = {
        f"gpt-5-{format}-{how}": {
            "routes": [{"provider": format, "model": f"{format}-{how}"}],
            "price": PRICE,
        }
        for format in FORMATS
        for how in ("plain", "streamed")
    }
    providers = {
        format: {"base_url": provider.base_url, "speaks": [format], "auth": "none"} for format in FORMATS
    }
    config = make_config(
        provider,
        server={"workers": 2},
        responses_store={"enabled": True},
        providers=providers,
        models=models,
    )
    with run_gate(tmp_path_factory.mktemp("kept"), json.dumps(config)) as running:
        yield running


@needs_node_sdks
@pytest.mark.parametrize("how", ["plain", "streamed"])
async def test_t3_a_conversation_by_ids(gate: RunningGate, provider: SimulatorProcess, how: str) -> None:
    for format in FORMATS:
        for answer in ANSWERS:
            provider.push(Script(answer=answer), model=f"{format}-{how}")
    models = [f"gpt-5-{format}-{how}" for format in FORMATS]
    pipe = asyncio.subprocess.PIPE
    command = [NODE, str(SCRIPT), gate.url, KEY, how, *models]
    node = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, trouble = await asyncio.wait_for(node.communicate(), 120)
    assert node.returncode == 0, trouble.decode()
    for model, line in zip(models, out.decode().splitlines(), strict=True):
        told = json.loads(line)
        assert (told["model"], told["texts"], told["steps"]) == (model, SAID, ["tool-calls", "stop"])
        assert len(set(told["ids"])) == 3
        asked = told["kinds"]
        assert [one.get("store") in (None, True) for one in asked] == [True] * 4
        assert "item_reference" in asked[1]["items"], "the SDK takes what it got for kept"
        assert (asked[3]["previous"], asked[3]["items"]) == (told["ids"][1], ["user"])
    seen = [request for request in provider.requests() if str(request["model"]).endswith(how)]
    for format in FORMATS:
        bodies = [request["body"] for request in seen if request["model"] == f"{format}-{how}"]
        assert len(bodies) == 4
        whole = bodies[-1]
        places = [
            whole.find(word)
            for word in (
                "dry in Paris?",
                "call_1",
                "dry in Paris",
                "It is.",
                "Are you sure?",
                "Quite sure.",
                "Thank",
            )
        ]
        assert -1 not in places, (format, whole)
        order = [places[0], *places[3:]]
        assert order == sorted(order), "as it was said"
        if format != "chat":
            assert SIGNATURE in whole, "and what was thought before the call"
