"""What a request costs, worked out a second time: in `decimal`, from prices as a file has them, class by class."""

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

FALL_BACK = {
    "fresh": ("input",),
    "read": ("cache_read", "input"),
    "write_5m": ("cache_write", "input"),
    "write_1h": ("cache_write_1h", "cache_write", "input"),
    "audio_in": ("input_audio", "input"),
    "image_in": ("input_image", "input"),
    "text": ("output",),
    "reasoning": ("reasoning", "output"),
    "audio_out": ("output_audio", "output"),
    "image_out": ("output_image", "output"),
}
"""Each class of token, and the rates that may be its own."""
INPUT = ("fresh", "read", "write_5m", "write_1h", "audio_in", "image_in")


def cost_nano_usd(price: Mapping[str, Any], parts: Mapping[str, int], tier: str | None = None) -> int:
    """Return the charge in nano-USD.

    Args:
        price: as in the configuration, in decimal USD.
        parts: tokens by the classes of `FALL_BACK`, and `searches`, `media_ms`, `characters`.
        tier: the service tier that served.
    """
    with localcontext() as context:
        context.prec = 80
        rates = dict(price)
        whole_input = sum(parts.get(name, 0) for name in INPUT)
        for step in price.get("tiers", ()):
            if whole_input > step["above_input_tokens"]:
                rates = {**price, **step}
        tokens = sum(
            (
                parts.get(name, 0) * Decimal(str(next(rates[rate] for rate in names if rate in rates)))
                for name, names in FALL_BACK.items()
            ),
            Decimal(0),
        )
        usd = tokens / 1_000_000 * Decimal(str(price.get("service_tiers", {}).get(tier, 1)))
        usd += Decimal(str(price.get("per_request", 0)))
        usd += parts.get("searches", 0) * Decimal(str(price.get("per_web_search", 0)))
        usd += Decimal(parts.get("media_ms", 0)) / 1000 * Decimal(str(price.get("per_second", 0)))
        usd += parts.get("characters", 0) * Decimal(str(price.get("per_character", 0)))
        return int((usd * 10**9).to_integral_value(ROUND_HALF_UP))
