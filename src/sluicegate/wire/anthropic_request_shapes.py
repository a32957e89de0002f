"""What is read of a Messages request that passes. Source: wire formats page `anthropic-messages.md`."""

import msgspec


class Message(msgspec.Struct, gc=False):
    """One turn."""

    role: str
    content: msgspec.Raw
