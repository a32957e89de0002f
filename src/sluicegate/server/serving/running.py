"""A request while its answer runs: what its relay tells (`AttemptNotes`), checkpoints, credit, a stop from outside."""

import contextlib
import time

from sluicegate.billing.meter import Meter
from sluicegate.errors import InsufficientBalance, SluicegateError, StoreUnavailable
from sluicegate.messages import Usage
from sluicegate.server.serving.ending import EndingRequest
from sluicegate.wire.request_edges import BYTES_PER_TOKEN
from sluicegate.wire.unary.forms import FormRequest

EXTEND_AT = 0.75
"""Share of the reserved output that is used up when a running stream asks for more."""
CHECKPOINT_S = 5.0
"""A running stream that a crash charges for journals where it stands so often, and whenever its text is counted: about
every 256 tokens.
"""


class RunningRequest(EndingRequest):
    """A request whose answer can run."""

    __slots__ = ()

    def headed(self) -> None:
        """The provider has answered with success."""
        self._meter.headed = True
        if self._interpreter.passes_bytes and self._relay is not None:
            kind = self._relay.upstream_header(b"content-type")
            self._interpreter.note_type(b"application/octet-stream" if kind is None else kind)

    def begun(self) -> None:
        """Content is here: the first token's time, and the body is not needed for another attempt."""
        if self._first_content is not None:
            return  # of a call before this one, of the same answer
        self._first_content = time.monotonic()
        if self._standing.watched:
            self._bench.deployments.begun(self._standing, self._first_content - self._asked_at)
        if self._watched is None:  # else another provider may have to be asked for the rest
            self._exchange.release_body()
            self._exchange.forget_head()
            self._interpreter.release()
        if self._interpreter.pausable is not None and not self._exchange.gone:
            self._exchange.hold(self._interpreter.pausable.first_bytes)
        if self._checkpoints:
            self.due_at = self._bench.deadlines.now + CHECKPOINT_S
            self._bench.deadlines.add(self)

    def usage_came(self, usage: Usage | None) -> None:
        """The provider has told totals, which account for all that it sent until now."""
        self._meter.report(usage)

    def finish_leaves(self) -> None:
        """Checkpoint: the finish leaves before usage has come."""
        assert self._codec is not None
        self._meter.report(self._codec.usage)
        self._row.finish_reason = self._codec.finish_reason
        self._tab.checkpoint(*self._meter.final(), finished=True)
        self._finish_left = True

    def _counted(self, output_tokens: int) -> None:
        """Ask for more before the reserved output is used up; the stream runs on meanwhile."""
        if self._checkpoints:
            self._checkpoint()
        if self._tab.held and not self._extending and output_tokens >= self._reserved_output * EXTEND_AT:
            self._extending = True
            self._loop.create_task(self._extend())

    def _text_is_late(self) -> None:
        """Text comes faster than it may be counted: count it in the turns to come, a piece in each."""
        self._loop.call_soon(self._count_late)

    def _count_late(self) -> None:
        if not self._tab.settled and self._meter.catch_up():
            self._loop.call_soon(self._count_late)

    def expire(self, now: float) -> None:
        """Journal a checkpoint: its time has come."""
        self.due_at = now + CHECKPOINT_S
        self._checkpoint()

    def _checkpoint(self) -> None:
        """Journal where the stream stands; once its finish has left, that stands there for good."""
        if self._finish_left or self._tab.settled or self._meter.late:
            return
        assert self._codec is not None
        self._meter.report(self._codec.usage)
        usage, source = self._meter.produced()
        output_tokens = usage.output_tokens or 0
        if output_tokens == self._checkpointed:
            return
        self._checkpointed = output_tokens
        with contextlib.suppress(StoreUnavailable):  # the one before, or the next, has to do
            self._tab.checkpoint(usage, source)

    async def _extend(self) -> None:
        more = self._plan.settings.billing.reserve_output_tokens
        try:
            await self._tab.extend_by(more)
            self._reserved_output += more
        except InsufficientBalance as refusal:
            used_up = InsufficientBalance("The credit of this account is used up.")
            self.stop(refusal if refusal.limit else used_up)
        except StoreUnavailable:
            pass  # silence stops nobody; asked again when more was counted
        finally:
            self._extending = False

    def _form_grew(self, size: int) -> None:
        """Hold more for a form that is longer than was expected when it was admitted; it passes on meanwhile."""
        request = self._request
        assert isinstance(request, FormRequest), "others do not grow"
        if size > self._form_bytes and not self._extending:
            self._form_bytes = 2 * size
            request.resize(self._form_bytes)
            self._extending = True
            self._loop.create_task(self._extend_input(request))

    async def _extend_input(self, request: FormRequest) -> None:
        try:
            await self._tab.extend_input(request.input_estimate, request.units)
        except InsufficientBalance as refusal:
            self.stop(refusal)
        except StoreUnavailable:
            self._form_bytes = 0  # asked again with the next piece
        finally:
            self._extending = False

    def stop(self, error: SluicegateError) -> None:
        """End the request from outside, with what the client is told."""
        self._stopping = error
        if self._race is not None:
            self._race.stop(error)
        elif self._relay is not None:
            self._relay.stop(error)
        if self._pending is not None:
            self._pending.stop()

    def _new_meter(self) -> Meter:
        request = self._request
        return Meter(
            self._bench.ratios,
            self._key.id,
            self._model.id,
            # Media by data weigh what they are reserved for, not what their base64 is long.
            min(len(request.body), request.input_estimate * BYTES_PER_TOKEN),
            self._counted if request.stream and (self._tab.held or self._checkpoints) else None,
            self._text_is_late,
            self._bench.output_ratios,
        )
