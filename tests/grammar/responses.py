"""The grammar of a Responses stream as the gate must emit it: items and parts opened, filled and closed in order.

Source: contract R1, R2, E2; wire/responses.md, "What the SDK helper enforces", and wire/node-sdks.md.
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

TERMINAL = {"response.completed", "response.incomplete", "response.failed"}
PARTS = {
    "response.output_text": ("output_text", "text"),
    "response.refusal": ("refusal", "refusal"),
    "response.reasoning_text": ("reasoning_text", "text"),
}
"""Event family: the part's type and the field that holds its text."""
ARGUMENTS = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
}
"""Event family: the item's type and the field that holds its text."""
SUMMARY = "response.reasoning_summary_text"


class _Item:
    """One open item."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self.text = ""
        """Of the open part, or of the call's arguments."""
        self.part: str | None = None
        """Type of the open part."""
        self.parts: list[dict[str, Any]] = []
        self.text_done = False
        self.states: list[str] = []
        """Of a search of the web: how far it has been told to be."""


class _Response:
    """What the stream has said so far."""

    def __init__(self, model: str | None) -> None:
        self.model = model
        self.id: str | None = None
        self.started = 0
        self.item: _Item | None = None
        self.output: list[dict[str, Any]] = []
        self.final: dict[str, Any] | None = None
        self.final_type: str | None = None
        self.error: dict[str, Any] | None = None

    def take(self, type_: str, payload: dict[str, Any]) -> None:
        assert self.final is None, f"{type_} follows {self.final_type}"
        if self.error is not None:
            assert type_ == "response.failed", f"{type_} follows the error"
        if type_ == "error":
            self._error(payload)
        elif type_ in ("response.created", "response.in_progress", "response.queued", *TERMINAL):
            self._lifecycle(type_, payload["response"])
        else:
            assert self.id is not None, f"{type_} before response.created"
            self._content(type_, payload)

    def _lifecycle(self, type_: str, response: dict[str, Any]) -> None:
        if self.id is None and self.error is None:
            assert type_ == "response.created", f"the first event is {type_}"
            assert response["output"] == [], f"output is {response['output']!r}"
        assert isinstance(response["id"], str), f"id is {response['id']!r}"
        assert response["id"], "id is empty"
        assert self.id in (None, response["id"]), f"the response's id changed: {self.id} to {response['id']}"
        assert isinstance(response["created_at"], int), f"created_at is {response['created_at']!r}"
        assert self.model is None or response["model"] == self.model, f"model is {response['model']!r}"
        assert isinstance(response["output"], list), f"output is {response['output']!r}"
        self.id = response["id"]
        if type_ not in TERMINAL:
            assert self.item is None, f"{type_} inside an item"
            assert not self.output, f"{type_} after an item"
            return
        self.final, self.final_type = response, type_
        status = type_.removeprefix("response.")
        assert response["status"] == status, f"{type_} with status {response['status']!r}"
        if type_ == "response.failed":
            assert isinstance(response["error"]["code"], str), f"error is {response['error']!r}"
            assert self.error is not None, "response.failed without an error event before it"
            return
        assert self.item is None, f"{type_} while an item is open"
        assert response["output"] == self.output, "the final output is not what was streamed"
        usage = response["usage"]
        check_count(usage, "input_tokens", "output_tokens", "total_tokens")
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"], (
            f"wrong total: {usage}"
        )
        check_count(usage["input_tokens_details"], "cached_tokens")
        check_count(usage["output_tokens_details"], "reasoning_tokens")

    def _error(self, payload: dict[str, Any]) -> None:
        inner = payload["error"]
        for shape in (payload, inner):
            assert isinstance(shape.get("message"), str), f"message is {shape.get('message')!r}"
            assert shape["message"], "the message is empty"
            assert shape.get("code") is None or isinstance(shape["code"], str), f"code is {shape['code']!r}"
        self.error = inner

    def _content(self, type_: str, payload: dict[str, Any]) -> None:
        index = payload.get("output_index")
        assert index == len(self.output), f"{type_} for output {index}, not {len(self.output)}"
        if type_ == "response.output_item.added":
            assert self.item is None, "an item starts inside another"
            item = payload["item"]
            assert isinstance(item.get("id"), str), f"an item without id: {item}"
            for kind, field in (("message", "content"), ("reasoning", "summary")):
                assert item["type"] != kind or item.get(field) == [], f"{field} of a new {kind} is not []"
            self.item = _Item(item)
            return
        assert self.item is not None, f"{type_} outside an item"
        if type_ == "response.output_item.done":
            self._item_done(self.item, payload["item"])
            return
        assert payload.get("item_id") == self.item.item["id"], f"{type_} has another item_id"
        family, _, last = type_.rpartition(".")
        if family == "response.web_search_call":
            self.item.states.append(last)
            return
        if type_ in ("response.content_part.added", "response.reasoning_summary_part.added"):
            self._part_added(self.item, payload)
        elif type_ in ("response.content_part.done", "response.reasoning_summary_part.done"):
            self._part_done(self.item, payload)
        elif last in ("delta", "done") and (family in PARTS or family in ARGUMENTS or family == SUMMARY):
            self._text(self.item, family, last, payload)

    def _part_added(self, item: _Item, payload: dict[str, Any]) -> None:
        assert item.part is None, "a part starts inside another"
        index = payload.get("content_index", payload.get("summary_index"))
        assert index == len(item.parts), f"part {index}, not {len(item.parts)}"
        item.part, item.text, item.text_done = payload["part"]["type"], "", False

    def _part_done(self, item: _Item, payload: dict[str, Any]) -> None:
        part = payload["part"]
        assert item.part == part["type"], f"the part was {item.part!r}, is {part['type']!r}"
        assert item.text_done, "a part is done before its text"
        assert part.get("text", part.get("refusal")) == item.text, "the part is not what was streamed"
        item.parts.append(part)
        item.part = None

    def _text(self, item: _Item, family: str, last: str, payload: dict[str, Any]) -> None:
        if family in ARGUMENTS:
            kind, field = ARGUMENTS[family]
            assert item.item["type"] == kind, f"{family} in a {item.item['type']} item"
        else:
            kind, field = PARTS.get(family, ("summary_text", "text"))
            assert item.part == kind, f"{family} in a part of type {item.part!r}"
        assert not item.text_done, f"{family}.{last} after its done"
        if last == "delta":
            assert isinstance(payload["delta"], str), f"delta is {payload['delta']!r}"
            item.text += payload["delta"]
        else:
            assert payload[field] == item.text, f"{family}.done is not what was streamed"
            item.text_done = True

    def _item_done(self, item: _Item, done: dict[str, Any]) -> None:
        assert (done["id"], done["type"]) == (item.item["id"], item.item["type"]), (
            "the item's id or type changed"
        )
        assert item.part is None, "an item is done while a part is open"
        match done["type"]:
            case "message":
                assert done["content"] == item.parts, "the message is not what was streamed"
                assert done["status"] in ("completed", "incomplete"), f"status is {done['status']!r}"
            case "function_call":
                assert item.text_done, "a call is done before its arguments"
                assert done["arguments"] == item.text, "the arguments are not what was streamed"
                assert done["status"] in ("completed", "incomplete"), f"status is {done['status']!r}"
                for field in ("call_id", "name"):
                    assert done[field] == item.item[field], f"{field} changed"
                    assert done[field], f"{field} is empty"
                if done["status"] == "completed":
                    json.loads(done["arguments"])
            case "web_search_call":
                assert item.states in ([], ["in_progress", "searching", "completed"]), item.states
                assert done["action"]["type"] in ("search", "open_page", "find_in_page"), done
        self.output.append(done)
        self.item = None


