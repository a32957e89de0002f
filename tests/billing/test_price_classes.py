"""Every kind of price, against the same sum worked out in decimals; and what is held before the truth is known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.billing.price import Prompt
from sluicegate.config.price_rows import ListedPrice
from sluicegate.config.prices import price_of
from sluicegate.messages import Usage
from sluicegate.money import MAX_NANO, format_usd
from sluicegate.routing.catalog_shapes import ImagePrice, Price, PriceTier
from tests.billing.decimals import FALL_BACK, cost_nano_usd
from tests.billing.priced import charge, has_dearer_input, reservation

USD = st.integers(0, 10**13).map(format_usd)
RATES = tuple(dict.fromkeys(rate for names in FALL_BACK.values() for rate in names))
TIERS = ("flex", "priority", "batch")


@st.composite
def prices(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a price as a file has it."""
    price: dict[str, Any] = {"input": draw(USD), "output": draw(USD)}
    for rate in draw(st.sets(st.sampled_from(RATES[1:]))):
        price[rate] = draw(USD)
    for unit in ("per_request", "per_web_search", "per_second", "per_character"):
        if draw(st.booleans()):
            price[unit] = draw(st.integers(0, 10**9).map(format_usd))
    price["tiers"] = [
        {"above_input_tokens": threshold}
        | {rate: draw(USD) for rate in draw(st.sets(st.sampled_from(RATES)))}
        for threshold in sorted(draw(st.sets(st.integers(1, 10**6), max_size=3)))
    ]
    factors = st.integers(0, 10**8).map(lambda millionths: format_usd(millionths * 1000))
    price["service_tiers"] = draw(st.dictionaries(st.sampled_from(TIERS), factors))
    return price


PARTS = st.fixed_dictionaries(
    {name: st.integers(0, 10**6) for name in FALL_BACK}
    | {name: st.integers(0, 10**6) for name in ("searches", "media_ms", "characters")}
)


def usage_of(parts: dict[str, int], tier: str | None) -> Usage:
    return Usage(
        input_tokens=sum(parts[name] for name in list(FALL_BACK)[:6]),
        cache_read_tokens=parts["read"],
        cache_write_tokens=parts["write_5m"] + parts["write_1h"],
        cache_write_1h_tokens=parts["write_1h"],
        input_audio_tokens=parts["audio_in"],
        input_image_tokens=parts["image_in"],
        output_tokens=sum(parts[name] for name in list(FALL_BACK)[6:]),
        reasoning_tokens=parts["reasoning"],
        output_audio_tokens=parts["audio_out"],
        output_image_tokens=parts["image_out"],
        web_searches=parts["searches"],
        media_ms=parts["media_ms"],
        characters=parts["characters"],
        service_tier=tier,
    )


def read(price: dict[str, Any]) -> Price:
    return price_of(ListedPrice.model_validate(price))


@given(prices(), PARTS, st.sampled_from((*TIERS, "default", None)))
def test_b1_any_price_times_any_usage_is_what_decimals_say(
    price: dict[str, Any], parts: dict[str, int], tier: str | None
) -> None:
    expected = cost_nano_usd(price, parts, tier)
    assert charge(read(price), usage_of(parts, tier)) == (min(expected, MAX_NANO), expected > MAX_NANO)


