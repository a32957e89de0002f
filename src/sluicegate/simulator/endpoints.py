"""Answers of the endpoints that give no text: right in shape, and the same for the same question.

A vector is made from the digest of its input, so that equal inputs are equal vectors and joined batches can be told
apart. Usage counts four bytes a token.
"""

import array
import base64
from hashlib import blake2b
from typing import Any

import msgspec

DIMENSIONS = 8


def answer_of(path: str, body: bytes) -> bytes | None:
    """Return the answer to a question, or None where a path is no endpoint of these.

    Raises:
        msgspec.MsgspecError: the body is not JSON.
    """
    for end, answer in _ANSWERS.items():
        if path.endswith(end):
            asked = msgspec.json.decode(body)
            return msgspec.json.encode(answer(asked if isinstance(asked, dict) else {}))
    return None


def is_endpoint(path: str) -> bool:
    """Whether a path is one of these."""
    return path.endswith(tuple(_ANSWERS))


def vector(given: Any, dimensions: int = DIMENSIONS) -> list[float]:
    """Return the vector of an input: multiples of 1/128, which every encoding holds exactly."""
    digest = blake2b(msgspec.json.encode(given), digest_size=64).digest()
    return [(digest[at % 64] - 128) / 128 for at in range(dimensions)]


def tokens(given: Any) -> int:
    """Return the tokens that an input counts."""
    return len(given) if isinstance(given, list) else max(1, len(str(given).encode()) // 4)


def _embeddings(asked: dict[str, Any]) -> dict[str, Any]:
    inputs = asked.get("input", "")
    if isinstance(inputs, str) or (inputs and isinstance(inputs[0], int)):
        inputs = [inputs]
    vectors: list[Any] = [vector(given, asked.get("dimensions") or DIMENSIONS) for given in inputs]
    if asked.get("encoding_format") == "base64":
        vectors = [base64.b64encode(array.array("f", floats).tobytes()).decode() for floats in vectors]
    data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(vectors)]
    read = sum(map(tokens, inputs))
    usage = {"prompt_tokens": read, "total_tokens": read}
    return {"object": "list", "data": data, "model": asked.get("model"), "usage": usage}


def _text_of(request: dict[str, Any]) -> str:
    return "\n".join(part.get("text", "") for part in request.get("content", {}).get("parts", ()))


def _embed_content(asked: dict[str, Any]) -> dict[str, Any]:
    text = _text_of(asked)
    values = vector(text, asked.get("outputDimensionality") or DIMENSIONS)
    return {"embedding": {"values": values}, "usageMetadata": {"promptTokenCount": tokens(text)}}


def _batch_embed_contents(asked: dict[str, Any]) -> dict[str, Any]:
    requests = asked.get("requests", [])
    answers = [_embed_content(request) for request in requests]
    read = sum(answer["usageMetadata"]["promptTokenCount"] for answer in answers)
    return {
        "embeddings": [answer["embedding"] for answer in answers],
        "usageMetadata": {"promptTokenCount": read, "totalTokenCount": read},
    }


def _moderations(asked: dict[str, Any]) -> dict[str, Any]:
    inputs = asked.get("input", "")
    count = 1 if isinstance(inputs, str) else len(inputs)
    result = {"flagged": False, "categories": {"violence": False}, "category_scores": {"violence": 0.01}}
    return {"id": "modr-1", "model": asked.get("model"), "results": [result] * count}


def _rerank(asked: dict[str, Any]) -> dict[str, Any]:
    documents = asked.get("documents", [])
    scored = sorted(
        ({"index": at, "relevance_score": abs(vector(one)[0])} for at, one in enumerate(documents)),
        key=lambda result: -result["relevance_score"],
    )
    read = tokens(asked.get("query")) + sum(map(tokens, documents))
    results = scored[: asked.get("top_n") or len(scored)]
    return {"model": asked.get("model"), "results": results, "usage": {"total_tokens": read}}


_ANSWERS = {
    "/embeddings": _embeddings,
    ":embedContent": _embed_content,
    ":batchEmbedContents": _batch_embed_contents,
    "/moderations": _moderations,
    "/rerank": _rerank,
}
