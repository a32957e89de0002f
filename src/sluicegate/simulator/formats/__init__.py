"""How each wire format spells an `Answer`: the provider's side, written apart from the gate's own codecs.

A format is a module with the functions of `Dialect`. Its stream is a list of whole events, each marked with
its kind and its weight in pieces of content, with placeholders where ids (and sending times) go.
"""

from types import MappingProxyType
from typing import Final

from sluicegate.messages import Format
from sluicegate.simulator.formats import chat, completions, gemini, messages, responses
from sluicegate.simulator.formats.base import Ask, Dialect, Fault, Piece

__all__ = ["DIALECTS", "Ask", "Dialect", "Fault", "Piece", "format_of"]

DIALECTS: Final = MappingProxyType[Format, Dialect](
    {
        "chat": chat,
        "completions": completions,
        "responses": responses,
        "messages": messages,
        "gemini": gemini,
    }
)


def format_of(path: str) -> Format | None:
    """Return the format that a path belongs to, whatever stands before it; None: none of ours."""
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/completions"):
        return "completions"
    if path.endswith("/responses"):
        return "responses"
    if path.endswith("/messages"):
        return "messages"
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return "gemini"
    return None
