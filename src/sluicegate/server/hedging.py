"""Two attempts at one request at once: the first one's token is late, so a second begins elsewhere; one of them wins.

Whoever has content first, or a whole answer, is the request's attempt from then on; the other is stopped, and its
connection closes. What the request keeps of an attempt lies in a `Lane` while it is not that attempt's turn. When to
begin is decided in `routing.hedge`; what both attempts are is `serving`'s.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from sluicegate.errors import InternalError, SluicegateError, UpstreamError
from sluicegate.messages import Usage
from sluicegate.routing.retry import Progress
from sluicegate.server.exchange import Exchange
from sluicegate.server.relay import AttemptNotes, Ending, Relay

Outcome = tuple[Ending, SluicegateError | None]


class Hedged(NamedTuple):
    """What a race means for the attempts that may follow."""

    second: int
    """Place of the target that was asked beside the first."""
    last: int
    """Place of the one whose outcome counts."""

    def after(self, progress: Progress) -> Progress:
        """Return where the request stands after both."""
        tried = max(progress.tried, self.second + 1)
        return progress._replace(target=self.last, tried=tried, made=progress.made + 1)


class Lane:
    """One attempt of two."""

    __slots__ = ("kept", "place", "relay", "task")

    def __init__(self, place: int) -> None:
        self.place = place
        """Of its target."""
        self.kept: Any = None
        """What the request keeps of it."""
        self.relay: Relay | None = None
        """None until it is connected."""
        self.task: asyncio.Task[Outcome]


class Racer(AttemptNotes, Protocol):
    """The request, as far as a race asks anything of it."""

    def take_lane(self, lane: Lane) -> None:
        """Go on as this attempt."""
        ...

    def headed_in(self, lane: Lane) -> None:
        """Take note that the provider of this attempt has answered with success."""
        ...

    def usage_in(self, lane: Lane, usage: Usage | None) -> None:
        """Take the totals that the provider of this attempt has told."""
        ...

    def lane_failed(self, lane: Lane, error: UpstreamError) -> None:
        """Take note that an attempt failed while the other goes on."""
        ...

    def lane_lost(self, lane: Lane) -> None:
        """Take note that an attempt was stopped because the other was faster."""
        ...


class _Notes:
    """What the relay of one lane tells. See `AttemptNotes`."""

    __slots__ = ("_lane", "_race", "_racer")

    def __init__(self, race: "Race", racer: Racer, lane: Lane) -> None:
        self._race = race
        self._racer = racer
        self._lane = lane

    def headed(self) -> None:
        self._racer.headed_in(self._lane)

    def begun(self) -> None:
        self._race.won_by(self._lane)
        self._racer.begun()

    def head_lines(self) -> bytes:
        return self._racer.head_lines()

    def usage_came(self, usage: Usage | None) -> None:
        self._racer.usage_in(self._lane, usage)

    def finish_leaves(self) -> None:
        self._race.won_by(self._lane)
        self._racer.finish_leaves()


class Race:
    """Runs the second lane beside the first until one of them has won, and that one to its end."""

    def __init__(self, racer: Racer, exchange: Exchange, first: Lane) -> None:
        self._racer = racer
        self._exchange = exchange
        self._first = first
        self._running: list[Lane] = [first]
        self.lanes = [first]
        """All that took part."""
        self._winner: Lane | None = None
        self._stopped: SluicegateError | None = None

    async def run(
        self,
        running: Coroutine[Any, Any, Ending],
        late_s: float,
        begin_second: Callable[["Race"], Awaitable[tuple[Lane, Coroutine[Any, Any, Outcome]] | None]],
    ) -> tuple[Lane, Outcome]:
        """Run both to the end of the one that wins, or of the last that fails.

        Args:
            running: the first attempt, asked just now.
            late_s: how long to wait for its content before the second begins.
            begin_second: makes the second attempt, or None where there is none to make, or none any more.
        """
        first = self._first
        assert first.relay is not None
        loop = asyncio.get_running_loop()
        first.task = loop.create_task(_outcome(first.relay, running))
        try:
            await asyncio.wait({first.task}, timeout=late_s)
            if not self.is_over(first.relay):
                begun = await begin_second(self)
                if begun is not None:
                    second, coroutine = begun
                    self._share()
                    self._running.append(second)
                    self.lanes.append(second)
                    second.task = loop.create_task(coroutine)
            return await self._finish()
        finally:
            if self._exchange.mover is self:
                self._exchange.mover = None
            for lane in self._running:
                lane.task.cancel()
            await asyncio.gather(*(lane.task for lane in self._running), return_exceptions=True)

    def is_over(self, first: Relay) -> bool:
        """Whether a second attempt would come too late beside the first."""
        return first.ending is not None or first.begun or self._exchange.gone

    async def _finish(self) -> tuple[Lane, Outcome]:
        while True:
            await asyncio.wait({lane.task for lane in self._running}, return_when=asyncio.FIRST_COMPLETED)
            for lane in [lane for lane in self._running if lane.task.done()]:
                self._running.remove(lane)
                if self._winner is not None:
                    if self._winner is lane:
                        return lane, lane.task.result()
                    continue  # it was stopped, and that was told
                if lane.task.cancelled():  # before it was connected: the client left, or we were stopped
                    if self._running:
                        self._racer.lane_lost(lane)
                        continue
                    self.won_by(lane)
                    return lane, ("gone", None) if self._stopped is None else ("stopped", self._stopped)
                ending, error = lane.task.result()
                if ending == "failed" and isinstance(error, UpstreamError) and self._running:
                    self._racer.lane_failed(lane, error)
                    continue
                self.won_by(lane)
                return lane, (ending, error)

    def notes(self, lane: Lane) -> AttemptNotes:
        """Return what a lane's relay tells what happens."""
        return _Notes(self, self._racer, lane)

    def won_by(self, lane: Lane) -> None:
        """Go on with one lane; the other is stopped. Called again it does nothing."""
        if self._winner is not None:
            return
        self._winner = lane
        others = [other for other in self._running if other is not lane]
        for other in others:
            self._stop(other, InternalError("Another provider was faster."))
            self._racer.lane_lost(other)
        self._racer.take_lane(lane)
        if others and lane.relay is not None:
            lane.relay.attend()

    def stop(self, error: SluicegateError) -> None:
        """End both from outside."""
        self._stopped = error
        for lane in self._running:
            self._stop(lane, error)

    def _stop(self, lane: Lane, error: SluicegateError) -> None:
        if lane.relay is None:
            lane.task.cancel()
        else:
            lane.relay.stop(error)

    def _share(self) -> None:
        """Hear of the client for both."""
        assert self._first.relay is not None
        self._first.relay.report_to(self.notes(self._first))
        self._exchange.mover = self

    def pause(self) -> None:
        """Stop reading in both. See `exchange.Mover`."""
        self._each(Relay.pause)

    def resume(self) -> None:
        """Read on in both."""
        self._each(Relay.resume)

    def client_left(self) -> None:
        """End both, as each does where its client leaves."""
        for lane in self._running:
            if lane.relay is None:
                lane.task.cancel()
        self._each(Relay.client_left)

    def _each(self, told: Callable[[Relay], None]) -> None:
        for lane in self._running:
            if lane.relay is not None:
                told(lane.relay)


async def _outcome(relay: Relay, running: Coroutine[Any, Any, Ending]) -> Outcome:
    ending = await running
    return ending, relay.error
