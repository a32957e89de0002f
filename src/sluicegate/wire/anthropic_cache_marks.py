"""Marks of the prompt cache in a Messages request, for servers that know the mark but not how long it should hold.

A mark stands at the top level, on tools, on blocks of the system prompt and of messages, and on blocks inside tool
results. Arguments of calls and schemas may use the same word for their own ends, and are never touched. Source: wire
formats page `anthropic-messages.md`, "Request".
"""

from collections.abc import Iterator

from sluicegate.wire.json_edit import Edit, edits, elements, inner_members, may_spell_ascii, members, splice


def without_lifetimes(body: bytes) -> bytes:
    """Return a request whose marks say no `ttl`; all else stays byte for byte.

    Args:
        body: a valid request.
    """
    if b"ttl" not in body and not may_spell_ascii(body):
        return body
    members(body, "messages")  # raises DecodeError where the offsets below would mean nothing
    return splice(body, list(_of_object(body, body.index(b"{"), ("messages", "system", "tools"))))


def _of_object(body: bytes, start: int, lists: tuple[str, ...]) -> Iterator[Edit]:
    """Give the edits of one object that may be marked, and of those in its lists."""
    for member in inner_members(body, start):
        opening = body[member.start : member.start + 1]
        if member.key == "cache_control" and opening == b"{":
            mark = inner_members(body, member.start)
            yield from edits(body, mark, {}, ("ttl",), start=member.start)
        elif member.key in lists and opening == b"[":
            for at, _ in elements(body, member.start):
                if body[at : at + 1] == b"{":
                    yield from _of_object(body, at, () if member.key in ("tools", "system") else ("content",))
