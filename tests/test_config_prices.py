"""Where a model's price comes from: the file, the bundled catalogue, or nowhere, and then it is refused."""

from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from genai_prices import data
from genai_prices.types import TieredPrices

from sluicegate.config import price_catalogue
from sluicegate.errors import ConfigError
from sluicegate.routing.catalog_shapes import Price, PriceTier
from tests.test_config import loaded, settings

TODAY = date(2026, 11, 20)


def text(upstream: str, *, provider: str = "https://api.openai.com/v1", more: str = "", top: str = "") -> str:
    return (
        f'{top}\nproviders: {{p: {{base_url: "{provider}"}}}}\n'
        f'models: {{m: {{routes: [{{provider: p, model: "{upstream}"}}{more}]}}}}'
    )


def price_of(folder: Path, configuration: str, model: str = "m") -> Price | None:
    found = settings(folder, configuration).catalogue.find(model)
    assert found is not None
    return found.price


def test_a_model_without_a_price_takes_the_catalogues(tmp_path: Path) -> None:
    config = loaded(tmp_path, text("gpt-4o-mini"))
    price = config.prices["m"].price
    assert price is not None
    assert (price.input, price.cache_read, price.output) == (150_000_000, 75_000_000, 600_000_000)
    assert config.prices["m"].source == "catalogue, openai gpt-4o-mini"


def test_a_listed_dated_alias_is_the_same_row(tmp_path: Path) -> None:
    assert price_of(tmp_path, text("gpt-4o-mini-2024-07-18")) == price_of(tmp_path, text("gpt-4o-mini"))
    anthropic = "https://api.anthropic.com"
    dated = price_of(tmp_path, text("claude-sonnet-4-5-20250929", provider=anthropic))
    assert dated == price_of(tmp_path, text("claude-sonnet-4-5", provider=anthropic))


@pytest.mark.parametrize(
    "upstream",
    ["gpt-4o-mini-2031-01-01", "gpt-4o-mini-fast", "vendor/new-model-2026-01-01", "x", "whisper-1"],
)
def test_B024_nothing_is_borrowed_from_a_similar_row(tmp_path: Path, upstream: str) -> None:
    with pytest.raises(
        ConfigError, match=r"models\.m\.price: has no price, and the catalogue of openai does not list"
    ):
        loaded(tmp_path, text(upstream))


def test_B024_the_refusal_names_what_a_person_could_write(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"\(its claude-opus-4-5 costs 5 in, 25 out\): write `price: \{input: …"
    ):
        loaded(tmp_path, text("claude-opus-4-5-fast", provider="https://api.anthropic.com"))


def test_B024_a_row_of_zeros_is_no_price(tmp_path: Path) -> None:
    zero = next(
        model.id
        for provider in data.providers
        if provider.id == "google"
        for model in provider.models
        if not isinstance(model.prices, list) and not any(model.prices.__dict__.values())
    )
    with pytest.raises(ConfigError, match="does not list"):
        loaded(tmp_path, text(zero, provider="https://generativelanguage.googleapis.com"))


def test_the_first_route_decides(tmp_path: Path) -> None:
    both = text("gpt-4o-mini", more=", {provider: p, model: gpt-4.1, priority: 0}")
    assert price_of(tmp_path, both) == price_of(tmp_path, text("gpt-4o-mini"))
    made = settings(tmp_path, both).catalogue.models["m"]
    assert [deployment.cost.output for deployment in made.deployments if deployment.cost] == [
        600_000_000,
        8_000_000_000,
    ]


def test_the_markup_is_on_catalogue_prices_alone(tmp_path: Path) -> None:
    top = "billing: {markup_percent: 12.5}"
    config = loaded(tmp_path, text("gpt-4o-mini", top=top))
    price = config.prices["m"].price
    assert price is not None
    assert (price.input, price.cache_read, price.output) == (168_750_000, 84_375_000, 675_000_000)
    assert config.prices["m"].source == "catalogue, openai gpt-4o-mini, with markup of 12.5 %"
    served = config.worker_settings(b"", {}).catalogue.models["m"]
    assert served.deployments[0].cost is not None
    assert served.deployments[0].cost.input == 150_000_000
    own = f"{top}\nproviders: {{p: {{base_url: 'http://a.example'}}}}\n"
    own += "models: {m: {price: {input: 1, output: 2}, routes: [{provider: p, model: x, cost: {input: 1, output: 1}}]}}"
    assert price_of(tmp_path, own) == Price(input=10**9, output=2 * 10**9)


@pytest.mark.parametrize(
    ("rate", "millionths", "marked_up"),
    [
        (1, 50 * 10**6, 2),
        (1, 49_999_999, 1),
        (3, 50 * 10**6, 5),
        (10**9, 1, 10**9 + 10),
        (7, 0, 7),
        (0, 10**9, 0),
    ],
)
def test_each_rate_is_rounded_half_up(rate: int, millionths: int, marked_up: int) -> None:
    tiers = (PriceTier(above_input_tokens=9, price=Price(input=rate)),)
    price = price_catalogue.mark_up(
        Price(input=rate, cache_read=rate, per_request=rate, tiers=tiers), millionths
    )
    assert (price.input, price.cache_read, price.per_request) == (marked_up, marked_up, marked_up)
    assert price.tiers[0].price.input == marked_up
    assert price.output == 0
    assert price.cache_write is None


