"""Gemini on the same format: events pass byte for byte, but for edits at token offsets.

What is always put right: the model and the id, the same on every event; the finish, which is told once and last; usage
and the end. With `repair` also what SDKs forget a turn for: events without a part, contents without a role. The events
that finish the answer are held for settlement and leave, with the cost in their usage, only in the farewell. A client
without `alt=sse` gets the same objects in an array. Source: wire formats page `gemini.md`; contract G1, C3, C7.
"""

from typing import Any

import msgspec

from sluicegate.errors import DecodeError, SluicegateError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, gemini_errors, gemini_usual, json_edit
from sluicegate.wire.gemini_answer_encoder import ArrayFrames
from sluicegate.wire.gemini_chunk import FORMAT, ChunkReader, decode_chunk, split_objects
from sluicegate.wire.gemini_finish import read_finish_reason, says_finished
from sluicegate.wire.gemini_passed_answer import is_mixed, part_texts, parted, parts_of, searches_of
from sluicegate.wire.gemini_shapes import Candidate, Chunk
from sluicegate.wire.gemini_usage import read_usage, settled_usage, usage_of
from sluicegate.wire.gemini_usual import UsualChunk
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.translation import Asked, PassOptions

_RELEARN = 8
_QUIET = frozenset({"text", "thought", "videoMetadata", "partMetadata"})
"""Members of a part that are no content by their presence; any other one is."""
_ENVELOPE = frozenset({"usageMetadata", "modelVersion", "responseId", "createTime"})
_EMPTY_CONTENT = b'{"parts":[{"text":""}],"role":"model"}'
_BLOCKED_AND_FINISHED = frozenset(
    {"SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR"}
)
"""Reasons for which both a prompt is blocked and an answer is finished."""
_BROKEN = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _Held:
    """An event that finishes some candidates, kept back."""

    __slots__ = ("finishes", "left", "payload")

    def __init__(self, payload: bytes, finishes: set[int], *, left: bool) -> None:
        self.payload = payload
        self.finishes = finishes
        self.left = left
        """There is no content in it that has not left."""


class _Choice:
    """What one candidate has come to."""

    __slots__ = ("called", "content", "reason")

    def __init__(self) -> None:
        self.called = False
        self.content = False
        self.reason: str | None = None


