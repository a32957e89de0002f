"""Chat Completions on the same format: events pass byte for byte, but for edits at token offsets.

What is always put right: id, created, object and model (the same on every chunk, the model as the client asked for
it), the finish reason, the end marker, usage (asked of the provider, shown as the client's profile says). With
`repair` also repeated roles, and tool-call fragments that lack what an SDK needs. It leaves to the shell when an event
leaves, and to `billing` what it costs. Source: wire formats page `chat-completions.md`; contract C1–C7.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from sluicegate.errors import DecodeError, SluicegateError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit, openai_errors
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.openai_usage import read_usage, with_members, write_usage
from sluicegate.wire.sse import MAX_EVENT_BYTES, EventReader, frame
from sluicegate.wire.upstream_errors import read_stream_error

DONE = b"data: [DONE]\n\n"
_UNSET = msgspec.UNSET

FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_FINISH_ALIASES = {
    "max_tokens": "length",
    "model_length": "length",
    "MAX_TOKENS": "length",
    "safety": "content_filter",
    "SAFETY": "content_filter",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
}
_KNOWN_DELTA = frozenset(
    {"role", "content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call"}
)
_QUIET_DELTA = frozenset({"name", "annotations", "provider_specific_fields"})
_STRING_MEMBER = re.compile(rb'("[^"\\]+")\s*:\s*"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOTHING = (b"null", b"false", b'""', b"{}", b"0")
_RELEARN = 8
"""How often the usual event may change its shape before we stop looking for it."""


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: Any = None


class _ToolDelta(msgspec.Struct, gc=False):
    index: Any = None
    id: Any = None
    type: Any = None
    function: _Function | None = None
    custom: Any = None


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    role: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[_ToolDelta] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct, gc=False):
    index: Any = None
    delta: _Delta | None = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct, gc=False):
    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw | msgspec.UnsetType = _UNSET
    error: msgspec.Raw | msgspec.UnsetType = _UNSET


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class Identity(msgspec.Struct, kw_only=True):
    """How an answer names itself to the client."""

    model: str
    """The id the client asked for."""
    fallback_id: str
    """Used where the provider gives no id, or where its id is hidden."""
    created: int
    """Used where the provider gives none; seconds since 1970."""
    hide_provider: bool = False


class _Held:
    """A finish that waits for the event after it."""

    __slots__ = ("content", "payload", "reason")

    def __init__(self, payload: bytes, reason: str, content: bool) -> None:
        self.payload = payload
        self.reason = reason
        self.content = content
        """The event carries content of its own that has not left yet."""


class ChatStream:
    """One streamed chat completion between a provider and a client that both speak chat. See `StreamCodec`."""

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
        self._reader = EventReader(max_event_bytes)

        self.out: list[bytes] = []
        self.content = False
        self.finishing = False
        self.ended = False
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.repaired = False
        self.upstream_id: str | None = None

        self._id = b""
        self._created = b""
        self._model = msgspec.json.encode(identity.model)
        self._roles: set[int] = set()
        self._held: dict[int, _Held] = {}
        self._finished: set[int] = set()
        self._finish_left: set[int] = set()
        self._calls: dict[int, dict[int, list[str]]] = {}
        """Arguments received, by choice and call: told apart only to know whether a call is whole."""
        self._call_ids: dict[int, dict[int, str]] = {}
        self._last_calls: list[int] = []
        """Which calls the fragments of the event at hand belong to."""
        self._seen_calls: dict[int, set[int]] = {}
        """Calls whose first fragment has left."""
        self._usage_raw: bytes | None = None
        self._usage_event: bytes | None = None
        self._torn: bytes | None = None
        """An event whose text ends in half a character; the next may bring the other half."""
        self._wire_head: bytes | None = None
        self._wire_tail = b""
        self._payload_head = b""
        self._payload_tail = b""
        self._out_head = b""
        self._out_tail = b""
        self._learned = 0

    @property
    def held(self) -> bool:
        """Whether a finish is held back."""
        return bool(self._held)

    # ---- bytes in -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body.

        Raises:
            DecodeError: an event is not JSON, or too long.
        """
        head = self._wire_head
        if (
            head is not None
            and data.startswith(head)
            and data.endswith(self._wire_tail)
            and self._reader.clean
        ):
            # The usual read: one event that differs from the one before only inside its text.
            text = _plain_text(data, len(head), len(self._wire_tail))
            if text is not None and not self._held and self._torn is None:
                self._count_text(text)
                self.out.append(self._out_head + data[len(head) : -len(self._wire_tail)] + self._out_tail)
                return
        for event in self._reader.feed(data):
            if self.ended or self.error is not None:
                return
            self._take(event.data)

    def finish(self) -> None:
        """Take the end of the body.

        Raises:
            DecodeError: the answer was cut: neither marker nor finish reason came.
        """
        for event in self._reader.finish():
            if not self.ended and self.error is None:
                if event.data.strip() != b"[DONE]" and not _is_json(event.data):
                    raise DecodeError("chat", None, "the stream ended inside an event")
                self._take(event.data)
        self._mend_torn(None)
        if self.ended or self.error is not None:
            return
        if not self._all_finished():
            raise DecodeError("chat", None, "the stream ended without a finish reason or [DONE]")
        self.ended = True

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

    def _take(self, payload: bytes) -> None:
        if payload[0] == 0x7B:  # {
            if (
                self._wire_head is not None
                and not self._held
                and self._torn is None
                and payload.startswith(self._payload_head)
                and payload.endswith(self._payload_tail)
            ):
                text = _plain_text(payload, len(self._payload_head), len(self._payload_tail))
                if text is not None:
                    self._count_text(text)
                    middle = payload[len(self._payload_head) : -len(self._payload_tail)]
                    self.out.append(self._out_head + middle + self._out_tail)
                    return
            self._take_chunk(payload)
            return
        payload = payload.strip()
        if payload == b"[DONE]":
            self._take_done()
        elif payload[:1] == b"{":
            self._take_chunk(payload)
        else:
            raise DecodeError("chat", None, "an event is not a JSON object")

    def _take_done(self) -> None:
        self._mend_torn(None)
        for choice, calls in self._calls.items():
            if choice not in self._finished and any(
                not _is_json("".join(parts).encode()) for parts in calls.values()
            ):
                raise DecodeError("chat", None, "the stream ended inside a tool call")
        if not self.content and not self._finished:
            raise DecodeError("chat", None, "the stream ended without any output")
        for choice in sorted(self._roles | ({0} if self._choices == 1 else set())):
            if choice not in self._finished:
                reason = "tool_calls" if self._calls.get(choice) else "stop"
                self._hold(choice, _Held(self._mint_finish(choice, reason), reason, False))
                self.repaired = True
        self.ended = True

    def _take_chunk(self, payload: bytes) -> None:
        if b"\\u" in payload:
            mended = self._mend(payload)
            if mended is None:
                return
            payload = mended
        elif self._torn is not None:
            self._mend_torn(payload)
        try:
            chunk = _decode_chunk(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self._take_garbled(payload)
            return
        if chunk.error is not _UNSET and bytes(chunk.error) not in _NOTHING:
            self.error = read_stream_error(bytes(chunk.error))
            return
        self._take_decoded(payload, chunk)

    def _take_garbled(self, payload: bytes) -> None:
        """Read an event that is not one JSON object: several torn onto one, or in types that nobody sends."""
        lines = payload.split(b"\n")
        if len(lines) > 1 and all(_is_json(line) or line.strip() == b"[DONE]" for line in lines):
            for line in lines:
                if not self.ended and self.error is None:
                    self._take(line)
            return
        raise DecodeError("chat", None, "an event is not a chat completion chunk")

    def _take_decoded(self, payload: bytes, chunk: _Chunk) -> None:
        choices = chunk.choices
        if chunk.usage is not _UNSET and bytes(chunk.usage) != b"null":
            usage = read_usage(chunk.usage)
            if usage is not None:
                self.usage = usage
                self._usage_raw = bytes(chunk.usage)
        if not self._id:
            self._pin(chunk)
        if not choices:
            self._take_without_choices(payload, chunk)
            return
        finished: list[tuple[int, str]] = []
        content = False
        for choice in choices:
            index = choice.index if isinstance(choice.index, int) else 0
            has_content = self._take_delta(index, choice.delta, payload)
            content |= has_content
            if has_content and index in self._held:
                self._cancel(index)
            reason = choice.finish_reason
            if isinstance(reason, str) and reason:
                if reason == "error":
                    self.error = StreamError(status=500, message="the provider reported an error")
                    return
                finished.append((index, self._right_reason(index, reason)))
        for index in list(self._held):
            if index not in {done for done, _ in finished}:
                self._let_go(index)
        edited = self._edit(payload, chunk)
        if content:
            self.content = True
        if not finished:
            self.out.append(frame(edited))
            if content and not self._held:
                self._learn(payload, edited, chunk)
            return
        if len(choices) == 1:
            index, reason = finished[0]
            self._hold(index, _Held(self._with_reason(edited, reason), reason, content))
            return
        # Several choices share the event: nobody can cancel one finish of it alone.
        for index, reason in finished:
            self._finished.add(index)
            self._finish_left.add(index)
            self.finish_reason = reason
        self.out.append(frame(edited))
        self.finishing = self._all_finished()

    def _take_without_choices(self, payload: bytes, chunk: _Chunk) -> None:
        if chunk.usage is not _UNSET and bytes(chunk.usage) != b"null" and self._usage_raw is not None:
            self._usage_event = self._edit(payload, chunk, keep_usage=True)
            if self._all_finished():
                self.ended = True
            return
        for index in list(self._held):
            self._let_go(index)
        self.out.append(frame(self._edit(payload, chunk)))

    def _take_delta(self, index: int, delta: _Delta | None, payload: bytes) -> bool:
        """Count what a delta brings and return whether it is content."""
        if delta is None:
            return False
        content = False
        for text in (delta.content, delta.reasoning_content, delta.refusal):
            if isinstance(text, str):
                if text:
                    self._count_text(text)
                    content = True
            elif text:
                content = True
        if delta.reasoning and not delta.reasoning_content:
            if isinstance(delta.reasoning, str):
                self._count_text(delta.reasoning)
            content = True
        if delta.tool_calls:
            content |= self._take_calls(index, delta.tool_calls)
        if delta.function_call is not None:
            for text in (delta.function_call.name, delta.function_call.arguments):
                if isinstance(text, str) and text:
                    self._count_text(text)
                    content = True
        if not content and not self.content:
            content = _unknown_content(payload, index)
        return content

    def _take_calls(self, choice: int, deltas: list[_ToolDelta]) -> bool:
        content = False
        calls = self._calls.setdefault(choice, {})
        ids = self._call_ids.setdefault(choice, {})
        self._last_calls = []
        for delta in deltas:
            call = self._call_index(delta, ids, calls)
            self._last_calls.append(call)
            if isinstance(delta.id, str) and delta.id:
                ids.setdefault(call, delta.id)
            parts = calls.setdefault(call, [])
            if delta.function is not None:
                name, arguments = delta.function.name, delta.function.arguments
                if isinstance(name, str) and name:
                    self._count_text(name)
                    content = True
                if isinstance(arguments, str) and arguments:
                    self._count_text(arguments)
                    parts.append(arguments)
                    content = True
            elif delta.custom is not None:
                content = True
                parts[:] = ["{}"]
        return content

    @staticmethod
    def _call_index(delta: _ToolDelta, ids: dict[int, str], calls: dict[int, list[str]]) -> int:
        """Return which call a fragment belongs to: by index, else by id, else the last."""
        if isinstance(delta.index, int) and delta.index >= 0:
            return delta.index
        if isinstance(delta.id, str) and delta.id:
            for call, known in ids.items():
                if known == delta.id:
                    return call
            return max(calls, default=-1) + 1
        if delta.function is not None and isinstance(delta.function.name, str) and delta.function.name:
            return max(calls, default=-1) + 1
        return max(calls, default=0)

    # ---- the finish -----------------------------------------------------------------------------------------------

    def _right_reason(self, choice: int, reason: str) -> str:
        right = reason if reason in FINISH_REASONS else _FINISH_ALIASES.get(reason, "stop")
        if right == "stop" and self._calls.get(choice):
            right = "tool_calls"
        if right != reason:
            self.repaired = True
        return right

    def _hold(self, choice: int, held: _Held) -> None:
        before = self._held.get(choice)
        if before is not None:
            # The same choice finishes again: what the first event carried leaves, its finish does not.
            self._cancel(choice)
        self._held[choice] = held
        self._finished.add(choice)
        self.finish_reason = held.reason

    def _cancel(self, choice: int) -> None:
        """Content follows a finish, so it was none: deliver what its event carried."""
        held = self._held.pop(choice)
        self._finished.discard(choice)
        self.finish_reason = None
        self.repaired = True
        if held.content:
            self.out.append(frame(self._with_reason(held.payload, None)))

    def _let_go(self, choice: int) -> None:
        """Put out a finish that the next event confirmed."""
        held = self._held.pop(choice)
        self._finish_left.add(choice)
        self.out.append(frame(held.payload))
        if self._all_finished():
            self.finishing = True

    def flush(self) -> None:
        """Put out the content of a finish event that has to wait for the next read."""
        if self.ended:
            return
        for held in self._held.values():
            if held.content:
                self.out.append(frame(self._with_reason(held.payload, None)))
                held.payload = self._mint_finish_like(held.payload, held.reason)
                held.content = False

    def release(self) -> None:
        """Put out a held finish now."""
        for choice in sorted(self._held):
            self._let_go(choice)

    def _all_finished(self) -> bool:
        return len(self._finished) >= self._choices

    def _mint_finish(self, choice: int, reason: str) -> bytes:
        return (
            b'{"id":' + self._id + b',"object":"chat.completion.chunk","created":' + self._created + b',"model":'
            + self._model + b',"choices":[{"index":%d,"delta":{},"finish_reason":"%s"}]}' % (choice, reason.encode())
        )  # fmt: skip

    def _mint_finish_like(self, payload: bytes, reason: str) -> bytes:
        chunk = _decode_chunk(payload)
        index = chunk.choices[0].index if chunk.choices else 0
        return self._mint_finish(index if isinstance(index, int) else 0, reason)

    @staticmethod
    def _with_reason(payload: bytes, reason: str | None) -> bytes:
        """Set the finish reason of an event's only choice."""
        new = b"null" if reason is None else b'"' + reason.encode() + b'"'
        top = {member.key: member for member in json_edit.members(payload)}
        start, _ = json_edit.elements(payload, top["choices"].start)[0]
        for member in json_edit.inner_members(payload, start):
            if member.key == "finish_reason":
                return payload[: member.start] + new + payload[member.end :]
        return payload

    # ---- edits ----------------------------------------------------------------------------------------------------

    def _pin(self, chunk: _Chunk) -> None:
        if isinstance(chunk.id, str) and chunk.id:
            self.upstream_id = chunk.id
        use_theirs = self.upstream_id is not None and not self._identity.hide_provider
        self._id = msgspec.json.encode(self.upstream_id if use_theirs else self._identity.fallback_id)
        created = chunk.created
        if isinstance(created, float) and created == created and abs(created) < 2**53:
            created = int(created)
        good = isinstance(created, int) and not isinstance(created, bool) and created > 0
        self._created = b"%d" % (created if good else self._identity.created)

    def _edit(self, payload: bytes, chunk: _Chunk, *, keep_usage: bool = False) -> bytes:
        """Put right what every chunk must say, at its offsets; the rest of the bytes stay as they are."""
        if (
            self._learned
            and chunk.usage is _UNSET
            and chunk.error is _UNSET
            and not self._identity.hide_provider
            and chunk.choices is not None
            and len(chunk.choices) == 1
            and payload.startswith(self._payload_head)
        ):
            return self._out_head[6:] + payload[len(self._payload_head) :]
        wanted: dict[str, bytes] = {}
        for key, value in (
            ("id", self._id),
            ("object", b'"chat.completion.chunk"'),
            ("created", self._created),
            ("model", self._model),
        ):
            if not _says(payload, key.encode(), value):
                wanted[key] = value
        if chunk.choices is None:
            wanted["choices"] = b"[]"
        edited = payload
        if wanted:
            edited = json_edit.splice(payload, json_edit.settings(payload, payload.index(b"{"), wanted))
        if chunk.usage is not _UNSET and not keep_usage:
            keep = self._keep_null_usage and bytes(chunk.usage) == b"null" and self._usage_raw is None
            if not keep:
                edited = json_edit.without(edited, "usage")
        if chunk.error is not _UNSET:
            edited = json_edit.without(edited, "error")
        if self._identity.hide_provider and b'"system_fingerprint"' in edited:
            edited = json_edit.without(edited, "system_fingerprint")
        if chunk.choices:
            edited = self._edit_choices(edited, chunk.choices)
        return edited

    def _edit_choices(self, payload: bytes, choices: list[_Choice]) -> bytes:
        """Put right roles, indexes and tool-call fragments inside the choices."""
        need = False
        for choice in choices:
            delta = choice.delta
            role = delta.role if delta is not None else None
            known = isinstance(choice.index, int) and choice.index in self._roles
            if (
                delta is None
                or not isinstance(choice.index, int)
                or (role is not None if known and self._repair else not known and role != "assistant")
                or (delta.tool_calls and self._repair)
            ):
                need = True
            elif not known:
                self._roles.add(choice.index)
        if not need:
            return payload
        top = {member.key: member for member in json_edit.members(payload)}
        edits: list[Edit] = []
        for choice, (start, _) in zip(
            choices, json_edit.elements(payload, top["choices"].start), strict=True
        ):
            self._edit_choice(payload, choice, start, edits)
        return json_edit.splice(payload, edits) if edits else payload

    def _edit_choice(self, payload: bytes, choice: _Choice, start: int, edits: list[Edit]) -> None:
        index = choice.index if isinstance(choice.index, int) else 0
        first = index not in self._roles
        self._roles.add(index)
        wanted: dict[str, bytes] = {}
        if not isinstance(choice.index, int):
            wanted["index"] = b"0"
        if choice.delta is None:
            wanted["delta"] = b'{"role":"assistant"}' if first else b"{}"
        if wanted:
            edits += json_edit.settings(payload, start, wanted)
        if choice.delta is None:
            return
        inner = {member.key: member for member in json_edit.inner_members(payload, start)}
        delta_at = inner["delta"].start
        members = {member.key: member for member in json_edit.inner_members(payload, delta_at)}
        if first and choice.delta.role != "assistant":
            if "role" in members:
                edits.append(Edit(members["role"].start, members["role"].end, b'"assistant"'))
            else:
                at = delta_at + 1
                edits.append(Edit(at, at, b'"role":"assistant"' + (b"," if members else b"")))
        elif not first and "role" in members and self._repair:
            edits.append(json_edit.removal(payload, members["role"]))
        if choice.delta.tool_calls and self._repair:
            self._edit_calls(payload, index, choice.delta.tool_calls, members["tool_calls"].start, edits)

    def _edit_calls(
        self, payload: bytes, choice: int, deltas: list[_ToolDelta], start: int, edits: list[Edit]
    ) -> None:
        """Give every fragment its index, and the first of each call its id and type, once."""
        seen = self._seen_calls.setdefault(choice, set())
        ids = self._call_ids[choice]
        for call, delta, (at, _) in zip(
            self._last_calls, deltas, json_edit.elements(payload, start), strict=True
        ):
            wanted: dict[str, bytes] = {}
            if delta.index != call:
                wanted["index"] = b"%d" % call
            if call not in seen:
                seen.add(call)
                if not (isinstance(delta.id, str) and delta.id):
                    ids[call] = f"call_{self._identity.fallback_id[-24:]}_{choice}_{call}"
                    wanted["id"] = msgspec.json.encode(ids[call])
                if not delta.type and delta.custom is None:
                    wanted["type"] = b'"function"'
            elif delta.function is None and delta.custom is None:
                wanted["function"] = b"{}"
            if wanted:
                self.repaired = True
                edits += json_edit.settings(payload, at, wanted)

    # ---- the usual event ------------------------------------------------------------------------------------------

    def _learn(self, payload: bytes, edited: bytes, chunk: _Chunk) -> None:
        """Remember an event that is one piece of text, so that the next of its kind needs no decoding."""
        if chunk.choices is None or len(chunk.choices) != 1:
            return
        delta = chunk.choices[0].delta
        if (
            delta is None
            or delta.tool_calls
            or delta.role
            or delta.refusal
            or delta.function_call
            or delta.reasoning
        ):
            return
        if delta.content and not delta.reasoning_content:
            key = b'"content":"'
        elif delta.reasoning_content and not delta.content:
            key = b'"reasoning_content":"'
        else:
            return
        before, after = _around(payload, key), _around(edited, key)
        if before is None or after is None or self._learned >= _RELEARN:
            return
        self._learned += 1
        self._payload_head, self._payload_tail = before
        self._wire_head = b"data: " + before[0]
        self._wire_tail = before[1] + b"\n\n"
        self._out_head = b"data: " + after[0]
        self._out_tail = after[1] + b"\n\n"

    # ---- broken characters ----------------------------------------------------------------------------------------

    def _mend(self, payload: bytes) -> bytes | None:
        """Put right surrogate escapes without their partner; None where the event has to wait for the next one."""
        if self._torn is not None:
            payload = self._mend_torn(payload)
        at = json_edit.lone_surrogate(payload)
        if at is None:
            return payload
        self.repaired = True
        high = payload[at + 3 : at + 4] in b"89abAB"
        if high and payload[at + 6 : at + 7] == b'"' and json_edit.lone_surrogate(payload[at + 6 :]) is None:
            self._torn = payload
            return None
        return json_edit.replace_lone_surrogates(payload)

    def _mend_torn(self, following: bytes | None) -> bytes:
        """Join a held half character with the next event's other half, or give it up as U+FFFD."""
        torn, self._torn = self._torn, None
        if torn is None:
            return following or b""
        at = json_edit.lone_surrogate(torn)
        assert at is not None, "a torn event has a lone half"
        member = next((found for found in _STRING_MEMBER.finditer(torn) if found.end() == at + 7), None)
        if member is not None and following is not None:
            low = re.search(re.escape(member[1]) + rb'\s*:\s*"(\\u[dD][c-fC-F][0-9a-fA-F]{2})', following)
            if low is not None:
                self._take_chunk(torn[:at] + torn[at + 6 :])
                return following[: low.start(1)] + torn[at : at + 6] + following[low.start(1) :]
        self._take_chunk(json_edit.replace_lone_surrogates(torn))
        return following or b""

    # ---- the end --------------------------------------------------------------------------------------------------

    def farewell(self, bill: Bill | None) -> bytes:
        """Return all that completes the answer: held finish, usage as the client gets it, `[DONE]`."""
        pieces = [frame(self._held[choice].payload) for choice in sorted(self._held)]
        self._held.clear()
        if bill is not None:
            pieces.append(frame(self._usage_chunk(bill)))
        pieces.append(DONE)
        return b"".join(pieces)

    def _usage_chunk(self, bill: Bill) -> bytes:
        usage = with_members(self._usage_raw or write_usage(bill.usage), bill.in_usage)
        beside = b"," + bill.beside_usage if bill.beside_usage else b""
        if self._usage_event is not None:
            for member in json_edit.members(self._usage_event):
                if member.key == "usage":
                    return json_edit.splice(
                        self._usage_event, [Edit(member.start, member.end, usage + beside)]
                    )
        return (
            b'{"id":' + self._id + b',"object":"chat.completion.chunk","created":' + self._created + b',"model":'
            + self._model + b',"choices":[],"usage":' + usage + beside + b"}"
        )  # fmt: skip

    def failure(self, error: SluicegateError) -> bytes:
        """Return the nested error event; nothing follows it."""
        return openai_errors.error_event(error)


class ChatAnswer:
    """One chat completion that was not streamed."""

    def __init__(self, identity: Identity, body: bytes) -> None:
        """Read the provider's body.

        Raises:
            DecodeError: not a chat completion.
        """
        self._identity = identity
        self._body = json_edit.replace_lone_surrogates(body) if b"\\u" in body else body
        top = {
            member.key: self._body[member.start : member.end]
            for member in json_edit.members(self._body, "chat")
        }
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id: str | None = None
        self.repaired = False
        if top.get("error", b"null") not in _NOTHING:
            self.error = read_stream_error(top["error"])
            return
        try:
            self._choices = msgspec.json.decode(top.get("choices", b""), type=list[_AnswerChoice])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise DecodeError("chat", None, "the answer is not a chat completion") from None
        self._top = top
        self._usage_raw = top.get("usage", b"null")
        self.usage = read_usage(self._usage_raw)
        upstream_id = msgspec.json.decode(top.get("id", b"null"))
        self.upstream_id = upstream_id if isinstance(upstream_id, str) and upstream_id else None
        for choice in self._choices:
            self.finish_reason = self._right_reason(choice)

    def texts(self) -> list[str]:
        """Return every text the model produced, for counting."""
        return [
            text for choice in self._choices if choice.message is not None for text in choice.message.texts()
        ]

    def as_chunk(self) -> bytes:
        """Return the answer as the one event of a stream, for a client that asked for one."""
        whole: dict[str, Any] = msgspec.json.decode(self._body)
        for choice in whole["choices"]:
            delta = choice.pop("message", None) or {}
            for index, call in enumerate(delta.get("tool_calls") or ()):
                call["index"] = index
            choice["delta"] = delta
        whole["object"] = "chat.completion.chunk"
        return json_edit.dumps(whole)

    def _right_reason(self, choice: "_AnswerChoice") -> str | None:
        reason = choice.finish_reason
        right = reason if reason in FINISH_REASONS else _FINISH_ALIASES.get(str(reason), "stop")
        if right == "stop" and choice.message is not None and choice.message.tool_calls:
            right = "tool_calls"
        self.repaired |= right != reason
        return right

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it: its own model id, a right finish reason, usage and cost."""
        body = self._body
        usage = self._usage_raw if self.usage is not None else write_usage(bill.usage)
        usage = with_members(usage, bill.in_usage)
        wanted = {"model": msgspec.json.encode(self._identity.model), "usage": usage}
        if self.upstream_id is None or self._identity.hide_provider:
            wanted["id"] = msgspec.json.encode(self._identity.fallback_id)
        if not self._top.get("created", b"").isdigit():
            wanted["created"] = b"%d" % self._identity.created
        if self._top.get("object") != b'"chat.completion"':
            wanted["object"] = b'"chat.completion"'
        start = body.index(b"{")
        edits = json_edit.settings(body, start, wanted)
        for member in json_edit.members(body):
            if member.key == "choices":
                edits += self._choice_edits(body, member.start)
        body = json_edit.splice(body, edits)
        if self._identity.hide_provider:
            body = json_edit.without(body, "system_fingerprint")
        return body if not bill.beside_usage else with_members(body, bill.beside_usage)

    def _choice_edits(self, body: bytes, start: int) -> list[Edit]:
        edits: list[Edit] = []
        for choice, (at, _) in zip(self._choices, json_edit.elements(body, start), strict=True):
            right = self._right_reason(choice)
            if right != choice.finish_reason and right is not None:
                edits += json_edit.settings(body, at, {"finish_reason": b'"' + right.encode() + b'"'})
        return edits


class _AnswerMessage(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[_ToolDelta] | None = None

    def texts(self) -> list[str]:
        texts = [self.content, self.reasoning_content or self.reasoning, self.refusal]
        for call in self.tool_calls or ():
            if call.function is not None:
                texts += (call.function.name, call.function.arguments)
        return [text for text in texts if isinstance(text, str) and text]


class _AnswerChoice(msgspec.Struct, gc=False):
    finish_reason: Any = None
    message: _AnswerMessage | None = None


def _plain_text(data: bytes, start: int, tail: int) -> str | None:
    """Return the text between two known edges, or None where it is not exactly the inside of one JSON string."""
    middle = data[start:-tail]
    try:
        text = middle.decode()
        if text.isprintable() and '"' not in text and "\\" not in text:
            return text
        return msgspec.json.decode(b'"' + middle + b'"', type=str)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None


def _around(payload: bytes, key: bytes) -> tuple[bytes, bytes] | None:
    """Split an event around the text of its only member of that name."""
    if payload.count(key) != 1:
        return None
    start = payload.index(key) + len(key)
    end = json_edit.value_end(payload, start - 1) - 1
    return payload[:start], payload[end:]


def _says(payload: bytes, key: bytes, value: bytes) -> bool:
    """Whether the only member of that name, at any depth, has that value: then nothing needs an edit."""
    if payload.count(b'"' + key + b'":') != 1:
        return False
    at = payload.find(b'"' + key + b'":' + value)
    return at != -1 and payload[at + len(key) + 3 + len(value)] in b",}"


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def _unknown_content(payload: bytes, index: int) -> bool:
    """Whether a delta brings something the codec has no word for: that is content too."""
    try:
        choices = msgspec.json.decode(payload)["choices"]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    for choice in choices:
        delta = choice.get("delta")
        if choice.get("index", 0) == index and isinstance(delta, dict):
            if any(value for key, value in delta.items() if key not in _KNOWN_DELTA | _QUIET_DELTA):
                return True
    return False
