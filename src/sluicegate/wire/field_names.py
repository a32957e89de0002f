"""How each client's format spells the fields that encoders name in chat's words.

A provider's encoder knows what it cannot say, not in which words the client said it; notes and errors are told in the
client's own. Paths into a conversation begin as the client's decoder spells them (`contents[2]`); what encoders add to
them, `.content[0]`, is Gemini's `.parts[0]`.
"""

import re
from collections.abc import Mapping

_ROOT = re.compile(r"^[a-z_]+")
_CHAT = {
    "max_output_tokens": "max_tokens",
    "reasoning": "reasoning_effort",
    "web_search": "web_search_options",
}
_GEMINI_CONFIG = {
    "frequency_penalty": "frequencyPenalty",
    "logprobs": "responseLogprobs",
    "max_output_tokens": "maxOutputTokens",
    "max_tokens": "maxOutputTokens",
    "n": "candidateCount",
    "presence_penalty": "presencePenalty",
    "reasoning": "thinkingConfig",
    "response_format": "responseMimeType",
    "seed": "seed",
    "stop": "stopSequences",
    "temperature": "temperature",
    "top_k": "topK",
    "top_logprobs": "logprobs",
    "top_p": "topP",
}
_NAMES: Mapping[str, Mapping[str, str]] = {
    "chat": _CHAT,
    "completions": _CHAT,
    "responses": {
        "logprobs": "include",
        "max_tokens": "max_output_tokens",
        "response_format": "text.format",
        "verbosity": "text.verbosity",
        "web_search": "tools.web_search",
    },
    "messages": {
        "max_output_tokens": "max_tokens",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        "reasoning": "thinking",
        "response_format": "output_config.format",
        "stop": "stop_sequences",
        "user": "metadata.user_id",
        "web_search": "tools.web_search",
    },
    "gemini": {name: f"generationConfig.{spelled}" for name, spelled in _GEMINI_CONFIG.items()}
    | {"service_tier": "serviceTier", "tool_choice": "toolConfig", "web_search": "tools.googleSearch"},
}


def spelled(format: str, field: str) -> str:
    """Return a field, or a path that begins with one, in the words of the client's format."""
    if format == "gemini":
        field = field.replace(".content[", ".parts[")
    return _ROOT.sub(lambda root: _NAMES[format].get(root[0], root[0]), field)
