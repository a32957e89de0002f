"""What would change for whom if another catalogue took the place of this one: prices and costs, rate by rate.

Both sides are plain data (`listing`), so that a running gate can tell its own over the control socket."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from sluicegate.routing.catalog_shapes import Catalogue, DatedPrice, Price

Listing = dict[str, dict[str, Any]]
"""By `price MODEL` or `cost PROVIDER/MODEL`: each rate by its name, whole numbers of nano-USD, or `free`."""


SERVICE_TIER = "service tier "
"""How a factor's name begins; its value is in millionths."""


class Change(NamedTuple):
    """One rate that differs; None where one side does not have it."""

    what: str
    rate: str
    old: Any
    new: Any


def listing(catalogue: Catalogue, at: float) -> Listing:
    """Return all prices and costs of a catalogue at a moment, seconds since 1970, what follows them included."""
    found: Listing = {}
    models = {model.id: model for model in catalogue.models.values()}
    models |= {model.id: model for _, model in catalogue.wildcards}
    for model in models.values():
        if model.free or model.price is not None:
            found[f"price {model.id}"] = _course(model.price, model.later, at)
        for deployment in model.deployments:
            if deployment.cost is not None:
                found[f"cost {deployment.provider}/{deployment.model}"] = _course(deployment.cost, (), at)
    for key, price in catalogue.wildcard_prices.items():
        found[f"price {key}"] = _course(price, catalogue.wildcard_later.get(key, ()), at)
    for key, cost in catalogue.wildcard_costs.items():
        found[f"cost {key}"] = _course(cost, (), at)
    return found


def differences(old: Listing, new: Listing) -> Iterator[Change]:
    """Tell every rate that differs, by model; a model that only one side has is told rate by rate too."""
    for what in sorted(old.keys() | new.keys()):
        before, after = old.get(what, {}), new.get(what, {})
        for rate in dict.fromkeys((*before, *after)):
            if before.get(rate) != after.get(rate):
                yield Change(what, rate, before.get(rate), after.get(rate))


def _course(price: Price | None, later: tuple[DatedPrice, ...], at: float) -> dict[str, Any]:
    for dated in later:
        if dated.from_at <= at:
            price = dated.price
    rates = dict(_rates("", price))
    for dated in later:
        if dated.from_at <= at:
            continue
        moment = msgspec.json.encode(dated.from_at).decode()
        rates |= _rates(f"from {moment}: ", dated.price)
    return rates


def _rates(prefix: str, price: Price | None) -> Iterator[tuple[str, Any]]:
    if price is None:
        yield f"{prefix}free", True
        return
    yield f"{prefix}input", price.input
    yield f"{prefix}output", price.output
    for name, value in msgspec.to_builtins(price).items():
        if name == "service_tiers":
            yield from ((f"{prefix}{SERVICE_TIER}{tier}", factor) for tier, factor in value.items())
        elif name in ("per_image", "per_video_second"):
            unit = name.replace("_", " ")
            for image in value:
                of = " ".join(filter(None, (image.get("quality"), image.get("size")))) or "any"
                yield f"{prefix}{unit}, {of}", image["nano"]
        elif name == "tiers":
            for tier in price.tiers:
                yield from _rates(f"{prefix}above {tier.above_input_tokens} tokens: ", tier.price)
        elif name not in ("input", "output"):
            yield f"{prefix}{name}", value
