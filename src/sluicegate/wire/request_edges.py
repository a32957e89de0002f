"""The edges of a request, of any format: its top level read strictly, its size estimated, its plain values checked.

What all formats ask of a body before anything of it is believed: whole characters, and no second value for a key that
the gate reads. Everything deeper is left to each format.
"""

import re
from collections.abc import Callable, Container
from typing import Final

import msgspec
from mypy_extensions import mypyc_attr

from sluicegate.errors import BadRequest, DecodeError
from sluicegate.wire import json_edit
from sluicegate.wire.json_edit import Member

READ_KEYS: Final = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "models",
        "fallbacks",
        "prompt",
        "user",
        "metadata",
        "prompt_cache_key",
        "service_tier",
    }
)
"""Top-level keys that the gate reads: a duplicate would let one value be priced and another be served."""
MESSAGE_TOKENS: Final = 16
BYTES_PER_TOKEN: Final = 3
MEDIA_TOKENS: Final = 1600
MEDIA_BYTES_PER_TOKEN: Final = 40
_MEDIA_SCAN_BYTES: Final = 16_384
_BASE64: Final = re.compile(rb"(?:;base64,|\"data\"\s*:\s*\")([A-Za-z0-9+/=_\-]{64,})")
_IMAGE_BEHIND: Final = re.compile(rb'"\s*+,\s*+"mime(?:T|_t)ype"\s*+:\s*+"image/', re.IGNORECASE)
"""Gemini's SDK says what the data is behind it."""
_MEDIA_URL: Final = re.compile(rb"\"url\"\s*:\s*\"https?://")


def read_members(body: bytes) -> list[Member]:
    """Read a request's top level, strictly: UTF-8, whole characters, no duplicate of a key that the gate reads.

    Raises:
        BadRequest: what is wrong, with the byte offset where one can be told.
    """
    fields = _read_top(body)
    members = _members_where_odd(body, fields)
    return json_edit.members_of(body, fields) if members is None else members


def _read_top(body: bytes) -> dict[str, msgspec.Raw]:
    """Read a request's top level; of duplicates the last one is kept. Raises BadRequest, as `read_members`."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"The request body is not UTF-8 (at byte {error.start}).") from None
    if json_edit.may_escape(body):
        at = json_edit.lone_surrogate(body)
        if at is not None:
            raise BadRequest(f"The request body holds half a surrogate pair (at byte {at}).")
    try:
        return json_edit.decode_top(body, "json")
    except DecodeError as error:
        raise BadRequest(f"The request body is not valid: {error.message}.") from None


def _members_where_odd(body: bytes, fields: dict[str, msgspec.Raw]) -> list[Member] | None:
    """Return the members of a top level that may say something twice; None of one that is compact and cannot.

    Raises:
        BadRequest: a key that the gate reads is there twice.
    """
    if json_edit.is_compact(body, fields):
        return None
    members = json_edit.members_of(body, fields)
    if len(fields) < len(members):
        seen: set[str] = set()
        for member in members:
            key = member.key
            if key in seen and key in READ_KEYS:
                raise BadRequest(f"Duplicate key '{key}' (at byte {member.key_at}).", param=key)
            seen.add(key)
    return members


@mypyc_attr(allow_interpreted_subclasses=True)
class ReadBody:
    """A body whose top level was read strictly; its values by key, as they stand. Offsets are into `body`."""

    __slots__ = ("_fields", "_listed", "body")

    def __init__(self, body: bytes) -> None:
        """Read a body's top level. Raises BadRequest."""
        self.body = body
        self._fields = _read_top(body)
        """Of duplicates the last one."""
        self._listed = _members_where_odd(body, self._fields)
        """The members, once somebody needs them; None while a compact body needs none."""

    @property
    def _all_members(self) -> list[Member]:
        """All members, duplicates included, in order."""
        if self._listed is None:
            self._listed = json_edit.members_of(self.body, self._fields)
        return self._listed

    def _place(self, key: str) -> tuple[int, int]:
        """Return the offsets of the value of a key that there is."""
        if self._listed is None:
            return json_edit.place_in_compact(self._fields, key)
        for member in reversed(self._listed):
            if member.key == key:
                return member.start, member.end
        raise AssertionError("the key is one of the body's")

    def release(self) -> None:
        """Let the body go: there will be no other attempt."""
        self.body = b""
        self._fields = {}
        self._listed = []

    def value(self, key: str) -> bytes | None:
        """Return a top-level value's bytes; None where it is absent."""
        raw = self._fields.get(key)
        return None if raw is None else bytes(raw)


