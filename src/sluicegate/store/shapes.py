"""How the commands and the admin API show what the ledger holds: plain data, amounts in nano-USD, times in UTC."""

import re
import time
from datetime import UTC, datetime
from typing import Any

import msgspec

from sluicegate.errors import BadRequest
from sluicegate.store import Anchor, LedgerReport, Statement

_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])", re.ASCII)


def show_time(at: float) -> str:
    """Write a wall time, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
            raise BadRequest(f"the month must be one such as 2026-11: {text!r}")
        year, month = int(match[1]), int(match[2])
    until = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return datetime(year, month, 1, tzinfo=UTC).timestamp(), until.timestamp()


def show_statement(statement: Statement) -> dict[str, Any]:
    """Write a statement of account."""
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


def show_report(report: LedgerReport) -> dict[str, Any]:
    """Write what a verification found."""
    return {
        "clean": report.clean,
        "entries": report.entries,
        "settlements": report.settlements,
        "links": report.links,
        "anchor": None if report.head is None else f"{report.head.entry}:{report.head.hash}",
        "balances_nano_usd": report.balances,
        "problems": report.problems,
    }


def show_anchor(anchor: Anchor) -> dict[str, Any]:
    """Write the last link of a day."""
    return {"day": show_time(anchor.at)[:10], "entry": anchor.entry, "hash": anchor.hash}


def read_anchor(text: str) -> Anchor:
    """Read `ENTRY:HASH`.

    Raises:
        BadRequest: it is none.
    """
    entry, _, digest = text.partition(":")
    if not (entry.isascii() and entry.isdecimal() and len(digest) == 64):
        raise BadRequest(f"an anchor must be ENTRY:HASH, as `ledger anchors` prints it: {text!r}")
    return Anchor(entry=int(entry), hash=digest.lower())
