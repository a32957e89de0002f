"""What supervisor and workers say to each other, how it is framed, and the worker's end of it.

Each worker process has one socket to the supervisor, inherited when it starts. A frame is four bytes of
length (big endian) and one msgpack map tagged by its type. Frames are answered in any order; a question
carries a number that its answer repeats. The same framing serves `control.sock` (`control_socket.py`).

What the questions mean for credit stands in `credit.py` (worker) and `bank.py` (supervisor).
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.ledger import UsageRow
from sluicegate.billing.limits import Grant, Return, Want
from sluicegate.errors import DecodeError, StoreUnavailable
from sluicegate.server.claim_messages import ClaimAnswer, ClaimAsked, ClaimEnded
from sluicegate.server.generation_messages import GenerationAsked, GenerationTold, RunningAsked, RunningTold
from sluicegate.server.job_messages import (
    JobAsked,
    JobTold,
    ObjectDropped,
    ObjectPut,
    ObjectsAsked,
    ObjectsTold,
)
from sluicegate.server.settings import WorkerSettings
from sluicegate.store import KeptResponse

MAX_FRAME_BYTES = 256 * 1024 * 1024
"""Bounds what the supervisor sends: settings, or all keys."""
MAX_WORKER_FRAME_BYTES = 64 * 1024 * 1024
"""Bounds what a worker sends; an answer to be kept, with its input, is the largest."""

BEAT_S = 1.0
SILENCE_S = 5.0
"""A peer that has said nothing for so long is taken for stuck."""
ANSWER_S = 1.0
"""The longest that a request waits for the supervisor before it is admitted."""
WAKE_S = 0.02
"""Wakes of the supervisor are gathered for so long."""
LOOKUPS_PER_S = 200.0
LOOKUPS_BURST = 400.0
MISS_S = 1.0
"""How long a key that the supervisor does not know stays unknown without asking again."""


# ── from the supervisor ─────────────────────────────────────────────────────────────────────────────────────


class DeploymentHealth(msgspec.Struct, tag="health", frozen=True):
    """What a worker found of a deployment: told by it to the supervisor, and by that to the other workers."""

    provider: str
    model: str
    opens: int
    """How often its breaker opened since it last worked; 0: it is closed."""
    open_s: float
    """How long it stays open from now on."""
    cooling_s: float
    """How long it wants to be left alone."""
    kind: str
    """Of the error that led to it."""


class Boot(msgspec.Struct, tag="boot", frozen=True):
    """The first frame: all that a worker needs to start."""

    number: int
    """Of the worker process; never reused."""
    settings: WorkerSettings
    keys: list[KeyRecord]
    health: list[DeploymentHealth] = []
    cautious: list[str] = []


class Configure(msgspec.Struct, tag="configure", frozen=True):
    """The configuration was reloaded."""

    settings: WorkerSettings


class KeysChanged(msgspec.Struct, tag="keys", frozen=True):
    """Keys made or changed (revoked ones too), and hashes that are gone."""

    changed: list[KeyRecord]
    removed: list[bytes] = []


class KeyAnswer(msgspec.Struct, tag="key", frozen=True):
    """The answer to KeyAsked."""

    question: int
    key: KeyRecord | None


class Leased(msgspec.Struct, tag="leased", frozen=True):
    """The answer to LeaseAsked; 0 is a refusal."""

    question: int
    account_id: str
    amount_nano: int
    available_nano: int
    """What was free before the grant."""
    scarce: bool
    """Whatever is not needed goes back at once, until a lease says otherwise."""
    limit: str = ""
    """The window of the spending limit that leaves no more, where it was asked for a budget."""


class Cautious(msgspec.Struct, tag="cautious", frozen=True):
    """The accounts whose streams hold their whole output limit from now on, all of them; see `billing.shortfall`."""

    accounts: list[str]


class ResponseAnswer(msgspec.Struct, tag="response", frozen=True):
    """The answer to a question about answers that are kept: whether it was done, and what was found."""

    question: int
    done: bool
    found: list[KeptResponse] = []


class Sliced(msgspec.Struct, tag="sliced", frozen=True):
    """The answer to SlicesAsked."""

    question: int
    grant: Grant


class Recall(msgspec.Struct, tag="recall", frozen=True):
    """Give back what is idle of this account, answer with GivenBack, and keep nothing idle from now on."""

    question: int
    account_id: str


class CountersAsked(msgspec.Struct, tag="counters_asked", frozen=True):
    """Asks for a snapshot of the worker's counters."""

    question: int


