"""The grid of cut streams: who cut it, at which phase, from which provider format, to which client, under which policy;
each cell's row is what `docs/billing.md` says. Contract B3; cases B016, B048, B138.

The rule stands here a second time, in the test's own words (`owed`): what the provider had told until the cut is
taken from the script that was played, not from the gate.
"""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from sluicegate.billing.ledger import UsageRow
from sluicegate.billing.tokens import count_tokens
from sluicegate.messages import Format
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer, ToolCall
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.simulator.script import AnyStep, Event, Head, Play, Reset, Script, Stall, Wait
from tests.conftest import PRICE, make_config
from tests.fakes import Client, request_bytes
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import path_of, said
from tests.inprocess import InProcessGate, in_process_gate

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORDS = (" one", " two", " three", " four", " five", " six", " seven", " eight", " nine", " ten")
INPUT = 50
SEEN = 4
"""Pieces of content that come before the cut."""
INPUT_NANO, OUTPUT_NANO = 1_000, 2_000

ANSWERS: dict[str, Answer] = {
    "text": Answer(text=WORDS, input_tokens=INPUT),
    "reasoning": Answer(reasoning=WORDS, text=WORDS, input_tokens=INPUT),
    "calls": Answer(
        tool_calls=(ToolCall(name="look", arguments=('{"a":', " 1,", ' "b":', " 2}")),),
        finish="tool_calls",
        input_tokens=INPUT,
    ),
}
PHASES = {
    "connecting": "text",
    "waiting for the head": "text",
    "waiting for the first token": "text",
    "in text": "text",
    "in reasoning": "reasoning",
    "in tool arguments": "calls",
    "after the finish, before usage": "text",
}
"""And what is played in each."""
POLICIES = ("produced", "drain", "none")
OTHER: dict[Format, Format] = {
    "chat": "messages",
    "completions": "responses",
    "responses": "gemini",
    "messages": "chat",
    "gemini": "messages",
}
"""A client of another format, for each provider's."""
JOINS_USAGE = ("responses", "messages", "gemini")
"""Client formats that say finish and usage in one event, so that the finish never leaves before its settlement."""


class Cell(NamedTuple):
    """One place of the grid."""

    provider: Format
    client: Format
    phase: str
    cut: str
    """client | provider: who ends it."""
    policy: str

    @property
    def answer(self) -> Answer:
        return ANSWERS[PHASES[self.phase]]

    @property
    def key(self) -> str:
        return f"sg-test-key-{self.policy}-0123456789"

    @property
    def model(self) -> str:
        provider = "far" if self.phase == "connecting" else self.provider
        return f"{provider}-{'-'.join(self)}".replace(" ", "_").replace(",", "")


def cells() -> list[Cell]:
    """Return every cell that there is."""
    found = []
    for provider, phase, cut in itertools.product(FORMATS, PHASES, ("client", "provider")):
        format: Format = provider  # type: ignore[assignment]
        if format == "completions" and phase in ("in reasoning", "in tool arguments"):
            continue  # the format has neither
        if format == "responses" and phase.startswith("after"):
            continue  # finish, usage and end are one event
        if cut == "provider" and phase in ("connecting", "waiting for the head"):
            continue  # no stream: an attempt that failed
        for client, policy in itertools.product((format, OTHER[format]), POLICIES):
            found.append(Cell(format, client, phase, cut, policy))
    return found


def events_until(cell: Cell) -> int:
    """Return how many events of the provider's stream come before the cut."""
    pieces = DIALECTS[cell.provider].stream(cell.answer, Ask(cell.model))
    if cell.phase.startswith("waiting"):
        return next(place for place, piece in enumerate(pieces) if piece.kind == "content")
    if cell.phase.startswith("after"):
        return next(place for place, piece in enumerate(pieces) if piece.kind == "finish") + 1
    weight = 0
    for place, piece in enumerate(pieces):
        weight += piece.weight
        if weight >= SEEN:
            return place + 1
    raise AssertionError("the answer is too short")


def script(cell: Cell) -> Script:
    """Return what the provider plays: up to the cut, and then what the cut needs."""
    until = events_until(cell)
    steps: tuple[AnyStep, ...] = (Head(),)
    if cell.phase == "waiting for the head":
        steps = ()
    elif until:
        steps += (Play(stop=until),)
    if cell.cut == "provider":
        steps += (Wait(s=0.02), Reset())
    elif cell.policy == "drain":
        steps += (Wait(s=2.0), Play(start=until if len(steps) > 1 else 0))
    else:
        steps += (Stall(),)
    return Script(answer=cell.answer, steps=steps)


