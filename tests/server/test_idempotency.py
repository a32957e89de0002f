"""`Idempotency-Key`: a repeat is charged once, whichever worker it comes to, in every format, plain and streamed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Script, Stall, Wait
from tests.conftest import PRICE, StartGate, make_config
from tests.fakes import Client, Response, ask, chat, request_bytes
from tests.gate import RunningGate, run_gate
from tests.grid.scenes import FORMATS, SCENES
from tests.grid.speaking import heard_plain, heard_stream, path_of, said

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY, OTHER_KEY = "sg-once-key-0123456789abcdef", "sg-other-key-0123456789abcdef"
PROMPT = SCENES["text"].prompt
CHAT = "/v1/chat/completions"
LONG = Answer(text=tuple("word " * 50 for _ in range(6000)))
"""1.5 MB."""


class World:
    """A gate with two workers, and the provider behind it."""

    def __init__(self, gate: RunningGate, simulator: Simulator) -> None:
        self.gate = gate
        self.simulator = simulator
        self._names = 0

    def name(self) -> str:
        """Return an `Idempotency-Key` that nobody used."""
        self._names += 1
        return f"once-{self._names}"

    async def say(self, path: str, body: Any, name: str, key: str = KEY) -> Response:
        """Ask on a connection of its own: any worker may take it."""
        return await ask(
            self.gate.url, path, body, key=key, headers={"idempotency-key": name}, timeout_s=15.0
        )

    def asked(self, text: str) -> int:
        """Return how many requests came to the provider that hold a text."""
        return sum(text in str(request.json) for request in self.simulator.requests)

    async def rows(self, *responses: Response) -> list[dict[str, Any]]:
        """Return the rows of answers, once they are there."""
        ids = {response.header("x-request-id") for response in responses}
        async with asyncio.timeout(60.0):
            while True:
                rows = [row for row in await asyncio.to_thread(self.gate.usage) if row["request_id"] in ids]
                if rows:
                    return rows
                await asyncio.sleep(0.1)


def configuration(simulator: Simulator) -> dict[str, Any]:
    providers = {name: {"base_url": simulator.base_url, "speaks": [name], "auth": "none"} for name in FORMATS}
    models = {
        f"{name}-{kind}": {"routes": [{"provider": name, "model": kind}], "price": PRICE}
        for name in FORMATS
        for kind in ("m", "slow", "long", "sim-500")
    }
    models["ears"] = {"routes": [{"provider": "chat", "model": "ears"}], "price": PRICE}
    config = make_config(simulator, server={"workers": 2}, retry={"max_attempts": 1, "after_send": 0})
    keys = [
        {"name": "once", "key": KEY, "balance_usd": 50},
        {"name": "other", "key": OTHER_KEY, "balance_usd": 50},
        {"name": "poor", "key": "sg-poor-key-0123456789abcdef", "balance_usd": "0.000001"},
    ]
    return config | {"providers": providers, "models": models, "keys": keys}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    import json

    async with Simulator() as simulator:
        simulator.push(
            Script(steps=(Play(before="finish"), Wait(s=0.7), Play(skip=("start", "content")))),
            model="slow",
            times=None,
        )
        simulator.push(Script(answer=LONG), model="long", times=None)
        with ExitStack() as gates:
            text = json.dumps(configuration(simulator))
            gate = await asyncio.to_thread(
                gates.enter_context, run_gate(tmp_path_factory.mktemp("once"), text)
            )
            yield World(gate, simulator)
            await asyncio.to_thread(gates.close)


@pytest.mark.parametrize("client", FORMATS)
async def test_a_plain_answer_is_given_again(world: World, client: str) -> None:
    model, name = f"{client}-m", world.name()
    path, body = path_of(client, model, False), said(client, model, PROMPT, False)
    before = len(world.simulator.requests)
    first, *repeats = [await world.say(path, body, name) for _ in range(5)]
    heard_plain(client, first, model)
    assert first.header("idempotent-replayed") is None
    for repeat in repeats:
        assert (repeat.status, repeat.body) == (200, first.body)
        assert repeat.header("idempotent-replayed") == "true"
        assert repeat.header("x-request-id") == first.header("x-request-id")
        assert repeat.header("x-sluicegate-cost-nano-usd") == first.header("x-sluicegate-cost-nano-usd")
    assert len(world.simulator.requests) == before + 1
    (row,) = await world.rows(first, *repeats)
    assert row["cost_nano_usd"] == int(first.header("x-sluicegate-cost-nano-usd") or 0) > 0


def check_refusal(
    client: str, response: Response, first: Response, status: int, openai: str, gemini: str
) -> None:
    """Check the shape of a refusal, and that it names the request that came first."""
    assert response.status == status
    first_id = first.header("x-request-id")
    assert response.header("x-sluicegate-first-request-id") == first_id
    assert response.header("x-request-id") != first_id
    if status == 409:
        assert response.header("retry-after") == "1"
        assert response.header("x-should-retry") is None
    else:
        assert response.header("x-should-retry") == "false"
    error = response.json()["error"]
    match client:
        case "gemini":
            assert (error["code"], error["status"]) == (status, gemini)
        case "messages":
            assert response.json()["type"] == "error"
            assert error["type"] == "invalid_request_error"
        case _:
            assert (error["type"], error["code"]) == ("invalid_request_error", openai)
    assert "Idempotency-Key" in error["message"]


@pytest.mark.parametrize("client", FORMATS)
async def test_another_body_is_refused(world: World, client: str) -> None:
    model, name = f"{client}-m", world.name()
    path = path_of(client, model, False)
    first = await world.say(path, said(client, model, PROMPT, False), name)
    other = said(client, model, PROMPT._replace(question="Something else?"), False)
    check_refusal(
        client, await world.say(path, other, name), first, 422, "idempotency_key_reused", "INVALID_ARGUMENT"
    )
    assert (await world.say(path, other, world.name())).status == 200


@pytest.mark.parametrize("client", FORMATS)
async def test_a_streamed_answer_is_not_given_again_but_told(world: World, client: str) -> None:
    model, name = f"{client}-m", world.name()
    path, body = path_of(client, model, True), said(client, model, PROMPT, True)
    first = await world.say(path, body, name)
    heard_stream(client, first, model)
    for _ in range(3):  # at once: the end left only when it was noted
        check_refusal(
            client, await world.say(path, body, name), first, 422, "already_served", "FAILED_PRECONDITION"
        )
    (row,) = await world.rows(first)
    assert row["status"] == "ok"


@pytest.mark.parametrize("client", FORMATS)
async def test_of_many_at_once_one_is_served(world: World, client: str) -> None:
    model, name = f"{client}-slow", world.name()
    path, body = path_of(client, model, True), said(client, model, PROMPT, True)
    before = len(world.simulator.requests)
    answers = await asyncio.gather(*(world.say(path, body, name) for _ in range(8)))
    (first,) = [answer for answer in answers if answer.status == 200]
    heard_stream(client, first, model)
    for answer in answers:
        if answer is not first:
            check_refusal(client, answer, first, 409, "request_running", "ABORTED")
    assert len(world.simulator.requests) == before + 1
    assert (await world.say(path, body, name)).status == 422


async def test_what_came_to_nothing_may_be_tried_again(world: World) -> None:
    name, body = world.name(), chat("chat-sim-500", "fails")
    assert (await world.say(CHAT, body, name)).status == 502
    assert (await world.say(CHAT, body, name)).status == 502
    assert world.asked("fails") == 2


@pytest.mark.parametrize(
    ("key", "body", "status"),
    [
        ("sg-poor-key-0123456789abcdef", chat("chat-m"), 402),
        (KEY, chat("unknown"), 404),
        (KEY, {"model": "chat-m"}, 400),
    ],
)
async def test_what_was_refused_is_not_remembered(world: World, key: str, body: Any, status: int) -> None:
    name = world.name()
    assert [(await world.say(CHAT, body, name, key)).status for _ in range(2)] == [status, status]
    assert (await world.say(CHAT, chat("chat-m"), name)).status == 200


async def test_keys_of_the_gate_do_not_share_names(world: World) -> None:
    name, body = world.name(), chat("chat-m", "mine alone", stream=False)
    first, other = await world.say(CHAT, body, name), await world.say(CHAT, body, name, OTHER_KEY)
    assert (first.status, other.status) == (200, 200)
    assert world.asked("mine alone") == 2


async def test_a_long_answer_is_not_kept(world: World) -> None:
    name, body = world.name(), chat("chat-long", stream=False, max_tokens=10_000)
    first = await world.say(CHAT, body, name)
    assert first.status == 200
    assert len(first.body) > 1_048_576
    check_refusal("chat", await world.say(CHAT, body, name), first, 422, "already_served", "")


@pytest.mark.parametrize("name", ["", "x" * 256, "a\tb", "n\xf6"])
async def test_bad_names_are_refused(world: World, name: str) -> None:
    client = await Client.connect(world.gate.url)
    async with client:
        head, end, body = request_bytes(CHAT, chat("chat-m"), key=KEY).partition(b"\r\n\r\n")
        client.send(head + b"\r\nidempotency-key: " + name.encode("latin-1") + end + body)
        response = await client.response()
    assert response.status == 400
    assert "Idempotency-Key" in response.json()["error"]["message"]


async def test_two_names_are_refused(world: World) -> None:
    client = await Client.connect(world.gate.url)
    async with client:
        head, end, body = request_bytes(CHAT, chat("chat-m"), key=KEY).partition(b"\r\n\r\n")
        client.send(head + b"\r\nidempotency-key: a\r\nIdempotency-Key: b" + end + body)
        assert (await client.response()).status == 400


async def test_no_prompt_and_no_name_is_kept(world: World) -> None:
    await world.say(CHAT, chat("chat-m", "do-not-keep-this-prompt"), "do-not-keep-this-name")
    folder = world.gate.config.parent
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"do-not-keep-this" not in path.read_bytes(), path


async def test_x6_a_killed_worker_leaves_no_name_behind(start_gate: StartGate, tmp_path: Path) -> None:
    """A request that a kill interrupted was charged nothing, so its repeat is served; one that was charged is not."""
    async with Simulator() as simulator:
        simulator.push(Script(steps=(Play(before="finish"), Stall())), model="m")
        gate = await start_gate(make_config(simulator))
        headers = {"idempotency-key": "again"}
        key = "sg-test-key-0123456789abcdef"
        done = await ask(
            gate.url, CHAT, chat("sim-text", stream=False), key=key, headers={"idempotency-key": "done"}
        )
        client = await Client.connect(gate.url)
        async with client:
            client.send(request_bytes(CHAT, chat("m"), key=key, headers=headers))
            await client.until_bytes(b'"content"')
            assert (await ask(gate.url, CHAT, chat("m"), key=key, headers=headers)).status == 409
            children = Path(f"/proc/{gate.child.pid}/task/{gate.child.pid}/children").read_text().split()
            for child in map(int, children):
                if b"server.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(child, signal.SIGKILL)
        async with asyncio.timeout(15.0):
            while True:
                try:
                    again = await ask(gate.url, CHAT, chat("m"), key=key, headers=headers)
                except OSError:
                    again = None
                if again is not None and again.status == 200:
                    break
                await asyncio.sleep(0.1)
        assert again.body.rstrip().endswith(b"[DONE]")
        repeat = await ask(
            gate.url, CHAT, chat("sim-text", stream=False), key=key, headers={"idempotency-key": "done"}
        )
        assert (repeat.status, repeat.body) == (200, done.body)
        rows = await asyncio.to_thread(gate.usage)
        assert sorted(row["status"] for row in rows if row["model"] == "m") == ["interrupted", "ok"]


def form_of(boundary: str, sound: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a form with a recording, and the header that says how it is cut."""
    line = f"--{boundary}\r\nContent-Disposition: form-data; name="
    body = f'{line}"model"\r\n\r\nears\r\n{line}"file"; filename="a.mp3"\r\n\r\n'.encode()
    return body + sound + f"\r\n--{boundary}--\r\n".encode(), {
        "content-type": f"multipart/form-data; boundary={boundary}"
    }