@given(
    prices(), st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from((*TIERS, "default", "auto", None))
)
def test_a_reservation_covers_plain_tokens_whatever_tier_serves(
    price: dict[str, Any], input_tokens: int, output_tokens: int, asked: str | None
) -> None:
    """Fewer tokens than were held for cost no more than that, in any tier that the request allows."""
    bought = read(price)
    held = reservation(bought, input_tokens, output_tokens, asked)
    served: tuple[str | None, ...] = (asked, "default")
    if asked in (None, "auto"):
        served = (*TIERS, "default", None)
    for tier in served:
        for share in (1, 2, 10):
            for reasoning in (0, output_tokens // share):
                usage = Usage(
                    input_tokens=input_tokens // share,
                    output_tokens=output_tokens // share,
                    reasoning_tokens=reasoning,
                    service_tier=tier,
                )
                assert charge(bought, usage, asked)[0] <= held


@given(
    prices(),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from((1, 2, 10)),
    st.data(),
)
def test_b2_a_reservation_covers_a_prompt_that_is_all_written_to_a_cache(
    price: dict[str, Any], input_tokens: int, media_tokens: int, hour: bool, share: int, data: st.DataObject
) -> None:
    """However the provider splits it: fresh, written for minutes or for an hour, pictures and sound."""
    bought = read(price)
    held = reservation(bought, input_tokens, 0, "default", prompt=Prompt(True, hour, media_tokens))
    used = input_tokens // share
    short = data.draw(st.integers(0, used))
    long = data.draw(st.integers(0, used - short)) if hour else 0
    media = data.draw(st.integers(0, min(media_tokens, used - short - long)))
    audio = data.draw(st.integers(0, media))
    usage = Usage(
        input_tokens=used,
        output_tokens=0,
        cache_write_tokens=short + long,
        cache_write_5m_tokens=short,
        cache_write_1h_tokens=long,
        input_audio_tokens=audio,
        input_image_tokens=media - audio,
        service_tier="default",
    )
    assert charge(bought, usage, "default")[0] <= held
    if not has_dearer_input(bought):
        assert held == reservation(bought, input_tokens, 0, "default")


def test_a_reservation_holds_writes_only_where_they_are_in_reach() -> None:
    price = Price(
        input=10**6, output=0, cache_write=1_250_000, cache_write_1h=2 * 10**6, input_audio=8 * 10**6
    )
    assert has_dearer_input(price)
    assert reservation(price, 1000, 0) == 1000
    assert reservation(price, 1000, 0, prompt=Prompt(may_write=True)) == 1250
    assert reservation(price, 1000, 0, prompt=Prompt(True, True)) == 2000
    assert reservation(price, 1000, 0, prompt=Prompt(media_tokens=100)) == 900 + 800
    in_tier = Price(input=1, tiers=(PriceTier(above_input_tokens=9, price=price),))
    assert has_dearer_input(in_tier)
    assert reservation(in_tier, 1000, 0, prompt=Prompt(True, True)) == 2000
    assert not has_dearer_input(Price(input=10, output=1, cache_read=1, cache_write=10))


def test_the_whole_prompt_decides_the_context_tier() -> None:
    price = Price(
        input=10,
        output=100,
        cache_read=1,
        tiers=(PriceTier(above_input_tokens=200, price=Price(input=20, output=150, cache_read=2)),),
    )
    at = Usage(input_tokens=200 * 10**6, cache_read_tokens=0, output_tokens=10**6)
    assert charge(price, at)[0] == 200 * 20 + 150
    assert charge(price, Usage(input_tokens=200, output_tokens=10**6))[0] == 100
    cached = Usage(input_tokens=10**6, cache_read_tokens=10**6, output_tokens=0)
    assert charge(price, cached)[0] == 2


def test_what_a_tier_leaves_out_is_as_without_it() -> None:
    price = read(
        {"input": "1", "output": "2", "cache_read": "0.1", "tiers": [{"above_input_tokens": 9, "input": "3"}]}
    )
    assert price.tiers[0].price == Price(input=3 * 10**9, output=2 * 10**9, cache_read=10**8)


def test_the_service_tier_that_served_counts_before_the_one_that_was_asked_for() -> None:
    price = Price(input=10**6, output=0, service_tiers={"priority": 2 * 10**6, "flex": 500_000})
    thousand = Usage(input_tokens=1000)
    served = Usage(input_tokens=1000, service_tier="default")
    assert charge(price, thousand, "priority")[0] == 2000
    assert charge(price, served, "priority")[0] == 1000
    assert charge(price, Usage(input_tokens=1000, service_tier="flex"))[0] == 500
    assert charge(price, thousand, "auto")[0] == 1000


@pytest.mark.parametrize(
    ("asked", "held"), [(None, 2000), ("auto", 2000), ("priority", 2000), ("flex", 1000), ("default", 1000)]
)
def test_a_reservation_takes_the_dearest_service_tier_in_reach(asked: str | None, held: int) -> None:
    price = Price(input=10**6, output=0, service_tiers={"priority": 2 * 10**6, "flex": 500_000})
    assert reservation(price, 1000, 0, asked) == held


def test_a_reservation_takes_the_dearer_of_two_context_tiers() -> None:
    cheaper_when_long = Price(
        input=10**6, output=0, tiers=(PriceTier(above_input_tokens=100, price=Price(input=1, output=0)),)
    )
    assert reservation(cheaper_when_long, 1000, 0) == 1000
    assert reservation(cheaper_when_long, 1000, 50) == 1000


@pytest.mark.parametrize(
    ("size", "quality", "nano"),
    [("1024x1024", "high", 3), ("1024x1024", "low", 2), ("512x512", "low", 1), ("9x9", None, 5)],
)
def test_an_image_costs_the_first_price_that_fits_else_the_dearest(
    size: str, quality: str | None, nano: int
) -> None:
    price = Price(
        per_image=(
            ImagePrice(nano=3, size="1024x1024", quality="high"),
            ImagePrice(nano=2, size="1024x1024"),
            ImagePrice(nano=1, quality="low"),
            ImagePrice(nano=5, size="2048x2048"),
        )
    )
    assert charge(price, Usage(images=4, image_size=size, image_quality=quality)) == (4 * nano, False)


def test_seconds_count_by_the_millisecond_and_are_rounded_once() -> None:
    price = Price(per_second=1, input=500_000)
    assert charge(price, Usage(media_ms=400)) == (0, False)
    assert charge(price, Usage(media_ms=500)) == (1, False)
    assert charge(price, Usage(media_ms=400, input_tokens=1)) == (1, False)


def test_counts_below_zero_cost_nothing_and_are_odd() -> None:
    price = Price(per_second=1000, per_character=1000, per_image=(ImagePrice(nano=1000),))
    assert charge(price, Usage(media_ms=-5, characters=-5, images=-5)) == (0, True)
