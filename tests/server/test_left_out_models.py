"""Requests to endpoints beside text that name no model: the endpoint's own default stands for it where the gate has a
model or an alias of that id, and nothing does else. A name that the client gave stays what it was: unknown.
"""

import json
from pathlib import Path

import pytest

from sluicegate.simulator import Simulator
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import Response, ask
from tests.inprocess import InProcessGate
from tests.jobs_world import jobs_gate
from tests.server.test_uploads import form, post

PICTURE = b"a picture"
FORMS: dict[str, tuple[tuple[str, str | bytes], ...]] = {
    "/v1/images/edits": (("prompt", "more snow"), ("image", PICTURE)),
    "/v1/images/variations": (("image", PICTURE),),
    "/v1/videos": (("prompt", "a cat"),),
    "/v1/videos/edits": (("prompt", "in snow"), ("video", PICTURE)),
    "/v1/videos/extensions": (("prompt", "more"), ("seconds", "4"), ("video", PICTURE)),
    "/v1/audio/transcriptions": (("file", PICTURE),),
}
BODIES = {
    "/v1/images/generations": {"prompt": "a fox"},
    "/v1/images/edits": {"prompt": "a", "images": [{"image_url": "data:image/png;base64,AAAA"}]},
    "/v1/videos": {"prompt": "a cat"},
    "/v1/moderations": {"input": "x"},
    "/v1/embeddings": {"input": "x"},
}


async def send(gate: InProcessGate, path: str, *, as_form: bool, model: str | None = None) -> Response:
    if not as_form:
        return await ask(gate.url, path, BODIES[path] | ({} if model is None else {"model": model}), key=KEY)
    named = () if model is None else (("model", model),)
    response: Response = await post(gate, path, form(*named, *FORMS[path]))
    return response


@pytest.mark.parametrize(
    ("path", "as_form"), [*((path, True) for path in FORMS), *((path, False) for path in BODIES)]
)
async def test_e1_it_is_a_400_that_names_the_field_and_no_model(
    simulator: Simulator, start_inprocess: StartInProcess, path: str, as_form: bool
) -> None:
    gate = await start_inprocess(make_config(simulator))
    answer = await send(gate, path, as_form=as_form)
    error = answer.json()["error"]
    assert (answer.status, error["param"], error["message"]) == (
        400,
        "model",
        "Missing required parameter: 'model'.",
    )
    assert not simulator.requests
    for name in ("sora-2", "dall-e-2", "omni-moderation-latest"):
        named = await send(gate, path, as_form=as_form, model=name)
        assert (named.status, named.json()["error"]["param"]) == (404, "model")
        assert name in named.json()["error"]["message"]
    assert not gate.rows()


async def test_an_alias_stands_for_the_default(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    route = {"routes": [{"provider": "sim", "model": "their-model"}], "price": PRICE}
    models = {"judge": {**route, "aliases": ["omni-moderation-latest"]}}
    gate = await start_inprocess(make_config(simulator, models=models))
    answer = await send(gate, "/v1/moderations", as_form=False)
    assert (answer.status, answer.json()["model"]) == (200, "omni-moderation-latest")
    assert json.loads(simulator.requests[-1].body)["model"] == "their-model"


@pytest.mark.parametrize("path", ["/v1/videos", "/v1/videos/edits", "/v1/videos/extensions"])
async def test_an_alias_stands_for_the_default_of_videos(
    simulator: Simulator, tmp_path: Path, path: str
) -> None:
    price = {"per_video_second": [{"usd": 0.1}]}
    models = {
        "veo": {
            "routes": [{"provider": "sim", "model": "their-veo"}],
            "price": price,
            "aliases": ["sora-2"],
        }
    }
    async with jobs_gate(tmp_path, make_config(simulator, models=models)) as gate:
        answer = await post(gate, path, form(*FORMS[path]))  # type: ignore[arg-type]
        assert answer.status == 200, answer.body
        assert answer.json()["model"] == "sora-2"
