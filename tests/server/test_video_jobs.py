"""Video jobs, through whole gates: held when they are made, told by ids of ours, settled once when they have ended."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Video

from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.endpoints import form_of
from sluicegate.simulator.script import Send, Wait
from tests.conftest import KEY, StartGate, make_config
from tests.fakes import Client, ask, request_bytes
from tests.gate import RunningGate
from tests.jobs_world import JobsGate, jobs_gate

pytestmark = pytest.mark.filterwarnings("ignore:The Sora API:DeprecationWarning")
OTHER_KEY = "sg-other-key-0123456789abcdef"
PRICE = {"per_video_second": [{"size": "720x1280", "usd": 0.1}, {"size": "1024x1792", "usd": 0.5}]}
NANO_PER_SECOND = 100_000_000
DEAREST_NANO_PER_SECOND = 500_000_000


def config_of(simulator: Simulator, poll_every: str = "0.2s", **changes: Any) -> dict[str, Any]:
    route = {"routes": [{"provider": "sim", "model": "their-sora"}], "price": PRICE}
    keys = [
        {"name": "test", "key": KEY, "balance_usd": 5},
        {"name": "other", "key": OTHER_KEY, "balance_usd": 5},
    ]
    return make_config(
        simulator, models={"sora-2": route}, keys=keys, jobs={"poll_every": poll_every}, **changes
    )


def client_of(gate: JobsGate, key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=gate.url + "/v1", api_key=key, max_retries=0)


@pytest.fixture
async def gate(simulator: Simulator, tmp_path: Path) -> AsyncIterator[JobsGate]:
    """A gate that asks after jobs by itself."""
    async with jobs_gate(tmp_path, config_of(simulator)) as running:
        yield running


@pytest.fixture
async def slow_gate(simulator: Simulator, tmp_path: Path) -> AsyncIterator[JobsGate]:
    """A gate that asks after jobs once, and then leaves it to clients."""
    async with jobs_gate(tmp_path, config_of(simulator, poll_every="60s")) as running:
        yield running


@pytest.fixture
async def rich_gate(simulator: Simulator, tmp_path: Path) -> AsyncIterator[JobsGate]:
    """The same for a key with more credit."""
    config = config_of(simulator, poll_every="60s")
    async with jobs_gate(
        tmp_path, config | {"keys": [{"name": "test", "key": KEY, "balance_usd": 50}]}
    ) as running:
        yield running


async def test_a_video_by_the_sdk_from_its_prompt_to_its_last_byte(
    simulator: Simulator, slow_gate: JobsGate
) -> None:
    gate = slow_gate
    simulator.jobs.polls = 3
    async with client_of(gate) as client, client_of(gate, OTHER_KEY) as stranger:
        video = await client.videos.create(model="sora-2", prompt="A cat", seconds="8", size="720x1280")
        assert (video.status, video.seconds, video.model) == ("queued", "8", "sora-2")
        assert video.id.startswith("video_sg0")
        sent = simulator.requests[-1]
        assert b"their-sora" in sent.body
        assert b"sora-2" not in sent.body
        with pytest.raises(openai.BadRequestError, match="cannot be deleted"):
            await client.videos.delete(video.id)
        assert await gate.rows() == []
        done = await client.videos.poll(video.id, poll_interval_ms=20)
        assert (done.id, done.status, done.progress) == (video.id, "completed", 100)
        (row,) = await gate.rows()  # settled before it was told
        assert (row.status, row.cost_nano_usd) == ("ok", 8 * NANO_PER_SECOND)
        assert (row.usage.media_ms, row.client_format) == (8000, "videos")

        content = await client.videos.download_content(video.id)
        assert len(content.content) == 8000
        assert content.response.headers["content-type"] == "video/mp4"
        assert content.response.headers["content-length"] == "8000"
        part = await client.videos.download_content(video.id, extra_headers={"range": "bytes=100-299"})
        assert part.response.status_code == 206
        assert part.content == content.content[100:300]
        assert part.response.headers["content-range"] == "bytes 100-299/8000"
        with pytest.raises(openai.APIStatusError) as past:
            await client.videos.download_content(video.id, extra_headers={"range": "bytes=8000-"})
        assert past.value.status_code == 416
        assert past.value.code == "range_not_satisfiable"

        for id in (video.id, "video_unknown", simulator.jobs.ids("video")[0]):
            with pytest.raises(openai.NotFoundError):
                await stranger.videos.retrieve(id)
            with pytest.raises(openai.NotFoundError):
                await stranger.videos.download_content(id)
            with pytest.raises(openai.NotFoundError):
                await stranger.videos.delete(id)
        assert [one.id async for one in stranger.videos.list()] == []
        deleted = await client.videos.delete(video.id)
        assert (deleted.id, deleted.deleted) == (video.id, True)
        with pytest.raises(openai.NotFoundError):
            await client.videos.retrieve(video.id)
    assert len(await gate.rows()) == 1


async def test_own_videos_are_listed_in_pages_in_either_order(
    simulator: Simulator, slow_gate: JobsGate
) -> None:
    gate = slow_gate
    async with client_of(gate) as client, client_of(gate, OTHER_KEY) as stranger:
        made = [await client.videos.create(prompt=f"Cat {at}", size="720x1280") for at in range(3)]
        await stranger.videos.create(prompt="A dog")
        ids = [video.id for video in made]
        assert [video.id async for video in client.videos.list(limit=2, order="asc")] == ids
        assert [video.id async for video in client.videos.list(limit=2)] == ids[::-1]
        page = await client.videos.list(limit=2, after=ids[2])
        assert ([video.id for video in page.data], page.has_more) == ([ids[1], ids[0]], False)
        with pytest.raises(openai.BadRequestError, match="limit"):
            await client.videos.list(limit=101)


async def test_a_video_that_nobody_asks_for_is_settled_by_our_own_poll(
    simulator: Simulator, gate: JobsGate
) -> None:
    simulator.jobs.polls = 2
    body = {"model": "sora-2", "prompt": "A cat", "seconds": 6, "size": "1024x1792"}
    answer = await ask(gate.url, "/v1/videos", body, key=KEY)
    assert answer.status == 200
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("ok", 6 * 5 * NANO_PER_SECOND)
    assert row.request_id == answer.header("x-request-id")


async def test_a_failed_video_is_free_and_its_credit_free_again(simulator: Simulator, gate: JobsGate) -> None:
    simulator.jobs.fails = True
    body = {"model": "sora-2", "prompt": "A cat", "seconds": 12, "size": "1024x1792"}  # 6 USD
    short = await ask(gate.url, "/v1/videos", body, key=KEY)
    assert (short.status, short.json()["error"]["code"]) == (402, "insufficient_balance")
    body["seconds"] = 8  # 4 of 5 USD
    assert (await ask(gate.url, "/v1/videos", body, key=KEY)).status == 200
    row = (await gate.wait_for_rows(1))[-1]
    assert (row.status, row.error, row.cost_nano_usd) == ("upstream_error", "moderation_blocked", 0)
    simulator.jobs.fails = False
    assert (await ask(gate.url, "/v1/videos", body, key=KEY)).status == 200
    row = (await gate.wait_for_rows(2))[-1]
    assert row.cost_nano_usd == 8 * 5 * NANO_PER_SECOND
    assert (await ask(gate.url, "/v1/videos", body, key=KEY)).status == 402


async def test_x6_a_job_survives_a_restart_with_what_it_holds(simulator: Simulator, tmp_path: Path) -> None:
    config = config_of(simulator, poll_every="60s")
    body = {"model": "sora-2", "prompt": "A cat", "seconds": 8, "size": "1024x1792"}  # 4 of 5 USD
    simulator.jobs.polls = 2
    async with jobs_gate(tmp_path, config) as gate:
        made = await ask(gate.url, "/v1/videos", body, key=KEY)
        (job,) = await gate.jobs()
        assert job.job is not None
        assert (job.job.amount_nano, gate.free()) == (8 * 5 * NANO_PER_SECOND, NANO_PER_SECOND * 10)
        assert (await ask(gate.url, "/v1/videos", body, key=KEY)).status == 402
    async with jobs_gate(tmp_path, config) as gate:
        assert [row.status for row in await gate.rows()] == []  # it was not settled as interrupted
        assert gate.free() == NANO_PER_SECOND * 10
        assert (await ask(gate.url, "/v1/videos", body, key=KEY)).status == 402
        async with client_of(gate) as client:
            done = await client.videos.poll(made.json()["id"], poll_interval_ms=10)
        assert done.status == "completed"
        (row,) = await gate.rows()
        assert (row.cost_nano_usd, row.started_at) == (8 * 5 * NANO_PER_SECOND, job.job.row.started_at)
        assert (await gate.store.verify()).clean
    async with jobs_gate(tmp_path, config_of(simulator)) as gate:
        await asyncio.sleep(0.5)
        assert len(await gate.rows()) == 1
        assert await gate.jobs() == []


async def test_x6_a_killed_worker_takes_no_job_with_it(simulator: Simulator, start_gate: StartGate) -> None:
    gate = await start_gate(config_of(simulator, poll_every="0.5s"))
    simulator.jobs.polls = 1_000_000
    body = {"model": "sora-2", "prompt": "A cat", "seconds": 8, "size": "1024x1792"}  # 4 of 5 USD
    made = await ask(gate.url, "/v1/videos", body, key=KEY)
    assert made.status == 200
    (worker,) = gate_workers(gate)
    os.kill(worker, signal.SIGKILL)
    async with asyncio.timeout(60):
        while gate_workers(gate) in ([], [worker]):
            await asyncio.sleep(0.1)
    assert await retried(gate, body) == 402  # it is held still
    assert stored_rows(gate) == []
    for id in simulator.jobs.ids("video"):
        simulator.jobs.finish(id)
    async with asyncio.timeout(60):
        while not (rows := stored_rows(gate)):
            await asyncio.sleep(0.1)
    assert rows == [("ok", 8 * 5 * NANO_PER_SECOND)]


def stored_rows(gate: RunningGate) -> list[tuple[str, int]]:
    """Return status and charge of every row, without the cost of a command."""
    with contextlib.closing(sqlite3.connect(gate.config.parent / "sluicegate.db")) as database:
        return database.execute("SELECT status, cost_nano_usd FROM usage").fetchall()


async def retried(gate: RunningGate, body: dict[str, Any]) -> int:
    """Return the status of a request, asked for until somebody serves it."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError, EOFError):
                answer = await ask(gate.url, "/v1/videos", body, key=KEY)
                if answer.status != 503:
                    return answer.status
            await asyncio.sleep(0.1)


