"""What workers and supervisor say to each other of single requests; framing and the rest is `server.control`."""

import msgspec

from sluicegate.billing.ledger import UsageRow


class GenerationAsked(msgspec.Struct, tag="generation_asked", frozen=True):
    """Where does this request of this key stand?"""

    question: int
    key_id: str
    request_id: str


class GenerationTold(msgspec.Struct, tag="generation", frozen=True):
    """The answer to it."""

    question: int
    row: UsageRow | None
    """None: there is no such request, or not of this key."""
    running: bool = False


class RunningAsked(msgspec.Struct, tag="running_asked", frozen=True):
    """The same, of the worker that may be serving it."""

    question: int
    key_id: str
    request_id: str


class RunningTold(msgspec.Struct, tag="running", frozen=True):
    """The worker's answer: the row as it would be now; None: it serves no such request."""

    question: int
    row: UsageRow | None
