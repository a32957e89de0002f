"""Answers of megabytes that nobody reports the tokens of: counted in turns, so that other streams keep their pace."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection

import pytest

from sluicegate.billing.tokens import count_tokens
from sluicegate.simulator import SimulatorProcess
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Script
from tests.conftest import KEY, StartInProcess, make_config
from tests.fakes import chat

PATH = "/v1/chat/completions"
PIECE = "the water finds its own level in the end, and goes where it can. " * 64
ANSWERS = {"many events": (PIECE,) * 500, "one event": (PIECE * 500,)}
"""2 MB each."""
COUNTING_S = 0.020
"""CPU that counting may add to a turn of the loop; all at once it takes 60 ms and more."""


class Turns:
    """What the turns of the running loop cost, in CPU: a busy machine does not count."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._at = time.thread_time()
        self._on = True

    def turn(self) -> None:
        now = time.thread_time()
        self.longest_s = max(self.longest_s, now - self._at)
        self._at = now
        if self._on:
            asyncio.get_running_loop().call_soon(self.turn)

    def stop(self) -> None:
        self._on = False


def ask_whole(port: int, stream: bool) -> None:
    """Ask and read the answer, from a thread whose time does not count."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60.0)
    try:
        connection.request("POST", PATH, json.dumps(chat("m", stream=stream)), {"x-api-key": KEY})
        response = connection.getresponse()
        assert response.status == 200
        response.read()
    finally:
        connection.close()


@asynccontextmanager
async def watching() -> AsyncIterator[Turns]:
    turns = Turns()
    turns.turn()
    try:
        yield turns
    finally:
        turns.stop()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("pieces", ANSWERS)
async def test_two_megabytes_are_counted_while_others_keep_their_pace(
    start_inprocess: StartInProcess,
    simulator_process: SimulatorProcess,
    stream: bool,
    pieces: str,
) -> None:
    """What an answer costs in one turn of the loop hardly depends on whether somebody reports its tokens."""
    gate = await start_inprocess(make_config(simulator_process))
    longest: dict[str, float] = {}
    for told in ("reported", "counted"):
        answer = Answer(text=ANSWERS[pieces], usage="asked" if told == "reported" else "never")
        simulator_process.push(Script(answer=answer, interval_s=0.0))
        before = len(gate.rows())
        async with watching() as turns:
            await asyncio.to_thread(ask_whole, gate.port, stream)
        longest[told] = turns.longest_s
        row = (await gate.wait_for_rows(before + 1))[-1]
        assert row.usage_source == told
    assert row.usage.output_tokens == pytest.approx(count_tokens("".join(ANSWERS[pieces])), rel=0.001)
    assert longest["counted"] < longest["reported"] + COUNTING_S, longest
