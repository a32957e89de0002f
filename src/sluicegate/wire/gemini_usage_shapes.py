"""What is read of a usage object of Gemini. Source: wire formats page `usage.md`."""

from typing import Annotated, Any

import msgspec

from sluicegate.messages import MAX_COUNT

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None


class Details(msgspec.Struct, gc=False):
    """A count of one modality."""

    modality: Any = None
    tokenCount: Any = None


class Reported(msgspec.Struct, gc=False):
    """A usage object."""

    promptTokenCount: _Count = None
    cachedContentTokenCount: _Count = None
    candidatesTokenCount: _Count = None
    thoughtsTokenCount: _Count = None
    toolUsePromptTokenCount: _Count = None
    totalTokenCount: _Count = None
    promptTokensDetails: list[Details] | None = None
    candidatesTokensDetails: list[Details] | None = None
    serviceTier: str | None = None
