"""Edits of pictures as JSON, which names its pictures: by address, by file, or as data."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.endpoints import INPUT_IMAGE_TOKENS, native_picture
from sluicegate.wire.sse import EventReader
from tests.conftest import KEY, StartInProcess, make_config
from tests.fakes import ask
from tests.jobs_world import JobsGate, jobs_gate

EDITS = "/v1/images/edits"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
DATA_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
OTHER_KEY = "sk-other-key-of-the-tests-0123456789"
PRICE = {"input": 1, "output": 10, "output_image": 30}


def config_of(simulator: Simulator, **changes: Any) -> dict[str, Any]:
    providers = {
        "sim": {"base_url": simulator.base_url, "speaks": ["chat"], "auth": "none"},
        "google": {"base_url": simulator.url, "speaks": ["gemini"], "auth": "none"},
    }
    models = {
        "pictures": {"routes": [{"provider": "sim", "model": "their-model"}], "price": PRICE},
        "banana": {"routes": [{"provider": "google", "model": "gemini-3-pro-image"}], "price": PRICE},
        "imagen": {"routes": [{"provider": "google", "model": "imagen-4.0"}], "price": PRICE},
        "both": {
            "routes": [
                {"provider": "google", "model": "gemini-3-pro-image", "priority": 0},
                {"provider": "sim", "model": "their-model", "priority": 1},
            ],
            "price": PRICE,
        },
    }
    keys = [
        {"name": "test", "key": KEY, "balance_usd": 5},
        {"name": "other", "key": OTHER_KEY, "balance_usd": 5},
    ]
    return make_config(simulator, providers=providers, models=models, keys=keys, **changes)


@pytest.fixture
async def gate(simulator: Simulator, tmp_path: Path) -> AsyncIterator[JobsGate]:
    """A gate that knows files."""
    async with jobs_gate(tmp_path, config_of(simulator)) as running:
        yield running


async def test_a_body_passes_as_it_came_but_for_the_model(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    asked = {
        "model": "pictures",
        "prompt": "snow",
        "images": [{"image_url": DATA_URL}, {"image_url": "https://example.com/a.png"}],
        "mask": {"image_url": DATA_URL},
        "n": 2,
        "strange": [1],
    }
    answer = await ask(gate.url, EDITS, asked, key=KEY)
    assert answer.status == 200
    assert base64.b64decode(answer.json()["data"][1]["b64_json"]) == b"2 pictures snow"
    assert json.loads(simulator.requests[-1].body) == asked | {"model": "their-model"}
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.client_format, row.usage.images) == ("ok", "image_edits", 2)
    assert answer.json()["usage"]["cost_nano_usd"] == row.cost_nano_usd > 0


async def test_previews_of_an_edit_pass(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(config_of(simulator))
    asked = {"model": "pictures", "prompt": "snow", "images": [{"image_url": DATA_URL}], "stream": True}
    answer = await ask(gate.url, EDITS, asked | {"partial_images": 1}, key=KEY)
    events = [json.loads(event.data) for event in EventReader().feed(answer.body)]
    assert [event["type"] for event in events] == ["image_edit.partial_image", "image_edit.completed"]
    (row,) = await gate.wait_for_rows(1)
    assert events[-1]["usage"]["cost_nano_usd"] == row.cost_nano_usd > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_gemini_model_gets_the_data(
    simulator: Simulator, start_inprocess: StartInProcess, stream: bool
) -> None:
    gate = await start_inprocess(config_of(simulator))
    asked = {"model": "banana", "prompt": "snow", "images": [{"image_url": DATA_URL}], "stream": stream}
    answer = await ask(gate.url, EDITS, asked, key=KEY)
    if stream:
        (event,) = EventReader().feed(answer.body)
        told = json.loads(event.data)
        assert told["type"] == "image_edit.completed"
        picture = told["b64_json"]
    else:
        picture = answer.json()["data"][0]["b64_json"]
    assert base64.b64decode(picture) == native_picture(f"{len(PNG)} bytes snow")
    (row,) = await gate.wait_for_rows(1)
    assert row.usage.input_image_tokens == INPUT_IMAGE_TOKENS


async def test_an_address_is_fetched_for_a_gemini_model_where_that_is_allowed(
    simulator: Simulator, start_inprocess: StartInProcess, picture_host: str
) -> None:
    host = picture_host.removeprefix("http://")
    asked = {"model": "banana", "prompt": "snow", "images": [{"image_url": f"{picture_host}/a.png"}]}
    media = {"fetch": True, "allow_hosts": [host]}
    gate = await start_inprocess(config_of(simulator, media=media))
    answer = await ask(gate.url, EDITS, asked, key=KEY)
    assert base64.b64decode(answer.json()["data"][0]["b64_json"]) == native_picture(f"{len(PNG)} bytes snow")
    careful = await start_inprocess(config_of(simulator))
    refused = await ask(careful.url, EDITS, asked, key=KEY)
    assert (refused.status, refused.json()["error"]["param"]) == (400, "images[0].image_url")
    assert len(simulator.requests) == 1
    other = await ask(careful.url, EDITS, asked | {"model": "both"}, key=KEY)  # the next provider fetches
    assert base64.b64decode(other.json()["data"][0]["b64_json"]) == b"1 pictures snow"


@pytest.fixture
async def picture_host() -> AsyncIterator[str]:
    """Where a picture lies."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(PNG) + PNG)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_x1_files_are_the_accounts_own(simulator: Simulator, gate: JobsGate) -> None:
    client = openai.AsyncOpenAI(base_url=gate.url + "/v1", api_key=KEY, max_retries=0)
    async with client:
        file = await client.files.create(file=("a.png", PNG), purpose="vision")
    named = {"prompt": "snow", "images": [{"file_id": file.id}], "mask": {"file_id": file.id}}
    answer = await ask(gate.url, EDITS, named | {"model": "pictures"}, key=KEY)
    assert answer.status == 200
    sent = json.loads(simulator.requests[-1].body)
    (theirs,) = simulator.jobs.ids("file")
    assert sent["images"] == [{"file_id": theirs}]
    assert sent["mask"] == {"file_id": theirs}
    count = len(simulator.requests)
    for key, id in ((OTHER_KEY, file.id), (KEY, theirs), (KEY, "file-nobodys")):
        body = named | {"model": "pictures", "images": [{"file_id": id}]}
        unknown = await ask(gate.url, EDITS, body, key=key)
        assert unknown.status == 404
    both = await ask(gate.url, EDITS, named | {"model": "both"}, key=KEY)  # only its keeper is asked
    assert both.status == 200
    elsewhere = await ask(gate.url, EDITS, named | {"model": "banana"}, key=KEY)
    assert elsewhere.status == 400
    assert len(simulator.requests) == count + 1
    rows = await gate.wait_for_rows(2)
    assert [row.status for row in rows] == ["ok", "ok"]


