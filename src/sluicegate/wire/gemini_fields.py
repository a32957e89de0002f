"""Objects of a Gemini request, which is protobuf's JSON: read leniently in spelling, strictly in meaning.

Keys may be in camel or snake case at every level, and both spellings are one key. Enum values may be in any case,
numbers may be strings, integers floats, bytes base64 in either alphabet; null is the same as absent. Values that are
the client's own (arguments, results, schemas, labels) are left as they stand. Source: wire formats page `gemini.md`,
"JSON spelling".
"""

import re
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from sluicegate.wire.inline_media import standard_base64
from sluicegate.wire.translation import bad_field

_SERVICE = re.compile(
    r"gs://|https://generativelanguage\.googleapis\.com/|https://(?:www\.)?youtube\.com/|https://youtu\.be/"
)
_UNDERSCORE = re.compile(r"(?<=[A-Za-z0-9])_+([A-Za-z0-9])")
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BROKEN = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def camel(key: str) -> str:
    """Return a key's spelling in camel case, which is the one that names it."""
    return _UNDERSCORE.sub(lambda match: match[1].upper(), key) if "_" in key else key


def is_service_address(url: str) -> bool:
    """Whether an address is one that `fileUri` can name: the vendor's own files and videos, no other page."""
    return _SERVICE.match(url) is not None


class Fields:
    """One object, by its keys in camel case."""

    __slots__ = ("_values", "path")

    def __init__(self, raw: bytes | msgspec.Raw, path: str) -> None:
        """Read an object.

        Args:
            path: where it stands in the request, for errors; empty at the top.
        Raises:
            BadRequest: no object, or a key comes in both its spellings.
        """
        self.path = path
        try:
            spelled = _decode_object(raw)
        except _BROKEN:
            raise bad_field(path or "body", "expected an object") from None
        self._values: dict[str, msgspec.Raw] = {}
        for key, value in spelled.items():
            name = camel(key)
            if name in self._values:
                raise bad_field(self.at(name), "this key comes in both its spellings")
            self._values[name] = value
        self._values = {key: value for key, value in self._values.items() if bytes(value) != b"null"}

    def at(self, key: str) -> str:
        """Return the path of a member."""
        return f"{self.path}.{key}" if self.path else key

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def names(self) -> list[str]:
        """Return the keys that are there and not null, in order."""
        return list(self._values)

    def beyond(self, known: Collection[str]) -> list[str]:
        """Return the keys that are there and not among these."""
        return [key for key in self._values if key not in known]

    def raw(self, key: str) -> bytes | None:
        """Return a value's bytes, as they stand."""
        value = self._values.get(key)
        return None if value is None else bytes(value)

    def value(self, key: str) -> Any:
        """Return a value decoded."""
        raw = self._values.get(key)
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw)
        except _BROKEN:
            raise bad_field(self.at(key), "invalid value") from None

    def text(self, key: str) -> str | None:
        """Return a string."""
        value = self.value(key)
        if value is not None and not isinstance(value, str):
            raise bad_field(self.at(key), "expected a string")
        return value

    def needed_text(self, key: str) -> str:
        """Return a string that has to be there and must not be empty."""
        text = self.text(key)
        if not text:
            raise bad_field(self.at(key), "missing required field" if text is None else "must not be empty")
        return text

    def flag(self, key: str) -> bool | None:
        """Return a boolean."""
        value = self.value(key)
        if value is not None and not isinstance(value, bool):
            raise bad_field(self.at(key), "expected a boolean")
        return value

    def number(self, key: str, low: float, high: float) -> float | None:
        """Return a number between two bounds; it may be spelled as a string."""
        value = self.value(key)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                value = ...
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_field(self.at(key), "expected a number")
        if not low <= value <= high:
            raise bad_field(self.at(key), f"must be between {low:g} and {high:g}")
        return value

    def integer(self, key: str, low: int = -(2**31), high: int = 2**31 - 1) -> int | None:
        """Return a whole number between two bounds; it may be spelled as a float or a string."""
        value = self.number(key, low, high)
        if value is None:
            return None
        if value != int(value):
            raise bad_field(self.at(key), "expected an integer")
        return int(value)

    def enum(self, key: str, known: Collection[str], prefix: str = "") -> str | None:
        """Return an enum's value in upper case.

        Args:
            known: the values that are; another one is refused with this list.
            prefix: what the full name of a value begins with, which may be left out.
        """
        text = self.text(key)
        if text is None:
            return None
        word = text.upper().removeprefix(prefix)
        if word.endswith("UNSPECIFIED"):
            return None
        if word not in known:
            raise bad_field(self.at(key), f"must be one of {', '.join(sorted(known))}")
        return word

    def base64(self, key: str) -> str | None:
        """Return bytes as base64 in the standard alphabet, padded."""
        text = self.text(key)
        if text is None:
            return None
        spelled = standard_base64(text)
        if spelled is None:
            raise bad_field(self.at(key), "invalid base64")
        return spelled

    def texts(self, key: str) -> list[str]:
        """Return an array of strings."""
        value = self.value(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise bad_field(self.at(key), "expected an array of strings")
        return value

    def object(self, key: str) -> "Fields | None":
        """Return an object."""
        raw = self._values.get(key)
        return None if raw is None else Fields(raw, self.at(key))

    def objects(self, key: str) -> Iterator["Fields"]:
        """Yield the objects of an array; one object that stands alone is an array of one."""
        raw = self.raw(key)
        if raw is None:
            return
        if raw.startswith(b"{"):
            yield Fields(raw, self.at(key))
            return
        try:
            items = _decode_list(raw)
        except _BROKEN:
            raise bad_field(self.at(key), "expected an array of objects") from None
        for place, item in enumerate(items):
            yield Fields(item, f"{self.at(key)}[{place}]")

    def free(self, key: str) -> dict[str, Any] | None:
        """Return an object whose keys are the client's own."""
        value = self.value(key)
        if value is not None and not isinstance(value, dict):
            raise bad_field(self.at(key), "expected an object")
        return value
