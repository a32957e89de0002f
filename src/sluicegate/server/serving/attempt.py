"""One attempt of a request: say it as the provider wants it, connect, send, read what came back."""

import asyncio
import os
import time
from urllib.parse import quote

from sluicegate.errors import (
    DecodeError,
    SluicegateError,
    UpstreamError,
    UpstreamGarbled,
    UpstreamTimeout,
)
from sluicegate.messages import Shape
from sluicegate.routing.catalog import Deployment, Model, Provider, StreamClocks
from sluicegate.routing.health import CLOSED
from sluicegate.routing.retry import Attempt, Progress, may_have_cost, next_attempt
from sluicegate.server import continuous, own_responses, telemetry
from sluicegate.server.choosing import Served
from sluicegate.server.deployments import Standing
from sluicegate.server.interpreter import Interpreter
from sluicegate.server.kept_state import KEEPING, closing
from sluicegate.server.own_responses import Keeping
from sluicegate.server.plain_relay import PlainRelay
from sluicegate.server.refusals import JSON
from sluicegate.server.relay import Ending, Relay
from sluicegate.server.serving.running import RunningRequest
from sluicegate.server.stream_relay import StreamRelay
from sluicegate.server.targets import Target
from sluicegate.server.unary import UnaryInterpreter
from sluicegate.server.upload import Upload
from sluicegate.server.upstream import UpstreamConnection
from sluicegate.wire import StreamCodec
from sluicegate.wire.openai_responses_request import ResponsesRequest
from sluicegate.wire.told_text import Told
from sluicegate.wire.translation import Asked, PassOptions
from sluicegate.wire.two_part_stream import WatchedStream
from sluicegate.wire.unary.multipart import content_type
from sluicegate.wire.unary.videos import RemixRequest
from sluicegate.wire.upstream_errors import from_stream_error

Prepared = tuple[Provider, Shape, Target, StreamClocks, bytes]
"""An attempt that has not been sent: where to, how, under which clocks, and its body."""