GOOD = {"model": "pictures", "prompt": "snow", "images": [{"image_url": DATA_URL}]}
WRONG = [
    ({"model": None}, 400, "model"),
    ({"prompt": None}, 400, "prompt"),
    ({"images": None}, 400, "images"),
    ({"images": []}, 400, "images"),
    ({"images": "x"}, 400, "images"),
    ({"images": [{"image_url": DATA_URL}] * 17}, 400, "images"),
    ({"images": [5]}, 400, "images[0]"),
    ({"images": [{"image_url": DATA_URL}, {}]}, 400, "images[1]"),
    ({"images": [{"image_url": DATA_URL, "file_id": "x"}]}, 400, "images[0]"),
    ({"images": [{"image_url": "ftp://x"}]}, 400, "images[0].image_url"),
    ({"images": [{"image_url": 5}]}, 400, "images[0].image_url"),
    ({"mask": {"image_url": "nothing"}}, 400, "mask.image_url"),
    ({"n": 11}, 400, "n"),
    ({"size": "wide"}, 400, "size"),
    ({"quality": "best"}, 400, "quality"),
    ({"model": "banana", "mask": {"image_url": DATA_URL}}, 400, "mask"),
    (
        {"model": "banana", "images": [{"image_url": "data:text/plain;base64,AAAA"}]},
        400,
        "images[0].image_url",
    ),
    ({"model": "imagen"}, 400, "model"),
    ({"model": "nobody"}, 404, "model"),
]


@pytest.mark.parametrize(("changes", "status", "param"), WRONG)
async def test_what_is_wrong_is_told_and_nothing_is_charged(
    simulator: Simulator,
    start_inprocess: StartInProcess,
    changes: dict[str, Any],
    status: int,
    param: str,
) -> None:
    gate = await start_inprocess(config_of(simulator))
    answer = await ask(gate.url, EDITS, GOOD | changes, key=KEY)
    assert (answer.status, answer.json()["error"]["param"]) == (status, param)
    assert not simulator.requests
    assert all(row.cost_nano_usd == 0 for row in gate.rows())


async def test_c8_a_key_that_comes_twice_is_refused(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    """One size would be priced, and another be made."""
    gate = await start_inprocess(config_of(simulator))
    body = json.dumps(GOOD | {"size": "1024x1024"}).replace('"size"', '"size":"4096x4096","size"').encode()
    answer = await ask(gate.url, EDITS, body, key=KEY)
    assert (answer.status, answer.json()["error"]["param"]) == (400, "size")


async def test_imagen_streams_what_it_made(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(config_of(simulator))
    asked = {"model": "imagen", "prompt": "a fox", "n": 2, "stream": True}
    answer = await ask(gate.url, "/v1/images/generations", asked, key=KEY)
    events = [json.loads(event.data) for event in EventReader().feed(answer.body)]
    assert [event["type"] for event in events] == ["image_generation.completed"] * 2
    assert [base64.b64decode(event["b64_json"]) for event in events] == [b"a fox"] * 2
    assert len(simulator.requests) == 1
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage.images) == ("ok", 2)
