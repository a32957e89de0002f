"""`sluicegate models`: what models cost, and what another file would change about it."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from sluicegate.cli.options import AsJson, ConfigFile
from sluicegate.cli.store_access import load_config, print_json
from sluicegate.cli.tables import print_table
from sluicegate.config import DEFAULT_FILE, load
from sluicegate.config.loading import is_price_file
from sluicegate.money import format_usd
from sluicegate.routing.catalog_shapes import Catalogue
from sluicegate.routing.price_list import SERVICE_TIER, Change, Listing, differences, listing
from sluicegate.server.control_socket import SupervisorNotRunning, call_supervisor

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Models and their prices."""


@app.command()
def diff(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A price file, or another configuration. Left out: the configuration as it is now.",
            show_default=False,
        ),
    ] = None,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Show what a file would change about the prices in force. Nothing is changed.

    In force is what the running gate charges by; where none runs, what the configuration says.
    """
    old, where = _in_force(config)
    changes = list(differences(old, listing(_proposed(config, file), time.time())))
    if as_json:
        for change in changes:
            print_json(change._asdict())
        return
    if not changes:
        typer.echo(f"nothing differs from {where}")
        return
    typer.echo(f"compared with {where}, USD per million tokens or per piece:")
    table = Table("what", "rate", "now", "then", "", box=None, pad_edge=False)
    for change in changes:
        table.add_row(
            change.what,
            _rate(change.rate),
            _shown(change.rate, change.old),
            _shown(change.rate, change.new),
            _percent(change),
        )
    print_table(table)


def _in_force(config: Path) -> tuple[Listing, str]:
    loaded = load_config(config)
    try:
        told: Any = call_supervisor(loaded.journal_dir, "prices", {})
    except SupervisorNotRunning:
        return listing(_catalogue(loaded), time.time()), f"{config}, as no gate runs"
    return msgspec.convert(told, Listing), "the running gate"


def _proposed(config: Path, file: Path | None) -> Catalogue:
    if file is None:
        return _catalogue(load_config(config))
    if not is_price_file(file):
        return _catalogue(load_config(file))
    return _catalogue(load(config, os.environ, price_file=file))


def _catalogue(loaded: Any) -> Catalogue:
    catalogue: Catalogue = loaded.worker_settings(b"", os.environ).catalogue
    return catalogue


def _rate(rate: str) -> str:
    """Write the moment of a change as a date."""
    if not rate.startswith("from "):
        return rate
    at, _, name = rate.removeprefix("from ").partition(": ")
    return f"from {datetime.fromtimestamp(float(at), UTC):%Y-%m-%d %H:%M}Z: {name}"


def _shown(rate: str, value: Any) -> str:
    if type(value) is not int:
        return "–" if value is None else "yes"
    return format_usd(value * 1000) + " x" if SERVICE_TIER in rate else format_usd(value)


def _percent(change: Change) -> str:
    if type(change.old) is not int or type(change.new) is not int or change.old == 0:
        return ""
    tenths = (change.new - change.old) * 1000 // change.old
    return f"{'+' if tenths >= 0 else '-'}{abs(tenths) // 10}.{abs(tenths) % 10} %"
