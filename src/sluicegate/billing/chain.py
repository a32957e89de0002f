"""The chain of hashes over the ledger: what makes an edit, a removal or a reorder of what was posted show.

Every commit adds one link over the entries and usage rows that it wrote and over the link before. So whoever changes
something must change every later link too; and whoever noted one link's hash elsewhere (an *anchor*) finds that out.
What a link covers can be recomputed with any tool: see docs/ledger.md. Keeping and checking links is `store.chain`.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from sluicegate.billing.ledger import Entry

GENESIS = bytes(32)
"""Stands before the first link."""

_encode = msgspec.json.Encoder().encode


class Link(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One link. It covers the entries after those of the link before, up to `last_entry`, and the next `usage_rows`
    rows of usage in the order in which they were written.
    """

    last_entry: int
    """The number of its last entry."""
    entries: int
    usage_rows: int
    at: float
    """When it was written, in seconds since 1970."""
    usage_hash: bytes
    hash: bytes


class UsageDigest:
    """The SHA-256 of usage rows as they are stored (JSON), each ended by a line feed, while they are written."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self.rows = 0

    def add(self, rows: Sequence[bytes]) -> None:
        """Take the next rows, as they are stored."""
        if rows:
            self._sha.update(b"\n".join(rows) + b"\n")
            self.rows += len(rows)

    def digest(self) -> bytes:
        """Return the hash of all rows so far."""
        return self._sha.digest()


def usage_hash(rows: Sequence[bytes]) -> bytes:
    """Return the hash of usage rows, as `UsageDigest` has it."""
    digest = UsageDigest()
    digest.add(rows)
    return digest.digest()


def link_hash(
    previous: bytes, last_entry: int, at: float, entries: Sequence[Entry | Sequence[Any]], usage: bytes
) -> bytes:
    """Return the SHA-256 of the hash before, then of a JSON array: what the link says, and its entries in order.

    Args:
        entries: of each: reference, kind, attempt, debit, credit, amount, time, request, note.
        usage: `usage_hash` of its rows.
    """
    return hashlib.sha256(previous + _encode([last_entry, at, usage.hex(), entries])).digest()
