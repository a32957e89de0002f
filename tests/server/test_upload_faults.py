"""Forms that are made to be misread, and providers and connections that fail in the middle of one."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sluicegate.errors import BadRequest, ConnectFailed
from sluicegate.messages import Usage
from sluicegate.server.dialing import Origin
from sluicegate.server.upstream import UpstreamConnection
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.script import Stall
from sluicegate.wire.translation import Asked
from sluicegate.wire.unary.forms import TranscriptionRequest
from sluicegate.wire.unary.multipart import Form, boundary_of, content_type, parts_of
from tests.conftest import KEY, StartInProcess
from tests.fakes import Client, Response
from tests.server.http_world import Peer, Recorder, peer
from tests.server.test_uploads import LARGE, SOUND, config_of, form, head, post

ASKED = Asked(model="public", id="id", created=1)
TRANSCRIBE = "/v1/audio/transcriptions"


def part(disposition: str, value: bytes, boundary: str = "B") -> bytes:
    return f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode() + value + b"\r\n"


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"application/json",
        b"multipart/form-data",
        b"multipart/form-data; boundary=",
        b"multipart/form-data; boundary=a; boundary=b",
        b'multipart/form-data; x="; boundary=a"',
        b'multipart/form-data; boundary="a',
        b"multipart/form-data; boundary=" + b"a" * 71,
        b'multipart/form-data; boundary="a\\"b"',
        b"multipart/form-data-x; boundary=a",
        b"multipart/form-data; boundary=\xc3\xa9",
    ],
)
def test_a_boundary_that_can_be_read_in_two_ways_is_none(given: bytes) -> None:
    with pytest.raises(BadRequest, match="boundary"):
        boundary_of(given)


@pytest.mark.parametrize(
    ("given", "boundary", "told"),
    [
        (b"multipart/form-data; boundary=a-b", b"a-b", b"a-b"),
        (b'Multipart/Form-Data;charset=utf-8 ; Boundary="a b:c"; ', b"a b:c", b'"a b:c"'),
        (b'multipart/form-data; x="; boundary=a"; boundary=b', b"b", b"b"),
        (b"multipart/form-data; boundary==_x", b"=_x", b'"=_x"'),
    ],
)
def test_a_boundary_is_told_in_one_way(given: bytes, boundary: bytes, told: bytes) -> None:
    assert boundary_of(given) == boundary
    assert content_type(boundary) == b"multipart/form-data; boundary=" + told
    assert boundary_of(content_type(boundary)) == boundary


@pytest.mark.parametrize(
    "piece",
    [
        part('name="prompt"; name="model"', b"dear"),
        part('name="model"; filename=""', b"dear"),
        part("name=\"model\"; filename*=UTF-8''x", b"dear"),
        part('name="mod\\el"', b"dear"),
        part("name", b"dear"),
        part('filename="x"', b"dear"),
        part('name="a"; filename="b', b"dear"),
        b'--B\r\nContent-Disposition: form-data; name="a"\r\nContent-Disposition: form-data; name="model"\r\n\r\nx\r\n',
        b'--B\r\nX: y\nContent-Disposition: form-data; name="model"\r\n\r\nx\r\n',
        b'--B\r\nContent-Disposition: attachment; name="model"\r\n\r\nx\r\n',
        b'--B\r\nContent-Disposition: form-data;\r\n name="model"\r\n\r\nx\r\n',
        b"--B\r\nContent-Type: text/plain\r\n\r\nx\r\n",
        b"--B\r\n\r\nx\r\n",
        b"--Bx\r\n\r\nx\r\n",
    ],
)
def test_c8_a_part_that_can_be_read_in_two_ways_is_refused(piece: bytes) -> None:
    read = Form(b"B")
    with pytest.raises(BadRequest):
        read.feed(part('name="model"', b"cheap") + piece + b"--B--\r\n")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 70, 100_000])
def test_a_form_passes_byte_for_byte_at_any_cut(size: int) -> None:
    sound = b"\r\n--A\r\n--\r\n-\r\n--\r\n\r\n" + bytes(range(256)) * 3
    body = (
        part('filename="a; name=model; \\"x"; name=file', sound)
        + part('name="model"', b"cheap")
        + part('name="empty"', b"")
        + part('NAME="language"', "é".encode())
        + b"--B--\r\nepilogue"
    )
    read, out = Form(b"B"), []
    for at in range(0, len(body), size):
        read.feed(body[at : at + size])
        out += read.out
        read.out = []
    read.finish()
    assert b"".join(b"cheap" if piece is None else piece for piece in out) == body
    assert read.fields == {"model": ["cheap"], "empty": [""], "language": ["é"]}
    assert read.files == ["file"]


def test_a_long_field_in_small_pieces_costs_no_more_than_it_is_long() -> None:
    body = part('name="prompt"', b"x" * 200_000) + b"--B--\r\n"
    read = Form(b"B")
    began_at = time.process_time()
    for at in range(0, len(body), 2):
        read.feed(body[at : at + 2])
    read.finish()
    assert time.process_time() - began_at < 2.0  # looking at all of it each time takes ten times as long


async def test_chunks_of_one_byte_are_kept_as_one_piece_a_read(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = form(("prompt", "x" * 60_000), ("model", "ears"), ("file", SOUND))
    async with await Client.connect(gate.url) as client:
        client.send(head(TRANSCRIBE, "transfer-encoding: chunked"))
        client.send(b"".join(b"1\r\n%b\r\n" % body[at : at + 1] for at in range(40_000)))
        await simulator.wait_for(lambda: bool(gate.gateway._inbound.connections))
        (connection,) = gate.gateway._inbound.connections
        await simulator.wait_for(lambda: getattr(connection._exchange, "body_bytes", 0) == 40_000)
        client.send(b"".join(b"1\r\n%b\r\n" % body[at : at + 1] for at in range(40_000, len(body))))
        client.send(b"0\r\n\r\n")
        answer = await client.response(method="POST", timeout_s=20)
    assert answer.json()["text"] == f"I heard {len(SOUND)} bytes"


@pytest.mark.parametrize(
    "body",
    [
        form(("model", "ears"), ("stream", b"true"), ("file", SOUND)),
        form(("model", "ears"), ("file", LARGE), ("stream", b"true")),
        form(("model", "ears"), ("file", LARGE), ("model", b"dear")),
    ],
)
async def test_c8_a_field_that_is_a_file_is_refused(
    simulator: Simulator, start_inprocess: StartInProcess, body: bytes
) -> None:
    gate = await start_inprocess(config_of(simulator))
    answer = await post(gate, TRANSCRIBE, body)
    assert answer.status == 400
    assert answer.json()["error"]["param"] in ("stream", "model")
    assert all(request.ended != "complete" for request in simulator.requests)
    assert all(row.cost_nano_usd == 0 for row in gate.rows())


@pytest.mark.parametrize("number", ["²", "٣", "9" * 5000, "1.0", "-1", "+1", " 1"])
async def test_a_number_that_is_none_is_named(
    simulator: Simulator, start_inprocess: StartInProcess, number: str
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = form(("model", "pictures"), ("n", number), ("image", SOUND))
    answer = await post(gate, "/v1/images/edits", body)
    assert (answer.status, answer.json()["error"]["param"]) == (400, "n")


# ---- connections ----------------------------------------------------------------------------------------------------


class Feeder:
    """A body of which more is to come."""

    complete = False

    def __init__(self) -> None:
        self.connection: UpstreamConnection | None = None

    def begin(self, connection: UpstreamConnection) -> None:
        self.connection = connection

    def pause(self) -> None: ...
    def resume(self) -> None: ...


async def test_b093_a_body_that_passes_is_not_sent_on_a_connection_that_was_used(pool: Any) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await reader.read(1)

    async with peer(talk) as provider:
        origin = Origin("http", "127.0.0.1", provider.port, max_connections=1)
        used = await pool.connect(origin, 5)
        sink = Recorder()
        used.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"", sink)
        waiting = asyncio.create_task(pool.connect(origin, 5, fresh=True))  # a place is given while it waits
        await sink.finished()
        fresh = await waiting
        assert not fresh.reused
        assert used.closed
        assert (pool.open_connections, pool._place(origin).open) == (1, 1)
        fresh.abort()
        assert (pool.open_connections, pool._place(origin).open) == (0, 0)


async def test_b093_a_body_that_passes_is_not_begun_on_a_connection_that_has_ended(pool: Any) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with peer(talk) as provider:
        connection = await pool.connect(Origin("http", "127.0.0.1", provider.port), 5)
        provider.drop_all()
        async with asyncio.timeout(5):
            while not connection.closed:
                await asyncio.sleep(0.005)
        sink, feeder = Recorder(), Feeder()
        connection.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n", b"half", sink, feeder)
        await sink.finished()
        assert isinstance(sink.error, ConnectFailed)
        assert feeder.connection is None
        assert provider.connections == 1


@pytest.fixture
async def forgetful_provider() -> AsyncIterator[Peer]:
    """A provider that keeps a connection open after an answer and drops it when a second request comes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = True
        while True:
            request = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not first:
                writer.transport.abort()
                return
            first = False
            length = int(request.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while length:
                length -= len(await reader.read(min(length, 65_536)))
            answer = json.dumps(
                {"text": "heard", "usage": {"input_tokens": 1, "output_tokens": 1}, "results": []}
            ).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))

    async with peer(talk) as provider:
        yield provider


