"""A request in no format, written for a legacy Completions provider: the conversation becomes one text.

The text is made by the built-in `plain` template, and that is told: system text, then a turn each behind `User: ` or
`Assistant: `, and at the end `Assistant:`, behind which the model goes on. So that it stops where the user would speak
again, that is asked for as a stop sequence where there is room for one. Tools, media and shapes of answers have no
place in it and are refused. Source: wire formats page `completions.md`, "Translating it"; translation matrix.
"""

from typing import Any

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Message, Reasoning, Refusal, Request, Text, ToolCall, ToolResult
from sluicegate.wire import json_edit
from sluicegate.wire.openai_chat_request_encoder import sampling
from sluicegate.wire.openai_user import provider_user
from sluicegate.wire.translation import Notes

MAX_TOP_LOGPROBS = 5
_TURN = "\n\n"
_USER, _ASSISTANT = "User:", "Assistant:"


def encode_request(request: Request, model: str, can: Capabilities, notes: Notes) -> bytes:
    """Encode a body for the provider's model. See `RequestEncoder`."""
    if can.prompt_template == "none":
        notes.reject("messages", "this model completes text and takes no conversation")
    _refuse(request, notes)
    body: dict[str, Any] = {"model": model, "prompt": flatten(request, notes)}
    if request.suffix:
        body["suffix"] = request.suffix
    body |= _limit(request, can, notes)
    body |= sampling(request, can, notes)
    stop = list(body.get("stop", ()))
    if len(stop) < can.max_stop_sequences:
        stop.append(f"\n{_USER}")
    if stop:
        body["stop"] = stop
    if request.logprobs:
        body["logprobs"] = min(request.top_logprobs or 0, MAX_TOP_LOGPROBS)
        if request.top_logprobs is not None and request.top_logprobs > MAX_TOP_LOGPROBS:
            notes.warn("top_logprobs", f"cut to {MAX_TOP_LOGPROBS}")
    if request.user:
        body["user"] = provider_user(request.user, notes)
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return json_edit.dumps(body)


def _refuse(request: Request, notes: Notes) -> None:
    """Drop, name or refuse what this format has no word for."""
    if request.tools:
        notes.reject("tools", "this provider completes text and calls no tools")
    if request.web_search is not None:
        notes.reject("web_search", "this provider completes text and searches nothing")
    if request.response_format is not None:
        notes.reject("response_format", "this provider completes text")
    control = request.reasoning
    if control is not None and control.effort != "none" and control.budget_tokens != 0:
        notes.drop("reasoning", "this provider completes text")
    for field in ("verbosity", "metadata", "service_tier", "prompt_cache_key"):
        if getattr(request, field):
            notes.drop(field)


def _limit(request: Request, can: Capabilities, notes: Notes) -> dict[str, int]:
    """Return the limit; without one such servers stop after a few tokens, so the model's own is said."""
    limit, most = request.max_output_tokens, can.max_output_tokens
    if limit is not None and most is not None and limit > most:
        notes.warn("max_tokens", f"cut to the model's {most}")
        limit = most
    if limit is None:
        limit = most
    return {} if limit is None else {"max_tokens": limit}


# ---- the template ---------------------------------------------------------------------------------------------------


def flatten(request: Request, notes: Notes) -> str:
    """Return the conversation as one text, by the `plain` template."""
    notes.warn("messages", "flattened")
    turns: list[str] = []
    for message in request.messages:
        text = _text(message, notes)
        if message.role == "user":
            turns.append(f"{_USER} {text}")
        elif message.role == "assistant":
            turns.append(f"{_ASSISTANT} {text}")
        elif text:
            turns.append(text)
    if not request.messages or request.messages[-1].role != "assistant":
        turns.append(_ASSISTANT)
    return _TURN.join(turns)


def _text(message: Message, notes: Notes) -> str:
    path = message.path or "messages"
    texts: list[str] = []
    for place, part in enumerate(message.parts):
        where = f"{path}.content[{place}]"
        match part:
            case Text() | Refusal():
                texts.append(part.text)
            case Reasoning():
                notes.drop(where, "earlier thoughts are not taken")
            case ToolCall() | ToolResult():
                notes.reject(where, "this provider completes text and knows no tools")
            case _:
                notes.reject(where, "this provider completes text and takes nothing else")
    return ("" if message.role == "assistant" else "\n").join(texts)
