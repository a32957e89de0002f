"""Clocks and switches of streams: of all requests, of a model, of a provider, of a key."""

from typing import Annotated

from pydantic import Field

from sluicegate.config.scalars import (
    CostHeader,
    CostPlace,
    CutRule,
    Duration,
    Flag,
    Profile,
    Rate,
    UsageChunk,
    Whole,
    Word,
)
from sluicegate.config.section import Section


class Switches(Section):
    """What a profile sets together; each can be set alone."""

    usage_chunk: UsageChunk | None = None
    """Whether a stream ends with its usage: on_request or always. Left out: as the profile says."""
    cost: CostPlace | None = None
    """Where the cost stands: in the usage object, in an object beside it (extension), or nowhere (none)."""
    cost_extension_key: Annotated[Word, Field(min_length=1, max_length=64)] | None = None
    """Name of the object beside usage, for `cost: extension`."""
    cost_header: CostHeader | None = None
    """Header that names the cost of an answer that is not streamed; none: no header."""


class Stream(Switches):
    """Clocks and switches of every request; a model or a provider can set each for itself, under `stream`."""

    profile: Profile = "default"
    """Sets usage_chunk, cost, cost_header and the cut rules together."""
    connect_timeout: Annotated[Duration, Field(ge=0.01)] = 5.0
    """Name look-up, TCP and TLS of one attempt."""
    first_token_timeout: Annotated[Duration, Field(ge=0.01)] = 300.0
    """From the request's end to the first content of one attempt."""
    idle_timeout: Annotated[Duration, Field(ge=0.01)] = 300.0
    """Longest silence of a provider inside its answer."""
    response_timeout: Annotated[Duration, Field(ge=0.01)] = 600.0
    """Whole answer that is not streamed."""
    total_timeout: Annotated[Duration, Field(ge=0.01)] = 3600.0
    """Whole request, all attempts together."""
    plain_keepalive: Annotated[Duration, Field(ge=0.05)] = 240.0
    """Silence after which an answer that is not streamed gets a line feed, so that clients keep waiting."""
    usage_wait: Duration = 5.0
    """How long a finish waits for its usage in formats that join the two; after it the gate's own count is
    used."""
    max_event_bytes: Annotated[Whole, Field(ge=1024, le=2**30)] = 16_777_216
    """Largest single event of a provider, bytes."""
    min_tokens_per_s: Rate = 0.0
    """A stream slower than this, over `min_tokens_window`, is ended as if it were silent; 0: no minimum."""
    min_tokens_window: Annotated[Duration, Field(ge=0.1, le=3600)] = 10.0
    """Over how long a stream's tokens are counted for `min_tokens_per_s`; a client that does not read stops it."""
    continue_midstream: Flag = False
    """Whether another route may go on with a stream that broke off in its text, where its provider can
    (`capabilities.continuation`)."""


class StreamOverrides(Stream):
    """What a model or a provider sets for itself: only what stands there counts, anything else is as above
    it."""

    on_disconnect: CutRule | None = None
    """What a client that leaves pays for: produced, drain or none."""
    on_error: CutRule | None = None
    """The same for a stream that ends with an error."""
