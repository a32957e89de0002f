"""Answers that a provider pauses: which part of one a request gets, and how its next one is recognised.

As the providers do: Messages (`pause_turn`) goes on from the content that comes back as the last turn, Gemini
(`CONTINUATION`) from a token. Nothing is remembered between requests. Source: wire formats pages
`anthropic-messages.md` and `gemini.md`.
"""

import base64
from typing import Any

import msgspec

from sluicegate.messages import Format
from sluicegate.simulator.answer import Answer


class Unknown(ValueError):
    """A request goes on from what we never said."""


def part_of(answer: Answer, format: Format, body: bytes) -> Answer:
    """Return what a request gets of an answer that is paused every `pause_after` pieces of text.

    Raises:
        Unknown: it goes on from something else.
    """
    if not answer.pause_after or format not in ("messages", "gemini"):
        return answer
    request = msgspec.json.decode(body)
    said = _said_to_gemini(request) if format == "gemini" else _said_to_messages(answer, request)
    until = said + answer.pause_after
    part = msgspec.structs.replace(answer, pause_after=0, text=answer.text[said:until], output_tokens=None)
    if said:
        part = msgspec.structs.replace(part, reasoning=(), signature=None, redacted=None, searches=())
        if format == "messages":
            part = msgspec.structs.replace(part, input_tokens=answer.input_tokens + said)
    if until < len(answer.text):
        token = base64.b64encode(f"from {until}".encode()).decode()
        part = msgspec.structs.replace(part, finish="paused", tool_calls=(), refusal=(), token=token)
    return part


def _said_to_gemini(request: dict[str, Any]) -> int:
    token = request.get("continuationToken")
    if token is None:
        return 0
    try:
        return int(base64.b64decode(token, validate=True).decode().removeprefix("from "))
    except ValueError:
        raise Unknown("continuationToken is none of ours") from None


def _said_to_messages(answer: Answer, request: dict[str, Any]) -> int:
    last = request["messages"][-1]
    if last["role"] != "assistant":
        return 0
    blocks = last["content"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    thoughts = [block for block in blocks if block["type"] == "thinking"]
    if "".join(block["thinking"] for block in thoughts) != "".join(answer.reasoning):
        raise Unknown("the thinking in the last turn is not what was thought")
    if any(block["signature"] != answer.signature for block in thoughts if answer.signature):
        raise Unknown("a signature in the last turn is not ours")
    for said in range(len(answer.text) + 1):
        if "".join(answer.text[:said]) == text:
            return said
    raise Unknown("the last turn is not what was said")
