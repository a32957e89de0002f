"""Web searches as Messages tells them: the use of a server tool, then its result, each a block of its own.

What was found is sealed for the vendor alone; another vendor's search is told with the seal left empty, under an id
that is known again when it comes back (`anthropic_foreign_state`). Source: wire formats page `anthropic-messages.md`;
translation matrix, section 24.
"""

from collections.abc import Iterator

import msgspec

from sluicegate.messages import WebSearch
from sluicegate.wire.anthropic_search_shapes import Found, SearchInput
from sluicegate.wire.json_text import quote

TOOL = "web_search"
USE, RESULT = "server_tool_use", "web_search_tool_result"
OWN_ID = "srvtoolu_gw1_"
"""How the ids of searches begin that another vendor made."""


_read_input = msgspec.json.Decoder(SearchInput).decode
_read_found = msgspec.json.Decoder(list[Found]).decode


class SearchesRead:
    """The searches of one provider's answer."""

    __slots__ = ("_queries",)

    def __init__(self) -> None:
        self._queries: dict[str, str] = {}
        """Of those whose result has not come, by the id of the use."""

    def begin(self, id: str, given: str) -> None:
        """Take a use of the tool.

        Args:
            given: its input, JSON text.
        """
        try:
            query = _read_input(given.encode()).query
        except (msgspec.DecodeError, UnicodeEncodeError):
            query = ""
        self._queries[id] = query

    def end(self, id: str, content: bytes) -> WebSearch:
        """Take a use's result: a list of what was found, or an error."""
        names = (USE, RESULT) if id in self._queries else (RESULT,)
        query = self._queries.pop(id, "")
        try:
            found = _read_found(content)
        except msgspec.DecodeError:
            return WebSearch((query,) if query else (), failed=True, names=names)
        sources = tuple((one.url, one.title or "") for one in found if one.url)
        return WebSearch((query,) if query else (), sources, names=names)

    def rest(self) -> Iterator[WebSearch]:
        """Yield the searches whose result has not come, and is not waited for any more."""
        for query in self._queries.values():
            yield WebSearch((query,) if query else (), names=(USE,))
        self._queries.clear()


def search_blocks(search: WebSearch, id: str) -> list[tuple[bytes, bytes]]:
    """Return the blocks that tell a search, each as its start says it, and the JSON text of its input, or nothing.

    Args:
        id: of the answer; each use gets one of its own from it.
    """
    blocks: list[tuple[bytes, bytes]] = []
    last = len(search.queries) - 1
    for place, query in enumerate(search.queries):
        use_id = quote(f"{OWN_ID}{id}_{place}")
        use = b'{"type":"server_tool_use","id":%b,"name":"web_search","input":{}}' % use_id
        blocks.append((use, b'{"query":%b}' % quote(query)))
        found = _found(search) if place == last else b"[]"
        blocks.append(
            (b'{"type":"web_search_tool_result","tool_use_id":%b,"content":%b}' % (use_id, found), b"")
        )
    return blocks


def _found(search: WebSearch) -> bytes:
    if search.failed:
        return b'{"type":"web_search_tool_result_error","error_code":"unavailable"}'
    return b"[%b]" % b",".join(
        b'{"type":"web_search_result","url":%b,"title":%b,"encrypted_content":"","page_age":null}'
        % (quote(url), quote(title))
        for url, title in search.sources
    )