def gate_workers(gate: RunningGate) -> list[int]:
    """Return the worker processes of a gate."""
    found = []
    for child in Path(f"/proc/{gate.child.pid}/task/{gate.child.pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if b"--control-fd" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"seconds": "many"}, "seconds"),
        ({"seconds": 0}, "seconds"),
        ({"size": "large"}, "size"),
        ({"input_reference": "x"}, "input_reference"),
        ({"model": 5}, "model"),
    ],
)
async def test_a_wrong_request_is_refused_before_anything_is_held(
    simulator: Simulator, gate: JobsGate, changes: dict[str, Any], param: str
) -> None:
    body = {"model": "sora-2", "prompt": "A cat"} | changes
    answer = await ask(gate.url, "/v1/videos", body, key=KEY)
    assert (answer.status, answer.json()["error"]["param"]) == (400, param)
    assert not simulator.requests
    assert gate.gate.records == []


async def test_a_video_is_made_anew_by_the_sdk(simulator: Simulator, slow_gate: JobsGate) -> None:
    async with client_of(slow_gate) as client:
        video = await client.videos.create(prompt="A cat", seconds="8", size="720x1280")
        with pytest.raises(openai.BadRequestError, match="done"):
            await client.videos.remix(video.id, prompt="A dog")
        await client.videos.poll(video.id, poll_interval_ms=10)
        other = await client.videos.remix(video.id, prompt="A dog")
        assert other.id != video.id
        assert (other.remixed_from_video_id, other.seconds) == (video.id, "8")
        asked = simulator.requests[-1]
        assert asked.path == f"/v1/videos/{simulator.jobs.ids('video')[0]}/remix"
        assert asked.body == b'{"prompt":"A dog"}'
        (job,) = await slow_gate.jobs()
        assert job.job is not None
        assert job.job.amount_nano == 8 * NANO_PER_SECOND
        with pytest.raises(openai.NotFoundError):
            await client.videos.remix("video_unknown", prompt="A dog")
    assert len(await slow_gate.rows()) == 1


