"""A request's body read into typed fields, and what is wrong with it told by the path of the field.

The decoder's own complaints name type and place; here they become the client's error. Knows no wire format.
"""

import re
from typing import NoReturn, TypeVar

import msgspec

from sluicegate.errors import BadRequest
from sluicegate.wire.translation import bad_field

_T = TypeVar("_T")
_PLACE = re.compile(r"^(?P<said>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def decode_typed(decoder: msgspec.json.Decoder[_T], body: bytes | msgspec.Raw, at: str = "") -> _T:
    """Decode a body, or a value in it.

    Args:
        at: the path of that value.
    Raises:
        BadRequest: it is no JSON of this shape; `param` is the path of the field at fault.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        _refuse(str(error), at)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"The request body is not valid JSON: {error}.") from None
    except RecursionError:
        raise BadRequest("The request body is nested too deeply.", param=at or None) from None


def _refuse(complaint: str, at: str) -> NoReturn:
    match = _PLACE.match(complaint)
    assert match is not None, "it matches any text"
    said, path = match["said"], (at + (match["path"] or "")).removeprefix(".")
    missing = _MISSING.match(said)
    if missing is not None:
        path = f"{path}.{missing[1]}" if path else missing[1]
        raise bad_field(path, "missing required parameter")
    if not path:
        raise BadRequest(f"The request body is not valid: {said}.")
    raise bad_field(path, said.replace("`", "'"))
