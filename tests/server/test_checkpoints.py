"""What a worker journals of a running stream, and what a crash then charges for it."""

import asyncio

from sluicegate.billing.ledger import Checkpoint, Reservations, Settled, settle_after_crash
from sluicegate.server.serving.running import CHECKPOINT_S
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import of_tokens
from sluicegate.simulator.script import Play, Script, Stall
from tests.conftest import KEY, Connect, StartInProcess, make_config
from tests.fakes import chat, request_bytes
from tests.inprocess import InProcessGate

PATH = "/v1/chat/completions"
TOKENS = 700
COUNTED_EVERY = 256
"""About so many tokens of English are counted at once."""
LONG = of_tokens(TOKENS)
STALLED = Script(answer=LONG, steps=(Play(before="finish"), Stall()))
FINISHED = Script(answer=LONG, steps=(Play(before="usage"), Stall()))


def checkpoints(gate: InProcessGate) -> list[Checkpoint]:
    """Return the checkpoints in the journal."""
    gate.rows()  # reads it
    return [record for record in gate.records if isinstance(record, Checkpoint)]


def settled_after_crash(gate: InProcessGate) -> Settled:
    """Return what recovery would make of the one request in the journal."""
    pending = Reservations()
    for record in gate.records:
        pending.apply(record)
    (reservation,) = pending
    *_, last = settle_after_crash(reservation, 0.0)
    assert isinstance(last, Settled)
    return last


async def test_a_crash_charges_for_what_was_produced_until_the_last_checkpoint(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_inprocess(make_config(simulator, billing={"on_crash": "produced"}))
    simulator.push(STALLED)
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m"), key=KEY))
    await connection.until(lambda: connection.raw.count(b'"content"') >= TOKENS)
    by_tokens = checkpoints(gate)
    assert len(by_tokens) >= TOKENS // COUNTED_EVERY
    assert not any(found.finished for found in by_tokens)
    settled = settled_after_crash(gate)
    assert settled.row.status == "interrupted"
    assert settled.row.usage_source == "counted"
    counted = settled.row.usage
    assert TOKENS - COUNTED_EVERY <= (counted.output_tokens or 0) <= TOKENS
    expected = (counted.input_tokens or 0) * 1_000 + (counted.output_tokens or 0) * 2_000
    assert settled.row.cost_nano_usd == settled.row.list_cost_nano_usd == expected

    async with asyncio.timeout(CHECKPOINT_S + 3.0):  # the rest stands there by the clock
        while len(checkpoints(gate)) == len(by_tokens):
            await asyncio.sleep(0.05)
    assert settled_after_crash(gate).row.usage.output_tokens == TOKENS


async def test_a_finish_that_has_left_stays_the_last_checkpoint(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_inprocess(make_config(simulator, billing={"on_crash": "produced"}))
    simulator.push(FINISHED)
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m"), key=KEY))
    await connection.until_bytes(b'"finish_reason":"stop"')
    assert checkpoints(gate)[-1].finished
    settled = settled_after_crash(gate)
    assert (settled.row.status, settled.row.usage.output_tokens) == ("ok", TOKENS)
    (row,) = await gate.wait_for_rows(1, timeout_s=8.0)  # usage is waited for, then counted
    assert row.cost_nano_usd == settled.row.cost_nano_usd
    assert [found.finished for found in checkpoints(gate)].count(True) == 1


async def test_without_the_policy_a_running_stream_journals_nothing(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    gate = await start_inprocess(make_config(simulator))
    simulator.push(STALLED)
    connection = await client(gate.url)
    connection.send(request_bytes(PATH, chat("m"), key=KEY))
    await connection.until(lambda: connection.raw.count(b'"content"') >= TOKENS)
    assert checkpoints(gate) == []
    assert settled_after_crash(gate).row.cost_nano_usd == 0
