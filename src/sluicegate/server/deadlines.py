"""All deadlines of a worker: one sweep of a quarter second, and one of 50 ms that runs only while it has work.

A timer per stream or per event would cost more than the events themselves. An item says when it is next due and is
asked to expire then; it may set `due_at` later at any time without telling us, and looks at its own clocks when asked.
"""

import asyncio
from typing import Protocol

SWEEP_S = 0.25
SHORT_SWEEP_S = 0.05


class Due(Protocol):
    """Something with a deadline."""

    due_at: float
    """Seconds of `Deadlines.now`; infinity for never."""

    def expire(self, now: float) -> None:
        """Act on a deadline that has passed: set a later `due_at`, or leave the list. Must not raise."""
        ...


class Deadlines:
    """The worker's deadlines. `now` is refreshed by each sweep, cheap to read and at most 0.25 s old."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        """For those who are made once a request: to ask which loop runs is a system call."""
        self.now = loop.time()
        self._items: set[Due] = set()
        self._short: set[Due] = set()
        self._short_running = False
        self._handle: asyncio.TimerHandle | None = loop.call_later(SWEEP_S, self._sweep)

    def add(self, item: Due) -> None:
        """Watch an item with a resolution of a quarter second."""
        self._items.add(item)

    def discard(self, item: Due) -> None:
        """Stop watching an item; harmless when it is not watched."""
        self._items.discard(item)
        self._short.discard(item)

    def add_short(self, item: Due) -> None:
        """Watch an item with a resolution of 50 ms."""
        self._short.add(item)
        if not self._short_running:
            self._short_running = True
            self.loop.call_later(SHORT_SWEEP_S, self._sweep_short)

    def discard_short(self, item: Due) -> None:
        """Stop watching an item closely."""
        self._short.discard(item)

    def close(self) -> None:
        """Stop sweeping for good."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._items.clear()
        self._short.clear()

    def _sweep(self) -> None:
        self.now = now = self.loop.time()
        for item in [item for item in self._items if item.due_at <= now]:
            item.expire(now)
        if self._handle is not None:
            self._handle = self.loop.call_later(SWEEP_S, self._sweep)

    def _sweep_short(self) -> None:
        now = self.loop.time()
        for item in [item for item in self._short if item.due_at <= now]:
            item.expire(now)
        if self._short:
            self.loop.call_later(SHORT_SWEEP_S, self._sweep_short)
        else:
            self._short_running = False
