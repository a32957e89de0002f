"""The entries of the ledger as files: CSV, JSON lines, and Parquet with the extra `parquet`."""

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

import msgspec

from sluicegate.errors import BadRequest, ConfigError
from sluicegate.store import LedgerLine, Store
from sluicegate.store.shapes import show_time

COLUMNS = ("entry", "at", "reference", "kind", "attempt", "account", "amount_nano_usd", "request_id", "note")
ROWS_A_GROUP = 65_536
"""How many lines one row group of a Parquet file has, and how many are held at once."""


class ExportFormat(StrEnum):
    """How `ledger export` writes."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


async def export_csv(store: Store, path: Path | None) -> None:
    """Write one line for each side of each entry, under a line of names."""
    with _opened(path) as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        async for line in store.export_ledger():
            writer.writerow(_shown(line))


async def export_jsonl(store: Store, path: Path | None) -> None:
    """Write one JSON object a line for each side of each entry."""
    with _opened(path) as file:
        async for line in store.export_ledger():
            file.write(msgspec.json.encode(_shown(line)).decode() + "\n")


async def export_parquet(store: Store, path: Path) -> None:
    """Write a Parquet file: amounts as 64-bit integers, times as microseconds in UTC.

    Raises:
        ConfigError: the extra is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError("Parquet needs an extra: pip install 'sluicegate[parquet]'") from None
    schema = pyarrow.schema(
        {
            "entry": pyarrow.int64(),
            "at": pyarrow.timestamp("us", "UTC"),
            "reference": pyarrow.string(),
            "kind": pyarrow.string(),
            "attempt": pyarrow.int32(),
            "account": pyarrow.string(),
            "amount_nano_usd": pyarrow.int64(),
            "request_id": pyarrow.string(),
            "note": pyarrow.string(),
        }
    )
    try:
        with pyarrow.parquet.ParquetWriter(path, schema) as writer:
            group: list[dict[str, Any]] = []
            async for line in store.export_ledger():
                group.append(_shown(line) | {"at": datetime.fromtimestamp(line.at, UTC)})
                if len(group) == ROWS_A_GROUP:
                    writer.write_table(pyarrow.Table.from_pylist(group, schema))
                    group.clear()
            writer.write_table(pyarrow.Table.from_pylist(group, schema))
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror}") from None


def _shown(line: LedgerLine) -> dict[str, Any]:
    return {
        "entry": line.entry,
        "at": show_time(line.at),
        "reference": line.reference,
        "kind": line.kind,
        "attempt": line.attempt,
        "account": line.account,
        "amount_nano_usd": line.amount_nano,
        "request_id": line.request_id,
        "note": line.note,
    }
