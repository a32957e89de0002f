"""Clients that keep a gate busy while it is killed, and remember what each of them saw: the outside half of the audit.

They ask for streams and plain answers, short and long, some with a finish that comes well before its usage; some leave
in the middle, some providers fail. Every request carries its number to the gate (`x-request-id`, which the usage row
repeats) and through it to the provider (`user`), so that all three can be held against each other.
"""

import asyncio
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from sluicegate.simulator.script import Play, Script, Wait
from tests.fakes import Client, Response, ResponseReader, request_bytes

PATH = "/v1/chat/completions"
ANSWER_TIMEOUT_S = 45.0
"""No answer may take so long, however often the gate is killed: an open connection that nobody serves is a hang."""
DEFAULT_TOKENS = 24
"""Length of the simulator's default answer: what `late usage` and its script stand on."""
USAGE_AT = DEFAULT_TOKENS + 2
"""The event with usage, behind one that starts the answer, one a token, and the finish."""
LATE_USAGE = Script(steps=(Play(before="usage"), Wait(s=0.6), Play(start=USAGE_AT)))
"""Longer than the gate holds a finish back, so that it leaves, and is checkpointed, before usage is there."""
KINDS = {"stream": 40, "plain": 25, "late usage": 10, "long": 8, "leaves": 9, "cut": 5, "fails": 3}
"""What is asked for, by weight."""
PAUSES_S = (0.0, 0.4)
"""Between an answer and the next request: what clients and provider do takes from the gate's processor time."""
RETRY_S = (0.1, 0.4)
"""Likewise, where there was no whole answer: a gate that is dead refuses at once."""
REUSE = 20
"""Requests on one connection."""


@dataclass(slots=True)
class Seen:
    """One request, and what its client saw of the answer."""

    number: int
    key: str
    kind: str
    status: int | None = None
    """None: not even a head came."""
    request_id: str | None = None
    whole: bool = False
    """The answer's end came: the end marker of a stream, or the last byte of a plain answer."""
    finished: bool = False
    """A finish reason came."""
    tokens: int = 0
    """Events with content that came of a stream: the simulator puts one token into each."""
    left: bool = False
    """The client left before the end, by its own will."""
    asked_at: float = 0.0
    ended_at: float = math.inf
    """Seconds of the monotonic clock: from when to when it was under way, as its client knows."""
    hung: bool = False
    error: str | None = None
    """What an answer that is not one said."""
    usage: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """How it is called at the gate and at the provider."""
        return f"crash-{self.number}"

    def take(self, response: Response) -> None:
        """Remember an answer, whole or as far as it came."""
        self.status = response.status
        self.request_id = response.header("x-request-id")
        if response.status != 200:
            self.error = response.body.decode("utf-8", "replace")[:200]
        elif self.kind == "plain":
            if response.complete:
                self._take_object(response.json())
                self.whole = self.usage is not None
        else:
            self._take_events(response.body)
            self.whole = self.whole and response.complete

    def _take_events(self, body: bytes) -> None:
        for event in body.split(b"\n\n")[:-1]:
            data = event.removeprefix(b"data: ")
            if data == b"[DONE]":
                self.whole = True
            elif not data.startswith(b":"):
                self._take_object(json.loads(data))

    def _take_object(self, told: dict[str, Any]) -> None:
        if "error" in told:
            self.error = json.dumps(told["error"])[:200]
        for choice in told.get("choices", ()):
            self.finished |= choice["finish_reason"] is not None
            self.tokens += bool(choice.get("delta", {}).get("content"))
        self.usage = told.get("usage") or self.usage


