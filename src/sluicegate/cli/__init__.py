"""The command line. Each command is a module of its own, imported only when it is the one that was asked for.

A module holds either a function of the command's name, or a group of commands as `app`.
"""

import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Annotated, NamedTuple

import typer

from sluicegate import __version__
from sluicegate.errors import ClientError, ConfigError, SluicegateError


class Command(NamedTuple):
    """One word after `sluicegate`."""

    name: str
    help: str


COMMANDS = (
    Command("demo", "Stream one answer of a bundled model through a gate, and see what it cost."),
    Command("serve", "Run the gate."),
    Command("config", "Check a configuration, print its schema, or write one to start from."),
    Command("keys", "Create, list, top up, limit and revoke gateway keys."),
    Command("models", "Show what another price file or configuration would change about the prices."),
    Command("usage", "Show what was asked for, and what it cost."),
    Command("ledger", "Prove, export and correct the ledger; statements of account and invoices."),
    Command("simulate", "Serve scripted answers, for load tests and for trying faults."),
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; never returns normally."""
    given = sys.argv[1:] if arguments is None else arguments
    chosen = next((word for word in given if not word.startswith("-")), None)
    try:
        build(chosen)(given, prog_name="sluicegate")
    except SluicegateError as error:
        for line in error.message.splitlines():
            print(f"sluicegate: {line}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError | ClientError) else 1)


def build(chosen: str | None) -> typer.Typer:
    """Put the command line together, with the chosen command in full and the others by name only."""
    root = typer.Typer(
        name="sluicegate",
        help="A self-hosted gateway for LLM APIs that streams, meters and bills exactly.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    root.callback()(_root)
    for command in COMMANDS:
        if command.name == chosen:
            _add(root, command)
        else:
            root.command(command.name, help=command.help)(_named_only)
    return root


def _is_compiled() -> bool:
    """Whether this is the compiled wheel (`make wheel`), without importing what serves."""
    spec = importlib.util.find_spec("sluicegate.server.relay")
    return spec is not None and str(spec.origin).endswith(tuple(EXTENSION_SUFFIXES))


def _print_version(asked: bool) -> None:
    if asked:
        print(f"sluicegate {__version__}{' (compiled)' if _is_compiled() else ''}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and leave.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def _named_only() -> None:
    raise AssertionError("a command ran that was not loaded")


def _add(root: typer.Typer, command: Command) -> None:
    module = importlib.import_module(f"sluicegate.cli.{command.name}")
    function = getattr(module, command.name, None)
    if function is not None:
        root.command(command.name, help=command.help)(function)
    else:
        root.add_typer(module.app, name=command.name, help=command.help)