def check_responses_stream(
    raw: bytes,
    *,
    model: str | None = None,
    cost_nano_usd: int | None = None,
    end: Literal["done", "error"] | None = "done",
    keepalive: bool = False,
) -> ParsedStream:
    """Check the body of a streamed response and return what it said.

    Args:
        raw: the body without HTTP framing.
        model: the id that every lifecycle event must carry.
        cost_nano_usd: the cost that the terminal event's usage must tell.
        end: how it must end: completed or incomplete, or with an error and `response.failed`; None: either.
        keepalive: whether comments between events are allowed.
    Raises: AssertionError with what is wrong.
    """
    events, kept = check_events(raw, keepalive="comment" if keepalive else None, named=True)
    response = _Response(model)
    payloads = []
    for number, event in enumerate(events):
        payload = parse_object(event.data)
        type_ = payload.get("type")
        assert type_ == event.name, f"event {event.name!r} holds {type_!r}"
        assert payload.get("sequence_number") == number, (
            f"{type_}: sequence_number {payload.get('sequence_number')}, not {number}"
        )
        response.take(str(type_), payload)
        payloads.append(payload)
    final = response.final
    assert final is not None, "no terminal event: a false end"
    failed = response.final_type == "response.failed"
    assert end != "done" or not failed, f"it ended with the error {response.error}"
    assert end != "error" or failed, f"it ended with {response.final_type}, not with an error"
    if cost_nano_usd is not None:
        assert final["usage"] is not None, "no usage, so no cost"
        check_cost(final["usage"], cost_nano_usd)
    parts = [part for item in response.output if item["type"] == "message" for part in item["content"]]
    thoughts = [item for item in response.output if item["type"] == "reasoning"]
    reason = (final.get("incomplete_details") or {}).get("reason")
    return ParsedStream(
        text="".join(part["text"] for part in parts if part["type"] == "output_text"),
        reasoning="".join(
            part["text"] for item in thoughts for part in (item.get("content") or []) + item["summary"]
        ),
        refusal="".join(part["refusal"] for part in parts if part["type"] == "refusal"),
        tool_calls=[
            ParsedCall(item["call_id"], item["name"], item["arguments"])
            for item in response.output
            if item["type"] == "function_call"
        ],
        finish=reason or final["status"],
        usage=final["usage"],
        error=response.error,
        events=payloads,
        keepalives=kept,
    )
