"""The supervisor's side of what providers keep: written down, and jobs among it asked after and settled when they end.

A job is settled once, by whoever learns first that it has ended: a client that asks, or our own slow poll, which a
worker makes for us. What is held for it stays leased to nobody's worker (`leases.JOBS`) until then, through restarts.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from sluicegate.billing.leases import JOBS
from sluicegate.billing.ledger import Job, JobEnd, KeptObject, settle_job
from sluicegate.billing.spending_limits import day_of
from sluicegate.errors import StoreUnavailable
from sluicegate.server.bank import Bank
from sluicegate.server.drain import JournalDrain
from sluicegate.server.job_messages import (
    JobAsked,
    JobTold,
    ObjectDropped,
    ObjectPut,
    ObjectsAsked,
    ObjectsTold,
)
from sluicegate.server.settings_shapes import JobSettings
from sluicegate.server.telemetry import JOB_GIVEN_UP, log
from sluicegate.store import CommitResult, ObjectQuery, Store

TICK_S = 1.0
"""The longest between two looks for jobs that are due."""
MAX_POLLS = 20
"""Jobs that are asked after at once."""
POLL_ANSWER_S = 120.0
"""How long a worker may take: results of a batch are read to their end."""
RARELY = 20
"""A job is never asked after more rarely than so many times `poll_every`."""
KEPT_S = 90 * 86_400.0
"""Files and ended jobs are forgotten after so long; what is there can still be asked of its provider by its id."""
SWEEP_S = 3600.0

Question = ObjectsAsked | ObjectPut | ObjectDropped | JobTold


class JobDesk:
    """Answers workers' questions for objects, and follows open jobs to their end."""

    def __init__(
        self,
        store: Store,
        drain: JournalDrain,
        bank: Bank,
        send: Callable[[int, ObjectsTold | JobAsked], None],
        live: Callable[[], Collection[int]],
        begin: Callable[[Coroutine[Any, Any, None]], None],
        on_settled: Callable[[CommitResult], None],
    ) -> None:
        """Open it.

        Args:
            send: tells a worker; nothing where it is gone.
            live: the worker processes that can be asked.
            begin: runs a task beside.
            on_settled: told of every settlement that was committed.
        """
        self.settings = JobSettings()
        self._store = store
        self._drain = drain
        self._bank = bank
        self._send = send
        self._live = live
        self._begin = begin
        self._on_settled = on_settled
        self._polls: dict[int, tuple[int, asyncio.Future[JobTold | None]]] = {}
        """By the number of the question: who was asked, and what waits for the answer."""
        self._asking: set[str] = set()
        """Requests whose jobs are being asked after."""
        self._questions = 0

    def hold(self, job: Job, worker: int | None) -> None:
        """Keep what is held for a job until it has ended.

        Args:
            worker: the process out of whose leases it is; None where none lives that leased it.
        """
        if job.prepaid:
            self._bank.book.hand_over(job.row.account_id, worker, job.amount_nano)
        if job.budget is not None and self._bank.budgets:
            self._bank.budgets.hand_over(job.budget, worker, job.amount_nano)

    def heard(self, worker: int, message: Question) -> None:
        """Take what a worker says."""
        if isinstance(message, JobTold) and message.polled:
            _, waiting = self._polls.get(message.question, (0, None))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
            return
        self._begin(self._answer(worker, message))

    def forget_worker(self, worker: int) -> None:
        """Wait no longer for a worker that has ended: another one is asked."""
        for asked, waiting in self._polls.values():
            if asked == worker and not waiting.done():
                waiting.set_result(None)

    async def run(self) -> None:
        """Ask after jobs that are due, until cancelled."""
        swept_at = 0.0
        while True:
            wait_s = min(TICK_S, self.settings.poll_every_s)
            try:
                await self._poll_due()
                if time.monotonic() - swept_at > SWEEP_S:
                    swept_at = time.monotonic()
                    await self._store.expire_objects(time.time() - KEPT_S)
            except StoreUnavailable:
                wait_s = TICK_S
            await asyncio.sleep(wait_s)

    # ---- questions --------------------------------------------------------------------------------------------------

    async def _answer(self, worker: int, message: Question) -> None:
        try:
            done, found = await self._perform(message)
        except StoreUnavailable:
            return  # unanswered, it ends as unavailable
        self._send(worker, ObjectsTold(message.question, done, found))

    async def _perform(self, message: Question) -> tuple[bool, list[KeptObject]]:
        match message:
            case ObjectsAsked():
                return True, await self._find(message.query)
            case ObjectPut():
                await self._store.put_object(message.object)
                return True, []
            case ObjectDropped():
                return await self._store.drop_object(message.object), []
            case JobTold():
                if message.end is None:
                    await self._postpone(message.object, message.told)
                else:
                    await self._settle(message.object, message.end)
                return True, []

    async def _find(self, query: ObjectQuery) -> list[KeptObject]:
        """Return objects; a job that has just been handed over may still stand in a journal alone."""
        found = await self._store.find_objects(query)
        if query.kind == "file" or (found and query.upstream_id is not None):
            return found
        await self._drain.drain()
        return await self._store.find_objects(query)

    # ---- our own poll -----------------------------------------------------------------------------------------------

    async def _poll_due(self) -> None:
        for kept in await self._store.open_jobs(time.time(), MAX_POLLS):
            assert kept.job is not None
            request_id = kept.job.row.request_id
            if request_id not in self._asking:
                self._asking.add(request_id)
                self._begin(self._poll(kept, request_id))

    async def _poll(self, kept: KeptObject, request_id: str) -> None:
        try:
            told = await self._ask_worker(kept)
            if told is not None and told.end is not None:
                await self._settle(kept, told.end)
            elif time.time() - kept.created_at > self.settings.give_up_after_s:
                log(JOB_GIVEN_UP, job=kept.name, request=request_id)
                await self._settle(kept, JobEnd(status="upstream_error", error="timeout", told=kept.told))
            else:
                await self._postpone(kept, None if told is None else told.told)
        except StoreUnavailable:
            pass  # it is still due
        finally:
            self._asking.discard(request_id)

    async def _ask_worker(self, kept: KeptObject) -> JobTold | None:
        """Have the provider asked by some worker; None where none says anything."""
        live = sorted(self._live())
        if not live:
            return None
        self._questions += 1
        question = self._questions
        waiting: asyncio.Future[JobTold | None] = asyncio.get_running_loop().create_future()
        worker = live[question % len(live)]
        self._polls[question] = (worker, waiting)
        self._send(worker, JobAsked(question, kept))
        try:
            async with asyncio.timeout(POLL_ANSWER_S):
                return await waiting
        except TimeoutError:
            return None
        finally:
            del self._polls[question]

    async def _postpone(self, kept: KeptObject, told: bytes | None) -> None:
        assert kept.job is not None
        every_s, now = self.settings.poll_every_s, time.time()
        wait_s = min(max((now - kept.created_at) / 4, every_s), RARELY * every_s)
        await self._store.postpone_job(kept.job.row.request_id, told, now + wait_s)

    # ---- the end ----------------------------------------------------------------------------------------------------

    async def _settle(self, kept: KeptObject, end: JobEnd) -> None:
        """Book a job's end, once; what it costs beyond what is held for it comes out of free credit, else is ours.

        Raises:
            StoreUnavailable: it is not booked.
        """
        job = kept.job
        assert job is not None
        async with self._drain.paused():
            now = time.time()
            covered = job.amount_nano + self._cover(job, end.list_cost_nano_usd - job.amount_nano)
            settled = settle_job(job, end, covered, now)
            try:
                result = await self._store.end_job(settled, end.told, end.files, now)
            except BaseException:
                self._free(job, covered - job.amount_nano)
                raise
            row = result.last
            if row is None:
                self._free(job, covered - job.amount_nano)  # somebody was first, and freed the rest
                return
            charged = row.cost_nano_usd
            self._bank.book.book(row.account_id, JOBS, charged)
            if self._bank.budgets:
                self._bank.budgets.book(row.key_id, day_of(row.started_at), charged, JOBS, held=row.limited)
            self._free(job, covered - charged)
        self._on_settled(result)

    def _cover(self, job: Job, missing: int) -> int:
        """Take what a charge needs beyond what is held, as far as credit and spending limits allow."""
        if missing <= 0:
            return 0
        got = missing
        if job.prepaid:
            got = self._bank.book.lease_part(job.row.account_id, JOBS, got).amount_nano
        if job.budget is not None and got:
            allowed = self._bank.budgets.lease_part(job.budget, JOBS, got).amount_nano
            if job.prepaid and allowed < got:
                self._bank.book.give_back(job.row.account_id, JOBS, got - allowed)
            got = allowed
        return got if job.prepaid or job.budget is not None else 0

    def _free(self, job: Job, amount_nano: int) -> None:
        if amount_nano <= 0:
            return
        if job.prepaid:
            book, account_id = self._bank.book, job.row.account_id
            book.give_back(account_id, JOBS, min(amount_nano, book.leased_to(account_id, JOBS)))
        if job.budget is not None and self._bank.budgets:
            budgets = self._bank.budgets
            budgets.give_back(job.budget, JOBS, min(amount_nano, budgets.leased_to(job.budget, JOBS)))
