"""Names of tools between Responses and formats that know no namespaces, and the other way.

A tool in a namespace is told to others by both names joined; the table to take them apart again is read from the
request that declared them. Source: translation matrix, section 7.
"""

import re
from hashlib import sha256
from typing import Any

import msgspec

from sluicegate.messages import Request
from sluicegate.wire.translation import Asked

MAX_NAME_CHARS = 64
MAX_ID_CHARS = 64
_FITS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_decode = msgspec.json.Decoder(list[dict[str, Any]]).decode


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


def namespaces(asked: Asked) -> dict[str, tuple[str, str]]:
    """Return the namespace and the name that each joined name stands for."""
    raw = asked.raw.get("tools")
    if raw is None or b'"namespace"' not in bytes(raw):
        return {}
    try:
        tools = _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return {}
    found: dict[str, tuple[str, str]] = {}
    for space in tools:
        inner = space.get("tools")
        if space.get("type") == "namespace" and isinstance(inner, list):
            for tool in inner:
                if isinstance(tool, dict):
                    names = (str(space.get("name")), str(tool.get("name")))
                    found[joined_name(*names)] = names
    return found
