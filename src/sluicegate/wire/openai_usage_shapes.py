"""What is read of a usage object of OpenAI's formats. Source: wire formats page `usage.md`."""

from typing import Annotated, Any

import msgspec

from sluicegate.messages import MAX_COUNT

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None


class PromptDetails(msgspec.Struct, gc=False):
    """Of the input's tokens."""

    cached_tokens: _Count = None
    cache_write_tokens: _Count = None
    audio_tokens: _Count = None
    image_tokens: _Count = None


class CompletionDetails(msgspec.Struct, gc=False):
    """Of the output's tokens."""

    reasoning_tokens: _Count = None
    audio_tokens: _Count = None
    accepted_prediction_tokens: _Count = None
    rejected_prediction_tokens: _Count = None


class Reported(msgspec.Struct, gc=False):
    """A usage object."""

    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Told(Reported, gc=False):
    """A usage object, with the total that it says."""

    total_tokens: Any = None


class Totals(msgspec.Struct, gc=False):
    """A usage object's total alone."""

    total_tokens: _Count = None


class Said(msgspec.Struct, gc=False):
    """The three totals, of whatever type."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    total_tokens: Any = None
