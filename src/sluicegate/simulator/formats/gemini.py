"""Gemini generateContent and streamGenerateContent as a provider answers them. Source: wire/gemini.md.

Lines end in CRLF, as the vendor's do.
"""

from typing import Any

import msgspec

from sluicegate.messages import Usage
from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats.base import Ask, Fault, Piece

FINISH_REASONS = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "content_filter": "SAFETY",
    "paused": "CONTINUATION",
}
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def _usage(usage: Usage) -> dict[str, Any]:
    prompt, output, thoughts = usage.input_tokens or 0, usage.output_tokens or 0, usage.reasoning_tokens or 0
    spelled: dict[str, Any] = {"promptTokenCount": prompt}
    if usage.cache_read_tokens:
        spelled["cachedContentTokenCount"] = usage.cache_read_tokens
    if output - thoughts:
        spelled["candidatesTokenCount"] = output - thoughts
    if thoughts:
        spelled["thoughtsTokenCount"] = thoughts
    return spelled | {"totalTokenCount": prompt + output}


def _parts(answer: Answer) -> list[tuple[dict[str, Any], int]]:
    """Return the parts with content and their weights; calls are whole."""
    parts: list[tuple[dict[str, Any], int]] = []
    parts += [({"text": piece, "thought": True}, 1) for piece in answer.reasoning]
    parts += [({"text": piece}, 1) for piece in answer.text + answer.refusal]
    for place, call in enumerate(answer.tool_calls):
        function = {"name": call.name, "args": msgspec.Raw(call.joined().encode())}
        if call.id is not None:
            function["id"] = call.id
        part: dict[str, Any] = {"functionCall": function}
        if place == 0 and answer.signature:
            part["thoughtSignature"] = answer.signature
        parts.append((part, 1 + len(call.arguments)))
    return parts


def _grounding(answer: Answer) -> dict[str, Any]:
    if not answer.searches:
        return {}
    whole = len("".join(answer.text).encode())
    indices = list(range(len(answer.found)))
    return {
        "groundingMetadata": {
            "webSearchQueries": [search.query for search in answer.searches],
            "groundingChunks": [{"web": {"uri": url, "title": title}} for url, title in answer.found],
            "groundingSupports": [{"segment": {"endIndex": whole}, "groundingChunkIndices": indices}],
        }
    }


def _token(answer: Answer) -> dict[str, Any]:
    return {} if answer.token is None else {"continuationToken": answer.token}


def _response(ask: Ask, candidates: list[dict[str, Any]], usage: dict[str, Any] | None) -> dict[str, Any]:
    body: dict[str, Any] = {"candidates": candidates}
    if usage is not None:
        body["usageMetadata"] = usage
    return body | {"modelVersion": ask.model, "responseId": f"resp{ID}"}


def stream(answer: Answer, ask: Ask) -> list[Piece]:
    """Return a response object a part; the finish reason comes with an empty part and the last usage."""
    pieces: list[Piece] = []
    weight = 0

    def frame(payload: dict[str, Any]) -> bytes:
        data = msgspec.json.encode(payload)
        if ask.array:
            return (b",\r\n" if pieces else b"[") + data
        return b"data: " + data + b"\r\n\r\n"

    for part, part_weight in _parts(answer):
        for index in range(answer.choices):
            weight += part_weight
            running = None if answer.usage in ("never", "with_finish") else _usage(answer.truth(weight))
            candidate = {"content": {"parts": [part], "role": "model"}, "index": index}
            pieces.append(Piece("content", frame(_response(ask, [candidate], running)), part_weight))
    last: dict[str, Any] = {"text": ""}
    if answer.signature and not answer.tool_calls:
        last["thoughtSignature"] = answer.signature
    usage = None if answer.usage == "never" else _usage(answer.truth())
    for index in range(answer.choices):
        candidate = {
            "content": {"parts": [last], "role": "model"},
            "finishReason": FINISH_REASONS[answer.finish],
            "index": index,
            **_token(answer),
            **_grounding(answer),
        }
        pieces.append(Piece("finish", frame(_response(ask, [candidate], usage))))
    if ask.array:
        pieces.append(Piece("end", b"]"))
    return pieces


def plain(answer: Answer, ask: Ask) -> bytes:
    """Return the whole answer as one object, neighbouring text joined."""
    parts: list[dict[str, Any]] = []
    if answer.reasoning:
        parts.append({"text": "".join(answer.reasoning), "thought": True})
    if answer.text or answer.refusal:
        parts.append({"text": "".join(answer.text + answer.refusal)})
    parts += [part for part, _ in _parts(answer) if "functionCall" in part]
    if answer.signature and not answer.tool_calls:
        parts.append({"text": "", "thoughtSignature": answer.signature})
    candidates = [
        {
            "content": {"parts": parts, "role": "model"},
            "finishReason": FINISH_REASONS[answer.finish],
            "index": index,
            **_token(answer),
            **_grounding(answer),
        }
        for index in range(answer.choices)
    ]
    usage = None if answer.usage == "never" else _usage(answer.truth())
    return msgspec.json.encode(_response(ask, candidates, usage))


def error_body(fault: Fault) -> bytes:
    """Return the JSON body of an error status."""
    status = fault.type or STATUSES.get(
        fault.status, "INTERNAL" if fault.status >= 500 else "FAILED_PRECONDITION"
    )
    return msgspec.json.encode({"error": {"code": fault.status, "message": fault.message, "status": status}})


def error_event(fault: Fault) -> bytes:
    """Return the error as an event of its own."""
    return b"data: " + error_body(fault) + b"\r\n\r\n"
