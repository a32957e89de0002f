"""What several tests of the server share."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sluicegate.server.deadlines import Deadlines
from sluicegate.server.upstream_pool import UpstreamPool


@pytest.fixture
async def pool() -> AsyncIterator[UpstreamPool]:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    pool = UpstreamPool(loop, deadlines)
    yield pool
    pool.close()
    deadlines.close()
    assert pool.open_connections == 0
    await asyncio.sleep(0)
