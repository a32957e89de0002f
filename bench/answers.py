"""The requests and answers of the bench, in the shape that OpenAI's Chat Completions gives them.

A gate that translates finds a provider of Messages under `/v1/messages`, which says the same.

A request carries its own scenario inside the user's message (`bench 64 tokens every 5000 us`), which every gate
passes on untouched, so that the provider needs no other channel. Where it says `stamped`, each event carries the
time it was due in the field `obfuscation`, which gates pass too: the client reads lateness from it. OpenAI sends
that field with every event, most others do not; it makes every event differ from the last one outside its text.

Source: platform.openai.com/docs/api-reference/chat-streaming (fields and their order, seen 2026-01).
"""

import json
import re
from collections.abc import Callable
from typing import NamedTuple

PUBLIC_MODEL = "bench-model"
PROVIDER_MODEL = "bench-model-2026-01-15"
GATE_KEY = "sg-bench-0123456789abcdef0123456789abcdef"
PROVIDER_KEY = "sk-provider-0123456789abcdef"

SCENARIO = re.compile(rb"bench (\d+) tokens every (\d+) us(, stamped)?")
DUE = re.compile(rb'"obfuscation":"(\d{10})"')
"""Microseconds of the clock that all processes of a machine share; its last ten digits (2.7 hours)."""
DUE_WRAPS_US = 10**10

END = b"0\r\n\r\n"
"""How a chunked answer ends."""

_TEXT = (
    "the stream of tokens that this provider sends is long enough to look like an answer and short enough to be"
    " written again and again, word by word, with a comma here, a full stop there. And then it begins anew: a"
    " gate sits between a client and many models, counting what passes through it so that nobody pays twice"
)
_WORDS = _TEXT.split()
_COMMON = (
    '{"id":"chatcmpl-CzP0qWkV6m3nTj8rXa5sYb2dLh4uE","object":"chat.completion.chunk","created":1768435200,'
    f'"model":"{PROVIDER_MODEL}","choices":'
)
_USAGE = (
    '{{"prompt_tokens":31,"completion_tokens":{tokens},"total_tokens":{total},"prompt_tokens_details":'
    '{{"cached_tokens":0,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0,"audio_tokens":0,'
    '"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}'
)

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
    b"cache-control: no-cache\r\nx-request-id: req_3b7c2f1e9d8a4c6b\r\nopenai-processing-ms: 21\r\n\r\n"
)


def _chunk(event: str) -> bytes:
    data = f"data: {event}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def _delta(text: str, last_field: str = "") -> bytes:
    return _chunk(
        f'{_COMMON}[{{"index":0,"delta":{{"content":{json.dumps(text)}}},"logprobs":null,"finish_reason":null}}],'
        f'"usage":null{last_field}}}'
    )


def _split_at_stamp(framed: bytes) -> tuple[bytes, bytes]:
    before, after = framed.split(b"0" * 10)
    return before, after


DELTAS = [_delta(" " + word) for word in _WORDS]
"""One content event a word, framed as a chunk."""
_STAMPED = [_split_at_stamp(_delta(" " + word, f',"obfuscation":"{"0" * 10}"')) for word in _WORDS]
ROLE_EVENT = _chunk(
    f'{_COMMON}[{{"index":0,"delta":{{"role":"assistant","content":"","refusal":null}},"logprobs":null,'
    '"finish_reason":null}],"usage":null}'
)


class Dialect(NamedTuple):
    """A stream's events in one format, framed as chunks."""

    first: bytes
    """What comes before the first word."""
    deltas: list[bytes]
    last: Callable[[int, bool], bytes]
    """What ends a stream of so many tokens, with usage or without."""


def _messages_event(name: str, **fields: object) -> bytes:
    data = f"event: {name}\ndata: {json.dumps({'type': name, **fields}, separators=(',', ':'))}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def _last_messages_events(tokens: int, with_usage: bool) -> bytes:
    """Frame what ends a Messages stream, which always tells usage."""
    usage = {"input_tokens": 31, "cache_read_input_tokens": 0, "output_tokens": tokens}
    stopped = _messages_event("content_block_stop", index=0)
    reason = {"stop_reason": "end_turn", "stop_sequence": None}
    return (
        stopped
        + _messages_event("message_delta", delta=reason, usage=usage)
        + _messages_event("message_stop")
        + END
    )


MESSAGES = Dialect(
    _messages_event(
        "message_start",
        message={
            "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
            "type": "message",
            "role": "assistant",
            "model": PROVIDER_MODEL,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 31, "cache_read_input_tokens": 0, "output_tokens": 1},
        },
    )
    + _messages_event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    [
        _messages_event("content_block_delta", index=0, delta={"type": "text_delta", "text": " " + word})
        for word in _WORDS
    ],
    _last_messages_events,
)


def stamped_event(turn: int, due_us: int) -> bytes:
    """Frame one content event that tells when it was due; the turn chooses its word."""
    before, after = _STAMPED[turn % len(_STAMPED)]
    return b"%b%010d%b" % (before, due_us % DUE_WRAPS_US, after)


def last_events(tokens: int, with_usage: bool) -> bytes:
    """Frame what ends a stream: finish reason, usage where it was asked for, the marker, the zero chunk."""
    finish = _chunk(
        f'{_COMMON}[{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":"stop"}}],"usage":null}}'
    )
    usage = _chunk(f'{_COMMON}[],"usage":{_USAGE.format(tokens=tokens, total=31 + tokens)}}}')
    return finish + (usage if with_usage else b"") + _chunk("[DONE]") + END


CHAT = Dialect(ROLE_EVENT, DELTAS, last_events)


def plain_answer() -> bytes:
    """Return a whole answer that is not streamed, head included."""
    text = " ".join(_WORDS[:48])
    body = (
        '{"id":"chatcmpl-CzP0qWkV6m3nTj8rXa5sYb2dLh4uE","object":"chat.completion","created":1768435200,'
        f'"model":"{PROVIDER_MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":'
        f'{json.dumps(text)},"refusal":null,"annotations":[]}},"logprobs":null,"finish_reason":"stop"}}],'
        f'"usage":{_USAGE.format(tokens=52, total=83)},"service_tier":"default"}}'
    ).encode()
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"x-request-id: req_3b7c2f1e9d8a4c6b\r\nopenai-processing-ms: 21\r\n\r\n"
    )
    return head % len(body) + body


def request(
    port: int,
    *,
    stream: bool,
    tokens: int = 0,
    every_us: int = 0,
    stamped: bool = False,
    ask_usage: bool = True,
) -> bytes:
    """Return a client's whole request, as the OpenAI SDK would send it."""
    scenario = f"bench {tokens} tokens every {every_us} us{', stamped' if stamped else ''}"
    fields: dict[str, object] = {
        "model": PUBLIC_MODEL,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant. Answer in plain words, and briefly."},
            {"role": "user", "content": scenario},
        ],
        "temperature": 0.2,
    }
    if stream:
        fields["stream"] = True
        if ask_usage:
            fields["stream_options"] = {"include_usage": True}
    else:
        fields["max_tokens"] = 256
    body = json.dumps(fields, separators=(",", ":")).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept: application/json\r\n"
        f"content-type: application/json\r\nuser-agent: OpenAI/Python 2.8.0\r\nx-stainless-lang: python\r\n"
        f"x-stainless-retry-count: 0\r\nauthorization: Bearer {GATE_KEY}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
