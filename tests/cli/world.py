"""What tests of the commands have in common."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sluicegate.billing.ledger import Record
from sluicegate.store.sqlite import SqliteStore
from tests.records import STARTED_AT

CONFIGURATION = """
store: "sqlite:///store.db"
providers: {p: {base_url: "http://127.0.0.1:1/v1", speaks: [chat], auth: none}}
models: {m: {routes: [{provider: p, model: m}], price: {input: 1, output: 2}}}
accounts: {team: {balance_usd: 100}, big: unlimited}
keys: [{name: dev, key: "sg-0123456789abcdef0123", balance_usd: 5}]
"""


class Run:
    """What a command left behind."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    def lines(self) -> list[dict[str, Any]]:
        """Read standard output as JSON lines, of a command that went well."""
        assert self.status == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


Sluicegate = Callable[..., Run]


def book(folder: Path, *records: Record) -> None:
    """Commit records as a supervisor would have."""

    async def commit() -> None:
        store = SqliteStore(folder / "store.db")
        await store.open()
        await store.commit_journal(records, "x.journal", 1, STARTED_AT)
        await store.close()

    asyncio.run(commit())
