"""Files and batches: kept at the provider that their requests name, charged line by line at the batch price."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import openai
import pytest

from sluicegate.simulator import Simulator
from sluicegate.simulator.endpoints import tokens
from tests.conftest import KEY, make_config
from tests.fakes import ask
from tests.jobs_world import JobsGate, jobs_gate
from tests.server.test_video_jobs import OTHER_KEY, client_of

PRICE = {"input": 1, "output": 2, "service_tiers": {"batch": 0.5}}
LIMIT = 100


def config_of(simulator: Simulator, poll_every: str = "60s", **changes: Any) -> dict[str, Any]:
    route = {"routes": [{"provider": "sim", "model": "their-model"}], "price": PRICE}
    keys = [
        {"name": "test", "key": KEY, "balance_usd": 5},
        {"name": "other", "key": OTHER_KEY, "balance_usd": 5},
    ]
    row = {"base_url": simulator.base_url, "speaks": ["chat", "responses"], "auth": "none"}
    config = {"models": {"big": route, "small": route}, "keys": keys, "providers": {"sim": row}}
    return make_config(simulator, **config | changes, jobs={"poll_every": poll_every})


@pytest.fixture
async def gate(simulator: Simulator, tmp_path: Path) -> AsyncIterator[JobsGate]:
    async with jobs_gate(tmp_path, config_of(simulator)) as running:
        yield running


def line(custom_id: str, text: str, url: str = "/v1/chat/completions", **changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = (
        {"model": "big", "max_tokens": LIMIT} if url.endswith("completions") else {"model": "big"}
    )
    if url.endswith("completions"):
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["input"] = text
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body | changes}


def file_of(*lines: Any) -> tuple[str, bytes]:
    return "requests.jsonl", b"\n".join(json.dumps(one).encode() for one in lines)


@pytest.mark.parametrize("url", ["/v1/chat/completions", "/v1/responses", "/v1/embeddings"])
async def test_a_batch_by_the_sdk_is_charged_line_by_line(
    simulator: Simulator, gate: JobsGate, url: Any
) -> None:
    lines = [line("a", "first", url), line("b", "fail", url), line("c", "the third one", url)]
    async with client_of(gate) as client, client_of(gate, OTHER_KEY) as stranger:
        file = await client.files.create(file=file_of(*lines), purpose="batch")
        assert (file.id[:8], file.purpose, file.filename) == ("file-sg0", "batch", "requests.jsonl")
        (content,) = simulator.jobs.files.values()
        assert [json.loads(one)["body"]["model"] for one in content.splitlines()] == ["their-model"] * 3
        with pytest.raises(openai.NotFoundError):
            await stranger.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")
        batch = await client.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")
        assert (batch.status, batch.input_file_id) == ("validating", file.id)
        assert batch.id.startswith("batch_sg0")
        (job,) = await gate.jobs()
        assert job.job is not None
        assert job.job.amount_nano > 0
        assert gate.held() == job.job.amount_nano
        while (done := await client.batches.retrieve(batch.id)).status != "completed":
            assert done.output_file_id is None
        assert done.id == batch.id
        (row,) = await gate.rows()
        texts = [str(one["body"].get("messages") or one["body"]["input"]) for one in (lines[0], lines[2])]
        read = sum(map(tokens, texts))
        assert row.cost_nano_usd == read * 500 + 2 * 3 * 1000
        assert (row.usage.input_tokens, row.usage.output_tokens, row.status) == (read, 6, "ok")
        assert row.cost_nano_usd <= job.job.amount_nano
        assert gate.held() == 0
        assert done.output_file_id is not None
        results = (await client.files.content(done.output_file_id)).text.splitlines()
        assert [json.loads(one)["custom_id"] for one in results] == ["a", "b", "c"]
        listed = [one.id async for one in client.files.list()]
        assert set(listed) == {file.id, done.output_file_id}
        assert [one.id async for one in client.files.list(purpose="batch")] == [file.id]
        assert [one.id async for one in client.batches.list()] == [batch.id]
        for call in (stranger.batches.retrieve, stranger.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                await call(batch.id)
        for read_file in (stranger.files.retrieve, stranger.files.content, stranger.files.delete):
            with pytest.raises(openai.NotFoundError):
                await read_file(done.output_file_id)
        assert [one.id async for one in stranger.files.list()] == []
        assert (await client.files.delete(file.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(file.id)
    assert len(await gate.rows()) == 1
    assert (await gate.store.verify()).clean


async def test_what_is_held_for_a_batch_covers_each_of_its_requests_at_its_own_length(
    simulator: Simulator, tmp_path: Path
) -> None:
    tier = {"above_input_tokens": 100, "input": 1000, "output": 2000}
    price = {"input": 1, "output": 2, "per_request": 0.01, "tiers": [tier]}
    model = {"routes": [{"provider": "sim", "model": "their-model"}], "price": price}
    async with jobs_gate(tmp_path, config_of(simulator, models={"big": model})) as gate:
        async with client_of(gate) as client:
            lines = [line("a", "first"), line("b", "fail"), line("c", "the third one")]
            file = await client.files.create(file=file_of(*lines), purpose="batch")
            batch = await client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            (job,) = await gate.jobs()
            assert job.job is not None
            units = job.job.units
            assert units.input_tokens is not None
            assert units.input_tokens > 100, "all together are longer than the tier"
            assert job.job.amount_nano == units.input_tokens * 1000 + 3 * LIMIT * 2000 + 3 * 10**7
            while (await client.batches.retrieve(batch.id)).status != "completed":
                pass
        (row,) = await gate.rows()
        assert row.usage.requests == 2
        assert row.cost_nano_usd == (row.usage.input_tokens or 0) * 1000 + 2 * 3 * 2000 + 2 * 10**7
        assert row.shortfall_nano_usd == 0


async def test_a_cancelled_batch_is_charged_for_what_was_answered(
    simulator: Simulator, gate: JobsGate
) -> None:
    lines = [line("a", "first"), line("b", "second")]
    simulator.jobs.polls = 100
    async with client_of(gate) as client:
        file = await client.files.create(file=file_of(*lines), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        told = await client.batches.cancel(batch.id)
        assert told.status in ("cancelling", "cancelled")
        while (await client.batches.retrieve(batch.id)).status != "cancelled":
            pass
        with pytest.raises(openai.BadRequestError, match="ended"):
            await client.batches.cancel(batch.id)
    (row,) = await gate.rows()
    assert (row.status, row.usage.output_tokens) == ("client_closed", 3)


async def test_a_batch_that_nobody_asks_for_is_settled_by_our_own_poll(
    simulator: Simulator, tmp_path: Path
) -> None:
    async with jobs_gate(tmp_path, config_of(simulator, poll_every="0.1s")) as gate:
        async with client_of(gate) as client:
            file = await client.files.create(file=file_of(line("a", "first")), purpose="batch")
            await client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
        (row,) = await gate.wait_for_rows(1)
        assert (row.status, row.usage.output_tokens) == ("ok", 3)


@pytest.mark.parametrize(
    ("lines", "status", "message"),
    [
        ([], 400, "no requests"),
        ([{"custom_id": "a"}], 400, "line 1: not a request"),
        ([line("a", "x"), line("b", "x", model="small")], 400, "line 2: all requests"),
        ([line("a", "x", model="unknown")], 404, "line 1: The model 'unknown'"),
        ([line("a", "x", stream=True)], 400, "line 1: requests of a batch"),
        ([line("a", "x", url="/v1/images/generations")], 400, "line 1: 'url'"),
        (
            [line("a", "x", url="/v1/responses", previous_response_id="resp_1")],
            404,
            "line 1: previous_response_id",
        ),
    ],
)
async def test_a_file_with_a_wrong_line_is_refused_and_goes_nowhere(
    simulator: Simulator, gate: JobsGate, lines: list[Any], status: int, message: str
) -> None:
    async with client_of(gate) as client:
        with pytest.raises(openai.APIStatusError, match=message) as refused:
            await client.files.create(file=file_of(*lines), purpose="batch")
    assert (refused.value.status_code, refused.value.param) == (status, "file")
    assert not simulator.requests


async def test_a_file_of_another_purpose_passes_and_is_used_by_its_id(
    simulator: Simulator, gate: JobsGate
) -> None:
    content = bytes(range(256)) * 2000
    async with client_of(gate) as client:
        file = await client.files.create(file=("a.bin", content), purpose="user_data")
        assert list(simulator.jobs.files.values()) == [content]
        assert (await client.files.content(file.id)).content == content
        assert (await client.files.retrieve(file.id)).id == file.id
        part = [{"type": "input_file", "file_id": file.id}]
        await client.responses.create(model="big", input=[{"role": "user", "content": part}])
        assert simulator.jobs.ids("file")[0].encode() in simulator.requests[-1].body
        with pytest.raises(openai.BadRequestError, match="purpose 'batch'"):
            await client.batches.create(
                input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
            )


@pytest.mark.parametrize("limit", ["0", "10001", "-1", "x", "9" * 5000, "²"])
async def test_a_page_of_files_has_its_bounds(gate: JobsGate, limit: str) -> None:
    answer = await ask(gate.url, f"/v1/files?limit={quote(limit)}", method="GET", key=KEY)
    error = answer.json()["error"]
    assert (answer.status, error["param"]) == (400, "limit")
    assert error["message"] == "Invalid 'limit': must be between 1 and 10000."
    for kind in ("videos", "batches"):
        answer = await ask(gate.url, f"/v1/{kind}?limit={quote(limit)}", method="GET", key=KEY)
        assert answer.json()["error"]["message"] == "Invalid 'limit': must be between 1 and 100."
    most = await ask(gate.url, "/v1/files?limit=10000", method="GET", key=KEY)
    assert most.json() == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


async def test_a_form_without_purpose_or_file_is_refused(simulator: Simulator, gate: JobsGate) -> None:
    async with client_of(gate) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.files.create(file=("a.txt", b"x"), purpose="")  # type: ignore[arg-type]
        assert refused.value.param == "purpose"
    assert not simulator.requests


async def test_no_batch_is_made_that_credit_does_not_cover(simulator: Simulator, gate: JobsGate) -> None:
    lines = [line("a", "x", max_tokens=10**7)]
    async with client_of(gate) as client:
        file = await client.files.create(file=file_of(*lines), purpose="batch")
        with pytest.raises(openai.APIStatusError) as refused:
            await client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
    assert refused.value.status_code == 402
    assert await gate.jobs() == []


@pytest.mark.parametrize("unary", [["embeddings"], ["files"], ["batches"]])
async def test_only_who_serves_files_and_batches_is_asked_for_them(
    simulator: Simulator, tmp_path: Path, unary: list[str]
) -> None:
    row = {"base_url": simulator.base_url, "speaks": ["chat"], "auth": "none", "unary": unary}
    async with (
        jobs_gate(tmp_path, config_of(simulator, providers={"sim": row})) as gate,
        client_of(gate) as client,
    ):
        with pytest.raises(openai.BadRequestError, match="does not serve batches"):
            await client.files.create(file=file_of(line("a", "x")), purpose="batch")
        if unary == ["files"]:
            await client.files.create(file=("a.txt", b"x"), purpose="user_data")
        else:
            with pytest.raises(openai.BadRequestError, match="keeps files"):
                await client.files.create(file=("a.txt", b"x"), purpose="user_data")


async def test_who_does_not_count_tokens_is_not_asked_to(simulator: Simulator, tmp_path: Path) -> None:
    row = {"base_url": simulator.base_url, "speaks": ["responses"], "auth": "none", "unary": ["embeddings"]}
    async with jobs_gate(tmp_path, config_of(simulator, providers={"sim": row})) as gate:
        body = {"model": "big", "input": "How many tokens are these?"}
        answer = await ask(gate.url, "/v1/responses/input_tokens", body, key=KEY)
    assert answer.json()["input_tokens"] > 0
    assert not simulator.requests


async def test_a_form_that_is_none_is_refused(simulator: Simulator, gate: JobsGate) -> None:
    answer = await ask(gate.url, "/v1/files", {"purpose": "batch"}, key=KEY)
    assert (answer.status, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "multipart/form-data" in answer.json()["error"]["message"]


async def test_long_context_and_cached_input_of_each_line_have_their_own_price(
    simulator: Simulator, tmp_path: Path
) -> None:
    """Lines are charged one by one: the sum of short ones is not a long one."""
    price = PRICE | {"tiers": [{"above_input_tokens": 30, "input": 100, "output": 100}]}
    route = {"routes": [{"provider": "sim", "model": "their-model"}], "price": price}
    lines = [line(name, "x" * 40, "/v1/responses") for name in "abcdef"]  # 10 tokens each
    async with (
        jobs_gate(tmp_path, config_of(simulator, models={"big": route})) as gate,
        client_of(gate) as client,
    ):
        file = await client.files.create(file=file_of(*lines), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
        )
        while (await client.batches.retrieve(batch.id)).status != "completed":
            pass
        (row,) = await gate.rows()
    assert (row.usage.input_tokens, row.cost_nano_usd) == (60, 6 * (10 * 500 + 3 * 1000))
