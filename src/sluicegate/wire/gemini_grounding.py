"""Sources of an answer: Gemini counts UTF-8 bytes within a part, OpenAI and the vocabulary characters of the text.

Source: wire formats page `gemini.md`, "Response"; translation matrix, section 25.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from sluicegate.messages import Citation, WebSearch

_JOIN_PIECES = 64


class TextSoFar:
    """The text of one choice as it grows, and where its parts begin."""

    __slots__ = ("_part_starts", "_pieces", "chars")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._part_starts: list[int] = []
        self.chars = 0

    def begin_part(self) -> None:
        """Note that what follows is another part."""
        self._part_starts.append(self.chars)

    def add(self, text: str) -> None:
        """Take the next piece."""
        self.chars += len(text)
        pieces = self._pieces
        pieces.append(text)
        if len(pieces) > _JOIN_PIECES:
            self._pieces = ["".join(pieces)]

    def text(self) -> str:
        """Return all of it."""
        return "".join(self._pieces)

    def part_start(self, index: int) -> int:
        """Return the character at which a part begins; an unknown part is the first."""
        return self._part_starts[index] if 0 <= index < len(self._part_starts) else 0


def read_citations(grounding: bytes, recitation: bytes, so_far: TextSoFar, choice: int) -> Iterator[Citation]:
    """Read a candidate's `groundingMetadata` and `citationMetadata`."""
    text = so_far.text()
    yield from _read_grounding(_object(grounding), text, so_far, choice)
    cited = _object(recitation)
    for source in _objects(cited.get("citationSources")) + _objects(cited.get("citations")):
        if isinstance(source.get("uri"), str) and source["uri"]:
            start, end = _span(text, source, 0)
            yield Citation(source["uri"], _string(source.get("title")), start, end, choice)


def _read_grounding(
    grounding: dict[str, Any], text: str, so_far: TextSoFar, choice: int
) -> Iterator[Citation]:
    chunks = grounding.get("groundingChunks")
    sources = [_source(chunk) for chunk in chunks] if isinstance(chunks, list) else []
    supports = _objects(grounding.get("groundingSupports"))
    for support in supports:
        segment = support.get("segment")
        segment = segment if isinstance(segment, dict) else {}
        part = segment.get("partIndex")
        start, end = _span(text, segment, so_far.part_start(part if isinstance(part, int) else 0))
        indices = support.get("groundingChunkIndices")
        for index in indices if isinstance(indices, list) else ():
            source = sources[index] if isinstance(index, int) and 0 <= index < len(sources) else None
            if source is not None:
                yield Citation(*source, start, end, choice)
    if not supports:
        for source in sources:
            if source is not None:
                yield Citation(*source, 0, 0, choice)


def _source(chunk: Any) -> tuple[str, str] | None:
    """Return address and title of a grounding chunk, whichever kind it is."""
    for value in chunk.values() if isinstance(chunk, dict) else ():
        if isinstance(value, dict) and isinstance(value.get("uri"), str) and value["uri"]:
            return value["uri"], _string(value.get("title"))
    return None


def _span(text: str, segment: dict[str, Any], part_start: int) -> tuple[int, int]:
    """Turn byte offsets within a part into character offsets of the whole text."""
    part = text[part_start:]
    encoded = part.encode()
    ends = []
    for key in ("startIndex", "endIndex"):
        at = segment.get(key)
        at = at if isinstance(at, int) and not isinstance(at, bool) and at > 0 else 0
        ends.append(part_start + len(encoded[:at].decode(errors="ignore")))
    return ends[0], max(ends)


def read_search(grounding: bytes, choice: int) -> WebSearch | None:
    """Read what a candidate's `groundingMetadata` says of searches of the web; None where it was not searched."""
    metadata = _object(grounding)
    queries = [query for query in _list(metadata.get("webSearchQueries")) if isinstance(query, str) and query]
    if not queries:
        return None
    found = [_source(chunk) for chunk in _list(metadata.get("groundingChunks"))]
    sources = tuple(source for source in found if source is not None)
    return WebSearch(tuple(queries), sources, choice=choice, names=("webSearchQueries",))


def count_searches(grounding: bytes) -> int:
    """Return how often the web was searched: once a query."""
    if b'"webSearchQueries"' not in grounding:
        return 0
    search = read_search(grounding, 0)
    return 0 if search is None else len(search.queries)


def write_grounding(
    citations: Iterable[Citation], text: str | None, searches: Sequence[WebSearch] = ()
) -> bytes:
    """Write a candidate's `groundingMetadata`.

    Args:
        text: all of the candidate's text; None: it is not known, so only the sources are told.
        searches: that were made for it.
    """
    chunks: list[dict[str, Any]] = []
    places: dict[str, int] = {}
    for search in searches:
        for url, title in search.sources:
            if url not in places:
                places[url] = len(chunks)
                chunks.append({"web": {"uri": url, "title": title}})
    supports: dict[tuple[int, int], list[int]] = {}
    for citation in citations:
        if citation.url not in places:
            places[citation.url] = len(chunks)
            chunks.append({"web": {"uri": citation.url, "title": citation.title}})
        web = chunks[places[citation.url]]["web"]
        web["title"] = web["title"] or citation.title
        cited = supports.setdefault((citation.start_index, citation.end_index), [])
        if places[citation.url] not in cited:
            cited.append(places[citation.url])
    value: dict[str, Any] = {}
    queries = [query for search in searches for query in search.queries]
    if queries:
        value["webSearchQueries"] = queries
    value["groundingChunks"] = chunks
    if text is not None:
        value["groundingSupports"] = [
            {"segment": _segment(text, start, end), "groundingChunkIndices": cited}
            for (start, end), cited in supports.items()
            if end > start
        ]
    return msgspec.json.encode(value)


def _segment(text: str, start: int, end: int) -> dict[str, Any]:
    segment: dict[str, Any] = {}
    if start:
        segment["startIndex"] = len(text[:start].encode())
    segment["endIndex"] = len(text[:end].encode())
    segment["text"] = text[start:end]
    return segment


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
