"""Local token counts, for answers whose provider did not say: exact for OpenAI's o200k families, near for others.

The extension module of `bpe-openai` is loaded without its package: the package builds tables in Python that we
never read, 65 MB and a second of start-up in every worker. The tokenizer holds the interpreter lock and refuses a
million characters, so text is always counted in pieces.
"""

import importlib.util
from collections.abc import Callable
from functools import cache
from importlib.machinery import ExtensionFileLoader
from typing import Protocol, cast

PIECE_CHARS = 4096
"""Longest text counted in one call; about 0.1 ms."""
_ENCODING = "o200k_base"


class _Tokenizer(Protocol):
    def count(self, text: str) -> int: ...


@cache
def _tokenizer() -> _Tokenizer:
    package = importlib.util.find_spec("bpe_openai")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("bpe_openai is not installed")
    found = importlib.machinery.PathFinder.find_spec(
        "bpe_openai._bindings", list(package.submodule_search_locations)
    )
    if found is None or found.origin is None:
        raise ModuleNotFoundError("bpe_openai has no bindings for this platform")
    loader = ExtensionFileLoader("bpe_openai._bindings", found.origin)
    spec = importlib.util.spec_from_file_location("bpe_openai._bindings", found.origin, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return cast(_Tokenizer, module.tokenizer_for_encoding(_ENCODING))


def warm_up() -> None:
    """Load the vocabulary now (70 ms, 66 MB) rather than during the first request."""
    _tokenizer()


def count_tokens(text: str) -> int:
    """Count the tokens of a text, cut at white space into pieces short enough not to stall the loop."""
    if len(text) <= PIECE_CHARS:
        return _tokenizer().count(text)
    total = 0
    at = 0
    while at < len(text):
        end = at + PIECE_CHARS
        if end < len(text):
            end = _cut(text, at, end)
        total += _tokenizer().count(text[at:end])
        at = end
    return total


def _cut(text: str, at: int, end: int) -> int:
    """Return a place to cut at or before `end`: in front of white space, where tokens rarely span."""
    space = text.rfind(" ", at + 1, end)
    line = text.rfind("\n", at + 1, end)
    return max(space, line) if max(space, line) > at else end


class TokenCounter:
    """Counts a text that comes in pieces, gathered so that cuts fall at white space: exact and cheap."""

    __slots__ = ("_chars", "_pieces", "_total", "on_counted")

    GATHER_CHARS = 1024

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._chars = 0
        self._total = 0
        self.on_counted: Callable[[int], None] | None = None
        """Told the tokens counted so far, about once a thousand characters."""

    def add(self, text: str) -> None:
        """Take the next piece."""
        self._pieces.append(text)
        self._chars += len(text)
        if self._chars >= self.GATHER_CHARS:
            self._count_most()

    def total(self) -> int:
        """Return the tokens of everything taken so far."""
        text = "".join(self._pieces)
        self._pieces = [text] if text else []
        return self._total + (count_tokens(text) if text else 0)

    def floor(self) -> int:
        """Return the tokens counted so far, without what is still gathered; costs nothing."""
        return self._total

    def _count_most(self) -> None:
        text = "".join(self._pieces)
        end = _cut(text, 0, len(text))
        self._total += count_tokens(text[:end])
        rest = text[end:]
        self._pieces = [rest] if rest else []
        self._chars = len(rest)
        if self.on_counted is not None:
            self.on_counted(self._total)
