"""Why an answer ended, in Gemini's words and in ours. Source: translation matrix, section 22."""

from sluicegate.messages import FinishReason

_BLOCKED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "LANGUAGE",
        "MODEL_ARMOR",
        "ESCALATION",
        "PUP_LIMITED_DISABLED",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_OTHER",
        "NO_IMAGE",
    }
)
_BROKEN = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "MISSING_THOUGHT_SIGNATURE",
        "TOO_MANY_TOOL_CALLS",
    }
)
_NONE = frozenset({"", "FINISH_REASON_UNSPECIFIED"})
_WRITTEN = {"length": "MAX_TOKENS", "context_full": "MAX_TOKENS", "content_filter": "SAFETY"}


def says_finished(reason: str | None) -> bool:
    """Whether a `finishReason` is one."""
    return reason is not None and reason not in _NONE


def read_finish_reason(reason: str, *, called: bool, content: bool) -> FinishReason | None:
    """Return our word for a reason; None where it says that the model failed.

    Calls end with STOP here, so their presence is the only sign of them. CONTINUATION, an output limit of one request,
    is a length for whoever does not send the request again.

    Args:
        called: functions were called.
        content: anything was said.
    """
    if reason in ("MAX_TOKENS", "CONTINUATION"):
        return "length"
    if reason in _BLOCKED:
        return "content_filter"
    if reason in _BROKEN or (reason != "STOP" and not content):
        return None
    return "tool_calls" if called else "stop"


def write_finish_reason(reason: str) -> str:
    """Return Gemini's word for a reason of ours."""
    return _WRITTEN.get(reason, "STOP")
