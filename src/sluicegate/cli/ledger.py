"""`sluicegate ledger`: add the books up again, or hand them out."""

import csv
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from sluicegate.cli.options import AsJson, ConfigFile
from sluicegate.cli.store_access import (
    load_config,
    print_json,
    read,
)
from sluicegate.cli.usage import show_time
from sluicegate.config import DEFAULT_FILE
from sluicegate.money import format_usd
from sluicegate.store import LedgerLine, Store

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


class ExportFormat(StrEnum):
    """How `ledger export` writes."""

    CSV = "csv"
    JSONL = "jsonl"


@app.command()
def verify(config: ConfigFile = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Recompute every balance from its entries and compare; status 1 where something is wrong."""
    report = read(load_config(config), lambda store: store.verify())
    if as_json:
        print_json(
            {
                "clean": report.clean,
                "entries": report.entries,
                "settlements": report.settlements,
                "balances_nano_usd": report.balances,
                "problems": report.problems,
            }
        )
    else:
        for problem in report.problems:
            typer.echo(problem)
        verdict = "clean" if report.clean else f"{len(report.problems)} problems"
        typer.echo(f"{verdict}: {report.entries} entries, {report.settlements} settlements")
        for account, nano in sorted(report.balances.items()):
            typer.echo(f"  {account} {format_usd(nano)} USD")
    if not report.clean:
        raise typer.Exit(1)


@app.command()
def export(
    form: Annotated[ExportFormat, typer.Option("--format", help="How to write it.")] = ExportFormat.CSV,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Print both sides of every entry, in the order they were posted; the lines of an entry sum to zero."""
    as_csv = form is ExportFormat.CSV and not as_json
    read(load_config(config), _export_csv if as_csv else _export_jsonl)


async def _export_jsonl(store: Store) -> None:
    async for line in store.export_ledger():
        print_json(_shown(line))


async def _export_csv(store: Store) -> None:
    columns = ("entry", "at", "reference", "kind", "attempt", "account", "amount_nano_usd")
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    async for line in store.export_ledger():
        writer.writerow(_shown(line))


def _shown(line: LedgerLine) -> dict[str, Any]:
    return {
        "entry": line.entry,
        "at": show_time(line.at),
        "reference": line.reference,
        "kind": line.kind,
        "attempt": line.attempt,
        "account": line.account,
        "amount_nano_usd": line.amount_nano,
    }