class Load:
    """Runs clients until told to stop; `seen` grows by one for each request, in the order they were made."""

    def __init__(self, url: str, keys: Mapping[str, tuple[str, int]], seed: int, clients: int) -> None:
        """Args: keys: by name: the key, and the weight with which it is used."""
        self.seen: list[Seen] = []
        self._url = url
        self._keys = {name: key for name, (key, _) in keys.items()}
        self._key_weights = [weight for _, weight in keys.values()]
        self._stopping = False
        self._clients = [
            asyncio.create_task(self._run(Random(f"{seed} client {index}"))) for index in range(clients)
        ]

    async def stop(self) -> None:
        """Let every client come to the end of its request."""
        self._stopping = True
        await asyncio.gather(*self._clients)

    async def cancel(self) -> None:
        """Drop everything."""
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _run(self, rng: Random) -> None:
        connection: Client | None = None
        used = 0
        try:
            while not self._stopping:
                seen = self._choose(rng)
                if connection is not None and (used == REUSE or connection.ended is not None):
                    await connection.close()
                    connection = None
                goes_on = False
                try:
                    if connection is None:
                        connection, used = await Client.connect(self._url), 0
                    used += 1
                    goes_on = await self._ask(connection, seen, rng)
                except TimeoutError:
                    seen.hung = True
                except OSError:
                    pass  # refused, or ended without a head: `seen` says so
                seen.ended_at = time.monotonic()
                if not goes_on:
                    if connection is not None:
                        await connection.close()
                        connection = None
                    await asyncio.sleep(rng.uniform(*RETRY_S))
                else:
                    await asyncio.sleep(rng.uniform(*PAUSES_S))
        finally:
            if connection is not None:
                await connection.close()

    def _choose(self, rng: Random) -> Seen:
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        key = rng.choices(list(self._keys), self._key_weights)[0]
        seen = Seen(len(self.seen), key, kind, asked_at=time.monotonic())
        self.seen.append(seen)
        return seen

    async def _ask(self, connection: Client, seen: Seen, rng: Random) -> bool:
        """Ask once; say whether the connection can be used again."""
        start = len(connection.raw)
        body, key, headers = request_body(seen, rng), self._keys[seen.key], {"x-request-id": seen.name}
        connection.send(request_bytes(PATH, body, key=key, headers=headers))
        if seen.kind == "leaves":
            await _read_and_leave(connection, seen, start, rng)
            return False
        seen.take(await connection.response(timeout_s=ANSWER_TIMEOUT_S))
        return seen.whole


async def _read_and_leave(connection: Client, seen: Seen, start: int, rng: Random) -> None:
    """Read some of a stream, which may well be all of it, and drop the connection."""
    events = rng.randrange(12)
    reader = ResponseReader(offset=start)

    def enough() -> bool:
        if connection.ended is not None or connection.raw.count(b'"delta"', start) > events:
            return True
        return reader.read(connection.raw) is not None

    await connection.until(enough, ANSWER_TIMEOUT_S)
    response = ResponseReader(offset=start).read(connection.raw, closed=True)
    if response is not None:
        seen.take(response)
    seen.left = connection.ended is None and (response is None or not response.complete)
    if seen.left and rng.random() < 0.5:
        connection.reset()


def request_body(seen: Seen, rng: Random) -> dict[str, Any]:
    """Return what a kind of request asks for; the model's name tells the simulator how to answer."""
    tokens, first_ms, pace_ms = rng.randint(4, 40), rng.randint(0, 30), rng.randint(1, 8)
    healthy = f"tokens={tokens},first_ms={first_ms},pace_ms={pace_ms}"
    body: dict[str, Any] = {
        "model": f"sim-text,{healthy}",
        "messages": [{"role": "user", "content": "Say something. " * rng.randint(1, 20)}],
        "user": seen.name,
        "max_tokens": 64,
        "stream": seen.kind != "plain",
    }
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    match seen.kind:
        case "late usage":
            body |= {"model": "m", "sim": msgspec.to_builtins(LATE_USAGE)}
        case "long":  # longer than what is reserved at first
            body |= {"model": f"sim-text,tokens=900,first_ms={first_ms},pace_ms=1", "max_tokens": 1000}
        case "cut":
            body["model"] = f"sim-cut,after={rng.randint(1, 8)},{healthy}"
        case "fails":
            body["model"] = "sim-500"
    return body
