"""Anthropic Messages as a provider answers it. Source: wire/anthropic-messages.md."""

from typing import Any

import msgspec

from sluicegate.messages import Usage
from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats.base import Ask, Fault, Piece

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "paused": "pause_turn",
}
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def _event(payload: dict[str, Any]) -> bytes:
    type_: str = payload["type"]
    return b"event: " + type_.encode() + b"\ndata: " + msgspec.json.encode(payload) + b"\n\n"


def _input_usage(usage: Usage) -> dict[str, Any]:
    cached, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return {
        "input_tokens": (usage.input_tokens or 0) - cached - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
    }


def _output_usage(usage: Usage) -> dict[str, Any]:
    spelled: dict[str, Any] = {"output_tokens": usage.output_tokens}
    if usage.reasoning_tokens is not None:
        spelled["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    if usage.web_searches is not None:
        spelled["server_tool_use"] = {"web_search_requests": usage.web_searches, "web_fetch_requests": 0}
    return spelled


def _search_blocks(answer: Answer) -> list[dict[str, Any]]:
    """Return the uses of the search tool, each with its result; what was found is sealed."""
    blocks: list[dict[str, Any]] = []
    for place, search in enumerate(answer.searches):
        id = f"srvtoolu_{ID}_{place}"
        blocks.append(
            {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": search.query}}
        )
        found = [
            {"type": "web_search_result", "url": url, "title": title, "encrypted_content": "c2VhbGVk"}
            for url, title in search.found
        ]
        blocks.append({"type": "web_search_tool_result", "tool_use_id": id, "content": found})
    return blocks


def _citations(answer: Answer) -> list[dict[str, Any]]:
    kind = {"type": "web_search_result_location", "encrypted_index": "c2VhbGVk", "cited_text": "so it says"}
    return [kind | {"url": url, "title": title} for url, title in answer.found]


def _stop_reason(answer: Answer) -> str:
    return "stop_sequence" if answer.stop_sequence else STOP_REASONS[answer.finish]


class _Blocks:
    """Adds content blocks in order."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self._index = 0

    def add(self, block: dict[str, Any], deltas: list[tuple[dict[str, Any], int]], weight: int = 0) -> None:
        kind: Any = "content" if weight else "start"
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        self.pieces.append(Piece(kind, _event(start), weight))
        for delta, delta_weight in deltas:
            payload = {"type": "content_block_delta", "index": self._index, "delta": delta}
            self.pieces.append(Piece("content", _event(payload), delta_weight))
        self.pieces.append(Piece("start", _event({"type": "content_block_stop", "index": self._index})))
        self._index += 1


def stream(answer: Answer, ask: Ask) -> list[Piece]:
    """Return message_start, blocks, message_delta, message_stop."""
    whole = answer.truth()
    blocks = _Blocks()
    if answer.reasoning or answer.signature:
        deltas = [({"type": "thinking_delta", "thinking": piece}, 1) for piece in answer.reasoning]
        signature = answer.signature or "c2ltdWxhdGVk"
        deltas.append(({"type": "signature_delta", "signature": signature}, 0))
        blocks.add({"type": "thinking", "thinking": "", "signature": ""}, deltas)
    if answer.redacted:
        blocks.add({"type": "redacted_thinking", "data": answer.redacted}, [])
    for block in _search_blocks(answer):
        given = block.get("input")
        piece = {"type": "input_json_delta", "partial_json": msgspec.json.encode(given).decode()}
        blocks.add(block if given is None else block | {"input": {}}, [] if given is None else [(piece, 0)])
    if answer.text or answer.refusal:
        pieces = answer.text + answer.refusal
        told: list[tuple[dict[str, Any], int]] = [
            ({"type": "citations_delta", "citation": one}, 0) for one in _citations(answer)
        ]
        told += [({"type": "text_delta", "text": piece}, 1) for piece in pieces]
        cited: dict[str, Any] = {"citations": []} if answer.found else {}
        blocks.add({"type": "text", "text": "", **cited}, told)
    for place, call in enumerate(answer.tool_calls):
        deltas = [({"type": "input_json_delta", "partial_json": piece}, 1) for piece in call.arguments]
        block = {"type": "tool_use", "id": _tool_id(call.id, place), "name": call.name, "input": {}}
        blocks.add(block, deltas, weight=1)

    start = _message(answer, ask) | {"content": [], "stop_reason": None, "stop_sequence": None}
    usage = {} if answer.usage == "never" else _input_usage(whole) | {"output_tokens": 1}
    pieces_ = [
        Piece("start", _event({"type": "message_start", "message": start | {"usage": usage}})),
        Piece("start", b'event: ping\ndata: {"type": "ping"}\n\n'),
        *blocks.pieces,
    ]
    delta: dict[str, Any] = {"stop_reason": _stop_reason(answer), "stop_sequence": answer.stop_sequence}
    final: dict[str, Any] = {} if answer.usage == "never" else _input_usage(whole) | _output_usage(whole)
    pieces_.append(Piece("finish", _event({"type": "message_delta", "delta": delta, "usage": final})))
    pieces_.append(Piece("end", _event({"type": "message_stop"})))
    return pieces_


def _tool_id(given: str | None, place: int) -> str:
    return given or f"toolu_{ID}_{place}"


def _message(answer: Answer, ask: Ask) -> dict[str, Any]:
    return {"id": f"msg_{ID}", "type": "message", "role": "assistant", "model": ask.model}


def plain(answer: Answer, ask: Ask) -> bytes:
    """Return the whole message."""
    content: list[dict[str, Any]] = []
    if answer.reasoning or answer.signature:
        thinking = "".join(answer.reasoning)
        signature = answer.signature or "c2ltdWxhdGVk"
        content.append({"type": "thinking", "thinking": thinking, "signature": signature})
    if answer.redacted:
        content.append({"type": "redacted_thinking", "data": answer.redacted})
    content += _search_blocks(answer)
    if answer.text or answer.refusal:
        cited = {"citations": _citations(answer)} if answer.found else {}
        content.append({"type": "text", "text": "".join(answer.text + answer.refusal)} | cited)
    for place, call in enumerate(answer.tool_calls):
        arguments = msgspec.Raw(call.joined().encode())
        content.append(
            {"type": "tool_use", "id": _tool_id(call.id, place), "name": call.name, "input": arguments}
        )
    whole = answer.truth()
    message = _message(answer, ask) | {
        "content": content,
        "stop_reason": _stop_reason(answer),
        "stop_sequence": answer.stop_sequence,
    }
    if answer.usage != "never":
        message["usage"] = _input_usage(whole) | _output_usage(whole) | {"service_tier": "standard"}
    return msgspec.json.encode(message)


def _error(fault: Fault) -> dict[str, Any]:
    type_ = fault.type or TYPES.get(fault.status, "api_error")
    return {"type": "error", "error": {"type": type_, "message": fault.message}, "request_id": f"req_{ID}"}


def error_body(fault: Fault) -> bytes:
    """Return the JSON body of an error status."""
    return msgspec.json.encode(_error(fault))


def error_event(fault: Fault) -> bytes:
    """Return `event: error`."""
    return _event(_error(fault))
