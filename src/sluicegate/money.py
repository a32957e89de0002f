"""Integer amounts of money, exact on the way in and out, and the one rounding rule.

An amount is an int of nano-USD (1 USD = 10**9). A rate is nano-USD per million tokens (or per image, second,
character or request). Nothing here ever meets a float.
"""

import re
from typing import Final

NANO_PER_USD: Final = 1_000_000_000
TOKENS_PER_RATE: Final = 1_000_000
MAX_NANO: Final = 2**63 - 1
"""The largest amount a store can hold; about 9.2 billion USD."""

MAX_TEXT = 400
"""Characters of an amount that is read at all: enough for anything that fits."""

_DECIMAL = re.compile(
    r"([+-]?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?|([+-]?)\.(\d+)(?:[eE]([+-]?\d{1,3}))?", re.ASCII
)


class AmountTooLarge(ValueError):
    """An amount beyond `MAX_NANO`."""


class AmountTooFine(ValueError):
    """An amount that is no whole number of nano-USD."""


def parse_usd(text: str) -> int:
    """Read a decimal number of USD as nano-USD.

    Args:
        text: such as ``5``, ``-0.000000001`` or ``1.5e-3``; no currency sign, no thousands separators.
    Raises:
        AmountTooLarge: beyond 64 bits.
        AmountTooFine: finer than a nano-USD.
        ValueError: not a decimal number.
    """
    match = _DECIMAL.fullmatch(text.strip()) if len(text) <= MAX_TEXT else None
    if match is None:
        raise ValueError(f"not a decimal amount of USD such as 1.25: {text[:40]!r}")
    if match[2] is not None:
        sign, whole, fraction, exponent = match[1], match[2], match[3] or "", int(match[4] or 0)
    else:
        sign, whole, fraction, exponent = match[5], "", match[6], int(match[7] or 0)
    digits = int((whole + fraction) or "0")
    shift = 9 + exponent - len(fraction)
    nano: int = digits * 10 ** max(shift, 0)
    if shift < 0:
        nano, rest = divmod(digits, 10**-shift)
        if rest:
            raise AmountTooFine(f"finer than a billionth of a dollar: {text[:40]!r}")
    if nano > MAX_NANO:
        raise AmountTooLarge(f"amount too large, above {MAX_NANO // NANO_PER_USD} USD: {text[:40]!r}")
    return -nano if sign == "-" else nano


def format_usd(nano: int) -> str:
    """Write nano-USD as the shortest exact decimal number of USD, a valid JSON number (``0.0000125``, ``5``)."""
    if 0 < nano < NANO_PER_USD:  # nearly every request
        return "0." + str(NANO_PER_USD + nano)[1:].rstrip("0")
    sign = "-" if nano < 0 else ""
    whole, rest = divmod(abs(nano), NANO_PER_USD)
    if rest == 0:
        return f"{sign}{whole}"
    nine_digits = str(NANO_PER_USD + rest)[1:]  # a third of what a format with leading zeros costs
    return f"{sign}{whole}.{nine_digits}".rstrip("0")


def round_half_up(numerator: int, denominator: int) -> int:
    """Divide and round to the nearest integer, halves away from zero; the only rounding of money there is."""
    if numerator >= 0:
        half, odd = denominator >> 1, denominator & 1
        if not odd:
            return (numerator + half) // denominator
        return (2 * numerator + denominator) // (2 * denominator)
    return -((-2 * numerator + denominator) // (2 * denominator))
