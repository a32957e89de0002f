"""Rerank: documents put in order by how well they answer a query, in Cohere's and Jina's shapes. Passes as it came.

The two shapes ask alike and differ in how they report use: Jina in tokens, Cohere in searches, one for each hundred
documents. Source: Cohere's API reference, "Rerank"; Jina's, "Reranker".
"""

from typing import Any

import msgspec

from sluicegate.errors import BadRequest, DecodeError
from sluicegate.messages import Usage
from sluicegate.wire.openai_usage import count
from sluicegate.wire.request_edges import number
from sluicegate.wire.translation import Asked, PassedAnswer
from sluicegate.wire.unary import JsonAnswer, JsonRequest

MAX_DOCUMENTS = 10_000


class _Reported(msgspec.Struct, gc=False):
    usage: Any = None
    meta: Any = None


_decode = msgspec.json.Decoder(_Reported).decode


class RerankRequest(JsonRequest):
    """One request as the client sent it."""

    ENDPOINT = "rerank"

    def __init__(self, body: bytes) -> None:
        """Read a body. Raises BadRequest."""
        super().__init__(body)
        for key in ("query", "documents"):
            if key not in self._fields:
                raise BadRequest(f"Missing required parameter: '{key}'.", param=key)
        query, documents = self.decoded("query"), self.decoded("documents")
        if not query or not isinstance(query, str | dict):
            raise BadRequest("Invalid 'query': expected a text.", param="query")
        if not isinstance(documents, list) or not 1 <= len(documents) <= MAX_DOCUMENTS:
            raise BadRequest(
                f"Invalid 'documents': expected an array of 1 to {MAX_DOCUMENTS} documents.",
                param="documents",
            )
        for at, document in enumerate(documents):
            if not document or not isinstance(document, str | dict):
                path = f"documents[{at}]"
                raise BadRequest(f"Invalid '{path}': expected a text or an object.", param=path)
        number("top_n", self.decoded("top_n"), 1)

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read the answer. Raises DecodeError."""
        try:
            reported = _decode(bodies[0])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise DecodeError(self.ENDPOINT, None, "the answer is no JSON object") from None
        answer = JsonAnswer(self.ENDPOINT, bodies[0], asked, _usage_of(reported))
        if answer.error is None and not answer.holds_array("results"):
            raise DecodeError(self.ENDPOINT, None, "the answer holds no results")
        return answer


def _usage_of(reported: _Reported) -> Usage | None:
    """Return what was read, where the answer says it in tokens."""
    usage = reported.usage if isinstance(reported.usage, dict) else {}
    meta = reported.meta if isinstance(reported.meta, dict) else {}
    tokens = count(usage.get("prompt_tokens"))
    if tokens is None:
        tokens = count(usage.get("total_tokens"))
    inner = meta.get("tokens")
    if tokens is None and isinstance(inner, dict):
        tokens = count(inner.get("input_tokens"))
    return None if tokens is None else Usage(input_tokens=tokens, output_tokens=0)
