"""Prices as they stand in the configuration, and in files of prices. What they mean is `prices`'."""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from sluicegate.config.scalars import Factor, Flag, Instant, Name, PriceUsd, UpstreamId, Whole, Word
from sluicegate.config.section import Section


class Rates(Section):
    """Rates in USD per million tokens. Left-out cache rates are input's, reasoning is output's, audio and images are
    their side's."""

    input: PriceUsd | None = None
    """Tokens read."""
    output: PriceUsd | None = None
    """Tokens generated."""
    cache_read: PriceUsd | None = None
    """Tokens read from the provider's cache."""
    cache_write: PriceUsd | None = None
    """Tokens written to it (for five minutes)."""
    cache_write_1h: PriceUsd | None = None
    """Tokens written to it for an hour."""
    reasoning: PriceUsd | None = None
    """Tokens of hidden thought."""
    input_audio: PriceUsd | None = None
    """Tokens of audio read."""
    output_audio: PriceUsd | None = None
    """Tokens of audio generated."""
    input_image: PriceUsd | None = None
    """Tokens of images read."""
    output_image: PriceUsd | None = None
    """Tokens of images generated."""


class TierRow(Rates):
    """Rates of a request whose whole input is longer than a threshold, for all of its tokens. What is left out is as
    it stands without the tier."""

    empty_means_default: ClassVar[bool] = False

    above_input_tokens: Annotated[Whole, Field(ge=1, le=2**53)]
    """Input, cached tokens included, must be longer than this."""


class ImageRow(Section):
    """The price of one image, or of a second of video."""

    empty_means_default: ClassVar[bool] = False

    usd: PriceUsd
    """USD for each."""
    size: Word | None = None
    """Of this size only, such as 1024x1024."""
    quality: Word | None = None
    """Of this quality only, such as high."""


class ListedPrice(Rates):
    """Rates in USD per million tokens, or the word free. Left-out cache rates are input's, reasoning is
    output's, audio and images are their side's."""

    per_request: PriceUsd = 0
    """USD for every answered request."""
    per_web_search: PriceUsd = 0
    """USD for every search that a hosted tool made."""
    per_image: tuple[ImageRow, ...] = ()
    """Images sold by the piece: the first that fits in size and quality, else the dearest."""
    per_second: PriceUsd = 0
    """USD for a second of audio or video, by the millisecond."""
    per_video_second: tuple[ImageRow, ...] = ()
    """Video sold by the second and size: the first that fits, else the dearest. Left out: `per_second`."""
    per_character: PriceUsd = 0
    """USD for a character that was spoken."""
    tiers: tuple[TierRow, ...] = ()
    """Other rates for long prompts, lowest threshold first."""
    service_tiers: dict[Word, Factor] = {}
    """What the rates of tokens are multiplied by where such a tier served: `{flex: 0.5, priority: 2}`."""

    free: Flag = False
    """It costs nothing."""

    empty_means_default: ClassVar[bool] = False
    words: ClassVar[dict[str, dict[str, Any]]] = {"free": {"free": True}}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.free:
            return self
        if not self.model_fields_set.intersection(_UNITS):
            for side in ("input", "output"):
                if getattr(self, side) is None:
                    raise ValueError(
                        f"{side} is missing; write `{side}: 0` where it costs nothing, or `free` for the whole"
                    )
        thresholds = [tier.above_input_tokens for tier in self.tiers]
        if thresholds != sorted(set(thresholds)):
            raise ValueError("tiers must stand lowest threshold first, each once")
        return self


_UNITS = ("per_request", "per_image", "per_second", "per_video_second", "per_character")
"""Prices that may stand without rates of tokens."""


class DatedRow(ListedPrice):
    """A whole price that takes the place of the one before it."""

    start: Annotated[Instant, Field(alias="from")]
    """When it begins, ISO 8601; UTC where no zone stands. Requests admitted before keep the price they had."""

    words: ClassVar[dict[str, dict[str, Any]]] = {}


class PriceRow(ListedPrice):
    """Rates in USD per million tokens, or the word free. Left-out cache rates are input's, reasoning is
    output's, audio and images are their side's."""

    changes: tuple[DatedRow, ...] = ()
    """What it becomes and when, earliest first; each a whole price with `from`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        starts = [change.start for change in self.changes]
        if starts != sorted(set(starts)):
            raise ValueError("changes must stand earliest first, each `from` once")
        return self


class CatalogueFile(Section):
    """A file of prices that providers charge, which go before the bundled price list for a while."""

    start: Annotated[Instant | None, Field(alias="from")] = None
    """When they begin, ISO 8601; UTC where no zone stands. Left out: at once."""
    until: Instant
    """When they end, and the bundled list counts again."""
    prices: dict[Name, dict[UpstreamId, ListedPrice]]
    """By the provider's id in the price list, then by the provider's id of the model."""

    @model_validator(mode="after")
    def _span(self) -> Self:
        if self.start is not None and self.start >= self.until:
            raise ValueError("until must be after from")
        return self
