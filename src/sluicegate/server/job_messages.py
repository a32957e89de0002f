"""What workers and supervisor say to each other of what providers keep; framing and the rest is `server.control`."""

import msgspec

from sluicegate.billing.ledger import JobEnd, KeptObject
from sluicegate.store import ObjectQuery


class ObjectsAsked(msgspec.Struct, tag="objects_asked", frozen=True):
    """What does this account have?"""

    question: int
    query: ObjectQuery


class ObjectPut(msgspec.Struct, tag="object_put", frozen=True):
    """A provider keeps this from now on."""

    question: int
    object: KeptObject


class ObjectDropped(msgspec.Struct, tag="object_dropped", frozen=True):
    """A provider keeps this no more."""

    question: int
    object: KeptObject


class JobTold(msgspec.Struct, tag="job_told", frozen=True):
    """What a provider says of a job: asked for by `JobAsked`, or a client did (then it waits for the settlement)."""

    question: int
    object: KeptObject
    told: bytes | None = None
    """None: it cannot be asked now."""
    end: JobEnd | None = None
    """None: it goes on."""
    polled: bool = False
    """This answers a `JobAsked`."""


class JobAsked(msgspec.Struct, tag="job_asked", frozen=True):
    """Ask the provider how a job is."""

    question: int
    object: KeptObject


class ObjectsTold(msgspec.Struct, tag="objects", frozen=True):
    """The answer to what a worker asks or says: whether it was done, and what was found."""

    question: int
    done: bool
    found: list[KeptObject] = []
