"""What is known of model families by the shape of their ids, where a configuration does not say it.

A model of no known family is taken for what any server of its format can be expected to take. Everything here is data
and can be overridden by the `capabilities` of a provider and of a model. Only what the vendors document stands here;
of a generation that is not known yet, what works on all that are.

Source: the vendors' model pages and migration guides, November 2026; wire formats pages `anthropic-messages.md`,
`chat-completions.md`, `gemini.md`.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Format

Facts = dict[str, Any]
"""Fields of Capabilities and what a family says of them."""

_TEXT_ONLY: Facts = {"images": False, "files": False}
_UP_TO_HIGH = ("low", "medium", "high")

FORMATS: dict[Format, Capabilities] = {
    "chat": Capabilities(),
    "completions": Capabilities(
        tools=False,
        response_schema=False,
        json_object=False,
        reasoning="none",
        continuation="turn",
        **_TEXT_ONLY,
    ),
    "responses": Capabilities(developer_role=True, images_in_results=True),
    "messages": Capabilities(
        max_temperature=1.0,
        reasoning="budget",
        json_object=False,
        images_in_results=True,
        continuation="turn",
    ),
    "gemini": Capabilities(audio=True, max_stop_sequences=5, continuation="turn"),
}
"""What any server of a format can be expected to take."""


class Family(NamedTuple):
    """Models that behave alike."""

    ids: re.Pattern[str]
    """Fits the whole of an id as `plain_id` spells it."""
    facts: Facts


def _family(ids: str, *facts: Facts, **more: Any) -> Family:
    """Make a row; later facts count over earlier ones."""
    merged: Facts = {}
    for one in facts:
        merged |= one
    return Family(re.compile(ids), merged | more)


# ---- OpenAI ---------------------------------------------------------------------------------------------------------

_OPENAI: Facts = {"limit_field": "max_completion_tokens", "developer_role": True, "reasoning": "none"}
_OPENAI_REASONS: Facts = _OPENAI | {"reasoning": "effort", "temperature": False, "custom_tools": True}
_O_SERIES: Facts = _OPENAI_REASONS | {
    "custom_tools": False,
    "parallel_tools": False,
    "reasoning_off": False,
    "efforts": _UP_TO_HIGH,
    "max_output_tokens": 100_000,
}
_GPT_5: Facts = _OPENAI_REASONS | {"max_output_tokens": 128_000}
_NO_STOPS: Facts = {"max_stop_sequences": 0}

_OPENAI_FAMILIES = (
    _family(r"gpt-oss.*", _TEXT_ONLY, reasoning_off=False, efforts=_UP_TO_HIGH),
    _family(r"gpt-3\.?5.*", _OPENAI, _TEXT_ONLY, response_schema=False, max_output_tokens=4096),
    _family(
        r"gpt-4(?:-0[36]\d\d|-32k.*)?",
        _OPENAI, _TEXT_ONLY, response_schema=False, json_object=False, max_output_tokens=8192,
    ),
    _family(r"gpt-4-.*", _OPENAI, files=False, response_schema=False, max_output_tokens=4096),
    _family(r"gpt-4o-2024-05-13", _OPENAI, response_schema=False, max_output_tokens=4096),
    _family(
        r"gpt-4o.*-search-.*|gpt-5-search-.*",
        _OPENAI, web_search=True, temperature=False, max_output_tokens=16_384,
    ),
    _family(r"gpt-4o.*audio.*|gpt-audio.*", _OPENAI, _TEXT_ONLY, audio=True, response_schema=False),
    _family(r"gpt-4o.*|chatgpt-4o.*|gpt-4\.5.*", _OPENAI, max_output_tokens=16_384),
    _family(r"gpt-4\.1.*", _OPENAI, max_output_tokens=32_768),
    _family(r"o1-(?:mini|preview).*", _O_SERIES, _TEXT_ONLY, developer_role=False, tools=False),
    _family(r"o3-mini.*", _O_SERIES, _TEXT_ONLY),
    _family(r"o[34](?:-.*)?", _O_SERIES, _NO_STOPS),
    _family(r"o\d(?:-.*)?|codex-.*|computer-use-.*", _O_SERIES),
    _family(r"gpt-5(?:\.\d)?-chat.*|gpt-chat-.*|chat-latest", _OPENAI, max_output_tokens=16_384),
    _family(r"gpt-5-pro.*", _GPT_5, reasoning_off=False, efforts=("high",), max_output_tokens=272_000),
    _family(r"gpt-5(?:\.\d)?-pro.*", _GPT_5, reasoning_off=False, efforts=("medium", "high", "xhigh")),
    _family(r"gpt-5(?:\.1)?-codex(?:-mini)?", _GPT_5, reasoning_off=False, efforts=_UP_TO_HIGH),
    _family(r"gpt-5(?:-.*)?", _GPT_5, reasoning_off=False, efforts=("minimal", *_UP_TO_HIGH)),
    _family(r"gpt-5\.1-codex-max", _GPT_5, reasoning_off=False, efforts=(*_UP_TO_HIGH, "xhigh")),
    _family(r"gpt-5\.1.*", _GPT_5, efforts=("none", *_UP_TO_HIGH)),
    _family(r"gpt-5\.[2-5].*", _GPT_5, efforts=("none", *_UP_TO_HIGH, "xhigh")),
    _family(
        r"gpt-(?:5\.[6-9]|[6-9]|\d\d).*",
        _OPENAI_REASONS, efforts=("none", *_UP_TO_HIGH, "xhigh", "max"), prompt_cache=True,
    ),
)  # fmt: skip

# ---- Anthropic ------------------------------------------------------------------------------------------------------

_CLAUDE: Facts = {"max_temperature": 1.0, "json_object": False}
_CLAUDE_OLD: Facts = _CLAUDE | {"reasoning": "none", "response_schema": False}
_CLAUDE_BUDGET: Facts = _CLAUDE | {"reasoning": "budget"}
_CLAUDE_SHAPES: Facts = {"response_schema": True, "strict_tools": True}
_CLAUDE_ADAPTIVE: Facts = _CLAUDE | _CLAUDE_SHAPES | {
    "reasoning": "adaptive",
    "prefill": False,
    "efforts": (*_UP_TO_HIGH, "xhigh", "max"),
    "max_output_tokens": 128_000,
}  # fmt: skip
_CLAUDE_UNSAMPLED: Facts = _CLAUDE_ADAPTIVE | {"temperature": False}
_CLAUDE_5: Facts = _CLAUDE_UNSAMPLED | {"mid_system": True}

_ANTHROPIC_FAMILIES = (
    _family(r"claude-(?:instant|v?[12]\b).*", _CLAUDE_OLD, _TEXT_ONLY, tools=False, max_output_tokens=4096),
    _family(r"claude-[a-z]+-3(?:-.*|@.*)?", _CLAUDE_OLD, files=False, max_output_tokens=4096),
    _family(r"claude-[a-z]+-3\.5.*", _CLAUDE_OLD, max_output_tokens=8192),
    _family(r"claude-opus-4(?:\.[01])?(?:[-@].*)?", _CLAUDE_BUDGET, response_schema=False, max_output_tokens=32_000),
    _family(
        r"claude-sonnet-(?:3\.7|4(?:\.0)?)(?:[-@].*)?",
        _CLAUDE_BUDGET, response_schema=False, max_output_tokens=64_000,
    ),
    _family(r"claude-[a-z]+-4\.5.*", _CLAUDE_BUDGET, _CLAUDE_SHAPES, max_output_tokens=64_000),
    _family(r"claude-sonnet-4\.6.*", _CLAUDE_ADAPTIVE, efforts=(*_UP_TO_HIGH, "max"), max_output_tokens=64_000),
    _family(r"claude-[a-z]+-4\.6.*", _CLAUDE_ADAPTIVE, efforts=(*_UP_TO_HIGH, "max")),
    _family(r"claude-[a-z]+-4\.7.*", _CLAUDE_UNSAMPLED),
    _family(r"claude-(?:opus-(?:4\.[89]|5)|sonnet-5|haiku-5\.5)(?:[-@].*)?", _CLAUDE_5),
    _family(
        r"claude-(?:(?:opus|sonnet)-5\.5|(?:fable|mythos)-5\.\d).*",
        _CLAUDE_5, reasoning_off=False, forced_tools=False,
    ),
    _family(r"claude-.*", _CLAUDE_5, reasoning_off=False),
)  # fmt: skip

# ---- Google ---------------------------------------------------------------------------------------------------------

_GEMINI: Facts = {"audio": True}
_GEMINI_2: Facts = _GEMINI | {"json_with_tools": False, "max_output_tokens": 65_536}
_GEMINI_3: Facts = _GEMINI | {
    "reasoning": "level",
    "reasoning_off": False,
    "signed_calls": True,
    "images_in_results": True,
    "media_resolution": True,
    "efforts": _UP_TO_HIGH,
    "max_output_tokens": 65_536,
}

_PICTURE_RATIOS = ("1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9")
_GEMINI_PICTURES: Facts = {
    "native_images": True,
    "image_ratios": _PICTURE_RATIOS,
    "tools": False,
    "max_output_tokens": 32_768,
}
_GEMINI_3_PICTURES: Facts = _GEMINI_3 | _GEMINI_PICTURES | {"image_sizes": ("1K", "2K", "4K")}

_GOOGLE_FAMILIES = (
    _family(r"gemini-2\.\d-.*image.*", _GEMINI_2, _GEMINI_PICTURES, reasoning="none"),
    _family(
        r"gemini-3\.1-flash-image.*",
        _GEMINI_3_PICTURES,
        image_ratios=(*_PICTURE_RATIOS, "1:4", "4:1", "1:8", "8:1"),
        image_sizes=("512", "1K", "2K", "4K"),
    ),
    _family(r"gemini-.*image.*|gemini-nano-banana.*", _GEMINI_3_PICTURES),
    _family(r"gemini-(?:1|pro$|2\.0).*", _GEMINI_2, reasoning="none", max_output_tokens=8192),
    _family(
        r"gemini-2\.5-pro.*",
        _GEMINI_2, reasoning="budget", reasoning_off=False, min_budget_tokens=128, max_budget_tokens=32_768,
    ),
    _family(
        r"gemini-2\.5-flash-lite.*",
        _GEMINI_2, reasoning="budget", min_budget_tokens=512, max_budget_tokens=24_576,
    ),
    _family(r"gemini-2\.5.*", _GEMINI_2, reasoning="budget", min_budget_tokens=1, max_budget_tokens=24_576),
    _family(r"gemini-3-pro.*", _GEMINI_3, efforts=("low", "high")),
    _family(r"gemini-3(?:\.[15])?-flash.*", _GEMINI_3, efforts=("minimal", *_UP_TO_HIGH)),
    _family(r"gemini-3.*", _GEMINI_3),
    _family(r"gemini-.*", _GEMINI_3, max_output_tokens=None),
    _family(r"gemma-?[1-3].*", _TEXT_ONLY, tools=False, reasoning="none", response_schema=False),
)  # fmt: skip

# ---- Others, whom most serve in the chat format ---------------------------------------------------------------------

_DEEPSEEK_THINKS: Facts = _TEXT_ONLY | {
    "response_schema": False,
    "reasoning_in_history": True,
    "efforts": ("none", "low", "high", "max"),
}

_OTHER_FAMILIES = (
    _family(r"deepseek-r1.*", _TEXT_ONLY, response_schema=False, reasoning_off=False),
    _family(r"deepseek-(?:v2|v3(?!\.2)|coder).*", _TEXT_ONLY, reasoning="none", response_schema=False),
    _family(r"deepseek-.*vision.*", _DEEPSEEK_THINKS, forced_tools=False, images=True),
    _family(r"deepseek-(?:v[4-9]|flash).*", _DEEPSEEK_THINKS, forced_tools=False),
    _family(r"deepseek-.*", _DEEPSEEK_THINKS),
    _family(r"moonshot-.*", reasoning="none", files=False, max_temperature=1.0),
    _family(r"kimi-k2(?:-(?!thinking).*)?", _TEXT_ONLY, reasoning="none", max_temperature=1.0),
    _family(
        r"kimi-.*", files=False, temperature=False, forced_tools=False, reasoning_in_history=True,
    ),
    _family(r"glm-.*v(?:-.*)?", response_schema=False, forced_tools=False, max_temperature=1.0, max_stop_sequences=1),
    _family(
        r"glm-.*",
        _TEXT_ONLY, response_schema=False, forced_tools=False, max_temperature=1.0, max_stop_sequences=1,
    ),
    _family(r"qwen.*(?:vl|omni).*", files=False),
    _family(r"qwen-?(?:1\.5|2|2\.5)-.*", _TEXT_ONLY, reasoning="none"),
    _family(r"qwen-?3-.*|qwq-.*", _TEXT_ONLY),
    _family(r"qwen.*", files=False),
    _family(r"magistral-.*", _TEXT_ONLY, max_temperature=1.5),
    _family(r"pixtral-.*", files=False, reasoning="none", max_temperature=1.5),
    _family(r"(?:codestral|devstral|(?:open-)?mixtral|open-mistral|mistral-(?:tiny|7b|nemo|saba))-?.*", _TEXT_ONLY,
            reasoning="none", max_temperature=1.5),
    _family(r"mistral-(?:small-2603|medium-(?:2604|3\.5)).*", max_temperature=1.5, efforts=("none", "high")),
    _family(r"(?:mistral|ministral)-.*", reasoning="none", max_temperature=1.5),
    _family(r"(?:meta-)?llama-?3\.2.*vision.*", files=False, reasoning="none"),
    _family(r"(?:meta-)?llama-?[23].*|codellama.*", _TEXT_ONLY, reasoning="none"),
    _family(r"(?:meta-)?llama.*", files=False, reasoning="none"),
    _family(r"sonar.*", files=False, web_search=True, reasoning="none"),
    _family(r"grok-2.*vision.*", files=False, reasoning="none"),
    _family(r"grok-3-mini.*", _TEXT_ONLY, reasoning_off=False, efforts=("low", "high"), output_excludes_reasoning=True),
    _family(r"grok-[23].*", _TEXT_ONLY, reasoning="none"),
    _family(r"grok-.*non-reasoning.*", files=False, reasoning="none"),
    _family(
        r"grok-(?:code|build|4(?:-.*)?$).*",
        files=False, reasoning="none", max_stop_sequences=0, output_excludes_reasoning=True,
    ),
    _family(r"grok-.*", files=False, max_stop_sequences=0, efforts=("none", *_UP_TO_HIGH),
            output_excludes_reasoning=True),
)  # fmt: skip

FAMILIES = (*_OPENAI_FAMILIES, *_ANTHROPIC_FAMILIES, *_GOOGLE_FAMILIES, *_OTHER_FAMILIES)
"""The first row that fits an id counts."""

_LONGEST_ID = 200
"""Of ids that are looked up; clients choose them under a wildcard, and they are remembered."""
_SAID_IN_COMPLETIONS = ("temperature", "max_temperature", "max_output_tokens", "max_stop_sequences")


def capabilities_of(upstream_id: str, spoken: Format) -> Capabilities:
    """Return what a model can be expected to take in a format."""
    if len(upstream_id) > _LONGEST_ID:
        return FORMATS[spoken]
    return _look_up(upstream_id, spoken)


@lru_cache(maxsize=4096)
def _look_up(upstream_id: str, spoken: Format) -> Capabilities:
    plain = plain_id(upstream_id)
    facts = next((family.facts for family in FAMILIES if family.ids.fullmatch(plain)), {})
    if spoken == "completions":  # whatever the family can do, this format cannot say it
        facts = {name: value for name, value in facts.items() if name in _SAID_IN_COMPLETIONS}
    return msgspec.structs.replace(FORMATS[spoken], **facts)


def plain_id(upstream_id: str) -> str:
    """Return a model's id in the one spelling that the table knows: without who sells it, in lower case, versions with
    a dot, Claude's line before its version.

    `us.anthropic.claude-3-5-sonnet-20241022-v2:0` and `anthropic/claude-3.5-sonnet` both begin with
    `claude-sonnet-3.5`.
    """
    plain = _SELLER.sub("", upstream_id.lower())
    plain = _DASHED_VERSION.sub(r"-\1.\2", plain)
    plain = _LETTERED_VERSION.sub(".", plain)
    return _CLAUDE_VERSION_FIRST.sub(r"claude-\2-\1", plain)


_SELLER = re.compile(r"^(?:.*/)?(?:ft:)?(?:[a-z-]+\.)*")
_DASHED_VERSION = re.compile(r"-(\d)-(\d{1,2})(?![\dbk])")
"""`-4-5`, and neither a date nor a size."""
_LETTERED_VERSION = re.compile(r"(?<=\d)p(?=\d)")
_CLAUDE_VERSION_FIRST = re.compile(r"claude-(\d(?:\.\d+)?)-([a-z]+)")

_HIDES_REASONING = re.compile(
    r"o[1-9](?:-.*)?|gpt-(?:[5-9]|[1-9]\d)(?:[.-].*)?|codex-.*|computer-use-.*"
    r"|claude-[a-z]+-(?:4\.[7-9]|[5-9]).*|claude-mythos-.*"
    r"|gemini-(?:2\.5|[3-9])(?:[.-].*)?|gemini-(?:flash|pro)(?:-lite)?-latest"
    r"|grok-(?:[4-9]|code)(?:[.-].*)?"
)


def hides_reasoning(upstream_id: str) -> bool:
    """Tell whether a model bills reasoning that its stream does not show, so that counting the stream is
    not enough."""
    return _HIDES_REASONING.fullmatch(plain_id(upstream_id)) is not None