def estimate_input(body: bytes, messages: int) -> int:
    """Estimate the tokens of a request from above, without a tokenizer: bytes / 3, media by their size or kind."""
    encoded, media = _media(body)
    return -(-(len(body) - encoded) // BYTES_PER_TOKEN) + MESSAGE_TOKENS * messages + media


def media_tokens(body: bytes) -> int:
    """Return which of the estimated tokens are pictures and sound."""
    return _media(body)[1]


def _media(body: bytes) -> tuple[int, int]:
    """Return how many bytes of a request are base64, and the tokens of its media."""
    encoded_bytes = media = 0
    if len(body) > _MEDIA_SCAN_BYTES and (body.find(b";base64,") >= 0 or body.find(b'"data"') >= 0):
        for match in _BASE64.finditer(body):
            encoded = match.end(1) - match.start(1)
            encoded_bytes += encoded
            before = body[max(0, match.start(1) - 96) : match.start(1)]
            image = b"image/" in before or _IMAGE_BEHIND.match(body, match.end(1)) is not None
            media += MEDIA_TOKENS if image else max(1, encoded * 3 // 4 // MEDIA_BYTES_PER_TOKEN)
    if 0x2F in body and body.find(b"http") >= 0:
        media += MEDIA_TOKENS * len(_MEDIA_URL.findall(body))
    return encoded_bytes, media


def cache_marks(body: bytes) -> tuple[bool, bool]:
    """Return whether a request may mark a part of it for the provider's cache, and for an hour: rather too much."""
    escaped = json_edit.may_spell_ascii(body)
    marked = (
        0x5F in body
        and body.find(b"cache_") >= 0
        and (body.find(b"cache_control") >= 0 or body.find(b"prompt_cache_breakpoint") >= 0)
    )
    if not escaped and not marked:
        return False, False
    return True, escaped or b'"1h"' in body


def other_models(
    keys: Container[str],
    value: Callable[[str], bytes | None],
    names: tuple[str, ...] = ("models", "fallbacks", "prompt"),
) -> str | None:
    """Return the field that names models beside `model`, where a request has one.

    Args:
        keys: of the request's top level.
        value: returns the bytes of one of its values.
    """
    return next((key for key in names if key in keys and value(key) not in (b"null", b"[]", b"{}")), None)


def tier_named(raw: bytes | None) -> str | None:
    """Return the service tier that a request's value names, in lower case; None where it is no word."""
    if raw is None or len(raw) > 64 or not raw.startswith(b'"') or b"\\" in raw:
        return None
    return raw[1:-1].decode().lower().removeprefix("service_tier_")


def needed_text(key: str, value: object) -> str:
    """Return a value that has to be a string and not empty. Raises BadRequest."""
    if value is None:
        raise BadRequest(f"Missing required parameter: '{key}'.", param=key)
    if not isinstance(value, str):
        raise BadRequest(f"Invalid type for '{key}': expected a string.", param=key)
    if not value:
        raise BadRequest(f"Invalid '{key}': must not be empty.", param=key)
    return value


def flag(key: str, value: object) -> bool:
    """Return a value that has to be a boolean; absent it is false. Raises BadRequest."""
    if value is None:
        return False
    if not isinstance(value, bool):
        raise BadRequest(f"Invalid type for '{key}': expected a boolean.", param=key)
    return value


def number(key: str, value: object, low: int, high: int = 2**31) -> int | None:
    """Return a value that has to be an integer in these bounds, or None where it is absent. Raises BadRequest."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"Invalid type for '{key}': expected an integer.", param=key)
    if not low <= value <= high:
        raise BadRequest(f"Invalid '{key}': must be between {low} and {high}.", param=key)
    return value
