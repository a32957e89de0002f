"""How a public id leads to a model."""

import pytest

from sluicegate.routing.catalog import Catalogue, Deployment, Model, Price, dated_key
from sluicegate.routing.families import hides_reasoning

PRICE = Price(input=1, output=2)


def model(name: str, target: str = "t", price: Price | None = PRICE, **more: object) -> Model:
    return Model(id=name, deployments=(Deployment(provider="p", model=target),), price=price, **more)  # type: ignore[arg-type]


EXACT = model("a/b", aliases=("other",))
CATALOGUE = Catalogue(
    providers={},
    models={"a/b": EXACT, "other": EXACT},
    wildcards=(
        ("a/long/", model("a/long/*", "x-*")),
        ("a/", model("a/*", "*", None)),
        ("f/", model("f/*", "*", None, free=True)),
    ),
    wildcard_prices={"p/known": PRICE, "p/claude-x-yyyymmdd": PRICE, "p/gpt-x-yyyy-mm-dd": PRICE},
    wildcard_costs={"p/known": Price(input=7)},
)


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
    served = CATALOGUE.find(asked)
    assert served is not None
    assert (served.id, served.deployments[0].model) == (found, target)


@pytest.mark.parametrize(
    "asked", ["nope", "a/", "a", "a/unknown", "a/claude-x-2026-01-02", "a/claude-x-20261302", "b/x"]
)
def test_an_id_is_not_found(asked: str) -> None:
    assert CATALOGUE.find(asked) is None


def test_a_wildcard_brings_price_and_cost_of_the_id() -> None:
    served = CATALOGUE.find("a/known")
    assert served is not None
    assert served.price == PRICE
    assert served.deployments[0].cost == Price(input=7)


def test_dates() -> None:
    assert dated_key("p/m@20260102") == "p/m@yyyymmdd"
    assert dated_key("p/m-20260102x") is None


@pytest.mark.parametrize(
    "name", ["o3", "o4-mini", "gpt-5-mini", "openai/gpt-5.6-sol", "gemini-2.5-pro", "gemini-4-argon"]
)
def test_families_that_hide_reasoning(name: str) -> None:
    assert hides_reasoning(name)


@pytest.mark.parametrize(
    "name", ["gpt-4o", "gpt-4.1", "gemini-2.0-flash", "claude-sonnet-4-5", "llama-3", "ollama", "gpt-oss-20b"]
)
def test_families_that_do_not(name: str) -> None:
    assert not hides_reasoning(name)
