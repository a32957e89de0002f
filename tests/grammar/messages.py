"""The grammar of a Messages stream as the gate must emit it.

Source: contract M1, M2, E2; wire/anthropic-messages.md and wire/node-sdks.md, "What the SDK helper enforces".
"""

import json
from typing import Any, Literal

from tests.grammar.narrow_sse import (
    ParsedCall,
    ParsedStream,
    check_cost,
    check_count,
    check_events,
    parse_object,
)

DELTAS = {
    "text": {"text_delta": "text", "citations_delta": "citation"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": {"input_json_delta": "partial_json"},
    "server_tool_use": {"input_json_delta": "partial_json"},
}
"""Block type: the delta types it may get, and the field of each."""
STOP_REASONS = {
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
}
CACHE_COUNTS = ("cache_read_input_tokens", "cache_creation_input_tokens")


class _Message:
    """What the stream has said so far."""

    def __init__(self) -> None:
        self.started = self.stopped = False
        self.open: dict[str, Any] | None = None
        self.blocks: list[dict[str, Any]] = []
        self.joined: list[dict[str, str]] = []
        """Of each block: field of its deltas, all of them together."""
        self.stop_reason: str | None = None
        self.usage: dict[str, Any] | None = None
        self.start_usage: dict[str, Any] = {}
        self.error: dict[str, Any] | None = None

    def take(self, payload: dict[str, Any], model: str | None) -> None:
        type_ = payload["type"]
        assert not self.stopped, f"{type_} follows message_stop"
        assert self.error is None, f"{type_} follows the error"
        if type_ not in ("message_start", "ping", "error"):
            assert self.started, f"{type_} before message_start"
        handler = getattr(self, "_" + type_, None)
        assert handler is not None, f"unknown event type {type_!r}"
        if type_ == "message_start":
            assert not self.started, "message_start came twice"
            self.started = True
            self._message_start(payload, model)
        else:
            handler(payload)

    def _message_start(self, payload: dict[str, Any], model: str | None) -> None:
        message = payload["message"]
        assert message["type"] == "message", f"type is {message['type']!r}"
        assert message["role"] == "assistant", f"role is {message['role']!r}"
        assert message["content"] == [], f"content is {message['content']!r}"
        assert isinstance(message["id"], str), f"id is {message['id']!r}"
        assert message["id"], "id is empty"
        assert model is None or message["model"] == model, f"model is {message['model']!r}, not {model!r}"
        assert message["stop_reason"] is None, "message_start has a stop reason"
        self.start_usage = message["usage"]
        check_count(self.start_usage, "input_tokens", "output_tokens")
        assert not {"cost", "cost_nano_usd"} & self.start_usage.keys(), "message_start tells a cost"

    def _ping(self, payload: dict[str, Any]) -> None:
        pass

    def _content_block_start(self, payload: dict[str, Any]) -> None:
        assert self.open is None, f"a block starts inside another: {payload}"
        assert self.stop_reason is None, "a block starts after message_delta"
        assert payload["index"] == len(self.blocks), f"index {payload['index']}, not {len(self.blocks)}"
        block = payload["content_block"]
        match block["type"]:
            case "text":
                assert block["text"] == "", f"a text block starts with {block['text']!r}"
            case "thinking":
                assert block["thinking"] == "", f"a thinking block starts with {block['thinking']!r}"
            case "tool_use":
                assert isinstance(block["input"], dict), f"input is {block['input']!r}"
                assert isinstance(block["id"], str), f"id is {block['id']!r}"
                assert block["id"], "id is empty"
                assert isinstance(block["name"], str), f"name is {block['name']!r}"
                assert block["name"], "name is empty"
        self.open = block
        self.blocks.append(block)
        self.joined.append({})

    def _content_block_delta(self, payload: dict[str, Any]) -> None:
        assert self.open is not None, f"a delta outside a block: {payload}"
        assert payload["index"] == len(self.blocks) - 1, f"a delta for block {payload['index']}"
        delta = payload["delta"]
        fields = DELTAS.get(self.open["type"], {})
        assert delta["type"] in fields, f"{delta['type']} in a {self.open['type']} block"
        field = fields[delta["type"]]
        if field != "citation":
            assert isinstance(delta[field], str), f"{field} is {delta[field]!r}"
            joined = self.joined[-1]
            joined[field] = joined.get(field, "") + delta[field]
            assert field != "partial_json" or not self.open["input"], "a block with input gets deltas too"

    def _content_block_stop(self, payload: dict[str, Any]) -> None:
        assert self.open is not None, "content_block_stop without a block"
        assert payload["index"] == len(self.blocks) - 1, f"a stop for block {payload['index']}"
        if self.open["type"] == "tool_use":
            arguments = json.loads(self.joined[-1].get("partial_json") or "{}")
            assert isinstance(arguments, dict), f"input is {arguments!r}"
        self.open = None

    def _message_delta(self, payload: dict[str, Any]) -> None:
        assert self.open is None, "message_delta inside a block"
        reason = payload["delta"].get("stop_reason")
        assert reason in STOP_REASONS, f"stop_reason is {reason!r}"
        self.stop_reason = reason
        self.usage = payload["usage"]
        check_count(self.usage, "output_tokens")
        for name in ("input_tokens", *CACHE_COUNTS):
            if name in self.usage:
                check_count(self.usage, name)

    def _message_stop(self, payload: dict[str, Any]) -> None:
        assert self.stop_reason is not None, "message_stop without message_delta"
        self.stopped = True

    def _error(self, payload: dict[str, Any]) -> None:
        error = payload["error"]
        assert isinstance(error.get("type"), str), f"error.type is {error.get('type')!r}"
        assert isinstance(error.get("message"), str), f"error.message is {error.get('message')!r}"
        assert error["message"], "error.message is empty"
        self.error = error


def check_messages_stream(
    raw: bytes,
    *,
    model: str | None = None,
    cost_nano_usd: int | None = None,
    end: Literal["done", "error"] | None = "done",
) -> ParsedStream:
    """Check the body of a streamed message and return what it said.

    Args:
        raw: the body without HTTP framing.
        model: the id that `message_start` must carry.
        cost_nano_usd: the cost that `message_delta.usage` must tell.
        end: how it must end, with `message_stop` or with an error; None: either.
    Raises: AssertionError with what is wrong.
    """
    events, _ = check_events(raw, named=True)
    message = _Message()
    payloads = []
    pings = 0
    for event in events:
        payload = parse_object(event.data)
        assert payload.get("type") == event.name, f"event {event.name!r} holds {payload.get('type')!r}"
        pings += event.name == "ping"
        message.take(payload, model)
        payloads.append(payload)
    assert message.stopped or message.error is not None, "neither message_stop nor an error: a false end"
    assert end != "done" or message.stopped, f"it ended with the error {message.error}"
    assert end != "error" or message.error is not None, "it ended with message_stop, not with an error"
    if cost_nano_usd is not None:
        assert message.usage is not None, "no usage, so no cost"
        check_cost(message.usage, cost_nano_usd)

    def joined(type_: str, field: str) -> str:
        pairs = zip(message.blocks, message.joined, strict=True)
        return "".join(deltas.get(field, "") for block, deltas in pairs if block["type"] == type_)

    calls = [
        ParsedCall(block["id"], block["name"], deltas.get("partial_json") or json.dumps(block["input"]))
        for block, deltas in zip(message.blocks, message.joined, strict=True)
        if block["type"] == "tool_use"
    ]
    counts = {name: value for name, value in (message.usage or {}).items() if value is not None}
    return ParsedStream(
        text=joined("text", "text"),
        reasoning=joined("thinking", "thinking"),
        refusal="",
        tool_calls=calls,
        finish=message.stop_reason,
        usage=message.start_usage | counts if message.usage is not None else None,
        error=message.error,
        events=payloads,
        keepalives=pings,
    )
