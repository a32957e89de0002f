"""Reservations and the double-entry rules that resolve them: pending → posted, voided or expired.

A worker writes the records below to its journal; the supervisor reads them from there into the store.
`Reservations` replays a journal to say what is still open, `settle_after_crash` resolves what a dead worker
left, and the posting rules turn a resolution into ledger entries. An entry moves one amount from one account
to another, so every transaction sums to zero by its shape; it is idempotent on (reference, kind, attempt).
Keeping balances, and making records and entries last, is left to `server.journal` and `store`.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from sluicegate.messages import Usage, UsageSource
from sluicegate.money import MAX_NANO
from sluicegate.routing.catalog_shapes import Price

_NO_USAGE = Usage()


def _no_usage() -> Usage:
    """Return the usage of what has none yet; one for all, since a row's usage is replaced and never changed."""
    return _NO_USAGE


class UsageRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request that passed admission, as `sluicegate usage --json` shows it. Wall times are seconds since
    1970.
    """

    request_id: str
    key_id: str
    account_id: str
    key: str = ""
    """The key's name."""
    model: str = ""
    """The public id."""
    provider: str | None = None
    provider_model: str | None = None
    client_format: str = ""
    provider_format: str | None = None
    stream: bool = False
    status: str = "ok"
    """ok | client_closed | rejected | upstream_error | interrupted | credit_spent"""
    finish_reason: str | None = None
    usage: Usage = msgspec.field(default_factory=_no_usage)
    usage_source: UsageSource = "none"
    usage_odd: bool = False
    repaired: bool = False
    """The provider's answer broke its format and was put right."""
    cost_nano_usd: int = 0
    """What was charged."""
    list_cost_nano_usd: int = 0
    """Price times usage."""
    shortfall_nano_usd: int = 0
    """list cost less what was charged, where credit or a spending limit did not reach."""
    limited: bool = False
    """Its key has spending limits, and the charge was held against them."""
    ttft_ms: float | None = None
    duration_ms: float = 0.0
    tokens_per_s: float | None = None
    attempts: int = 0
    started_at: float = 0.0
    error: str | None = None
    client_request_id: str | None = None
    upstream_id: str | None = None


class Reserved(msgspec.Struct, tag="reserved", kw_only=True, omit_defaults=True):
    """Money held before a provider is called. The row has all that is known so far."""

    request_id: str
    account_id: str
    amount_nano: int
    """0 for unlimited accounts and free models."""
    row: UsageRow
    on_crash: str = "none"


class Extended(msgspec.Struct, tag="extended", kw_only=True):
    """More held for a running stream."""

    request_id: str
    account_id: str
    amount_nano: int
    """The additional amount."""


class Checkpoint(msgspec.Struct, tag="checkpoint", kw_only=True):
    """Where a running stream stands; recovery settles from the last one."""

    request_id: str
    row: UsageRow
    """As it would be settled now, cost included."""
    finished: bool = False
    """The finish has left: recovery settles as `ok`, whatever `on_crash` says."""


class Settled(msgspec.Struct, tag="settled", kw_only=True):
    """The one resolution of a request: charges row.cost_nano_usd, frees the rest of the reservation."""

    request_id: str
    account_id: str
    row: UsageRow


class ProviderCost(msgspec.Struct, tag="provider_cost", kw_only=True, omit_defaults=True):
    """What a lost attempt cost the operator; nothing for the client."""

    request_id: str
    attempt: int
    provider: str
    provider_model: str
    at: float
    amount_nano: int | None = None
    """None: unknown."""
    reason: str = ""


