"""Legacy Completions as a provider answers it: text only. Source: wire/completions.md."""

from typing import Any

import msgspec

from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats.base import Ask, Piece
from sluicegate.simulator.formats.openai import CREATED, error_body, error_event, event, usage_object

__all__ = ["error_body", "error_event", "plain", "stream"]


def _object(ask: Ask, choices: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
    head: dict[str, Any] = {
        "id": f"cmpl-{ID}",
        "object": "text_completion",
        "created": CREATED,
        "model": ask.model,
    }
    return head | {"choices": choices} | extra


def _choice(index: int, text: str, finish: str | None) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish}


def stream(answer: Answer, ask: Ask) -> list[Piece]:
    """Return text, finish, usage, `[DONE]`; reasoning is counted, never shown."""
    pieces: list[Piece] = []
    sent = 0

    def add(kind: Any, text: str, weight: int, finish: str | None = None) -> None:
        nonlocal sent
        for index in range(answer.choices):
            sent += weight
            extra: dict[str, Any] = {}
            if answer.usage == "running":
                extra["usage"] = usage_object(answer.truth(sent))
            elif finish is not None and answer.usage == "with_finish":
                extra["usage"] = usage_object(answer.truth())
            elif answer.usage == "asked" and ask.usage:
                extra["usage"] = None
            pieces.append(Piece(kind, event(_object(ask, [_choice(index, text, finish)], **extra)), weight))

    hidden = len(answer.reasoning)
    for piece in answer.text + answer.refusal:
        add("content", piece, 1 + hidden)
        hidden = 0
    add("finish", "", hidden, "stop" if answer.finish == "tool_calls" else answer.finish)
    if answer.usage == "always" or (answer.usage == "asked" and ask.usage):
        pieces.append(Piece("usage", event(_object(ask, [], usage=usage_object(answer.truth())))))
    pieces.append(Piece("end", b"data: [DONE]\n\n"))
    return pieces


def plain(answer: Answer, ask: Ask) -> bytes:
    """Return the whole answer as one object."""
    finish = "stop" if answer.finish == "tool_calls" else answer.finish
    text = "".join(answer.text + answer.refusal)
    extra: dict[str, Any] = {} if answer.usage == "never" else {"usage": usage_object(answer.truth())}
    return msgspec.json.encode(
        _object(ask, [_choice(index, text, finish) for index in range(answer.choices)], **extra)
    )
