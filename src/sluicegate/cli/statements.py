"""Statements of account as `ledger statement` prints them, and the months they are of."""

import re
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from sluicegate.cli.usage import show_time
from sluicegate.errors import BadRequest
from sluicegate.money import format_usd
from sluicegate.store import Statement

_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])", re.ASCII)


def month_of(text: str | None) -> tuple[float, float]:
    """Return where a calendar month in UTC begins and where it has ended, in seconds since 1970.

    Args:
        text: such as 2026-11; None: the month that runs.
    Raises:
        BadRequest: it is no month.
    """
    if text is None:
        now = datetime.fromtimestamp(time.time(), UTC)
        year, month = now.year, now.month
    else:
        match = _MONTH.fullmatch(text)
        if match is None or not 1970 <= int(match[1]) < 9999:
            raise BadRequest(f"--month must be a month such as 2026-11: {text!r}")
        year, month = int(match[1]), int(match[2])
    until = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return datetime(year, month, 1, tzinfo=UTC).timestamp(), until.timestamp()


def show_statement(statement: Statement) -> dict[str, Any]:
    """Write a statement as `--json` and the admin API show it."""
    return {
        "account": statement.account_id,
        "since": show_time(statement.since),
        "until": show_time(statement.until),
        "opening_nano_usd": statement.opening_nano,
        "movements": [
            {
                "entry": each.entry,
                "at": show_time(each.at),
                "kind": each.kind,
                "reference": each.reference,
                "amount_nano_usd": each.amount_nano,
                "request_id": each.request_id,
                "note": each.note,
            }
            for each in statement.movements
        ],
        "charged_nano_usd": statement.charged_nano,
        "closing_nano_usd": statement.closing_nano,
        "models": [
            {"model": model}
            | {
                name.replace("_nano", "_nano_usd"): count
                for name, count in msgspec.structs.asdict(statement.models[model]).items()
            }
            for model in sorted(statement.models)
        ],
    }


def print_statement(statement: Statement) -> None:
    """Print a statement for people."""
    console = Console()
    first, end = (show_time(at)[:10] for at in (statement.since, statement.until))
    console.print(f"Account {statement.account_id}, {first} until {end} (UTC)")
    money = Table("", "", "USD", box=None, pad_edge=False, show_header=False)
    money.columns[2].justify = "right"
    money.add_row("opening", "", format_usd(statement.opening_nano))
    for each in statement.movements:
        about = " ".join(filter(None, (each.request_id, each.note))) or each.reference
        money.add_row(f"{show_time(each.at)[:10]} {each.kind}", about, format_usd(each.amount_nano))
    requests = sum(sold.requests for sold in statement.models.values())
    money.add_row("charges", f"{requests} requests", format_usd(-statement.charged_nano))
    money.add_row("closing", "", format_usd(statement.closing_nano))
    console.print(money)
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
        console.print(sold)
