"""Gemini answers that are not streamed, on the same format: the body passes but for edits at token offsets.

Put right as in a stream: the model, the id where it is missing or hidden, usage and cost. Source: wire formats page
`gemini.md`; contract C3, C7, C9.
"""

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.gemini_chunk import FORMAT, decode_chunk, split_objects
from sluicegate.wire.gemini_finish import read_finish_reason
from sluicegate.wire.gemini_grounding import count_searches
from sluicegate.wire.gemini_shapes import Chunk, Content, Part
from sluicegate.wire.gemini_usage import read_usage, settled_usage
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.json_text import compact
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.translation import Asked


def part_texts(part: Part) -> list[str]:
    """Return every text of a part that the model produced."""
    texts = [part.text or ""]
    if part.functionCall is not None:
        arguments = bytes(part.functionCall.args)
        texts += [part.functionCall.name or "", "" if arguments == b"null" else compact(arguments)]
    if part.executableCode is not None:
        texts.append(part.executableCode.code or "")
    return [text for text in texts if text]


def searches_of(chunk: Chunk) -> int:
    """Return how often the web was searched for an answer, as far as this object tells."""
    return sum(count_searches(bytes(candidate.groundingMetadata)) for candidate in chunk.candidates or ())


def is_mixed(part: Part) -> bool:
    """Whether a part is text and a call at once, of which readers see only one."""
    return part.functionCall is not None and bool(part.text)


def parted(payload: bytes, start: int, parts: list[Part]) -> list[Edit]:
    """Return the edits that give such text a part of its own, before the call.

    Args:
        start: offset of the candidate whose content holds the parts.
    """
    found: list[Edit] = []
    at = start
    for key in ("content", "parts"):
        at = next(
            member.start for member in reversed(json_edit.inner_members(payload, at)) if member.key == key
        )
    for part, (place, _) in zip(parts, json_edit.elements(payload, at), strict=True):
        if is_mixed(part):
            members = json_edit.inner_members(payload, place)
            text = next(payload[m.start : m.end] for m in reversed(members) if m.key == "text")
            thought = b',"thought":true' if part.thought else b""
            found.append((place, place, b'{"text":%b%b},' % (text, thought)))
            found += json_edit.edits(payload, members, {}, ("text", "thought"), start=place)
    return found


def parts_of(content: Content | None) -> list[Part]:
    """Return the parts of a candidate's content, if there are any."""
    return (content.parts or []) if content is not None else []


class GeminiAnswer:
    """One answer that was not streamed. See `PassedAnswer`."""

    def __init__(self, asked: Asked, body: bytes) -> None:
        """Read the provider's body; an error in a list is taken out of it.

        Raises:
            DecodeError: no answer.
        """
        self._asked = asked
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id: str | None = None
        self.repaired = False
        body = whole_characters(body.removeprefix(b"\xef\xbb\xbf").strip())
        if body.startswith(b"["):
            body = split_objects(body)[0]
            self.repaired = True
        self._body = body
        self._chunk = chunk = decode_chunk(body)
        self.error = chunk.failure()
        if self.error is not None:
            return
        if isinstance(chunk.responseId, str) and chunk.responseId:
            self.upstream_id = chunk.responseId
        self._usage_raw = bytes(chunk.usageMetadata)
        self.usage = read_usage(self._usage_raw) if self._usage_raw.startswith(b"{") else None
        if self.usage is not None:
            self.usage.web_searches = searches_of(chunk) or None
        self.finish_reason = _finish_reason(chunk)
        if any(is_mixed(part) for each in chunk.candidates or () for part in parts_of(each.content)):
            self._part_mixed(chunk)

    def _part_mixed(self, chunk: Chunk) -> None:
        self.repaired = True
        members = json_edit.members(self._body)
        at = next(member.start for member in reversed(members) if member.key == "candidates")
        found: list[Edit] = []
        places = json_edit.elements(self._body, at)
        for candidate, (start, _) in zip(chunk.candidates or (), places, strict=True):
            if parts := parts_of(candidate.content):
                found += parted(self._body, start, parts)
        self._body = json_edit.splice(self._body, found)

    def texts(self) -> list[str]:
        """Return every text the model produced, for counting."""
        return [
            text
            for candidate in self._chunk.candidates or ()
            for part in parts_of(candidate.content)
            for text in part_texts(part)
        ]

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it: its own model id, usage and cost."""
        reported = self._usage_raw if self.usage is not None else None
        wanted = {
            "usageMetadata": settled_usage(reported, bill.usage, bill.in_usage),
            "modelVersion": msgspec.json.encode(self._asked.model),
        }
        if self.upstream_id is None or self._asked.hide_provider:
            wanted["responseId"] = msgspec.json.encode(self._asked.id)
        return with_members(json_edit.changed(self._body, wanted, ("error",)), bill.beside_usage)


def _finish_reason(chunk: Chunk) -> str:
    """Return why an answer ended, in our word; a reason that nobody gave is `stop`.

    Raises:
        DecodeError: neither an answer nor a refusal of the prompt.
    """
    if not chunk.candidates:
        if chunk.block_reason() is None:
            raise DecodeError(FORMAT, None, "the answer has no candidates")
        return "content_filter"
    ours = "stop"
    for candidate in chunk.candidates:
        parts = parts_of(candidate.content)
        called = any(part.functionCall is not None for part in parts)
        reason = candidate.finishReason or "STOP"
        ours = read_finish_reason(reason, called=called, content=True) or reason.lower()
    return ours
