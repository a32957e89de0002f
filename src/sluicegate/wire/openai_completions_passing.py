"""Legacy Completions on the same format: events and answers pass byte for byte, but for edits at token offsets.

Put right are id, created, object and model, the finish reason, the end marker and usage; text that is no string and
choices without a number too, since readers fall over them. A finish is held until nothing can follow it; text that
comes with it leaves at once. Source: wire formats page `completions.md`; contract C10.
"""

from collections.abc import Sequence

from msgspec import UNSET

from sluicegate.errors import DecodeError, SluicegateError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit, openai_errors, usual_event
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.json_text import quote
from sluicegate.wire.openai_completions_chunk import (
    FORMAT,
    OBJECT,
    Choice,
    Chunk,
    decode_chunk,
    error_of,
    index_of,
    known_reason,
)
from sluicegate.wire.openai_events import DONE, PayloadReader
from sluicegate.wire.openai_usage import encode_usage, read_usage, with_members
from sluicegate.wire.sse import frame
from sluicegate.wire.translation import Asked, PassOptions
from sluicegate.wire.usual_event import UsualEvent

_RELEARN = 8


class _State:
    """What one choice has come to."""

    __slots__ = ("held", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why it has finished; None while it runs."""
        self.held: bytes | None = None
        """Its finish, which waits for what follows."""


class CompletionStream:
    """One streamed completion between a provider and a client that both speak it. See `StreamCodec`."""

    joins_usage = False

    def __init__(self, asked: Asked, options: PassOptions) -> None:
        """Start an answer."""
        self._asked = asked
        self._options = options
        self._payloads = PayloadReader(FORMAT, options.max_event_bytes)
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
        """The members that are the same on every chunk."""
        self._states: dict[int, _State] = {}
        self._usage_raw: bytes | None = None
        self._usage_event: bytes | None = None
        self._usual: UsualEvent | None = None
        self._learned = 0

    @property
    def held(self) -> bool:
        """Whether a finish is held back."""
        return not self.ended and any(state.held is not None for state in self._states.values())

    @property
    def repaired(self) -> bool:
        """Whether anything beyond the contract's own edits had to be put right."""
        return self._put_right or self._payloads.repaired

    # ---- bytes in -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body; nothing is looked at after the end or an error. Raises DecodeError."""
        usual = self._usual
        if usual is not None and self._payloads.clean and len(data) <= self._options.max_event_bytes:
            event = usual.rewrite(data, usual.wire_head, usual.wire_tail) or usual.rewrite_burst(data)
            if event is not None:
                self._options.count_text(usual.text)
                self.out.append(event)
                return
        if self._is_over():
            return
        for payload in self._payloads.feed(data):
            self._take(payload)
            if self._is_over():
                return

    def _is_over(self) -> bool:
        """Whether nothing that comes is looked at any more; asked anew after each event, as each may end it."""
        return self.ended or self.error is not None

    def finish(self) -> None:
        """Take the end of the body.

        Raises:
            DecodeError: the answer was cut: neither marker nor finish reason came.
        """
        if self._is_over():
            return
        try:
            for payload in self._payloads.finish():
                self._take(payload)
        except DecodeError:
            if not self._all_finished():
                raise DecodeError(FORMAT, None, "the stream ended inside an event") from None
        if self._is_over():
            return
        if not self._all_finished():
            raise DecodeError(FORMAT, None, "the stream ended without a finish reason or its end marker")
        self._end()

    def feed_whole(self, body: bytes) -> None:
        """Take an answer that came as one object instead of a stream. Raises DecodeError."""
        self._take(body.removeprefix(b"\xef\xbb\xbf").strip())
        if self.error is None and not self.ended:
            self._take_done()

    def _take(self, payload: bytes) -> None:
        if payload == DONE:
            self._take_done()
            return
        chunk = decode_chunk(payload)
        if 0x0A in payload:
            payload = payload.replace(b"\n", b" ")  # white space of JSON that came on several lines
        self.error = error_of(payload, chunk)
        if self.error is not None:
            self._usual = None
            return
        if chunk.usage is not UNSET:
            usage = read_usage(bytes(chunk.usage))
            if usage is not None:
                self.usage, self._usage_raw = usage, bytes(chunk.usage)
        if self.upstream_id is None and isinstance(chunk.id, str) and chunk.id:
            self.upstream_id = chunk.id
        if not self._wanted:
            self._pin(chunk)
        if chunk.choices:
            self._take_choices(payload, chunk, chunk.choices)
        else:
            self._take_without_choices(payload, chunk)

    def _take_without_choices(self, payload: bytes, chunk: Chunk) -> None:
        edited = self._edit(payload, chunk, ())
        if chunk.usage is not UNSET and bytes(chunk.usage) == self._usage_raw:
            self._usage_event = edited
            if self._all_finished():
                self._end()
        elif not self.held:
            self.out.append(frame(edited))

    def _take_choices(self, payload: bytes, chunk: Chunk, choices: Sequence[Choice]) -> None:
        numbers = [self._number(choice, place) for place, choice in enumerate(choices)]
        reasons = [known_reason(choice.finish_reason) for choice in choices]
        texts = [choice.text for choice in choices]
        content = False
        for number, text, reason in zip(numbers, texts, reasons, strict=True):
            state = self._states.setdefault(number, _State())
            if isinstance(text, str) and text:
                content = True
                self._options.count_text(text)
                if state.held is not None:  # content follows a finish, so it was none
                    state.held = state.reason = self.finish_reason = None
                    self._put_right = True
            if reason is not None:
                state.reason = self.finish_reason = reason
        self._put_right |= any(
            reason != choice.finish_reason for reason, choice in zip(reasons, choices, strict=True)
        )
        self.content |= content
        edited = self._edit(payload, chunk, numbers)
        if not any(reasons):
            self.out.append(frame(edited))
            if content and len(choices) == 1 and self._learned < _RELEARN and isinstance(texts[0], str):
                self._learned += 1
                self._usual = usual_event.learn(payload, edited, "text", texts[0], None)
            return
        if len(choices) > 1:  # nobody can cancel one finish of it alone
            for number, reason in zip(numbers, reasons, strict=True):
                if reason is not None and (held := self._states[number].held) is not None:
                    self._states[number].held = None
                    self.out.append(frame(held))
            self.out.append(frame(_changed_choices(edited, reasons, keep_text=True)))
            self.finishing = self._all_finished() and not self.held
            return
        if content:
            self.out.append(frame(_changed_choices(edited, [None], keep_text=True)))
        self._states[numbers[0]].held = _changed_choices(edited, reasons, keep_text=not content)

    def _number(self, choice: Choice, place: int) -> int:
        """Return the number of a choice; choices of a client that asked for one are all that one."""
        number = 0 if self._options.choices == 1 else index_of(choice, place)
        if number >= self._options.choices:
            raise DecodeError(FORMAT, None, "a choice has an index beyond those asked for")
        return number

    def _take_done(self) -> None:
        running = [state for state in self._states.values() if state.reason is None]
        if not self.content and len(running) == len(self._states):
            raise DecodeError(FORMAT, None, "the stream ended without any output")
        for number, state in self._states.items():
            if state.reason is None:
                self._put_right = True
                state.reason = self.finish_reason = "stop"
                state.held = self._mint(number, "stop")
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._usual = None

    def _all_finished(self) -> bool:
        return sum(state.reason is not None for state in self._states.values()) >= self._options.choices

    # ---- edits ----------------------------------------------------------------------------------------------------

    def _pin(self, chunk: Chunk) -> None:
        """Fix what every chunk says of the answer, by the first one."""
        asked = self._asked
        shown = isinstance(chunk.id, str) and chunk.id and not asked.hide_provider
        created = chunk.created if type(chunk.created) is int and 0 < chunk.created < 2**53 else asked.created
        self._wanted = {
            "id": quote(chunk.id if shown else "cmpl-" + asked.id),
            "object": b'"%b"' % OBJECT.encode(),
            "created": b"%d" % created,
            "model": quote(asked.model),
        }

    def _edit(self, payload: bytes, chunk: Chunk, numbers: Sequence[int]) -> bytes:
        """Put right what every chunk must say; the rest of the bytes stay as they are."""
        members = json_edit.inner_members(payload, 0)
        wanted = self._wanted if chunk.choices is not None else {**self._wanted, "choices": b"[]"}
        dropped: set[str] = set()
        if chunk.usage is not UNSET:
            raw = bytes(chunk.usage)
            is_final = not numbers and raw == self._usage_raw
            may_stay = raw == b"null" and self._options.usage_shown and self._usage_raw is None
            if not (is_final or may_stay):
                dropped.add("usage")
        if chunk.error is not UNSET:
            dropped.add("error")
        if self._asked.hide_provider:
            dropped.add("system_fingerprint")
        edits = json_edit.edits(payload, members, wanted, dropped)
        if chunk.choices and any(map(_is_odd, chunk.choices, numbers)):
            at = next(member.start for member in reversed(members) if member.key == "choices")
            places = json_edit.elements(payload, at)
            for (start, _), choice, number in zip(places, chunk.choices, numbers, strict=True):
                right = {"index": b"%d" % number}
                if not isinstance(choice.text, str):
                    right["text"] = b'""'
                if known_reason(choice.finish_reason) is None:
                    right["finish_reason"] = b"null"
                edits += json_edit.settings(payload, start, right)
        return json_edit.splice(payload, edits)

    def _mint(self, number: int, reason: str) -> bytes:
        choice = b'{"text":"","index":%d,"logprobs":null,"finish_reason":%b}' % (number, quote(reason))
        return self._chunk(b'"choices":[%b]' % choice)

    def _chunk(self, rest: bytes) -> bytes:
        same = b"".join(b'"%b":%b,' % (key.encode(), value) for key, value in self._wanted.items())
        return b"{" + same + rest + b"}"

    # ---- the end --------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Nothing waits here but the finish: text that came with it has left."""

    def release(self) -> None:
        """Put out held finishes now."""
        self.out += [frame(held) for held in self._let_go()]
        self.finishing = self._all_finished()

    def _let_go(self) -> list[bytes]:
        gone: list[bytes] = []
        for number in sorted(self._states):
            state = self._states[number]
            if state.held is not None:
                gone.append(state.held)
                state.held = None
        return gone

    def farewell(self, bill: Bill | None) -> bytes:
        """Return all that completes the answer: held finishes, usage as the client gets it, `[DONE]`."""
        pieces = [frame(held) for held in self._let_go()]
        if bill is not None:
            usage = with_members(encode_usage(self._usage_raw, bill.usage), bill.in_usage)
            event = self._usage_event
            if event is None:
                event = self._chunk(b'"choices":[],"usage":' + usage)
            else:
                event = json_edit.changed(event, {"usage": usage})
            pieces.append(frame(with_members(event, bill.beside_usage)))
        return b"".join(pieces) + b"data: [DONE]\n\n"

    def failure(self, error: SluicegateError) -> bytes:
        """Return the nested error event; nothing follows it."""
        return openai_errors.error_event(error)


def _is_odd(choice: Choice, number: int) -> bool:
    """Whether a choice says something that readers stumble over."""
    return (
        choice.index != number
        or type(choice.index) is not int
        or not isinstance(choice.text, str)
        or (choice.finish_reason is not None and known_reason(choice.finish_reason) is None)
    )


def _changed_choices(payload: bytes, reasons: Sequence[str | None], *, keep_text: bool) -> bytes:
    """Set the finish reasons of an event's choices, and take their text out where it has left already."""
    members = json_edit.inner_members(payload, 0)
    at = next(member.start for member in reversed(members) if member.key == "choices")
    edits: list[Edit] = []
    for (start, _), reason in zip(json_edit.elements(payload, at), reasons, strict=True):
        wanted = {"finish_reason": b"null" if reason is None else quote(reason)}
        if not keep_text:
            wanted |= {"text": b'""', "logprobs": b"null"}
        edits += json_edit.settings(payload, start, wanted)
    return json_edit.splice(payload, edits)
