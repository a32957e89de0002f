"""What the official Node SDKs and the Vercel AI SDK make of searches that another vendor's tool made.

Translation matrix, sections 24 and 25; wire formats page `node-sdks.md`.
"""

import asyncio
import json
from pathlib import Path

from sluicegate.simulator import Script, Simulator
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.grid.test_searches import ANSWER, LAKES, RIVERS, TEXT
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks

SCRIPT = Path(__file__).with_name("searches.mjs")
QUERIES = [search.query for search in ANSWER.searches]


@needs_node_sdks
async def test_t3_searches(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    simulator.push(Script(answer=ANSWER), times=None)
    formats = ("messages", "gemini")
    providers = {
        format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"} for format in formats
    }
    models = {
        f"gpt-5-{format}": {"routes": [{"provider": format, "model": "up"}], "price": PRICE}
        for format in formats
    }
    gate = await start_inprocess(make_config(simulator, providers=providers, models=models))
    pipe = asyncio.subprocess.PIPE
    command = [NODE, str(SCRIPT), gate.url, KEY, "gpt-5-messages", "gpt-5-gemini"]
    node = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, trouble = await asyncio.wait_for(node.communicate(), 100)
    assert node.returncode == 0, trouble.decode()
    told = json.loads(out)
    assert told["responses"] == {"text": TEXT, "kinds": ["web_search_call", "web_search_call", "message"]}
    assert told["messages"]["text"] == TEXT
    assert told["messages"]["kinds"] == ["text", *["server_tool_use", "web_search_tool_result"] * 2]
    assert told["gemini"] == {"text": TEXT, "queries": QUERIES}
    for name in ("openai", "anthropic", "google"):
        seen = told["ai"][name]
        assert (seen["text"], seen["finish"]) == (TEXT, "stop"), name
        assert seen["sources"] == [RIVERS[0], LAKES[0]], name
