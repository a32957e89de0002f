"""Web searches as Responses tells them: an item each, with what it looked for.

Opening a page and looking through it are actions of the same kind of item, which no other format knows. Source: wire
formats page `responses.md`; translation matrix, section 24.
"""

import msgspec

from sluicegate.messages import WebSearch
from sluicegate.wire.json_text import quote
from sluicegate.wire.openai_responses_shapes import Item

KIND = "web_search_call"
SEARCH_SOURCES = b'"web_search_call.action.sources"'
"""In a request's `include`: what was found is wanted."""


class _Source(msgspec.Struct, gc=False):
    url: str = ""


class _Action(msgspec.Struct, gc=False):
    type: str = ""
    query: str | None = None
    queries: list[str] | None = None
    sources: list[_Source] | None = None


_read_action = msgspec.json.Decoder(_Action | None).decode


def read_search(item: Item) -> WebSearch | None:
    """Return the search that an item tells; None where it is no search."""
    try:
        action = _read_action(item.action) or _Action(type="search")
    except (msgspec.DecodeError, RecursionError):
        return None
    if action.type != "search":
        return None
    queries = action.queries or ([action.query] if action.query else [])
    sources = tuple((source.url, "") for source in action.sources or () if source.url)
    return WebSearch(tuple(queries), sources, failed=item.status == "failed", names=(KIND,))


def write_search(search: WebSearch, id: bytes, status: bytes, *, sources: bool) -> bytes:
    """Return the item that tells a search.

    Args:
        id: JSON text of the item's id.
        sources: the client wants to be told what was found.
    """
    queries = b",".join(quote(query) for query in search.queries)
    action = b'{"type":"search","query":%b,"queries":[%b]' % (quote(" ".join(search.queries[:1])), queries)
    if sources:
        found = b",".join(b'{"type":"url","url":%b}' % quote(url) for url, _ in search.sources)
        action += b',"sources":[%b]' % found
    return b'{"id":%b,"type":"web_search_call","status":"%b","action":%b}}' % (id, status, action)
