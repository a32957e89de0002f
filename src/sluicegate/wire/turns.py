"""What encoders of conversations share: where instructions end, a call's arguments for formats that want an object."""

from typing import Any

import msgspec

from sluicegate.messages import Message, ToolCall
from sluicegate.wire import json_edit
from sluicegate.wire.translation import Notes


def leading_instructions(messages: list[Message]) -> int:
    """Return how many messages lead the conversation as its system prompt."""
    for place, message in enumerate(messages):
        if message.role not in ("system", "developer"):
            return place
    return len(messages)


def arguments_object(call: ToolCall, path: str, notes: Notes) -> Any:
    """Return a call's arguments as an object to be encoded, in their own spelling.

    Args:
        path: of the call, for the note where they are no JSON.
    """
    if call.custom:
        return {"input": call.arguments}
    text = call.arguments.strip()
    if not text:
        return {}
    raw = text.encode()
    if not json_edit.is_json(raw):
        notes.warn(f"{path}.arguments", "not JSON: sent as text")
        return {"_raw": call.arguments}
    return msgspec.Raw(raw if raw.startswith(b"{") else b'{"value":' + raw + b"}")
