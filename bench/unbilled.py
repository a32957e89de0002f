"""The gate with reservation and settlement switched off: what they cost a request is the difference to the real one.

Takes the command line of `sluicegate`. Keys, limits, routing and the relay are the gate's; no money is held, charged or
journalled. For the bench alone: nothing in the gate can switch this off.
"""

import sys
from pathlib import Path
from typing import Any

from sluicegate.messages import Usage, UsageSource
from sluicegate.server import worker_slots
from sluicegate.server.journal import RecordOwner
from sluicegate.server.tab import Tab

WORKER = "--worker"


class UnbilledTab(Tab):
    """A tab that nobody pays."""

    __slots__ = ()

    def reserve_now(
        self,
        input_tokens: int,
        output_tokens: int,
        longest_input: int = 0,
        owner: RecordOwner | None = None,
    ) -> bool:
        """Hold nothing."""
        self.held = self.prepaid = False
        self.open = True
        return True

    def settle_now(self, usage: Usage, source: UsageSource, owner: RecordOwner | None = None) -> bool:
        """Charge nothing, and write nothing down."""
        self.settled = True
        self.row.usage, self.row.usage_source = usage, source
        return True


def main() -> None:
    """Be the supervisor, or one of its workers."""
    if sys.argv[1:2] == [WORKER]:
        from sluicegate.server.app import Gateway, make_gateway
        from sluicegate.server.worker import run_worker

        def make_unbilled(*given: Any) -> Gateway:
            gateway = make_gateway(*given)
            gateway._bench.other_tab = UnbilledTab
            return gateway

        sys.exit(run_worker(sys.argv[2:], make_unbilled))
    vars(worker_slots)["WORKER_COMMAND"] = (sys.executable, str(Path(__file__)), WORKER)
    from sluicegate.cli import main as run

    run()


if __name__ == "__main__":
    main()
