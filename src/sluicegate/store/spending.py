"""What keys have spent in the periods that their limits are about, and limits that would be below it."""

from collections.abc import Iterable, Mapping

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.budgets import Budgets
from sluicegate.billing.spending_limits import WINDOWS, begins_at, day_of, limits_of
from sluicegate.errors import BadRequest
from sluicegate.money import format_usd
from sluicegate.store import Store


async def load_budgets(store: Store, keys: Iterable[KeyRecord], now: float) -> Budgets:
    """Return the budgets of all keys that have limits, with what the store has been told of."""
    limited = [key for key in keys if limits_of(key)]
    windows = {window for key in limited for window in limits_of(key)}
    day = day_of(now)
    spent = {window: await store.spent_since(begins_at(window, day)) for window in windows}
    budgets = Budgets()
    for key in limited:
        budgets.put(key, {window: of_all.get(key.id, 0) for window, of_all in spent.items()}, day)
    return budgets


async def follow_limits(store: Store, budgets: Budgets, key: KeyRecord, now: float) -> bool:
    """Take over the limits of a key that was made or changed; no commit may come between.

    Returns:
        Whether idle leases must be called back.
    """
    day = day_of(now)
    spent = {
        window: (await store.spent_since(begins_at(window, day), key.id)).get(key.id, 0)
        for window in budgets.unknown(key)
    }
    return budgets.put(key, spent, day)


async def refuse_limits_below_spent(
    store: Store, key: KeyRecord, limits: Mapping[str, int | None], now: float
) -> None:
    """Refuse a limit that its key is past already.

    Args:
        limits: nano-USD by window; None where there is none.
    Raises:
        BadRequest: names the first such limit.
    """
    day = day_of(now)
    for window in WINDOWS:
        limit = limits.get(window)
        if limit is None:
            continue
        spent = (await store.spent_since(begins_at(window, day), key.id)).get(key.id, 0)
        if limit < spent:
            period = "in all" if window == "lifetime" else f"this {window} (UTC)"
            raise BadRequest(
                f"{window}_usd: key {key.name!r} has spent {format_usd(spent)} USD {period}; "
                f"a limit of {format_usd(limit)} USD would be below that",
                param=f"{window}_usd",
            )
