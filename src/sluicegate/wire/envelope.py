"""The envelope in which one vendor's opaque state travels through clients and formats of another.

Signatures, encrypted reasoning and redacted thoughts mean something only to the vendor and model that made them, and
are refused anywhere else. Sealed, they say whose they are, so that the next turn can give them back to their maker byte
for byte and keep them from everybody else. The checksum tells a damaged envelope, or a client's own text that begins
alike, from a whole one; it proves no authorship and need not: a forged state is refused by its vendor.

An envelope is `gw1.VENDOR.BODY.SUM`: BODY the unpadded base64url of `{"v":value,"k":kind,"m":model,"i":id}`, SUM the
CRC-32 of everything before it, in hex. Its alphabet is safe in every field that holds one; Gemini wants base64 around.
"""

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Literal, get_args

import msgspec

from sluicegate.messages import Opaque, Vendor

_SHAPE = re.compile(r"(gw1\.([a-z]+)\.([A-Za-z0-9_-]+))\.([0-9a-f]{8})", re.ASCII)
_PREFIX = "gw1."


class _Body(msgspec.Struct, omit_defaults=True):
    v: str
    k: Literal["signature", "encrypted", "redacted"]
    m: str | None = None
    i: str | None = None


_VENDORS: dict[str, Vendor] = {vendor: vendor for vendor in get_args(Vendor)}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Body).decode


def seal(opaque: Opaque) -> str:
    """Return the state in an envelope, the same one each time."""
    body = _encode(_Body(opaque.value, opaque.kind, opaque.model, opaque.id))
    head = f"{_PREFIX}{opaque.vendor}.{urlsafe_b64encode(body).rstrip(b'=').decode('ascii')}"
    return f"{head}.{_sum(head)}"


def open_envelope(text: str) -> Opaque | None:
    """Return the state that an envelope holds; None for anything that is no whole envelope."""
    if not text.startswith(_PREFIX):
        return None
    shape = _SHAPE.fullmatch(text)
    if shape is None or shape[2] not in _VENDORS or _sum(shape[1]) != shape[4]:
        return None
    coded = shape[3]
    try:
        body = _decode(urlsafe_b64decode(coded + "=" * (-len(coded) % 4)))
    except (binascii.Error, msgspec.DecodeError, RecursionError):
        return None
    return Opaque(vendor=_VENDORS[shape[2]], kind=body.k, value=body.v, model=body.m, id=body.i)


def _sum(head: str) -> str:
    return f"{binascii.crc32(head.encode('ascii')):08x}"