async def edit(client: openai.AsyncOpenAI, how: str = "edits", **body: Any) -> Video:
    """Ask for another video: this SDK's own method takes none by its id, although it says so."""
    return await client.post(f"/videos/{how}", body=body, cast_to=Video)


async def test_a_video_is_edited_and_gone_on_with(simulator: Simulator, slow_gate: JobsGate) -> None:
    gate = slow_gate
    async with client_of(gate) as client, client_of(gate, OTHER_KEY) as stranger:
        video = await client.videos.create(prompt="A cat", seconds="8", size="720x1280")
        with pytest.raises(openai.BadRequestError, match="done") as early:
            await edit(client, prompt="In snow", video={"id": video.id})
        assert early.value.param == "video.id"
        await client.videos.poll(video.id, poll_interval_ms=10)
        edited = await edit(client, prompt="In snow", video={"id": video.id})
        (theirs, _) = simulator.jobs.ids("video")
        assert simulator.requests[-1].path == "/v1/videos/edits"
        assert json.loads(simulator.requests[-1].body) == {"prompt": "In snow", "video": {"id": theirs}}
        (job,) = await gate.jobs()
        assert job.job is not None
        assert job.job.amount_nano == 8 * NANO_PER_SECOND
        done = await client.videos.poll(edited.id, poll_interval_ms=10)
        assert (done.seconds, done.model) == ("8", "sora-2")
        longer = await edit(client, "extensions", prompt="It leaves", seconds="4", video={"id": edited.id})
        assert simulator.requests[-1].path == "/v1/videos/extensions"
        (job,) = await gate.jobs()
        assert job.job is not None
        assert job.job.amount_nano == 4 * NANO_PER_SECOND
        whole = await client.videos.poll(longer.id, poll_interval_ms=10)
        assert whole.seconds == "12"
        with pytest.raises(openai.NotFoundError):
            await edit(stranger, prompt="Mine", video={"id": video.id})
        with pytest.raises(openai.NotFoundError):
            await edit(client, "extensions", prompt="More", seconds="4", video={"id": theirs})
    rows = await gate.rows()
    assert [row.client_format for row in rows] == ["videos", "video_edit", "video_extension"]
    assert [row.cost_nano_usd // NANO_PER_SECOND for row in rows] == [8, 8, 4]
    assert gate.held() == 0


@pytest.mark.parametrize("size", [3_000, 5_000_000], ids=["small", "large"])
async def test_a_video_is_sent_to_be_edited_and_gone_on_with_by_the_sdk(
    simulator: Simulator, rich_gate: JobsGate, size: int
) -> None:
    gate = rich_gate
    sent = bytes(range(250)) * (size // 250)
    async with client_of(gate) as client:
        edited = await client.videos.edit(prompt="In snow", video=("a.mp4", sent))
        assert form_of(simulator.requests[-1].body) == {"prompt": "In snow", "video": sent}
        (job,) = await gate.jobs()
        assert job.job is not None
        assert job.job.amount_nano == 20 * DEAREST_NANO_PER_SECOND
        if size > 1_000_000:
            return
        done = await client.videos.poll(edited.id, poll_interval_ms=10)
        assert (done.seconds, done.model) == ("3", "sora-2")
        longer = await client.videos.extend(prompt="It leaves", seconds="4", video=("a.mp4", sent))
        whole = await client.videos.poll(longer.id, poll_interval_ms=10)
        assert whole.seconds == "7"
        with pytest.raises(openai.BadRequestError) as wrong:
            await client.videos.extend(prompt="It leaves", seconds="x", video=("a.mp4", sent))  # type: ignore[arg-type]
        assert wrong.value.param == "seconds"
    rows = await gate.rows()
    assert [row.cost_nano_usd // NANO_PER_SECOND for row in rows] == [3, 4]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("edits", {"prompt": "x"}, "video"),
        ("edits", {"prompt": "x", "video": "video_1"}, "video"),
        ("edits", {"prompt": "x", "video": {}}, "video.id"),
        ("edits", {"video": {"id": "{id}"}}, "prompt"),
        ("extensions", {"prompt": "x", "video": {"id": "{id}"}}, "seconds"),
        ("extensions", {"prompt": "x", "video": {"id": "{id}"}, "seconds": "many"}, "seconds"),
    ],
)
async def test_a_wrong_edit_is_refused_before_anything_is_held(
    simulator: Simulator, slow_gate: JobsGate, path: str, body: dict[str, Any], param: str
) -> None:
    async with client_of(slow_gate) as client:
        video = await client.videos.create(prompt="A cat", size="720x1280")
        await client.videos.poll(video.id, poll_interval_ms=10)
    count = len(simulator.requests)
    asked = json.dumps(body).replace("{id}", video.id).encode()
    answer = await ask(slow_gate.url, f"/v1/videos/{path}", asked, key=KEY)
    assert (answer.status, answer.json()["error"]["param"]) == (400, param)
    assert len(simulator.requests) == count
    assert slow_gate.held() == 0
    wrong = await ask(slow_gate.url, f"/v1/videos/{path}", method="GET", key=KEY)
    assert wrong.status == 405


async def test_a_picture_goes_with_the_form(simulator: Simulator, slow_gate: JobsGate) -> None:
    picture = bytes(range(256)) * 1200
    async with client_of(slow_gate) as client:
        video = await client.videos.create(
            model="sora-2", prompt="A cat", size="720x1280", input_reference=("cat.png", picture, "image/png")
        )
    assert video.id.startswith("video_sg0")
    sent = simulator.requests[-1].body
    assert picture in sent
    assert b"their-sora" in sent


async def test_who_leaves_pays_for_the_video_that_was_made(simulator: Simulator, gate: JobsGate) -> None:
    """Its client has gone before the provider has answered."""
    simulator.push(Script(steps=(Wait(s=0.3), Send(text=LATE)), framing="chunked"), path="/videos")
    simulator.jobs.keep_video("video_late", seconds=4, size="720x1280")
    async with await Client.connect(gate.url) as leaving:
        leaving.send(request_bytes("/v1/videos", {"model": "sora-2", "prompt": "A cat"}, key=KEY))
        await simulator.wait_for_requests(1)
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("ok", 4 * NANO_PER_SECOND)


LATE = '{"id":"video_late","object":"video","status":"queued","seconds":"4","size":"720x1280"}'
