"""Idempotency keys in the store: claimed in one transaction, so that of any number of repeats one request is made.

A claim is `running` until its request's end is noted. Where nobody could note it (its worker was killed), the request's
usage row tells: recovery has written one for every request that was reserved. Rules are `billing.claims`.
"""

import msgspec
from sqlalchemy import Connection, delete, func, insert, select, update

from sluicegate.billing.claims import KEPT_S, Claim, KeptAnswer, Verdict, stands
from sluicegate.billing.ledger import UsageRow
from sluicegate.store.schema import CLAIMS, USAGE

MAX_CLAIMS = 1_000_000
"""In all; beyond it the oldest that are done go before their time."""
NOTED_WITHIN_S = 2.0
"""Between a request's settlement and the note of its end, which waits in line behind what others ask."""
MAX_ANSWERS_BYTES = 268_435_456
"""Of all answers together; beyond it the oldest are forgotten, and a repeat is told 422 instead."""

_decode_row = msgspec.json.Decoder(UsageRow).decode


def make_claim(connection: Connection, claim: Claim, worker: int, at: float) -> Verdict:
    """Claim a name, or tell who has it."""
    named = CLAIMS.c.key_id == claim.key_id, CLAIMS.c.name == claim.name
    known = connection.execute(select(CLAIMS).where(*named)).first()
    if known is not None and known.at > at - KEPT_S:
        if known.asked != claim.asked:
            return Verdict(standing="other", request_id=known.request_id)
        if known.done:
            answer = None if known.answer is None else KeptAnswer(known.head, known.answer)
            return Verdict(standing="done", request_id=known.request_id, answer=answer)
        of_it = select(USAGE.c.row).where(USAGE.c.request_id == known.request_id)
        row = connection.execute(of_it).scalar()
        if row is None:
            return Verdict(standing="running", request_id=known.request_id)
        settled = _decode_row(row)
        if stands(settled) and at < _noted_by(settled):
            return Verdict(standing="running", request_id=known.request_id)
        if stands(settled):
            connection.execute(update(CLAIMS).where(*named).values(done=True))
            return Verdict(standing="done", request_id=known.request_id)
    if known is not None:
        connection.execute(delete(CLAIMS).where(*named))
    values = {
        "key_id": claim.key_id,
        "name": claim.name,
        "asked": claim.asked,
        "request_id": claim.request_id,
    }
    connection.execute(insert(CLAIMS), values | {"worker": worker, "done": False, "at": at})
    return Verdict(standing="new", request_id=claim.request_id)


def _noted_by(row: UsageRow) -> float:
    """Return until when a request's end may still be noted, with its answer, after its row is here."""
    if row.status == "interrupted":  # nobody is left who would
        return 0.0
    return row.started_at + (row.duration_ms or 0.0) / 1000 + NOTED_WITHIN_S


def end_claim(connection: Connection, claim: Claim, done: bool, answer: KeptAnswer | None) -> None:
    """Note how a claim's request ended: done, with the answer to give again; or as if it had not been made."""
    ours = (
        CLAIMS.c.key_id == claim.key_id,
        CLAIMS.c.name == claim.name,
        CLAIMS.c.request_id == claim.request_id,
    )
    if not done:
        connection.execute(delete(CLAIMS).where(*ours))
        return
    kept = {} if answer is None else {"head": answer.head, "answer": answer.body}
    connection.execute(update(CLAIMS).where(*ours).values(done=True, **kept))


def release_claims(connection: Connection, worker: int | None) -> None:
    """Let go of what a dead worker had claimed, and then never reserved anything for; None: of all workers.

    Its journal must be committed, so that every request that it had reserved has a usage row.
    """
    left = delete(CLAIMS).where(
        CLAIMS.c.done.is_(False),
        CLAIMS.c.request_id.not_in(
            select(USAGE.c.request_id).where(USAGE.c.request_id == CLAIMS.c.request_id)
        ),
    )
    connection.execute(left if worker is None else left.where(CLAIMS.c.worker == worker))


def prune_claims(connection: Connection, at: float) -> None:
    """Forget claims whose time is over, and the oldest of too many."""
    connection.execute(delete(CLAIMS).where(CLAIMS.c.at <= at - KEPT_S))
    too_many = connection.execute(select(func.count()).select_from(CLAIMS)).scalar_one() - MAX_CLAIMS
    if too_many > 0:
        oldest = select(CLAIMS.c.request_id).where(CLAIMS.c.done).order_by(CLAIMS.c.at).limit(too_many)
        connection.execute(delete(CLAIMS).where(CLAIMS.c.request_id.in_(oldest)))
    size = func.length(CLAIMS.c.answer)
    kept = CLAIMS.c.answer.is_not(None)
    total = connection.execute(select(func.coalesce(func.sum(size), 0)).where(kept)).scalar_one()
    if total <= MAX_ANSWERS_BYTES:
        return
    by_age = select(CLAIMS.c.request_id, size).where(kept).order_by(CLAIMS.c.at)
    forgotten = []
    for request_id, bytes_ in connection.execute(by_age):
        forgotten.append({"which": request_id})
        total -= bytes_
        if total <= MAX_ANSWERS_BYTES:
            break
    for each in forgotten:
        of_it = CLAIMS.c.request_id == each["which"]
        connection.execute(update(CLAIMS).where(of_it).values(head=None, answer=None))
