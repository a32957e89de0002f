"""The bundled price list of the providers, read when the configuration is loaded; never by a worker.

A row is found by an id that it lists: its own, an alias, or the dated form of one of these where the row's
own rule covers it. Nothing is ever borrowed from a similar row, and a row whose rates are all 0, or in
units that `Price` does not know (hours, pages, characters), counts as none. Rates are exact decimals in the
list and stay exact here.

Source: the `genai-prices` package, `genai_prices.data` (seen 2026-11).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any

import msgspec
from genai_prices import data
from genai_prices.types import (
    ClauseAnd,
    ClauseEquals,
    ClauseOr,
    ClauseStartsWith,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)

from sluicegate.money import MAX_NANO, NANO_PER_USD, round_half_up
from sluicegate.routing.catalog_shapes import Price, PriceTier

RATES = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_reasoning_mtok": "reasoning",
    "input_audio_mtok": "input_audio",
    "output_audio_mtok": "output_audio",
    "input_image_mtok": "input_image",
    "output_image_mtok": "output_image",
}
"""The list's names of rates per million tokens, and ours."""

COUNTS = {"requests_kcount": "per_request", "web_searches_kcount": "per_web_search"}
"""The list's prices per thousand, and ours per one."""

SAMPLE_YEARS = (2024, 2025, 2026, 2027)
"""Years by which a row is asked whether it covers dated forms of its ids."""

_DATED = re.compile(r"(.+?)[-@](20\d{2})-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])")

PERCENT = 10**6
"""One percent in the unit of a markup."""


@dataclass(frozen=True)
class Row:
    """A price out of the list."""

    provider: str
    """The list's id of the provider."""
    model: str
    """The list's id of the row."""
    price: Price
    notes: tuple[str, ...] = ()
    """What the operator should know: rates that change, or that cannot be said here."""
    later: tuple[tuple[date, Price], ...] = ()
    """What it becomes on which day, earliest first."""


def provider_ids() -> list[str]:
    """Return the ids that a provider's `catalogue` may name."""
    return sorted(_providers())


def provider_of(base_url: str) -> str | None:
    """Return the id of the provider whose API a base URL leads to."""
    url = base_url + "/"
    return next((provider.id for provider in data.providers if re.match(provider.api_pattern, url)), None)


def find(provider_id: str, upstream_id: str, today: date) -> Row | None:
    """Find the price of a provider's model.

    Args:
        today: chooses among prices that change on a date.
    """
    provider = _providers().get(provider_id)
    if provider is None:
        return None
    model = _listed(provider_id).get(upstream_id.lower())
    if model is None:
        dated = _DATED.fullmatch(upstream_id.lower())
        model = _prefixed(provider_id).get(dated[1]) if dated else None
        if model is None or not model.is_match(upstream_id):
            return None
    return _row(provider, model, today)


def similar(provider_id: str, upstream_id: str, today: date) -> Row | None:
    """Return the row that the list itself would take for an id that it does not list: a hint for a person,
    no price."""
    provider = _providers().get(provider_id)
    model = provider.find_model(upstream_id) if provider else None
    return _row(provider, model, today) if provider and model else None


def rows(provider_id: str, today: date) -> Iterator[tuple[str, Row]]:
    """Go through all ids that a provider lists, each with its price; dated forms as `…-yyyymmdd`, see
    `dated_key`."""
    provider = _providers().get(provider_id)
    if provider is None:
        return
    listed = _listed(provider_id)
    for listed_id, model in listed.items():
        row = _row(provider, model, today)
        if row is not None:
            yield listed_id, row
    for beginning, model in _prefixed(provider_id).items():
        for suffix in ("-{}{}{}", "-{}-{}-{}", "@{}{}{}"):
            samples = [beginning + suffix.format(year, "06", "15") for year in SAMPLE_YEARS]
            if not any(sample not in listed and model.is_match(sample) for sample in samples):
                continue
            row = _row(provider, model, today)
            if row is not None:
                yield beginning + suffix.format("yyyy", "mm", "dd"), row


def mark_up(price: Price, millionths: int) -> Price:
    """Add a markup to every rate, each rounded half up to whole nano-USD per million.

    Args:
        millionths: the markup in millionths of a percent.
    """
    if millionths == 0:
        return price

    def raised(value: Any) -> Any:
        return min(round_half_up(value * (100 * PERCENT + millionths), 100 * PERCENT), MAX_NANO)

    rates = {
        name: raised(value) for name, value in msgspec.structs.asdict(price).items() if type(value) is int
    }
    tiers = tuple(
        PriceTier(above_input_tokens=tier.above_input_tokens, price=mark_up(tier.price, millionths))
        for tier in price.tiers
    )
    images = tuple(msgspec.structs.replace(image, nano=raised(image.nano)) for image in price.per_image)
    seconds = tuple(msgspec.structs.replace(row, nano=raised(row.nano)) for row in price.per_video_second)
    return msgspec.structs.replace(price, **rates, tiers=tiers, per_image=images, per_video_second=seconds)


@cache
def _providers() -> dict[str, Provider]:
    return {provider.id: provider for provider in data.providers}


