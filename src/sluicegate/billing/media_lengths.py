"""How long a sound is, and how many pages a document has, as far as the file tells: both are counted by that.

Sounds tell it in their head (WAV, MP3, FLAC) or on their last page (Ogg); a PDF's pages are looked for while it is
decoded in pieces, so that no large one holds anybody up. What a second or a page costs is the vendors': Google,
"Understand and count tokens" (32 a second, 258 a page); OpenAI, "Realtime costs" (a token for 100 ms); Anthropic, "PDF
support" (1,500 to 3,000 a page), November 2026.
"""

import binascii
import re
import zlib
from typing import TYPE_CHECKING

from sluicegate.messages import Format

SECOND_TOKENS = {"gemini": 32}
OTHER_SECOND_TOKENS = 10
PAGE_TOKENS = {"gemini": 258, "messages": 2_250}
OTHER_PAGE_TOKENS = 1_450
"""OpenAI: four tiles of a page's picture, and its text."""
_TAIL_BYTES = 65_536
"""In which the last page of an Ogg file begins."""
_MP3_KBPS = {
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Of layer III, by the version of MPEG (2.5 is as 2)."""
_MP3_HZ = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
"""By the version's bits."""
_OVERLAP_BYTES = 512
_INFLATED_BYTES = 2 * 1024 * 1024
"""No more of a document's object streams is looked at."""
_PAGE = re.compile(rb"/Type\s{0,8}/Page(?![A-Za-z])")
_OBJECT_STREAM = re.compile(rb"/Type\s{0,8}/ObjStm\b[^\0]{0,256}?\bstream\r?\n", re.DOTALL)

if TYPE_CHECKING:
    from zlib import _Decompress


def sound_tokens(base64: str, format: Format) -> int | None:
    """Return what a provider of a format counts for a sound; None where its length cannot be told.

    Args:
        base64: standard alphabet.
    """
    seconds = sound_seconds(base64)
    if seconds is None:
        return None
    return max(1, round(seconds * SECOND_TOKENS.get(format, OTHER_SECOND_TOKENS)))


def page_tokens(pages: int, format: Format) -> int:
    """Return about what a provider of a format counts for so many pages."""
    return pages * PAGE_TOKENS.get(format, OTHER_PAGE_TOKENS)


def sound_seconds(base64: str) -> float | None:
    """Return the length of a WAV, MP3, FLAC or Ogg sound; None for any other, or where it does not tell."""
    try:
        head = _bytes_at(base64, 0, 4096)
        if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
            seconds = _wav_seconds(head, _size(base64))
        elif head.startswith(b"fLaC") and len(head) >= 26:
            rate = int.from_bytes(head[18:21]) >> 4
            seconds = (int.from_bytes(head[21:26]) & 0xF_FFFF_FFFF) / rate if rate else 0.0
        elif head.startswith(b"OggS"):
            seconds = _ogg_seconds(head, _bytes_at(base64, max(0, _size(base64) - _TAIL_BYTES), _TAIL_BYTES))
        else:
            seconds = _mp3_seconds(base64, head)
    except binascii.Error:
        return None
    return seconds if seconds > 0 else None


def _wav_seconds(head: bytes, size: int) -> float:
    at, rate = 12, 0
    while at + 8 <= len(head):
        name, length = head[at : at + 4], int.from_bytes(head[at + 4 : at + 8], "little")
        if name == b"fmt ":
            rate = int.from_bytes(head[at + 16 : at + 20], "little")
        elif name == b"data":
            held = min(length, size - at - 8)  # who records as it comes does not know the length
            return held / rate if rate else 0.0
        at += 8 + length + length % 2
    return 0.0


def _ogg_seconds(head: bytes, tail: bytes) -> float:
    last = max(0, tail.rfind(b"OggS"))
    granule = int.from_bytes(tail[last + 6 : last + 14], "little")
    opus, vorbis = head.find(b"OpusHead"), head.find(b"\x01vorbis")
    if opus >= 0:
        return max(0, granule - int.from_bytes(head[opus + 10 : opus + 12], "little")) / 48_000
    rate = int.from_bytes(head[vorbis + 12 : vorbis + 16], "little") if vorbis >= 0 else 0
    return granule / rate if rate else 0.0


def _mp3_seconds(base64: str, head: bytes) -> float:
    at = 0
    if head.startswith(b"ID3") and len(head) >= 10:
        at = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
        head = _bytes_at(base64, at, 4096)
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:  # a frame, of layer III
        return 0.0
    version, kbps_at, hz_at = head[1] >> 3 & 3, head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or kbps_at in (0, 15) or hz_at == 3:
        return 0.0
    hz, samples = _MP3_HZ[version][hz_at], 1152 if version == 3 else 576
    for mark in (b"Xing", b"Info"):
        told = head.find(mark, 0, 64)
        if 0 <= told <= len(head) - 12 and head[told + 7] & 1:
            return int.from_bytes(head[told + 8 : told + 12]) * samples / hz
    kbps = _MP3_KBPS[1 if version == 3 else 2][kbps_at]
    return (_size(base64) - at) * 8 / (kbps * 1000)


def _size(base64: str) -> int:
    """Return how many bytes base64 stands for."""
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _bytes_at(base64: str, start: int, count: int) -> bytes:
    skipped = start % 3
    at = (start - skipped) // 3 * 4
    part = base64[at : at + (count + skipped + 2) // 3 * 4]
    return binascii.a2b_base64(part)[skipped : skipped + count]


class PdfPages:
    """Counts the pages of a PDF that comes in pieces, in object streams too; those of old versions of it as well."""

    def __init__(self) -> None:
        self.pages = 0
        self._held = b""
        """The end of what came, which may begin what is looked for."""
        self._inflating: _Decompress | None = None
        self._inflated = b""
        self._room = _INFLATED_BYTES

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the file."""
        if self._inflating is not None:
            piece = self._inflate(piece)
        self._look(self._held + piece, last=False)

    def finish(self) -> int:
        """Return how many pages there were; 0 where none could be found."""
        self._look(self._held, last=True)
        return self.pages

    def _look(self, data: bytes, *, last: bool) -> None:
        at, stop = 0, len(data) if last else max(0, len(data) - _OVERLAP_BYTES)
        while at < stop:
            found = _OBJECT_STREAM.search(data, at)
            until = stop if found is None else found.start()
            for page in _PAGE.finditer(data, at):
                if page.start() >= min(until, stop):
                    break
                self.pages += 1
            if found is None or found.start() >= stop:
                break
            if self._room <= 0:
                at = found.end()
                continue
            self._inflating = zlib.decompressobj()
            data, at = self._inflate(data[found.end() :]), 0
            stop = len(data) if last else max(0, len(data) - _OVERLAP_BYTES)
        self._held = data[stop:] if at <= stop else data[at:]

    def _inflate(self, piece: bytes) -> bytes:
        """Take a piece of an object stream; return what follows the stream's end."""
        assert self._inflating is not None
        try:
            self._inflated += self._inflating.decompress(piece, max(1, self._room - len(self._inflated)))
        except zlib.error:
            self._inflating = None
            return piece
        if not self._inflating.eof and len(self._inflated) < self._room:
            return b""
        self.pages += sum(1 for _ in _PAGE.finditer(self._inflated))
        self._room -= len(self._inflated)
        rest, self._inflating, self._inflated = self._inflating.unused_data, None, b""
        return rest
