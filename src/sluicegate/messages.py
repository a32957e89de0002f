"""The vocabulary that codecs, billing and the shell share: usage, finish reasons, requests, stream events.

Formats differ; these words do not. A codec turns its bytes into these and back, so that nothing outside `wire` knows
how any provider spells a thing.
"""

from typing import Any, Literal

import msgspec

Format = Literal["chat", "completions", "responses", "messages", "gemini"]
"""The wire formats, by the names the configuration uses."""

Endpoint = Literal[
    "embeddings",
    "gemini_embeddings",
    "moderation",
    "rerank",
    "images",
    "gemini_images",
    "gemini_native_images",
    "speech",
    "image_edits",
    "image_variations",
    "transcription",
    "audio_translation",
    "videos",
    "video_remix",
    "video_edit",
    "video_extension",
    "files",
    "batches",
]
"""Endpoints whose answer is no text, by the shape in which a provider is asked."""

Shape = Format | Endpoint
"""How a provider is asked."""

TranslationPolicy = Literal["default", "strict", "lenient"]
"""What becomes of what a provider's format cannot say."""

FinishReason = Literal[
    "stop",
    "stop_sequence",
    "length",
    "context_full",
    "tool_calls",
    "function_call",
    "content_filter",
    "paused",
]
"""Why an answer ended, as the translation matrix names it; content_filter is its `blocked`. A reason nobody knows
becomes the nearest safe one."""

UsageSource = Literal["reported", "counted", "none"]

MAX_COUNT = 10**9
"""The most of anything that a provider can report of one answer. What is above is nonsense, such as a difference below
zero in 32 bits, and counts as not reported: as money it would take all of an account's credit, and fill the books."""


class Usage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Token counts of one answer, inclusive: input contains cached tokens, output contains reasoning.

    A count that the provider did not report is None, never 0. Codecs normalise on the way in; `billing.price` alone
    subtracts for money, and codecs only to write the two formats that exclude.
    """

    input_tokens: int | None = None
    """Everything read: uncached, cache reads, cache writes, what hosted tools fed back."""
    longest_input_tokens: int | None = None
    """Of several calls that are one answer, or of a batch's requests, what the longest read: each is priced by its own
    length.
    """
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
    images: int | None = None
    """Pictures that were made, where they are sold by the piece."""
    image_size: str | None = None
    image_quality: str | None = None
    """Of all of them, or of a video, as the provider spells it."""
    media_ms: int | None = None
    """Milliseconds of audio or video that was heard or made."""
    characters: int | None = None
    """Characters that were spoken."""
    requests: int | None = None
    """Of a batch: its requests, those that were answered once it has ended."""


# ---- requests -------------------------------------------------------------------------------------------------------

Vendor = Literal["openai", "anthropic", "google", "other"]
"""Whose opaque state a thing is: it may go back only to the vendor that made it."""


class Opaque(msgspec.Struct, frozen=True, kw_only=True):
    """State that only the vendor that made it can read: a signature, encrypted reasoning, a redacted thought."""

    vendor: Vendor
    kind: Literal["signature", "encrypted", "redacted"]
    value: str
    """As the vendor spells it."""
    model: str | None = None
    """The provider's model id, where known."""
    id: str | None = None
    """The vendor's id of the item it hangs on, where there is one."""


class CacheMark(msgspec.Struct, frozen=True, kw_only=True):
    """The client wants the prompt up to here cached."""

    ttl: str | None = None
    """Such as 5m, 30m, 1h; None: the vendor's default."""


class Text(msgspec.Struct, kw_only=True, tag="text"):
    """Visible text."""

    text: str
    cache: CacheMark | None = None
    opaque: Opaque | None = None
    """A signature that came on this part."""


class Image(msgspec.Struct, kw_only=True, tag="image"):
    """A picture: exactly one of data, url and file_id."""

    data: str | None = None
    """Base64, standard alphabet, padded."""
    media_type: str | None = None
    url: str | None = None
    file_id: str | None = None
    detail: str | None = None
    cache: CacheMark | None = None


class Audio(msgspec.Struct, kw_only=True, tag="audio"):
    """A sound, inline."""

    data: str
    format: str
    """wav, mp3 …"""


class File(msgspec.Struct, kw_only=True, tag="file"):
    """A document or other file: exactly one of data, text, url and file_id."""

    data: str | None = None
    media_type: str | None = None
    text: str | None = None
    url: str | None = None
    file_id: str | None = None
    filename: str | None = None
    cache: CacheMark | None = None


class Refusal(msgspec.Struct, kw_only=True, tag="refusal"):
    """The model declined, in words."""

    text: str


class Reasoning(msgspec.Struct, kw_only=True, tag="reasoning"):
    """A thought, as text, as opaque state, or both; stands before what it led to."""

    text: str = ""
    opaque: Opaque | None = None
    summary: bool = False
    """The text is a summary, not the thought itself."""


class ToolCall(msgspec.Struct, kw_only=True, tag="tool_call"):
    """The model asked for a function."""

    id: str
    name: str
    arguments: str
    """JSON text as it came, possibly invalid; of a custom tool its plain input."""
    custom: bool = False
    opaque: Opaque | None = None
    cache: CacheMark | None = None


class ToolResult(msgspec.Struct, kw_only=True, tag="tool_result"):
    """What the function answered."""

    call_id: str
    parts: list["Text | Image | File"]
    name: str | None = None
    is_error: bool = False
    custom: bool = False
    cache: CacheMark | None = None