class Adopt(msgspec.Struct, tag="adopt", frozen=True):
    """Accept also from the sockets of a slot that has no worker."""

    slot: int


class Release(msgspec.Struct, tag="release", frozen=True):
    """The slot has its own worker again."""

    slot: int


class Drain(msgspec.Struct, tag="drain", frozen=True):
    """Refuse new requests, finish the running ones within the time, and exit."""

    timeout_s: float


class SupervisorBeat(msgspec.Struct, tag="beat", frozen=True):
    """The supervisor lives."""

    store_answers: bool


Order = Configure | CountersAsked | Adopt | Release | Drain
"""What the worker process itself carries out; the link and its Credit see to the rest."""

FromSupervisor = (
    Boot
    | KeysChanged
    | KeyAnswer
    | ResponseAnswer
    | Leased
    | Sliced
    | Recall
    | Cautious
    | SupervisorBeat
    | DeploymentHealth
    | ClaimAnswer
    | GenerationTold
    | RunningAsked
    | ObjectsTold
    | JobAsked
    | Order
)


# ── from a worker ───────────────────────────────────────────────────────────────────────────────────────────


class Serving(msgspec.Struct, tag="serving", frozen=True):
    """The worker accepts connections."""


class Leaving(msgspec.Struct, tag="leaving", frozen=True):
    """The worker drains because someone told it to: its slot needs a successor now."""


class WorkerBeat(msgspec.Struct, tag="beat", frozen=True):
    """The worker's loop runs."""


class KeyAsked(msgspec.Struct, tag="key_asked", frozen=True):
    """Is there a key with this hash?"""

    question: int
    hash: bytes


class LeaseAsked(msgspec.Struct, tag="lease_asked", frozen=True):
    """Credit of an account is needed: all of it, or, where `part`, as much as there is."""

    question: int
    account_id: str
    amount_nano: int
    part: bool = False


class GivenBack(msgspec.Struct, tag="given_back", frozen=True):
    """Leased credit that is not needed; the answer to a Recall repeats its number, else 0."""

    account_id: str
    amount_nano: int
    question: int = 0


class SlicesAsked(msgspec.Struct, tag="slices_asked", frozen=True):
    """Slices of limits are needed: all of them, or none."""

    question: int
    wants: list[Want]


class SlicesBack(msgspec.Struct, tag="slices_back", frozen=True):
    """Parts of slices that are not needed, and what was used beyond."""

    back: list[Return]


class ResponseAsked(msgspec.Struct, tag="response_asked", frozen=True):
    """What is kept of an account under an id, with the conversation before it where `whole`?"""

    question: int
    account_id: str
    id: str
    whole: bool


class ResponseKept(msgspec.Struct, tag="response_kept", frozen=True):
    """Keep an answer."""

    question: int
    response: KeptResponse


class RunChanged(msgspec.Struct, tag="run", frozen=True):
    """A run in the background is not settled yet, or is not open any more."""

    name: str
    open: bool


class RunAsked(msgspec.Struct, tag="run_asked", frozen=True):
    """Is a run not settled yet?"""

    question: int
    name: str


class ResponseDropped(msgspec.Struct, tag="response_dropped", frozen=True):
    """Delete an answer."""

    question: int
    account_id: str
    id: str


class JournalGrew(msgspec.Struct, tag="wake", frozen=True):
    """There are new records in the worker's journal."""


class Counters(msgspec.Struct, tag="counters", frozen=True):
    """The answer to CountersAsked, and the last words of a worker that drained (question 0).

    `values` is `telemetry.Tally.snapshot()`.
    """

    question: int
    values: dict[str, list[Any]]


FromWorker = (
    Serving
    | Leaving
    | WorkerBeat
    | KeyAsked
    | LeaseAsked
    | GivenBack
    | SlicesAsked
    | SlicesBack
    | JournalGrew
    | DeploymentHealth
    | ClaimAsked
    | ClaimEnded
    | ResponseAsked
    | ResponseKept
    | ResponseDropped
    | GenerationAsked
    | RunningTold
    | RunChanged
    | RunAsked
    | ObjectsAsked
    | ObjectPut
    | ObjectDropped
    | JobTold
    | Counters
)

Answer = TypeVar("Answer", ClaimAnswer, GenerationTold, ObjectsTold)


# ── framing ─────────────────────────────────────────────────────────────────────────────────────────────────

