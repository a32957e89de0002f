"""Price times usage: what a request costs, in whole nano-USD, and what is held for it before.

Usage is inclusive, so this is the one place that takes it apart into classes that do not overlap: fresh input,
cache reads, cache writes of either life, media; text, reasoning, media out. Each class has one rate, and the
sum is rounded once, half up. A streamed answer and one that is not cost the same for the same usage, since
nothing here knows which it was.

Counts that contradict each other never make money appear: a remainder below zero counts as none and marks the
usage as odd. Media that the provider also counts as cached or as reasoning are charged once, as the latter.
"""

from typing import Final, NamedTuple

import msgspec
from mypy_extensions import i64

from sluicegate.messages import Usage
from sluicegate.money import MAX_NANO, TOKENS_PER_RATE, round_half_up
from sluicegate.routing.catalog import Price
from sluicegate.routing.catalog_shapes import ImagePrice

ONCE: Final = 10**6
"""A service tier's multiplier that changes nothing; multipliers are in millionths."""
_FEW = 1 << 22
_CHEAP = 1 << 39
"""Fewer tokens than the one at a rate below the other come to less than a quarter of what a machine word holds."""
ORDINARY_TIERS = frozenset({"default", "standard", "standard_only"})
"""Service tiers that a request asks for to be served at the plain rates."""


class Prompt(NamedTuple):
    """What of a prompt may cost more than fresh text does."""

    may_write: bool = False
    """The provider may write any of it to its cache."""
    may_write_1h: bool = False
    """For an hour, too."""
    media_tokens: int = 0
    """Those of its tokens that are pictures or sound."""


PLAIN: Final = Prompt()
"""Of nearly every request, or where nothing is dearer than text."""


def charge(price: Price | None, usage: Usage, asked_tier: str | None = None) -> tuple[int, bool]:
    """Return what an answered request costs in nano-USD, and whether its usage is odd.

    Args:
        price: None for a free model.
        asked_tier: the service tier that the request asked for; counts where the provider does not say which served.
    """
    if price is not None and not price.tiers and not price.service_tiers and _is_plain(usage):
        read = usage.cache_read_tokens or 0
        reasoning = usage.reasoning_tokens or 0
        fresh = (usage.input_tokens or 0) - read
        text = (usage.output_tokens or 0) - reasoning
        if fresh >= 0 and text >= 0 and read >= 0 and reasoning >= 0:
            total = _times(fresh, price.input) + _times(text, price.output)
            if read:
                total += read * (price.input if price.cache_read is None else price.cache_read)
            if reasoning:
                total += reasoning * (price.output if price.reasoning is None else price.reasoning)
            nano = round_half_up(total, TOKENS_PER_RATE) + price.per_request
            return (nano, False) if nano <= MAX_NANO else (MAX_NANO, True)
    return _charge_classes(price, usage, asked_tier)


def reservation(
    price: Price,
    input_tokens: int,
    output_tokens: int,
    asked_tier: str | None = None,
    units: Usage | None = None,
    prompt: Prompt = PLAIN,
    longest_input_tokens: int = 0,
) -> int:
    """Return what is held for so many tokens, at the dearest rates that can apply, in nano-USD.

    Whether a long prompt's rates apply, the provider's count decides, and which service tier serves, the provider: so
    all that are in reach are looked at. A request that names no tier, or `auto`, may be served by any.

    Args:
        units: what is charged beside tokens, where it is known: pictures, characters.
        prompt: what of the input may be charged at other rates than `input`.
        longest_input_tokens: of several calls that are one answer, what the longest reads; 0: there is one.
    """
    into = (
        _times(input_tokens, price.input) if prompt is PLAIN else _dearest_input(price, input_tokens, prompt)
    )
    dearest = into + _times(output_tokens, _dearest_output(price))
    if price.tiers:
        for tier in price.tiers:
            if tier.above_input_tokens < (longest_input_tokens or input_tokens):
                rates = tier.price
                in_tier = _dearest_input(rates, input_tokens, prompt) + output_tokens * _dearest_output(rates)
                dearest = max(dearest, in_tier)
    per = TOKENS_PER_RATE
    if price.service_tiers:
        dearest *= _dearest_multiplier(price, asked_tier)
        per *= ONCE
    nano = round_half_up(dearest, per) + price.per_request
    if units is not None:
        nano += _charge_classes(price, units, None)[0] - price.per_request
    return min(nano, MAX_NANO)


