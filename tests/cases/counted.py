"""Usage, wherever and however a provider tells it. Cases B007, B008, B045, B046, B050, B073, B079, B088, B089, B090,
B091, B114, B115."""

from sluicegate.messages import Usage
from tests.cases.case import Case
from tests.cases.frames import (
    CREATED,
    DONE,
    STOP,
    TAIL,
    chunk,
    completed,
    completion,
    counted,
    data,
    event,
    generated,
    message,
    message_end,
    message_start,
    metadata,
    piece,
    said_item,
    text,
    text_block,
    text_item,
    usage,
)

HI = [{"type": "text", "text": "Hi"}]


def chat(id_: str, what: str, told: dict[str, object], expected: Usage) -> Case:
    """Return a case of a chat provider that tells this."""
    body = text("Hi") + STOP + chunk(None, usage=told) + DONE
    return Case(
        id_, what, "chat", body, text="Hi", usage=expected, plain=completion({"content": "Hi"}, usage=told)
    )


def messages(id_: str, what: str, told: dict[str, int], expected: Usage) -> Case:
    """Return a case of a Messages provider that tells input at the start and output at the end."""
    output = told.pop("output_tokens")
    body = message_start(**told) + text_block(0, "Hi") + message_end(output_tokens=output)
    return Case(
        id_,
        what,
        "messages",
        body,
        text="Hi",
        usage=expected,
        plain=message(HI, **told, output_tokens=output),
    )


def gemini(id_: str, what: str, told: dict[str, int], expected: Usage) -> Case:
    """Return a case of a Gemini provider that tells this."""
    whole = generated({"text": "Hi"}, finish="STOP", usageMetadata=told)
    return Case(id_, what, "gemini", data(whole), text="Hi", usage=expected, plain=whole)


def responses(id_: str, what: str, told: dict[str, object], expected: Usage) -> Case:
    """Return a case of a Responses provider that tells this."""
    body = CREATED + text_item(0, "Hi") + completed([said_item("Hi")], told)
    return Case(id_, what, "responses", body, text="Hi", usage=expected)


BOUNDED = {"prompt_tokens": 40, "completion_tokens": 120, "total_tokens": 160}
UNASKED = data({"id": "c1", "choices": [], "prompt_filter_results": []})
NO_CHOICES = data({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "up"})

