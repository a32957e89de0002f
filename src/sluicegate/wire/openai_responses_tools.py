"""Names of tools between Responses and formats that know no namespaces, and the other way.

A tool in a namespace is told to others by both names joined, and a search for tools that the client does itself is a
function like any other; the tools it finds are declared from then on. Source: translation matrix, section 7; the
vendor's guide to tool search, November 2026.
"""

import re
from hashlib import sha256

from sluicegate.messages import Request, Tool

SEARCH_TOOL = "tool_search"
"""The name under which others are told of a search for tools."""
MAX_NAME_CHARS = 64
MAX_ID_CHARS = 64
_FITS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def provider_name(name: str) -> str:
    """Return a tool's name, or a call's id, as this format takes it; the same one each time."""
    if _FITS.fullmatch(name):
        return name
    return f"{_UNFIT.sub('_', name)[:48]}_{sha256(name.encode(errors='replace')).hexdigest()[:12]}"


def tool_names(request: Request) -> dict[str, str]:
    """Return the tools' names that had to be changed for a provider of this format, back to the client's."""
    return {
        changed: tool.name for tool in request.tools if (changed := provider_name(tool.name)) != tool.name
    }


def joined_name(namespace: str | None, name: str) -> str:
    """Return the one name of a tool that may stand in a namespace."""
    return f"{namespace}__{name}" if namespace else name


def namespaces(request: Request) -> dict[str, tuple[str, str]]:
    """Return the namespace and the name that each joined name stands for."""
    return {
        tool.name: (tool.namespace, tool.name[len(joined_name(tool.namespace, "")) :])
        for tool in request.tools
        if tool.namespace
    }


def found_text(tools: list[Tool]) -> str:
    """Return in words what a search for tools has found."""
    if not tools:
        return "No tool was found."
    return f"These tools can be called now: {', '.join(tool.name for tool in tools)}."
