"""Connections that carry large files read them in small pieces, and are as before when those have passed."""

from typing import Any

import pytest

from sluicegate.server import piecemeal
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.script import Send
from sluicegate.simulator.settings import SimulatorSettings
from tests.conftest import KEY, Certificates, StartInProcess, make_config
from tests.fakes import Client, chat, request_bytes
from tests.server.test_uploads import LARGE, form, head

PRICE = {"input": 0, "output": 0}
PIECE = bytes(range(256)) * 512  # 128 KiB
PIECES = 16


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_files_pass_both_ways_and_other_requests_follow_on_the_same_connections(
    start_inprocess: StartInProcess, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    read: list[int] = []
    updated = piecemeal.Piecemeal.buffer_updated

    def count(self: piecemeal.Piecemeal, nbytes: int) -> None:
        read.append(nbytes)
        updated(self, nbytes)

    monkeypatch.setattr(piecemeal.Piecemeal, "buffer_updated", count)
    tls = {"tls_cert_file": certificates.cert_file, "tls_key_file": certificates.key_file}
    settings = SimulatorSettings(**tls) if secure else SimulatorSettings()
    async with Simulator(settings) as provider:
        gate = await start_inprocess(config_of(provider, certificates if secure else None))
        ca_file = certificates.ca_file if secure else None
        async with await Client.connect(gate.url, ca_file=ca_file) as client:
            body = form(("model", "files"), ("file", LARGE))
            for _ in range(2):
                client.send(head("/v1/audio/transcriptions", f"content-length: {len(body)}") + body)
                heard = await client.response(method="POST", timeout_s=20)
                assert heard.json()["text"] == f"I heard {len(LARGE)} bytes"
                sound = (("content-type", "audio/mpeg"),)
                provider.push(Script(headers=sound, steps=(Send(data=PIECE),) * PIECES), path="/audio/speech")
                asked = {"model": "files", "voice": "alloy", "input": "Hello."}
                client.send(request_bytes("/v1/audio/speech", asked, key=KEY))
                spoken = await client.response(method="POST", timeout_s=20)
                assert spoken.body == PIECE * PIECES
                client.send(request_bytes("/v1/chat/completions", chat("files"), key=KEY))
                told = await client.response(method="POST", timeout_s=20)
                assert told.body.rstrip().endswith(b"data: [DONE]")
            (connection,) = gate.gateway._inbound.connections
            assert connection.transport.get_protocol() is connection
        assert max(read) <= piecemeal.PIECE_BYTES
        assert sum(read) > 2 * (len(LARGE) - 400_000 + len(PIECE) * (PIECES - 2))
        upstream: Any
        for upstream in gate.gateway._pool._open:
            assert upstream._transport.get_protocol() is upstream
        assert provider.connections_made < 6  # uploads take fresh ones, all else the one before


def config_of(provider: Simulator, certificates: Certificates | None) -> dict[str, Any]:
    row: dict[str, Any] = {"base_url": provider.base_url, "speaks": ["chat"], "auth": "none"}
    server: dict[str, Any] = {}
    if certificates is not None:
        row["tls"] = {"ca_file": certificates.ca_file}
        server["tls"] = {"cert_file": certificates.cert_file, "key_file": certificates.key_file}
    models = {"files": {"routes": [{"provider": "sim", "model": "files"}], "price": PRICE}}
    return make_config(provider, providers={"sim": row}, models=models, server=server)
