"""Bytes of a Responses provider, and what becomes of them on their way to a client."""

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sluicegate.messages import RefusalDelta, StreamEvent
from tests.wire import openai_world
from tests.wire.anthropic_world import by_event
from tests.wire.openai_world import ASKED, COST, MODEL, Ran, plain, read, run, told, write

__all__ = [
    "ASKED",
    "COST",
    "HI",
    "MODEL",
    "STREAMS",
    "Ran",
    "Script",
    "by_event",
    "decoded",
    "fixture",
    "joined",
    "plain",
    "read",
    "rs",
    "run",
    "told",
    "write",
]
FIXTURES = Path(__file__).parent / "fixtures" / "responses"
STREAMS = sorted(path.stem for path in FIXTURES.glob("*.sse") if "error" not in path.stem)
"""The fixtures that are whole answers."""
HI = {"role": "user", "content": "hi"}
USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 11,
}


def joined(events: list[StreamEvent]) -> list[StreamEvent]:
    """Join deltas that stand beside each other and belong to the same thing, refusals too."""
    out: list[StreamEvent] = []
    for event in openai_world.joined(events):
        before = out[-1] if out else None
        if isinstance(event, RefusalDelta) and isinstance(before, RefusalDelta):
            out[-1] = RefusalDelta(before.text + event.text)
        else:
            out.append(event)
    return out


def decoded(pieces: Iterable[bytes], source: str = "responses") -> list[StreamEvent]:
    """Return the events of a stream, joined. Raises DecodeError as the decoder does."""
    return joined(openai_world.decoded(pieces, source))


def fixture(name: str) -> bytes:
    """Return a fixture's bytes."""
    path = FIXTURES / f"{name}.sse"
    return (path if path.exists() else FIXTURES / f"{name}.json").read_bytes()


def rs(type_: str, **fields: Any) -> bytes:
    """Return one event, its type without `response.`."""
    kind = type_ if type_ in ("error", "keepalive") else f"response.{type_}"
    payload = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {payload}\n\n".encode()


def response(status: str, output: Any = (), **more: Any) -> dict[str, Any]:
    """Return a response object."""
    usage = None if status == "in_progress" else USAGE
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "m",
        "output": output if output is None else list(output),
        "usage": usage,
        **more,
    }


def message(*texts: str, id_: str = "msg_1", status: str = "completed") -> dict[str, Any]:
    """Return a message item."""
    parts = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts]
    return {"id": id_, "type": "message", "role": "assistant", "status": status, "content": parts}


def call(place: int, name: str, arguments: str, status: str = "completed") -> dict[str, Any]:
    """Return a call item."""
    return {
        "id": f"fc_{place}",
        "type": "function_call",
        "status": status,
        "call_id": f"call_{place}",
        "name": name,
        "arguments": arguments,
    }


class Script:
    """A provider's stream as it is put together, numbered like the vendor's."""

    def __init__(self, *, begin: bool = True) -> None:
        self._events: list[bytes] = []
        if begin:
            self.add("created", response=response("in_progress"))
            self.add("in_progress", response=response("in_progress"))

    def add(self, type_: str, **fields: Any) -> "Script":
        """Add an event."""
        self._events.append(rs(type_, **fields, sequence_number=len(self._events)))
        return self

    def raw(self, data: bytes) -> "Script":
        """Add bytes as they are."""
        self._events.append(data)
        return self

    def end(self, *output: dict[str, Any], type_: str = "completed", **more: Any) -> bytes:
        """Add the terminal event and return the stream."""
        self.add(type_, response=response(type_, output, **more))
        return b"".join(self._events)

    def cut(self) -> bytes:
        """Return the stream as far as it goes."""
        return b"".join(self._events)


def every_cut(data: bytes, seeds: Iterable[int] = range(3)) -> Iterator[list[bytes]]:
    """Return an answer's bytes whole, by event, byte by byte and at random cuts."""
    yield [data]
    yield by_event(data)
    yield [data[at : at + 1] for at in range(len(data))]
    for seed in seeds:
        chance = random.Random(seed)
        places = sorted(chance.sample(range(len(data)), min(40, len(data))))
        yield [data[left:right] for left, right in zip([0, *places], [*places, len(data)], strict=True)]
