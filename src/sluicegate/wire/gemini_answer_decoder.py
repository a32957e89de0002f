"""Answers of a Gemini provider, streamed or not, decoded into the events of the common vocabulary.

Calls come whole and have a counter of their own, whatever event or place they stand in; one without an id gets one that
is the same each time. The stream has no marker: the end of its body ends it, and every candidate must have finished by
then, or the prompt have been refused. Signatures are told before the call they hang on, and name it. Source: wire
formats page `gemini.md`; translation matrix, sections 9, 12, 22, 23, 25 and 29.
"""

import re
from binascii import crc32
from collections.abc import Callable
from typing import Any

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import (
    End,
    Finish,
    Logprobs,
    Opaque,
    OpaqueState,
    Pause,
    ReasoningDelta,
    Start,
    StreamError,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Untold,
    Usage,
    UsageReport,
    WebSearch,
)
from sluicegate.wire import gemini_usual
from sluicegate.wire.gemini_chunk import FORMAT, ChunkReader, decode_chunk, split_objects
from sluicegate.wire.gemini_finish import read_finish_reason, says_finished
from sluicegate.wire.gemini_grounding import TextSoFar, read_citations, read_search
from sluicegate.wire.gemini_shapes import Blob, Candidate, Chunk, Code, FunctionCall, Part
from sluicegate.wire.gemini_signature import read_signature
from sluicegate.wire.gemini_usage import read_usage, usage_of
from sluicegate.wire.gemini_usual import UsualChunk
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.inline_media import standard_base64
from sluicegate.wire.json_text import compact
from sluicegate.wire.sse import MAX_EVENT_BYTES
from sluicegate.wire.translation import checked_choice

_RELEARN = 8
"""How often the usual event may change its shape before we stop looking for it."""
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_MAX_ID_CHARS = 40
_BROKEN = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _Choice:
    """What one candidate has come to."""

    __slots__ = ("cited", "content", "finish", "ids", "index", "kind", "queries", "search", "text", "token")

    def __init__(self, index: int) -> None:
        self.index = index
        self.ids: list[str] = []
        """Of its calls."""
        self.text = TextSoFar()
        self.kind = ""
        """Of the last part: increments of one kind are one part."""
        self.content = False
        self.finish: Finish | None = None
        self.token = ""
        """What the provider wants to be given should it be asked to go on; the last one counts."""
        self.search: WebSearch | None = None
        """That has not been told yet."""
        self.queries: tuple[str, ...] = ()
        """Of the searches that are known."""
        self.cited: set[tuple[str, int, int]] = set()


