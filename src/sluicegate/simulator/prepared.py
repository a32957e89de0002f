"""Answers made ready to be sent: encoded once, cut into the writes in which they leave, and kept.

A load test asks for the same answer thousands of times; what remains per event is to put in the id and write.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from sluicegate.messages import Format
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.formats import DIALECTS, Ask, Piece
from sluicegate.simulator.script import Play

RANK = {"start": 0, "content": 1, "finish": 2, "usage": 3, "end": 4}


class Beat(NamedTuple):
    """Events that leave together; all but the first beat wait for the interval."""

    data: bytes
    chunked: bytes
    """The same with chunk framing, a chunk an event."""
    events: int
    weight: int


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def beats_of(pieces: Sequence[Piece]) -> tuple[Beat, ...]:
    """Group events into beats: scaffolding leaves with the content after it, what ends an answer together."""
    beats: list[Beat] = []
    waiting: list[Piece] = []

    def flush() -> None:
        parts = [piece.data for piece in waiting]
        weight = sum(piece.weight for piece in waiting)
        beats.append(Beat(b"".join(parts), b"".join(map(chunk, parts)), len(parts), weight))
        waiting.clear()

    for piece in pieces:
        waiting.append(piece)
        if piece.kind == "content":
            flush()
    if waiting:
        flush()
    return tuple(beats)


class Prepared:
    """One answer in one format, whole or in events."""

    def __init__(self, format: Format, answer: Answer, ask: Ask) -> None:
        self.answer = answer
        self.stream = ask.stream
        self.stamped = answer.stamped
        if ask.stream:
            self.pieces: Sequence[Piece] = DIALECTS[format].stream(answer, ask)
        else:
            body = DIALECTS[format].plain(answer, ask)
            half = len(body) // 2
            weight = answer.pieces() * answer.choices
            self.pieces = [Piece("content", body[:half], weight), Piece("end", body[half:])]
        self.length = sum(len(piece.data) for piece in self.pieces)
        self._beats: dict[Play, tuple[Beat, ...]] = {}

    def select(self, play: Play) -> Sequence[Piece]:
        """Return the events that a step plays. An answer that is not streamed has two: its halves."""
        last = self.last(play)
        return [piece for piece in self.pieces[play.start : last] if piece.kind not in play.skip]

    def last(self, play: Play) -> int:
        """Return the index of the event before which a step stops."""
        count = len(self.pieces)
        if not self.stream:
            whole = play.stop is None and play.before is None
            return count if whole else 1
        last = count if play.stop is None else play.stop if play.stop >= 0 else max(count + play.stop, 0)
        if play.before is not None:
            rank = RANK[play.before]
            for index, piece in enumerate(self.pieces[:last]):
                if RANK[piece.kind] >= rank:
                    return index
        return min(last, count)

    def beats(self, play: Play) -> tuple[Beat, ...]:
        """Return the writes of a step."""
        beats = self._beats.get(play)
        if beats is None:
            beats = self._beats[play] = beats_of(self.select(play))
        return beats


@lru_cache(maxsize=256)
def prepared(format: Format, answer: Answer, ask: Ask) -> Prepared:
    """Return an answer ready to be sent; the newest 256 are kept."""
    return Prepared(format, answer, ask)