class GeminiStream:
    """One streamed answer between a provider and a client of the same format. See `StreamCodec`."""

    joins_usage = True

    def __init__(self, asked: Asked, options: PassOptions) -> None:
        self._asked = asked
        self._count_text = options.count_text
        self._repair = options.repair
        self._choices_asked = options.choices
        self._max_event_bytes = options.max_event_bytes
        self._reader = ChunkReader(options.max_event_bytes)
        self._frames = ArrayFrames(array=options.array or asked.array)

        self.out: list[bytes] = []
        self.content = False
        self.finishing = False
        self.ended = False
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id: str | None = None

        self._put_right = False
        self._wanted: dict[str, bytes] = {}
        """The members that are the same on every event."""
        self._usage_raw: bytes | None = None
        self._searches = 0
        """Of the web, which this format's usage does not tell."""
        self._choices: dict[int, _Choice] = {}
        self._blocked = False
        self._held: list[_Held] = []
        self._usual: UsualChunk | None = None
        """None also whenever an event may not pass without being looked at."""
        self._learned = 0

    @property
    def held(self) -> bool:
        """Whether the finish of the whole answer is held back."""
        enough = self._blocked or len(self._choices) >= self._choices_asked
        return enough and self._is_complete() and not self.ended

    @property
    def repaired(self) -> bool:
        """Whether anything beyond the contract's own edits had to be put right."""
        return self._put_right or self._reader.repaired

    # ---- bytes in -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body; what comes after an error is not looked at.

        Raises:
            DecodeError: an event breaks the format, or is too long.
        """
        usual = self._usual
        if usual is not None and self._reader.clean and self._pass_usual(usual, data):
            return
        if self._is_over():
            return
        for payload, chunk in self._reader.feed(data):
            self._take(payload, chunk, data)
            if self.error is not None:
                return

    def _is_over(self) -> bool:
        """Whether nothing that comes is looked at any more; asked anew after each event, as each may end it."""
        return self.ended or self.error is not None

    def finish(self) -> None:
        """Take the end of the body, which is the end of the answer.

        Raises:
            DecodeError: the answer was cut: a candidate has no finish reason.
        """
        if self._is_over():
            return
        try:
            for payload, chunk in self._reader.finish():
                self._take(payload, chunk, b"")
                if self.error is not None:
                    return
        except DecodeError:
            if not self._is_complete():
                raise
        if not self._is_complete():
            raise DecodeError(FORMAT, None, "the stream ended without a finish reason")
        self.ended = True

    def feed_whole(self, body: bytes) -> None:
        """Take an answer that came as one object, or as an array of them, instead of a stream.

        Raises:
            DecodeError: it is no answer.
        """
        for payload in split_objects(whole_characters(body.strip())):
            payload = payload.replace(b"\r", b" ").replace(b"\n", b" ")
            self._take(payload, decode_chunk(payload), b"")
            if self.error is not None:
                return
        self.finish()

    def _pass_usual(self, usual: UsualChunk, data: bytes) -> bool:
        """Pass a read of events that differ from the one before only in text and running usage, if it is one."""
        pieces = usual.read(data) if len(data) <= self._max_event_bytes else None
        if pieces is None:
            return False
        usage = self.usage
        try:
            for _, _, raw in pieces:
                if raw:
                    usage = usage_of(raw) or usage
        except _BROKEN:
            return False
        if self._searches and usage is not None:
            usage.web_searches = self._searches
        self._usage_raw = pieces[-1][2] or self._usage_raw
        self.usage = usage
        for piece in pieces:
            self._count_text(piece[0])
            self.out.append(usual.write(piece, self._frames.prefix, self._frames.suffix))
        return True

    # ---- one event ------------------------------------------------------------------------------------------------

    def _take(self, payload: bytes, chunk: Chunk, wire: bytes) -> None:
        self.error = chunk.failure()
        if self.error is not None:
            self._usual = None
            return
        if not self._wanted:
            self._pin(chunk)
        searches = searches_of(chunk)
        if searches > self._searches:
            self._searches = searches
            if self.usage is not None:
                self.usage = msgspec.structs.replace(self.usage, web_searches=searches)
        self._take_usage(chunk)
        if not chunk.candidates:
            self._take_without_candidates(payload, chunk)
            return
        content: set[int] = set()
        finished: set[int] = set()
        for place, candidate in enumerate(chunk.candidates):
            index = self._index_of(candidate, place)
            if self._brings_content(payload, place, candidate):
                content.add(index)
            if says_finished(candidate.finishReason):
                finished.add(index)
        self._resume(content | finished)
        for place, candidate in enumerate(chunk.candidates):
            self._note(self._index_of(candidate, place), candidate)
        edited = self._edit(payload, chunk)
        self.content |= bool(content)
        if finished:
            self._usual = None
            self._held.append(_Held(edited, finished, left=not content))
            return
        if content:  # else a held finish stays held: it is to be the last that its candidate says
            self._let_go()
        self.out.append(self._frames.frame(edited))
        self._learn(payload, edited, chunk, wire)

    def _learn(self, payload: bytes, edited: bytes, chunk: Chunk, wire: bytes) -> None:
        """Remember an event that is one piece of text, so that the next of its kind needs no decoding."""
        part = chunk.only_text()
        if part is None or len(self._choices) != 1 or self._held:
            self._usual = None
            return
        if self._usual is not None and self._usual.read_payload(payload) is not None:
            return
        self._usual = None
        if wire and self._learned < _RELEARN:
            self._learned += 1
            end = b"\r\n\r\n" if wire.endswith(b"\r\n\r\n") else b"\n\n"
            text = part.text or ""
            self._usual = gemini_usual.learn(payload, edited, text, end, thought=bool(part.thought))

    def _pin(self, chunk: Chunk) -> None:
        """Fix what every event says of the answer, by the first one."""
        response_id = self._asked.id
        if isinstance(chunk.responseId, str) and chunk.responseId:
            self.upstream_id = chunk.responseId
            if not self._asked.hide_provider:
                response_id = chunk.responseId
        self._wanted = {
            "modelVersion": msgspec.json.encode(self._asked.model),
            "responseId": msgspec.json.encode(response_id),
        }

    def _take_usage(self, chunk: Chunk) -> None:
        raw = bytes(chunk.usageMetadata)
        if raw.startswith(b"{"):
            usage = read_usage(raw)
            if usage is not None:
                usage.web_searches = self._searches or None
                self.usage = usage
                self._usage_raw = raw

    def _index_of(self, candidate: Candidate, place: int) -> int:
        index = candidate.index
        if isinstance(index, float) and index.is_integer():
            index = int(index)
        return index if type(index) is int and index >= 0 else place

    def _brings_content(self, payload: bytes, place: int, candidate: Candidate) -> bool:
        for part in parts_of(candidate.content):
            if part.text or part.functionCall is not None or part.thoughtSignature:
                return True
        if candidate.content is None or not candidate.content.parts:
            return False
        try:
            raw: Any = msgspec.json.decode(payload)["candidates"][place]["content"]["parts"]
        except _BROKEN:
            return False  # numbers beyond a double, say: nothing a client could show
        return any(value for part in raw for key, value in part.items() if key not in _QUIET)

    def _note(self, index: int, candidate: Candidate) -> None:
        """Take down what a candidate brings."""
        choice = self._choices.setdefault(index, _Choice())
        for part in parts_of(candidate.content):
            choice.called |= part.functionCall is not None
            choice.content = True
            for text in part_texts(part):
                self._count_text(text)
        if candidate.finishReason is not None and says_finished(candidate.finishReason):
            choice.reason = candidate.finishReason
            ours = read_finish_reason(choice.reason, called=choice.called, content=choice.content)
            self.finish_reason = ours or choice.reason.lower()

    def _take_without_candidates(self, payload: bytes, chunk: Chunk) -> None:
        reason = chunk.block_reason()
        cut = {index for index, choice in self._choices.items() if choice.reason is None}
        if reason is not None and (cut or not self._choices):
            self._usual = None
            self._blocked |= not cut
            for index in cut:
                self._choices[index].reason = reason
            self.finish_reason = "content_filter"
            edited = self._edit(payload, chunk)
            if cut and self._repair:  # SDKs forget a turn that nothing finished
                edited = json_edit.changed(edited, {"candidates": _cut_candidates(cut, reason)})
            self._held.append(_Held(edited, cut, left=True))
            return
        members = {member.key for member in json_edit.inner_members(payload, payload.index(b"{"))}
        if (self._held or self._repair) and members <= _ENVELOPE:
            return  # its usage has been taken, and leaves with the finish
        self.out.append(self._frames.frame(self._edit(payload, chunk)))

    def _is_complete(self) -> bool:
        """Whether every candidate that has come has finished; a provider may send fewer than were asked for."""
        if self._blocked:
            return True
        return bool(self._choices) and all(choice.reason is not None for choice in self._choices.values())

    # ---- the finish -----------------------------------------------------------------------------------------------

    def _resume(self, indices: set[int]) -> None:
        """Take back the finishes of candidates that go on: they were none."""
        for held in list(self._held):
            untrue = held.finishes & indices
            if not untrue:
                continue
            self._put_right = True
            held.finishes -= untrue
            for index in untrue:
                self._choices[index].reason = None
            self.finish_reason = None
            held.payload = self._without_finish(held.payload, untrue)
            if not held.finishes:
                self._held.remove(held)
                self.out.append(self._frames.frame(held.payload))

    def _let_go(self) -> None:
        """Put out the finishes of some candidates, since others go on behind them."""
        self.out += [self._frames.frame(held.payload) for held in self._held]
        self._held.clear()

    def flush(self) -> None:
        """Put out the content of a finish event that has to wait for the next read."""
        if self.ended:
            return
        for held in self._held:
            if not held.left:
                held.left = True
                content, held.payload = self._split(held.payload)
                self.out.append(self._frames.frame(content))

    def release(self) -> None:
        """Put out nothing: the finish waits for usage."""

    def _candidates(self, payload: bytes) -> list[tuple[int, int]]:
        members = json_edit.inner_members(payload, payload.index(b"{"))
        at = next(member.start for member in reversed(members) if member.key == "candidates")
        return [(start, place) for place, (start, _) in enumerate(json_edit.elements(payload, at))]

    def _without_finish(self, payload: bytes, indices: set[int]) -> bytes:
        edits: list[Edit] = []
        candidates = decode_chunk(payload).candidates or []
        for start, place in self._candidates(payload) if candidates else ():
            if self._index_of(candidates[place], place) in indices:
                members = json_edit.inner_members(payload, start)
                lacks = self._repair and not parts_of(candidates[place].content)
                wanted = {"content": _EMPTY_CONTENT} if lacks else {}
                edits += json_edit.edits(payload, members, wanted, ("finishReason",), start=start)
        return json_edit.splice(payload, edits)

    def _split(self, payload: bytes) -> tuple[bytes, bytes]:
        """Return the content of an event as one of its own, and all else of it with an empty part."""
        contents: list[bytes] = []
        edits: list[Edit] = []
        candidates = decode_chunk(payload).candidates or []
        for start, place in self._candidates(payload):
            members = json_edit.inner_members(payload, start)
            content = next((member for member in reversed(members) if member.key == "content"), None)
            if content is not None and parts_of(candidates[place].content):
                index = self._index_of(candidates[place], place)
                contents.append(b'{"content":%b,"index":%d}' % (payload[content.start : content.end], index))
                edits.append((content.start, content.end, _EMPTY_CONTENT))
        same = b"".join(b',"%b":%b' % (key.encode(), value) for key, value in self._wanted.items())
        event = b'{"candidates":[%b]%b}' % (b",".join(contents), same)
        return event, json_edit.splice(payload, edits)

    # ---- edits ----------------------------------------------------------------------------------------------------

    def _edit(self, payload: bytes, chunk: Chunk) -> bytes:
        """Put right what every event must say, at its offsets; the rest of the bytes stay as they are."""
        members = json_edit.inner_members(payload, payload.index(b"{"))
        wanted = self._wanted
        if self._repair and not chunk.candidates and not self._blocked:
            wanted = {**wanted, "candidates": b'[{"content":%b,"index":0}]' % _EMPTY_CONTENT}
            self._put_right = True
        edits = json_edit.edits(payload, members, wanted, ("error",))
        if self._repair and any(_needs_repair(candidate) for candidate in chunk.candidates or ()):
            self._put_right = True
            for start, place in self._candidates(payload):
                edits += _repairs(payload, start, (chunk.candidates or [])[place])
        return json_edit.splice(payload, edits)

    # ---- the end --------------------------------------------------------------------------------------------------

    def farewell(self, bill: Bill | None) -> bytes:
        """Return all that completes the answer: what is held, usage as the client gets it, the end of an array."""
        pieces: list[bytes] = []
        last = len(self._held) - 1
        for place, held in enumerate(self._held):
            payload = held.payload
            if place < last:
                payload = json_edit.changed(payload, {}, ("usageMetadata",))
            elif bill is not None:
                usage = settled_usage(self._usage_raw, bill.usage, bill.in_usage)
                payload = with_members(
                    json_edit.changed(payload, {"usageMetadata": usage}), bill.beside_usage
                )
            pieces.append(self._frames.frame(payload))
        return b"".join(pieces) + self._frames.end

    def failure(self, error: SluicegateError) -> bytes:
        """Return the error object; an array is left open behind it."""
        return self._frames.frame(gemini_errors.error_object(error))


def _cut_candidates(indices: set[int], reason: str) -> bytes:
    """Return candidates that have come to nothing more, since the prompt was blocked behind their words."""
    word = reason if reason in _BLOCKED_AND_FINISHED else "SAFETY"
    return b"[%b]" % b",".join(
        b'{"content":%b,"finishReason":"%b","index":%d}' % (_EMPTY_CONTENT, word.encode(), index)
        for index in sorted(indices)
    )


def _needs_repair(candidate: Candidate) -> bool:
    """Whether SDKs would forget the turn for this candidate; a refusal without content they understand."""
    content = candidate.content
    if content is None or not content.parts:
        return candidate.finishReason in (None, "", "STOP", "MAX_TOKENS") or content is not None
    return bool(content.role != "model") or any(map(is_mixed, content.parts))


def _repairs(payload: bytes, start: int, candidate: Candidate) -> list[Edit]:
    if not _needs_repair(candidate):
        return []
    content = candidate.content
    if content is None or not content.parts:
        return json_edit.settings(payload, start, {"content": _EMPTY_CONTENT})
    members = json_edit.inner_members(payload, start)
    at = next(member.start for member in reversed(members) if member.key == "content")
    made = json_edit.settings(payload, at, {"role": b'"model"'})
    return made + parted(payload, start, content.parts)
