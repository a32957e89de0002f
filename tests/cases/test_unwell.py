"""Providers that refuse, answer with pages, blanks, endless lines, or do not let go. Cases B030, B043, B054, B075,
B079, B087, B105, B116, B130.

In every pair of formats or from every format, at a running gate.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sluicegate.simulator import EndlessLine, Head, Script, Send, Simulator, Stall, Wait
from tests.cases.ended import TAIL
from tests.cases.framed import STREAMS
from tests.cases.frames import DONE, STOP, completion, dumps, text
from tests.cases.world import CLOCKS, World, configuration
from tests.grammar.chat import check_chat_stream
from tests.grammar.completions import check_completions_stream
from tests.grammar.gemini import check_gemini_stream
from tests.grammar.messages import check_messages_stream
from tests.grammar.responses import check_responses_stream
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import heard_plain, told_error, wording
from tests.inprocess import in_process_gate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.parametrize("client", FORMATS)]

ASK = Prompt()
HTML = "<html><head><title>502</title></head><body>nginx secret-token-123</body></html>"
MAX_EVENT = 1 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A gate with a small limit for events."""
    async with Simulator() as simulator:
        config = configuration(simulator, stream=CLOCKS | {"max_event_bytes": MAX_EVENT})
        gate = in_process_gate(tmp_path_factory.mktemp("unwell"), config)
        async with gate.running():
            yield World(gate, simulator)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lively(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A gate with quick keep-alives: on a slow machine they come before any answer, and any error is inside."""
    async with Simulator() as simulator:
        config = configuration(simulator)
        config["server"] |= {"keepalive_after": "100ms", "keepalive_every": "100ms"}
        gate = in_process_gate(tmp_path_factory.mktemp("unwell"), config)
        async with gate.running():
            yield World(gate, simulator)


@pytest.mark.parametrize("provider", FORMATS)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_b043_b075_refusals_keep_their_class_and_tell_no_page(
    world: World, client: str, provider: str, stream: bool
) -> None:
    told_as = {
        "html-502": (
            Script(status=502, headers=(("content-type", "text/html"),), body=HTML),
            "upstream_error",
        ),
        "html-403": (
            Script(status=403, headers=(("content-type", "text/html"),), body=HTML),
            "upstream_auth",
        ),
        "empty-500": (Script(status=500, body=""), "upstream_error"),
        "busy-503": (
            Script(status=503, headers=(("retry-after", "2"),), body='{"error":{"message":"busy"}}'),
            "overloaded",
        ),
        "limit-429": (
            Script(
                status=429,
                headers=(("retry-after", "30"), ("anthropic-ratelimit-unified-status", "rejected")),
                body='{"error":{"message":"slow down"}}',
            ),
            "rate_limited",
        ),
        "ms-429": (
            Script(status=429, headers=(("retry-after-ms", "250"),), body='{"error":{"message":"slow"}}'),
            "rate_limited",
        ),
        "bad-400": (Script(status=400, body='{"error":{"message":"bad"}}'), "bad_request"),
        "page-200": (Script(headers=(("content-type", "text/html"),), body=HTML), "upstream_error"),
        "error-200": (
            Script(
                headers=(("content-type", "application/json"),), body='{"error":{"message":"worker full"}}'
            ),
            "upstream_error",
        ),
    }
    waits = {"busy-503": "2", "limit-429": "30", "ms-429": "1"}
    for name, (script, kind) in told_as.items():
        upstream = f"{name}-{provider}-{client}-{stream}"
        world.simulator.push(script, model=upstream)
        response = await world.post(client, f"{provider}/{upstream}", ASK, stream=stream)
        told = told_error(client, response)
        assert told[:2] == wording(client, kind), name
        assert int(response.header("content-length") or 0) == len(response.body)
        assert "<" not in told.message
        assert b"secret-token-123" not in response.body
        assert response.header("retry-after") == waits.get(name), name


@pytest.mark.parametrize("provider", FORMATS)
async def test_b054_blank_lines_before_an_answer_are_life_and_alone_are_none(
    world: World, client: str, provider: str
) -> None:
    whole = {
        "chat": completion({"content": "Hello"}),
        "completions": {
            "id": "c1", "object": "text_completion", "created": 1, "model": "up",
            "choices": [{"index": 0, "text": "Hello", "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        },
        "messages": {
            "id": "m", "type": "message", "role": "assistant", "model": "up", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Hello"}], "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 2},
        },
        "responses": {
            "id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "up", "error": None,
            "incomplete_details": None,
            "output": [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                        "content": [{"type": "output_text", "text": "Hello", "annotations": []}]}],
            "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        },
        "gemini": {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5},
            "responseId": "r1",
        },
    }[provider]  # fmt: skip
    blanks = tuple(step for _ in range(3) for step in (Send(text="\n"), Wait(s=0.01)))
    for stream in (True, False):
        upstream = f"blank-{provider}-{client}-{stream}"
        json_type = (("content-type", "application/json"),)
        marked = b"\xef\xbb\xbf" + dumps(whole).encode()
        world.simulator.push(
            Script(headers=json_type, steps=(*blanks, Send(text=dumps(whole)))),
            Script(headers=json_type, steps=(Send(data=marked),)),
            Script(steps=blanks),
            Script(steps=(Head(),)),
            model=upstream,
        )
        model = f"{provider}/{upstream}"
        for _ in range(2):
            if stream:
                outcome = await world.hear(client, model, ASK, stream=True)
                assert outcome.heard is not None
                assert outcome.heard.text == "Hello"
            else:
                response = await world.post(client, model, ASK, stream=False)
                assert heard_plain(client, response, model).text == "Hello"
        for _ in range(2):
            response = await world.post(client, model, ASK, stream=stream)
            assert told_error(client, response)[:2] == wording(client, "upstream_error")
    assert all(row.cost_nano_usd == 0 for row in world.gate.rows()[-2:])


@pytest.mark.parametrize("provider", FORMATS)
async def test_b105_events_under_the_name_of_json(world: World, client: str, provider: str) -> None:
    for stream in (True, False):
        upstream = f"mislabelled-{provider}-{client}-{stream}"
        json_type = (("content-type", "application/json"),)
        world.plays(upstream, STREAMS[provider], headers=json_type)
        outcome = await world.hear(client, f"{provider}/{upstream}", ASK, stream=stream)
        assert outcome.heard is not None
        assert outcome.heard.text == "Hello world"
        assert outcome.row is not None
        assert (outcome.row.usage.input_tokens, outcome.row.usage.output_tokens) == (3, 2)


@pytest.mark.parametrize("provider", FORMATS)
async def test_b105_no_end_is_an_error(world: World, client: str, provider: str) -> None:
    upstream = f"endless-{provider}-{client}"
    body = STREAMS[provider].partition(b"world")[0]
    world.plays(upstream, body, headers=(("content-type", "text/event-stream"),))
    response = await world.post(client, f"{provider}/{upstream}", ASK, stream=False)
    assert told_error(client, response)[:2] == wording(client, "upstream_error")


@pytest.mark.parametrize("provider", FORMATS)
async def test_b087_a_line_without_end_is_bounded(strict: World, client: str, provider: str) -> None:
    upstream = f"line-{provider}-{client}"
    strict.simulator.push(Script(steps=(Head(), EndlessLine())), model=upstream)
    response = await strict.post(client, f"{provider}/{upstream}", ASK, stream=True)
    assert told_error(client, response)[:2] == wording(client, "upstream_error")
    asked = strict.asked
    await strict.simulator.wait_for(lambda: asked.ended == "peer_left")
    assert asked.body_bytes_sent < 16 * MAX_EVENT


async def test_b130_the_marker_ends_it_though_the_connection_stays(world: World, client: str) -> None:
    async def ask_of(provider: str) -> None:
        upstream = f"open-{client}"
        model = f"{provider}/{upstream}-{provider}"
        steps = (Send(data=STREAMS[provider]), Stall())
        world.simulator.push(Script(steps=steps), model=f"{upstream}-{provider}")
        began = time.monotonic()
        outcome = await world.hear(client, model, ASK, stream=True)
        assert time.monotonic() - began < 3.0
        assert outcome.heard is not None
        assert outcome.heard.text == "Hello world"
        assert outcome.row is not None
        assert outcome.row.status == "ok"
        (asked,) = [each for each in world.simulator.requests if each.model == f"{upstream}-{provider}"]
        await world.simulator.wait_for(lambda: asked.ended == "peer_left", timeout_s=3.0)

    await asyncio.gather(*(ask_of(provider) for provider in FORMATS))


async def test_b079_the_tail_may_be_late_or_never_come(world: World, client: str) -> None:
    late = (Send(data=text("Hello") + STOP), Wait(s=0.1), Send(data=TAIL + DONE))
    never = (Send(data=text("Hello") + STOP), Stall())
    for name, steps, source in (("late", late, "reported"), ("never", never, "counted")):
        world.simulator.push(Script(steps=steps), model=f"{name}-{client}")
        outcome = await world.hear(client, f"chat/{name}-{client}", ASK, stream=True)
        assert outcome.heard is not None
        assert outcome.heard.text == "Hello"
        assert outcome.row is not None
        assert (outcome.row.status, outcome.row.usage_source) == ("ok", source)
        assert outcome.row.cost_nano_usd > 0


async def test_b116_silence_is_broken_in_the_clients_own_way(lively: World, client: str) -> None:
    async def ask_of(provider: str) -> None:
        upstream = f"slow-{provider}-{client}"
        start = STREAMS[provider].partition(b"Hello")[0].rpartition(b"\n\n")
        steps = (
            Send(data=start[0] + start[1]),
            Wait(s=0.6),
            Send(data=STREAMS[provider][len(start[0] + start[1]) :]),
        )
        lively.simulator.push(Script(steps=steps), model=upstream)
        model = f"{provider}/{upstream}"
        response = await lively.post(client, model, ASK, stream=True)
        check = {
            "chat": lambda raw: check_chat_stream(raw, model=model, keepalive=True),
            "completions": lambda raw: check_completions_stream(raw, model=model, keepalive=True),
            "responses": lambda raw: check_responses_stream(raw, model=model, keepalive=True),
            "messages": lambda raw: check_messages_stream(raw, model=model),
            "gemini": lambda raw: check_gemini_stream(raw, model=model, keepalive=True),
        }[client]
        parsed = check(response.body)
        assert parsed.text == "Hello world"
        assert parsed.keepalives
        if client == "messages":
            assert b'event: ping\ndata: {"type": "ping"}\n\n' in response.body

    await asyncio.gather(*(ask_of(provider) for provider in FORMATS))


async def test_b116_a_failure_behind_keep_alives_is_told_inside(lively: World, client: str) -> None:
    async def ask_of(provider: str) -> None:
        upstream = f"slow-fail-{provider}-{client}"
        start = STREAMS[provider].partition(b"Hello")[0].rpartition(b"\n\n")
        steps = (Send(data=start[0] + start[1]), Wait(s=0.4))
        lively.simulator.push(Script(steps=steps), model=upstream)
        model = f"{provider}/{upstream}"
        response = await lively.post(client, model, ASK, stream=True)
        body = response.body
        while body.startswith((b":", b"\n", b"event: ping")):
            body = body.partition(b"\n" if body.startswith(b"\n") else b"\n\n")[2]
        check = {
            "chat": check_chat_stream,
            "completions": check_completions_stream,
            "responses": check_responses_stream,
            "messages": check_messages_stream,
            "gemini": check_gemini_stream,
        }[client]
        parsed = check(body, end="error")
        assert parsed.error is not None
        assert response.status == 200
        assert response.complete

    await asyncio.gather(*(ask_of(provider) for provider in FORMATS))
