"""What workers and supervisor say to each other of idempotency keys; framing and the rest is `server.control`."""

import msgspec

from sluicegate.billing.claims import Claim, KeptAnswer, Verdict


class ClaimAsked(msgspec.Struct, tag="claim_asked", frozen=True):
    """Is this name free? If so it is ours from now on."""

    question: int
    claim: Claim


class ClaimEnded(msgspec.Struct, tag="claim_ended", frozen=True):
    """A claim's request has ended; the answer says that this is noted."""

    question: int
    claim: Claim
    done: bool
    """False: it was as if it had not been made, so a repeat may be."""
    answer: KeptAnswer | None = None


class ClaimAnswer(msgspec.Struct, tag="claim", frozen=True):
    """The answer to either."""

    question: int
    verdict: Verdict | None
    """Of a ClaimAsked."""
