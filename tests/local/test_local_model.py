"""The bundled local model speaks what the gate relies on, and streams through a gate."""

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sluicegate.cli.tour import stream_chat
from sluicegate.local_model import MODEL, address_in
from tests.gate import run_gate

KEY = "sg-local-model-test-key"
CONFIGURATION = """\
server: {listen: "{listen}"}
admin: {listen: "{admin_listen}"}
store: "sqlite:///sluicegate.db"
providers:
  local: {base_url: "@url@/v1", speaks: [chat], auth: none}
models:
  smollm2:
    routes: [{provider: local, model: "@model@"}]
    price: {input: 0.15, cache_read: 0.075, output: 0.60}
keys:
  - {name: test, key: "@key@", balance_usd: 5}
"""
TURN = [{"role": "user", "content": "Say hello."}]


def post(url: str, path: str, body: dict[str, Any]) -> list[bytes]:
    """Return the lines of a successful answer."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60.0)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        lines = response.read().splitlines()
        assert response.status == 200, lines
        return lines
    finally:
        connection.close()


def events(lines: list[bytes]) -> list[Any]:
    """Return the JSON events of an event stream."""
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]


def test_chat(local_model: str) -> None:
    body = {"messages": TURN, "max_tokens": 8, "stream": True, "stream_options": {"include_usage": True}}
    lines = post(local_model, "/v1/chat/completions", body)
    *chunks, last = events(lines)
    assert any(chunk["choices"][0]["delta"].get("content") for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 8
    assert last["model"] == MODEL
    assert b"data: [DONE]" in lines


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8}),
        ("/v1/responses", {"input": "Say hello.", "max_output_tokens": 8}),
        ("/v1/messages", {"messages": TURN, "max_tokens": 8}),
    ],
)
def test_other_formats(local_model: str, path: str, body: dict[str, Any]) -> None:
    whole = json.loads(b"".join(post(local_model, path, body)))
    assert whole["usage"]
    streamed = events(post(local_model, path, {**body, "stream": True}))
    assert len(streamed) > 4
    assert any("usage" in event or "usage" in event.get("response", {}) for event in streamed)


def test_a_stream_through_a_gate_is_billed_exactly(local_model: str, tmp_path: Path) -> None:
    configuration = (
        CONFIGURATION.replace("@url@", local_model).replace("@model@", MODEL).replace("@key@", KEY)
    )
    text: list[str] = []
    with run_gate(tmp_path, configuration) as gate:
        request = {"model": "smollm2", "messages": TURN, "max_tokens": 16}
        receipt = stream_chat((gate.host, gate.port), KEY, request, text.append)
        (row,) = gate.usage()
    uncached = receipt.input_tokens - receipt.cached_tokens
    nano = uncached * 150 + receipt.cached_tokens * 75 + receipt.output_tokens * 600
    assert receipt.cost_nano_usd == nano
    assert "".join(text)
    assert 0 < receipt.output_tokens <= 16
    assert row["cost_nano_usd"] == nano
    assert (row["status"], row["usage_source"], row["provider_model"]) == ("ok", "reported", MODEL)
    assert (row["input_tokens"], row["output_tokens"]) == (receipt.input_tokens, receipt.output_tokens)


@pytest.mark.parametrize("before", ["", "0.00.978.904 I srv  load_model: slots\n", "a\n0.00.985.077 "])
def test_the_address_is_found_when_its_line_is_whole(before: str) -> None:
    """The library's threads write to the same log, and may have begun a line."""
    log = before + "local model listens on http://127.0.0.1:38783\nI srv  init: model loaded\n"
    whole = log.index("38783\n") + 6
    assert address_in(log) == "http://127.0.0.1:38783"
    assert {address_in(log[:end]) for end in range(whole)} == {None}
