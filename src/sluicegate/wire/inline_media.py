"""Media that travel inside JSON as base64: their alphabet put right, their kind told by their first bytes."""

import binascii
import re

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_HEAD_CHARS = 24
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^;,]*)*?;base64,", re.IGNORECASE)
_ENDINGS = {
    ".pdf": "application/pdf",
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".json": "application/json",
}
_URL_SAFE = str.maketrans("-_", "+/")


def standard_base64(text: str) -> str | None:
    """Return base64 in the standard alphabet, padded and without white space; None where it is no base64.

    Args:
        text: standard or URL-safe, padded or not.
    """
    if not text.isascii():
        return None
    spelled = "".join(text.split()).translate(_URL_SAFE).rstrip("=")
    spelled += "=" * (-len(spelled) % 4)
    try:
        binascii.a2b_base64(spelled, strict_mode=True)
    except binascii.Error:
        return None
    return spelled


def media_type(base64: str) -> str | None:
    """Return the type that the data's first bytes tell, of those that models take; None for any other.

    Args:
        base64: standard alphabet.
    """
    head = binascii.a2b_base64(base64[:_HEAD_CHARS] + "==")
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), None)


def read_inline(text: str) -> tuple[str | None, str] | None:
    """Return the type, where it is told, and the data of a data URL or of bare base64; None for anything else."""
    head = _DATA_URL.match(text)
    data = standard_base64(text[head.end() :] if head else text)
    if not data:
        return None
    return (head[1].lower() or None if head else None), data


def type_by_name(filename: str | None) -> str | None:
    """Return the type that a file's name tells, of those that models take."""
    name = (filename or "").lower()
    return next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), None)
