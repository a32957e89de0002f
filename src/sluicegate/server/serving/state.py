"""What is known of one request while it is served, and what every stage of it asks.

The stages stand on each other, each in a module: `ending`, `running`, `attempt`, `hedged`, `resumed`, `limited`,
`midstream`, `attempts`, `request`. Each calls what stands below it and nothing above.
"""

import math
import time
from collections.abc import Sequence

import msgspec

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.ledger import UsageRow
from sluicegate.billing.meter import Meter
from sluicegate.billing.profiles import Switches
from sluicegate.errors import SluicegateError, StoreUnavailable, UpstreamError
from sluicegate.routing.catalog import Deployment, Model, StreamClocks
from sluicegate.server.background import Run
from sluicegate.server.choosing import Served
from sluicegate.server.clock_wishes import Wishes, tightened
from sluicegate.server.deployments import Standing
from sluicegate.server.exchange import Exchange
from sluicegate.server.hedging import Hedged, Race
from sluicegate.server.idempotency import ClaimedRequest
from sluicegate.server.interpreter import Interpreter
from sluicegate.server.limiting import Ticket
from sluicegate.server.own_responses import Keeping
from sluicegate.server.refusals import answer_headers
from sluicegate.server.relay import Relay
from sluicegate.server.serving.bench import Bench
from sluicegate.server.tab import Tab
from sluicegate.server.unary import UnaryInterpreter
from sluicegate.wire import StreamCodec
from sluicegate.wire.translation import Asked, PassedAnswer
from sluicegate.wire.two_part_stream import WatchedStream

_REQUEST_SLOTS = (
    "_answer",
    "_asked_at",
    "_attempts",
    "_bench",
    "_called",
    "_checkpointed",
    "_codec",
    "_deployment",
    "_due_at",
    "_exchange",
    "_extending",
    "_failures",
    "_finish_left",
    "_form_bytes",
    "_held_answer",
    "_hedged",
    "_first_content",
    "_interpreter",
    "_key",
    "_keeping",
    "_limit",
    "_loop",
    "_meter",
    "_model",
    "_number",
    "_order",
    "_own_input",
    "_pending",
    "_place",
    "_plan",
    "_previous_id",
    "_race",
    "_relay",
    "_request",
    "_reserved_output",
    "_route_ticket",
    "_row",
    "_served",
    "_standing",
    "_started",
    "_started_at",
    "_stopping",
    "_switches",
    "_tab",
    "_targets",
    "_ticket",
    "_tried",
    "_unreserved",
    "_unwritten",
    "_watched",
    "_wishes",
    "claimed",
    "due_at",
    "request_id",
)


def milliseconds(seconds: float) -> float:
    """Return a span, which is never negative, in milliseconds to three places; `round` writes decimals to do that."""
    return int(seconds * 1_000_000 + 0.5) / 1000


