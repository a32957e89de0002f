"""Responses that are not streamed, on the same format: the body passes but for edits at token offsets.

Put right as in a stream: model, id where it is missing or hidden, time of creation, status, usage and cost, and calls
that lack their arguments. Source: wire formats page `responses.md`; contract C3, C7, C9.
"""

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import FinishReason, StreamError, Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.json_edit import Edit, Member
from sluicegate.wire.kept_ids import sealed
from sluicegate.wire.openai_responses_event import (
    FORMAT,
    decode_item,
    decode_response,
    failed_response,
    output_of,
    text_of,
)
from sluicegate.wire.openai_responses_shapes import Item, Response
from sluicegate.wire.openai_responses_unfolding import fold
from sluicegate.wire.openai_responses_usage import read_usage, settled_usage
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.translation import Asked

_NO_ARGUMENTS = b'"{}"'
_CALLS = frozenset({"function_call", "custom_tool_call"})
INCOMPLETE: dict[str, FinishReason] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "steered": "stop",
}
"""Why a response is not complete; what nobody knows has cut it."""


def finish_reason_of(response: Response, status: str, *, called: bool) -> str:
    """Return our word for why a response ended.

    Args:
        called: it asks for tools.
    """
    if status != "incomplete":
        return "tool_calls" if called else "stop"
    details = response.incomplete_details
    return INCOMPLETE.get((details.reason if details is not None else None) or "", "length")


class ResponsesAnswer:
    """One response that was not streamed. See `PassedAnswer`."""

    def __init__(self, asked: Asked, body: bytes) -> None:
        """Read the provider's body; one that came as an event stream all the same is folded.

        Raises:
            DecodeError: no response, or a stream that was cut.
        """
        self._asked = asked
        self.error: StreamError | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id: str | None = None
        self.repaired = False
        self.cancelled = False
        """Somebody ended it before its end."""
        self._lacking: list[int] = []
        """Where calls stand that have no arguments."""
        body = body.removeprefix(b"\xef\xbb\xbf").strip()
        if not body.startswith(b"{"):
            body = fold(body + b"\n\n")
            self.repaired = True
        self.body = whole_characters(body)
        """The response as the provider told it."""
        self._response, self.error = read_answer(self.body)
        self.cancelled = self._response.status == "cancelled"
        self.usage = read_usage(self._response)
        if self.error is not None:
            return
        response = self._response
        if isinstance(response.id, str) and response.id:
            self.upstream_id = response.id
        self._items = [decode_item(raw) for raw in output_of(response)]
        self._lacking = [place for place, item in enumerate(self._items) if _lacks_arguments(item)]
        self.repaired |= bool(self._lacking) or not isinstance(response.status, str)
        status = response.status if isinstance(response.status, str) else "completed"
        if status in ("queued", "in_progress"):
            return  # a run in the background has not ended
        called = any(item.type in _CALLS for item in self._items)
        self.finish_reason = finish_reason_of(response, status, called=called)

    def texts(self) -> list[str]:
        """Return every text the model produced, for counting."""
        texts: list[str] = []
        for item in self._items:
            texts += [text_of(part) for part in (*(item.summary or ()), *(item.content or ()))]
            texts += [text for text in (item.name, item.arguments, item.input) if text]
        return [text for text in texts if text]

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it: its own model id, usage and cost."""
        response = self._response
        wanted = {
            "model": msgspec.json.encode(self._asked.model),
            "usage": settled_usage(bytes(response.usage), bill.usage, bill.in_usage),
        }
        asked = self._asked
        if self.upstream_id is not None and asked.close_id is not None:
            wanted["id"] = msgspec.json.encode(asked.close_id(self.upstream_id))
        elif self.upstream_id is None or asked.hide_provider:
            wanted["id"] = msgspec.json.encode("resp_" + asked.id)
        if asked.previous_id is not None:
            wanted["previous_response_id"] = msgspec.json.encode(asked.previous_id)
        if type(response.created_at) is not int:
            wanted["created_at"] = b"%d" % self._asked.created
        if not isinstance(response.status, str):
            wanted["status"] = b'"completed"'
        members = json_edit.members(self.body)
        edits = json_edit.edits(self.body, members, wanted) + self._call_edits(members)
        body = json_edit.splice(self.body, edits)
        if asked.close_id is not None:
            body = sealed(body, "responses", asked.close_id)
        return with_members(body, bill.beside_usage)

    def _call_edits(self, members: list[Member]) -> list[Edit]:
        """Give calls without arguments an empty object; where they are cut, they stay as they are."""
        if not self._lacking:
            return []
        at = next(member.start for member in reversed(members) if member.key == "output")
        starts = [start for start, _ in json_edit.elements(self.body, at)]
        edits: list[Edit] = []
        for place in self._lacking:
            edits += json_edit.settings(self.body, starts[place], {"arguments": _NO_ARGUMENTS})
        return edits


def _lacks_arguments(item: Item) -> bool:
    return item.type == "function_call" and item.status != "incomplete" and not (item.arguments or "").strip()


def read_answer(body: bytes) -> tuple[Response, StreamError | None]:
    """Decode a plain answer, and the error that came in its place if one did.

    Args:
        body: one JSON object, its characters whole (`whole_characters`).

    Raises:
        DecodeError: it is no response, and no error either.
    """
    response = decode_response(body)
    if response.type == "error" and response.object != "response" and bytes(response.error) == b"null":
        response.error = msgspec.Raw(body)
    error = failed_response(response)
    if error is None and response.object != "response" and bytes(response.output) == b"null":
        raise DecodeError(FORMAT, None, "the answer is not a response")
    return response, error
