"""What the official Node SDKs and the Vercel AI SDK need of a stream: given it whatever the provider does.

The cases of `test_needs_python`, once more; all are asked in one Node process, and each is a test of its own. See
`needs.toml`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from sluicegate.simulator import Simulator
from tests.cases.case import Case
from tests.cases.world import World, configuration
from tests.conftest import KEY
from tests.grid.sdks import heard
from tests.grid.speaking import said, wording
from tests.grid.test_grid import counts
from tests.grid.turns import joined
from tests.inprocess import in_process_gate
from tests.node import NODE
from tests.sdk.installed import needs_node_sdks
from tests.sdk.needs_cases import cells

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    needs_node_sdks,
]

SCRIPT = Path(__file__).with_name("grid.mjs")
VERCEL = {
    "chat": ("ai-compatible", "ai-chat"),
    "responses": ("ai-responses",),
    "completions": ("ai-completions",),
    "messages": ("ai-messages",),
    "gemini": ("ai-gemini",),
}
VERCEL_REASONS = {
    "stop": "stop",
    "tool-calls": "tool_calls",
    "length": "length",
    "content-filter": "content_filter",
}


class Job(NamedTuple):
    """One thing that Node asks."""

    case: Case
    client: str
    """The format."""
    sdk: str
    """The format too, or a provider of the AI SDK."""
    way: str

    @property
    def upstream(self) -> str:
        return f"{self.case.name}-{self.client}"

    def told(self) -> dict[str, Any]:
        """Return what `grid.mjs` is told."""
        prompt, model = self.case.prompt, f"{self.case.provider}/{self.upstream}"
        body = said(self.client, model, prompt, self.way == "raw")
        if self.way != "raw":
            body.pop("stream", None)
        tools = [tool._asdict() for tool in prompt.tools] if self.sdk == self.client else [F, G, W]
        job = {"client": self.sdk, "way": self.way, "model": model, "body": body}
        return job | {
            "question": prompt.question,
            "system": prompt.system,
            "tools": tools if self.case.calls else [],
        }


F, G, W = (
    {"name": name, "description": name, "parameters": {"type": "object", "properties": {}}} for name in "fgw"
)
"""Tools that the cases call: the AI SDK has to know them."""


def jobs_of(case: Case, client: str) -> list[Job]:
    """Return every way in which Node asks for a case."""
    helper = [] if client == "completions" else [Job(case, client, client, "helper")]
    vercel = [Job(case, client, sdk, "raw") for sdk in VERCEL[client]]
    return [Job(case, client, client, "raw"), *helper, *vercel]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[dict[Job, Any]]:
    """Let Node ask all that this session's tests want."""
    wanted = [
        job
        for item in request.session.items
        if item.parent is request.node and isinstance(item, pytest.Function) and hasattr(item, "callspec")
        for job in jobs_of(item.callspec.params["case"], item.callspec.params["client"])
    ]
    async with Simulator() as simulator:
        gate = in_process_gate(tmp_path_factory.mktemp("needs"), configuration(simulator))
        async with gate.running():
            world = World(gate, simulator)
            for case, client in {
                (job.case.name, job.client): (job.case, job.client) for job in wanted
            }.values():
                parts = case.body, case.then
                if case.fails and case.text and not case.then:
                    end = case.body.rindex(b"\n\n") + 2
                    parts = case.body[:end], case.body[end:]
                paused = bool(case.fails and case.text)
                world.plays(f"{case.name}-{client}", parts[0], "whole", case.how, then=parts[1], pause=paused)
            process = await asyncio.create_subprocess_exec(
                NODE,
                str(SCRIPT),
                gate.url,
                KEY,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await process.communicate(json.dumps([job.told() for job in wanted]).encode())
    lines = output.decode().rstrip("\n").split("\n")
    yield {key_of(job): json.loads(line) for job, line in zip(wanted, lines, strict=True)}  # type: ignore[misc]


def key_of(job: Job) -> tuple[str, str, str, str]:
    """Return what tells a job from others; cases cannot be hashed."""
    return (job.case.name, job.client, job.sdk, job.way)


@pytest.mark.parametrize(
    ("case", "client"), [pytest.param(*cell, id=f"{cell[0].name}-to-{cell[1]}") for cell in cells()]
)
async def test_needs(seen: dict[Any, Any], case: Case, client: str) -> None:
    for job in jobs_of(case, client):
        result = seen[key_of(job)]
        if case.fails is not None:
            assert "error" in result, f"{job.sdk} {job.way}: a false end: {result}"
            if job.sdk == client:
                assert wording(client, case.fails)[1] in json.dumps(result["error"])
        elif job.sdk == client:
            check(case, client, job.way, result)
        else:
            check_vercel(case, job, result)


def expected_texts(case: Case, client: str) -> tuple[str, str]:
    """Return text and refusal as both formats have words for them."""
    same = {client, case.provider} <= {"chat", "responses"}
    return (case.text, case.refusal) if same else (case.text + case.refusal, "")


def check(case: Case, client: str, way: str, result: Any) -> None:
    """Compare what an official SDK saw."""
    assert "error" not in result, result["error"]
    answer = joined(client, result["events"]) if "events" in result else result["answer"]
    said_back = heard(client, answer)
    text, refusal = expected_texts(case, client)
    assert (said_back.text, said_back.refusal) == (text, refusal)
    if (client, way) == ("chat", "helper"):  # it keeps the last piece of fields it does not know
        assert case.reasoning.endswith(said_back.reasoning)
    else:
        assert said_back.reasoning == case.reasoning
    assert [(call.name, json.loads(call.arguments)) for call in said_back.calls] == [
        (name, json.loads(arguments)) for name, arguments in case.calls
    ]
    assert said_back.finish == case.finish
    if case.usage is not None:
        assert said_back.usage is not None
        expected = counts(case.usage)
        if client == "gemini":  # it has no word for cache writes
            expected["cache_write_tokens"] = None
        assert counts(said_back.usage) == expected


def check_vercel(case: Case, job: Job, result: Any) -> None:
    """Compare what the AI SDK saw; it takes a refusal for text."""
    assert "error" not in result, f"{job.sdk}: {result['error']}"
    text, refusal = expected_texts(case, job.client)
    if job.sdk not in ("ai-chat", "ai-compatible") or not refusal:  # which do not show refusals
        assert result["text"] == text + refusal
    if job.sdk != "ai-chat":  # which does not show reasoning_content
        assert result["reasoning"] == case.reasoning
    calls = [(call["name"], json.loads(call["arguments"])) for call in result["calls"]]
    assert calls == [(name, json.loads(arguments)) for name, arguments in case.calls]
    if not refusal:
        assert VERCEL_REASONS[result["finish"]] == case.finish