@pytest.mark.parametrize("size", [2_000, 300_000])
async def test_another_recording_is_another_request(world: World, size: int) -> None:
    name, before = world.name(), len(world.simulator.requests)
    answers = []
    for boundary, sound in [("one", b"a" * size), ("two", b"a" * size), ("one", b"b" * size)]:
        body, headers = form_of(boundary, sound)
        answers.append(
            await ask(
                world.gate.url,
                "/v1/audio/transcriptions",
                body,
                key=KEY,
                headers={"idempotency-key": name, **headers},
                timeout_s=15.0,
            )
        )
    first, same, other = answers
    assert (first.status, other.status) == (200, 422)
    assert other.json()["error"]["code"] == "idempotency_key_reused"
    if size == 2_000:
        assert (same.status, same.body) == (200, first.body)
        assert same.header("idempotent-replayed") == "true"
    else:  # nobody knows whether it is the same to its end
        assert (same.status, same.json()["error"]["code"]) == (422, "already_served")
    assert len(world.simulator.requests) == before + 1


async def test_a_run_in_the_background_is_told_while_it_runs(world: World) -> None:
    world.simulator.kept.polls, name, path = 1_000, world.name(), "/v1/responses"
    body = {"model": "responses-m", "input": "Hello", "background": True}
    try:
        first = await world.say(path, body, name)
        repeat = await world.say(path, body, name)
    finally:
        world.simulator.kept.polls = 1
    assert (first.status, first.json()["status"]) == (200, "queued")
    assert (repeat.body, repeat.header("idempotent-replayed")) == (first.body, "true")
    cancelled = await world.say(f"{path}/{first.json()['id']}/cancel", {}, world.name())
    assert cancelled.status == 200