def _times(tokens: int, rate: int) -> int:
    """Return what tokens cost at a rate, in the machine's own numbers where they are sure to hold it."""
    if 0 <= tokens < _FEW and 0 <= rate < _CHEAP:
        product = i64(tokens) * i64(rate)
        return int(product)
    return tokens * rate


def has_dearer_input(price: Price) -> bool:
    """Whether a prompt can cost more than its tokens as fresh text: then it matters what it holds."""
    fresh = price.input
    if (
        _above(price.cache_write, fresh)
        or _above(price.cache_write_1h, fresh)
        or _above(price.input_audio, fresh)
        or _above(price.input_image, fresh)
    ):
        return True
    return bool(price.tiers) and any(has_dearer_input(tier.price) for tier in price.tiers)


def _above(rate: int | None, other: int) -> bool:
    """Whether there is a rate, and it is higher than another."""
    return rate is not None and rate > other


def _dearest_input(rates: Price, input_tokens: int, prompt: Prompt) -> int:
    """Return the most that a prompt can cost."""
    into = rates.input
    if prompt.may_write and rates.cache_write is not None:
        into = max(into, rates.cache_write)
    if prompt.may_write_1h and rates.cache_write_1h is not None:
        into = max(into, rates.cache_write_1h)
    media = max(into, rates.input_audio or 0, rates.input_image or 0)
    media_tokens = min(prompt.media_tokens, input_tokens)
    return (input_tokens - media_tokens) * into + media_tokens * media


def _dearest_output(rates: Price) -> int:
    """Return the most that a generated token can cost."""
    dearest = rates.output
    reasoning, audio, image = rates.reasoning, rates.output_audio, rates.output_image
    if reasoning is not None and reasoning > dearest:
        dearest = reasoning
    if audio is not None and audio > dearest:
        dearest = audio
    if image is not None and image > dearest:
        dearest = image
    return dearest


def _dearest_multiplier(price: Price, asked_tier: str | None) -> int:
    if asked_tier is None or asked_tier == "auto":
        return max(ONCE, *price.service_tiers.values())
    if asked_tier in ORDINARY_TIERS:
        return price.service_tiers.get(asked_tier, ONCE)
    return max(ONCE, price.service_tiers.get(asked_tier, ONCE))  # a provider may serve it at the plain rates


def _is_plain(usage: Usage) -> bool:
    """Whether usage has no more classes than fresh and cached input, text and reasoning: nearly all has not."""
    return not (
        usage.cache_write_tokens
        or usage.cache_write_5m_tokens
        or usage.cache_write_1h_tokens
        or usage.input_audio_tokens
        or usage.input_image_tokens
        or usage.output_audio_tokens
        or usage.output_image_tokens
        or usage.web_searches
        or usage.images
        or usage.media_ms
        or usage.characters
        or usage.requests
    )


