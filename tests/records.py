"""Journal records for tests of the ledger, the journal and the store."""

from sluicegate.billing.ledger import Checkpoint, Extended, ProviderCost, Reserved, Settled, UsageRow
from sluicegate.messages import Usage

STARTED_AT = 1_800_000_000.0


def make_row(
    request_id: str,
    *,
    account: str = "dev",
    cost: int = 0,
    shortfall: int = 0,
    status: str = "ok",
    started_at: float = STARTED_AT,
    model: str = "m",
    key_id: str = "key_0000000000000001",
    provider: str = "p",
) -> UsageRow:
    """A row as a streamed chat completion leaves it."""
    return UsageRow(
        request_id=request_id,
        key_id=key_id,
        account_id=account,
        key=account,
        model=model,
        provider=provider,
        provider_model="upstream-m",
        client_format="chat",
        provider_format="chat",
        stream=True,
        status=status,
        finish_reason="stop",
        usage=Usage(input_tokens=100, output_tokens=20),
        usage_source="reported",
        cost_nano_usd=cost,
        list_cost_nano_usd=cost + shortfall,
        shortfall_nano_usd=shortfall,
        attempts=1,
        started_at=started_at,
    )


def reserved(
    request_id: str, amount: int = 1000, *, account: str = "dev", on_crash: str = "none"
) -> Reserved:
    """What is journalled before a provider is called."""
    return Reserved(
        request_id=request_id,
        account_id=account,
        amount_nano=amount,
        row=make_row(request_id, account=account),
        on_crash=on_crash,
    )


def extended(request_id: str, amount: int, *, account: str = "dev") -> Extended:
    """More held for a running stream."""
    return Extended(request_id=request_id, account_id=account, amount_nano=amount)


def checkpoint(request_id: str, cost: int, *, account: str = "dev", finished: bool = False) -> Checkpoint:
    """Where a running stream stands."""
    return Checkpoint(
        request_id=request_id, row=make_row(request_id, account=account, cost=cost), finished=finished
    )


def settled(
    request_id: str, cost: int, *, account: str = "dev", shortfall: int = 0, started_at: float = STARTED_AT
) -> Settled:
    """The resolution of a request."""
    row = make_row(request_id, account=account, cost=cost, shortfall=shortfall, started_at=started_at)
    return Settled(request_id=request_id, account_id=account, row=row)


def lost_attempt(request_id: str, attempt: int = 1, amount: int | None = None) -> ProviderCost:
    """What an attempt cost that no customer pays for."""
    return ProviderCost(
        request_id=request_id,
        attempt=attempt,
        provider="p",
        provider_model="upstream-m",
        at=STARTED_AT,
        amount_nano=amount,
        reason="stream cut",
    )
