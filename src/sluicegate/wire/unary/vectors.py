"""What every shape of the embeddings endpoint says: what is to be embedded, and what came of it.

Vectors stay as they came until a client's encoding is known: numbers, or base64 of little-endian 32-bit floats.
"""

import base64
import binascii
import struct
from typing import Literal, NamedTuple

from sluicegate.errors import DecodeError
from sluicegate.messages import Usage

Encoding = Literal["float", "base64"]
Input = str | list[int]
"""A text, or token ids."""
Vector = list[float] | str


class Inputs(NamedTuple):
    """What is to be embedded."""

    inputs: list[Input]
    dimensions: int | None
    user: str | None = None


class Vectors(NamedTuple):
    """What the calls brought, joined in the order of the inputs."""

    vectors: list[Vector]
    usage: Usage | None
    """None where not every call told it."""


def usage_of(tokens: int) -> Usage:
    """Return the usage of an answer that read so much; nothing is generated."""
    return Usage(input_tokens=tokens, output_tokens=0)


def check_number(found: int, wanted: int) -> None:
    """Raise DecodeError where an answer does not hold a vector for each input: which is whose could not be told."""
    if found != wanted:
        raise DecodeError("embeddings", None, f"the answer holds {found} embeddings for {wanted} inputs")


def to_floats(vector: Vector) -> list[float]:
    """Return a vector's numbers.

    Raises:
        DecodeError: it is not base64 of whole floats.
    """
    if not isinstance(vector, str):
        return vector
    try:
        packed = base64.b64decode(vector, validate=True)
        return list(struct.unpack(f"<{len(packed) // 4}f", packed))
    except (binascii.Error, struct.error):
        raise DecodeError("embeddings", None, "an embedding is not base64 of floats") from None


def to_base64(vector: Vector) -> str:
    """Return a vector as base64.

    Raises:
        DecodeError: a number is too large for 32 bits.
    """
    if isinstance(vector, str):
        return vector
    try:
        packed = struct.pack(f"<{len(vector)}f", *vector)
    except OverflowError:
        raise DecodeError("embeddings", None, "a number in an embedding is too large") from None
    return base64.b64encode(packed).decode()
