"""Endpoints whose answer is no text, end to end: what reaches the provider, what comes back, what is charged."""

import asyncio
import base64
import json
import struct
from typing import Any

import openai
import pytest
from google import genai
from google.genai import types

from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.endpoints import spoken, tokens, vector
from sluicegate.simulator.script import Close, Event, Reset, Send, Wait
from sluicegate.wire.sse import EventReader
from tests.conftest import KEY, StartInProcess, make_config
from tests.fakes import ask
from tests.inprocess import InProcessGate

PRICE = {"input": 0.1, "output": 0}
PICTURE_PRICE = {
    "input": 0,
    "output": 0,
    "per_image": [
        {"size": "1024x1024", "quality": "low", "usd": 0.01},
        {"size": "1024x1024", "quality": "high", "usd": 0.19},
    ],
}
NANO_PER_TOKEN = 100


def config_of(simulator: Simulator, speaks: str = "chat", **provider: Any) -> dict[str, Any]:
    base_url = simulator.base_url if speaks == "chat" else simulator.url
    row = {"base_url": base_url, "speaks": [speaks], "auth": "none", **provider}
    route = {"routes": [{"provider": "sim", "model": "their-model"}], "price": PRICE}
    models = {
        "embed": route,
        "omni-moderation-latest": route,
        "tokens": {**route, "price": {"input": 5, "output": 40}},
        "pictures": {**route, "price": PICTURE_PRICE},
        "voice": {**route, "price": {"input": 0, "output": 0, "per_character": 0.000015}},
    }
    return make_config(simulator, providers={"sim": row}, models=models)


def client_of(gate: InProcessGate) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=gate.url + "/v1", api_key=KEY, max_retries=0)


def google_of(gate: InProcessGate) -> genai.Client:
    return genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=gate.url))


@pytest.mark.parametrize("speaks", ["chat", "gemini"])
@pytest.mark.parametrize("encoding", ["float", "base64", None])
async def test_t2_embeddings_by_the_openai_sdk(
    simulator: Simulator, start_inprocess: StartInProcess, speaks: str, encoding: Any
) -> None:
    gate = await start_inprocess(config_of(simulator, speaks))
    texts = ["first text", "second", "first text"]
    async with client_of(gate) as client:
        given = {} if encoding is None else {"encoding_format": encoding}
        answer = await client.embeddings.create(model="embed", input=texts, dimensions=4, **given)
    if encoding == "base64":
        assert all(isinstance(entry.embedding, str) for entry in answer.data)
    else:
        assert [entry.embedding for entry in answer.data] == [vector(text, 4) for text in texts]
    assert [entry.index for entry in answer.data] == [0, 1, 2]
    assert answer.model == "embed"
    read = sum(map(tokens, texts))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == read
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == read * NANO_PER_TOKEN
    assert answer.usage.model_extra["cost_nano_usd"] == row.cost_nano_usd
    assert (row.client_format, row.status, row.usage.output_tokens) == ("embeddings", "ok", 0)
    assert row.provider_format == ("embeddings" if speaks == "chat" else "gemini_embeddings")


@pytest.mark.parametrize("speaks", ["chat", "gemini"])
async def test_t2_embeddings_by_the_google_sdk(
    simulator: Simulator, start_inprocess: StartInProcess, speaks: str
) -> None:
    gate = await start_inprocess(config_of(simulator, speaks))
    config = types.EmbedContentConfig(output_dimensionality=4, task_type="RETRIEVAL_QUERY")
    answer = await google_of(gate).aio.models.embed_content(
        model="embed", contents=["one", "another"], config=config
    )
    assert answer.embeddings is not None
    assert [entry.values for entry in answer.embeddings] == [vector("one", 4), vector("another", 4)]
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == (tokens("one") + tokens("another")) * NANO_PER_TOKEN
    sent = json.loads(simulator.requests[-1].body)
    if speaks == "gemini":
        assert [request["taskType"] for request in sent["requests"]] == ["RETRIEVAL_QUERY"] * 2
        assert {request["model"] for request in sent["requests"]} == {"models/their-model"}
    else:
        assert sent == {
            "model": "their-model",
            "input": ["one", "another"],
            "encoding_format": "base64",
            "dimensions": 4,
        }


