"""Why an answer ended, between our words and those of Messages. Source: translation matrix, section 22."""

from sluicegate.messages import FinishReason

_READ: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop_sequence",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_full",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "pause_turn": "paused",
    "compaction": "paused",
}
_WRITE = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "context_full": "model_context_window_exceeded",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "paused": "pause_turn",
}


def read_stop_reason(reason: str) -> FinishReason:
    """Return our word for a stop reason; one that nobody knows is a normal end."""
    return _READ.get(reason, "stop")


def write_stop_reason(reason: str, stop_sequence: str | None) -> tuple[str, str | None]:
    """Return `stop_reason` and `stop_sequence`; a stop string that nobody named is a normal end."""
    if reason == "stop_sequence" and stop_sequence is None:
        return "end_turn", None
    return _WRITE.get(reason, "end_turn"), stop_sequence if reason == "stop_sequence" else None
