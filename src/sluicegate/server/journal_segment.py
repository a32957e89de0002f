"""What a journal's files are: a row of segments, and the frames in them.

One journal a worker process: a row of segments, each flocked while its process lives, so that whoever gets
the lock knows that nobody writes there any more. Nobody appends to a file that another process wrote. What
stands in a segment, in order::

    magic (8) · frame of a Header · frame of a Record · … · zeros (space kept for what must not fail)
    frame:  marker (8) · crc32 of what follows (u32) · length of the payload (u32) · payload (MessagePack)

The marker begins with 0xFF, which no UTF-8 text holds, and is random for each process (it stands in the
file's name), so that a reader can find the next frame after damage and no client can plant one inside a
string. They are written in `server.journal`, read in `server.journal_reader`, and drained in `server.drain`.
"""

import struct
import zlib
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

MAGIC = b"SGJRNL1\n"
SUFFIX = ".journal"
FRAME = struct.Struct("<8sII")
CHECKSUM = struct.Struct("<I")
CHECKSUM_AT = 8
LENGTH_AT = 12
"""Where the checksum's cover begins: the payload's length, then the payload."""
_POLYNOMIAL = 0xEDB88320
"""Of the crc32, its bits in reverse."""


class Header(msgspec.Struct, kw_only=True):
    """Who writes a segment. Together these name one process for certain, also after a pid was used again."""

    pid: int
    started: int | None
    """Start of the process in ticks since boot; None where the system does not say."""
    boot: str
    worker: int
    created_at: float


class SegmentName(NamedTuple):
    """What a segment's file name says."""

    worker: int
    pid: int
    token: str
    """16 hexadecimal digits, random for each process."""
    number: int
    """Counts a process's segments from 0."""

    def __str__(self) -> str:
        return f"{self.worker:04d}-{self.pid}-{self.token}-{self.number:06d}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Read a file name; None for any other file."""
        parts = name.removesuffix(SUFFIX).split("-")
        if not name.endswith(SUFFIX) or len(parts) != 4 or len(parts[2]) != 16:
            return None
        try:
            int(parts[2], 16)
            return cls(int(parts[0]), int(parts[1]), parts[2], int(parts[3]))
        except ValueError:
            return None

    @property
    def marker(self) -> bytes:
        """The eight bytes that begin every frame of the process."""
        return b"\xff" + bytes.fromhex(self.token)[1:]


def frame(marker: bytes, payload: bytes) -> bytes:
    """Wrap one payload."""
    length = len(payload).to_bytes(4, "little")
    return FRAME.pack(marker, zlib.crc32(payload, zlib.crc32(length)), len(payload)) + payload


def checksum_before(head: bytes) -> int:
    """Return the checksum from which these bytes lead to 0, where every checksum begins.

    To go on from it over a buffer that they begin is to leave them out, without a copy or a view of the rest.
    """
    checksum = 0xFFFFFFFF
    for byte in reversed(head):
        for _ in range(8):
            checksum = (checksum ^ _POLYNOMIAL) << 1 | 1 if checksum & 0x80000000 else checksum << 1
        checksum ^= byte
    return checksum ^ 0xFFFFFFFF


def is_whole(data: bytes) -> bool:
    """Whether these bytes are one frame, as it was written."""
    if len(data) < FRAME.size:
        return False
    found: tuple[bytes, int, int] = FRAME.unpack_from(data)
    _, checksum, length = found
    return len(data) == FRAME.size + length and zlib.crc32(data[LENGTH_AT:]) == checksum


def process_started(pid: int) -> int | None:
    """Say when a process began, in ticks since boot; None where there is no such process or no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(
        stat[stat.rindex(b")") + 2 :].split()[19]
    )  # the command before it may hold spaces and brackets


def boot_id() -> str:
    """Name this run of the machine; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
