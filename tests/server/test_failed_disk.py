"""A disk that no longer confirms what was written: nothing more is taken on until it does, and nothing is lost."""

import asyncio
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.server import journal
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Script, Wait
from tests.conftest import KEY, MODEL, Connect, StartGate, StartInProcess, make_config
from tests.crash.faults import Machine
from tests.fakes import ask, chat, request_bytes
from tests.grammar.chat import check_chat_stream
from tests.inprocess import InProcessGate
from tests.server.journal_world import until

PATH = "/v1/chat/completions"
PATHS = {
    "chat": (PATH, chat(MODEL)),
    "completions": ("/v1/completions", {"model": MODEL, "prompt": "Hello"}),
    "responses": ("/v1/responses", {"model": MODEL, "input": "Hello"}),
    "messages": (
        "/v1/messages",
        {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": "Hello"}]},
    ),
    "gemini": (
        f"/v1beta/models/{MODEL}:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]},
    ),
}


SLOW = {"slow": {"routes": [{"provider": "sim", "model": "slow"}], "price": {"input": 1, "output": 2}}}
WORDS = tuple(f" word{number}" for number in range(12))
WHOLE_NANO = 10 * 1000 + 12 * 2000


class Disk:
    """The disk under the journal: it confirms what it was given, or fails to."""

    def __init__(self) -> None:
        self.works = True
        self._confirm = os.fdatasync

    def confirm(self, fd: int) -> None:
        """Stands in place of `os.fdatasync`."""
        if not self.works:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._confirm(fd)

    async def fail(self, gate: InProcessGate) -> None:
        """Fail, and return when the worker has noticed, as it does with the next record."""
        self.works = False
        await ask(gate.url, PATH, chat(MODEL, stream=False), key=KEY)
        await until(lambda: _gauge(gate, "journals_failed") == 1)


def _gauge(gate: InProcessGate, name: str) -> float:
    ((_, value),) = gate.gateway.counters()[name]
    return float(value)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.confirm)
    monkeypatch.setattr(journal, "RENEW_S", (0.05,))
    yield disk
    disk.works = True


async def test_x6_a_failed_disk_is_told_in_every_format_and_calls_nobody(
    start_inprocess: StartInProcess, simulator: Simulator, disk: Disk
) -> None:
    gate = await start_inprocess(make_config(simulator))
    await disk.fail(gate)
    asked = len(simulator.requests)
    for format, (path, body) in PATHS.items():
        refused = await ask(gate.url, path, body, key=KEY)
        assert refused.status == 503, format
        assert refused.header("retry-after"), format
        assert "error" in refused.json(), format
    assert len(simulator.requests) == asked
    assert (await ask(gate.url, "/readyz", method="GET")).status == 503
    assert (await ask(gate.url, "/healthz", method="GET")).status == 200
    assert _gauge(gate, "journal_failures_total") == 1


async def test_x6_when_the_disk_works_again_so_does_the_worker(
    start_inprocess: StartInProcess, simulator: Simulator, disk: Disk
) -> None:
    gate = await start_inprocess(make_config(simulator))
    await disk.fail(gate)
    before = len(gate.rows())
    disk.works = True
    await until(lambda: _gauge(gate, "journals_failed") == 0)
    assert (await ask(gate.url, "/readyz", method="GET")).status == 200
    assert (await ask(gate.url, PATH, chat(MODEL, stream=False), key=KEY)).status == 200
    rows = await gate.wait_for_rows(before + 1)
    assert [row.status for row in rows] == ["ok"] * (before + 1)


async def test_x6_a_stream_outlives_a_disk_that_fails_and_works_again(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect, disk: Disk
) -> None:
    simulator.push(Script(answer=Answer(text=WORDS, input_tokens=10), interval_s=0.05), model="slow")
    gate = await start_inprocess(make_config(simulator, models=SLOW))
    stream = await client(gate.url)
    stream.send(request_bytes(PATH, chat("slow") | {"stream_options": {"include_usage": True}}, key=KEY))
    await stream.until_bytes(b" word0")
    await disk.fail(gate)
    disk.works = True
    told = check_chat_stream((await stream.response()).body)
    assert told.text == "".join(WORDS)
    rows = [row for row in gate.rows() if row.stream]
    assert [(row.status, row.usage.output_tokens) for row in rows] == [("ok", 12)]


@pytest.mark.parametrize(("on_crash", "charged"), [("none", 0), ("produced", WHOLE_NANO)])
async def test_x6_a_stream_that_ends_meanwhile_is_broken_off_and_settled_as_a_crash_would(
    on_crash: str,
    charged: int,
    start_inprocess: StartInProcess,
    simulator: Simulator,
    client: Connect,
    disk: Disk,
) -> None:
    """Nothing that completes an answer may leave: there is no record of it."""
    steps = (Play(before="finish"), Wait(s=0.4), Play(start=13))
    simulator.push(Script(answer=Answer(text=WORDS, input_tokens=10), steps=steps), model="slow")
    gate = await start_inprocess(make_config(simulator, models=SLOW, billing={"on_crash": on_crash}))
    stream = await client(gate.url)
    stream.send(request_bytes(PATH, chat("slow"), key=KEY))
    await stream.until_bytes(b" word11")
    await disk.fail(gate)
    response = await stream.response()
    assert b"[DONE]" not in response.body
    assert b'"finish_reason":"stop"' not in response.body
    assert re.search(rb'"error":', response.body)
    assert not any(row.stream for row in gate.rows())
    disk.works = True
    await until(lambda: any(row.stream for row in gate.rows()))
    (row,) = [row for row in gate.rows() if row.stream]
    assert (row.status, row.error) == ("interrupted", "unavailable")
    assert row.cost_nano_usd == charged


async def test_x6_a_whole_gate_on_a_failed_disk_says_so_and_comes_back(
    start_gate: StartGate, simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path / "machine")
    path = os.pathsep.join(filter(None, (str(machine.folder), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    gate = await start_gate(make_config(simulator, server={"workers": 2}))
    admin = f"http://127.0.0.1:{gate.admin_port}"

    async def asked() -> list[int]:
        answers = (ask(gate.url, PATH, chat(MODEL, stream=False), key=KEY, timeout_s=20) for _ in range(20))
        return [answer.status for answer in await asyncio.gather(*answers)]

    async def ready(url: str, status: int) -> bytes:
        async with asyncio.timeout(20):
            while (answer := await ask(url, "/readyz", method="GET")).status != status:
                await asyncio.sleep(0.1)
        return answer.body

    served = (await asked()).count(200)
    assert served == 20
    machine.fail_disk(True)
    async with asyncio.timeout(20):
        # One worker may take all twenty, and the other learns of its disk by what it writes itself.
        while b"\nsluicegate_journals_failed 2.0\n" not in (await ask(admin, "/metrics", method="GET")).body:
            served += (await asked()).count(200)
    assert set(await asked()) == {503}
    assert await ready(admin, 503) == b"not ready: the journals' disk has failed\n"
    await ready(gate.url, 503)
    machine.fail_disk(False)
    assert await ready(admin, 200) == b"ready\n"
    async with asyncio.timeout(20):
        while set(statuses := await asked()) != {200}:
            served += statuses.count(200)
    await asyncio.sleep(0.5)
    rows = gate.usage()
    assert [row["status"] for row in rows].count("ok") == served + 20
    assert {row["status"] for row in rows} <= {"ok", "interrupted"}
    log = gate.child.log_path.read_text()
    assert log.count("journal_failed") == log.count("journal_renewed") == 2
    assert "worker_died" not in log
