"""The official OpenAI SDKs, Python (without asyncio) and Node, unmodified, on a Gemini model that makes pictures."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import openai

from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.endpoints import IMAGE_TOKENS
from tests.conftest import KEY, StartInProcess, make_config
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks

SCRIPT = Path(__file__).with_name("pictures.mjs")
PRICE = {"input": 0.3, "output": 2.5, "output_image": 30}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(200_000)


def config_of(simulator: Simulator) -> dict[str, Any]:
    route = [{"provider": "sim", "model": "gemini-2.5-flash-image"}]
    return make_config(
        simulator,
        providers={"sim": {"base_url": simulator.url, "speaks": ["gemini"], "auth": "none"}},
        models={"banana": {"routes": route, "price": PRICE, "max_calls": 4}},
    )


def refusal() -> Script:
    body = {"candidates": [{"content": {"parts": []}, "finishReason": "IMAGE_SAFETY"}]}
    return Script(body=json.dumps(body))


@needs_node_sdks
async def test_pictures_by_the_node_sdk(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(config_of(simulator))
    calls = 2 + 1 + 1 + 1 + 1  # before the prompt that is refused
    for _ in range(calls):
        simulator.push(Script())
    simulator.push(refusal())
    pipe = asyncio.subprocess.PIPE
    node = await asyncio.create_subprocess_exec(NODE, str(SCRIPT), gate.url, KEY, stdout=pipe, stderr=pipe)
    out, trouble = await asyncio.wait_for(node.communicate(), 60)
    assert not trouble, trouble.decode()
    seen = json.loads(out)
    size = 200_008
    assert seen["made"] == ["a fox", "a fox"]
    assert (seen["kind"], seen["tokens"]) == ("png", 2 * IMAGE_TOKENS)
    assert seen["streamed"] == [["image_generation.completed", "a fox", IMAGE_TOKENS]]
    assert seen["edited"] == [f"{size} bytes {size} bytes snow"]
    assert seen["edits"] == [["image_edit.completed", f"{size} bytes snow"]]
    assert seen["named"] == [f"{size} bytes snow"]
    wrong = {"name": "BadRequestError", "status": 400}
    assert seen["refused"] == [
        {**wrong, "param": "response_format", "code": "unsupported_parameter"},
        {**wrong, "param": "n", "code": "unsupported_parameter"},
        {**wrong, "param": None, "code": "content_policy_violation"},
    ]
    rows = await gate.wait_for_rows(8)
    assert [row.status for row in rows] == ["ok"] * 5 + ["rejected"] * 3
    assert all((row.cost_nano_usd > 0) == (row.status == "ok") for row in rows)


def texts_of(pictures: Any) -> list[str]:
    return [base64.b64decode(one.b64_json)[8:].decode() for one in pictures]


def ask_without_asyncio(url: str) -> dict[str, Any]:
    with openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0, timeout=20.0) as sdk:
        made = sdk.images.generate(model="banana", prompt="a fox", n=2)
        edited = sdk.images.edit(model="banana", prompt="snow", image=("a.png", PNG, "image/png"))
        stream = sdk.images.edit(model="banana", prompt="snow", image=[("a.png", PNG)], stream=True, n=2)
        events = list(stream)
        try:
            sdk.images.generate(model="banana", prompt="something forbidden")
        except openai.BadRequestError as error:
            refused = error.code
    return {
        "made": texts_of(made.data),
        "edited": texts_of(edited.data),
        "types": [event.type for event in events],
        "streamed": texts_of(events),
        "refused": refused,
    }


async def test_pictures_by_the_python_sdk_without_asyncio(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    for _ in range(2 + 1 + 2):
        simulator.push(Script())
    simulator.push(refusal())
    seen = await asyncio.to_thread(ask_without_asyncio, gate.url)
    assert seen == {
        "made": ["a fox", "a fox"],
        "edited": ["200008 bytes snow"],
        "types": ["image_edit.completed"] * 2,
        "streamed": ["200008 bytes snow"] * 2,
        "refused": "content_policy_violation",
    }
    assert [row.status for row in await gate.wait_for_rows(4)] == ["ok"] * 3 + ["rejected"]
