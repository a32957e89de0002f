"""Money: exact on the way in and out, and one rounding rule."""

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.money import MAX_NANO, NANO_PER_USD, format_usd, parse_usd, round_half_up

AMOUNTS = st.integers(-MAX_NANO, MAX_NANO)


@given(AMOUNTS)
def test_what_is_written_is_read_back(nano: int) -> None:
    assert parse_usd(format_usd(nano)) == nano


@given(AMOUNTS)
def test_the_text_is_the_exact_decimal(nano: int) -> None:
    text = format_usd(nano)
    assert Fraction(text) == Fraction(nano, NANO_PER_USD)
    assert "e" not in text.lower()
    assert not (("." in text) and text.endswith("0"))


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**15))
def test_rounding_is_half_up_away_from_zero(numerator: int, denominator: int) -> None:
    magnitude = Fraction(abs(numerator), denominator)
    expected = int(magnitude + Fraction(1, 2))
    assert round_half_up(numerator, denominator) == (expected if numerator >= 0 else -expected)


@given(st.decimals(-9_000_000_000, 9_000_000_000, places=9))
def test_any_decimal_of_nine_places_is_exact(amount: Decimal) -> None:
    expected = int((amount * NANO_PER_USD).to_integral_value(ROUND_HALF_UP))
    assert parse_usd(str(amount)) == expected
    assert parse_usd(f"{amount:e}") == expected


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("5", 5 * NANO_PER_USD),
        ("0.1", 100_000_000),
        (".5", 500_000_000),
        ("5.", 5 * NANO_PER_USD),
        ("+1.25", 1_250_000_000),
        ("-0.000000001", -1),
        ("1.5e-3", 1_500_000),
        ("1E3", 1000 * NANO_PER_USD),
        (".1e1", NANO_PER_USD),
        (" 2 ", 2 * NANO_PER_USD),
        ("0.1000000000", 100_000_000),
        ("9223372036.854775807", MAX_NANO),
    ],
)
def test_ways_to_write_an_amount(text: str, nano: int) -> None:
    assert parse_usd(text) == nano


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "-",
        "1,5",
        "1_000",
        "$5",
        "5 USD",
        "nan",
        "inf",
        "0x10",
        "1e",
        "1e+",
        "--1",
        "1.2.3",
        "٣",
        "1e9999",
    ],
)
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match=r"decimal amount|too large"):
        parse_usd(text)


@pytest.mark.parametrize("text", ["0.0000000001", "1e-10", "1.0000000005", "1e-999"])
def test_finer_than_a_nano_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="finer"):
        parse_usd(text)


@pytest.mark.parametrize("text", ["9223372036.854775808", "1e10", "1e999"])
def test_larger_than_a_store_holds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too large"):
        parse_usd(text)
