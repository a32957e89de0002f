"""`Idempotency-Key` in the worker: a repeat of a request is answered again, or told why it is not, and charged once.

Only requests that bring the header come here. One claims its name before anything is reserved; a plain answer, or the
last bytes of a stream, are then held until the supervisor has noted the end, so that a repeat that the client sends on
seeing them finds it done. What a name means is `billing.claims`.
"""

import hashlib
import hmac

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.claims import MAX_ANSWER_BYTES, MAX_NAME_CHARS, Claim, KeptAnswer, stands
from sluicegate.billing.ledger import UsageRow
from sluicegate.errors import (
    AlreadyServed,
    BadRequest,
    IdempotencyKeyReused,
    RequestRunning,
    StoreUnavailable,
)
from sluicegate.server.claim_messages import ClaimAnswer, ClaimAsked, ClaimEnded
from sluicegate.server.exchange import Exchange
from sluicegate.server.supervisor_link import SupervisorLink

REPLAYED = b"idempotent-replayed: true\r\n"


class HeldEnd:
    """Takes the end of an answer in the exchange's place, until it may leave."""

    __slots__ = ("_exchange", "answer", "last")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.answer: tuple[int, bytes, bytes] | None = None
        """A whole answer: status, header lines, body."""
        self.last: bytes | None = None
        """What ends a stream."""
        exchange.held_end = self

    def release(self) -> None:
        """Send what was held."""
        exchange = self._exchange
        exchange.held_end = None
        if exchange.gone or exchange.ended:
            return
        if self.answer is not None:
            exchange.respond(*self.answer)
        elif self.last is not None:
            exchange.end(self.last)

    @property
    def kept(self) -> KeptAnswer | None:
        """What a repeat can be given."""
        if self.answer is None:
            return None
        status, head, body = self.answer
        fits = status == 200 and len(head) + len(body) <= MAX_ANSWER_BYTES
        return KeptAnswer(head, body) if fits else None


class ClaimedRequest:
    """A request that has claimed its name. `end` must be called, however it ends."""

    def __init__(self, link: SupervisorLink, claim: Claim, exchange: Exchange, *, keeps: bool) -> None:
        """Args: keeps: a repeat may be given the answer."""
        self._keeps = keeps
        self._link = link
        self._claim = claim
        self._held = HeldEnd(exchange)
        self._told = False

    async def tell(self) -> None:
        """Let a whole answer leave while its request goes on: from here on it counts as done."""
        self._told = True
        try:
            await self._note(done=True)
        except StoreUnavailable:
            self._told = False
        finally:
            self._held.release()

    async def end(self, row: UsageRow | None, *, owed: bool = False) -> None:
        """Note the end, then let it leave; where it cannot be noted in time, it leaves all the same.

        Args:
            row: as it was settled; None where the request was refused before it was admitted.
            owed: the journal has not taken the settlement yet: what comes of the request its row will tell.
        """
        try:
            if not owed and not self._told:
                await self._note(done=row is not None and stands(row))
        except StoreUnavailable:
            pass  # its usage row will tell
        finally:
            self._held.release()

    async def _note(self, *, done: bool) -> None:
        answer = self._held.kept if done and self._keeps else None
        await self._link.ask(lambda question: ClaimEnded(question, self._claim, done, answer), ClaimAnswer)


async def claim_request(
    link: SupervisorLink,
    secret: bytes,
    exchange: Exchange,
    key: KeyRecord,
    request_id: str,
    body: bytes,
    *,
    whole: bool,
) -> ClaimedRequest | None:
    """Claim the name that a request brings; None where it has been answered from what is kept.

    Args:
        secret: keys the hashes, so that what the store keeps tells nothing of names or prompts.
        body: what is asked for.
        whole: nothing is missing in it; else its answer is given to nobody but the first.
    Raises:
        BadRequest: the header is no name.
        RequestRunning: the first request with it runs.
        AlreadyServed: that one is done, and its answer is not kept.
        IdempotencyKeyReused: that one asked for something else.
        StoreUnavailable: it could not be claimed in time.
    """
    name = exchange.idempotency_key or b""
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isascii() or not name.decode("ascii").isprintable():
        raise BadRequest(
            f"'Idempotency-Key' must be 1 to {MAX_NAME_CHARS} printable characters.", param="Idempotency-Key"
        )
    claim = Claim(
        key_id=key.id,
        name=_hash(secret, b"name", name),
        asked=_hash(secret, b"asked", exchange.path.encode() + b"\0" + body),
        request_id=request_id,
    )
    try:
        answer = await link.ask(lambda question: ClaimAsked(question, claim), ClaimAnswer)
    except StoreUnavailable:
        link.send(ClaimEnded(link.next_question(), claim, False))  # it may still be claimed for us
        raise
    verdict = answer.verdict
    assert verdict is not None
    first = verdict.request_id
    match verdict.standing:
        case "new":
            return ClaimedRequest(link, claim, exchange, keeps=whole)
        case "other":
            raise IdempotencyKeyReused(
                "This Idempotency-Key was used for another request within the last 24 hours.", first
            )
        case "running":
            raise RequestRunning("A request with this Idempotency-Key is still running.", first)
    if verdict.answer is None:
        raise AlreadyServed(
            f"A request with this Idempotency-Key was served and charged before, as {first}; its answer is not kept.",
            first,
        )
    if not exchange.gone:
        exchange.respond(200, verdict.answer.head + REPLAYED, verdict.answer.body)
    return None


def _hash(secret: bytes, use: bytes, text: bytes) -> bytes:
    return hmac.digest(secret, use + b"\0" + hashlib.sha256(text).digest(), "sha256")
