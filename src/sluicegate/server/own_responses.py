"""Answers that the gate itself keeps for Responses clients, as a worker sees them.

Where a provider does not speak Responses, and `responses_store` is on, an answer is kept here: by the supervisor, over
the control connection. Going on from one puts the conversation so far in front of the new input, thoughts and calls
included, so that any provider can be asked, and is paid for what it reads. Source: wire formats page `responses.md`,
"State".
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from sluicegate.errors import BadRequest, StoreUnavailable
from sluicegate.server.control import MAX_WORKER_FRAME_BYTES
from sluicegate.server.control_messages import (
    ResponseAnswer,
    ResponseAsked,
    ResponseDropped,
    ResponseKept,
    RunAsked,
)
from sluicegate.server.supervisor_link import SupervisorLink
from sluicegate.store import KeptResponse
from sluicegate.wire import json_edit
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.kept_ids import is_reference, places, reference_at

MAX_KEPT_BYTES = MAX_WORKER_FRAME_BYTES - 65_536
"""Of one answer and its input; a larger one is not kept."""
_ITEM_ID = re.compile(r"[a-z]+_([0-9a-f]{36,})[0-9a-f]{4}\Z")
"""Of an item of ours: its answer's own id is in it."""
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
PAGE_ITEMS = 20
MAX_PAGE_ITEMS = 100
_NUMBER = re.compile(r"[0-9]{1,9}")


class Keeping(NamedTuple):
    """What will be kept of one request, once it is answered."""

    link: SupervisorLink
    account_id: str
    id: str
    previous: str | None
    """Of the answer of ours that it goes on from."""
    input: bytes
    """The items that it adds, a JSON array."""

    async def keep(self, told: bytes, *, stream: bool) -> None:
        """Keep an answer; a failure leaves the answer as it is, and its id unknown.

        Args:
            told: the whole body, or, of a stream, at least its terminal event.
        """
        response = _response_of(told) if stream else told
        if response is None or len(self.input) + len(response) > MAX_KEPT_BYTES:
            return
        kept = KeptResponse(
            id=self.id,
            account_id=self.account_id,
            previous=self.previous,
            input=self.input,
            response=response,
        )
        try:
            await _ask(self.link, ResponseKept(self.link.next_question(), kept))
        except StoreUnavailable:
            return


def _response_of(told: bytes) -> bytes | None:
    """Return the response that a stream's last event tells."""
    payload = told.rpartition(b"\ndata: ")[2].strip()
    found = json_edit.decode_top(payload, "responses").get("response") if payload.startswith(b"{") else None
    return None if found is None else bytes(found)


async def _ask(
    link: SupervisorLink, question: ResponseAsked | ResponseKept | ResponseDropped
) -> ResponseAnswer:
    return await link.ask_keeper(question)


async def find(link: SupervisorLink, account_id: str, id: str, *, whole: bool) -> list[KeptResponse]:
    """Return an answer that is kept, the conversation before it first where that is wanted; empty: there is none.

    Raises:
        StoreUnavailable: nobody could say in time.
    """
    return (await _ask(link, ResponseAsked(link.next_question(), account_id, id, whole))).found


async def is_open(link: SupervisorLink, run: str) -> bool:
    """Whether a run in the background is not settled yet, in any worker. Raises StoreUnavailable."""
    return (await link.ask_keeper(RunAsked(link.next_question(), run))).done


async def drop(link: SupervisorLink, account_id: str, id: str) -> bool:
    """Delete an answer; False where there was none. Raises StoreUnavailable."""
    return (await _ask(link, ResponseDropped(link.next_question(), account_id, id))).done


async def with_own_items(link: SupervisorLink, account_id: str, body: bytes) -> bytes:
    """Return a request in which items of answers that we keep stand in place of references to them.

    Raises:
        StoreUnavailable: nobody could say in time.
    """
    edits: list[Edit] = []
    for place in places(body, "responses"):
        owner = _ITEM_ID.match(place.id) if place.item and is_reference(body, place) else None
        if owner is None:
            continue
        for turn in await find(link, account_id, f"resp_{owner[1]}", whole=False):
            for item in _decode_items(json_edit.decode_top(turn.response, "responses")["output"]):
                told = json_edit.decode_top(bytes(item), "responses").get("id")
                if told is not None and bytes(told) == json_edit.dumps(place.id):
                    edits.append((*reference_at(body, place), bytes(item)))
    return json_edit.splice(body, edits)


def input_of(body: bytes) -> bytes:
    """Return a request's input as a JSON array of items."""
    raw = bytes(json_edit.decode_top(body, "responses").get("input", msgspec.Raw(b"null")))
    if raw == b"null":
        return b"[]"
    if raw.startswith(b'"'):
        return b'[{"type":"message","role":"user","content":[{"type":"input_text","text":%b}]}]' % raw
    return raw


def context(turns: Sequence[KeptResponse], added: bytes = b"[]") -> bytes:
    """Return all items of a conversation in order, a JSON array.

    Args:
        added: what the new request adds, an array too.
    """
    arrays: list[bytes] = []
    for turn in turns:
        output = json_edit.decode_top(turn.response, "responses").get("output", msgspec.Raw(b"[]"))
        arrays += (turn.input, bytes(output))
    inner = [array.strip()[1:-1].strip() for array in (*arrays, added)]
    return b"[%b]" % b",".join(items for items in inner if items)


def continued(body: bytes, turns: Sequence[KeptResponse]) -> bytes:
    """Return a request that says all of the conversation that it goes on from."""
    return json_edit.changed(body, {"input": context(turns, input_of(body))}, {"previous_response_id"})


def page(turns: Sequence[KeptResponse], query: str) -> bytes:
    """Return the input items of the last of these turns, a page of them, as the vendor lists them.

    Raises:
        BadRequest: of a query that cannot be.
    """
    asked = dict(parse_qsl(query))
    last = turns[-1]
    items: list[dict[str, Any]] = msgspec.json.decode(context(turns[:-1], last.input))
    for place, item in enumerate(items):
        item.setdefault("type", "message")
        if not item.get("id"):
            item["id"] = f"item_{last.id.removeprefix('resp_')}_{place}"
        if isinstance(item.get("content"), str):
            kind = "output_text" if item.get("role") == "assistant" else "input_text"
            item["content"] = [{"type": kind, "text": item["content"]}]
    if asked.get("order", "desc") == "desc":
        items.reverse()
    after = asked.get("after")
    if after is not None:
        places = [place for place, item in enumerate(items) if item["id"] == after]
        items = items[places[0] + 1 :] if places else []
    given = asked.get("limit", str(PAGE_ITEMS))
    if not _NUMBER.fullmatch(given) or not 1 <= int(given) <= MAX_PAGE_ITEMS:
        raise BadRequest(f"Invalid 'limit': must be between 1 and {MAX_PAGE_ITEMS}.", param="limit")
    shown = items[: int(given)]
    told = {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(shown) < len(items),
    }
    return json_edit.dumps(told)
