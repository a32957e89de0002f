"""Event framing: comments, cuts, odd line ends, long and torn events, half characters. Cases B014, B026, B027, B033,
B053, B073, B074, B085, B086, B087, B109, B110, B116, B131, B144."""

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
    completed,
    data,
    dumps,
    generated,
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
from tests.cases.world import TOOLS

BOM = b"\xef\xbb\xbf"
SAID = text("Hello", " world") + END
MESSAGE = message_start() + text_block(0, "Hello", " world") + message_end()
RESPONSE = CREATED + text_item(0, "Hello", " world") + completed([said_item("Hello world")])
GEMINI = data(generated({"text": "Hello"})) + data(
    generated({"text": " world"}, finish="STOP", usageMetadata=metadata())
)
COMPLETION = (
    piece("Hello")
    + piece(" world", "stop")
    + TAIL.replace(b"chat.completion.chunk", b"text_completion")
    + DONE
)
STREAMS = {
    "chat": SAID,
    "completions": COMPLETION,
    "messages": MESSAGE,
    "responses": RESPONSE,
    "gemini": GEMINI,
}


def commented(body: bytes) -> bytes:
    """Return a stream with comments before, between and inside events."""
    events = body.split(b"\n\n")[:-1]
    inside = (
        b"\n: PROCESSING\n".join(events[0].split(b"\n")) if b"\n" in events[0] else events[0] + b"\n:\n: ping"
    )
    return (
        b": PROCESSING\n\n: PROCESSING\n\n" + b"\n\n: ping - 2\n\n:\n\n".join([inside, *events[1:]]) + b"\n\n"
    )


def spread(body: bytes) -> bytes:
    """Return a stream whose events stand on two data lines each, with a comment between."""
    events = []
    for each in body.split(b"\n\n")[:-1]:
        if b'"},"' in each:
            each = each.replace(b'},"', b'},\ndata: "', 1)
        elif b'","' in each:
            each = each.replace(b'","', b'",\n: ping\ndata: "', 1)
        events.append(each)
    return b"\n\n".join(events) + b"\n\n"


def in_every_format(id_: str, what: str, change, **fields) -> list[Case]:  # type: ignore[no-untyped-def]
    """Return a case for each format of a provider, made from the same stream."""
    return [
        Case(id_, what, provider, change(body), text="Hello world", **fields)
        for provider, body in STREAMS.items()
    ]


LONG = "iVBORw0KGgo" * 380_000
"""4 MiB of base64."""
SIGNATURE = "QUJD" * 10_000
"""40 KB."""

