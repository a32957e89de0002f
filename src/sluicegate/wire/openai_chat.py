"""Chat Completions on the same format: events pass byte for byte, but for edits at token offsets.

What is always put right: id, created, object and model (the same on every chunk, the model as the client asked for
it), the finish reason, the end marker, usage (asked of the provider, shown as the client's profile says). With
`repair` also repeated roles, choices out of order, reasoning under another name, and tool-call fragments that lack
what an SDK needs. It leaves to the shell when an event leaves, and to `billing` what it costs. Source: wire formats
page `chat-completions.md`; contract C1–C7.
"""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET

from sluicegate.errors import DecodeError, SluicegateError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit, openai_errors, usual_event
from sluicegate.wire.half_characters import HalfCharacters
from sluicegate.wire.openai_chat_answer import ChatAnswer
from sluicegate.wire.openai_chat_chunk import (
    Choice,
    Chunk,
    Delta,
    decode_chunk,
    has_unknown_content,
)
from sluicegate.wire.openai_chat_edits import (
    ChoiceState,
    edit_choice,
    needs_edit,
    says_nothing_unknown,
    usual_edits,
    with_reasons,
)
from sluicegate.wire.openai_chat_identity import Identity
from sluicegate.wire.openai_finish import FINISH_REASONS, right_reason
from sluicegate.wire.openai_tool_calls import Piece, ToolCalls, write_pieces
from sluicegate.wire.openai_usage import encode_usage, read_usage, with_members
from sluicegate.wire.sse import MAX_EVENT_BYTES, EventReader, frame
from sluicegate.wire.upstream_errors import is_nothing, read_stream_error
from sluicegate.wire.usual_event import UsualEvent

DONE = b"data: [DONE]\n\n"
_RELEARN = 8
"""How often the usual event may change its shape before we stop looking for it."""