async def test_embed_content_of_gemini_gives_one_vector_and_tells_what_was_dropped(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = {"content": {"parts": [{"text": "a"}, {"text": "b"}]}, "task_type": "CLUSTERING"}
    answer = await ask(gate.url, "/v1beta/models/embed:embedContent", body, key=KEY)
    assert answer.json()["embedding"]["values"] == vector("a\nb")
    assert answer.header("x-sluicegate-dropped") == "taskType;not supported"


async def test_token_ids_are_embedded_where_they_mean_something(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        answer = await client.embeddings.create(
            model="embed", input=[[1, 2, 3], [4]], encoding_format="float"
        )
    assert [entry.embedding for entry in answer.data] == [vector([1, 2, 3]), vector([4])]
    assert answer.usage.prompt_tokens == 4


async def test_token_ids_cannot_go_to_gemini(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(config_of(simulator, "gemini"))
    answer = await ask(gate.url, "/v1/embeddings", {"model": "embed", "input": [1, 2]}, key=KEY)
    assert (answer.status, answer.json()["error"]["param"]) == (400, "input")
    assert not simulator.requests
    assert all(row.cost_nano_usd == 0 for row in gate.rows())


@pytest.mark.parametrize(("speaks", "most"), [("chat", 2048), ("gemini", 100)])
async def test_a_large_batch_takes_several_calls_and_is_joined_in_order(
    simulator: Simulator, start_inprocess: StartInProcess, speaks: str, most: int
) -> None:
    gate = await start_inprocess(config_of(simulator, speaks))
    texts = [f"text {number}" for number in range(2 * most + 1)]
    async with client_of(gate) as client:
        answer = await client.embeddings.create(model="embed", input=texts)
    assert [entry.embedding for entry in answer.data] == [vector(text) for text in texts]
    assert len(simulator.requests) == 3
    (row,) = await gate.wait_for_rows(1)
    assert row.usage.input_tokens == answer.usage.prompt_tokens == sum(map(tokens, texts))
    assert row.attempts == 1


async def test_a_call_that_fails_in_the_middle_of_a_batch_costs_nothing(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(merge_retry(config_of(simulator, "gemini")))
    simulator.push(Script(), Script(status=400, message="no"))
    texts = [f"text {number}" for number in range(150)]
    async with client_of(gate) as client:
        with pytest.raises(openai.BadRequestError):
            await client.embeddings.create(model="embed", input=texts)
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == 0


def merge_retry(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "retry": {"max_attempts": 1}}


async def test_a_provider_that_ignores_the_encoding_is_put_right(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    """The Node SDK reads numbers as base64, and finds nothing."""
    gate = await start_inprocess(config_of(simulator))
    simulator.push(
        Script(body=json.dumps({"object": "list", "data": [{"index": 0, "embedding": [0.5, -2]}]}))
    )
    answer = await ask(
        gate.url, "/v1/embeddings", {"model": "embed", "input": "x", "encoding_format": "base64"}, key=KEY
    )
    assert answer.json()["data"][0]["embedding"] == base64.b64encode(struct.pack("<2f", 0.5, -2)).decode()


async def test_usage_that_nobody_reports_is_counted(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = json.dumps({"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "model": "m"})
    simulator.push(Script(body=body))
    answer = await ask(gate.url, "/v1/embeddings", {"model": "embed", "input": "hello there"}, key=KEY)
    (row,) = await gate.wait_for_rows(1)
    assert row.usage_source == "counted"
    assert row.usage.input_tokens
    assert answer.json()["data"][0]["embedding"] == [0.5]


async def test_a_large_batch_that_nobody_reports_is_counted_once(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    """Each of its calls has a part of the texts."""
    gate = await start_inprocess(config_of(simulator, "gemini"))
    texts = [f"text {number:03}" for number in range(250)]
    for inputs in (100, 100, 50):
        simulator.push(Script(body=json.dumps({"embeddings": [{"values": [0.5]}] * inputs})))
    body = {"model": "embed", "input": texts}
    answer = await ask(gate.url, "/v1/embeddings", body, key=KEY)
    assert len(answer.json()["data"]) == 250
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage_source) == ("ok", "counted")
    assert row.usage.input_tokens == pytest.approx(len(json.dumps(body)) / 4, abs=2)


async def test_t2_moderation_by_the_sdk_with_the_default_model(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        answer = await client.moderations.create(input=["one", "two"])
    assert (answer.model, len(answer.results), answer.results[0].flagged) == (
        "omni-moderation-latest",
        2,
        False,
    )
    assert json.loads(simulator.requests[-1].body) == {"input": ["one", "two"], "model": "their-model"}


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
async def test_t2_rerank_passes_and_is_charged_by_tokens(
    simulator: Simulator, start_inprocess: StartInProcess, path: str
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = {"model": "embed", "query": "who?", "documents": ["one", {"text": "two"}], "top_n": 1}
    answer = await ask(gate.url, path, body, key=KEY)
    assert (len(answer.json()["results"]), answer.json()["model"]) == (1, "embed")
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == answer.json()["usage"]["total_tokens"] * NANO_PER_TOKEN
    assert answer.json()["usage"]["cost_nano_usd"] == row.cost_nano_usd


# ---- pictures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "usd"),
    [
        ({"size": "1024x1024", "quality": "high"}, 0.19),
        ({"size": "1024x1024", "quality": "low"}, 0.01),
        ({"size": "1536x1024", "quality": "medium", "n": 3}, 3 * 0.19),
    ],
)
async def test_pictures_are_charged_by_size_and_quality(
    simulator: Simulator, start_inprocess: StartInProcess, asked: dict[str, Any], usd: float
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        answer = await client.images.generate(model="pictures", prompt="a fox", **asked)
    assert answer.data is not None
    assert [base64.b64decode(picture.b64_json or "") for picture in answer.data] == [b"a fox"] * asked.get(
        "n", 1
    )
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == round(usd * 1_000_000_000)
    assert row.usage.images == asked.get("n", 1)


async def test_pictures_of_tokens_are_charged_by_what_is_reported(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        answer = await client.images.generate(model="tokens", prompt="a fox in the snow")
    assert answer.usage is not None
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == answer.usage.input_tokens * 5_000 + answer.usage.output_tokens * 40_000
    assert answer.usage.model_extra is not None
    assert answer.usage.model_extra["cost_nano_usd"] == row.cost_nano_usd


async def test_previews_are_streamed_and_the_picture_tells_its_cost(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        stream = await client.images.generate(model="tokens", prompt="a fox", stream=True, partial_images=2)
        events = [event async for event in stream]
    assert [event.type for event in events] == [
        "image_generation.partial_image",
        "image_generation.partial_image",
        "image_generation.completed",
    ]
    (row,) = await gate.wait_for_rows(1)
    last = events[-1]
    assert last.type == "image_generation.completed"
    assert last.usage.model_extra is not None
    assert last.usage.model_extra["cost_nano_usd"] == row.cost_nano_usd > 0


async def test_e2_previews_that_are_cut_end_in_an_error(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    preview = json.dumps({"type": "image_generation.partial_image", "b64_json": "AA=="})
    simulator.push(Script(steps=(Event(data=preview), Close())))
    async with client_of(gate) as client:
        stream = await client.images.generate(model="tokens", prompt="a fox", stream=True, partial_images=1)
        with pytest.raises(openai.APIError):
            _ = [event async for event in stream]
    (row,) = await gate.wait_for_rows(1)
    assert row.status == "upstream_error"


async def test_pictures_of_imagen(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(config_of(simulator, "gemini"))
    async with client_of(gate) as client:
        answer = await client.images.generate(
            model="pictures", prompt="a fox", n=2, size="1792x1024", response_format="b64_json", style="vivid"
        )
    assert answer.data is not None
    assert [picture.b64_json for picture in answer.data] == [base64.b64encode(b"a fox").decode()] * 2
    (request,) = simulator.requests
    assert request.path.endswith("/models/their-model:predict")
    assert json.loads(request.body) == {
        "instances": [{"prompt": "a fox"}],
        "parameters": {"sampleCount": 2, "aspectRatio": "16:9"},
    }
    (row,) = await gate.wait_for_rows(1)
    assert row.usage.images == 2


async def test_b1_pictures_that_credit_does_not_cover_are_refused(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    config = config_of(simulator) | {"keys": [{"name": "poor", "key": KEY, "balance_usd": 0.5}]}
    gate = await start_inprocess(config)
    async with client_of(gate) as client:
        with pytest.raises(openai.APIStatusError) as refused:
            await client.images.generate(
                model="pictures", prompt="a fox", n=3, quality="high", size="1024x1024"
            )
    assert refused.value.status_code == 402
    assert not simulator.requests


# ---- speech ---------------------------------------------------------------------------------------------------------


async def test_speech_passes_byte_for_byte_and_is_charged_by_the_character(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    text = "{Hello} there, this is spoken."
    async with client_of(gate) as client:
        answer = await client.audio.speech.create(model="voice", voice="alloy", input=text)
        assert answer.response.headers["content-type"] == "audio/mpeg"
        assert answer.content == spoken(text)
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == len(text) * 15_000


async def test_speech_as_events(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = {"model": "tokens", "voice": "alloy", "input": "Hello there.", "stream_format": "sse"}
    answer = await ask(gate.url, "/v1/audio/speech", body, key=KEY)
    events = [json.loads(event.data) for event in EventReader().feed(answer.body)]
    sound = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert sound == spoken("Hello there.")
    (row,) = await gate.wait_for_rows(1)
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["cost_nano_usd"] == row.cost_nano_usd > 0


@pytest.mark.parametrize("how", ["reset", "fin"])
async def test_e2_sound_that_is_cut_does_not_look_complete(
    simulator: Simulator, start_inprocess: StartInProcess, how: Any
) -> None:
    gate = await start_inprocess(config_of(simulator))
    end = Reset() if how == "reset" else Close()
    headers = (("content-type", "audio/mpeg"),)
    simulator.push(Script(headers=headers, steps=(Send(data=b"\x00\x01sound"), Wait(s=0.05), end)))
    async with client_of(gate) as client:
        with pytest.raises(openai.APIConnectionError):
            await client.audio.speech.create(model="voice", voice="alloy", input="Hello there.")
    (row,) = await gate.wait_for_rows(1)
    assert row.status == "upstream_error"


async def test_e1_an_error_in_the_place_of_sound_is_one(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess({**config_of(simulator), "retry": {"max_attempts": 1}})
    simulator.push(Script(body='{"error":{"message":"no voice","type":"invalid_request_error","code":400}}'))
    async with client_of(gate) as client:
        with pytest.raises(openai.BadRequestError, match="no voice"):
            await client.audio.speech.create(model="voice", voice="alloy", input="Hello there.")
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == 0


# ---- what is wrong ------------------------------------------------------------------------------------------------

BAD = [
    ("/v1/embeddings", {}, "model"),
    ("/v1/embeddings", {"model": "embed"}, "input"),
    ("/v1/embeddings", {"model": "embed", "input": ""}, "input"),
    ("/v1/embeddings", {"model": "embed", "input": []}, "input"),
    ("/v1/embeddings", {"model": "embed", "input": ["a", 1]}, "input[1]"),
    ("/v1/embeddings", {"model": "embed", "input": [[1], [-1]]}, "input[1]"),
    ("/v1/embeddings", {"model": "embed", "input": ["a", ""]}, "input[1]"),
    ("/v1/embeddings", {"model": "embed", "input": "a", "encoding_format": "hex"}, "encoding_format"),
    ("/v1/embeddings", {"model": "embed", "input": "a", "dimensions": 0}, "dimensions"),
    ("/v1/embeddings", {"model": "embed", "input": "a", "user": 1}, "user"),
    ("/v1/moderations", {"input": []}, "input"),
    ("/v1/moderations", {"input": [{"type": "audio"}]}, "input[0]"),
    ("/v1/moderations", {"input": [{"type": "image_url", "image_url": {}}]}, "input[0].image_url.url"),
    ("/v1/rerank", {"model": "embed", "documents": ["a"]}, "query"),
    ("/v1/rerank", {"model": "embed", "query": "q", "documents": []}, "documents"),
    ("/v1/rerank", {"model": "embed", "query": "q", "documents": ["a", 3]}, "documents[1]"),
    ("/v1/rerank", {"model": "embed", "query": "q", "documents": ["a"], "top_n": 0}, "top_n"),
    ("/v1/embeddings", {"model": "nobody", "input": "a"}, "model"),
    ("/v1/images/generations", {"model": "pictures"}, "prompt"),
    ("/v1/images/generations", {"model": "pictures", "prompt": "a", "n": 11}, "n"),
    ("/v1/images/generations", {"model": "pictures", "prompt": "a", "size": "huge"}, "size"),
    ("/v1/images/generations", {"model": "pictures", "prompt": "a", "quality": "best"}, "quality"),
    (
        "/v1/images/generations",
        {"model": "pictures", "prompt": "a", "response_format": "png"},
        "response_format",
    ),
    ("/v1/images/generations", {"model": "pictures", "prompt": "a", "partial_images": 4}, "partial_images"),
    ("/v1/audio/speech", {"model": "voice", "voice": "alloy"}, "input"),
    ("/v1/audio/speech", {"model": "voice", "input": "a"}, "voice"),
    ("/v1/audio/speech", {"model": "voice", "voice": "alloy", "input": "a" * 4097}, "input"),
    ("/v1/audio/speech", {"model": "voice", "voice": "alloy", "input": "a", "speed": 9}, "speed"),
    (
        "/v1/audio/speech",
        {"model": "voice", "voice": "x", "input": "a", "response_format": "ogg"},
        "response_format",
    ),
    (
        "/v1/audio/speech",
        {"model": "voice", "voice": "x", "input": "a", "stream_format": "ws"},
        "stream_format",
    ),
]


@pytest.mark.parametrize(("path", "body", "param"), BAD)
async def test_bad_fields_are_named_and_nothing_is_charged(
    gate_with_embeddings: tuple[InProcessGate, Simulator], path: str, body: Any, param: str
) -> None:
    gate, simulator = gate_with_embeddings
    answer = await ask(gate.url, path, body, key=KEY)
    assert answer.status in (400, 404)
    assert answer.json()["error"]["param"] == param
    assert not simulator.requests
    assert not gate.rows()


@pytest.fixture
async def gate_with_embeddings(
    simulator: Simulator, start_inprocess: StartInProcess
) -> tuple[InProcessGate, Simulator]:
    return await start_inprocess(config_of(simulator)), simulator


@pytest.mark.parametrize(
    ("body", "path", "field"),
    [
        ({}, "embedContent", "content"),
        ({"requests": []}, "batchEmbedContents", "requests"),
        ({"requests": [{"content": {"parts": []}}]}, "batchEmbedContents", "requests[0].content.parts"),
        (
            {"content": {"parts": [{"inlineData": {"data": "", "mimeType": "image/png"}}]}},
            "embedContent",
            "content.parts[0]",
        ),
    ],
)
async def test_bad_fields_of_gemini_are_named(
    gate_with_embeddings: tuple[InProcessGate, Simulator], body: Any, path: str, field: str
) -> None:
    gate, simulator = gate_with_embeddings
    answer = await ask(gate.url, f"/v1beta/models/embed:{path}", body, key=KEY)
    assert answer.status == 400
    assert field in answer.json()["error"]["message"]
    assert not simulator.requests


async def test_a_provider_without_the_endpoint_is_told_of(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator, "messages"))
    answer = await ask(gate.url, "/v1/embeddings", {"model": "embed", "input": "a"}, key=KEY)
    assert answer.status == 400
    assert "does not serve embeddings" in answer.json()["error"]["message"]
    gate = await start_inprocess(config_of(simulator, unary=["rerank"]))
    answer = await ask(gate.url, "/v1/embeddings", {"model": "embed", "input": "a"}, key=KEY)
    assert answer.status == 400


async def test_e2_a_failing_provider_is_tried_again_and_the_client_pays_once(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    simulator.push(Script(status=503))
    async with client_of(gate) as client:
        await client.embeddings.create(model="embed", input="a")
    (row,) = await gate.wait_for_rows(1)
    assert (row.attempts, row.status) == (2, "ok")


async def test_r1_a_client_that_leaves_frees_the_provider(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    simulator.push(Script(first_token_s=30.0))
    async with client_of(gate) as client:
        asking = asyncio.create_task(client.embeddings.create(model="embed", input="a"))
        await simulator.wait_for_requests(1)
        asking.cancel()
    await simulator.wait_for(lambda: simulator.requests[-1].peer_left_at is not None, 1.0)
    (row,) = await gate.wait_for_rows(1)
    assert row.status == "client_closed"


def test_the_simulators_vectors_are_exact_in_every_encoding() -> None:
    assert all((value * 128).is_integer() for value in vector("x"))
