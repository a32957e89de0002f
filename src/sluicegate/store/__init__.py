"""The store: keys, accounts, the ledger and what was used; the only SQL there is.

This module holds the protocol and the plain values that go in and out, without any library, so that all may
import it. `sql` does the work for every engine, `sqlite` adds what SQLite needs. One process writes (the
supervisor, or a command that holds its lock); any may read. All errors of an engine come out as
StoreUnavailable.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.claims import Claim, KeptAnswer, Verdict
from sluicegate.billing.ledger import EntryKind, HandedOver, KeptObject, ObjectKind, Record, Settled, UsageRow
from sluicegate.errors import BadRequest

Origin = Literal["config", "command"]
"""Who made a key: the configuration file, or an operator's command."""


class Conflict(BadRequest):
    """The reference or name was used before, for something else."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Who pays: a prepaid credit, or one without a bound."""

    id: str
    unlimited: bool
    balance_nano: int
    """The running sum of the account's entries; what leases hold of it only the supervisor knows."""


class Deposit(msgspec.Struct, frozen=True, kw_only=True):
    """What a movement of money by hand did."""

    account_id: str
    balance_nano: int
    """After it."""
    posted: bool
    """False: this reference was posted before, so nothing moved now."""
    amount_nano: int
    """What moved, or had moved before: never negative."""


class ConfiguredAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account as the configuration has it."""

    id: str
    unlimited: bool = False
    balance_nano: int = 0
    """Credited once."""


class ConfiguredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the configuration has it; `record.id` is taken only when the key is new to the store."""

    record: KeyRecord
    balance_nano: int = 0
    """Credited once to the key's account, where the key has one of its own."""


class KeptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that a Responses client may go on from."""

    id: str
    account_id: str
    previous: str | None
    """Of the answer that it went on from."""
    input: bytes
    """What its request added to the conversation: items, a JSON array."""
    response: bytes
    """As the client was told it: a JSON object."""

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.input) + len(self.response)


class ObjectQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which of an account's objects at providers, newest first."""

    account_id: str
    kind: ObjectKind
    provider: str = ""
    upstream_id: str | None = None
    """The one of this id at `provider`; None: all."""
    purpose: str | None = None
    after: int | None = None
    """`number` of the one that they follow."""
    ascending: bool = False
    """Oldest first."""
    limit: int = 1


