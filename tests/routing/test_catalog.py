"""How a public id leads to a model."""

import msgspec
import pytest

from sluicegate.routing import catalog
from sluicegate.routing.catalog_shapes import (
    Catalogue,
    Deployment,
    Model,
    Price,
    Provider,
    StreamClocks,
    dated_key,
    resolve_capabilities,
)

PRICE = Price(input=1, output=2)


def model(name: str, target: str = "t", price: Price | None = PRICE, **more: object) -> Model:
    return Model(id=name, deployments=(Deployment(provider="p", model=target),), price=price, **more)  # type: ignore[arg-type]


EXACT = model("a/b", aliases=("other",))
CATALOGUE = Catalogue(
    providers={"p": Provider(name="p", base_url="http://p", speaks=("messages", "chat"))},
    models={"a/b": EXACT, "other": EXACT},
    wildcards=(
        ("a/long/", model("a/long/*", "x-*")),
        ("a/", model("a/*", "*", None)),
        ("f/", model("f/*", "*", None, free=True)),
    ),
    wildcard_prices={"p/known": PRICE, "p/claude-x-yyyymmdd": PRICE, "p/gpt-x-yyyy-mm-dd": PRICE},
    wildcard_costs={"p/known": Price(input=7)},
)
SERVED = catalog.Catalogue(CATALOGUE)
DEAR = Price(input=1, output=2, cache_write=3, per_request=4)
CLOCKS = StreamClocks(idle_timeout_s=7.0)


@pytest.mark.parametrize(
    ("asked", "found", "target"),
    [
        ("a/b", "a/b", "t"),
        ("other", "a/b", "t"),
        ("a/long/z", "a/long/z", "x-z"),
        ("a/known", "a/known", "known"),
        ("a/KNOWN", "a/KNOWN", "KNOWN"),
        ("a/claude-x-20260102", "a/claude-x-20260102", "claude-x-20260102"),
        ("a/gpt-x-2026-01-02", "a/gpt-x-2026-01-02", "gpt-x-2026-01-02"),
        ("f/anything", "f/anything", "anything"),
    ],
)
def test_an_id_is_found(asked: str, found: str, target: str) -> None:
    served = SERVED.find(asked)
    assert served is not None
    assert (served.id, served.deployments[0].model) == (found, target)


@pytest.mark.parametrize(
    "asked", ["nope", "a/", "a", "a/unknown", "a/claude-x-2026-01-02", "a/claude-x-20261302", "b/x"]
)
def test_an_id_is_not_found(asked: str) -> None:
    assert SERVED.find(asked) is None


def test_a_wildcard_brings_price_and_cost_of_the_id() -> None:
    served = SERVED.find("a/known")
    assert served is not None
    cost = served.deployments[0].cost
    assert served.price is not None
    assert cost is not None
    assert (served.price.row, cost.row) == (PRICE, Price(input=7))


def test_a_model_is_made_once() -> None:
    assert SERVED.find("a/b") is SERVED.find("other") is SERVED.models["a/b"]
    assert SERVED.find("a/known") is SERVED.find("a/known")


def test_every_fact_that_serving_reads_is_the_rows() -> None:
    for made, row in (
        (SERVED.models["a/b"], EXACT),
        (SERVED.models["a/b"].deployments[0], EXACT.deployments[0]),
        (SERVED.providers["p"], CATALOGUE.providers["p"]),
        (catalog.Price(DEAR), DEAR),
        (catalog.StreamClocks(CLOCKS), CLOCKS),
    ):
        plain = [name for name in type(row).__struct_fields__ if hasattr(made, name)]
        plain = [name for name in plain if name not in ("deployments", "price", "tiers")]
        assert len(plain) > 8
        assert {name: getattr(made, name) for name in plain} == {name: getattr(row, name) for name in plain}


def test_dates() -> None:
    assert dated_key("p/m@20260102") == "p/m@yyyymmdd"
    assert dated_key("p/m-20260102x") is None


@pytest.mark.parametrize(
    ("asked", "reasoning", "temperature"),
    [
        ("c/claude-opus-4-5", "budget", True),
        ("c/claude-opus-5", "adaptive", True),
        ("c/my-own", "budget", True),
    ],
)
def test_a_wildcard_brings_what_is_known_of_the_id_and_what_is_said(
    asked: str, reasoning: str, temperature: bool
) -> None:
    targets = (Deployment(provider="p", model="*", said=(("temperature", True), ("efforts", ("low",)))),)
    wild = Model(id="c/*", deployments=targets, price=PRICE)
    served = msgspec.structs.replace(CATALOGUE, wildcards=(("c/", wild),)).find(asked)
    assert served is not None
    can = served.deployments[0].capabilities
    assert (can.reasoning, can.temperature, can.efforts) == (reasoning, temperature, ("low",))


def test_a_deployment_survives_the_way_to_a_worker() -> None:
    said = (
        ("temperature", False),
        ("max_temperature", 1.0),
        ("efforts", ("low", "high")),
        ("limit_field", "max_tokens"),
    )
    target = Deployment(
        provider="p", model="o3", said=said, capabilities=resolve_capabilities("o3", "chat", said)
    )
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(target), type=Deployment) == target
    assert hash(target)
