"""Pictures of Gemini models behind OpenAI's endpoints, end to end: what is asked, what comes back, what is charged."""

import base64
import json
from typing import Any

import openai
import pytest

from sluicegate.errors import DecodeError
from sluicegate.messages import Usage
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.endpoints import IMAGE_TOKENS, INPUT_IMAGE_TOKENS, native_picture, tokens
from sluicegate.wire import Bill
from sluicegate.wire.translation import Asked
from sluicegate.wire.unary import google_images
from sluicegate.wire.unary.google_images import Wish
from sluicegate.wire.unary.made_pictures import MadePictures
from tests.conftest import KEY, StartInProcess, make_config
from tests.fakes import Client, ask
from tests.inprocess import InProcessGate
from tests.server.test_uploads import form, head, post

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
LARGE_PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 16_384
PRICE = {"input": 0.3, "output": 2.5, "output_image": 30}
NANO_PER_INPUT, NANO_PER_IMAGE_TOKEN = 300, 30_000


def config_of(simulator: Simulator, **changes: Any) -> dict[str, Any]:
    row = {"base_url": simulator.url, "speaks": ["gemini"], "auth": "none"}
    openai_row = {"base_url": simulator.base_url, "speaks": ["chat"], "auth": "none"}
    route = {"routes": [{"provider": "sim", "model": "gemini-2.5-flash-image"}], "price": PRICE}
    pro = {"provider": "sim", "model": "gemini-3-pro-image"}
    per_picture = {"input": 0, "output": 0, "per_image": [{"size": "1024x1024", "usd": 0.04}, {"usd": 0.08}]}
    models = {
        "banana": route,
        "several": {**route, "max_calls": 4},
        "pro": {"routes": [pro], "price": PRICE, "max_calls": 4},
        "pieces": {**route, "price": per_picture, "max_calls": 10},
        "told": {
            "routes": [{"provider": "sim", "model": "my-painter"}],
            "price": PRICE,
            "capabilities": {"native_images": True, "image_ratios": ["1:1", "1:2"], "image_sizes": ["2K"]},
        },
        "both": {
            "routes": [
                {"provider": "sim", "model": "gemini-2.5-flash-image", "priority": 0},
                {"provider": "openai", "model": "gpt-image-2", "priority": 1},
            ],
            "price": PRICE,
        },
    }
    return make_config(simulator, providers={"sim": row, "openai": openai_row}, models=models, **changes)


def client_of(gate: InProcessGate) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=gate.url + "/v1", api_key=KEY, max_retries=0)


def pictures_of(answer: Any) -> list[bytes]:
    return [base64.b64decode(one.b64_json) for one in answer.data]


