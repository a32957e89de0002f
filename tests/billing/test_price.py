"""What a request costs: every class of token once, one rounding, the same streamed or not."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.messages import Usage
from sluicegate.money import MAX_NANO, NANO_PER_USD
from sluicegate.routing.catalog_shapes import Price, PriceTier
from tests.billing.priced import charge, reservation

USD = NANO_PER_USD
COUNT = st.none() | st.integers(0, 10**7)
RATE = st.integers(0, 10**12)
RATES = {
    "input": RATE,
    "output": RATE,
    "per_request": RATE,
    "per_web_search": RATE,
    **{
        name: st.none() | RATE
        for name in (
            "cache_read", "cache_write", "cache_write_1h", "reasoning",
            "input_audio", "output_audio", "input_image", "output_image",
        )
    },
}  # fmt: skip
PRICES = st.builds(Price, **RATES)
COUNTS = (
    "input_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens",
    "input_audio_tokens", "input_image_tokens", "output_tokens", "reasoning_tokens", "output_audio_tokens",
    "output_image_tokens", "web_searches",
)  # fmt: skip


@st.composite
def consistent_usage(draw: st.DrawFn) -> tuple[Usage, dict[str, int]]:
    """Draw the parts first and add them up, so that what each token should cost is known without subtracting."""
    parts = {
        name: draw(st.integers(0, 10**7))
        for name in (
            "fresh", "read", "write_5m", "write_1h", "audio_in", "image_in",
            "text", "reasoning", "audio_out", "image_out", "searches",
        )
    }  # fmt: skip
    usage = Usage(
        input_tokens=sum(parts[p] for p in ("fresh", "read", "write_5m", "write_1h", "audio_in", "image_in")),
        cache_read_tokens=parts["read"],
        cache_write_tokens=parts["write_5m"] + parts["write_1h"],
        cache_write_5m_tokens=draw(st.sampled_from([None, parts["write_5m"]])),
        cache_write_1h_tokens=parts["write_1h"],
        input_audio_tokens=parts["audio_in"],
        input_image_tokens=parts["image_in"],
        output_tokens=sum(parts[p] for p in ("text", "reasoning", "audio_out", "image_out")),
        reasoning_tokens=parts["reasoning"],
        output_audio_tokens=parts["audio_out"],
        output_image_tokens=parts["image_out"],
        web_searches=parts["searches"],
    )
    return usage, parts


def exact(price: Price, parts: dict[str, int]) -> Fraction:
    """Add up what the parts cost, in nano-USD and without rounding."""

    def rate(*names: str) -> int:
        return next(value for name in names if (value := getattr(price, name)) is not None)

    rates = {
        "fresh": price.input,
        "read": rate("cache_read", "input"),
        "write_5m": rate("cache_write", "input"),
        "write_1h": rate("cache_write_1h", "cache_write", "input"),
        "audio_in": rate("input_audio", "input"),
        "image_in": rate("input_image", "input"),
        "text": price.output,
        "reasoning": rate("reasoning", "output"),
        "audio_out": rate("output_audio", "output"),
        "image_out": rate("output_image", "output"),
    }
    tokens = sum(Fraction(parts[name] * value, 10**6) for name, value in rates.items())
    return tokens + price.per_request + parts["searches"] * price.per_web_search


@given(
    PRICES,
    st.builds(
        Usage,
        **dict.fromkeys(
            ("input_tokens", "cache_read_tokens", "output_tokens", "reasoning_tokens"),
            st.none() | st.integers(-5, 10**7) | st.integers(0, 2**63),
        ),
    ),
)
def test_the_short_way_for_plain_usage_comes_to_the_same(price: Price, usage: Usage) -> None:
    never = PriceTier(above_input_tokens=2**64, price=Price())
    assert charge(price, usage) == charge(msgspec.structs.replace(price, tiers=(never,)), usage)


@given(PRICES, consistent_usage())
def test_the_charge_is_the_sum_of_its_parts_rounded_once(
    price: Price, drawn: tuple[Usage, dict[str, int]]
) -> None:
    usage, parts = drawn
    whole = exact(price, parts)
    nano, odd = charge(price, usage)
    if whole > MAX_NANO:
        assert (nano, odd) == (MAX_NANO, True)
    else:
        assert nano == int(whole + Fraction(1, 2))
        assert not odd


@given(PRICES, st.builds(Usage, **{name: st.none() | st.integers(-5, 10**6) for name in COUNTS}))
def test_any_counts_give_an_amount(price: Price, usage: Usage) -> None:
    nano, odd = charge(price, usage)
    assert 0 <= nano <= MAX_NANO
    assert charge(None, usage) == (0, odd) or nano == MAX_NANO
    given_counts = [value for name in COUNTS if (value := getattr(usage, name)) is not None]
    if any(value < 0 for value in given_counts):
        assert odd


@given(PRICES, st.builds(Usage, **dict.fromkeys(COUNTS, COUNT)), st.sampled_from(COUNTS))
def test_no_count_is_the_same_as_none_of_it(price: Price, usage: Usage, name: str) -> None:
    if name == "cache_write_tokens":
        return  # told apart on purpose: without a total the parts are the total
    absent = msgspec.structs.replace(usage, **{name: None})
    zero = msgspec.structs.replace(usage, **{name: 0})
    assert charge(price, absent) == charge(price, zero)


ANTHROPIC = Price(
    input=3 * USD,
    output=15 * USD,
    cache_read=USD * 3 // 10,
    cache_write=USD * 15 // 4,
    cache_write_1h=6 * USD,
)


@pytest.mark.parametrize(
    ("case", "price", "usage", "nano", "odd"),
    [
        ("B045 reasoning is inside the output", Price(input=USD, output=2 * USD),
         Usage(input_tokens=40, output_tokens=120, reasoning_tokens=30), 40_000 + 240_000, False),
        ("B046 writes are inside the input", ANTHROPIC,
         Usage(input_tokens=8007, cache_write_tokens=8000, cache_read_tokens=0, output_tokens=300),
         7 * 3000 + 8000 * 3750 + 300 * 15_000, False),
        ("B046 reads are inside the input", Price(input=USD, output=0, cache_read=USD // 10),
         Usage(input_tokens=100, cache_read_tokens=80), 20 * 1000 + 80 * 100, False),
        ("B046 a remainder below zero is none, and odd", ANTHROPIC,
         Usage(input_tokens=7, cache_write_tokens=8000, output_tokens=1), 8000 * 3750 + 15_000, True),
        ("B089 cached tokens at their own rate", ANTHROPIC,
         Usage(input_tokens=2005, cache_read_tokens=2000, output_tokens=20),
         5 * 3000 + 2000 * 300 + 20 * 15_000, False),
        ("B090 every class once", ANTHROPIC,
         Usage(input_tokens=2104, cache_read_tokens=2000, cache_write_tokens=100, output_tokens=9),
         4 * 3000 + 2000 * 300 + 100 * 3750 + 9 * 15_000, False),
        ("B091 a total with a cached share", Price(input=USD, output=USD, cache_read=0),
         Usage(input_tokens=1000, cache_read_tokens=800), 200 * 1000, False),
        ("B143 a rate of its own for reasoning", Price(input=0, output=8 * USD, reasoning=3 * USD),
         Usage(output_tokens=100, reasoning_tokens=40), 60 * 8000 + 40 * 3000, False),
        ("B143 without one it is output", Price(input=0, output=8 * USD),
         Usage(output_tokens=100, reasoning_tokens=40), 100 * 8000, False),
        ("more reasoning than output", Price(input=0, output=USD),
         Usage(output_tokens=10, reasoning_tokens=30), 30 * 1000, True),
        ("writes by life, the total left out", ANTHROPIC,
         Usage(input_tokens=30, cache_write_5m_tokens=10, cache_write_1h_tokens=20), 10 * 3750 + 20 * 6000, False),
        ("parts above their total", ANTHROPIC,
         Usage(input_tokens=30, cache_write_tokens=5, cache_write_1h_tokens=20), 10 * 3000 + 20 * 6000, True),
        ("cached audio is paid once, as cached", Price(input=USD, output=0, cache_read=0, input_audio=9 * USD),
         Usage(input_tokens=100, cache_read_tokens=80, input_audio_tokens=50), 20 * 9000, True),
        ("nothing reported", ANTHROPIC, Usage(), 0, False),
        ("half a nano goes up", Price(input=500_000, output=0), Usage(input_tokens=1), 1, False),
        ("less than half goes down", Price(input=499_999, output=0), Usage(input_tokens=1), 0, False),
        ("one rounding, not one a class", Price(input=400_000, output=400_000),
         Usage(input_tokens=1, output_tokens=1), 1, False),
        ("by request and by search", Price(per_request=5, per_web_search=7), Usage(web_searches=3), 26, False),
        ("free", None, Usage(input_tokens=10**9, output_tokens=10**9), 0, False),
        ("free and odd", None, Usage(input_tokens=1, cache_read_tokens=2), 0, True),
        ("a count beyond reason", Price(input=MAX_NANO), Usage(input_tokens=10**9), MAX_NANO, True),
    ],
)  # fmt: skip
def test_cases(case: str, price: Price | None, usage: Usage, nano: int, odd: bool) -> None:
    assert charge(price, usage) == (nano, odd), case


TIERED = Price(
    input=1 * USD,
    output=2 * USD,
    tiers=(
        PriceTier(above_input_tokens=100, price=Price(input=3 * USD, output=4 * USD)),
        PriceTier(above_input_tokens=200, price=Price(input=5 * USD, output=6 * USD, cache_read=USD)),
    ),
)


@pytest.mark.parametrize(
    ("tokens", "nano"),
    [(100, 100 * 1000 + 2000), (101, 101 * 3000 + 4000), (200, 200 * 3000 + 4000), (201, 201 * 5000 + 6000)],
)
def test_the_whole_prompt_decides_the_rate_of_every_token(tokens: int, nano: int) -> None:
    assert charge(TIERED, Usage(input_tokens=tokens, output_tokens=1)) == (nano, False)


def test_cached_tokens_count_toward_the_length_of_the_prompt() -> None:
    assert charge(TIERED, Usage(input_tokens=300, cache_read_tokens=300))[0] == 300 * 1000


def test_usage_that_is_charged_is_left_as_it_was() -> None:
    usage = Usage(input_tokens=-1, output_tokens=5)
    before: dict[str, Any] = msgspec.structs.asdict(usage)
    charge(ANTHROPIC, usage)
    assert msgspec.structs.asdict(usage) == before


@pytest.mark.parametrize("tokens", [2**22 - 1, 2**22, 2**31 - 1, 2**31, 2**62 - 1, 2**62, 2**63])
@pytest.mark.parametrize("rate", [2**31, 2**39 - 1, 2**39, 2**62 - 1, 2**63 - 1])
def test_no_amount_is_too_large_to_be_exact(tokens: int, rate: int) -> None:
    price = Price(input=rate, output=rate)
    nano = int(Fraction(2 * tokens * rate, 10**6) + Fraction(1, 2))
    told = charge(price, Usage(input_tokens=tokens, output_tokens=tokens))
    assert told == ((nano, False) if nano <= MAX_NANO else (MAX_NANO, True))
    assert reservation(price, tokens, tokens) == min(nano, MAX_NANO)
