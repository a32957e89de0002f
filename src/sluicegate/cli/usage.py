"""`sluicegate usage`: what was asked for, who served it, what it used and what it cost."""

import time
from typing import Annotated, Any

import typer
from rich.table import Table

from sluicegate.billing.ledger import UsageRow
from sluicegate.cli.options import AsJson, ConfigFile
from sluicegate.cli.store_access import load_config, print_json, read
from sluicegate.cli.tables import print_table
from sluicegate.config import DEFAULT_FILE
from sluicegate.config.values import parse_duration, parse_instant
from sluicegate.errors import BadRequest
from sluicegate.money import format_usd
from sluicegate.store import Store, UsageQuery
from sluicegate.store.shapes import show_time


def usage(
    key: Annotated[str | None, typer.Option(help="Only this key: name or id.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model, by its public id.")] = None,
    provider: Annotated[str | None, typer.Option(help="Only this provider.")] = None,
    account: Annotated[str | None, typer.Option(help="Only what this account paid for.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only from then on: 2026-12-31, 2026-12-31T18:00Z, or 2h ago as 2h.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Only the first so many.")] = None,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Print one row for every request that was admitted, oldest first."""
    query = UsageQuery(
        key=key,
        model=model,
        provider=provider,
        account=account,
        since=None if since is None else _since(since),
        limit=limit,
    )
    settings = load_config(config)
    if as_json:
        read(settings, lambda store: _print_rows(store, query))
    else:
        print_table(read(settings, lambda store: _table(store, query)))


def show_row(row: UsageRow) -> dict[str, Any]:
    """Write a row as `usage --json` and the admin API show it: always every field, None where unknown."""
    used = row.usage
    return {
        "request_id": row.request_id,
        "key": row.key,
        "model": row.model,
        "provider": row.provider,
        "provider_model": row.provider_model,
        "client_format": row.client_format,
        "provider_format": row.provider_format,
        "stream": row.stream,
        "status": row.status,
        "finish_reason": row.finish_reason,
        "input_tokens": used.input_tokens,
        "cache_read_tokens": used.cache_read_tokens,
        "cache_write_tokens": used.cache_write_tokens,
        "output_tokens": used.output_tokens,
        "reasoning_tokens": used.reasoning_tokens,
        "usage_source": row.usage_source,
        "cost_nano_usd": row.cost_nano_usd,
        "list_cost_nano_usd": row.list_cost_nano_usd,
        "shortfall_nano_usd": row.shortfall_nano_usd,
        "ttft_ms": row.ttft_ms,
        "duration_ms": row.duration_ms,
        "tokens_per_s": row.tokens_per_s,
        "attempts": row.attempts,
        "started_at": show_time(row.started_at),
        "error": row.error,
        "account": row.account_id,
        "key_id": row.key_id,
        "usage_odd": row.usage_odd,
        "repaired": row.repaired,
        "client_request_id": row.client_request_id,
        "upstream_id": row.upstream_id,
    }


def _since(text: str) -> float:
    try:
        return parse_instant(text).timestamp()
    except ValueError:
        pass
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        raise BadRequest(
            "--since must be a date or time such as 2026-12-31T18:00Z, or a duration such as 2h"
        ) from None


async def _print_rows(store: Store, query: UsageQuery) -> None:
    async for row in store.usage(query):
        print_json(show_row(row))


async def _table(store: Store, query: UsageQuery) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("started", "key", "model", "provider", "status"):
        table.add_column(heading)
    for heading in ("in", "out", "cost USD", "ttft ms", "ms"):
        table.add_column(heading, justify="right")
    async for row in store.usage(query):
        table.add_row(
            show_time(row.started_at),
            row.key,
            row.model,
            row.provider or "",
            row.status,
            _count(row.usage.input_tokens),
            _count(row.usage.output_tokens),
            format_usd(row.cost_nano_usd),
            "" if row.ttft_ms is None else f"{row.ttft_ms:.0f}",
            f"{row.duration_ms:.0f}",
        )
    return table


def _count(tokens: int | None) -> str:
    return "" if tokens is None else str(tokens)
