"""Stand-ins for the shell around the Messages codec: streams passed and translated read by read, and their bytes."""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError, StreamCut, UpstreamGarbled
from sluicegate.messages import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta, Usage
from sluicegate.wire import Bill, StreamCodec
from sluicegate.wire.anthropic import CODEC
from sluicegate.wire.translated import TranslatedStream
from sluicegate.wire.translation import Asked, Codec, PassOptions
from sluicegate.wire.upstream_errors import from_stream_error
from tests.grammar.messages import check_messages_stream
from tests.grammar.narrow_sse import ParsedStream

MODEL = "public/m-1"
ASKED = Asked(model=MODEL, id="0123456789abcdef01234567", created=1_800_000_000, input_estimate=17)
COST = b'"cost":0.000002,"cost_nano_usd":2000'
FIXTURES = Path(__file__).parent / "fixtures" / "messages"
STREAMS = sorted(path.stem for path in FIXTURES.glob("*.sse") if "error" not in path.stem)
"""The fixtures that are whole answers."""


def fixture(name: str) -> bytes:
    """Return a fixture's bytes."""
    path = FIXTURES / f"{name}.sse"
    return (path if path.exists() else FIXTURES / f"{name}.json").read_bytes()


def an(type_: str, **fields: Any) -> bytes:
    """Return one event."""
    payload = json.dumps({"type": type_, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {type_}\ndata: {payload}\n\n".encode()


def start(**usage: Any) -> bytes:
    """Return `message_start`."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    given = usage or {"input_tokens": 9, "output_tokens": 1}
    ended = {"stop_reason": None, "stop_sequence": None}
    return an("message_start", message={**message, **ended, "usage": given})


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any], stop: bool = True) -> bytes:
    """Return a content block."""
    raw = an("content_block_start", index=index, content_block=content)
    raw += b"".join(an("content_block_delta", index=index, delta=delta) for delta in deltas)
    return raw + (an("content_block_stop", index=index) if stop else b"")


def text(index: int, *pieces: str, stop: bool = True) -> bytes:
    """Return a text block."""
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas, stop=stop)


def tool(index: int, id_: str, name: str, *pieces: str, **more: Any) -> bytes:
    """Return a tool_use block."""
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, {"type": "tool_use", "id": id_, "name": name, "input": {}, **more}, *deltas)


def last(reason: str | None = "end_turn", **usage: Any) -> bytes:
    """Return `message_delta`."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return an("message_delta", delta=delta, usage=usage or {"output_tokens": 5})


STOP = an("message_stop")


@dataclass
class Passed:
    """What became of an answer."""

    raw: bytes
    """All that the client got."""
    codec: StreamCodec
    counted: str
    """All text that was counted."""
    failure: str | None
    writes: list[bytes] = field(default_factory=list)
    """By read."""

    def parsed(self, **checks: Any) -> ParsedStream:
        """Check the client's stream by the grammar and return what it says."""
        checks.setdefault("model", MODEL)
        checks.setdefault("end", "done" if self.failure is None else "error")
        return check_messages_stream(self.raw, **checks)


def passing(count_text: Any, asked: Asked = ASKED, **options: Any) -> StreamCodec:
    """Return a codec for the same format."""
    return CODEC.pass_stream(asked, PassOptions(count_text=count_text, **options))


def translating(source: Codec, count_text: Any, target: Codec = CODEC, asked: Asked = ASKED) -> StreamCodec:
    """Return a codec across formats."""
    return TranslatedStream(
        source.stream_decoder(Capabilities(), count_text),
        target.stream_encoder(asked),
        lambda body: source.decode_answer(body, Capabilities()),
        count_text,
        joins_usage=target.joins_usage,
    )


def run(
    pieces: Iterable[bytes],
    *,
    source: Codec | None = None,
    target: Codec = CODEC,
    asked: Asked = ASKED,
    closed: bool = True,
    bill: Bill | None = None,
    **options: Any,
) -> Passed:
    """Pass an answer to a client, as `server.relay` does.

    Args:
        pieces: the provider's body, one piece a read.
        source: the provider's format where it is translated.
        closed: the body ends after the last piece.
        bill: what the farewell says; None: what the provider reported.
    """
    counted: list[str] = []
    if source is None:
        codec = passing(counted.append, asked, **options)
    else:
        codec = translating(source, counted.append, target, asked)
    writes: list[bytes] = []
    failure: str | None = None

    def put_out() -> None:
        writes.append(b"".join(codec.out))
        codec.out.clear()

    error: Exception | None = None
    try:
        for piece in pieces:
            codec.feed(piece)
            if codec.error is None and not codec.ended and codec.held:
                codec.flush()
            put_out()
            if codec.ended or codec.error is not None:
                break
        if not codec.ended and codec.error is None and closed:
            codec.finish()
            put_out()
    except DecodeError as garbled:
        put_out()
        error = garbled
        failure = garbled.reason
    if codec.error is not None:
        failure = codec.error.message
        writes.append(codec.failure(from_stream_error(codec.error)))
    elif error is not None:
        told = StreamCut(failure or "") if codec.content else UpstreamGarbled(failure or "")
        writes.append(codec.failure(told))
    else:
        usage = codec.usage or Usage(input_tokens=3, output_tokens=5)
        writes.append(codec.farewell(bill or Bill(usage, in_usage=COST)))
    return Passed(b"".join(writes), codec, "".join(counted), failure, writes)


def one_byte(data: bytes) -> Iterator[bytes]:
    """Cut into single bytes."""
    return (data[at : at + 1] for at in range(len(data)))


def random_cuts(data: bytes, seed: int) -> list[bytes]:
    """Cut at places that the seed chooses, sometimes many, sometimes few."""
    chance = random.Random(seed)
    mean = chance.choice([2, 7, 40, 300])
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = chance.randint(1, 2 * mean)
        pieces.append(data[at : at + size])
        at += size
    return pieces


def by_event(data: bytes) -> list[bytes]:
    """Cut after each blank line."""
    parts = data.split(b"\n\n")
    return [part + b"\n\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def ways(data: bytes) -> list[Iterable[bytes]]:
    """Return an answer's bytes whole, by event, byte by byte and at random cuts."""
    return [[data], by_event(data), one_byte(data), *(random_cuts(data, seed) for seed in range(4))]


def decoded(pieces: Iterable[bytes]) -> list[StreamEvent]:
    """Return the events of a stream, neighbouring deltas joined: where they are cut means nothing.

    Raises:
        DecodeError: as the decoder does.
    """
    decoder = CODEC.stream_decoder(Capabilities(), lambda text: None)
    events: list[StreamEvent] = []
    for piece in pieces:
        events += decoder.feed(piece)
    return joined(events + decoder.finish())


def joined(events: list[StreamEvent]) -> list[StreamEvent]:
    """Join deltas that stand beside each other and belong to the same thing."""
    out: list[StreamEvent] = []
    for event in events:
        before = out[-1] if out else None
        if isinstance(event, TextDelta | ReasoningDelta) and type(before) is type(event):
            out[-1] = type(event)(before.text + event.text)  # type: ignore[union-attr]
        elif (
            isinstance(event, ToolCallDelta)
            and isinstance(before, ToolCallDelta)
            and event.index == before.index
        ):
            out[-1] = ToolCallDelta(event.index, before.arguments + event.arguments)
        else:
            out.append(event)
    return out
