"""Forms with files: they pass while they come, whole and unchanged but for the model; what is wrong is told."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.endpoints import form_of
from tests.conftest import KEY, StartInProcess, make_config
from tests.fakes import Client
from tests.inprocess import InProcessGate

PRICE = {"input": 6, "output": 10, "input_audio": 8}
BOUNDARY = "----form-of-the-tests"


def config_of(simulator: Simulator, **changes: Any) -> dict[str, Any]:
    row = {"base_url": simulator.base_url, "speaks": ["chat"], "auth": "none"}
    route = {"routes": [{"provider": "sim", "model": "their-model"}]}
    models = {
        "ears": {**route, "price": PRICE},
        "seconds": {**route, "price": {"input": 0, "output": 0, "per_second": 0.0001}},
        "pictures": {**route, "price": {"input": 0, "output": 0, "per_image": [{"usd": 0.02}]}},
    }
    return make_config(simulator, providers={"sim": row}, models=models, **changes)


def client_of(gate: InProcessGate) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=gate.url + "/v1", api_key=KEY, max_retries=0)


def form(*parts: tuple[str, str | bytes]) -> bytes:
    """Write a form; values that are bytes are files."""
    pieces = []
    for name, value in parts:
        file = (
            '; filename="a.bin"\r\nContent-Type: application/octet-stream' if isinstance(value, bytes) else ""
        )
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
        pieces += [head.encode(), value if isinstance(value, bytes) else value.encode(), b"\r\n"]
    return b"".join([*pieces, f"--{BOUNDARY}--\r\n".encode()])


def head(path: str, framing: str, boundary: str = BOUNDARY) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: gate\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: multipart/form-data; boundary={boundary}\r\n{framing}\r\n\r\n"
    ).encode()


async def post(gate: InProcessGate, path: str, body: bytes) -> Any:
    async with await Client.connect(gate.url) as client:
        client.send(head(path, f"content-length: {len(body)}") + body)
        return await client.response(method="POST", timeout_s=20)


SOUND = bytes(range(256)) * 8
LARGE = bytes(range(256)) * 16_384  # 4 MiB


@pytest.mark.parametrize("sound", [SOUND, LARGE], ids=["small", "large"])
async def test_t2_transcription_by_the_sdk(
    simulator: Simulator, start_inprocess: StartInProcess, sound: bytes
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        answer = await client.audio.transcriptions.create(model="ears", file=("a.mp3", sound), language="en")
    assert answer.text == f"I heard {len(sound)} bytes"
    sent = form_of(simulator.requests[-1].body)
    assert sent == {"model": "their-model", "language": "en", "file": sound}
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == 20 * 8_000 + 5 * 10_000
    assert (row.status, row.client_format, row.usage.input_audio_tokens) == ("ok", "transcription", 20)


async def test_transcripts_are_streamed(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        stream = await client.audio.transcriptions.create(model="ears", file=("a.mp3", SOUND), stream=True)
        events = [event async for event in stream]
    assert [event.type for event in events] == ["transcript.text.delta"] * 4 + ["transcript.text.done"]
    last = events[-1]
    assert last.type == "transcript.text.done"
    (row,) = await gate.wait_for_rows(1)
    assert last.usage is not None
    assert last.usage.model_extra is not None
    assert last.usage.model_extra["cost_nano_usd"] == row.cost_nano_usd == 210_000


@pytest.mark.parametrize("kind", ["text", "srt", "vtt"])
async def test_transcripts_as_text(simulator: Simulator, start_inprocess: StartInProcess, kind: Any) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        answer = await client.audio.transcriptions.create(
            model="ears", file=("a.mp3", SOUND), response_format=kind
        )
    assert answer == "I heard 2048 bytes\n"


async def test_recordings_are_charged_by_the_second(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        with pytest.warns(DeprecationWarning, match="deprecated"):
            answer = await client.audio.translations.create(
                model="seconds", file=("a.mp3", SOUND), response_format="verbose_json"
            )
    assert answer.duration == 2.048
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == 2_048 * 100
    assert row.usage.media_ms == 2_048


async def test_b2_what_a_client_lets_an_answer_tell_does_not_make_it_free(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    """A length where tokens are sold, and tokens where seconds are."""
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        await client.audio.transcriptions.create(
            model="ears", file=("a.mp3", SOUND), response_format="verbose_json"
        )
        await client.audio.transcriptions.create(model="seconds", file=("a.mp3", SOUND))
    by_tokens, by_seconds = await gate.wait_for_rows(2)
    assert by_tokens.cost_nano_usd == 20 * 8_000 + (by_tokens.usage.output_tokens or 0) * 10_000
    assert (by_tokens.usage.output_tokens or 0) > 2
    assert by_tokens.usage_source == "counted"
    assert by_seconds.cost_nano_usd == 2_000 * 100


async def test_pictures_are_edited(simulator: Simulator, start_inprocess: StartInProcess) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with client_of(gate) as client:
        edited = await client.images.edit(model="pictures", image=("a.png", SOUND), prompt="more snow", n=2)
        with pytest.warns(DeprecationWarning, match="deprecated"):
            varied = await client.images.create_variation(model="pictures", image=("a.png", SOUND))
    assert edited.data is not None
    assert varied.data is not None
    assert (len(edited.data), len(varied.data)) == (2, 1)
    rows = await gate.wait_for_rows(2)
    assert [row.cost_nano_usd for row in rows] == [40_000_000, 20_000_000]


async def test_a_large_form_passes_before_it_has_all_come(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = form(("model", "ears"), ("file", LARGE))
    async with await Client.connect(gate.url) as client:
        client.send(head("/v1/audio/transcriptions", f"content-length: {len(body)}") + body[:300_000])
        await simulator.wait_for(lambda: len(simulator.requests) == 1)
        assert simulator.requests[0].body_at is None
        client.send(body[300_000:])
        answer = await client.response(method="POST")
    assert answer.json()["text"] == f"I heard {len(LARGE)} bytes"


async def test_a_form_in_chunks_passes_in_chunks(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = form(("model", "ears"), ("file", LARGE), ("language", "en"))
    async with await Client.connect(gate.url) as client:
        client.send(head("/v1/audio/transcriptions", "transfer-encoding: chunked"))
        for at in range(0, len(body), 50_001):
            piece = body[at : at + 50_001]
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(0)
        client.send(b"0\r\n\r\n")
        answer = await client.response(method="POST")
    assert answer.json()["text"] == f"I heard {len(LARGE)} bytes"
    assert simulator.requests[0].header("transfer-encoding") == "chunked"
    assert form_of(simulator.requests[0].body)["language"] == "en"


@pytest.mark.parametrize("size", [1, 17, 4096])
async def test_a_small_form_at_any_cut(
    simulator: Simulator, start_inprocess: StartInProcess, size: int
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = form(("file", SOUND[:600]), ("model", "ears"))
    async with await Client.connect(gate.url) as client:
        client.send(head("/v1/audio/transcriptions", f"content-length: {len(body)}"))
        for at in range(0, len(body), size):
            client.send(body[at : at + size])
            if at % 64 == 0:
                await asyncio.sleep(0)
        answer = await client.response(method="POST")
    assert answer.json()["text"] == "I heard 600 bytes"
    assert simulator.requests[0].body == body.replace(b"ears", b"their-model")


async def test_a_small_form_is_tried_again_and_a_large_one_is_not(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    simulator.push(Script(status=503))
    answer = await post(gate, "/v1/audio/transcriptions", form(("model", "ears"), ("file", SOUND)))
    assert (answer.status, answer.header("x-sluicegate-attempts")) == (200, "2")
    simulator.push(Script(status=503))
    answer = await post(gate, "/v1/audio/transcriptions", form(("model", "ears"), ("file", LARGE)))
    assert answer.status >= 500
    rows = await gate.wait_for_rows(2)
    assert [row.attempts for row in rows] == [2, 1]


async def test_an_answer_before_the_end_of_the_form_is_told(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    simulator.push(Script(when="head", status=413, message="too much sound"))
    body = form(("model", "ears"), ("file", LARGE * 4))
    answer = await post(gate, "/v1/audio/transcriptions", body)
    assert answer.status == 413
    (row,) = await gate.wait_for_rows(1)
    assert row.cost_nano_usd == 0


async def test_r1_a_client_that_leaves_in_its_upload_frees_the_provider(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = form(("model", "ears"), ("file", LARGE))
    async with await Client.connect(gate.url) as client:
        client.send(head("/v1/audio/transcriptions", f"content-length: {len(body)}") + body[:300_000])
        await simulator.wait_for(lambda: len(simulator.requests) == 1)
    await simulator.wait_for(lambda: not simulator.connections, 2.0)
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("client_closed", 0)


def bad_forms() -> list[tuple[str, bytes, int, str | None]]:
    sound = ("file", SOUND)
    transcribe, edit = "/v1/audio/transcriptions", "/v1/images/edits"
    late = form(("model", "ears"), ("file", LARGE), ("stream", "true"))
    return [
        (transcribe, form(sound), 400, "model"),
        (transcribe, form(("model", "ears")), 400, "file"),
        (transcribe, form(("model", "ears"), ("model", "x"), sound), 400, "model"),
        (transcribe, form(("model", "nobody"), sound), 404, "model"),
        (transcribe, form(("model", "ears"), ("response_format", "pdf"), sound), 400, "response_format"),
        (transcribe, form(("model", "ears"), ("stream", "perhaps"), sound), 400, "stream"),
        (transcribe, form(("model", "ears"), sound)[:-10], 400, None),
        (transcribe, b"no form at all", 400, None),
        (transcribe, late, 400, "stream"),
        (edit, form(("model", "pictures"), ("image", SOUND), ("n", "99")), 400, "n"),
        (edit, form(("model", "pictures"), ("image", SOUND), ("size", "big")), 400, "size"),
        (edit, form(("model", "pictures"), ("image", SOUND), ("quality", "best")), 400, "quality"),
        (edit, form(("model", "pictures"), ("prompt", "x")), 400, "image"),
    ]


@pytest.mark.parametrize(("path", "body", "status", "param"), bad_forms())
async def test_what_is_wrong_with_a_form_is_told_and_nothing_is_charged(
    simulator: Simulator,
    start_inprocess: StartInProcess,
    path: str,
    body: bytes,
    status: int,
    param: str | None,
) -> None:
    gate = await start_inprocess(config_of(simulator))
    answer = await post(gate, path, body)
    assert (answer.status, answer.json()["error"]["param"]) == (status, param)
    assert all(row.cost_nano_usd == 0 for row in gate.rows())
    assert all(request.ended != "complete" for request in simulator.requests)


async def test_a_body_that_is_no_form_is_refused(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    async with await Client.connect(gate.url) as client:
        answer = await client.ask("/v1/audio/transcriptions", {"model": "ears"}, key=KEY)
    assert answer.status == 400
    assert "multipart/form-data" in answer.json()["error"]["message"]


async def test_a_form_that_is_too_large_is_refused(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator, server={"max_upload_bytes": 200_000}))
    body = form(("model", "ears"), ("file", LARGE))
    answer = await post(gate, "/v1/audio/transcriptions", body)
    assert answer.status == 413
    async with await Client.connect(gate.url) as client:
        client.send(head("/v1/audio/transcriptions", "transfer-encoding: chunked"))
        for at in range(0, len(body), 50_000):
            piece = body[at : at + 50_000]
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        answer = await client.response(method="POST")
    assert answer.status == 413
    assert all(row.cost_nano_usd == 0 for row in gate.rows())


async def test_a_form_that_stops_coming_is_given_up(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator, server={"request_timeout": "1s"}))
    body = form(("model", "ears"), ("file", LARGE))
    async with await Client.connect(gate.url) as client:
        client.send(head("/v1/audio/transcriptions", f"content-length: {len(body)}") + body[:300_000])
        answer = await client.response(method="POST", timeout_s=5)
    assert answer.status == 408
    await simulator.wait_for(lambda: not simulator.connections, 2.0)


@pytest.fixture
async def slow_provider() -> AsyncIterator[tuple[str, asyncio.Event, list[int]]]:
    """A provider that reads a request's head, and its body only once it may."""
    may_read, read = asyncio.Event(), [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        left = next(int(line[16:]) for line in lines if line.startswith(b"content-length: "))
        await may_read.wait()
        while left:
            piece = await reader.read(min(left, 65_536))
            left -= len(piece)
            read[0] += len(piece)
        answer = json.dumps({"text": "heard", "usage": {"input_tokens": 1, "output_tokens": 1}}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=65_536)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", may_read, read


async def test_a_provider_that_reads_slowly_pauses_the_client(
    simulator: Simulator, start_inprocess: StartInProcess, slow_provider: Any
) -> None:
    url, may_read, read = slow_provider
    config = config_of(simulator)
    config["providers"]["sim"]["base_url"] = url
    gate = await start_inprocess(config)
    body = form(("model", "ears"), ("file", LARGE * 24))
    async with await Client.connect(gate.url) as client:
        client.send(head("/v1/audio/transcriptions", f"content-length: {len(body)}") + body)
        await asyncio.sleep(0.5)
        (connection,) = gate.gateway._inbound.connections
        (upstream,) = gate.gateway._pool._open
        assert upstream._transport is not None
        assert upstream._transport.get_write_buffer_size() < 1_000_000
        assert not connection.transport.is_reading()
        may_read.set()
        answer = await client.response(method="POST", timeout_s=20)
    assert answer.json()["text"] == "heard"
    assert read == [len(body) + len("their-model") - len("ears")]
