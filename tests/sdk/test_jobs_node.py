"""The official `openai` Node SDK, unmodified, on videos, files and batches (T2)."""

import asyncio
import json
from pathlib import Path

from sluicegate.simulator import Simulator
from tests.conftest import KEY, make_config
from tests.jobs_world import jobs_gate
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks

SCRIPT = Path(__file__).with_name("jobs.mjs")
VIDEO_PRICE = {"per_video_second": [{"size": "720x1280", "usd": 0.1}]}
TEXT_PRICE = {"input": 1, "output": 2, "service_tiers": {"batch": 0.5}}


@needs_node_sdks
async def test_videos_files_and_batches_by_the_node_sdk(simulator: Simulator, tmp_path: Path) -> None:
    route = [{"provider": "sim", "model": "theirs"}]
    config = make_config(
        simulator,
        models={
            "sora-2": {"routes": route, "price": VIDEO_PRICE},
            "big": {"routes": route, "price": TEXT_PRICE},
        },
        jobs={"poll_every": "60s"},
    )
    async with jobs_gate(tmp_path, config) as gate:
        pipe = asyncio.subprocess.PIPE
        command = [NODE, str(SCRIPT), gate.url, KEY]
        node = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        out, trouble = await asyncio.wait_for(node.communicate(), 60)
        shown = [
            text for text in trouble.decode().splitlines() if "eprecat" not in text and "trace-" not in text
        ]
        assert not shown, trouble.decode()
        seen = json.loads(out)
        assert seen["video"]["model"] == "sora-2"
        assert seen["video"]["id"].startswith("video_sg0")
        assert seen["bytes"] == 4000
        assert seen["edited"] == ["4", "12"]
        assert seen["listed"] == [seen["video"]["id"]]
        assert seen["deleted"] is True
        assert seen["unknown"] == 404
        assert seen["results"] == ["a"]
        assert True in seen["batches"]
        assert seen["files"] >= 1
        assert seen["dropped"] is True
        rows = await gate.wait_for_rows(4)
        kinds = ["batches", "video_edit", "video_extension", "videos"]
        assert sorted(row.client_format for row in rows) == kinds
        assert all(row.status == "ok" and row.cost_nano_usd > 0 for row in rows)
