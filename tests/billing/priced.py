"""What `billing.price` says of prices as a configuration has them."""

from typing import Any

from sluicegate.billing import price
from sluicegate.messages import Usage
from sluicegate.routing import catalog
from sluicegate.routing.catalog_shapes import Price


def charge(row: Price | None, usage: Usage, asked_tier: str | None = None) -> tuple[int, bool]:
    return price.charge(None if row is None else catalog.Price(row), usage, asked_tier)


def reservation(row: Price, *args: Any, **more: Any) -> int:
    return price.reservation(catalog.Price(row), *args, **more)


def has_dearer_input(row: Price) -> bool:
    return price.has_dearer_input(catalog.Price(row))
