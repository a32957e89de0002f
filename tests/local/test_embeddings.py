"""Real embeddings: the local model behind the gate, asked by the SDKs of both shapes."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from google import genai
from google.genai import types

from sluicegate.local_model import MODEL, LocalModel
from tests.conftest import KEY
from tests.gate import RunningGate, run_gate

CONFIGURATION = """
server: {listen: "{listen}"}
admin: {listen: "{admin_listen}"}
store: "sqlite:///sluicegate.db"
providers: {local: {base_url: "@url@/v1", speaks: [chat], auth: none}}
models: {embed: {routes: [{provider: local, model: @model@}], price: {input: 0.02, output: 0}}}
keys: [{name: test, key: @key@, balance_usd: 1}]
"""
TEXTS = [
    "The cat sleeps on the sofa.",
    "A kitten naps on the couch.",
    "Interest rates rose by a quarter point.",
]


@pytest.fixture(scope="module")
def embedding_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LocalModel(tmp_path_factory.mktemp("embeddings") / "model.log", embeddings=True) as model:
        yield model.wait_ready()


@pytest.fixture(scope="module")
def gate(embedding_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGate]:
    config = CONFIGURATION.replace("@url@", embedding_model).replace("@model@", MODEL).replace("@key@", KEY)
    with run_gate(tmp_path_factory.mktemp("gate"), config) as running:
        yield running


def likeness(one: list[float], other: list[float]) -> float:
    return sum(map(float.__mul__, one, other))


@pytest.mark.parametrize("encoding", ["float", None], ids=["float", "base64"])
def test_embeddings_mean_something_and_are_billed(gate: RunningGate, encoding: Any) -> None:
    with openai.OpenAI(base_url=gate.url + "/v1", api_key=KEY) as client:
        given = {} if encoding is None else {"encoding_format": encoding}
        answer = client.embeddings.create(model="embed", input=TEXTS, **given)
    cat, kitten, rates = (entry.embedding for entry in answer.data)
    assert likeness(cat, kitten) > likeness(cat, rates)
    row = gate.usage()[-1]
    assert row["cost_nano_usd"] == answer.usage.prompt_tokens * 20
    assert answer.usage.prompt_tokens > 10


def test_the_google_sdk_gets_the_same_vectors(gate: RunningGate) -> None:
    with openai.OpenAI(base_url=gate.url + "/v1", api_key=KEY) as client:
        known = client.embeddings.create(model="embed", input=TEXTS[:2])
    google = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=gate.url))
    answer = google.models.embed_content(model="embed", contents=list(TEXTS[:2]))
    assert answer.embeddings is not None
    for ours, theirs in zip(known.data, answer.embeddings, strict=True):
        assert theirs.values == pytest.approx(ours.embedding, abs=1e-6)
