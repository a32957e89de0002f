"""The ledger's part of the admin API: refunds and corrections, proof, anchors, statements. Needs the admin token.

Reading opens the store as any command does; writing is asked of the supervisor. Amounts are whole nano-USD.
"""

import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sluicegate.errors import BadRequest, SluicegateError, Unauthenticated
from sluicegate.server.control_socket import ask_supervisor
from sluicegate.store import Store, open_store
from sluicegate.store.shapes import month_of, read_anchor, show_anchor, show_report, show_statement

T = TypeVar("T")
MAX_BODY_BYTES = 65_536

Answer = Callable[[Request], Awaitable[Any]]


def ledger_routes(journal_dir: Path, store_url: str, token: str) -> list[Route]:
    """Return the routes below `/api/v1/ledger`."""

    async def read(work: Callable[[Store], Awaitable[T]]) -> T:
        store = open_store(store_url)
        await store.open(read_only=True)
        try:
            return await work(store)
        finally:
            await store.close()

    async def refund(request: Request) -> Any:
        given = await _body(request)
        return _moved(await ask_supervisor(journal_dir, "requests.refund", given))

    async def adjust(request: Request) -> Any:
        given = await _body(request)
        return _moved(await ask_supervisor(journal_dir, "accounts.adjust", given))

    async def verification(request: Request) -> Any:
        anchors = [read_anchor(text) for text in request.query_params.getlist("anchor")]
        return show_report(await read(lambda store: store.verify(anchors)))

    async def anchors(request: Request) -> Any:
        return {"anchors": [show_anchor(anchor) for anchor in await read(lambda store: store.anchors())]}

    async def statement(request: Request) -> Any:
        since, until = month_of(request.query_params.get("month"))
        account = request.path_params["account"]
        return show_statement(await read(lambda store: store.statement(account, since, until)))

    at = "/api/v1/ledger"
    return [
        Route(f"{at}/refunds", _guarded(refund, token), methods=["POST"]),
        Route(f"{at}/adjustments", _guarded(adjust, token), methods=["POST"]),
        Route(f"{at}/verification", _guarded(verification, token)),
        Route(f"{at}/anchors", _guarded(anchors, token)),
        Route(f"{at}/statements/{{account:path}}", _guarded(statement, token)),
    ]


def _guarded(answer: Answer, token: str) -> Callable[[Request], Awaitable[Response]]:
    """Let in who has the token, and tell errors as JSON."""

    async def endpoint(request: Request) -> Response:
        try:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), token.encode()):
                raise Unauthenticated("The admin API needs the admin token as a bearer token.")
            return _json(await answer(request))
        except SluicegateError as error:
            return _json({"error": {"code": error.kind, "message": error.message}}, error.status)

    return endpoint


async def _body(request: Request) -> dict[str, Any]:
    """Read what is asked for; amounts are spelled out, `amount_nano_usd`.

    Raises:
        BadRequest: it is no JSON object, or too long.
    """
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MAX_BODY_BYTES:
            raise BadRequest(f"the body is longer than {MAX_BODY_BYTES} bytes")
    try:
        given = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body must be a JSON object: {error}") from None
    if "leased_nano" in given or "amount_nano" in given:
        raise BadRequest("the amount is called amount_nano_usd")
    if "amount_nano_usd" in given:
        given["amount_nano"] = given.pop("amount_nano_usd")
    return given


def _moved(done: dict[str, Any]) -> dict[str, Any]:
    account = done["account"]
    told = {name: done[name] for name in ("amount_nano_usd", "posted", "reference")}
    return {"account": account["id"], "balance_nano_usd": account["balance_nano_usd"], **told}


def _json(value: Any, status: int = 200) -> Response:
    headers = {"cache-control": "no-store", "content-type": "application/json"}
    return Response(msgspec.json.encode(value), status, headers=headers)
