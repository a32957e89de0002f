"""Answers to a legacy Completions client, streamed or not, out of the events of the common vocabulary.

The format has text only: a refusal becomes text, thoughts and opaque state are left out. The prompt stands before the
text where the client wanted its echo. Source: contract C10; wire formats page `completions.md`, "Translating it".
"""

from typing import Any

import msgspec

from sluicegate.errors import SluicegateError
from sluicegate.messages import Logprobs, RefusalDelta, StreamEvent, TextDelta, Usage
from sluicegate.wire import Bill, json_edit, openai_errors
from sluicegate.wire.json_text import quote
from sluicegate.wire.openai_usage import with_members, write_usage
from sluicegate.wire.told_text import Told
from sluicegate.wire.translation import Asked
from sluicegate.wire.whole_answer import write_stream

_REASONS = {"length": "length", "context_full": "length", "content_filter": "content_filter"}
"""All others are `stop`."""


class _Choice:
    """One choice, as far as it has been written."""

    __slots__ = ("declined", "tail", "written")

    def __init__(self, index: int) -> None:
        self.tail = b',"index":%d,"logprobs":null,"finish_reason":null}]}\n\n' % index
        self.written = 0
        """Characters of text."""
        self.declined = False


class CompletionStreamEncoder:
    """Writes one client's stream. See `StreamEncoder`."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._name("cmpl-" + asked.id, asked.created)
        self._choices: dict[int, _Choice] = {}
        self._finish_left = False

    def start(self, usage: Usage | None = None) -> bytes:
        """Return nothing: the format has no start-up events."""
        return b""

    def _name(self, id: str, created: int) -> None:
        """Take what all chunks of the answer share."""
        self._same = b'"id":%b,"object":"text_completion","created":%d,"model":%b' % (
            quote(id),
            created,
            quote(self._asked.model),
        )
        self._head = b'data: {%b,"choices":[{"text":' % self._same

    def take_over(self, told: Told) -> None:
        """Take over an answer that another has begun to write."""
        asked, first = self._asked, told.first
        self._name(first.get("id", "cmpl-" + asked.id), first.get("created", asked.created))
        self.event(TextDelta(told.text))

    def event(self, event: StreamEvent) -> bytes:
        """Return the framed chunks for one content event; empty for what the format cannot say."""
        if type(event) is TextDelta:
            choice = self._choices.get(event.choice)
            if choice is not None:
                choice.written += len(event.text)
                return self._head + quote(event.text) + choice.tail
        if isinstance(event, RefusalDelta):
            self._begin(event.choice)[0].declined = True
        if isinstance(event, TextDelta | RefusalDelta):
            choice, out = self._begin(event.choice)
            choice.written += len(event.text)
            return out + self._head + quote(event.text) + choice.tail
        if isinstance(event, Logprobs):
            choice, out = self._begin(event.choice)
            return out + self._probabilities(event, choice)
        return b""

    def _begin(self, index: int) -> tuple[_Choice, bytes]:
        """Return a choice, and the echo of the prompt where it has just begun."""
        choice = self._choices.get(index)
        if choice is not None:
            return choice, b""
        choice = self._choices[index] = _Choice(index)
        if index >= len(self._asked.echo):
            return choice, b""
        echo = self._asked.echo[index]
        choice.written = len(echo)
        return choice, self._head + quote(echo) + choice.tail

    def _probabilities(self, event: Logprobs, choice: _Choice) -> bytes:
        """Write the probabilities of the text that came last, with its places in the choice's text."""
        entries = [entry for entry in event.content if isinstance(entry.get("token"), str)]
        tokens: list[str] = [entry["token"] for entry in entries]
        at = max(choice.written - sum(map(len, tokens)), 0)
        places: list[int] = []
        for token in tokens:
            places.append(at)
            at += len(token)
        told = {
            "tokens": tokens,
            "token_logprobs": [entry.get("logprob") for entry in entries],
            "top_logprobs": [
                {other["token"]: other.get("logprob") for other in entry.get("top_logprobs") or ()}
                for entry in entries
            ],
            "text_offset": places,
        }
        tail = choice.tail.replace(b'"logprobs":null', b'"logprobs":%b' % json_edit.dumps(told), 1)
        return self._head + b'""' + tail

    # ---- the end --------------------------------------------------------------------------------------------------

    def finish(self, reasons: dict[int, tuple[str, str | None]]) -> bytes:
        """Return the finish reasons of the choices."""
        if self._finish_left:
            return b""
        self._finish_left = True
        out: list[bytes] = []
        for index in sorted(reasons):
            choice, echo = self._begin(index)
            reason = "content_filter" if choice.declined else _REASONS.get(reasons[index][0], "stop")
            tail = choice.tail.replace(b'"finish_reason":null', b'"finish_reason":' + quote(reason), 1)
            out.append(echo + self._head + b'""' + tail)
        return b"".join(out)

    def farewell(self, reasons: dict[int, tuple[str, str | None]], bill: Bill | None) -> bytes:
        """Return what `finish` has not, the usage chunk where the client gets one, and `[DONE]`."""
        out = self.finish(reasons)
        if bill is not None and self._asked.usage_shown:
            usage = with_members(write_usage(bill.usage), bill.in_usage)
            chunk = b'{%b,"choices":[],"usage":%b}' % (self._same, usage)
            out += b"data: " + with_members(chunk, bill.beside_usage) + b"\n\n"
        return out + b"data: [DONE]\n\n"

    def failure(self, error: SluicegateError) -> bytes:
        """Return the nested error event; nothing follows it."""
        return openai_errors.error_event(error)


# ---- an answer that is not streamed ---------------------------------------------------------------------------------


def encode_answer(events: list[StreamEvent], asked: Asked, bill: Bill) -> bytes:
    """Write a whole completion: what the stream of the same events would have told. See `AnswerEncoder`."""
    choices: dict[int, dict[str, Any]] = {}
    for line in write_stream(events, CompletionStreamEncoder(asked)).split(b"\n\n"):
        if line and not line.endswith(b"[DONE]"):
            for piece in msgspec.json.decode(line.removeprefix(b"data: "))["choices"]:
                _fold(choices, piece)
    top = {
        "id": "cmpl-" + asked.id,
        "object": "text_completion",
        "created": asked.created,
        "model": asked.model,
        "choices": [choices[index] for index in sorted(choices)],
    }
    usage = with_members(write_usage(bill.usage), bill.in_usage)
    return with_members(json_edit.dumps(top)[:-1] + b',"usage":' + usage + b"}", bill.beside_usage)


def _fold(choices: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
    choice = choices.setdefault(piece["index"], {**piece, "text": "", "logprobs": None})
    choice["text"] += piece["text"]
    choice["finish_reason"] = piece["finish_reason"]
    if piece["logprobs"] is None:
        return
    if choice["logprobs"] is None:
        choice["logprobs"] = piece["logprobs"]
    else:
        for key, values in piece["logprobs"].items():
            choice["logprobs"][key] += values
