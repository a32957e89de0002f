"""How the tests are dealt to the processes that run them: what shares a costly world stays together, what is long
starts first, and the rest goes out in bundles.

xdist's own marks of groups have no effect under pytest 9.2 (xdist 3.8 writes an attribute that nobody reads), and tests
that are dealt one by one keep the process busy that deals them.
"""

from zlib import crc32

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER = (
    "tests/grid/test_node_sdks.py",
    "tests/sdk/test_needs_node.py",
    "tests/clients/",
    "tests/local/",
    "tests/server/test_idempotency.py",
    "tests/server/test_own_responses.py",
    "tests/sdk/test_openai_",
)
"""Beginnings of paths whose tests all run in one process: each has one Node process, real model or gate for all."""
LONG = (
    "tests/crash/",
    "tests/store/test_ledger_machine.py",
    "tests/server/test_supervisor.py",
    "tests/server/test_overspend.py",
)
BUNDLES = 8
"""A file's tests are dealt in so many parts."""


class Scheduling(LoadScopeScheduling):
    """Deals the tests of a file in parts, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        shared = next((start for start in TOGETHER if nodeid.startswith(start)), None)
        return shared or f"{nodeid.partition('::')[0]} {crc32(nodeid.encode()) % BUNDLES}"


def by_length(item: pytest.Item) -> int:
    """Return where a test belongs: the long ones first."""
    order = TOGETHER + LONG
    return next((place for place, start in enumerate(order) if item.nodeid.startswith(start)), len(order))
