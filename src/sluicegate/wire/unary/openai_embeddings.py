"""Embeddings in OpenAI's shape: calls for a provider, what they bring, and the answer for a client.

Source: OpenAI's API reference, "Embeddings".
"""

from typing import Any, Literal

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.openai_usage import count, with_members
from sluicegate.wire.translation import Asked
from sluicegate.wire.unary import JsonAnswer
from sluicegate.wire.unary.vectors import (
    Encoding,
    Input,
    Inputs,
    Vector,
    Vectors,
    check_number,
    to_base64,
    to_floats,
    usage_of,
)

NAME: Literal["embeddings"] = "embeddings"
MAX_INPUTS = 2048
"""Of one call."""
_BROKEN = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Any = None
    total_tokens: Any = None


class _Entry(msgspec.Struct, gc=False):
    embedding: list[float] | str
    index: int | None = None


class _Answer(msgspec.Struct, gc=False):
    data: list[_Entry]
    usage: _Usage | None = None


class _FirstBytes(msgspec.Struct, gc=False):
    embedding: msgspec.Raw = msgspec.Raw(b"")
    index: Any = None


class _Edges(msgspec.Struct, gc=False):
    data: list[_FirstBytes] | None = None
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Answer).decode
_decode_edges = msgspec.json.Decoder(_Edges).decode


def split(body: bytes, inputs: list[Input]) -> list[bytes]:
    """Return bodies with at most as many inputs each as a call may have, alike in all else."""
    if len(inputs) <= MAX_INPUTS:
        return [body]
    return [
        json_edit.changed(body, {"input": json_edit.dumps(inputs[at : at + MAX_INPUTS])})
        for at in range(0, len(inputs), MAX_INPUTS)
    ]


def encode_requests(asked: Inputs, model: str) -> list[bytes]:
    """Write the calls for a provider, which is asked for base64: a third of the bytes."""
    value: dict[str, Any] = {"model": model, "input": asked.inputs, "encoding_format": "base64"}
    if asked.dimensions is not None:
        value["dimensions"] = asked.dimensions
    return split(json_edit.dumps(value), asked.inputs)


def decode_answers(bodies: list[bytes]) -> Vectors:
    """Read what the calls brought. Raises DecodeError."""
    vectors: list[Vector] = []
    tokens: int | None = 0
    for body in bodies:
        try:
            answer = _decode(body)
        except _BROKEN as error:
            raise DecodeError(NAME, None, f"the answer holds no embeddings: {error}") from None
        entries = answer.data
        if all(entry.index is not None for entry in entries):
            entries = sorted(entries, key=lambda entry: entry.index or 0)
            if any(entry.index != place for place, entry in enumerate(entries)):
                raise DecodeError(NAME, None, "the answer's embeddings are not numbered from 0")
        vectors += [entry.embedding for entry in entries]
        usage = _read_usage(answer.usage)
        tokens = None if usage is None or tokens is None else tokens + (usage.input_tokens or 0)
    return Vectors(vectors, None if tokens is None else usage_of(tokens))


def _read_usage(usage: _Usage | None) -> Usage | None:
    tokens = None
    if usage is not None:
        tokens = count(usage.prompt_tokens)
        if tokens is None:
            tokens = count(usage.total_tokens)
    return None if tokens is None else usage_of(tokens)


class PassingEmbeddings(JsonAnswer):
    """An answer that may pass as it came; its vectors are looked at by their first byte only."""

    def __init__(self, body: bytes, asked: Asked, inputs: int) -> None:
        """Read a body, of so many inputs. Raises DecodeError."""
        try:
            edges = _decode_edges(body)
        except _BROKEN:
            edges = _Edges()
        super().__init__(NAME, body, asked, _read_usage(edges.usage))
        if self.error is None and not edges.data:
            raise DecodeError(NAME, None, "the answer holds no embeddings")
        if self.error is None and edges.data:
            check_number(len(edges.data), inputs)
            numbers = {entry.index for entry in edges.data if isinstance(entry.index, int)}
            if numbers and numbers != set(range(inputs)):
                raise DecodeError(NAME, None, "the answer's embeddings are not numbered from 0")
        first = bytes(edges.data[0].embedding) if edges.data else b""
        self.encoding: Encoding = "base64" if first.startswith(b'"') else "float"


class OpenAIEmbeddings:
    """An answer written anew. See `PassedAnswer`."""

    error: StreamError | None = None
    finish_reason: str | None = "stop"
    upstream_id: str | None = None
    repaired = False

    def __init__(self, embedded: Vectors, asked: Asked, encoding: Encoding) -> None:
        """Write vectors in this encoding. Raises DecodeError where they cannot be read."""
        self.usage = embedded.usage
        self._asked = asked
        self._vectors: list[Any] = [
            to_base64(vector) if encoding == "base64" else to_floats(vector) for vector in embedded.vectors
        ]

    def texts(self) -> list[str]:
        """Return nothing: no text was produced."""
        return []

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it."""
        data = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(self._vectors)
        ]
        tokens = bill.usage.input_tokens or 0
        body = b'{"object":"list","data":%b,"model":%b,"usage":%b}' % (
            json_edit.dumps(data),
            json_edit.dumps(self._asked.model),
            with_members(b'{"prompt_tokens":%d,"total_tokens":%d}' % (tokens, tokens), bill.in_usage),
        )
        return with_members(body, bill.beside_usage)