class Owed(NamedTuple):
    """What a row must say."""

    status: str
    source: str
    input_tokens: int | None
    output_tokens: int | None


def told(cell: Cell) -> tuple[bool, int | None]:
    """Return whether the provider has told the input before the cut, and the output it has told."""
    begun = not cell.phase.startswith(("connecting", "waiting"))
    after = cell.phase.startswith("after")
    if (
        cell.provider == "messages"
    ):  # input in message_start, whose output is a placeholder; output in message_delta
        head = begun or cell.phase == "waiting for the first token"
        return head, len(WORDS) if after else None
    if cell.provider == "gemini" and begun:  # running totals on every event
        weight = sum(
            piece.weight
            for piece in DIALECTS["gemini"].stream(cell.answer, Ask(cell.model))[: events_until(cell)]
        )
        return True, weight
    return False, None


def text_seen(cell: Cell) -> str:
    """Return all the text, reasoning and arguments that came before the cut."""
    if cell.phase.startswith(("connecting", "waiting")):
        return ""
    if cell.phase.startswith("after"):
        return "".join(WORDS)
    if cell.phase == "in tool arguments":
        call = cell.answer.tool_calls[0]
        pieces = call.arguments if cell.provider == "gemini" else call.arguments[: SEEN - 1]
        return call.name + "".join(pieces)
    return "".join(WORDS[:SEEN])


def owed(cell: Cell, body_bytes: int) -> Owed:
    """Return the rule of docs/billing.md for a cell."""
    begun = not cell.phase.startswith(("connecting", "waiting"))
    if cell.phase == "in tool arguments" and cell.client == "gemini" and cell.provider != "gemini":
        begun = False  # its clients get calls whole, so nothing of this one has left
    # A provider that is cut behind its finish has said everything; in Messages that is so only behind message_stop.
    left = cell.client not in JOINS_USAGE if cell.cut == "client" else cell.provider != "messages"
    whole = left and cell.phase.startswith("after")
    cut_short = "client_closed" if cell.cut == "client" else "upstream_error"
    status = "ok" if whole else cut_short
    nothing = Owed(status, "none", None, None)
    if cell.cut == "provider" and not begun:
        return nothing  # nothing has come: an attempt that failed costs nothing in any policy
    if cell.phase == "connecting" or (cell.phase == "waiting for the head" and cell.policy != "drain"):
        return nothing
    if cell.policy == "none" and not whole:
        return nothing
    if cell.policy == "drain" and cell.cut == "client":
        output = cell.answer.pieces()
        return Owed(status, "reported", INPUT, output)
    told_input, told_output = told(cell)
    source = "reported" if told_input and told_output is not None else "counted"
    output = count_tokens(text_seen(cell)) if told_output is None else told_output
    return Owed(status, source, INPUT if told_input else round(body_bytes / 4), output)


class World(NamedTuple):
    """One gate and one provider for all cells."""

    gate: InProcessGate
    simulator: Simulator


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # nobody accepts
        async with Simulator() as simulator:
            settings = configuration(simulator, silent.getsockname()[1])
            gate = in_process_gate(tmp_path_factory.mktemp("cut"), settings)
            async with gate.running():
                yield World(gate, simulator)


def configuration(simulator: Simulator, silent_port: int) -> dict[str, Any]:
    """Return a configuration with a model for every cell and a key for every policy."""
    providers: dict[str, Any] = {
        format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"} for format in FORMATS
    }
    for format in FORMATS:  # connecting to it never ends: its proxy accepts and says nothing
        providers[f"far-{format}"] = {
            "base_url": "https://provider.test/v1",
            "proxy": f"http://127.0.0.1:{silent_port}",
            "speaks": [format],
            "auth": "none",
        }
    models = {
        cell.model: {
            "routes": [
                {
                    "provider": f"far-{cell.provider}" if cell.phase == "connecting" else cell.provider,
                    "model": cell.model,
                }
            ],
            "price": PRICE,
        }
        for cell in cells()
    }
    for format in FORMATS:
        models[f"{format}+*"] = {"routes": [{"provider": format, "model": "*"}], "price": PRICE}
    keys = [
        {
            "name": policy,
            "key": f"sg-test-key-{policy}-0123456789",
            "balance_usd": 500,
            "on_disconnect": policy,
            "on_error": policy,
        }
        for policy in POLICIES
    ]
    config = make_config(simulator, retry={"max_attempts": 1, "after_send": 0})
    return config | {"providers": providers, "models": models, "keys": keys}


