"""Local token counts, for answers whose provider did not say: exact for OpenAI's o200k families, near for others.

The extension module of `bpe-openai` is loaded without its package: the package builds tables in Python that we
never read, 65 MB and a second of start-up in every worker. The tokenizer holds the interpreter lock and refuses a
million characters, so text is always counted in pieces.
"""

import importlib.util
from collections import deque
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


def _pieces_of(text: str) -> list[str]:
    """Return a text in pieces that are short enough to count in one call."""
    pieces: list[str] = []
    at = 0
    while len(text) - at > PIECE_CHARS:
        end = _cut(text, at, at + PIECE_CHARS)
        pieces.append(text[at:end])
        at = end
    return [*pieces, text[at:]]


class TokenCounter:
    """Counts a text that comes in pieces, gathered so that cuts fall at white space: exact and cheap.

    What comes faster than it may be counted waits in line: whoever is told by `on_late` calls `catch_up` in turns of
    its loop, so that a text of megabytes holds nobody up.
    """

    __slots__ = (
        "_chars",
        "_late",
        "_late_marked",
        "_mark",
        "_pieces",
        "_rough",
        "_rough_pieces",
        "_total",
        "_turn_chars",
        "on_counted",
        "on_late",
    )

    GATHER_CHARS = 1024
    TURN_CHARS = 16_384
    """The most that is counted at once; about 0.4 ms."""
    MAX_LATE_PIECES = 4096
    """Beyond so many in line, they are counted at once: memory has a bound too."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._chars = 0
        self._total = 0
        self._rough = 0
        self._rough_pieces = 0
        self._turn_chars = 0
        """Counted since the line was last empty: beyond a turn's worth a line is begun."""
        self._late: deque[str] | None = None
        """Pieces in line, oldest first."""
        self._late_marked = 0
        """How many of them stand before the mark."""
        self._mark: tuple[int, str | None, int] = (0, None, 0)
        """Where the mark is: tokens before a text, that text up to the mark (None: it is in what is gathered now), and
        how many characters that is."""
        self.on_counted: Callable[[int], None] | None = None
        """Told the tokens counted so far, about once a thousand characters."""
        self.on_late: Callable[[], None] | None = None
        """Told when text begins to wait in line; None: all is counted as it comes."""

    def add(self, text: str) -> None:
        """Take the next piece."""
        self._pieces.append(text)
        self._chars += len(text)
        if self._chars >= self.GATHER_CHARS:
            self._count_most()

    def total(self) -> int:
        """Return the tokens of everything taken so far."""
        while self.catch_up():
            pass
        return self._total + self._count_gathered()

    def floor(self) -> int:
        """Return the tokens counted so far, without what is still gathered or in line; costs nothing."""
        return self._total

    def running(self) -> int:
        """Return the tokens counted so far and, piece by piece, those gathered: at most about a tenth too many."""
        pieces = self._pieces
        for place in range(self._rough_pieces, len(pieces)):
            self._rough += count_tokens(pieces[place])
        self._rough_pieces = len(pieces)
        return self._total + self._rough

    def mark(self) -> None:
        """Remember that everything taken until now has been accounted for by somebody else."""
        self._mark = (self._total, None, self._chars)
        self._late_marked = len(self._late or ())

    def since_mark(self) -> int:
        """Return the tokens of everything taken since the last mark."""
        total = self.total()
        before, text, chars = self._mark
        if not chars:
            return total - before
        if text is None:
            text = "".join(self._pieces)
        return max(0, total - before - count_tokens(text[:chars]))

    @property
    def late(self) -> bool:
        """Whether text waits in line."""
        return bool(self._late)

    def catch_up(self) -> bool:
        """Count one turn's worth of what waits in line; return whether there is more of it."""
        late = self._late
        self._turn_chars = 0
        if not late:
            return False
        for _ in range(min(len(late), self.TURN_CHARS // PIECE_CHARS)):
            tokens = _tokenizer().count(late.popleft())
            self._total += tokens
            if self._late_marked:
                self._late_marked -= 1
                before, marked, chars = self._mark
                self._mark = (before + tokens, marked, chars)
        if self.on_counted is not None:
            self.on_counted(self._total)
        return bool(late)

    def _count_gathered(self) -> int:
        if not self._pieces:
            return 0
        text = "".join(self._pieces)
        self._pieces = [text]
        self._rough = count_tokens(text)
        self._rough_pieces = 1
        return self._rough

    def _count_most(self) -> None:
        text = "".join(self._pieces)
        before, marked, chars = self._mark
        if marked is None:
            self._mark = (before, text[:chars], chars)
        self._turn_chars += len(text)
        if self.on_late is not None and (self._late or self._turn_chars > self.TURN_CHARS):
            rest = self._line_up(text, self.on_late)
        else:
            end = _cut(text, 0, len(text))
            self._total += count_tokens(text[:end])
            rest = text[end:]
            if marked is None and chars >= end:
                self._mark = (self._total, None, chars - end)
        self._pieces = [rest] if rest else []
        self._chars = len(rest)
        self._rough = self._rough_pieces = 0
        if self.on_counted is not None:
            self.on_counted(self._total)

    def _line_up(self, text: str, on_late: Callable[[], None]) -> str:
        """Put a text at the end of the line; return what of it stays gathered."""
        if self._late is None:
            self._late = deque()
        was_empty = not self._late
        end = _cut(text, 0, len(text))
        self._late.extend(_pieces_of(text[:end]))
        if was_empty:
            on_late()
        while len(self._late) > self.MAX_LATE_PIECES:
            self.catch_up()
        return text[end:]