class GeminiAnswerDecoder:
    """Reads one provider's answer. See `StreamDecoder`."""

    def __init__(
        self,
        can: Capabilities,
        count_text: Callable[[str], None],
        max_event_bytes: int = MAX_EVENT_BYTES,
        *,
        whole: bool = False,
    ) -> None:
        """Start an answer.

        Args:
            count_text: given every piece of text, thought, name and arguments.
            whole: it is not streamed, so each part stands for itself.
        """
        self.upstream_id: str | None = None
        self.repaired = False
        """Something had to be put right."""
        self._can = can
        self._count_text = count_text
        self._whole = whole
        self._max_event_bytes = max_event_bytes
        self._reader = ChunkReader(max_event_bytes)
        self._model: str | None = None
        self._started = False
        self._choices: dict[int, _Choice] = {}
        self._blocked = False
        self._calls = 0
        self._searches = 0
        self._usage: Usage | None = None
        """The last totals."""
        self._id_base = ""
        self._ended = False
        self._broken: DecodeError | None = None
        """Found behind events that were good; told once they have been taken."""
        self._events: list[StreamEvent] = []
        self._left: list[StreamEvent] = []
        self._usual: UsualChunk | None = None
        self._usual_choice: _Choice | None = None
        self._learned = 0

    # ---- bytes in -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes.

        Raises:
            DecodeError: they broke the format, now or behind the events that the last call returned.
        """
        if self._broken is not None:
            raise self._broken
        usual = self._usual
        if usual is not None and self._reader.clean and len(data) <= self._max_event_bytes:
            read = self._take_usual(usual, data)
            if read is not None:
                return read
        events: list[StreamEvent] = []
        self._events = events
        try:
            for payload, chunk in self._reader.feed(data):
                if self._ended:
                    break
                self._take(payload, chunk, data)
        except DecodeError as error:
            if not events:
                raise
            self._broken = error
        self.repaired |= self._reader.repaired
        return events

    def finish(self) -> list[StreamEvent]:
        """Take the end of the body.

        Raises:
            DecodeError: a candidate has no finish reason.
        """
        if self._ended:
            return []
        if self._broken is not None:
            raise self._broken
        events: list[StreamEvent] = []
        self._events = self._left = events
        try:
            for payload, chunk in self._reader.finish():
                if not self._ended:
                    self._take(payload, chunk, b"")
        except DecodeError:
            if not self._is_complete():
                raise
        if not self._ended:
            if not self._is_complete():
                raise DecodeError(FORMAT, None, "the stream ended without a finish reason")
            events.append(End())
            self._ended = True
        return events

    def left(self) -> list[StreamEvent]:
        """Return what the end of a body that was cut still brought, once: `finish` has raised behind it."""
        left, self._left = self._left, []
        return left

    def take_whole(self, body: bytes) -> list[StreamEvent]:
        """Take a body that is not a stream: one object, or an array of them. See `AnswerDecoder`.

        Raises:
            DecodeError: it is no answer.
        """
        events: list[StreamEvent] = []
        for payload in split_objects(whole_characters(body.strip())):
            self._events = []
            self._take(payload, decode_chunk(payload), b"")
            if self._ended:
                return self._events[-1:]
            events += self._events
        return events + self.finish()

    def _is_complete(self) -> bool:
        return self._blocked or (
            bool(self._choices) and all(choice.finish is not None for choice in self._choices.values())
        )

    def _take_usual(self, usual: UsualChunk, data: bytes) -> list[StreamEvent] | None:
        """Take a read that holds only events which differ from the last in text and usage; None for any other."""
        pieces = usual.read(data)
        if pieces is None:
            return None
        usage: Usage | None = None
        try:
            for _, _, raw in pieces:
                if raw:
                    usage = usage_of(raw, excludes_cache=self._can.prompt_excludes_cache)
        except _BROKEN:
            return None
        choice = self._usual_choice
        assert choice is not None, "it is set with the usual event"
        text = pieces[0][0] if len(pieces) == 1 else "".join([piece[0] for piece in pieces])
        self._count_text(text)
        if usual.thought:
            events: list[StreamEvent] = [ReasoningDelta(text, choice.index)]
        else:
            choice.text.add(text)
            events = [TextDelta(text, choice.index)]
        if usage is not None:
            if self._searches:
                usage.web_searches = self._searches
            self._usage = usage
            events.append(UsageReport(usage))
        return events

    # ---- one response object --------------------------------------------------------------------------------------

    def _take(self, payload: bytes, chunk: Chunk, wire: bytes) -> None:
        error = chunk.failure()
        if error is not None:
            self._fail(error)
            return
        self._identify(payload, chunk)
        raw = bytes(chunk.usageMetadata)
        usage = (
            read_usage(raw, excludes_cache=self._can.prompt_excludes_cache) if raw.startswith(b"{") else None
        )
        searches = self._searches
        for place, candidate in enumerate(chunk.candidates or ()):
            self._take_candidate(self._choice_of(candidate, place), candidate)
            if self._ended:
                return
        if usage is None and self._searches > searches and self._usage is not None:
            usage = msgspec.structs.replace(self._usage)
        if usage is not None:
            self._events.append(self._report(usage))
        reason = chunk.block_reason()
        if reason is not None:
            self._block(reason)
        self._learn(payload, chunk, wire)

    def _block(self, reason: str) -> None:
        """Take the prompt's refusal, also one behind words: it ends every candidate that has not finished."""
        if not self._choices:
            self._blocked = True
            self._events.append(Finish("content_filter", raw_reason=reason))
        for choice in self._choices.values():
            if choice.finish is None:
                choice.finish = Finish("content_filter", choice.index, raw_reason=reason)
                self._events.append(choice.finish)

    def _report(self, usage: Usage) -> UsageReport:
        """Tell totals; searches are no part of what this format reports."""
        if self._searches:
            usage.web_searches = self._searches
        self._usage = usage
        return UsageReport(usage)

    def _identify(self, payload: bytes, chunk: Chunk) -> None:
        if isinstance(chunk.modelVersion, str) and chunk.modelVersion:
            self._model = chunk.modelVersion
        if self._started:
            return
        self._started = True
        if isinstance(chunk.responseId, str) and chunk.responseId:
            self.upstream_id = chunk.responseId
            self._id_base = _NOT_IN_IDS.sub("", chunk.responseId)[:_MAX_ID_CHARS]
        self._id_base = self._id_base or f"{crc32(payload):08x}"
        self._events.append(Start(id=self.upstream_id))

    def _fail(self, error: StreamError) -> None:
        self._events.append(error)
        self._ended = True
        self._usual = None

    def _choice_of(self, candidate: Candidate, place: int) -> _Choice:
        index = candidate.index
        if isinstance(index, float) and index.is_integer():
            index = int(index)
        if type(index) is not int or index < 0:
            index = place
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(checked_choice(index, "gemini"))
        return choice

    def _learn(self, payload: bytes, chunk: Chunk, wire: bytes) -> None:
        """Remember an event that is one piece of text, so that the next of its kind needs no decoding."""
        part = chunk.only_text()
        if part is None or self._ended or len(self._choices) != 1:
            self._usual = None
            return
        choice = next(iter(self._choices.values()))
        if self._usual is not None and self._usual.read_payload(payload) is not None:
            return
        self._usual = None
        if wire and self._learned < _RELEARN:
            self._learned += 1
            end = b"\r\n\r\n" if wire.endswith(b"\r\n\r\n") else b"\n\n"
            self._usual = gemini_usual.learn(
                payload, payload, part.text or "", end, thought=bool(part.thought)
            )
            self._usual_choice = choice

    # ---- one candidate --------------------------------------------------------------------------------------------

    def _take_candidate(self, choice: _Choice, candidate: Candidate) -> None:
        parts = candidate.content.parts if candidate.content is not None else None
        for part in parts or ():
            self._take_part(choice, part)
        if isinstance(candidate.continuationToken, str) and candidate.continuationToken:
            choice.token = candidate.continuationToken
        before = len(self._events)
        for entry in _logprobs(candidate.logprobsResult):
            self._events.append(Logprobs(entry, choice.index))
        self._cite(choice, candidate)
        reason = candidate.finishReason
        if choice.search is not None and (choice.finish is not None or says_finished(reason)):
            # Behind the text, since some formats close what is open for it.
            self._events.append(choice.search)
            choice.search = None
        if reason is None or not says_finished(reason):
            if choice.finish is not None and len(self._events) > before:
                # Sources of an answer that has ended do not begin it again.
                self._events.append(choice.finish)
            return
        ours = read_finish_reason(reason, called=bool(choice.ids), content=choice.content)
        if ours is None:
            said = candidate.finishMessage
            message = said if isinstance(said, str) and said else f"the model's answer failed ({reason})"
            self._fail(StreamError(status=502, message=message, code=reason))
            return
        choice.finish = Finish(ours, choice.index, raw_reason=reason)
        if reason == "CONTINUATION" and choice.token:
            choice.finish.pause = Pause(choice.token, choice.text.chars, tuple(choice.ids))
        elif reason == "CONTINUATION":
            self._events.append(Untold(reason))
        self._events.append(choice.finish)

    def _begin_part(self, choice: _Choice, kind: str) -> None:
        choice.content = True
        choice.finish = None  # content follows: it was no finish
        if self._whole or kind != choice.kind or kind == "other":
            choice.kind = kind
            choice.text.begin_part()

    def _take_part(self, choice: _Choice, part: Part) -> None:
        signature = None
        if part.thoughtSignature:
            signature = read_signature(part.thoughtSignature, self._model)
        if part.text or (part.text is not None and self._whole):
            self._take_text(choice, part.text, thought=bool(part.thought))
        if part.functionCall is not None:
            self._take_call(choice, part.functionCall, signature)
            signature = None
        if part.inlineData is not None:
            self._say(choice, _picture(part.inlineData))
        for code in (part.executableCode, part.codeExecutionResult):
            if code is not None:
                self._say(choice, _fenced(code))
        for name, value in (("toolCall", part.toolCall), ("toolResponse", part.toolResponse)):
            if bytes(value) != b"null":
                self._events.append(Untold(name))
        if signature is not None:
            choice.content = True
            choice.finish = None
            self._events.append(OpaqueState(signature, choice.index))

    def _take_text(self, choice: _Choice, text: str, *, thought: bool) -> None:
        self._begin_part(choice, "thought" if thought else "text")
        if not text:
            return
        self._count_text(text)
        if thought:
            self._events.append(ReasoningDelta(text, choice.index))
        else:
            choice.text.add(text)
            self._events.append(TextDelta(text, choice.index))

    def _say(self, choice: _Choice, text: str) -> None:
        """Put into text what the vocabulary has no word for; the model did not write these characters."""
        self._begin_part(choice, "other")
        choice.text.add(text)
        self._events.append(TextDelta(text, choice.index))

    def _take_call(self, choice: _Choice, call: FunctionCall, signature: Opaque | None) -> None:
        if not call.name:
            raise DecodeError(FORMAT, None, "a function call has no name")
        if bytes(call.partialArgs) not in (b"null", b"[]"):
            raise DecodeError(FORMAT, None, "a function call comes in pieces")
        self._begin_part(choice, "other")
        index = len(choice.ids)
        call_id = call.id or f"call_{self._id_base}_{self._calls}"
        choice.ids.append(call_id)
        self._calls += 1
        arguments = "{}" if bytes(call.args) == b"null" else compact(bytes(call.args))
        self._count_text(call.name)
        self._count_text(arguments)
        if signature is not None:
            if signature.vendor == "google":
                signature = msgspec.structs.replace(signature, id=call_id)
            self._events.append(OpaqueState(signature, choice.index, index))
        self._events.append(ToolCallStart(index, call_id, call.name, choice=choice.index))
        self._events.append(ToolCallDelta(index, arguments, choice.index))
        self._events.append(ToolCallEnd(index, choice.index))

    def _cite(self, choice: _Choice, candidate: Candidate) -> None:
        grounding, recitation = bytes(candidate.groundingMetadata), bytes(candidate.citationMetadata)
        if grounding == recitation == b"null":
            return
        for citation in read_citations(grounding, recitation, choice.text, choice.index):
            place = (citation.url, citation.start_index, citation.end_index)
            if place not in choice.cited:  # each event may repeat them
                choice.cited.add(place)
                self._events.append(citation)
        search = read_search(grounding, choice.index)
        if search is None:
            return
        search.queries = tuple(query for query in search.queries if query not in choice.queries)
        if search.queries:  # each event may repeat them too
            choice.search = search
            choice.queries += search.queries
            self._searches += len(search.queries)


