"""What supervisor and workers say to each other. Claims and generations have messages of their own.

A question carries a number that its answer repeats; answers come in any order. What the questions mean for credit
stands in `credit` (worker) and `bank` (supervisor), for limits in `limiting` and `limit_desk`.
"""

from typing import Any

import msgspec

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.limits import Grant, Return, Want
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
from sluicegate.server.probe_messages import ProbeAsked, ProbeTold
from sluicegate.server.settings_shapes import WorkerSettings
from sluicegate.store import KeptResponse

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


class Unanswered(msgspec.Struct, tag="unanswered", frozen=True):
    """There is an answer to a worker's question, but it cannot be said; told at once, so that nobody waits for it."""

    question: int
    why: str


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

ToQuestion = KeyAnswer | ResponseAnswer | Leased | Sliced | ClaimAnswer | GenerationTold | ObjectsTold
"""Answers to what workers asked."""

FromSupervisor = (
    Boot
    | KeysChanged
    | ToQuestion
    | Unanswered
    | Recall
    | Cautious
    | SupervisorBeat
    | DeploymentHealth
    | RunningAsked
    | JobAsked
    | ProbeAsked
    | Order
)


# ── from a worker ───────────────────────────────────────────────────────────────────────────────────────────


class Serving(msgspec.Struct, tag="serving", frozen=True):
    """The worker accepts connections."""


class Leaving(msgspec.Struct, tag="leaving", frozen=True):
    """The worker drains because someone told it to: its slot needs a successor now."""


class WorkerBeat(msgspec.Struct, tag="beat", frozen=True):
    """The worker's loop runs."""

    journal_failed: bool = False
    """It takes no requests: the disk of its journal has failed."""


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

    `values` is `tally.Tally.snapshot()`.
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
    | ProbeTold
    | Counters
)
