"""Members of a Messages request's objects, read one by one; every error names the path of the field."""

import re
from typing import Any

import msgspec

from sluicegate.wire.translation import bad_field

Object = dict[str, msgspec.Raw]
"""An object whose values are left as they stand."""
_PLACE = re.compile(r"`\$(\[\d+\])`")
_decode_objects = msgspec.json.Decoder(list[Object]).decode
_decode_object = msgspec.json.Decoder(Object).decode


def value_of(raw: msgspec.Raw, path: str) -> Any:
    """Decode a value whose JSON was read before.

    Raises:
        BadRequest: a number beyond all bounds, or nested too deeply.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise bad_field(path, "Input is not a valid value") from None


def text_of(fields: Object, key: str, path: str, *, required: bool = True) -> str | None:
    """Return a member that has to be a string; None where an optional one is absent or null."""
    raw = fields.get(key)
    value = None if raw is None else value_of(raw, f"{path}.{key}")
    if value is None and not required:
        return None
    if value is None:
        raise bad_field(f"{path}.{key}", "Field required")
    if not isinstance(value, str):
        raise bad_field(f"{path}.{key}", "Input should be a string")
    return value


def needed_text(fields: Object, key: str, path: str) -> str:
    """Return a string that has to be there and must not be empty."""
    text = text_of(fields, key, path)
    if not text:
        raise bad_field(f"{path}.{key}", "must not be empty")
    return text


def object_of(raw: msgspec.Raw | None, path: str) -> Object:
    """Return a member that has to be an object, its values left as they stand."""
    if raw is None:
        raise bad_field(path, "Field required")
    try:
        return _decode_object(raw)
    except (msgspec.DecodeError, RecursionError):
        raise bad_field(path, "Input should be an object") from None


def objects_of(raw: msgspec.Raw, path: str) -> list[Object]:
    """Return a member that has to be an array of objects."""
    try:
        return _decode_objects(raw)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        if place is not None:
            raise bad_field(path + place[1], "Input should be an object") from None
    except (msgspec.DecodeError, RecursionError):
        pass
    raise bad_field(path, "Input should be an array of objects")


def is_null(raw: msgspec.Raw) -> bool:
    """Whether a value is null: the same as absent, where a field is optional."""
    return bytes(memoryview(raw)[:5]) == b"null"