@cache
def _listed(provider_id: str) -> dict[str, ModelInfo]:
    """Return a provider's rows by every id they list; a row's own id goes before another's alias."""
    models = _providers()[provider_id].models
    listed = {model.id.lower(): model for model in models}
    for model in models:
        for clause in _alternatives(model.match):
            if isinstance(clause, ClauseEquals):
                listed.setdefault(clause.equals.lower(), model)
    return listed


@cache
def _prefixed(provider_id: str) -> dict[str, ModelInfo]:
    """Return a provider's rows by every id they list, beginnings of ids included."""
    listed = dict(_listed(provider_id))
    for model in _providers()[provider_id].models:
        for clause in _alternatives(model.match):
            if isinstance(clause, ClauseStartsWith):
                listed.setdefault(clause.starts_with.lower().rstrip("-@"), model)
    return listed


def _alternatives(clause: Any) -> Iterator[Any]:
    if isinstance(clause, ClauseOr):
        for inner in clause.or_:
            yield from _alternatives(inner)
    elif not isinstance(clause, ClauseAnd):
        yield clause


def _row(provider: Provider, model: ModelInfo, today: date) -> Row | None:
    prices, notes = _in_force(model, today)
    price, unsaid = _whole_price(prices)
    if price is None:
        return None
    if unsaid:
        notes = (*notes, f"not charged: {', '.join(unsaid)}")
    later = ((day, _whole_price(coming)[0]) for day, coming in _coming(model, today))
    return Row(
        provider.id,
        model.id,
        price,
        notes,
        tuple((day, following) for day, following in later if following is not None),
    )


def _whole_price(prices: ModelPrice) -> tuple[Price | None, list[str]]:
    """Return a price of the list as ours, and what of it cannot be said; None where nothing of it can."""
    values: Mapping[str, Any] = {name: value for name, value in vars(prices).items() if value is not None}
    rates = {ours: values[theirs] for theirs, ours in RATES.items() if theirs in values}
    unsaid = sorted(values.keys() - RATES.keys() - COUNTS.keys())
    if not any(_base(rate) for rate in rates.values()):
        return None, unsaid
    counts = {ours: _nano(values[theirs], 1000) for theirs, ours in COUNTS.items() if theirs in values}
    thresholds = sorted(
        {tier.start for rate in rates.values() if isinstance(rate, TieredPrices) for tier in rate.tiers}
    )
    tiers = tuple(
        PriceTier(
            above_input_tokens=start,
            price=_price({ours: _at(rate, start) for ours, rate in rates.items()}, counts),
        )
        for start in thresholds
    )
    base = _price({ours: _base(rate) for ours, rate in rates.items()}, counts)
    return msgspec.structs.replace(base, tiers=tiers), unsaid


def _coming(model: ModelInfo, today: date) -> list[tuple[date, ModelPrice]]:
    """Return what a row becomes after today; of rates that go by the hour nothing is told."""
    if isinstance(model.prices, ModelPrice):
        return []
    coming = [
        (candidate.constraint.start_date, candidate.prices)
        for candidate in model.prices
        if isinstance(candidate.constraint, StartDateConstraint) and candidate.constraint.start_date > today
    ]
    return sorted(coming, key=lambda change: change[0])


def _in_force(model: ModelInfo, today: date) -> tuple[ModelPrice, tuple[str, ...]]:
    """Choose the price of a day, and tell what will change. Of rates that go by the hour the dearest are
    taken."""
    if isinstance(model.prices, ModelPrice):
        return model.prices, ()
    chosen: ConditionalPrice = model.prices[0]
    hourly: list[ModelPrice] = []
    notes: tuple[str, ...] = ()
    for candidate in model.prices:
        if isinstance(candidate.constraint, StartDateConstraint):
            if candidate.constraint.start_date <= today:
                chosen = candidate
            else:
                notes = (*notes, f"changes on {candidate.constraint.start_date}")
        elif isinstance(candidate.constraint, TimeOfDateConstraint):
            hourly.append(candidate.prices)
        else:
            chosen = candidate
    if hourly:
        notes = (*notes, "goes by the hour of the day; the dearest rates are taken")
    return max((chosen.prices, *hourly), key=_dearness), notes


def _dearness(prices: ModelPrice) -> Decimal:
    return sum(
        (_base(rate) for name, rate in vars(prices).items() if name in RATES and rate is not None), Decimal(0)
    )


def _base(rate: Decimal | TieredPrices) -> Decimal:
    return rate.base if isinstance(rate, TieredPrices) else rate


def _at(rate: Decimal | TieredPrices, start: int) -> Decimal:
    """Return the rate of a prompt just longer than a threshold."""
    if not isinstance(rate, TieredPrices):
        return rate
    reached = [tier.price for tier in rate.tiers if tier.start <= start]
    return reached[-1] if reached else rate.base


def _price(rates: Mapping[str, Decimal], counts: Mapping[str, int]) -> Price:
    return msgspec.convert({**{ours: _nano(rate, 1) for ours, rate in rates.items()}, **counts}, Price)


def _nano(usd: Decimal, per: int) -> int:
    """Turn USD into nano-USD, exactly; the few rates of the list that are finer are rounded half up."""
    nano = int((usd * NANO_PER_USD / per).to_integral_value(ROUND_HALF_UP))
    if not 0 <= nano <= MAX_NANO:
        raise ValueError(f"a rate of the price list is out of bounds: {usd}")
    return nano