async def play(world: World, cell: Cell) -> tuple[UsageRow, int]:
    """Play a cell and return its row, and the bytes of the request's body."""
    gate, simulator = world
    if cell.phase != "connecting":
        simulator.push(script(cell), model=cell.model)
    async with await Client.connect(gate.url) as connection:
        request = request_bytes(
            path_of(cell.client, cell.model, True),
            said(cell.client, cell.model, Prompt(question="x" * 4_000), True),
            key=cell.key,
        )
        connection.send(request)
        if cell.cut == "client":
            if cell.phase == "connecting":
                await asyncio.sleep(0.1)
            else:
                await simulator.wait_for(
                    lambda: sent(simulator, cell) >= events_until_sent(cell), timeout_s=30.0
                )
                # A finish that leaves before usage has waited a quarter of a second for it.
                await asyncio.sleep(0.35 if cell.phase.startswith("after") else 0.05)
            await connection.close()
        else:
            await connection.response(timeout_s=30.0)
    rows: list[UsageRow] = []
    async with asyncio.timeout(30):
        while not (rows := [row for row in gate.rows() if row.model == cell.model]):
            await asyncio.sleep(0.01)
    (row,) = rows
    return row, len(request) - request.index(b"\r\n\r\n") - 4


def events_until_sent(cell: Cell) -> int:
    """Return how many events the simulator has sent when the client leaves."""
    return 0 if cell.phase == "waiting for the head" else events_until(cell)


def sent(simulator: Simulator, cell: Cell) -> int:
    """Return how many events a cell's provider has sent; -1: it has not been asked yet."""
    for received in reversed(simulator.requests):
        if received.model == cell.model and received.body_at is not None:
            return received.events_sent
    return -1


@pytest.mark.parametrize("other", [False, True], ids=["same format", "other format"])
@pytest.mark.parametrize("provider", FORMATS)
async def test_b3_b016_a_cut_stream_costs_what_the_rule_says(
    world: World, provider: Format, other: bool
) -> None:
    client = OTHER[provider] if other else provider
    row_of = [cell for cell in cells() if (cell.provider, cell.client) == (provider, client)]
    played = await asyncio.gather(*(play(world, cell) for cell in row_of))
    for cell, (row, body_bytes) in zip(row_of, played, strict=True):
        expected = owed(cell, body_bytes)
        got = Owed(row.status, row.usage_source, row.usage.input_tokens, row.usage.output_tokens)
        assert got == expected, cell
        assert (
            row.cost_nano_usd
            == (expected.input_tokens or 0) * INPUT_NANO + (expected.output_tokens or 0) * OUTPUT_NANO
        )
        assert (row.provider_format, row.client_format) == (provider, client), cell


UNREPORTED: dict[str, dict[str, Any]] = {
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": " five six seven"}], "role": "model"}, "index": 0}]
    },
    "chat": {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": " five six seven"}, "finish_reason": None}],
    },
}
"""Three tokens more, without a word of usage."""


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("provider", UNREPORTED)
async def test_b3_what_came_after_the_last_running_total_is_counted(
    world: World, provider: Format, client: Format
) -> None:
    gate, simulator = world
    answer = Answer(text=WORDS, input_tokens=INPUT, output_tokens=70, usage="running")
    told = answer.truth(SEEN).output_tokens  # more than the text: most of it is hidden reasoning
    assert told == 28
    upto = SEEN if provider == "gemini" else SEEN + 1
    steps: tuple[AnyStep, ...] = (
        Play(stop=upto),
        Wait(s=0.02),
        Event(data=json.dumps(UNREPORTED[provider])),
        Stall(),
    )
    name = f"stale-{provider}-{client}"
    simulator.push(Script(answer=answer, steps=steps), model=name)
    async with await Client.connect(gate.url) as connection:
        body = said(client, f"{provider}+{name}", Prompt(), True)
        path = path_of(client, f"{provider}+{name}", True)
        connection.send(request_bytes(path, body, key=f"sg-test-key-{POLICIES[0]}-0123456789"))
        await connection.until_bytes(b" seven", timeout_s=30.0)
    async with asyncio.timeout(30):
        while not (rows := [row for row in gate.rows() if row.model == f"{provider}+{name}"]):
            await asyncio.sleep(0.01)
    (row,) = rows
    assert (row.status, row.usage_source) == ("client_closed", "counted")
    assert (row.usage.input_tokens, row.usage.output_tokens) == (INPUT, told + 3)
    assert row.cost_nano_usd == INPUT * INPUT_NANO + (told + 3) * OUTPUT_NANO
