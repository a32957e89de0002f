"""The supervisor's side of kept answers: it alone writes the store, and workers ask it (`server.own_responses`).

A worker is told that an answer is kept once it is committed, so that whoever learns of its id finds it, through any
worker and after a restart.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from sluicegate.errors import StoreUnavailable
from sluicegate.server.control_messages import (
    ResponseAnswer,
    ResponseAsked,
    ResponseDropped,
    ResponseKept,
    RunAsked,
    RunChanged,
)
from sluicegate.server.settings_shapes import ResponsesStoreSettings
from sluicegate.store import Store

SWEEP_S = 60.0

Question = ResponseAsked | ResponseKept | ResponseDropped


class ResponseKeeper:
    """Answers workers' questions out of the store, each in a task of its own."""

    def __init__(
        self,
        store: Store,
        answer: Callable[[int, ResponseAnswer], None],
        begin: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """Keep nothing yet.

        Args:
            answer: tells a worker process something.
            begin: runs a task beside.
        """
        self._store = store
        self._answer = answer
        self._begin = begin
        self.settings = ResponsesStoreSettings()
        self._runs: dict[str, int] = {}
        """Open runs in the background, and the worker processes that follow them."""

    async def run(self) -> None:
        """Delete what has lived long enough, until cancelled; also what was kept before keeping was turned off."""
        while True:
            with contextlib.suppress(StoreUnavailable):  # it is asked again
                await self._store.expire_responses(time.time())
            await asyncio.sleep(SWEEP_S)

    def asked(self, worker: int, question: Question) -> None:
        """Answer a worker's question, soon."""
        self._begin(self._tell(worker, question))

    def run_changed(self, worker: int, change: RunChanged) -> None:
        """Note that a run is open, or no more."""
        if change.open:
            self._runs[change.name] = worker
        else:
            self._runs.pop(change.name, None)

    def run_asked(self, worker: int, question: RunAsked) -> None:
        """Tell whether a run is open."""
        self._answer(worker, ResponseAnswer(question.question, question.name in self._runs))

    def forget_runs(self, worker: int) -> None:
        """Forget the runs of a worker that ended: its journal's recovery settles them."""
        self._runs = {name: owner for name, owner in self._runs.items() if owner != worker}

    async def _tell(self, worker: int, question: Question) -> None:
        try:
            answer = await self._perform(question)
        except StoreUnavailable:
            return  # unanswered, it ends as unavailable
        self._answer(worker, answer)

    async def _perform(self, question: Question) -> ResponseAnswer:
        now, number = time.time(), question.question
        match question:
            case ResponseAsked():
                found = await self._store.find_responses(
                    question.account_id, question.id, now, whole=question.whole
                )
                return ResponseAnswer(number, bool(found), found)
            case ResponseKept():
                settings = self.settings
                kept = settings.enabled and await self._store.keep_response(
                    question.response, now, now + settings.ttl_s, settings.max_bytes
                )
                return ResponseAnswer(number, kept)
            case ResponseDropped():
                return ResponseAnswer(
                    number, await self._store.drop_response(question.account_id, question.id)
                )
