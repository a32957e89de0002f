"""The five formats as a plain client writes a short request in each, and reads the stream that answers it.

Written from the vendors' pages and not with our codecs, so that the tour sees what any client would see. In every
format the usage object carries the charge as `cost_nano_usd`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Event = dict[str, Any]

SHORT_TOKENS = 24
"""The output limit of the short answers."""

_QUESTION = "Where are sluice gates used?"
_PROMPT = "A sluice gate is used to"


class Told(NamedTuple):
    """What one event says."""

    text: str = ""
    usage: Event | None = None
    """Counts; those of a later event replace those of an earlier one, name by name."""
    ended: bool = False
    """The answer is whole."""


class Spent(NamedTuple):
    """What an answer used and cost; input includes what was cached, in whichever format."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_nano_usd: int


class WireFormat(NamedTuple):
    """Where a format is asked, and how its streams read."""

    name: str
    path: str
    read: Callable[[Event], Told]
    spent: Callable[[Event], Spent]
    """Reads the whole usage."""


def short_requests(model: str) -> list[tuple[WireFormat, str, Event]]:
    """Return path and body of a short request in every format but chat, which the tour begins with."""
    sampling: Event = {"temperature": 0}
    streamed = {"model": model, "stream": True, **sampling}
    limit = {"max_tokens": SHORT_TOKENS}
    with_usage = {"stream_options": {"include_usage": True}}
    completion = {**streamed, **limit, **with_usage, "prompt": _PROMPT}
    response = {**streamed, "max_output_tokens": SHORT_TOKENS, "input": _QUESTION}
    message = {**streamed, **limit, "messages": [{"role": "user", "content": _QUESTION}]}
    content = {
        "contents": [{"role": "user", "parts": [{"text": _QUESTION}]}],
        "generationConfig": {**sampling, "maxOutputTokens": SHORT_TOKENS},
    }
    return [
        (COMPLETIONS, COMPLETIONS.path, completion),
        (RESPONSES, RESPONSES.path, response),
        (MESSAGES, MESSAGES.path, message),
        (GEMINI, GEMINI.path.format(model=model), content),
    ]


def _read_chat(event: Event) -> Told:
    text = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
    return Told(text, event.get("usage"))


def _read_completions(event: Event) -> Told:
    return Told("".join(choice["text"] for choice in event["choices"]), event.get("usage"))


def _read_responses(event: Event) -> Told:
    match event["type"]:
        case "response.output_text.delta":
            return Told(event["delta"])
        case "response.completed" | "response.incomplete":
            return Told(usage=event["response"]["usage"], ended=True)
    return Told()


def _read_messages(event: Event) -> Told:
    match event["type"]:
        case "message_start":
            return Told(usage=event["message"]["usage"])
        case "content_block_delta":
            return Told(event["delta"].get("text", ""))
        case "message_delta":
            return Told(usage=event["usage"])
    return Told(ended=event["type"] == "message_stop")


def _read_gemini(event: Event) -> Told:
    (candidate,) = event.get("candidates") or [{}]
    parts = candidate.get("content", {}).get("parts", ())
    text = "".join(part.get("text", "") for part in parts)
    return Told(text, event.get("usageMetadata"), "finishReason" in candidate)


def _chat_spent(usage: Event) -> Spent:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Spent(usage["prompt_tokens"], cached, usage["completion_tokens"], usage["cost_nano_usd"])


def _responses_spent(usage: Event) -> Spent:
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    return Spent(usage["input_tokens"], cached, usage["output_tokens"], usage["cost_nano_usd"])


def _messages_spent(usage: Event) -> Spent:
    cached = usage.get("cache_read_input_tokens") or 0
    read = usage["input_tokens"] + cached + (usage.get("cache_creation_input_tokens") or 0)
    return Spent(read, cached, usage["output_tokens"], usage["cost_nano_usd"])


def _gemini_spent(usage: Event) -> Spent:
    cached = usage.get("cachedContentTokenCount") or 0
    written = usage.get("candidatesTokenCount") or 0
    return Spent(usage["promptTokenCount"], cached, written, usage["cost_nano_usd"])


CHAT = WireFormat("Chat Completions", "/v1/chat/completions", _read_chat, _chat_spent)
COMPLETIONS = WireFormat("Completions", "/v1/completions", _read_completions, _chat_spent)
RESPONSES = WireFormat("Responses", "/v1/responses", _read_responses, _responses_spent)
MESSAGES = WireFormat("Messages", "/v1/messages", _read_messages, _messages_spent)
GEMINI = WireFormat(
    "Gemini", "/v1beta/models/{model}:streamGenerateContent?alt=sse", _read_gemini, _gemini_spent
)
