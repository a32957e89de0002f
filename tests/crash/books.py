"""What a gate's books say, as its commands print them."""

import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from sluicegate.cli import main


class Books(NamedTuple):
    """Usage, ledger and verdict of one store."""

    rows: list[dict[str, Any]]
    """`usage --json`"""
    lines: list[dict[str, Any]]
    """`ledger export --json`: both sides of every entry."""
    verdict: dict[str, Any]
    """`ledger verify --json`"""


async def read_books(config: Path) -> Books:
    """Ask the commands, one after the other."""
    rows = await command(config, "usage")
    lines = await command(config, "ledger", "export")
    (verdict,) = await command(config, "ledger", "verify")
    return Books(rows, lines, verdict)


async def command(config: Path, *words: str) -> list[dict[str, Any]]:
    """Run one command of the gate and return the objects it prints; one that fails has still printed them."""
    status, printed, said = await asyncio.to_thread(_run, [*words, "--json", "--config", str(config)])
    if status and not printed:
        raise RuntimeError(f"{' '.join(words)} ended with status {status}: {said}")
    return [json.loads(line) for line in printed.splitlines()]


def _run(words: list[str]) -> tuple[object, str, str]:
    """Run the command line in this process, which has it in memory; return its status and what it printed."""
    out, err = io.BytesIO(), io.BytesIO()
    with (
        contextlib.redirect_stdout(io.TextIOWrapper(out, write_through=True)),
        contextlib.redirect_stderr(io.TextIOWrapper(err, write_through=True)),
    ):
        try:
            main(words)
        except SystemExit as end:
            return end.code, out.getvalue().decode(), err.getvalue().decode()
    raise AssertionError("the command line ends with a status")
