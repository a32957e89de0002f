"""JSON values as text that another format carries in a string: compact, in UTF-8, numbers as they were spelled."""

import re

import msgspec

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
