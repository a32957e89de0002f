"""Gemini across formats: answers of its providers for other clients, of other providers for its clients, and state."""

import json
from typing import Any

import pytest

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Finish, ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta, ToolCallStart
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.gemini import CODEC
from sluicegate.wire.translation import Asked, Notes
from tests.grammar.chat import check_chat_stream
from tests.grammar.messages import check_messages_stream
from tests.wire.gemini_world import DONE, MODEL, STREAMS, USAGE, by_event, call, dumps, fixture, ge, run, text

OTHERS = sorted(FORMATS.keys() - {"gemini", "completions"})
CHECKS: dict[str, Any] = {"chat": check_chat_stream, "messages": check_messages_stream}
FULL = [
    ge(text("th", thought=True)),
    ge(text("say ")),
    ge(text("it\n")),
    ge(call("f", {"a": 1.5}, "c1", thoughtSignature="U0lH"), call("g", {}, "c2")),
    ge(text(""), finish="STOP", usage=USAGE),
]
CAN = Capabilities(signed_calls=True)


def meaning(events: list[StreamEvent]) -> tuple[Any, ...]:
    """Return what an answer says, however it is cut."""
    calls: dict[int, list[str]] = {}
    for one in events:
        if isinstance(one, ToolCallStart):
            calls[one.index] = [one.id, one.name, ""]
        elif isinstance(one, ToolCallDelta):
            calls[one.index][2] += one.arguments
    return (
        "".join(one.text for one in events if isinstance(one, TextDelta)),
        "".join(one.text for one in events if isinstance(one, ReasoningDelta)),
        calls,
        [one.reason for one in events if isinstance(one, Finish)][-1:],
    )


def read_back(format: str, raw: bytes) -> list[StreamEvent]:
    decoder = FORMATS[format].stream_decoder(Capabilities(), lambda text: None)
    return decoder.feed(raw) + decoder.finish()


@pytest.mark.parametrize("format", OTHERS)
@pytest.mark.parametrize("name", STREAMS)
def test_fixtures_for_clients_of_other_formats(name: str, format: str) -> None:
    passed = run(by_event(fixture(name)), source=CODEC, target=FORMATS[format])
    assert passed.failure is None
    assert meaning(read_back(format, passed.raw)) == meaning(read_back("gemini", fixture(name)))
    if format in CHECKS:
        CHECKS[format](passed.raw, model=MODEL)


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("format", OTHERS)
def test_answers_of_other_providers_for_gemini_clients(format: str, array: bool) -> None:
    theirs = run(FULL, source=CODEC, target=FORMATS[format])
    whole = meaning(read_back(format, theirs.raw))
    assert whole[0] == "say it\n"
    passed = run(
        [theirs.raw], source=FORMATS[format], asked=Asked(model=MODEL, id="0" * 24, created=1, array=array)
    )
    parsed = passed.parsed(cost_nano_usd=2000)
    assert (parsed.text, parsed.reasoning, parsed.finish) == ("say it\n", "th", "STOP")
    assert [(one.name, json.loads(one.arguments)) for one in parsed.tool_calls] == [
        ("f", {"a": 1.5}),
        ("g", {}),
    ]
    assert parsed.usage is not None
    assert parsed.usage["promptTokenCount"] == 9


@pytest.mark.parametrize("format", OTHERS)
def test_streamed_and_plain_answers_agree(format: str) -> None:
    streamed = run(FULL, source=CODEC, target=FORMATS[format])
    body = json.loads(FULL[0][6:])
    candidates = [json.loads(event[6:])["candidates"][0]["content"]["parts"] for event in FULL]
    body["candidates"][0] |= {
        "content": {"parts": [part for parts in candidates for part in parts], "role": "model"},
        "finishReason": "STOP",
    }
    events = CODEC.decode_answer(dumps(body | {"usageMetadata": USAGE}), Capabilities())
    assert meaning(events) == meaning(read_back(format, streamed.raw))


def chat_turn(raw: bytes) -> dict[str, Any]:
    """Put a chat stream together as a client keeps it."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "",
        "tool_calls": [],
        "reasoning_details": [],
    }
    for line in raw.split(b"\n\n"):
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            for key in ("content", "reasoning_content"):
                message[key] += delta.get(key) or ""
            message["reasoning_details"] += delta.get("reasoning_details", [])
            for piece in delta.get("tool_calls", []):
                if len(message["tool_calls"]) <= piece["index"]:
                    message["tool_calls"].append(piece)
                else:
                    message["tool_calls"][piece["index"]]["function"]["arguments"] += piece["function"][
                        "arguments"
                    ]
    return message


def messages_turn(raw: bytes) -> dict[str, Any]:
    """Put a Messages stream together as a client keeps it."""
    blocks: list[dict[str, Any]] = []
    for event in raw.split(b"\n\n"):
        if b"\ndata: " not in event:
            continue
        data = json.loads(event.split(b"\ndata: ")[1])
        if data["type"] == "content_block_start":
            blocks.append(dict(data["content_block"]) | {"json": ""})
        elif data["type"] == "content_block_delta":
            delta = data["delta"]
            for key, into in (
                ("text", "text"),
                ("thinking", "thinking"),
                ("signature", "signature"),
                ("partial_json", "json"),
            ):
                if key in delta:
                    blocks[data["index"]][into] = blocks[data["index"]].get(into, "") + delta[key]
    for block in blocks:
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(arguments or "{}")
    return {"role": "assistant", "content": blocks}


def chat_request(raw: bytes) -> dict[str, Any]:
    results = [{"role": "tool", "tool_call_id": call_id, "content": "r"} for call_id in ("c1", "c2")]
    return {"model": "m", "messages": [{"role": "user", "content": "u"}, chat_turn(raw), *results]}


def messages_request(raw: bytes) -> dict[str, Any]:
    results = [{"type": "tool_result", "tool_use_id": call_id, "content": "r"} for call_id in ("c1", "c2")]
    turns = [{"role": "user", "content": "u"}, messages_turn(raw), {"role": "user", "content": results}]
    return {"model": "m", "max_tokens": 9, "messages": turns}


@pytest.mark.parametrize(("format", "ask"), [("chat", chat_request), ("messages", messages_request)])
def test_a_signature_comes_back_over_a_tool_turn(format: str, ask: Any) -> None:
    """The first call must carry the signature it came with, whatever format the client speaks."""
    answer = run(FULL, source=CODEC, target=FORMATS[format])
    request = FORMATS[format].decode_request(dumps(ask(answer.raw)), Notes())
    body = json.loads(CODEC.encode_request(request, "m", CAN, Notes()))
    calls = [part for part in body["contents"][1]["parts"] if "functionCall" in part]
    assert [part.get("thoughtSignature") for part in calls] == ["U0lH", None]
    assert [part["functionCall"]["id"] for part in calls] == ["c1", "c2"]
    assert [part["functionResponse"]["name"] for part in body["contents"][2]["parts"]] == ["f", "g"]


def test_an_error_of_a_gemini_provider_for_other_clients() -> None:
    for format in OTHERS:
        passed = run([fixture("error-midstream")], source=CODEC, target=FORMATS[format])
        assert passed.failure == "upstream closed the stream"
        cut = run(by_event(b"".join([ge(text("a")), DONE]))[:1], source=CODEC, target=FORMATS[format])
        assert cut.failure is not None
