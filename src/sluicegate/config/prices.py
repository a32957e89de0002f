"""Turns prices of the file into those that requests are charged by, and lays a price file over the bundled list.

A price may change: on dates that the file names, on those the bundled list knows, and where a price file begins and
ends. All of that becomes one price that holds now and what follows it, so that a running gate changes prices at the
moment they say, without being told. Nothing here reads a clock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from sluicegate.config import document, reading
from sluicegate.config.document import Problem
from sluicegate.config.price_rows import CatalogueFile, ListedPrice, PriceRow, Rates
from sluicegate.errors import ConfigError
from sluicegate.routing.catalog_shapes import DatedPrice, ImagePrice, Price, PriceTier

_RATES = tuple(Rates.model_fields)
_UNITS = ("per_request", "per_web_search", "per_second", "per_character")


def price_of(row: ListedPrice) -> Price:
    """Turn rates of the file, USD per million tokens, into a price."""
    rates = {name: value for name in _RATES if (value := getattr(row, name)) is not None}
    tiers = tuple(
        PriceTier(
            above_input_tokens=tier.above_input_tokens,
            price=Price(
                **rates | {name: value for name in _RATES if (value := getattr(tier, name)) is not None}
            ),
        )
        for tier in row.tiers
    )
    return Price(
        **rates,
        **{name: getattr(row, name) for name in _UNITS},
        per_image=tuple(
            ImagePrice(nano=image.usd, size=image.size, quality=image.quality) for image in row.per_image
        ),
        per_video_second=tuple(
            ImagePrice(nano=second.usd, size=second.size, quality=second.quality)
            for second in row.per_video_second
        ),
        tiers=tiers,
        service_tiers={tier.lower(): factor for tier, factor in row.service_tiers.items()},
    )


def dated(row: PriceRow, now: datetime) -> tuple[Price | None, tuple[DatedPrice, ...]]:
    """Return the price of a model that holds now, and what follows it."""
    begins = [(0.0, row), *((change.start.timestamp(), change) for change in row.changes)]
    course = [
        DatedPrice(from_at=from_at, price=None if listed.free else price_of(listed))
        for from_at, listed in begins
    ]
    return split(course, now)


def split(course: list[DatedPrice], now: datetime) -> tuple[Price | None, tuple[DatedPrice, ...]]:
    """Split a course of prices, the first of which has begun, into the one that holds and those that follow."""
    at = now.timestamp()
    begun = [dated for dated in course if dated.from_at <= at]
    return begun[-1].price, tuple(dated for dated in course if dated.from_at > at)


@dataclass(frozen=True)
class PriceFile:
    """Prices that providers charge, which go before the bundled list for a while."""

    path: Path
    from_at: float
    until_at: float
    """Seconds since 1970; they hold from the first up to the second."""
    until: datetime
    prices: Mapping[str, Mapping[str, Price]] = field(default_factory=dict)
    """By provider of the list, then by its model in lower case."""

    def find(self, provider_id: str, upstream_id: str) -> Price | None:
        """Return what the file says of a provider's model, now or later."""
        return self.prices.get(provider_id, {}).get(upstream_id.lower())

    def ids(self, provider_id: str) -> Iterator[str]:
        """Go through the models of a provider that the file prices."""
        yield from self.prices.get(provider_id, {})

    def lay_over(self, course: list[DatedPrice], price: Price) -> list[DatedPrice]:
        """Return a course of prices in which `price` holds while the file does.

        What the list does not have at all has no price to go back to: the file's stays until the next load.
        """
        before = [dated for dated in course if dated.from_at < self.from_at]
        after = [dated for dated in course if dated.from_at >= self.until_at]
        inside = [dated for dated in course if dated.from_at < self.until_at]
        if inside and not (after and after[0].from_at == self.until_at):
            after.insert(0, msgspec.structs.replace(inside[-1], from_at=self.until_at))
        return [*before, DatedPrice(from_at=self.from_at, price=price), *after]


def load_price_file(path: Path) -> PriceFile:
    """Read a price file.

    Raises:
        ConfigError: with one line for each thing that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    parsed = document.Document(text, {})
    found = parsed.problems or reading.read_as(CatalogueFile, parsed.data, path.parent)
    if isinstance(found, list):
        raise ConfigError("\n".join(_told(path, parsed, problem) for problem in found))
    return PriceFile(
        path=path,
        from_at=0.0 if found.start is None else found.start.timestamp(),
        until_at=found.until.timestamp(),
        until=found.until,
        prices={
            provider_id: {model.lower(): price_of(row) for model, row in rows.items()}
            for provider_id, rows in found.prices.items()
        },
    )


def _told(path: Path, parsed: document.Document, problem: Problem) -> str:
    line = parsed.line(problem.path)
    return f"{path}:{line}: {problem.message}" if line else f"{path}: {problem.message}"
