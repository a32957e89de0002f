"""Several prompts of one legacy Completions request, answered by a provider that answers one conversation a request.

One call a prompt, one answer, one row: choices stand by prompt, then by `n`; usage is the sum. Wire formats page
`completions.md`, "Translating it".
"""

import asyncio
import itertools
import json
from typing import Any

import openai
import pytest

from sluicegate.messages import Format, Usage
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Reset, Stall
from sluicegate.wire.joined import summed
from tests.conftest import KEY, PRICE, Connect, StartInProcess, make_config
from tests.fakes import Response, ask, request_bytes
from tests.inprocess import InProcessGate

FORMATS: list[Format] = ["chat", "responses", "messages", "gemini"]
PROMPTS = ["One", "Two", "Three"]
WORDS = {"One": (" a", " b"), "Two": (" c",), "Three": (" d", " e", " f")}
COST = 27 * 1000 + 6 * 2000


async def start(start: StartInProcess, simulator: Simulator, format: Format, **model: Any) -> InProcessGate:
    provider = {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
    routes = [{"provider": "sim", "model": "up"}]
    return await start(
        make_config(
            simulator,
            providers={"sim": provider},
            models={"m": {"routes": routes, "price": PRICE, **model}},
            retry={"max_attempts": 2, "after_send": 1},
        )
    )


def answers(simulator: Simulator) -> None:
    for prompt in PROMPTS:
        simulator.push(Script(answer=Answer(text=WORDS[prompt])))


async def complete(gate: InProcessGate, *, stream: bool, **fields: Any) -> Response:
    body = {"model": "m", "prompt": PROMPTS, "max_tokens": 20, "stream": stream, **fields}
    if stream:
        body["stream_options"] = {"include_usage": True}
    return await ask(gate.url, "/v1/completions", body, key=KEY)


def told(response: Response, *, stream: bool) -> tuple[dict[int, str], dict[int, str], Any]:
    """Return texts and finish reasons by choice, and usage."""
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    usage = None
    lines = [line[6:] for line in response.body.splitlines() if line.startswith(b"data: {")]
    for event in map(json.loads, lines if stream else [response.body]):
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
            if choice["finish_reason"]:
                reasons[choice["index"]] = choice["finish_reason"]
    return texts, reasons, usage


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("format", FORMATS)
async def test_each_prompt_is_a_call_and_all_are_one_answer(
    start_inprocess: StartInProcess, simulator: Simulator, format: Format, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, format)
    answers(simulator)
    response = await complete(gate, stream=stream, echo=True)
    assert response.status == 200
    texts, reasons, usage = told(response, stream=stream)
    assert texts == {place: prompt + "".join(WORDS[prompt]) for place, prompt in enumerate(PROMPTS)}
    assert reasons == dict.fromkeys(range(3), "stop")
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["cost_nano_usd"]) == (27, 6, COST)
    assert not stream or response.body.endswith(b"data: [DONE]\n\n")
    asked = [json.dumps(request.json) for request in simulator.requests]
    assert [prompt in body for prompt, body in zip(PROMPTS, asked, strict=True)] == [True] * 3
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage_source, row.attempts, row.cost_nano_usd) == ("ok", "reported", 1, COST)


async def test_choices_of_a_prompt_stand_together(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "chat")
    for prompt in PROMPTS:
        simulator.push(Script(answer=Answer(text=WORDS[prompt], choices=2)))
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{gate.url}/v1", max_retries=0) as client:
        answer = await client.completions.create(model="m", prompt=PROMPTS, n=2, max_tokens=20)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert [choice.text for choice in answer.choices] == [
        "".join(WORDS[prompt]) for prompt in PROMPTS for _ in range(2)
    ]
    assert {request.json["n"] for request in simulator.requests} == {2}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_a_call_that_does_not_report_leaves_the_sum_to_our_count(
    start_inprocess: StartInProcess, simulator: Simulator, stream: bool
) -> None:
    gate = await start(start_inprocess, simulator, "chat")
    simulator.push(Script(answer=Answer(text=WORDS["One"])))
    simulator.push(Script(answer=Answer(text=WORDS["Two"], usage="never")))
    simulator.push(Script(answer=Answer(text=WORDS["Three"])))
    texts, _, usage = told(await complete(gate, stream=stream), stream=stream)
    assert len(texts) == 3
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage_source, row.usage.output_tokens) == ("ok", "counted", 6)
    assert usage["completion_tokens"] == 6


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("n", [1, 2])
async def test_prompts_that_nobody_reports_are_counted_once_an_answer(
    start_inprocess: StartInProcess, simulator: Simulator, n: int, stream: bool
) -> None:
    """Each call reads its own prompt, not all of them."""
    gate = await start(start_inprocess, simulator, "messages", max_calls=2)
    for _ in range(3 * n):
        simulator.push(Script(answer=Answer(text=(" a",), usage="never")))
    prompts = [f"{prompt} " * 1000 for prompt in PROMPTS]
    response = await complete(gate, stream=stream, prompt=prompts, n=n)
    assert response.status == 200
    assert simulator.requests_made == 3 * n
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage_source) == ("ok", "counted")
    assert row.usage.input_tokens == pytest.approx(n * sum(map(len, prompts)) / 4, rel=0.02)


