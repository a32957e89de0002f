"""A Chat Completions request as its format spells it: every field that is read, its type and its bounds.

Only shape stands here; what a field means is `openai_chat_request_decoder`'s. Source: wire formats page
`chat-completions.md`, "Request fields", "Messages" and "Tools".
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Sampling = Annotated[float, Meta(ge=0, le=2)] | None
Share = Annotated[float, Meta(ge=0, le=1)] | None
Penalty = Annotated[float, Meta(ge=-2, le=2)] | None
Positive = Annotated[int, Meta(ge=1, le=2**31)] | None
Name = Annotated[str, Meta(min_length=1)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


# ---- parts of messages ----------------------------------------------------------------------------------------------


class CacheControl(msgspec.Struct):
    """A mark of the prompt cache, in either spelling that clients use."""

    type: str | None = None
    mode: str | None = None
    ttl: str | None = None


class _Markable(msgspec.Struct, kw_only=True):
    cache_control: CacheControl | None = None
    prompt_cache_breakpoint: CacheControl | None = None


class TextPart(_Markable, tag_field="type", tag="text"):
    text: str


class ImageUrl(msgspec.Struct):
    url: str
    detail: str | None = None


class ImagePart(_Markable, tag_field="type", tag="image_url"):
    image_url: ImageUrl | str


class InputAudio(msgspec.Struct):
    data: str
    format: str


class AudioPart(_Markable, tag_field="type", tag="input_audio"):
    input_audio: InputAudio


class InputFile(msgspec.Struct):
    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = None


class FilePart(_Markable, tag_field="type", tag="file"):
    file: InputFile


class RefusalPart(_Markable, tag_field="type", tag="refusal"):
    refusal: str


# ---- messages -------------------------------------------------------------------------------------------------------


class SystemMessage(msgspec.Struct, tag_field="role", tag="system"):
    content: str | list[TextPart]
    name: str | None = None


class DeveloperMessage(msgspec.Struct, tag_field="role", tag="developer"):
    content: str | list[TextPart]
    name: str | None = None


class UserMessage(msgspec.Struct, tag_field="role", tag="user"):
    content: str | list[TextPart | ImagePart | AudioPart | FilePart]
    name: str | None = None


class CalledFunction(msgspec.Struct):
    name: Name
    arguments: str = ""


class CalledCustom(msgspec.Struct):
    name: Name
    input: str = ""


class Call(msgspec.Struct):
    id: Name
    type: Literal["function", "custom"] = "function"
    function: CalledFunction | None = None
    custom: CalledCustom | None = None


class AssistantMessage(msgspec.Struct, tag_field="role", tag="assistant"):
    content: str | list[TextPart | RefusalPart] | None = None
    refusal: str | None = None
    tool_calls: list[Call] | None = None
    function_call: CalledFunction | None = None
    audio: dict[str, Any] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None


class ToolMessage(msgspec.Struct, tag_field="role", tag="tool"):
    content: str | list[TextPart | ImagePart | FilePart]
    tool_call_id: str | None = None
    name: str | None = None


class FunctionMessage(msgspec.Struct, tag_field="role", tag="function"):
    name: Name
    content: str | None = None


AnyMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage


# ---- tools ----------------------------------------------------------------------------------------------------------


class Function(msgspec.Struct):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(_Markable, tag_field="type", tag="function"):
    function: Function


class Grammar(msgspec.Struct):
    definition: str
    syntax: Literal["lark", "regex"]


class CustomFormat(msgspec.Struct):
    type: Literal["text", "grammar"]
    grammar: Grammar | None = None


class Custom(msgspec.Struct):
    name: Name
    description: str | None = None
    format: CustomFormat | None = None


class CustomTool(_Markable, tag_field="type", tag="custom"):
    custom: Custom


class Named(msgspec.Struct):
    name: Name


class FunctionChoice(msgspec.Struct, tag_field="type", tag="function"):
    function: Named


class CustomChoice(msgspec.Struct, tag_field="type", tag="custom"):
    custom: Named


class AllowedTools(msgspec.Struct):
    mode: Literal["auto", "required"]
    tools: list[FunctionChoice | CustomChoice]


class AllowedChoice(msgspec.Struct, tag_field="type", tag="allowed_tools"):
    allowed_tools: AllowedTools


# ---- the shape of the answer ----------------------------------------------------------------------------------------


class TextFormat(msgspec.Struct, tag_field="type", tag="text"):
    pass


class ObjectFormat(msgspec.Struct, tag_field="type", tag="json_object"):
    pass


class Schema(msgspec.Struct):
    name: Name
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class SchemaFormat(msgspec.Struct, tag_field="type", tag="json_schema"):
    json_schema: Schema


class WebSearch(msgspec.Struct):
    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: dict[str, Any] | None = None


class Body(msgspec.Struct, kw_only=True):
    """The whole request."""

    model: Name
    messages: Annotated[list[AnyMessage], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    max_completion_tokens: Positive = None
    max_tokens: Positive = None
    temperature: Sampling = None
    top_p: Share = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    stop: str | list[Name] | None = None
    seed: int | None = None
    frequency_penalty: Penalty = None
    presence_penalty: Penalty = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[FunctionTool | CustomTool] | None = None
    tool_choice: (
        Literal["none", "auto", "required"] | FunctionChoice | CustomChoice | AllowedChoice | None
    ) = None
    parallel_tool_calls: bool | None = None
    functions: list[Function] | None = None
    function_call: Literal["none", "auto"] | Named | None = None
    response_format: TextFormat | ObjectFormat | SchemaFormat | None = None
    reasoning_effort: Effort | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    service_tier: str | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    web_search_options: WebSearch | None = None