class ChatStream:
    """One streamed chat completion between a provider and a client that both speak chat. See `StreamCodec`."""

    __slots__ = (
        "_choices",
        "_count_text",
        "_halves",
        "_held",
        "_identity",
        "_keep_null_usage",
        "_learned",
        "_max_event_bytes",
        "_put_right",
        "_reader",
        "_repair",
        "_same",
        "_states",
        "_usage_event",
        "_usage_raw",
        "_usual",
        "content",
        "ended",
        "error",
        "finish_reason",
        "finishing",
        "out",
        "upstream_id",
        "usage",
    )

    joins_usage = False

    def __init__(
        self,
        identity: Identity,
        *,
        count_text: Callable[[str], None],
        keep_null_usage: bool = False,
        repair: bool = True,
        choices: int = 1,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        """Start an answer.

        Args:
            count_text: given every piece of text, reasoning, refusal and arguments that the provider sends.
            keep_null_usage: the client asked for usage, so `"usage": null` on earlier chunks may stay.
            choices: how many the client asked for; the answer is finished when so many have finished.
        """
        self._identity = identity
        self._count_text = count_text
        self._keep_null_usage = keep_null_usage
        self._repair = repair
        self._choices = choices
        self._max_event_bytes = max_event_bytes
        self._reader = EventReader(max_event_bytes)

        self.out: list[bytes] = []
        self.content = False
        self.finishing = False
        self.ended = False
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id: str | None = None
        self._put_right = False

        self._same: dict[str, str | int] = {}
        """What every chunk says alike, once the first has come."""
        self._states: dict[int, ChoiceState] = {}
        self._held: dict[int, ChoiceState] = {}
        self._usage_raw: bytes | None = None
        self._usage_event: bytes | None = None
        self._halves = HalfCharacters()
        self._usual: UsualEvent | None = None
        """None also whenever an event may not pass without being looked at."""
        self._learned = 0

    @property
    def held(self) -> bool:
        """Whether a finish is held back."""
        return bool(self._held)

    @property
    def repaired(self) -> bool:
        """Whether anything beyond the contract's own edits had to be put right."""
        return self._put_right or self._halves.repaired

    # ---- bytes in -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body; what comes after the end or an error is not looked at.

        Raises:
            DecodeError: an event is not a chunk, or too long.
        """
        usual = self._usual
        if usual is not None and self._reader.clean and len(data) <= self._max_event_bytes:
            # The usual read: one event, or several, that differ from the one before only inside their text.
            event = usual.rewrite_read(data)
            if event is not None:
                self._pass_on(usual, event)
                return
        if self._is_over():
            return
        for _, payload in self._reader.feed(data):
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
            for _, payload in self._reader.finish():
                self._take(payload)
            for payload in self._halves.cut_off():
                self._take_chunk(payload)
        except DecodeError:
            if not self._all_finished():
                raise DecodeError("chat", None, "the stream ended inside an event") from None
        if self._is_over():
            return
        if not self._all_finished():
            raise DecodeError("chat", None, "the stream ended without a finish reason or its end marker")
        self._end()

    def feed_whole(self, body: bytes) -> None:
        """Take an answer that came as one completion instead of a stream.

        Raises:
            DecodeError: it is no completion.
        """
        answer = ChatAnswer(self._identity, body)
        if answer.error is not None:
            self.error = answer.error
            return
        self._take(answer.as_chunk())
        if self.error is None and not self.ended:
            self._take_done()

    def _pass_on(self, usual: UsualEvent, event: bytes) -> None:
        text = usual.text
        self._count_text(text)
        if usual.parts is not None:
            usual.parts.append(text)
        self.out.append(event)

    def _take(self, payload: bytes) -> None:
        usual = self._usual
        if usual is not None:
            event = usual.rewrite(payload, usual.head, usual.tail)
            if event is not None:
                self._pass_on(usual, event)
                return
        payload = payload.strip()
        if payload == b"[DONE]":
            self._take_done()
            return
        if not payload.startswith(b"{"):
            raise DecodeError("chat", None, "an event is not a JSON object")
        if not self._halves.waits and not json_edit.may_escape(payload) and payload.isascii():
            self._take_chunk(payload)
            return
        for whole in self._halves.mend(payload):
            if not self.ended and self.error is None:
                self._take_chunk(whole)
        if self._halves.waits:
            self._usual = None

    def _take_chunk(self, payload: bytes) -> None:
        try:
            chunk = decode_chunk(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self._take_lines(payload)
            return
        if 0x0A in payload:
            payload = payload.replace(b"\n", b" ")  # white space of JSON that came on several lines
        if chunk.error is not UNSET and not is_nothing(bytes(chunk.error)):
            self._fail(read_stream_error(bytes(chunk.error)))
        elif not chunk.choices and (chunk.type == "error" or chunk.object == "error"):
            self._fail(read_stream_error(payload))
        else:
            self._take_decoded(payload, chunk)

    def _take_lines(self, payload: bytes) -> None:
        """Read an event that is not one JSON object but several, which lost the blank lines between them."""
        lines = payload.split(b"\n")
        if len(lines) == 1 or not all(json_edit.is_json(line) or line.strip() == b"[DONE]" for line in lines):
            raise DecodeError("chat", None, "an event is not a chat completion chunk")
        self._put_right = True
        for line in lines:
            if not self.ended and self.error is None:
                self._take(line)

    def _fail(self, error: StreamError) -> None:
        self.error = error
        self._usual = None

    def _take_done(self) -> None:
        for payload in self._halves.give_up():
            self._take_chunk(payload)
        if self._is_over():
            return
        running = [state for state in self._states.values() if state.reason is None]
        if any(state.calls and not state.calls.whole for state in running):
            raise DecodeError("chat", None, "the stream ended inside a tool call")
        if not self.content and len(running) == len(self._states):
            raise DecodeError("chat", None, "the stream ended without any output")
        for state in running:
            self._put_right = True
            self._hold(state, self._mint(state.index, b"{}"), right_reason("stop", called=bool(state.calls)))
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._usual = None

    # ---- one chunk --------------------------------------------------------------------------------------------------

    def _take_decoded(self, payload: bytes, chunk: Chunk) -> None:
        if chunk.usage is not UNSET:
            self._take_usage(chunk)
        if not self._same:
            self._pin(chunk)
        if self.upstream_id is None and isinstance(chunk.id, str) and chunk.id:
            self.upstream_id = chunk.id
        if self._choices == 1 and chunk.choices and self._take_text(payload, chunk, chunk.choices):
            return
        if not chunk.choices:
            self._take_without_choices(payload, chunk)
            return
        content = False
        was_begun = True
        finished: list[ChoiceState] = []
        states: list[ChoiceState] = []
        pieces: list[list[Piece] | None] = []
        for place, choice in enumerate(chunk.choices):
            if choice.finish_reason == "error":
                self._fail(StreamError(status=500, message="the provider reported an error"))
                return
            state = self._state_of(choice)
            if state in states:
                raise DecodeError("chat", None, "an event has the same choice twice")
            states.append(state)
            was_begun &= state.role_left
            brings, fragments = self._take_delta(state, choice.delta, payload, place)
            content |= brings
            pieces.append(fragments)
            if brings and state.held is not None:
                self._cancel(state)
            if isinstance(choice.finish_reason, str) and choice.finish_reason:
                finished.append(state)
        for state in list(self._held.values()):
            if state not in states and state not in finished:
                self._let_go(state)
        edited = self._edit(payload, chunk, states, pieces)
        self.content |= content
        if finished:
            self._take_finish(edited, chunk.choices, states, content or not was_begun)
            return
        self.out.append(frame(edited))
        if content and was_begun and len(states) == 1 and not self._held and pieces[0] is None:
            self._learn(payload, edited, chunk.choices[0].delta, states[0])

    def _take_text(self, payload: bytes, chunk: Chunk, choices: list[Choice]) -> bool:
        """Take a chunk of text that says all it must; return whether it was one. Nearly every chunk is.

        All that decides here decides in the general way too: what is not so sure is left to that.
        """
        choice = choices[0]
        delta, reason = choice.delta, choice.finish_reason
        if (
            len(choices) != 1
            or delta is None
            or self._held
            or type(choice.index) is not int
            or choice.index != 0
            or not (reason is None or (isinstance(reason, str) and reason in FINISH_REASONS))
            or not (delta.content is None or isinstance(delta.content, str))
            or delta.tool_calls is not None
            or delta.function_call is not None
            or delta.reasoning is not None
            or not (delta.reasoning_content is UNSET or delta.reasoning_content is None)
            or delta.refusal is not None
            or chunk.error is not UNSET
        ):
            return False
        state = self._states.get(0) or self._begin(0)
        was_begun = state.role_left
        if delta.role is not UNSET if was_begun else delta.role != "assistant":
            return False
        edits = usual_edits(payload, chunk, self._same, self._unwanted(chunk, has_choices=True))
        if edits is None:
            return False
        edited = json_edit.splice(payload, edits)
        state.role_left = True
        if delta.content:
            self._count_text(delta.content)
            content = self.content = True
        else:
            content = (
                not self.content and not says_nothing_unknown(payload) and has_unknown_content(payload, 0)
            )
            self.content |= content
        if reason is not None:
            self._take_finish(edited, choices, [state], content or not was_begun)
            return True
        self.out.append(frame(edited))
        if delta.content and was_begun and self._learned < _RELEARN:
            self._learned += 1
            self._usual = usual_event.learn(payload, edited, "content", delta.content, None)
        return True

    def _take_usage(self, chunk: Chunk) -> None:
        assert chunk.usage is not UNSET, "the caller has looked"
        raw = bytes(chunk.usage)
        usage = read_usage(raw) if raw != b"null" else None
        if usage is not None:
            if isinstance(chunk.service_tier, str):
                usage.service_tier = chunk.service_tier
            self.usage = usage
            self._usage_raw = raw
            self._usual = None

    def _take_without_choices(self, payload: bytes, chunk: Chunk) -> None:
        edited = self._edit(payload, chunk, (), ())
        if chunk.usage is not UNSET and bytes(chunk.usage) == self._usage_raw:
            self._usage_event = edited
            if self._all_finished():
                self._end()
            return
        # A held finish stays held: it is to be the last chunk with a choice, and usage may follow at once.
        self.out.append(frame(edited))

    def _take_finish(
        self, edited: bytes, choices: Sequence[Choice], states: list[ChoiceState], content: bool
    ) -> None:
        reasons = [
            self._right_reason(state, choice.finish_reason)
            for state, choice in zip(states, choices, strict=True)
        ]
        if len(states) == 1 and reasons[0] is not None:
            if not states[0].finish_left:
                self._hold(states[0], edited, reasons[0], content)
            elif content:
                self.out.append(frame(with_reasons(edited, [None])))
            return
        # Several choices share the event: nobody can cancel one finish of it alone.
        for state, reason in zip(states, reasons, strict=True):
            if reason is not None:
                if state.held is not None:
                    self._cancel(state)
                state.reason = self.finish_reason = reason
                state.finish_left = True
                self.out += self._owed(state)
        self.out.append(frame(with_reasons(edited, reasons)))
        self.finishing = self._all_finished() and not self._held

    def _right_reason(self, state: ChoiceState, reason: object) -> str | None:
        if not isinstance(reason, str) or not reason:
            return None
        right = right_reason(reason, called=bool(state.calls))
        self._put_right |= right != reason
        return right

    def _state_of(self, choice: Choice) -> ChoiceState:
        """Return the state of a choice; choices of a client that asked for one are all that one.

        Raises:
            DecodeError: there is no such choice.
        """
        index = choice.index
        if isinstance(index, float) and index.is_integer():
            index = int(index)
        if self._choices == 1 or type(index) is not int:
            index = 0
        state = self._states.get(index)
        if state is not None:
            return state
        if not 0 <= index < self._choices:
            raise DecodeError("chat", None, "a choice has an index beyond those asked for")
        if self._repair:  # choices begin in order
            for missing in range(index):
                if missing not in self._states:
                    before = self._begin(missing)
                    before.role_left = True
                    self.out.append(frame(self._mint(missing, b'{"role":"assistant"}')))
                    self._put_right = True
        return self._begin(index)

    def _begin(self, index: int) -> ChoiceState:
        prefix = f"call_{self._identity.fallback_id[-24:]}_{index}"
        state = self._states[index] = ChoiceState(index, ToolCalls(prefix, repair=self._repair))
        return state

    def _take_delta(
        self, state: ChoiceState, delta: Delta | None, payload: bytes, place: int
    ) -> tuple[bool, list[Piece] | None]:
        """Count what a delta brings; return whether it is content, and tool-call fragments that must be rewritten."""
        if delta is None:
            return False, None
        content = False
        reasoning = delta.reasoning_content
        if not reasoning or reasoning is UNSET:
            reasoning = delta.reasoning
        for text in (delta.content, reasoning, delta.refusal):
            if text:
                content = True
                if isinstance(text, str):
                    self._count_text(text)
        functions = [delta.function_call] if delta.function_call is not None else []
        for call in delta.tool_calls or ():
            content |= call.custom is not None
            if call.function is not UNSET and call.function is not None:
                functions.append(call.function)
        for function in functions:
            for text in (function.name, function.arguments):
                if text and text is not UNSET:
                    content = True
                    if isinstance(text, str):
                        self._count_text(text)
        pieces = state.calls.take(delta.tool_calls) if delta.tool_calls else None
        if not content and (not self.content or state.held is not None):
            content = has_unknown_content(payload, place)
        return content, pieces

    def _learn(self, payload: bytes, edited: bytes, delta: Delta | None, state: ChoiceState) -> None:
        """Remember an event that is one piece of text or arguments, so that the next of its kind needs no decoding."""
        if delta is None or self._learned >= _RELEARN:
            return
        texts = {
            "content": delta.content,
            "reasoning_content": delta.reasoning_content,
            "reasoning": delta.reasoning,
            "refusal": delta.refusal,
        }
        parts: list[str] | None = None
        if delta.tool_calls and len(delta.tool_calls) == 1 and state.calls.current is not None:
            function = delta.tool_calls[0].function
            if function is UNSET or function is None or isinstance(function.name, str):
                return
            texts["arguments"] = function.arguments
            parts = state.calls.current.parts
        elif delta.tool_calls or delta.function_call is not None:
            return
        found = [(key, text) for key, text in texts.items() if text and isinstance(text, str)]
        if len(found) == 1:
            self._learned += 1
            self._usual = usual_event.learn(payload, edited, *found[0], parts)

    # ---- the finish -----------------------------------------------------------------------------------------------

    def _hold(self, state: ChoiceState, payload: bytes, reason: str, content: bool = False) -> None:
        """Hold a finish back until it is certain; an earlier one of the same choice was none."""
        if state.calls.nameless:
            raise DecodeError("chat", None, "a tool call has no name")
        if state.held is not None:
            self._cancel(state)
        state.held = with_reasons(payload, [reason])
        state.held_content = content
        state.reason = self.finish_reason = reason
        self._held[state.index] = state
        self._usual = None

    def _cancel(self, state: ChoiceState) -> None:
        """Content follows a finish, so it was none: deliver what its event carried."""
        held, state.held = state.held, None
        del self._held[state.index]
        state.reason = self.finish_reason = None
        self._put_right = True
        if state.held_content and held is not None:
            self.out.append(frame(with_reasons(held, [None])))

    def _let_go(self, state: ChoiceState) -> None:
        """Put out a finish that nothing can cancel any more."""
        self.out += self._finish_of(state)
        if self._all_finished() and not self._held:
            self.finishing = True

    def _finish_of(self, state: ChoiceState) -> list[bytes]:
        held, state.held = state.held, None
        del self._held[state.index]
        state.finish_left = True
        return [*self._owed(state), frame(held or b"")]

    def _owed(self, state: ChoiceState) -> list[bytes]:
        """Return what a choice's tool calls lack at its end."""
        pieces = state.calls.close()
        if not pieces:
            return []
        self._put_right = True
        return [frame(self._mint(state.index, b'{"tool_calls":' + write_pieces(pieces, b"", ()) + b"}"))]

    def flush(self) -> None:
        """Put out the content of a finish event that has to wait for the next read."""
        if self.ended:
            return
        for state in self._held.values():
            if state.held_content and state.held is not None and state.reason is not None:
                self.out.append(frame(with_reasons(state.held, [None])))
                state.held = with_reasons(self._mint(state.index, b"{}"), [state.reason])
                state.held_content = False

    def release(self) -> None:
        """Put out a held finish now."""
        for index in sorted(self._held):
            self._let_go(self._held[index])

    def _all_finished(self) -> bool:
        finished = 0
        for state in self._states.values():
            if state.reason is not None:
                finished += 1
        return finished >= self._choices

    def _mint(self, index: int, delta: bytes) -> bytes:
        """Write a chunk of our own."""
        choice = b'[{"index":%d,"delta":%b,"finish_reason":null}]' % (index, delta)
        return self._chunk(b'"choices":' + choice)

    def _chunk(self, rest: bytes) -> bytes:
        same = b"".join(
            b'"%b":%b,' % (key.encode(), json_edit.dumps(value)) for key, value in self._same.items()
        )
        return b"{" + same + rest + b"}"

    # ---- edits ----------------------------------------------------------------------------------------------------

    def _pin(self, chunk: Chunk) -> None:
        """Fix what every chunk says of the answer, by the first one."""
        identity = self._identity
        id_ = identity.fallback_id
        if isinstance(chunk.id, str) and chunk.id and not identity.hide_provider:
            id_ = chunk.id
        created = chunk.created
        if isinstance(created, float) and created == created and abs(created) < 2**53:
            created = int(created)
        if not isinstance(created, int) or isinstance(created, bool) or not 0 < created < 2**53:
            created = identity.created
        self._same = {
            "id": id_,
            "object": "chat.completion.chunk",
            "created": created,
            "model": identity.model,
        }

    def _edit(
        self,
        payload: bytes,
        chunk: Chunk,
        states: Sequence[ChoiceState],
        pieces: Sequence[list[Piece] | None],
    ) -> bytes:
        """Put right what every chunk must say, at its offsets; the rest of the bytes stay as they are."""
        dropped = self._unwanted(chunk, has_choices=bool(states))
        members: list[json_edit.Member] | None = None
        edits = None if chunk.choices is None else usual_edits(payload, chunk, self._same, dropped)
        if edits is None:
            wanted = {key: json_edit.dumps(value) for key, value in self._same.items()}
            if chunk.choices is None:
                wanted["choices"] = b"[]"
            members = json_edit.inner_members(payload, 0)
            edits = json_edit.edits(payload, members, wanted, dropped)
        if chunk.choices:
            needs = [
                needs_edit(choice, state, repair=self._repair) or fragments is not None
                for choice, state, fragments in zip(chunk.choices, states, pieces, strict=True)
            ]
            if any(needs):
                members = members or json_edit.inner_members(payload, 0)
                at = next(member.start for member in reversed(members) if member.key == "choices")
                for place, (start, _) in enumerate(json_edit.elements(payload, at)):
                    if needs[place]:
                        self._put_right |= pieces[place] is not None
                        edits += edit_choice(
                            payload,
                            start,
                            chunk.choices[place],
                            states[place],
                            pieces[place],
                            repair=self._repair,
                        )
            for state in states:
                state.role_left = True
        return json_edit.splice(payload, edits)

    def _unwanted(self, chunk: Chunk, *, has_choices: bool) -> list[str]:
        """Return the members of a chunk that the client may not have."""
        unwanted = []
        if chunk.usage is not UNSET:
            raw = bytes(chunk.usage)
            is_final = not has_choices and raw == self._usage_raw
            may_stay = raw == b"null" and self._keep_null_usage and self._usage_raw is None
            if not (is_final or may_stay):
                unwanted.append("usage")
        if chunk.error is not UNSET:
            unwanted.append("error")
        if self._identity.hide_provider:
            unwanted.append("system_fingerprint")
        return unwanted

    # ---- the end --------------------------------------------------------------------------------------------------

    def farewell(self, bill: Bill | None) -> bytes:
        """Return all that completes the answer: held finish, usage as the client gets it, `[DONE]`."""
        pieces: list[bytes] = []
        for index in sorted(self._held):
            pieces += self._finish_of(self._held[index])
        if bill is not None:
            pieces.append(frame(self._usage_chunk(bill)))
        pieces.append(DONE)
        return b"".join(pieces)

    def _usage_chunk(self, bill: Bill) -> bytes:
        usage = with_members(encode_usage(self._usage_raw, bill.usage), bill.in_usage)
        event = self._usage_event
        if event is None:
            event = self._chunk(b'"choices":[],"usage":' + usage)
        else:
            at = json_edit.sole_value(event, b"usage", self._usage_raw or b"null")
            if at >= 0:
                event = event[:at] + usage + event[at + len(self._usage_raw or b"null") :]
            else:
                event = json_edit.changed(event, {"usage": usage})
        return with_members(event, bill.beside_usage) if bill.beside_usage else event

    def failure(self, error: SluicegateError) -> bytes:
        """Return the nested error event; nothing follows it."""
        return openai_errors.error_event(error)
