"""Every malformed request gets a 4xx in OpenAI's error shape, nothing is charged or sent, and the process lives on."""

import asyncio
import json
from typing import Any

import pytest

from sluicegate.simulator import Simulator
from tests.conftest import KEY, Connect, StartInProcess, make_config
from tests.fakes import Response, ask, chat
from tests.inprocess import InProcessGate

PATH = "/v1/chat/completions"
USER = [{"role": "user", "content": "Hello"}]
BIG_BYTES = 40 * 1024 * 1024


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": USER} | fields).encode()


def deep(depth: int) -> bytes:
    return b'{"model":"m","messages":' + b"[" * depth + b"]" * depth + b"}"


BAD_BODIES: dict[str, tuple[bytes, int, str | None]] = {
    "empty": (b"", 400, None),
    "not JSON": (b"hello", 400, None),
    "half of it": (b'{"model":"m","messages":[{"role"', 400, None),
    "an array": (b"[]", 400, None),
    "a string": (b'"m"', 400, None),
    "a number": (b"12", 400, None),
    "null": (b"null", 400, None),
    "two objects": (body() + body(), 400, None),
    "a duplicate key": (b'{"model":"m","messages":[],"model":"n"}', 400, "model"),
    "a duplicate in escapes": (b'{"model":"m","messages":[],"mod\\u0065l":"n"}', 400, "model"),
    "a duplicate of stream": (b'{"stream":true,"model":"m","messages":[],"stream":false}', 400, "stream"),
    "a duplicate inside stream_options": (
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,'
        b'"stream_options":{"include_usage":true,"include_usage":false}}',
        400,
        "stream_options.include_usage",
    ),
    "10,000 deep": (deep(10_000), 400, None),
    "a raw NUL": (b'{"model":"m","messages":[{"role":"user","content":"a\x00b"}]}', 400, None),
    "a raw NUL nobody reads": (
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"x":"\x00"}',
        400,
        None,
    ),
    "not UTF-8": (b'{"model":"m","messages":[{"role":"user","content":"\xff\xfe"}]}', 400, None),
    "not UTF-8 nobody reads": (
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"x":"\xc3"}',
        400,
        None,
    ),
    "half a surrogate pair": (b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}]}', 400, None),
    "the low half first": (b'{"model":"m","messages":[{"role":"user","content":"\\ude00"}]}', 400, None),
    "half a pair nobody reads": (
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"x":"\\ud83dx"}',
        400,
        None,
    ),
    "no model": (json.dumps({"messages": USER}).encode(), 400, "model"),
    "model null": (body(model=None), 400, "model"),
    "model a number": (body(model=5), 400, "model"),
    "model a list": (body(model=["m"]), 400, "model"),
    "model empty": (body(model=""), 400, "model"),
    "model unknown": (body(model="nope"), 404, "model"),
    "no messages": (b'{"model":"m"}', 400, "messages"),
    "messages null": (body(messages=None), 400, "messages"),
    "messages a string": (body(messages="hi"), 400, "messages"),
    "messages empty": (body(messages=[]), 400, "messages"),
    "a message that is a string": (body(messages=["hi"]), 400, "messages[...]"),
    "a message without a role": (body(messages=[{"content": "hi"}]), 400, "messages[...].role"),
    "a role that is a number": (body(messages=[{"role": 1, "content": "hi"}]), 400, "messages[...].role"),
    "stream a string": (body(stream="true"), 400, "stream"),
    "stream a number": (body(stream=1), 400, "stream"),
    "stream_options a list": (body(stream=True, stream_options=[]), 400, "stream_options"),
    "stream_options without stream": (body(stream_options={"include_usage": True}), 400, "stream_options"),
    "include_usage a string": (
        body(stream=True, stream_options={"include_usage": "yes"}),
        400,
        "stream_options.include_usage",
    ),
    "n zero": (body(n=0), 400, "n"),
    "n a string": (body(n="2"), 400, "n"),
    "n huge": (body(n=10_000), 400, "n"),
    "max_tokens negative": (body(max_tokens=-1), 400, "max_tokens"),
    "max_tokens a float": (body(max_tokens=1.5), 400, "max_tokens"),
    "max_completion_tokens beyond 64 bits": (
        body(max_completion_tokens=2**70),
        400,
        "max_completion_tokens",
    ),
}


