"""A stand-in for the shell: passes a provider's bytes through the chat codec as `server.relay` does, read by read."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sluicegate.errors import DecodeError, StreamCut, UpstreamGarbled
from sluicegate.messages import Usage
from sluicegate.wire import Bill
from sluicegate.wire.openai_chat import ChatStream
from sluicegate.wire.openai_chat_identity import Identity
from sluicegate.wire.upstream_errors import from_stream_error
from tests.grammar.chat import check_chat_stream
from tests.grammar.narrow_sse import ParsedStream

MODEL = "public/m-1"
IDENTITY = Identity(model=MODEL, fallback_id="chatcmpl-0123456789abcdef01234567", created=1_800_000_000)
HIDDEN = Identity(
    model=MODEL, fallback_id="chatcmpl-0123456789abcdef01234567", created=1_800_000_000, hide_provider=True
)
COST = b'"cost":0.000002,"cost_nano_usd":2000'


@dataclass
class Passed:
    """What became of an answer."""

    raw: bytes
    """All that the client got."""
    codec: ChatStream
    complete: bool
    counted: str
    """All text that was counted."""
    failure: str | None
    writes: list[bytes] = field(default_factory=list)
    """By read."""

    def parsed(self, **checks: object) -> ParsedStream:
        """Check the client's stream by the grammar and return what it says."""
        checks.setdefault("model", MODEL)
        checks.setdefault("end", "done" if self.complete else "error")
        return check_chat_stream(self.raw, **checks)  # type: ignore[arg-type]


def run(
    pieces: Iterable[bytes],
    *,
    usage: bool = False,
    repair: bool = True,
    choices: int = 1,
    identity: Identity = IDENTITY,
    closed: bool = True,
    max_event_bytes: int = 1 << 24,
    release_after: int | None = None,
) -> Passed:
    """Pass an answer.

    Args:
        pieces: the provider's body, one piece a read.
        usage: the client asked for it.
        closed: the body ends after the last piece; else it stays open, and the usage clock runs out.
        release_after: the hold clock runs out after this read.
    """
    counted: list[str] = []
    codec = ChatStream(
        identity,
        count_text=counted.append,
        keep_null_usage=usage,
        repair=repair,
        choices=choices,
        max_event_bytes=max_event_bytes,
    )
    writes: list[bytes] = []
    failure: str | None = None

    def put_out() -> None:
        writes.append(b"".join(codec.out))
        codec.out.clear()

    error: Exception | None = None
    try:
        for number, piece in enumerate(pieces):
            codec.feed(piece)
            if codec.error is None and not codec.ended and codec.held:
                codec.flush()
                if release_after == number:
                    codec.release()
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
        counts = codec.usage or Usage(input_tokens=3, output_tokens=5)
        writes.append(codec.farewell(Bill(counts, in_usage=COST) if usage else None))
    return Passed(b"".join(writes), codec, failure is None, "".join(counted), failure, writes)


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
    whole = [part + b"\n\n" for part in parts[:-1]]
    return whole + ([parts[-1]] if parts[-1] else [])


def every_way(data: bytes, **options: object) -> list[Passed]:
    """Pass an answer whole, by event, byte by byte and at random cuts."""
    ways: list[Iterable[bytes]] = [[data], by_event(data), one_byte(data)]
    ways += [random_cuts(data, seed) for seed in range(4)]
    return [run(way, **options) for way in ways]  # type: ignore[arg-type]
