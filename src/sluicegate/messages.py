"""The vocabulary that codecs, billing and the shell share: usage, finish reasons, stream events.

Formats differ; these words do not. A codec turns its bytes into these and back, so that nothing outside `wire` knows
how any provider spells a thing.
"""

from typing import Literal

import msgspec

Format = Literal["chat", "completions", "responses", "messages", "gemini"]
"""The wire formats, by the names the configuration uses."""

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]
"""Why an answer ended. A refusal ends with content_filter; a reason nobody knows becomes the nearest safe one."""

UsageSource = Literal["reported", "counted", "none"]


class Usage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Token counts of one answer, inclusive: input contains cached tokens, output contains reasoning.

    A count that the provider did not report is None, never 0. Codecs normalise on the way in; `billing.price` alone
    subtracts for money, and codecs only to write the two formats that exclude.
    """

    input_tokens: int | None = None
    """Everything read: uncached, cache reads, cache writes, what hosted tools fed back."""
    cache_read_tokens: int | None = None
    """Part of input_tokens."""
    cache_write_tokens: int | None = None
    """Part of input_tokens, all writes together."""
    cache_write_5m_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    """Parts of cache_write_tokens, where the provider splits them by life."""
    input_tool_tokens: int | None = None
    input_audio_tokens: int | None = None
    input_image_tokens: int | None = None
    """Parts of input_tokens."""
    output_tokens: int | None = None
    """Everything generated, reasoning included, summed over choices."""
    reasoning_tokens: int | None = None
    output_audio_tokens: int | None = None
    output_image_tokens: int | None = None
    prediction_accepted_tokens: int | None = None
    prediction_rejected_tokens: int | None = None
    """Parts of output_tokens."""
    web_searches: int | None = None
    web_fetches: int | None = None
    """Requests made by hosted tools."""
    service_tier: str | None = None
    """The tier that served, where the provider says so."""


class TextDelta(msgspec.Struct, gc=False):
    """A piece of visible text."""

    text: str
    choice: int = 0


class ReasoningDelta(msgspec.Struct, gc=False):
    """A piece of hidden thought shown as text."""

    text: str
    choice: int = 0


class RefusalDelta(msgspec.Struct, gc=False):
    """A piece of a refusal's text."""

    text: str
    choice: int = 0


class ToolCallStart(msgspec.Struct, gc=False):
    """The model begins to ask for a function; its arguments follow as deltas."""

    index: int
    """Place among the answer's calls, from 0, in order of appearance."""
    id: str
    name: str
    custom: bool = False
    """A free-form tool: its input is plain text, not JSON."""
    choice: int = 0


class ToolCallDelta(msgspec.Struct, gc=False):
    """A piece of a call's argument text."""

    index: int
    arguments: str
    choice: int = 0


class Finish(msgspec.Struct, gc=False):
    """One choice has ended."""

    reason: FinishReason
    choice: int = 0
    stop_sequence: str | None = None
    """The stop string that matched, where the provider names it."""
    raw_reason: str | None = None
    """The provider's own word, for the row."""


class UsageReport(msgspec.Struct, gc=False):
    """Running or final totals; a later report replaces an earlier one."""

    usage: Usage


class StreamError(msgspec.Struct, gc=False):
    """The provider says, inside its stream, that it failed."""

    status: int
    """The HTTP status that the error stands for."""
    message: str
    code: str | None = None
    type: str | None = None


class End(msgspec.Struct, gc=False):
    """The stream's terminal marker came: nothing follows."""


StreamEvent = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallStart
    | ToolCallDelta
    | Finish
    | UsageReport
    | StreamError
    | End
)
