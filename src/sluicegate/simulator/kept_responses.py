"""Answers that the simulated provider keeps: what a Responses client may go on from, ask for by id, delete or cancel.

Every answer is kept unless the request says `store: false`. A run in the background is done once it has been asked for
so often as `polls` says. Source: wire/responses.md, "State".
"""

from typing import Any

import msgspec

from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats import Ask, responses
from sluicegate.simulator.record import Received
from sluicegate.simulator.script import Script

_MARK = "/responses/"
MAX_KEPT = 1000

Response = dict[str, Any]


class _Kept:
    """One answer, and what led to it."""

    def __init__(self, response: Response, items: list[Any], polls: int) -> None:
        self.response = response
        self.items = items
        """All input items, those of the answers before it first."""
        self.polls = polls
        """How often a run is still said to be under way."""
        self.cancelled = False

    def told(self) -> Response:
        if self.cancelled:
            return self.response | {"status": "cancelled", "output": [], "usage": None}
        if self.polls > 0:
            self.polls -= 1
            return self.response | {"status": "in_progress", "output": [], "usage": None}
        return self.response


class KeptResponses:
    """All answers that are kept, by their ids."""

    def __init__(self) -> None:
        self.polls = 1
        """How often a run in the background is said to be under way before it is done."""
        self._kept: dict[str, _Kept] = {}

    def ids(self) -> list[str]:
        """Return the ids of what is kept, oldest first."""
        return list(self._kept)

    def hold(self, response: Response, items: list[Any]) -> None:
        """Keep an answer that was made elsewhere.

        Args:
            items: all input items that led to it.
        """
        self._kept[response["id"]] = _Kept(response, items, 0)

    def refusal(self, body: dict[str, Any]) -> Script | None:
        """Return the answer to a request that goes on from what is not kept."""
        previous = body.get("previous_response_id")
        if previous is None or previous in self._kept:
            return None
        message = f"Previous response with id '{previous}' not found."
        return Script(name="unknown previous response", status=400, message=message)

    def keep(self, record: Received, body: dict[str, Any], answer: Answer, ask: Ask) -> Script | None:
        """Keep what is answered; return what is told instead, where the run goes on in the background."""
        if body.get("store") is False:
            return None
        number = f"{record.number:012d}"
        response = msgspec.json.decode(responses.plain(answer, ask).replace(ID.encode(), number.encode()))
        background = body.get("background") is True
        response |= {"store": True, "background": background}
        kept = _Kept(response, self._items(body), self.polls if background else 0)
        while len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[response["id"]] = kept
        if not background:
            return None
        queued = response | {"status": "queued", "output": [], "usage": None}
        return Script(name="queued", body=msgspec.json.encode(queued).decode())

    def _items(self, body: dict[str, Any]) -> list[Any]:
        previous = self._kept.get(body.get("previous_response_id") or "")
        before = [] if previous is None else [*previous.items, *previous.response["output"]]
        given = body.get("input") or []
        if isinstance(given, str):
            text = {"type": "input_text", "text": given}
            given = [{"type": "message", "role": "user", "content": [text]}]
        number = len(self._kept)
        return before + [{"id": f"item_{number}_{place}"} | item for place, item in enumerate(given)]

    def answer(self, record: Received) -> Script | None:
        """Return the answer to a request about one that is kept; None where the path names none."""
        _, found, rest = record.path.partition(_MARK)
        id, _, part = rest.partition("/")
        if not found or id == "input_tokens":
            return None
        kept = self._kept.get(id)
        if kept is None:
            message = f"Response with id '{id}' not found."
            return Script(name="unknown response", status=404, message=message)
        match record.method, part:
            case "GET", "":
                told: Response = kept.told()
            case "GET", "input_items":
                ids = [item["id"] for item in kept.items]
                told = {"object": "list", "data": kept.items, "has_more": False}
                told |= {"first_id": ids[0], "last_id": ids[-1]}
            case "DELETE", "":
                del self._kept[id]
                told = {"id": id, "object": "response", "deleted": True}
            case "POST", "cancel":
                if not kept.response["background"]:
                    return Script(name="not cancelled", status=400, message="Cannot cancel this response.")
                kept.cancelled = kept.cancelled or kept.polls > 0
                told = kept.told()
            case _:
                return Script(name="unknown method", status=405, message="Not allowed here.")
        return Script(name="kept response", body=msgspec.json.encode(told).decode())
