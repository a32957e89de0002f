"""What a healthy model would say, independent of any wire format.

One `Answer` is encoded by every format of `formats/`, so that the same text, calls and counts can be compared
across them. A piece of text is one event and, unless the counts are given, one token.
"""

from typing import Literal

import msgspec

from sluicegate.messages import FinishReason, Usage

ID = "SIMULATEDID0"
"""Stands in prepared bytes where each request gets an id of its own, of the same length."""
STAMP = "@STAMP@STAMP@STAMP@"
"""Stands in prepared bytes where the moment of sending goes: 19 digits of the machine's monotonic
nanoseconds."""

UsageWhen = Literal["asked", "always", "never", "running", "with_finish"]
"""When usage is told: as the vendor does (chat: only if asked), always, never, as running totals on every
event, or with the finish reason. Formats that always report usage treat `asked` as `always`."""

_COMMON_WORDS = """
the of and to in a is that for it was on are as with his they at be this from have or by one had not but
what all were when we there can an your which their said if do will each about how up out them then she many
some so these would other into has more her two like him see time could no make than first been its who now
people my made over did down only way find use may water long little very after words called just where most
know
"""
WORDS = _COMMON_WORDS.split()
"""Each is a single token of the usual vocabularies when a space precedes it."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The model asks for a function."""

    name: str
    arguments: tuple[str, ...] = ("{}",)
    """JSON text in the pieces in which it is streamed."""
    id: str | None = None
    """None: made from the request's id and the call's place."""

    def joined(self) -> str:
        """Return the whole argument text."""
        return "".join(self.arguments)

    def call_id(self, place: int) -> str:
        """Return the id of this call, given or made."""
        return self.id or f"call_{ID}_{place}"


class Search(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The vendor's own tool searches the web, before any text; the text cites all that it found."""

    query: str
    found: tuple[tuple[str, str], ...] = ()
    """Address and title of each page."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One answer: pieces of reasoning, text, refusal and calls in this order, an end and its counts."""

    reasoning: tuple[str, ...] = ()
    signature: str | None = None
    """Proof of the reasoning (base64), where the format has a place for it."""
    redacted: str | None = None
    """Encrypted reasoning (base64), where the format has a place for it."""
    searches: tuple[Search, ...] = ()
    """Where the format tells of them; all formats cite what was found."""
    text: tuple[str, ...] = ()
    refusal: tuple[str, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    finish: FinishReason = "stop"
    stop_sequence: str | None = None
    pause_after: int = 0
    """Break off after so many pieces of text, and go on with as many when asked to; where the format can."""
    token: str | None = None
    """Of an answer whose finish is `paused`: what the next request has to bring, where the format has a place."""
    choices: int = 1
    """Where the format has choices, each says the same."""
    input_tokens: int = 9
    """Inclusive, as in `messages.Usage`."""
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    """Inclusive; None: one token a piece, and one for the start of each call."""
    reasoning_tokens: int | None = None
    """None: one a piece of reasoning, not reported when there is none."""
    usage: UsageWhen = "asked"

    @property
    def stamped(self) -> bool:
        """Whether pieces carry the moment of sending."""
        return any(STAMP in piece for piece in self.text)

    @property
    def found(self) -> tuple[tuple[str, str], ...]:
        """All that the searches found."""
        return tuple(page for search in self.searches for page in search.found)

    def pieces(self) -> int:
        """Return the weight of one choice: what `output_tokens` is when it is not given."""
        calls = sum(1 + len(call.arguments) for call in self.tool_calls)
        return len(self.reasoning) + len(self.text) + len(self.refusal) + calls

    def truth(self, sent: int | None = None) -> Usage:
        """Return the usage really produced.

        Args:
            sent: weight of the pieces sent so far, over all choices; None for the whole answer.
        """
        whole = self.pieces() * self.choices
        total = self.output_tokens if self.output_tokens is not None else whole
        reasoning = (
            self.reasoning_tokens if self.reasoning_tokens is not None else len(self.reasoning) * self.choices
        )
        output = total if sent is None or sent >= whole else total * sent // max(whole, 1)
        return Usage(
            input_tokens=self.input_tokens,
            cache_read_tokens=self.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens,
            output_tokens=output,
            reasoning_tokens=min(reasoning, output) or None,
            web_searches=len(self.searches) or None,
        )

    def limited(self, max_tokens: int) -> "Answer":
        """Return this answer as a model would give it under a limit of output tokens."""
        if self.pieces() <= max_tokens or max_tokens < 1:
            return self
        reasoning = self.reasoning[:max_tokens]
        text = self.text[: max_tokens - len(reasoning)]
        return msgspec.structs.replace(
            self,
            reasoning=reasoning,
            text=text,
            refusal=(),
            tool_calls=(),
            finish="length",
            output_tokens=None,
        )


def of_tokens(tokens: int, *, stamped: bool = False, input_tokens: int = 9, per_event: int = 1) -> Answer:
    """Return an answer of so many tokens of plain words, or of sending times, `per_event` tokens a piece."""
    if stamped:
        pieces = tuple(" " + STAMP for _ in range(tokens))
    else:
        words = [" " + WORDS[i % len(WORDS)] for i in range(tokens)]
        pieces = tuple("".join(words[i : i + per_event]) for i in range(0, tokens, per_event))
    return Answer(text=pieces, input_tokens=input_tokens, output_tokens=tokens if per_event > 1 else None)
