"""What keeps workers running and fails by a fault of ours: told to the supervisor, which ends, and never waited for."""

import asyncio
from pathlib import Path

from sluicegate.errors import DecodeError
from sluicegate.server.control_messages import Boot, FromWorker
from sluicegate.server.listeners import Address, open_listeners
from sluicegate.server.tally import Tally
from sluicegate.server.worker_slots import WorkerNumbers, WorkerProcess, WorkerSlots


class Owner:
    """A supervisor with a fault."""

    store_answers = True

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.told = asyncio.Event()

    def boot(self, number: int) -> Boot:
        raise ZeroDivisionError

    def heard(self, worker: WorkerProcess, message: FromWorker) -> None:
        raise DecodeError("control", None, "no worker ever ran")

    def died(self, worker: WorkerProcess) -> None:
        raise DecodeError("control", None, "no worker ever ran")

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)
        self.told.set()


async def test_a_slot_that_nobody_fills_any_more_is_told_and_its_end_waits_for_nothing(
    tmp_path: Path,
) -> None:
    listeners = await open_listeners(Address("127.0.0.1", 0), 2, {})
    owner = Owner()
    slots = WorkerSlots(owner, listeners, WorkerNumbers(tmp_path / "worker-number"), Tally())
    starting = asyncio.create_task(slots.start())
    try:
        async with asyncio.timeout(5):
            await owner.told.wait()
            await slots.drain(0)
            await starting
    finally:
        await slots.close()
        listeners.close()
    assert {type(error) for error in owner.failures} == {ZeroDivisionError}