Part = Text | Image | Audio | File | Refusal | Reasoning | ToolCall | ToolResult
Role = Literal["system", "developer", "user", "assistant"]


class Message(msgspec.Struct, kw_only=True):
    """One turn, or a piece of one. Tool results stand in user messages, before anything else of that turn."""

    role: Role
    parts: list[Part]
    name: str | None = None
    path: str = ""
    """Where it stood in the client's request, for errors: `messages[3]`."""


class Tool(msgspec.Struct, kw_only=True):
    """A function that the model may ask for."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON Schema; None: no arguments. Of a custom tool None."""
    strict: bool | None = None
    """None: the client did not say."""
    custom: bool = False
    format: dict[str, Any] | None = None
    """Grammar of a custom tool, as OpenAI's Responses spell it."""
    namespace: str | None = None
    """Responses: what the name begins with, `namespace__name`."""
    searches: bool = False
    """Responses: the client's own search for tools, whose calls are items of their own."""
    cache: CacheMark | None = None


class ToolChoice(msgspec.Struct, kw_only=True):
    """Whether and which tools must be called."""

    mode: Literal["auto", "none", "required", "tool"]
    """`tool`: the one in `names`."""
    names: list[str] | None = None
    """With auto and required: only these are allowed."""


class ResponseFormat(msgspec.Struct, kw_only=True):
    """How the answer's text must be shaped."""

    kind: Literal["json_object", "json_schema"]
    schema: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ReasoningControl(msgspec.Struct, kw_only=True):
    """How much the model should think; of effort and budget at most one was given."""

    effort: str | None = None
    """none, minimal, low, medium, high, xhigh or max."""
    budget_tokens: int | None = None
    """0: off; -1: the model decides."""
    show: bool | None = None
    """Whether the client wants to see thoughts; None: it did not say."""
    summary: str | None = None
    """auto, concise or detailed, where the client said so."""


class Request(msgspec.Struct, kw_only=True):
    """A generation request in no format. None means that the client did not say."""

    model: str
    messages: list[Message]
    stream: bool = False
    tools: list[Tool] = []
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    limit_is_visible: bool = False
    """The limit was meant for visible text only (chat's `max_tokens`), not for thoughts too."""
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    stop: list[str] = []
    seed: int | None = None
    choices: int = 1
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    response_format: ResponseFormat | None = None
    reasoning: ReasoningControl | None = None
    verbosity: str | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    suffix: str | None = None
    echo: bool = False
    """Fields of legacy completions."""
    others: list[list[Message]] = []
    """Conversations beside `messages`, each to be answered too, by a call of its own, in this order."""
    web_search: dict[str, Any] | None = None
    """The vendor-neutral options of a web search tool; present: the model may search."""
    legacy_functions: bool = False
    """The client used chat's `functions`: it is answered with `function_call`."""
    continues: bool = False
    """In the client's format a last turn of the assistant's is one that the model goes on with (Messages, Gemini)."""


# ---- answers, streamed or not ---------------------------------------------------------------------------------------


class Start(msgspec.Struct, gc=False):
    """The provider began an answer. It holds no content."""

    id: str | None = None
    created: int | None = None
    usage: Usage | None = None
    """What the provider says of the input already."""


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


class ToolCallEnd(msgspec.Struct, gc=False):
    """A call's arguments are whole; not every provider says so."""

    index: int
    choice: int = 0


class OpaqueState(msgspec.Struct, gc=False):
    """Opaque state came: a signature of the thought, text or call before it, or a thought that is hidden whole."""

    opaque: Opaque
    choice: int = 0
    call_index: int | None = None
    """The call it hangs on, where it hangs on one."""


class Citation(msgspec.Struct, gc=False):
    """A source of the text that came last, in OpenAI's terms: character offsets into the choice's text."""

    url: str
    title: str = ""
    start_index: int = 0
    end_index: int = 0
    choice: int = 0


class WebSearch(msgspec.Struct, gc=False):
    """A search that the vendor's own tool has made."""

    queries: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    """Address and title of what it found, as far as that is told."""
    failed: bool = False
    choice: int = 0
    names: tuple[str, ...] = ()
    """What the provider calls such things, for clients whose format has no word for them."""


class Logprobs(msgspec.Struct, gc=False):
    """Token probabilities of the text delta just before, each as chat spells a `content` entry."""

    content: list[dict[str, Any]]
    choice: int = 0


class Untold(msgspec.Struct, gc=False):
    """What came has no word in another format, as the trace of a hosted tool and a pause: it is named, not told."""

    what: str
    """In the provider's words."""


class Pause(msgspec.Struct, frozen=True, gc=False):
    """The provider has paused an answer, and goes on with it when it is asked to."""

    token: str = ""
    """What it wants to be given with the same request; empty: what it has said, as it said it."""
    chars: int = 0
    """Of text that the call brought."""
    ids: tuple[str, ...] = ()
    """Of the tool calls that it brought."""


class Finish(msgspec.Struct, gc=False):
    """One choice has ended."""

    reason: FinishReason
    choice: int = 0
    stop_sequence: str | None = None
    """The stop string that matched, where the provider names it."""
    raw_reason: str | None = None
    """The provider's own word, for the row."""
    pause: Pause | None = None
    """It may be gone on with; else the pause is named, as what came and is not told."""


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
    Start
    | TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | OpaqueState
    | Citation
    | WebSearch
    | Logprobs
    | Untold
    | Finish
    | UsageReport
    | StreamError
    | End
)
