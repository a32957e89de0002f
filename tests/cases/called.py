"""Tool calls and thoughts, and the events that carry them. Cases B018, B041, B044, B062, B064, B078, B083, B098, B099,
B106, B117, B119, B120, B121, B122, B123, B127."""

from tests.cases.case import Case
from tests.cases.frames import CALLED as END_CALLED
from tests.cases.frames import (
    CREATED,
    DONE,
    END,
    TAIL,
    WEATHER,
    block,
    call,
    call_item,
    called_item,
    calls,
    chunk,
    completed,
    completion,
    data,
    event,
    function_call,
    generated,
    message,
    message_end,
    message_start,
    metadata,
    said_item,
    text,
    text_block,
    tool_block,
)
from tests.cases.world import THINKS, THINKS_AND_CALLS, TOOLS

F, G = ("f", WEATHER), ("g", '{"n":1}')
TWO = '{"city":"Rome"}'


def of(id_: str, what: str, provider: str, body: bytes, *called: tuple[str, str], **fields) -> Case:  # type: ignore[no-untyped-def]
    """Return a case that is about calls."""
    given = {"finish": "tool_calls", "prompt": TOOLS} | fields
    return Case(id_, what, provider, body, calls=called, **given)


def gemini(*chunks: tuple[dict[str, object], ...], finish: str = "STOP") -> bytes:
    """Return a Gemini stream of these parts, with its end."""
    bodies = [data(generated(*parts)) for parts in chunks[:-1]]
    return b"".join(bodies) + data(generated(*chunks[-1], finish=finish, usageMetadata=metadata()))


A, B, C = (function_call("w", {"city": city}) for city in "ABC")
ABC = tuple(("w", f'{{"city":"{city}"}}') for city in "ABC")
X = function_call("w", {"city": "A"})
THREE = [
    call_item(f"fc_{index}", f"call_{index}", "w", f'{{"city":"{city}"}}')
    for index, city in enumerate("ABC", 1)
]

