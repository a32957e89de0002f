"""Composition root of a worker: builds everything, starts, drains, stops; and routes requests to what serves them."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from sluicegate.billing import tokens
from sluicegate.billing.accounts import KeyRecord
from sluicegate.errors import (
    ClientError,
    InternalError,
    MethodNotAllowed,
    NotImplementedYet,
    Overloaded,
    SluicegateError,
    UnsupportedMedia,
)
from sluicegate.messages import Format
from sluicegate.server import settings_shapes as rows
from sluicegate.server import telemetry
from sluicegate.server.auth import Authenticator
from sluicegate.server.choosing import allowed
from sluicegate.server.client_connection import LINGER_S
from sluicegate.server.credit import Credit
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.exchange import Exchange
from sluicegate.server.file_uploads import FileUpload, answer_upload
from sluicegate.server.generations import answer_generation
from sluicegate.server.idempotency import claim_request
from sluicegate.server.inbound import InboundServer
from sluicegate.server.interpreter import Interpreter
from sluicegate.server.job_messages import JobAsked
from sluicegate.server.job_poll import poll
from sluicegate.server.job_requests import REWORKS, ReworkForm, read_job_request, read_rework
from sluicegate.server.journal import JournalWriter
from sluicegate.server.kept_objects import Shelf
from sluicegate.server.kept_responses import answer_kept
from sluicegate.server.overload import Overload
from sluicegate.server.probe_messages import ProbeAsked
from sluicegate.server.probing import probe
from sluicegate.server.refusals import JSON, answer_headers, error_lines
from sluicegate.server.request_ids import RequestIds
from sluicegate.server.routes import Route, format_of, match
from sluicegate.server.serving.bench import Bench, Plan
from sluicegate.server.serving.request import ServedRequest
from sluicegate.server.settings import WorkerSettings
from sluicegate.server.supervisor_link import SupervisorLink
from sluicegate.server.tab import Till
from sluicegate.server.token_counts import answer_count
from sluicegate.server.unary import UnaryInterpreter, read_form, read_request, takes_form
from sluicegate.server.upload import Upload
from sluicegate.server.upstream_pool import UpstreamPool
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.gemini_models import ListedModel
from sluicegate.wire.model_lists import encode_list, encode_one, shape_of
from sluicegate.wire.unary.multipart import boundary_of

Serving = Coroutine[Any, Any, None]
Listening = tuple[socket.socket, ssl.SSLContext | None]

log = logging.getLogger(__name__)

_PLAIN = b"content-type: text/plain; charset=utf-8\r\n"
MODELS = "/v1/models"
MAY_NAME_KEPT = frozenset({"videos", "video_remix", "batches", "image_edits"}) | REWORKS
"""Endpoints whose requests may name what a provider keeps."""
FRESH_GRACE_S = 1.0
"""How long clients that were let in just before a successor took over have to send their request."""
STOP_GRACE_S = 0.5
"""How long requests that were stopped, and clients that owe us an acknowledgement, have to end."""


class Gateway:
    """Everything one worker serves; implements the inbound side's `App`."""

    def __init__(
        self,
        row: rows.WorkerSettings,
        link: SupervisorLink,
        credit: Credit,
        journal: JournalWriter,
        loop: asyncio.AbstractEventLoop,
        number: int,
    ) -> None:
        """Build it all; nothing listens yet.

        Args:
            row: the settings as they came.
            number: of the worker process; part of every request id.
        """
        settings = WorkerSettings(row)
        self._loop = loop
        self._link = link
        self._credit = credit
        self._journal = journal
        link.journal_failed = lambda: journal.failed
        self._request_ids = RequestIds(number)
        self._deadlines = Deadlines(loop)
        self._pool = UpstreamPool(loop, self._deadlines)
        till = Till(credit, journal, link, synced=settings.journal.sync == "disk")
        till.on_crash = settings.billing.on_crash
        self._bench = Bench(settings, till, self._deadlines, self._pool, number)
        link.on_running_asked = self._bench.running_row
        link.on_job_asked = self._job_asked
        link.on_probe_asked = self._probe_asked
        self._polls: set[asyncio.Task[None]] = set()
        self._auth = Authenticator(link, settings.key_secret)
        self._inbound = InboundServer(self, settings.server, self._deadlines, loop)
        self._overload = Overload(
            settings.server, self._deadlines, lambda: len(self._bench.running) + self._bench.queue.waiting
        )
        self._started_at = int(time.time())
        self._adopted: dict[int, list[socket.socket]] = {}
        self._draining = False

    # ---- life -------------------------------------------------------------------------------------------------------

    async def start(self, listening: Iterable[Listening]) -> None:
        """Begin to accept."""
        tokens.warm_up()
        for sock, tls in listening:
            await self._inbound.listen(sock, tls)

    async def adopt(self, slot: int, listening: Sequence[Listening]) -> None:
        """Accept from another slot's sockets too."""
        self._adopted[slot] = [sock for sock, _ in listening]
        for sock, tls in listening:
            await self._inbound.listen(sock, tls)

    def release(self, slot: int) -> None:
        """Accept no more from another slot's sockets; its connections that are here stay."""
        for sock in self._adopted.pop(slot, ()):
            self._inbound.unlisten(sock)

    def apply(self, row: rows.WorkerSettings) -> None:
        """Go on with other settings; running requests keep those they began with."""
        settings = WorkerSettings(row)
        self._bench.plan = Plan(settings)
        self._bench.deployments.apply(settings)
        self._bench.limits.apply(settings.account_limits)
        self._bench.till.on_crash = settings.billing.on_crash
        self._inbound.settings = settings.server
        self._overload.apply(settings.server)
        self._auth = Authenticator(self._link, settings.key_secret)
        self._inbound.heads.clear()  # they hold hashes under the secret that was

    async def drain(self, timeout_s: float, *, succeeded: bool = False) -> None:
        """Refuse new requests, and return when the running ones have ended, by themselves or at the limit.

        Args:
            succeeded: another process has taken the sockets over; who was let in just before is still served.
                Without one, new connections are taken meanwhile, so that their requests are told 503 instead of
                waiting in a queue that nobody serves; and so are those whose body is still on its way.
        """
        due_at = self._loop.time() + timeout_s
        if succeeded:
            self._inbound.stop_accepting()
            fresh_until = min(due_at, self._loop.time() + FRESH_GRACE_S)
            while self._inbound.close_idle(but_fresh=True) and self._loop.time() < fresh_until:
                await asyncio.sleep(0.05)
        self._draining = True
        self._inbound.close_idle()
        restarting = Overloaded("The gateway is restarting.")
        if not succeeded:
            self._inbound.refuse_unread(restarting)
        while self._inbound.busy and self._loop.time() < due_at:
            await asyncio.sleep(0.05)
        self._inbound.refuse_unread(restarting)
        for request in list(self._bench.running):
            request.stop(restarting)
        due_at = self._loop.time() + STOP_GRACE_S
        while self._bench.running and self._loop.time() < due_at:
            await asyncio.sleep(0.01)
        self._inbound.stop_all(restarting)
        self._inbound.stop_accepting()
        self._inbound.close_idle()
        try:
            async with asyncio.timeout(LINGER_S if self._inbound.parting else STOP_GRACE_S):
                await self._inbound.wait_closed()
        except TimeoutError:
            self._inbound.abort_all()  # clients that do not take the last bytes

    def close(self) -> None:
        """Let go of everything."""
        for task in self._polls:
            task.cancel()
        self._pool.close()
        self._deadlines.close()

    def _job_asked(self, asked: JobAsked) -> None:
        """Ask a provider how a job is: the supervisor wants to know."""
        task = self._loop.create_task(self._poll_job(asked))
        self._polls.add(task)
        task.add_done_callback(self._polls.discard)

    async def _poll_job(self, asked: JobAsked) -> None:
        targets = self._bench.plan.targets
        self._link.send(await poll(self._pool, targets, asked.object, asked.question, polled=True))

    def _probe_asked(self, asked: ProbeAsked) -> None:
        """Probe a provider: the supervisor wants to know."""
        task = self._loop.create_task(self._probe(asked))
        self._polls.add(task)
        task.add_done_callback(self._polls.discard)

    async def _probe(self, asked: ProbeAsked) -> None:
        self._link.send(await probe(self._bench, asked))

    def counters(self) -> dict[str, list[Any]]:
        """Return a snapshot for the metrics."""
        tally = self._bench.tally
        tally.set(telemetry.CONNECTIONS, len(self._inbound.connections))
        tally.set(telemetry.RUNNING, len(self._bench.running))
        tally.set(telemetry.STREAMS, sum(request.streaming for request in self._bench.running))
        tally.set(telemetry.LOOP_LAG, self._overload.lag_s)
        tally.set(telemetry.MEMORY, self._overload.memory_bytes)
        tally.set(telemetry.OVERLOADED, self._overload.refused)
        tally.set(telemetry.LIMIT_WAITS, self._bench.limits.asked)
        tally.set(telemetry.QUEUED, self._bench.queue.waiting)
        tally.set(telemetry.LEASE_WAITS, self._credit.waits)
        tally.set(telemetry.JOURNALS_FAILED, int(self._journal.failed))
        tally.set(telemetry.JOURNAL_FAILURES, self._journal.failures)
        tally.set(telemetry.LEASE_REFUSALS, self._credit.refusals)
        return tally.snapshot()

    # ---- requests ---------------------------------------------------------------------------------------------------

    def head_received(self, exchange: Exchange) -> None:
        """Answer what needs no body, and refuse early what can be refused by its head."""
        try:
            route = exchange.memo.route
            if route is None:
                route = self._read_route(exchange)
                if route is None:
                    return
            if self._draining:
                exchange.closing = True
                raise Overloaded("The gateway is restarting.")
            self._overload.check()
            exchange.route = route
            exchange.caller = self._auth.find_now(exchange)
            if exchange.caller is None and not exchange.complete:
                self._loop.create_task(self._refuse_stranger(exchange))
        except SluicegateError as error:
            self._refuse(exchange, error)

    def _read_route(self, exchange: Exchange) -> Route | None:
        """Return what a request asks for, made ready to take its body; None where it has been answered.

        Raises:
            ClientError: it cannot be served, as its head says.
        """
        if exchange.method == "OPTIONS":
            self._answer_options(exchange)
            return None
        route = match(exchange.method, exchange.path, exchange.query)
        if route.kind == "probe":
            self._answer_probe(exchange)
            return None
        coding = exchange.header(b"content-encoding")
        if coding is not None and coding.lower() != b"identity":
            raise UnsupportedMedia("Request bodies with a Content-Encoding are not supported.")
        if route.kind == "generate":
            exchange.memo.route = route
        elif takes_form(route, exchange.header(b"content-type")):
            boundary = boundary_of(exchange.header(b"content-type"))
            kind = ReworkForm if route.endpoint in REWORKS else Upload
            exchange.body_sink = kind(exchange, boundary, exchange.max_body_bytes)
            exchange.max_body_bytes = self._inbound.settings.max_upload_bytes
        elif route.kind == "upload":
            boundary = boundary_of(exchange.header(b"content-type"))
            exchange.body_sink = FileUpload(exchange, boundary, exchange.max_body_bytes)
            exchange.max_body_bytes = self._inbound.settings.max_upload_bytes
        return route

    async def _refuse_stranger(self, exchange: Exchange) -> None:
        """Tell a caller whose key nobody knows at once, and not only when its whole body has come."""
        try:
            await self._auth.find(exchange)
        except ClientError as error:
            if not exchange.answered and not exchange.gone and not exchange.complete:
                self._refuse(exchange, error)
        except SluicegateError:
            return  # the request itself will be told

    def handle(self, exchange: Exchange) -> Serving | None:
        """Begin to serve one whole request: what is returned runs as long as it does; None where it runs by itself."""
        exchange.request_id = self._request_ids.new()
        key, route = exchange.caller, exchange.route
        assert isinstance(route, Route)
        if not isinstance(key, KeyRecord):
            return self._find_and_serve(exchange, route)
        if route.kind != "generate":
            return self._serve(exchange, key, route, exchange.request_id)
        request = self._read(exchange, key, route)
        return (
            request.begin() if exchange.idempotency_key is None else self._serve_once(exchange, key, request)
        )

    async def _find_and_serve(self, exchange: Exchange, route: Route) -> None:
        key = await self._auth.find(exchange)
        if route.kind != "generate":
            await self._serve(exchange, key, route, exchange.request_id)
        else:
            await self._serve_request(exchange, key, self._read(exchange, key, route))

    def failed(self, exchange: Exchange, error: Exception) -> None:
        """Answer a request that was refused, or that a fault of ours broke."""
        if isinstance(error, SluicegateError):
            self._refuse(exchange, error, exchange.request_id)
            return
        log.error("a request failed inside the gateway: %s", exchange.request_id, exc_info=error)
        fault = InternalError("The gateway failed; this is not your fault.")
        self._refuse(exchange, fault, exchange.request_id)

    def _read(self, exchange: Exchange, key: KeyRecord, route: Route) -> ServedRequest:
        """Read a request for text. Raises BadRequest."""
        interpreter = Interpreter(
            route.format,
            exchange.body,
            key.translation or self._bench.plan.settings.translation,
            route.model,
            route.stream,
            route.array,
            thoughts=self._bench.thoughts,
            account_id=key.account_id,
            fetches=self._bench.plan.settings.fetches_media,
        )
        return ServedRequest(self._bench, exchange, key, exchange.request_id, interpreter)

    async def _serve(self, exchange: Exchange, key: KeyRecord, route: Route, request_id: str) -> None:
        if route.kind == "unary":
            policy = key.translation or self._bench.plan.settings.translation
            upload = exchange.body_sink
            size = exchange.content_length or exchange.body_bytes
            if isinstance(upload, ReworkForm):
                shelf = Shelf(self._bench, exchange, key, request_id)
                asked, passes = await read_rework(route, upload, size, shelf)
                upload = upload if passes else None
            elif isinstance(upload, Upload):
                asked = await read_form(route, upload, size)
            elif route.endpoint in MAY_NAME_KEPT:
                shelf = Shelf(self._bench, exchange, key, request_id)
                upload, asked = None, await read_job_request(route, exchange.body, shelf)
            else:
                upload, asked = None, read_request(route, exchange.body)
            fetches = self._bench.plan.settings.fetches_media
            unary = UnaryInterpreter(route, asked, policy, upload, fetches=fetches)
            request = ServedRequest(self._bench, exchange, key, request_id, unary)
            await self._serve_request(exchange, key, request)
        elif route.kind == "count_tokens":
            body = await answer_count(self._bench, exchange, key, route)
            if not exchange.gone:
                exchange.respond(200, JSON + answer_headers(request_id), body)
        elif route.kind == "response":
            body = await answer_kept(self._bench, exchange, key, route)
            if not exchange.gone:
                exchange.respond(200, JSON + answer_headers(request_id), body)
        elif route.kind == "objects":
            await Shelf(self._bench, exchange, key, request_id).answer(route)
        elif route.kind == "upload":
            await answer_upload(self._bench, exchange, key, request_id)
        elif route.kind == "generation":
            body = await answer_generation(self._bench, self._link, key, route.id)
            if not exchange.gone:
                exchange.respond(200, JSON + answer_headers(request_id), body)
        elif route.kind in ("models", "model"):
            self._answer_models(exchange, key, route, request_id)
        else:
            raise NotImplementedYet("This endpoint is not served yet.")

    def _serve_request(self, exchange: Exchange, key: KeyRecord, request: ServedRequest) -> Serving:
        if exchange.idempotency_key is None:
            return request.serve()
        return self._serve_once(exchange, key, request)

    async def _serve_once(self, exchange: Exchange, key: KeyRecord, request: ServedRequest) -> None:
        """Serve a request that brings an `Idempotency-Key`, unless one before it did."""
        secret = self._bench.plan.settings.key_secret
        upload = exchange.body_sink
        asked, whole = upload.identity() if isinstance(upload, Upload) else (exchange.body, True)
        claimed = await claim_request(
            self._link, secret, exchange, key, request.request_id, asked, whole=whole
        )
        if claimed is None:
            return
        request.claimed = claimed
        try:
            await request.serve()
        finally:
            tab = request.tab
            settled = tab is not None and tab.settled
            await claimed.end(
                tab.row if tab is not None and settled else None, owed=tab is not None and tab.owed
            )

    def _answer_models(self, exchange: Exchange, key: KeyRecord, route: Route, request_id: str) -> None:
        catalogue = self._bench.plan.settings.catalogue
        shape = shape_of("v1" if route.format == "chat" else "v1beta", exchange.headers)

        def find(model_id: str) -> ListedModel | None:
            model = catalogue.find(model_id)
            if model is None or not allowed(key, model_id, model):
                return None
            return ListedModel(id=model_id, output_tokens=model.max_output_tokens)

        if route.kind == "model":
            body = encode_one(shape, route.model or "", find, self._started_at)
        else:
            listed = [found for model_id in sorted(catalogue.models) if (found := find(model_id)) is not None]
            body = encode_list(shape, listed, self._started_at, exchange.query)
        exchange.respond(200, JSON + answer_headers(request_id), body)

    def protocol_error(self, exchange: Exchange | None, error: SluicegateError) -> tuple[bytes, bytes]:
        """Return header lines and body of the answer to what the HTTP layer refuses by itself."""
        self._bench.tally.add(telemetry.REFUSED, 1, error.kind)
        request_id = self._request_ids.new()
        codec = FORMATS["chat" if exchange is None else _error_format(exchange)]
        _, body = codec.encode_error(error, request_id)
        return JSON + answer_headers(request_id) + error_lines(error, 0), body

    def _refuse(self, exchange: Exchange, error: SluicegateError, request_id: str | None = None) -> None:
        if exchange.gone or exchange.ended:
            return
        self._bench.tally.add(telemetry.REFUSED, 1, error.kind)
        request_id = request_id or self._request_ids.new()
        if exchange.answered:
            # The head is out, and whoever knew how the answer is framed has failed: it must not look complete.
            exchange.cut()
            return
        status, body = FORMATS[_error_format(exchange)].encode_error(error, request_id)
        exchange.respond(status, JSON + answer_headers(request_id) + error_lines(error, 0), body)

    def _answer_options(self, exchange: Exchange) -> None:
        """Tell which methods a path has. Raises PathUnknown."""
        try:
            match("OPTIONS", exchange.path, exchange.query)
        except MethodNotAllowed as error:
            exchange.respond(204, b"allow: %b, OPTIONS\r\n" % error.allow.encode(), b"")

    def _answer_probe(self, exchange: Exchange) -> None:
        if exchange.path == "/readyz" and (self._draining or self._journal.failed or not self._link.ready):
            exchange.respond(503, _PLAIN, b"not ready\n")
        else:
            exchange.respond(200, _PLAIN, b"ok\n" if exchange.path != "/" else b"sluicegate\n")


def _error_format(exchange: Exchange) -> Format:
    """Return the format in which a request's errors are told; three vendors share the paths of models."""
    format = format_of(exchange.path)
    if format == "chat" and (exchange.path == MODELS or exchange.path.startswith(MODELS + "/")):
        return shape_of("v1", exchange.headers)
    return format


def make_gateway(
    settings: rows.WorkerSettings,
    link: SupervisorLink,
    credit: Credit,
    journal: JournalWriter,
    loop: asyncio.AbstractEventLoop,
    number: int,
) -> Gateway:
    """Build what a worker process serves."""
    return Gateway(settings, link, credit, journal, loop, number)
