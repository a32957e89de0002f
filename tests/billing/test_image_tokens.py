"""Pictures are counted by the formulae of their vendors; the examples are the vendors' own."""

from base64 import b64encode

import pytest

from sluicegate.billing.image_tokens import UNKNOWN, image_size, image_tokens
from sluicegate.messages import Format


def png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + width.to_bytes(4) + height.to_bytes(4)
    return b64encode(head + b"\x08\x02\x00\x00\x00").decode()


def jpeg(width: int, height: int, before: int = 0) -> str:
    exif = b"\xff\xe1" + (2 + before).to_bytes(2) + b"x" * before
    frame = b"\xff\xc2\x00\x11\x08" + height.to_bytes(2) + width.to_bytes(2) + b"\x03"
    return b64encode(b"\xff\xd8" + exif + b"\xff" + frame + b"rest").decode()


def webp(kind: bytes, size: bytes, at: int) -> str:
    return b64encode((b"RIFF\x00\x00\x00\x00WEBP" + kind).ljust(at, b"\x00") + size + b"\x00" * 8).decode()


@pytest.mark.parametrize(
    "picture",
    [
        png(640, 480),
        jpeg(640, 480),
        jpeg(640, 480, before=60_000),
        b64encode(b"GIF89a" + (640).to_bytes(2, "little") + (480).to_bytes(2, "little")).decode() + "AAAA",
        webp(b"VP8X", (639).to_bytes(3, "little") + (479).to_bytes(3, "little"), 24),
        webp(b"VP8L", (639 | 479 << 14).to_bytes(4, "little"), 21),
        webp(b"VP8 ", (640).to_bytes(2, "little") + (480).to_bytes(2, "little"), 26),
    ],
    ids=["png", "jpeg", "jpeg of a camera", "gif", "webp", "webp lossless", "webp lossy"],
)
def test_the_size_stands_in_the_head(picture: str) -> None:
    assert image_size(picture) == (640, 480)


@pytest.mark.parametrize(
    "picture", ["", "AAAA", png(0, 9), png(9, 9)[:20], jpeg(9, 9)[:12], "\xff\xff", "/9j/" * 9]
)
def test_what_tells_no_size_counts_as_a_large_one(picture: str) -> None:
    assert image_size(picture) is None
    assert image_tokens(picture, "messages") == image_tokens(None, "chat") == UNKNOWN


@pytest.mark.parametrize(
    ("format", "width", "height", "tokens"),
    [
        ("chat", 1024, 1024, 765),
        ("responses", 2048, 4096, 1105),
        ("chat", 512, 512, 255),
        ("messages", 1000, 1000, 1334),
        ("messages", 200, 200, 54),
        ("messages", 1092, 1092, 1590),
        ("messages", 6000, 4000, 1600),
        ("gemini", 384, 384, 258),
        ("gemini", 600, 400, 258),
        ("gemini", 960, 540, 516),
        ("gemini", 1536, 769, 1032),
    ],
)
def test_each_vendor_has_a_formula(format: Format, width: int, height: int, tokens: int) -> None:
    assert image_tokens(png(width, height), format) == tokens


def test_little_detail_has_one_price() -> None:
    assert image_tokens(png(4096, 8192), "chat", "low") == 85
    assert image_tokens(None, "responses", "low") == 85
