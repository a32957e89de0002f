"""Price times usage: what a request costs, in whole nano-USD.

Usage is inclusive, so this is the one place that takes it apart into classes that do not overlap: fresh input,
cache reads, cache writes of either life, media; text, reasoning, media out. Each class has one rate, and the
sum is rounded once, half up. A streamed answer and one that is not cost the same for the same usage, since
nothing here knows which it was.

Counts that contradict each other never make money appear: a remainder below zero counts as none and marks the
usage as odd. Media that the provider also counts as cached or as reasoning are charged once, as the latter.
"""

import msgspec

from sluicegate.messages import Usage
from sluicegate.money import MAX_NANO, TOKENS_PER_RATE, round_half_up
from sluicegate.routing.catalog import Price


def charge(price: Price | None, usage: Usage) -> tuple[int, bool]:
    """Return what an answered request costs in nano-USD, and whether its usage is odd.

    Args:
        price: None for a free model.
    """
    if price is not None and not price.tiers and _is_plain(usage):
        read = usage.cache_read_tokens or 0
        reasoning = usage.reasoning_tokens or 0
        fresh = (usage.input_tokens or 0) - read
        text = (usage.output_tokens or 0) - reasoning
        if fresh >= 0 and text >= 0 and read >= 0 and reasoning >= 0:
            total = fresh * price.input + text * price.output
            if read:
                total += read * (price.input if price.cache_read is None else price.cache_read)
            if reasoning:
                total += reasoning * (price.output if price.reasoning is None else price.reasoning)
            nano = round_half_up(total, TOKENS_PER_RATE) + price.per_request
            return (nano, False) if nano <= MAX_NANO else (MAX_NANO, True)
    return _charge_classes(price, usage)


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
    )


def _charge_classes(price: Price | None, usage: Usage) -> tuple[int, bool]:
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
    if writes is None:
        writes = short + hour
    if (
        min(whole_in, read, hour, short, writes, whole_out, reasoning, searches) < 0
        or min(audio_in, image_in, audio_out, image_out) < 0
    ):
        return _charge_classes(price, _without_negatives(usage))[0], True
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

    rates = _rates_for(price, whole_in) if price.tiers else price
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
    nano = round_half_up(total, TOKENS_PER_RATE) + rates.per_request + searches * rates.per_web_search
    if nano > MAX_NANO:
        return MAX_NANO, True
    return nano, odd


def _without_negatives(usage: Usage) -> Usage:
    """Return usage with every negative count as none."""
    counts = {
        name: 0
        for name, value in msgspec.structs.asdict(usage).items()
        if isinstance(value, int) and value < 0
    }
    return msgspec.structs.replace(usage, **counts)


def _rates_for(price: Price, input_tokens: int) -> Price:
    """Return the rates of a request, by the length of its whole input."""
    rates = price
    for tier in price.tiers:
        if input_tokens > tier.above_input_tokens:
            rates = tier.price
    return rates
