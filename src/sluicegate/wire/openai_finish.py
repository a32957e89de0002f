"""Why an answer ended, as chat and completions name it. Source: wire formats page `chat-completions.md`."""

from typing import Final

FINISH_REASONS: Final = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_ALIASES: Final = {
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "MAX_TOKENS": "length",
    "safety": "content_filter",
    "SAFETY": "content_filter",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
}


def right_reason(reason: str, *, called: bool) -> str:
    """Return the finish reason an OpenAI client knows: by the table, an unknown one as `stop`.

    Args:
        called: tools were called, which `stop` would hide.
    """
    right = reason if reason in FINISH_REASONS else _ALIASES.get(reason, "stop")
    return "tool_calls" if called and right == "stop" else right
