"""A Responses request as its format spells it: every field that is read, its type and its bounds.

Only shape stands here; what a field means, `openai_responses_request_decoder` and `openai_responses_items_decoder` say.
Source: wire formats page `responses.md`, "Request fields", "Input items" and "Tools".
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1)]
Positive = Annotated[int, Meta(ge=1, le=2**31)] | None
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


# ---- parts of messages ----------------------------------------------------------------------------------------------


class Breakpoint(msgspec.Struct):
    """A mark of the prompt cache."""

    mode: str | None = None
    ttl: str | None = None


class _Markable(msgspec.Struct, kw_only=True):
    prompt_cache_breakpoint: Breakpoint | None = None


class InputText(_Markable, tag_field="type", tag="input_text"):
    text: str


class InputImage(_Markable, tag_field="type", tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None


class InputFile(_Markable, tag_field="type", tag="input_file"):
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None


class Sound(msgspec.Struct):
    data: str
    format: Literal["wav", "mp3"]


class InputAudio(_Markable, tag_field="type", tag="input_audio"):
    input_audio: Sound


class OutputText(_Markable, tag_field="type", tag="output_text"):
    text: str
    annotations: list[dict[str, Any]] | None = None


class Refusal(_Markable, tag_field="type", tag="refusal"):
    refusal: str


class SummaryText(msgspec.Struct, tag_field="type", tag="summary_text"):
    text: str


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    text: str


Given = InputText | InputImage | InputFile | InputAudio
Said = InputText | OutputText | Refusal
Returned = InputText | InputImage | InputFile


# ---- items ----------------------------------------------------------------------------------------------------------


class Role(msgspec.Struct):
    """As much of a message as says how its content is to be read."""

    role: Literal["user", "assistant", "system", "developer"]


class GivenMessage(msgspec.Struct):
    """A message of the client's."""

    content: str | list[Given]


class AssistantMessage(msgspec.Struct):
    """A message of the model's, as it came or in the easy form."""

    content: str | list[Said]
    phase: str | None = None


class Reasoning(msgspec.Struct):
    id: str | None = None
    summary: list[SummaryText] | None = None
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None


class FunctionCall(msgspec.Struct):
    call_id: Name
    name: Name
    arguments: str
    namespace: str | None = None


class CustomCall(msgspec.Struct):
    call_id: Name
    name: Name
    input: str
    namespace: str | None = None


class CallOutput(msgspec.Struct):
    output: str | list[Returned]
    call_id: str | None = None


class ItemReference(msgspec.Struct):
    id: str


class ToolSearchCall(msgspec.Struct):
    arguments: dict[str, Any]
    call_id: str | None = None
    execution: Literal["server", "client"] | None = None


class ToolSearchOutput(msgspec.Struct):
    tools: list[msgspec.Raw]
    call_id: str | None = None
    execution: Literal["server", "client"] | None = None


# ---- tools ----------------------------------------------------------------------------------------------------------


class Typed(msgspec.Struct):
    """As much of an item or a tool as says what it is."""

    type: str | None = None


class FunctionTool(msgspec.Struct):
    name: Name
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class CustomFormat(msgspec.Struct, omit_defaults=True):
    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None


class CustomTool(msgspec.Struct):
    name: Name
    description: str | None = None
    format: CustomFormat | None = None


class SearchFilters(msgspec.Struct):
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class WebSearchTool(msgspec.Struct):
    filters: SearchFilters | None = None
    user_location: dict[str, Any] | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None


class ToolSearchTool(msgspec.Struct):
    """A search for tools; `client`: its calls are answered by the client."""

    execution: Literal["server", "client"] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Namespace(msgspec.Struct):
    name: Name
    tools: list[msgspec.Raw] = []


class Chosen(msgspec.Struct):
    """A tool that the client chose."""

    type: str
    name: str | None = None


class ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[Chosen] | None = None


# ---- the whole ------------------------------------------------------------------------------------------------------


class ReasoningOptions(msgspec.Struct):
    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: str | None = None
    mode: str | None = None


class PlainFormat(msgspec.Struct, tag_field="type", tag="text"):
    pass


class ObjectFormat(msgspec.Struct, tag_field="type", tag="json_object"):
    pass


class SchemaFormat(msgspec.Struct, tag_field="type", tag="json_schema"):
    name: Name
    schema: dict[str, Any]
    strict: bool | None = None
    description: str | None = None


class TextOptions(msgspec.Struct):
    format: PlainFormat | ObjectFormat | SchemaFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Body(msgspec.Struct, kw_only=True):
    """The whole request, items and tools left as they stand."""

    model: Name
    input: str | list[msgspec.Raw] | None = None
    instructions: str | None = None
    max_output_tokens: Positive = None
    max_tool_calls: Positive = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[msgspec.Raw] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    include: list[str] | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
