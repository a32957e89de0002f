"""Idempotency keys: which repeats of a request are answered again, refused, or served.

A request that brings an `Idempotency-Key` *claims* it for its key of the gate. What a claim remembers is the request's
id, a keyed hash of what was asked, and of a plain answer that was given the answer; never the request itself. Keeping
claims is `store.claims`, asking for them `server.idempotency`.
"""

from typing import Literal

import msgspec

from sluicegate.billing.ledger import UsageRow

KEPT_S = 86_400.0
"""How long a claim stands."""
MAX_ANSWER_BYTES = 1_048_576
"""A longer answer is not kept; nor is a streamed one."""
MAX_NAME_CHARS = 255


class KeptAnswer(msgspec.Struct, frozen=True):
    """A plain answer with status 200, as its client got it."""

    head: bytes
    """Header lines, each with its CRLF, without length and connection."""
    body: bytes


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks for what under which name."""

    key_id: str
    name: bytes
    """Keyed hash of the `Idempotency-Key`."""
    asked: bytes
    """Keyed hash of path and body."""
    request_id: str


Standing = Literal["new", "running", "done", "other"]
"""What a name is when it is asked for: ours from now on; of a request that runs, or that is done; or of another one."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is known under a name."""

    standing: Standing
    request_id: str
    """Of the request that claimed it: our own where it is new."""
    answer: KeptAnswer | None = None
    """Of one that is done, where it was kept."""


def stands(row: UsageRow) -> bool:
    """Whether a settled request counts as made. One that came to nothing, and cost nothing, may be made again."""
    return row.status == "ok" or row.cost_nano_usd > 0 or row.shortfall_nano_usd > 0
