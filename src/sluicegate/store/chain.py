"""The links of the ledger's chain in the store: added by whatever writes entries, checked by `ledger verify`.

What a link is stands in `billing.chain`. A link covers what its own transaction wrote and never what it finds, so that
an entry that came by another way stays without one. A store from before there was a chain gets one link over all it
has when it is brought up to date.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, func, select, text

from sluicegate.billing.chain import GENESIS, Link, UsageDigest, link_hash, usage_hash
from sluicegate.billing.ledger import Entry
from sluicegate.store import Anchor
from sluicegate.store.driver import Driver
from sluicegate.store.schema import ENTRIES, LINKS, USAGE, after

PAGE_ROWS = 1000
DAY_S = 86_400

COVERED = tuple(column for column in ENTRIES.c if column.name != "id")
"""What of an entry a link covers, in its order."""

_NEWEST = select(
    select(LINKS.c.hash)
    .where(LINKS.c.number == select(func.max(LINKS.c.number)).scalar_subquery())
    .scalar_subquery(),
    select(func.max(ENTRIES.c.id)).scalar_subquery(),
)
"""The newest link's hash, and the number of the newest entry."""
_ADDED = ("last_entry", "entries", "usage_rows", "at", "usage_hash", "hash")
_INSERT = text(f"INSERT INTO links ({', '.join(_ADDED)}) VALUES ({', '.join(f':{name}' for name in _ADDED)})")


def add_link(
    connection: Connection, entries: Sequence[Entry | Sequence[Any]], usage: UsageDigest, at: float
) -> None:
    """Add the link over what this transaction has inserted.

    Args:
        entries: values of `COVERED`, in the order of their numbers.
        usage: the rows as they are stored.
    """
    driver = Driver(connection)
    ((previous, last_entry),) = driver.rows(_NEWEST)
    covered = usage.digest()
    hashed = link_hash(previous or GENESIS, last_entry or 0, at, entries, covered)
    driver.run(_INSERT, (last_entry or 0, len(entries), usage.rows, at, covered, hashed))


def begin_chain(connection: Connection, at: float) -> None:
    """Cover all that a store has from before there was a chain."""
    entries = [tuple(row) for row in connection.execute(select(*COVERED).order_by(ENTRIES.c.id))]
    rows = connection.execute(select(USAGE.c.row).order_by(USAGE.c.id)).scalars().all()
    if entries:
        usage = UsageDigest()
        usage.add([row.encode() for row in rows])
        add_link(connection, entries, usage, at)


def links(connection: Connection) -> Iterator[Link]:
    """Give every link, oldest first."""
    last: int | None = None
    while True:
        page = select(LINKS).where(after(LINKS.c.number, last)).order_by(LINKS.c.number).limit(PAGE_ROWS)
        rows = connection.execute(page).all()
        for row in rows:
            yield Link(**{name: getattr(row, name) for name in Link.__struct_fields__})
        if len(rows) < PAGE_ROWS:
            return
        last = rows[-1].number


def daily_anchors(connection: Connection) -> list[Anchor]:
    """Return the last link of every UTC day, oldest first; a clock that was set back begins no day anew."""
    found: list[Anchor] = []
    newest_day = -1
    for link in links(connection):
        day = int(link.at // DAY_S)
        anchor = Anchor(entry=link.last_entry, hash=link.hash.hex(), at=link.at)
        if day > newest_day:
            newest_day = day
            found.append(anchor)
        else:
            found[-1] = anchor
    return found


def check_chain(connection: Connection) -> Iterator[str]:
    """Recompute every link from what it covers, and tell what does not fit."""
    entries, usage = _Entries(connection), _Usage(connection)
    previous = GENESIS
    last_entry = 0
    for link in links(connection):
        covered = entries.up_to(link.last_entry)
        rows = usage.next(link.usage_rows)
        where = f"entries {last_entry + 1} to {link.last_entry}"
        if len(covered) != link.entries:
            yield f"{where}: {link.entries} were posted, there are {len(covered)}"
        elif usage_hash(rows) != link.usage_hash:
            yield f"{where}: their usage rows are not those that were written"
        elif link_hash(previous, link.last_entry, link.at, covered, link.usage_hash) != link.hash:
            yield f"{where}: they, their order or the link before are not what was written"
        previous, last_entry = link.hash, link.last_entry
    left = len(entries.up_to(None))
    if left:
        yield f"{left} entries after {last_entry} have no link"
    left = len(usage.next(None))
    if left:
        yield f"{left} usage rows after the last link"


class _Entries:
    """All entries in order, a page at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last: int | None = None
        self._page: list[Any] = []
        self._at_end = False

    def up_to(self, last_entry: int | None) -> list[tuple[Any, ...]]:
        """Take the next ones up to a number; None: all that are left."""
        taken: list[tuple[Any, ...]] = []
        while True:
            if not self._page:
                self._read()
                if not self._page:
                    return taken
            while self._page:
                if last_entry is not None and self._page[-1].id > last_entry:
                    return taken
                taken.append(tuple(self._page.pop())[1:])

    def _read(self) -> None:
        if self._at_end:
            return
        page = select(ENTRIES.c.id, *COVERED).where(after(ENTRIES.c.id, self._last)).order_by(ENTRIES.c.id)
        rows = list(self._connection.execute(page.limit(PAGE_ROWS)).all())
        self._at_end = len(rows) < PAGE_ROWS
        if rows:
            self._last = rows[-1].id
        self._page = rows[::-1]


class _Usage:
    """All usage rows in the order in which they were written."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last: int | None = None

    def next(self, count: int | None) -> list[bytes]:
        """Take the next ones; None: all that are left."""
        if count == 0:
            return []
        page = select(USAGE.c.id, USAGE.c.row).where(after(USAGE.c.id, self._last)).order_by(USAGE.c.id)
        rows = self._connection.execute(page if count is None else page.limit(count)).all()
        if rows:
            self._last = rows[-1].id
        return [row.row.encode() for row in rows]
