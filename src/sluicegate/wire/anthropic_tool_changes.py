"""Tools that come and go within a Messages conversation, for formats whose tools are the same from beginning to end.

A client that searches its tools (Claude Code does) gives a `tool_reference` as the result of the search, and a system
message may add and remove tools. All tools that a request declares are told to the provider from the start, so such a
block becomes a sentence that names the tool. Source: the vendor's tool search and tool change guides, November 2026.
"""

import msgspec

from sluicegate.wire.anthropic_fields import Object, is_null, needed_text, object_of, text_of

CHANGES = frozenset({"tool_addition", "tool_removal"})
"""Blocks of system messages."""


def loaded(name: str) -> str:
    """Return what the result of a tool search says of one tool."""
    return f"The tool {name} can be called now."


def changed(kind: str, tool: msgspec.Raw, path: str) -> tuple[str, Object | None]:
    """Return what a system message says of a tool, and the tool's declaration where the message brings one.

    Args:
        kind: one of CHANGES.
        tool: the block's member `tool`.
        path: of that member.
    """
    named = object_of(None if is_null(tool) else tool, path)
    declared = None
    if text_of(named, "type", path, required=False) == "tool_definition":
        path = f"{path}.definition"
        declared = named = object_of(named.get("definition"), path)
    name = needed_text(named, "name" if "name" in named else "tool_name", path)
    if kind == "tool_addition":
        return loaded(name), declared
    return f"The tool {name} can no longer be called.", None
