"""What the admin port answers: whether the gate lives, whether it serves, and its metrics; with a token the API.

The first three need none, as probes and scrapers have none; they tell nothing of keys, accounts or prompts.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sluicegate.errors import SluicegateError
from sluicegate.server.admin.ledger_api import ledger_routes
from sluicegate.server.admin.metrics import metrics_text
from sluicegate.server.control_socket import ask_supervisor

NO_STORE = {"cache-control": "no-store"}

Ask = Callable[[str], Awaitable[Any]]


def admin_app(journal_dir: Path, store_url: str, token: str | None) -> Starlette:
    """Build the application around the supervisor's control socket.

    Args:
        token: of the API; None: health and metrics only.
    """

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n", headers=NO_STORE)

    async def readyz(request: Request) -> Response:
        try:
            status = await ask_supervisor(journal_dir, "status")
        except SluicegateError as error:
            return _not_ready(error.message)
        if status["draining"]:
            return _not_ready("draining")
        serving = [worker for worker in status["workers"] if worker["serving"]]
        if not serving:
            return _not_ready("no worker serves")
        if all(worker["journal_failed"] for worker in serving):
            return _not_ready("the journals' disk has failed")
        if not status["store_answers"]:
            return _not_ready("the store does not answer")
        return PlainTextResponse("ready\n", headers=NO_STORE)

    async def metrics(request: Request) -> Response:
        try:
            snapshot = await ask_supervisor(journal_dir, "metrics")
        except SluicegateError as error:
            return PlainTextResponse(f"{error.message}\n", 503, headers=NO_STORE)
        text, content_type = metrics_text(snapshot, request.headers.get("accept", ""))
        return Response(text, headers={**NO_STORE, "content-type": content_type})

    routes = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]
    if token is not None:
        routes += ledger_routes(journal_dir, store_url, token)
    return Starlette(routes=routes)


def _not_ready(why: str) -> Response:
    return PlainTextResponse(f"not ready: {why}\n", 503, headers=NO_STORE)