async def test_a_client_that_leaves_in_the_first_of_several_prompts_pays_for_that_one(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start(start_inprocess, simulator, "chat")
    simulator.push(Script(answer=Answer(text=(" a",)), steps=(Play(before="finish"), Stall())))
    body = {"model": "m", "prompt": ["One " * 1000] * 4, "max_tokens": 20, "stream": True}
    one = await client(gate.url)
    one.send(request_bytes("/v1/completions", body, key=KEY))
    await one.until_bytes(b'" a"')
    one.reset()
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage_source) == ("client_closed", "counted")
    assert row.usage.input_tokens == pytest.approx(1000, rel=0.05)


async def test_a_plain_answer_whose_second_call_fails_is_tried_again_whole(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "messages")
    simulator.push(Script(answer=Answer(text=WORDS["One"])))
    simulator.push(Script(status=503))
    answers(simulator)
    texts, _, usage = told(await complete(gate, stream=False), stream=False)
    assert [texts[place] for place in range(3)] == ["".join(WORDS[prompt]) for prompt in PROMPTS]
    assert usage["completion_tokens"] == 6
    (row,) = await gate.wait_for_rows(1)
    assert (row.attempts, row.cost_nano_usd) == (2, COST)


async def test_a_stream_whose_second_call_is_cut_is_no_whole_answer(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "chat")
    simulator.push(Script(answer=Answer(text=WORDS["One"])))
    simulator.push(Script(answer=Answer(text=(" x", " y")), steps=(Play(before="finish"), Reset())))
    response = await complete(gate, stream=True)
    before, _, _ = response.body.partition(b'data: {"error"')
    texts, reasons, _ = told(response._replace(body=before), stream=True)
    assert texts == {0: " a b", 1: " x y"}
    assert reasons == {}
    assert b'data: {"error"' in response.body
    assert b"[DONE]" not in response.body
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage_source, row.usage.output_tokens) == ("upstream_error", "counted", 4)


@pytest.mark.parametrize(
    ("prompt", "status", "param"),
    [(["a"] * 33, 400, "prompt"), (["a", ""], 400, "prompt[1]"), ([[1], [2]], 400, "prompt")],
)
async def test_what_is_refused(
    start_inprocess: StartInProcess, simulator: Simulator, prompt: Any, status: int, param: str
) -> None:
    gate = await start(start_inprocess, simulator, "chat")
    response = await complete(gate, stream=False, prompt=prompt)
    assert (response.status, response.json()["error"]["param"]) == (status, param)
    assert not simulator.requests


def test_a_sum_knows_only_what_both_told() -> None:
    one = Usage(input_tokens=1, output_tokens=2, cache_read_tokens=1)
    assert summed(one, Usage(input_tokens=3, output_tokens=4, reasoning_tokens=2)) == Usage(
        input_tokens=4, longest_input_tokens=3, output_tokens=6, cache_read_tokens=1, reasoning_tokens=2
    )
    longest = Usage(input_tokens=4, longest_input_tokens=3, cache_read_tokens=1)
    assert summed(one, Usage(input_tokens=3)) == longest
    assert summed(Usage(input_tokens=3), one) == longest
    assert summed(longest, Usage(input_tokens=2)) == Usage(
        input_tokens=6, longest_input_tokens=3, cache_read_tokens=1
    )
    assert summed(Usage(input_tokens=0, output_tokens=0), one) == one


async def test_continuous_usage_goes_on_over_all_calls(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start(start_inprocess, simulator, "messages")
    answers(simulator)
    body = {"model": "m", "prompt": PROMPTS, "max_tokens": 20, "stream": True}
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    response = await ask(gate.url, "/v1/completions", body, key=KEY)
    lines = [line[6:] for line in response.body.splitlines() if line.startswith(b"data: {")]
    counts = [
        (usage["prompt_tokens"], usage["completion_tokens"], usage["cost_nano_usd"])
        for usage in (json.loads(line)["usage"] for line in lines)
    ]
    for one, other in itertools.pairwise(counts):
        assert all(before <= after for before, after in zip(one, other, strict=True))
    assert counts[-1] == (27, 6, COST)
    assert told(response, stream=True)[0] == {place: "".join(WORDS[p]) for place, p in enumerate(PROMPTS)}


async def test_a_client_that_leaves_between_calls_pays_for_what_came(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start(start_inprocess, simulator, "chat")
    simulator.push(Script(answer=Answer(text=WORDS["One"])))
    simulator.push(Script(first_token_s=5.0, answer=Answer(text=WORDS["Two"])))
    body = {"model": "m", "prompt": PROMPTS, "max_tokens": 20, "stream": True}
    one = await client(gate.url)
    one.send(request_bytes("/v1/completions", body, key=KEY))
    async with asyncio.timeout(5):
        while simulator.requests_made < 2:
            await asyncio.sleep(0.01)
    one.reset()
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.usage.input_tokens, row.usage.output_tokens) == ("client_closed", 9, 2)
    await asyncio.sleep(0.05)
    assert simulator.requests_made == 2
