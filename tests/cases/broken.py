"""Providers that fail in the middle, or say so inside a 200. Cases B010, B011, B043, B054."""

from tests.cases.case import Case
from tests.cases.frames import (
    CREATED,
    DONE,
    END,
    chunk,
    completion,
    data,
    event,
    generated,
    message_end,
    message_start,
    metadata,
    piece,
    response,
    text,
    text_block,
    text_item,
)

HALF = {
    "chat": text("Hello", " wor"),
    "completions": piece("Hello") + piece(" wor"),
    "messages": message_start()
    + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello wor"}),
    "responses": CREATED + text_item(0, "Hello wor"),
    "gemini": data(generated({"text": "Hello wor"})),
}
WORKER = {"code": 502, "message": "worker full"}
INSIDE = {
    "chat": data({"id": "c1", "choices": [], "error": WORKER}),
    "completions": data({"id": "c1", "choices": [], "error": WORKER}),
    "messages": event("error", error={"type": "api_error", "message": "worker full"}),
    "responses": event(
        "response.failed",
        response=response("failed", error={"code": "server_error", "message": "worker full"}),
    ),
    "gemini": data({"error": {"code": 502, "message": "worker full", "status": "INTERNAL"}}),
}
FINISHED = data(
    {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}], "error": WORKER}
)

BROKEN = [
    *(
        Case("B010", "reset", provider, body, text="Hello wor", how="reset", fails="upstream_error")
        for provider, body in HALF.items()
    ),
    *(
        Case("B010", "no last chunk", provider, body, text="Hello wor", how="close", fails="upstream_error")
        for provider, body in HALF.items()
    ),
    Case("B010", "the marker alone", "chat", text("Hello wor"), text="Hello wor", fails="upstream_error"),
    *(
        Case("B011", "after text", provider, HALF[provider] + body, text="Hello wor", fails="upstream_error")
        for provider, body in INSIDE.items()
    ),
    *(Case("B011", "at once", provider, body, fails="upstream_error") for provider, body in INSIDE.items()),
    *(
        Case("B043", "first event of a stream", provider, start + INSIDE[provider], fails="upstream_error")
        for provider, start in (
            ("messages", message_start()),
            ("responses", CREATED),
            ("chat", chunk({"role": "assistant", "content": ""})),
        )
    ),
    Case(
        "B011",
        "with a reason",
        "chat",
        text("Hello wor") + FINISHED,
        text="Hello wor",
        fails="upstream_error",
    ),
    Case("B011", "with a reason at once", "chat", FINISHED + DONE, fails="upstream_error"),
    Case(
        "B011",
        "a flat type",
        "responses",
        HALF["responses"] + event("error", code="server_error", message="worker full", param=None),
        text="Hello wor",
        fails="upstream_error",
    ),
    Case(
        "B011",
        "null",
        "chat",
        chunk({"content": "Hi"}, error=None) + END,
        text="Hi",
        plain=completion({"content": "Hi"}, error=None),
    ),
    Case(
        "B011",
        "null",
        "gemini",
        data(generated({"text": "Hi"}, finish="STOP", usageMetadata=metadata(), error=None)),
        text="Hi",
    ),
    Case("B011", "null", "completions", piece("Hi", "stop", error=None) + DONE, text="Hi", usage=None),
    Case("B010", "plain", "messages", message_start() + text_block(0, "Hello") + message_end(), text="Hello"),
]
