"""What a model can take and how it wants it said, as plain data; defaults fit an unknown server of a format.

Codecs read it when they write a request for a provider. It is set in the catalogue, per model; nothing here is code
for a vendor.
"""

from typing import Literal

import msgspec

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""How hard a model may be asked to think, least first."""
ImageSize = Literal["512", "1K", "2K", "4K"]
IMAGE_SIZES: tuple[ImageSize, ...] = ("512", "1K", "2K", "4K")
"""Google's words for how large a picture is."""
_PLACES: dict[str, int] = {effort: place for place, effort in enumerate(EFFORTS)}


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model at one provider."""

    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """How chat spells the limit on output; OpenAI's own models want max_completion_tokens."""
    developer_role: bool = False
    """Chat: knows the role `developer`; else it is said as `system`."""
    mid_system: bool = False
    """Messages: takes `role: system` messages in mid-conversation."""
    temperature: bool = True
    """Sampling fields other than the defaults are accepted."""
    max_temperature: float = 2.0
    images: bool = True
    audio: bool = False
    files: bool = True
    tools: bool = True
    parallel_tools: bool = True
    """The switch for parallel calls is accepted."""
    strict_tools: bool = False
    """Messages: takes `strict` on tools."""
    forced_tools: bool = True
    """A call can be demanded."""
    custom_tools: bool = False
    web_search: bool = False
    """Chat: searches the web where `web_search_options` ask for it, which all other models refuse."""
    search_with_tools: bool = False
    """Gemini: a web search and functions may be asked for together."""
    images_in_results: bool = False
    """Chat and Gemini: tool results may hold images."""
    response_schema: bool = True
    json_object: bool = True
    reasoning: Literal["none", "effort", "budget", "adaptive", "level"] = "effort"
    """How thinking is asked for: effort (OpenAI formats), budget (Messages, Gemini 2.5), adaptive with effort
    (newer Messages), level (Gemini 3). none: the model does not think."""
    reasoning_off: bool = True
    """Thinking can be switched off."""
    efforts: tuple[Effort, ...] = EFFORTS
    """The efforts it knows by name; `nearest_effort` turns others into one of them."""
    min_budget_tokens: int = 1024
    max_budget_tokens: int = 32768
    max_output_tokens: int | None = None
    """The most it accepts; larger limits are clamped."""
    max_stop_sequences: int = 4
    reasoning_in_history: bool = False
    """Chat: assistant turns carry their thoughts back as `reasoning_content`, which some servers demand between tool
    calls and others refuse."""
    prefill: bool = True
    """A trailing assistant turn is continued."""
    continuation: Literal["none", "turn", "prefix", "final_message"] = "none"
    """How it is asked to go on with an answer that another began. turn: the partial answer is the last turn, or the end
    of the prompt; prefix: chat, that turn says `prefix: true` (Mistral, DeepSeek's beta); final_message: chat,
    `continue_final_message` (vLLM, SGLang). none: it would begin anew, as OpenAI's own models do."""
    prompt_cache: bool = False
    """OpenAI formats: takes explicit cache breakpoints."""
    prompt_excludes_cache: bool = False
    """Usage quirk: the prompt count leaves cached tokens out although the format includes them."""
    output_excludes_reasoning: bool = False
    """Usage quirk: the output count leaves reasoning out although the format includes it."""
    prompt_template: Literal["plain", "none"] = "plain"
    """Completions: how a conversation becomes one text; none: it is refused."""
    clean_schemas: bool = False
    """JSON Schema keywords outside the common subset are refused, and have to be moved into descriptions."""
    call_ids: bool = True
    """Gemini: takes ids on function calls and results; else they find each other by name and order."""
    signed_calls: bool = False
    """Gemini 3 and later: refuses calls of the current turn without the signature that they came with."""
    json_with_tools: bool = True
    """Gemini: a JSON answer and functions may be asked for together."""
    xhigh_effort: bool = False
    """Gemini: takes the thinking level XHIGH."""
    media_resolution: bool = False
    """Gemini: takes a resolution for each picture."""
    native_images: bool = False
    """Gemini: makes pictures as parts of its answers (`generateContent`); others are asked as Imagen, by `predict`."""
    image_ratios: tuple[str, ...] = ("1:1", "3:4", "4:3", "9:16", "16:9")
    """Gemini: the aspect ratios that pictures can be asked for in."""
    image_sizes: tuple[ImageSize, ...] = ()
    """Gemini: the resolutions that pictures can be asked for in; none: it makes one."""

    def nearest_effort(self, wanted: str) -> str:
        """Return the effort it knows that is nearest to the one wanted; of two as near, the lower one.

        `none` stays `none`, and nothing else becomes it: `reasoning_off` tells whether thinking can be switched off.
        """
        known = [effort for effort in self.efforts if effort != "none"]
        if wanted not in EFFORTS or wanted == "none" or wanted in known or not known:
            return wanted
        place = _PLACES[wanted]
        return min(known, key=lambda effort: (abs(_PLACES[effort] - place), _PLACES[effort]))
