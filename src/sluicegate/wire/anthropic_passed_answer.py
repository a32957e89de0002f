"""Messages that are not streamed, on the same format: the body passes but for edits at token offsets.

Put right as in a stream: model, id where it is missing or hidden, the stop reason, usage and cost, and calls that lack
an id or their input. Source: wire formats page `anthropic-messages.md`; contract C3, C7, C9.
"""

import msgspec

from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.anthropic_event import decode_message, failure
from sluicegate.wire.anthropic_folding import fold
from sluicegate.wire.anthropic_stop import read_stop_reason
from sluicegate.wire.anthropic_usage import RunningUsage, settled_usage
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.json_edit import Edit, Member
from sluicegate.wire.kept_ids import sealed
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.translation import Asked


def right_stop_reason(reason: str, *, called: bool) -> str:
    """Return the stop reason that fits: an answer that calls tools has not just ended its turn."""
    return "tool_use" if called and reason == "end_turn" else reason


def with_our_ids(told: bytes, asked: Asked) -> bytes:
    """Return an event or a message in which containers and files that the provider keeps have our ids."""
    if asked.close_id is None or not (b'"container"' in told or b'"file_id"' in told):
        return told
    return sealed(told, "messages", asked.close_id)


class AnthropicAnswer:
    """One message that was not streamed. See `PassedAnswer`."""

    def __init__(self, asked: Asked, body: bytes) -> None:
        """Read the provider's body; one that came as an event stream all the same is folded.

        Raises:
            DecodeError: no message, or a stream that was cut.
        """
        self._asked = asked
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id: str | None = None
        self.repaired = False
        body = body.removeprefix(b"\xef\xbb\xbf").strip()
        if not body.startswith(b"{"):
            body = fold(body + b"\n\n")
            self.repaired = True
        self.body = whole_characters(body)
        """The message as the provider told it."""
        message, self._blocks = decode_message(self.body)
        self.error = failure(message.error)
        if self.error is None and message.type == "error":
            self.error = StreamError(status=500, message="the provider reported an error")
        if self.error is not None:
            return
        if isinstance(message.id, str) and message.id:
            self.upstream_id = message.id
        self._totals = RunningUsage()
        self._totals.take(message.usage)
        self.usage = self._totals.normalised()
        self._usage_raw = bytes(message.usage)
        called = any(block.type == "tool_use" for block in self._blocks)
        self._reason = right_stop_reason(message.stop_reason or "end_turn", called=called)
        self.repaired |= self._reason != message.stop_reason
        self.finish_reason = read_stop_reason(self._reason)
        self._lacking = [
            (place, block)
            for place, block in enumerate(self._blocks)
            if block.type == "tool_use" and (not block.id or bytes(block.input) == b"null")
        ]
        """Calls without an id or an input, and where they stand."""
        self.repaired |= bool(self._lacking)

    def texts(self) -> list[str]:
        """Return every text the model produced, for counting."""
        texts: list[str] = []
        for block in self._blocks:
            texts += [text for text in (block.text, block.thinking, block.name) if text]
            given = bytes(block.input)
            if given != b"null":
                texts.append(given.decode())
        return texts

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it: its own model id, a right stop reason, usage and cost."""
        reported = self._usage_raw if self._usage_raw.startswith(b"{") else None
        wanted = {
            "model": msgspec.json.encode(self._asked.model),
            "stop_reason": msgspec.json.encode(self._reason),
            "usage": settled_usage(
                reported, bill.usage, bill.in_usage, repeat_input=not self._totals.knows_input()
            ),
        }
        if self.upstream_id is None or self._asked.hide_provider:
            wanted["id"] = msgspec.json.encode("msg_" + self._asked.id)
        members = json_edit.members(self.body)
        edits = json_edit.edits(self.body, members, wanted) + self._call_edits(members)
        body = json_edit.splice(self.body, edits)
        return with_members(with_our_ids(body, self._asked), bill.beside_usage)

    def _call_edits(self, members: list[Member]) -> list[Edit]:
        """Give every call an id and an input."""
        if not self._lacking:
            return []
        at = next(member.start for member in reversed(members) if member.key == "content")
        starts = [start for start, _ in json_edit.elements(self.body, at)]
        edits: list[Edit] = []
        for place, block in self._lacking:
            wanted: dict[str, bytes] = {}
            if not block.id:
                wanted["id"] = msgspec.json.encode(f"toolu_{self._asked.id}_{place}")
            if bytes(block.input) == b"null":
                wanted["input"] = b"{}"
            edits += json_edit.settings(self.body, starts[place], wanted)
        return edits