class CommitResult(msgspec.Struct, kw_only=True):
    """What one batch of a journal changed; nothing of what was committed before is in it."""

    charged: dict[str, int] = {}
    """Nano-USD that left each prepaid or unlimited account."""
    shortfall: dict[str, int] = {}
    """Nano-USD that the operator bore for each account."""
    settled: int = 0
    """How many requests this batch settled."""
    last: UsageRow | None = None
    """The last of them, as it was booked."""
    spent: dict[tuple[str, int, bool], int] = {}
    """What they were charged, nano-USD: by key, UTC day of admission, and whether they were held against limits."""
    handed_over: list[HandedOver] = []
    """Jobs that the supervisor sees to from now on."""
    repeated: int = 0
    """Settlements that had been committed before."""
    clamped: int = 0
    """Settlements that would have taken more than the balance: leases failed to hold, and the operator paid.
    """


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of usage, oldest first."""

    key: str | None = None
    """Name or id."""
    account: str | None = None
    model: str | None = None
    provider: str | None = None
    since: float | None = None
    until: float | None = None
    """Seconds since 1970: started_at is not before `since`, and before `until`."""
    request_id: str | None = None
    limit: int | None = None
    """The first so many of them."""


class LedgerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One side of an entry, as `ledger export` shows it: the lines of an entry sum to zero."""

    entry: int
    at: float
    reference: str
    kind: EntryKind
    attempt: int
    account: str
    amount_nano: int
    """Positive where the account was credited."""
    request_id: str | None = None
    """The request that a refund or a correction is about."""
    note: str | None = None


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the chain, to be noted where nobody who can write the store can write."""

    entry: int
    """The number of the last entry that it covers."""
    hash: str
    """In hexadecimal."""
    at: float = 0.0
    """When it was written, in seconds since 1970."""


class Movement(msgspec.Struct, frozen=True, kw_only=True):
    """One movement on a statement that is no charge."""

    entry: int
    at: float
    kind: str
    reference: str
    amount_nano: int
    """Negative where it left the account."""
    request_id: str | None
    note: str | None


class SoldModel(msgspec.Struct, kw_only=True):
    """What was used of one model. Counts that nobody reported count as 0."""

    requests: int = 0
    input_tokens: int = 0
    """With the cached ones."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    """With reasoning."""
    charged_nano: int = 0
    shortfall_nano: int = 0
    """What the operator bore."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """An account from one moment to another. Opening and movements less charges are the closing, to the nano-dollar."""

    account_id: str
    since: float
    until: float
    """Seconds since 1970; `until` is not part of it."""
    opening_nano: int
    movements: list[Movement]
    charged_nano: int
    """For requests that were admitted in this time."""
    closing_nano: int
    models: dict[str, SoldModel]
    """By the public id; together they were charged `charged_nano`."""


class LedgerReport(msgspec.Struct, kw_only=True):
    """What `verify` found."""

    entries: int
    settlements: int
    links: int
    """Of the chain of hashes."""
    head: Anchor | None
    """The newest link."""
    balances: dict[str, int]
    """Every ledger account, recomputed from its entries."""
    problems: list[str]

    @property
    def clean(self) -> bool:
        """Nothing is wrong."""
        return not self.problems


class Store(Protocol):
    """What the supervisor and the commands need of a database. Every method may raise StoreUnavailable."""

    async def open(self, *, read_only: bool = False) -> None:
        """Connect, and bring the tables up to date unless only reading."""
        ...

    async def close(self) -> None:
        """Let everything go."""
        ...

    # Keys and accounts

    async def bootstrap(
        self, accounts: Sequence[ConfiguredAccount], keys: Sequence[ConfiguredKey], at: float
    ) -> None:
        """Make the store agree with the configuration: credit once, revoke what was removed, put back what
        returned.

        A key that an operator revoked by command stays revoked; a limit set by command stays until the file
        changes.

        Raises:
            ConfigError: a key's name or secret belongs to a key made by command.
        """
        ...

    async def create_key(
        self, key: KeyRecord, *, balance_nano: int = 0, reference: str, at: float
    ) -> KeyRecord:
        """Add a key, its account too where there is none, credited with the balance.

        Raises:
            Conflict: the name is in use.
        """
        ...

    async def find_key(self, key_hash: bytes) -> KeyRecord | None:
        """Return the key with this hash, also a revoked one."""
        ...

    async def get_key(self, which: str) -> KeyRecord:
        """Return a key by id, name or visible prefix; the one in force where several had the name.

        Raises:
            BadRequest: there is none, or the prefix fits several.
        """
        ...

    async def all_keys(self) -> list[KeyRecord]:
        """Return every key, oldest first, revoked ones too."""
        ...

    async def revoke_key(self, which: str, at: float) -> KeyRecord:
        """Take a key out of force for good; done before is done."""
        ...

    async def limit_key(self, which: str, changes: Mapping[str, Any]) -> KeyRecord:
        """Change fields of a KeyRecord that limit it; None lifts a limit."""
        ...

    async def get_account(self, account_id: str) -> Account:
        """Return an account.

        Raises:
            BadRequest: there is none.
        """
        ...

    async def all_accounts(self) -> list[Account]:
        """Return every account by name."""
        ...

    async def deposit(
        self,
        account_id: str,
        amount_nano: int,
        *,
        reference: str,
        kind: EntryKind,
        at: float,
        leased_nano: int = 0,
        request_id: str | None = None,
        note: str | None = None,
    ) -> Deposit:
        """Move money by hand, once for each reference: in, or out where the amount is negative.

        Args:
            leased_nano: what leases hold of the balance; a debit takes nothing of that.
            request_id: the request that it corrects, which the account must have paid for.
            note: why.
        Raises:
            BadRequest: no such account, not enough free credit, or a balance beyond 64 bits.
            Conflict: the reference was used for another account or amount.
        """
        ...

    async def refund(
        self, request_id: str, amount_nano: int | None, *, reference: str, note: str | None, at: float
    ) -> Deposit:
        """Give back what a request was charged, or a part of it, once for each reference.

        Args:
            amount_nano: None: all that is left of the charge.
        Raises:
            BadRequest: no such request, or not so much is left of its charge.
            Conflict: the reference was used for another request or amount.
        """
        ...

    # Journals

    async def journal_offsets(self) -> dict[str, int]:
        """Return how far each journal segment is committed, by file name."""
        ...

    async def commit_journal(
        self, records: Iterable[Record], file: str, offset: int | Callable[[], int], at: float
    ) -> CommitResult:
        """Book a batch and note that `file` is committed up to `offset`, all in one durable transaction.

        Args:
            records: may be read while they are gone through, in the store's own thread, and are anew where some were
                booked before.
            offset: a function is asked once they have been.

        Invariant: a record books once, however often and in whatever batches it comes.
        """
        ...

    async def forget_journals(self, files: Sequence[str]) -> None:
        """Drop the offsets of segments that are gone."""
        ...

    # Idempotency keys

    async def make_claim(self, claim: Claim, worker: int, at: float) -> Verdict:
        """Claim a name for a request of a worker, or tell who has it."""
        ...

    async def end_claim(self, claim: Claim, done: bool, answer: KeptAnswer | None) -> None:
        """Note that a claim's request is done, or was as if it had not been made."""
        ...

    async def release_claims(self, worker: int | None) -> None:
        """Let go of claims that a dead worker (None: any) never reserved for; its journal must be committed."""
        ...

    async def prune_claims(self, at: float) -> None:
        """Forget claims whose time is over, and the oldest of too many."""
        ...

    # Kept answers

    async def keep_response(self, kept: KeptResponse, now: float, expires_at: float, max_bytes: int) -> bool:
        """Keep an answer; those that expire first make room for it. False: it is too large by itself."""
        ...

    async def find_responses(
        self, account_id: str, id: str, now: float, *, whole: bool
    ) -> list[KeptResponse]:
        """Return an answer of an account, the conversation before it first where `whole`; empty: not all is there."""
        ...

    async def drop_response(self, account_id: str, id: str) -> bool:
        """Delete an answer; False where the account has none of this id."""
        ...

    async def expire_responses(self, now: float) -> None:
        """Delete answers that have lived long enough."""
        ...

    # What providers keep

    async def put_object(self, kept: KeptObject) -> None:
        """Add what a provider keeps for an account."""
        ...

    async def find_objects(self, query: ObjectQuery) -> list[KeptObject]:
        """Return an account's objects."""
        ...

    async def open_jobs(self, due_at: float | None = None, limit: int = 1_000_000) -> list[KeptObject]:
        """Return the jobs that are not settled; with `due_at`, those to be asked after by then."""
        ...

    async def postpone_job(self, request_id: str, told: bytes | None, due_at: float) -> None:
        """Note when an open job is asked after next, and what it said of itself."""
        ...

    async def end_job(
        self, settled: Settled, told: bytes, files: Sequence[KeptObject], at: float
    ) -> CommitResult:
        """Book the end of a job, once, and keep what it left behind; empty where it had ended before."""
        ...

    async def drop_object(self, kept: KeptObject) -> bool:
        """Forget an object that is not open; False where there is none."""
        ...

    async def expire_objects(self, before: float) -> None:
        """Forget what was made before a moment and is not open."""
        ...

    # Looking

    def usage(self, query: UsageQuery) -> AsyncIterator[UsageRow]:
        """Give rows oldest first."""
        ...

    async def shortfall_since(self, since: float) -> dict[str, int]:
        """Return what the operator bore for each account for requests started since then."""
        ...

    async def spent_since(self, since: float, key_id: str | None = None) -> dict[str, int]:
        """Return what each key (by id), or one of them, was charged for requests started since then."""
        ...

    def export_ledger(self) -> AsyncIterator[LedgerLine]:
        """Give both sides of every entry, in the order they were posted."""
        ...

    async def verify(self, anchors: Sequence[Anchor] = ()) -> LedgerReport:
        """Recompute the ledger from its entries and compare, its chain of hashes too.

        Args:
            anchors: links noted earlier, which must still be there.
        """
        ...

    async def statement(self, account_id: str, since: float, until: float) -> Statement:
        """Return what an account was charged, given and left with between two times (seconds since 1970).

        Raises:
            BadRequest: there is no such account.
        """
        ...

    async def anchors(self) -> list[Anchor]:
        """Return the last link of every UTC day that has links, oldest first."""
        ...


def store_file(url: str) -> Path | None:
    """Return the file that a store lies in; None where it is a server's."""
    scheme, _, rest = url.partition("://")
    return Path(rest.removeprefix("/")) if scheme == "sqlite" else None


def open_store(url: str) -> Store:
    """Choose the engine by the URL; `Store.open` connects.

    Raises:
        StoreUnavailable: no such engine here.
    """
    # Imported here, so that what only needs the values above does not load a database library.
    from sluicegate.errors import StoreUnavailable

    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        from sluicegate.store.sqlite import SqliteStore

        return SqliteStore(rest.removeprefix("/"))
    raise StoreUnavailable(f"a store of the kind {scheme!r} is not built yet; sqlite:///FILE is")
