"""Stand-ins for the shell around the Gemini codec: streams passed and translated read by read, and their bytes."""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError, StreamCut, UpstreamGarbled
from sluicegate.messages import ReasoningDelta, StreamEvent, TextDelta, Usage, UsageReport
from sluicegate.wire import Bill, StreamCodec
from sluicegate.wire.gemini import CODEC
from sluicegate.wire.translated import TranslatedStream
from sluicegate.wire.translation import Asked, Codec, PassOptions
from sluicegate.wire.upstream_errors import from_stream_error
from tests.grammar.gemini import check_gemini_stream
from tests.grammar.narrow_sse import ParsedStream

MODEL = "public/m-1"
ASKED = Asked(model=MODEL, id="0123456789abcdef01234567", created=1_800_000_000)
COST = b'"cost":0.000002,"cost_nano_usd":2000'
FIXTURES = Path(__file__).parent / "fixtures" / "gemini"
STREAMS = sorted(path.stem for path in FIXTURES.glob("*.sse") if "error" not in path.stem)
"""The fixtures that are whole answers."""


def fixture(name: str) -> bytes:
    """Return a fixture's bytes."""
    path = FIXTURES / f"{name}.sse"
    return (path if path.exists() else FIXTURES / f"{name}.json").read_bytes()


def dumps(value: Any) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def candidate(
    *parts: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any
) -> dict[str, Any]:
    """Return a candidate."""
    found: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}} if parts else {}
    if finish is not None:
        found["finishReason"] = finish
    return {**found, "index": index, **more}


def response(*candidates: dict[str, Any], usage: dict[str, int] | None = None, **more: Any) -> dict[str, Any]:
    """Return a response object."""
    counts = {"usageMetadata": usage} if usage is not None else {}
    named = {"modelVersion": "m", "responseId": "r1"}
    return {"candidates": list(candidates), **counts, **named, **more}


def ge(
    *parts: dict[str, Any], finish: str | None = None, usage: dict[str, int] | None = None, **more: Any
) -> bytes:
    """Return an event of one candidate."""
    return event(response(candidate(*parts, finish=finish, **more), usage=usage))


def event(payload: Any) -> bytes:
    """Return an event."""
    return b"data: " + dumps(payload) + b"\n\n"


def text(piece: str, **more: Any) -> dict[str, Any]:
    """Return a text part."""
    return {"text": piece, **more}


def call(name: str, args: Any = None, call_id: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a part with a call."""
    ids = {"id": call_id} if call_id else {}
    return {"functionCall": {"name": name, "args": args or {}, **ids}, **more}


USAGE = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}
DONE = ge(text(""), finish="STOP", usage=USAGE)


def as_array(stream: bytes) -> bytes:
    """Return the same objects as the array that a provider answers without `alt=sse`."""
    payloads = [line[6:] for line in stream.splitlines() if line.startswith(b"data: ")]
    return b"[" + b",\r\n".join(payloads) + b"\r\n]\r\n"


@dataclass
class Passed:
    """What became of an answer."""

    raw: bytes
    """All that the client got."""
    codec: StreamCodec
    counted: str
    """All text that was counted."""
    failure: str | None
    array: bool
    writes: list[bytes] = field(default_factory=list)
    """By read."""

    def parsed(self, **checks: Any) -> ParsedStream:
        """Check the client's stream by the grammar and return what it says."""
        checks.setdefault("model", MODEL)
        checks.setdefault("end", "done" if self.failure is None else "error")
        return check_gemini_stream(self.raw, array=self.array, **checks)


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
    array: bool = False,
    bill: Bill | None = None,
    **options: Any,
) -> Passed:
    """Pass an answer to a client, as `server.relay` does.

    Args:
        pieces: the provider's body, one piece a read.
        source: the provider's format where it is translated.
        closed: the body ends after the last piece.
        array: the client gets an array.
        bill: what the farewell says; None: what the provider reported.
    """
    counted: list[str] = []
    if source is None:
        options = {"count_text": counted.append, "array": array, **options}
        codec = CODEC.pass_stream(asked, PassOptions(**options))
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
    return Passed(b"".join(writes), codec, "".join(counted), failure, array or asked.array, writes)


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


def decoded(pieces: Iterable[bytes], can: Capabilities | None = None) -> list[StreamEvent]:
    """Return the events of a stream, neighbouring deltas joined, of usage only the last report.

    Raises:
        DecodeError: as the decoder does.
    """
    decoder = CODEC.stream_decoder(can or Capabilities(), lambda text: None)
    events: list[StreamEvent] = []
    for piece in pieces:
        events += decoder.feed(piece)
    return joined(events + decoder.finish())


def joined(events: list[StreamEvent]) -> list[StreamEvent]:
    """Join deltas that stand beside each other, and keep the last report of usage, at the end."""
    out: list[StreamEvent] = []
    usage: UsageReport | None = None
    for one in events:
        before = out[-1] if out else None
        if isinstance(one, UsageReport):
            usage = one
        elif isinstance(one, TextDelta) and isinstance(before, TextDelta) and one.choice == before.choice:
            out[-1] = TextDelta(before.text + one.text, one.choice)
        elif (
            isinstance(one, ReasoningDelta)
            and isinstance(before, ReasoningDelta)
            and one.choice == before.choice
        ):
            out[-1] = ReasoningDelta(before.text + one.text, one.choice)
        else:
            out.append(one)
    return [*out, usage] if usage is not None else out