async def test_a_picture_made_of_a_text(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        answer = await client.images.generate(
            model="banana", prompt="a fox", size="1536x1024", response_format="b64_json"
        )
    assert pictures_of(answer) == [native_picture("a fox")]
    assert answer.output_format == "png"
    (request,) = simulator.requests
    assert request.path.endswith("/models/gemini-2.5-flash-image:generateContent")
    assert json.loads(request.body) == {
        "contents": [{"role": "user", "parts": [{"text": "a fox"}]}],
        "generationConfig": {"responseModalities": ["IMAGE"], "imageConfig": {"aspectRatio": "3:2"}},
    }
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == tokens("a fox") * NANO_PER_INPUT + IMAGE_TOKENS * NANO_PER_IMAGE_TOKEN
    assert (row.status, row.usage_source, row.provider_format) == ("ok", "reported", "gemini_native_images")
    usage = answer.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (tokens("a fox"), IMAGE_TOKENS)
    assert usage.output_tokens_details is not None
    assert usage.output_tokens_details.image_tokens == IMAGE_TOKENS
    assert usage.model_extra is not None
    assert usage.model_extra["cost_nano_usd"] == row.cost_nano_usd


@pytest.mark.parametrize(
    ("model", "size", "config"),
    [
        ("pro", "1024x1024", {"aspectRatio": "1:1", "imageSize": "1K"}),
        ("pro", "1024x1792", {"aspectRatio": "9:16", "imageSize": "1K"}),
        ("pro", "2048x2048", {"aspectRatio": "1:1", "imageSize": "2K"}),
        ("pro", "4096x4096", {"aspectRatio": "1:1", "imageSize": "4K"}),
        ("banana", "2560x1080", {"aspectRatio": "21:9"}),
        ("told", "512x1024", {"aspectRatio": "1:2", "imageSize": "2K"}),
        ("banana", "auto", None),
        ("banana", None, None),
    ],
)
async def test_a_size_becomes_the_nearest_that_the_model_makes(
    simulator: Simulator, start_inprocess: StartInProcess, model: str, size: str | None, config: Any
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = {"model": model, "prompt": "a fox"} | ({} if size is None else {"size": size})
    answer = await ask(gate.url, "/v1/images/generations", body, key=KEY)
    assert answer.status == 200
    assert json.loads(simulator.requests[-1].body)["generationConfig"].get("imageConfig") == config


async def test_several_pictures_take_several_calls_and_make_one_bill(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        raw = await client.images.with_raw_response.generate(model="several", prompt="a fox", n=3)
        answer = raw.parse()
        assert len(pictures_of(answer)) == 3
        assert raw.headers["x-sluicegate-dropped"] == "n;3 calls"
        with pytest.raises(openai.BadRequestError, match="'n'") as refused:
            await client.images.generate(model="banana", prompt="a fox", n=2)
    assert refused.value.param == "n"
    assert len(simulator.requests) == 3
    row, _ = await gate.wait_for_rows(2)
    assert row.usage.output_tokens == 3 * IMAGE_TOKENS
    assert row.usage.images == 3
    assert answer.usage is not None
    assert answer.usage.total_tokens == 3 * (IMAGE_TOKENS + tokens("a fox"))


async def test_pictures_sold_by_the_piece(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        await client.images.generate(model="pieces", prompt="a fox", n=2, size="1024x1024")
        await client.images.generate(model="pieces", prompt="a fox")
    rows = await gate.wait_for_rows(2)
    assert [row.cost_nano_usd for row in rows] == [80_000_000, 80_000_000]


async def test_what_a_model_has_no_word_for_is_told_or_refused(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = {"model": "banana", "prompt": "a fox", "quality": "high", "user": "u", "background": "auto"}
    answer = await ask(gate.url, "/v1/images/generations", body, key=KEY)
    assert answer.header("x-sluicegate-dropped") == (
        "quality;the model has no such setting, user;not supported"
    )
    refused = await ask(gate.url, "/v1/images/generations", body | {"response_format": "url"}, key=KEY)
    assert (refused.status, refused.json()["error"]["param"]) == (400, "response_format")
    assert len(simulator.requests) == 1
    (row, refusal) = await gate.wait_for_rows(2)
    assert (row.status, refusal.status, refusal.cost_nano_usd) == ("ok", "rejected", 0)


def answer_of(**changes: Any) -> Script:
    answer = {"candidates": [{"content": {"parts": [], "role": "model"}, "finishReason": "STOP"}]}
    return Script(body=json.dumps(answer | changes))


USAGE = {"promptTokenCount": 7, "totalTokenCount": 7}
BLOCKED = ("content_policy_violation", "filter held the picture back")
REFUSALS = [
    ({"candidates": [{"finishReason": "IMAGE_SAFETY"}], "usageMetadata": USAGE}, *BLOCKED),
    ({"candidates": [{"finishReason": "PROHIBITED_CONTENT", "content": {}}]}, *BLOCKED),
    ({"candidates": [{"finishReason": "IMAGE_RECITATION"}]}, *BLOCKED),
    ({"candidates": None, "promptFeedback": {"blockReason": "SAFETY"}}, *BLOCKED),
    ({"candidates": [{"finishReason": "NO_IMAGE"}]}, None, "no picture"),
    ({"candidates": [{"finishReason": "MAX_TOKENS"}]}, None, "no picture"),
    (
        {"candidates": [{"content": {"parts": [{"text": "I cannot."}]}, "finishReason": "STOP"}]},
        None,
        "I cannot",
    ),
]


@pytest.mark.parametrize(("changes", "code", "message"), REFUSALS)
@pytest.mark.parametrize("stream", [False, True])
async def test_e1_a_model_that_makes_no_picture_is_an_error_and_free(
    simulator: Simulator,
    start_inprocess: StartInProcess,
    changes: dict[str, Any],
    code: str | None,
    message: str,
    stream: Any,
) -> None:
    gate = await start_inprocess(config_of(simulator))
    simulator.push(answer_of(**changes))
    async with client_of(gate) as client:
        with pytest.raises(openai.BadRequestError, match=message) as refused:
            await client.images.generate(model="banana", prompt="a fox", stream=stream)
    assert refused.value.code == code
    assert refused.value.type == "invalid_request_error"
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("rejected", 0)
    assert len(simulator.requests) == 1
    assert not gate.provider_costs()


@pytest.mark.parametrize(
    "broken",
    [
        answer_of(candidates=[{"finishReason": "OTHER"}]),
        answer_of(candidates=[]),
        Script(body="[]"),
        Script(body='{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}'),
        Script(status=500, message="no"),
    ],
)
async def test_r2_a_provider_that_fails_is_followed_by_the_next(
    simulator: Simulator, start_inprocess: StartInProcess, broken: Script
) -> None:
    gate = await start_inprocess(config_of(simulator))
    simulator.push(broken, path="gemini-2.5-flash-image")
    async with client_of(gate) as client:
        answer = await client.images.generate(model="both", prompt="a fox")
    assert pictures_of(answer) == [b"a fox"]
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.provider, row.attempts) == ("ok", "openai", 2)


async def test_b2_a_call_that_is_refused_among_others_is_not_charged_as_a_picture(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    simulator.push(answer_of(candidates=[{"finishReason": "IMAGE_SAFETY"}], usageMetadata=USAGE))
    async with client_of(gate) as client:
        answer = await client.images.generate(model="pieces", prompt="a fox", n=3, size="1024x1024")
    assert len(pictures_of(answer)) == 2
    (row,) = await gate.wait_for_rows(1)
    assert (row.usage.images, row.cost_nano_usd) == (2, 80_000_000)
    assert row.usage.input_tokens == 7 + 2 * tokens("a fox")


async def test_b2_more_pictures_than_were_asked_for_are_not_charged(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    part = {"inlineData": {"mimeType": "image/jpeg", "data": base64.b64encode(b"\xff\xd8\xff1").decode()}}
    thought = {"thought": True, "inlineData": part["inlineData"]}
    parts = [{"text": "Here:"}, thought, part, part]
    simulator.push(answer_of(candidates=[{"content": {"parts": parts}, "finishReason": "STOP"}]))
    async with client_of(gate) as client:
        answer = await client.images.generate(model="pieces", prompt="a fox", size="1024x1024")
    assert pictures_of(answer) == [b"\xff\xd8\xff1"] * 2
    assert answer.output_format == "jpeg"
    (row,) = await gate.wait_for_rows(1)
    assert (row.usage.images, row.cost_nano_usd) == (1, 40_000_000)


@pytest.mark.parametrize("n", [1, 3])
async def test_who_streams_gets_each_picture_as_it_is_whole(
    simulator: Simulator, start_inprocess: StartInProcess, n: int
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        stream = await client.images.generate(
            model="several", prompt="a fox", stream=True, partial_images=2, n=n
        )
        events = [event async for event in stream]
    assert [event.type for event in events] == ["image_generation.completed"] * n
    assert [base64.b64decode(event.b64_json) for event in events] == [native_picture("a fox")] * n
    (row,) = await gate.wait_for_rows(1)
    assert row.usage.output_tokens == n * IMAGE_TOKENS
    last = events[-1]
    assert last.type == "image_generation.completed"
    assert (last.output_format, last.usage.output_tokens) == ("png", IMAGE_TOKENS)
    assert last.usage.model_extra is not None
    assert last.usage.model_extra["cost_nano_usd"] == row.cost_nano_usd > n * IMAGE_TOKENS * 30_000
    assert all(request.header("accept") == "application/json" for request in simulator.requests)


async def gather_types(stream: Any, seen: list[str]) -> None:
    async for event in stream:
        seen.append(event.type)


async def test_e2_a_call_that_fails_after_a_picture_ends_the_stream_with_an_error(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    healthy = Script()
    for script in (healthy, healthy, Script(status=500, message="no")):
        simulator.push(script)
    async with client_of(gate) as client:
        stream = await client.images.generate(model="several", prompt="a fox", stream=True, n=3)
        seen: list[str] = []
        with pytest.raises(openai.APIError):
            await gather_types(stream, seen)
    assert seen == ["image_generation.completed"]
    (row,) = await gate.wait_for_rows(1)
    assert row.status == "upstream_error"


async def test_a_path_of_the_providers_own_is_asked(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    config = config_of(simulator)
    config["providers"]["sim"]["paths"] = {"gemini": "/v1/projects/p/models/{model}:generateContent"}
    gate = await start_inprocess(config)
    async with client_of(gate) as client:
        answer = await client.images.generate(model="banana", prompt="a fox")
    assert pictures_of(answer) == [native_picture("a fox")]
    (request,) = simulator.requests
    assert request.path == "/v1/projects/p/models/gemini-2.5-flash-image:generateContent"


GARBAGE = [
    b"", b"null", b"5", b"[]", b"{}", b"{", b"\xff\xfe", b"[" * 5_000,
    b'{"candidates":5}', b'{"candidates":[5]}', b'{"candidates":[{"content":{"parts":[{"inlineData":{"data":5}}]}}]}',
    b'{"candidates":[{"content":{"parts":[{"inlineData":"x"}]}}]}', b'{"candidates":[{"content":[]}]}',
    b'{"predictions":5}', b'{"predictions":[{"bytesBase64Encoded":5}]}', b'{"predictions":[null]}',
    b'{"predictions":[]}',
]  # fmt: skip


@pytest.mark.parametrize("target", [google_images.NATIVE, google_images.PREDICT])
@pytest.mark.parametrize("body", GARBAGE)
def test_what_is_no_answer_is_the_providers_fault(target: str, body: bytes) -> None:
    with pytest.raises(DecodeError):
        google_images.reader_of(target)(body)


def test_an_odd_answer_is_read_as_far_as_it_goes() -> None:
    picture = {"inlineData": {"data": "!!no base64!!"}, "thought": "x"}
    candidate = {"content": {"parts": [picture]}, "finishReason": 5}
    body = {
        "candidates": [candidate],
        "usageMetadata": {"promptTokenCount": "x"},
        "responseId": 7,
        "error": None,
    }
    call = google_images.reader_of(google_images.NATIVE)(json.dumps(body).encode())
    assert (call.pictures, call.usage, call.refusal, call.id) == (["!!no base64!!"], None, None, None)
    made = MadePictures([call], Wish("x"), Asked(model="public", id="id", created=1))
    told = json.loads(made.encode(Bill(Usage())))
    assert told["data"] == [{"b64_json": "!!no base64!!"}]
    assert "output_format" not in told


# ---- edits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("picture", [PNG, LARGE_PNG], ids=["small", "large"])
@pytest.mark.parametrize("stream", [False, True])
async def test_pictures_are_edited(
    simulator: Simulator, start_inprocess: StartInProcess, picture: bytes, stream: Any
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        edited = await client.images.edit(
            model="several",
            image=[("a.png", picture), ("b.jpg", b"\xff\xd8\xff" + SHORT)],
            prompt="more snow",
            n=2,
            size="1024x1024",
            stream=stream,
        )
        if stream:
            events = [event async for event in edited]
            assert [event.type for event in events] == ["image_edit.completed"] * 2
            made = [base64.b64decode(event.b64_json) for event in events]
        else:
            made = pictures_of(edited)
    text = f"{len(picture)} bytes {len(SHORT) + 3} bytes more snow"
    assert made == [native_picture(text)] * 2
    sent = json.loads(simulator.requests[-1].body)["contents"][0]["parts"]
    assert [part["inlineData"]["mimeType"] for part in sent[1:]] == ["image/png", "image/jpeg"]
    assert base64.b64decode(sent[1]["inlineData"]["data"]) == picture
    (row,) = await gate.wait_for_rows(1)
    assert row.usage.input_image_tokens == 4 * INPUT_IMAGE_TOKENS
    assert (row.client_format, row.provider_format) == ("image_edits", "gemini_native_images")
    assert row.cost_nano_usd > 2 * IMAGE_TOKENS * NANO_PER_IMAGE_TOKEN


SHORT = b"0123456789"
EDITS = "/v1/images/edits"
WRONG_FORMS = [
    (form(("model", "banana"), ("image", PNG)), 400, "prompt"),
    (form(("model", "banana"), ("image", PNG), ("mask", PNG), ("prompt", "x")), 400, "mask"),
    (form(("model", "banana"), ("image", b"text"), ("prompt", "x")), 400, "image"),
    (form(("model", "banana"), ("image", b""), ("prompt", "x")), 400, "image"),
    (
        form(("model", "banana"), ("response_format", "url"), ("image", PNG), ("prompt", "x")),
        400,
        "response_format",
    ),
    (form(("model", "banana"), ("n", "2"), ("image", PNG), ("prompt", "x")), 400, "n"),
    (form(("model", "banana"), ("prompt", "x"), *[("image[]", PNG)] * 17), 400, "image[]"),
    (form(("model", "banana"), ("prompt", "x"), ("image", LARGE_PNG))[:-9], 400, None),
]


@pytest.mark.parametrize(("body", "status", "param"), WRONG_FORMS)
async def test_what_is_wrong_with_an_edit_is_told_and_nothing_is_charged(
    simulator: Simulator, start_inprocess: StartInProcess, body: bytes, status: int, param: str | None
) -> None:
    gate = await start_inprocess(config_of(simulator))
    answer = await post(gate, EDITS, body)
    assert (answer.status, answer.json()["error"]["param"]) == (status, param)
    assert not simulator.requests
    assert all(row.cost_nano_usd == 0 for row in gate.rows())


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_form_that_is_too_large_to_be_held_is_a_413(
    simulator: Simulator, start_inprocess: StartInProcess, chunked: bool
) -> None:
    gate = await start_inprocess(config_of(simulator, server={"max_body_bytes": 500_000}))
    body = form(("model", "banana"), ("prompt", "x"), ("image", LARGE_PNG))
    if chunked:
        async with await Client.connect(gate.url) as client:
            client.send(head(EDITS, "transfer-encoding: chunked"))
            for at in range(0, len(body), 50_000):
                piece = body[at : at + 50_000]
                client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            answer = await client.response(method="POST")
    else:
        answer = await post(gate, EDITS, body)
    assert answer.status == 413
    assert "500000" in answer.json()["error"]["message"]
    assert not simulator.requests


async def test_a_form_is_held_for_the_next_provider(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    simulator.push(Script(status=500, message="no"), path="gemini-2.5-flash-image")
    async with client_of(gate) as client:
        edited = await client.images.edit(model="both", image=("a.png", LARGE_PNG), prompt="snow")
    assert pictures_of(edited) == [f"{len(LARGE_PNG)} bytes snow".encode()]
    (row,) = await gate.wait_for_rows(1)
    assert (row.provider, row.attempts, row.provider_format) == ("openai", 2, "image_edits")


async def test_a_large_form_passes_on_to_a_provider_that_takes_it_as_it_is(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    """What one provider could only be given whole, and is too large for that, goes to the next as it comes."""
    gate = await start_inprocess(config_of(simulator, server={"max_body_bytes": 500_000}))
    async with client_of(gate) as client:
        edited = await client.images.edit(model="both", image=("a.png", LARGE_PNG), prompt="snow")
    assert pictures_of(edited) == [f"{len(LARGE_PNG)} bytes snow".encode()]
    (row,) = await gate.wait_for_rows(1)
    assert (row.provider, row.attempts) == ("openai", 1)


async def test_r1_a_client_that_leaves_while_its_form_is_waited_for(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = form(("model", "banana"), ("prompt", "x"), ("image", LARGE_PNG))
    async with await Client.connect(gate.url) as client:
        client.send(head(EDITS, f"content-length: {len(body)}") + body[:300_000])
        await simulator.wait_for(lambda: bool(gate.gateway._bench.running))
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("client_closed", 0)
    assert not simulator.requests
    assert gate.gateway._inbound.inflight_bytes == 0
