"""The supervisor's side of `GET /v1/generations/{id}`: asks the worker that serves the request, else the store.

A request that has just been settled stands in a journal and nowhere else, so the journals are drained before a young
one is called unknown. What the client is told is `generations`'.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from sluicegate.billing.ledger import UsageRow
from sluicegate.errors import StoreUnavailable
from sluicegate.server.generation_messages import GenerationAsked, GenerationTold, RunningAsked, RunningTold
from sluicegate.server.request_ids import read_request_id
from sluicegate.store import Store, UsageQuery

WORKER_ANSWER_S = 0.4
"""How long a worker may take; the one that asks waits a second for all of it."""
MAX_OPEN = 200
"""Questions beyond these are not answered, which ends them as unavailable."""
YOUNG_S = 30.0
"""Of requests that have ended for so long, and were not longer than that, all is in the store."""
DRAIN_EVERY_S = 0.05
"""The journals are not read for this more often."""


class GenerationDesk:
    """Answers workers' questions for single requests."""

    def __init__(
        self,
        store: Store,
        drain: Callable[[], Awaitable[Any]],
        send: Callable[[int, Any], None],
        live: Callable[[], Collection[int]],
    ) -> None:
        """Open it.

        Args:
            drain: commits all that the journals hold.
            send: tells a worker; nothing where it is gone.
            live: the worker processes that can be asked.
        """
        self._store = store
        self._drain = drain
        self._send = send
        self._live = live
        self._asked: dict[int, asyncio.Future[UsageRow | None]] = {}
        self._questions = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining: asyncio.Task[None] | None = None

    def heard(self, worker: int, message: GenerationAsked | RunningTold) -> None:
        """Take what a worker says."""
        if isinstance(message, RunningTold):
            waiting = self._asked.get(message.question)
            if waiting is not None and not waiting.done():
                waiting.set_result(message.row)
        elif len(self._tasks) < MAX_OPEN:
            task = asyncio.create_task(self._answer(worker, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Answer nobody any more."""
        for task in self._tasks:
            task.cancel()

    async def _answer(self, worker: int, asked: GenerationAsked) -> None:
        try:
            found = await self._find(worker, asked)
        except StoreUnavailable:
            return  # silence is told as unavailable
        self._send(worker, found)

    async def _find(self, worker: int, asked: GenerationAsked) -> GenerationTold:
        known = read_request_id(asked.request_id)
        if known is None:
            return GenerationTold(asked.question, None)
        began_at, number = known
        if number != worker and number in self._live():
            running = await self._ask_worker(number, asked)
            if running is not None:
                return GenerationTold(asked.question, running, running=True)
        row = await self._stored(asked)
        if row is None and (number in self._live() or time.time() - began_at < YOUNG_S):
            await self._drain_soon()
            row = await self._stored(asked)
        return GenerationTold(asked.question, row)

    async def _ask_worker(self, number: int, asked: GenerationAsked) -> UsageRow | None:
        self._questions += 1
        question = self._questions
        waiting: asyncio.Future[UsageRow | None] = asyncio.get_running_loop().create_future()
        self._asked[question] = waiting
        self._send(number, RunningAsked(question, asked.key_id, asked.request_id))
        try:
            async with asyncio.timeout(WORKER_ANSWER_S):
                return await waiting
        except TimeoutError:
            return None  # it is stuck, or gone: what it has journalled is all there is
        finally:
            del self._asked[question]

    async def _stored(self, asked: GenerationAsked) -> UsageRow | None:
        async for row in self._store.usage(UsageQuery(request_id=asked.request_id, limit=1)):
            return row if row.key_id == asked.key_id else None
        return None

    async def _drain_soon(self) -> None:
        """Wait until what the journals held when this was called is committed; who asks at the same time shares it."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain_now())
            self._tasks.add(self._draining)
            self._draining.add_done_callback(self._tasks.discard)
        await asyncio.shield(self._draining)

    async def _drain_now(self) -> None:
        await asyncio.sleep(DRAIN_EVERY_S)
        self._draining = None  # who comes from now on needs the next
        await self._drain()
