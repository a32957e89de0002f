"""How many tokens a picture has, by the formulae that the vendors publish, from its size alone.

Source, November 2026: OpenAI, "Images and vision", tiles (models that count patches differ, and are near); Anthropic,
"Vision"; Google, "Understand and count tokens".
"""

import binascii
from math import ceil

from sluicegate.messages import Format

UNKNOWN = 1600
"""A picture whose size cannot be told: about what each vendor counts for a large one."""
_HEAD_CHARS = 262_144
"""Base64 in which a size has to stand; pictures of cameras begin with much else."""
_SIZED = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG's start-of-frame markers."""


def image_tokens(base64: str | None, format: Format, detail: str | None = None) -> int:
    """Return what a provider of a format counts for a picture.

    Args:
        base64: standard alphabet; None: it is named by address or id.
        detail: chat's and Responses' word for how closely it is to be looked at.
    """
    if format in ("chat", "responses") and detail == "low":
        return 85
    size = None if base64 is None else image_size(base64)
    if size is None:
        return UNKNOWN
    match format:
        case "messages":
            return _by_area(*size)
        case "gemini":
            return _by_crops(*size)
    return _by_tiles(*size)


def _by_area(width: int, height: int) -> int:
    """Messages: an area of 750 pixels a token, after a long edge over 1,568 was brought to that, at most 1,600."""
    scale = min(1.0, 1568 / max(width, height))
    return max(1, min(1600, ceil(width * scale * height * scale / 750)))


def _by_crops(width: int, height: int) -> int:
    """Gemini: 258 a crop of 768 × 768; small pictures are one."""
    if max(width, height) <= 384:
        return 258
    return 258 * ceil(width / 768) * ceil(height / 768)


def _by_tiles(width: int, height: int) -> int:
    """OpenAI: 85, and 170 a tile of 512 × 512, after it was brought within 2,048 × 2,048 and a short edge of 768."""
    scale = min(1.0, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    return 85 + 170 * ceil(round(width * scale) / 512) * ceil(round(height * scale) / 512)


def image_size(base64: str) -> tuple[int, int] | None:
    """Return width and height in pixels of a PNG, GIF, WebP or JPEG picture; None where its head does not tell."""
    head = base64[:_HEAD_CHARS]
    try:
        data = binascii.a2b_base64(head[: len(head) // 4 * 4])
    except binascii.Error:
        return None
    size = None
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        size = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    elif data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        size = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP" and len(data) >= 30:
        size = _webp_size(data)
    elif data.startswith(b"\xff\xd8"):
        size = _jpeg_size(data)
    return size if size is not None and min(size) > 0 else None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return (
                int.from_bytes(data[26:28], "little") & 0x3FFF,
                int.from_bytes(data[28:30], "little") & 0x3FFF,
            )
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _SIZED:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4])
    return None
