"""A worker's end of its connection to the supervisor: the keys, questions that wait for answers, and orders."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.ledger import UsageRow
from sluicegate.errors import DecodeError, StoreUnavailable
from sluicegate.server.claim_messages import ClaimAnswer
from sluicegate.server.control import (
    ANSWER_S,
    MAX_FRAME_BYTES,
    MAX_WORKER_FRAME_BYTES,
    SILENCE_S,
    Channel,
    open_end,
)
from sluicegate.server.control_messages import (
    Boot,
    Cautious,
    DeploymentHealth,
    FromSupervisor,
    FromWorker,
    GivenBack,
    JournalGrew,
    KeyAnswer,
    KeyAsked,
    KeysChanged,
    Leased,
    Order,
    Recall,
    ResponseAnswer,
    ResponseAsked,
    ResponseDropped,
    ResponseKept,
    RunAsked,
    Sliced,
    SupervisorBeat,
    Unanswered,
    WorkerBeat,
)
from sluicegate.server.generation_messages import GenerationTold, RunningAsked, RunningTold
from sluicegate.server.job_messages import JobAsked, JobTold, ObjectsTold
from sluicegate.server.probe_messages import ProbeAsked, ProbeTold

WAKE_S: Final = 0.05
"""Wakes of the supervisor are gathered for so long."""
LOOKUPS_PER_S = 200.0
"""Keys that are not in memory are asked for so often at the most; more are refused with 503."""
LOOKUPS_BURST = 400.0
MISS_S = 1.0
"""How long a key that the supervisor does not know stays unknown without asking again."""

_from_supervisor: msgspec.msgpack.Decoder[FromSupervisor] = msgspec.msgpack.Decoder(FromSupervisor)

Answer = TypeVar("Answer", ClaimAnswer, GenerationTold, ObjectsTold)


class SupervisorLink:
    """A worker's end of the control connection: the keys, the questions, and the supervisor's orders.

    `on_leased` and `on_recall` are set by the worker's Credit. Invariant: every question that waits ends with
    an answer, or with StoreUnavailable after its time or when the connection goes.
    """

    def __init__(self) -> None:
        self.keys: dict[bytes, KeyRecord] = {}
        """Every key by its hash, revoked ones too."""
        self.cautious: frozenset[str] = frozenset()
        """Accounts whose streams hold their whole output limit; hardly ever any."""
        self.on_leased: Callable[[Leased], None] | None = None
        self.on_recall: Callable[[Recall], None] | None = None
        self.on_sliced: Callable[[Sliced], None] | None = None
        """Set by the worker's LimitClerk."""
        self.on_lease_lost: Callable[[], None] | None = None
        """The connection is gone: no lease comes any more."""
        self.on_running_asked: Callable[[str, str], UsageRow | None] | None = None
        """Finds the row of a running request by the ids of its key and its own."""
        self.on_job_asked: Callable[[JobAsked], None] | None = None
        """Has a provider asked how a job is."""
        self.on_probe_asked: Callable[[ProbeAsked], None] | None = None
        """Has a provider probed."""
        self.journal_failed: Callable[[], bool] = lambda: False
        """Whether the worker takes no requests because the disk of its journal has failed."""
        self.lost = asyncio.Event()
        """Set when the supervisor is gone for good."""
        self._loop = asyncio.get_running_loop()
        self._on_order: Callable[[Order], None] | None = None
        self._early_orders: list[Order] = []
        self._on_health: Callable[[DeploymentHealth], None] | None = None
        self._early_health: list[DeploymentHealth] = []
        self._boot: asyncio.Future[Boot] = self._loop.create_future()
        self._channel: Channel[FromSupervisor] = Channel(
            _from_supervisor.decode, MAX_FRAME_BYTES, self._received, self._lost, MAX_WORKER_FRAME_BYTES
        )
        self._questions = 0
        self._lookups: dict[bytes, asyncio.Future[KeyRecord | None]] = {}
        self._asked_hashes: dict[int, bytes] = {}
        self._misses: dict[bytes, float] = {}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._lookup_tokens = LOOKUPS_BURST
        self._lookups_at = self._loop.time()
        self._heard_at = self._loop.time()
        self._store_answers = False
        self._wake_due = False

    @classmethod
    async def open(cls, sock: socket.socket) -> "SupervisorLink":
        """Take over the inherited socket."""
        link = cls()
        await open_end(sock, link._channel)
        return link

    async def booted(self) -> Boot:
        """Wait for the first frame.

        Raises:
            StoreUnavailable: the supervisor went before it came.
        """
        return await self._boot

    def take_orders(self, on_order: "Callable[[Order], None]") -> None:
        """Hand over the supervisor's orders from now on, those first that came while the worker was built."""
        self._on_order = on_order
        early, self._early_orders = self._early_orders, []
        for order in early:
            on_order(order)

    def take_health(self, on_health: "Callable[[DeploymentHealth], None]") -> None:
        """Hand over what other workers find of deployments, and what they had found before we were there."""
        self._on_health = on_health
        early, self._early_health = self._early_health, []
        for told in early:
            on_health(told)

    @property
    def ready(self) -> bool:
        """Whether the supervisor is there and its store answers."""
        return (
            self._store_answers and self._loop.time() - self._heard_at < SILENCE_S and self._channel.is_open
        )

    def send(self, message: FromWorker) -> None:
        """Tell the supervisor something.

        Raises:
            MessageUnsent: it cannot be encoded. Who asks sends before it waits.
        """
        self._channel.send(message)

    def next_question(self) -> int:
        """Return a number for a question; never 0."""
        self._questions += 1
        return self._questions

    def wake(self) -> None:
        """Tell the supervisor soon that this worker's journal has news; many calls make one frame."""
        if not self._wake_due:
            self._wake_due = True
            self._loop.call_later(WAKE_S, self._wake_now)

    async def find_key(self, key_hash: bytes) -> KeyRecord | None:
        """Return a key that may not have been pushed yet; None where there is none.

        Raises:
            StoreUnavailable: no answer within a second, or too many look-ups of unknown keys.
        """
        key = self.keys.get(key_hash)
        if key is not None:
            return key
        missed_at = self._misses.get(key_hash)
        if missed_at is not None and self._loop.time() - missed_at < MISS_S:
            return None
        lookup = self._lookups.get(key_hash)
        if lookup is None:
            lookup = self._ask_for_key(key_hash)
        try:
            async with asyncio.timeout(ANSWER_S):
                # Shielded, as others may wait for the same look-up.
                return await asyncio.shield(lookup)
        except TimeoutError:
            raise StoreUnavailable("the key could not be looked up in time") from None

    async def ask(self, message: Callable[[int], FromWorker], answer: type[Answer]) -> Answer:
        """Ask the supervisor something that it answers by the number of the question.

        Args:
            message: made with that number.
            answer: what it is answered with.
        Raises:
            StoreUnavailable: no answer within a second.
        """
        question = self.next_question()
        told: Answer = await self._answer(question, message(question))
        return told

    async def ask_keeper(
        self, question: ResponseAsked | ResponseKept | ResponseDropped | RunAsked
    ) -> ResponseAnswer:
        """Ask about answers that are kept.

        Raises:
            StoreUnavailable: no answer within a second.
        """
        told: ResponseAnswer = await self._answer(question.question, question)
        return told

    async def _answer(self, question: int, message: FromWorker) -> Any:
        if not self._channel.is_open:
            raise StoreUnavailable("the supervisor is gone")
        self.send(message)
        waiting: asyncio.Future[Any] = self._loop.create_future()
        self._asked[question] = waiting
        try:
            async with asyncio.timeout(ANSWER_S):
                return await waiting
        except TimeoutError:
            raise StoreUnavailable("the supervisor did not answer in time") from None
        finally:
            self._asked.pop(question, None)

    def close(self) -> None:
        """Close the connection after what was sent has left."""
        self._channel.close()

    def _ask_for_key(self, key_hash: bytes) -> "asyncio.Future[KeyRecord | None]":
        now = self._loop.time()
        self._lookup_tokens = min(
            LOOKUPS_BURST, self._lookup_tokens + (now - self._lookups_at) * LOOKUPS_PER_S
        )
        self._lookups_at = now
        if self._lookup_tokens < 1 or not self._channel.is_open:
            raise StoreUnavailable("too many look-ups of keys")
        self._lookup_tokens -= 1
        question = self.next_question()
        self.send(KeyAsked(question, key_hash))
        lookup: asyncio.Future[KeyRecord | None] = self._loop.create_future()
        self._lookups[key_hash] = lookup
        self._asked_hashes[question] = key_hash
        return lookup

    def _wake_now(self) -> None:
        self._wake_due = False
        self.send(JournalGrew())

    def _received(self, message: FromSupervisor) -> None:
        self._heard_at = self._loop.time()
        match message:
            case Leased():
                if self.on_leased is not None:
                    self.on_leased(message)
            case Sliced():
                if self.on_sliced is not None:
                    self.on_sliced(message)
            case Recall():
                if self.on_recall is not None:
                    self.on_recall(message)
                else:
                    self.send(GivenBack(message.account_id, 0, message.question))
            case SupervisorBeat():
                self._store_answers = message.store_answers
                self.send(WorkerBeat(self.journal_failed()))
            case KeyAnswer():
                self._key_answered(message)
            case RunningAsked():
                found = self.on_running_asked
                row = None if found is None else found(message.key_id, message.request_id)
                self.send(RunningTold(message.question, row))
            case JobAsked():
                if self.on_job_asked is not None:
                    self.on_job_asked(message)
                else:  # the worker is being built: another time
                    self.send(JobTold(message.question, message.object, polled=True))
            case ProbeAsked():
                if self.on_probe_asked is not None:
                    self.on_probe_asked(message)
                else:
                    self.send(ProbeTold(message.question, "unclear"))
            case ClaimAnswer() | GenerationTold() | ResponseAnswer() | ObjectsTold():
                waiting = self._asked.pop(message.question, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
            case Unanswered():
                self._unanswered(message)
            case KeysChanged():
                self._keys_changed(message)
            case Cautious():
                self.cautious = frozenset(message.accounts)
            case DeploymentHealth():
                if self._on_health is not None:
                    self._on_health(message)
                else:
                    self._early_health.append(message)
            case Boot():
                self.keys = {key.hash: KeyRecord(key) for key in message.keys}
                self.cautious = frozenset(message.cautious)
                self._early_health += message.health
                if not self._boot.done():
                    self._boot.set_result(message)
            case _:
                if self._on_order is not None:
                    self._on_order(message)
                else:
                    self._early_orders.append(message)

    def _key_answered(self, answer: KeyAnswer) -> None:
        key_hash = self._asked_hashes.pop(answer.question, None)
        if key_hash is None:
            return
        key = None if answer.key is None else KeyRecord(answer.key)
        if key is not None:
            self.keys[key_hash] = key
        else:
            now = self._loop.time()
            if len(self._misses) > 2 * LOOKUPS_BURST:
                self._misses = {missed: at for missed, at in self._misses.items() if now - at < MISS_S}
            self._misses[key_hash] = now
        lookup = self._lookups.pop(key_hash)
        if not lookup.done():
            lookup.set_result(key)

    def _unanswered(self, told: Unanswered) -> None:
        """End a question that cannot be answered. Those for leases and slices end by their time: they hold amounts."""
        key_hash = self._asked_hashes.pop(told.question, None)
        waiting = self._asked.pop(told.question, None) if key_hash is None else self._lookups.pop(key_hash)
        if waiting is not None and not waiting.done():
            waiting.set_exception(StoreUnavailable(f"the supervisor cannot answer: {told.why}"))
            waiting.exception()  # retrieved here, as those who asked may have left

    def _keys_changed(self, change: KeysChanged) -> None:
        for key in change.changed:
            self.keys[key.hash] = KeyRecord(key)
            self._misses.pop(key.hash, None)
        for key_hash in change.removed:
            self.keys.pop(key_hash, None)

    def _lost(self, error: DecodeError | None) -> None:
        gone = StoreUnavailable("the supervisor is gone")
        if not self._boot.done():
            self._boot.set_exception(gone)
            self._boot.exception()
        for lookup in self._lookups.values():
            if not lookup.done():
                lookup.set_exception(gone)
                lookup.exception()  # retrieved here, as those who asked may have left
        self._lookups.clear()
        self._asked_hashes.clear()
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(gone)
                waiting.exception()
        self._asked.clear()
        if self.on_lease_lost is not None:
            self.on_lease_lost()
        self.lost.set()
