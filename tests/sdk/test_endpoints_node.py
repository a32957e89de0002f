"""The official Node SDKs, unmodified, on the endpoints that give no text (T2)."""

import asyncio
import json
from pathlib import Path

from sluicegate.simulator import Simulator
from sluicegate.simulator.endpoints import vector
from tests.conftest import KEY, StartInProcess, make_config
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks

SCRIPT = Path(__file__).with_name("endpoints.mjs")
PRICE = {"input": 1, "output": 4}


@needs_node_sdks
async def test_every_endpoint_by_the_node_sdks(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(
        make_config(
            simulator,
            providers={"sim": {"base_url": simulator.base_url, "speaks": ["chat"], "auth": "none"}},
            models={"embed": {"routes": [{"provider": "sim", "model": "theirs"}], "price": PRICE}},
        )
    )
    command = [NODE, str(SCRIPT), gate.url, KEY]
    pipe = asyncio.subprocess.PIPE
    node = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, trouble = await asyncio.wait_for(node.communicate(), 60)
    assert not trouble, trouble.decode()
    seen = json.loads(out)
    assert seen["embeddings"] == seen["google"] == [vector("one"), vector("two")]
    assert seen["numbers"] == vector("one")
    assert seen["moderation"] is False
    assert seen["images"] == ["a fox", "a fox"]
    assert seen["previews"] == ["image_generation.partial_image", "image_generation.completed"]
    assert seen["edited"] == "100 bytes snow"
    assert seen["speech"] == {"type": "audio/mpeg", "sound": " H e l l o ."}
    assert seen["heard"] == "I heard 1000 bytes"
    assert seen["words"] == ["transcript.text.delta"] * 4 + ["transcript.text.done"]
    assert seen["refused"] == {"name": "BadRequestError", "status": 400, "param": "input"}
    rows = await gate.wait_for_rows(10)
    assert all(row.status == "ok" and row.cost_nano_usd > 0 for row in rows)
    assert len(rows) == 10
