"""What is read of a Chat Completions request. Source: wire formats page `chat-completions.md`."""

from typing import Any

import msgspec


class Message(msgspec.Struct, gc=False):
    """One turn."""

    role: str
    audio: Any = None


class Edges(msgspec.Struct, gc=False):
    """What routing and metering look at."""

    model: Any = None
    messages: list[Message] | None = None
    stream: Any = None
    n: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
