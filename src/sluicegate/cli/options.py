"""Options that every command has in common."""

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path,
    typer.Option(
        "-c", "--config", metavar="FILE", envvar="SLUICEGATE_CONFIG", help="The configuration file."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