def decode_answer(body: bytes, can: Capabilities) -> list[StreamEvent]:
    """Decode an answer that is not streamed. See `AnswerDecoder`."""
    return GeminiAnswerDecoder(can, _ignore, whole=True).take_whole(body)


def _ignore(text: str) -> None:
    """Count nothing: who decodes a whole answer has its texts."""


def _picture(blob: Blob) -> str:
    """Write media in an answer as Markdown, which is all that other formats' text can carry."""
    kind = blob.mimeType or ""
    data = standard_base64(blob.data or "")
    if kind.startswith("image/") and data:
        return f"![image](data:{kind};base64,{data})"
    return f"[{kind or 'media'}: not shown in this format]"


def _fenced(code: Code) -> str:
    if code.code is not None:
        return f"\n```{(code.language or '').lower()}\n{code.code}\n```\n"
    return f"\n```\n{code.output}\n```\n" if code.output else ""


def _logprobs(raw: msgspec.Raw) -> list[list[dict[str, Any]]]:
    """Read a `logprobsResult` as chat spells it, at most one list of entries; bytes are those of the token's text."""
    if bytes(raw) == b"null":
        return []
    try:
        value = msgspec.json.decode(raw)
    except _BROKEN:
        return []
    if not isinstance(value, dict):
        return []
    chosen = [_entry(token) for token in _list(value.get("chosenCandidates"))]
    tops = _list(value.get("topCandidates"))
    for place, entry in enumerate(chosen):
        top = tops[place] if place < len(tops) else None
        candidates = _list(top.get("candidates")) if isinstance(top, dict) else []
        entry["top_logprobs"] = [_entry(token) for token in candidates]
    return [chosen] if chosen else []


def _entry(token: Any) -> dict[str, Any]:
    token = token if isinstance(token, dict) else {}
    text, logprob = token.get("token"), token.get("logProbability")
    text = text if isinstance(text, str) else ""
    return {
        "token": text,
        "logprob": logprob if isinstance(logprob, int | float) else 0.0,
        "bytes": list(text.encode()),
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