def _charge_classes(price: Price | None, usage: Usage, asked_tier: str | None) -> tuple[int, bool]:
    """Return what `charge` does, for usage of any classes."""
    odd = False
    whole_in = usage.input_tokens or 0
    read = usage.cache_read_tokens or 0
    hour = usage.cache_write_1h_tokens or 0
    short = usage.cache_write_5m_tokens or 0
    writes = usage.cache_write_tokens
    audio_in = usage.input_audio_tokens or 0
    image_in = usage.input_image_tokens or 0
    whole_out = usage.output_tokens or 0
    reasoning = usage.reasoning_tokens or 0
    audio_out = usage.output_audio_tokens or 0
    image_out = usage.output_image_tokens or 0
    searches = usage.web_searches or 0
    images = usage.images or 0
    media_ms = usage.media_ms or 0
    characters = usage.characters or 0
    if writes is None:
        writes = short + hour
    if (
        min(whole_in, read, hour, short, writes, whole_out, reasoning, searches) < 0
        or min(audio_in, image_in, audio_out, image_out, images, media_ms, characters) < 0
    ):
        return _charge_classes(price, _without_negatives(usage), asked_tier)[0], True
    if writes < short + hour:
        odd = True
        writes = short + hour

    fresh = whole_in - read - writes
    text = whole_out - reasoning
    if fresh < 0 or text < 0:
        odd = True
        fresh, text = max(fresh, 0), max(text, 0)
    if audio_in or image_in or audio_out or image_out:
        odd = odd or audio_in + image_in > fresh or audio_out + image_out > text
        audio_in = min(audio_in, fresh)
        image_in = min(image_in, fresh - audio_in)
        audio_out = min(audio_out, text)
        image_out = min(image_out, text - audio_out)
    if price is None:
        return 0, odd

    rates = _rates_for(price, usage.longest_input_tokens or whole_in) if price.tiers else price
    into, out = rates.input, rates.output
    write_rate = into if rates.cache_write is None else rates.cache_write
    total = (
        (fresh - audio_in - image_in) * into
        + read * (into if rates.cache_read is None else rates.cache_read)
        + (writes - hour) * write_rate
        + hour * (write_rate if rates.cache_write_1h is None else rates.cache_write_1h)
        + audio_in * (into if rates.input_audio is None else rates.input_audio)
        + image_in * (into if rates.input_image is None else rates.input_image)
        + (text - audio_out - image_out) * out
        + reasoning * (out if rates.reasoning is None else rates.reasoning)
        + audio_out * (out if rates.output_audio is None else rates.output_audio)
        + image_out * (out if rates.output_image is None else rates.output_image)
    )
    if price.service_tiers:
        total *= price.service_tiers.get(usage.service_tier or asked_tier or "", ONCE)
    else:
        total *= ONCE
    # Tokens cost millionths of millionths of a nano-USD here, seconds thousandths; one rounding takes both.
    per_second = price.per_second
    if media_ms and price.per_video_second:
        per_second = _image_price(price.per_video_second, usage.image_size, usage.image_quality)
    total += media_ms * per_second * (TOKENS_PER_RATE * ONCE // 1000)
    nano = (
        round_half_up(total, TOKENS_PER_RATE * ONCE)
        + price.per_request * (usage.requests or 1)
        + searches * price.per_web_search
        + characters * price.per_character
    )
    if images and price.per_image:
        nano += images * _image_price(price.per_image, usage.image_size, usage.image_quality)
    if nano > MAX_NANO:
        return MAX_NANO, True
    return nano, odd


def _image_price(prices: tuple[ImagePrice, ...], size: str | None, quality: str | None) -> int:
    """Return what one image costs: by the first price that fits, else by the dearest."""
    for image in prices:
        if image.size in (None, size) and image.quality in (None, quality):
            return image.nano
    return max(image.nano for image in prices)


def _without_negatives(usage: Usage) -> Usage:
    """Return usage with every negative count as none."""
    counts = {
        name: 0
        for name, value in msgspec.structs.asdict(usage).items()
        if isinstance(value, int) and value < 0
    }
    return msgspec.structs.replace(usage, **counts)


def _rates_for(price: Price, input_tokens: int) -> Price:
    """Return the rates of a request, by the length of its whole input, or that of the longest of its calls."""
    rates = price
    for tier in price.tiers:
        if input_tokens > tier.above_input_tokens:
            rates = tier.price
    return rates