def test_a_wildcard_prices_each_id(tmp_path: Path) -> None:
    configuration = """
providers:
  o: {base_url: "https://api.openai.com/v1"}
  a: {base_url: "https://api.anthropic.com", speaks: [messages]}
models:
  "o/*": {routes: [{provider: o, model: "*"}]}
  "a/*": {routes: [{provider: a, model: "*"}]}
  "a/free/*": {price: free, routes: [{provider: a, model: "*"}]}
  o/gpt-4o: {price: {input: 1, output: 1}, routes: [{provider: o, model: gpt-4o}]}
"""
    catalogue = settings(tmp_path, configuration).catalogue
    mini = catalogue.find("o/gpt-4o-mini")
    assert mini is not None
    assert mini.price is not None
    assert mini.price.input == 150_000_000
    assert mini.deployments[0].cost == mini.price
    exact = catalogue.find("o/gpt-4o")
    assert exact is not None
    assert exact.price == Price(input=10**9, output=10**9)
    dated, plain = catalogue.find("a/claude-sonnet-4-5-20250929"), catalogue.find("a/claude-sonnet-4-5")
    assert dated is not None
    assert plain is not None
    assert dated.price == plain.price
    assert dated.price is not None
    assert dated.price.cache_write_1h == 6 * 10**9
    free = catalogue.find("a/free/whatever")
    assert free is not None
    assert free.price is None
    assert free.free
    assert catalogue.find("o/gpt-4o-mini-2031-01-01") is None
    assert catalogue.find("a/nothing-like-this") is None


def test_hidden_output_by_family_and_by_word(tmp_path: Path) -> None:
    configuration = """
providers: {p: {base_url: "http://127.0.0.1:1"}}
models:
  a: {price: free, routes: [{provider: p, model: gpt-5-mini}]}
  b: {price: free, routes: [{provider: p, model: llama}]}
  c: {price: free, routes: [{provider: p, model: llama}], capabilities: {hidden_output: true}}
  "d/*": {price: free, routes: [{provider: p, model: "*"}]}
  "e/*": {price: free, routes: [{provider: p, model: "*"}], capabilities: {hidden_output: false}}
"""
    catalogue = settings(tmp_path, configuration).catalogue
    hidden = {
        name: found.hidden_output
        for name in ("a", "b", "c", "d/o3", "d/llama", "e/o3")
        if (found := catalogue.find(name))
    }
    assert hidden == {"a": True, "b": False, "c": True, "d/o3": True, "d/llama": False, "e/o3": False}


def test_tiers_and_long_prompts() -> None:
    row = price_catalogue.find("google", "gemini-2.5-pro", TODAY)
    assert row is not None
    assert (row.price.input, row.price.output) == (1_250_000_000, 10_000_000_000)
    (tier,) = row.price.tiers
    assert tier.above_input_tokens == 200_000
    assert (tier.price.input, tier.price.output, tier.price.cache_read) == (
        2_500_000_000,
        15_000_000_000,
        250_000_000,
    )


def test_prices_that_change_on_a_date() -> None:
    before, after = (
        price_catalogue.find("openai", "o3", day) for day in (date(2025, 6, 9), date(2025, 6, 10))
    )
    assert before is not None
    assert after is not None
    assert before.price.input > after.price.input
    assert "changes on 2025-06-10" in before.notes


def test_prices_that_go_by_the_hour_are_the_dearest() -> None:
    row = price_catalogue.find("deepseek", "deepseek-chat", TODAY)
    assert row is not None
    assert row.price.input == 270_000_000
    assert any("by the hour" in note for note in row.notes)


def test_every_rate_of_the_list_is_taken_exactly() -> None:
    """Compare each rate with the list's own decimal; the few that are finer than a nano-USD round half up."""
    compared = 0
    for provider in data.providers:
        for model in provider.models:
            row = price_catalogue.find(provider.id, model.id, TODAY)
            if row is None or isinstance(model.prices, list) or row.model != model.id:
                continue
            for theirs, ours in price_catalogue.RATES.items():
                rate = getattr(model.prices, theirs)
                if rate is None:
                    continue
                base: Decimal = rate.base if isinstance(rate, TieredPrices) else rate
                assert getattr(row.price, ours) == int(Fraction(base) * 10**9 + Fraction(1, 2)), (
                    provider.id,
                    model.id,
                )
                compared += 1
    assert compared > 3000


def test_every_id_that_a_wildcard_offers_is_the_row_of_that_id() -> None:
    for provider_id in ("openai", "anthropic", "google", "mistral"):
        for listed_id, row in price_catalogue.rows(provider_id, TODAY):
            if "yyyy" not in listed_id:
                assert price_catalogue.find(provider_id, listed_id, TODAY) == row


def test_providers_are_known_by_their_hosts() -> None:
    for url, provider in (
        ("https://api.openai.com/v1", "openai"),
        ("https://api.anthropic.com", "anthropic"),
        ("https://generativelanguage.googleapis.com", "google"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://example.com/v1", None),
    ):
        assert price_catalogue.provider_of(url) == provider


def test_prices_in_a_file_that_no_provider_has_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(
        "until: 2027-02-01\nprices: {openai: {x: {input: 1, output: 2}}, opnai: {x: {input: 1, output: 2}}}"
    )
    configuration = text("gpt-4o-mini", top="billing: {catalogue_file: prices.yaml}")
    assert [line for line in loaded(tmp_path, configuration).warnings if "prices" in line] == [
        "billing.catalogue_file: no provider here has the prices of opnai (prices.yaml)"
    ]