def check_error(response: Response, status: int, param: str | None = None) -> None:
    assert response.status == status, response.body
    assert response.complete
    assert response.header("content-type") == "application/json"
    assert response.header("x-request-id") == response.header("request-id")
    error = response.json()["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert isinstance(error["message"], str)
    assert error["message"]
    if param is not None:
        assert error["param"] is not None
        assert error["param"].replace("[0]", "[...]") == param


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_a_bad_body_is_refused(gate_inprocess: InProcessGate, simulator: Simulator, name: str) -> None:
    data, status, param = BAD_BODIES[name]
    check_error(await ask(gate_inprocess.url, PATH, data, key=KEY), status, param)
    assert not simulator.requests
    assert gate_inprocess.rows() == []
    good = await ask(gate_inprocess.url, PATH, chat("m", stream=False), key=KEY)
    assert good.status == 200


async def test_an_escaped_nul_passes(gate_inprocess: InProcessGate, simulator: Simulator) -> None:
    data = b'{"model":"m","messages":[{"role":"user","content":"a\\u0000b"}],"x":"\\u0000"}'
    response = await ask(gate_inprocess.url, PATH, data, key=KEY)
    assert response.status == 200
    assert b'"a\\u0000b"' in simulator.requests[0].body


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
async def test_a_body_of_40_mib_is_refused(
    gate_inprocess: InProcessGate, client: Connect, declared: bool
) -> None:
    """The answer arrives although the client is still sending."""
    connection = await client(gate_inprocess.url)
    framing = f"content-length: {BIG_BYTES}" if declared else "transfer-encoding: chunked"
    connection.send(
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n{framing}\r\n\r\n".encode()
    )

    async def send() -> None:
        piece = b"x" * 65536 if declared else b"10000\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(BIG_BYTES // 65536):
            if connection.ended:
                return
            connection.send(piece)
            await asyncio.sleep(0.0005)

    sending = asyncio.create_task(send())
    response = await connection.response(timeout_s=10.0)
    check_error(response, 413)
    await sending


@pytest.mark.parametrize(
    ("credential", "status"),
    [
        (None, 401),
        ("x", 401),
        ("sg-unknown-key-0123456789", 401),
        ("sg-" + "k" * 300, 401),
        ("\xe9" * 20, 401),
    ],
)
async def test_a_bad_key_is_refused(
    gate_inprocess: InProcessGate, simulator: Simulator, credential: str | None, status: int
) -> None:
    check_error(await ask(gate_inprocess.url, PATH, chat("m"), key=credential), status)
    assert not simulator.requests


async def test_a_stranger_is_told_before_the_body_has_come(
    gate_inprocess: InProcessGate, client: Connect
) -> None:
    connection = await client(gate_inprocess.url)
    connection.send(
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sg-unknown-key-0123456789\r\n"
        "content-length: 100000\r\n\r\n{".encode()
    )
    check_error(await connection.response(timeout_s=3.0), 401)


@pytest.mark.parametrize("form", ["authorization", "x-api-key", "x-goog-api-key", "api-key", "query"])
async def test_b112_a_key_is_taken_wherever_it_stands(gate_inprocess: InProcessGate, form: str) -> None:
    path, headers = PATH, {}
    if form == "query":
        path = f"{PATH}?key={KEY}"
    else:
        headers = {form: f"Bearer {KEY}" if form == "authorization" else KEY}
    response = await ask(gate_inprocess.url, path, chat("m", stream=False), headers=headers)
    assert response.status == 200


async def test_b112_of_two_keys_ours_counts(gate_inprocess: InProcessGate) -> None:
    other = {"x-api-key": "some-other-credential-123456"}
    assert (
        await ask(gate_inprocess.url, PATH, chat("m", stream=False), key=KEY, headers=other)
    ).status == 200
    same = {"x-api-key": KEY}
    assert (await ask(gate_inprocess.url, PATH, chat("m", stream=False), key=KEY, headers=same)).status == 200
    check_error(
        await ask(gate_inprocess.url, PATH, chat("m"), key="sg-nobody-knows-this", headers=other), 401
    )


async def test_b112_two_keys_of_ours_are_refused(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    second = "sg-second-key-0123456789abc"
    keys = [{"name": "a", "key": KEY, "balance_usd": 1}, {"name": "b", "key": second, "balance_usd": 1}]
    gate = await start_inprocess(make_config(simulator, keys=keys))
    check_error(await ask(gate.url, PATH, chat("m"), key=KEY, headers={"x-api-key": second}), 401)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/nope", 404),
        ("GET", "/nope", 404),
        ("POST", "/v1/v1/chat/completions", 404),
        ("GET", PATH, 405),
        ("DELETE", PATH, 405),
        ("POST", "/healthz", 405),
        ("BREW", PATH, 405),
    ],
)
async def test_a_path_or_method_that_does_not_exist(
    gate_inprocess: InProcessGate, method: str, path: str, status: int
) -> None:
    response = await ask(gate_inprocess.url, path, b"{}", method=method, key=KEY)
    check_error(response, status)
    if status == 405:
        assert response.header("allow")


