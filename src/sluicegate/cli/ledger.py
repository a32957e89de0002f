"""`sluicegate ledger`: prove the books, hand them out, tell accounts and providers what stands in them, correct them.

Nothing here changes what was posted: a refund or a correction is a new entry. How to audit is docs/ledger.md.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from sluicegate.cli.ledger_export import ExportFormat, export_csv, export_jsonl, export_parquet
from sluicegate.cli.options import AsJson, ConfigFile
from sluicegate.cli.reconciliation import compare, read_invoice, show_difference, table_of_differences
from sluicegate.cli.statements import print_statement
from sluicegate.cli.store_access import key_secret, load_config, perform, print_json, read
from sluicegate.cli.tables import print_table
from sluicegate.config import DEFAULT_FILE
from sluicegate.errors import BadRequest
from sluicegate.money import format_usd, parse_usd
from sluicegate.store.shapes import month_of, read_anchor, show_anchor, show_report, show_statement, show_time

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_SIGNED = {"ignore_unknown_options": True}
"""Lets a negative amount through as an argument, and not as an option."""

Month = Annotated[
    str | None,
    typer.Option(help="A calendar month in UTC, such as 2026-11; the running one where not given."),
]
Reference = Annotated[str | None, typer.Option(help="Names the movement: the same one again moves nothing.")]
Note = Annotated[str | None, typer.Option(help="Why, in one line; it is kept with the entry.")]


@app.command()
def verify(
    anchor: Annotated[
        list[str] | None,
        typer.Option(help="ENTRY:HASH, a link noted earlier, which must still be there; again for more."),
    ] = None,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Prove balances, settlements and the chain of hashes. Status 1 where something is wrong."""
    anchors = [read_anchor(text) for text in anchor or ()]
    report = read(load_config(config), lambda store: store.verify(anchors))
    if as_json:
        print_json(show_report(report))
    else:
        for problem in report.problems:
            typer.echo(problem)
        verdict = "clean" if report.clean else f"{len(report.problems)} problems"
        typer.echo(
            f"{verdict}: {report.entries} entries, {report.settlements} settlements, {report.links} links of the chain"
        )
        if report.head is not None:
            typer.echo(f"  anchor {report.head.entry}:{report.head.hash}")
        for account, nano in sorted(report.balances.items()):
            typer.echo(f"  {account} {format_usd(nano)} USD")
    if not report.clean:
        raise typer.Exit(1)


@app.command()
def anchors(config: ConfigFile = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Print the last link of each UTC day, to be noted elsewhere. Today's still moves."""
    for anchor in read(load_config(config), lambda store: store.anchors()):
        if as_json:
            print_json(show_anchor(anchor))
        else:
            typer.echo(f"{show_time(anchor.at)[:10]} {anchor.entry}:{anchor.hash}")


@app.command()
def export(
    form: Annotated[ExportFormat, typer.Option("--format", help="How to write it.")] = ExportFormat.CSV,
    output: Annotated[
        Path | None,
        typer.Option(help="A file to write to; else standard output, which Parquet does not go to."),
    ] = None,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Write both sides of every entry, in the order of posting. The lines of an entry sum to zero."""
    if as_json:
        form = ExportFormat.JSONL
    settings = load_config(config)
    if form is ExportFormat.PARQUET:
        if output is None:
            raise BadRequest("--format parquet needs --output FILE")
        path = output
        read(settings, lambda store: export_parquet(store, path))
        return
    write = export_csv if form is ExportFormat.CSV else export_jsonl
    read(settings, lambda store: write(store, output))


@app.command()
def statement(
    account: Annotated[str, typer.Argument(help="An account.", show_default=False)],
    month: Month = None,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Tell an account its month: what it held, got and was charged."""
    since, until = month_of(month)
    told = read(load_config(config), lambda store: store.statement(account, since, until))
    if as_json:
        print_json(show_statement(told))
    else:
        print_statement(told)


@app.command()
def reconcile(
    provider: Annotated[str, typer.Argument(help="A provider of the configuration.", show_default=False)],
    invoice: Annotated[
        Path,
        typer.Argument(
            help="The provider's figures: CSV with a column `model` and any of requests, input_tokens, "
            "cache_read_tokens, cache_write_tokens, output_tokens, cost_usd.",
            show_default=False,
        ),
    ],
    month: Month = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Percent by which a figure may differ.")] = 0.0,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Hold a provider's invoice against what was used of it. Status 1 where they differ."""
    settings = load_config(config)
    theirs = read_invoice(invoice)
    since, until = month_of(month)
    catalogue = settings.worker_settings(key_secret(settings), os.environ).catalogue
    differences = read(settings, lambda store: compare(store, catalogue, provider, theirs, since, until))
    wrong = [each for each in differences if not each.within(tolerance)]
    if as_json:
        for each in differences:
            print_json(show_difference(each, tolerance))
    else:
        print_table(table_of_differences(differences, tolerance))
    if wrong:
        raise typer.Exit(1)


@app.command(context_settings=_SIGNED)
def refund(
    request_id: Annotated[str, typer.Argument(help="A request's id.", show_default=False)],
    usd: Annotated[
        str | None, typer.Argument(help="How much of its charge; else all that is left of it.")
    ] = None,
    reference: Reference = None,
    note: Note = None,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Give back what a request was charged, or a part of it."""
    amount_nano = None if usd is None else _usd(usd)
    if amount_nano is not None and amount_nano <= 0:
        raise BadRequest("the amount must be above 0")
    args = {"request_id": request_id, "amount_nano": amount_nano, "reference": reference, "note": note}
    _tell_moved(perform(load_config(config), "requests.refund", args), as_json)


@app.command(context_settings=_SIGNED)
def adjust(
    account: Annotated[str, typer.Argument(help="An account.", show_default=False)],
    usd: Annotated[str, typer.Argument(help="How much: out of it where below 0.", show_default=False)],
    request: Annotated[
        str | None, typer.Option(help="The request whose charge this corrects; else it is about none.")
    ] = None,
    reference: Reference = None,
    note: Note = None,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Put an account's credit right by a new entry. What is taken out comes of what is free."""
    amount_nano = _usd(usd)
    args = {
        "account": account,
        "amount_nano": amount_nano,
        "request_id": request,
        "reference": reference,
        "note": note,
    }
    _tell_moved(perform(load_config(config), "accounts.adjust", args), as_json, out=amount_nano < 0)


def _tell_moved(done: dict[str, Any], as_json: bool, *, out: bool = False) -> None:
    account = done["account"]
    if as_json:
        print_json(
            {"account": account["id"], "balance_nano_usd": account["balance_nano_usd"]}
            | {name: done[name] for name in ("amount_nano_usd", "posted", "reference")}
        )
        return
    again = "" if done["posted"] else " (this reference was posted before)"
    moved, balance = format_usd(done["amount_nano_usd"]), format_usd(account["balance_nano_usd"])
    way = "taken out of" if out else "put into"
    typer.echo(f"${moved} {way} account {account['id']!r}, which has ${balance}{again}")


def _usd(text: str) -> int:
    try:
        return parse_usd(text)
    except ValueError as error:
        raise BadRequest(f"the amount: {error}") from None
