"""How answers end, and why. Cases B009, B021, B032, B034, B080, B104, B107, B113, B128, B129."""

from tests.cases.case import Case
from tests.cases.frames import (
    CALLED,
    CREATED,
    DONE,
    END,
    TAIL,
    WEATHER,
    call,
    calls,
    chunk,
    completion,
    counted,
    data,
    event,
    function_call,
    generated,
    message,
    message_end,
    message_start,
    metadata,
    piece,
    response,
    said_item,
    text,
    text_block,
    text_item,
    tool_block,
    usage,
)
from tests.cases.world import THINKS, TOOLS

F = (("f", WEATHER),)
THOUGHT_ONLY = [{"type": "reasoning", "id": "rs_1", "summary": []}]


def incomplete(reason: str, output: list[dict[str, object]]) -> bytes:
    """Return the event that ends a Responses stream early."""
    body = response("incomplete", output, incomplete_details={"reason": reason}, usage=counted(3, 2))
    return event("response.incomplete", response=body)


ENDED = [
    # the marker without a reason
    Case(
        "B107", "no reason", "chat", text("Hello") + TAIL + DONE, text="Hello", row={"finish_reason": "stop"}
    ),
    Case("B107", "null reason", "chat", chunk({"content": "Hel"}, None) + TAIL + DONE, text="Hel"),
    Case(
        "B107",
        "whole calls",
        "chat",
        calls(call(0, "k", "f", WEATHER)) + TAIL + DONE,
        calls=F,
        finish="tool_calls",
        prompt=TOOLS,
    ),
    Case(
        "B107",
        "half a call after text",
        "chat",
        text("Hm"),
        calls(call(0, "k", "f", '{"ci')) + DONE,
        text="Hm",
        fails="upstream_error",
        prompt=TOOLS,
    ),
    Case("B107", "nothing at all", "chat", DONE, fails="upstream_error"),
    Case("B107", "no reason", "completions", piece("Hello") + DONE, text="Hello", usage=None),
    Case("B107", "nothing at all", "completions", DONE, fails="upstream_error"),
    Case("B034", "reason then marker", "chat", text("Hello") + END, text="Hello"),
    Case(
        "B034",
        "reset after thinking",
        "chat",
        chunk({"reasoning_content": "Hm"}),
        reasoning="Hm",
        how="reset",
        fails="upstream_error",
        prompt=THINKS,
        clients=("chat", "responses", "messages", "gemini"),
    ),
    Case("B034", "a close in the middle", "chat", text("Hello"), text="Hello", fails="upstream_error"),
    Case(
        "B034",
        "no end",
        "messages",
        message_start() + text_block(0, "Hello"),
        text="Hello",
        fails="upstream_error",
    ),
    Case(
        "B034", "no end", "responses", CREATED + text_item(0, "Hello"), text="Hello", fails="upstream_error"
    ),
    Case(
        "B034", "no end", "gemini", data(generated({"text": "Hello"})), text="Hello", fails="upstream_error"
    ),
    Case(
        "B034",
        "marker but no reason",
        "gemini",
        data(generated({"text": "Hello"}, usageMetadata=metadata())) + DONE,
        fails="upstream_error",
        text="Hello",
    ),
    Case("B034", "no end", "completions", piece("Hello"), text="Hello", fails="upstream_error"),
    # calls decide
    Case(
        "B009",
        "stop after a call",
        "chat",
        calls(call(0, "k", "f", WEATHER)) + END,
        calls=F,
        finish="tool_calls",
        prompt=TOOLS,
        plain=completion({"tool_calls": [call(0, "k", "f", WEATHER)]}),
    ),
    Case(
        "B009",
        "stop after a call",
        "gemini",
        data(generated(function_call("f", {"city": "Oslo"})))
        + data({"candidates": [{"finishReason": "STOP"}], "usageMetadata": metadata()}),
        calls=F,
        finish="tool_calls",
        prompt=TOOLS,
        plain=generated(function_call("f", {"city": "Oslo"}), finish="STOP", usageMetadata=metadata()),
    ),
    Case(
        "B009",
        "end_turn after a call",
        "messages",
        message_start() + tool_block(0, "k", "f", WEATHER) + message_end(),
        calls=F,
        finish="tool_calls",
        prompt=TOOLS,
        plain=message([{"type": "tool_use", "id": "k", "name": "f", "input": {"city": "Oslo"}}]),
    ),
    Case(
        "B009",
        "length after a call",
        "chat",
        calls(call(0, "k", "f", WEATHER)) + chunk({}, "length") + TAIL + DONE,
        calls=F,
        finish="length",
        prompt=TOOLS,
    ),
    Case(
        "B009",
        "filter after a call",
        "chat",
        calls(call(0, "k", "f", WEATHER)) + chunk({}, "content_filter") + TAIL + DONE,
        calls=F,
        finish="content_filter",
        prompt=TOOLS,
    ),
    # refusals and filters
    Case(
        "B021",
        "refusal",
        "messages",
        message_start() + text_block(0, "I can't") + message_end("refusal"),
        text="I can't",
        finish="content_filter",
        plain=message([{"type": "text", "text": "I can't"}], "refusal"),
    ),
    Case(
        "B021",
        "content_filter",
        "chat",
        text("Wa") + chunk({}, "content_filter") + TAIL + DONE,
        text="Wa",
        finish="content_filter",
        plain=completion({"content": "Wa"}, "content_filter"),
    ),
    Case(
        "B021",
        "a filter alone",
        "chat",
        chunk({"role": "assistant"}) + chunk({}, "content_filter") + TAIL + DONE,
        finish="content_filter",
        plain=completion({"content": None}, "content_filter"),
    ),
    Case(
        "B021",
        "a refusal's text",
        "chat",
        chunk({"refusal": "no"}) + END,
        refusal="no",
        clients=("chat", "responses"),
        plain=completion({"refusal": "no"}),
    ),
    Case(
        "B021",
        "the context window",
        "messages",
        message_start() + text_block(0, "Wa") + message_end("model_context_window_exceeded"),
        text="Wa",
        finish="length",
        clients=("chat", "completions", "responses", "gemini"),
    ),
    Case(
        "B021",
        "an unknown reason",
        "messages",
        message_start() + text_block(0, "Wa") + message_end("weird"),
        text="Wa",
        clients=("chat", "completions", "responses", "gemini"),
    ),
    Case(
        "B021",
        "pause_turn",
        "messages",
        message_start() + text_block(0, "Wa") + message_end("pause_turn"),
        text="Wa",
        clients=("chat", "completions", "responses", "gemini"),
    ),
    Case(
        "B021",
        "an unknown reason",
        "chat",
        text("Wa") + chunk({}, "weird") + TAIL + DONE,
        text="Wa",
        clients=("responses", "messages", "gemini"),
    ),
    Case(
        "B021",
        "an unknown reason",
        "gemini",
        data(generated({"text": "Wa"}, finish="WEIRD", usageMetadata=metadata())),
        text="Wa",
        clients=("chat", "completions", "responses", "messages"),
    ),
    Case(
        "B021",
        "SAFETY",
        "gemini",
        data(generated({"text": "Wa"}, finish="SAFETY", usageMetadata=metadata())),
        text="Wa",
        finish="content_filter",
    ),
    # limits
    Case(
        "B032",
        "thinking ate the budget",
        "responses",
        CREATED + incomplete("max_output_tokens", THOUGHT_ONLY),
        finish="length",
        plain=response(
            "incomplete",
            THOUGHT_ONLY,
            incomplete_details={"reason": "max_output_tokens"},
            usage=counted(3, 2),
        ),
    ),
    Case(
        "B032",
        "length after text",
        "responses",
        CREATED + text_item(0, "Once") + incomplete("max_output_tokens", [said_item("Once")]),
        text="Once",
        finish="length",
    ),
    Case(
        "B032",
        "filter after text",
        "responses",
        CREATED + text_item(0, "Once") + incomplete("content_filter", [said_item("Once")]),
        text="Once",
        finish="content_filter",
    ),
    Case(
        "B032",
        "length",
        "chat",
        text("Once") + chunk({}, "length") + TAIL + DONE,
        text="Once",
        finish="length",
        plain=completion({"content": "Once"}, "length"),
    ),
    Case(
        "B032",
        "length and no text",
        "chat",
        chunk({"content": ""}) + chunk({}, "length") + TAIL + DONE,
        finish="length",
        plain=completion({"content": ""}, "length"),
    ),
    Case(
        "B032",
        "max_tokens",
        "messages",
        message_start() + text_block(0, "Once") + message_end("max_tokens"),
        text="Once",
        finish="length",
    ),
    Case(
        "B032",
        "MAX_TOKENS and no parts",
        "gemini",
        data({"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}], "usageMetadata": metadata(3, 2)}),
        finish="length",
    ),
    # who speaks is told once
    Case(
        "B031",
        "ids and times change",
        "chat",
        chunk({"content": "a"}, id="a", created=100)
        + chunk({"content": "b"}, id="b", created=101)
        + chunk({"content": "c"}, id=None, created=None, model=None)
        + data({"choices": [{"index": 0, "delta": {"content": "d"}, "finish_reason": "stop"}]})
        + data({"id": "z", "choices": [], "usage": usage(3, 2)})
        + DONE,
        text="abcd",
    ),
    Case(
        "B031",
        "no ids",
        "gemini",
        data({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "a"}]}}]})
        + data(
            generated(
                {"text": "b"}, finish="STOP", usageMetadata=metadata(), responseId="other", modelVersion=None
            )
        ),
        text="ab",
    ),
    Case(
        "B031",
        "ids change",
        "completions",
        piece("a", id="a", created=100)
        + piece("b", "stop", id="b", created=101)
        + data({"choices": [], "usage": usage(3, 2)})
        + DONE,
        text="ab",
    ),
    # a reason is a state
    Case(
        "B080",
        "stop on every chunk",
        "chat",
        b"".join(chunk({"content": each}, "stop") for each in "abc") + TAIL + DONE,
        text="abc",
    ),
    Case(
        "B080",
        "STOP on every chunk",
        "gemini",
        b"".join(data(generated({"text": each}, finish="STOP", usageMetadata=metadata())) for each in "abc"),
        text="abc",
    ),
    Case(
        "B080",
        "a null reason before text",
        "chat",
        chunk({"content": ""}) + chunk({"content": ""}) + text("Hi") + chunk({"content": ""}, "") + END,
        text="Hi",
    ),
    Case(
        "B080",
        "stop on every chunk",
        "completions",
        piece("a", "stop")
        + piece("b", "stop")
        + data(
            {
                "id": "c1",
                "object": "text_completion",
                "created": 1,
                "model": "up",
                "choices": [],
                "usage": usage(3, 2),
            }
        )
        + DONE,
        text="ab",
    ),
    Case(
        "B128",
        "STOP with each call",
        "gemini",
        data(generated(function_call("f", {"city": "Oslo"}), finish="STOP", usageMetadata=metadata()))
        + data(generated(function_call("g", {}), finish="STOP", usageMetadata=metadata())),
        calls=(*F, ("g", "{}")),
        finish="tool_calls",
        prompt=TOOLS,
    ),
    # no block before there is something to put into it
    Case(
        "B113",
        "an empty text before a call",
        "chat",
        chunk({"role": "assistant", "content": ""}) + calls(call(0, "k", "f", WEATHER)) + CALLED,
        calls=F,
        finish="tool_calls",
        prompt=TOOLS,
    ),
]
