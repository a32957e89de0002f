"""What is read of a chat completion that is not streamed. Source: wire formats page `chat-completions.md`."""

from typing import Any

import msgspec

from sluicegate.wire.openai_chat_chunk import ToolDelta
from sluicegate.wire.openai_tool_calls import arguments_of


class Message(msgspec.Struct, gc=False):
    """What a choice says."""

    role: Any = None
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[ToolDelta] | None = None

    def texts(self) -> list[str]:
        texts = [self.content, self.reasoning_content or self.reasoning, self.refusal]
        for call in self.tool_calls or ():
            if isinstance(call.function, msgspec.Struct):
                texts += (call.function.name, arguments_of(call))
        return [text for text in texts if isinstance(text, str) and text]


class Choice(msgspec.Struct, gc=False):
    """One of the answers."""

    index: Any = None
    finish_reason: Any = None
    message: Message | None = None


class Answer(msgspec.Struct, gc=False):
    """A whole chat completion, or an error in its place."""

    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    choices: list[Choice] | msgspec.UnsetType = msgspec.UNSET
    usage: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    type: Any = None
    service_tier: Any = None
