"""Pictures, files and sounds across formats, by data and by address, asked with the official SDKs.

What a provider's format takes arrives as it was; what it takes only as data is refused with a 400 that names the part,
or fetched where the gate may. Translation matrix, sections 4 to 6 and 10; docs/translation.md.
"""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from sluicegate.simulator import Simulator
from tests.conftest import PRICE, make_config
from tests.grid.asked import Turn, was_asked
from tests.grid.scenes import FORMATS, PNG, QUESTION, SCENES, Prompt
from tests.grid.sdks import SdkError, Sdks, told_by
from tests.grid.speaking import Body, said, wording
from tests.grid.test_turns import HISTORIES, WITH_TOOLS
from tests.inprocess import InProcessGate, in_process_gate

pytestmark = pytest.mark.asyncio(loop_scope="module")

PDF = b64encode(b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\n%%EOF\n").decode()
WAV = b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00").decode()
NOTE = "Rivers rise in spring."
PICTURE_AT, PDF_AT = "https://pictures.example/one.png", "https://papers.example/one.pdf"


class Medium(NamedTuple):
    """One kind of medium: how each client says it as a part, and what each provider must get, or refuses."""

    said: dict[str, Body]
    arrives: dict[str, Turn | None]
    """By provider; None: a 400 that names the part."""


def _file(kind: str, data: str) -> Turn:
    return Turn("user", "file", data, kind)


def _image(value: str) -> Turn:
    return Turn("user", "image", value)


PNG_URL = f"data:image/png;base64,{PNG}"
MEDIA: dict[str, Medium] = {
    "picture": Medium(
        {
            "chat": {"type": "image_url", "image_url": {"url": PNG_URL}},
            "responses": {"type": "input_image", "image_url": PNG_URL, "detail": "auto"},
            "messages": {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": PNG},
            },
            "gemini": {"inlineData": {"mimeType": "image/png", "data": PNG}},
        },
        dict.fromkeys(("chat", "responses", "messages", "gemini"), _image(PNG)) | {"completions": None},
    ),
    "picture-by-address": Medium(
        {
            "chat": {"type": "image_url", "image_url": {"url": PICTURE_AT}},
            "responses": {"type": "input_image", "image_url": PICTURE_AT, "detail": "auto"},
            "messages": {"type": "image", "source": {"type": "url", "url": PICTURE_AT}},
            "gemini": {"fileData": {"mimeType": "image/png", "fileUri": PICTURE_AT}},
        },
        dict.fromkeys(("chat", "responses", "messages"), _image(PICTURE_AT))
        | {"gemini": None, "completions": None},
    ),
    "pdf": Medium(
        {
            "chat": {
                "type": "file",
                "file": {"filename": "one.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
            },
            "responses": {
                "type": "input_file",
                "filename": "one.pdf",
                "file_data": f"data:application/pdf;base64,{PDF}",
            },
            "messages": {
                "type": "document",
                "title": "one.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
            },
            "gemini": {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
        },
        dict.fromkeys(("chat", "responses", "messages", "gemini"), _file("application/pdf", PDF))
        | {"completions": None},
    ),
    "pdf-by-address": Medium(
        {
            "responses": {"type": "input_file", "file_url": PDF_AT},
            "messages": {"type": "document", "source": {"type": "url", "url": PDF_AT}},
            "gemini": {"fileData": {"mimeType": "application/pdf", "fileUri": PDF_AT}},
        },
        dict.fromkeys(("responses", "messages"), _file("", PDF_AT))
        | dict.fromkeys(("chat", "gemini", "completions")),
    ),
    "text-file": Medium(
        {
            "chat": {
                "type": "file",
                "file": {
                    "filename": "one.txt",
                    "file_data": "data:text/plain;base64," + b64encode(NOTE.encode()).decode(),
                },
            },
            "messages": {
                "type": "document",
                "title": "one.txt",
                "source": {"type": "text", "media_type": "text/plain", "data": NOTE},
            },
            "gemini": {"inlineData": {"mimeType": "text/plain", "data": b64encode(NOTE.encode()).decode()}},
        },
        {
            "chat": Turn("user", "text", NOTE),
            "responses": Turn("user", "text", NOTE),
            "messages": _file("text/plain", NOTE),
            "gemini": _file("text/plain", b64encode(NOTE.encode()).decode()),
            "completions": None,
        },
    ),
    "sound": Medium(
        {
            "chat": {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}},
            "responses": {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}},
            "gemini": {"inlineData": {"mimeType": "audio/wav", "data": WAV}},
        },
        dict.fromkeys(("chat", "responses", "gemini"), Turn("user", "sound", WAV, "wav"))
        | {"messages": None, "completions": None},
    ),
    "vendors-own-file": Medium(
        {
            "chat": {"type": "file", "file": {"file_id": "file-1"}},
            "responses": {"type": "input_file", "file_id": "file-1"},
            "messages": {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
            "gemini": {
                "fileData": {
                    "mimeType": "application/pdf",
                    "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/f1",
                }
            },
        },
        dict.fromkeys(FORMATS),
    ),
    "video": Medium(
        {"gemini": {"fileData": {"mimeType": "video/mp4", "fileUri": "https://youtu.be/xyz"}}},
        dict.fromkeys(("chat", "responses", "messages", "completions")),
    ),
}
PLACES = {
    "chat": "messages[1].content[1]",
    "responses": "input[0].content[1]",
    "messages": "messages[0].content[1]",
    "gemini": "contents[0].parts[1]",
}


def model_of(provider: str) -> str:
    return f"media-{provider}"


def configuration(simulator: Simulator, **media: Any) -> dict[str, Any]:
    providers = {
        format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"} for format in FORMATS
    }
    models = {
        model_of(format): {
            "routes": [{"provider": format, "model": "sim"}],
            "price": PRICE,
            "capabilities": {} if format == "completions" else {"audio": True},
        }
        for format in FORMATS
    }
    config = make_config(simulator, retry={"max_attempts": 1, "after_send": 0}, media=media)
    return config | {"providers": providers, "models": models}


class World(NamedTuple):
    gate: InProcessGate
    simulator: Simulator
    sdks: Sdks


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A gate that fetches nothing."""
    async with Simulator() as simulator:
        gate = in_process_gate(tmp_path_factory.mktemp("media"), configuration(simulator))
        async with gate.running(), Sdks.at(gate.url) as sdks:
            yield World(gate, simulator, sdks)


def body_of(client: str, provider: str, part: Body) -> Body:
    body = said(client, model_of(provider), Prompt(), False)
    body.pop("stream", None)
    match client:
        case "chat":
            body["messages"][-1]["content"] = [{"type": "text", "text": QUESTION}, part]
        case "messages":
            body["messages"][-1]["content"] = [{"type": "text", "text": QUESTION}, part]
        case "responses":
            body["input"][-1]["content"].append(part)
        case _:
            body["contents"][-1]["parts"].append(part)
    return body


CELLS = [
    pytest.param(client, provider, name, id=f"{client}-{provider}-{name}")
    for name, medium in MEDIA.items()
    for client in medium.said
    for provider in FORMATS
    if provider != client
]


@pytest.mark.parametrize(("client", "provider", "name"), CELLS)
async def test_media(world: World, client: str, provider: str, name: str) -> None:
    medium = MEDIA[name]
    expected = medium.arrives[provider]
    body = body_of(client, provider, medium.said[client])
    made = world.simulator.requests_made
    if expected is None:
        with pytest.raises(SdkError) as refusal:
            await world.sdks.say(client, model_of(provider), body)
        told = told_by(refusal.value)
        if told.status == 404:  # no account of ours has this id
            assert name == "vendors-own-file"
        else:
            assert told[:2] == wording(client, "unsupported_feature")
            assert PLACES[client] in told.message
        assert world.simulator.requests_made == made
        return
    await world.sdks.say(client, model_of(provider), body)
    _, *asked = was_asked(world.simulator.requests[-1]).turns
    (turn,) = asked
    if expected.kind == "text":  # the file's name stands before it, where it was told
        assert turn.value.endswith(expected.value)
        assert (turn.role, turn.kind) == ("user", "text")
    else:
        assert turn == expected


@pytest.mark.parametrize(
    ("client", "provider"),
    [(client, provider) for client in HISTORIES for provider in WITH_TOOLS if client != provider],
)
async def test_a_picture_in_a_result(world: World, client: str, provider: str) -> None:
    """As the SDKs send it; a provider that has no place for it in results gets it in the next user turn."""
    body = said(client, model_of(provider), SCENES["tools"].prompt, False) | HISTORIES[client]
    body.pop("stream", None)
    await world.sdks.say(client, model_of(provider), body)
    asked = was_asked(world.simulator.requests[-1])
    assert [turn.value for turn in asked.of("image")] == [PNG]
    assert [turn.id for turn in asked.of("result")] == ["call_0", "call_1"]


# ---- by address, where the gate may fetch ---------------------------------------------------------------------------


class Pages:
    """A server of pictures, papers and traps on loopback."""

    def __init__(self) -> None:
        self.port = 0
        self.running: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
        path = line.split(" ")[1]
        writer.write(await self.answer(path))
        try:
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            pass

    async def answer(self, path: str) -> bytes:
        png, pdf = b64decode(PNG), b64decode(PDF)

        def ok(kind: str, body: bytes, extra: str = "") -> bytes:
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
            return head.encode() + body

        match path:
            case "/one.png":
                return ok("image/png", png)
            case "/chunked.png":
                return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
                    len(png),
                    png,
                )
            case "/until-close.png":
                return b"HTTP/1.1 200 OK\r\n\r\n" + png
            case "/one.pdf":
                return ok("application/pdf", pdf)
            case "/moved.png":
                return b"HTTP/1.1 302 Found\r\nlocation: /one.png\r\ncontent-length: 0\r\n\r\n"
            case "/round.png":
                return b"HTTP/1.1 302 Found\r\nlocation: /round.png\r\ncontent-length: 0\r\n\r\n"
            case "/inside.png":
                return b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.2:1/x\r\ncontent-length: 0\r\n\r\n"
            case "/page":
                return ok("image/png", b"<html>not a picture</html>")
            case "/long.png":
                return ok("image/png", png + b"x" * 200_000)
            case "/long-chunked.png":
                big = png + b"x" * 200_000
                return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
                    len(big),
                    big,
                )
            case "/zipped.png":
                return ok("image/png", png, "content-encoding: gzip\r\n")
            case "/cut.png":
                return ok("image/png", png)[:-10]
            case "/slow.png":
                await asyncio.sleep(0.5)
        return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class FetchWorld(NamedTuple):
    world: World
    pages: Pages

    def at(self, path: str) -> str:
        return f"http://127.0.0.1:{self.pages.port}{path}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fetching(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FetchWorld]:
    """A gate that may fetch, from one host of loopback and from the public network."""
    pages = Pages()
    server = await asyncio.start_server(pages.serve, "127.0.0.1", 0)
    pages.port = server.sockets[0].getsockname()[1]
    async with Simulator() as simulator:
        hosts = [f"127.0.0.1:{pages.port}"]
        config = configuration(simulator, fetch=True, max_bytes=100_000, timeout="300ms", allow_hosts=hosts)
        gate = in_process_gate(tmp_path_factory.mktemp("fetching"), config)
        async with gate.running(), Sdks.at(gate.url) as sdks:
            yield FetchWorld(World(gate, simulator, sdks), pages)
    server.close()
    await server.wait_closed()
    if pages.running:
        await asyncio.wait(pages.running)


def by_address(client: str, url: str, *, pdf: bool = False) -> Body:
    part = MEDIA["pdf-by-address" if pdf else "picture-by-address"].said[client]
    kind = PDF_AT if pdf else PICTURE_AT
    changed: Body = json.loads(json.dumps(part).replace(kind, url))
    return changed


@pytest.mark.parametrize("path", ["/one.png", "/chunked.png", "/until-close.png", "/moved.png"])
@pytest.mark.parametrize("client", ["chat", "responses", "messages"])
async def test_a_picture_is_fetched(fetching: FetchWorld, client: str, path: str) -> None:
    body = body_of(client, "gemini", by_address(client, fetching.at(path)))
    await fetching.world.sdks.say(client, model_of("gemini"), body)
    asked = was_asked(fetching.world.simulator.requests[-1])
    assert asked.of("image") == [_image(PNG)]


@pytest.mark.parametrize(
    ("client", "provider"),
    [
        ("responses", "chat"),
        ("messages", "chat"),
        ("gemini", "chat"),
        ("responses", "gemini"),
        ("messages", "gemini"),
    ],
)
async def test_a_paper_is_fetched(fetching: FetchWorld, client: str, provider: str) -> None:
    body = body_of(client, provider, by_address(client, fetching.at("/one.pdf"), pdf=True))
    await fetching.world.sdks.say(client, model_of(provider), body)
    asked = was_asked(fetching.world.simulator.requests[-1])
    assert asked.of("file") == [_file("application/pdf", PDF)]


TRAPS = {
    "/nothing": "answered 404",
    "/round.png": "redirected too often",
    "/inside.png": "only https",
    "/page": "no picture",
    "/long.png": "longer than 100000 bytes",
    "/long-chunked.png": "longer than 100000 bytes",
    "/zipped.png": "compressed",
    "/cut.png": "broke off",
    "/slow.png": "in time",
}


@pytest.mark.parametrize("path", TRAPS)
async def test_what_is_not_fetched(fetching: FetchWorld, path: str) -> None:
    await refused(fetching, fetching.at(path), TRAPS[path])


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://127.0.0.1/x.png", "not a public one"),
        ("https://localhost/x.png", "not a public one"),
        ("https://169.254.169.254/latest/meta-data", "not a public one"),
        ("https://10.0.0.1/x.png", "not a public one"),
        ("https://[::1]/x.png", "not a public one"),
        ("https://[::ffff:127.0.0.1]/x.png", "not a public one"),
        ("https://0/x.png", "not a public one"),
        ("https://2130706433/x.png", "not a public one"),
        ("http://pictures.example/x.png", "only https"),
        ("https://user:pass@pictures.example/x.png", "no credentials"),
        ("https://pictures.invalid/x.png", "could not be fetched"),
        ("https://pictures.example:99999/x.png", "could not be fetched"),
    ],
)
async def test_what_a_request_must_not_reach(fetching: FetchWorld, url: str, words: str) -> None:
    await refused(fetching, url, words)


async def refused(fetching: FetchWorld, url: str, words: str) -> None:
    """Check that an address is told as the client's mistake, and that no provider is asked."""
    world = fetching.world
    made = world.simulator.requests_made
    with pytest.raises(SdkError) as refusal:
        await world.sdks.say("chat", model_of("gemini"), body_of("chat", "gemini", by_address("chat", url)))
    told = told_by(refusal.value)
    assert told[:2] == wording("chat", "bad_request")
    assert words in told.message
    assert PLACES["chat"] in told.message
    assert url not in told.message
    assert world.simulator.requests_made == made
    assert world.gate.rows()[-1].cost_nano_usd == 0
