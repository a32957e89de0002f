"""Chat Completions as a provider answers it. Source: wire/chat-completions.md."""

from typing import Any

import msgspec

from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats.base import Ask, Piece
from sluicegate.simulator.formats.openai import (
    CREATED,
    FINGERPRINT,
    error_body,
    error_event,
    event,
    usage_object,
)

__all__ = ["error_body", "error_event", "plain", "stream"]


class _Chunks:
    """Builds chunks, with running usage where the answer says so."""

    def __init__(self, answer: Answer, ask: Ask) -> None:
        self.answer = answer
        self.pieces: list[Piece] = []
        self.weight = 0
        self._model = ask.model
        self._asked = ask.usage and answer.usage == "asked"

    def chunk(self, choices: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "id": f"chatcmpl-{ID}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": self._model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }
        return payload | extra

    def delta(self, kind: Any, delta: dict[str, Any], weight: int = 0, finish: str | None = None) -> None:
        """Add one chunk a choice."""
        for index in range(self.answer.choices):
            self.weight += weight
            extra: dict[str, Any] = {}
            if self.answer.usage == "running":
                extra["usage"] = usage_object(self.answer.truth(self.weight))
            elif finish is not None and self.answer.usage == "with_finish":
                extra["usage"] = usage_object(self.answer.truth())
            elif self._asked:
                extra["usage"] = None
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
            self.pieces.append(Piece(kind, event(self.chunk([choice], **extra)), weight))


def _annotations(answer: Answer) -> list[dict[str, Any]]:
    span = {"start_index": 0, "end_index": len("".join(answer.text))}
    return [
        {"type": "url_citation", "url_citation": {**span, "url": url, "title": title}}
        for url, title in answer.found
    ]


def stream(answer: Answer, ask: Ask) -> list[Piece]:
    """Return the chunks: role, content, finish, usage, `[DONE]`."""
    chunks = _Chunks(answer, ask)
    chunks.delta("start", {"role": "assistant", "content": "" if answer.text else None})
    for piece in answer.reasoning:
        chunks.delta("content", {"reasoning_content": piece}, 1)
    for piece in answer.text:
        chunks.delta("content", {"content": piece}, 1)
    if answer.found:
        chunks.delta("content", {"annotations": _annotations(answer)})
    for piece in answer.refusal:
        chunks.delta("content", {"refusal": piece}, 1)
    for place, call in enumerate(answer.tool_calls):
        function = {"name": call.name, "arguments": ""}
        head = {"index": place, "id": call.call_id(place), "type": "function", "function": function}
        chunks.delta("content", {"tool_calls": [head]}, 1)
        for piece in call.arguments:
            chunks.delta("content", {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}, 1)
    chunks.delta("finish", {}, finish=answer.finish)
    if answer.usage == "always" or (answer.usage == "asked" and ask.usage):
        usage = event(chunks.chunk([], usage=usage_object(answer.truth())))
        chunks.pieces.append(Piece("usage", usage))
    chunks.pieces.append(Piece("end", b"data: [DONE]\n\n"))
    return chunks.pieces


def plain(answer: Answer, ask: Ask) -> bytes:
    """Return the whole answer as one object."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(answer.text) if answer.text else None,
        "refusal": "".join(answer.refusal) if answer.refusal else None,
    }
    if answer.found:
        message["annotations"] = _annotations(answer)
    if answer.reasoning:
        message["reasoning_content"] = "".join(answer.reasoning)
    if answer.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.call_id(place),
                "type": "function",
                "function": {"name": call.name, "arguments": call.joined()},
            }
            for place, call in enumerate(answer.tool_calls)
        ]
    body: dict[str, Any] = {
        "id": f"chatcmpl-{ID}",
        "object": "chat.completion",
        "created": CREATED,
        "model": ask.model,
        "choices": [
            {"index": index, "message": message, "logprobs": None, "finish_reason": answer.finish}
            for index in range(answer.choices)
        ],
        "system_fingerprint": FINGERPRINT,
    }
    if answer.usage != "never":
        body["usage"] = usage_object(answer.truth())
    return msgspec.json.encode(body)