class RequestState:
    """One request: who asks, what for, and how far it has come."""

    __slots__ = _REQUEST_SLOTS

    _model: Model
    """Which of its models serves it, or may."""
    _row: UsageRow
    _tab: Tab
    _meter: Meter
    """Of the attempt that runs; like all below, set once the request is admitted."""
    _deployment: Deployment
    _standing: Standing
    """What is known of the deployment that is being asked."""

    def __init__(
        self,
        bench: Bench,
        exchange: Exchange,
        key: KeyRecord,
        request_id: str,
        interpreter: Interpreter | UnaryInterpreter,
    ) -> None:
        self._bench = bench
        self._plan = bench.plan
        self._exchange = exchange
        self._key = key
        self.request_id = request_id
        self._loop = bench.deadlines.loop
        self._started_at = time.time()
        self._started = exchange.received_at
        self._due_at = 0.0
        """Loop time by which it must have ended; like the three below, set once the request is admitted."""
        self._place = 0
        """Of the target that is being tried, in `_targets`."""
        self._number = 0
        """Of the attempt that runs, counting from 1."""
        self._asked_at = 0.0
        """When the deployment was asked, by the monotonic clock."""
        self._called = 0.0
        self._first_content: float | None = None
        self._attempts = 0
        self._relay: Relay | None = None
        self._interpreter = interpreter
        self._request = interpreter.request
        self._codec: StreamCodec | None = None
        self._answer: PassedAnswer | None = None
        self._finish_left = False
        self._reserved_output = 0
        self._limit: int | None = None
        self._extending = False
        self._form_bytes = 0
        """Of a form whose length nobody told: how much of it money is held for."""
        self._checkpointed = 0
        self.due_at = math.inf
        """When the next checkpoint is due, once the stream has begun."""
        self._stopping: SluicegateError | None = None
        self._unwritten = False
        """Its reservation waits to be written with others: nothing may be sent to a provider yet."""
        self._unreserved: StoreUnavailable | None = None
        """Why its reservation could not be."""
        self._held_answer: bytes | None = None
        """What ends the answer, while its settlement waits to be written with others."""
        self._previous_id: str | None = None
        """Of the answer that the client goes on from, as it spelled it."""
        self._own_input: bytes | None = None
        """What the client adds to a conversation that we keep, where it goes on from one."""
        self._keeping: Keeping | None = None
        self._pending: Run | None = None
        """What goes on in the background."""
        self._switches: Switches | None = None
        self._served: tuple[Served, ...] = ()
        """What may serve it, where it overrides something; else its model alone."""
        self._order: Sequence[tuple[Served, Deployment]] = ()
        self._targets: tuple[Deployment, ...] = ()
        self._tried = 1
        self._wishes: Wishes | None = None
        """Clocks that the client wants tighter than they are."""
        self._ticket: Ticket | None = None
        """What it was admitted to, where key, account or model have limits."""
        self._route_ticket: Ticket | None = None
        """The same of the deployment that is asked."""
        self._failures: list[UpstreamError] = []
        self._race: Race | None = None
        self.claimed: ClaimedRequest | None = None
        """Its name, where it has claimed one."""
        self._hedged: Hedged | None = None
        self._watched: WatchedStream | None = None
        """The stream at hand, where another provider may go on with it should it break off."""

    @property
    def key_id(self) -> str:
        """Whose request it is."""
        return self._key.id

    @property
    def tab(self) -> Tab | None:
        """What the request was settled as; None where it was never admitted."""
        return getattr(self, "_tab", None)

    @property
    def streaming(self) -> bool:
        """Whether a byte of a streamed answer is out."""
        return self._request.stream and self._exchange.answered

    def row_so_far(self) -> UsageRow | None:
        """Return the row as it would be now; None once it is settled."""
        if self._tab.settled:
            return None
        if self._codec is not None:
            self._meter.report(self._codec.usage)
        usage, source = self._meter.so_far()
        now = time.monotonic()
        row = msgspec.structs.replace(
            self._row,
            usage=usage,
            usage_source=source,
            cost_nano_usd=self._tab.cost_so_far(usage) if source != "none" else 0,
            duration_ms=milliseconds(now - self._started),
        )
        if self._first_content is not None:
            row.ttft_ms = milliseconds(self._first_content - self._started)
        return row

    @property
    def _checkpoints(self) -> bool:
        """Whether a crash charges for what was produced until then."""
        return self._tab.on_crash == "produced"

    def _wanted_output(self) -> int:
        """Return the output to expect: without a limit of the client's, of the model that may give the most."""
        limit = self._request.max_output_tokens
        if limit is not None:
            return limit
        if not self._served:
            return self._model.max_output_tokens
        return max(one.model.max_output_tokens for one in self._served)

    def _hides_output(self) -> bool:
        if not self._served:
            return self._model.hidden_output
        return any(one.model.hidden_output for one in self._served)

    def _asked(self) -> Asked:
        return Asked(
            model=self._row.model,
            id=self.request_id[4:],
            created=int(self._started_at),
            hide_provider=not self._plan.settings.server.expose_provider,
            input_estimate=max(1, len(self._request.body) // 4),
            usage_shown=self._shows_usage(),
            continuous_usage=self._request.continuous_usage,
            array=self._interpreter.array,
        )

    def _shows_usage(self) -> bool:
        assert self._switches is not None
        return self._request.include_usage or self._switches.usage_chunk == "always"

    def _told(self) -> bytes:
        row, server = self._row, self._plan.settings.server
        dropped = self._interpreter.dropped
        if self._limit is not None:
            dropped = [*dropped, f"{self._request.max_output_key};cut to credit"]
        if self._answer is not None and self._interpreter.untold:
            dropped = [*dropped, *(f"{what};of the answer" for what in self._interpreter.untold)]
        upstream_id = self._codec.upstream_id if self._codec is not None else row.upstream_id
        lines = answer_headers(
            self.request_id,
            provider=row.provider if server.expose_provider else None,
            attempts=self._attempts if server.expose_provider else None,
            overhead_ms=(self._called - self._started) * 1000 if self._called else None,
            upstream_id=upstream_id if server.expose_provider else None,
            dropped=dropped,
        )
        if self._ticket is not None:
            lines += self._ticket.header_lines(messages=self._interpreter.client_name == "messages")
        return lines

    def head_lines(self) -> bytes:
        """Return the header lines of an answer whose head leaves before its end is known."""
        interpreter = self._interpreter
        return (interpreter.stream_lines if self._request.stream else interpreter.answer_line) + self._told()

    def _clocks(self, deployment: Deployment | None = None) -> StreamClocks:
        """Return the clocks of the request, or of an attempt at a deployment."""
        clocks = self._plan.clocks(self._model, deployment)
        return clocks if self._wishes is None else tightened(clocks, self._wishes)
