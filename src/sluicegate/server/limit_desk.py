"""The supervisor's side of limits: cuts slices out of the book of all limits for the workers that ask."""

import asyncio
import time
from collections.abc import Callable, Iterable

from sluicegate.billing.limits import LimitBook, Want
from sluicegate.server.control_messages import Sliced, SlicesAsked, SlicesBack

PLACE_GRACE_S = 0.02
"""How long a place is waited for before it is refused: a client may ask another worker before the one that has just
answered it gave the place back."""
FORGET_ABOVE = 10_000
"""Limits in the book before those of which nothing is used are let go."""


class LimitDesk:
    """Answers workers out of a limit book."""

    def __init__(self, send: Callable[[int, Sliced], None], live: Callable[[], Iterable[int]]) -> None:
        """Make an empty book.

        Args:
            send: tells a worker; nothing where it is gone.
            live: the worker processes that share the limits.
        """
        self.book = LimitBook()
        self._send = send
        self._live = live
        self._forget_above = FORGET_ABOVE

    def heard(self, worker: int, message: SlicesAsked | SlicesBack) -> None:
        """Act on what a worker says."""
        now = time.monotonic()
        if isinstance(message, SlicesBack):
            for back in message.back:
                self.book.give_back(worker, back, now)
            return
        if len(self.book) > self._forget_above:
            self.book.forget_idle(now)
            self._forget_above = max(FORGET_ABOVE, 2 * len(self.book))
        self._answer(worker, message, now, last=False)

    def _answer(self, worker: int, message: SlicesAsked, now: float, *, last: bool) -> None:
        live = sum(1 for _ in self._live())
        grant = self.book.ask(worker, message.wants, now, live)
        if grant.refused >= 0 and live > 1 and not last and message.wants[grant.refused].kind == "streams":
            asyncio.get_running_loop().call_later(PLACE_GRACE_S, self._answer_late, worker, message)
        else:
            self._send(worker, Sliced(message.question, grant))

    def _answer_late(self, worker: int, message: SlicesAsked) -> None:
        if worker in self._live():  # else nobody would give back what it got
            wants = [want if not want.back else _without_back(want) for want in message.wants]
            self._answer(worker, SlicesAsked(message.question, wants), time.monotonic(), last=True)

    def release_worker(self, worker: int) -> None:
        """Free the places of a worker that ended."""
        self.book.release_worker(worker)


def _without_back(want: Want) -> Want:
    """Return a want that has given back what came with it."""
    return Want(want.name, want.kind, want.limit, want.need, bare=want.bare)
