"""The tables, and the migrations that make them.

`MIGRATIONS` only grows: a store remembers how many it has had, and gets the rest when it is opened. What a
released migration says is never changed. The `Table` objects describe the result for `sql`; a test holds the
two together. Money is nano-USD, times are seconds since 1970.
"""

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    true,
)
from sqlalchemy.types import BigInteger

METADATA = MetaData()

ACCOUNTS = Table(
    "accounts",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("unlimited", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
)

KEYS = Table(
    "keys",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("account_id", Text, nullable=False),
    Column("limits", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("configured", Text),
    Column("created_at", Double, nullable=False),
    Column("revoked_at", Double),
    Column("revoked_by", Text),
)
"""`limits` is everything else of a KeyRecord, as JSON; `configured` what the file last said, to see when it
changes.
"""

BALANCES = Table(
    "balances",
    METADATA,
    Column("account", Text, primary_key=True),
    Column("balance_nano", BigInteger, nullable=False),
)
"""Running sum of every ledger account."""

ENTRIES = Table(
    "entries",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("reference", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("debit", Text, nullable=False),
    Column("credit", Text, nullable=False),
    Column("amount_nano", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("request_id", Text),
    Column("note", Text),
)

LINKS = Table(
    "links",
    METADATA,
    Column("number", BigInteger, primary_key=True),
    Column("last_entry", BigInteger, nullable=False),
    Column("entries", Integer, nullable=False),
    Column("usage_rows", Integer, nullable=False),
    Column("at", Double, nullable=False),
    Column("usage_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)
"""The chain of hashes over entries and usage: `billing.chain`."""

USAGE = Table(
    "usage",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("request_id", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("account_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("provider", Text),
    Column("status", Text, nullable=False),
    Column("cost_nano_usd", BigInteger, nullable=False),
    Column("shortfall_nano_usd", BigInteger, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("row", Text, nullable=False),
)
"""`row` is the whole UsageRow as JSON; the columns beside it are what is searched and summed."""

PROVIDER_COSTS = Table(
    "provider_costs",
    METADATA,
    Column("request_id", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("provider", Text, nullable=False),
    Column("provider_model", Text, nullable=False),
    Column("amount_nano", BigInteger),
    Column("reason", Text, nullable=False),
    Column("at", Double, nullable=False),
)

JOURNALS = Table(
    "journals",
    METADATA,
    Column("file", Text, primary_key=True),
    Column("committed", BigInteger, nullable=False),
)

CLAIMS = Table(
    "claims",
    METADATA,
    Column("key_id", Text, primary_key=True),
    Column("name", LargeBinary, primary_key=True),
    Column("asked", LargeBinary, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("worker", Integer, nullable=False),
    Column("done", Boolean, nullable=False),
    Column("at", Double, nullable=False),
    Column("head", LargeBinary),
    Column("answer", LargeBinary),
)
"""Idempotency keys: `billing.claims`. `name` and `asked` are keyed hashes."""

RESPONSES = Table(
    "responses",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("account_id", Text, nullable=False),
    Column("previous", Text),
    Column("input", LargeBinary, nullable=False),
    Column("response", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
)
"""Answers that Responses clients may go on from. `input` is what one request added; `previous` the row before it."""

OBJECTS = Table(
    "objects",
    METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("upstream_id", Text, nullable=False),
    Column("account_id", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("request_id", Text),
    Column("open", Boolean, nullable=False),
    Column("due_at", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("told", LargeBinary, nullable=False),
    Column("object", Text, nullable=False),
)
"""What providers keep for accounts: files, video jobs, batches. `object` is the KeptObject as JSON, but for what has a
column; `due_at` is when an open job is asked after.
"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE accounts (id TEXT PRIMARY KEY, unlimited BOOLEAN NOT NULL, created_at {double} NOT NULL)",
        """CREATE TABLE keys (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, prefix TEXT NOT NULL, hash {bytes} NOT NULL UNIQUE,
            account_id TEXT NOT NULL REFERENCES accounts (id), limits TEXT NOT NULL, origin TEXT NOT NULL,
            configured TEXT, created_at {double} NOT NULL, revoked_at {double}, revoked_by TEXT)""",
        "CREATE UNIQUE INDEX keys_by_name ON keys (name) WHERE revoked_at IS NULL",
        "CREATE TABLE balances (account TEXT PRIMARY KEY, balance_nano BIGINT NOT NULL)",
        """CREATE TABLE entries (
            id {identity}, reference TEXT NOT NULL, kind TEXT NOT NULL, attempt INTEGER NOT NULL,
            debit TEXT NOT NULL, credit TEXT NOT NULL, amount_nano BIGINT NOT NULL, at {double} NOT NULL,
            UNIQUE (reference, kind, attempt), CHECK (amount_nano >= 0), CHECK (debit <> credit))""",
        """CREATE TABLE usage (
            id {identity}, request_id TEXT NOT NULL UNIQUE, key_id TEXT NOT NULL, account_id TEXT NOT NULL,
            key TEXT NOT NULL, model TEXT NOT NULL, provider TEXT, status TEXT NOT NULL,
            cost_nano_usd BIGINT NOT NULL, shortfall_nano_usd BIGINT NOT NULL, started_at {double} NOT NULL,
            row TEXT NOT NULL)""",
        "CREATE INDEX usage_by_time ON usage (started_at)",
        """CREATE TABLE provider_costs (
            request_id TEXT NOT NULL, attempt INTEGER NOT NULL, provider TEXT NOT NULL,
            provider_model TEXT NOT NULL, amount_nano BIGINT, reason TEXT NOT NULL, at {double} NOT NULL,
            PRIMARY KEY (request_id, attempt))""",
        "CREATE TABLE journals (file TEXT PRIMARY KEY, committed BIGINT NOT NULL)",
        "INSERT INTO balances VALUES ('funding', 0), ('revenue', 0), ('shortfall', 0), ('provider_cost', 0)",
        "{no_update_of_entries}",
        "{no_delete_from_entries}",
    ),
    (
        "ALTER TABLE entries ADD COLUMN request_id TEXT",
        "ALTER TABLE entries ADD COLUMN note TEXT",
        "CREATE INDEX entries_by_request ON entries (request_id) WHERE request_id IS NOT NULL",
        """CREATE TABLE links (
            number {identity}, last_entry BIGINT NOT NULL, entries INTEGER NOT NULL, usage_rows INTEGER NOT NULL,
            at {double} NOT NULL, usage_hash {bytes} NOT NULL, hash {bytes} NOT NULL)""",
    ),
    (
        """CREATE TABLE claims (
            key_id TEXT NOT NULL, name {bytes} NOT NULL, asked {bytes} NOT NULL, request_id TEXT NOT NULL,
            worker INTEGER NOT NULL, done BOOLEAN NOT NULL, at {double} NOT NULL, head {bytes}, answer {bytes},
            PRIMARY KEY (key_id, name))""",
        "CREATE INDEX claims_by_time ON claims (at)",
        "CREATE INDEX claims_by_request ON claims (request_id)",
    ),
    (
        """CREATE TABLE responses (
            id TEXT PRIMARY KEY, account_id TEXT NOT NULL, previous TEXT, input {bytes} NOT NULL,
            response {bytes} NOT NULL, size BIGINT NOT NULL, created_at {double} NOT NULL,
            expires_at {double} NOT NULL)""",
        "CREATE INDEX responses_by_expiry ON responses (expires_at, created_at, size)",
    ),
    (
        """CREATE TABLE objects (
            id {identity}, kind TEXT NOT NULL, provider TEXT NOT NULL, upstream_id TEXT NOT NULL,
            account_id TEXT NOT NULL, purpose TEXT NOT NULL, request_id TEXT UNIQUE, open BOOLEAN NOT NULL,
            due_at {double} NOT NULL, created_at {double} NOT NULL, told {bytes} NOT NULL, object TEXT NOT NULL)""",
        "CREATE INDEX objects_by_name ON objects (account_id, kind, upstream_id)",
        "CREATE INDEX objects_by_due ON objects (due_at) WHERE open",
        "CREATE INDEX objects_by_age ON objects (created_at)",
    ),
)
"""Each in a transaction of its own. The words in braces are the dialect's (`sqlite.WORDS`)."""

CHAINED_BY = 1
"""The migration that made the chain: what a store has by then gets one link."""


def after(number: ColumnElement[int], last: int | None) -> ColumnElement[bool]:
    """Say that a row comes after the last of a page; None before the first page, which has all there are."""
    return true() if last is None else number > last
