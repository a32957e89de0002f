"""Statements of account as `ledger statement` prints them."""

import typer
from rich.table import Table

from sluicegate.cli.tables import print_table
from sluicegate.money import format_usd
from sluicegate.store import Statement
from sluicegate.store.shapes import show_time


def print_statement(statement: Statement) -> None:
    """Print a statement for people."""
    first, end = (show_time(at)[:10] for at in (statement.since, statement.until))
    typer.echo(f"Account {statement.account_id}, {first} until {end} (UTC)")
    money = Table("", "", "USD", box=None, pad_edge=False, show_header=False)
    money.columns[2].justify = "right"
    money.add_row("opening", "", format_usd(statement.opening_nano))
    for each in statement.movements:
        about = " ".join(filter(None, (each.request_id, each.note))) or each.reference
        money.add_row(f"{show_time(each.at)[:10]} {each.kind}", about, format_usd(each.amount_nano))
    requests = sum(sold.requests for sold in statement.models.values())
    money.add_row("charges", f"{requests} requests", format_usd(-statement.charged_nano))
    money.add_row("closing", "", format_usd(statement.closing_nano))
    print_table(money)
    sold = Table("model", "requests", "input", "cached", "output", "USD", box=None, pad_edge=False)
    for column in sold.columns[1:]:
        column.justify = "right"
    for model in sorted(statement.models):
        of_it = statement.models[model]
        sold.add_row(
            model,
            str(of_it.requests),
            str(of_it.input_tokens),
            str(of_it.cache_read_tokens),
            str(of_it.output_tokens),
            format_usd(of_it.charged_nano),
        )
    if statement.models:
        print_table(sold)
