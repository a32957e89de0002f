"""Price times usage: what a request costs, in whole nano-USD.

Usage is inclusive, so this is the one place that takes it apart into classes that do not overlap: fresh
input, cache reads, cache writes of either life, media; text, reasoning, media out. Each class has one rate,
the sum is rounded once, half up. A streamed answer and one that is not cost the same for the same usage,
since nothing here knows which it was.

Counts that contradict each other never make money appear: a remainder below zero counts as none and marks
the usage as odd. Media that the provider also counts as cached or as reasoning are charged once, as the
latter."""

from sluicegate.messages import Usage
from sluicegate.money import MAX_NANO, TOKENS_PER_RATE, round_half_up
from sluicegate.routing.catalog import Price


def charge(price: Price | None, usage: Usage) -> tuple[int, bool]:
    """Return what an answered request costs in nano-USD, and whether its usage is odd.

    Args:
        price: None for a free model.
    """
    inputs = _Side(usage.input_tokens)
    read = inputs.take(usage.cache_read_tokens)
    hour_writes = inputs.count(usage.cache_write_1h_tokens)
    short_writes = inputs.count(usage.cache_write_5m_tokens)
    writes = inputs.count(usage.cache_write_tokens)
    if usage.cache_write_tokens is None:
        writes = short_writes + hour_writes
    elif short_writes + hour_writes > writes:
        inputs.odd = True
        writes = short_writes + hour_writes
    inputs.take(writes)
    audio_in = inputs.take_at_most(usage.input_audio_tokens)
    image_in = inputs.take_at_most(usage.input_image_tokens)

    outputs = _Side(usage.output_tokens)
    reasoning = outputs.take(usage.reasoning_tokens)
    audio_out = outputs.take_at_most(usage.output_audio_tokens)
    image_out = outputs.take_at_most(usage.output_image_tokens)

    searches = inputs.count(usage.web_searches)
    odd = inputs.odd or outputs.odd
    if price is None:
        return 0, odd
    rates = _rates_for(price, usage.input_tokens or 0)
    write_rate = _or(rates.cache_write, rates.input)
    total = (
        inputs.left * rates.input
        + read * _or(rates.cache_read, rates.input)
        + (writes - hour_writes) * write_rate
        + hour_writes * _or(rates.cache_write_1h, write_rate)
        + audio_in * _or(rates.input_audio, rates.input)
        + image_in * _or(rates.input_image, rates.input)
        + outputs.left * rates.output
        + reasoning * _or(rates.reasoning, rates.output)
        + audio_out * _or(rates.output_audio, rates.output)
        + image_out * _or(rates.output_image, rates.output)
    )
    nano = round_half_up(total, TOKENS_PER_RATE) + rates.per_request + searches * rates.per_web_search
    if nano > MAX_NANO:
        return MAX_NANO, True
    return nano, odd


class _Side:
    """The tokens of one direction, while classes are taken out of them."""

    __slots__ = ("left", "odd")

    def __init__(self, total: int | None) -> None:
        self.odd = False
        self.left = self.count(total)

    def count(self, tokens: int | None) -> int:
        """Return a reported count; none at all is 0, and so is a negative one, which is odd."""
        if tokens is None:
            return 0
        if tokens < 0:
            self.odd = True
            return 0
        return tokens

    def take(self, tokens: int | None) -> int:
        """Take a class out, whole, even where it is more than what is left."""
        taken = self.count(tokens)
        self.left -= taken
        if self.left < 0:
            self.left = 0
            self.odd = True
        return taken

    def take_at_most(self, tokens: int | None) -> int:
        """Take a class out that may overlap with those before it, as far as anything is left."""
        wanted = self.count(tokens)
        taken = min(wanted, self.left)
        self.left -= taken
        if taken < wanted:
            self.odd = True
        return taken


def _rates_for(price: Price, input_tokens: int) -> Price:
    """Return the rates of a request, by the length of its whole input."""
    rates = price
    for tier in price.tiers:
        if input_tokens > tier.above_input_tokens:
            rates = tier.price
    return rates


def _or(rate: int | None, fallback: int) -> int:
    return fallback if rate is None else rate
