"""Hundreds of requests of every kind at once, to providers that fail in every way: each is settled once, and right.

The auditor computes every row's price by itself, from what the row says was used, and every account's balance from the
rows; nothing may be left held, open or counted afterwards.
"""

import asyncio
import json
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from sluicegate.billing.ledger import UsageRow
from sluicegate.simulator import Simulator
from tests.conftest import StartInProcess, make_config
from tests.fakes import Client, request_bytes
from tests.inprocess import InProcessGate
from tests.server.http_world import peer
from tests.server.test_uploads import form

REQUESTS = 400
AT_ONCE = 40
TEXT_PRICE = {"input": 1.25, "cache_read": 0.1, "output": 2.5}
MODELS: dict[str, dict[str, Any]] = {
    "text": TEXT_PRICE,
    "other": {"input": 3, "output": 7},
    "vectors": {"input": 0.02, "output": 0},
    "pictures": {"input": 0, "output": 0, "per_image": [{"usd": 0.02}]},
    "voice": {"input": 0, "output": 0, "per_character": 0.000015},
    "ears": {"input": 6, "output": 10, "input_audio": 8},
}
KEYS = {name: f"sg-{name}-key-0123456789abcdef" for name in ("rich", "poor", "capped", "free")}


def config_of(simulator: Simulator, port: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/v1"
    providers = {
        "one": {"base_url": url, "speaks": ["chat"], "auth": "none", "max_connections": 12},
        "two": {"base_url": url, "speaks": ["messages", "chat"], "auth": "none"},
    }
    routes = [{"provider": "one", "model": "m1"}, {"provider": "two", "model": "m2", "priority": 1}]
    models: dict[str, Any] = {
        name: {"routes": routes, "price": price, "hedge_percentile": 50} for name, price in MODELS.items()
    }
    accounts = {"rich": {"balance_usd": 50}, "poor": {"balance_usd": "0.003"}, "capped": {"balance_usd": 9}}
    keys = [{"name": name, "key": KEYS[name], "account": name} for name in accounts]
    keys[2] |= {"day_usd": 0.01, "on_limit": "finish"}
    keys.append({"name": "free", "key": KEYS["free"], "account": "free"})
    config = make_config(
        simulator,
        stream={
            "connect_timeout": "2s",
            "first_token_timeout": "0.7s",
            "idle_timeout": "0.7s",
            "response_timeout": "0.7s",
            "keepalive_after": "0.1s",
        },
        billing={"reserve_output_tokens": 16},
        retry={"max_attempts": 3, "after_send": 1},
    )
    del config["stream"]["keepalive_after"]
    config["server"] |= {"keepalive_after": "0.2s", "keepalive_every": "0.2s"}
    accounts["free"] = "unlimited"  # type: ignore[assignment]
    return config | {"providers": providers, "models": models, "accounts": accounts, "keys": keys}


class Provider:
    """Answers in every shape, and fails in every way; the dice are its own."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.asked = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            self.asked += 1
            dice = self._random
            mood = dice.choices(
                [
                    "well",
                    "well early",
                    "late",
                    "refuse",
                    "busy",
                    "reset",
                    "cut",
                    "garbage",
                    "stall",
                    "zip",
                    "error",
                ],
                [12, 1, 3, 1, 2, 1, 3, 2, 1, 1, 1],
            )[0]
            path = head.split(b" ")[1]
            if mood == "reset":
                writer.transport.abort()
                return
            if mood == "well early" and b"audio/transcriptions" in path:
                await self._whole(writer, 200, self._plain(path))
                return
            body = await self._body(reader, head)
            if mood == "stall":
                await reader.read()
                return
            if mood == "late":
                await asyncio.sleep(dice.uniform(0.05, 0.3))
            if mood in ("refuse", "busy"):
                status = (
                    dice.choice([400, 401, 404, 413]) if mood == "refuse" else dice.choice([429, 500, 503])
                )
                await self._whole(writer, status, b'{"error":{"message":"no","type":"x","code":"y"}}')
                continue
            if mood == "error":
                await self._whole(writer, 200, b'{"error":{"message":"no","type":"server_error"}}')
                continue
            if mood == "garbage":
                await self._whole(
                    writer, 200, dice.choice([b"", b"<html>", b"{", b"null", b'{"a":1}', b"data: {"])
                )
                continue
            if mood == "zip":
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00"
                )
                continue
            events = self._events(path, body)
            if events is None:
                told = self._plain(path)
                if mood == "cut":
                    writer.write(
                        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(told) + told[: len(told) // 2]
                    )
                    return
                await self._whole(writer, 200, told)
                continue
            kind = b"audio/mpeg" if b"speech" in path else b"text/event-stream"
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % kind)
            for event in events[: dice.randrange(len(events))] if mood == "cut" else events:
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                if dice.random() < 0.3:
                    await asyncio.sleep(dice.uniform(0, 0.01))
            if mood == "cut":
                return
            writer.write(b"0\r\n\r\n")

    async def _body(self, reader: asyncio.StreamReader, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" in head:
            pieces = []
            while size := int((await reader.readline()).strip(), 16):
                pieces.append(await reader.readexactly(size))
                await reader.readline()
            await reader.readline()
            return b"".join(pieces)
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await reader.readexactly(length)

    async def _whole(self, writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
        kind = b"application/json"
        writer.write(
            b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (status, kind, len(body), body)
        )

    def _usage(self) -> dict[str, Any]:
        dice = self._random
        return dice.choice(
            [
                {"prompt_tokens": dice.randrange(1, 500), "completion_tokens": dice.randrange(1, 90)},
                {
                    "prompt_tokens": 100,
                    "completion_tokens": dice.randrange(1, 200),
                    "prompt_tokens_details": {"cached_tokens": dice.randrange(0, 100)},
                },
            ]
        )

    def _plain(self, path: bytes) -> bytes:
        dice = self._random
        if b"embeddings" in path:
            told: Any = {
                "data": [{"embedding": [0.5], "index": 0}],
                "usage": {"prompt_tokens": dice.randrange(9)},
            }
        elif b"images" in path:
            told = {"created": 1, "data": [{"url": "u"}] * dice.randrange(0, 3)}
        elif b"transcriptions" in path:
            told = {"text": "heard", "usage": {"input_tokens": dice.randrange(90), "output_tokens": 3}}
        else:
            message = {"role": "assistant", "content": "word " * dice.randrange(1, 40)}
            told = {
                "id": "x",
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": self._usage(),
            }
        if dice.random() < 0.1:
            told.pop("usage", None)
        return json.dumps(told).encode()

    def _events(self, path: bytes, body: bytes) -> list[bytes] | None:
        dice = self._random
        if b"speech" in path:
            return [bytes(dice.randrange(1, 900)) for _ in range(dice.randrange(1, 9))]
        if b"chat" not in path or not json.loads(body).get("stream"):
            return None

        def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            told = {"id": "x", "object": "chat.completion.chunk", "choices": [choice]} | more
            return b"data: " + json.dumps(told).encode() + b"\n\n"

        events = [chunk({"role": "assistant", "content": ""})]
        events += [chunk({"content": " word" * dice.randrange(1, 12)}) for _ in range(dice.randrange(1, 12))]
        events.append(chunk({}, "stop"))
        if dice.random() < 0.9:
            events.append(chunk({}, choices=[], usage=self._usage()))
        return [*events, b"data: [DONE]\n\n"]


def sent(dice: random.Random, key: str) -> bytes:
    """Return one request of any kind."""
    kind = dice.choice(
        ["stream", "stream", "messages", "plain", "vectors", "pictures", "voice", "ears", "large ears"]
    )
    said = [{"role": "user", "content": "word " * dice.randrange(1, 60)}]
    model = dice.choice(["text", "other"])
    match kind:
        case "stream":
            body: Any = {"model": model, "messages": said, "stream": True, "max_tokens": 300}
            if dice.random() < 0.5:
                body["stream_options"] = {
                    "include_usage": True,
                    "continuous_usage_stats": dice.random() < 0.5,
                }
            return request_bytes("/v1/chat/completions", body, key=key)
        case "messages":
            body = {"model": model, "messages": said, "stream": dice.random() < 0.7, "max_tokens": 300}
            return request_bytes("/v1/messages", body, key=key)
        case "plain":
            return request_bytes("/v1/chat/completions", {"model": model, "messages": said}, key=key)
        case "vectors":
            return request_bytes(
                "/v1/embeddings", {"model": "vectors", "input": "x" * dice.randrange(1, 99)}, key=key
            )
        case "pictures":
            return request_bytes(
                "/v1/images/generations", {"model": "pictures", "prompt": "x", "n": 2}, key=key
            )
        case "voice":
            body = {"model": "voice", "input": "x" * dice.randrange(1, 300), "voice": "v"}
            return request_bytes("/v1/audio/speech", body, key=key)
    body = form(("model", "ears"), ("file", bytes(200_000 if kind == "large ears" else 2_000)))
    headers = {"content-type": "multipart/form-data; boundary=----form-of-the-tests"}
    return request_bytes("/v1/audio/transcriptions", body, key=key, headers=headers)


async def use(gate: InProcessGate, dice: random.Random) -> None:
    """Send one request; read the answer, or leave at any moment."""
    key = KEYS[dice.choice(list(KEYS))]
    request = sent(dice, key)
    async with await Client.connect(gate.url) as client:
        mood = dice.random()
        if mood < 0.05:
            client.send(request[: dice.randrange(len(request))])
            await asyncio.sleep(dice.uniform(0, 0.05))
            return
        client.send(request)
        if mood < 0.25:
            await asyncio.sleep(dice.uniform(0, 0.2))
            return
        await client.response(method="POST", timeout_s=30)


def price_of(row: UsageRow) -> int:
    """Compute what a row costs, in nano-USD, from the configuration's own words."""
    price, usage = MODELS[row.model], row.usage

    def per_token(name: str, otherwise: str) -> Fraction:
        return Fraction(str(price.get(name, price[otherwise]))) * 1000

    cached, audio = usage.cache_read_tokens or 0, usage.input_audio_tokens or 0
    nano = per_token("input", "input") * ((usage.input_tokens or 0) - cached - audio)
    nano += per_token("cache_read", "input") * cached + per_token("input_audio", "input") * audio
    nano += per_token("output", "output") * (usage.output_tokens or 0)
    if "per_image" in price:
        nano += Fraction("0.02") * 10**9 * (usage.images or 0)
    nano += Fraction(str(price.get("per_character", 0))) * 10**9 * (usage.characters or 0)
    return int(nano + Fraction(1, 2))


def audit(gate: InProcessGate, rows: list[UsageRow]) -> None:
    names = [row.request_id for row in rows]
    assert len(names) == len(set(names)), "settled twice"
    for row in rows:
        assert row.list_cost_nano_usd == price_of(row), row
        assert row.cost_nano_usd + row.shortfall_nano_usd == row.list_cost_nano_usd, row
        assert row.status in ("ok", "client_closed", "upstream_error", "rejected", "credit_spent"), row
        assert row.cost_nano_usd == 0 or row.status != "rejected", row
    for name, nano in (("rich", 50 * 10**9), ("poor", 3_000_000), ("capped", 9 * 10**9)):
        spent = sum(row.cost_nano_usd for row in rows if row.account_id == name)
        assert 0 <= spent <= nano
        credit = gate.gateway._credit
        assert gate.book.free(name) + gate.book.leased_to(name, 1) == nano - spent, name
        assert gate.book.leased_to(name, 1) == credit.idle(name), name
    capped = sum(row.cost_nano_usd for row in rows if row.account_id == "capped")
    assert capped <= 10_000_000


async def until(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("seed", [4, 5])
async def test_every_request_is_settled_once_and_right(
    simulator: Simulator, start_inprocess: StartInProcess, seed: int
) -> None:
    dice, provider = random.Random(seed), Provider(seed)
    async with peer(provider.talk) as scripted:
        gate = await start_inprocess(config_of(simulator, scripted.port))
        left = [REQUESTS]

        async def work() -> None:
            while left[0] > 0:
                left[0] -= 1
                await use(gate, dice)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        gateway = gate.gateway
        await until(lambda: not gateway._bench.running and not gateway._inbound._running)
        pool = gateway._pool
        await until(lambda: pool.open_connections == pool.idle_connections)
        for place in pool._places.values():
            assert place.open == len(place.idle)
            assert not place.waiting
        assert gateway._inbound.inflight_bytes == 0
        await asyncio.sleep(0.3)
        rows = gate.rows()
        audit(gate, rows)
        assert all(standing.running == 0 for standing in gateway._bench.deployments._standings.values())
        statuses = {
            status: sum(row.status == status for row in rows) for status in {row.status for row in rows}
        }
        assert statuses["ok"] > REQUESTS / 4, statuses