async def test_b093_uploads_survive_stale_connections_where_there_may_be_one(
    simulator: Simulator, start_inprocess: StartInProcess, forgetful_provider: Peer
) -> None:
    config = config_of(simulator)
    config["providers"]["sim"] |= {
        "base_url": f"http://127.0.0.1:{forgetful_provider.port}/v1",
        "max_connections": 1,
    }
    gate = await start_inprocess(config)
    for sound in (SOUND, LARGE, SOUND, LARGE):
        answer = await post(gate, TRANSCRIBE, form(("model", "ears"), ("file", sound)))
        assert (answer.status, answer.json().get("text")) == (200, "heard")
    assert forgetful_provider.connections == 4
    assert gate.gateway._pool.open_connections == 1


async def test_a_provider_that_resets_within_an_upload_is_told_once_and_the_connection_goes_on(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100_000)
        writer.transport.abort()

    async with peer(talk) as provider:
        config = config_of(simulator)
        config["providers"]["sim"]["base_url"] = f"http://127.0.0.1:{provider.port}/v1"
        gate = await start_inprocess(config)
        for _ in range(3):
            answer = await post(gate, TRANSCRIBE, form(("model", "ears"), ("file", LARGE * 4)))
            assert answer.status == 502
        rows = await gate.wait_for_rows(3)
        assert [(row.status, row.cost_nano_usd) for row in rows] == [("upstream_error", 0)] * 3
        assert gate.gateway._pool.open_connections == 0
        assert gate.gateway._inbound.inflight_bytes == 0


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_request_behind_an_upload_is_answered(
    simulator: Simulator, start_inprocess: StartInProcess, framing: str
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = form(("model", "ears"), ("file", LARGE))
    if framing == "length":
        sent = head(TRANSCRIBE, f"content-length: {len(body)}") + body
    else:
        sent = head(TRANSCRIBE, "transfer-encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    behind = f"GET /v1/models HTTP/1.1\r\nhost: gate\r\nauthorization: Bearer {KEY}\r\n\r\n".encode()
    async with await Client.connect(gate.url) as client:
        client.send(sent + behind + sent + behind)
        for _ in range(2):
            answer = await client.response(method="POST", timeout_s=20)
            assert answer.json()["text"] == f"I heard {len(LARGE)} bytes"
            assert (await client.response(method="GET")).json()["object"] == "list"
    rows = await gate.wait_for_rows(2)
    assert [row.status for row in rows] == ["ok", "ok"]


async def test_an_upload_that_was_told_to_go_on(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = form(("model", "ears"), ("file", LARGE))
    async with await Client.connect(gate.url) as client:
        client.send(head(TRANSCRIBE, f"content-length: {len(body)}\r\nexpect: 100-continue"))
        await asyncio.sleep(0.1)
        assert bytes(client.raw).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.send(body)
        answer = await client.response(method="POST", timeout_s=20)
    assert answer.json()["text"] == f"I heard {len(LARGE)} bytes"


@pytest.mark.parametrize("size", [0, 100, 60_000])
async def test_r1_a_client_that_leaves_before_its_form_has_come_leaves_nothing(
    simulator: Simulator, start_inprocess: StartInProcess, size: int
) -> None:
    gate = await start_inprocess(config_of(simulator))
    body = form(("model", "ears"), ("file", LARGE))
    inbound = gate.gateway._inbound
    for _ in range(3):
        async with await Client.connect(gate.url) as client:
            client.send(head(TRANSCRIBE, f"content-length: {len(body)}") + body[:size])
            await simulator.wait_for(lambda: bool(inbound._running), 2.0)
    await simulator.wait_for(lambda: not inbound._running and not inbound.connections, 2.0)
    assert inbound.inflight_bytes == 0


# ---- money -----------------------------------------------------------------------------------------------------------

CUES = b"""1
00:00:00,000 --> 00:00:02,500
Four.

2
00:01:02,500 --> 00:01:04,250
Five.
"""


def timed(name: str, text: bytes, size: int = 400_000) -> tuple[Usage | None, list[str]]:
    read = Form(b"B")
    parts = part('name="model"', b"m") + part('name="response_format"', name.encode())
    read.feed(parts + part('name="file"; filename="a"', b"x") + b"--B--\r\n")
    answer = TranscriptionRequest(read, size).read_answers("transcription", ASKED, [text])
    return answer.usage, answer.texts()


def test_b2_a_transcript_as_text_tells_how_long_the_recording_was() -> None:
    usage, _ = timed("srt", CUES)
    assert usage is not None
    assert (usage.media_ms, usage.input_audio_tokens, usage.output_tokens) == (64_250, 642, None)
    usage, _ = timed("vtt", b"WEBVTT\n\n00:01.000 --> 00:03.500\nFour.\n")
    assert usage is not None
    assert usage.media_ms == 3_500
    usage, texts = timed("text", b"x" * 160 + b"\n")
    assert usage is not None
    assert (usage.media_ms, texts) == (10_000, ["x" * 160 + "\n"])
    usage, _ = timed("srt", CUES, size=20_000)
    assert usage is not None
    assert usage.media_ms == 10_000  # no recording of that size is longer


@pytest.mark.parametrize("kind", ["text", "srt"])
async def test_b2_a_transcript_as_text_is_not_for_free(
    simulator: Simulator, start_inprocess: StartInProcess, kind: str
) -> None:
    gate = await start_inprocess(config_of(simulator))
    for model in ("seconds", "ears"):
        body = form(("model", model), ("response_format", kind), ("file", LARGE))
        assert (await post(gate, TRANSCRIBE, body)).status == 200
    seconds, ears = await gate.wait_for_rows(2)
    assert seconds.usage_source == ears.usage_source == "counted"
    assert seconds.cost_nano_usd == (seconds.usage.media_ms or 0) * 100 > 0
    assert ears.cost_nano_usd > 8_000


async def test_b1_money_is_held_for_a_form_of_unknown_length_as_it_grows(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    config = config_of(simulator)
    config["keys"] = [{"name": "t", "key": KEY, "balance_usd": "0.2"}]
    config["models"]["seconds"]["price"]["per_second"] = 0.001
    gate = await start_inprocess(config)
    for size, status in ((80_000, 200), (len(LARGE) * 4, 402)):
        body = form(("model", "seconds"), ("response_format", "verbose_json"), ("file", bytes(size)))
        async with await Client.connect(gate.url) as client:
            client.send(head(TRANSCRIBE, "transfer-encoding: chunked"))
            for at in range(0, len(body), 50_000):
                piece = body[at : at + 50_000]
                client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
                await asyncio.sleep(0.001)
            client.send(b"0\r\n\r\n")
            answer = await client.response(method="POST", timeout_s=20)
        assert answer.status == status
    first, second = await gate.wait_for_rows(2)
    assert (first.status, first.cost_nano_usd, first.shortfall_nano_usd) == ("ok", 80_000_000, 0)
    assert (second.status, second.cost_nano_usd, second.shortfall_nano_usd) == ("credit_spent", 0, 0)


@pytest.mark.parametrize("stream", ["false", "true"])
async def test_t3_the_clocks_of_an_answer_begin_when_the_form_has_passed(
    simulator: Simulator, start_inprocess: StartInProcess, stream: str
) -> None:
    clocks = {"response_timeout": "0.4s", "first_token_timeout": "0.4s"}
    gate = await start_inprocess(config_of(simulator, stream=clocks))
    body = form(("model", "ears"), ("stream", stream), ("file", LARGE))

    async def upload() -> Response:
        async with await Client.connect(gate.url) as client:
            client.send(head(TRANSCRIBE, f"content-length: {len(body)}"))
            for at in range(0, len(body), 150_000):
                client.send(body[at : at + 150_000])
                await asyncio.sleep(0.2)
            return await client.response(method="POST", timeout_s=8)

    answer = await upload()
    assert answer.status == 200
    assert answer.complete
    simulator.push(Script(steps=(Stall(),)))
    assert (await upload()).status == 504


PADDED = (
    b"--B \t\r\n" + part('name="model"', b"cheap")[5:]
    + b"--B\t\r\n" + part('name="a"; filename="x"', b"\r\n--\r\n-B \r\n-- ")[5:]
    + b'--B   \r\nContent-Disposition: form-data; name="language"\r\nX: y\r\n\r\nen\r\n'
    + b"--B-- \t\r\n"
)  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100_000])
def test_padding_behind_a_boundary_is_taken_at_any_cut(size: int) -> None:
    """Source: RFC 2046, 5.1.1: nobody may write it, and everybody has to read it."""
    body, read, out = PADDED, Form(b"B"), []
    for at in range(0, len(body), size):
        read.feed(body[at : at + size])
        out += read.out
        read.out = []
    read.finish()
    assert b"".join(b"cheap" if piece is None else piece for piece in out) == body
    assert read.fields == {"model": ["cheap"], "language": ["en"]}
    assert read.files == ["a"]
    assert [(one.name, one.is_file, body[one.start : one.end]) for one in parts_of(body, b"B")] == [
        ("model", False, b"cheap"),
        ("a", True, b"\r\n--\r\n-B \r\n-- "),
        ("language", False, b"en"),
    ]


@pytest.mark.parametrize("size", [1, 2, 100_000])
@pytest.mark.parametrize(
    "behind", [b" x\r\n", b" \n", b"\r\r\n", b" \r ", b"-\r\n", b" --\r\n", b"\t-", b" " * 1100, b"\x0b\r\n"]
)
def test_what_is_no_padding_behind_a_boundary_is_refused(behind: bytes, size: int) -> None:
    body = b"--B" + behind + part('name="model"', b"cheap")[5:] + b"--B--\r\n"
    read = Form(b"B")
    with pytest.raises(BadRequest, match="after a boundary"):
        feed_in_pieces(read, body, size)


def feed_in_pieces(read: Form, body: bytes, size: int) -> None:
    for at in range(0, len(body), size):
        read.feed(body[at : at + size])


async def test_a_padded_form_reaches_its_provider_as_it_is(
    simulator: Simulator, start_inprocess: StartInProcess
) -> None:
    gate = await start_inprocess(config_of(simulator))
    plain = form(("model", "ears"), ("file", SOUND))
    mark = b"----form-of-the-tests\r\n"
    answer = await post(gate, TRANSCRIBE, plain.replace(mark, mark[:-2] + b" \t\r\n"))
    assert answer.json()["text"].startswith("I heard")
    assert simulator.requests[-1].body.count(mark[:-2] + b" \t\r\n") == 2
