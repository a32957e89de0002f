"""Endpoints beside generation: model lists in three shapes, token counts, probes, and how paths are read."""

from base64 import b64encode
from typing import Any

import pytest

from sluicegate.errors import MethodNotAllowed, PathUnknown
from sluicegate.server.routes import Route, match
from sluicegate.simulator import Simulator
from tests.billing.test_media_lengths import plain_pdf, wav
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import ask
from tests.inprocess import InProcessGate

USER = [{"role": "user", "content": "Hello there, how are you?"}]


def config_of(simulator: Simulator, speaks: str) -> dict[str, Any]:
    return make_config(
        simulator,
        providers={"sim": {"base_url": simulator.base_url, "speaks": [speaks], "auth": "none"}},
        models={"org/m:1": {"routes": [{"provider": "sim", "model": "m"}], "price": PRICE}},
    )


FACTS = ("kind", "format", "model", "stream", "array", "id", "part", "endpoint", "batch")


@pytest.mark.parametrize(
    ("method", "path", "query", "route"),
    [
        ("POST", "/v1/chat/completions", "", Route("generate", "chat")),
        ("POST", "/v1/messages", "beta=true", Route("generate", "messages")),
        ("POST", "/v1beta/models/m:generateContent", "", Route("generate", "gemini", "m")),
        ("POST", "/v1/models/m:streamGenerateContent", "alt=sse", Route("generate", "gemini", "m", True)),
        ("POST", "/v1beta/models/m:streamGenerateContent", "", Route("generate", "gemini", "m", True, True)),
        ("POST", "/v1beta/org/m:1:generateContent", "", Route("generate", "gemini", "org/m:1")),
        ("POST", "/v1alpha/models/a%2Fb:countTokens", "", Route("count_tokens", "gemini", "a/b")),
        (
            "POST",
            "/v1beta1/publishers/google/models/m:generateContent",
            "",
            Route("generate", "gemini", "m"),
        ),
        ("GET", "/v1/models", "", Route("models", "chat")),
        ("GET", "/v1/models/a%2Fb", "", Route("model", "chat", "a/b")),
        ("GET", "/v1beta/models/org/m:1", "", Route("model", "gemini", "org/m:1")),
    ],
)
def test_paths_are_split_at_their_last_colon(method: str, path: str, query: str, route: Route) -> None:
    found = match(method, path, query)
    assert [getattr(found, name) for name in FACTS] == [getattr(route, name) for name in FACTS]


def test_a_version_named_twice_is_told() -> None:
    with pytest.raises(PathUnknown, match="twice"):
        match("POST", "/v1/v1/messages", "")


def test_a_method_that_a_path_has_not() -> None:
    with pytest.raises(MethodNotAllowed):
        match("GET", "/v1beta/models/m:generateContent", "")


async def test_options_tell_the_methods_of_a_path(gate_inprocess: InProcessGate) -> None:
    response = await ask(gate_inprocess.url, "/v1/chat/completions", method="OPTIONS")
    assert (response.status, response.header("allow")) == (204, "POST, OPTIONS")
    assert (await ask(gate_inprocess.url, "/v1/models", method="OPTIONS")).header(
        "allow"
    ) == "GET, HEAD, OPTIONS"
    assert (await ask(gate_inprocess.url, "/nope", method="OPTIONS")).status == 404


