"""What is read of a web search as Messages tells it. Source: wire formats page `anthropic-messages.md`."""

import msgspec


class SearchInput(msgspec.Struct, gc=False):
    """What a search was asked."""

    query: str = ""


class Found(msgspec.Struct, gc=False):
    """One page that it found."""

    url: str = ""
    title: str | None = None