FRAMED = [
    *in_every_format("B026", "comments", commented),
    *in_every_format("B033", "two data lines", spread),
    *in_every_format("B053", "byte order mark", lambda body: BOM + body),
    *in_every_format("B074", "bare CR", lambda body: body.replace(b"\n", b"\r")),
    *in_every_format("B074", "CRLF", lambda body: body.replace(b"\n", b"\r\n")),
    *in_every_format(
        "B085", "a comment as data", lambda body: body.replace(b"\n\n", b"\n\ndata: : keepalive\n\n", 1)
    ),
    *in_every_format("B085", "blank data", lambda body: body.replace(b"\n\n", b"\n\ndata: \n\ndata\n\n", 1)),
    *in_every_format(
        "B116", "a ping without data", lambda body: body.replace(b"\n\n", b"\n\nevent: ping\n\n", 1)
    ),
    *in_every_format("B110", "an end marker", lambda body: body.removesuffix(DONE) + b"data:[DONE]\n\n"),
    *in_every_format(
        "B110", "a marker with spaces", lambda body: body.removesuffix(DONE) + b"data: [DONE] \r\n\r\n"
    ),
    *in_every_format(
        "B027", "no blank line", lambda body: (body.removesuffix(DONE)).removesuffix(b"\n\n"), bytewise=False
    ),
    *in_every_format("B027", "one LF", lambda body: (body.removesuffix(DONE)).removesuffix(b"\n")),
    *in_every_format("B027", "one CR", lambda body: (body.removesuffix(DONE)).removesuffix(b"\n\n") + b"\r"),
    Case(
        "B053",
        "a later mark",
        "chat",
        text("Hel\ufefflo") + END,
        text="Hel\ufefflo",
    ),
    Case(
        "B027",
        "cut",
        "chat",
        text("Hello") + b'data: {"choices":[{"ind',
        text="Hello",
        fails="upstream_error",
    ),
    Case(
        "B027",
        "cut",
        "messages",
        message_start() + text_block(0, "Hello") + b'event: message_delta\ndata: {"type"',
        text="Hello",
        fails="upstream_error",
    ),
    Case(
        "B027",
        "cut",
        "gemini",
        data(generated({"text": "Hello"})) + b'data: {"candid',
        text="Hello",
        fails="upstream_error",
    ),
    Case(
        "B027",
        "cut",
        "responses",
        CREATED + text_item(0, "Hello") + b'event: response.completed\ndata: {"type"',
        text="Hello",
        fails="upstream_error",
    ),
    Case(
        "B086",
        "one LF between",
        "chat",
        text("Hello").rstrip(b"\n") + b"\n" + text(" world") + END,
        text="Hello world",
    ),
    Case(
        "B086",
        "torn",
        "chat",
        text("Hi"),
        b'data: {"id":"x","choices":[{"index":0,"delta":{"role":"a' + text("Hello") + END,
        text="Hi",
        fails="upstream_error",
    ),
    Case(
        "B086",
        "torn at once",
        "chat",
        b'data: {"id":"x","choices":[{"index":0,"delta":{"role":"a' + text("Hello") + END,
        fails="upstream_error",
    ),
    Case(
        "B131",
        "half a frame",
        "chat",
        text("Hello") + b'data: {"id":"c1","cho',
        text="Hello",
        how="reset",
        fails="upstream_error",
    ),
    Case(
        "B131",
        "half a frame",
        "gemini",
        data(generated({"text": "Hello"})) + b'data: {"cand',
        text="Hello",
        how="reset",
        fails="upstream_error",
    ),
    Case(
        "B131",
        "half a frame",
        "messages",
        message_start() + text_block(0, "Hello") + b"event: messa",
        text="Hello",
        how="reset",
        fails="upstream_error",
    ),
    Case(
        "B131",
        "half a frame",
        "responses",
        CREATED + text_item(0, "Hello") + b"event: resp",
        text="Hello",
        how="reset",
        fails="upstream_error",
    ),
    Case(
        "B131",
        "half a frame",
        "completions",
        piece("Hello") + b'data: {"cho',
        text="Hello",
        how="reset",
        fails="upstream_error",
    ),
    # half characters
    Case(
        "B109",
        "two halves",
        "chat",
        chunk({"content": "\ud83d"}) + chunk({"content": "\ude00"}) + END,
        text="😀",
    ),
    Case(
        "B109",
        "a lone half",
        "chat",
        chunk({"content": "a\ud83d"}) + chunk({"content": "b"}) + END,
        text="a\ufffdb",
    ),
    Case(
        "B109",
        "a lone half at the end",
        "chat",
        text("a") + chunk({"content": "\ud83d"}) + END,
        text="a\ufffd",
    ),
    Case(
        "B109",
        "a pair",
        "chat",
        data(
            dumps(
                {
                    "id": "c",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": "m",
                    "choices": [{"index": 0, "delta": {"content": "PAIR"}, "finish_reason": None}],
                }
            ).replace("PAIR", r"\ud83d\ude00")
        )
        + END,
        text="😀",
    ),
    Case("B109", "in an unread field", "chat", chunk({"content": "a"}, note="\ud83d") + END, text="a"),
    Case(
        "B109",
        "two halves",
        "completions",
        piece("\ud83d")
        + piece("\ude00")
        + piece("", "stop")
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
        text="😀",
    ),
    Case(
        "B109",
        "two halves",
        "messages",
        message_start() + text_block(0, "\ud83d", "\ude00") + message_end(),
        text="😀",
    ),
    Case(
        "B109",
        "a lone half",
        "messages",
        message_start() + text_block(0, "a\ud83d", "b") + message_end(),
        text="a\ufffdb",
    ),
    Case(
        "B109",
        "two halves",
        "gemini",
        data(generated({"text": "\ud83d"}))
        + data(generated({"text": "\ude00"}, finish="STOP", usageMetadata=metadata())),
        text="😀",
    ),
    Case(
        "B109",
        "a lone half",
        "gemini",
        data(generated({"text": "a\ud83d"}))
        + data(generated({"text": "b"}, finish="STOP", usageMetadata=metadata())),
        text="a\ufffdb",
    ),
    Case(
        "B109",
        "two halves",
        "responses",
        CREATED + text_item(0, "\ud83d", "\ude00") + completed([said_item("😀")]),
        text="😀",
    ),
    Case(
        "B109",
        "a lone half",
        "responses",
        CREATED + text_item(0, "a\ud83d", "b") + completed([said_item("a\ud83db")]),
        text="a\ufffdb",
    ),
    # long events
    Case(
        "B014",
        "4 MiB of text",
        "chat",
        text(LONG) + END,
        text=LONG,
        bytewise=False,
        clients=("chat", "messages"),
    ),
    Case(
        "B014",
        "4 MiB of text",
        "messages",
        message_start() + text_block(0, LONG) + message_end(),
        text=LONG,
        clients=("messages", "chat"),
        bytewise=False,
    ),
    Case(
        "B014",
        "4 MiB of text",
        "responses",
        CREATED + text_item(0, LONG) + completed([said_item(LONG)]),
        text=LONG,
        clients=("responses",),
        bytewise=False,
    ),
    Case(
        "B014",
        "4 MiB of text",
        "gemini",
        data(generated({"text": LONG}, finish="STOP", usageMetadata=metadata())),
        text=LONG,
        clients=("gemini", "responses"),
        bytewise=False,
    ),
    Case(
        "B073",
        "a long signature",
        "gemini",
        data(generated({"text": "Hm", "thought": True}))
        + data(
            generated(
                {"text": "Hello", "thoughtSignature": SIGNATURE}, finish="STOP", usageMetadata=metadata()
            )
        ),
        reasoning="Hm",
        text="Hello",
        bytewise=False,
    ),
    # empty deltas
    Case(
        "B144",
        "empty deltas before a call",
        "chat",
        chunk({}, busy=True) * 500 + calls(call(0, "k", "f", WEATHER)) + CALLED,
        calls=(("f", WEATHER),),
        finish="tool_calls",
        prompt=TOOLS,
        bytewise=False,
    ),
    Case(
        "B144",
        "empty deltas before text",
        "chat",
        chunk({}, busy=True) * 20 + SAID,
        text="Hello world",
        bytewise=False,
    ),
]