async def test_compressed_bodies_are_refused(gate_inprocess: InProcessGate) -> None:
    check_error(
        await ask(gate_inprocess.url, PATH, b"\x1f\x8b", key=KEY, headers={"content-encoding": "gzip"}), 415
    )


async def test_a_request_cut_in_the_middle_leaves_nothing(
    gate_inprocess: InProcessGate, client: Connect
) -> None:
    for cut in (b"POS", b"POST /v1/chat/completions HTTP/1.1\r\nhost:", b'{"model":'):
        connection = await client(gate_inprocess.url)
        if cut.startswith(b"{"):
            head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: 90\r\n\r\n"
            cut = head.encode() + cut
        connection.send(cut)
        await asyncio.sleep(0.02)
        connection.reset()
    await asyncio.sleep(0.05)
    assert gate_inprocess.rows() == []
    assert (await ask(gate_inprocess.url, PATH, chat("m", stream=False), key=KEY)).status == 200


async def test_a_key_without_credit_is_refused_before_anything_is_sent(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    """B4: low balance."""
    gate = await start_inprocess(
        make_config(simulator, keys=[{"name": "poor", "key": KEY, "balance_usd": 0}])
    )
    response = await ask(gate.url, PATH, chat("m"), key=KEY)
    check_error(response, 402)
    assert response.header("x-should-retry") == "false"
    assert response.json()["error"]["code"] == "insufficient_balance"
    assert not simulator.requests


async def test_a_model_that_the_key_may_not_use(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    keys = [{"name": "narrow", "key": KEY, "balance_usd": 1, "models": ["other-*"]}]
    gate = await start_inprocess(make_config(simulator, keys=keys))
    check_error(await ask(gate.url, PATH, chat("m"), key=KEY), 403, "model")
    assert not simulator.requests


async def test_limits_of_a_key_answer_429(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    """E5: the answer says when to come back, 1 to 59 s."""
    keys = [{"name": "slow", "key": KEY, "balance_usd": 1, "rpm": 2}]
    gate = await start_inprocess(make_config(simulator, keys=keys))
    for _ in range(2):
        assert (await ask(gate.url, PATH, chat("m", stream=False), key=KEY)).status == 200
    response = await ask(gate.url, PATH, chat("m", stream=False), key=KEY)
    check_error(response, 429)
    assert 1 <= int(response.header("retry-after") or 0) <= 59
    assert response.header("x-should-retry") is None
    assert len(simulator.requests) == 2