class AttemptingRequest(RunningRequest):
    """A request that can be tried at one deployment."""

    __slots__ = ()

    def _enter(self, place: int) -> Standing:
        """Begin an attempt at a target, under the eyes of what is known of its deployment."""
        known = self._bench.deployments
        deployment = self._targets[place]
        self._place = place
        if self._served:
            self._serve_as(self._order[place][0])
        self._attempts += 1
        self._number = self._attempts
        self._standing = standing = known.get(deployment.provider, deployment.model)
        standing.asked += 1
        standing.running += 1
        if standing.breaker is not CLOSED:
            known.starts(standing, self)
        return standing

    def _leave(self, standing: Standing) -> None:
        standing.running -= 1
        if standing.trial is self:
            standing.trial = None

    def _serve_as(self, one: Served) -> None:
        """Go on with one of the models that the client named: what it is called and costs is that one's."""
        self._row.model = one.name
        self._go_on_at(one.model)

    def _go_on_at(self, model: Model) -> None:
        """Charge from now on what a model cost when the request was admitted."""
        if model is not self._model:
            self._model = model
            self._tab.served_at(model.price_at(self._started_at))

    def _following(self, error: UpstreamError, progress: Progress) -> Attempt | None:
        """Return the attempt that follows a failed one, or None."""
        return next_attempt(
            error,
            progress._replace(begun=self._first_content is not None or self._interpreter.spent),
            self._plan.retry,
            self._due_at - self._loop.time(),
            int.from_bytes(os.urandom(8)),
            self._bench.deployments.spent(progress.targets),
        )

    def _prepare(self, deployment: Deployment) -> Prepared:
        """Say the request as its provider wants it. Raises ClientError."""
        self._deployment = deployment
        provider, format = self._asked_of()
        interpreter, row = self._interpreter, self._row
        target = self._plan.targets.get(provider.name, format, deployment.model)
        self._switches = self._plan.switches(self._key, self._model, provider)
        clocks = self._clocks(deployment)
        row.provider, row.provider_model, row.provider_format = provider.name, deployment.model, format
        row.attempts = self._attempts
        row.upstream_id = None
        self._meter.restart(deployment.model)
        interpreter.asked = asked = self._asked()
        if interpreter.client_name in KEEPING or getattr(self._request, "asks_sound", False):
            self._prepare_keeping(asked, format, provider)
        body = self._body_for(format, provider, deployment)
        if interpreter.calls:
            self._meter.read_part(interpreter.first_part)
        return provider, format, target, clocks, body

    def _asked_of(self) -> tuple[Provider, Shape]:
        """Return the provider of the deployment at hand, and how it is asked."""
        provider = self._plan.settings.catalogue.providers[self._deployment.provider]
        return provider, self._interpreter.target_format(provider, self._deployment)

    def _body_for(self, format: Shape, provider: Provider, deployment: Deployment) -> bytes:
        body = self._interpreter.upstream_body(format, provider, self._model, deployment, self._limit)
        if self._request.continuous_usage and self._request.stream:
            body = continuous.asking_provider(body, format, provider)
        return body

    def _prepare_keeping(self, asked: Asked, format: Shape, provider: Provider) -> None:
        """Say whether the answer is kept: by the provider where it speaks the client's format, else by us."""
        request, account_id = self._request, self._key.account_id
        client = self._interpreter.client_name
        self._keeping = None
        asked.previous_id = self._previous_id
        if format == client:
            asked.close_id = closing(self._plan.seal, request, client, account_id, provider.name)
        elif isinstance(request, ResponsesRequest) and request.store:
            asked.kept = self._plan.settings.responses_store.enabled
            if asked.kept:
                previous = None if self._own_input is None else self._previous_id
                items = self._own_input or own_responses.input_of(request.body)
                self._keeping = Keeping(
                    self._bench.till.link, account_id, "resp_" + asked.id, previous, items
                )

    def _head(self, format: Shape, provider: Provider, target: Target, body: bytes) -> bytes:
        lines = self._interpreter.upstream_lines(format, provider, body, self._exchange.headers)
        head = target.head(len(body), stream=self._request.stream, lines=lines)
        if format == "video_remix":
            assert isinstance(self._request, RemixRequest), "nobody else asks for one"
            head = head.replace(b"{kept}", quote(self._request.kept_id, safe="").encode(), 1)
        return head

    def _begin_upload(self, upload: Upload, target: Target) -> tuple[bytes, bytes]:
        """Return the head of a request with a form, and as much of the form as has come."""
        upload.on_failed = self.stop
        upload.on_grown = self._form_grew
        first = upload.first_part(target.model)
        framing = upload.framing(target.model, first)
        head = target.upload_head(framing, content_type(upload.form.boundary), stream=self._request.stream)
        return head, upload.framed(first)

    async def _connect(self, target: Target, clocks: StreamClocks) -> UpstreamConnection | None:
        """Return a connection, or None where the client left or the request was stopped meanwhile.

        Raises:
            UpstreamError: there is none, or not in time.
        """
        connection = None  # what passes as it comes cannot be sent again, as a used connection may want
        fresh = self._interpreter.upload is not None
        if not fresh:
            connection = self._bench.pool.take(target.origin)
        if connection is None:
            timeout_s = min(clocks.connect_timeout_s, self._due_at - self._loop.time())
            if timeout_s <= 0:
                raise UpstreamTimeout("The request took longer than its total time.", "total")
            dialling = asyncio.ensure_future(self._bench.pool.connect(target.origin, timeout_s, fresh=fresh))
            self._exchange.on_gone = lambda: _cancel(dialling)
            try:
                connection = await dialling
            except asyncio.CancelledError:
                if self._exchange.gone and dialling.cancelled():
                    return None
                dialling.cancel()
                raise
            finally:
                self._exchange.on_gone = None
        if self._exchange.gone or self._stopping is not None:
            connection.abort()
            return None
        return connection

    def _goes_on_by_itself(self) -> bool:
        interpreter, request = self._interpreter, self._request
        if isinstance(interpreter, UnaryInterpreter):
            return interpreter.request.background
        return isinstance(request, ResponsesRequest) and request.background

    def _make_relay(
        self, format: Shape, provider: Provider, clocks: StreamClocks, codec: StreamCodec | None = None
    ) -> Relay:
        """Return the relay of a call.

        Args:
            codec: what the calls before have begun to write; None: this is the first.
        """
        settings = self._plan.settings
        assert self._switches is not None
        drain_cap_s = settings.billing.drain_cap_s if self._switches.on_disconnect == "drain" else None
        if not self._request.stream:
            if self._goes_on_by_itself():  # its id must be learned, or nobody could settle it
                drain_cap_s = settings.billing.drain_cap_s
            return PlainRelay(
                self._exchange,
                self,
                self._bench.deadlines,
                clocks,
                total_due_at=self._due_at,
                secrets=provider.api_keys,
                drain_cap_s=drain_cap_s,
                keepalive_every_s=settings.server.keepalive_every_s if self._may_be_padded() else None,
            )
        follows = codec is not None and codec.content and self._first_content is not None
        if codec is None:
            codec = self._new_codec(format, provider, clocks)
        self._codec = codec
        relay = StreamRelay(
            self._exchange,
            codec,
            self,
            self._bench.deadlines,
            clocks,
            total_due_at=self._due_at,
            secrets=provider.api_keys,
            drain_cap_s=drain_cap_s,
            keepalive=self._interpreter.keepalive,
            passes_bytes=self._interpreter.passes_bytes,
            keepalive_after_s=settings.server.keepalive_after_s,
            keepalive_every_s=settings.server.keepalive_every_s,
            reads_arrays=self._interpreter.reads_arrays(format),
            produced=self._produced if clocks.min_tokens_per_s and self._has_a_pace(clocks) else None,
        )
        if follows:
            relay.follow()
        return relay

    def _new_codec(self, format: Shape, provider: Provider, clocks: StreamClocks) -> StreamCodec:
        assert self._switches is not None
        options = PassOptions(
            count_text=self._meter.add,
            usage_shown=self._interpreter.asked.usage_shown,
            repair=provider.repair,
            choices=self._request.choices,
            max_event_bytes=clocks.max_event_bytes,
            array=self._interpreter.array,
        )
        codec = self._interpreter.stream(format, self._deployment, options)
        self._watched = None
        if clocks.continue_midstream and self._tried < len(self._targets) and self._gives_one_text():
            told = Told(self._interpreter.client.name, array=options.array)
            codec = self._watched = WatchedStream(codec, told)
        if self._request.continuous_usage:
            codec = continuous.telling(
                codec,
                self._interpreter.client,
                self._meter,
                self._tab,
                self._switches,
                array=options.array,
            )
        return codec

    def _gives_one_text(self) -> bool:
        """Whether the answer is one choice, of one call."""
        interpreter = self._interpreter
        return isinstance(interpreter, Interpreter) and self._request.choices == 1 and not interpreter.calls

    def _has_a_pace(self, clocks: StreamClocks) -> bool:
        """Whether the answer may be ended for being slow: it is one that is counted in tokens of text."""
        return clocks.min_tokens_per_s > 0 and self._interpreter.units is None

    def _produced(self) -> int:
        """Return the output tokens so far."""
        return self._meter.so_far()[0].output_tokens or 0

    def _may_be_padded(self) -> bool:
        """Whether the plain answer may have space before it."""
        return self._interpreter.answer_line == JSON

    def _read_answer(self, relay: Relay) -> tuple[Ending, SluicegateError | None]:
        assert isinstance(relay, PlainRelay)
        provider, format = self._asked_of()
        try:
            answer = self._interpreter.plain(format, self._deployment, relay.body)
        except DecodeError as error:
            return "failed", UpstreamGarbled(f"The provider's answer broke its format: {error.reason}.")
        if answer.error is not None:
            return "failed", from_stream_error(answer.error, provider.api_keys)
        self._answer = answer
        self._meter.report(answer.usage)
        row = self._row
        row.finish_reason, row.upstream_id = answer.finish_reason, answer.upstream_id
        row.repaired = answer.repaired
        if answer.usage is None or answer.usage.output_tokens is None:
            for text in answer.texts():
                self._meter.add(text)
        return "complete", None

    def _note_failure(self, error: UpstreamError) -> None:
        self._bench.deployments.failed(self._standing, error)
        self._bench.tally.add(telemetry.ATTEMPTS, 1, self._row.provider or "", error.kind)
        if self._first_content is None:
            self._note_lost(error)

    def _note_lost(self, error: UpstreamError) -> None:
        """Note an attempt that nobody pays for, where its provider may have worked."""
        if may_have_cost(error):
            row = self._row
            place = row.provider or "", row.provider_model or ""
            self._tab.lost_attempt(self._number, *place, time.time(), type(error).__name__)


def _cancel(task: "asyncio.Future[UpstreamConnection]") -> None:
    task.cancel()
