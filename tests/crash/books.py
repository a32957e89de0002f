"""What a gate's books say, as its commands print them."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

COMMAND_TIMEOUT_S = 120.0


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
    line = [sys.executable, "-m", "sluicegate", *words, "--json", "--config", str(config)]
    run = await asyncio.to_thread(
        subprocess.run, line, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
    )
    if run.returncode != 0 and not run.stdout:
        raise RuntimeError(f"{' '.join(words)} ended with status {run.returncode}: {run.stderr}")
    return [json.loads(printed) for printed in run.stdout.splitlines()]
