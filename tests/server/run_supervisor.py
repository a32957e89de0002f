"""Runs a supervisor on settings in a file (msgpack), with stand-in workers; tells its addresses in one line
of JSON. A file `beyond-64-bits` beside theirs puts a number into them that no message can hold.
"""

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import uvloop

from sluicegate.errors import ConfigError, SluicegateError
from sluicegate.server.listeners import Address
from sluicegate.server.supervisor import SupervisorSettings, run_supervisor
from sluicegate.server.telemetry import start_logging

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in_worker.py")))


def main() -> int:
    start_logging("supervisor")
    file = Path(sys.argv[1])

    def load() -> SupervisorSettings:
        try:
            settings = msgspec.msgpack.decode(file.read_bytes(), type=SupervisorSettings)
        except msgspec.MsgspecError as error:
            raise ConfigError(str(error)) from error
        if file.with_name("beyond-64-bits").exists():
            replace = msgspec.structs.replace
            billing = replace(settings.worker.billing, reserve_output_tokens=2**64)
            settings = replace(settings, worker=replace(settings.worker, billing=billing))
        return settings

    def serving(clients: Address, admin: Address) -> None:
        print(json.dumps({"clients": list(clients), "admin": list(admin)}), flush=True)

    async def run() -> None:
        await run_supervisor(load(), load, worker_command=STAND_IN, on_serving=serving)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    except SluicegateError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
