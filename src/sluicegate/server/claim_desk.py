"""The supervisor's side of idempotency keys: answers workers that claim one, and notes how their requests ended.

One after the other, in the order in which they were asked, so that what a worker says of a claim it gave up never
overtakes the claim. What is claimed stands in the store (`store.claims`), since it has to outlive every process.
"""

import asyncio
import time
from collections.abc import Callable

from sluicegate.errors import StoreUnavailable
from sluicegate.server.claim_messages import ClaimAnswer, ClaimAsked, ClaimEnded
from sluicegate.server.telemetry import CLAIMS_UNKEPT, log
from sluicegate.store import Store

PRUNE_EVERY_S = 60.0
MAX_WAITING = 10_000
"""Questions beyond these are not answered, which ends them as unavailable."""

_Gone = int | None
"""A worker whose journal is committed to its end; None: all that there were before we began."""


class ClaimDesk:
    """Follows the workers' claims into the store."""

    def __init__(self, store: Store, answer: Callable[[int, ClaimAnswer], None]) -> None:
        """Args: answer: tells a worker; nothing where it is gone."""
        self._store = store
        self._answer = answer
        self._waiting: asyncio.Queue[tuple[int, ClaimAsked | ClaimEnded] | _Gone] = asyncio.Queue()
        self._pruned_at = 0.0

    def heard(self, worker: int, message: ClaimAsked | ClaimEnded) -> None:
        """Take what a worker says."""
        if isinstance(message, ClaimAsked) and self._waiting.qsize() >= MAX_WAITING:
            return
        self._waiting.put_nowait((worker, message))

    def release_worker(self, worker: int) -> None:
        """Let go of what a dead worker had claimed and not reserved; its whole journal is committed."""
        self._waiting.put_nowait(worker)

    async def run(self) -> None:
        """Serve until cancelled, first what workers of an earlier supervisor left."""
        self._waiting.put_nowait(None)
        while True:
            wanted = await self._waiting.get()
            try:
                await self._serve(wanted)
            except StoreUnavailable as error:
                log(CLAIMS_UNKEPT, error=error)
                if not isinstance(wanted, tuple):  # as long as it is not done, repeats are told to come back
                    asyncio.get_running_loop().call_later(1.0, self._waiting.put_nowait, wanted)

    async def _serve(self, wanted: tuple[int, ClaimAsked | ClaimEnded] | _Gone) -> None:
        if not isinstance(wanted, tuple):
            await self._store.release_claims(wanted)
            return
        worker, message = wanted
        if isinstance(message, ClaimAsked):
            now = time.monotonic()
            if now - self._pruned_at > PRUNE_EVERY_S:
                self._pruned_at = now
                await self._store.prune_claims(time.time())
            verdict = await self._store.make_claim(message.claim, worker, time.time())
            self._answer(worker, ClaimAnswer(message.question, verdict))
        else:
            await self._store.end_claim(message.claim, message.done, message.answer)
            self._answer(worker, ClaimAnswer(message.question, None))
