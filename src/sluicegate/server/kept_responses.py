"""Answers that are kept, by their ids: `GET` and `DELETE /v1/responses/{id}`, their input items, and `cancel`.

What a provider keeps is asked of that provider, in its own words but for ids and the model's name; what the gate keeps
is `own_responses`'s. Neither is charged: the answer was, when it was made. Source: wire formats page `responses.md`,
"State".
"""

from urllib.parse import parse_qsl, urlencode

import msgspec

from sluicegate.billing.accounts import KeyRecord
from sluicegate.errors import BadRequest, StateUnknown
from sluicegate.server import own_responses
from sluicegate.server.background import run_name, runs_on
from sluicegate.server.exchange import Exchange
from sluicegate.server.kept_questions import ask
from sluicegate.server.routes import Route
from sluicegate.server.serving.bench import Bench
from sluicegate.wire import json_edit
from sluicegate.wire.kept_ids import sealed
from sluicegate.wire.sealed_id import Kept, is_sealed

_PASSED = frozenset({"after", "before", "limit", "order", "include", "include[]"})
"""What a query may say to a provider."""
_ITEM_IDS = frozenset({"after", "before"})


async def answer_kept(bench: Bench, exchange: Exchange, key: KeyRecord, route: Route) -> bytes:
    """Return the body of the answer.

    Raises:
        StateUnknown: no such answer, or another account's.
        UpstreamError: its provider does not tell.
    """
    kept = bench.plan.seal.open(key.account_id, route.id)
    if kept is None:
        if not bench.plan.settings.responses_store.enabled or is_sealed(route.id):
            raise unknown_response(route.id)
        return await _own(bench, exchange, key, route)
    query = _query(bench, key, exchange.query)
    body = await _ask_provider(bench, exchange, kept, route, query)
    return _told(bench, key, kept, route, body)


async def _own(bench: Bench, exchange: Exchange, key: KeyRecord, route: Route) -> bytes:
    """Return what is asked of an answer that we keep ourselves."""
    link = bench.till.link
    if exchange.method == "DELETE":
        if not await own_responses.drop(link, key.account_id, route.id):
            raise unknown_response(route.id)
        return b'{"id":%b,"object":"response","deleted":true}' % json_edit.dumps(route.id)
    listed = route.part == "input_items"
    turns = await own_responses.find(link, key.account_id, route.id, whole=listed)
    if not turns:
        raise unknown_response(route.id)
    if route.part == "cancel":
        raise BadRequest("Only an answer that is made in the background can be cancelled.", param="id")
    if listed:
        return own_responses.page(turns, exchange.query)
    _query(bench, key, exchange.query)
    return turns[-1].response


def unknown_response(id: str) -> StateUnknown:
    """Return the error for an id under which no answer is kept."""
    return StateUnknown(f"Response with id '{id[:100]}' not found.", param="id")


async def _ask_provider(bench: Bench, exchange: Exchange, kept: Kept, route: Route, query: str) -> bytes:
    """Ask the provider that keeps an answer; return the JSON object that it tells.

    Raises:
        StateUnknown: it keeps none.
        UpstreamError: it did not answer, or not well.
    """
    provider = bench.plan.settings.catalogue.providers[kept.provider]
    if "responses" not in provider.speaks:
        raise unknown_response(route.id)
    target = bench.plan.targets.get(provider.name, "responses", "")
    suffix = f"/{kept.id}" + (f"/{route.part}" if route.part else "")
    try:
        body = await ask(bench.pool, target, exchange.method, suffix, query)
    except StateUnknown:
        raise unknown_response(route.id) from None
    if _is_run_ended(body) and await own_responses.is_open(bench.till.link, run_name(kept.provider, kept.id)):
        # Nothing that completes an answer leaves before it is settled, and its poll will come soon.
        unsettled = {"status": b'"in_progress"', "output": b"[]", "usage": b"null"}
        return json_edit.changed(body, unsettled)
    return body


def _is_run_ended(body: bytes) -> bool:
    top = json_edit.decode_top(body, "responses")
    return bytes(top.get("background", b"")) == b"true" and not runs_on(body)


def _query(bench: Bench, key: KeyRecord, query: str) -> str:
    """Return what a provider is told of the client's query. Raises BadRequest."""
    passed: list[tuple[str, str]] = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "stream" and value.lower() not in ("", "false", "0"):
            raise BadRequest("A kept answer cannot be streamed by this gateway.", param="stream")
        if name in _ITEM_IDS:
            item = bench.plan.seal.open(key.account_id, value)
            value = value if item is None else item.id
        if name in _PASSED:
            passed.append((name, value))
    return urlencode(passed)


def _told(bench: Bench, key: KeyRecord, kept: Kept, route: Route, body: bytes) -> bytes:
    """Return a provider's answer with our ids, and the model as it was asked for."""

    def close(id: str) -> str:
        return bench.plan.seal.close(key.account_id, kept.provider, id, kept.model)

    top = json_edit.decode_top(body, "responses")
    wanted: dict[str, bytes] = {}
    for name in ("first_id", "last_id"):
        if name in top and bytes(top[name])[:1] == b'"':
            wanted[name] = json_edit.dumps(close(msgspec.json.decode(top[name], type=str)))
    if route.part != "input_items":
        wanted["id"] = json_edit.dumps(route.id)
        if kept.model and "model" in top:
            wanted["model"] = json_edit.dumps(kept.model)
    return sealed(json_edit.changed(body, wanted), "responses", close)