_encoder = msgspec.msgpack.Encoder()
_from_supervisor: msgspec.msgpack.Decoder[FromSupervisor] = msgspec.msgpack.Decoder(FromSupervisor)
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def encode_frame(message: Any) -> bytes:
    """Return a message as a frame."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


class FrameSplitter:
    """Cuts a byte stream into the bodies of its frames."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bodies that are whole now.

        Raises:
            DecodeError: a frame says that it is longer than allowed.
        """
        self._rest += data
        bodies = []
        start, end = 0, len(self._rest)
        while end - start >= 4:
            size = int.from_bytes(self._rest[start : start + 4], "big")
            if size > self._max_bytes:
                raise DecodeError("control", start, f"a frame of {size} bytes")
            if end - start - 4 < size:
                break
            bodies.append(bytes(self._rest[start + 4 : start + 4 + size]))
            start += 4 + size
        del self._rest[:start]
        return bodies


Message = TypeVar("Message")


class Channel(asyncio.Protocol, Generic[Message]):
    """One end of a control connection: messages out, decoded messages in.

    `on_lost` is called once: with None when the peer closed, with the error when it sent what is no message
    of ours (the connection is closed then).
    """

    def __init__(
        self,
        decode: Callable[[bytes], Message],
        max_frame_bytes: int,
        on_message: Callable[[Message], None],
        on_lost: Callable[[DecodeError | None], None],
    ) -> None:
        self._decode = decode
        self._splitter = FrameSplitter(max_frame_bytes)
        self._on_message = on_message
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._error: DecodeError | None = None

    def send(self, message: Any) -> None:
        """Send a message; silently nothing once the connection is gone, which `on_lost` tells."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(message))

    @property
    def is_open(self) -> bool:
        """Whether the peer may still hear us."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Close after what was sent has left."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods, not by its class
        # The peer reads or is killed within seconds, so what waits to be written needs no bound here.
        transport.set_write_buffer_limits(high=MAX_FRAME_BYTES)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._splitter.feed(data):
                self._on_message(self._decode(body))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(DecodeError("control", None, str(error)))
        except DecodeError as error:
            self._refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost(self._error)

    def _refuse(self, error: DecodeError) -> None:
        self._error = self._error or error
        if self._transport is not None:
            self._transport.abort()


async def open_supervisor_end(
    sock: socket.socket,
    on_message: Callable[[FromWorker], None],
    on_lost: Callable[[DecodeError | None], None],
) -> "Channel[FromWorker]":
    """Take the supervisor's end of a worker's socket into the running loop."""
    return await _open(sock, Channel(_from_worker.decode, MAX_WORKER_FRAME_BYTES, on_message, on_lost))


async def _open(sock: socket.socket, channel: Channel[Message]) -> Channel[Message]:
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: channel, sock=sock)
    return channel


# ── the worker's end ────────────────────────────────────────────────────────────────────────────────────────


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
        self.lost = asyncio.Event()
        """Set when the supervisor is gone for good."""
        self._loop = asyncio.get_running_loop()
        self._on_order: Callable[[Order], None] | None = None
        self._early_orders: list[Order] = []
        self._on_health: Callable[[DeploymentHealth], None] | None = None
        self._early_health: list[DeploymentHealth] = []
        self._boot: asyncio.Future[Boot] = self._loop.create_future()
        self._channel: Channel[FromSupervisor] = Channel(
            _from_supervisor.decode, MAX_FRAME_BYTES, self._received, self._lost
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
        await _open(sock, link._channel)
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
        """Tell the supervisor something."""
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
        waiting: asyncio.Future[Any] = self._loop.create_future()
        self._asked[question] = waiting
        self.send(message)
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
        lookup: asyncio.Future[KeyRecord | None] = self._loop.create_future()
        self._lookups[key_hash] = lookup
        self._asked_hashes[question] = key_hash
        self.send(KeyAsked(question, key_hash))
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
                self.send(WorkerBeat())
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
            case ClaimAnswer() | GenerationTold() | ResponseAnswer() | ObjectsTold():
                waiting = self._asked.pop(message.question, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
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
                self.keys = {key.hash: key for key in message.keys}
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
        if answer.key is not None:
            self.keys[key_hash] = answer.key
        else:
            now = self._loop.time()
            if len(self._misses) > 2 * LOOKUPS_BURST:
                self._misses = {missed: at for missed, at in self._misses.items() if now - at < MISS_S}
            self._misses[key_hash] = now
        lookup = self._lookups.pop(key_hash)
        if not lookup.done():
            lookup.set_result(answer.key)

    def _keys_changed(self, change: KeysChanged) -> None:
        for key in change.changed:
            self.keys[key.hash] = key
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