async def test_models_are_listed_in_the_shape_of_the_client(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(config_of(simulator, "chat"))
    openai = (await ask(gate.url, "/v1/models", key=KEY)).json()
    assert "org/m:1" in [model["id"] for model in openai["data"]]
    anthropic = await ask(gate.url, "/v1/models", key=KEY, headers={"anthropic-version": "2023-06-01"})
    assert anthropic.json()["data"][0]["type"] == "model"
    gemini = (await ask(gate.url, "/v1beta/models", headers={"x-goog-api-key": KEY})).json()
    assert "models/org/m:1" in [model["name"] for model in gemini["models"]]
    one = await ask(gate.url, "/v1/models/org%2Fm:1", key=KEY)
    assert one.json()["id"] == "org/m:1"
    assert (await ask(gate.url, "/v1/models/nope", key=KEY)).status == 404
    assert (await ask(gate.url, "/v1/models", key="sg-nobody-knows-this-one")).status == 401


async def test_a_key_sees_only_its_models(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    keys = [{"name": "narrow", "key": KEY, "balance_usd": 1, "models": ["m"]}]
    gate = await start_inprocess(
        make_config(
            simulator,
            keys=keys,
            models={"other": {"routes": [{"provider": "sim", "model": "m"}], "price": PRICE}},
        )
    )
    listed = (await ask(gate.url, "/v1/models", key=KEY)).json()["data"]
    assert [model["id"] for model in listed] == ["m"]
    assert (await ask(gate.url, "/v1/models/other", key=KEY)).status == 404


@pytest.mark.parametrize("speaks", ["chat", "messages"])
async def test_tokens_are_counted(start_inprocess: StartInProcess, simulator: Simulator, speaks: str) -> None:
    """By the provider where it speaks the client's format, else here; nothing is charged."""
    gate = await start_inprocess(config_of(simulator, speaks))
    body = {"model": "org/m:1", "messages": USER}
    response = await ask(gate.url, "/v1/messages/count_tokens", body, key=KEY)
    assert response.status == 200, response.body
    assert 5 <= response.json()["input_tokens"] <= 20
    assert len(simulator.requests) == (speaks == "messages")
    assert gate.rows() == []


async def test_gemini_tokens_are_counted(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    gate = await start_inprocess(config_of(simulator, "chat"))
    body = {"contents": [{"parts": [{"text": "Hello there, how are you?"}]}]}
    response = await ask(
        gate.url, "/v1beta/models/org/m:1:countTokens", body, headers={"x-goog-api-key": KEY}
    )
    assert 5 <= response.json()["totalTokens"] <= 20


@pytest.mark.parametrize(("speaks", "tokens"), [("chat", 255), ("gemini", 258)])
async def test_a_picture_counts_as_its_vendor_says(
    start_inprocess: StartInProcess, simulator: Simulator, speaks: str, tokens: int
) -> None:
    gate = await start_inprocess(config_of(simulator, speaks))
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (500).to_bytes(4) * 2 + b"\x08\x02\x00\x00\x00"
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(head).decode()}
    content = [{"type": "text", "text": "Hello"}, {"type": "image", "source": source}]
    counts = []
    for said in (content, content[:1]):
        body = {"model": "org/m:1", "messages": [{"role": "user", "content": said}]}
        response = await ask(gate.url, "/v1/messages/count_tokens", body, key=KEY)
        counts.append(response.json()["input_tokens"])
    assert counts[0] - counts[1] == tokens
    assert not simulator.requests


@pytest.mark.parametrize("pages", [3, 8000])
async def test_documents_and_sounds_count_as_their_vendor_says(
    start_inprocess: StartInProcess, simulator: Simulator, pages: int
) -> None:
    gate = await start_inprocess(config_of(simulator, "chat"))
    kinds = (("application/pdf", plain_pdf(pages)), ("audio/wav", wav(20)), ("application/zip", bytes(4000)))
    counts = []
    for kind, data in ((None, b""), *kinds):
        inline = [{"inlineData": {"mimeType": kind, "data": b64encode(data).decode()}}] if kind else []
        body = {"contents": [{"role": "user", "parts": [{"text": "Hello"}, *inline]}]}
        path = "/v1alpha/models/org/m:1:countTokens"
        response = await ask(gate.url, path, body, headers={"x-goog-api-key": KEY})
        counts.append(response.json()["totalTokens"])
    assert [count - counts[0] for count in counts[1:]] == [pages * 1450, 20 * 10, 100]
    assert not simulator.requests


async def test_a_count_of_what_is_wrong_is_refused_in_its_format(gate_inprocess: InProcessGate) -> None:
    response = await ask(
        gate_inprocess.url, "/v1/messages/count_tokens", {"model": "nope", "messages": USER}, key=KEY
    )
    assert response.status == 404
    assert response.json()["type"] == "error"


async def test_other_models_need_a_key_that_may_override(gate_inprocess: InProcessGate) -> None:
    body = {"model": "m", "messages": USER, "max_tokens": 9, "fallbacks": [{"model": "x"}]}
    response = await ask(gate_inprocess.url, "/v1/messages", body, key=KEY)
    assert response.status == 400
    assert "fallbacks" in response.json()["error"]["message"]
    assert gate_inprocess.rows() == []


@pytest.mark.parametrize(
    ("headers", "shape"),
    [
        ({"anthropic-version": "2023-06-01"}, {"type", "error", "request_id"}),
        ({"x-goog-api-key": "sg-nobody-knows-this-one"}, {"error"}),
    ],
)
async def test_errors_of_model_lists_are_told_in_the_shape_of_the_client(
    gate_inprocess: InProcessGate, headers: dict[str, str], shape: set[str]
) -> None:
    for path in ("/v1/models", "/v1/models/nope"):
        response = await ask(gate_inprocess.url, path, key="sg-nobody-knows-this-one", headers=headers)
        assert response.status == 401
        assert set(response.json()) == shape
        if shape == {"error"}:
            assert response.json()["error"]["status"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("speaks", ["chat", "responses", "messages", "gemini"])
async def test_the_providers_id_is_told(
    start_inprocess: StartInProcess, simulator: Simulator, speaks: str, stream: bool
) -> None:
    gate = await start_inprocess(config_of(simulator, speaks))
    body = {"model": "org/m:1", "messages": USER, "stream": stream}
    response = await ask(gate.url, "/v1/chat/completions", body, key=KEY)
    assert response.status == 200
    (row,) = await gate.wait_for_rows(1)
    assert row.upstream_id
    assert response.header("x-sluicegate-upstream-id") == row.upstream_id
