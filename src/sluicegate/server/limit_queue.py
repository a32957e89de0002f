"""Requests above a limit wait for a place, where `server.queue_for` says so, before they are told 429.

There is a line for each limit; the keys in it take turns, so that one that asks without pause does not starve those
that share an account, a model or a route with it. Nobody overtakes: who comes while others wait joins them. A wait
that cannot help, as nothing will be free in its time, is refused at once.
"""

import asyncio

from sluicegate.billing.fair_queue import FairQueue
from sluicegate.errors import RateLimited, SluicegateError
from sluicegate.routing.catalog_shapes import Limits
from sluicegate.server.exchange import Exchange
from sluicegate.server.limiting import LimitClerk, Ticket

MAX_WAITING = 1_000
"""In one worker; who comes when so many wait is told 429 at once."""
ASK_EVERY_S = 0.05
"""How often is asked for whoever is next, unless something is freed here."""


class _Waiter:
    """A request in a line."""

    __slots__ = ("key_id", "limits", "messages", "place", "refusal", "tokens")

    def __init__(
        self,
        limits: tuple[Limits, ...],
        tokens: int,
        key_id: str,
        messages: bool,
        refusal: RateLimited | None,
        place: "asyncio.Future[Ticket]",
    ) -> None:
        self.limits = limits
        self.tokens = tokens
        self.key_id = key_id
        self.messages = messages
        self.refusal = refusal
        """What it was last told; None: it has not been its turn."""
        self.place = place


class LimitQueue:
    """The lines of one worker."""

    def __init__(self, clerk: LimitClerk) -> None:
        self._clerk = clerk
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, FairQueue[_Waiter]] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self.waiting = 0

    async def admit(
        self,
        limits: tuple[Limits, ...],
        tokens: int,
        key_id: str,
        exchange: Exchange,
        patience_s: float,
        *,
        messages: bool,
    ) -> Ticket:
        """Admit a request as `LimitClerk.admit` does, at once or within its patience.

        Raises:
            RateLimited: not within that time, or too many wait.
            StoreUnavailable: the supervisor did not answer.
        """
        refusal: RateLimited | None = None
        name = next((one.name for one in limits if one.name in self._lines), None)
        if name is None:
            try:
                return await self._clerk.admit(limits, tokens, messages=messages)
            except RateLimited as refused:
                refusal, name = refused, refused.limit
                if (refused.retry_after_s or 0.0) > max(patience_s, 1.0):
                    raise
        if self.waiting >= MAX_WAITING:
            raise refusal or RateLimited("Too many requests wait for this limit.", 1.0)
        waiter = _Waiter(limits, tokens, key_id, messages, refusal, self._loop.create_future())
        return await self._wait(name, waiter, exchange, patience_s)

    async def _wait(self, name: str, waiter: _Waiter, exchange: Exchange, patience_s: float) -> Ticket:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = FairQueue()
            serving = self._loop.create_task(self._serve(name, line))
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
        line.add(waiter.key_id, waiter)
        place = waiter.place
        exchange.on_gone = lambda: _give_up(place)
        self.waiting += 1
        try:
            async with asyncio.timeout(patience_s):
                return await place
        except (TimeoutError, asyncio.CancelledError) as ended:
            if place.done() and not place.cancelled() and place.exception() is None:
                place.result().undo()
            if isinstance(ended, asyncio.CancelledError) and not exchange.gone:
                raise
            raise waiter.refusal or RateLimited("Too many requests wait for this limit.", 1.0) from None
        finally:
            self.waiting -= 1
            exchange.on_gone = None
            line.remove(waiter.key_id, waiter)

    async def _serve(self, name: str, line: FairQueue[_Waiter]) -> None:
        """Ask for whoever is next, until nobody waits."""
        freed = self._clerk.on_freed[name] = asyncio.Event()
        try:
            while (waiter := line.first()) is not None:
                freed.clear()
                try:
                    ticket = await self._clerk.admit(waiter.limits, waiter.tokens, messages=waiter.messages)
                except RateLimited as refusal:
                    waiter.refusal = refusal
                    if refusal.limit != name:  # another one stops it: it may not stop those behind it
                        line.remove(waiter.key_id, waiter)
                        line.add(waiter.key_id, waiter)
                    await _until(freed, ASK_EVERY_S)
                except SluicegateError as error:
                    line.remove(waiter.key_id, waiter)
                    if not waiter.place.done():
                        waiter.place.set_exception(error)
                else:
                    line.remove(waiter.key_id, waiter)
                    if waiter.place.done():
                        ticket.undo()
                    else:
                        waiter.place.set_result(ticket)
        finally:
            del self._lines[name], self._clerk.on_freed[name]


def _give_up(place: "asyncio.Future[Ticket]") -> None:
    place.cancel()


async def _until(freed: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await freed.wait()
    except TimeoutError:
        return
