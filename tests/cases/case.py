"""What a provider says, and what every client must hear of it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from sluicegate.messages import Usage
from tests.cases.frames import Body
from tests.cases.world import How
from tests.grid.scenes import FORMATS, Prompt

COUNTED = Usage(input_tokens=3, output_tokens=2)
"""What the frames tell where a case is not about usage."""


class Case(NamedTuple):
    """One fault, in one format of the provider."""

    id: str
    """Of the fault in the collection of reported faults."""
    what: str
    provider: str
    body: bytes
    """Streamed."""
    then: bytes = b""
    """What follows once the client has what `body` says."""
    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = "stop"
    """As `messages.FinishReason` names it."""
    usage: Usage | None = COUNTED
    """None: nobody told, so the gate counts."""
    fails: str | None = None
    """Kind of the error that the client must be told, after `text`."""
    how: How = "end"
    plain: Body | bytes | None = None
    """What the provider answers when it is not asked to stream; None: the same events all the same."""
    clients: tuple[str, ...] = ()
    """Formats of clients that can meet it; empty: all that have words for it."""
    prompt: Prompt = Prompt()
    refusal: str = ""
    streamed_only: bool = False
    bytewise: bool = True
    """Also whole and byte by byte: not where the body is very long."""
    row: Mapping[str, Any] = MappingProxyType({})
    """What the journal's row must say beside."""

    @property
    def name(self) -> str:
        return f"{self.id}-{self.provider}-{self.what.replace(' ', '-')}"

    def heard_by(self) -> tuple[str, ...]:
        """Return the formats of clients that can meet it."""
        if self.clients:
            return self.clients
        wordless = self.calls or self.reasoning or self.prompt.tools
        return tuple(format for format in FORMATS if format != "completions" or not wordless)
