"""Embeddings in Gemini's shape: calls for a provider, what they bring, and the answer for a client.

Source: Google's API reference, "Embeddings" (`embedContent`, `batchEmbedContents`).
"""

from typing import Any, Literal

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import StreamError
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.openai_usage import count, with_members
from sluicegate.wire.translation import Notes
from sluicegate.wire.unary.vectors import Inputs, Vector, Vectors, to_floats, usage_of

NAME: Literal["gemini_embeddings"] = "gemini_embeddings"
MAX_INPUTS = 100
"""Of one batch."""


class _Values(msgspec.Struct, gc=False):
    values: list[float]


class _Usage(msgspec.Struct, gc=False):
    promptTokenCount: Any = None
    totalTokenCount: Any = None


class _Answer(msgspec.Struct, gc=False):
    embeddings: list[_Values] | None = None
    embedding: _Values | None = None
    usageMetadata: _Usage | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def encode_requests(asked: Inputs, model: str, notes: Notes) -> list[bytes]:
    """Write the batches for a provider.

    Raises:
        UnsupportedFeature: inputs are token ids, which only the model's own tokenizer gives a meaning.
    """
    name = model if "/" in model else f"models/{model}"
    requests: list[dict[str, Any]] = []
    for text in asked.inputs:
        if not isinstance(text, str):
            notes.reject("input", "token ids cannot be embedded there; send text")
        request: dict[str, Any] = {"model": name, "content": {"parts": [{"text": text}]}}
        if asked.dimensions is not None:
            request["outputDimensionality"] = asked.dimensions
        requests.append(request)
    if asked.user is not None:
        notes.drop("user")
    return [
        json_edit.dumps({"requests": requests[at : at + MAX_INPUTS]})
        for at in range(0, len(requests), MAX_INPUTS)
    ]


def decode_answers(bodies: list[bytes]) -> Vectors:
    """Read what the calls brought. Raises DecodeError."""
    vectors: list[Vector] = []
    tokens: int | None = 0
    for body in bodies:
        try:
            answer = _decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise DecodeError(NAME, None, f"the answer holds no embeddings: {error}") from None
        found = answer.embeddings if answer.embedding is None else [answer.embedding]
        if not found:
            raise DecodeError(NAME, None, "the answer holds no embeddings")
        vectors += [entry.values for entry in found]
        usage = answer.usageMetadata
        read = None if usage is None else count(usage.promptTokenCount)
        if usage is not None and read is None:
            read = count(usage.totalTokenCount)
        tokens = None if read is None or tokens is None else tokens + read
    return Vectors(vectors, None if tokens is None else usage_of(tokens))


class GeminiEmbeddings:
    """An answer written anew. See `PassedAnswer`."""

    error: StreamError | None = None
    finish_reason: str | None = "stop"
    upstream_id: str | None = None
    repaired = False

    def __init__(self, embedded: Vectors, *, single: bool) -> None:
        """Write vectors as numbers. Raises DecodeError where they cannot be read.

        Args:
            single: the client called `embedContent`.
        """
        self.usage = embedded.usage
        self._single = single
        self._vectors = [to_floats(vector) for vector in embedded.vectors]

    def texts(self) -> list[str]:
        """Return nothing: no text was produced."""
        return []

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it."""
        values = [{"values": vector} for vector in self._vectors]
        told: dict[str, Any] = {"embedding": values[0]} if self._single else {"embeddings": values}
        tokens = bill.usage.input_tokens or 0
        usage = b'{"promptTokenCount":%d,"totalTokenCount":%d}' % (tokens, tokens)
        body = with_members(json_edit.dumps(told), b'"usageMetadata":' + with_members(usage, bill.in_usage))
        return with_members(body, bill.beside_usage)