COUNTS = [
    chat(
        "B045",
        "inside the output",
        BOUNDED | {"completion_tokens_details": {"reasoning_tokens": 30}},
        Usage(input_tokens=40, output_tokens=120, reasoning_tokens=30),
    ),
    gemini(
        "B045",
        "beside the output",
        {
            "promptTokenCount": 40,
            "candidatesTokenCount": 90,
            "thoughtsTokenCount": 30,
            "totalTokenCount": 160,
        },
        Usage(input_tokens=40, output_tokens=120, reasoning_tokens=30),
    ),
    messages(
        "B046",
        "writes",
        {
            "input_tokens": 7,
            "cache_creation_input_tokens": 8000,
            "cache_read_input_tokens": 0,
            "output_tokens": 300,
        },
        Usage(input_tokens=8007, cache_write_tokens=8000, output_tokens=300),
    ),
    chat(
        "B046",
        "reads",
        usage(100, 5, prompt_tokens_details={"cached_tokens": 80}),
        Usage(input_tokens=100, cache_read_tokens=80, output_tokens=5),
    ),
    messages(
        "B089",
        "reads",
        {"input_tokens": 5, "cache_read_input_tokens": 2000, "output_tokens": 20},
        Usage(input_tokens=2005, cache_read_tokens=2000, output_tokens=20),
    ),
    messages(
        "B090",
        "reads and writes",
        {
            "input_tokens": 4,
            "cache_read_input_tokens": 2000,
            "cache_creation_input_tokens": 100,
            "output_tokens": 9,
        },
        Usage(input_tokens=2104, cache_read_tokens=2000, cache_write_tokens=100, output_tokens=9),
    ),
    responses(
        "B091",
        "reads",
        counted(1000, 10, cached=800),
        Usage(input_tokens=1000, cache_read_tokens=800, output_tokens=10),
    ),
    gemini(
        "B050",
        "thoughts and tools",
        {
            "promptTokenCount": 7,
            "toolUsePromptTokenCount": 3,
            "candidatesTokenCount": 0,
            "thoughtsTokenCount": 20,
            "cachedContentTokenCount": 2,
            "totalTokenCount": 30,
        },
        Usage(input_tokens=10, cache_read_tokens=2, output_tokens=20, reasoning_tokens=20),
    ),
    # where in the stream
    Case(
        "B088",
        "on the last",
        "gemini",
        data(generated({"text": "H"}))
        + data(generated({"text": "i"}, finish="STOP", usageMetadata=metadata())),
        text="Hi",
    ),
    Case(
        "B088",
        "on the first",
        "gemini",
        data(generated({"text": "H"}, usageMetadata=metadata()))
        + data(generated({"text": "i"}, finish="STOP")),
        text="Hi",
    ),
    Case(
        "B088",
        "on each, rising",
        "gemini",
        data(generated({"text": "H"}, usageMetadata=metadata(3, 1)))
        + data(generated({"text": "i"}, finish="STOP", usageMetadata=metadata())),
        text="Hi",
    ),
    Case(
        "B073",
        "cut in the key",
        "gemini",
        data(generated({"text": "H"}))
        + data(generated({"text": "i"}, finish="STOP", usageMetadata=metadata(), note="x" * 2000)),
        text="Hi",
    ),
    Case(
        "B008", "a first chunk without choices", "chat", UNASKED + text("Hi") + STOP + TAIL + DONE, text="Hi"
    ),
    Case(
        "B008", "no choices key", "chat", text("H") + NO_CHOICES + text("i") + STOP + TAIL + DONE, text="Hi"
    ),
    Case(
        "B008",
        "null choices",
        "chat",
        text("Hi")
        + STOP
        + data(
            {
                "id": "c1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "up",
                "choices": None,
                "usage": usage(3, 2),
            }
        )
        + DONE,
        text="Hi",
    ),
    Case("B079", "after the finish", "chat", text("Hi") + STOP + TAIL + DONE, text="Hi"),
    Case("B079", "before the finish", "chat", text("Hi") + TAIL + STOP + DONE, text="Hi"),
    Case(
        "B079", "with the finish", "chat", text("Hi") + chunk({}, "stop", usage=usage(3, 2)) + DONE, text="Hi"
    ),
    Case(
        "B079",
        "on every chunk",
        "chat",
        chunk({"content": "H"}, usage=usage(3, 1))
        + chunk({"content": "i"}, usage=usage(3, 2))
        + chunk({}, "stop", usage=usage(3, 2))
        + DONE,
        text="Hi",
    ),
    Case(
        "B079",
        "null at the end",
        "chat",
        chunk({"content": "Hi"}, usage=None)
        + chunk({}, "stop", usage=usage(3, 2))
        + chunk(None, usage=None)
        + DONE,
        text="Hi",
    ),
    Case(
        "B114",
        "output alone at the end",
        "messages",
        message_start(input_tokens=11, cache_read_input_tokens=4)
        + text_block(0, "Hi")
        + message_end(output_tokens=14),
        text="Hi",
        usage=Usage(input_tokens=15, cache_read_tokens=4, output_tokens=14),
    ),
    Case(
        "B114",
        "nulls at the end",
        "messages",
        message_start(input_tokens=11, cache_read_input_tokens=4)
        + text_block(0, "Hi")
        + message_end(output_tokens=14, input_tokens=None, cache_read_input_tokens=None),
        text="Hi",
        usage=Usage(input_tokens=15, cache_read_tokens=4, output_tokens=14),
    ),
    # nobody tells
    Case("B115", "none", "chat", text("Hi") + STOP + DONE, text="Hi", usage=None),
    Case("B115", "none", "completions", piece("Hi", "stop") + DONE, text="Hi", usage=None),
    Case("B115", "none", "gemini", data(generated({"text": "Hi"}, finish="STOP")), text="Hi", usage=None),
    Case(
        "B115",
        "none",
        "responses",
        CREATED
        + text_item(0, "Hi")
        + event(
            "response.completed",
            response={
                "id": "resp_1",
                "object": "response",
                "created_at": 1,
                "model": "up",
                "status": "completed",
                "output": [said_item("Hi")],
            },
        ),
        text="Hi",
        usage=None,
    ),
    Case(
        "B115",
        "none",
        "messages",
        event(
            "message_start",
            message={
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "up",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
            },
        )
        + text_block(0, "Hi")
        + event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None})
        + event("message_stop"),
        text="Hi",
        usage=None,
    ),
]
