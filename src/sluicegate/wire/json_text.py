"""JSON values as text that another format carries in a string: compact, in UTF-8, numbers as they were spelled."""

import re

import msgspec

_encode = msgspec.json.Encoder().encode
_NAMES: dict[str, bytes] = {}
_MAX_NAMES = 1024
_MAX_NAME = 256
_TOKEN = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")|[ \t\r\n]++', re.DOTALL)


def compact(raw: bytes) -> str:
    """Return valid JSON without white space between tokens and without ASCII escapes that it does not need."""
    return _TOKEN.sub(_token, raw).decode()


def _token(match: re.Match[bytes]) -> bytes:
    string = match[1]
    if string is None:
        return b""
    return (
        msgspec.json.encode(msgspec.json.decode(string)) if b"\\u" in string or b"\\/" in string else string
    )


def quoted_name(name: str) -> bytes:
    """Return what a model is called as a JSON string; there are few, so they are kept."""
    known = _NAMES.get(name)
    if known is None:
        known = quote(name)
        if len(_NAMES) < _MAX_NAMES and len(name) <= _MAX_NAME:
            _NAMES[name] = known
    return known


def quote(text: str) -> bytes:
    """Return a JSON string in UTF-8; half a character, which that has no bytes for, becomes U+FFFD."""
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return _encode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
