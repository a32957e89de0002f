"""The grammar of a chat stream as the gate must emit it: what any SDK, Python or Node, needs not to stumble.

Source: contract C1-C7, E2; wire/chat-completions.md and wire/node-sdks.md, "What the SDK needs".
"""

from typing import Any, Literal

from tests.grammar.narrow_sse import (
    ParsedCall,
    ParsedStream,
    check_cost,
    check_count,
    check_events,
    parse_object,
)

FINISH_REASONS = {"stop", "length", "tool_calls", "content_filter", "function_call"}
WITH_CALLS = {"tool_calls", "length", "content_filter"}


class _Choice:
    """What one choice has said so far."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.said: dict[str, list[str]] = {name: [] for name in ("content", "reasoning_content", "refusal")}
        self.calls: list[list[str]] = []
        self.finish: str | None = None
        self.has_role = False

    def take(self, choice: dict[str, Any]) -> None:
        assert self.finish is None, f"choice {self.index} goes on after its finish: {choice}"
        delta = choice.get("delta")
        assert isinstance(delta, dict), f"delta is {delta!r}"
        if "role" in delta:
            assert delta["role"] == "assistant", f"role is {delta['role']!r}"
            assert not self.has_role, "role came twice"
            self.has_role = True
        assert self.has_role, f"the first delta has no role: {delta}"
        for name, pieces in self.said.items():
            value = delta.get(name)
            assert value is None or isinstance(value, str), f"{name} is {value!r}"
            pieces.append(value or "")
        for name, value in delta.items():
            if isinstance(value, list):
                for entry in value:
                    assert not isinstance(entry, dict) or isinstance(entry.get("index"), int), (
                        f"an entry of {name} has no index: {entry}"
                    )
        calls = delta.get("tool_calls")
        assert calls is None or (isinstance(calls, list) and calls), f"tool_calls is {calls!r}"
        for call in calls or []:
            self._take_call(call)
        finish = choice.get("finish_reason")
        if finish is not None:
            assert finish in FINISH_REASONS, f"finish_reason is {finish!r}"
            assert not self.calls or finish in WITH_CALLS, f"finish_reason is {finish!r} after tool calls"
            self.finish = finish

    def _take_call(self, call: dict[str, Any]) -> None:
        index, function = call["index"], call.get("function")
        assert isinstance(function, dict), f"a tool delta without function: {call}"
        arguments = function.get("arguments", "")
        assert isinstance(arguments, str), f"arguments are {arguments!r}"
        if index == len(self.calls):
            assert call.get("type") == "function", f"the first delta of a call has no type: {call}"
            id_, name = call.get("id"), function.get("name")
            assert isinstance(id_, str), f"no id: {call}"
            assert isinstance(name, str), f"no name: {call}"
            assert id_, f"no id: {call}"
            assert name, f"no name: {call}"
            self.calls.append([id_, name, arguments])
            return
        assert index == len(self.calls) - 1, f"tool index {index} out of turn, after {len(self.calls)} calls"
        assert "id" not in call, f"id came again: {call}"
        assert "name" not in function, f"name came again: {call}"
        assert call.get("type", "function") == "function", f"the type was taken back: {call}"
        self.calls[index][2] += arguments

    def joined(self, name: str) -> str:
        """Return all that came in one field."""
        return "".join(self.said[name])


def check_error(payload: dict[str, Any]) -> dict[str, Any]:
    """Check an error event of chat or completions and return the inner object."""
    assert "choices" not in payload, "an error object with choices"
    error = payload["error"]
    assert isinstance(error, dict), f"error is {error!r}"
    assert isinstance(error.get("message"), str), f"error.message is {error.get('message')!r}"
    assert error["message"], "error.message is empty"
    assert isinstance(error.get("type"), str), f"error.type is {error.get('type')!r}"
    assert {"param", "code"} <= error.keys(), f"error lacks keys: {error}"
    assert error["code"] is None or isinstance(error["code"], str | int), f"error.code is {error['code']!r}"
    return error


def check_usage(usage: dict[str, Any]) -> None:
    """Check one usage object of chat or completions."""
    check_count(usage, "prompt_tokens", "completion_tokens", "total_tokens")
    total = usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["total_tokens"] == total, f"the total is wrong: {usage}"


class Identity:
    """What must be the same on every chunk."""

    def __init__(self, object_: str, model: str | None) -> None:
        self._object = object_
        self._model = model
        self._seen: tuple[Any, ...] | None = None

    def check(self, chunk: dict[str, Any]) -> None:
        assert "error" not in chunk, "an ordinary chunk has an error key"
        assert chunk.get("object") == self._object, f"object is {chunk.get('object')!r}"
        seen = (chunk.get("id"), chunk.get("created"), chunk.get("model"))
        assert isinstance(seen[0], str), f"id is {seen[0]!r}"
        assert seen[0], "id is empty"
        assert isinstance(seen[1], int), f"created is {seen[1]!r}"
        assert self._model is None or seen[2] == self._model, f"model is {seen[2]!r}, not {self._model!r}"
        assert self._seen in (None, seen), f"id, created or model changed: {self._seen} to {seen}"
        self._seen = seen


def check_chat_stream(
    raw: bytes,
    *,
    model: str | None = None,
    usage: bool | None = None,
    continuous: bool = False,
    cost_nano_usd: int | None = None,
    end: Literal["done", "error"] | None = "done",
    keepalive: bool = False,
) -> ParsedStream:
    """Check the body of a streamed chat answer and return what it said.

    Args:
        raw: the body without HTTP framing.
        model: the id that every chunk must carry.
        usage: whether the usage chunk must be there, or must not; None: either.
        continuous: every chunk carries running usage (C8).
        cost_nano_usd: the cost that usage must tell (C7, `cost: usage`).
        end: how it must end; None: either.
        keepalive: whether comments between events are allowed.
    Raises: AssertionError with what is wrong.
    """
    events, kept = check_events(raw, keepalive="comment" if keepalive else None)
    identity = Identity("chat.completion.chunk", model)
    choices: list[_Choice] = []
    chunks: list[dict[str, Any]] = []
    final: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    done = False
    for event in events:
        assert not done, f"something follows [DONE]: {event.data!r}"
        assert error is None, f"something follows the error: {event.data!r}"
        if event.data == "[DONE]":
            done = True
            continue
        chunk = parse_object(event.data)
        if chunk.get("error"):
            error = check_error(chunk)
            continue
        chunks.append(chunk)
        identity.check(chunk)
        told = chunk.get("usage")
        assert final is None, f"a chunk follows the usage chunk: {event.data!r}"
        listed = chunk.get("choices")
        assert isinstance(listed, list), f"choices is {listed!r}"
        if told is not None:
            check_usage(told)
            assert continuous or not listed, f"usage beside choices: {event.data!r}"
        if not listed and told is not None:
            final = told
        for choice in listed:
            index = choice.get("index")
            assert isinstance(index, int), f"index is {index!r}"
            if index == len(choices):
                choices.append(_Choice(index))
            assert 0 <= index < len(choices), f"choice {index} comes out of order"
            choices[index].take(choice)
    _check_end(end, done, error, choices)
    if usage is not None and done:
        assert (final is not None) == usage, (
            "the usage chunk is missing" if usage else f"unasked usage {final}"
        )
    if cost_nano_usd is not None:
        assert final is not None, "no usage, so no cost"
        check_cost(final, cost_nano_usd)
    first = choices[0] if choices else _Choice(0)
    return ParsedStream(
        text=first.joined("content"),
        reasoning=first.joined("reasoning_content"),
        refusal=first.joined("refusal"),
        tool_calls=[ParsedCall(*call) for call in first.calls],
        finish=first.finish,
        usage=final,
        error=error,
        events=chunks,
        keepalives=kept,
        texts=tuple(choice.joined("content") for choice in choices),
    )


def _check_end(
    end: Literal["done", "error"] | None, done: bool, error: dict[str, Any] | None, choices: list[_Choice]
) -> None:
    assert done or error is not None, "neither [DONE] nor an error: a false end"
    if end == "done":
        assert done, f"it ended with the error {error}"
    elif end == "error":
        assert error is not None, "it ended with [DONE], not with an error"
    if done:
        for choice in choices:
            assert choice.finish is not None, f"choice {choice.index} has no finish_reason"
        assert choices, "no choice at all"