class Job(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What work that goes on at a provider may cost, and by what it is charged when it ends."""

    row: UsageRow
    """As it was when the work was taken on."""
    amount_nano: int
    """Held for it, of credit and of the spending limits alike."""
    prepaid: bool = False
    """The amount is held of its account's credit."""
    budget: str | None = None
    """Under which it is held of its key's spending limits, where it has any."""
    price: Price | None = None
    """Of the moment at which it was admitted; None: free."""
    units: Usage = msgspec.field(default_factory=Usage)
    """What was asked for, and counts where the provider does not say what it made."""


ObjectKind = Literal["video", "file", "batch"]


class KeptObject(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a provider keeps for one account: a file, or work that goes on there."""

    kind: ObjectKind
    provider: str
    upstream_id: str
    account_id: str
    model: str = ""
    """The public id; of a file, which its requests name."""
    created_at: float = 0.0
    told: bytes = b"{}"
    """What the provider last said of it, a JSON object in its own words."""
    purpose: str = ""
    """Of a file."""
    units: Usage | None = None
    """Tokens that the requests in a file may use, counted from above."""
    job: Job | None = None
    open: bool = False
    """Its work goes on: it is not settled yet."""
    number: int = 0
    """Orders what is kept; the store's."""

    @property
    def name(self) -> str:
        """How it is called in logs."""
        return f"{self.provider}/{self.upstream_id}"


class HandedOver(msgspec.Struct, tag="handed_over", kw_only=True):
    """A request was answered by work that goes on at a provider: from here on the supervisor sees to its end."""

    request_id: str
    account_id: str
    object: KeptObject


class JobEnd(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How work at a provider ended, for its row."""

    status: str
    error: str | None = None
    usage: Usage = msgspec.field(default_factory=Usage)
    usage_source: UsageSource = "none"
    usage_odd: bool = False
    list_cost_nano_usd: int = 0
    told: bytes = b"{}"
    """What the provider says of it now."""
    files: list[KeptObject] = []
    """What it left behind."""


def settle_job(job: Job, end: JobEnd, covered_nano: int, at: float) -> Settled:
    """Resolve work that has ended.

    Args:
        covered_nano: what is held for it by now; what it costs beyond is the operator's.
        at: seconds since 1970.
    """
    held = job.prepaid or job.budget is not None
    cost = min(end.list_cost_nano_usd, covered_nano) if held else end.list_cost_nano_usd
    row = msgspec.structs.replace(
        job.row,
        status=end.status,
        error=end.error,
        usage=end.usage,
        usage_source=end.usage_source,
        usage_odd=end.usage_odd,
        list_cost_nano_usd=end.list_cost_nano_usd,
        cost_nano_usd=cost,
        shortfall_nano_usd=end.list_cost_nano_usd - cost,
        duration_ms=round(max(0.0, at - job.row.started_at) * 1000, 3),
    )
    return Settled(request_id=row.request_id, account_id=row.account_id, row=row)


Record = Reserved | Extended | Checkpoint | Settled | ProviderCost | HandedOver

FUNDING = "funding"
"""The world outside: what customers paid in, and what providers were paid."""
REVENUE = "revenue"
"""What answers were sold for, at list price."""
SHORTFALL = "shortfall"
"""What the operator paid where a customer's credit did not reach."""
PROVIDER_COST = "provider_cost"
"""What attempts cost the operator that no customer pays for."""
CUSTOMER = "customer:"
"""Prefix of a customer's account: the credit that is left."""

EntryKind = Literal[
    "bootstrap",
    "topup",
    "refund",
    "adjust",
    "correction",
    "write_off",
    "charge",
    "shortfall",
    "provider_cost",
]


class Entry(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One movement of money. An account's balance is what it was credited less what it was debited. The chain covers
    entries as arrays of these fields.
    """

    reference: str
    """The request's id, or what names a movement made by hand."""
    kind: EntryKind
    attempt: int = 0
    debit: str
    credit: str
    amount_nano: int
    """Never negative; 0 where a request was settled without a charge."""
    at: float
    """Seconds since 1970."""
    request_id: str | None = None
    """The request that a refund or a correction is about."""
    note: str | None = None
    """Why a movement was made by hand."""


def customer(account_id: str) -> str:
    """Name the ledger account that holds a customer's credit."""
    return CUSTOMER + account_id


def settlement(settled: Settled, balance_nano: int | None, room_nano: int = MAX_NANO) -> UsageRow:
    """Return the row of a request as it counts: what is charged, and what falls short. `charge` and `shortfall` post
    it.

    Args:
        balance_nano: what the customer's account holds, or None where it may go below zero (not prepaid).
        room_nano: the most that the books can still take; only nonsense that a provider reported comes near.
    Invariant: the charge never takes more than the balance. Leases see to that before; should one ever fail, the
        rest becomes shortfall here, and the row says so.
    """
    row = settled.row
    if row.request_id != settled.request_id or row.account_id != settled.account_id:
        row = msgspec.structs.replace(row, request_id=settled.request_id, account_id=settled.account_id)
    charged, short = row.cost_nano_usd, row.shortfall_nano_usd
    held_nano = room_nano if balance_nano is None or balance_nano > room_nano else balance_nano
    if not 0 <= charged <= held_nano or short:
        due = min(max(charged, 0), room_nano)
        charged = due if balance_nano is None else min(due, max(balance_nano, 0))
        short = min(max(short, 0) + due - charged, room_nano - charged)
        if charged != row.cost_nano_usd or short != row.shortfall_nano_usd:
            row = msgspec.structs.replace(row, cost_nano_usd=charged, shortfall_nano_usd=short)
    return row


def charge(row: UsageRow, at: float) -> Entry:
    """Post what a settled request cost its customer; every one has this entry, also where nothing is due."""
    return Entry(
        reference=row.request_id,
        kind="charge",
        debit=CUSTOMER + row.account_id,
        credit=REVENUE,
        amount_nano=row.cost_nano_usd,
        at=at,
    )


def shortfall(row: UsageRow, at: float) -> Entry | None:
    """Post what the operator bears of a settled request; None where that is nothing."""
    if not row.shortfall_nano_usd:
        return None
    return Entry(
        reference=row.request_id,
        kind="shortfall",
        debit=SHORTFALL,
        credit=REVENUE,
        amount_nano=row.shortfall_nano_usd,
        at=at,
    )


def provider_cost(cost: ProviderCost, room_nano: int = MAX_NANO) -> Entry | None:
    """Post what a lost attempt cost the operator; None where nobody knows."""
    if cost.amount_nano is None:
        return None
    amount_nano = min(max(cost.amount_nano, 0), room_nano)
    return Entry(
        reference=cost.request_id,
        kind="provider_cost",
        attempt=cost.attempt,
        debit=PROVIDER_COST,
        credit=FUNDING,
        amount_nano=amount_nano,
        at=cost.at,
    )


def deposit(
    account_id: str,
    amount_nano: int,
    *,
    reference: str,
    kind: EntryKind,
    at: float,
    request_id: str | None = None,
    note: str | None = None,
) -> Entry:
    """Post a movement by hand: into a customer's account, or out of it where the amount is negative.

    A refund or correction moves the revenue that a charge was; everything else passes between customer and world.
    """
    other = REVENUE if kind in ("refund", "correction") else FUNDING
    debit, credit = (other, customer(account_id)) if amount_nano >= 0 else (customer(account_id), other)
    return Entry(
        reference=reference,
        kind=kind,
        debit=debit,
        credit=credit,
        amount_nano=abs(amount_nano),
        at=at,
        request_id=request_id,
        note=note,
    )


class Reservation(msgspec.Struct, kw_only=True):
    """A request that is pending: what was held for it, and where its stream was last known to stand."""

    request_id: str
    account_id: str
    amount_nano: int
    row: UsageRow
    on_crash: str = "none"
    checkpoint: Checkpoint | None = None


class Reservations:
    """The pending requests of one journal, found by replaying its records in order.

    ::

        (none) ── Reserved ──▶ pending ── Settled, charged ───────▶ posted
                                │    ├─── Settled, nothing due ──▶ voided
                                │    └─── HandedOver ────────────▶ pending in the store, until its job has ended
                                └──────── the worker died ────────▶ expired   (settle_after_crash)
    """

    def __init__(self) -> None:
        self._pending: dict[str, Reservation] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._pending.values())

    def apply(self, record: Record) -> None:
        """Follow one record. A repeated `Reserved` starts its request afresh, as a copy at a segment's head
        does.
        """
        match record:
            case Settled() | HandedOver():
                self._pending.pop(record.request_id, None)
            case Reserved():
                self._pending[record.request_id] = Reservation(
                    request_id=record.request_id,
                    account_id=record.account_id,
                    amount_nano=record.amount_nano,
                    row=record.row,
                    on_crash=record.on_crash,
                )
            case Extended():
                pending = self._pending.get(record.request_id)
                if pending is not None:
                    pending.amount_nano += record.amount_nano
            case Checkpoint():
                pending = self._pending.get(record.request_id)
                if pending is None:  # its reservation was lost to corruption, but the row knows enough
                    pending = Reservation(
                        request_id=record.request_id,
                        account_id=record.row.account_id,
                        amount_nano=record.row.cost_nano_usd,
                        row=record.row,
                    )
                    self._pending[record.request_id] = pending
                pending.checkpoint = record
            case ProviderCost():
                pass


def settle_after_crash(pending: Reservation, at: float) -> list[Record]:
    """Resolve a request whose worker died: what recovery writes in its place.

    A stream whose finish had left is complete and billed as such, whatever `on_crash` says. Any other is
    *interrupted*: charged by its last checkpoint under `produced`, else nothing; what the provider made of it
    nobody knows, and the operator is told so.
    """
    checkpoint = pending.checkpoint
    row = pending.row if checkpoint is None else checkpoint.row
    finished = checkpoint is not None and checkpoint.finished
    charged = shortfall = 0
    if finished or (checkpoint is not None and pending.on_crash == "produced"):
        charged = row.cost_nano_usd
        shortfall = max(0, row.list_cost_nano_usd - charged)
    row = msgspec.structs.replace(row, cost_nano_usd=charged, shortfall_nano_usd=shortfall)
    if finished:
        row.status, row.usage_source = "ok", "counted"
        return [Settled(request_id=pending.request_id, account_id=pending.account_id, row=row)]
    row.status, row.error = "interrupted", row.error or "the gate was stopped while serving this"
    lost = ProviderCost(
        request_id=pending.request_id,
        attempt=row.attempts,
        provider=row.provider or "",
        provider_model=row.provider_model or "",
        at=at,
        reason="crash",
    )
    return [lost, Settled(request_id=pending.request_id, account_id=pending.account_id, row=row)]
