"""The header lines that a Messages provider wants beside its key: the API's version and the client's betas.

Source: wire formats page `anthropic-messages.md`, "Headers"; case B040.
"""

import re
from collections.abc import Iterable

from sluicegate.errors import DecodeError
from sluicegate.wire import json_edit

OLD_VERSION = "2023-06-01"
"""What a client that names none means, and the newest version that takes sampling fields."""
NEW_VERSION = "2026-10-21"
SAMPLING_FIELDS = frozenset({"temperature", "top_p", "top_k"})
_PASSED = (b"anthropic-user-profile-id", b"anthropic-workspace-id")
_WORD = re.compile(r"[A-Za-z0-9_.:@/+-]{1,200}")


def upstream_headers(
    body: bytes,
    client_headers: Iterable[tuple[bytes, bytes]] | None = None,
    betas_deny: Iterable[str] = (),
) -> bytes:
    """Return ready header lines for one request.

    Args:
        body: as the provider gets it; its fields choose the version where the gate wrote it.
        client_headers: those of a client that speaks Messages too, names lower-cased; None across formats.
        betas_deny: of the provider's row; one that ends in `*` denies all that begin so.
    """
    if client_headers is None:
        return _line("anthropic-version", OLD_VERSION if _has_sampling(body) else NEW_VERSION)
    version = OLD_VERSION
    betas: dict[str, None] = {}
    passed: list[bytes] = []
    for name, value in client_headers:
        text = value.decode("latin-1").strip()
        if name == b"anthropic-version" and _WORD.fullmatch(text):
            version = text
        elif name == b"anthropic-beta":
            betas |= dict.fromkeys(word for beta in text.split(",") if _WORD.fullmatch(word := beta.strip()))
        elif name in _PASSED and _WORD.fullmatch(text):
            passed.append(_line(name.decode(), text))
    lines = _line("anthropic-version", version)
    denied = tuple(betas_deny)
    kept = [beta for beta in betas if not any(_denies(pattern, beta) for pattern in denied)]
    if kept:
        lines += _line("anthropic-beta", ",".join(kept))
    return lines + b"".join(passed)


def _denies(pattern: str, beta: str) -> bool:
    return beta.startswith(pattern[:-1]) if pattern.endswith("*") else beta == pattern


def _has_sampling(body: bytes) -> bool:
    try:
        return any(member.key in SAMPLING_FIELDS for member in json_edit.members(body))
    except DecodeError:
        return True  # not written by this package: say what every server knows


def _line(name: str, value: str) -> bytes:
    return f"{name}: {value}\r\n".encode("ascii")