CALLED = [
    # parallel calls
    of("B044", "three chunks", "gemini", gemini((A,), (B,), (C,)), *ABC),
    of(
        "B044",
        "two in one chunk",
        "gemini",
        gemini((A, B)),
        *ABC[:2],
        plain=generated(A, B, finish="STOP", usageMetadata=metadata()),
    ),
    of(
        "B044",
        "the same twice",
        "gemini",
        gemini((X,), (X,)),
        ABC[0],
        ABC[0],
        plain=generated(X, X, finish="STOP", usageMetadata=metadata()),
    ),
    of("B078", "one name", "gemini", gemini((A, C)), ABC[0], ABC[2]),
    of(
        "B119",
        "three items",
        "responses",
        CREATED
        + b"".join(
            called_item(index, item["id"], item["call_id"], "w", item["arguments"])
            for index, item in enumerate(THREE, 1)
        )
        + completed(THREE),
        *ABC,
    ),
    of(
        "B120",
        "index 0 twice",
        "chat",
        calls(call(0, "A", "f", WEATHER)) + calls(call(0, "B", "g", G[1])) + END_CALLED,
        F,
        G,
    ),
    of(
        "B044",
        "interleaved",
        "chat",
        calls(call(0, "A", "f", ""))
        + calls(call(1, "B", "g", ""))
        + calls(call(0, None, None, '{"city":'))
        + calls(call(1, None, None, '{"n":'))
        + calls(call(0, None, None, '"Oslo"}'))
        + calls(call(1, None, None, "1}"))
        + END_CALLED,
        F,
        G,
    ),
    # pieces out of order
    of(
        "B062",
        "the name late",
        "chat",
        calls({"index": 0, "id": "k", "function": {"arguments": '{"city"'}})
        + calls({"index": 0, "function": {"name": "f"}})
        + calls({"index": 0, "function": {"name": None, "arguments": ':"Oslo"}'}, "type": "function"})
        + END_CALLED,
        F,
    ),
    of(
        "B062",
        "nulls",
        "chat",
        calls({"index": 0, "id": "k", "type": "function", "function": {"name": "f", "arguments": None}})
        + calls({"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": WEATHER}})
        + END_CALLED,
        F,
    ),
    of(
        "B098",
        "no id",
        "chat",
        calls({"index": 0, "function": {"name": "f", "arguments": WEATHER}}) + END_CALLED,
        F,
        plain=completion(
            {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": WEATHER}}]},
            "tool_calls",
        ),
    ),
    of("B098", "an empty id", "chat", calls(call(0, "", "f", WEATHER)) + END_CALLED, F),
    of(
        "B098",
        "the id again",
        "chat",
        calls(call(0, "k", "f", '{"city":')) + calls(call(0, "k", "f", '"Oslo"}')) + END_CALLED,
        F,
    ),
    of("B098", "no id", "gemini", gemini((function_call("f", {"city": "Oslo"}),)), F),
    of(
        "B099",
        "null text",
        "chat",
        chunk({"role": "assistant", "content": None, "tool_calls": [call(0, "k", "f", WEATHER)]})
        + END_CALLED,
        F,
        plain=completion({"content": None, "tool_calls": [call(0, "k", "f", WEATHER)]}, "tool_calls"),
    ),
    of(
        "B099",
        "empty text",
        "chat",
        chunk({"content": ""}) + calls(call(0, "k", "f", WEATHER)) + chunk({"content": ""}) + END_CALLED,
        F,
        plain=completion({"content": "", "tool_calls": [call(0, "k", "f", WEATHER)]}, "tool_calls"),
    ),
    of(
        "B121",
        "all in one chunk",
        "chat",
        chunk({"role": "assistant", "content": "x", "tool_calls": [call(0, "k", "f", WEATHER)]}, "tool_calls")
        + TAIL
        + DONE,
        F,
        text="x",
    ),
    of(
        "B122",
        "with the finish",
        "chat",
        calls(call(0, "k", "f", WEATHER), finish="tool_calls") + TAIL + DONE,
        F,
    ),
    of(
        "B122",
        "with the finish and no usage",
        "chat",
        calls(call(0, "k", "f", WEATHER), finish="tool_calls") + DONE,
        F,
        usage=None,
    ),
    of(
        "B123",
        "one part",
        "gemini",
        gemini(({"text": "hm", "functionCall": {"name": "f", "args": {}}},)),
        ("f", "{}"),
        text="hm",
        plain=generated(
            {"text": "hm", "functionCall": {"name": "f", "args": {}}}, finish="STOP", usageMetadata=metadata()
        ),
    ),
    of(
        "B123",
        "text on both sides",
        "gemini",
        gemini(({"text": "a"}, function_call("f", {}), {"text": "b"})),
        ("f", "{}"),
        text="ab",
    ),
    of(
        "B127",
        "empty roles",
        "chat",
        chunk({"role": "", "tool_calls": [call(0, "k", "f", '{"city":')]})
        + chunk({"role": "", "tool_calls": [call(0, None, None, '"Oslo"}')]})
        + END_CALLED,
        F,
    ),
    Case("B127", "null roles", "chat", chunk({"role": None, "content": "x"}) + END, text="x"),
    Case(
        "B127",
        "a role on every chunk",
        "chat",
        chunk({"role": "assistant", "content": "x"}) + chunk({"role": "assistant", "content": "y"}) + END,
        text="xy",
    ),
    # ids
    of(
        "B064",
        "item and call id",
        "responses",
        CREATED
        + called_item(0, "fc_1", "call_9", "f", '{"city":', '"Oslo"}')
        + completed([call_item("fc_1", "call_9", "f", WEATHER)]),
        F,
    ),
    of(
        "B064",
        "no item id",
        "responses",
        CREATED
        + called_item(0, None, "call_9", "f", '{"city":', '"Oslo"}')
        + completed([call_item(None, "call_9", "f", WEATHER)]),
        F,
    ),
    of(
        "B064",
        "no item id, two calls",
        "responses",
        CREATED
        + called_item(0, None, "call_8", "f", WEATHER)
        + called_item(1, None, "call_9", "g", G[1])
        + completed([call_item(None, "call_8", "f", WEATHER), call_item(None, "call_9", "g", G[1])]),
        F,
        G,
    ),
    # inputs of Messages
    of(
        "B117",
        "empty start",
        "messages",
        message_start() + tool_block(0, "k", "f", '{"city":', '"Oslo"}') + message_end("tool_use"),
        F,
    ),
    of(
        "B117",
        "full start",
        "messages",
        message_start() + tool_block(0, "k", "f", input={"city": "Oslo"}) + message_end("tool_use"),
        F,
    ),
    of(
        "B117",
        "no input at all",
        "messages",
        message_start() + tool_block(0, "k", "f") + message_end("tool_use"),
        ("f", "{}"),
    ),
    # blocks and items that the provider forgot to open or close
    Case(
        "B083",
        "no item.added",
        "responses",
        CREATED
        + event("response.output_text.delta", item_id="m", output_index=0, content_index=0, delta="Hel")
        + event("response.output_text.delta", item_id="m", output_index=0, content_index=0, delta="lo")
        + completed([said_item("Hello")]),
        text="Hello",
    ),
    Case(
        "B083",
        "no created",
        "responses",
        event("response.output_text.delta", item_id="m", output_index=0, content_index=0, delta="Hello")
        + completed([said_item("Hello")]),
        text="Hello",
    ),
    of(
        "B083",
        "a delta without a start",
        "messages",
        message_start()
        + event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hm"})
        + tool_block(1, "k", "f", WEATHER)
        + message_end("tool_use"),
        F,
        text="Hm",
    ),
    Case(
        "B083",
        "no stop before the end",
        "messages",
        message_start()
        + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"})
        + message_end(),
        text="Hello",
    ),
    Case(
        "B083",
        "finish with the last text",
        "chat",
        chunk({"content": "Hello"}, "stop") + TAIL + DONE,
        text="Hello",
    ),
    of(
        "B106",
        "thought, text and calls",
        "chat",
        chunk({"reasoning_content": "r"})
        + text("t")
        + calls(call(0, "A", "f", WEATHER))
        + calls(call(1, "B", "g", G[1]))
        + END_CALLED,
        F,
        G,
        reasoning="r",
        text="t",
        prompt=THINKS_AND_CALLS,
    ),
    Case(
        "B106",
        "an index again",
        "messages",
        message_start() + text_block(0, "a") + text_block(1, "b") + text_block(1, "c") + message_end(),
        text="abc",
    ),
    Case(
        "B106",
        "a gap",
        "messages",
        message_start() + text_block(0, "a") + text_block(3, "b") + message_end(),
        text="ab",
    ),
    of(
        "B018",
        "text and a call",
        "chat",
        text("Hi") + calls(call(0, "k", "f", WEATHER)) + END_CALLED,
        F,
        text="Hi",
        plain=completion({"content": "Hi", "tool_calls": [call(0, "k", "f", WEATHER)]}, "tool_calls"),
    ),
    of(
        "B018",
        "text and a call",
        "gemini",
        gemini(({"text": "Hi"},), (function_call("f", {"city": "Oslo"}),)),
        F,
        text="Hi",
    ),
    of(
        "B018",
        "text and a call",
        "messages",
        message_start() + text_block(0, "Hi") + tool_block(1, "k", "f", WEATHER) + message_end("tool_use"),
        F,
        text="Hi",
    ),
    # thoughts under every name
    Case(
        "B041",
        "reasoning",
        "chat",
        chunk({"content": None, "reasoning": "a"}) + text("X") + END,
        reasoning="a",
        text="X",
        prompt=THINKS,
        plain=completion({"reasoning": "a", "content": "X"}),
    ),
    Case(
        "B041",
        "reasoning_content",
        "chat",
        chunk({"content": "", "reasoning_content": "b"}) + text("X") + END,
        reasoning="b",
        text="X",
        prompt=THINKS,
        plain=completion({"reasoning_content": "b", "content": "X"}),
    ),
    Case(
        "B041",
        "both with one text",
        "chat",
        chunk({"content": "", "reasoning": "ab", "reasoning_content": "ab"}) + text("X") + END,
        reasoning="ab",
        text="X",
        prompt=THINKS,
        plain=completion({"reasoning": "ab", "reasoning_content": "ab", "content": "X"}),
    ),
    Case(
        "B041",
        "reasoning_details",
        "chat",
        chunk({"reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]}) + text("X") + END,
        reasoning="a",
        text="X",
        clients=("responses", "messages", "gemini"),
        prompt=THINKS,
    ),
    Case(
        "B041",
        "thinking",
        "messages",
        message_start()
        + block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "t"},
            {"type": "signature_delta", "signature": "U0c="},
        )
        + text_block(1, "X")
        + message_end(),
        reasoning="t",
        text="X",
        prompt=THINKS,
        plain=message(
            [{"type": "thinking", "thinking": "t", "signature": "U0c="}, {"type": "text", "text": "X"}]
        ),
    ),
    Case(
        "B041",
        "thoughts",
        "gemini",
        gemini(({"text": "t", "thought": True},), ({"text": "X"},)),
        reasoning="t",
        text="X",
        prompt=THINKS,
        plain=generated(
            {"text": "t", "thought": True}, {"text": "X"}, finish="STOP", usageMetadata=metadata()
        ),
    ),
]
