"""What providers of endpoints without text may send in the place of an answer: told as theirs, and charged nothing."""

import asyncio
import base64
import json
import struct
from typing import Any

import pytest

from sluicegate.errors import DecodeError
from sluicegate.messages import Usage
from sluicegate.simulator import Simulator
from sluicegate.wire import Bill
from sluicegate.wire.translation import Asked
from sluicegate.wire.unary.embedding_requests import EmbeddingsRequest, GeminiEmbeddingsRequest
from sluicegate.wire.unary.forms import TranscriptionRequest
from sluicegate.wire.unary.moderation import ModerationRequest
from sluicegate.wire.unary.multipart import Form
from tests.conftest import KEY, StartInProcess, make_config
from tests.fakes import ask
from tests.server.http_world import peer, read_request
from tests.server.test_upload_faults import part

ASKED = Asked(model="public", id="id", created=1)


def embeddings(inputs: list[str], encoding: str) -> EmbeddingsRequest:
    body = {"model": "m", "input": inputs, "encoding_format": encoding}
    return EmbeddingsRequest(json.dumps(body).encode())


def vectors(*entries: Any, usage: Any = None) -> bytes:
    data = [{"object": "embedding", "embedding": entry, "index": at} for at, entry in enumerate(entries)]
    return json.dumps({"object": "list", "data": data, "model": "m", "usage": usage}).encode()


def test_a_number_too_large_for_its_encoding_is_the_providers_fault() -> None:
    with pytest.raises(DecodeError, match="too large"):
        embeddings(["a"], "base64").read_answers("embeddings", ASKED, [vectors([1e300])])
    body = b'{"embedding":{"values":[1e300]}}'
    with pytest.raises(DecodeError, match="too large"):
        embeddings(["a"], "base64").read_answers("gemini_embeddings", ASKED, [body])


@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize(
    "body",
    [
        vectors([1.0]),
        vectors([1.0], [2.0], [3.0]),
        vectors(),
        vectors([1.0], [2.0]).replace(b'"index": 1', b'"index": 0'),
        vectors([1.0], [2.0]).replace(b'"index": 1', b'"index": 7'),
    ],
)
def test_as_many_vectors_as_inputs(body: bytes, encoding: str) -> None:
    with pytest.raises(DecodeError):
        embeddings(["a", "b"], encoding).read_answers("embeddings", ASKED, [body])


def test_as_many_vectors_as_inputs_of_gemini() -> None:
    one = b'{"embeddings":[{"values":[1.0]}]}'
    with pytest.raises(DecodeError):
        embeddings(["a", "b"], "float").read_answers("gemini_embeddings", ASKED, [one])
    content = {"content": {"parts": [{"text": "x"}]}}
    batch = GeminiEmbeddingsRequest(json.dumps({"requests": [content] * 2}).encode(), "m", batch=True)
    for target, body in [("gemini_embeddings", one), ("embeddings", vectors([1.0]))]:
        with pytest.raises(DecodeError):
            batch.read_answers(target, ASKED, [body])


def test_vectors_in_any_order_are_put_in_theirs() -> None:
    body = json.loads(vectors([1.0], [2.0], usage={"prompt_tokens": 2}))
    body["data"].reverse()
    packed = base64.b64encode(struct.pack("<f", 1.0)).decode()

    answer = embeddings(["a", "b"], "base64").read_answers("embeddings", ASKED, [json.dumps(body).encode()])
    assert json.loads(answer.encode(Bill(Usage())))["data"][0]["embedding"] == packed


@pytest.mark.parametrize(
    "told", ["²", "٣", "1e9", "inf", "nan", "-1", "", "1.2.3", "9" * 400, True, [], None]
)
def test_a_length_that_is_no_number_is_not_reported(told: Any) -> None:
    form = Form(b"B")
    form.feed(part('name="model"', b"m") + part('name="file"; filename="a"', b"x") + b"--B--\r\n")
    answer = TranscriptionRequest(form, 1).read_answers(
        "transcription", ASKED, [json.dumps({"text": "x", "duration": told}).encode()]
    )
    assert answer.usage is None


@pytest.mark.parametrize("id", [b"\xed\xa0\x80", b"\xff"])
def test_an_id_that_is_no_text_is_not_read(id: bytes) -> None:
    request = ModerationRequest(b'{"model":"m","input":"x"}')
    answer = request.read_answers("moderation", ASKED, [b'{"id":"%b","results":[]}' % id])
    assert answer.upstream_id is None


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html; charset=utf-8", b"<html>Sign in</html>"),
        ("text/plain", b"upstream connect error"),
        ("application/problem+json", b'{"title":"no"}'),
        ("application/json", b'{"error":{"message":"no"}}'),
        ("audio/mpeg", b""),
    ],
)
async def test_e1_what_is_no_sound_is_not_charged(
    simulator: Simulator, start_inprocess: StartInProcess, kind: str, body: bytes
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    async with peer(talk) as provider:
        row = {"base_url": f"http://127.0.0.1:{provider.port}/v1", "speaks": ["chat"], "auth": "none"}
        price = {"input": 0, "output": 0, "per_character": 0.000015}
        voice = {"routes": [{"provider": "it", "model": "v"}], "price": price}
        gate = await start_inprocess(make_config(simulator, providers={"it": row}, models={"voice": voice}))
        asked = {"model": "voice", "input": "Hello", "voice": "v"}
        answer = await ask(gate.url, "/v1/audio/speech", asked, key=KEY, timeout_s=8.0)
        assert answer.status >= 500
        (settled,) = await gate.wait_for_rows(1)
        assert (settled.status, settled.cost_nano_usd) == ("upstream_error", 0)
